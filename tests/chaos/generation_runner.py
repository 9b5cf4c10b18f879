"""Queries that make a ring change its plan, registered one by one; one moves to a copy of its ring
on the way: WORKSPACE INPUT OUTPUT."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chaos.processes import wait_for

from penstock import Engine, EngineError
from penstock.runtime.query import Query

QUERIES = 4
STREAM = (
    "CREATE STREAM S (id BIGINT, name STRING) WITH "
    "(source = 'file', path = '{folder}', format = 'parquet', max_files_per_batch = 1)"
)


def main(workspace: str, folder: str, out: str) -> None:
    settings = {"cores": 2, "memory": "1g", "trigger_ms": 10, "parallelism": 2}
    with Engine(workspace=workspace, settings=settings) as engine:
        if engine.catalog.get("S") is None:
            engine.execute(STREAM.format(folder=folder))
        known = {query.name for query in engine.queries()}
        for number in range(QUERIES):
            name = f"q{number}"
            if name not in known:  # all tuples, by an attribute that no other query needs
                text = f"SELECT id FROM S WHERE substring(name, 1, {number + 1}) >= 'N'"
                sink = {"sink": "parquet", "path": str(Path(out) / name)}
                query = engine.register(text, name, sink=sink)
                wait_for(lambda query=query: query.status.rows > 0)  # the next one must not see all
            if number == 1 and len(engine.rings()) == 1:
                moved = engine.query("q1")
                wait_for(lambda moved=moved: _moves(engine, moved))
        engine.await_idle(timeout=300)
        print(*(query.status.rows for query in engine.queries()), flush=True)


def _moves(engine: Engine, query: Query) -> bool:
    try:
        engine._manager.split(query.status.ring, [query.slot])
    except EngineError:  # before its first micro-batch
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
