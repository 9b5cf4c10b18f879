"""penstock's streaming data sources for Spark: rows with the ring's stage inside, and punctuations.

Spark calls `latestOffset` and `partitions` in a planner process of their own and `read` in tasks;
all of them ask the epoch service. Offsets are epoch numbers (rows) and event times (punctuations).
The kernels are imported in the tasks only: a planner process must start fast.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.control.punctuation import NEVER_US
from penstock.plan.codec import composition_from, stream_from
from penstock.runtime.config import EPOCH, ORIGIN, SHIFT_US, StageConfig, owner_of
from penstock.runtime.service import ask

if TYPE_CHECKING:
    from penstock.runtime.report import TaskReport
    from penstock.runtime.stage import Stage


def config_of(options: Any) -> StageConfig:
    return StageConfig(**json.loads(options["token"]))  # the name makes Spark hide it in plans


class RowReader(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self._config = config_of(options)
        self._what = options["what"]
        self._composition = composition_from(self._config.composition)
        self._follows = self._composition.following is not None
        self._punctuates = self._composition.kind == "window" and self._what == "stage"

    def initialOffset(self) -> dict[str, Any]:
        return {"epoch": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        message = {"ring": self._config.ring, "start": start["epoch"]}
        epoch = ask(self._config.address, "plan", message)
        if epoch == start["epoch"]:
            return start
        _, number = owner_of(self._config.ring)
        # the order of inputs in Spark's log is not theirs in the join
        return {"epoch": epoch} if number is None else {"epoch": epoch, "input": number}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        found = []
        for number in range(start["epoch"] + 1, end["epoch"] + 1):
            message = {"ring": self._config.ring, "number": number}
            epoch = ask(self._config.address, "epoch", message)
            read = epoch.pop("pieces")
            if not read and (self._follows or self._punctuates):
                read = [[]]  # the punctuation, without tuples
            for part, pieces in enumerate(read):
                found.append(InputPartition((epoch, part, pieces)))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from penstock.runtime.report import TaskReport
        from penstock.runtime.sources.beside import Beside
        from penstock.runtime.sources.reading import open_pieces
        from penstock.runtime.stages import stage_for

        epoch, part, pieces = partition.value
        report = TaskReport()
        if self._what != "stage":
            yield from self._read_raw(epoch, part, pieces, report)
            return
        if self._punctuates and part == 0:
            yield self._punctuation(epoch["punctuation_us"])
            if not pieces:
                return
        stage = stage_for(self._config, epoch["version"])
        shared = epoch["shared"]
        batches = open_pieces(self._config, pieces, stage.columns(), report.beside, shared)

        def reread(names: list[str]) -> Iterator[pa.RecordBatch]:
            return open_pieces(self._config, pieces, names, Beside(), shared)

        yield from report.running(stage.run(report.reading(batches), epoch, report, reread))
        report.send(self._config, epoch["number"], part)

    def _punctuation(self, punctuation_us: int) -> pa.RecordBatch:
        from penstock.runtime.window_rows import punctuation_row

        stream = stream_from(self._config.stream)
        return punctuation_row(self._composition, stream, punctuation_us)

    def _read_raw(
        self, epoch: dict[str, Any], part: int, pieces: list[Any], report: TaskReport
    ) -> Iterator[pa.RecordBatch]:
        """All tuples, numbered. What was seen of them the stage reports, if there is one."""
        from penstock.kernels.delays import merge_facts
        from penstock.runtime.sources.reading import open_pieces
        from penstock.runtime.stage import progress_of

        native, stream = self._what == "native", stream_from(self._config.stream)
        for batch in open_pieces(self._config, pieces, None, report.beside, epoch["shared"]):
            if native:
                seen = progress_of(batch, stream, epoch, report)
                report.facts = merge_facts(report.facts, seen)
            number = pa.array([epoch["number"]] * batch.num_rows, pa.int64())
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, number], names=[*batch.schema.names, EPOCH]
            )
        if native:
            report.send(self._config, epoch["number"], part)
        elif report.beside.told:  # the stage reports under the parts from 0 on
            report.send(self._config, epoch["number"], -1 - part)


class InputReader(DataSourceStreamReader):
    """Several streams that are joined; an offset is the epoch of each.

    While none has anything new, another round lets the join go on with tuples that wait.
    """

    def __init__(self, options: Any) -> None:
        config, *inputs = json.loads(options["token"])
        self._config = StageConfig(**config)
        self._readers = [RowReader({"token": json.dumps(i), "what": "stage"}) for i in inputs]

    def initialOffset(self) -> dict[str, Any]:
        return {"epochs": [reader.initialOffset() for reader in self._readers], "round": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        before = zip(self._readers, start["epochs"], strict=True)
        epochs = [reader.latestOffset(epoch, limit) for reader, epoch in before]
        round_ = start["round"]
        if epochs == start["epochs"]:
            message = {"ring": self._config.ring, "round": round_}
            round_ = ask(self._config.address, "round", message)
        return {"epochs": epochs, "round": round_}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """As many tasks as the input with the most parts has: a task costs more than it reads."""
        tasks: dict[int, list[tuple[int, InputPartition]]] = {}
        for number, reader in enumerate(self._readers):
            parts = reader.partitions(start["epochs"][number], end["epochs"][number])
            for task, part in enumerate(parts):
                tasks.setdefault(task, []).append((number, part))
        rounds = [InputPartition(None)] if end["round"] > start["round"] else []
        return [*rounds, *(InputPartition(task) for task in tasks.values())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            from penstock.runtime.joining.input_stage import round_rows

            yield round_rows()
            return
        for number, part in partition.value:
            yield from self._readers[number].read(part)


class InputSource(DataSource):
    """The inputs of a join that penstock reads itself, after their stages."""

    @classmethod
    def name(cls) -> str:
        return "penstock_inputs"

    def schema(self) -> str:
        return self.options["ddl"]

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return InputReader(self.options)


class RowSource(DataSource):
    """Tuples of a stream that penstock reads itself, after (or, raw, before) the ring's stage."""

    @classmethod
    def name(cls) -> str:
        return "penstock_rows"

    def schema(self) -> str:
        return self.options["ddl"]

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return RowReader(self.options)


