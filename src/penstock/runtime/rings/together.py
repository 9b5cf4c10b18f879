"""Queries that start together: what each thread's `with` block has registered so far.

A block is its thread's own. What others register meanwhile is no part of it and does not wait for
it, unless it is in one of the rings that the block holds back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Block:
    rings: set[str] = field(default_factory=set)  # that start when it ends
    slots: list[int] = field(default_factory=list)


class Blocks:
    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: list[Block] = []
        self._here = threading.local()

    @contextmanager
    def block(self) -> Iterator[list[int]]:
        """The slots of this thread's block, complete when it ends; those of one inside another
        belong to the outermost."""
        if self._current is not None:
            yield []
            return
        block = self._here.block = Block()
        with self._guard:
            self._open.append(block)
        try:
            yield block.slots
        finally:
            self._here.block = None
            with self._guard:
                self._open = [other for other in self._open if other is not block]

    @property
    def _current(self) -> Block | None:
        return getattr(self._here, "block", None)

    def hold(self, ring: str) -> None:
        """If this thread is in a block, let a ring wait for its end."""
        if (block := self._current) is not None:
            with self._guard:
                block.rings.add(ring)

    def add(self, slot: int) -> bool:
        """Whether this thread is in a block: then the slot belongs to it."""
        if (block := self._current) is not None:
            block.slots.append(slot)
        return block is not None

    def holds(self, ring: str) -> bool:
        """Whether anybody's block lets a ring wait."""
        with self._guard:
            return any(ring in block.rings for block in self._open)
