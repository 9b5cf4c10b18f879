"""Which tables a worker keeps when there is not room for all."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa

from penstock.kernels.join_bucket import SLOTS, TIME, JoinBucket, Windows
from penstock.runtime.analyze import join_lines
from penstock.runtime.joining.explain import expected_costs
from penstock.runtime.joining.monitor import BucketFigures, JoinMonitor, as_message
from penstock.runtime.joining.tables import WarmTables

WINDOWS = Windows(np.array([1]), np.array([[9, 9]]))


def bucket(count: int, inputs: int = 1) -> JoinBucket:
    schema = pa.schema([("__k0", pa.int64()), (TIME, pa.int64()), (SLOTS, pa.list_(pa.int32()))])
    made = JoinBucket([schema, schema])
    numbers = pa.array(np.arange(count))
    lists = pa.array([[1]] * count, pa.list_(pa.int32()))
    batch = pa.RecordBatch.from_arrays([numbers, numbers, lists], schema=schema)
    for input_ in range(inputs):
        made.load(input_, batch, WINDOWS)
    return made


def test_the_table_with_the_most_bits_has_to_go_after_it_served_once_more() -> None:
    size, both = bucket(1000).nbytes, bucket(1000, inputs=2).nbytes
    warm = WarmTables(most_bytes=4 * size + both - 1)
    assert warm.put(("r", 0), "t0", bucket(1000))
    assert warm.put(("r", 1), "t1", bucket(1000, inputs=2))
    assert warm.put(("s", 0), "t2", bucket(1000))
    assert warm.put(("s", 1), "t3", bucket(1000))
    assert warm.put(("s", 2), "t4", bucket(1000))
    assert [place for place, kept in warm.kept.items() if kept.doomed] == [("r", 1)]
    assert warm.room >= 0
    found = warm.take(("r", 1))
    assert found is not None
    assert found.doomed
    assert warm.take(("r", 1)) is None


def test_a_table_too_large_for_the_budget_goes_at_once() -> None:
    warm = WarmTables(most_bytes=bucket(1000).nbytes)
    assert not warm.put(("r", 7), "big", bucket(100_000))
    assert warm.kept == {}


def test_tables_of_rings_that_are_gone_make_room_for_others() -> None:
    size = bucket(1000).nbytes
    warm = WarmTables(most_bytes=2 * size + bucket(10).nbytes)
    warm.put(("gone", 0), "t", bucket(1000))
    for _ in range(65):
        warm.take(("r", 0))
        warm.put(("r", 0), "t", bucket(10))
    assert warm.put(("r", 1), "t", bucket(1000))
    assert warm.put(("r", 2), "t", bucket(1000))
    assert ("gone", 0) not in warm.kept
    assert not any(kept.doomed for kept in warm.kept.values())


def test_what_empty_tables_say_is_not_taken_for_seen() -> None:
    monitor = JoinMonitor()
    monitor.open("r", resumed=True)
    empty = BucketFigures([0, 0], 0, 0, 0, [[0, 0], [0, 0]], 0, 9, 99, 0, False, 0)
    for keys, both, selectivity in ((0, 0, 0.5), (8, 2, 0.25)):
        overlaps = [[keys, both], [both, keys]]
        figures = replace(empty, keys=keys, overlaps=overlaps)
        monitor.calls()["joined"](as_message("r", {0: figures}), [])
        costs = expected_costs(2, monitor.figures("r"))
        assert (costs.selectivity, costs.assumed) == (selectivity, keys == 0)
        lines = join_lines({"join": asdict(monitor.figures("r"))})
        assert any("selectivities" in line for line in lines) == (keys > 0)
