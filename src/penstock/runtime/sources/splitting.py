"""Files cut into pieces for parallel tasks, balanced by bytes.

Only a file that is larger than one task's share is opened: smaller ones cannot unbalance the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.runtime.sources.binary import ARROW_MAGIC
from penstock.runtime.sources.listing import FileInfo, FileOptions, file_system


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Row groups (parquet) or record batches (arrow) `first` … `first + count - 1` of a file;
    count None: all of the file."""

    path: str
    first: int = 0
    count: int | None = None

    def to_json(self) -> list[str | int | None]:
        return [self.path, self.first, self.count]

    @classmethod
    def from_json(cls, data: Sequence[str | int | None]) -> FilePiece:
        path, first, count = data
        return cls(str(path), int(first or 0), None if count is None else int(count))


def split_files(
    files: Sequence[FileInfo], options: FileOptions, parallelism: int
) -> list[list[FilePiece]]:
    """At most `parallelism` non-empty lists of pieces; each keeps the order of `files`."""
    share = sum(file.size for file in files) / max(parallelism, 1)
    units: list[tuple[int, FilePiece]] = []
    system: fs.FileSystem | None = None
    for file in files:
        sizes: list[int] = []
        if options.format in ("parquet", "arrow") and file.size > share and parallelism > 1:
            system = system or file_system(options)
            sizes = _unit_sizes(system, file, options.format)
        if len(sizes) > 1:
            units.extend((size, FilePiece(file.path, i, 1)) for i, size in enumerate(sizes))
        else:
            units.append((file.size, FilePiece(file.path)))
    tasks: list[list[int]] = [[] for _ in range(max(parallelism, 1))]
    loads = [0] * len(tasks)
    # The largest first to the least loaded task: at worst 4/3 of the best balance.
    for index in sorted(range(len(units)), key=lambda i: -units[i][0]):
        lightest = loads.index(min(loads))
        tasks[lightest].append(index)
        loads[lightest] += max(units[index][0], 1)
    return [_join(units[index][1] for index in sorted(task)) for task in tasks if task]


def _join(pieces: Iterable[FilePiece]) -> list[FilePiece]:
    """Neighbouring units of a file as one piece."""
    joined: list[FilePiece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.count is not None
            and last.path == piece.path
            and last.first + last.count == piece.first
        ):
            joined[-1] = FilePiece(last.path, last.first, last.count + 1)
        else:
            joined.append(piece)
    return joined


def _unit_sizes(system: fs.FileSystem, file: FileInfo, format_: str) -> list[int]:
    """Bytes of each row group or record batch; empty if the file cannot tell (the reader will)."""
    try:
        with system.open_input_file(file.path) as source:
            if format_ == "parquet":
                metadata = pq.ParquetFile(source).metadata
                groups = range(metadata.num_row_groups)
                return [metadata.row_group(group).total_byte_size for group in groups]
            if source.read(len(ARROW_MAGIC)) != ARROW_MAGIC:
                return []
            source.seek(0)
            batches = pa.ipc.open_file(source).num_record_batches
            return [file.size // batches] * batches if batches else []
    except (OSError, pa.ArrowException):
        return []
