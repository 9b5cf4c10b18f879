"""Keeps the epochs of all rings of an engine, and answers what Spark's processes ask about them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from penstock.control.disorder import Disorder, Rules, has_begun
from penstock.control.punctuation import NEVER_US
from penstock.errors import PenstockError
from penstock.kernels.delays import UNKNOWN_US, DelayFacts
from penstock.plan.codec import canonical, slot_from
from penstock.runtime.config import owner_of
from penstock.runtime.epochs.reports import KeptRows, Report, Spent, fill_report, merge_reports
from penstock.runtime.epochs.state import RingEpochs, guarded
from penstock.runtime.registry import EpochRow, Registry
from penstock.runtime.rings.pacing import Found
from penstock.runtime.sources.planner import Backlog, Horizon, Planner

TRUSTED_RANGES = 10
LONGEST_TRUST_US = 365_000 * 86_400_000_000


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
            "living": lambda m, _: self._living(m["ring"]),
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

    def align(self, rings: Sequence[str]) -> Horizon | None:
        """Let rings of one stream read no further than the one that is ahead, until `release`.

        None, and they go on, if one of them would have more than two micro-batches to go: the one
        that is ahead would wait for all of them.
        """
        states = [self._rings[ring] for ring in rings]
        with guarded(states):
            horizon = Horizon(
                frozenset().union(*(state.consumed for state in states)),
                max(int(self._done(ring).get("through", 0)) for ring in rings),
            )
            if not all(self._is_near(state, horizon) for state in states):
                return None
            for state in states:
                state.horizon = horizon
            return horizon

    def _is_near(self, state: RingEpochs, horizon: Horizon) -> bool:
        assert state.planner is not None
        return state.planner.is_near(self._done(state.ring), state.consumed, horizon)

    def release(self, rings: Sequence[str], horizon: Horizon) -> None:
        """End what `align` began."""
        for ring in rings:
            state = self._rings.get(ring)
            if state is not None and state.horizon is horizon:
                state.horizon = None

    def if_aligned(
        self, rings: Sequence[str], horizon: Horizon, action: Callable[[], bool]
    ) -> bool:
        """Do something if aligned rings have read exactly the same and delivered all that came of
        it; none of them gets another epoch meanwhile. Whether it was done.

        A ring that was closed and opened again since then has no horizon, and may be beyond it.
        """
        states = [state for ring in rings if (state := self._rings.get(ring)) is not None]
        with guarded(states):
            held = [state for state in states if state.horizon is horizon]
            if len(held) < len(rings):
                return False
            return all(map(self._is_at_horizon, states)) and action()

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
        state.logged = max(state.logged, start)
        if state.batch.ask(ring):
            self._pin_decided(state)
        if state.pace is None:
            return self._plan(state, start)

        def look() -> Found[int]:
            if self._rings.get(ring) is not state:  # closed meanwhile: Spark is about to stop it
                return Found(start, work=True)
            number = self._plan(state, start)
            work = number != start or state.unfinished() or self._others_have_work(state)
            return Found(number, work, number != start and state.more)

        return state.pace.answer(look)

    def _pin_decided(self, state: RingEpochs) -> None:
        """Keep to the version of epochs that were decided for this micro-batch when it was last
        begun, by inputs that may be asked after others have decided."""
        for each in state.siblings:
            if each.planner is not None:
                last = self._registry.last_epoch(each.ring)
                if last is not None and last.number > each.logged:
                    state.batch.pin(last.version)

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
        before_us = self.told_us(ring) if state.tells else state.punctuation_us
        for sibling in state.siblings:  # all inputs of a micro-batch are to carry the same
            with sibling.guard:
                self._next_punctuation(sibling, idle=False)
        with state.guard:
            if (decided := self._registry.epoch(ring, start + 1)) is not None:
                state.batch.pin(decided.version)
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
            version = self._pinned(state, number, version)
            owner, _ = owner_of(state.ring)
            event_us = max(s.disorder.event_us for s in state.siblings or [state])
            if event_us != UNKNOWN_US and state.closes:
                since = max((epoch.version for epoch in self._last_epochs(state)), default=0)
                self._registry.start_after(owner, since, version, event_us + 1)
            fixed: dict[str, Any] = {"trust_us": self._trust_us(state)}
            if state.feeds and disorder.rules.per:  # it may have to run again much later
                fixed["sources"] = disorder.schedules()
            work = json.dumps({**body, **fixed})
            row = EpochRow(
                state.ring, number, version, state.punctuation_us, disorder.clock_us, work
            )
            self._registry.add_epoch(row, items)
            if disorder.rules.apart:  # its tasks close windows by the schedules of now
                self._save(state)
        return row

    def _pinned(self, state: RingEpochs, number: int, version: int) -> int:
        """The version that other inputs of a join have in this micro-batch, if it is earlier.

        A query is in all of them or in none: its first windows would miss what one of them left
        out. Of users' DataFrames, epochs have the numbers of micro-batches.
        """
        if not state.siblings:
            return version
        if state.planner is not None:
            return state.batch.pin(version)
        frames = [s.ring for s in state.siblings if s is not state and s.planner is None]
        others = [e.version for f in frames if (e := self._registry.epoch(f, number)) is not None]
        if state.batch.version is not None:
            others.append(state.batch.version)
        return min([version, *others])

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
            if state.planner is not None:  # its tasks come before those of users' DataFrames ask
                state.logged = max(state.logged, number)
                state.batch.replay(row.version)
            sources = state.disorder.schedules() if state.disorder.rules.per else None
        work = json.loads(row.work)
        return {
            "number": number,
            "version": row.version,
            "punctuation_us": row.punctuation_us,
            "clock_us": UNKNOWN_US if row.clock_us is None else row.clock_us,
            "newest": state.disorder.rules.newest,
            "sources": work.get("sources", sources),
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

    def told_us(self, ring: str, through: Mapping[str, int] | None = None) -> int:
        """The last punctuation that tuples of a ring, or of any input of its join, came with.

        through: up to which epochs; of a micro-batch that runs again, later ones are there.
        """
        known = self._last_epochs(self._rings[ring], through)
        return max((epoch.punctuation_us for epoch in known), default=NEVER_US)

    def closed_us(self, ring: str, punctuation_us: int) -> int:
        """Up to which end all windows are closed by a punctuation."""
        state = self._rings[ring]
        with state.guard:
            return state.disorder.closed_us(punctuation_us)

    def _last_epochs(
        self, state: RingEpochs, through: Mapping[str, int] | None = None
    ) -> list[EpochRow]:
        """Of a ring, or of all inputs of a join: what one was told, all have reached."""
        rings = [each.ring for each in state.siblings or [state]]
        found = [self._registry.last_epoch(r, (through or {}).get(r)) for r in rings]
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

    def _living(self, ring: str) -> dict[int, str]:
        """The names of a ring's queries now, by slot."""
        return {query.slot: query.name for query in self._registry.queries(ring)}

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
                fill_report(report, message)

    def absorb(self, ring: str) -> None:
        """Count what tasks of finished epochs reported; call after their results are delivered."""
        state = self._rings[ring]
        with state.guard:
            for number in sorted(state.reports):
                reports = list(state.reports.pop(number).values())
                if number <= state.through:
                    continue
                self._absorb_rows(state, number, reports)
                whole = merge_reports(reports)
                state.ordering.observe(whole.order)
                grain_us = self._windows(state)[1]
                state.disorder.observe(whole.facts, whole.sources, self._clock_us(), grain_us)
                if state.disorder.rules.estimator == "upstream":
                    state.disorder.hold_at(whole.punctuation_us)
                state.through, state.last_tuples = number, whole.spent.tuples
                state.unplaced += whole.unplaced
                state.spent += whole.spent
                with self._registry.change():
                    self._registry.count_late(whole.late, whole.lost)
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
