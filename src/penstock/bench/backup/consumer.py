"""A downstream in a process of its own: keeps each batch in a file, then acknowledges it.

`python -m penstock.bench.backup.consumer URI TOKEN QUEUE INCARNATION NAME DIRECTORY [PAUSE_S]`.
A file is whole or not there and is named by its position, as a sink that writes exactly once would
do; after a kill it goes on behind the last one.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from penstock.bench.backup.nodes import LONG_S
from penstock.exchange.client import NodeClient
from penstock.exchange.segments import write_whole
from penstock.exchange.wire import NodeAddress, QueueRef

_LOOK_S = 0.01


def consume(client: NodeClient, queue: QueueRef, name: str, out: Path, pause_s: float) -> None:
    client.register(queue, name)
    position = 1 + max((int(path.stem) for path in out.glob("*.n")), default=-1)
    while True:
        end = client.latest(queue)
        if end <= position:
            time.sleep(_LOOK_S)
            continue
        client.acknowledge(queue, name, end, 0)
        for at, batch in client.fetch(queue, position, end):
            write_whole(out / f"{at}.n", [batch.column(0).to_numpy().tobytes()])
            client.acknowledge(queue, name, at + 1, 1)
            time.sleep(pause_s)
        position = end


if __name__ == "__main__":
    uri, token, queue_name, incarnation, consumer, directory, *pause = sys.argv[1:]
    consume(
        NodeClient(NodeAddress(uri, token), patience_s=LONG_S),
        QueueRef(queue_name, incarnation),
        consumer,
        Path(directory),
        float(pause[0]) if pause else 0.0,
    )
