"""Queues lost with their node's directory: made again, filled again, read on; without Spark."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from tests.runtime.collected import Collected

from penstock.errors import EngineError
from penstock.plan.catalog import Stream
from penstock.plan.codec import dumps
from penstock.plan.specs import Composition
from penstock.runtime.compile import Input
from penstock.runtime.config import StageConfig
from penstock.runtime.derived.definition import maker_of
from penstock.runtime.derived.exchange import Exchange
from penstock.runtime.derived.restoring import Restorer
from penstock.runtime.registry import ALONE, EpochRow, Registry, RingRow
from penstock.runtime.sinks.spec import STREAM, SinkSpec
from penstock.runtime.workspace import Workspace
from penstock.schema import Schema

HOT = Stream("Hot", Schema.of("id INT"), "derived", options=(("capacity", 1 << 20),))
MAKER, READER = "select-1", "select-2"


@dataclass
class StoppedRing:
    """What is asked of a ring here."""

    id: str = MAKER
    paused: bool = False
    inputs: tuple[Input, ...] = ()

    @property
    def parts(self) -> list[str]:
        return [self.id]

    def pause(self) -> None:
        self.paused = True


class Pipeline:
    """A maker that has run some micro-batches, and its reader, on the books of a workspace."""

    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace(folder)
        self.registry = Registry(self.workspace.catalog)
        self.registry.put_stream(HOT)
        for ring, stream in ((MAKER, "S"), (READER, "Hot")):
            composition = dumps(Composition("select", stream, (), (), ()))
            self.registry.add_ring(RingRow(ring, stream, composition, "", "running", None, ALONE))
        self.registry.add_query(maker_of("Hot"), "", MAKER, SinkSpec(STREAM, "Hot").dumps())
        self.open()
        self.exchange.create(HOT)

    def open(self) -> None:
        self.exchange = Exchange(self.workspace, self.registry, "127.0.0.1", lambda: "")
        self.restorer = Restorer(self.workspace, self.registry, self.exchange)

    def lose(self) -> None:
        self.exchange.close()
        shutil.rmtree(self.workspace.exchange)
        self.open()

    def run(self, batches: range) -> None:
        """Micro-batches that read an epoch each and make a tuple each."""
        feed = self.exchange.feed(HOT, lambda _: None, None)
        for batch in batches:
            rows = Collected(pa.table({"id": pa.array([batch], pa.int32())}))
            feed.pass_on(rows, ("id",), None, MAKER, batch, threading.Event(), False)
            for log in ("offsets", "commits"):
                path = self.workspace.checkpoint(MAKER) / log / str(batch)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f'v1\n{{}}\n{{"epoch": {batch + 1}}}')
            if self.registry.epoch(MAKER, batch + 1) is None:
                work = json.dumps({"through": 10 * (batch + 1)})
                self.registry.add_epoch(EpochRow(MAKER, batch + 1, 1, 0, None, work), [])

    def close(self) -> None:
        self.exchange.close()
        self.registry.close()
        self.workspace.close()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path / "w")
    yield made
    made.close()


def test_a_maker_goes_back_to_what_all_readers_are_done_with(pipeline: Pipeline) -> None:
    reader = pipeline.exchange.planner(HOT, READER, "latest")
    reader.prepare()
    pipeline.run(range(2))
    work = reader.next_work({}, set(), 1)
    assert work is not None
    reader.next_work(work.body, set(), 1)  # the first two are safe
    assert pipeline.restorer.needed_from(MAKER, HOT) is None
    pipeline.run(range(2, 5))
    assert pipeline.restorer.needed_from(MAKER, HOT) == 20
    pipeline.lose()
    assert pipeline.exchange.is_lost(HOT)
    ring = StoppedRing()
    assert pipeline.restorer.restore([HOT], {MAKER: ring}) == [ring]
    assert ring.paused
    commits = pipeline.workspace.checkpoint(MAKER) / "commits"
    assert sorted(path.name for path in commits.iterdir()) == ["0", "1"]
    reader = pipeline.exchange.planner(HOT, READER, "latest")
    assert reader.next_work(work.body, set(), 1) is None  # nothing yet, and nothing twice
    pipeline.run(range(2, 6))
    again = reader.next_work(work.body, set(), 1)
    assert again is not None
    assert again.body["pieces"] == [[{"first": 4, "end": 12}]]
    assert pipeline.restorer.restore([HOT], {MAKER: ring}) == []


def test_where_nobody_misses_anything_the_maker_just_goes_on(pipeline: Pipeline) -> None:
    pipeline.run(range(3))  # without readers nothing is kept
    pipeline.lose()
    pipeline.restorer.restore([HOT], {MAKER: StoppedRing()})
    assert (pipeline.workspace.checkpoint(MAKER) / "commits" / "2").exists()
    assert pipeline.exchange.describe(HOT)["end"] == 6


@pytest.mark.parametrize(
    ("batches", "planned", "refused"), [(3, 2, True), (1, 2, False), (3, 0, False)]
)
def test_what_spark_would_cut_otherwise_is_not_made_again_for_readers_that_are_ahead(
    pipeline: Pipeline, batches: int, planned: int, refused: bool
) -> None:
    pipeline.exchange.planner(HOT, READER, "latest").prepare()
    pipeline.run(range(batches))
    work = json.dumps({"through": planned})
    pipeline.registry.add_epoch(EpochRow(READER, 1, 1, 0, None, work), [])
    pipeline.lose()
    frame = Stream("S", Schema.of("id INT"), "dataframe")
    given = Input(
        Composition("select", "S", (), (), ()), frame, StageConfig(MAKER, "", "", "", 0, "")
    )
    ring = StoppedRing(inputs=(given,))
    with pytest.raises(EngineError, match="cannot be made again") if refused else nullcontext():
        pipeline.restorer.restore([HOT], {MAKER: ring})
    assert pipeline.exchange.is_lost(HOT) == refused


def test_what_is_too_long_ago_stays_lost_with_a_clear_error(pipeline: Pipeline) -> None:
    pipeline.exchange.planner(HOT, READER, "latest").prepare()
    pipeline.run(range(210))  # the reader never reads, and epochs are not kept for ever
    pipeline.lose()
    for _ in range(2):
        with pytest.raises(EngineError, match="too long ago"):
            pipeline.restorer.restore([HOT], {MAKER: StoppedRing()})
    assert pipeline.exchange.is_lost(HOT)
