"""The fences of many tests: equal tests are one fence, which is there as long as someone needs it.

Tests of one point, relation and distance are looked up together, in one grid.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from shapely import Geometry

from penstock.geometry import PLANE, Bounds, from_hex
from penstock.kernels.fences import Fences, Located
from penstock.kernels.jit import Doubles, Flags, Ints
from penstock.kernels.near_fences import NearFences
from penstock.kernels.sphere_fences import SphereFences
from penstock.plan.specs import FenceRelation, FenceTest

FenceGrid = Fences | NearFences | SphereFences


class _Kind(NamedTuple):
    x: str
    y: str
    relation: FenceRelation
    distance: float


class Pairs(NamedTuple):
    """Rows, ascending, with numbers of tests; and of all rows, those whose point is no place."""

    rows: Ints
    tests: Ints
    unplaced: Flags


class FenceBook:
    """Tests by number; `change` says who needs them, `pairs` and `truths` find those that hold."""

    def __init__(self) -> None:
        self._numbers: dict[FenceTest, int] = {}
        self._tests: dict[int, FenceTest] = {}
        self._needed: dict[int, list[int]] = {}  # by slot
        self._users: Counter[int] = Counter()
        self._free: list[int] = []
        self._grids: dict[_Kind, FenceGrid] = {}

    def __len__(self) -> int:
        return len(self._tests)

    @property
    def columns(self) -> set[str]:
        """The coordinates."""
        return {name for kind in self._grids for name in (kind.x, kind.y)}

    @property
    def names(self) -> set[str]:
        """What the tests are called."""
        return {test.name for test in self._numbers}

    def number(self, test: FenceTest) -> int:
        return self._numbers[test]

    def change(
        self, added: Mapping[int, Sequence[FenceTest]], dropped: Collection[int] = ()
    ) -> None:
        """The tests that new slots need, and slots that need theirs no longer."""
        left = [n for slot in dropped for n in self._needed.pop(slot, ())]
        new: dict[int, FenceTest] = {}
        for slot, tests in added.items():
            for test in tests:
                if test not in self._numbers:
                    number = self._free.pop() if self._free else len(self._tests)
                    self._numbers[test] = number
                    self._tests[number] = new[number] = test
            if tests:
                self._needed[slot] = [self._numbers[test] for test in tests]
                self._users.update(self._needed[slot])
        self._users.subtract(left)
        gone = {n: self._tests.pop(n) for n in set(left) if not self._users[n]}
        for number, test in gone.items():
            del self._numbers[test], self._users[number]
        self._put(new, gone)
        self._free += gone

    def _put(self, new: dict[int, FenceTest], gone: dict[int, FenceTest]) -> None:
        added: defaultdict[_Kind, dict[int, Geometry]] = defaultdict(dict)
        dropped: defaultdict[_Kind, list[int]] = defaultdict(list)
        for number, test in new.items():
            added[_kind(test)][number] = from_hex(test.geometry)
        for number, test in gone.items():
            dropped[_kind(test)].append(number)
        for kind in added.keys() | dropped.keys():
            new_grid = empty_grid(kind.relation, kind.distance, PLANE)
            grid = self._grids.setdefault(kind, new_grid)
            grid.change(added[kind], dropped[kind])
            if not len(grid):
                del self._grids[kind]

    def pairs(self, batch: pa.RecordBatch) -> Pairs:
        """Rows and tests that hold for them."""
        found = [located for _, located in self._locate(batch)]
        rows, tests = [each.rows for each in found], [each.fences for each in found]
        unplaced = np.logical_or.reduce([each.unknown for each in found])
        if len(found) == 1:
            return Pairs(rows[0], tests[0], unplaced)
        order = np.argsort(np.concatenate(rows), kind="stable")
        return Pairs(np.concatenate(rows)[order], np.concatenate(tests)[order], unplaced)

    def truths(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """What each test says of each row, by the test's name; NULL: its point is no place."""
        columns = {}
        found = {kind: (located, located.rows) for kind, located in self._locate(batch)}
        for number, test in self._tests.items():
            located, rows = found[_kind(test)]
            holds = np.zeros(batch.num_rows, np.bool_)
            holds[rows[located.fences == number]] = True
            columns[test.name] = pa.array(holds, mask=located.unknown)
        return columns

    def _locate(self, batch: pa.RecordBatch) -> Iterator[tuple[_Kind, Located]]:
        values = {name: coordinates(batch.column(name)) for name in self.columns}
        for kind, grid in self._grids.items():
            xs, ys = values[kind.x], values[kind.y]
            yield kind, locate_in(grid, xs, ys, kind.relation)


def _kind(test: FenceTest) -> _Kind:
    return _Kind(test.x, test.y, test.relation, test.distance)


def empty_grid(relation: FenceRelation, distance: float, domain: Bounds) -> FenceGrid:
    """What finds fences that points have this relation to."""
    match relation:
        case "near":
            return NearFences(distance, domain)
        case "sphere":
            return SphereFences(distance)
        case _:
            return Fences(domain)


def locate_in(grid: FenceGrid, xs: Doubles, ys: Doubles, relation: FenceRelation) -> Located:
    if isinstance(grid, Fences):
        assert relation in ("within", "intersects")
        return grid.locate(xs, ys, relation)
    return grid.locate(xs, ys)


def coordinates(column: pa.Array) -> Doubles:
    """The doubles nearest to a column's numbers; NULL becomes NaN."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())  # Arrow's own way to doubles may miss the nearest one
    values = column.cast(pa.float64(), safe=False).fill_null(np.nan)
    return np.ascontiguousarray(values.to_numpy(zero_copy_only=False), np.float64)
