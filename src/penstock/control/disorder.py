"""The disorder of one ring's stream: facts of epochs in, punctuations out, all of it visible.

Rules say which estimator runs. The clock, the punctuation, the delays and the realised ratio are
kept here for every estimator alike. With sources (`DRATIO … PER column`) each source has an
estimator and a tally of its own; where the ring's groups are sources (`apart`) the punctuation is
the clock itself and each source closes by its schedule, else it waits for the slowest source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.control.closing import (
    LEARNING,
    LEARNING_US,
    Schedule,
    closed_end,
    longest_lag,
    plain,
    schedule_from,
    with_lag,
    without_past,
)
from penstock.control.estimators import (
    Estimator,
    FixedTime,
    FixedTuples,
    Max,
    Normal,
    Quantile,
    Upstream,
)
from penstock.control.profile import Profile, Tally
from penstock.control.punctuation import NEVER_US, advance, beyond_windows
from penstock.kernels.delays import UNKNOWN_US, DelayFacts
from penstock.kernels.sketch import mean_wait, quantiles

IDLE_US = 30_000_000  # of a live stream, unless it says otherwise
CONVINCED = 64  # implausible times, and no others, after which the clock has jumped
SOURCES = 1_000  # tracked one by one; further ones share a schedule
OTHERS = ""  # facts of sources beyond those
_SKETCHES_SAVED = 64  # of the busiest sources; after a crash the others learn anew from their lags
_SOURCE_PARTS = 64  # of VSeq
_MOST_STEPS = 64  # of a schedule
_LAST_US = 2**62  # no punctuation lies beyond
_WATCHED_RATIO = 0.01  # of the sketches where no ratio was promised
_STEADY = (0.9, 1.02)  # a new lag within these parts of the old one changes nothing


@dataclass(frozen=True, slots=True)
class Rules:
    """Which estimator judges a ring's stream, and with what.

    live: tuples carry arrival times. idle_us: None means IDLE_US for a live stream that follows the
    engine's clock, and no limit for others. per: sources are told apart; apart: their windows too.
    A slack is the same for every source.
    """

    estimator: str
    ratio: float | None = None
    slack_us: int = 0
    slack_tuples: int | None = None
    idle_us: int | None = None
    live: bool = False
    per: bool = False
    apart: bool = False

    @property
    def newest(self) -> int:
        """How many of the latest event times the estimator must be shown."""
        return 0 if self.slack_tuples is None else self.slack_tuples + 1


def make_estimator(rules: Rules, profile: Profile, parts: int = 4096) -> Estimator:
    match rules.estimator:
        case "fixed" if rules.slack_tuples is not None:
            return FixedTuples(rules.slack_tuples)
        case "fixed":
            return FixedTime(rules.slack_us)
        case "upstream":
            return Upstream()
        case "normal":
            return Normal(rules.ratio or _WATCHED_RATIO, most_parts=parts)
        case "quantile":
            return Quantile(rules.ratio or _WATCHED_RATIO, profile)
        case _:
            return Max()


@dataclass(slots=True)
class Source:
    """One source's delays, its promise, and when its windows close."""

    profile: Profile
    estimator: Estimator
    schedule: Schedule
    tally: Tally = field(default_factory=Tally)
    touched_us: int = UNKNOWN_US  # its latest plausible event time
    seen_us: int = UNKNOWN_US  # the clock when it was last seen


