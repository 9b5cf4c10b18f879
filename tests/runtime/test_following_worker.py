"""What the stage and the operator of an EVENTS ring do, without Spark, however a stream is cut."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.plan.taxis import fold, type_of
from tests.runtime.test_following import FOLLOWED, TAXIS, ZONES, Row, taxis, twin

from penstock.control.punctuation import NEVER_US
from penstock.kernels.delays import UNKNOWN_US
from penstock.language import parse
from penstock.language.ast import BareSelect
from penstock.plan.bind import bind
from penstock.plan.catalog import Catalog, Stream
from penstock.plan.codec import dumps
from penstock.plan.compose import compose
from penstock.plan.specs import SlotSpec
from penstock.runtime import region_tables, versions
from penstock.runtime.config import StageConfig
from penstock.runtime.following.worker import FollowingWorker
from penstock.runtime.packing import from_ipc
from penstock.runtime.region_tables import load_regions
from penstock.runtime.report import TaskReport
from penstock.runtime.stages import stage_for
from penstock.schema import Schema

STREAM = Stream("Taxis", Schema.of(TAXIS), "file", "ts")
TEXT = f"SELECT id, name, event, time, stayed_ms FROM {FOLLOWED}"


class Ring:
    """A ring of one query, fed by hand."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str = "") -> None:
        lines = [f'{name},"{area.wkt}"' for name, area in ZONES.items()]
        (tmp_path / "z.csv").write_text("\n".join(["name,wkt", *lines]))
        regions, body = load_regions("Zones", str(tmp_path / "z.csv"), {})
        (statement,) = parse(TEXT + where)
        assert isinstance(statement, BareSelect)
        bound = bind(statement.select, Catalog.of([STREAM], [regions]))
        composed = compose(bound, type_of, fold)
        answers = {
            "regions": b64encode(body).decode(),
            "slots": {
                "added": [dumps(SlotSpec(7, composed.terms))],
                "dropped": [],
                "anew": False,
            },
        }
        for module in (region_tables, versions):
            monkeypatch.setattr(module, "ask", lambda _, call, __: answers[call])
        config = StageConfig(str(tmp_path), dumps(composed.composition), dumps(STREAM), "", 0, "")
        self.stage = stage_for(config, 1)
        self.report = TaskReport()
        self._config = json.dumps(asdict(config))
        self._states: dict[int, Any] = {}
        self.events: list[tuple[Any, ...]] = []

    def feed(self, batches: list[list[Row]], punctuation_us: int) -> None:
        """One micro-batch; each lane's state goes through a new worker."""
        epoch = {"version": 1, "punctuation_us": punctuation_us, "clock_us": UNKNOWN_US}
        epoch |= {"trust_us": 86_400_000_000, "newest": 0, "sources": None}
        shipped: dict[int, list[Row]] = {}
        for batch in batches:
            tuples = iter([self._batch(batch)])
            for rows in self.stage.run(tuples, epoch, self.report, lambda _, b=batch: iter([])):
                for row in rows.to_pylist():
                    shipped.setdefault(row["__lane"], []).append(row)
        for lane, rows in shipped.items():
            worker = FollowingWorker(self._config)
            self._states[lane], blobs = worker.follow(self._states.get(lane), rows)
            for blob in blobs:
                found = from_ipc(blob).to_pylist()
                assert all(row.pop("__slots") == [7] for row in found)
                self.events += [_event(row) for row in found]

    def _batch(self, rows: list[Row]) -> pa.RecordBatch:
        columns = {f.name: [row.get(f.name) for row in rows] for f in STREAM.schema.fields}
        columns["ts"] = [None if t is None else t * 1_000_000 for t in columns["ts"]]
        arrays = [pa.array(v).cast(t) for v, t in zip(columns.values(), _TYPES, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))


_TYPES = STREAM.schema.arrow().types


def _event(row: Row) -> tuple[Any, ...]:
    at_us = round(row["time"].timestamp() * 1_000_000)
    return row["id"], row["name"], row["event"], at_us, row["stayed_ms"] * 1000


@pytest.mark.parametrize("seed", range(4))
def test_events_do_not_depend_on_how_the_stream_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    ring, draw = Ring(tmp_path, monkeypatch), random.Random(seed)
    rows = taxis(400, seed)
    start, closed_us = 0, NEVER_US
    while start < len(rows):
        end = start + draw.randrange(1, 120)
        left = min(row["ts"] for row in rows[start:])
        ring.feed([rows[start:end:2], rows[start + 1 : end : 2]], closed_us)
        start = end
        closed_us = max(closed_us, draw.choice([left, left - 3]) * 1_000_000)
    ring.feed([[]], 10**15)
    assert Counter(ring.events) == twin(rows)
    assert ring.report.unplaced == 1
    assert ring.report.late == {}


def test_what_comes_behind_the_punctuation_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Ring(tmp_path, monkeypatch, " WHERE event = 'ENTER'")
    ring.feed([[{"id": "a", "lon": 0.5, "lat": 1.0, "ts": 10}]], 5_000_000)
    assert ring.events == []
    ring.feed([[{"id": "a", "lon": 9.0, "lat": 9.0, "ts": 10}]], 10_000_001)
    assert ring.events == [("a", "west", "ENTER", 10_000_000, 0)]
    assert (ring.report.late, ring.report.lost) == ({7: 1}, {7: 1})
    ring.feed([[{"id": "a", "lon": 9.0, "lat": 9.0, "ts": None}]], 10**15)
    assert len(ring.events) == 1
