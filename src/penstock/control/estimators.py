"""Estimators: how far behind its clock a stream may be declared complete.

One interface: `observe` an epoch's facts, then `reach(clock)` is the event time that may be
declared complete. What was seen decides, never a clock of our own; the state is plain data.

`fixed`     a slack of time behind the latest event time (what Spark users write today), or a slack
            of tuples (Aurora): at most that many tuples wait.
`max`       behind the clock by the largest delay seen (STREAM's input manager).
`normal`    the adaptive buffer of Kim et al.: exponential intervals, normal delays. See below.
`quantile`  no assumption: a sketch of the delays gives the delay that the allowed share exceeds,
            the realised ratio corrects it.
`upstream`  none: whoever makes the stream says up to where it is complete.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist, median
from typing import Any, Protocol

import numpy as np

from penstock.control.profile import MEDIUM, Profile
from penstock.kernels.delays import UNKNOWN_US, DelayFacts, largest
from penstock.kernels.jit import Ints
from penstock.kernels.sketch import delay_for


class Estimator(Protocol):
    def observe(self, facts: DelayFacts, rows: int, below: int) -> None:
        """An epoch is over; rows: the tuples of the promise in it, below: those that were late."""
        ...

    def reach(self, clock_us: int) -> int | None:
        """The event time that is complete when the clock shows `clock_us`; None: not known yet."""
        ...

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as plain data."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


@dataclass(slots=True)
class Upstream:
    def observe(self, facts: DelayFacts, rows: int, below: int) -> None:
        pass

    def reach(self, clock_us: int) -> int | None:
        return None

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        pass


@dataclass(slots=True)
class FixedTime:
    slack_us: int
    event_us: int = UNKNOWN_US

    def observe(self, facts: DelayFacts, rows: int, below: int) -> None:
        self.event_us = max(self.event_us, facts.event_us)

    def reach(self, clock_us: int) -> int | None:
        return None if self.event_us == UNKNOWN_US else self.event_us - self.slack_us

    def state(self) -> dict[str, Any]:
        return {"event_us": self.event_us}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.event_us = state["event_us"]


@dataclass(slots=True)
class FixedTuples:
    """Aurora's slack: the buffer holds `slack` tuples, all before them is complete."""

    slack: int
    newest_us: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def observe(self, facts: DelayFacts, rows: int, below: int) -> None:
        known = facts.newest_us[facts.newest_us > UNKNOWN_US]
        self.newest_us = largest(np.concatenate([self.newest_us, known]), self.slack + 1)

    def reach(self, clock_us: int) -> int | None:
        return int(self.newest_us[self.slack]) if self.newest_us.size > self.slack else None

    def state(self) -> dict[str, Any]:
        return {"newest_us": self.newest_us.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.newest_us = np.array(state["newest_us"], np.int64)


@dataclass(slots=True)
class Max:
    delay_us: int | None = None

    def observe(self, facts: DelayFacts, rows: int, below: int) -> None:
        if facts.measured:
            self.delay_us = max(self.delay_us or 0, facts.max_delay_us)

    def reach(self, clock_us: int) -> int | None:
        return None if self.delay_us is None else clock_us - self.delay_us

    def state(self) -> dict[str, Any]:
        return {"delay_us": self.delay_us}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.delay_us = state["delay_us"]


def _squared_z(ratio: float) -> float:
    """The paper's C, one-sided."""
    return NormalDist().inv_cdf(1 - ratio) ** 2


def buffer_size(ratio: float, sigma_us: float, theta_us: float) -> int:
    """The paper's N, from Pr(τ_{n+1} < τ_1) = Φ(-nθ / sqrt(2σ² + nθ²)) <= ratio.

    >>> buffer_size(0.01, 1_000_000, 1_000)
    3292
    """
    c = _squared_z(ratio)
    return math.floor((c + math.sqrt(c * c + 8 * c * (sigma_us / theta_us) ** 2)) / 2)


@dataclass(slots=True)
class Normal:
    """The paper's estimator: t_p = (t_n - μ) - N·θ over the last N tuples (VSeq).

    Two tuples generated n intervals apart change places with probability
    Φ(-nθ / sqrt(2σ² + nθ²)): the difference of their arrival times is normal with mean nθ and
    variance 2σ² (two delays) + nθ² (n exponential intervals). Setting it to the allowed ratio and
    solving the quadratic for n gives N. The tuple that arrives now, at t_n, was generated at about
    t_n - μ; what was generated N intervals before it, at (t_n - μ) - Nθ, comes after it with at
    most that probability: so far the stream is complete.

    VSeq is kept as moments per epoch, newest last, and forgets the oldest once the rest still holds
    N tuples; with one tuple per epoch that is the paper's sequence exactly.
    """

    ratio: float
    parts: list[tuple[int, float, float, int, int]] = field(default_factory=list)
    rows: int = 0
    delay_sum: float = 0.0
    delay_squares: float = 0.0
    most_parts: int = 4096

    LEAST = 30

    def observe(self, facts: DelayFacts, rows: int, below: int) -> None:
        n = facts.measured
        if n == 0:
            return
        part = (n, facts.delay_sum, facts.delay_squares, facts.first_clock_us, facts.clock_us)
        if len(self.parts) >= self.most_parts:
            pairs = zip(self.parts[::2], self.parts[1::2], strict=False)
            self.parts = [
                *(_joined(a, b) for a, b in pairs),
                *self.parts[len(self.parts) // 2 * 2 :],
            ]
        self.parts.append(part)
        self._shift(part, 1)
        size = max(self.size, self.LEAST) if self.interval_us else self.LEAST
        while self.rows - self.parts[0][0] >= size:
            self._shift(self.parts.pop(0), -1)

    def _shift(self, part: tuple[int, float, float, int, int], sign: int) -> None:
        self.rows += sign * part[0]
        self.delay_sum += sign * part[1]
        self.delay_squares += sign * part[2]

    @property
    def mean_us(self) -> float:
        return self.delay_sum / self.rows

    @property
    def sigma_us(self) -> float:
        return math.sqrt(max(self.delay_squares / self.rows - self.mean_us**2, 0.0))

    @property
    def interval_us(self) -> float:
        """θ = (t_n - t_1) / n, t_1 being the clock before the oldest of the n tuples."""
        return max(self.parts[-1][4] - self.parts[0][3], 0) / self.rows

    @property
    def size(self) -> int:
        """N, the tuples to wait for; also the length of VSeq."""
        return buffer_size(self.ratio, self.sigma_us, self.interval_us)

    @property
    def wait_us(self) -> float:
        """Nθ; its limit sqrt(2C)·σ where all tuples came at once."""
        if self.interval_us:
            return self.size * self.interval_us
        return math.sqrt(2 * _squared_z(self.ratio)) * self.sigma_us

    def reach(self, clock_us: int) -> int | None:
        if self.rows < self.LEAST:
            return None
        return math.floor(clock_us - self.mean_us - self.wait_us)

    def state(self) -> dict[str, Any]:
        sums = {"delay_sum": self.delay_sum, "delay_squares": self.delay_squares}
        return {"parts": list(self.parts), "rows": self.rows, **sums}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.parts = [tuple(part) for part in state["parts"]]
        self.rows = state["rows"]
        self.delay_sum, self.delay_squares = state["delay_sum"], state["delay_squares"]


def _joined(
    a: tuple[int, float, float, int, int], b: tuple[int, float, float, int, int]
) -> tuple[int, float, float, int, int]:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3], b[4])


