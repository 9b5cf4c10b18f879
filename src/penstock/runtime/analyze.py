"""EXPLAIN ANALYZE: what a running query has seen, and how late its stream's tuples come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.control.disorder import SOURCES
from penstock.control.profile import RECENT_TUPLES
from penstock.runtime.config import owner_of
from penstock.runtime.figures import instant, odd_times, share, size, span, target
from penstock.runtime.query import QueryStatus

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

_SLOWEST = 5  # sources that are named


def analyze(engine: Engine, name: str) -> str:
    """The text of EXPLAIN for a running query, with its figures."""
    query = engine.query(name)
    status, metrics = query.status, engine.metrics()
    rings = {ring["ring"]: ring for ring in metrics["rings"]}
    ring = rings.get(status.ring, {})
    lines = [query.explain(), seen_line(status, ring), *order_lines(ring), *join_lines(ring)]
    judged = _judged(metrics, status.ring)
    for name, disorder in judged:
        lines += disorder_lines(disorder, f"{name}, " if len(judged) > 1 else "")
    return "\n".join(lines)


def _judged(metrics: Mapping[str, Any], ring: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The streams of a ring with their disorder, in the order of its inputs."""
    found = [
        (disorder["ring"], name, disorder)
        for name, stream in metrics["streams"].items()
        for disorder in stream["rings"]
        if owner_of(disorder["ring"])[0] == ring
    ]
    return [(name, disorder) for _, name, disorder in sorted(found, key=lambda f: f[0])]


def seen_line(status: QueryStatus, ring: Mapping[str, Any]) -> str:
    apart = ("ring", "error", "ordering", "join")
    figures = ", ".join(f"{k} {v}" for k, v in ring.items() if k not in apart and v)
    return (
        f"seen      state {status.state}, rows {status.rows}, late {status.late},"
        f" lost {status.lost}; ring: {figures}"
    )


def order_lines(ring: Mapping[str, Any]) -> list[str]:
    """In which order a ring looks at attributes, and what that costs."""
    ordering = ring.get("ordering")
    if not ordering or not ordering["order"]:
        return []
    parts = [" → ".join(ordering["order"])]
    if ordering["visits_per_tuple"] is not None:
        parts.append(f"{ordering['visits_per_tuple']:.2f} look-ups per tuple")
    if ordering["reorders"]:
        parts.append(
            f"chosen {ordering['reorders']} time{'' if ordering['reorders'] == 1 else 's'}"
        )
    if ordering["reordering"]:
        parts.append("a better one is being looked for")
    how = "the fewest" if ordering["cover_exact"] else "the fewest that a quick search found"
    cover = f"{', '.join(ordering['cover'])} ({how} of which every query uses one)"
    return [f"order     {'; '.join(parts)}", f"          first of them: {cover}"]


def join_lines(ring: Mapping[str, Any]) -> list[str]:
    """What a join keeps, in memory and in its state, and what waits."""
    if not (join := ring.get("join")):
        return []
    keys, inputs = join["keys"], len(join["live"])
    bits = share(join["bits"] / (keys * inputs)) if keys else "0%"
    tuples = " + ".join(str(n) for n in join["live"])
    lines = [
        f"tables    {tuples} tuples with {keys} keys, {bits} of their bits set, {join['full_keys']}"
        f" keys in all streams; {size(join['table_bytes'])} in the workers"
    ]
    if keys:
        found = ", ".join(f"{s:.3g}" for s in join["selectivities"])
        lines.append(
            f"          selectivities {found}: by stream, the share of the others' keys found there"
        )
    lines.append(
        f"state     {join['state_tuples']} tuples, {size(join['state_bytes'])}; flushed"
        f" {join['flushed']} of {join['buckets']} buckets ({join['flushes']} flushes)"
    )
    if join["waiting"]:
        lines.append(f"          {join['waiting']} tuples wait until the streams pause")
    return lines


def disorder_lines(disorder: Mapping[str, Any], whose: str = "") -> list[str]:
    """How the promise is kept, how late tuples come, how long windows wait; then what is odd."""
    lines = [f"{whose}{disorder['estimator']}: {_kept(disorder)}"]
    if disorder["delay_max_us"] is not None:
        lines.append(_delays(disorder))
    if disorder["surging"]:
        lines.append("surge: just now far more tuples are late; windows wait for the latest ones")
    if odd_times(disorder):
        lines.append(
            f"odd times: {disorder['untimed']} without event time, {disorder['ahead']} too far"
            f" ahead, {disorder['behind']} too far behind"
        )
    if disorder["sources"]:
        lines += _sources(disorder)
    return [f"{'' if n else 'disorder':10}{line}" for n, line in enumerate(lines)]


def _kept(disorder: Mapping[str, Any]) -> str:
    measured = disorder["rows"] - odd_times(disorder)
    if not measured:
        return "no tuple with a plausible event time yet"
    aside = []
    if disorder["target"] is not None:
        aside.append(f"target {target(disorder['target'])}")
    if measured > RECENT_TUPLES:
        aside.append(f"last {RECENT_TUPLES}: {share(disorder['recent_ratio'])}")
    whose = "their source's" if disorder["apart"] else "a"
    kept = f"{share(disorder['ratio'])} of {measured} tuples came after {whose} window had closed"
    return f"{kept} ({'; '.join(aside)})" if aside else kept


def _delays(disorder: Mapping[str, Any]) -> str:
    found = ", ".join(f"{q} {span(disorder[f'delay_{q}_us'])}" for q in ("p50", "p95", "p99"))
    parts = [f"delays {found}, max {span(disorder['delay_max_us'])}"]
    if (buffer := span(disorder["buffer_us"])) is not None:
        waiting = disorder["buffer_tuples"]
        tuples = "" if waiting is None else f", about {waiting} tuples"
        parts.append(f"buffer {buffer}{' at most' if disorder['apart'] else ''}{tuples}")
    if (punctuation := instant(disorder["punctuation_us"])) is not None:
        parts.append(f"punctuation {punctuation}")
    return "; ".join(parts)


def _sources(disorder: Mapping[str, Any]) -> list[str]:
    """The sources that need the longest buffers, slowest first."""
    sources = disorder["sources"]
    slowest = sorted(sources.items(), key=lambda s: s[1]["lag_us"] or 0, reverse=True)[:_SLOWEST]
    more = " or more" if len(sources) >= SOURCES else ""
    count = f"{len(sources)}{more} source{'' if len(sources) == 1 else 's'}"
    first = f"per {disorder['per']}: {count}{', the slowest' if len(sources) > _SLOWEST else ''}:"
    return [first, *(f"  {_source(name, figures)}" for name, figures in slowest)]


def _source(name: str, figures: Mapping[str, Any]) -> str:
    shown = repr(name[1:]) if name.startswith("=") else "NULL"
    lag, ratio = span(figures["lag_us"]), share(figures["ratio"])
    parts = [f"p99 {span(figures['delay_p99_us'])}"]
    parts += [f"lag {lag}"] if lag is not None else []
    parts += [f"ratio {ratio}"] if ratio is not None else []
    return f"{shown} {' '.join(parts)}"
