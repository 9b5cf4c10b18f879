"""Results of a ring's micro-batch as a DataFrame would give them to the driver."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Collected:
    rows: pa.Table

    def toArrow(self) -> pa.Table:
        slots = pa.array([[0]] * self.rows.num_rows, pa.list_(pa.int32()))
        return self.rows.add_column(0, "__slots", slots)
