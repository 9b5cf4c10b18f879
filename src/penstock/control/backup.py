"""When an output queue hands its content to a backup server, and what may leave the queue.

Upstream backup: a queue keeps what it sent until all downstream have made it safe. One slow
downstream then fills it. "Adaptive upstream backup based on operation throughput in distributed
spatial data stream systems" moves what the fastest downstream has received to a backup server, so
that the slow one no longer holds the others.

Two triggers. `paper` is Algorithm 1: input rate × processing rate above a standard load. Since a
high processing rate makes the product larger, it also fires when everybody downstream is fast.
`overflow` asks how long the free space lasts, free / (inflow − trimmed), starts when that is less
than a horizon, and ends only when it has become several times as long and the queue is half empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Mode = Literal["plain", "block", "adaptive"]
Trigger = Literal["overflow", "paper"]
Acting = Literal["plain", "block", "upstream", "backup"]
Refusal = Literal["lose", "wait"]

MODES: tuple[Mode, ...] = ("plain", "block", "adaptive")
TRIGGERS: tuple[Trigger, ...] = ("overflow", "paper")

HORIZON_S = 2.0
_CALM_HORIZONS = 4.0
_CALM_SHARE = 0.5
_STANDARD_SHARE = 0.7  # of the capacity, arriving within a second: 3.5 MB of 5 MB in the paper
_ENTRY_SHARE = 0.5  # of the standard load: an entry so loaded has the fan-out queues measured
_QUIET_SHARE = 0.8  # of the load from which fan-out queues are measured


@dataclass(frozen=True, slots=True)
class BackupRules:
    """How a queue of `capacity` bytes behaves; standard_load: bytes per second, for `paper`."""

    mode: Mode
    capacity: int
    trigger: Trigger = "overflow"
    horizon_s: float = HORIZON_S

    @property
    def standard_load(self) -> float:
        return _STANDARD_SHARE * self.capacity

    @property
    def entry_load(self) -> float:
        return _ENTRY_SHARE * self.standard_load


@dataclass(frozen=True, slots=True)
class LoadFacts:
    """What was measured of a queue. Rates are bytes per second.

    trimmed: left the queue because all downstream had acknowledged it. processing: of each
    downstream, see `processing_rate`.
    """

    used: int
    inflow: float
    trimmed: float
    processing: tuple[float, ...]


def input_rate(tuples: float, tuple_bytes: float, period_s: float) -> float:
    """Expression 1 of the paper, for one second instead of one period."""
    return tuples * tuple_bytes / period_s


def processing_rate(processed: float, received: float, weight: float = 1.0) -> float:
    """Expression 2: what a downstream finished of what it received; who got nothing is not slow.

    >>> processing_rate(30, 40), processing_rate(0, 0)
    (0.75, 1.0)
    """
    return weight * (processed / received if received else 1.0)


def time_to_overflow(free: float, inflow: float, trimmed: float) -> float:
    """Seconds until the free space is used up; for ever if it does not shrink.

    >>> time_to_overflow(100, inflow=30, trimmed=10), time_to_overflow(100, 10, 10)
    (5.0, inf)
    """
    shrinking = inflow - trimmed
    return max(0.0, free) / shrinking if shrinking > 0 else math.inf


def is_overloaded(before: bool, facts: LoadFacts, rules: BackupRules) -> bool:
    """Whether the queue needs the backup server, given whether it did when last asked."""
    if rules.trigger == "paper":
        return facts.inflow * _mean(facts.processing) > rules.standard_load
    left_s = time_to_overflow(rules.capacity - facts.used, facts.inflow, facts.trimmed)
    if not before:
        return left_s < rules.horizon_s
    calm = left_s > _CALM_HORIZONS * rules.horizon_s
    return not (calm and facts.used <= _CALM_SHARE * rules.capacity)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def acting_mode(mode: Mode, overloaded: bool, backup_answers: bool) -> Acting:
    """What a queue does now; without its backup server an adaptive one is a blocking one."""
    if mode != "adaptive":
        return mode
    if not backup_answers:
        return "block"
    return "backup" if overloaded else "upstream"


def is_overloaded_when_full(rules: BackupRules) -> bool:
    """A full queue overflows now, measured or not; the paper's trigger knows nothing of space."""
    return rules.mode == "adaptive" and rules.trigger == "overflow"


def when_full(mode: Mode) -> Refusal:
    return "lose" if mode == "plain" else "wait"


def handover_end(kept_from: int, delivered: Iterable[int]) -> int:
    """Positions below go to the backup server: up to the highest level-0 acknowledgement.

    What nobody has received stays: the fastest downstream is about to ask for it.
    """
    return max(kept_from, max(delivered, default=kept_from))


def trim_end(trimmed: int, safe: Iterable[int], end: int) -> int:
    """Positions below are needed by nobody: down to the lowest level-1 acknowledgement.

    A queue without downstream keeps nothing. What is trimmed never comes back. A downstream may be
    ahead of the queue: then its upstream was rolled back, and replays.
    """
    return max(trimmed, min((end, *safe)))


def is_entry_loaded(before: bool, load: float, threshold: float) -> bool:
    """Whether the input of the network is so high that fan-out queues are worth measuring."""
    return load > (_QUIET_SHARE * threshold if before else threshold)


def is_measured(entry: bool, downstreams: int, entry_loaded: bool, overloaded: bool) -> bool:
    """Entries always; others only while an entry is loaded, and only where the output is shared.

    One that hands over is measured, too: else nobody would see when it may stop.
    """
    return entry or overloaded or (entry_loaded and downstreams > 1)
