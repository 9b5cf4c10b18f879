"""Settings as users write them."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.plan.catalog import OptionValue
from penstock.runtime.settings import Settings


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