@dataclass(slots=True)
class Quantile:
    """The delay that the allowed share of tuples exceeds, with no assumption about delays.

    - The long sketch gives the delay for a ratio. The ratio asked for is the promised one, a little
      less (AIM), plus credit: tuples that might have been lost so far and were not, or minus debt.
      Credit is bounded, so that what a calm time saved is not all lost in one stretch.
    - When the medium sketch says that the delays have changed, the older past is forgotten; when
      they grew, or when the last tuples exceed the delay far too often (a surge), the largest delay
      of the last tuples holds the punctuation back until that has passed.
    - Between two decisions, and between two window ends, the punctuation stands still in effect: a
      tuple that comes meanwhile may be that much later. That is taken off the delay.
    - A clock that leaps (an outage ends) is followed in the next epoch: the first tuples after it
      tell whether those held up in between are still to come.
    """

    ratio: float
    profile: Profile
    lag_us: float | None = None
    credit: float = 0.0
    unspent: float = 0.0
    since_change: int = 0
    growing: bool = False
    surging: bool = False
    clock_us: int = UNKNOWN_US
    held_us: int | None = None  # no further than this in the epoch after a leap
    spans: list[int] = field(default_factory=list)
    grain_us: int = 0  # windows close at its multiples only: a tuple behind one is no earlier lost

    AIM = 0.985
    CREDIT = 150.0  # expected losses
    PATIENCE = (10.0, 100.0)  # expected losses in which credit is spent: young, grown
    BOUNDS = (0.1, 2.0)  # of the ratio asked for, in promised ratios
    SLOWLY = 0.05  # more of it while there is credit beyond CREDIT
    CHANGE, SURGE = 2.8, 4.0  # standard deviations that are no accident
    LEAP = 4.0  # median spans
    SPANS = 9

    def observe(self, facts: DelayFacts, rows: int, below: int) -> None:
        self.profile.observe(facts, self._asked())
        self.since_change += rows
        allowed = self.ratio * self.AIM * rows - below
        self.unspent += allowed
        self.credit = min(self.credit + allowed, self.CREDIT)
        self._follow(facts.clock_us)
        if facts.measured:
            self.lag_us = self._decide()

    def _follow(self, clock_us: int) -> None:
        """Note how far the clock moves in an epoch, and whether it leapt."""
        self.held_us = None
        if clock_us == UNKNOWN_US:
            return
        if self.clock_us != UNKNOWN_US:
            span = max(clock_us - self.clock_us, 0)
            if self.spans and span > (most := self.LEAP * median(self.spans)):
                self.held_us = self.clock_us + int(most)
            self.spans = [*self.spans, span][-self.SPANS :]
        self.clock_us = max(self.clock_us, clock_us)

    def _decide(self) -> float:
        profile = self.profile
        if profile.seen < 1 / self.ratio:
            return max(profile.recent_max(), self.lag_us or 0.0)
        ratio, spread = self._asked(), self._standstill() + self.grain_us
        lag = delay_for(profile.long, ratio, spread)
        change = profile.differs(lag, spread, ratio, self.CHANGE)
        if (change > 0 or (change < 0 and lag > 0)) and self.since_change > MEDIUM / ratio:
            profile.forget()
            self.since_change, self.growing = 0, change > 0
            lag = delay_for(profile.long, ratio, spread)
        settling = self.growing and self.since_change < MEDIUM / ratio
        self.surging = settling or profile.surges(lag, spread, ratio, self.SURGE)
        return max(lag, profile.recent_max()) if self.surging else lag

    def _standstill(self) -> float:
        """How long the punctuation stands still at least, as a rule: a lower quartile."""
        return float(sorted(self.spans)[len(self.spans) // 4]) if self.spans else 0.0

    def _asked(self) -> float:
        """The ratio to ask the sketch for."""
        young, grown = self.PATIENCE
        patience = min(grown, max(young, self.profile.seen * 0.3 * self.ratio))
        more = self.SLOWLY if self.unspent > self.credit + 1 else 0.0
        least, most = self.BOUNDS
        return self.ratio * min(max(self.AIM + self.credit / patience + more, least), most)

    def reach(self, clock_us: int) -> int | None:
        return None if self.lag_us is None else self.confirmed(clock_us) - int(self.lag_us)

    def confirmed(self, clock_us: int) -> int:
        """The clock as far as it is followed: a leap only in the next epoch."""
        if self.held_us is None or clock_us > self.clock_us:
            return clock_us
        return min(clock_us, self.held_us)

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _QUANTILE_STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name in _QUANTILE_STATE:
            setattr(self, name, state[name])


_QUANTILE_STATE = (
    "lag_us",
    "credit",
    "unspent",
    "since_change",
    "growing",
    "surging",
    "clock_us",
    "held_us",
    "spans",
)
