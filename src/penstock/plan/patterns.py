"""LIKE and startswith as value sets of strings, where they are ranges.

`LIKE 'abc%'` holds from 'abc' up to, not including, 'abd': Spark compares strings by their UTF-8
bytes, which is the order of code points. A pattern without wildcards is equality, `%` alone is any
string. A wildcard before the end, or `_`, makes no range: let Spark match.
"""

from __future__ import annotations

import sys
from itertools import takewhile

from penstock.plan.specs import ValueSet
from penstock.plan.valuesets import ALL_VALUES, compare, intersect

_BELOW_SURROGATES, _ABOVE_SURROGATES = "\ud7ff", "\ue000"  # between them are no characters


def matching(pattern: str, escape: str) -> ValueSet | None:
    """The strings that match, None if they are no range or Spark refuses the pattern."""
    characters = read_pattern(pattern, escape)
    if characters is None:
        return None
    prefix = "".join(c for c, _ in takewhile(lambda pair: not pair[1], characters))
    rest = set(characters[len(prefix) :])
    if not rest:
        return compare("=", prefix)
    return starting_with(prefix) if rest == {("%", True)} else None


def starting_with(prefix: str) -> ValueSet:
    if not prefix:
        return ALL_VALUES
    end = _successor(prefix)
    return intersect(compare(">=", prefix), ALL_VALUES if end is None else compare("<", end))


def read_pattern(pattern: str, escape: str) -> list[tuple[str, bool]] | None:
    """Each character with whether it is a wildcard; None if Spark refuses pattern or escape."""
    if len(escape) != 1 or escape > "\uffff":
        return None
    found: list[tuple[str, bool]] = []
    characters = iter(pattern)
    for character in characters:
        if character != escape:
            found.append((character, character in "%_"))
        elif (escaped := next(characters, "")) in ("%", "_", escape):
            found.append((escaped, False))
        else:
            return None
    return found


def _successor(prefix: str) -> str | None:
    """The least string above all that start with the prefix, None if there is none.

    >>> _successor("abc"), _successor("ab\U0010ffff"), _successor("\U0010ffff")
    ('abd', 'ac', None)
    """
    shortened = prefix.rstrip(chr(sys.maxunicode))
    if not shortened:
        return None
    last = shortened[-1]
    following = _ABOVE_SURROGATES if last == _BELOW_SURROGATES else chr(ord(last) + 1)
    return shortened[:-1] + following
