"""The streams of the experiments: made ones with values 0 to 99, and the US census of 1990.

D1   uniform
D2   bell-shaped: normal around the middle of the domain
D3   pulse: low values in the first half of the stream, high ones in the second; `low` and `high`
     are its halves

The census has 10,000 tuples (UCI), in the directory of real data. A million are drawn from a
Chow-Liu tree that is fitted to them: of the trees of attributes, each depending on one other, the
one that is nearest to the data in likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow.csv as csv

from penstock.bench.real_data import data_file
from penstock.kernels.jit import Doubles, Ints

DOMAIN = 100
Shape = tuple[int, int]


def made(name: str, attributes: int, tuples: int, seed: int) -> Ints:
    """A row for each attribute; the same for the same arguments, always."""
    random = np.random.default_rng([seed, attributes, *name.encode()])
    return MADE[name](random, (attributes, tuples))


def _uniform(random: np.random.Generator, shape: Shape) -> Ints:
    return random.integers(0, DOMAIN, shape)


def _bell(random: np.random.Generator, shape: Shape) -> Ints:
    values = np.rint(random.normal((DOMAIN - 1) / 2, DOMAIN / 6, shape))
    return np.clip(values, 0, DOMAIN - 1).astype(np.int64)


def _low(random: np.random.Generator, shape: Shape) -> Ints:
    return random.integers(0, DOMAIN // 2, shape)


def _high(random: np.random.Generator, shape: Shape) -> Ints:
    return random.integers(DOMAIN // 2, DOMAIN, shape)


def _pulse(random: np.random.Generator, shape: Shape) -> Ints:
    attributes, tuples = shape
    first, rest = (attributes, tuples // 2), (attributes, tuples - tuples // 2)
    return np.concatenate([_low(random, first), _high(random, rest)], axis=1)


MADE: dict[str, Callable[[np.random.Generator, Shape], Ints]] = {
    "D1": _uniform,
    "D2": _bell,
    "D3": _pulse,
    "low": _low,
    "high": _high,
}


def read_census(attributes: int) -> tuple[list[str], Ints]:
    """The attributes with most entropy, by name, and a row of values for each.

    Raises NotHere where the data is absent.
    """
    table = csv.read_csv(data_file("census1990/us_census_1990.csv")).drop_columns(["caseid"])
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    richest = sorted(columns, key=lambda name: _entropy(np.bincount(columns[name])))[-attributes:]
    names = [name for name in columns if name in richest]
    return names, np.array([columns[name] for name in names])


def draw_like(values: Ints, tuples: int, seed: int) -> Ints:
    """Tuples from the Chow-Liu tree of these, a row for each attribute."""
    random = np.random.default_rng(seed)
    drawn = np.empty((len(values), tuples), np.int64)
    for child, parent in chow_liu(values):
        if parent is None:
            drawn[child] = _draw(random, np.bincount(values[child]), tuples)
            continue
        for given, counts in enumerate(_pairs(values[parent], values[child])):
            those = np.flatnonzero(drawn[parent] == given)
            if those.size:
                drawn[child, those] = _draw(random, counts, those.size)
    return drawn


def chow_liu(values: Ints) -> list[tuple[int, int | None]]:
    """(attribute, the one it depends on), parents first: the tree of most mutual information."""
    known = np.array([[mutual_information(a, b) for b in values] for a in values])
    tree: list[tuple[int, int | None]] = [(0, None)]
    while len(tree) < len(values):
        inside = [attribute for attribute, _ in tree]
        outside = [attribute for attribute in range(len(values)) if attribute not in inside]
        edges = known[np.ix_(outside, inside)]
        child, parent = np.unravel_index(edges.argmax(), edges.shape)
        tree.append((outside[child], inside[parent]))
    return tree


def mutual_information(a: Ints, b: Ints) -> float:
    pairs = _pairs(a, b)
    return _entropy(pairs.sum(axis=0)) + _entropy(pairs.sum(axis=1)) - _entropy(pairs.ravel())


def _pairs(a: Ints, b: Ints) -> Ints:
    shape = int(a.max()) + 1, int(b.max()) + 1
    return np.bincount(a * shape[1] + b, minlength=shape[0] * shape[1]).reshape(shape)


def _entropy(counts: Ints) -> float:
    shares: Doubles = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _draw(random: np.random.Generator, counts: Ints, size: int) -> Ints:
    return random.choice(counts.size, size, p=counts / counts.sum())


def domains(names: Sequence[str], values: Ints) -> dict[str, int]:
    """How many values each attribute may have."""
    return {name: int(column.max()) + 1 for name, column in zip(names, values, strict=True)}
