"""Who is kept apart after a failure, when it is tried again, and when nobody tries any more.

It is the same for a query whose sink fails and for a ring that fails in passing: a failure puts it
into quarantine; after a pause that doubles from try to try it gets one chance; a success ends the
quarantine and is the only thing that does. One failure is enough: what it concerns has to wait, and
whatever comes after it, for the order's sake. While it is in quarantine, a query's results go to
the workspace, and the others of its ring do not notice.

A call that has not returned is no failure of a new try: until it returns there is no chance at all.
An error in an expression comes again with the next tuple of its kind, so it is not tried again by
itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# raised: an error; blocked: no answer in time; expression: of the query's own computation
Failure = Literal["raised", "blocked", "expression"]
Route = Literal["try", "aside"]

_MOST_DOUBLINGS = 60  # beyond, any cap is reached
_FORGIVEN_S = 600.0  # after which an earlier failure of a ring has nothing to do with this one


@dataclass(frozen=True, slots=True)
class Patience:
    """How the user wants it tried again.

    first_s, longest_s: the pause before the first try, and the longest. tries: 0 for none.
    """

    first_s: float = 10.0
    longest_s: float = 600.0
    tries: int = 8

    def __post_init__(self) -> None:
        if self.tries < 0:
            raise ValueError(f"{self.tries} tries after a failure")
        if not 0 < self.first_s <= self.longest_s:
            raise ValueError(f"first pause {self.first_s} s, longest {self.longest_s} s")

    def pause_s(self, tries: int) -> float:
        """The pause after so many tries in vain.

        >>> [Patience(first_s=10, longest_s=60).pause_s(n) for n in range(5)]
        [10.0, 20.0, 40.0, 60, 60]
        """
        return min(self.longest_s, self.first_s * 2.0 ** min(tries, _MOST_DOUBLINGS))


@dataclass(frozen=True, slots=True)
class Health:
    """How a query's sink, or a ring, is doing.

    tries: in vain since the quarantine began. retry_at_s: when the next chance comes; None in a
    quarantine that nobody ends but the user.
    """

    state: Literal["well", "quarantined"] = "well"
    tries: int = 0
    retry_at_s: float | None = None

    @property
    def given_up(self) -> bool:
        return self.state == "quarantined" and self.retry_at_s is None


WELL = Health()


def after_failure(health: Health, failure: Failure, now_s: float, patience: Patience) -> Health:
    """Health after a call, or a run, that failed."""
    tries = 0 if health.state == "well" else health.tries + 1
    again = failure != "expression" and tries < patience.tries
    retry_at_s = now_s + patience.pause_s(tries) if again else None
    return Health("quarantined", tries, retry_at_s)


@dataclass(slots=True)
class Restarts:
    """Of rings that fail in passing, by the patience with each kind of failure: what one kind took
    in vain does not count for another."""

    known: dict[str, dict[Patience, Health]] = field(default_factory=dict)
    worked: dict[str, int] = field(default_factory=dict)
    failed_s: dict[str, float] = field(default_factory=dict)

    def after_failure(self, ring: str, worked: int, patience: Patience, now_s: float) -> Health:
        """worked: how many micro-batches it has had; if more than the last time, it was well."""
        since_s = now_s - self.failed_s.get(ring, now_s)
        if worked > self.worked.get(ring, -1) or since_s > _FORGIVEN_S:
            self.known[ring] = {}
        self.worked[ring], self.failed_s[ring] = worked, now_s
        health = self.known[ring].get(patience, WELL)
        health = self.known[ring][patience] = after_failure(health, "raised", now_s, patience)
        return health

    def forget(self, ring: str) -> None:
        for book in (self.known, self.worked, self.failed_s):
            book.pop(ring, None)


def resumed(health: Health, now_s: float) -> Health:
    """Health after the user asked for a try: it comes at once, and others follow if it fails."""
    return health if health.state == "well" else Health("quarantined", 0, now_s)


def after_success(health: Health) -> Health:
    """Health after a call that went well; a call of before that ends late changes nothing."""
    return health if health.given_up else WELL


def route(health: Health, now_s: float, is_stuck: bool) -> Route:
    """Whether what comes now is tried on it or put aside; is_stuck: a call has not returned."""
    if is_stuck:
        return "aside"
    if health.state == "well":
        return "try"
    return "try" if health.retry_at_s is not None and now_s >= health.retry_at_s else "aside"


def in_words(health: Health, now_s: float) -> str:
    """What a user is told beside the error.

    >>> patience = Patience(first_s=10)
    >>> in_words(after_failure(WELL, "raised", 100.0, patience), 104.0)
    'tried again in 6 s'
    >>> in_words(after_failure(WELL, "expression", 100.0, patience), 104.0)
    'not tried again by itself'
    """
    if health.state == "well":
        return "well"
    if health.retry_at_s is None:
        return "not tried again by itself"
    return f"tried again in {max(0.0, health.retry_at_s - now_s):.0f} s"
