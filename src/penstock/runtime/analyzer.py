"""Spark as the judge of expressions: types, constants, and errors in words a user can act on.

Each question is asked once: answers are kept by the text of the question, so a thousand queries of
one composition cost one analysis. The newest answers stay, not all that ever were.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import QueryError
from penstock.language.ast import Expr, Literal, Opaque
from penstock.language.functions import SPATIAL
from penstock.plan.catalog import Stream, did_you_mean
from penstock.plan.comparisons import MAX_WHOLE_DIGITS
from penstock.plan.specs import Composition
from penstock.runtime.compile import aggregated, joined_ddl, stage_ddl
from penstock.runtime.session import ring_settings
from penstock.runtime.unlogged import errors_unlogged
from penstock.schema import INTEGER_TYPES, Field, Schema, decimal_parts

# DATE 'today' is another day tomorrow, though Spark's plan has a constant for it.
_CHANGING_WORDS = re.compile(r"'\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_ANSWERS = 4096  # of each kind

Key = TypeVar("Key")
Value = TypeVar("Value")


class Analyzer:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._types: dict[tuple[str, str], str] = {}
        self._constants: dict[str, Expr | None] = {}
        self._outputs: dict[tuple[str, Composition], Schema] = {}

    def type_of(self, sql: str, schema: Schema) -> str:
        """Spark's type of an expression over a stream's columns."""
        ddl = schema.ddl()

        def ask() -> str:
            frame = self._spark.createDataFrame([], ddl).selectExpr(sql)
            return str(frame.schema.fields[0].dataType.simpleString())

        return self._once(self._types, (ddl, sql), ask)

    def _once(self, answers: dict[Key, Value], key: Key, ask: Callable[[], Value]) -> Value:
        with suppress(KeyError):
            return answers[key]
        try:
            with ring_settings(self._spark), errors_unlogged():
                answer = answers[key] = ask()
        except PySparkException as error:
            raise QueryError(*explain_analysis(error)) from None
        if len(answers) > _ANSWERS:
            answers.pop(next(iter(answers)), None)
        return answer

    def fold(self, sql: str) -> Expr | None:
        """The literal that SQL without columns stands for; None if it has no value for good."""
        return self._once(self._constants, sql, lambda: self._constant(sql))

    def _constant(self, sql: str) -> Expr | None:
        if _CHANGING_WORDS.search(sql):
            return None
        jvm: Any = self._spark._jvm
        current = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
        try:
            execution = self._spark.range(1).selectExpr(sql)._jdf.queryExecution()
            given = execution.analyzed().expressions().head()
            if not given.deterministic() or given.containsPattern(current):
                return None
            found = execution.optimizedPlan().expressions().head().child()
        except (PySparkException, Py4JJavaError):  # such as 1 / 0: for whoever evaluates it
            return None
        if found.getClass().getSimpleName() != "Literal":
            return None
        return literal_of(found.dataType().simpleString(), found.value())

    def output_schema(self, composition: Composition, *streams: Stream) -> Schema:
        """Names and types of a composition's results; refuses what Spark refuses.

        streams: the one that it reads, or all that it joins.
        """
        key = (", ".join(stream.schema.ddl() for stream in streams), composition)
        return self._once(self._outputs, key, lambda: self._analyse(composition, list(streams)))

    def _analyse(self, composition: Composition, streams: list[Stream]) -> Schema:
        if composition.join is None:
            empty = self._spark.createDataFrame([], stage_ddl(composition, streams[0]))
        else:
            empty = self._spark.createDataFrame([], joined_ddl(composition, streams))
            empty = reduce(DataFrame.where, composition.join.conditions, empty)
        if composition.kind in ("select", "events"):
            frame = empty.selectExpr(*(o.sql for o in composition.outputs))
            types = [f.dataType.simpleString() for f in frame.schema.fields]
        else:
            frame = aggregated(empty, composition).drop("__slot", "__window_start", "__window_end")
            types = [f.dataType.simpleString() for f in frame.schema.fields]
        names = [o.name for o in composition.outputs]
        fields = [Field(n, t) for n, t in zip(names, types, strict=True)]
        if composition.kind == "window":
            window = [Field("window_start", "timestamp"), Field("window_end", "timestamp")]
            fields = [*window, *fields]
        return Schema(tuple(fields))


def literal_of(type_: str, value: Any) -> Expr | None:
    """The literal of a value as Spark's plans hold it, None if the language has none like it."""
    if value is None:
        return None
    if parts := decimal_parts(type_):
        precision, scale = parts
        return Literal(Decimal(str(value))) if precision - scale <= MAX_WHOLE_DIGITS else None
    if type_ in INTEGER_TYPES or type_ in ("boolean", "double"):
        return Literal(value)
    match type_:
        case "string":
            return Literal(str(value))
        case "date" if 1 <= value + _EPOCH.toordinal() <= date.max.toordinal():
            return Opaque((f"DATE '{date.fromordinal(value + _EPOCH.toordinal())}'",))
        case "timestamp":
            try:
                moment = _EPOCH + timedelta(microseconds=value)
            except OverflowError:
                return None
            return Opaque((f"TIMESTAMP '{moment.replace(tzinfo=None)}'",))
    return None


def explain_analysis(error: PySparkException) -> tuple[str, str | None]:
    """(message, hint) from an error of Spark's analysis, without its plan and its codes."""
    parameters: dict[str, Any] = {}
    try:
        parameters = dict(error.getMessageParameters() or {})
    except Exception:  # not every error carries them
        parameters = {}
    condition = error.getCondition() or ""
    if condition.startswith("UNRESOLVED_ROUTINE"):
        name = str(parameters.get("routineName", "")).replace("`", "")
        hint = "any built-in function of Spark SQL may be used"
        if name.lower().startswith("st_"):
            hint = did_you_mean(name, SPATIAL, "spatial functions")
        return f"function {name} not found", hint
    text = str(error).split(" SQLSTATE")[0].split("; line")[0].split("\n== SQL")[0]
    text = re.sub(r"^\[[A-Z_.0-9]+\]\s*", "", text.strip()).split("\n")[0]
    text = re.sub(r"\s*;\s*$", "", text.replace("`", ""))
    kind = "cannot be read" if isinstance(error, ParseException) else "is refused by Spark"
    if isinstance(error, (AnalysisException, ParseException)) and text:
        return f"the expression {kind}: {text}", None
    return text or condition or "Spark refused the query", None
