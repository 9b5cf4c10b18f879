"""What queries are told when an output of their ring has no value."""

from __future__ import annotations

import pyarrow as pa

from penstock.runtime.rings.guarding import FAILED, Blame


def test_the_values_of_the_first_failure_are_not_told_to_others() -> None:
    cause = "ArithmeticException: [CAST_OVERFLOW] The value 7 cannot be cast"
    blame = Blame(("a", "b"), cause)
    rows = pa.table({"__slot": [1, 2, 3, 4], "__o0": [5, 6, 7, 8], FAILED: [0, 0, 1, None]})
    left, errors = blame.sort_out(rows)
    assert left.column("__slot").to_pylist() == [4]
    assert errors == {
        1: f"a: {cause}",
        2: "a: ArithmeticException: [CAST_OVERFLOW]",
        3: "b: no value for a tuple",
    }
