"""Queries with a DRATIO in a process of their own: WORKSPACE INPUT OUTPUT; prints the answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.golden.ratios import run_ratios

from penstock import Engine


def main(workspace: str, folder: str, _: str) -> None:
    settings = {"cores": 2, "memory": "1g", "trigger_ms": 10, "parallelism": 2}
    with Engine(workspace=workspace, bounded=True, settings=settings) as engine:
        print(json.dumps(run_ratios(engine, Path(folder))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
