"""Arrow batches as single binary values: what Spark moves without looking inside.

A ring whose results are columns as they came needs nothing of Spark but to carry them: a blob costs
the JVM a copy, where rows would be taken apart and put together again twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.language.render import quote_name
from penstock.plan.catalog import Stream
from penstock.plan.columns import column_types
from penstock.plan.specs import Composition
from penstock.schema import is_flat

PACKED = "__packed"
_MOST_BYTES = 2**21  # about; Spark holds several at once


def packed_columns(composition: Composition, stream: Stream) -> tuple[str, ...] | None:
    """The columns that a SELECT ring's results consist of; None if Spark has to compute some."""
    if composition.kind != "select":
        return None
    plain = {quote_name(name): name for name in composition.shipped}
    names = tuple(plain.get(output.sql, "") for output in composition.outputs)
    types = column_types(composition, stream)
    return names if all(name in types and is_flat(types[name]) for name in names) else None


def pack(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch as rows of one blob each."""
    for blob in blobs_of(batch):
        yield pa.RecordBatch.from_arrays([pa.array([blob], pa.binary())], names=[PACKED])


def blobs_of(batch: pa.RecordBatch) -> Iterator[bytes]:
    pieces = -(-batch.nbytes // _MOST_BYTES)
    rows = max(1, -(-batch.num_rows // max(1, pieces)))
    for start in range(0, batch.num_rows, rows):
        yield to_ipc(batch.slice(start, rows))


def unpacked(table: pa.Table) -> pa.Table:
    """What is in the blobs of a table, or the table itself if it has none.

    Columns are in the order of their places; some may be missing, of all rows or of those of a
    version at which nobody showed them.
    """
    if PACKED not in table.schema.names or not table.num_rows:
        return table
    blobs = (blob.as_buffer() for blob in table.column(PACKED))
    tables = [pa.ipc.open_stream(blob).read_all() for blob in blobs]
    found = pa.concat_tables(tables, promote_options="default")
    return found.select(sorted(found.column_names, key=place_of))


def packed_name(place: int) -> str:
    """What a result column is called in blobs and in Spark."""
    return f"__o{place}"


def place_of(name: str) -> int:
    """The place of a result column among its ring's; -1 if it is none."""
    return int(name[3:]) if name.startswith("__o") else -1


def to_ipc(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    """The batch as one blob; compressed where it is moved and stored more than once."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def from_ipc(blob: bytes) -> pa.RecordBatch:
    """The one batch of a blob."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_next_batch()
