"""Figures as plain data, as tables and as text, of rings that are open and of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.control.disorder import Disorder
from penstock.control.ordering import OrderFacts
from penstock.control.ordering import plain as plain_order
from penstock.control.punctuation import NEVER_US
from penstock.kernels.delays import DelayFacts, plain
from penstock.kernels.sketch import BUCKETS, bucket_of
from penstock.plan.catalog import Stream
from penstock.plan.codec import dumps
from penstock.plan.specs import Composition, Output, SlotSpec, Term, WindowSpec
from penstock.runtime.analyze import analyze, disorder_lines, order_lines
from penstock.runtime.epochs import EpochKeeper, RingEpochs
from penstock.runtime.metrics import metrics_of
from penstock.runtime.query import QueryStatus
from penstock.runtime.registry import QueryRow, Registry, RingRow
from penstock.runtime.rings.quarantine import Care
from penstock.runtime.show import streams_table
from penstock.runtime.streams import rules_of
from penstock.schema import Schema

SECOND = 1_000_000
STREAM = Stream("S", Schema.of("id INT, ts TIMESTAMP"), "file", "ts")
WINDOW = Composition("window", "S", (), (), (Output("n", "__a0"),), "ts", preaggregated=True)
SELECT = Composition("select", "S", (), ("id",), (Output("id", "id"),), "ts")


class World:
    """A registry with rings; some of them open, as a ring manager would have them."""

    def __init__(self, path: Path) -> None:
        self.registry = Registry(path / "catalog.sqlite")
        self.keeper = EpochKeeper(self.registry, lambda *_: None, 2, lambda: 0)
        self.opened: set[str] = set()

    def ring(self, name: str, composition: Composition, stream: Stream = STREAM) -> None:
        self.registry.put_stream(stream)
        row = RingRow(name, stream.name, dumps(composition), "{}", "running", None, 0)
        self.registry.add_ring(row)
        rules = rules_of(stream, composition)
        state = RingEpochs(name, composition, None, Disorder(rules), stream.trust_us, hold=False)
        self.keeper.open(state)
        self.opened.add(name)

    def close(self, ring: str) -> None:
        self.keeper.close(ring)
        self.opened.remove(ring)

    def care(self, query: QueryRow) -> Care:
        return Care()

    def query(self, name: str, ring: str) -> int:
        slot = self.registry.add_query(name, "", ring, "{}")
        self.registry.publish(slot, dumps(SlotSpec(slot, (Term(()),), WindowSpec(10, 10))))
        return slot

    def see(self, ring: str, facts: DelayFacts, late: dict[int, int] | None = None,
            sources: dict[str, DelayFacts] | None = None) -> None:  # fmt: skip
        number = self.keeper.state(ring).through + 1
        message = {
            "ring": ring,
            "number": number,
            "part": 0,
            "facts": plain(facts),
            "sources": {k: plain(f) for k, f in (sources or {}).items()},
            "order": plain_order(OrderFacts()),
            "late": {str(slot): n for slot, n in (late or {}).items()},
            "lost": {},
            "unplaced": 0,
            "punctuation_us": NEVER_US,
            "pieces": 0,
        }
        self.keeper.calls()["report"](message, [])
        self.keeper.absorb(ring)
        self.keeper.punctuation(ring)

    def metrics(self) -> dict[str, Any]:
        return metrics_of(self.registry, self)

    # what metrics ask of a ring manager

    def describe(self) -> list[dict[str, Any]]:
        return [{"ring": "w", "state": "running", "rows_per_s": float("nan")}]

    def disorder(self, ring: str) -> dict[str, Any]:
        return self.keeper.metrics(ring) or {}

    def is_open(self, ring: str) -> bool:
        return ring in self.opened


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.registry.close()


def facts(delays_us: dict[int, int], clock_us: int = 100 * SECOND, **more: int) -> DelayFacts:
    """Facts of tuples with these delays (and how many have each)."""
    counts = np.zeros(BUCKETS, np.int64)
    for delay_us, n in delays_us.items():
        counts[bucket_of(delay_us)] += n
    event_us = clock_us - min(delays_us)
    implausible = more.get("ahead", 0) + more.get("behind", 0)
    return DelayFacts(
        sum(delays_us.values()) + implausible,
        clock_us=clock_us,
        first_clock_us=clock_us,
        event_us=event_us,
        last_event_us=event_us,
        max_delay_us=max(delays_us),
        delays=counts,
        **more,
    )


def shown(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    columns, rows = streams_table([STREAM], metrics)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_metrics_are_plain_data_and_times_are_whole_microseconds(world: World) -> None:
    world.ring("w", replace(WINDOW, drop_ratio=0.01))
    slot = world.query("q", "w")
    world.see("w", facts({0: 990, 5 * SECOND: 10}, below=4, untimed=2, ahead=1), late={slot: 3})
    metrics = json.loads(json.dumps(world.metrics(), allow_nan=False))
    assert metrics["queries"] == {
        "q": {"state": "running", "ring": "w", "rows": 0, "late": 3, "lost": 0, "cut": 0}
    }
    assert metrics["rings"] == [{"ring": "w", "state": "running", "rows_per_s": None}]
    stream = metrics["streams"]["S"]
    [ring] = stream.pop("rings")
    assert stream == {"queries": 1, "rows": 1003, "late": 3, "lost": 0, "bad": 0, "unplaced": 0}
    assert (ring["ring"], ring["estimator"], ring["target"]) == ("w", "quantile", 0.01)
    assert (ring["below"], ring["ratio"]) == (4, 0.004)
    assert (ring["per"], ring["apart"], ring["sources"]) == (None, False, {})
    times = {k: v for k, v in ring.items() if k.endswith("_us")}
    assert set(times) >= {"delay_p50_us", "buffer_us", "punctuation_us", "clock_us"}
    assert all(isinstance(v, int) for v in times.values())
    assert ring["delay_max_us"] == 5 * SECOND


def test_a_ring_that_is_not_open_shows_what_it_last_knew(world: World) -> None:
    world.ring("w", replace(WINDOW, drop_ratio=0.01))
    world.query("q", "w")
    world.see("w", facts({SECOND: 1000}, below=7))
    before = world.metrics()
    world.close("w")
    after = world.metrics()
    assert after["streams"] == before["streams"]
    assert after["streams"]["S"]["rings"][0]["punctuation_us"] is not None
    assert after["queries"]["q"]["state"] == "waiting"


def test_only_window_rings_that_are_not_retired_are_judged(world: World) -> None:
    world.ring("s", SELECT)
    world.ring("old", WINDOW)
    world.see("old", facts({0: 50}))
    world.registry.set_ring_state("old", "retired")
    world.close("old")
    world.see("s", DelayFacts(20, clock_us=SECOND, event_us=SECOND, last_event_us=SECOND))
    world.query("q", "s")
    stream = world.metrics()["streams"]["S"]
    assert (stream["rings"], stream["rows"], stream["queries"]) == ([], 50, 1)


def test_a_stream_that_takes_a_dropped_ones_name_counts_anew(world: World) -> None:
    world.ring("w", WINDOW)
    slot = world.query("q", "w")
    world.see("w", facts({0: 50}), late={slot: 9})
    world.registry.drop_query(slot)
    world.registry.set_ring_state("w", "retired")
    world.registry.drop_stream("S")
    world.registry.put_stream(STREAM)
    stream = world.metrics()["streams"]["S"]
    assert (stream["rows"], stream["late"], stream["queries"]) == (0, 0, 0)


def test_readers_are_those_of_the_stream_and_of_its_companions(world: World) -> None:
    world.ring("a", SELECT, replace(STREAM, name="A_b"))
    world.ring("late", replace(SELECT, stream="a_B.late"), replace(STREAM, name="a_B.late"))
    world.ring("other", SELECT, replace(STREAM, name="Axb.late"))
    for ring in ("a", "late", "other"):
        world.query(f"q_{ring}", ring)
    assert world.registry.readers_of("a_b") == ["q_a", "q_late"]


def test_a_stream_has_one_line_per_window_ring_and_one_without_any(world: World) -> None:
    world.registry.put_stream(STREAM)
    [line] = shown(world.metrics())
    assert (line["stream"], line["rows"], line["estimator"], line["odd"]) == ("S", 0, None, None)
    world.ring("s", SELECT)
    world.ring("w", replace(WINDOW, drop_ratio=0.05))
    world.see("w", facts({1_200_000: 9_700, 340_000: 300}, below=97, untimed=1, ahead=2, behind=3))
    [line] = shown(world.metrics())
    assert (line["estimator"], line["target"], line["ratio"]) == ("quantile", "5%", "0.97%")
    assert (line["recent"], line["odd"]) == ("0.97%", 6)
    assert (line["delay_p50"], line["delay_max"], line["buffer"]) == ("1.2 s", "1.2 s", "1.2 s")
    assert line["punctuation"].startswith("1970-01-01 00:01:38")
    world.ring("x", WINDOW)
    assert [r["estimator"] for r in shown(world.metrics())] == ["quantile", "max"]
    assert {r["stream"] for r in shown(world.metrics())} == {"S"}


def test_where_sources_close_on_their_own_the_buffer_is_that_of_the_slowest(world: World) -> None:
    world.ring("w", replace(WINDOW, drop_ratio=0.01, per="id", keys=("id",), apart=True))
    quick, slow = facts({0: 500}), facts({60 * SECOND: 500})
    world.see("w", facts({0: 500, 60 * SECOND: 500}), sources={"=1": quick, "=2": slow})
    [ring] = world.metrics()["streams"]["S"]["rings"]
    assert (ring["per"], ring["apart"], ring["buffer_tuples"]) == ("id", True, None)
    assert ring["buffer_us"] == ring["sources"]["=2"]["lag_us"]
    assert ring["buffer_us"] == pytest.approx(60 * SECOND, rel=0.02)


def figures(**more: Any) -> dict[str, Any]:
    known = {
        "estimator": "quantile",
        "rows": 276_551,
        "untimed": 0,
        "ahead": 0,
        "behind": 0,
        "delay_p50_us": 700_000,
        "delay_p95_us": 3_000_000,
        "delay_p99_us": 4_600_000,
        "delay_max_us": 9_900_000,
        "punctuation_us": 1_700_000_000_000_000,
        "buffer_us": 4_700_000,
        "buffer_tuples": 18_600,
        "target": 0.01,
        "ratio": 0.0097,
        "recent_ratio": 0.0099,
        "surging": False,
        "per": None,
        "apart": False,
        "sources": {},
    }
    return {**known, **more}


def test_explain_analyze_tells_how_the_promise_is_kept() -> None:
    assert disorder_lines(figures()) == [
        "disorder  quantile: 0.97% of 276551 tuples came after a window had closed"
        " (target 1%; last 100000: 0.99%)",
        "          delays p50 700 ms, p95 3.0 s, p99 4.6 s, max 9.9 s; buffer 4.7 s, about 18600"
        " tuples; punctuation 2023-11-14 22:13:20.000",
    ]


def test_explain_analyze_names_odd_times_only_where_there_are_any() -> None:
    lines = disorder_lines(figures(rows=106, untimed=3, ahead=2, behind=1, target=None))
    assert lines[0] == "disorder  quantile: 0.97% of 100 tuples came after a window had closed"
    assert lines[2:] == [
        "          odd times: 3 without event time, 2 too far ahead, 1 too far behind"
    ]


def test_explain_analyze_of_a_ring_that_has_seen_nothing() -> None:
    nothing = Disorder(rules_of(STREAM, WINDOW)).metrics()
    assert disorder_lines({**nothing, "per": None, "apart": False}) == [
        "disorder  max: no tuple with a plausible event time yet"
    ]


def test_explain_analyze_names_the_slowest_sources_and_how_many_there_are() -> None:
    def source(lag_s: int | None) -> dict[str, Any]:
        lag_us = None if lag_s is None else lag_s * SECOND
        return {"rows": 9, "below": 0, "ratio": 0.008, "delay_p99_us": 60e6, "lag_us": lag_us}

    sources = {f"={n}": source(n) for n in range(6)} | {"null": source(61), "=a\x1b": source(None)}
    lines = disorder_lines(figures(per="sensor", apart=True, sources=sources))
    assert "after their source's window had closed" in lines[0]
    assert "buffer 4.7 s at most" in lines[1]
    assert lines[2:5] == [
        "          per sensor: 8 sources, the slowest:",
        "            NULL p99 60 s lag 61 s ratio 0.80%",
        "            '5' p99 60 s lag 5.0 s ratio 0.80%",
    ]
    assert len(lines) == 8
    [told] = disorder_lines(figures(per="sensor", sources={"=a\x1b": source(None)}))[3:]
    assert told == "            'a\\x1b' p99 60 s ratio 0.80%"


def test_explain_analyze_finds_the_figures_of_the_querys_own_ring(world: World) -> None:
    world.ring("x", WINDOW)
    world.ring("w", replace(WINDOW, drop_ratio=0.05))
    world.see("w", facts({SECOND: 100}))
    status = QueryStatus("running", "w", 12, 3, 1)
    query = SimpleNamespace(status=status, explain=lambda: "stream    S (file)")
    engine: Any = SimpleNamespace(query=lambda _: query, metrics=world.metrics)
    first, seen, kept, delays = analyze(engine, "q").splitlines()
    assert first == "stream    S (file)"
    assert seen == "seen      state running, rows 12, late 3, lost 1; ring: state running"
    assert kept == "disorder  quantile: 0% of 100 tuples came after a window had closed (target 5%)"
    assert delays.startswith("          delays p50 1.0 s")


def test_explain_analyze_tells_the_order_of_attributes_and_what_it_costs() -> None:
    ordering = {
        "order": ["temp", "lower(room)"],
        "cover": ["temp"],
        "cover_exact": True,
        "visits_per_tuple": 1.254,
        "reorders": 2,
        "reordering": False,
    }
    first, second = order_lines({"ordering": ordering})
    assert first == "order     temp → lower(room); 1.25 look-ups per tuple; chosen 2 times"
    assert second.strip() == "first of them: temp (the fewest of which every query uses one)"
    assert order_lines({"ordering": None}) == []
    assert order_lines({}) == []
