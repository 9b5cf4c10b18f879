"""What a source gives beside its tuples."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from penstock.control.punctuation import NEVER_US


@dataclass(slots=True)
class Beside:
    """bad: records that could not be read, by piece of input. punctuation_us: up to where the
    stream is complete after these tuples, where it is the source that says so."""

    bad: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    punctuation_us: int = NEVER_US

    @property
    def told(self) -> bool:
        """Whether there is anything."""
        return bool(self.bad) or self.punctuation_us > NEVER_US
