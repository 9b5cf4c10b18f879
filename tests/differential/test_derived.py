"""Pipelines of derived streams give what DuckDB gives for the whole of them on the same data."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.differential.answers import difference

from penstock import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [("id", pa.int32()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))],
)
STREAM = (
    "CREATE STREAM A (id INT, v BIGINT, ts TIMESTAMP) WITH (source = 'file',"
    " path = '{path}', format = 'parquet', event_time = 'ts', max_files_per_batch = 2);"
)
# a chain, a diamond with a join at its end, windows over windows and over a derived join
PIPELINE = """
CREATE STREAM Low AS SELECT id, v, ts FROM A WHERE v < 300;
CREATE STREAM Even WITH (capacity = '1 MB') AS SELECT id, v, ts FROM Low WHERE v % 2 = 0;
CREATE STREAM Odd WITH (mode = 'block') AS SELECT id, v AS w, ts AS at FROM Low WHERE v % 2 = 1;
CREATE STREAM Pairs AS SELECT e.id, e.v, o.w, e.ts
  FROM Even e [RANGE 6 SECONDS], Odd o [RANGE 4 SECONDS] WHERE e.id = o.id;
CREATE STREAM Counts AS
  SELECT id, count(*) AS n FROM Low [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY id;
CREATE QUERY even AS SELECT v * 10 AS v FROM Even WHERE id < 3;
CREATE QUERY peaks AS SELECT max(n) AS n, count(*) AS ids FROM Counts [RANGE 20 SECONDS];
CREATE QUERY paired AS SELECT count(*) AS n, sum(w) AS s FROM Pairs [RANGE 10 SECONDS];
"""
S = 1_000_000
EXPECTED = {
    "Low": "SELECT id, v, ts, epoch_us(ts) AS us FROM A WHERE v < 300",
    "Pairs": f"""SELECT e.id, e.v, o.v AS w, e.us FROM Low e, Low o WHERE e.id = o.id
      AND e.v % 2 = 0 AND o.v % 2 = 1 AND greatest(e.us, o.us) - e.us <= {6 * S}
      AND greatest(e.us, o.us) - o.us <= {4 * S}""",
    "Counts": f"""WITH ends AS (SELECT id, unnest([us // {5 * S} + 1, us // {5 * S} + 2]) AS e
      FROM Low) SELECT id, e * {5 * S} AS us, count(*) AS n FROM ends GROUP BY id, e""",
    "even": "SELECT v * 10 AS v FROM Low WHERE v % 2 = 0 AND id < 3",
    "peaks": f"""SELECT us // {20 * S} AS k, max(n) AS n, count(*) AS ids FROM Counts GROUP BY k""",
    "paired": f"SELECT us // {10 * S} AS k, count(*) AS n, sum(w) AS s FROM Pairs GROUP BY k",
}
QUERIES = ("even", "peaks", "paired")


def _rows(rng: random.Random, count: int) -> pa.Table:
    rows = [
        {"id": rng.randrange(6), "v": rng.randrange(400), "ts": S * (n // 4 + rng.randrange(10))}
        for n in range(count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def _write(table: pa.Table, folder: Path, files: int) -> None:
    folder.mkdir(parents=True)
    size = -(-table.num_rows // files)
    for number in range(files):
        piece = table.slice(number * size, size)
        pq.write_table(piece, folder / f"{number:03d}.parquet")


@pytest.mark.slow
def test_pipelines_are_what_duckdb_makes_of_the_whole(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(11)
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    table = _rows(rng, 400)
    _write(table, tmp_path / "in", 6)
    duck.register("A", table)
    script = STREAM.format(path=tmp_path / "in")
    for name in ("Low", "Pairs", "Counts"):
        duck.execute(f"CREATE TABLE {name} AS {EXPECTED[name]}")
    with Engine(spark, bounded=True, settings={"trigger_ms": 10}) as engine:
        engine.execute(script + PIPELINE)
        engine.finish(timeout=300)
        found = {name: engine.query(name).results() for name in QUERIES}
        figures = {row[0]: row for row in engine.execute("SHOW EXCHANGE")[0].rows}
    for name, rows in found.items():
        ours, theirs = rows, duck.sql(EXPECTED[name]).to_arrow_table()
        if "window_start" in ours.column_names:
            ours = ours.drop_columns(["window_start", "window_end"])
            theirs = theirs.drop_columns(["k"])
        assert theirs.num_rows > 3, name
        assert difference(ours, theirs, 0) is None, name
    assert set(figures) == {"Low", "Even", "Odd", "Pairs", "Counts"}
    assert figures["Odd"][2] == "block"
    assert figures["Even"][7] == 1 << 20
