"""What tasks tell of the epochs that they ran, and what becomes of all of it together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from penstock.control.ordering import OrderFacts, merge_order_facts, order_facts_from
from penstock.control.punctuation import NEVER_US
from penstock.kernels.delays import DelayFacts, facts_from, merge_facts


@dataclass(slots=True)
class KeptRows:
    """Rows that a task could not use: `late`, or `bad` ones of a piece of input; Arrow stream."""

    kind: str
    piece: str
    body: bytes


@dataclass(slots=True)
class Report:
    """What one task saw of one epoch; rows come first, in numbered calls, then the figures."""

    facts: DelayFacts = field(default_factory=DelayFacts)
    sources: dict[str, DelayFacts] = field(default_factory=dict)
    order: OrderFacts = field(default_factory=OrderFacts)
    late: dict[int, int] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)
    unplaced: int = 0
    rows: dict[int, KeptRows] = field(default_factory=dict)
    punctuation_us: int = NEVER_US  # that the source told
    read_ns: int = 0
    run_ns: int = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """Of a ring since it was opened: tuples read, and what its tasks spent on reading them and on
    all of the stage."""

    tuples: int = 0
    read_ns: int = 0
    run_ns: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.tuples + other.tuples,
            self.read_ns + other.read_ns,
            self.run_ns + other.run_ns,
        )


@dataclass(slots=True)
class EpochReport:
    """What all tasks of an epoch saw together."""

    facts: DelayFacts
    sources: dict[str, DelayFacts]
    order: OrderFacts
    late: Counter[int]
    lost: Counter[int]
    unplaced: int
    punctuation_us: int
    spent: Spent


def fill_report(report: Report, message: dict[str, Any]) -> None:
    """Take in the figures, which come after all rows."""
    report.facts = facts_from(message["facts"])
    report.sources = {k: facts_from(f) for k, f in message["sources"].items()}
    report.order = order_facts_from(message["order"])
    report.punctuation_us = message["punctuation_us"]
    report.late = {int(slot): n for slot, n in message["late"].items()}
    report.lost = {int(slot): n for slot, n in message["lost"].items()}
    report.unplaced = message["unplaced"]
    report.read_ns = message.get("read_ns", 0)
    report.run_ns = message.get("run_ns", 0)
    # a task that was tried again may have had more the first time
    report.rows = {k: v for k, v in report.rows.items() if k < message["pieces"]}


def merge_reports(reports: Sequence[Report]) -> EpochReport:
    """One report of an epoch, of which there is at least one task's."""
    facts = reduce(merge_facts, (r.facts for r in reports))
    late: Counter[int] = Counter()
    lost: Counter[int] = Counter()
    sources: dict[str, DelayFacts] = {}
    for report in reports:
        late.update(report.late)
        lost.update(report.lost)
        for key, known in report.sources.items():
            sources[key] = merge_facts(sources[key], known) if key in sources else known
    read_ns, run_ns = sum(r.read_ns for r in reports), sum(r.run_ns for r in reports)
    return EpochReport(
        facts,
        sources,
        reduce(merge_order_facts, (r.order for r in reports)),
        late,
        lost,
        sum(r.unplaced for r in reports),
        max(r.punctuation_us for r in reports),
        Spent(facts.rows + facts.untimed, read_ns, run_ns),
    )
