"""The durable memory of an engine: streams, queries, rings, epochs and counters in one SQLite file.

Every change that a running ring must notice raises the registry version by one. A slot lives in the
versions from `added` up to, not including, `dropped`; what a worker must know to go from one
version to another is therefore one query on two columns.

Queries that are dropped are forgotten after a while, all but the last ones, as soon as no
micro-batch that may run again needs them: the file does not grow with all that ever were. A worker
that is further behind than what is remembered begins anew. Of rings that are gone, one position of
each stream stays.
"""

from penstock.runtime.registry.queries import QueryTables
from penstock.runtime.registry.retired import RetiredTables
from penstock.runtime.registry.rings import RingTables
from penstock.runtime.registry.rows import (
    ALONE,
    INPUT,
    REPLAY,
    EpochRow,
    QueryRow,
    QueueRow,
    RingRow,
)
from penstock.runtime.registry.streams import StreamTables

__all__ = [
    "ALONE",
    "INPUT",
    "REPLAY",
    "EpochRow",
    "QueryRow",
    "QueueRow",
    "Registry",
    "RingRow",
]


class Registry(StreamTables, RingTables, RetiredTables, QueryTables):
    """All reads and writes of the catalog file; safe to use from several threads."""
