"""EXPLAIN: how a query is run, in words that teach."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.language.render import render
from penstock.plan.bind import BoundQuery
from penstock.plan.catalog import Stream
from penstock.plan.compose import Composed
from penstock.plan.disorder import BY_RATIO, chosen_estimator
from penstock.plan.specs import Composition, Interval, Term, ValueSet
from penstock.schema import Schema


@dataclass(frozen=True, slots=True)
class Sharing:
    """A running ring of the same composition and how many queries are in it."""

    ring: str
    queries: int


def explain_query(
    query: BoundQuery, composed: Composed, outputs: Schema, in_reader: bool, sharing: Sharing | None
) -> str:
    """One line per step, from the source to the results."""
    composition = composed.composition
    stream = query.source.stream
    lines = [f"stream    {stream.name} ({stream.source})"]
    place = "in the source's reader" if in_reader else "in mapInArrow, after Spark"
    why = ""
    if not in_reader:
        why = " read it" if not composition.derived else " computed the derived attributes"
    lines.append(f"stage     {place}{why}")
    for attribute in composition.derived:
        lines.append(f"derived   {attribute.sql}: {attribute.type}")
    lines.append(f"selection {explain_terms(composed.terms, composition.derived_names)}")
    if composed.window is not None:
        lines += _window_lines(query, composed)
    names = ", ".join(f"{f.name} {f.type}" for f in outputs.fields)
    lines.append(f"outputs   {names}")
    if query.having is not None:
        lines.append(f"having    {render(query.having)}")
    if sharing is None:
        lines.append("ring      a new one: no running query has this composition")
    else:
        lines.append(f"ring      {sharing.ring}; queries in it: {sharing.queries}")
    lines += [f"note      {note}" for note in query.notes]
    return "\n".join(lines)


def _window_lines(query: BoundQuery, composed: Composed) -> list[str]:
    composition, window = composed.composition, composed.window
    assert window is not None
    span = f"RANGE {duration(window.range_us)} SLIDE {duration(window.slide_us)}"
    lines = [f"window    {span} on {composition.event_time}"]
    if composition.preaggregated:
        kinds = [f"{p.kind}({p.argument or '*'})" for p in composition.partials]
        lines.append(
            f"partials  {', '.join(kinds)} per query, group and window, before the shuffle"
        )
    else:
        shipped = ", ".join(composition.shipped)
        lines.append(f"partials  none: Spark aggregates the rows themselves ({shipped})")
    return lines + _disorder_lines(query.source.stream, composition)


def _disorder_lines(stream: Stream, composition: Composition) -> list[str]:
    asked, ratio = stream.estimator, composition.drop_ratio
    share = None if ratio is None else f"{ratio * 100:.10g}%"
    chosen = chosen_estimator(asked, ratio)
    match chosen:
        case "fixed":
            how = f"windows close {_slack(stream)} behind the latest"
        case "normal":
            how = (
                f"at most {share} of the tuples may come too late; the delay adapts, as for delays"
                " of a normal distribution"
            )
        case "quantile":
            how = f"at most {share} of the tuples may come too late; the delay adapts"
        case _:
            how = "windows close behind the largest delay seen"
    lines = [f"{chosen}: {how}"]
    if asked in BY_RATIO and ratio is None:
        lines.append(f"the stream's estimator {asked} needs a DRATIO; without one max runs")
    if ratio is not None and chosen not in BY_RATIO:
        lines.append(f"DRATIO {share} is only watched: the stream's estimator {chosen} decides")
    if composition.per is not None:
        apart = f"each {composition.per}'s windows close on their own"
        mixed = "windows mix sources and wait for the slowest"
        lines.append(f"per {composition.per}: {apart if composition.apart else mixed}")
    return [f"{'' if n else 'disorder':10}{line}" for n, line in enumerate(lines)]


def _slack(stream: Stream) -> str:
    if stream.slack_tuples is not None:
        return f"{stream.slack_tuples} tuple{'' if stream.slack_tuples == 1 else 's'}"
    return duration(stream.slack_us) if stream.slack_us else "0 seconds"


def explain_terms(terms: tuple[Term, ...], derived: dict[str, str]) -> str:
    """The predicate as the kernel sees it: value sets per attribute."""
    if not terms:
        return "never true"
    if any(not term.sets for term in terms):
        return "every tuple"
    texts = [
        " and ".join(f"{derived.get(name, name)} in {_set(values)}" for name, values in term.sets)
        for term in terms
    ]
    return texts[0] if len(texts) == 1 else " or ".join(f"({t})" for t in texts)


def _set(values: ValueSet) -> str:
    parts = [_interval(i) for i in values.intervals]
    parts += ["NULL"] if values.null else []
    return " | ".join(parts) or "nothing"


def _interval(interval: Interval) -> str:
    if interval.low is not None and interval.low == interval.high:
        return f"{{{interval.low!r}}}"
    low = (
        "(-inf"
        if interval.low is None
        else f"{'[' if interval.low_closed else '('}{interval.low!r}"
    )
    high = (
        "inf)"
        if interval.high is None
        else f"{interval.high!r}{']' if interval.high_closed else ')'}"
    )
    return f"{low}, {high}"


def duration(micros: int) -> str:
    """A duration in its largest whole unit.

    >>> duration(300_000_000), duration(1_500_000)
    ('5 minutes', '1500 milliseconds')
    """
    for unit, size in (
        ("day", 86_400_000_000),
        ("hour", 3_600_000_000),
        ("minute", 60_000_000),
        ("second", 1_000_000),
        ("millisecond", 1_000),
    ):
        if micros % size == 0:
            n = micros // size
            return f"{n} {unit}" + ("" if n == 1 else "s")
    return f"{micros} microseconds"
