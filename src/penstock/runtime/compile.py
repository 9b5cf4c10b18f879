"""A composition to a streaming DataFrame: the fixed part of a ring.

    rows with the stage inside, punctuation ─ group by (slot, window end, keys) ─ outputs   WINDOW
    rows with the stage inside ─ outputs, if Spark has any to compute                       SELECT
    inputs with their stages inside ─ shuffle by bucket ─ join ─ one of the above           JOIN
    rows with the stage inside ─ shuffle by lane of objects ─ events ─ outputs              EVENTS
    inputs with their stages inside ─ Spark's own joins ─ one of the above, punctuation too JOIN

Spark's watermark is the punctuation: it comes as a row without a slot among the window rows, or
beside them from a source of its own where penstock's reader does not make them. The `__end` of
window rows is just compared with it. (With a watermark on both Spark takes the lower, but it
forgets what each input had reached when a query is started again: until tuples came, no window
would close.) No window row lies at or below the punctuation of its micro-batch: so Spark closes a
window exactly when the punctuation has passed its end, and drops nothing on its own.
Where sources are apart, `__end` is the clock time at which the window of its source closes and the
punctuation is the clock: the same holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.plan.catalog import Stream
from penstock.plan.columns import column_types
from penstock.plan.having import constant_name
from penstock.plan.specs import Attribute, Composition, SlotSpec
from penstock.runtime.config import EPOCH, ORIGIN, SHIFT_US, TRUE_END, StageConfig
from penstock.runtime.datasource import place_in_map, run_in_map
from penstock.runtime.following.frame import followed
from penstock.runtime.following.stage import FOLLOWED_ROWS
from penstock.runtime.joining.chain import CHAIN_SETTINGS, as_event_time, chained
from penstock.runtime.joining.chain_stage import chain_ddl
from penstock.runtime.joining.chain_windows import in_windows
from penstock.runtime.joining.input_stage import INPUT_ROWS, LANE
from penstock.runtime.joining.operator import JoinOperator, unpack
from penstock.runtime.joining.results import copied_columns
from penstock.runtime.joining.shape import joined_schema
from penstock.runtime.packing import PACKED, packed_columns
from penstock.runtime.rings.guarding import can_be_guarded, guarded
from penstock.runtime.window_rows import window_row_types
from penstock.schema import Field, Schema

_HAVING = "__having"
_TOLD = "__told"  # column of window rows: the punctuation, if they are that
_WELL_COMPILED = 4  # conditions up to which whole-stage code pays
# what two guarded outputs have in common Spark would compute first, where nothing guards it
EACH_BY_ITSELF = {"spark.sql.subexpressionElimination.enabled": "false"}
NOT_GENERATED = {"spark.sql.codegen.wholeStage": "false"}


@dataclass(frozen=True, slots=True)
class Generation:
    """What of a ring's plan may change: from the same checkpoint the ring goes on with another.

    derived: attributes of its slots' predicates, computed by Spark before the stage. native: the
    conditions of all its slots, evaluated by Spark itself in place of the stage; None: the stage.
    guarded: an output without a value is told with its row (`guarding`).
    """

    derived: tuple[Attribute, ...] = ()
    native: tuple[tuple[int, str], ...] | None = None
    guarded: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """What Spark needs for the plan: one large generated method is slower than none."""
        large = self.native is not None and len(self.native) > _WELL_COMPILED
        return (NOT_GENERATED if large else {}) | (EACH_BY_ITSELF if self.guarded else {})

    def serves(self, slot: SlotSpec) -> bool:
        """Whether a new slot can live in the plan as it is."""
        return self.native is None and set(slot.derived) <= set(self.derived)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def stage_ddl(composition: Composition, stream: Stream) -> str:
    """The columns that leave the first stage."""
    if composition.kind == "input":
        return INPUT_ROWS if composition.keys else chain_ddl(composition, stream)
    if composition.kind == "window":
        columns = window_row_types(composition, stream).items()
        return ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns)
    types = column_types(composition, stream)
    shipped = Schema(tuple(Field(n, types[n]) for n in composition.shipped)).ddl()
    return f"__slots array<int>, {shipped}"


def runs_in_reader(composition: Composition, stream: Stream) -> bool:
    """Whether the stage runs inside penstock's own reader (else in mapInArrow)."""
    return stream.source != "dataframe" and not (composition.derived or composition.computed)


