"""Orders of attributes and what they cost, counted as the paper does: look-ups for each tuple.

A tuple is looked up attribute after attribute until no query is left. With at most 64 queries and
small domains, one word for each attribute and value says which queries are left, so thousands of
orders are counted in the time that matching takes.

macs, sas, macssas   `control.ordering`, fed with what a sample of each epoch shows
ticket               a lottery for each look-up (Eddy): an attribute wins tickets by the tuples
                     that end at it
ticket, by queries   the same, by the queries that end at it (the grouped filters of CACQ)
delayed              every attribute of every tuple
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.bench.select.queries import Predicate, Query
from penstock.control.ordering import OrderFacts, Ordering, OrderRules
from penstock.kernels.jit import INT, INT_ROWS, INTS, WORD_ROWS, Ints, Words, inner, kernel

SAMPLED = 8  # one tuple of so many is measured for the order
FORGET = 10_000  # tuples after which half of the tickets are gone


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as its queries see it."""

    names: tuple[str, ...]
    values: Ints  # a row for each attribute
    left: Words  # for each attribute and value: the queries that it satisfies or that do not use it
    queries: int
    usage: Mapping[frozenset[str], int]

    @property
    def tuples(self) -> int:
        return self.values.shape[1]

    def sample(self, tuples: int) -> Stream:
        """About so many of the tuples, evenly spread."""
        every = max(1, self.tuples // tuples)
        return replace(self, values=np.ascontiguousarray(self.values[:, ::every]))

    def batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(v) for v in self.values], list(self.names))


def see_stream(names: Sequence[str], values: Ints, queries: Sequence[Query]) -> Stream:
    """The stream without the attributes that no query uses."""
    usage = Counter(frozenset(p.attribute for p in query) for query in queries)
    used = [place for place, name in enumerate(names) if any(name in those for those in usage)]
    kept = tuple(names[place] for place in used)
    domain = np.arange(int(values.max()) + 1)
    left = np.array([_queries_left(name, domain, queries) for name in kept], np.uint64)
    return Stream(kept, np.ascontiguousarray(values[used]), left, len(queries), usage)


def _queries_left(name: str, domain: Ints, queries: Sequence[Query]) -> Words:
    words = np.zeros(domain.size, np.uint64)
    for number, query in enumerate(queries):
        holds = np.ones(domain.size, np.bool_)
        for predicate in query:
            if predicate.attribute == name:
                holds &= admits(predicate, domain)
        words |= holds.astype(np.uint64) << np.uint64(number)
    return words


def admits(predicate: Predicate, values: Ints) -> np.ndarray:
    above = True if predicate.low is None else predicate.low <= values
    below = True if predicate.high is None else values <= predicate.high
    return np.logical_and(above, below)


def count_visits(stream: Stream, order: Sequence[str]) -> int:
    return _visits(stream.left, stream.values, _places(stream, order), 0, stream.tuples)


