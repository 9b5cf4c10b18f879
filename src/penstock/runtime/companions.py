"""What would otherwise be lost: late tuples and bad records, kept for `<stream>.late` and `.bad`.

Files are named by what they hold (ring and epoch, or the piece of input), so writing them again
after a crash changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.runtime.epochs import Report
from penstock.runtime.registry import Registry
from penstock.runtime.sinks.files import write_whole
from penstock.runtime.workspace import Workspace


class Companions:
    def __init__(
        self, workspace: Workspace, registry: Registry, query_name: Callable[[int], str]
    ) -> None:
        self._workspace = workspace
        self._registry = registry
        self._query_name = query_name

    def keep(self, stream: str, ring: str, epoch: int, reports: Sequence[Report]) -> None:
        """Write what the tasks of one epoch could not use."""
        late = [_table(r.late_rows) for r in reports if r.late_rows is not None]
        if late:
            rows = pa.concat_tables(late)
            names = [self._query_name(s) for s in rows.column("_slot").to_pylist()]
            at = rows.schema.get_field_index("_slot")
            rows = rows.set_column(at, "_query", pa.array(names, pa.string()))
            path = self._workspace.companion(stream, "late") / f"{ring}-{epoch:012d}.arrow"
            _write(path, rows)
        for report in reports:
            for piece, body, count in report.bad:
                name = hashlib.sha256(piece.encode()).hexdigest()[:24]
                path = self._workspace.companion(stream, "bad") / f"{name}.arrow"
                if not path.exists():
                    _write(path, _table(body))
                self._registry.count_bad(stream, piece, count)


def _table(body: bytes) -> pa.Table:
    return pa.ipc.open_stream(body).read_all()


def _write(path: Path, rows: pa.Table) -> None:
    def write(out: object) -> None:
        with pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)

    write_whole(path, write)
