"""EXPLAIN of a ring: what is computed there for everybody in it, and who that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.language.render import render
from penstock.plan.bound import BoundQuery
from penstock.plan.result_columns import usual_aggregates
from penstock.plan.roles import FLOAT_VALUE, TEXT_KEY, WHOLE_KEY, WHOLE_VALUE
from penstock.plan.specs import Composition, ValueSet

NAMED = 4  # queries that EXPLAIN names


@dataclass(frozen=True, slots=True)
class Company:
    """How many other queries compare an attribute: with the same set, with another one."""

    same: int
    other: int


@dataclass(frozen=True, slots=True)
class Sharing:
    """A running ring of the same composition, how many queries are in it, and what they share.

    others: some of their names, without the query's own; runs: whether it is one of them itself.
    """

    ring: str
    queries: int
    company: Mapping[tuple[str, ValueSet], Company]  # of each attribute or geofence with its set
    others: tuple[str, ...] = ()
    runs: bool = False


def ring_lines(query: BoundQuery, composition: Composition, sharing: Sharing | None) -> list[str]:
    """Which ring, with whom, and what makes others share it."""
    lines = [f"computes  {_computed(query, composition)}"]
    if sharing is None:
        return [*lines, "ring      a new one: no running query has this composition"]
    lines.append(f"ring      {sharing.ring}; queries in it: {sharing.queries}")
    if sharing.others:
        lines.append(f"shared    with {_named(sharing)}")
    return lines


def _computed(query: BoundQuery, composition: Composition) -> str:
    """What queries must have in common; in which words and order does not matter."""
    if composition.any_columns and composition.kind == "select":
        return f"nothing: columns of {composition.stream} as they come, whichever a query selects"
    if composition.in_roles:
        what = f"the usual aggregates of columns of {composition.stream}, whichever, by whichever"
        return f"{what}; {_most(composition)}{_having(composition)}"
    items = ", ".join(dict.fromkeys(render(item.expr) for item in query.items))
    if composition.any_columns:
        items = f"any of {_family(query)}"
    streams = ", ".join(given.stream.name for given in query.inputs)
    keys = ", ".join(dict.fromkeys(render(key) for key in query.keys))
    text = f"{items} {'from' if composition.any_columns else 'of'} {streams}"
    text += f" by {keys}" if keys else ""
    return text.replace("`", "") + _having(composition)


def _having(composition: Composition) -> str:
    if composition.having is None:
        return ""
    own = "constants of its own" if composition.constants else "the same constants"
    return f"; HAVING with {own}"


def _most(composition: Composition) -> str:
    """How many columns queries of a ring may group by and aggregate."""
    arguments = dict.fromkeys(p.argument for p in composition.partials if p.argument is not None)
    kinds = Counter(role.rstrip("0123456789") for role in (*composition.keys, *arguments))
    keys = f"{kinds[WHOLE_KEY]} by number or time and {kinds[TEXT_KEY]} by text"
    values = f"{kinds[WHOLE_VALUE]} of whole numbers or times and {kinds[FLOAT_VALUE]} of floats"
    return f"at most {keys}, {values}"


def _family(query: BoundQuery) -> str:
    """The aggregates of which queries select some."""
    columns: dict[str, list[str]] = {}
    for column, names in usual_aggregates(query).items():
        columns.setdefault(", ".join(names), []).append(column)
    return "; ".join(
        ["count(*)", *(f"{names} of {', '.join(of)}" for names, of in columns.items())]
    )


def _named(sharing: Sharing) -> str:
    more = sharing.queries - sharing.runs - len(sharing.others)
    return ", ".join(sharing.others) + (f" and {more} more" if more > 0 else "")
