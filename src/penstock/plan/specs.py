"""The contract between plan and runtime: plain frozen data, all of it JSON.

A ring is built from a `Composition` and the derived attributes of its slots; a query of that
composition is a `SlotSpec`, data that the ring's first stage looks up for every micro-batch. Only a
slot with a derived attribute that no other has yet changes the Spark plan.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal as OneOf

# A constant in the value domain of its attribute's type:
#   integers, dates (days), timestamps (microseconds), decimals (unscaled, at the column's scale):
# int   float and double: float; string: str; boolean: 0 or 1
Constant = int | float | str


@dataclass(frozen=True, slots=True)
class Interval:
    """Values between two constants; None is unbounded. NaN is above every number, as in Spark."""

    low: Constant | None
    low_closed: bool
    high: Constant | None
    high_closed: bool


@dataclass(frozen=True, slots=True)
class ValueSet:
    """Values of an attribute that satisfy: sorted disjoint intervals, and NULL or not."""

    intervals: tuple[Interval, ...]
    null: bool


FENCE_PREFIX = "__f_"  # of the names of fences as attributes
FenceRelation = OneOf["within", "intersects", "near", "sphere"]


@dataclass(frozen=True, slots=True)
class FenceTest:
    """Whether the point (x, y) lies in an area: 1, 0, or NULL where it is no place.

    within: in its interior; intersects: on its boundary too; near: at most `distance` away, sphere:
    in metres.
    """

    x: str
    y: str
    relation: FenceRelation
    distance: float
    geometry: str  # WKB in hexadecimal digits

    @property
    def name(self) -> str:
        """What it is called as an attribute: the same for equal tests."""
        parts = (self.x, self.y, self.relation, self.distance, self.geometry)
        return f"{FENCE_PREFIX}{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Term:
    """A conjunction: every named attribute's value lies in its set, and so does every test's.

    Without either it is always true.
    """

    sets: tuple[tuple[str, ValueSet], ...]
    fences: tuple[tuple[FenceTest, ValueSet], ...] = ()


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows [end - range, end) whose ends are the multiples of slide since the epoch."""

    range_us: int
    slide_us: int


@dataclass(frozen=True, slots=True)
class Attribute:
    """A derived column of the stage's input, computed natively by Spark."""

    name: str
    type: str
    sql: str


@dataclass(frozen=True, slots=True)
class SlotSpec:
    """One query's place in a ring: a tuple belongs to it if any term holds.

    `derived` are attributes that its terms name and the composition does not know; they have a
    value for every row, so one slot's attribute never harms another slot. In a join, `inputs` has
    for each input the terms of its tuples and as window their RANGE (None: unbounded). `shows`:
    where queries select whichever columns they like, the places of these among the ring's.
    `constants`: what its HAVING compares with, in the order of the composition's `constants`.
    `roles`: where a ring speaks of these instead of columns, the column of each that it has.
    """

    slot: int
    terms: tuple[Term, ...]
    window: WindowSpec | None = None
    from_us: int | None = None  # windows that start before this are not reported
    derived: tuple[Attribute, ...] = ()
    inputs: tuple[SlotSpec, ...] = ()
    shows: tuple[int, ...] = ()
    constants: tuple[Constant, ...] = ()
    roles: tuple[tuple[str, str], ...] = ()


# of a 64-bit sum: 32 bits, whose totals fit 64; "asked": the high ones, for who asks for the sum
# itself, which may be too large
Half = OneOf["high", "asked", "low"] | None
PartialKind = OneOf["count_star", "count", "sum", "min", "max", "moments"]


@dataclass(frozen=True, slots=True)
class Partial:
    """What the Arrow stage keeps per (slot, group, window): one or more columns named `name…`.

    count_star, count: bigint. sum: bigint, double or decimal. min, max: the argument's type.
    moments: struct<n: bigint, mean: double, m2: double>.
    """

    kind: PartialKind
    argument: str | None  # attribute name
    name: str  # column name in the stage's output
    half: Half = None


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A result column of one query: its name, and its place among the ring's own columns.

    type: what it is shown as; None: as the ring has it.
    """

    name: str
    place: int
    type: str | None = None


@dataclass(frozen=True, slots=True)
class JoinStep:
    """One more input of a chain: conditions on combinations of it and those of earlier steps.

    Each of `equalities` compares it with earlier ones; the first step has no conditions.
    """

    input: int
    equalities: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """Combinations of one tuple of each input, close enough in time.

    `inputs` are compositions of kind "input": they ship the columns that results need, and `keys`
    of equal number and `key_types`; combinations have equal keys. Columns of combinations are named
    `joined_name(input, column)`; `residual` is a condition on them.
    Without a common key Spark joins by itself, in a chain: `steps` and `ranges_us` (by input; None:
    unbounded) are then part of the plan, and have all of the condition.
    """

    inputs: tuple[Composition, ...]
    residual: str | None = None
    ranges_us: tuple[int | None, ...] = ()
    steps: tuple[JoinStep, ...] = ()

    @property
    def conditions(self) -> tuple[str, ...]:
        """All that is tested on combinations."""
        own = () if self.residual is None else (self.residual,)
        return own + tuple(c for step in self.steps for c in step.equalities + step.conditions)


def joined_name(input_: int, column: str) -> str:
    """What an input's column is called in a combination."""
    return f"{input_}.{column}"


