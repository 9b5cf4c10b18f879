"""EXPLAIN: how a query is run, in words that teach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from penstock.geometry import from_hex, outlined
from penstock.language.render import render
from penstock.plan.bound import BoundQuery
from penstock.plan.catalog import Stream
from penstock.plan.composed import Composed
from penstock.plan.disorder import BY_RATIO, chosen_estimator
from penstock.plan.explain_ring import Company, Sharing, ring_lines
from penstock.plan.result_columns import partials_kept
from penstock.plan.spatial import told
from penstock.plan.specs import Composition, FenceRelation, FenceTest, Interval, ValueSet
from penstock.plan.valuesets import contains
from penstock.schema import Schema

# Where predicates are evaluated: the source's reader, mapInArrow, or Spark's own code.
Place = Literal["reader", "stage", "spark"]


def explain_query(
    query: BoundQuery, composed: Composed, outputs: Schema, place: Place, sharing: Sharing | None
) -> str:
    """One line per step, from the source to the results."""
    stream = query.source.stream
    return "\n".join(
        [
            f"stream    {stream.name} ({stream.source})",
            *_region_lines(composed.composition),
            *_spatial_lines(composed.composition),
            *_following_lines(stream, composed.composition),
            *source_lines(composed, place, sharing),
            *([] if composed.window is None else _window_lines(query, composed)),
            *result_lines(query, composed.composition, outputs, sharing),
        ]
    )


def _region_lines(composition: Composition) -> list[str]:
    """Which regions tuples are joined with, and where."""
    if (join := composition.regions) is None:
        return []
    how = _relation(join.relation, join.distance)
    lines = [f"({join.x}, {join.y}) {how} a region of {join.regions}: a tuple for each such region"]
    if composition.placed_first:
        lines.append("before Spark derives attributes, in a mapInArrow of its own")
    return labelled("regions", lines)


def _following_lines(stream: Stream, composition: Composition) -> list[str]:
    """Whose events these are, and what they wait for."""
    if (following := composition.following) is None:
        return []
    join = following.regions
    kinds = "ENTER, LEAVE"
    if following.dwell_us is not None:
        kinds += f", DWELL after {duration(following.dwell_us)}"
    lines = [
        f"{kinds} of each {following.by} at ({join.x}, {join.y}) and each region of {join.regions}",
        "kept by object in the ring's state; told in the order of time, behind the punctuation",
    ]
    return labelled("events", lines) + disorder_lines(stream, composition)


def _spatial_lines(composition: Composition) -> list[str]:
    """Columns that the stage computes, and of what."""
    lines = [f"{told(value)}: {value.type}" for value in composition.spatial]
    return labelled("computed", lines)


def source_lines(composed: Composed, place: Place, sharing: Sharing | None) -> list[str]:
    """Where tuples of a stream are selected, and how."""
    composition = composed.composition
    derived = composition.derived or composed.derived
    lines = []
    match place:
        case "reader":
            lines.append("stage     in the source's reader")
        case "stage":
            why = "computed the derived attributes" if derived else "read it"
            lines.append(f"stage     in mapInArrow, after Spark {why}")
        case "spark":
            lines.append("stage     none: few queries, evaluated in Spark's own code")
    for attribute in composition.derived:
        only = "only queries with it share the ring"
        lines.append(f"derived   {attribute.sql}: {attribute.type}; {only}")
    for attribute in composed.derived:
        lines.append(f"derived   {attribute.sql}: {attribute.type}")
    return lines + labelled("selection", _selection(composed, sharing))


def result_lines(
    query: BoundQuery, composition: Composition, outputs: Schema, sharing: Sharing | None
) -> list[str]:
    """What comes out, and in which ring."""
    names = ", ".join(f"{f.name} {f.type}" for f in outputs.fields)
    lines = [f"outputs   {names}"]
    if query.having is not None:
        lines.append(f"having    {render(query.having)}")
    lines += ring_lines(query, composition, sharing)
    return lines + [f"note      {note}" for note in query.notes]


def _window_lines(query: BoundQuery, composed: Composed) -> list[str]:
    composition, window = composed.composition, composed.window
    assert window is not None
    span = f"RANGE {duration(window.range_us)} SLIDE {duration(window.slide_us)}"
    lines = [f"window    {span} on {composition.event_time}"]
    if composition.preaggregated:
        kept = partials_kept(composition, composed.columns)
        names = dict(composed.roles)
        arguments = [(p.kind, p.argument or "*") for p in kept]
        kinds = dict.fromkeys(f"{kind}({names.get(name, name)})" for kind, name in arguments)
        told = ", ".join(kinds) if kinds else "none but the groups themselves,"
        lines.append(f"partials  {told} per query, group and window, before the shuffle")
    else:
        shipped = ", ".join(composition.shipped)
        lines.append(f"partials  none: Spark aggregates the rows themselves ({shipped})")
    return lines + disorder_lines(query.source.stream, composition)


def disorder_lines(stream: Stream, composition: Composition) -> list[str]:
    """Which estimator runs, and why not the one that was asked for."""
    asked, ratio = stream.estimator, composition.drop_ratio
    share = None if ratio is None else f"{ratio * 100:.10g}%"
    chosen = chosen_estimator(asked, ratio, stream.punctuated)
    match chosen:
        case "upstream":
            how = "windows close when the ring that derives the stream says it is complete"
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
    return labelled("disorder", lines)


def labelled(label: str, lines: Iterable[str]) -> list[str]:
    """Lines of which the first has a label."""
    return [f"{'' if n else label:10}{line}" for n, line in enumerate(lines)]


def _slack(stream: Stream) -> str:
    if stream.slack_tuples is not None:
        return f"{stream.slack_tuples} tuple{'' if stream.slack_tuples == 1 else 's'}"
    return duration(stream.slack_us) if stream.slack_us else "0 seconds"


def _selection(composed: Composed, sharing: Sharing | None) -> Iterator[str]:
    """The predicate as the kernel sees it, a value set per line, and who else compares so."""
    if not composed.terms:
        yield "never true"
    if any(not term.sets and not term.fences for term in composed.terms):
        yield "every tuple"
        return
    composition = composed.composition
    sql = {value.name: told(value) for value in composition.spatial}
    sql |= {a.name: a.sql for a in (*composition.derived, *composed.derived)}
    company = {} if sharing is None else sharing.company
    for term_number, term in enumerate(composed.terms):
        lines = [
            f"{sql.get(name, name)} in {_set(values)}"
            + _company(company.get((name, values), Company(0, 0)))
            for name, values in term.sets
        ]
        lines += [
            _fence(test, values) + _company(company.get((test.name, values), Company(0, 0)))
            for test, values in term.fences
        ]
        for number, line in enumerate(lines):
            word = "and " if number else "or " if term_number else ""
            yield f"{word}{line}"


# of what a geofence may say: true, false, unknown
_TRUTHS = {
    (True, False, False): "",
    (False, True, False): "not ",
    (False, False, True): "unknown: ",
    (True, True, False): "known: ",
    (True, False, True): "unknown or ",
    (False, True, True): "unknown or not ",
}


def _fence(test: FenceTest, values: ValueSet) -> str:
    truth = _TRUTHS.get((contains(values, 1), contains(values, 0), values.null), "")
    how = _relation(test.relation, test.distance)
    return f"{truth}({test.x}, {test.y}) {how} {outlined(from_hex(test.geometry))}"


def _relation(relation: FenceRelation, distance: float) -> str:
    match relation:
        case "near":
            return f"{distance:g} or less from"
        case "sphere":
            return f"{distance:g} metres or less from"
        case _:
            return relation


def _company(company: Company) -> str:
    if not company.same:
        return f"; compared by {_queries(company.other)} too" if company.other else ""
    more = f", compared by {company.other} more" if company.other else ""
    return f"; shared with {_queries(company.same)}{more}"


def _queries(count: int) -> str:
    return f"{count} {'query' if count == 1 else 'queries'}"


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
