"""Specs to JSON text and back: what the registry stores and what workers are told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from penstock.plan.catalog import RegionSet, Stream
from penstock.plan.specs import (
    Attribute,
    Composition,
    FenceTest,
    Following,
    Interval,
    Join,
    JoinStep,
    Output,
    Partial,
    RegionJoin,
    Shown,
    SlotSpec,
    SpatialValue,
    Term,
    ValueSet,
    WindowSpec,
)
from penstock.schema import Field, Schema


def dumps(value: Any) -> str:
    """Canonical text: equal values give equal text, so it serves as a key too."""
    return canonical(asdict(value))


def canonical(raw: Any) -> str:
    return json.dumps(raw, sort_keys=True, separators=(",", ":"))


def comparison_text(name: str, values: ValueSet) -> str:
    """What the text of a slot contains if and only if it compares the attribute with this set."""
    return canonical([name, asdict(values)])


def attribute_text(name: str) -> str:
    """What the text of a slot contains if and only if it compares the attribute at all."""
    return f"[{canonical(name)},{{"


def fence_text(test: FenceTest, values: ValueSet) -> str:
    """What the text of a slot contains if and only if it asks this of this fence."""
    return canonical([asdict(test), asdict(values)])


def point_text(test: FenceTest) -> str:
    """What the text of a slot contains if and only if it looks for the test's point in fences."""
    return f'"x":{canonical(test.x)},"y":{canonical(test.y)}}}'


def slot_from(text: str) -> SlotSpec:
    return _slot(json.loads(text))


def _slot(raw: Any) -> SlotSpec:
    window = raw["window"]
    return SlotSpec(
        slot=raw["slot"],
        terms=tuple(_term(t) for t in raw["terms"]),
        window=None if window is None else WindowSpec(**window),
        from_us=raw["from_us"],
        derived=tuple(Attribute(**a) for a in raw.get("derived", ())),
        inputs=tuple(_slot(i) for i in raw.get("inputs", ())),
        shows=tuple(raw.get("shows", ())),
        constants=tuple(raw.get("constants", ())),
        roles=tuple((role, column) for role, column in raw.get("roles", ())),
    )


def _term(raw: Any) -> Term:
    sets = tuple((name, _value_set(values)) for name, values in raw["sets"])
    fences = raw.get("fences", ())
    return Term(sets, tuple((FenceTest(**test), _value_set(values)) for test, values in fences))


def _value_set(raw: Any) -> ValueSet:
    return ValueSet(tuple(Interval(**i) for i in raw["intervals"]), raw["null"])


def dump_columns(columns: Iterable[Shown]) -> str:
    listed = [[c.name, c.place, *([] if c.type is None else [c.type])] for c in columns]
    return canonical(listed)


@lru_cache(maxsize=1024)  # thousands of queries show the same
def columns_from(text: str) -> tuple[Shown, ...] | None:
    """A query's result columns; None where the ring's own are meant."""
    return tuple(Shown(*column) for column in json.loads(text)) if text else None


@lru_cache(maxsize=1024)  # looked through at every registration
def composition_from(text: str) -> Composition:
    return _composition(json.loads(text))


def _composition(raw: Any) -> Composition:
    join, regions, following = (raw.get(name) for name in ("join", "regions", "following"))
    return Composition(
        **{
            **raw,
            "derived": tuple(Attribute(**a) for a in raw["derived"]),
            "shipped": tuple(raw["shipped"]),
            "outputs": tuple(Output(**o) for o in raw["outputs"]),
            "keys": tuple(raw["keys"]),
            "key_types": tuple(raw["key_types"]),
            "partials": tuple(Partial(**p) for p in raw["partials"]),
            "partial_types": tuple(raw["partial_types"]),
            "aggregates": tuple(Output(**a) for a in raw["aggregates"]),
            "constants": tuple(raw.get("constants", ())),
            "regions": None if regions is None else _region_join(regions),
            "spatial": tuple(_spatial(value) for value in raw.get("spatial", ())),
            "following": None if following is None else _following(following),
            "join": None if join is None else _join(join),
        }
    )


def _region_join(raw: Any) -> RegionJoin:
    return RegionJoin(**{**raw, "columns": _columns(raw["columns"])})


def _following(raw: Any) -> Following:
    regions = _region_join(raw["regions"])
    return Following(**{**raw, "regions": regions, "columns": _columns(raw["columns"])})


def _columns(raw: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name, type_) for name, type_ in raw)


def _spatial(raw: Any) -> SpatialValue:
    return SpatialValue(**{**raw, "columns": tuple(raw["columns"])})


def _join(raw: Any) -> Join:
    inputs = tuple(_composition(i) for i in raw["inputs"])
    steps = tuple(
        JoinStep(s["input"], tuple(s["equalities"]), tuple(s["conditions"]))
        for s in raw.get("steps", ())
    )
    return Join(inputs, raw["residual"], tuple(raw["ranges_us"]), steps)


@lru_cache(maxsize=1024)  # as every catalog is made of them
def stream_from(text: str) -> Stream:
    return Stream(**_defined(json.loads(text)))


@lru_cache(maxsize=1024)
def region_set_from(text: str) -> RegionSet:
    return RegionSet(**_defined(json.loads(text)))


def _defined(raw: Any) -> Any:
    fields = tuple(Field(**f) for f in raw["schema"]["fields"])
    options = tuple((key, value) for key, value in raw["options"])
    return {**raw, "schema": Schema(fields), "options": options}
