"""Where real data is: the directory that PENSTOCK_DATA names, else `shared/data` beside us."""

from __future__ import annotations

import os
from pathlib import Path


class NotHere(Exception):
    """Data that this machine does not have; the text says what would bring it."""


def data_file(name: str) -> Path:
    named = os.environ.get("PENSTOCK_DATA")
    path = (Path(named) if named else Path(__file__).parents[4] / "shared" / "data") / name
    if not path.is_file():
        raise NotHere(f"no {name} in the directory that PENSTOCK_DATA names")
    return path
