"""A trace replayed through an estimator, as an engine would: a decision after every few tuples.

The punctuation decided after one step is what the tuples of the next step are tested against. The
oracle knows the whole trace: the smallest constant delay that keeps the promise on it, with the
same steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.control.estimators import Estimator
from penstock.control.punctuation import NEVER_US
from penstock.kernels.delays import UNKNOWN_US, disorder_facts
from penstock.kernels.jit import Flags, Ints

TRUST_US = 10**15


@dataclass(frozen=True, slots=True)
class Trace:
    """Event and arrival times in arrival order, microseconds."""

    name: str
    event_us: Ints
    arrival_us: Ints


@dataclass(frozen=True, slots=True)
class Outcome:
    """late: per tuple; after each step the punctuation and the clock."""

    trace: Trace
    step: int
    late: Flags
    punctuation_us: Ints
    clock_us: Ints

    @property
    def drop_ratio(self) -> float:
        return float(self.late.mean())

    def worst_stretch(self, tuples: int) -> float:
        """The largest drop ratio over any so many tuples in a row (over all, if there are less)."""
        tuples = min(tuples, self.late.size)
        sums = np.concatenate([[0], np.cumsum(self.late)])
        return float((sums[tuples:] - sums[:-tuples]).max() / tuples)

    def latency_us(self) -> float:
        """From an event time until it is declared complete, on average over all tuples."""
        step = np.searchsorted(self.punctuation_us, self.trace.event_us)
        done = step < self.clock_us.size
        waited = self.clock_us[step[done]] - self.trace.event_us[done]
        return float(waited.mean()) if waited.size else float("nan")

    def buffered(self) -> Ints:
        """After each step, how many tuples wait for the punctuation."""
        steps = self.clock_us.size
        arrived = np.minimum(np.arange(1, steps + 1) * self.step, self.late.size)
        taken = np.concatenate([[0], np.cumsum(~self.late)])[arrived]
        gone = np.bincount(np.minimum(self._leaves(), steps), minlength=steps + 1)
        return taken - np.cumsum(gone[:steps])

    def waiting_us(self) -> float:
        """From a tuple's arrival until it leaves the buffer, on average over those that do."""
        leaves = self._leaves()
        done = leaves < self.clock_us.size
        waited = self.clock_us[leaves[done]] - self.trace.arrival_us[~self.late][done]
        return float(waited.mean()) if waited.size else float("nan")

    def _leaves(self) -> Ints:
        """Of each tuple that is not late: the step that passes it, but not before it came."""
        passed = np.searchsorted(self.punctuation_us, self.trace.event_us[~self.late])
        return np.maximum(passed, np.flatnonzero(~self.late) // self.step)


def replay(trace: Trace, estimator: Estimator, step: int, newest: int = 0) -> Outcome:
    """newest: how many event times an estimator by tuples must be shown."""
    late = np.zeros(trace.event_us.size, np.bool_)
    punctuations, clocks = [], []
    punctuation, clock = NEVER_US, UNKNOWN_US
    valid = np.ones(step, np.bool_)
    for first in range(0, late.size, step):
        event = trace.event_us[first : first + step]
        arrival = trace.arrival_us[first : first + step]
        facts = disorder_facts(
            event, valid[: event.size], arrival, clock, TRUST_US, punctuation, newest
        )
        late[first : first + step] = event < punctuation
        clock = facts.clock_us
        estimator.observe(facts, facts.rows, facts.below)
        if (reached := estimator.reach(clock)) is not None:
            punctuation = max(punctuation, reached)
        punctuations.append(punctuation)
        clocks.append(clock)
    return Outcome(trace, step, late, np.array(punctuations), np.array(clocks))


def oracle_delay(trace: Trace, step: int, ratio: float) -> int:
    """The smallest constant delay behind the clock that loses at most `ratio` of the trace."""
    clock = np.maximum.accumulate(trace.arrival_us)
    before = clock[np.arange(trace.event_us.size) // step * step - 1]
    behind = np.where(np.arange(before.size) < step, UNKNOWN_US, before - trace.event_us)
    allowed = int(ratio * behind.size)
    at = behind.size - allowed - 1
    return max(int(np.partition(behind, at)[at]), 0)


@dataclass(slots=True)
class ConstantDelay:
    """A delay behind the clock that never changes: the oracle, or a user's guess."""

    delay_us: int

    def observe(self, facts: object, rows: int, below: int) -> None:
        pass

    def reach(self, clock_us: int) -> int | None:
        return clock_us - self.delay_us

    def state(self) -> dict[str, object]:
        return {}

    def restore(self, state: object) -> None:
        pass
