"""In which order a ring's attributes are looked up: facts of epochs in, orders out.

A row is dropped once none of the terms (the conjunctions of the queries) can hold any more. Lee and
Lee, "Attribute-based Approach for Multiple Continuous Queries over Data Streams", look first at the
smallest set of attributes of which every term uses one (MACS: before its end no row can be
dropped); in it, and again after it, the next attribute is the one that leaves fewest terms (SAS;
with the cover MACSSAS). One position is decided per period. The last position in the cover and the
last of all leave no choice, hence the paper's |A_p| - 2 periods.

An order costs or saves time, it never changes what matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from penstock.control.cover import Cover, Usage, by_terms, minimum_cover

_CLEARLY = 0.98  # to win a place: at most this part of the terms that its holder leaves
_ALARMING = 0.5  # a change that is never put down to noise
_CALMING = 0.98  # the part of the tolerance that is left after a calm period


@dataclass(frozen=True, slots=True)
class OrderFacts:
    """What the tasks of an epoch measured; a bit is a term that can still hold for a sampled row.

    rows: sampled. terms: bits of a row at first, a mean if queries came or went. after: bits left
    in all rows after each attribute of order. candidates: bits left if this attribute came right
    after the first `prefix` of order; prefix None: not asked for. tuples, visits: of all rows, not
    only sampled ones, and of their attribute look-ups. usage: empty if it was not told.
    """

    rows: int = 0
    terms: float = 0
    order: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    prefix: int | None = None
    candidates: Mapping[str, int] = field(default_factory=dict)
    tuples: int = 0
    visits: int = 0
    usage: Usage = field(default_factory=dict)

    @property
    def bits(self) -> float:
        """Bits before the first attribute."""
        return self.rows * self.terms


def merge_order_facts(a: OrderFacts, b: OrderFacts) -> OrderFacts:
    """Both together; of different orders or prefixes, what was measured on more rows."""
    both = replace(
        a if a.rows >= b.rows else b,
        tuples=a.tuples + b.tuples,
        visits=a.visits + b.visits,
        usage=a.usage or b.usage,
    )
    if (a.order, a.prefix) != (b.order, b.prefix) or not (a.rows and b.rows):
        return both
    return replace(
        both,
        rows=a.rows + b.rows,
        terms=(a.bits + b.bits) / (a.rows + b.rows),
        after=tuple(x + y for x, y in zip(a.after, b.after, strict=True)),
        candidates={name: bits + b.candidates[name] for name, bits in a.candidates.items()},
    )


def plain(facts: OrderFacts) -> dict[str, Any]:
    """Facts as plain data."""
    usage = [[sorted(signature), used] for signature, used in facts.usage.items()]
    return {**asdict(replace(facts, usage={})), "usage": usage}


def order_facts_from(state: Mapping[str, Any]) -> OrderFacts:
    order, after = tuple(state["order"]), tuple(state["after"])
    usage = {frozenset(signature): used for signature, used in state["usage"]}
    return OrderFacts(**{**state, "order": order, "after": after, "usage": usage})


@dataclass(frozen=True, slots=True)
class OrderRules:
    """How an order is found.

    macs: the cover first, nothing is measured; sas: by what was measured alone; macssas: both.
    period: tuples between two decisions (λ). change: from which on the order is decided anew (μ).
    """

    method: Literal["macssas", "macs", "sas"] = "macssas"
    period: int = 80_000
    change: float = 0.1


class Ordering:
    """Decides the order of one ring's attributes.

    Before anything is measured, attributes of most terms come first. A position is fixed after each
    period, and the order used at once, its rest as it was. Then the order is watched.

    The paper watches s, the share of terms that hold in the end (equation 3). That is the same for
    every order: if two attributes change roles, s may stay as it is. So equation 3 is taken for the
    share left after every position and averaged, weighted by the rows that go on: all where at
    least one term per row is left, else as many as there are terms. A row costs one look-up in any
    case, so the weights count as one at least, and s may be 0. A position counts as soon as it is
    fixed, for a stream may change while the rest is decided.

    Against flapping: whoever holds a place keeps it unless another is clearly better, a cover is
    kept while it is a smallest one, and each reordering doubles the change asked for (up to
    _ALARMING) until one did change the order, or until calm periods have brought it down again.
    """

    def __init__(self, rules: OrderRules) -> None:
        self.rules = rules
        self.order: tuple[str, ...] = ()  # for the next epoch
        self.prefix: int | None = None  # which position is to be measured; None: only watch
        self.cover = Cover()
        self.before: tuple[str, ...] = ()  # the order when its last reordering began
        self.then: tuple[float, ...] = ()  # shares left after each position when it was fixed
        self.now: tuple[float, ...] = ()  # and in the last period
        self.tolerance = rules.change
        self.reorders = 0
        self.recent: tuple[int, ...] = (0, 0)  # tuples and visits of the last epochs
        self._period = OrderFacts()
        self._signatures: Set[frozenset[str]] = frozenset()

    def observe(self, facts: OrderFacts) -> None:
        """An epoch is over; what it measured of another order than the present one is not used."""
        if facts.tuples:
            tuples, visits = self.recent
            self.recent = (tuples // 2 + facts.tuples, visits // 2 + facts.visits)
        if facts.usage and facts.usage.keys() != self._signatures:
            self._signatures = facts.usage.keys()
            self._use(facts.usage)
        if (facts.order, facts.prefix) != (self.order, self.prefix):
            return
        self._period = merge_order_facts(self._period, replace(facts, usage={}))
        if self._period.tuples >= self.rules.period and self._period.bits:
            period, self._period = self._period, OrderFacts()
            self._judge(period)

    def _use(self, usage: Usage) -> None:
        """Take in the attributes that are used now; those that are known keep their order."""
        names = by_terms(usage)
        new = [name for name in names if name not in self.order]
        kept = [name for name in self.order if name in names]
        before, cover = self.order, self._cover_of(usage, names)
        same_cover = set(cover.attributes) == set(self.cover.attributes)
        self.cover = cover
        self.order = tuple(sorted([*kept, *new], key=lambda name: name not in cover.attributes))
        if new or not same_cover:
            self._begin()
        elif self.order != before:
            self.then, self._period = (), OrderFacts()
            if self.prefix is not None:
                fixed = sum(name in names for name in before[: self.prefix])
                self.prefix = self._next_choice(fixed)

    def _cover_of(self, usage: Usage, names: Sequence[str]) -> Cover:
        if self.rules.method == "sas":
            return Cover()
        found = minimum_cover(usage)
        old = tuple(name for name in self.cover.attributes if name in names)
        covers = all(not signature.isdisjoint(old) for signature in usage if signature)
        keep = covers and len(old) <= len(found.attributes)
        return Cover(old, found.exact) if keep else found

    def _begin(self) -> None:
        """Decide every position anew."""
        if self.prefix is None:
            self.before = self.order
        self.prefix = self._next_choice(0)
        self.then, self._period = (), OrderFacts()

    def _next_choice(self, place: int) -> int | None:
        """The first position from here on that more than one attribute could take."""
        if self.rules.method == "macs":
            return None
        forced = (len(self.cover.attributes) - 1, len(self.order) - 1)
        return next((p for p in range(place, len(self.order)) if p not in forced), None)

    def _judge(self, period: OrderFacts) -> None:
        self.now = tuple(bits / period.bits for bits in period.after)
        if _moved(self.then, self.now, period.terms) >= self.tolerance:
            self.tolerance = min(2 * self.tolerance, max(_ALARMING, self.rules.change))
            self._begin()
        elif self.prefix is not None:
            self._fix(self.prefix, period)
        else:
            self.then += self.now[len(self.then) :]
            self.tolerance = max(self.tolerance * _CALMING, self.rules.change)

    def _fix(self, place: int, period: OrderFacts) -> None:
        """Give a position to the attribute that leaves fewest terms."""
        covered, left = len(self.cover.attributes), period.candidates
        eligible = self.order[place : covered if place < covered else None]
        best = min(eligible, key=left.__getitem__)
        if left[best] > _CLEARLY * left[eligible[0]]:
            best = eligible[0]
        rest = (name for name in self.order[place:] if name != best)
        self.order = (*self.order[:place], best, *rest)
        self.then += (*self.now[len(self.then) : place], left[best] / period.bits)
        self.prefix = self._next_choice(place + 1)
        if self.prefix is None:
            self.reorders += 1
            if self.order != self.before:
                self.tolerance = self.rules.change

    def metrics(self) -> dict[str, Any]:
        """Figures for people; selectivity: the paper's s; reorders: the first order included."""
        tuples, visits = self.recent
        settled = 0 < len(self.then) == len(self.order)
        return {
            "order": list(self.order),
            "cover": list(self.cover.attributes),
            "cover_exact": self.cover.exact,
            "selectivity": self.now[-1] if self.now else None,
            "selectivity_then": self.then[-1] if settled else None,
            "visits_per_tuple": visits / tuples if tuples else None,
            "reorders": self.reorders,
            "reordering": self.prefix is not None,
        }

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as plain data."""
        return {
            "method": self.rules.method,
            "cover": [list(self.cover.attributes), self.cover.exact],
            "period": plain(self._period),
            **{name: getattr(self, name) for name in _NUMBERS},
            **{name: list(getattr(self, name)) for name in _SEQUENCES},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken; another method begins anew."""
        if state["method"] != self.rules.method:
            return
        for name in _NUMBERS:
            setattr(self, name, state[name])
        for name in _SEQUENCES:
            setattr(self, name, tuple(state[name]))
        attributes, exact = state["cover"]
        self.cover = Cover(tuple(attributes), exact)
        self._period = order_facts_from(state["period"])


_NUMBERS = ("prefix", "tolerance", "reorders")
_SEQUENCES = ("order", "before", "then", "now", "recent")


def _moved(then: Sequence[float], now: Sequence[float], terms: float) -> float:
    """By how much the shares of terms have changed: a mean over the positions of `then`.

    >>> _moved((0.5, 0.4), (0.25, 0.5, 0.1), 100)
    0.375
    """
    left = [(a * terms, b * terms) for a, b in zip(then, now, strict=False)]
    changes = sum(abs(b - a) / max(a, 1) for a, b in left)
    return changes / max(sum(min(a, 1) for a, _ in left), 1)
