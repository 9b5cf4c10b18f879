"""How loaded a queue is: rates between two looks at its figures."""

from __future__ import annotations

from collections.abc import Callable

from penstock.control.backup import LoadFacts, processing_rate
from penstock.exchange.figures import Tally

_WEIGHT = 0.5  # of the newest period
_LEAST_S = 0.5  # between two answers to whoever asks


class LoadMeter:
    def __init__(self) -> None:
        self._before: tuple[float, Tally] | None = None
        self._inflow = 0.0
        self._trimmed = 0.0

    def measure(self, now_s: float, tally: Tally) -> LoadFacts:
        """Rates since the last call, smoothed; none yet at the first one."""
        if self._before is None or now_s <= self._before[0]:
            self._before = self._before or (now_s, tally)
            return LoadFacts(tally.used, self._inflow, self._trimmed, ())
        then_s, before = self._before
        passed_s = now_s - then_s
        inflow = (tally.appended_bytes - before.appended_bytes) / passed_s
        trimmed = (tally.trimmed_bytes - before.trimmed_bytes) / passed_s
        self._inflow += _WEIGHT * (inflow - self._inflow)
        self._trimmed += _WEIGHT * (trimmed - self._trimmed)
        self._before = now_s, tally
        processing = tuple(
            processing_rate(safe - before.consumers[name][1], received - before.consumers[name][0])
            for name, (received, safe) in tally.consumers.items()
            if name in before.consumers
        )
        return LoadFacts(tally.used, self._inflow, self._trimmed, processing)

    def forget(self) -> None:
        """Measuring pauses: the next period begins with the next call."""
        self._before = None


class AskedRates:
    """Bytes per second that came and went since somebody last asked, for queues not measured."""

    def __init__(self, now_s: float, tally: Tally) -> None:
        self._before = now_s, tally
        self._rates = 0.0, 0.0

    def rates(self, now_s: float, tally: Callable[[], Tally]) -> tuple[float, float]:
        """Inflow and trimmed; whoever asks again at once gets the same answer."""
        then_s, before = self._before
        if now_s - then_s >= _LEAST_S:
            seen, passed_s = tally(), now_s - then_s
            self._before = now_s, seen
            self._rates = (
                (seen.appended_bytes - before.appended_bytes) / passed_s,
                (seen.trimmed_bytes - before.trimmed_bytes) / passed_s,
            )
        return self._rates
