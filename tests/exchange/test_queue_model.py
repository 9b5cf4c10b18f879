"""The queue against a simple model, with crashes at any byte of the last write."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.exchange import queue as queue_module
from penstock.exchange.backup import DirectoryBackup
from penstock.exchange.failures import BatchIncomplete, BatchTooLarge, PositionGone, QueueFull
from penstock.exchange.queue import Queue
from penstock.exchange.reading import read_batches
from penstock.exchange.spec import QueueSpec, make_directory
from penstock.exchange.state import Key, first_record

SCHEMA = pa.schema([("n", pa.int64())])
RINGS = ("r", "s")
CONSUMERS = ("a", "b", "c")
CAPACITY = 20_000
numbers = st.lists(st.integers(0, 10**9), max_size=40)


def messages(*lists: list[int]) -> list[memoryview]:
    batches = [pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA) for values in lists]
    return [memoryview(batch.serialize()) for batch in batches]


@dataclass
class Model:
    """What a queue should be: a list of batches, and how far each consumer is."""

    log: list[list[int]] = field(default_factory=list)
    staged: dict[Key, tuple[list[list[int]], bool]] = field(default_factory=dict)
    committed: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    consumers: dict[str, list[int]] = field(default_factory=dict)
    trimmed: int = 0

    def last(self, ring: str) -> int:
        return max(self.committed.get(ring, {}), default=-1)

    def trim(self) -> None:
        safe = [consumer[1] for consumer in self.consumers.values()]
        self.trimmed = max(self.trimmed, min([len(self.log), *safe]))


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(queue_module, "_LEAST_SEGMENT", 2_000)  # many files
        for flush in ("fsync", "fdatasync"):  # what is tested outlives the process, not the machine
            self.patch.setattr(os, flush, lambda file: None)
        self.spec = make_directory(
            self.root, QueueSpec("q", SCHEMA, capacity=CAPACITY), first_record(0, {})
        )
        self.backup = DirectoryBackup(self.root / "backup", 1 << 30)
        self.queue = self.open()
        self.model = Model()
        self.register("a", "earliest")

    def open(self) -> Queue:
        return Queue(self.root / "q", self.spec)

    def teardown(self) -> None:
        self.queue.close()
        self.patch.undo()
        shutil.rmtree(self.root)

    def append(self, key: Key, lists: list[list[int]], last: bool) -> None:
        content = messages(*lists)
        known = self.model.staged.get(key)
        committed = key.batch <= self.model.last(key.ring)
        try:
            with self.queue.room(key, sum(len(m) for m in content), 0):
                rows = sum(len(values) for values in lists)
                receipt = self.queue.append(key, content, rows, last)
        except (QueueFull, BatchTooLarge):
            assert not committed
            return
        assert receipt.seen == (committed or known == (lists, last))
        if committed:
            known_range = self.model.committed[key.ring].get(key.batch)
            assert receipt.first is None or (receipt.first, receipt.end) == known_range
        else:
            self.model.staged[key] = (lists, last)

    @rule(
        ring=st.sampled_from(RINGS),
        ahead=st.integers(-1, 2),
        partition=st.integers(0, 2),
        lists=st.lists(numbers, max_size=3),
    )
    def put(self, ring: str, ahead: int, partition: int, lists: list[list[int]]) -> None:
        batch = max(0, self.model.last(ring) + ahead)
        self.append(Key(ring, batch, partition, 0), lists, True)

    @rule(ring=st.sampled_from(RINGS), piece=st.integers(0, 2), last=st.booleans(), values=numbers)
    def put_in_pieces(self, ring: str, piece: int, last: bool, values: list[int]) -> None:
        self.append(Key(ring, self.model.last(ring) + 1, 0, piece), [values], last)

    @rule(
        ring=st.sampled_from(RINGS),
        partitions=st.lists(st.lists(numbers, max_size=3), min_size=1, max_size=3),
        order=st.randoms(use_true_random=False),
    )
    def put_and_commit(self, ring: str, partitions: list[list[list[int]]], order: Random) -> None:
        batch = self.model.last(ring) + 1
        tasks = list(enumerate(partitions))
        order.shuffle(tasks)
        for partition, lists in tasks:
            self.append(Key(ring, batch, partition, 0), lists, True)
        self.commit(ring, 1, len(partitions))

    @precondition(lambda self: self.model.staged)
    @rule(data=st.data())
    def repeat_an_append(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model.staged)))
        self.append(key, *self.model.staged[key])

    @rule(ring=st.sampled_from(RINGS), ahead=st.integers(0, 2), partitions=st.integers(0, 3))
    def commit_what_is_there(self, ring: str, ahead: int, partitions: int) -> None:
        self.commit(ring, ahead, partitions)

    def commit(self, ring: str, ahead: int, partitions: int) -> None:
        model, batch = self.model, self.model.last(ring) + ahead
        if batch < 0:
            return
        if batch <= model.last(ring):
            answer = self.queue.commit(ring, batch, partitions)
            assert (answer["first"], answer["end"]) in (model.committed[ring][batch], (None, None))
            return
        found = [self.pieces(Key(ring, batch, p, 0)) for p in range(partitions)]
        if None in found:
            with pytest.raises(BatchIncomplete):
                self.queue.commit(ring, batch, partitions)
            return
        first = len(model.log)
        model.log += [values for piece in found for values in piece]
        model.committed.setdefault(ring, {})[batch] = (first, len(model.log))
        model.staged = {k: v for k, v in model.staged.items() if k.ring != ring or k.batch > batch}
        model.trim()
        answer = self.queue.commit(ring, batch, partitions)
        assert (answer["first"], answer["end"]) == (first, len(model.log))

    def pieces(self, key: Key) -> list[list[int]] | None:
        found: list[list[int]] = []
        while key in self.model.staged:
            lists, last = self.model.staged[key]
            found += lists
            if last:
                return found
            key = key._replace(piece=key.piece + 1)
        return None

    @rule(ring=st.sampled_from(RINGS))
    def abandon(self, ring: str) -> None:
        self.queue.abandon(ring)
        self.model.staged = {k: v for k, v in self.model.staged.items() if k.ring != ring}

    @rule(name=st.sampled_from(CONSUMERS), start=st.sampled_from(["earliest", "latest"]))
    def register(self, name: str, start: str) -> None:
        position = self.model.trimmed if start == "earliest" else len(self.model.log)
        self.model.consumers.setdefault(name, [position, position])
        known = self.queue.register(name, start)
        self.model.trim()
        assert [known.delivered, known.safe] == self.model.consumers[name]

    @rule(name=st.sampled_from(CONSUMERS))
    def unregister(self, name: str) -> None:
        self.queue.unregister(name)
        if self.model.consumers.pop(name, None) is not None:
            self.model.trim()

    @precondition(lambda self: self.model.consumers)
    @rule(data=st.data(), level=st.sampled_from([0, 1]))
    def acknowledge(self, data: st.DataObject, level: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.consumers)))
        position = data.draw(st.integers(0, len(self.model.log)))
        consumer = self.model.consumers[name]
        consumer[0] = max(consumer[0], position)
        if level == 1:
            consumer[1] = max(consumer[1], position)
        self.model.trim()
        assert self.queue.acknowledge(name, position, level) == self.model.trimmed

    @rule()
    def hand_over(self) -> None:
        if (chunk := self.queue.next_chunk(0, 3_000)) is not None:
            assert chunk.end <= max(c[0] for c in self.model.consumers.values())
            self.backup.store(self.spec.id, chunk)
            self.queue.backed_up(chunk.end)
            assert self.queue.describe()["kept_from"] == chunk.end

    @rule()
    def hand_over_without_learning_that_it_arrived(self) -> None:
        if (chunk := self.queue.next_chunk(0, 1_000)) is not None:
            self.backup.store(self.spec.id, chunk)

    @rule()
    def trim_the_backup(self) -> None:
        self.backup.trim(self.spec.id, self.queue.tally().trimmed)

    @rule()
    def reopen(self) -> None:
        self.queue.close()
        self.queue = self.open()

    @rule(values=numbers, cut=st.floats(0, 0.999), garbage=st.binary(max_size=30))
    def crash_in_the_middle_of_a_write(self, values: list[int], cut: float, garbage: bytes) -> None:
        path, before = self.last_file()
        key = Key("crashing", 0, 0, 0)
        try:
            with self.queue.room(key, 5_000, 0):
                self.queue.append(key, messages(values), len(values), True)
        except (QueueFull, BatchTooLarge):
            return
        if self.files()[-1] != path:  # the write went well, and a file was begun after it
            self.queue.abandon(key.ring)
            return
        self.queue.close()
        written = path.stat().st_size
        with open(path, "r+b") as file:
            file.truncate(before + int(cut * (written - before)))
            file.seek(0, 2)
            file.write(garbage)
        self.queue = self.open()

    @rule(cut=st.floats(0, 0.999))
    def crash_while_a_file_begins(self, cut: float) -> None:
        path, _ = self.last_file()
        self.queue.close()
        half = path.with_name(f"{int(path.stem) + 1:012d}.log")
        half.write_bytes(path.read_bytes()[: int(cut * 60)])
        self.queue = self.open()

    def files(self) -> list[Path]:
        return sorted((self.root / "q").glob("*.log"))

    def last_file(self) -> tuple[Path, int]:
        path = self.files()[-1]
        return path, path.stat().st_size

    @invariant()
    def the_queue_is_what_the_model_says(self) -> None:
        seen, model = self.queue.describe(), self.model
        assert (seen["first"], seen["end"]) == (model.trimmed, len(model.log))
        assert seen["staged"] == len(model.staged)
        assert seen["used_bytes"] <= CAPACITY
        assert {n: [c["delivered"], c["safe"]] for n, c in seen["consumers"].items()} == (
            model.consumers
        )
        found = list(read_batches(self.queue, self.backup, model.trimmed, len(model.log)))
        assert [position for position, _ in found] == list(range(model.trimmed, len(model.log)))
        assert [b.column(0).to_pylist() for _, b in found] == model.log[model.trimmed :]

    @invariant()
    def the_safe_batch_is_the_last_that_all_are_done_with(self) -> None:
        for ring, batches in self.model.committed.items():
            done = [(b, end) for b, (_, end) in batches.items() if end <= self.model.trimmed]
            assert self.queue.describe()["rings"][ring]["safe"] == max(done, default=None)

    @precondition(lambda self: self.model.trimmed)
    @invariant()
    def what_is_trimmed_is_gone(self) -> None:
        with pytest.raises(PositionGone):
            self.queue.check_range(self.model.trimmed - 1, self.model.trimmed)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
