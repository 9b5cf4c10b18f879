"""How long a ring pauses between micro-batches.

Each micro-batch has a cost of its own, paid whether there are tuples or not. A ring that falls
behind runs back to back: then each micro-batch takes all that waits, and the cost is paid least
often per tuple. A ring without tuples looks ever more seldom: it pauses for a tenth of the time
that it has been quiet, so the first tuple waits no longer than a tenth of what it let itself be
waited for, and never longer than the longest pause.
"""

from __future__ import annotations

from dataclasses import dataclass

_OF_QUIET = 0.1


@dataclass(frozen=True, slots=True)
class TriggerFacts:
    """batch_ms: of recent micro-batches with tuples. quiet_s: since the last of them began.

    backlog_per_s: tuples by which what waits at the source grows.
    """

    batch_ms: float
    backlog_per_s: float
    quiet_s: float


def pause_ms(facts: TriggerFacts, trigger_ms: float, longest_ms: float) -> float:
    """The trigger interval for the next micro-batch; trigger_ms is what the user set.

    >>> loaded, idle = TriggerFacts(150, 0, 0), TriggerFacts(150, 0, quiet_s=30)
    >>> pause_ms(loaded, 200, 5000), pause_ms(idle, 200, 5000)
    (200, 3000.0)
    """
    quiet_ms = 1000 * facts.quiet_s
    needs_all = facts.batch_ms >= trigger_ms and quiet_ms <= facts.batch_ms + trigger_ms
    if facts.backlog_per_s > 0 or needs_all:
        return 0.0
    return max(trigger_ms, min(longest_ms, _OF_QUIET * quiet_ms))
