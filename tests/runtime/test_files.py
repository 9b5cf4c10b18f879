"""Files of all formats: what is read, what is refused and why, and that the two ways agree."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import os
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.runtime.sources import lines as lines_module
from penstock.runtime.sources.csv_lines import csv_decoder
from penstock.runtime.sources.files import (
    FileOptions,
    FilePiece,
    list_files,
    read_pieces,
    split_files,
)
from penstock.runtime.sources.json_lines import JsonDecoder
from penstock.runtime.sources.lines import Decoder, Irregular, finish, index_lines
from penstock.schema import Schema

SENSORS = Schema.of("id INT, room STRING, temp DOUBLE, ts TIMESTAMP")
UTC = dt.UTC


def _read(
    path: Path, schema: Schema, columns: Sequence[str] | None = None, **options: str | bool
) -> tuple[list[dict[str, object]], list[tuple[int, str, str]]]:
    """All records of a file or directory, and (position, record, reason) of the bad ones."""
    checked = FileOptions.from_options({"path": str(path), **options})
    rows, bad = [], []
    wanted = schema.arrow() if columns is None else None
    for piece in [FilePiece(file.path) for file in list_files(checked)]:
        for chunk in read_pieces([piece], checked, schema, columns):
            assert wanted is None or chunk.batch.schema == wanted
            rows += chunk.batch.to_pylist()
            if chunk.bad is not None:
                assert set(chunk.bad["file"].to_pylist()) == {piece.path}
                found = chunk.bad.to_pylist()
                bad += [(r["position"], r["record"], r["reason"]) for r in found]
    return rows, bad


def test_csv_records_are_matched_by_header_and_bad_ones_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b"\xef\xbb\xbfTS,Temp,extra,ID\r\n"
        b"2024-01-01T00:00:00Z,1.5,x,1\r\n"
        b"\r\n"
        b'2024-01-01,,"a,""b""",2\r\n'
        b"2024-01-01,1.5\r\n"
        b"2024-01-01,1.5,\xff,4\r\n"
        b"2024-01-01,warm,x,5\r\n"
        b'2024-01-01,1.5,"x,6\r\n'
        b"2024-01-02,-Infinity,x,7"
    )
    rows, bad = _read(path, SENSORS)
    assert [(r["id"], r["room"], r["temp"]) for r in rows] == [
        (1, None, 1.5), (2, None, None), (7, None, float("-inf"))
    ]  # fmt: skip
    assert [(position, reason) for position, _, reason in bad] == [
        (5, "2 fields where 4 are expected"),
        (6, "the line is not UTF-8"),
        (7, "column temp: 'warm' is not a number"),
        (8, "a quoted field does not end on its line"),
    ]
    assert bad[2][1] == "2024-01-01,warm,x,5"