def tells_punctuation(composition: Composition, stream: Stream) -> bool:
    """Whether the reader itself has a row of punctuation among its window rows."""
    own = composition.kind == "window" and composition.join is None
    return own and runs_in_reader(composition, stream)


@dataclass(frozen=True, slots=True)
class Input:
    """A stream that comes into a ring: the ring's own, or one of those that it joins."""

    composition: Composition
    stream: Stream
    config: StageConfig


def is_chain(composition: Composition) -> bool:
    """Whether Spark joins the ring's inputs by itself."""
    return composition.join is not None and bool(composition.join.steps)


def plan_settings(composition: Composition) -> dict[str, str]:
    """What Spark needs for the fixed part of a ring's plan.

    Where windows come pre-aggregated, few rows are left to Spark: code that is generated for each
    ring, and compiled and compiled again by the JVM, costs more than it saves.
    """
    if is_chain(composition):
        return CHAIN_SETTINGS
    return NOT_GENERATED if composition.preaggregated else {}


def ring_frame(
    spark: SparkSession,
    composition: Composition,
    inputs: tuple[Input, ...],
    config: StageConfig,
    frames: Mapping[str, DataFrame],
    generation: Generation,
    told_beside: bool = False,
) -> DataFrame:
    """The whole plan of a ring, up to its results.

    told_beside: it began with its punctuation from a source of its own, and goes on so.
    """
    frame = frames.get(inputs[0].stream.name.lower())
    chain = is_chain(composition)
    if composition.following is not None:
        given = inputs[0]
        tuples = _staged(spark, given, frame, Generation())
        apart = None if frame is None else _punctuation_rows(spark, given)
        ddl = stage_ddl(given.composition, given.stream)
        rows = followed(tuples, apart, given.config, ddl)
    elif chain:
        rows = _chained(spark, composition, inputs, config, frames)
    elif composition.join is not None:
        rows = _joined(spark, composition, inputs, config, frames)
    elif generation.native is not None:
        raw = _raw(spark, inputs[0], frame, native=True)
        rows = _native(raw, generation.native)
    else:
        rows = _staged(spark, inputs[0], frame, generation)
    if PACKED in rows.columns:
        return rows
    if composition.kind in ("select", "events"):
        results = _outputs(rows, [F.col("__slots")], composition, generation.guarded)
        return _with_watermark(results, _punctuation(spark, inputs[0])) if chain else results
    if told_beside or not tells_punctuation(composition, inputs[0].stream):
        told = _punctuation(spark, inputs[0])
        timed = rows.withColumn("__end", as_event_time(F.col("__end"), "__end"))
        rows = timed.unionByName(told, allowMissingColumns=True).where("`__slot` IS NOT NULL")
    else:
        rows = _punctuated(rows)
    return aggregated(rows, composition, generation.guarded)


def _punctuated(rows: DataFrame) -> DataFrame:
    """Window rows without the punctuation among them, which has become the watermark.

    Spark pushes conditions below watermarks, and punctuation has neither a slot nor keys. It does
    not push one that may be another the next time, and none below that.
    """
    told = rows.withColumn(_TOLD, F.expr("if(`__slot` IS NULL, `__end`, timestamp_micros(0))"))
    timed = told.withWatermark(_TOLD, "0 seconds")
    kept = timed.where("if(spark_partition_id() < 0, false, `__slot` IS NOT NULL)").drop(_TOLD)
    return kept.withColumn("__end", as_event_time(F.col("__end"), "__end"))


def _punctuation_rows(spark: SparkSession, given: Input) -> DataFrame:
    reader = spark.readStream.format("penstock_punctuation")
    return reader.option("token", json.dumps(asdict(given.config))).load()


def _punctuation(spark: SparkSession, given: Input) -> DataFrame:
    """Punctuation, which no condition reaches before it has become the watermark.

    Spark pushes conditions on keys (HAVING) below groups, unions and watermarks, and punctuation
    has no keys. It does not push them below an expression that may be another the next time.
    """
    timed = _punctuation_rows(spark, given).withWatermark("__end", "0 seconds")
    return timed.withColumn("__slot", F.expr("if(spark_partition_id() < 0, 0L, NULL)"))


