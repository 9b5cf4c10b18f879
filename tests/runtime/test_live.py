"""Live subscribers: everything that comes, as it comes, unless they are too slow."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.runtime.sinks.live import Subscribers, Subscription


def _rows(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def _taken(subscription: Subscription) -> list[list[int]]:
    return [rows.column("n").to_pylist() for rows in subscription]


def test_each_subscriber_of_a_query_gets_all_its_results_in_order() -> None:
    subscribers = Subscribers()
    first, second = subscribers.subscribe(1, 10), subscribers.subscribe(1, 10)
    other = subscribers.subscribe(2, 10)
    assert subscribers.slots() == {1, 2}
    for batch in (0, 1, 1):  # the last one is a replay
        subscribers.publish(1, _rows(batch, batch), batch)
    subscribers.publish(1, _rows(2), 0, "another ring")  # it numbers its micro-batches itself
    subscribers.end_all()
    assert _taken(first) == _taken(second) == [[0, 0], [1, 1], [2]]
    assert _taken(other) == []


def test_of_a_slow_reader_the_oldest_rows_go_and_are_counted() -> None:
    subscribers = Subscribers()
    slow = subscribers.subscribe(1, 3)
    subscribers.publish(1, _rows(1, 2), 0)
    subscribers.publish(1, _rows(3, 4), 1)
    assert slow.missed == 1
    assert next(slow).to_pylist() == [{"n": 2}]
    subscribers.publish(1, _rows(5, 6, 7, 8), 2)
    assert slow.missed == 4
    subscribers.end(1)
    assert slow.ended
    assert _taken(slow) == [[6, 7, 8]]


def test_a_reader_that_waits_is_woken_by_results_and_by_the_end() -> None:
    subscribers = Subscribers()
    subscription = subscribers.subscribe(1, 10)
    assert subscription.get(timeout=0.01) is None
    got: list[list[int]] = []
    came = threading.Semaphore(0)

    def read() -> None:
        for rows in subscription:
            got.append(rows.column("n").to_pylist())
            came.release()

    reader = threading.Thread(target=read)
    reader.start()
    subscribers.publish(1, _rows(1), 0)
    assert came.acquire(timeout=60)
    subscribers.end(1)
    reader.join(60)
    assert not reader.is_alive()
    assert got == [[1]]


def test_a_closed_subscription_forgets_and_leaves_the_others() -> None:
    subscribers = Subscribers()
    stays = subscribers.subscribe(1, 10)
    with subscribers.subscribe(1, 10) as leaves:
        subscribers.publish(1, _rows(1), 0)
    leaves.close()
    subscribers.publish(1, _rows(2), 1)
    assert leaves.get() is None
    subscribers.end(1)
    stays.close()
    assert subscribers.slots() == set()
    assert _taken(stays) == []


def test_room_for_no_row_is_refused() -> None:
    with pytest.raises(PenstockError, match="not a number of rows"):
        Subscribers().subscribe(1, 0)
