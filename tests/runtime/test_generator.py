"""Generated streams: reproducible, the same however ticks are cut, distributed as asked."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.runtime.sources.generator import (
    TICK_US,
    GeneratorOptions,
    batches_in_ticks,
    check_generator,
    last_tick,
    rows_in_ticks,
)
from penstock.schema import Schema

SCHEMA = Schema.of("n BIGINT, temp DOUBLE, room STRING, ts TIMESTAMP, arrived TIMESTAMP")
DELAYS = ["none", "constant(250 ms)", "exponential(200 ms)", "normal(1 s, 500 ms)",
          "lognormal(100 ms, 1)", "pareto(10 ms, 1.2)", "uniform(0 ms, 300 ms)"]  # fmt: skip


def _options(**given: str | int) -> GeneratorOptions:
    return GeneratorOptions.from_options({"generate": "n: sequence()", **given})


def _all(options: GeneratorOptions, schema: Schema = SCHEMA) -> pa.Table:
    end = last_tick(options)
    assert end is not None
    return pa.Table.from_batches([rows_in_ticks(options, schema, "ts", "arrived", 0, end + 1)])


_cases = st.builds(
    _options,
    rate=st.sampled_from([1, 7, 1000, 4096, 30_000]),
    rows=st.integers(0, 3000),
    seed=st.integers(0, 3),
    delay=st.sampled_from(DELAYS),
    max_delay=st.sampled_from(["0 s", "50 ms", "2 s", "10 s"]),
    interval=st.sampled_from(["regular", "exponential"]),
)


@settings(max_examples=60, deadline=None)
@given(_cases, st.data())
def test_any_cut_of_the_ticks_gives_the_same_rows(
    options: GeneratorOptions, data: st.DataObject
) -> None:
    end = last_tick(options)
    assert end is not None
    whole = rows_in_ticks(options, SCHEMA, "ts", "arrived", 0, end + 1)
    inner = data.draw(st.lists(st.integers(0, end + 1), max_size=5)) if end >= 0 else []
    cuts = sorted([0, *inner, end + 1])
    parts = [
        rows_in_ticks(options, SCHEMA, "ts", "arrived", low, high)
        for low, high in itertools.pairwise(cuts)
    ]
    assert pa.Table.from_batches(parts, whole.schema).equals(pa.Table.from_batches([whole]))


@settings(max_examples=60, deadline=None)
@given(_cases)
def test_every_tuple_comes_once_in_order_of_arrival_and_within_its_delay(
    options: GeneratorOptions,
) -> None:
    table = _all(options)
    assert sorted(table["n"].to_pylist()) == list(range(options.rows or 0))
    event, arrival = (table[c].cast(pa.int64()).to_numpy() for c in ("ts", "arrived"))
    assert (arrival - event >= 0).all()
    assert (arrival - event <= options.max_delay_us).all()
    order = np.lexsort((table["n"].to_numpy(), arrival))
    assert (order == np.arange(len(order))).all()
    end = last_tick(options)
    if options.rows:
        assert (arrival[-1] - options.start_us) // TICK_US == end
    else:
        assert end == -1


def test_regular_events_follow_the_rate_and_irregular_ones_keep_it() -> None:
    regular = _all(_options(rate=4, rows=9))["ts"].cast(pa.int64()).to_numpy()
    assert (np.diff(regular) == 250_000).all()
    irregular = _all(_options(rate=1000, rows=102_400, interval="exponential"))
    gaps = np.diff(irregular["ts"].cast(pa.int64()).to_numpy())
    assert gaps.min() >= 0
    assert np.isclose(gaps.mean(), 1000, rtol=0.01)
    assert np.isclose(gaps.std(), 1000, rtol=0.03)  # as exponential gaps have


@pytest.mark.parametrize(
    ("delay", "mean_us"),
    [("exponential(200 ms)", 200_000), ("normal(1 s, 100 ms)", 1_000_000),
     ("uniform(100 ms, 300 ms)", 200_000), ("pareto(100 ms, 3)", 150_000),
     ("lognormal(100 ms, 0.5)", 100_000 * np.exp(0.125))],
)  # fmt: skip
def test_delays_have_the_mean_asked_for(delay: str, mean_us: float) -> None:
    table = _all(_options(rate=100_000, rows=200_000, delay=delay))
    event, arrival = (table[c].cast(pa.int64()).to_numpy() for c in ("ts", "arrived"))
    assert np.isclose((arrival - event).mean(), mean_us, rtol=0.02)


def _column(type_: str, distribution: str, rows: int = 100_000) -> pa.ChunkedArray:
    options = GeneratorOptions.from_options({"generate": f"X: {distribution}", "rows": rows})
    schema = Schema.of(f"x {type_}, ts TIMESTAMP")
    batch = rows_in_ticks(options, schema, "ts", None, 0, 1 << 20, ["x"])
    return pa.chunked_array([batch["x"]])


def test_values_are_distributed_as_asked() -> None:
    normal = _column("DOUBLE", "normal(20, 5)").to_numpy()
    assert np.isclose(normal.mean(), 20, atol=0.1)
    assert np.isclose(normal.std(), 5, atol=0.1)
    assert np.isclose(_column("DOUBLE", "exponential(3)").to_numpy().mean(), 3, rtol=0.02)
    whole = _column("INT", "uniform(1, 6)").to_numpy()
    assert set(whole) == {1, 2, 3, 4, 5, 6}
    assert np.isclose(whole.mean(), 3.5, atol=0.02)
    ranks = _column("INT", "zipf(1, 3)").to_numpy()
    assert np.isclose((ranks == 1).mean(), 6 / 11, atol=0.01)
    assert set(ranks) == {1, 2, 3}
    rooms = pc.value_counts(_column("STRING", "choice(hall*3, attic)")).to_pylist()
    shares = {r["values"]: r["counts"] / 100_000 for r in rooms}
    assert np.isclose(shares["hall"], 0.75, atol=0.01)
    assert set(shares) == {"hall", "attic"}
    assert np.isclose(pc.mean(_column("BOOLEAN", "bernoulli(0.1)")).as_py(), 0.1, atol=0.01)
    nulls = _column("DOUBLE", "normal(0, 1) null 25%").null_count
    assert np.isclose(nulls / 100_000, 0.25, atol=0.01)


@pytest.mark.parametrize(
    ("type_", "distribution", "first"),
    [
        ("BIGINT", "sequence(10)", ["10", "11", "12"]),
        ("STRING", "sequence(1)", ["x1", "x2", "x3"]),
        ("STRING", 'constant("a, b")', ["a, b"] * 3),
        ("STRING", "choice(a, b | a, b)", ["a, b"] * 3),
        ("DATE", "constant(2024-02-29)", ["2024-02-29"] * 3),
        ("DECIMAL(5,2)", "sequence(998)", ["998.00", "999.00", "999.99"]),
        ("DECIMAL(38,18)", "sequence(5)", [f"{i}.000000000000000000" for i in (5, 6, 7)]),
        ("DECIMAL(3,0)", "sequence(1)", ["1", "2", "3"]),
        ("DECIMAL(38,20)", "constant(0.00000000000000000001)", ["1E-20"] * 3),
        ("TINYINT", "sequence(126)", ["126", "127", "127"]),
        ("FLOAT", "constant(1.5)", ["1.5"] * 3),
    ],
)
def test_values_take_the_columns_type(type_: str, distribution: str, first: list[str]) -> None:
    values = [str(value) for value in _column(type_, distribution, 3).to_pylist()]
    assert values == first


def test_every_type_has_a_default_and_event_time_fills_other_times() -> None:
    schema = Schema.of(
        "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g STRING, h BOOLEAN, i DATE,"
        " j TIMESTAMP, k TIMESTAMP_NTZ, l DECIMAL(10,2), m DECIMAL(2,2), n DECIMAL(38,18)"
    )
    batch = rows_in_ticks(_default(), schema, "j", None, 0, 10)
    assert batch.schema == schema.arrow()
    assert batch.num_rows == 1000
    assert all(column.null_count == 0 for column in batch.columns)
    assert batch["k"].cast(pa.int64()).equals(batch["j"].cast(pa.int64()))


def _default() -> GeneratorOptions:
    return GeneratorOptions.from_options({})


def test_a_column_does_not_depend_on_the_others_but_on_the_seed() -> None:
    narrow = Schema.of("temp DOUBLE, ts TIMESTAMP")
    one, two = (rows_in_ticks(_default(), s, "ts", None, 3, 5)["temp"] for s in (narrow, SCHEMA))
    assert one.equals(two)
    other = rows_in_ticks(GeneratorOptions.from_options({"seed": 1}), narrow, "ts", None, 3, 5)
    assert not other["temp"].equals(one)


def test_batches_hold_the_rows_of_the_range_in_order() -> None:
    options = _options(rate=5000, delay="exponential(200 ms)")
    whole = rows_in_ticks(options, SCHEMA, "ts", "arrived", 20, 40)
    parts = list(batches_in_ticks(options, SCHEMA, "ts", "arrived", 20, 40, batch_rows=999))
    assert max(part.num_rows for part in parts) == 999
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([whole]))


def test_the_generated_rows_stay_the_same_from_release_to_release() -> None:
    batch = rows_in_ticks(_default(), Schema.of("id INT, x DOUBLE, ts TIMESTAMP"), "ts", None, 0, 1)
    assert batch["id"].to_pylist()[:5] == [92, 30, 59, 44, 73]
    assert batch["x"].to_pylist()[:2] == pytest.approx(
        [0.9807110876357014, 0.18420562996936252], rel=1e-12
    )


def test_start_may_be_now_as_the_caller_says() -> None:
    assert GeneratorOptions.from_options({"start": "now"}, now_us=5).start_us == 5
    assert GeneratorOptions.from_options({"start": "1970-01-02"}).start_us == 86_400_000_000


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({"rte": 5}, "did you mean rate"),
        ({"rate": 0}, "whole number from 1"),
        ({"rate": 20_000_000}, "at most 10000000"),
        ({"start": "noon"}, "start = '2024-01-01T00:00:00Z'"),
        ({"start": "now"}, "not a timestamp"),
        ({"interval": "exponental"}, "did you mean exponential"),
        ({"delay": "exponental(1 s)"}, "did you mean exponential"),
        ({"delay": "exponential(200)"}, "'200 ms'"),
        ({"delay": "pareto(1 s, 0)"}, "above 0"),
        ({"delay": "uniform(2 s, 1 s)"}, "uniform(least, most)"),
        ({"max_delay": "long"}, "not a length of time"),
        ({"generate": "temp normal(1, 2)"}, "has no column"),
        ({"generate": "temp: norml(1, 2)"}, "did you mean normal"),
        ({"generate": "temp: normal(1)"}, "takes 2 arguments"),
        ({"generate": "temp: normal(a, 2)"}, "'a' is not a number"),
        ({"generate": "tmp: normal(1, 2)"}, "did you mean temp"),
        ({"generate": "ts: normal(1, 2)"}, "is the event time"),
        ({"generate": "n: uniform(0.5, 1)"}, "whole numbers"),
        ({"generate": "n: choice(a, b)"}, "is not an integer"),
        ({"generate": "room: bernoulli(0.5)"}, "does not give values of type string"),
        ({"generate": "n: zipf(1, 0)"}, "n from 1"),
        ({"generate": "n: sequence() null 101%"}, "0% to 100%"),
    ],
)
def test_wrong_options_say_what_to_write(given_options: dict[str, str | int], message: str) -> None:
    with pytest.raises(PenstockError) as caught:
        check_generator(GeneratorOptions.from_options(given_options), SCHEMA, "ts", "arrived")
    assert message in str(caught.value)
