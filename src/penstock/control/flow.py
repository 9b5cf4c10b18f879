"""Rings that feed streams which other rings read: who comes before whom, and who is needed.

A ring fills the stream that it feeds and the companions of the streams that it reads. Streams are
derived only from streams that are there, but a ring may also read what its own late tuples become:
such circles are cut where they are met.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

_COMPANIONS = (".late", ".bad")


@dataclass(frozen=True, slots=True)
class RingFlow:
    """Names of streams in lower case; feeds: of a ring of a derived stream."""

    ring: str
    reads: frozenset[str]
    feeds: str | None = None

    @property
    def fills(self) -> frozenset[str]:
        companions = {name + kind for name in self.reads for kind in _COMPANIONS}
        return frozenset(companions | ({self.feeds} if self.feeds else set()))


def waves(rings: Iterable[RingFlow]) -> list[list[str]]:
    """Rings in an order in which whoever fills a stream comes before those who read it.

    >>> a, b = RingFlow("a", frozenset({"s"}), "hot"), RingFlow("b", frozenset({"hot", "s"}))
    >>> waves([b, a, RingFlow("c", frozenset({"hot.late"}))])
    [['a'], ['b'], ['c']]
    """
    known = list(rings)
    depths: dict[str, int] = {}

    def depth(one: RingFlow, above: frozenset[str]) -> int:
        if one.ring not in depths:
            inside = above | {one.ring}
            before = [o for o in known if o.ring not in inside and o.fills & one.reads]
            depths[one.ring] = 1 + max((depth(o, inside) for o in before), default=-1)
        return depths[one.ring]

    found: dict[int, list[str]] = {}
    for one in known:
        found.setdefault(depth(one, frozenset()), []).append(one.ring)
    return [found[at] for at in sorted(found)]


def wanted(rings: Iterable[RingFlow], begun: Collection[str]) -> set[str]:
    """Rings that have to run: a derived stream begins with its first reader, and then goes on.

    >>> a, b = RingFlow("a", frozenset({"s"}), "hot"), RingFlow("b", frozenset({"hot"}), "hotter")
    >>> wanted([a, b], ()), wanted([a, b], {"b"}) == {"a", "b"}
    (set(), True)
    """
    known = list(rings)
    needed = {one.ring for one in known if one.feeds is None or one.ring in begun}
    while True:
        read = {name for one in known if one.ring in needed for name in one.reads}
        more = {one.ring for one in known if one.feeds in read} - needed
        if not more:
            return needed
        needed |= more
