"""The smallest set of attributes of which every term uses one (a hitting set; the paper's MACS).

The problem is NP-hard. A search for the smallest set takes few steps where few attributes are in
use or some are in most terms; where it takes too many, the greedy set is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

Usage = Mapping[frozenset[str], int]  # how many terms use exactly these attributes

_LOOKS = 20_000  # at signatures, of the search: 8 ms


@dataclass(frozen=True, slots=True)
class Cover:
    """Attributes of which every term uses one; exact: there is no smaller set."""

    attributes: tuple[str, ...] = ()
    exact: bool = True


def minimum_cover(usage: Usage) -> Cover:
    """The smallest cover, those of most terms first; greedy where the search takes too long.

    Of several smallest ones that which comes first if attributes are ranked by their terms, then by
    name. Terms without attributes always hold and are left out.

    >>> minimum_cover({frozenset("ab"): 3, frozenset("bc"): 1, frozenset("d"): 1})
    Cover(attributes=('b', 'd'), exact=True)
    """
    names = by_terms(usage)
    rank = {name: place for place, name in enumerate(names)}
    masks = (sum(1 << rank[name] for name in signature) for signature in usage)
    signatures = sorted(filter(None, masks), key=lambda mask: (mask.bit_count(), mask))
    found = _smallest_cover(signatures)
    if found is not None:
        return Cover(tuple(names[place] for place in found))
    greedy = _greedy_cover([s for s in usage if s], rank)
    return Cover(tuple(sorted(greedy, key=rank.__getitem__)), exact=False)


def by_terms(usage: Usage) -> list[str]:
    """The attributes, those of most terms first."""
    terms: Counter[str] = Counter()
    for signature, used in usage.items():
        for name in signature:
            terms[name] += used
    return sorted(terms, key=lambda name: (-terms[name], name))


def _smallest_cover(signatures: list[int]) -> tuple[int, ...] | None:
    """The first of the smallest covers; None: not found within _LOOKS.

    Bit r of a signature is the attribute of rank r. Covers of one size after the other are tried,
    ranks ascending: a signature not yet hit has no use for the ranks that were passed by, and none
    of its own may be passed by if it is the last.
    """
    looks, size = _LOOKS, _disjoint(signatures)
    untried: list[tuple[tuple[int, ...], list[int]]] = [((), signatures)]
    while looks > 0:
        if not untried:
            size += 1
            untried = [((), signatures)]
        chosen, missed = untried.pop()
        looks -= len(missed)
        if chosen:
            last = chosen[-1]
            missed = [s & (-2 << last) for s in missed if not s >> last & 1]
        if not missed:
            return chosen
        if len(chosen) + _disjoint(missed) <= size:
            first = chosen[-1] + 1 if chosen else 0
            end = min(s.bit_length() for s in missed)
            untried += [((*chosen, rank), missed) for rank in reversed(range(first, end))]
    return None


def _disjoint(signatures: list[int]) -> int:
    """A number of signatures without a common attribute: a cover needs one for each of them."""
    used = found = 0
    for signature in signatures:
        if not signature & used:
            used |= signature
            found += 1
    return found


def _greedy_cover(signatures: list[frozenset[str]], rank: Mapping[str, int]) -> list[str]:
    cover = []
    while signatures:
        hits = Counter(chain.from_iterable(signatures))
        best = min(hits, key=lambda name: (-hits[name], rank[name]))
        signatures = [s for s in signatures if best not in s]
        cover.append(best)
    return cover
