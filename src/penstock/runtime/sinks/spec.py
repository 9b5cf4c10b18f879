"""Sinks as users write them, `INTO (sink = 'parquet', path = 'out/')`, checked and made plain."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.plan.catalog import OptionValue, did_you_mean
from penstock.runtime.sinks.matched import QUERIES_COLUMN

FILE_FORMATS = ("parquet", "json", "csv")
LAYOUTS = ("query", "batch")
_OPTIONS = {
    "results": (),
    "terminal": (),
    "memory": ("limit",),
    "callback": (),
    **dict.fromkeys(FILE_FORMATS, ("path", "layout")),
}
DEFAULT_LIMIT = 100_000
STREAM = "stream"  # kind of the sink of a derived stream's query; `path` is the stream's name

Callback = Callable[[pa.Table], Any]


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """`results` keeps rows in the workspace; `memory` the last `limit` rows in this process.

    layout of files: one per `query` and micro-batch, or one per `batch` for queries that share it.
    """

    kind: str = "results"
    path: str | None = None
    limit: int = DEFAULT_LIMIT
    layout: str = "query"

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> SinkSpec:
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return f"{self.kind} {self.path}" if self.path else self.kind


def sink_of(sink: str | Mapping[str, OptionValue] | Callback | None) -> SinkSpec:
    """Read a sink from what a user gives: a name, options, a function, or nothing."""
    if sink is None:
        return SinkSpec()
    if callable(sink):
        return SinkSpec("callback")
    options = {"sink": sink} if isinstance(sink, str) else dict(sink)
    kind = str(options.pop("sink", ""))
    if kind == "callback" or kind not in _OPTIONS:
        kinds = [k for k in _OPTIONS if k != "callback"]
        what = f"sink {kind} is not known" if kind else "the sink has no kind"
        hint = (
            did_you_mean(kind, kinds, "sinks") if kind else "write sink = 'parquet', path = 'out/'"
        )
        if kind == "callback":
            what, hint = "a callback cannot be named in text", "pass it: register(…, sink=function)"
        raise PenstockError(what, hint)
    for key in options:
        if key not in _OPTIONS[kind]:
            hint = did_you_mean(key, _OPTIONS[kind], f"options of sink {kind}")
            raise PenstockError(f"sink {kind} has no option {key}", hint)
    path = options.get("path")
    if kind in FILE_FORMATS:
        if not path:
            raise PenstockError(
                f"sink {kind} needs a path", f"write sink = '{kind}', path = 'out/'"
            )
        if "://" in str(path):
            hint = "file sinks write local directories; use a function as sink for other stores"
            raise PenstockError(f"sink {kind} cannot write to {path}", hint)
        path = str(Path(str(path)).expanduser().absolute())
        if Path(path).exists() and not Path(path).is_dir():
            raise PenstockError(f"{path} is a file", "a file sink writes a directory of files")
    layout = str(options.get("layout", "query"))
    if layout not in LAYOUTS:
        hint = did_you_mean(layout, LAYOUTS, "layouts")
        raise PenstockError(f"layout {layout} is not known", hint)
    limit = options.get("limit", DEFAULT_LIMIT)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise PenstockError(f"limit = {limit} is not a number of rows", "write limit = 1000")
    return SinkSpec(kind, None if path is None else str(path), limit, layout)


def check_columns(spec: SinkSpec, names: Collection[str]) -> None:
    """Refuse result columns that the sink has a use of its own for."""
    if spec.layout == "batch" and QUERIES_COLUMN in names:
        hint = "name it otherwise, or write layout = 'query'"
        raise PenstockError(f"files of layout batch have a column {QUERIES_COLUMN} already", hint)