def _with_watermark(results: DataFrame, punctuation: DataFrame) -> DataFrame:
    """The results, with punctuation beside them that never comes out."""
    united = results.unionByName(punctuation, allowMissingColumns=True)
    return united.where("`__end` IS NULL").drop("__end", "__slot")


def _chained(
    spark: SparkSession,
    composition: Composition,
    inputs: tuple[Input, ...],
    config: StageConfig,
    frames: Mapping[str, DataFrame],
) -> DataFrame:
    """Combinations of the inputs' tuples: Spark's own joins, one after the other."""
    join = composition.join
    assert join is not None
    tuples = [_staged(spark, i, frames.get(i.stream.name.lower()), Generation()) for i in inputs]
    found = chained(join, tuples)
    if composition.kind == "select":
        return found
    ddl = joined_ddl(composition, [i.stream for i in inputs])
    return in_windows(found, composition, config, ddl)


def _joined(
    spark: SparkSession,
    composition: Composition,
    inputs: tuple[Input, ...],
    config: StageConfig,
    frames: Mapping[str, DataFrame],
) -> DataFrame:
    """Combinations of the inputs' tuples: one shuffle by bucket, one stateful operator."""
    join = composition.join
    assert join is not None
    in_reader = [i for i in inputs if runs_in_reader(i.composition, i.stream)]
    sources = [_own_inputs(spark, config, in_reader)]
    for other in inputs:
        if other not in in_reader:
            frame = frames.get(other.stream.name.lower())
            sources.append(_staged(spark, other, frame, Generation()))
    united = reduce(DataFrame.unionByName, sources)
    found = united.groupBy(LANE).transformWithState(
        JoinOperator(json.dumps(asdict(config))), f"{PACKED} binary", "append", "None"
    )
    if copied_columns(composition) is not None:
        return found
    streams = [i.stream for i in inputs]
    rows = found.mapInArrow(unpack, joined_ddl(composition, streams))
    return rows if join.residual is None else rows.where(join.residual)


def joined_ddl(composition: Composition, streams: list[Stream]) -> str:
    """The columns that leave the join operator."""
    join = composition.join
    assert join is not None
    fixed = "__slots array<int>"
    if composition.kind == "window":
        fixed = "__slot bigint, __range_us bigint, __end timestamp"
    columns = joined_schema(join.inputs, streams)
    return f"{fixed}, {columns.ddl()}" if columns.fields else fixed


def _own_inputs(spark: SparkSession, config: StageConfig, inputs: list[Input]) -> DataFrame:
    """The inputs of a join that penstock reads itself, in one source; and the ring's rounds."""
    configs = json.dumps([asdict(config), *(asdict(i.config) for i in inputs)])
    reader = spark.readStream.format("penstock_inputs").option("token", configs)
    return reader.option("ddl", INPUT_ROWS).load()


def _staged(
    spark: SparkSession, given: Input, frame: DataFrame | None, generation: Generation
) -> DataFrame:
    """Tuples after the stage."""
    composition, stream = given.composition, given.stream
    text = json.dumps(asdict(given.config))
    ddl = stage_ddl(composition, stream) if composition.following is None else FOLLOWED_ROWS
    if packed_columns(composition, stream) is not None:
        ddl = f"{PACKED} binary"
    if runs_in_reader(composition, stream):
        return _own_rows(spark, text, ddl, "stage")
    raw = _raw(spark, given, frame, native=False)
    if composition.placed_first:
        raw = raw.mapInArrow(place_in_map(text, frame is None), _placed_ddl(given, frame is None))
    derived = {a.name: a for a in (*composition.derived, *generation.derived)}
    computed = [F.expr(a.sql).alias(a.name) for a in derived.values()]
    return raw.select("*", *computed).mapInArrow(run_in_map(text, frame is None), ddl)


def _placed_ddl(given: Input, numbered: bool) -> str:
    """Tuples as they are when they have their columns of places."""
    epoch = (Field(EPOCH, "bigint"),) if numbered else ()
    placed = [Field(name, type_) for name, type_ in given.composition.placed]
    return Schema((*given.stream.schema.fields, *epoch, *placed, Field(ORIGIN, "bigint"))).ddl()