def test_an_empty_csv_field_is_null_and_a_quoted_one_is_an_empty_string(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('1,,\n2,"",""\n3,NA,"1"\n')
    schema = Schema.of("id INT, s STRING, x DOUBLE")
    rows, _ = _read(path, schema, header=False)
    assert [r["s"] for r in rows] == [None, "", "NA"]
    assert [r["x"] for r in rows] == [None, None, 1.0]
    rows, _ = _read(path, schema, header=False, null_value="NA")
    assert [r["s"] for r in rows] == ["", "", None]


def test_a_header_without_any_known_column_makes_the_file_bad(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    rows, [(position, _, reason)] = _read(tmp_path / "a.csv", SENSORS)
    assert rows == []
    assert position == 0
    assert "no column of the stream is in the header (x, y)" in reason


def test_json_values_must_have_the_json_type_of_their_column(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(
        '{"id": 1, "ROOM": "é", "temp": 2, "ts": "2024-01-01 10:00:00.5+01:00", "more": [{}]}\n'
        '{"temp": "NaN", "room": null}\n'
        '{"id": "3"}\n'
        '{"id": 4.0}\n'
        '{"id": 5, "room": 5}\n'
        '{"id": 6, "temp": "6"}\n'
        '{"id": 7\n'
        "[8]\n"
        '{"id": 9999999999}\n'
        '{"ts": "noon"}'
    )
    rows, bad = _read(path, SENSORS)
    assert rows[0] == {
        "id": 1, "room": "é", "temp": 2.0,
        "ts": dt.datetime(2024, 1, 1, 9, 0, 0, 500_000, tzinfo=UTC),
    }  # fmt: skip
    assert len(rows) == 2
    assert rows[1]["temp"] != rows[1]["temp"]
    assert [position for position, _, _ in bad] == [3, 4, 5, 6, 7, 8, 9, 10]
    reasons = [reason for _, _, reason in bad]
    assert reasons[0] == 'column id: "3" is not a number'
    assert reasons[1] == "column id: '4.0' is not an integer"
    assert reasons[4].startswith("not JSON")
    assert reasons[5] == "not a JSON object"
    assert reasons[6] == "column id: '9999999999' is out of range for int"


def test_json_keys_in_other_case_are_found_in_every_record(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"ID": 1}\n{"id": 2}\n{"Id": 3}\n' * 100)
    rows, bad = _read(tmp_path / "a.json", Schema.of("id INT"))
    assert [r["id"] for r in rows] == [1, 2, 3] * 100
    assert bad == []


def test_json_arrays_and_decimals_are_read_exactly(tmp_path: Path) -> None:
    schema = Schema.of("a ARRAY<INT>, t ARRAY<TIMESTAMP>, d DECIMAL(20,4)")
    (tmp_path / "a.json").write_text(
        '{"a": [1, null], "t": ["1970-01-01"], "d": 1234567890123456.7891}\n{"a": [1.5]}\n'
        '{"d": "0.0001"}\n'
    )
    rows, bad = _read(tmp_path / "a.json", schema)
    assert rows[0]["a"] == [1, None]
    assert rows[0]["t"] == [dt.datetime(1970, 1, 1, tzinfo=UTC)]
    assert [str(r["d"]) for r in rows] == ["1234567890123456.7891", "0.0001"]
    assert bad[0][2] == "column a: '1.5' is not an integer"


_CELLS = st.text(alphabet='ab1,"\r\n é.', max_size=4)
_CSV = st.lists(st.lists(_CELLS, min_size=1, max_size=4).map(",".join), max_size=8).map("\n".join)
_CSV_SCHEMA = Schema.of("a STRING, b INT, c STRING")


def _agree(raw: bytes, decoder: Decoder, schema: Schema) -> None:
    found, _ = index_lines(raw)
    if not len(found):
        return
    try:
        fast = finish(found, decoder.fast(found), decoder.fields, schema.arrow())
    except (pa.ArrowInvalid, Irregular, UnicodeDecodeError):
        return
    slow = finish(found, decoder.slow(found), decoder.fields, schema.arrow())
    assert repr(fast[0].to_pylist()) == repr(slow[0].to_pylist())
    in_order = [sorted(bad, key=lambda record: record.position) for _, bad in (fast, slow)]
    assert in_order[0] == in_order[1]


@settings(max_examples=400, deadline=None)
@given(_CSV.map(str.encode) | st.binary(max_size=30), st.sampled_from(["", "a"]))
@example(b'x,1,"a\n\n', "")
@example(b'x,1,"a\ny,2,b"\n', "")
@example(b'"x,1,a', "")
@example(b"\xef\xbb\xbfx,1,a\n", "")
@example(b"x,1,\xff\n", "")
def test_both_ways_of_reading_csv_agree(raw: bytes, null_value: str) -> None:
    options = FileOptions("x.csv", "csv", header=False, null_value=null_value)
    decoder = csv_decoder(options, _CSV_SCHEMA, _CSV_SCHEMA.fields, None)
    _agree(raw, decoder, _CSV_SCHEMA)


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-300, 300), st.integers(), st.floats(),
    st.text(max_size=5),
    st.sampled_from(["NaN", "Infinity", "2024-01-01T00:00:00Z", "2024-01-01", "1.5", "x\\", "1e5"]),
)  # fmt: skip
_JSON_SCHEMA = Schema.of(
    "a TINYINT, b DOUBLE, c STRING, d DECIMAL(10,2), e TIMESTAMP, f BOOLEAN, g FLOAT, h ARRAY<INT>"
)
_OBJECTS = st.dictionaries(
    st.sampled_from("abcdefghzAB"), _SCALARS | st.lists(_SCALARS, max_size=2), max_size=4
)
_TYPED_OBJECTS = st.fixed_dictionaries(
    {"a": st.integers(-128, 127), "b": st.floats() | st.integers(-(2**70), 2**70)},
    optional={
        "c": st.none() | st.text(max_size=5),
        "d": st.decimals(-9999, 9999, places=2).map(float) | st.just("1.25"),
        "e": st.datetimes().map(str),
        "f": st.booleans(),
        "g": st.floats(width=32),
        "h": st.lists(st.none() | st.integers(-5, 5), max_size=3),
    },
)
_TYPED_JSON = st.lists(_TYPED_OBJECTS.map(json.dumps), max_size=4).map("\n".join)
_JSON = st.lists(
    st.builds(lambda o, ascii_: json.dumps(o, ensure_ascii=ascii_), _OBJECTS, st.booleans())
    | st.sampled_from(
        ["", " ", "{", '{"b": 1e400}', '{"z": 1e400}', '{"b": -Inf}', '{"z": -NaN}', '{"g": 1e39}',
         '{"a": 1}{"a": 2}', '{"c": "\\ud800"}', '{"a": 1, "a": 2}', '{"d": 1e1}', '{"b": -0}',
         '{"d": 12345678.901}', '{"d": 1.10000}', '{"d": 1E-1}', '{"d": ".5"}', '{"d": "+5"}',
         '{"d": 100000000}', '{"d": "00012345678"}', '{"d": 99999999.99}', '{"d": 3E36}',
         '{"d": "3E36"}', '{"d": 3000000000000000000000000000000000000}']
    ),
    max_size=4,
).map("\n".join)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given((_JSON | _TYPED_JSON).map(lambda text: text.encode("utf-8", "replace")))
def test_both_ways_of_reading_json_agree(raw: bytes) -> None:
    _agree(raw, JsonDecoder(_JSON_SCHEMA.fields), _JSON_SCHEMA)


_TABLE = pa.table(
    {
        "id": pa.array([1, None, -3], pa.int32()),
        "room": ['kit "x", y', None, "日本"],
        "temp": [1.5, None, 1e-300],
        "ts": pa.array([0, None, 1_700_000_000_123_456], pa.timestamp("us", "UTC")),
    },
)


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_what_others_wrote_is_read_back(tmp_path: Path, writer: str, format_: str) -> None:
    path = tmp_path / f"a.{format_}"
    if writer == "duckdb":
        with duckdb.connect() as connection:
            connection.register("sensors", _TABLE)
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(f"COPY sensors TO '{path}' (FORMAT {format_})")
    elif format_ == "csv":
        pa.csv.write_csv(_TABLE, path)
    elif format_ == "parquet":
        pq.write_table(_TABLE, path)
    else:
        path.write_text("\n".join(json.dumps(row, default=str) for row in _TABLE.to_pylist()))
    assert _read(path, SENSORS) == (_TABLE.to_pylist(), [])


@pytest.mark.parametrize("codec", ["gz", "bz2", "zst", "lz4"])
def test_compressed_text_is_read_by_extension_and_damage_keeps_what_came_before(
    tmp_path: Path, codec: str
) -> None:
    names = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}
    text = "".join(f'{{"id": {i}, "room": "{i * 7919 % 1000003}"}}\n' for i in range(200_000))
    path = tmp_path / f"a.json.{codec}"
    with pa.output_stream(str(path), compression=names[codec]) as out:
        out.write(text.encode())
    rows, bad = _read(path, Schema.of("id INT"))
    assert [r["id"] for r in rows] == list(range(200_000))
    assert bad == []
    path.write_bytes(path.read_bytes()[:-1000])
    rows, bad = _read(path, Schema.of("id INT"))
    assert [r["id"] for r in rows] == list(range(len(rows)))
    assert len(rows) > 50_000
    assert bad[0][0] == 0
    assert "damaged" in bad[0][2]
    assert len(bad) == 1


