"""The experiments of Lee and Lee. Cost as they count it, look-ups for each tuple, and tuples/s.

1. Many predicates on one attribute: the construct against its rivals (`structures`), all writing
   bitmaps; `select` is our kernel as the engine calls it, it writes lists of matching slots.
2. Orders of attributes on made streams (`orders`). Those that adapt pay for what they have not yet
   learned; `best` and `worst` are chosen from random orders when all is over.
3. The same on the census.
4. Tuples dropped at once against tuples that visit every attribute.
5. Streams that change: how the cost rises and comes back. The paper takes D1 and D2 in turns; for
   many query sets one order is nearly best on both, so the halves of D3 in turns are added.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.bench.report import Value
from penstock.bench.select import data, queries
from penstock.bench.select.orders import (
    Stream,
    best_and_worst,
    count_visits,
    follow,
    know_usage,
    route_by_tickets,
    see_stream,
)
from penstock.bench.select.queries import Query, Shape
from penstock.bench.select.structures import structures
from penstock.control.ordering import OrderRules
from penstock.kernels.jit import Doubles, Words
from penstock.kernels.selection import Matches, build_selection, select

Row = dict[str, Value]

ONE_DOMAIN = 1000
BATCH = 16_384
KINDS: dict[str, Callable[[int, int, int], list[Query]]] = {
    "=": queries.equalities,
    ">=": queries.lower_bounds,
    "range": queries.ranges,
}
Method = Literal["macs", "sas", "macssas"]
METHODS: tuple[Method, ...] = ("macs", "sas", "macssas")
TICKETS = {"ticket": False, "ticket, by queries": True}
JUDGED = 20_000  # tuples by which random orders are compared and our kernel is timed
STEPS = 100  # decisions about the order in the time that a stream of experiments 2 to 4 takes
STREAMS = {"D1, D2": ("D1", "D2"), "D3 repeated": ("low", "high")}
EPOCHS = 4  # in a period of experiment 5
NEVER = float("inf")  # a change that is never seen: the order stays as it was first decided
_PASSES = 5


@dataclass(frozen=True, slots=True)
class Cost:
    visits: float  # for each tuple
    tuples_per_s: float | None = None  # of our kernel; None: it does not work like that


def one_attribute(kind: str, predicates: int, tuples: int, seed: int) -> tuple[Row, bool]:
    """Experiment 1 for one kind and number of predicates; whether all found the same matches."""
    asked = KINDS[kind](predicates, ONE_DOMAIN, seed)
    values = np.random.default_rng(seed).integers(0, ONE_DOMAIN, tuples)
    parts = [values[first : first + BATCH] for first in range(0, tuples, BATCH)]
    batches = [pa.RecordBatch.from_arrays([pa.array(part)], ["a"]) for part in parts]
    selection = build_selection(queries.slots(asked), queries.types(["a"]))
    expected = _bitmaps(select(selection, batches[0]))
    row: Row = {
        "experiment": "1 one attribute, tuples/s",
        "predicate": kind,
        "predicates": predicates,
    }
    same = True
    for name, match in structures(*queries.bounds(asked, ONE_DOMAIN - 1)).items():
        same = same and np.array_equal(match(parts[0]), expected)
        row[name] = _rate(match, parts, tuples)
    row["select"] = _rate(lambda batch: select(selection, batch), batches, tuples)
    return row, same


def _bitmaps(matches: Matches) -> Words:
    rows = np.repeat(np.arange(matches.offsets.size - 1), np.diff(matches.offsets))
    bits = np.zeros((matches.offsets.size - 1, -(-matches.slot_count // 64) * 64), np.uint8)
    bits[rows, matches.slots] = 1
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)


def _rate(work: Callable, parts: Iterable, tuples: int) -> float:
    started = time.perf_counter()
    for part in parts:
        work(part)
    return tuples / (time.perf_counter() - started)


def made_queries(shape: Shape, seed: int) -> list[Query]:
    names = [f"a{number}" for number in range(shape.attributes)]
    return queries.query_set(shape, dict.fromkeys(names, data.DOMAIN), seed)


def made_stream(name: str, asked: Sequence[Query], tuples: int, seed: int) -> Stream:
    names = sorted({predicate.attribute for query in asked for predicate in query})
    return see_stream(names, data.made(name, len(names), tuples, seed), asked)


def census_streams(tuples: int, seed: int) -> tuple[dict[str, Stream], list[Query]]:
    """Raises NotHere where the census is absent."""
    names, values = data.read_census(queries.CENSUS.attributes)
    asked = queries.query_set(queries.CENSUS, data.domains(names, values), seed)
    like_it = data.draw_like(values, tuples, seed)
    return {
        "census": see_stream(names, values, asked),
        "census (model)": see_stream(names, like_it, asked),
    }, asked


def compare_orders(
    stream: Stream, asked: Sequence[Query], orders: int, seed: int
) -> tuple[dict[str, Cost], bool]:
    """Every method on one stream; whether our kernel makes as many visits as are counted here."""
    sample = stream.sample(JUDGED)
    costs: dict[str, Cost] = {}
    same = True
    for method in METHODS:
        ordering = know_usage(stream, _rules(stream, method))
        visits = int(follow(stream, ordering, ordering.rules.period).sum())
        kernel, right = _run_kernel(sample, asked, ordering.order)
        costs[method] = Cost(visits / stream.tuples, kernel)
        same = same and right
    for name, by_queries in TICKETS.items():
        costs[name] = Cost(route_by_tickets(stream, by_queries, seed) / stream.tuples)
    for name, order in zip(("best", "worst"), best_and_worst(sample, orders, seed), strict=True):
        kernel, right = _run_kernel(sample, asked, order)
        costs[name] = Cost(count_visits(stream, order) / stream.tuples, kernel)
        same = same and right
    costs["delayed"] = Cost(float(len(stream.names)))
    return costs, same


def _rules(stream: Stream, method: Method) -> OrderRules:
    return OrderRules(method, period=max(1, stream.tuples // STEPS))


def _run_kernel(sample: Stream, asked: Sequence[Query], order: Sequence[str]) -> tuple[float, bool]:
    """Tuples/s of our kernel with this order, and whether its visits are those counted here."""
    selection = build_selection(queries.slots(asked), queries.types(sample.names), order)
    batch = sample.batch()
    right = select(selection, batch, together=1).visits == count_visits(sample, order)
    rates = [
        _rate(lambda part: select(selection, part), [batch], sample.tuples) for _ in range(_PASSES)
    ]
    return statistics.median(rates), right


def order_rows(experiment: str, name: str, by_seed: Sequence[dict[str, Cost]]) -> list[Row]:
    """Means over the seeds; against the best order the worst seed, against macssas the best."""
    return [
        {
            "experiment": experiment,
            "data": name,
            "method": method,
            "visits_per_tuple": float(np.mean([costs[method].visits for costs in by_seed])),
            "worst_vs_best": max(costs[method].visits / costs["best"].visits for costs in by_seed),
            "least_vs_macssas": min(
                costs[method].visits / costs["macssas"].visits for costs in by_seed
            ),
            "tuples_per_s": _mean([costs[method].tuples_per_s for costs in by_seed]),
        }
        for method in by_seed[0]
    ]


def _mean(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return float(np.mean(known)) if known else None


def dropping(attributes: int, tuples: int, seed: int) -> Row:
    """Experiment 4 for so many attributes."""
    shape = replace(queries.DROPPING, attributes=attributes, cover=max(1, attributes // 4))
    stream = made_stream("D1", made_queries(shape, seed), tuples, seed)
    ordering = know_usage(stream, _rules(stream, "macssas"))
    immediate = int(follow(stream, ordering, ordering.rules.period).sum()) / tuples
    return {
        "experiment": "4 dropping, visits for each tuple",
        "attributes": len(stream.names),
        "immediate": immediate,
        "delayed": float(len(stream.names)),
        "delayed_vs_immediate": len(stream.names) / immediate,
    }


def adapting(
    name: str,
    changes: Sequence[float],
    stretch: int,
    period: int,
    orders: int,
    seeds: int,
) -> tuple[list[Row], list[Row]]:
    """Experiment 5 on one of STREAMS: a row for each change, and the cost over time.

    All are means over the seeds. Against the best of random orders, chosen for each stretch: the
    first period after a change, and the last one before the next. The first stretch is left out of
    these two: nothing has changed yet.
    """
    runs = [_adapt(name, changes, stretch, period, orders, seed) for seed in range(seeds)]
    costs = {label: np.array([run[label].costs for run in runs]) for label in runs[0]}
    rows: list[Row] = []
    for label in [_label(change) for change in changes]:
        against = (costs[label] / costs["best"])[:, 1:]
        rows.append(
            {
                "experiment": "5 adapting, visits for each tuple",
                "stream": name,
                "reorder": label,
                "visits_per_tuple": float(costs[label].mean()),
                "reorders": float(np.mean([run[label].reorders for run in runs])),
                "changed_vs_best": float(against[:, :, :EPOCHS].mean()),
                "settled_vs_best": float(against[:, :, -EPOCHS:].mean()),
            }
        )
    curves = {label: of_seeds.mean(axis=0).ravel().tolist() for label, of_seeds in costs.items()}
    series: list[Row] = [
        {"tuples": (place + 1) * (period // EPOCHS), **dict(zip(curves, points, strict=True))}
        for place, points in enumerate(zip(*curves.values(), strict=True))
    ]
    return rows, series


@dataclass(frozen=True, slots=True)
class _Adaptation:
    costs: Doubles  # visits for each tuple, by stretch and epoch
    reorders: int = 0


def _adapt(
    name: str,
    changes: Sequence[float],
    stretch: int,
    period: int,
    orders: int,
    seed: int,
) -> dict[str, _Adaptation]:
    """The streams of one of STREAMS in turns, twice; for each change, and with the best orders."""
    asked = made_queries(queries.ORDERS, seed)
    parts = [
        made_stream(kind, asked, stretch, seed=2 * seed + turn)
        for turn in range(2)
        for kind in STREAMS[name]
    ]
    epoch = period // EPOCHS
    whole = stretch // epoch
    found = {}
    for change in changes:
        ordering = know_usage(parts[0], OrderRules("macssas", period, change))
        costs = np.array([follow(part, ordering, epoch)[:whole] / epoch for part in parts])
        found[_label(change)] = _Adaptation(costs, ordering.reorders)
    best = [
        count_visits(part, best_and_worst(part.sample(JUDGED), orders, seed)[0]) / stretch
        for part in parts
    ]
    return found | {"best": _Adaptation(np.tile(np.array(best)[:, None], whole))}


def _label(change: float) -> str:
    return "never" if change == NEVER else f"μ {change:g}"
