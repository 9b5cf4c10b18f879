"""Random joins as scripts, killed and started again with other parallelism, against DuckDB.

Tuples come out of order, with NULLs, ties and doubles; a stream may be joined with itself; queries
share rings. There is little memory, so that buckets are flushed. PENSTOCK_CHAOS_SEED asks for
another script, other data and other moments.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.chaos.processes import PATIENCE_S, kill_at, running, told
from tests.differential.join_queries import COLUMNS, SCHEMA, SECOND, Case, random_cases, sorted_rows

_FILES, _TUPLES, _DISORDER_S = 24, 20, 20
_SEED = os.environ.get("PENSTOCK_CHAOS_SEED", "7")
# without a common key: Spark's own joins
CHAIN = Case(
    "x.v AS a, z.v AS c",
    (("A", "x", 9), ("B", "y", 9), ("C", "z", 9)),
    "x.id = y.id AND y.name = z.name AND x.v < z.v",
)


@pytest.mark.slow
@pytest.mark.parametrize("expires", [False, True])
def test_killed_joins_have_every_combination_once(expires: bool, tmp_path: Path) -> None:
    """expires: punctuation comes while files are read, not only at their end."""
    rng = random.Random(f"{_SEED} {expires}")
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    for name in "ABC":
        table = _disordered(rng)
        duck.register(name, table)
        (tmp_path / "in" / name).mkdir(parents=True)
        for number in range(_FILES):
            piece = table.slice(number * _TUPLES, _TUPLES)
            pq.write_table(piece, tmp_path / "in" / name / f"{number:05d}.parquet")
    cases = [case for _ in range(2) for case in random_cases(rng, "ABC", 30)]
    cases += [] if expires else [CHAIN]
    (tmp_path / "joins.cql").write_text(_script(rng, cases, expires))
    command = ["-m", "penstock.cli", "run", "joins.cql", "--once", "-w", "w"]
    command += ["--set", f"join_memory={rng.choice((8, 20, 60))} KB"]
    command += ["--set", "memory=1g", "--set", "trigger=10 ms"]
    tasks, *others = rng.sample((1, 2, 3), 2)
    first = running([*command, "--set", f"parallelism={tasks}"], tmp_path)
    killed = kill_at(first, tmp_path, "q*", rng.randint(1, 6), rng.uniform(0, 0.5))
    assert killed  # while files were still to be read
    with running([*command, "--set", f"parallelism={others[0]}"], tmp_path) as process:
        assert process.wait(PATIENCE_S) == 0, told(tmp_path)
    for number, case in enumerate(cases):
        expected = duck.sql(case.expected).to_arrow_table()
        files = tmp_path / "out" / f"q{number}"
        found = pq.read_table(files) if files.exists() else expected.slice(0, 0)
        assert sorted_rows(found) == sorted_rows(expected), (_SEED, case.text)
    assert sum(duck.sql(case.expected).to_arrow_table().num_rows for case in cases) > 200


def _script(rng: random.Random, cases: list[Case], expires: bool) -> str:
    slack = f", slack = '{_DISORDER_S + 1} seconds'" if expires else ""
    streams = [
        f"CREATE STREAM {name} ({COLUMNS}) WITH (source = 'file', path = 'in/{name}', format = "
        f"'parquet', event_time = 'ts', max_files_per_batch = {rng.randint(4, 8)}{slack});\n"
        for name in "ABC"
    ]
    queries = [
        f"CREATE QUERY q{number} AS {case.text} INTO (sink = 'parquet', path = 'out/q{number}');\n"
        for number, case in enumerate(cases)
    ]
    return "".join([*streams, *queries])


def _disordered(rng: random.Random) -> pa.Table:
    rows = [
        {
            "id": rng.choice((None, *range(30))),
            "name": rng.choice((None, "", "a", "A", "ü", *"bcdefgh")),
            "v": rng.choice((None, n)),
            "ts": SECOND * (1_700_000_000 + n // 4 + rng.randrange(_DISORDER_S)),
        }
        for n in range(_FILES * _TUPLES)
    ]
    for at in rng.sample(range(1, len(rows)), 10):  # doubles
        rows[at] = rows[at - 1]
    return pa.Table.from_pylist(rows, SCHEMA)