def _native(raw: DataFrame, conditions: tuple[tuple[int, str], ...]) -> DataFrame:
    """Tuples with the slots whose conditions hold, all of it in Spark's own code."""
    each = ", ".join(f"if({condition}, {slot}, NULL)" for slot, condition in conditions)
    slots = F.expr(f"array_compact(array({each}))")
    some = raw.where(" OR ".join(f"({condition})" for _, condition in conditions) or "false")
    if not some._jdf.queryExecution().analyzed().deterministic():  # each draw counts once
        return raw.withColumn("__slots", slots).where("size(__slots) > 0")
    if len(conditions) == 1:
        slots = F.expr(f"array({conditions[0][0]})")
    return some.withColumn("__slots", slots)


_STATELESS = ("Project", "Filter", "SubqueryAlias", "EventTimeWatermark")


def is_stateless(frame: DataFrame) -> bool:
    """Whether a DataFrame only reads, projects and filters.

    Below anything else, a condition that Spark pushes down would change what its state holds.
    """

    def check(plan: Any) -> bool:
        if plan.children().isEmpty():
            return True
        inner = [plan.children().apply(i) for i in range(plan.children().size())]
        return plan.nodeName() in _STATELESS and all(map(check, inner))

    return check(frame._jdf.queryExecution().analyzed())


def _raw(spark: SparkSession, given: Input, frame: DataFrame | None, native: bool) -> DataFrame:
    """Tuples as they come: the user's, or penstock's own with the number of their epoch."""
    schema = given.stream.schema
    if frame is not None:
        return frame.select(*(F.col(quoted(n)) for n in schema.names))
    ddl = f"{schema.ddl()}, {EPOCH} bigint"
    return _own_rows(spark, json.dumps(asdict(given.config)), ddl, "native" if native else "raw")


def _own_rows(spark: SparkSession, config: str, ddl: str, what: str) -> DataFrame:
    reader = spark.readStream.format("penstock_rows").option("token", config)
    return reader.option("ddl", ddl).option("what", what).load()


def aggregated(rows: DataFrame, composition: Composition, guard: bool = False) -> DataFrame:
    """Group window rows and compute outputs; on a static DataFrame too (to ask Spark for types)."""
    end_us = TRUE_END if composition.apart else f"(unix_micros(`__end`) - {SHIFT_US})"
    window = {
        "__window_start": F.expr(f"timestamp_micros({end_us} - `__range_us`)"),
        "__window_end": F.expr(f"timestamp_micros({end_us})"),
    }
    if composition.preaggregated:
        keys = [F.col(f"__k{i}") for i in range(len(composition.keys))]
        calls = [F.expr(a.sql).alias(a.name) for a in composition.aggregates]
        calls = calls or [F.expr("count(1)").alias("__alive")]
        ends = ["__end", TRUE_END] if composition.apart else ["__end"]
        constants = [constant_name(i) for i in range(len(composition.constants))]
        calls += [F.max(name).alias(name) for name in constants]
        grouped = rows.groupBy("__slot", *ends, "__range_us", *keys).agg(*calls)
        fixed = [F.col(name) for name in ("__slot", *window)]
        return _outputs(grouped.withColumns(window), fixed, composition, guard)
    keys = [F.expr(k) for k in composition.keys]
    calls = [F.expr(o.sql).alias(f"__o{i}") for i, o in enumerate(composition.outputs)]
    if composition.having is not None:
        calls.append(F.expr(composition.having).alias(_HAVING))
    grouped = rows.withColumns(window).groupBy("__slot", "__end", *window, *keys).agg(*calls)
    if composition.having is not None:
        grouped = grouped.where(_HAVING)
    names = [F.col(f"__o{i}") for i in range(len(composition.outputs))]
    return grouped.select("__slot", *window, *names)


def _outputs(
    rows: DataFrame, fixed: list[Column], composition: Composition, guard: bool
) -> DataFrame:
    """Outputs under internal names: users' names may be anything, theirs are put on at the sink."""
    outputs = [F.expr(o.sql) for o in composition.outputs]
    having = None if composition.having is None else F.expr(composition.having)
    if guard and can_be_guarded(composition):
        return guarded(rows, fixed, outputs, having)
    rows = rows if having is None else rows.where(having)
    return rows.select(*fixed, *(o.alias(f"__o{i}") for i, o in enumerate(outputs)))
