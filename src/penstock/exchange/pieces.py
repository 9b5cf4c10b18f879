"""How the batches of a partition are cut into puts: the same tuples in, the same pieces out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

PIECE_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """What one put carries; last: of its partition."""

    number: int
    last: bool
    batches: tuple[pa.RecordBatch, ...]
    nbytes: int

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


def pieces_of(
    batches: Iterable[pa.RecordBatch],
    piece_bytes: int = PIECE_BYTES,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[Piece]:
    """Pieces of about that size, at least one; the last one is marked."""
    number, waiting, nbytes = 0, list[pa.RecordBatch](), 0
    for batch in (part for whole in batches for part in _parts(whole, batch_bytes)):
        size = pa.ipc.get_record_batch_size(batch)
        if waiting and nbytes + size > piece_bytes:
            yield Piece(number, False, tuple(waiting), nbytes)
            number, waiting, nbytes = number + 1, [], 0
        waiting.append(batch)
        nbytes += size
    yield Piece(number, True, tuple(waiting), nbytes)


def _parts(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Slices of about that size; a single row is not cut."""
    if not batch.num_rows:
        return
    count = -(-batch.nbytes // most_bytes) if batch.nbytes else 1
    rows = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
