"""The experiments of Kwon, Kim, Lee, Kim on the kernels.

1. Three streams, from few matches to all: tuples/s of each join, and how many tables are asked for
   each tuple, next to what the cost model expects.
2. A query that wants only the key. MJoin as the paper has it keeps the tuples and makes every
   combination; an MJoin that counts does not, and is no longer the paper's.
3. A budget of half the tuples: keys with the most 1 bits leave memory, or keys at random. The
   more tuples a key has, the more bits: fewer flushes are needed. What is found before the disk
   phase grows only where these keys have little left to come; it shrinks where they are those that
   come most often.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np

from penstock.bench.join.data import Shape, Tuples, arrivals
from penstock.bench.join.overflow import join_within
from penstock.bench.join.runs import (
    NewJoin,
    Outcome,
    batches,
    biht,
    chain,
    compete,
    counting_mjoin,
    digest,
    key_of_first,
    key_table,
    mjoin,
    results,
    with_other,
)
from penstock.bench.join.structures import MJoin
from penstock.bench.report import Value
from penstock.control.flushing import SAMPLED
from penstock.control.join_costs import failing_looks, succeeding_looks
from penstock.kernels.columns import INT64_MAX
from penstock.kernels.join_table import KeyTable

Row = dict[str, Value]

OTHER_BYTES = 64
JOINS: dict[str, NewJoin] = {"biht": biht, "mjoin": mjoin, "chain": chain}
VICTIMS = {"bits": SAMPLED, "random": 1}
BUDGET = 0.5  # of all tuples
_MOMENTS = 1000


@dataclass(frozen=True, slots=True)
class Findings:
    """course: how the runs went on; same: whether all found the same, each result once."""

    rows: list[Row]
    course: list[Row]
    same: bool


def by_selectivity(shape: Shape, runs: int, seed: int) -> Findings:
    """Experiment 1 for one selectivity."""
    tuples = arrivals(shape, seed)
    joins = {name: with_other(new, OTHER_BYTES) for name, new in JOINS.items()}
    found = compete(joins, tuples, shape.streams, runs)
    counted, expected = _looks(tuples, shape.streams), _expected_looks(shape)
    rows: list[Row] = [
        {
            "experiment": "1 selectivity",
            "selectivity": shape.selectivity,
            "join": name,
            "tuples": len(tuples),
            "results": outcome.digest.results,
            "tuples_per_s": outcome.tuples_per_s,
            "vs_mjoin": outcome.tuples_per_s / found["mjoin"].tuples_per_s,
            "looks_per_tuple": counted.get(name),
            "expected_looks": expected.get(name),
        }
        for name, outcome in found.items()
    ]
    course: list[Row] = [
        {"selectivity": shape.selectivity, "join": name, **asdict(point)}
        for name, outcome in found.items()
        for point in outcome.points
    ]
    return Findings(rows, course, _same(found.values()))


def _same(outcomes: Iterable[Outcome]) -> bool:
    return len({outcome.digest for outcome in outcomes}) == 1


def _looks(tuples: Tuples, streams: int) -> dict[str, float]:
    """Tables of other streams that are looked at for each tuple."""
    asking, bits = MJoin(streams), KeyTable(np.full(streams, INT64_MAX))
    completing = 0
    for batch in batches(tuples):
        asking.add(batch.streams, batch.hashes, batch.times_us)
        positions, _ = bits.add(batch.streams, batch.hashes, batch.known, batch.times_us)
        completing += positions.size
    return {
        "mjoin": asking.looks / len(tuples),
        "biht": (streams - 1) * completing / len(tuples),
    }


def _expected_looks(shape: Shape) -> dict[str, float]:
    """What the cost model expects, on average while the tables fill."""
    times = (np.arange(_MOMENTS) + 0.5) / _MOMENTS
    others = [[shape.selectivity_at(t)] * (shape.streams - 1) for t in times.tolist()]
    succeeding = fmean(succeeding_looks(selectivities) for selectivities in others)
    failing = fmean(failing_looks(selectivities) for selectivities in others)
    return {"mjoin": succeeding + failing, "biht": succeeding}


def only_keys(shape: Shape, other_bytes: Sequence[int], runs: int, seed: int) -> Findings:
    """Experiment 2, for tuples with so many bytes beside key and time."""
    tuples = arrivals(shape, seed)
    kept = {"mjoin": mjoin, "biht": biht}
    storing = {
        (name, size): with_other(key_of_first(new, len(tuples)), size)
        for name, new in kept.items()
        for size in other_bytes
    }
    counting = {("key table", None): key_table, ("mjoin, counting", None): counting_mjoin}
    found = compete(counting | storing, tuples, shape.streams, runs)
    fastest = found["key table", None].tuples_per_s
    rows: list[Row] = [
        {
            "experiment": "2 only the key is wanted",
            "selectivity": shape.selectivity,
            "join": name,
            "other_bytes": size,
            "results": outcome.digest.results,
            "tuples_per_s": outcome.tuples_per_s,
            "key_table_vs_this": fastest / outcome.tuples_per_s,
        }
        for (name, size), outcome in found.items()
    ]
    return Findings(rows, rows, _same(found.values()))


def over_budget(shape: Shape, seed: int) -> Findings:
    """Experiment 3."""
    tuples = arrivals(shape, seed)
    expected = digest(results(biht(shape.streams), tuples))
    rows: list[Row] = []
    course: list[Row] = []
    same = True
    for victims, sampled in VICTIMS.items():
        with TemporaryDirectory() as directory:
            outcome = join_within(
                round(BUDGET * len(tuples)), tuples, shape.streams, sampled, seed, Path(directory)
            )
        same = same and outcome.all == expected
        about: Row = {"repeats": shape.repeats, "victims": victims}
        rows.append(
            {
                "experiment": "3 over budget",
                **about,
                "tuples": len(tuples),
                "flushes": outcome.points[-1].flushes,
                "stops": outcome.stops,
                "tuples_on_disk": outcome.on_disk,
                "results_before_disk": outcome.in_memory.results,
                "results": outcome.all.results,
            }
        )
        course += [{**about, **asdict(point)} for point in outcome.points]
    return Findings(rows, course, same)