def best_and_worst(
    sample: Stream, orders: int, seed: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of so many random orders those with fewest and with most visits."""
    random = np.random.default_rng(seed)
    drawn = random.permuted(np.tile(np.arange(len(sample.names)), (orders, 1)), axis=1)
    visits = _visits_of_orders(sample.left, sample.values, drawn)
    best, worst = (
        tuple(sample.names[place] for place in drawn[which].tolist())
        for which in (visits.argmin(), visits.argmax())
    )
    return best, worst


def know_usage(stream: Stream, rules: OrderRules) -> Ordering:
    """As at registration: nothing is measured yet."""
    ordering = Ordering(rules)
    ordering.observe(OrderFacts(usage=stream.usage))
    return ordering


def follow(stream: Stream, ordering: Ordering, epoch: int) -> Ints:
    """Visits of each epoch of so many tuples, in the order that was decided before it."""
    epochs = [
        (first, min(first + epoch, stream.tuples)) for first in range(0, stream.tuples, epoch)
    ]
    visits = np.empty(len(epochs), np.int64)
    for number, (first, last) in enumerate(epochs):
        order, prefix = ordering.order, ordering.prefix
        places = _places(stream, order)
        visits[number] = _visits(stream.left, stream.values, places, first, last)
        after, candidates = _measure(
            stream.left, stream.values, places, prefix or 0, first, last, SAMPLED
        )
        facts = OrderFacts(
            rows=len(range(first, last, SAMPLED)),
            terms=stream.queries,
            order=order,
            after=tuple(after.tolist()),
            prefix=prefix,
            candidates=dict(zip(order, candidates.tolist(), strict=True)),
            tuples=last - first,
            visits=int(visits[number]),
        )
        ordering.observe(facts)
    return visits


def route_by_tickets(stream: Stream, by_queries: bool, seed: int) -> int:
    """Visits in all."""
    return _lottery(stream.left, stream.values, stream.queries, by_queries, FORGET, seed)


def _places(stream: Stream, order: Sequence[str]) -> Ints:
    return np.array([stream.names.index(name) for name in order], np.int64)


@inner
def _count_bits(word: np.uint64) -> int:
    count = 0
    while word != 0:
        word &= word - np.uint64(1)
        count += 1
    return count


@kernel(WORD_ROWS, INT_ROWS, INTS, INT, INT)
def _visits(left: Words, values: Ints, order: Ints, first: int, last: int) -> int:
    visits = 0
    for i in range(first, last):
        word = ~np.uint64(0)
        for a in order:
            visits += 1
            word &= left[a, values[a, i]]
            if word == 0:
                break
    return visits


@kernel(WORD_ROWS, INT_ROWS, INT_ROWS)
def _visits_of_orders(left: Words, values: Ints, orders: Ints) -> Ints:
    visits = np.zeros(orders.shape[0], np.int64)
    for i in range(values.shape[1]):
        for o in range(orders.shape[0]):
            word = ~np.uint64(0)
            for place in range(orders.shape[1]):
                visits[o] += 1
                a = orders[o, place]
                word &= left[a, values[a, i]]
                if word == 0:
                    break
    return visits


@kernel(WORD_ROWS, INT_ROWS, INTS, INT, INT, INT, INT)
def _measure(
    left: Words, values: Ints, order: Ints, prefix: int, first: int, last: int, every: int
) -> tuple[Ints, Ints]:
    """Queries left after each place of the order, and after `prefix` places and this one."""
    after = np.zeros(order.size, np.int64)
    candidates = np.zeros(order.size, np.int64)
    for i in range(first, last, every):
        word = ~np.uint64(0)
        for place in range(order.size):
            a = order[place]
            if place == prefix:
                for other in range(prefix, order.size):
                    b = order[other]
                    candidates[other] += _count_bits(word & left[b, values[b, i]])
            word &= left[a, values[a, i]]
            if word == 0:
                break
            after[place] += _count_bits(word)
    return after, candidates


@kernel(WORD_ROWS, INT_ROWS, INT, INT, INT, INT)
def _lottery(
    left: Words, values: Ints, queries: int, by_queries: int, forget: int, seed: int
) -> int:
    np.random.seed(seed)
    tickets = np.ones(values.shape[0], np.int64)
    open_ = np.empty(values.shape[0], np.int64)
    visits = 0
    for i in range(values.shape[1]):
        if i % forget == 0:
            tickets = np.maximum(1, tickets // 2)
        count = values.shape[0]
        for a in range(count):
            open_[a] = a
        total = tickets.sum()
        word = ~np.uint64(0) >> np.uint64(64 - queries)
        while count > 0 and word != 0:
            drawn = np.random.randint(0, total)
            place = 0
            while drawn >= tickets[open_[place]]:
                drawn -= tickets[open_[place]]
                place += 1
            a = open_[place]
            open_[place] = open_[count - 1]
            count -= 1
            total -= tickets[a]
            visits += 1
            still = word & left[a, values[a, i]]
            if by_queries:
                tickets[a] += _count_bits(word) - _count_bits(still)
            elif still == 0:
                tickets[a] += 1
            word = still
    return visits
