"""The stateful operator of EVENTS rings: one call for each micro-batch and lane of objects.

A lane's state is one value: the stays of its objects, tuples that wait for the punctuation, the
punctuation itself and the registry version. It is read and written whole, once for each call.

Spark makes an operator in a process of its own just to ask for its state: what only tasks need is
imported there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.runtime.packing import PACKED

if TYPE_CHECKING:
    from penstock.runtime.following.worker import FollowingWorker

STATE = "stays binary, waiting binary, closed_us bigint, version bigint"


class FollowingOperator(StatefulProcessor):
    def __init__(self, config_text: str) -> None:
        self._config_text = config_text

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._objects = handle.getValueState("objects", STATE)
        self._worker: FollowingWorker | None = None

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if self._worker is None:
            from penstock.runtime.following.worker import FollowingWorker

            self._worker = FollowingWorker(self._config_text)
        state, blobs = self._worker.follow(self._objects.get(), rows)
        self._objects.update(state)
        for blob in blobs:
            yield Row(**{PACKED: blob})

    def close(self) -> None:
        pass
