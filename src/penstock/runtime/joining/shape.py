"""Which columns the tuples of an input have on their way to the operator and in its state."""

from __future__ import annotations

import pyarrow as pa

from penstock.kernels.join_bucket import SLOTS, TIME, key_name
from penstock.plan.catalog import Stream
from penstock.plan.specs import Composition, joined_name
from penstock.schema import Field, Schema, arrow_type


def chunk_columns(composition: Composition, stream: Stream) -> dict[str, str]:
    """Where each column that an input ships is in its chunks: a key is not kept twice."""
    types = {f.name: f.type for f in stream.schema.fields}
    keys = {
        name: key_name(n)
        for n, (name, type_) in enumerate(zip(composition.keys, composition.key_types, strict=True))
        if types.get(name) == type_
    }
    return {name: keys.get(name, name) for name in composition.shipped}


def chunk_schema(composition: Composition, stream: Stream) -> pa.Schema:
    types = {f.name: f.type for f in stream.schema.fields}
    fields = [(key_name(n), arrow_type(t)) for n, t in enumerate(composition.key_types)]
    fields += [(TIME, pa.int64()), (SLOTS, pa.list_(pa.int32()))]
    own = chunk_columns(composition, stream)
    fields += [(name, arrow_type(types[name])) for name, place in own.items() if name == place]
    return pa.schema(fields)


def joined_schema(inputs: tuple[Composition, ...], streams: list[Stream]) -> Schema:
    """The columns of combinations."""
    fields = []
    for number, (composition, stream) in enumerate(zip(inputs, streams, strict=True)):
        types = {f.name: f.type for f in stream.schema.fields}
        fields += [Field(joined_name(number, n), types[n]) for n in composition.shipped]
    return Schema(tuple(fields))
