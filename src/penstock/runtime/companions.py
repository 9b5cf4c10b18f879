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
        kept = [rows for report in reports for _, rows in sorted(report.rows.items())]
        late = [_table(rows.body) for rows in kept if rows.kind == "late"]
        if late:
            path = self._workspace.companion(stream, "late") / f"{ring}-{epoch:012d}.arrow"
            _write(path, self._with_names(pa.concat_tables(late)))
        for piece in sorted({rows.piece for rows in kept if rows.kind == "bad"}):
            tables = [_table(rows.body) for rows in kept if rows.piece == piece]
            name = hashlib.sha256(piece.encode()).hexdigest()[:24]
            path = self._workspace.companion(stream, "bad") / f"{name}.arrow"
            table = pa.concat_tables(tables)
            if not path.exists():
                _write(path, table)
            self._registry.count_bad(stream, piece, table.num_rows)

    def _with_names(self, late: pa.Table) -> pa.Table:
        """Queries by name instead of by slot; each name is looked up once."""
        slots = late.column("_slot").combine_chunks().dictionary_encode()
        names = pa.array([self._query_name(s) for s in slots.dictionary.to_pylist()], pa.string())
        at = late.schema.get_field_index("_slot")
        return late.set_column(at, "_query", names.take(slots.indices))


def _table(body: bytes) -> pa.Table:
    return pa.ipc.open_stream(body).read_all()


def _write(path: Path, rows: pa.Table) -> None:
    def write(out: object) -> None:
        with pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)

    write_whole(path, write)
