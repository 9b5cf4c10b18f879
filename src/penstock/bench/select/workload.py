"""The workload of the scale runs: k queries over one stream of integers, a few predicates each.

The columns a0, a1, … hold 0 to 999,999, uniformly, so constants differ; the last one is a category
with 1/`share` values. A query has predicates on different columns, each admitting about `share` of
the tuples: on the category an equality, on the others a range (three of four) or a bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.bench.select import queries
from penstock.bench.select.queries import Predicate, Query
from penstock.kernels.jit import Ints
from penstock.plan.specs import SlotSpec

DOMAIN = 1_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    k: int
    attributes: int = 10
    predicates: int = 4
    share: float = 0.1
    seed: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"a{number}" for number in range(self.attributes))

    @property
    def domains(self) -> tuple[int, ...]:
        return (DOMAIN,) * (self.attributes - 1) + (round(1 / self.share),)


def bounds(workload: Workload) -> tuple[Ints, Ints]:
    """Lowest and highest value that each query admits of each column: two arrays (k, columns).

    Those of a column that a query does not use are the ends of the column's domain.
    """
    random = np.random.default_rng([workload.seed, workload.k])
    shape = workload.k, workload.attributes
    domains = np.array(workload.domains)
    used = random.random(shape).argsort(axis=1) < workload.predicates
    width = (random.uniform(0.5, 1.5, shape) * workload.share * domains).astype(np.int64)
    width[:, -1] = 1
    first = (random.random(shape) * (domains - width)).astype(np.int64)
    kind = random.integers(0, 8, shape)  # 0: at most, 1: at least, others: a range
    kind[:, -1] = 2
    low = np.where(kind == 0, 0, np.where(kind == 1, domains - width, first))
    high = np.where(kind == 1, domains - 1, np.where(kind == 0, width, first + width) - 1)
    return np.where(used, low, 0), np.where(used, high, domains - 1)


def slots(workload: Workload) -> list[SlotSpec]:
    return queries.slots(_queries(workload))


def texts(workload: Workload) -> list[str]:
    """The same predicates as WHERE texts."""
    return [queries.where(query) for query in _queries(workload)]


def rows(workload: Workload, count: int, seed: int) -> pa.RecordBatch:
    random = np.random.default_rng([seed, count])
    columns = [random.integers(0, domain, count) for domain in workload.domains]
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=list(workload.names))


def _queries(workload: Workload) -> list[Query]:
    columns = [
        (name, domain - 1) for name, domain in zip(workload.names, workload.domains, strict=True)
    ]
    low, high = bounds(workload)
    return [
        tuple(
            _predicate(name, low, high, last)
            for (name, last), low, high in zip(columns, lows, highs, strict=True)
            if low > 0 or high < last
        )
        for lows, highs in zip(low.tolist(), high.tolist(), strict=True)
    ]


def _predicate(name: str, low: int, high: int, last: int) -> Predicate:
    if low == high:
        return Predicate(name, low, high)
    return Predicate(name, low if low > 0 else None, high if high < last else None)
