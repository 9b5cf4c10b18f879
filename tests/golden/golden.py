"""Golden queries over a disordered stream, and their answers computed tuple by tuple.

One file is one micro-batch, so what is late does not depend on chance: the punctuation of a file is
the latest event time in the files before it, less the slack.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.reference import window_ends

from penstock import Engine

FILES = 14
SLACK_US = 2_000_000
RANGE_US, SLIDE_US = 10_000_000, 4_000_000
STREAM = """
    CREATE STREAM S (k INT, v BIGINT, ts TIMESTAMP) WITH (source = 'file', path = '{folder}',
      format = 'parquet', event_time = 'ts', slack = '2 seconds', max_files_per_batch = 1)
"""
SELECTION = "SELECT k, v, ts FROM S WHERE v > 50 AND k <> 3"
DERIVED = "SELECT k, v, ts FROM S WHERE coalesce(v, 0) > 50 AND k <> 3"  # in Spark's own code
WINDOW = """
    SELECT k, count(*) AS n, sum(v) AS total FROM S [RANGE 10 SECONDS SLIDE 4 SECONDS]
    WHERE v > 5 GROUP BY k
"""
QUERIES = {
    "selected": (SELECTION, True),
    "selected_here": (SELECTION, False),
    "derived": (DERIVED, True),
    "windows": (WINDOW, True),
    "windows_here": (WINDOW, False),
}

Rows = list[list[tuple[int, int, int]]]  # (k, v, event time) by file


def golden_rows(seed: int) -> Rows:
    rng = random.Random(seed)
    files = []
    for number in range(FILES):
        first_us = number * 5_000_000 + 1_700_000_000_000_000
        rows = []
        for _ in range(200):
            back_us = rng.choice((0, 0, 0, rng.randrange(3_000_000), rng.randrange(40_000_000)))
            ts_us = first_us + rng.randrange(5_000_000) - back_us
            rows.append((rng.randrange(5), rng.randrange(100), ts_us))
        files.append(rows)
    return files


def write_golden(files: Rows, folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, rows in enumerate(files):
        k, v, ts = zip(*rows, strict=True)
        times = pa.array(ts, pa.timestamp("us", tz="UTC"))
        table = pa.table({"k": pa.array(k, pa.int32()), "v": pa.array(v), "ts": times})
        path = folder / f"{number:03d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def run_golden(engine: Engine, folder: Path, out: Path, flush: bool = True) -> None:
    """Start the golden queries, or find them as they were left, and let them read all there is."""
    if engine.catalog.get("S") is None:
        engine.execute(STREAM.format(folder=folder))
    known = {q.name for q in engine.queries()}
    with engine.together():
        for name, (text, to_files) in QUERIES.items():
            if name not in known:
                sink = {"sink": "parquet", "path": str(out / name)} if to_files else None
                engine.register(text, name, sink=sink)
    if flush:
        engine.finish(timeout=300)
    else:
        engine.await_idle(timeout=300)


def answers(engine: Engine, out: Path) -> dict[str, dict[str, Any]]:
    """What every golden query has told: rows in order, and its counters."""
    found = {}
    for name, (_, to_files) in QUERIES.items():
        query = engine.query(name)
        table = pq.read_table(out / name) if to_files else query.results()
        columns = [_plain(column) for column in table.columns]
        rows = sorted([list(row) for row in zip(*columns, strict=True)])
        status = query.status
        found[name] = {
            "rows": rows,
            "counted": status.rows,
            "late": status.late,
            "lost": status.lost,
        }
    return found


def _plain(column: pa.ChunkedArray) -> list[int]:
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def expected_answers(files: Rows) -> dict[str, dict[str, Any]]:
    selected = sorted([k, v, ts] for rows in files for k, v, ts in rows if v > 50 and k != 3)
    windows: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    late, lost, closed_us, latest_us = 0, 0, None, None
    for rows in files:
        for k, v, ts in rows:
            ends = window_ends(ts, RANGE_US, SLIDE_US)
            open_ends = [e for e in ends if closed_us is None or e > closed_us]
            if v > 5:
                late += len(open_ends) < len(ends)
                lost += not open_ends
                for end in open_ends:
                    windows[end, k].update(n=1, total=v)
        latest_us = max([ts for _, _, ts in rows] + ([] if latest_us is None else [latest_us]))
        closed_us = (latest_us - SLACK_US) // 1000 * 1000
    reported = sorted(
        [end - RANGE_US, end, k, sums["n"], sums["total"]] for (end, k), sums in windows.items()
    )
    of_selection = {"rows": selected, "counted": len(selected), "late": 0, "lost": 0}
    of_window = {"rows": reported, "counted": len(reported), "late": late, "lost": lost}
    return {name: of_window if "windows" in name else of_selection for name in QUERIES}
