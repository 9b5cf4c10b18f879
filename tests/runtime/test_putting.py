"""What tasks of a derived stream's ring do, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import EngineError
from penstock.exchange.failures import QueueFull
from penstock.runtime.derived import putting
from penstock.runtime.derived.definition import PUNCTUATION
from penstock.runtime.derived.putting import Shape, put_while_full


class Full:
    """Refuses so often."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            raise QueueFull("queue q is full")


def test_a_task_waits_while_the_queue_is_full() -> None:
    put, pauses = Full(3), list[float]()
    put_while_full(put, list, pauses.append)
    assert (put.left, len(pauses)) == (0, 3)


def test_nobody_waits_for_a_reader_that_has_failed() -> None:
    failed = iter([[], ["select-1"]])
    with pytest.raises(EngineError, match="is full, and ring select-1 that reads it has failed"):
        put_while_full(Full(5), lambda: next(failed), lambda _: None)


def test_a_ring_that_is_stopped_gives_up() -> None:
    with pytest.raises(QueueFull):
        put_while_full(Full(5), list, lambda _: True)


TYPES = [pa.list_(pa.int32()), pa.int64(), pa.string(), pa.list_(pa.string())]
SCHEMA = pa.schema(
    [("n", pa.int64()), ("text", pa.string()), ("tags", TYPES[3]), (PUNCTUATION, pa.int64())]
)
SHAPE = Shape(("n", "text", "tags"), None, SCHEMA)
TEXTS = st.none() | st.text(max_size=9)
ROWS = st.lists(st.tuples(st.integers(0, 99), TEXTS, st.none() | st.lists(TEXTS, max_size=3)))


def _results(rows: list[tuple]) -> pa.Table:
    """As Spark hands over a SELECT ring's results."""
    columns = [[[7]] * len(rows), *([row[i] for row in rows] for i in range(3))]
    arrays = [pa.array(c, t) for c, t in zip(columns, TYPES, strict=True)]
    return pa.Table.from_arrays(arrays, names=["__slots", "n", "text", "tags"])


@given(ROWS, st.randoms(), st.integers(0, 50))
def test_the_same_rows_have_as_many_positions_in_any_order(rows, rng, cut) -> None:
    shuffled = rng.sample(rows, len(rows))
    parts = [_results(shuffled[:cut]), _results(shuffled[cut:])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(putting, "_BATCH_BYTES", 100)
        one, other = SHAPE.tuples(_results(rows)), SHAPE.tuples(pa.concat_tables(parts))
    found = [tuple(row.values()) for batch in other for row in batch.to_pylist()]
    assert sorted(map(repr, found)) == sorted(repr((*row, None)) for row in rows)
    assert len(one) == len(other)
