"""The first stage of an input that Spark joins by itself: tuples that some query wants, as rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.kernels.jit import Ints, SmallInts
from penstock.plan.catalog import Stream
from penstock.plan.specs import Composition
from penstock.runtime.config import SHIFT_US
from penstock.runtime.joining.input_stage import InputStage
from penstock.runtime.window_rows import END
from penstock.schema import Field, Schema

# Of a tuple or a combination: the slots that want it; its time as Spark is told; its latest event
# time, and up to when all members are in their ranges; the registry version that its slots are of.
SLOTS, TIME, LATEST_US, UNTIL_US = "__slots", "__time", "__latest_us", "__until_us"
VERSION = "__version"


def chain_ddl(composition: Composition, stream: Stream) -> str:
    """The columns that the stage ships."""
    types = {f.name: f.type for f in stream.schema.fields}
    shipped = [Schema((Field(n, types[n]),)).ddl() for n in composition.shipped]
    fixed = f"{SLOTS} array<int>, {TIME} timestamp, {LATEST_US} bigint, {VERSION} bigint"
    return ", ".join([fixed, *shipped])


@dataclass(slots=True)
class ChainStage(InputStage):
    """Ships (slots, time as Spark is told, event time, registry version, columns).

    Spark drops what lies at or below its watermark, which is never above the punctuation: the time
    that it is told lies above for all tuples, late ones too.
    """

    def _chunk(
        self, batch: pa.RecordBatch, ts_us: Ints, rows: Ints, positions: SmallInts, closed_us: int
    ) -> pa.RecordBatch:
        kept, slots = self._with_slots(rows, positions)
        time_us = ts_us[kept]
        told_us = np.maximum(time_us, closed_us) + (SHIFT_US + 1)
        fixed = {
            SLOTS: slots,
            TIME: pa.array(told_us).cast(END),
            LATEST_US: pa.array(time_us),
            VERSION: pa.array(np.full(kept.size, self.version, np.int64)),
        }
        shipped = self.composition.shipped
        columns = [batch.column(name).take(pa.array(kept)) for name in shipped]
        return pa.RecordBatch.from_arrays([*fixed.values(), *columns], names=[*fixed, *shipped])
