"""The golden queries in a process of their own: WORKSPACE INPUT OUTPUT; prints the answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.golden.golden import answers, run_golden

from penstock import Engine


def main(workspace: str, folder: str, out: str) -> None:
    settings = {"cores": 2, "memory": "1g", "trigger_ms": 10, "parallelism": 2}
    with Engine(workspace=workspace, bounded=True, settings=settings) as engine:
        run_golden(engine, Path(folder), Path(out))
        print(json.dumps(answers(engine, Path(out))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