class PunctuationReader(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self._config = config_of(options)

    def initialOffset(self) -> dict[str, Any]:
        return {"punctuation_us": NEVER_US}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        reached = ask(self._config.address, "punctuation", {"ring": self._config.ring})
        return {"punctuation_us": max(reached, start["punctuation_us"])}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        moved = end["punctuation_us"] > start["punctuation_us"]
        return [InputPartition(end["punctuation_us"])] if moved else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        end = pa.array([partition.value + SHIFT_US], pa.timestamp("us", tz="UTC"))
        yield pa.RecordBatch.from_arrays([end], names=["__end"])


class PunctuationSource(DataSource):
    """One row per change: the event time up to which the stream is complete."""

    @classmethod
    def name(cls) -> str:
        return "penstock_punctuation"

    def schema(self) -> str:
        return "__end timestamp"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return PunctuationReader(self.options)


def register_sources(spark: SparkSession) -> None:
    """Make the sources known to a session; each has its own list."""
    spark.dataSource.register(RowSource)
    spark.dataSource.register(InputSource)
    spark.dataSource.register(PunctuationSource)


_PLACED = 1 << 20  # parts from here on are of tasks that give tuples their columns of places


def place_in_map(config_text: str, numbered: bool) -> Any:
    """As a `mapInArrow` function: tuples with their columns of places, before Spark derives any."""

    def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if (first := next(batches, None)) is None:
            return
        config, stage, epoch, part = _begin(config_text, numbered, first)
        report, first_row = _new_report(), 0
        for batch in stage.pieces(chain([first], batches)):
            stage.watch(batch, epoch, report)
            assert stage.placing is not None
            placed = stage.placing.place(batch, {name for name, _ in stage.composition.placed})
            report.unplaced += placed.unplaced
            yield placed.batch.append_column(ORIGIN, pa.array(placed.origins + first_row))
            first_row += batch.num_rows
        report.send(config, epoch["number"], _PLACED + part)

    return places


def run_in_map(config_text: str, numbered: bool) -> Any:
    """The stage as a `mapInArrow` function, for DataFrames that Spark itself reads or derives."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if (first := next(batches, None)) is None:
            return
        config, stage, epoch, part = _begin(config_text, numbered, first)
        report = _new_report()
        for batch in chain([first], batches):
            yield from report.running(stage.run(iter([batch]), epoch, report, _again(batch)))
        report.send(config, epoch["number"], part)

    return run


def _begin(
    config_text: str, numbered: bool, first: pa.RecordBatch
) -> tuple[StageConfig, Stage, dict[str, Any], int]:
    """What a task needs for its tuples, of which these are the first; and the task's number."""
    from pyspark import TaskContext

    from penstock.runtime.stages import stage_for

    config = StageConfig(**json.loads(config_text))
    context = TaskContext.get()
    assert context is not None
    if numbered:
        number = first.column(EPOCH)[0].as_py()
    else:
        number = int(str(context.getLocalProperty("streaming.sql.batchId")))
    epoch = ask(config.address, "epoch", {"ring": config.ring, "number": number})
    return config, stage_for(config, epoch["version"]), epoch, context.partitionId()


def _new_report() -> TaskReport:
    from penstock.runtime.report import TaskReport

    return TaskReport()


def _again(batch: pa.RecordBatch) -> Callable[[list[str]], Iterator[pa.RecordBatch]]:
    return lambda _: iter([batch])
