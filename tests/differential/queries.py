"""Random queries, each in penstock's language and as DuckDB has to answer it over the whole table.

Texts come in pairs, since the dialects differ. A *shape* is what the queries of one ring share
(select list, grouping, derived expressions); many queries of a shape differ in constants and
windows, so that one ring runs them all.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.tables import TEXTS, Table


@dataclass(frozen=True, slots=True)
class Pair:
    """One expression in both dialects."""

    ours: str
    duck: str


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    expected: str  # DuckDB's SQL over the view `t`
    keys: int  # how many of the first columns tell rows apart; 0: compare as a bag


def same(text: str) -> Pair:
    return Pair(text, text)


def _glue(template: str, *parts: Pair) -> Pair:
    return Pair(
        template.format(*(p.ours for p in parts)), template.format(*(p.duck for p in parts))
    )


def _text(value: str) -> Pair:
    quoted = value.replace("'", "''")
    return Pair("'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'", f"'{quoted}'")


def _number(rng: random.Random) -> Pair:
    return same(rng.choice(("0", "1", "-1", "2.5", "-0.5", "7", "100", "4.0", "-2147483648")))


def _literal(rng: random.Random, column: str, table: Table) -> Pair:
    match column:
        case "s":
            return _text(rng.choice(TEXTS))
        case "f":
            return same(rng.choice(("0", "1.5", "0.1", "-0.0", "-1.5", "0.10", "1000000")))
        case "h":
            return same(
                rng.choice(("9223372036854775807", "9007199254740993", "0", "-9007199254740992"))
            )
        case "day":
            day = rng.choice(("1970-01-01", "1969-12-31", "2022-01-08", "1887-11-12"))
            return same(f"DATE '{day}'")
        case "ts":
            moment = table.start + dt.timedelta(seconds=rng.randint(-1, table.span_s + 1))
            return Pair(f"TIMESTAMP '{moment}'", f"TIMESTAMPTZ '{moment}+00'")
        case _:
            return _number(rng)


def atom(rng: random.Random, table: Table) -> Pair:
    """A condition on one column."""
    column = rng.choice(("k", "b", "h", "x", "f", "r", "m", "s", "day", "ts", "flag"))
    name = same(column)
    if column == "flag":
        forms = (
            "flag",
            "NOT flag",
            "flag = true",
            "flag <> true",
            "flag IS NULL",
            "flag IS NOT NULL",
        )
        return same(rng.choice(forms))

    def literal() -> Pair:
        return _literal(rng, column, table)

    kind = rng.randrange(8)
    if kind == 0:
        return _glue(rng.choice(("{0} IS NULL", "{0} IS NOT NULL")), name)
    if kind == 1:
        return _glue(
            f"{{0}} {rng.choice(('BETWEEN', 'NOT BETWEEN'))} {{1}} AND {{2}}",
            name,
            literal(),
            literal(),
        )
    if kind == 2:
        values = [literal() for _ in range(rng.randint(1, 4))]
        values += [same("NULL")] if rng.random() < 0.2 else []
        marks = ", ".join(f"{{{i + 1}}}" for i in range(len(values)))
        return _glue(f"{{0}} {rng.choice(('IN', 'NOT IN'))} ({marks})", name, *values)
    if kind == 3:
        value = literal()
        return Pair(f"{column} <=> {value.ours}", f"{column} IS NOT DISTINCT FROM {value.duck}")
    operator = rng.choice(("=", "<>", "<", "<=", ">", ">=", "!="))
    if rng.random() < 0.2:
        return _glue(f"{{1}} {operator} {{0}}", name, literal())
    return _glue(f"{{0}} {operator} {{1}}", name, literal())


def condition(rng: random.Random, table: Table, depth: int = 3) -> Pair:
    if depth == 0 or rng.random() < 0.3:
        return atom(rng, table)
    if rng.random() < 0.2:
        return _glue("NOT ({0})", condition(rng, table, depth - 1))
    parts = [condition(rng, table, depth - 1) for _ in range(rng.randint(2, 3))]
    word = rng.choice((" AND ", " OR "))
    return _glue(word.join(f"({{{i}}})" for i in range(len(parts))), *parts)


# Expressions over a row; none of them may fail for any row, since Spark would fail and DuckDB not.
_EXPRESSIONS: tuple[Pair, ...] = (
    *map(
        same, ("k", "b", "h", "x", "f", "m", "s", "flag", "day", "ts", "k + 1", "-k", "x * 2 + k")
    ),
    *map(same, ("b % 7", "k % 3", "abs(k)", "upper(s)", "length(s)", "coalesce(k, 0)", "s || '!'")),
    *map(
        same, ("m + 1", "m * 2", "x > 0", "NOT flag", "k IS NULL", "nullif(k, 3)", "f = f", "x / 4")
    ),
    *map(
        same,
        ("CASE WHEN k > 2 THEN 'many' WHEN k IS NULL THEN 'none' ELSE s END", "CAST(k AS STRING)"),
    ),
    *map(same, ("CAST(m AS DOUBLE)", "year(day)", "greatest(k, 2)", "substring(s, 1, 1)", "r")),
    *map(same, ("s LIKE 'a%'", "k IN (1, 2, 3)", "k BETWEEN 1 AND 4", "1", "'x'", "k / 2")),
    Pair("unix_micros(ts)", "epoch_us(ts)"),
    Pair("if(flag, k, -1)", "CASE WHEN flag THEN k ELSE -1 END"),
    Pair("isnan(f)", "coalesce(isnan(f), false)"),
)

# Conditions on derived values: `{0}` is a constant that queries of one ring need not share.
_DERIVED: tuple[tuple[Pair, tuple[str, ...]], ...] = (
    (same("k + b > {0}"), ("0", "5", "-100", "1000000")),
    (same("x * 2 + k <= {0}"), ("0", "12.5", "-3")),
    (same("length(s) = {0}"), ("0", "1", "2", "3")),
    (same("upper(s) = {0}"), ("'A'", "'AB'", "''")),
    (same("k < b AND x > {0}"), ("0", "-5")),
    (same("coalesce(k, -1) >= {0}"), ("0", "-1", "4")),
    (same("CASE WHEN flag THEN x ELSE 0 END > {0}"), ("0", "-1", "10")),
    (same("m * 3 < {0}"), ("0", "100", "-2.5")),
    (same("s || 'z' >= {0}"), ("'b'", "'z'", "'é'")),
    (same("(k = 1 OR x > b) AND k <> {0}"), ("1", "2")),
    (same("abs(x) BETWEEN {0} AND 50"), ("0", "1.5")),
    (same("k % 3 IN ({0}, 2)"), ("0", "1", "-1")),
    (same("NOT (s LIKE 'a%') AND k > {0}"), ("-1", "3")),
    (same("(s LIKE '%日%' OR s LIKE '_') AND k <> {0}"), ("1", "2")),
    (same("year(day) > {0}"), ("1969", "2021")),
    (same("(flag = (k > 2)) IS NULL OR k = {0}"), ("1", "2")),
    (
        Pair("f <=> double('NaN') OR k = {0}", "f IS NOT DISTINCT FROM 'NaN'::DOUBLE OR k = {0}"),
        ("1", "2"),
    ),
    (Pair("f > double('Infinity') AND k < {0}", "f > 'Infinity'::DOUBLE AND k < {0}"), ("5", "9")),
    (
        Pair("f <= double('-Infinity') OR x < {0}", "f <= '-Infinity'::DOUBLE OR x < {0}"),
        ("0", "9"),
    ),
    (Pair("hour(ts) + k > {0}", "hour(ts) + k > {0}"), ("0", "12")),
)

_AGGREGATES: tuple[Pair, ...] = (
    *map(
        same,
        ("count(*)", "count(k)", "count(s)", "count(1)", "count(f)", "sum(k)", "sum(b)", "sum(x)"),
    ),
    *map(
        same,
        ("sum(m)", "sum(r)", "avg(k)", "avg(b)", "avg(x)", "min(k)", "max(k)", "min(h)", "max(h)"),
    ),
    *map(same, ("min(x)", "max(x)", "min(f)", "max(f)", "min(m)", "max(m)", "min(s)", "max(s)")),
    *map(same, ("min(day)", "max(day)", "min(ts)", "max(ts)", "min(flag)", "max(flag)", "min(r)")),
    *map(same, ("max(x) - min(x)", "sum(b) - count(*)", "sum(k + 1)", "max(length(s))", "avg(r)")),
    *map(same, ("sum(x) / count(*)", "coalesce(sum(k), 0)", "count(*) * 2 + 1", "sum(x * 2)")),
    *map(same, ("sum(CASE WHEN flag THEN 1 ELSE 0 END)", "min(upper(s))")),
    *(same(f"{f}({c})") for f in ("stddev", "stddev_pop", "stddev_samp") for c in ("x", "k", "r")),
    *(same(f"{f}(x)") for f in ("var_pop", "var_samp", "variance")),
    Pair("avg(m)", "avg(m)::DECIMAL(18,7)"),
)
_NATIVE: tuple[Pair, ...] = (
    *map(same, ("count(DISTINCT k)", "count(DISTINCT s)", "count(DISTINCT f)", "max(DISTINCT b)")),
    *map(same, ("count(*) FILTER (WHERE k > 1)", "sum(x) FILTER (WHERE flag)", "median(x)")),
    *map(
        same,
        ("bool_and(flag)", "bool_or(flag)", "bit_xor(k)", "count_if(x > 0)", "covar_pop(x, k)"),
    ),
    Pair("percentile(x, 0.25)", "quantile_cont(x, 0.25)"),
    Pair("size(collect_set(k))", "coalesce(len(list(DISTINCT k) FILTER (WHERE k IS NOT NULL)), 0)"),
    Pair(
        "count(DISTINCT k, s)",
        "count(DISTINCT CASE WHEN k IS NOT NULL AND s IS NOT NULL THEN (k, s) END)",
    ),
)
_KEYS: tuple[Pair, ...] = (
    *map(same, ("k", "s", "flag", "day", "m", "f", "k % 3", "upper(s)", "x > 0", "length(s)", "h")),
    *map(
        same, ("coalesce(k, 0)", "k IS NULL", "CASE WHEN k > 2 THEN 'many' ELSE 'few' END", "b % 2")
    ),
)
_HAVING: tuple[Pair, ...] = (
    *map(same, ("count(*) > 2", "max(b) > 0 AND min(x) < 0", "sum(k) IS NULL OR count(*) >= 3")),
    *map(same, ("avg(x) > 0", "NOT (max(k) = 7)", "stddev(x) > 1")),
)


def selections(rng: random.Random, table: Table, count: int, derived: bool) -> list[Query]:
    """Queries of one shape: the same select list, and the same derived expressions if any."""
    chosen = rng.sample(_EXPRESSIONS, rng.randint(1, 6))
    names = [f"c{i}" for i in range(len(chosen))]
    ours = ", ".join(f"{e.ours} AS {n}" for e, n in zip(chosen, names, strict=True))
    duck = ", ".join(f"{e.duck} AS {n}" for e, n in zip(chosen, names, strict=True))
    where = _where(rng, table, derived)
    found = []
    for _ in range(count):
        w = where()
        found.append(
            Query(f"SELECT {ours} FROM S WHERE {w.ours}", f"SELECT {duck} FROM t WHERE {w.duck}", 0)
        )
    if not derived:
        found.append(Query("SELECT * FROM S", "SELECT * EXCLUDE ts_us FROM t", 0))
    return found


def _where(rng: random.Random, table: Table, derived: bool) -> Callable[[], Pair]:
    if not derived:
        return lambda: condition(rng, table)
    template, constants = rng.choice(_DERIVED)
    word = rng.choice((" AND ", " OR "))

    def where() -> Pair:
        constant = rng.choice(constants)
        part = Pair(template.ours.format(constant), template.duck.format(constant))
        if rng.random() < 0.5:
            return part
        return _glue(f"({{0}}){word}({{1}})", part, atom(rng, table))

    return where


def windows(rng: random.Random, table: Table, count: int, native: bool) -> list[Query]:
    """Window queries of one shape, each with its own window and condition."""
    keys = rng.sample(_KEYS, rng.randint(0, 2))
    pool = _NATIVE + _AGGREGATES[:12] if native else _AGGREGATES
    calls = rng.sample(pool, rng.randint(1, 5))
    if native:
        calls.append(rng.choice(_NATIVE))
    items = [*keys, *calls]
    names = [f"c{i}" for i in range(len(items))]
    ours = ", ".join(f"{e.ours} AS {n}" for e, n in zip(items, names, strict=True))
    duck = ", ".join(f"{e.duck} AS {n}" for e, n in zip(items, names, strict=True))
    grouping = _grouping(rng, keys)
    having = rng.choice(_HAVING) if rng.random() < 0.4 else None
    if keys and rng.random() < 0.4:
        having = _glue("({0}) IS NOT NULL", keys[0]) if having is None else _of_key(having, keys[0])
    derived = rng.random() < 0.25
    where = _where(rng, table, derived)
    found = []
    for number in range(count):
        range_ms, slide_ms = _window(rng, table.span_s)
        w = where() if number or derived else same("true")
        text = f"SELECT {ours} FROM S [RANGE {range_ms} MILLISECONDS SLIDE {slide_ms} MILLISECONDS]"
        text += f" WHERE {w.ours}{grouping}" + (f" HAVING {having.ours}" if having else "")
        expected = _windowed(range_ms * 1000, slide_ms * 1000, duck, w.duck, [k.duck for k in keys])
        expected += f" HAVING {having.duck}" if having else ""
        found.append(Query(text, expected, 2 + len(keys)))
    return found


# aggregates of which queries of one ring select some, by column; sums of `h` would be too large
_FAMILIES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("x", "k"), ("count", "sum", "avg", "min", "max")),
    **dict.fromkeys(("m", "b", "r"), ("count", "sum", "min", "max")),
    **dict.fromkeys(("f", "day", "flag"), ("count", "min", "max")),
    "h": ("count", "avg", "min", "max"),
    "s": ("count",),
}
# a HAVING whose constants are each query's own
_OWN_HAVING = (
    ("count(*) > {{}}", ("1", "2", "3", "9000000000")),
    ("avg({0}) >= {{}} AND count(*) <> 2", ("0", "-1.5", "2", "1e2")),
    ("max({0}) < {{}} OR count(*) BETWEEN 2 AND 3", ("0", "5", "-3")),
    ("NOT ({{}} <= min({0}))", ("0", "1", "-2")),
)


def families(rng: random.Random, table: Table, count: int) -> list[Query]:
    """Window queries of one ring that select each their own of its aggregates."""
    keys = rng.sample(_KEYS, rng.randint(0, 2))
    column = rng.choice(list(_FAMILIES))
    calls = [f"{function}({column})" for function in _FAMILIES[column]]
    template, constants = rng.choice(_OWN_HAVING if "avg" in _FAMILIES[column] else _OWN_HAVING[:1])
    template = template.format(column)
    found = []
    for _ in range(count):
        some = rng.sample((*calls, "count(*)"), rng.randint(1, min(4, 1 + len(calls))))
        items = [*keys, *map(same, some)]
        if rng.random() < 0.1:
            items = keys or items[:1]
        ours, duck = (
            ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
            for texts in ([e.ours for e in items], [e.duck for e in items])
        )
        range_ms, slide_ms = _window(rng, table.span_s)
        w, having = condition(rng, table), template.format(rng.choice(constants))
        text = f"SELECT {ours} FROM S [RANGE {range_ms} MILLISECONDS SLIDE {slide_ms} MILLISECONDS]"
        text += f" WHERE {w.ours}{_grouping(rng, keys)} HAVING {having}"
        expected = _windowed(range_ms * 1000, slide_ms * 1000, duck, w.duck, [k.duck for k in keys])
        found.append(Query(text, f"{expected} HAVING {having}", 2 + len(keys)))
    return found


# columns that queries of one ring group by, each its own; `f` has a ring of its own
_OWN_KEYS = ("k", "s", "flag", "day", "h", "b", "ts")


def in_roles(rng: random.Random, table: Table, count: int) -> list[Query]:
    """Window queries of one ring that group by and aggregate each their own columns."""
    found = []
    for _ in range(count):
        keys = rng.sample(_OWN_KEYS, rng.choice((0, 1, 1, 2)))
        names = [name for name in rng.sample(list(_FAMILIES), rng.randint(1, 3)) if name != "m"]
        calls = [f"{function}({name})" for name in names for function in _FAMILIES[name]]
        some = rng.sample((*calls, "count(*)"), rng.randint(1, min(5, 1 + len(calls))))
        items = ", ".join(f"{text} AS c{i}" for i, text in enumerate((*keys, *some)))
        range_ms, slide_ms = _window(rng, table.span_s)
        w = condition(rng, table)
        window = f"[RANGE {range_ms} MILLISECONDS SLIDE {slide_ms} MILLISECONDS]"
        grouping = _grouping(rng, list(map(same, keys)))
        text = f"SELECT {items} FROM S {window} WHERE {w.ours}{grouping}"
        expected = _windowed(range_ms * 1000, slide_ms * 1000, items, w.duck, keys)
        found.append(Query(text, expected, 2 + len(keys)))
    return found


def _of_key(having: Pair, key: Pair) -> Pair:
    return _glue("({0}) AND ({1}) IS NOT NULL", having, key)


def _grouping(rng: random.Random, keys: list[Pair]) -> str:
    """GROUP BY by expression, by the alias in the select list, or by its place."""
    if not keys:
        return ""
    forms = [rng.choice((k.ours, f"c{i}", str(i + 1))) for i, k in enumerate(keys)]
    return f" GROUP BY {', '.join(forms)}"


def _window(rng: random.Random, span_s: int) -> tuple[int, int]:
    """Range and slide: tumbling, overlapping, with gaps, and ranges that no slide divides."""
    slide_ms = rng.choice((span_s * 1000 // 7 + 1, span_s * 1000 // 3, 1000, 700, span_s * 100))
    slide_ms = max(slide_ms, span_s * 1000 // 500 + 1)
    factor = rng.choice((1, 1, 2, 3, 2.5, 3.3, 0.5, 0.1))
    return max(1, int(slide_ms * factor)), slide_ms


def _windowed(range_us: int, slide_us: int, items: str, where: str, keys: list[str]) -> str:
    """Every window end joined with every tuple that lies in its window, as the language says it."""
    first = f"(SELECT min(ts_us) FROM t) // {slide_us} * {slide_us} - {slide_us}"
    last = f"(SELECT max(ts_us) FROM t) + {range_us} + {slide_us}"
    ends = f"SELECT unnest(generate_series({first}, {last}, {slide_us})) AS w"
    start, end = f"make_timestamp(w - {range_us})", "make_timestamp(w)"
    group = ", ".join(["w", *keys])
    return (
        f"SELECT {start} AS window_start, {end} AS window_end, {items} FROM t, ({ends}) "
        f"WHERE ts_us >= w - {range_us} AND ts_us < w AND ({where}) GROUP BY {group}"
    )
