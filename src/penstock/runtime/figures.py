"""Figures as people read them: lengths of time, shares, instants."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

_UNITS = (  # from this length on, in units of this length
    (172_800_000_000, 86_400_000_000, "d"),
    (7_200_000_000, 3_600_000_000, "h"),
    (120_000_000, 60_000_000, "min"),
)


def span(micros: float | None) -> str | None:
    """A length of time, short.

    >>> span(340_000), span(1_234_567), span(61_000_000), span(90 * 60_000_000), span(250)
    ('340 ms', '1.2 s', '61 s', '90.0 min', '0.2 ms')
    """
    if micros is None:
        return None
    for least_us, unit_us, unit in _UNITS:
        if micros >= least_us:
            return f"{micros / unit_us:.1f} {unit}"
    if micros >= 999_500:
        return f"{micros / 1e6:.{0 if micros >= 9_950_000 else 1}f} s"
    return f"{micros / 1e3:.{1 if 0 < micros < 1_000 else 0}f} ms"


def share(ratio: float | None) -> str | None:
    """A realised share in percent.

    >>> share(0.0097), share(0.0), share(0.000123), share(1e-9)
    ('0.97%', '0%', '0.0123%', '<0.0001%')
    """
    if ratio is None:
        return None
    percent = ratio * 100
    if 0 < percent < 0.0001:
        return "<0.0001%"
    if percent < 0.1:
        return f"{percent:.4f}".rstrip("0").rstrip(".") + "%"
    return f"{percent:.2f}%"


def size(nbytes: int) -> str:
    """A number of bytes.

    >>> size(0), size(999), size(2048), size(5_500_000), size(3 * 2**30)
    ('0 bytes', '999 bytes', '2.0 KB', '5.2 MB', '3.0 GB')
    """
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if nbytes >= 1024**power:
            return f"{nbytes / 1024**power:.1f} {unit}"
    return f"{nbytes} bytes"


def target(ratio: float | None) -> str | None:
    """A promised share in percent, as it was written.

    >>> target(0.01), target(0.0005), target(None)
    ('1%', '0.05%', None)
    """
    return None if ratio is None else f"{ratio * 100:.10g}%"


def instant(micros: int | None) -> str | None:
    """An event time as text; None before the first punctuation."""
    if micros is None:
        return None
    try:
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} us"
    return moment.isoformat(sep=" ", timespec="milliseconds")


def odd_times(disorder: Mapping[str, Any]) -> int:
    """Tuples whose event time is missing or too far from the stream's clock."""
    return int(disorder["untimed"] + disorder["ahead"] + disorder["behind"])
