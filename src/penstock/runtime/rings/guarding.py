"""Whose expression has no value: results computed so that a row tells, instead of the ring failing.

Under ANSI rules one tuple that cannot be divided stops a Spark query, and with it every query of
its ring, though it belongs to one of them. A ring that has failed in this way is started again with
its outputs *guarded*: each is computed inside Spark's own `TryEval`, as a struct, so that NULL in
place of the struct is an error and NULL inside it is a value. A row then carries the number of the
output that failed, and only the queries of that row are closed. Unguarded rings pay nothing. HAVING
of windows that come pre-aggregated is one more of these: it looks at rows that are finished.

What fails before the outputs (an attribute of every tuple, an aggregate's argument) cannot be
guarded so: it is the same for all queries of the ring, or part of Spark's state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.language.render import quote_name
from penstock.plan.result_columns import partials_of
from penstock.plan.specs import Composition, Partial

FAILED = "__failed"  # the number of the first output without a value
_VALUE = "v"
_CLASS = re.compile(r"^(.*?\[[A-Z_.0-9]+\]).*$", re.DOTALL)  # of an error of Spark's
_INTERNAL = re.compile(r"`?(__[akh]\d+)`?")


def can_be_guarded(composition: Composition) -> bool:
    """Whether the ring's outputs are computed from finished rows, and more than copied."""
    computed = composition.kind in ("select", "events") or composition.preaggregated
    plain = {quote_name(name) for name in composition.shipped}
    return computed and any(output.sql not in plain for output in composition.outputs)


def guarded(
    rows: DataFrame, fixed: list[Column], outputs: list[Column], having: Column | None = None
) -> DataFrame:
    """Fixed columns as they are, outputs as `__o0`…, and the number of the one that failed.

    Of all rows, or of those for which `having` holds or fails; it has the number after the outputs.
    """
    tests = [] if having is None else [having]
    names = [f"__t{i}" for i in range(len(outputs) + len(tests))]
    tried = [
        _tried(rows.sparkSession, column).alias(name)
        for name, column in zip(names, [*outputs, *tests], strict=True)
    ]
    held = rows.select(*fixed, *tried)
    kept = held.columns[: len(fixed)]
    numbers = [F.expr(f"if({name} IS NULL, {i}, NULL)") for i, name in enumerate(names)]
    if having is not None:
        held = held.where(f"{names[-1]} IS NULL OR {names[-1]}.{_VALUE}")
        numbers = [numbers[-1], *numbers[:-1]]  # who fails the test needs no outputs
    values = [F.col(f"__t{i}.{_VALUE}").alias(f"__o{i}") for i in range(len(outputs))]
    return held.select(*kept, *values, F.coalesce(*numbers).alias(FAILED))


def blamed(composition: Composition) -> tuple[str, ...]:
    """The expressions that may fail, by number, as a user knows them."""
    having = [] if composition.having is None else [f"HAVING {composition.having}"]
    texts = [*(output.sql for output in composition.outputs), *having]
    if not composition.preaggregated:
        return tuple(texts)
    known = {f"__k{i}": name for i, name in enumerate(composition.keys)}
    known |= {name: _call(partials) for name, partials in partials_of(composition).items()}
    return tuple(_INTERNAL.sub(lambda found: known.get(found[1], "…"), text) for text in texts)


def _call(partials: list[Partial]) -> str:
    """An aggregate by what it is made of."""
    first = partials[0]
    kinds = {"count_star": "count", "moments": "variance"}
    of_two = first.kind == "sum" and partials[-1].kind == "count"
    name = "avg" if of_two else kinds.get(first.kind, first.kind)
    return f"{name}({first.argument or '*'})"


def _tried(spark: SparkSession, column: Column) -> Column:
    """The column as a struct that is NULL where computing it fails."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    sql = jvm.org.apache.spark.sql
    inside = sql.classic.ExpressionUtils.expression(F.struct(column.alias(_VALUE))._jc)
    return Column(sql.classic.ExpressionUtils.column(sql.catalyst.expressions.TryEval(inside)))


@dataclass(slots=True)
class Blame:
    """What a guarded ring's rows say of its queries.

    outputs: the expressions, by number. cause: what the ring failed with before it was guarded.
    """

    outputs: tuple[str, ...] = ()
    cause: str | None = None  # until one of them is known to be what failed
    known: dict[int, str] = field(default_factory=dict)

    def sort_out(self, results: pa.Table) -> tuple[pa.Table, dict[int, str]]:
        """Rows with all their values; and the slots of the others, each with what went wrong."""
        if FAILED not in results.schema.names:
            return results, {}
        numbers = results.column(FAILED)
        rows = results.drop_columns([FAILED])
        if numbers.null_count == len(numbers):
            return rows, {}
        found: dict[int, str] = {}
        failing = rows.filter(pc.is_valid(numbers))
        for slots, number in zip(_slots(failing), numbers.drop_null().to_pylist(), strict=True):
            for slot in slots:
                found.setdefault(slot, self._error(number))
        return rows.filter(pc.is_null(numbers)), found

    def _error(self, number: int) -> str:
        """The first failure is what stopped the ring; later ones of that output are of its class,
        but its values are not theirs."""
        found = self.known.get(number, "no value for a tuple")
        if self.cause is not None:
            found, self.cause = self.cause, None
            self.known[number] = _CLASS.sub(r"\1", found)
        return f"{self.outputs[number]}: {found}"


def _slots(rows: pa.Table) -> list[list[int]]:
    if "__slot" in rows.schema.names:
        return [[slot] for slot in rows.column("__slot").to_pylist()]
    lists: list[list[int]] = rows.column("__slots").to_pylist()
    return lists
