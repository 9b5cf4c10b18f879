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

from penstock.language.render import quote_name
from penstock.plan.specs import Composition, SlotSpec
from penstock.runtime.config import StageConfig
from penstock.runtime.joining.chain_stage import LATEST_US, SLOTS, UNTIL_US, VERSION
from penstock.runtime.joining.slots import slots_for
from penstock.runtime.joining.windows import rows_at_a_time, window_rows


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
                yield from expanded(batch, specs, shipped)

    return found.select(SLOTS, LATEST_US, UNTIL_US, VERSION, *plain).mapInArrow(expand, ddl)


def expanded(
    batch: pa.RecordBatch, specs: Mapping[int, SlotSpec], shipped: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Rows for the window aggregate, in pieces; slots that are not known are gone."""
    lists = batch.column(SLOTS)
    row = pc.list_parent_indices(lists).to_numpy()
    slot = lists.flatten().to_numpy().astype(np.int64)
    alive = np.isin(slot, list(specs))
    row, slot = row[alive], slot[alive]
    latest_us, until_us = (batch.column(n).to_numpy()[row] for n in (LATEST_US, UNTIL_US))
    columns = {name: batch.column(_plain(n)) for n, name in enumerate(shipped)}
    most = rows_at_a_time(_batch(columns))
    for pair, own in window_rows(slot, latest_us, until_us, specs, most):
        taken = pa.array(row[pair])
        yield _batch(own | {name: column.take(taken) for name, column in columns.items()})


def _batch(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _plain(number: int) -> str:
    return f"__c{number}"
