"""Streams and regions by name, as far as planning needs them: columns, event time, options."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import PenstockError, QueryError, Span
from penstock.schema import Field, Schema

OptionValue = str | int | float | bool

# Streams that every stream brings along: late tuples and records that could not be read.
COMPANIONS = ("late", "bad")
TIME_TYPES = ("timestamp", "timestamp_ntz")
GEOMETRY = "geom"  # the column of every set of regions that holds the areas, as WKB


@dataclass(frozen=True, slots=True)
class Stream:
    """A named, typed stream; `source` says where tuples come from (`dataframe`: handed over)."""

    name: str
    schema: Schema
    source: str
    event_time: str | None = None
    arrival_time: str | None = None
    options: tuple[tuple[str, OptionValue], ...] = ()  # of the source
    estimator: str | None = None  # how its disorder is judged; None: by the query's drop ratio
    slack_us: int | None = None  # of estimator fixed: this or slack_tuples
    slack_tuples: int | None = None
    idle_us: int | None = None  # without a tuple for so long, the engine's clock stands for them
    trust_us: int = 86_400_000_000  # times further than this from the stream's clock move nothing

    @property
    def punctuated(self) -> bool:
        """Whether its tuples come with punctuations: of the ring that derives them."""
        return self.source == "derived" and "behind_us" in dict(self.options)


@dataclass(frozen=True, slots=True)
class RegionSet:
    """Named areas with attributes; `digest` stands for what they are, `path` is where from.

    reach: their largest coordinate.
    """

    name: str
    schema: Schema  # attributes, then the geometry
    count: int
    planar: bool  # coordinates are not degrees
    digest: str
    path: str
    options: tuple[tuple[str, OptionValue], ...] = ()
    reach: float = 180.0


@dataclass(frozen=True, slots=True)
class Catalog:
    """An immutable set of streams, and one of regions; look-up ignores case."""

    streams: Mapping[str, Stream]
    regions: Mapping[str, RegionSet] = field(default_factory=dict)

    @classmethod
    def of(cls, streams: Iterable[Stream], regions: Iterable[RegionSet] = ()) -> Catalog:
        return cls({s.name.lower(): s for s in streams}, {r.name.lower(): r for r in regions})

    def get(self, name: str) -> Stream | None:
        if (stream := self.streams.get(name.lower())) is not None:
            return stream
        base, _, kind = name.rpartition(".")
        if kind.lower() in COMPANIONS and (owner := self.streams.get(base.lower())):
            return companion(owner, kind.lower())
        return None

    def require(self, name: str, span: Span | None = None) -> Stream:
        """The stream, or an error that suggests what may have been meant."""
        if (stream := self.get(name)) is not None:
            return stream
        if (regions := self.regions.get(name.lower())) is not None:
            hint = f"join a stream with them: FROM stream s, {regions.name} r WHERE {JOINED_BY}"
            raise QueryError(f"{regions.name} are regions, not a stream", hint, span)
        known = [s.name for s in self.streams.values()] + [r.name for r in self.regions.values()]
        hint = did_you_mean(name, known, "streams and regions" if self.regions else "streams")
        raise QueryError(f"stream {name} not found", hint, span)

    def require_regions(self, name: str, span: Span | None = None) -> RegionSet:
        """The regions, or an error that suggests what may have been meant."""
        if (regions := self.regions.get(name.lower())) is not None:
            return regions
        known = [r.name for r in self.regions.values()]
        raise QueryError(f"regions {name} not found", did_you_mean(name, known, "regions"), span)

    def refuse_taken(self, name: str, span: Span | None = None) -> None:
        """Streams and regions have names of their own: both stand in FROM."""
        for what, known in (("stream", self.streams), ("regions", self.regions)):
            if name.lower() in known:
                hint = f"DROP {what.upper()} {name} first, or choose another name"
                verb = "exists" if what == "stream" else "exist"
                raise QueryError(f"{what} {name} {verb} already", hint, span)


JOINED_BY = f"ST_Within(ST_Point(s.x, s.y), r.{GEOMETRY})"


def companion(owner: Stream, kind: str) -> Stream:
    """The stream `<owner>.late` or `<owner>.bad`."""
    if kind == "late":
        extra = (
            Field("_lateness_ms", "bigint"),
            Field("_query", "string"),
            Field("_punctuation", "timestamp"),
            Field("_missed", "bigint"),
            Field("_first_missed", "timestamp"),
            Field("_last_missed", "timestamp"),
            Field("_lost", "boolean"),
        )
        schema = Schema((*owner.schema.fields, *extra))
        return Stream(f"{owner.name}.late", schema, "companion", owner.event_time)
    fields = (
        Field("file", "string"),
        Field("position", "bigint"),
        Field("record", "string"),
        Field("reason", "string"),
    )
    return Stream(f"{owner.name}.bad", Schema(fields), "companion")


def check_stream(stream: Stream) -> None:
    """Refuse names that cannot be used, and time columns that do not exist or are no timestamps."""
    check_name(stream.name, "a stream")
    check_column_names(stream.schema)
    for role, column in (("event_time", stream.event_time), ("arrival_time", stream.arrival_time)):
        if column is None:
            continue
        found = stream.schema.field(column)
        if found is None:
            hint = did_you_mean(column, stream.schema.names, "columns")
            raise PenstockError(f"{role} column {column} is not a column of {stream.name}", hint)
        if found.type not in TIME_TYPES:
            raise PenstockError(
                f"{role} column {column} is of type {found.type}", "declare it TIMESTAMP"
            )


def check_name(name: str, what: str) -> None:
    if re.fullmatch(r"[\w-]+", name) is None:
        hint = "use letters, digits, _ and -"
        raise PenstockError(f"{name!r} cannot be the name of {what}", hint)


def check_column_names(schema: Schema) -> None:
    for name in schema.names:
        if name.startswith("__"):
            raise PenstockError(f"column {name} begins with __", "such names are penstock's own")


def did_you_mean(name: str, known: Iterable[str], what: str) -> str:
    """A suggestion, or the list of what there is."""
    names = sorted(known)
    folded = {n.lower(): n for n in names}
    if close := difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6):
        return f"did you mean {folded[close[0]]}?"
    return f"known {what}: {', '.join(names)}" if names else f"there are no {what} yet"