def input_of(name: str) -> int:
    """The input that a column of combinations comes from."""
    return int(name.partition(".")[0])


@dataclass(frozen=True, slots=True)
class RegionJoin:
    """A tuple for each region that the point (x, y) lies in, with the region's attributes."""

    regions: str
    digest: str  # of what they are: names may be used again
    x: str
    y: str
    relation: FenceRelation
    distance: float
    planar: bool  # coordinates are not degrees
    columns: tuple[tuple[str, str], ...]  # names, as `region_column` makes them, and types


@dataclass(frozen=True, slots=True)
class Following:
    """What happens between objects, which `by` names, and regions.

    columns: names and types of what is told of an event: the object, `event`, `time`, `stayed_ms`
    and the attributes of its region. dwell_us: a stay of this length is an event.
    """

    by: str
    regions: RegionJoin
    columns: tuple[tuple[str, str], ...]
    dwell_us: int | None = None


@dataclass(frozen=True, slots=True)
class SpatialValue:
    """A column that the stage computes: a spatial function of others and of constants."""

    name: str
    type: str
    call: str  # JSON, see `kernels/spatial_values.py`
    columns: tuple[str, ...]  # that it reads


def region_column(regions: str, attribute: str) -> str:
    """What an attribute of a region is called in a tuple."""
    return f"{regions}:{attribute}"  # a dot would be taken for that of a struct


@dataclass(frozen=True, slots=True)
class Composition:
    """What a ring computes, without its queries' constants: equal compositions share a ring.

    Which stream columns the predicates name is data of the slots, not part of the composition, and
    so are derived attributes that cannot fail; `derived` are the others, and those of keys and
    aggregates. `computed`: the slots have derived attributes and nothing else keeps the stage out
    of the source's reader, or keeps columns of places out of the stage; such queries leave the
    faster ring to those without. `fenced`: the slots have geofences, or tuples columns of places,
    which Spark's own code cannot evaluate in place of the stage.
    `regions`: what each tuple is joined with before anything else looks at it; `spatial`: columns
    that it gets then. `following`: events take the place of tuples, for the slots too.
    A SELECT ring ships columns and projects `outputs` over them. With `any_columns` these leave it
    as they came: all of the stream's are its outputs, and it ships what its slots show.
    A WINDOW ring either pre-aggregates (`partials`; `keys` are attribute names, seen as __k0…;
    `outputs` and `having` speak of __k and of the `aggregates` __a0…), or ships rows once per
    window and leaves all the rest to Spark (`keys`, `outputs` and `having` are SQL over the shipped
    columns). With `any_columns` it has all its keys and the usual aggregates of its columns as
    outputs, and keeps the partials of those that its slots show. With `in_roles`, too, columns of
    `keys` and `partials` are roles, which its slots give to columns. `having` may also speak of
    constants __h0…, of the types `constants`, whose values are data. `per` is the stream column
    that tells the sources of tuples apart: the drop ratio is promised to each. If it is itself a
    key, each source's windows close on their own (`apart`; it is then one of `keys`, or shipped);
    else windows mix sources and wait for the slowest.
    With a `join`, combinations take the place of tuples; `stream` then lists the inputs' streams.
    """

    kind: OneOf["select", "window", "input", "events"]
    stream: str
    derived: tuple[Attribute, ...]
    shipped: tuple[str, ...]
    outputs: tuple[Output, ...]
    event_time: str | None = None
    keys: tuple[str, ...] = ()
    key_types: tuple[str, ...] = ()
    partials: tuple[Partial, ...] = ()
    partial_types: tuple[str, ...] = ()
    aggregates: tuple[Output, ...] = ()
    having: str | None = None
    constants: tuple[str, ...] = ()
    preaggregated: bool = False
    drop_ratio: float | None = None
    per: str | None = None
    apart: bool = False
    computed: bool = False
    fenced: bool = False
    any_columns: bool = False
    in_roles: bool = False
    regions: RegionJoin | None = None
    spatial: tuple[SpatialValue, ...] = ()
    following: Following | None = None
    join: Join | None = None

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams whose tuples come in, by input."""
        return (self.stream,) if self.join is None else tuple(i.stream for i in self.join.inputs)

    @property
    def region_join(self) -> RegionJoin | None:
        """The regions in which tuples are looked up."""
        return self.regions if self.following is None else self.following.regions

    @property
    def placed(self) -> tuple[tuple[str, str], ...]:
        """Names and types of the columns that tuples get from where they are."""
        joined = () if self.regions is None else self.regions.columns
        return joined + tuple((value.name, value.type) for value in self.spatial)

    @property
    def placed_by(self) -> set[str]:
        """The columns that tell where tuples are."""
        points = set() if self.regions is None else {self.regions.x, self.regions.y}
        return points.union(*(value.columns for value in self.spatial))

    @property
    def placed_first(self) -> bool:
        """Whether Spark derives attributes, maybe of these columns, before the stage."""
        return bool(self.placed) and (self.computed or bool(self.derived))
