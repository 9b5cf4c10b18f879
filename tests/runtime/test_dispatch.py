"""Results to sinks: each query gets its own rows, once, whatever the others do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.dispatch import CallbackSink, Dispatcher
from penstock.runtime.sinks.log import ResultLog


class Frame:
    """The one call that dispatch makes of a DataFrame."""

    def __init__(self, slots: list[list[int]], values: list[int]) -> None:
        self._table = pa.table({"__slots": pa.array(slots, pa.list_(pa.int32())), "__o0": values})

    def toArrow(self) -> pa.Table:  # Spark's name
        return self._table


@pytest.fixture
def told() -> dict[str, Any]:
    return {"quarantined": [], "finished": []}


@pytest.fixture
def dispatcher(tmp_path: Path, told: dict[str, Any]) -> Dispatcher:
    return Dispatcher(
        "ring",
        ("n",),
        ResultLog(tmp_path),
        lambda slot, error: told["quarantined"].append((slot, str(error))),
        lambda batch, rows: told["finished"].append((batch, rows)),
    )


def _logged(dispatcher: Dispatcher, slot: int) -> list[int]:
    return [v for table in dispatcher.log.read(slot) for v in table.column("n").to_pylist()]


def test_queries_with_different_sinks_in_one_ring_get_their_own_rows_once(
    dispatcher: Dispatcher, told: dict[str, Any]
) -> None:
    got: list[int] = []
    dispatcher.attach(1, None)
    dispatcher.attach(2, CallbackSink(lambda rows: got.extend(rows.column("n").to_pylist())))
    dispatcher(Frame([[1, 2], [2], [1], [3]], [10, 20, 30, 40]), 0)  # type: ignore[arg-type]
    assert _logged(dispatcher, 1) == [10, 30]
    assert got == [10, 20]
    assert _logged(dispatcher, 2) == []  # a row that both matched is kept for the first alone
    assert told["finished"] == [(0, {1: 2, 2: 2})]


def test_a_batch_that_is_done_again_calls_a_function_once(dispatcher: Dispatcher) -> None:
    got: list[int] = []
    dispatcher.attach(2, CallbackSink(lambda rows: got.extend(rows.column("n").to_pylist())))
    for _ in range(2):
        dispatcher(Frame([[2]], [5]), 0)  # type: ignore[arg-type]
    assert got == [5]


def test_a_failing_sink_quarantines_its_query_and_loses_nothing(
    dispatcher: Dispatcher, told: dict[str, Any]
) -> None:
    def fail(rows: pa.Table) -> None:
        raise OSError("disk full")

    got: list[int] = []
    dispatcher.attach(1, CallbackSink(fail))
    dispatcher.attach(2, CallbackSink(lambda rows: got.extend(rows.column("n").to_pylist())))
    dispatcher(Frame([[1, 2]], [1]), 0)  # type: ignore[arg-type]
    dispatcher(Frame([[1, 2]], [2]), 1)  # type: ignore[arg-type]
    assert told["quarantined"] == [(1, "disk full")]
    assert _logged(dispatcher, 1) == [1, 2]
    assert got == [1, 2]


def test_rows_of_a_dropped_query_go_nowhere(dispatcher: Dispatcher, told: dict[str, Any]) -> None:
    dispatcher.attach(1, None)
    dispatcher.detach(1)
    dispatcher(Frame([[1]], [1]), 0)  # type: ignore[arg-type]
    assert _logged(dispatcher, 1) == []
    assert told["finished"] == [(0, {})]


def test_an_empty_batch_is_finished_too(dispatcher: Dispatcher, told: dict[str, Any]) -> None:
    dispatcher(Frame([], []), 7)  # type: ignore[arg-type]
    assert told["finished"] == [(7, {})]
