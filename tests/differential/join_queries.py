"""Joins in penstock's language and as DuckDB has to answer them; random ones, too."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pyarrow as pa

COLUMNS = "id INT, name STRING, v BIGINT, ts TIMESTAMP"
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("v", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
SECOND = 1_000_000
_KEYS = (("id",), ("name",), ("id", "name"))
_OWN = ("{}.v > 30", "{}.v < 400", "{}.id IN (1, 2, 3, 5)", "{}.name <> 'a'", "{}.v IS NOT NULL")
_BETWEEN = ("{0}.v < {1}.v", "{0}.v <> {1}.v", "{0}.ts <= {1}.ts", "{0}.v + {1}.v > 100")
_ITEMS = ("{}.v", "{}.id", "{}.name", "{}.v + 1", "upper({}.name)")


@dataclass(frozen=True)
class Case:
    """A join: what is selected, streams with aliases and ranges in seconds, the condition."""

    items: str
    inputs: tuple[tuple[str, str, int | None], ...]
    where: str

    @property
    def text(self) -> str:
        streams = [
            f"{stream} {alias}" + ("" if seconds is None else f" [RANGE {seconds} SECONDS]")
            for stream, alias, seconds in self.inputs
        ]
        return f"SELECT {self.items} FROM {', '.join(streams)} WHERE {self.where}"

    @property
    def expected(self) -> str:
        latest = f"greatest({', '.join(f'{alias}.ts' for _, alias, _ in self.inputs)})"
        near = [
            f"epoch_us({latest}) - epoch_us({alias}.ts) <= {seconds * SECOND}"
            for _, alias, seconds in self.inputs
            if seconds is not None
        ]
        timed = [f"{alias}.ts IS NOT NULL" for _, alias, _ in self.inputs]
        streams = ", ".join(f"{stream} {alias}" for stream, alias, _ in self.inputs)
        return (
            f"SELECT {self.items} FROM {streams} WHERE {' AND '.join([self.where, *timed, *near])}"
        )


def random_cases(rng: random.Random, streams: str, most_seconds: int) -> list[Case]:
    """A join and another one of its ring, with constants and RANGEs of its own."""
    inputs = [(rng.choice(streams), alias) for alias in "xyz"[: rng.choice((2, 2, 3))]]
    aliases = [alias for _, alias in inputs]
    keys = rng.choice(_KEYS)
    equal = [f"x.{key} = {alias}.{key}" for alias in aliases[1:] for key in keys]
    equal += [rng.choice(_BETWEEN).format(*rng.sample(aliases, 2))] * rng.randint(0, 1)
    chosen = [rng.choice(_ITEMS).format(rng.choice(aliases)) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.2:
        chosen = [f"{rng.choice(aliases)}.{key}" for key in keys]  # nothing but keys
    items = ", ".join(f"{item} AS c{number}" for number, item in enumerate(chosen))
    found = []
    for _ in range(2):
        own = [rng.choice(_OWN).format(alias) for alias in aliases if rng.random() < 0.5]
        conditions = [*equal, *own]
        rng.shuffle(conditions)
        ranges = [rng.randint(0, most_seconds) for _ in inputs]
        timed = tuple((*given, range_s) for given, range_s in zip(inputs, ranges, strict=True))
        found.append(Case(items, timed, " AND ".join(conditions)))
    return found


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())
