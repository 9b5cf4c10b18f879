"""Epochs: which registry version and punctuation one micro-batch of one ring uses, fixed once.

For a source of penstock's own, an epoch also says which part of the source the micro-batch reads:
the source's offset in Spark's log is just the epoch's number. For a DataFrame that a user handed
over, Spark decides what to read and the epoch is keyed by Spark's batch id. Either way the epoch
is in the registry before anybody acts on it; a replay after a crash finds the same one.

Tasks report what they saw per epoch. Reports are absorbed after the epoch's results are delivered,
in order and once, so counters survive a crash without counting a replayed micro-batch twice.
"""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from penstock.control.disorder import Disorder, Rules, has_begun
from penstock.control.ordering import (
    OrderFacts,
    Ordering,
    OrderRules,
    merge_order_facts,
    order_facts_from,
)
from penstock.control.punctuation import NEVER_US
from penstock.errors import PenstockError
from penstock.kernels.delays import UNKNOWN_US, DelayFacts, facts_from, merge_facts
from penstock.plan.codec import canonical, slot_from
from penstock.plan.specs import Composition
from penstock.runtime.config import owner_of
from penstock.runtime.pacing import Found, Pace
from penstock.runtime.registry import EpochRow, Registry
from penstock.runtime.sources.planner import Backlog, Horizon, Planner

TRUSTED_RANGES = 10
LONGEST_TRUST_US = 365_000 * 86_400_000_000


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
class RingEpochs:
    """The epochs of one running ring; `planner` is None for a DataFrame that Spark reads."""

    ring: str
    composition: Composition
    planner: Planner | None
    disorder: Disorder
    trust_us: int
    hold: bool  # bounded run: nothing is late until everything is read
    through: int = -1
    last_tuples: int = 0  # read in the last epoch that had a report
    spent: Spent = field(default_factory=Spent)
    unplaced: int = 0  # tuples so far with a point that is no place
    last_version: int | None = None  # epochs carry no later one until the ring's plan can serve it
    flushing: bool = False
    horizon: Horizon | None = None  # beyond which it must not read now
    windows: tuple[int, int, int] = (-1, 0, 0)  # registry version, longest RANGE, least SLIDE
    ordering: Ordering = field(default_factory=lambda: Ordering(OrderRules()))
    consumed: set[str] = field(default_factory=set)
    reports: dict[int, dict[int, Report]] = field(default_factory=lambda: defaultdict(dict))
    guard: threading.RLock = field(default_factory=threading.RLock)
    # of a join's input: the join's inputs, itself among them; and whether results wait for nothing,
    # so that punctuation may travel with the next tuples
    siblings: list[RingEpochs] = field(default_factory=list)
    eager: bool = False
    feeds: bool = False  # a derived stream, which goes by the ring's punctuation
    pace: Pace | None = None  # at one input of a ring, where its pauses are made
    unfinished: Callable[[], bool] = lambda: False  # whether the ring has work without new tuples
    more: bool = False  # the last epoch left some behind

    @property
    def punctuation_us(self) -> int:
        """Up to where the stream is complete; a join is where its slowest input is."""
        return min(s.disorder.punctuation_us for s in self.siblings or [self])

    @property
    def closes(self) -> bool:
        """Whether there are windows that close."""
        return self.composition.kind != "select"

    @property
    def punctuates(self) -> bool:
        """Whether punctuation means anything here."""
        return self.closes or self.feeds