def test_blocks_of_any_size_give_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "id,room\n" + "".join(f"{i},r{i}\n" if i % 7 else "x,y\n\n" for i in range(500))
    )
    whole = _read(path, SENSORS)
    assert len(whole[1]) == 72
    for size in (1, 10, 97, 4096):
        monkeypatch.setattr(lines_module, "BLOCK_BYTES", size)
        assert _read(path, SENSORS) == whole


def test_a_line_beyond_the_limit_is_one_bad_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 64)
    monkeypatch.setattr(lines_module, "LONGEST_LINE", 1000)
    path = tmp_path / "a.json"
    path.write_text('{"id": 1}\n{"room": "' + "x" * 50_000 + '"}\n{"id": 3}\n')
    rows, bad = _read(path, SENSORS, ["id"])
    assert [r["id"] for r in rows] == [1, 3]
    assert [position for position, _, _ in bad] == [2]


def test_parquet_values_are_cast_with_checks_and_bad_rows_are_told(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ID": pa.array([1, 2**40, 3, 4], pa.int64()),
            "room": pa.array(["a", "b", "a", None]).dictionary_encode(),
            "temp": pa.array(["1.5", "2", "x", None], pa.large_string()),
            "ts": pa.array([-1, 1_999, 0, None], pa.timestamp("ns")),
            "extra": [1, 2, 3, 4],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as out:
        out.write_table(table, max_chunksize=1)
    with pa.ipc.new_stream(tmp_path / "a.arrows", table.schema) as out:
        out.write_table(table)
    for name in ("a.parquet", "a.arrow", "a.arrows"):
        rows, bad = _read(tmp_path / name, SENSORS)
        assert [(r["id"], r["room"], r["temp"]) for r in rows] == [(1, "a", 1.5), (4, None, None)]
        assert rows[0]["ts"] == dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
        assert [(position, reason) for position, _, reason in bad] == [
            (1, "column id: 1099511627776 does not fit int"),
            (2, "column temp: 'x' is not a number"),
        ]


@pytest.mark.parametrize(
    ("stored", "type_", "good"),
    [
        (pa.array([1, 10**9], pa.int64()), "DECIMAL(10,2)", ["1.00"]),
        (
            pa.array([Decimal(1), Decimal("3E30")], pa.decimal128(38, 0)),
            "DECIMAL(38,10)",
            ["1.0000000000"],
        ),
        (pa.array([1.0, 1e300]), "FLOAT", ["1.0"]),
        (pa.array([2.0, 2.5]), "INT", ["2"]),
        (pa.array([86_400, 1], pa.timestamp("s")), "DATE", ["1970-01-02"]),
        (pa.array([b"a", b"\xff"]), "STRING", ["a"]),
        (pa.array([5, 2**63], pa.uint64()), "BIGINT", ["5"]),
        (pa.array([[1, None], [1, 2**40], [], None]), "ARRAY<INT>", ["[1, None]", "[]", "None"]),
        (pa.array([["1"], ["x"]]), "ARRAY<INT>", ["[1]"]),
    ],
)
def test_a_stored_type_is_cast_where_its_values_fit(
    tmp_path: Path, stored: pa.Array, type_: str, good: list[str]
) -> None:
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema([("x", stored.type)])) as out:
        out.write_table(pa.table({"x": stored}))
    rows, [(position, _, reason)] = _read(tmp_path / "a.arrow", Schema.of(f"x {type_}"))
    assert [str(r["x"]) for r in rows] == good
    assert position == 1
    assert reason.startswith("column x: ")
    assert f"does not fit {type_.lower()}" in reason


