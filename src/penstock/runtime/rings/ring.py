"""A running ring: one StreamingQuery of one composition, and the queries in its slots."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import EngineError
from penstock.plan.catalog import Stream
from penstock.plan.explain import Place
from penstock.plan.specs import Composition
from penstock.runtime.compile import Generation, Input, ring_frame, runs_in_reader
from penstock.runtime.config import StageConfig
from penstock.runtime.derived.progress import is_told_beside, take_up
from penstock.runtime.dispatch import Dispatcher
from penstock.runtime.rings.checkpoints import clear_leftovers
from penstock.runtime.rings.failures import first_cause
from penstock.runtime.rings.guarding import Blame, blamed, can_be_guarded
from penstock.runtime.rings.pacing import Pace
from penstock.runtime.session import ring_settings, scheduled_in
from penstock.runtime.unlogged import errors_unlogged

_START_S = 15.0
_DELIVERED_S = 5.0  # that a stop waits for the results of a micro-batch


@dataclass(frozen=True, slots=True)
class Launch:
    """What a ring is started with; frames: users' DataFrames by the names of streams."""

    spark: SparkSession
    frames: Mapping[str, DataFrame]
    trigger_ms: int
    settings: dict[str, str]
    generation: Generation


class Ring:
    """Starts, watches and stops the StreamingQuery; its slots are data elsewhere."""

    def __init__(
        self,
        id_: str,
        composition: Composition,
        inputs: tuple[Input, ...],
        config: StageConfig,
        dispatcher: Dispatcher,
        checkpoint: str,
        pace: Pace,
        pool: int,
        feeds: Stream | None = None,
    ) -> None:
        self.id = id_
        self.composition = composition
        self.inputs = inputs
        self.dispatcher = dispatcher
        self.pace = pace
        self.pool = pool  # of Spark's scheduler
        self.feeds = feeds  # a derived stream
        self._config = config
        self._checkpoint = checkpoint
        self._query: StreamingQuery | None = None
        self._stopping = False
        self._changing = threading.RLock()  # while one generation follows another
        self._closed = False
        self.guarded = False  # from the next start on
        self.retry_at_s: float | None = None  # when it may start again after it failed in passing
        self.generation = Generation()
        self.planned: Generation | None = None  # what it runs, or is about to
        self._counting = threading.Lock()
        self._counted, self._uncounted = -1, 0  # the last micro-batch told; tuples still to tell
        self._timed = -1  # the last one whose duration was told

    def renew(self, launch: Launch, stopped: Callable[[], None]) -> None:
        """Go on from the checkpoint with another plan; a micro-batch cut short is run again.

        If Spark refuses the plan, the ring goes on with the one it had.
        """
        with self._changing:
            if self._closed:
                return
            self._stop()
            with self._counting:
                self._count()
            stopped()
            try:
                self.start(launch)
            except Exception:
                self.start(replace(launch, generation=self.generation))
                raise

    def start(self, launch: Launch) -> None:
        """Start from the checkpoint."""
        with self._changing:  # whoever closes it meanwhile has a query to stop
            if not self._closed:
                self._start(launch)

    def _start(self, launch: Launch) -> None:
        frames, generation = launch.frames, launch.generation
        own = [frames[name] for i in self.inputs if (name := i.stream.name.lower()) in frames]
        session = own[0].sparkSession if own else launch.spark
        # where the engine makes the pauses, Spark asks as soon as it has nothing to do
        interval_ms = launch.trigger_ms if self.pace.blind else 0
        clear_leftovers(Path(self._checkpoint))
        take_up(Path(self._checkpoint))
        settings = launch.settings | generation.settings
        scheduled = scheduled_in(session, f"penstock-{self.pool}")
        with ring_settings(session, settings), scheduled, errors_unlogged():
            beside = is_told_beside(Path(self._checkpoint))
            results = ring_frame(
                session, self.composition, self.inputs, self._config, frames, generation, beside
            )
            self.dispatcher.stopping.clear()
            self._query = (
                results.writeStream.queryName(f"penstock-{self.id}")
                .outputMode("append")
                .option("checkpointLocation", self._checkpoint)
                .trigger(processingTime=f"{interval_ms} milliseconds")
                .foreachBatch(self.dispatcher)
                .start()
            )
            self._stopping, self.retry_at_s = False, None
            self._counted = -1
            self.generation = generation

    def await_start(self) -> None:
        """Wait, not for long, until the sources' planners run.

        Spark gives each of them only 10 s to come up, so many must not start at once.
        """
        deadline = time.monotonic() + _START_S
        query = self._query
        while query is not None and query.isActive and time.monotonic() < deadline:
            if not query.status["message"].startswith("Initializing"):
                return
            time.sleep(0.05)

    @property
    def stream(self) -> Stream:
        """The stream, or the first one of a join."""
        return self.inputs[0].stream

    @property
    def composition_text(self) -> str:
        return self._config.composition

    @property
    def parts(self) -> list[str]:
        """What has epochs of its own: the ring, or the inputs of a join."""
        return [i.config.ring for i in self.inputs]

    @property
    def place(self) -> Place:
        """Where the queries' predicates are evaluated."""
        if self.generation.native is not None:
            return "spark"
        in_reader = all(runs_in_reader(i.composition, i.stream) for i in self.inputs)
        return "reader" if in_reader else "stage"

    @property
    def started(self) -> bool:
        return self._query is not None

    @property
    def active(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    @property
    def stranded(self) -> bool:
        """Whether it was stopped to be started again; if nobody is about to, it never will be."""
        return self._stopping and self.started and not self._closed and not self.active

    def failure(self) -> str | None:
        """Why the ring stopped by itself, in one line; None while it runs."""
        if self._query is None or self._query.isActive or self._stopping:
            return None
        error = self._exception()
        return "it was stopped from outside" if error is None else first_cause(str(error))

    def error(self) -> str:
        """All that Spark said when the ring failed; empty if it has not."""
        if self._query is None or self._query.isActive:
            return ""
        return str(self._exception() or "")

    def _exception(self) -> Exception | None:
        with errors_unlogged():  # each look makes it anew
            return None if self._query is None else self._query.exception()

    def guard(self) -> bool:
        """After a failure: let the next start tell which queries' outputs fail, and close those.

        False if that cannot be, or did not help. A derived stream must not miss tuples.
        """
        failure = self.failure()
        if failure is None or self._exception() is None:
            return False
        if self.guarded or self.feeds is not None or not can_be_guarded(self.composition):
            return False
        self.guarded = True
        self.dispatcher.blame = Blame(blamed(self.composition), failure)
        return True

    def progress(self, tuples: int | None) -> dict[str, Any]:
        """Figures of the last micro-batch, which read so many tuples; None: as Spark counts them.

        Where the stage runs in the reader, Spark sees only what it leaves of the tuples.
        """
        last = None if self._query is None else self._query.lastProgress
        if last is None:
            return {}
        took_ms = self.batch_ms(last)
        if tuples is None:
            tuples = last["numInputRows"]
        if "addBatch" not in last["durationMs"]:  # Spark only looked if there is anything to do
            tuples = 0
        return {
            "batch": last["batchId"],
            "batch_ms": took_ms,
            "rows_per_s": round(1000 * tuples / max(1, took_ms), 1),
            "state_rows": sum(s["numRowsTotal"] for s in last["stateOperators"]),
            "state_bytes": sum(s["memoryUsedBytes"] for s in last["stateOperators"]),
        }

    def take_durations(self) -> list[float]:
        """Seconds of each micro-batch that ended since the last call."""
        found = []
        for progress in [] if self._query is None else self._query.recentProgress:
            if progress["batchId"] > self._timed and "addBatch" in progress["durationMs"]:
                self._timed = progress["batchId"]
                found.append(self.batch_ms(progress) / 1000)
        return found

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop between two micro-batches; whoever is in here starts it again.

        What was delivered is not delivered again: not to the sinks of fewer queries, for it would
        take the place of what the others had.
        """
        with self._changing:
            self._stop(committed=True)
            with self._counting:
                self._count()
            yield

    def batch_ms(self, progress: Mapping[str, Any]) -> int:
        """How long a micro-batch took, without the pause before it, which Spark counts in."""
        took = progress["durationMs"]
        asking_ms = took.get("latestOffset", 0)
        return round(took.get("triggerExecution", 0) - max(0.0, asking_ms - self.pace.looked_ms))

    def take_count(self) -> int:
        """Tuples of micro-batches that ended since the last call, as Spark counts them."""
        with self._counting:
            self._count()
            rows, self._uncounted = self._uncounted, 0
        return rows

    def _count(self) -> None:
        for progress in [] if self._query is None else self._query.recentProgress:
            # while it is idle, Spark reports the next micro-batch before it has run
            if progress["batchId"] > self._counted and progress["numInputRows"]:
                self._counted = progress["batchId"]
                self._uncounted += progress["numInputRows"]

    def await_idle(self, deadline: float) -> None:
        """Wait until Spark has found nothing left to do; raise if the ring fails or time is up."""
        while True:
            with self._changing:
                query = self._query
            if query is None:
                hint = "leave engine.together() first"
                raise EngineError(f"ring {self.id} has not started", hint)
            with self.pace.hurried() as waited:
                problem = self._process_all(query, deadline)
                if problem is None and waited and (self.pace.blind or len(self.inputs) > 1):
                    # other sources may have been asked before the wait: what has come since then
                    # is only found when Spark asks again
                    problem = self._process_all(query, deadline)
            with self._changing:
                if query is self._query:
                    break
        if problem is None and self.stranded:
            problem = "it stands still"
        if problem is not None:
            raise EngineError(f"ring {self.id} failed: {problem}")

    def _process_all(self, query: StreamingQuery, deadline: float) -> str | None:
        done = threading.Event()
        problem: list[str] = []

        def wait() -> None:
            try:
                with errors_unlogged():
                    query.processAllAvailable()
            except StreamingQueryException as error:
                problem.append(first_cause(str(error)))
            except Exception as error:  # the JVM went away under us
                problem.append(str(error).split("\n")[0])
            finally:
                done.set()

        threading.Thread(target=wait, name=f"penstock-idle-{self.id}", daemon=True).start()
        if not done.wait(max(0.0, deadline - time.monotonic())):
            raise EngineError(f"ring {self.id} is still busy", "give await_idle a longer timeout")
        return problem[0] if problem else None

    def pause(self) -> None:
        """Stop, to be started again."""
        with self._changing:
            self._stop()

    def close(self) -> None:
        """Stop for good."""
        self._closed = True  # a start that has not begun does not
        with self._changing:
            self._stop()

    def _stop(self, committed: bool = False) -> None:
        query, self._stopping = self._query, True
        if query is None:
            return
        with self.dispatcher.between_batches(_DELIVERED_S) as held, self.pace.hurried():
            if committed and not (held and self._is_committed(query)):
                self._stopping = False
                self.dispatcher.stopping.clear()
                raise EngineError(f"ring {self.id} cannot stop between two micro-batches now")
            query.stop()

    def _is_committed(self, query: StreamingQuery) -> bool:
        """Whether Spark has noted, by now or soon, that the last delivered micro-batch is done."""
        note = Path(self._checkpoint, "commits", str(self.dispatcher.delivered))
        deadline = time.monotonic() + _DELIVERED_S
        while not note.exists() and query.isActive and time.monotonic() < deadline:
            time.sleep(0.01)
        return note.exists()