class EpochKeeper:
    """Answers the epoch service's calls for all rings of an engine."""

    def __init__(
        self,
        registry: Registry,
        absorb_rows: Callable[[RingEpochs, int, list[Report]], None],
        max_parallelism: int,
        clock_us: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._absorb_rows = absorb_rows
        self._parallelism = max_parallelism
        self._clock_us = clock_us
        self._rings: dict[str, RingEpochs] = {}

    def calls(self) -> dict[str, Callable[[dict[str, Any], list[bytes]], Any]]:
        """The service's calls by name."""
        return {
            "plan": lambda m, _: self.plan(m["ring"], m["start"]),
            "epoch": lambda m, _: self.epoch(m["ring"], m["number"]),
            "punctuation": lambda m, _: self.punctuation(m["ring"]),
            "slots": lambda m, _: self.slots(m["ring"], m["since"], m["version"]),
            "regions": lambda m, _: b64encode(self._registry.region_body(m["digest"])).decode(),
            "rows": self._take_rows,
            "report": self._take_report,
        }

    def open(self, state: RingEpochs) -> None:
        """Take up a ring where the registry left it."""
        if (known := self._registry.progress(state.ring)) is not None:
            state.through, seen, punctuation_us = known
            state.disorder.restore(seen)
            state.disorder.hold_at(punctuation_us)
            if "ordering" in seen:
                state.ordering.restore(seen["ordering"])
            state.unplaced = seen.get("unplaced", 0)
        for last in self._last_epochs(state):
            state.disorder.hold_at(last.punctuation_us)
        if state.planner is not None and state.planner.remembers_items:
            state.consumed = self._registry.consumed(state.ring)
        self._rings[state.ring] = state

    def freeze(self, ring: str) -> None:
        """Let epochs stay at the present registry version until `thaw`."""
        state = self._rings[ring]
        if state.last_version is None:
            state.last_version = self._registry.version

    def frozen_at(self, ring: str) -> int:
        """The version that epochs stay at; the present one if they do not."""
        version = self._rings[ring].last_version
        return self._registry.version if version is None else version

    def forget_reports(self, ring: str) -> None:
        """What an unfinished micro-batch reported: it runs again, and other parts may report."""
        if (state := self._rings.get(ring)) is not None:
            with state.guard:
                state.reports.clear()

    def thaw(self, ring: str) -> None:
        if (state := self._rings.get(ring)) is not None:
            state.last_version = None

    def close(self, ring: str) -> None:
        self._rings.pop(ring, None)

    def state(self, ring: str) -> RingEpochs:
        return self._rings[ring]

    def planner(self, ring: str) -> Planner | None:
        """What decides on the work of a ring; None if Spark does, or the ring is gone."""
        return None if (state := self._rings.get(ring)) is None else state.planner

    def backlog(self, ring: str) -> Backlog | None:
        """What a ring has read and has to read; None if Spark alone knows."""
        if (state := self._rings.get(ring)) is None or state.planner is None:
            return None
        with state.guard, suppress(OSError, PenstockError):  # it is a figure, and no more
            return state.planner.backlog(self._done(ring), state.consumed)
        return None

    def _done(self, ring: str) -> dict[str, Any]:
        last = self._registry.last_epoch(ring)
        return {} if last is None else json.loads(last.work)

    def align(self, rings: Sequence[str]) -> None:
        """Let rings of one stream read no further than the one that is ahead."""
        states = [self._rings[ring] for ring in rings]
        with _guards(states):
            horizon = Horizon(
                frozenset().union(*(state.consumed for state in states)),
                max(int(self._done(ring).get("through", 0)) for ring in rings),
            )
            for state in states:
                state.horizon = horizon

    def release(self, rings: Sequence[str]) -> None:
        """End what `align` began."""
        for ring in rings:
            if (state := self._rings.get(ring)) is not None:
                state.horizon = None

    def if_aligned(self, rings: Sequence[str], action: Callable[[], None]) -> bool:
        """Do something if aligned rings have read exactly the same and delivered all that came of
        it; none of them gets another epoch meanwhile."""
        states = [self._rings[ring] for ring in rings]
        with _guards(states):
            aligned = all(map(self._is_at_horizon, states))
            if aligned:
                action()
            return aligned

    def _is_at_horizon(self, state: RingEpochs) -> bool:
        assert state.planner is not None
        last = self._registry.last_epoch(state.ring)
        if last is not None and last.number > state.through:
            return False
        done = self._done(state.ring)
        return state.planner.next_work(done, state.consumed, 1, state.horizon) is None

    def flush(self, rings: list[str], on: bool) -> None:
        """Whether rings close all their windows as soon as there is nothing left to read."""
        for ring in rings:
            if (state := self._rings.get(ring)) is not None:
                state.flushing = on

    def plan(self, ring: str, start: int) -> int:
        """The epoch to run after `start`, when it is time; `start` itself if there is nothing to
        do."""
        state = self._rings[ring]
        if state.pace is None:
            return self._plan(state, start)

        def look() -> Found[int]:
            if self._rings.get(ring) is not state:  # closed meanwhile: Spark is about to stop it
                return Found(start, work=True)
            number = self._plan(state, start)
            work = number != start or state.unfinished() or self._others_have_work(state)
            return Found(number, work, number != start and state.more)

        return state.pace.answer(look)

    def _others_have_work(self, state: RingEpochs) -> bool:
        """Whether there is something new for another input of a join."""
        for other in state.siblings:
            if other is not state and other.planner is not None:
                with other.guard:
                    done = self._done(other.ring)
                    if other.planner.next_work(done, other.consumed, 1, other.horizon) is not None:
                        return True
        return False

    def _plan(self, state: RingEpochs, start: int) -> int:
        ring = state.ring
        assert state.planner is not None
        # what came with tuples of a derived stream has to go on to those that this ring feeds
        before_us = self.told_us(ring) if state.feeds else state.punctuation_us
        for sibling in state.siblings:  # all inputs of a micro-batch are to carry the same
            with sibling.guard:
                self._next_punctuation(sibling, idle=False)
        with state.guard:
            if self._registry.epoch(ring, start + 1) is not None:
                return start + 1
            done = self._done(ring)
            work = state.planner.next_work(done, state.consumed, self._parallelism, state.horizon)
            self._next_punctuation(state, idle=work is None)
            if work is None and (state.eager or state.punctuation_us <= before_us):
                return start
            body = {**done, "pieces": []} if work is None else work.body
            items = [] if work is None else work.consumed
            state.more = work is not None and work.more
            self._decide(state, start + 1, body, items)
            state.consumed.update(items)
            return start + 1

    def _decide(
        self,
        state: RingEpochs,
        number: int,
        body: dict[str, Any],
        items: list[str],
    ) -> EpochRow:
        """Fix an epoch: from here on it is what that micro-batch is, however often it runs."""
        disorder = state.disorder
        with self._registry.change():
            version = self._registry.version
            if state.last_version is not None:
                version = min(version, state.last_version)
            owner, _ = owner_of(state.ring)
            event_us = max(s.disorder.event_us for s in state.siblings or [state])
            if event_us != UNKNOWN_US and state.closes:
                since = max((epoch.version for epoch in self._last_epochs(state)), default=0)
                self._registry.start_after(owner, since, version, event_us + 1)
            work = json.dumps({**body, "trust_us": self._trust_us(state)})
            row = EpochRow(
                state.ring, number, version, state.punctuation_us, disorder.clock_us, work
            )
            self._registry.add_epoch(row, items)
            if disorder.rules.apart:  # its tasks close windows by the schedules of now
                self._save(state)
        return row

    def _trust_us(self, state: RingEpochs) -> int:
        """How far from the clock times are believed; daily data with long windows has long gaps."""
        range_us, _ = self._windows(state)
        return max(state.trust_us, min(TRUSTED_RANGES * range_us, LONGEST_TRUST_US))

    def epoch(self, ring: str, number: int) -> dict[str, Any]:
        """An epoch's data; for a user's DataFrame the first ask decides it."""
        state = self._rings[ring]
        with state.guard:
            row = self._registry.epoch(ring, number)
            if row is None:
                if state.eager or not state.closes:  # nobody else asks for a punctuation there
                    self._next_punctuation(state, idle=False)
                row = self._decide(state, number, {}, [])
            sources = state.disorder.schedules() if state.disorder.rules.per else None
        work = json.loads(row.work)
        return {
            "number": number,
            "version": row.version,
            "punctuation_us": row.punctuation_us,
            "clock_us": UNKNOWN_US if row.clock_us is None else row.clock_us,
            "newest": state.disorder.rules.newest,
            "sources": sources,
            "order": state.ordering.order,
            "prefix": state.ordering.prefix,
            "trust_us": work.get("trust_us", state.trust_us),
            "pieces": work.get("pieces", []),
            "shared": self._is_shared(state.composition.stream),
        }

    def _is_shared(self, stream: str) -> bool:
        """Whether several rings read a stream."""
        return sum(s.composition.stream == stream for s in list(self._rings.values())) > 1

    def punctuation(self, ring: str) -> int:
        """What the punctuation source carries next; for a user's DataFrame this decides it.

        Where no result waits for it, what came with tuples is enough.
        """
        state = self._rings[ring]
        if state.pace is not None and state.planner is None:
            return state.pace.answer(lambda: Found(self._punctuation(state), True))
        return self._punctuation(state)

    def _punctuation(self, state: RingEpochs) -> int:
        if state.eager:
            return self.told_us(state.ring)
        for each in state.siblings or [state]:
            with each.guard:
                before_us = each.disorder.punctuation_us
                if each.planner is None and self._next_punctuation(each, idle=True) != before_us:
                    self._save(each)
        return state.punctuation_us

    def told_us(self, ring: str) -> int:
        """The last punctuation that tuples of a ring, or of any input of its join, came with."""
        return max(
            (e.punctuation_us for e in self._last_epochs(self._rings[ring])), default=NEVER_US
        )

    def closed_us(self, ring: str, punctuation_us: int) -> int:
        """Up to which end all windows are closed by a punctuation."""
        state = self._rings[ring]
        with state.guard:
            return state.disorder.closed_us(punctuation_us)

    def _last_epochs(self, state: RingEpochs) -> list[EpochRow]:
        """Of a ring, or of all inputs of a join: what one was told, all have reached."""
        found = [self._registry.last_epoch(each.ring) for each in state.siblings or [state]]
        return [epoch for epoch in found if epoch is not None]

    def _next_punctuation(self, state: RingEpochs, idle: bool) -> int:
        disorder = state.disorder
        if not state.punctuates:
            return disorder.punctuation_us
        range_us, slide_us = self._windows(state)
        if state.flushing and idle:
            every = state.siblings or [state]
            disorder.hold_at(max(s.disorder.end(self._windows(s)[0]) for s in every))
        elif not state.hold:
            disorder.decide(self._clock_us(), range_us, slide_us)
        return disorder.punctuation_us

    def _windows(self, state: RingEpochs) -> tuple[int, int]:
        """The longest RANGE and the shortest SLIDE of all queries that ever were in a ring."""
        version = self._registry.version
        since, longest, shortest = state.windows
        if since != version and state.closes:
            owner, number = owner_of(state.ring)
            for spec in self._registry.specs_since(owner, since):
                slot = slot_from(spec)
                window = slot.window if number is None else slot.inputs[number].window
                if window is not None:
                    longest = max(longest, window.range_us)
                    shortest = min(shortest or window.slide_us, window.slide_us)
            state.windows = (version, longest, shortest)
        return longest, shortest or 1_000

    def slots(self, ring: str, since: int, version: int) -> dict[str, Any]:
        """What changed between two versions, or all that there is if that is not known any more.

        An input of a join gets its part of each slot.
        """
        owner, number = owner_of(ring)
        if anew := not self._registry.remembers(since):
            since = 0
        added, dropped = self._registry.slots_between(owner, since, version)
        if number is not None:
            added = [canonical(json.loads(text)["inputs"][number]) for text in added]
        return {"added": added, "dropped": [] if anew else dropped, "anew": anew}

    def _take_rows(self, message: dict[str, Any], parts: list[bytes]) -> None:
        state = self._rings[message["ring"]]
        kept = KeptRows(message["kind"], message["piece"], parts[0])
        with state.guard:
            if message["number"] > state.through:
                report = state.reports[message["number"]].setdefault(message["part"], Report())
                report.rows[message["position"]] = kept

    def _take_report(self, message: dict[str, Any], parts: list[bytes]) -> None:
        state = self._rings[message["ring"]]
        with state.guard:
            if message["number"] > state.through:
                report = state.reports[message["number"]].setdefault(message["part"], Report())
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

    def absorb(self, ring: str) -> None:
        """Count what tasks of finished epochs reported; call after their results are delivered."""
        state = self._rings[ring]
        with state.guard:
            for number in sorted(state.reports):
                reports = list(state.reports.pop(number).values())
                if number <= state.through:
                    continue
                self._absorb_rows(state, number, reports)
                late: Counter[int] = Counter()
                lost: Counter[int] = Counter()
                for report in reports:
                    late.update(report.late)
                    lost.update(report.lost)
                whole = reduce(merge_facts, (r.facts for r in reports), DelayFacts())
                state.ordering.observe(reduce(merge_order_facts, (r.order for r in reports)))
                grain_us = self._windows(state)[1]
                state.disorder.observe(whole, _merged(reports), self._clock_us(), grain_us)
                if state.disorder.rules.estimator == "upstream":
                    state.disorder.hold_at(max(report.punctuation_us for report in reports))
                state.through, state.last_tuples = number, whole.rows + whole.untimed
                state.unplaced += sum(r.unplaced for r in reports)
                state.spent += Spent(
                    state.last_tuples,
                    sum(r.read_ns for r in reports),
                    sum(r.run_ns for r in reports),
                )
                with self._registry.change():
                    self._registry.count_late(late, lost)
                    self._save(state)

    def count(self, ring: str, tuples: int) -> None:
        """Count tuples that no task reports, for Spark reads them and evaluates all itself."""
        if tuples and (state := self._rings.get(ring)) is not None:
            with state.guard:
                grain_us = self._windows(state)[1]
                state.disorder.observe(DelayFacts(tuples), {}, self._clock_us(), grain_us)
                state.spent += Spent(tuples)
                self._save(state)

    def _save(self, state: RingEpochs) -> None:
        seen = {**state.disorder.state(), "ordering": state.ordering.state()}
        seen["unplaced"] = state.unplaced
        punctuation_us = state.disorder.punctuation_us
        self._registry.set_progress(state.ring, state.through, seen, punctuation_us)

    def judge(self, ring: str, rules: Rules, trust_us: int, hold: bool) -> None:
        """Judge a ring's stream by other rules from the next epoch on."""
        state = self._rings[ring]
        with state.guard:
            seen = state.disorder.state()
            state.disorder = Disorder(rules)
            state.disorder.restore(seen)
            state.trust_us, state.hold = trust_us, hold

    def metrics(self, ring: str) -> dict[str, Any] | None:
        """What is known of the disorder of a ring's stream."""
        if (state := self._rings.get(ring)) is None:
            return None
        with state.guard:
            return state.disorder.metrics()

    def has_begun(self, ring: str) -> bool:
        """Whether a ring, or those it took its position from, has seen an event time."""
        if (state := self._rings.get(ring)) is not None:
            return state.disorder.event_us != UNKNOWN_US
        known = self._registry.progress(ring)
        return known is not None and has_begun(known[1])

    def last_tuples(self, ring: str) -> int:
        """How many tuples a ring read in the last micro-batch that read any."""
        return 0 if (state := self._rings.get(ring)) is None else state.last_tuples

    def spent(self, ring: str) -> Spent:
        """What a ring, or an input of a join, has read since it was opened, and at what price."""
        return Spent() if (state := self._rings.get(ring)) is None else state.spent

    def unplaced(self, ring: str) -> int:
        """How many tuples of a ring had a point that is no place."""
        return 0 if (state := self._rings.get(ring)) is None else state.unplaced

    def ordering(self, ring: str) -> dict[str, Any]:
        """In which order a ring's attributes are looked up, and what that costs."""
        if (state := self._rings.get(ring)) is None:
            return {}
        with state.guard:
            return state.ordering.metrics()


@contextmanager
def _guards(states: Sequence[RingEpochs]) -> Iterator[None]:
    with ExitStack() as held:
        for state in sorted(states, key=lambda s: s.ring):
            held.enter_context(state.guard)
        yield


def _merged(reports: list[Report]) -> dict[str, DelayFacts]:
    """Facts by source over all tasks."""
    found: dict[str, DelayFacts] = {}
    for report in reports:
        for key, facts in report.sources.items():
            found[key] = merge_facts(found[key], facts) if key in found else facts
    return found