def test_old_parquet_timestamps_of_96_bits_are_read(tmp_path: Path) -> None:
    far = dt.datetime(2900, 1, 1)
    table = pa.table({"ts": pa.array([far], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    rows, _ = _read(tmp_path / "a.parquet", Schema.of("ts TIMESTAMP"))
    assert rows == [{"ts": far.replace(tzinfo=UTC)}]


def test_columns_are_pruned_renamed_and_ordered_as_asked(tmp_path: Path) -> None:
    pq.write_table(_TABLE, tmp_path / "a.parquet")
    rows, _ = _read(tmp_path / "a.parquet", SENSORS, ["TEMP", "id"])
    assert [list(row) for row in rows] == [["temp", "id"]] * 3
    rows, _ = _read(tmp_path / "a.parquet", Schema.of("absent INT"), ["absent"])
    assert rows == [{"absent": None}] * 3


def test_a_record_is_bad_whichever_columns_are_asked_for(tmp_path: Path) -> None:
    stored = {"id": pa.array([1, 2, 3], pa.int16()), "v": [1, 2**40, 3], "room": ["a", "b", "c"]}
    table = pa.table(stored | {"temp": pa.array([1, 2, 3], pa.float32())})
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as out:
        out.write_table(table)
    with pa.ipc.new_stream(tmp_path / "a.arrows", table.schema) as out:
        out.write_table(table)
    schema = Schema.of("id INT, v INT, room STRING, temp DOUBLE")
    for name in ("a.parquet", "a.arrow", "a.arrows"):
        for columns in (["id"], ["room", "v"], ["temp"], None):
            rows, [(position, _, reason)] = _read(tmp_path / name, schema, columns)
            assert [list(row) for row in rows] == [columns or list(schema.names)] * 2
            assert (position, reason) == (1, "column v: 1099511627776 does not fit int")


@pytest.mark.parametrize("format_", ["parquet", "arrow"])
@pytest.mark.parametrize("content", [b"", b"PAR1 garbage", b"\0" * 4096])
def test_a_file_of_garbage_is_one_bad_record(tmp_path: Path, format_: str, content: bytes) -> None:
    path = tmp_path / f"a.{format_}"
    path.write_bytes(content)
    rows, [(position, _, reason)] = _read(path, SENSORS)
    assert rows == []
    assert position == 0
    assert "damaged" in reason


def test_a_vanished_file_and_a_meaningless_type_are_bad_files(tmp_path: Path) -> None:
    options = FileOptions.from_options({"path": str(tmp_path), "format": "csv"})
    [chunk] = read_pieces([FilePiece(str(tmp_path / "gone.csv"))], options, SENSORS)
    assert chunk.bad is not None
    assert "cannot be opened" in chunk.bad["reason"][0].as_py()
    pq.write_table(pa.table({"id": [[1]]}), tmp_path / "a.parquet")
    _, [(_, _, reason)] = _read(tmp_path / "a.parquet", SENSORS)
    assert reason == "column id is list<element: int64> in the file and cannot be read as int"


@pytest.mark.parametrize("format_", ["parquet", "arrow"])
@pytest.mark.parametrize("parallelism", [1, 3, 50])
def test_pieces_hold_every_record_once(tmp_path: Path, format_: str, parallelism: int) -> None:
    for number, count in enumerate((10_000, 3, 500)):
        table = pa.table({"id": pa.array(range(count), pa.int32()), "room": [str(number)] * count})
        path = tmp_path / f"{number}.{format_}"
        if format_ == "parquet":
            pq.write_table(table, path, row_group_size=700)
        else:
            with pa.ipc.new_file(path, table.schema) as out:
                out.write_table(table, max_chunksize=700)
    options = FileOptions.from_options({"path": str(tmp_path), "format": format_})
    tasks = split_files(list_files(options), options, parallelism)
    assert 1 <= len(tasks) <= parallelism
    assert parallelism == 1 or len(tasks) > 2
    sizes, found = [], []
    for task in tasks:
        again = [FilePiece.from_json(json.loads(json.dumps(p.to_json()))) for p in task]
        assert again == task
        rows = [r for c in read_pieces(task, options, SENSORS) for r in c.batch.to_pylist()]
        sizes.append(len(rows))
        found += [(r["room"], r["id"]) for r in rows]
    expected = [(str(n), i) for n, c in enumerate((10_000, 3, 500)) for i in range(c)]
    assert sorted(found) == sorted(expected)
    if parallelism == 3:
        assert max(sizes) < 5_000


def test_listing_takes_finished_files_oldest_first(tmp_path: Path) -> None:
    names = ["b.csv", "sub/a.csv", "c.csv.gz", ".h.csv", "_x/d.csv", "e.csv.tmp", "f.crc", "g.part"]
    for age, name in enumerate(reversed(names)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("id\n")
        os.utime(path, ns=(0, 1_000_000_000 + age * 1000))

    def listed(**options: str) -> list[str]:
        checked = FileOptions.from_options({"format": "csv", **options})
        return [os.path.relpath(f.path, tmp_path) for f in list_files(checked)]

    assert listed(path=str(tmp_path)) == ["c.csv.gz", "sub/a.csv", "b.csv"]
    assert listed(path=f"file://{tmp_path}", pattern="*.csv") == ["sub/a.csv", "b.csv"]
    assert listed(path=f"{tmp_path}/*.csv") == ["b.csv"]
    assert listed(path=f"{tmp_path}/**/[ab].csv") == ["sub/a.csv", "b.csv"]
    assert listed(path=str(tmp_path / "b.csv")) == ["b.csv"]
    assert listed(path=str(tmp_path / "later")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "in", "formt": "csv"}, "did you mean format"),
        ({"path": "in"}, "add format"),
        ({"format": "csv"}, "needs the option path"),
        ({"path": "in", "format": "jsn"}, "did you mean json"),
        ({"path": "in", "format": "json", "header": True}, "leave header out"),
        ({"path": "in", "format": "csv", "delimiter": ";;"}, "one ASCII character"),
        ({"path": "in", "format": "csv", "header": "yes"}, "header = true"),
        ({"path": "in", "format": "csv", "max_files_per_batch": 0}, "whole number from 1"),
        ({"path": "in", "format": "csv", "max_bytes_per_batch": "lots"}, "256 MB"),
        ({"path": "in", "format": "parquet", "compression": "gzip"}, "leave compression out"),
        ({"path": "nosuch://x/y", "format": "csv"}, ""),
    ],
)
def test_wrong_options_say_what_to_write(
    options: dict[str, str | int | bool], message: str
) -> None:
    with pytest.raises(PenstockError) as caught:
        list_files(FileOptions.from_options(options))
    assert message in str(caught.value)


def test_options_are_inferred_from_the_name() -> None:
    assert FileOptions.from_options({"path": "in/*.jsonl.gz"}).format == "json"
    tabs = FileOptions.from_options({"path": "in/x.tsv", "max_bytes_per_batch": "2 MB"})
    assert (tabs.format, tabs.delimiter, tabs.max_bytes_per_batch) == ("csv", "\t", 2 << 20)


def test_gzip_members_and_bz2_streams_may_follow_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id\n1\n") + gzip.compress(b"2\n"))
    (tmp_path / "b.csv.bz2").write_bytes(bz2.compress(b"id\n3\n") + bz2.compress(b"4\n"))
    rows, bad = _read(tmp_path, SENSORS, ["id"], format="csv")
    assert sorted(r["id"] for r in rows) == [1, 2, 3, 4]
    assert bad == []
