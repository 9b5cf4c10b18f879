"""The grammar of values in text, and that columns are parsed as single values are."""

from __future__ import annotations

import decimal
import math

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.runtime.sources.parsing import from_storage, parse_text, parse_texts, reason_for

TYPES = [
    "tinyint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(38,10)",
    "boolean", "date", "timestamp", "timestamp_ntz", "string", "binary",
]  # fmt: skip


def _try(text: str, type_: str) -> tuple[bool, object]:
    try:
        return True, parse_text(text, type_)
    except ValueError:
        return False, None


def _same(left: pa.Array, right: pa.Array) -> bool:
    return repr(left.to_pylist()) == repr(right.to_pylist()) and left.type == right.type


_dates = st.from_regex(r"[0-9]{4}-[01][0-9]-[0-3][0-9]", fullmatch=True)
_times = st.from_regex(
    r"[0-9]{4}-[01][0-9]-[0-3][0-9][T ][0-2][0-9](:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,10})?)?)?"
    r"(Z|[+-][0-2][0-9](:?[0-6][0-9])?)?",
    fullmatch=True,
)
_numbers = st.from_regex(r"[+-]?[0-9]{0,22}\.?[0-9]{0,14}([eE][+-]?[0-9]{1,3})?", fullmatch=True)
_words = st.sampled_from(
    ["true", "False", "TRUE", "1", "0", "NaN", "nan", "-Infinity", "inf", "+inf", "Infinity",
     "0x1F", "-0x1", "", " 1", "1 ", "1_0", "é", "٣", "YWI=", "YW", "١٢", "0000-01-01", "1e400"]
)  # fmt: skip
_texts = st.one_of(_dates, _times, _numbers, _words, st.integers().map(str), st.text(max_size=8))


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(TYPES), _texts)
@example("bigint", "0x1F")
@example("bigint", "-" + "0" * 25 + "5")
@example("double", "1e400")
@example("float", "1e39")
@example("date", "0000-02-29")
@example("timestamp", "0000-12-31T23:00:00-02:00")
@example("timestamp", "2500-01-01T00:00:00.123456789")
@example("timestamp", "1969-12-31T23:59:59.999999999")
@example("decimal(10,2)", "1.50000")
@example("decimal(38,10)", "3E30")
@example("decimal(38,10)", "3" + "0" * 30)
@example("decimal(38,38)", "3" + "0" * 30)
@example("decimal(38,10)", "9" * 28 + ".9999999999")
def test_a_column_of_one_text_is_parsed_as_the_text_itself(type_: str, text: str) -> None:
    good, value = _try(text, type_)
    values, refused = parse_texts(pa.array([text], pa.string()), type_)
    assert (refused is None) == good
    assert _same(values, from_storage([value], type_))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TYPES), st.lists(st.none() | _texts, max_size=8), st.integers(0, 300))
def test_good_neighbours_do_not_change_what_is_refused(
    type_: str, texts: list[str | None], place: int
) -> None:
    plain = {"boolean": "true", "date": "2024-01-01", "timestamp": "2024-01-01T00:00:00Z"}
    filler = [plain.get(type_, "2024-01-01" if "ntz" in type_ else "1111")] * 300
    column = [*filler[:place], *texts, *filler[place:]]
    values, refused = parse_texts(pa.array(column, pa.string()), type_)
    expected = [(True, None) if t is None else _try(t, type_) for t in column]
    found = [False] * len(column) if refused is None else refused.tolist()
    assert found == [not good for good, _ in expected]
    assert _same(values, from_storage([value for _, value in expected], type_))


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2024-01-01", 1_704_067_200_000_000),
        ("2024-01-01 00:00:00", 1_704_067_200_000_000),
        ("2024-01-01T01:00:00+01:00", 1_704_067_200_000_000),
        ("2024-01-01T00:00:00.123456789Z", 1_704_067_200_123_456),
        ("1969-12-31T23:59:59.9999999Z", -1),
    ],
)
def test_timestamps_are_microseconds_since_1970_in_utc(text: str, micros: int) -> None:
    assert parse_text(text, "timestamp") == micros


def test_decimals_are_exact_and_only_zeros_may_be_cut() -> None:
    assert parse_text("1.500", "decimal(10,2)") == decimal.Decimal("1.50")
    assert parse_text("1e2", "decimal(10,2)") == 100
    for text in ("1.505", "123456789", "NaN", "1e999999999"):
        with pytest.raises(ValueError, match=r"digits|fit|number"):
            parse_text(text, "decimal(10,2)")


def test_doubles_may_be_written_as_spark_writes_them() -> None:
    assert math.isnan(parse_text("NaN", "double"))
    assert parse_text("-Infinity", "double") == -math.inf
    assert parse_text("1.0E-5", "double") == 1e-5


@pytest.mark.parametrize(
    ("text", "type_", "reason"),
    [
        ("5.0", "int", "column c: '5.0' is not an integer"),
        ("300", "tinyint", "column c: '300' is out of range for tinyint"),
        ("1", "boolean", "column c: '1' is neither true nor false"),
        ("2024-02-30", "date", "column c: '2024-02-30' is not a day of the calendar"),
        ("2024-01-01T00:00Z", "timestamp_ntz", "has a time zone"),
    ],
)
def test_a_refusal_names_the_column_and_the_text(text: str, type_: str, reason: str) -> None:
    assert reason in reason_for("c", text, type_)
