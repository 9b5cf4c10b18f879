"""What is known of the epochs of one running ring, or of one input of a join."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from penstock.control.disorder import Disorder
from penstock.control.ordering import Ordering, OrderRules
from penstock.plan.specs import Composition
from penstock.runtime.epochs.reports import Report, Spent
from penstock.runtime.rings.pacing import Pace
from penstock.runtime.sources.planner import Horizon, Planner


@dataclass(slots=True)
class MicroBatch:
    """What the inputs of a join have been asked for since the last micro-batch began."""

    asked: set[str] = field(default_factory=set)
    version: int | None = None  # of the epochs that it has so far

    def ask(self, ring: str) -> bool:
        """Spark asks each input once per micro-batch: one that is asked again begins another, and
        so does the first one after a replay, for which none is asked. Whether one begins."""
        if begins := not self.asked or ring in self.asked:
            self.asked, self.version = set(), None
        self.asked.add(ring)
        return begins

    def pin(self, version: int) -> int:
        """The version of an epoch that may have this one, and for those after it."""
        self.version = version if self.version is None else min(version, self.version)
        return self.version

    def replay(self, version: int) -> None:
        """An epoch of this version runs; if nobody has asked for it here, it runs again."""
        if self.version is None:
            self.version = version


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
    logged: int = 0  # the last epoch that is known to be in Spark's log
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
    own_batch: MicroBatch = field(default_factory=MicroBatch)
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
    def batch(self) -> MicroBatch:
        """The present one, which the inputs of a join share."""
        return (self.siblings or [self])[0].own_batch

    @property
    def closes(self) -> bool:
        """Whether there are windows that close."""
        return self.composition.kind != "select"

    @property
    def tells(self) -> bool:
        """Whether punctuation that came with tuples, of a derived stream, needs an epoch of its own
        to go on: to windows or events of this ring, or to those that it feeds."""
        return self.feeds or (self.closes and not self.siblings)

    @property
    def punctuates(self) -> bool:
        """Whether punctuation means anything here."""
        return self.closes or self.feeds


@contextmanager
def guarded(states: Sequence[RingEpochs]) -> Iterator[None]:
    """Hold the guards of several, always in the same order."""
    with ExitStack() as held:
        for state in sorted(states, key=lambda s: s.ring):
            held.enter_context(state.guard)
        yield
