"""Windows over combinations that Spark found by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.kernels.jit import Ints
from penstock.language.render import quote_name
from penstock.plan.specs import Composition, SlotSpec
from penstock.runtime.config import SHIFT_US, StageConfig
from penstock.runtime.joining.chain import as_event_time
from penstock.runtime.joining.chain_stage import LATEST_US, SLOTS, UNTIL_US, VERSION
from penstock.runtime.joining.slots import slots_for
from penstock.runtime.stage import END

_NEVER_US = -(2**62)


def in_windows(
    found: DataFrame, composition: Composition, config: StageConfig, ddl: str
) -> DataFrame:
    """Each combination once for each slot and window of the slot that holds it."""
    text, shipped = json.dumps(asdict(config)), composition.shipped
    # mapInArrow does not quote the names of columns
    plain = (F.col(quote_name(name)).alias(_plain(n)) for n, name in enumerate(shipped))

    def expand(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = StageConfig(**json.loads(text))
        for batch in batches:
            if batch.num_rows:
                version = pc.max(batch.column(VERSION)).as_py()
                specs = slots_for(own, len(composition.streams), version).specs
                yield expanded(batch, specs, shipped)

    rows = found.select(SLOTS, LATEST_US, UNTIL_US, VERSION, *plain).mapInArrow(expand, ddl)
    return rows.withColumn("__end", as_event_time(F.col("__end"), "__end"))


def expanded(
    batch: pa.RecordBatch, specs: Mapping[int, SlotSpec], shipped: Sequence[str]
) -> pa.RecordBatch:
    """Rows for the window aggregate; slots that are not known are gone."""
    lists = batch.column(SLOTS)
    row = pc.list_parent_indices(lists).to_numpy()
    slot = lists.flatten().to_numpy().astype(np.int64)
    alive = np.isin(slot, list(specs))
    row, slot = row[alive], slot[alive]
    latest_us, until_us = (batch.column(n).to_numpy()[row] for n in (LATEST_US, UNTIL_US))
    known, inverse = np.unique(slot, return_inverse=True)
    range_us, slide_us, from_us = _windows([specs[int(s)] for s in known])[:, inverse]
    first = (latest_us // slide_us + 1) * slide_us
    first = np.maximum(first, -(-(from_us + range_us) // slide_us) * slide_us)
    count = np.maximum(0, (until_us - first) // slide_us + 1)
    pair = np.repeat(np.arange(row.size), count)
    step = np.arange(pair.size) - np.repeat(np.cumsum(count) - count, count)
    end_us = first[pair] + step * slide_us[pair]
    columns = {
        "__slot": pa.array(slot[pair]),
        "__range_us": pa.array(range_us[pair]),
        "__end": pa.array(end_us + SHIFT_US).cast(END),
    }
    taken = pa.array(row[pair])
    columns |= {name: batch.column(_plain(n)).take(taken) for n, name in enumerate(shipped)}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _plain(number: int) -> str:
    return f"__c{number}"


def _windows(specs: list[SlotSpec]) -> Ints:
    """By slot its range, its slide, and where its first window begins."""
    found = [
        (s.window.range_us, s.window.slide_us, _NEVER_US if s.from_us is None else s.from_us)
        for s in specs
        if s.window is not None
    ]
    return np.array(found, np.int64).reshape(-1, 3).T
