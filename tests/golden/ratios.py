"""Queries with a DRATIO over tuples with random delays, and what must come of them.

One file is one micro-batch. Which punctuation an epoch got is in the registry; given those, what is
late and what every window counts follows tuple by tuple.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.reference import window_ends

from penstock import Engine

FILES, ROWS = 16, 1200
RATIO = 0.05
RANGE_US, SLIDE_US = 8_000_000, 2_000_000
START_US = 1_700_000_000_000_000
STREAM = """
    CREATE STREAM S (k INT, ts TIMESTAMP, got TIMESTAMP) WITH (source = 'file', path = '{folder}',
      format = 'parquet', event_time = 'ts', arrival_time = 'got', max_files_per_batch = 1)
"""
QUERIES = {
    "hop": "SELECT count(*) AS n FROM S [RANGE 8 SECONDS SLIDE 2 SECONDS DRATIO 5%]",
    "apart": "SELECT k, count(*) AS n FROM S [RANGE 4 SECONDS DRATIO 5% PER k] GROUP BY k",
    "mixed": "SELECT count(*) AS n FROM S [RANGE 4 SECONDS DRATIO 5% PER k]",
}

Tuple = tuple[int, int, int]  # k, event time, arrival time


def ratio_rows(seed: int) -> list[list[Tuple]]:
    """A tuple each 8 ms, two seconds of delay on average; one in twenty is of slow source 0."""
    rng = random.Random(seed)
    rows = []
    for number in range(FILES * ROWS):
        k = rng.randrange(20)
        event_us = START_US + number * 8_000
        delay_us = rng.expovariate(1 / 2_000_000) + (12_000_000 if k == 0 else 0)
        rows.append((k, event_us, event_us + round(delay_us)))
    rows.sort(key=lambda row: row[2])
    return [rows[first : first + ROWS] for first in range(0, len(rows), ROWS)]


def write_ratio_rows(files: list[list[Tuple]], folder: Path) -> None:
    folder.mkdir(parents=True)
    time = pa.timestamp("us", tz="UTC")
    for number, rows in enumerate(files):
        k, event, arrival = zip(*rows, strict=True)
        columns = {
            "k": pa.array(k, pa.int32()),
            "ts": pa.array(event, time),
            "got": pa.array(arrival, time),
        }
        pq.write_table(pa.table(columns), folder / f"{number:04d}.parquet", row_group_size=100)


def run_ratios(engine: Engine, folder: Path) -> dict[str, Any]:
    """Register what is not there yet, read everything, give the answers as plain data."""
    if engine.catalog.get("S") is None:
        engine.execute(STREAM.format(folder=folder))
    known = {q.name for q in engine.queries()}
    with engine.together():
        for name, text in QUERIES.items():
            if name not in known:
                engine.register(text, name)
        if "late" not in known:
            engine.register("SELECT * FROM S.late", "late")
    engine.finish(timeout=300)
    return answers(engine)


def answers(engine: Engine) -> dict[str, Any]:
    found: dict[str, Any] = {"metrics": {}}
    for name in QUERIES:
        query = engine.query(name)
        rows = [
            [int(r["window_end"].timestamp() * 1_000_000), r.get("k", -1), r["n"]]
            for r in query.results().to_pylist()
        ]
        status = query.status
        found[name] = {"rows": sorted(rows), "late": status.late, "lost": status.lost}
        found["metrics"][name] = query.disorder
    late = engine.query("late").results()
    kept = zip(late["_query"].to_pylist(), late["_missed"].to_pylist(), strict=True)
    found["kept"] = sorted([query, missed, n] for (query, missed), n in Counter(kept).items())
    rings = {q.name: q.status.ring for q in engine.queries()}
    found["punctuations"] = {
        name: punctuations(engine.workspace.catalog, rings[name]) for name in QUERIES
    }
    return json.loads(json.dumps(found))


def punctuations(catalog: Path, ring: str) -> dict[str, int]:
    """The punctuation that each file of the stream was read with."""
    with sqlite3.connect(f"file:{catalog}?mode=ro", uri=True) as db:
        rows = db.execute(
            "SELECT c.item, e.punctuation_us FROM consumed c"
            " JOIN epochs e ON e.ring = c.ring AND e.number = c.number WHERE c.ring = ?",
            (ring,),
        ).fetchall()
    return {Path(item).name: punctuation for item, punctuation in rows}


def expected_hop(files: list[list[Tuple]], closed: dict[str, int]) -> dict[str, Any]:
    """What `hop` must answer, given the punctuation of each file."""
    counts: Counter[int] = Counter()
    late = lost = below = 0
    for number, rows in enumerate(files):
        closed_us = closed[f"{number:04d}.parquet"]
        for _, event_us, _ in rows:
            ends = window_ends(event_us, RANGE_US, SLIDE_US)
            open_ = [end for end in ends if end > closed_us]
            counts.update(open_)
            late += len(open_) < len(ends)
            lost += not open_
            below += event_us < closed_us // SLIDE_US * SLIDE_US
    return {"rows": [[e, -1, n] for e, n in sorted(counts.items())], "late": late, "lost": lost} | {
        "below": below
    }
