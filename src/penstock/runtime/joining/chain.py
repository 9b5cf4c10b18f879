"""Joins without a common key: Spark's own joins of two streams, one after the other.

A combination is known by two times: the latest of its members' (LATEST_US), and up to when all of
them are in their ranges (UNTIL_US, the least time + RANGE). It counts if the one is not beyond the
other. That holds for all parts of what counts too: so each step tests it.

Spark forgets a row of one side of a join when the watermark has passed the bound that the condition
sets to its event time (TIME). A combination's event time is the latest of its members', which no
column of theirs is. It is right at every step: the member that came last lies above the watermark
(`chain_stage`), so the combination does, and no step drops it as late; and a partner that is older
by more than its range will meet nothing any more.

So one watermark serves all steps, and the punctuation that makes it may stand beside the results,
where no filter that Spark infers from a join can remove it. `allowMultiple` would give each step a
watermark of its own, behind by the ranges of the steps before it; from punctuation beside the
results it makes none, and nothing is ever forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.kernels.columns import INT64_MAX
from penstock.language.render import quote_name
from penstock.plan.specs import Join, JoinStep, joined_name
from penstock.runtime.joining.chain_stage import LATEST_US, SLOTS, TIME, UNTIL_US, VERSION

CHAIN_SETTINGS = {
    "spark.sql.streaming.join.stateFormatVersion": "4",
    "spark.sql.streaming.statefulOperator.allowMultiple": "false",
    "spark.sql.streaming.statefulOperator.checkCorrectness.enabled": "false",
}
_MERGED: dict[str, Callable[[str, str], Column]] = {
    SLOTS: F.array_intersect,
    TIME: F.greatest,
    LATEST_US: F.greatest,
    UNTIL_US: F.least,
    VERSION: F.greatest,
}
_WATERMARKED = {"spark.watermarkDelayMs": 0}  # as withWatermark marks columns
_FOREVER_US = 2**59  # no two times from year 1 to 9999 are that far apart


def chained(join: Join, inputs: Sequence[DataFrame]) -> DataFrame:
    """Combinations of the tuples that the inputs' stages ship."""
    ranges_us = [None if r is None or r >= _FOREVER_US else r for r in join.ranges_us]
    first, *others = join.steps
    found = _members(first.input, inputs[first.input], ranges_us[first.input])
    nearest_us = ranges_us[first.input]
    for step in others:
        range_us = ranges_us[step.input]
        members = _members(step.input, inputs[step.input], range_us)
        found = _combined(found, members, step, range_us, nearest_us)
        nearest_us = _least(nearest_us, range_us)
    return found


def as_event_time(column: Column, name: str) -> Column:
    """A column that Spark compares with the watermark, without being a source of it."""
    return column.alias(name, metadata=_WATERMARKED)


def _members(number: int, rows: DataFrame, range_us: int | None) -> DataFrame:
    """An input's tuples as combinations of one."""
    until = F.lit(INT64_MAX) if range_us is None else F.col(LATEST_US) + F.lit(range_us)
    return rows.select(
        SLOTS,
        as_event_time(F.col(TIME), TIME),
        LATEST_US,
        until.alias(UNTIL_US),
        VERSION,
        *(F.col(quote_name(n)).alias(joined_name(number, n)) for n in _shipped(rows)),
    )


def _combined(
    left: DataFrame, right: DataFrame, step: JoinStep, range_us: int | None, nearest_us: int | None
) -> DataFrame:
    """Combinations with one more input; `nearest_us` is the least range of those before."""
    right = right.withColumnsRenamed({name: _new(name) for name in _MERGED})
    # Spark refuses to join without an equality; this one holds for all, and cannot be folded
    equalities = step.equalities or (f"(size({SLOTS}) < 0) = (size({_new(SLOTS)}) < 0)",)
    near = [*_within(TIME, _new(TIME), range_us), *_within(_new(TIME), TIME, nearest_us)]
    joined = left.join(right, F.expr(" AND ".join(f"({c})" for c in (*equalities, *near))))
    merged = {name: merge(name, _new(name)) for name, merge in _MERGED.items()}
    whole = joined.select(
        *(as_event_time(c, n) if n == TIME else c.alias(n) for n, c in merged.items()),
        *(F.col(quote_name(n)) for side in (left, right) for n in _shipped(side)),
    )
    counts = (f"size({SLOTS}) > 0", f"{LATEST_US} <= {UNTIL_US}", *step.conditions)
    return reduce(DataFrame.where, counts, whole)


def _shipped(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if not name.startswith("__")]


def _within(later: str, earlier: str, range_us: int | None) -> list[str]:
    """In the form from which Spark finds out when it may forget the earlier one."""
    if range_us is None:
        return []
    seconds, micros = divmod(range_us, 1_000_000)
    return [f"{later} <= {earlier} + INTERVAL '{seconds}.{micros:06}' SECOND"]


def _new(name: str) -> str:
    return f"__new{name}"


def _least(one: int | None, other: int | None) -> int | None:
    return min((r for r in (one, other) if r is not None), default=None)
