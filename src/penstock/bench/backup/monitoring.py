"""Experiment 2: processor time of measuring everywhere, and of measuring where it matters.

Fifteen queues as in the paper: one where tuples enter, four that several consumers share, ten with
one consumer. The input rate goes up in steps; from about 20,000 tuples/s on the entry is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.bench.backup.nodes import NodeProcess
from penstock.bench.backup.traffic import SCHEMA, TUPLE_BYTES, send
from penstock.bench.report import Value

Row = dict[str, Value]
_LOADED_PER_S = 20_000
_ENTRY_CAPACITY = int(_LOADED_PER_S * TUPLE_BYTES / 0.35)  # loaded from 35% of it per second on
_SHARED, _SINGLE = 4, 10


def monitoring_rows(rates: Sequence[int], seconds: float, directory: Path) -> list[Row]:
    return [
        row
        for name, options in (("all", ("--measure-all",)), ("partial", ()))
        for row in _ramp(name, options, rates, seconds, directory / name)
    ]


def _ramp(
    name: str, options: Sequence[str], rates: Sequence[int], seconds: float, directory: Path
) -> list[Row]:
    node = NodeProcess(directory, *options)
    rows: list[Row] = []
    try:
        node.wait()
        with node.client() as client:
            for number in range(_SHARED + _SINGLE):
                queue = client.create(f"q{number}", SCHEMA)
                for consumer in ("a", "b") if number < _SHARED else ("a",):
                    client.register(queue, consumer)
            for rate in rates:
                entry = client.create("entry", SCHEMA, capacity=_ENTRY_CAPACITY, entry=True)
                before, cpu_s = client.stats()["monitor"], node.cpu_s()
                sent = send(client, entry, rate, seconds)
                after = client.stats()["monitor"]
                rows.append(
                    {
                        "experiment": "2 monitoring",
                        "measured": name,
                        "rate": rate,
                        "reached_per_s": sent.per_s,
                        "entry_loaded": after["entry_loaded"],
                        "looks_per_s": (after["looks"] - before["looks"]) / sent.seconds,
                        "monitor_cpu": (after["cpu_s"] - before["cpu_s"]) / sent.seconds,
                        "node_cpu": (node.cpu_s() - cpu_s) / sent.seconds,
                    }
                )
                client.drop(entry)
    finally:
        node.stop()
    return rows