class Disorder:
    """Decides the punctuation of one ring."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.punctuation_us = NEVER_US
        self.clock_us = UNKNOWN_US
        self.event_us = UNKNOWN_US
        self.last_event_us = UNKNOWN_US
        self.max_delay_us = 0
        self.pace = (0, 0)  # tuples and clock time of the last epochs
        self.rows = self.untimed = self.ahead = self.behind = 0
        self.tally = Tally()
        self.profile = Profile(rules.ratio or _WATCHED_RATIO)
        self.estimator = make_estimator(rules, self.profile)
        self.sources: dict[str, Source] = {}
        self.others: Schedule = LEARNING
        self.seen_at_us: int | None = None  # the engine's clock when tuples were last seen
        self.ahead_run = 0
        self._untracked = False  # whether there are sources beyond those
        self._range_us = 0
        self._grain_us = 0

    # facts in

    def observe(
        self,
        whole: DelayFacts,
        sources: Mapping[str, DelayFacts],
        now_us: int,
        grain_us: int = 0,
    ) -> None:
        """An epoch is over and delivered.

        now_us: the engine's clock. grain_us: windows end at multiples of it.
        """
        self._grain_us = grain_us
        self._move_clock(whole)
        self.event_us = max(self.event_us, whole.event_us)
        self.last_event_us = max(self.last_event_us, whole.last_event_us)
        self.max_delay_us = max(self.max_delay_us, whole.max_delay_us)
        self.rows += whole.rows
        self.untimed += whole.untimed
        self.ahead += whole.ahead
        self.behind += whole.behind
        self.tally.count(whole.measured, whole.below)
        if whole.rows:
            self.seen_at_us = now_us
        self._tell(self.estimator, self.profile, whole)
        self._untracked = False
        for key, facts in sources.items():
            if (source := self._source(key, sources)) is None:
                self._untracked = True
            else:
                self._observe_source(source, facts)

    def _move_clock(self, whole: DelayFacts) -> None:
        before_us, clock_us = self.clock_us, whole.clock_us
        if whole.rows and whole.ahead == whole.rows and whole.jump_us != UNKNOWN_US:
            self.ahead_run += whole.rows
            if self.ahead_run >= CONVINCED:
                clock_us = whole.jump_us
                self.ahead_run = 0
        elif whole.rows:
            self.ahead_run = 0
        self.clock_us = max(self.clock_us, clock_us)
        if before_us != UNKNOWN_US and whole.rows:
            rows, span = self.pace
            self.pace = (rows // 2 + whole.rows, span // 2 + self.clock_us - before_us)

    def _source(self, key: str, present: Mapping[str, DelayFacts]) -> Source | None:
        """A source by name, with a place of its own if there is room."""
        if key in self.sources or key == OTHERS:
            return self.sources.get(key)
        if len(self.sources) >= SOURCES and not self._forget_one(present):
            return None
        source = self.sources[key] = self._new_source()
        source.touched_us = self.event_us  # it may have been there before, without a place
        return source

    def _observe_source(self, source: Source, facts: DelayFacts) -> None:
        source.touched_us = max(source.touched_us, facts.event_us)
        source.seen_us = self.clock_us
        source.tally.count(facts.measured, facts.below)
        self._tell(source.estimator, source.profile, facts)

    def _tell(self, estimator: Estimator, profile: Profile, facts: DelayFacts) -> None:
        if isinstance(estimator, Quantile):  # which looks after its profile itself
            estimator.grain_us = self._grain_us
        else:
            profile.observe(facts)
        estimator.observe(facts, facts.measured, facts.below)

    def _new_source(self) -> Source:
        profile = Profile(self.profile.ratio)
        return Source(profile, make_estimator(self.rules, profile, _SOURCE_PARTS), self.others)

    def _forget_one(self, present: Mapping[str, DelayFacts]) -> bool:
        """Make room: the source not seen for longest, once nobody takes its windows for open."""
        away = [(source.seen_us, key) for key, source in self.sources.items() if key not in present]
        if not away:
            return False
        key = min(away)[1]
        source = self.sources[key]
        if self.rules.apart:
            both = (source.schedule, self.others)
            closed_us = min(closed_end(schedule, self.punctuation_us) for schedule in both)
            if closed_us < source.touched_us + self._range_us:
                return False
        del self.sources[key]
        return True

    # decisions out

    def decide(self, now_us: int, longest_range_us: int, least_slide_us: int = 1_000) -> int:
        """The next punctuation; lengths are those of the ring's windows."""
        self._range_us = longest_range_us
        if self.clock_us == UNKNOWN_US:
            return self.punctuation_us
        clock_us = self.clock_us + self._idle_for(now_us)
        if self.rules.apart:
            self._reschedule(longest_range_us)
            reached: int | None = clock_us
        elif self.rules.per and self.rules.estimator != "fixed":
            reached = self._behind_the_slowest(clock_us)
        else:
            reached = self.estimator.reach(clock_us)
        if clock_us > self.clock_us and reached is not None:  # only as far as it closes windows
            last_us = self._beyond(self.event_us, longest_range_us)
            reached = min(reached // least_slide_us * least_slide_us, last_us)
        if reached is not None:
            self.punctuation_us = advance(self.punctuation_us, reached)
        return self.punctuation_us

    def _behind_the_slowest(self, clock_us: int) -> int | None:
        """How far all sources are complete; those without a place count as the stream does."""
        active = self._active()
        found = [self._lag_of(source) for source in active]
        if self._untracked or not active:
            found.append(self._lag(self.estimator))
        lags = [lag for lag in found if lag is not None]
        if isinstance(self.estimator, Quantile):
            clock_us = self.estimator.confirmed(clock_us)
        return clock_us - max(lags) if lags else None

    def hold_at(self, punctuation_us: int) -> None:
        """Take over a punctuation that was decided elsewhere."""
        self.punctuation_us = max(self.punctuation_us, punctuation_us)

    def end(self, longest_range_us: int) -> int:
        """A punctuation that closes every window seen so far."""
        return max(self.punctuation_us, self._beyond(self.last_event_us, longest_range_us))

    def _beyond(self, event_us: int, longest_range_us: int) -> int:
        """Beyond the closing of every window of tuples up to an event time."""
        if event_us == UNKNOWN_US:
            return NEVER_US
        schedules = [self.others, *(s.schedule for s in self.sources.values())]
        lag_us = max(LEARNING_US, *map(longest_lag, schedules)) if self.rules.apart else 0
        return min(beyond_windows(event_us, longest_range_us + lag_us), _LAST_US)

    def _idle_for(self, now_us: int) -> int:
        """How far an idle stream's clock has moved on without tuples."""
        if self.seen_at_us is None:
            return 0
        idle_us = self.rules.idle_us
        if idle_us is None:
            follows = abs(self.seen_at_us - self.clock_us) <= IDLE_US
            if not (self.rules.live and follows):
                return 0
            idle_us = IDLE_US
        silent_us = now_us - self.seen_at_us
        return silent_us if silent_us > idle_us else 0

    def _lag_of(self, source: Source) -> int | None:
        """How far a source's windows close behind the clock."""
        return self._lag(self.estimator if self.rules.estimator == "fixed" else source.estimator)

    def _lag(self, estimator: Estimator) -> int | None:
        if isinstance(estimator, Quantile):  # whatever the clock just did
            return None if estimator.lag_us is None else int(estimator.lag_us)
        reached = estimator.reach(self.clock_us)
        return None if reached is None else max(self.clock_us - reached, 0)

    def _active(self) -> list[Source]:
        """Sources that have not fallen silent: those hold nobody back."""
        idle_us = IDLE_US if self.rules.idle_us is None else self.rules.idle_us
        found = []
        for source in self.sources.values():
            lag_us = self._lag_of(source) or 0
            if self.clock_us - source.seen_us <= max(idle_us, lag_us):
                found.append(source)
        return found

    def _reschedule(self, longest_range_us: int) -> None:
        """Give sources whose delays have changed another lag, for windows nobody has touched."""
        if (lag_us := self._lag(self.estimator)) is not None and self.event_us > UNKNOWN_US:
            touched_us = max(self.event_us, self.clock_us)
            self.others = self._rescheduled(self.others, lag_us, touched_us + longest_range_us)
        for source in self.sources.values():
            if (lag_us := self._lag_of(source)) is not None:
                touched_us = source.touched_us + longest_range_us
                source.schedule = self._rescheduled(source.schedule, lag_us, touched_us)

    def _rescheduled(self, schedule: Schedule, lag_us: int, touched_end_us: int) -> Schedule:
        least, most = _STEADY
        current_us = schedule[-1].lag_us
        steady = current_us * least <= lag_us <= current_us * most
        if not steady and len(schedule) < _MOST_STEPS:
            schedule = with_lag(schedule, lag_us, touched_end_us)
        return without_past(schedule, closed_end(schedule, self.punctuation_us))

    def closed_us(self, punctuation_us: int) -> int:
        """Up to which end the windows of all sources are closed by a punctuation."""
        if not self.rules.apart:
            return punctuation_us
        schedules = [self.others, *(source.schedule for source in self.sources.values())]
        return min(closed_end(schedule, punctuation_us) for schedule in schedules)

    def schedules(self) -> dict[str, Any]:
        """When each source's windows close, as plain data for the tasks."""
        known = {key: plain(s.schedule) for key, s in self.sources.items()}
        return {"others": plain(self.others), "known": known}

    # what can be seen of it

    def metrics(self) -> dict[str, Any]:
        """Figures for SHOW and EXPLAIN ANALYZE; times in microseconds, None where unknown."""
        known = self.profile.seen > 0
        lag_us = None
        if self.punctuation_us != NEVER_US and self.clock_us != UNKNOWN_US:
            lag_us = max(self.clock_us - self.punctuation_us, 0)
        p50, p95, p99 = quantiles(self.profile.long, (0.5, 0.95, 0.99)) if known else (None,) * 3
        rows, span = self.pace
        waiting = None
        if lag_us is not None and span > 0:
            waiting = round(rows / span * mean_wait(self.profile.long, lag_us))
        return {
            "estimator": self.rules.estimator,
            "rows": self.rows + self.untimed,
            "untimed": self.untimed,
            "ahead": self.ahead,
            "behind": self.behind,
            "delay_p50_us": p50,
            "delay_p95_us": p95,
            "delay_p99_us": p99,
            "delay_max_us": self.max_delay_us if known else None,
            "clock_us": _known(self.clock_us),
            "punctuation_us": _known(self.punctuation_us),
            "buffer_us": lag_us,
            "buffer_tuples": waiting,
            "target": self.rules.ratio,
            "below": self.tally.below,
            "ratio": self.tally.ratio,
            "recent_ratio": self.tally.recent_ratio,
            "surging": getattr(self.estimator, "surging", False),
            "sources": {key: self._source_metrics(s) for key, s in self.sources.items()},
        }

    def _source_metrics(self, source: Source) -> dict[str, Any]:
        (p99,) = quantiles(source.profile.long, (0.99,))
        return {
            "rows": source.tally.rows,
            "below": source.tally.below,
            "ratio": source.tally.ratio,
            "delay_p99_us": p99,
            "lag_us": self._lag_of(source),
        }

    # what lasts

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as plain data."""
        by_rows = sorted(self.sources.values(), key=lambda s: s.tally.rows, reverse=True)
        busiest = {id(source) for source in by_rows[:_SKETCHES_SAVED]}
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "tally": asdict(self.tally),
            "profile": self.profile.state(),
            "estimator": [type(self.estimator).__name__, self.estimator.state()],
            "others": plain(self.others),
            "sources": {key: _source_state(s, id(s) in busiest) for key, s in self.sources.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken; another estimator starts from the same delays."""
        if "max_event_us" in state:  # what was saved before there were estimators
            state = _from_extremes(state)
        for name in _PLAIN:
            setattr(self, name, state[name])
        self.tally = _tally_from(state["tally"])
        self.profile.restore(state["profile"])
        kind, inner = state["estimator"]
        same = kind == type(self.estimator).__name__
        if same:
            self.estimator.restore(inner)
        elif isinstance(self.estimator, Max) and self.profile.seen:
            self.estimator.delay_us = self.max_delay_us
        self.others = schedule_from(state["others"])
        self.sources = {}
        for key, saved in state["sources"].items():
            source = self._new_source()
            source.schedule = schedule_from(saved["schedule"])
            source.tally = _tally_from(saved["tally"])
            source.touched_us, source.seen_us = saved["touched_us"], saved["seen_us"]
            if saved["profile"] is not None:
                source.profile.restore(saved["profile"])
            if same:
                source.estimator.restore(saved["estimator"])
            self.sources[key] = source


_PLAIN = (
    "punctuation_us",
    "clock_us",
    "event_us",
    "last_event_us",
    "max_delay_us",
    "pace",
    "rows",
    "untimed",
    "ahead",
    "behind",
    "seen_at_us",
    "ahead_run",
)


def nothing_seen() -> dict[str, Any]:
    """The state of a stream that has not begun."""
    return Disorder(Rules("")).state()


def has_begun(state: Mapping[str, Any]) -> bool:
    """Whether a saved state has seen any event time."""
    seen = Disorder(Rules(""))
    seen.restore(state)
    return seen.event_us != UNKNOWN_US


def inherited(state: Mapping[str, Any]) -> dict[str, Any]:
    """What a new ring may take over from another of the same stream: times and delays."""
    fresh = Disorder(Rules("max"))
    fresh.restore(state)
    fresh.punctuation_us = NEVER_US
    fresh.tally = Tally()
    fresh.rows = fresh.untimed = fresh.ahead = fresh.behind = 0
    fresh.sources, fresh.others = {}, LEARNING
    return {**fresh.state(), "estimator": ["", {}]}  # of no kind: each begins anew


def _source_state(source: Source, with_sketches: bool) -> dict[str, Any]:
    return {
        "schedule": plain(source.schedule),
        "tally": asdict(source.tally),
        "touched_us": source.touched_us,
        "seen_us": source.seen_us,
        "profile": source.profile.state() if with_sketches else None,
        "estimator": source.estimator.state(),
    }


def _tally_from(state: Mapping[str, Any]) -> Tally:
    return Tally(state["rows"], state["below"], [(n, below) for n, below in state["blocks"]])


def _from_extremes(state: Mapping[str, Any]) -> dict[str, Any]:
    fresh = Disorder(Rules("max"))
    event_us = state["max_event_us"]
    if event_us is not None:
        fresh.event_us = fresh.last_event_us = event_us
        arrival_us = state["max_arrival_us"]
        fresh.clock_us = event_us if arrival_us is None else arrival_us
        fresh.max_delay_us = state["max_delay_us"] or 0
        fresh.estimator = Max(fresh.max_delay_us)
    fresh.rows = state["rows"]
    return fresh.state()


def _known(time_us: int) -> int | None:
    return None if time_us in (NEVER_US, UNKNOWN_US) else time_us
