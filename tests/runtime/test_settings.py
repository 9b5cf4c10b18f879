"""Settings as users write them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.plan.catalog import OptionValue
from penstock.runtime.settings import Settings
from penstock.testing import quick_engine


def test_lengths_of_time_may_have_a_unit() -> None:
    for key, value, expected in (
        ("sink_patience", "2 minutes", 120.0),
        ("sink_patience", "500 ms", 0.5),
        ("sink_patience", "5", 5.0),
        ("sink_patience", 0.25, 0.25),
        ("trigger", "2 s", 2000),
        ("trigger_ms", "20 ms", 20),
        ("trigger", 50, 50),
    ):
        settings = Settings().changed({key: value})
        found = settings.sink_patience_s if "sink" in key else settings.trigger_ms
        assert found == expected


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("sink_patience", "a while", "not a length of time"),
        ("sink_patience", "0 s", "not positive"),
        ("sink_patience", -1, "not positive"),
        ("sink_patiense", 1, "setting sink_patiense is not known"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    key: str, value: OptionValue, message: str
) -> None:
    with pytest.raises(PenstockError, match=message):
        Settings().changed({key: value})


def test_every_setting_of_a_script_counts(spark: SparkSession) -> None:
    with quick_engine(spark) as engine:
        engine.execute("SET native_queries = 3; SET idle_ring_s = 7")
        assert (engine.settings.native_queries, engine.settings.idle_ring_s) == (3, 7.0)
