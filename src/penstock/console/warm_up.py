"""`penstock warm-up`: what every start would do again is done once, and kept."""

from __future__ import annotations

from typing import Any

from penstock.console.failures import OK, say
from penstock.console.progress import working
from penstock.kernels.jit import warm_up

# One of each kind of ring, so that the classes of all of them are loaded.
_EVERY_KIND = """
    CREATE STREAM A (id INT, room STRING, ts TIMESTAMP)
      WITH (source = 'generator', rate = 1000, rows = 2000, event_time = 'ts');
    CREATE STREAM B (id INT, ts TIMESTAMP)
      WITH (source = 'generator', rate = 1000, rows = 2000, event_time = 'ts');
    CREATE QUERY some AS SELECT id, upper(room) AS room FROM A WHERE id > 10;
    CREATE QUERY counted AS
      SELECT id, count(*) AS n FROM A [RANGE 1 MINUTE DRATIO 1%] GROUP BY id;
    CREATE QUERY met AS
      SELECT A.id, B.ts FROM A [RANGE 1 MINUTE], B [RANGE 1 MINUTE] WHERE A.id = B.id;
    SHOW RINGS;
"""


def run_warm_up() -> int:
    with working("compiling kernels"):
        warm_up()
    with working("keeping Spark's classes for quick starts"):
        _keep_classes()
    say("ready")
    return OK


def _keep_classes() -> None:
    from penstock.runtime.class_archive import await_end, new_archive
    from penstock.runtime.engine import Engine
    from penstock.runtime.session import start_spark

    with new_archive() as options:
        spark = start_spark(memory="1g", java_options=options)
        jvm: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        with Engine(spark, bounded=True) as engine:
            engine.execute(_EVERY_KIND)
            engine.finish(300)
        spark.stop()
        await_end(jvm)
