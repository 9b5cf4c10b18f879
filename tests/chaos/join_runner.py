"""Joins of two file streams to Parquet, with little memory: WORKSPACE INPUT OUTPUT."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock import Engine

RANGE_S = 30
QUERIES = {
    "pairs": "A.v AS a, B.v AS b",
    "keys": "A.id",
}
STREAM = (
    "CREATE STREAM {name} (id BIGINT, v BIGINT, ts TIMESTAMP) WITH (source = 'file', "
    "path = '{folder}/{name}', format = 'parquet', event_time = 'ts', slack = '1 hour', "
    "max_files_per_batch = 5)"
)


def main(workspace: str, folder: str, out: str) -> None:
    settings = {"cores": 2, "memory": "1g", "trigger_ms": 10, "join_memory": "20 KB"}
    with Engine(workspace=workspace, settings=settings, bounded=True) as engine:
        for name in "AB":
            if engine.catalog.get(name) is None:
                engine.execute(STREAM.format(name=name, folder=folder))
        known = {query.name for query in engine.queries()}
        with engine.together():
            for name, items in QUERIES.items():
                if name not in known:
                    streams = f"A [RANGE {RANGE_S} SECONDS], B [RANGE {RANGE_S} SECONDS]"
                    sink = {"sink": "parquet", "path": str(Path(out) / name)}
                    text = f"SELECT {items} FROM {streams} WHERE A.id = B.id"
                    engine.register(text, name, sink=sink)
        engine.finish(timeout=300)
        print(*(engine.query(name).status.rows for name in QUERIES), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
