"""How aggregates are put together from partial ones, and how the others are written for Spark.

A merge names the partials that the Arrow stage keeps per (query, group, window) and the Spark SQL
that makes the result of them. Integer sums are merged in halves of 32 bits: partial sums fit 64
bits, their total need not, and an overflow must be an error as in Spark, not a wrong number. It is
one of the result, not of the state: so it is that of a query, and not of its ring.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import QueryError
from penstock.language.ast import Aggregate
from penstock.language.render import render
from penstock.plan.specs import Half, PartialKind
from penstock.schema import FLOAT_TYPES, INTEGER_TYPES, decimal_parts

# Chan's formula over the (n, mean, m2) of all parts. Sums of squares would be simpler and wrong:
# for values near 1e9 they lose every digit of a variance near 1.
_MOMENTS = (
    "aggregate(collect_list({0}), named_struct('n', 0L, 'mean', 0D, 'm2', 0D), (a, b) -> "
    "if(b.n = 0L, a, named_struct('n', a.n + b.n, "
    "'mean', a.mean + (b.mean - a.mean) * b.n / (a.n + b.n), "
    "'m2', a.m2 + b.m2 + (b.mean - a.mean) * (b.mean - a.mean) * a.n * b.n / (a.n + b.n))), "
    "{finish})"
)
_SPREAD = {
    "var_samp": "if(r.n > 1L, r.m2 / (r.n - 1L), NULL)",
    "var_pop": "if(r.n > 0L, r.m2 / r.n, NULL)",
    "stddev_samp": "if(r.n > 1L, sqrt(r.m2 / (r.n - 1L)), NULL)",
    "stddev_pop": "if(r.n > 0L, sqrt(r.m2 / r.n), NULL)",
}
_SPREAD |= {
    "variance": _SPREAD["var_samp"],
    "stddev": _SPREAD["stddev_samp"],
    "std": _SPREAD["stddev_samp"],
}
_ORDERED = frozenset({"string", "date", "timestamp", "timestamp_ntz", "boolean"})
MOMENTS_TYPE = "struct<n: bigint, mean: double, m2: double>"
_HIGH: tuple[PartialKind, str, Half] = ("sum", "bigint", "high")
_ASKED: tuple[PartialKind, str, Half] = ("sum", "bigint", "asked")
_LOW: tuple[PartialKind, str, Half] = ("sum", "bigint", "low")
_TOTAL = "cast(sum({0}) AS decimal(20,0)) * 4294967296 + sum({1})"


@dataclass(frozen=True, slots=True)
class Merge:
    """Partials an aggregate needs (kind, Spark type, half) and SQL over their names {0}, {1}.

    type: what the result has to be cast to, which may fail; None: it is what it should be.
    """

    partials: tuple[tuple[PartialKind, str, Half], ...]
    sql: str
    type: str | None = None


def merge_of(name: str, type_: str | None) -> Merge | None:
    """How to compute `name(x)` from partials by x's type (None: COUNT(*)); None if it cannot."""
    if name == "count":
        return Merge(((("count_star" if type_ is None else "count"), "bigint", None),), "sum({0})")
    if type_ is None:
        return None
    decimal = decimal_parts(type_)
    short_decimal = decimal is not None and decimal[0] <= 18
    numeric = type_ in INTEGER_TYPES or type_ in FLOAT_TYPES
    match name:
        case "sum" if type_ in INTEGER_TYPES:
            return Merge((_ASKED, _LOW), _TOTAL, "bigint")
        case "sum" if type_ in FLOAT_TYPES:
            return Merge((("sum", "double", None),), "sum({0})")
        case "sum" if decimal is not None and short_decimal:
            wide = f"decimal({decimal[0] + 10},{decimal[1]})"
            return Merge((("sum", wide, None),), "sum({0})", wide)
        case "avg" | "mean" if type_ in INTEGER_TYPES:
            mean = f"cast({_TOTAL} AS double) / nullif(sum({{2}}), 0)"
            return Merge((_HIGH, _LOW, ("count", "bigint", None)), mean)
        case "avg" | "mean" if type_ in FLOAT_TYPES:
            mean = "sum({0}) / nullif(sum({1}), 0)"
            return Merge((("sum", "double", None), ("count", "bigint", None)), mean)
        case "min" | "max" if numeric or short_decimal or type_ in _ORDERED:
            kind: PartialKind = "min" if name == "min" else "max"
            return Merge(((kind, type_, None),), f"{name}({{0}})")
        case _ if name in _SPREAD and (numeric or short_decimal):
            finish = f"r -> {_SPREAD[name]}"
            return Merge((("moments", MOMENTS_TYPE, None),), _MOMENTS.replace("{finish}", finish))
        case _:
            return None


def result_type(name: str, type_: str | None) -> str | None:
    """What the usual aggregates give that are doubles or 64-bit integers; None: any other type.

    Of other integers it is the wider type: compared with a number it makes no difference.
    """
    if name == "count":
        return "bigint"
    if type_ in INTEGER_TYPES and name in ("sum", "min", "max"):
        return "bigint"
    mean = name in ("avg", "mean") or name in _SPREAD
    if type_ == "double" and (mean or name in ("sum", "min", "max")):
        return "double"
    if type_ in INTEGER_TYPES | FLOAT_TYPES and (mean or name == "sum"):
        return "double"
    return None


def native_call(call: Aggregate) -> str:
    """An aggregate as Spark's streaming aggregation takes it: DISTINCT is rewritten or refused."""
    if not call.distinct:
        return render(call)
    if call.name in ("min", "max"):
        return render(Aggregate(call.name, call.arguments, False, call.where))
    if call.name != "count":
        raise QueryError(
            f"{call.name}(DISTINCT …) is not supported over streams",
            "count(DISTINCT …) is, and so are collect_set and approx_count_distinct",
            call.span,
        )
    arguments = [render(a) for a in call.arguments]
    one = arguments[0] if len(arguments) == 1 else f"struct({', '.join(arguments)})"
    present = [f"{a} IS NOT NULL" for a in arguments]
    present += [] if call.where is None else [f"({render(call.where)})"]
    return f"CAST(size(collect_set({one}) FILTER (WHERE {' AND '.join(present)})) AS BIGINT)"
