"""What the cells say together: ratios of penstock to Spark's chains of joins, by fastest runs.

Results are equal if all engines found the same on the same input: rows carry a digest of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.bench.join.cells import DURABLE, OURS, STORED, STREAMS
from penstock.bench.report import Value

Row = dict[str, Value]
Input = tuple[str, int, float]  # part, streams, selectivity
Contest = dict[str, Row]  # by engine, on one input


def agree(rows: Sequence[Row]) -> bool:
    """Whether all engines found the same; those that were restarted have read one more file."""
    found: dict[tuple[Input, bool], set[Value]] = {}
    for row in rows:
        read = _input(row), row["restart_s"] is None
        found.setdefault(read, set()).add(row["digest"])
    return all(len(digests) == 1 for digests in found.values())


def fastest(rows: Sequence[Row]) -> list[Row]:
    """Of each engine on each input the fastest run."""
    return [row for _, contest in sorted(_contests(rows).items()) for row in contest.values()]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Ratios by number of streams; of two streams that of the worst selectivity.

    The worst are those of all inputs, also the small ones that every store gets.
    """
    contests = {k: c for k, c in _contests(rows).items() if OURS in c and len(c) > 1}
    alike = {_name(n): c for (part, n, _), c in sorted(contests.items()) if part == STREAMS}
    stored = {_name(n): c for (part, n, _), c in sorted(contests.items()) if part == STORED}
    swept = _least({k: c for k, c in contests.items() if k[0] != STORED})
    large = {n: c for n, c in alike.items() if DURABLE in c}
    durable = {n: c for n, c in (stored | large).items() if DURABLE in c}
    return {
        "spark_rows_per_s": {n: c[OURS]["rows_per_s"] for n, c in alike.items()},
        "native_best": {n: _best(c) for n, c in stored.items()},
        "ratio_vs_native": {n: _vs_best(c) for n, c in alike.items()}
        | {n: ratio for n, ratio in swept.items() if n == "n2"},
        "ratio_vs_native_worst": _least(contests),
        "cpu_ratio_vs_native": {n: _less_cpu(c) for n, c in alike.items()},
        "ratio_vs_native_by_store": {
            n: {store: _ratio(c, store, "rows_per_s") for store in c if store != OURS}
            for n, c in stored.items()
        },
        "ratio_vs_rocksdb_4": {n: _ratio(c, DURABLE, "rows_per_s") for n, c in durable.items()},
        "state_ratio_vs_native": _most(contests.values(), "state_mb"),
        "state_ratio_vs_rocksdb_4": {n: _ratio(c, DURABLE, "state_mb") for n, c in durable.items()},
        "state_and_tables_ratio_vs_native": max(
            _ratio(c, _best(c), "state_mb") + _share_of_tables(c) for c in contests.values()
        ),
        "checkpoint_ratio_vs_native": _most(contests.values(), "checkpoint_mb"),
    }


def _input(row: Row) -> Input:
    return str(row["part"]), int(row["streams"] or 0), float(row["selectivity"] or 0)


def _contests(rows: Iterable[Row]) -> dict[Input, Contest]:
    """The fastest run of each engine."""
    found: dict[Input, Contest] = {}
    for row in sorted(rows, key=lambda row: float(row["rows_per_s"] or 0)):
        found.setdefault(_input(row), {})[str(row["engine"])] = row
    return found


def _name(streams: int) -> str:
    return f"n{streams}"


def _best(contest: Contest) -> str:
    return max(contest.keys() - {OURS}, key=lambda name: float(contest[name]["rows_per_s"] or 0))


def _vs_best(contest: Contest) -> float:
    return _ratio(contest, _best(contest), "rows_per_s")


def _least(contests: Mapping[Input, Contest]) -> dict[str, float]:
    """By number of streams the least ratio."""
    counts = sorted({streams for _, streams, _ in contests})
    return {
        _name(n): min(_vs_best(c) for (_, streams, _), c in contests.items() if streams == n)
        for n in counts
    }


def _most(contests: Iterable[Contest], figure: str) -> float:
    return max(_ratio(contest, _best(contest), figure) for contest in contests)


def _ratio(contest: Contest, rival: str, figure: str) -> float:
    return float(contest[OURS][figure] or 0) / float(contest[rival][figure] or 1)


def _less_cpu(contest: Contest) -> float | None:
    """How many times the processor time the best chain takes; other programs hardly change it."""
    ours, theirs = contest[OURS]["cpu_s"], contest[_best(contest)]["cpu_s"]
    return float(theirs) / float(ours) if ours and theirs else None


def _share_of_tables(contest: Contest) -> float:
    return float(contest[OURS]["tables_mb"] or 0) / float(contest[_best(contest)]["state_mb"] or 1)
