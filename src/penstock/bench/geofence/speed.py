"""How many points a second one core locates among fences, beside two ways with shapely.

The rivals are a vectorised query of an STRtree for all points at once, made beforehand, and what a
function called for each row would do: ask each prepared polygon. Seconds are processor time, since
other programs stretch the time on the wall; all contestants have one thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import shapely

from penstock.bench.geofence.data import Case
from penstock.bench.report import Value
from penstock.kernels.fences import Fences, Located, Relation
from penstock.kernels.jit import Ints

_PASSES = 5
_RELATIONS: tuple[Relation, ...] = ("within", "intersects")
_ROW_TESTS = 200_000  # of the function for each row: points · fences


def kernel_row(case: Case, checked: int) -> tuple[dict[str, Value], bool]:
    """The figures of a case, and whether all answers are the same on the first points."""
    fences = Fences(case.domain)
    build_s = _seconds(lambda: fences.change(dict(enumerate(case.fences))))
    memory_mb = fences.nbytes / 2**20
    located = fences.locate(case.xs, case.ys)
    best_s = min(_seconds(lambda: fences.locate(case.xs, case.ys)) for _ in range(_PASSES))
    tree_s, same = _strtree(case, fences, checked)
    rows_s, rows_same = _row_by_row(case, located)
    add_s, drop_s = _changes(fences, case)
    rate, tree_rate, row_rate = case.xs.size / best_s, checked / tree_s, 1 / rows_s
    row: dict[str, Value] = {
        "experiment": "1 kernel, one core",
        "data": case.data,
        "polygons": len(case.fences),
        "edges": int(shapely.get_num_coordinates(case.fences).sum()) - len(case.fences),
        "points_per_s": rate,
        "strtree_points_per_s": tree_rate,
        "vs_strtree": rate / tree_rate,
        "row_by_row_points_per_s": row_rate,
        "vs_row_by_row": rate / row_rate,
        "fences_per_point": located.fences.size / case.xs.size,
        "memory_mb": memory_mb,
        "build_ms": 1000 * build_s,
        "add_ms": 1000 * add_s,
        "drop_ms": 1000 * drop_s,
    }
    return row, same and rows_same


def _strtree(case: Case, fences: Fences, checked: int) -> tuple[float, bool]:
    """Seconds for the first points, and whether it finds the same for both relations."""
    xs, ys = case.xs[:checked], case.ys[:checked]
    points, tree = shapely.points(xs, ys), shapely.STRtree(case.fences)
    seconds, same = [], True
    for relation in _RELATIONS:
        started = time.process_time()
        rows, numbers = tree.query(points, predicate=relation)
        seconds.append(time.process_time() - started)
        located = fences.locate(xs, ys, relation)
        same = same and np.array_equal(
            _codes(rows, numbers, len(case.fences)),
            _codes(located.rows, located.fences, len(case.fences)),
        )
    return seconds[0], same


def _codes(rows: Ints, numbers: Ints, count: int) -> Ints:
    codes: Ints = np.sort(rows * count + numbers)
    return codes


def _row_by_row(case: Case, located: Located) -> tuple[float, bool]:
    """Seconds for a point, and whether the first ones have the same fences."""
    shapely.prepare(case.fences)
    count = min(case.xs.size, max(20, _ROW_TESTS // len(case.fences)))
    xs, ys = case.xs[:count].tolist(), case.ys[:count].tolist()
    started = time.process_time()
    found = [
        [n for n, fence in enumerate(case.fences) if shapely.contains_xy(fence, x, y)]
        for x, y in zip(xs, ys, strict=True)
    ]
    seconds = time.process_time() - started
    ends = located.offsets.tolist()
    expected = [sorted(located.fences[ends[i] : ends[i + 1]].tolist()) for i in range(count)]
    return seconds / count, found == expected


def _changes(fences: Fences, case: Case) -> tuple[float, float]:
    """One fence more, and one less, until the next point is located: the medians of a few."""
    first = len(case.fences)
    numbers = range(first, first + len(case.more))
    xs, ys = case.xs[:1], case.ys[:1]

    def change(added: dict[int, shapely.Geometry], dropped: list[int]) -> None:
        fences.change(added, dropped)
        fences.locate(xs, ys)

    adds = [
        _seconds(partial(change, {number: geometry}, []))
        for number, geometry in zip(numbers, case.more, strict=True)
    ]
    drops = [_seconds(partial(change, {}, [number])) for number in numbers]
    return statistics.median(adds), statistics.median(drops)


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started
