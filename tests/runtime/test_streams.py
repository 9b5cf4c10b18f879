"""Settings of a stream's disorder, from CREATE STREAM and from SET."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import PenstockError, QueryError
from penstock.plan.catalog import Catalog, OptionValue, Stream
from penstock.runtime.registry import Registry
from penstock.runtime.settings import Settings
from penstock.runtime.statements import run_script
from penstock.runtime.streams import with_disorder
from penstock.schema import Schema

DAY_US = 86_400_000_000
PLAIN = Stream("S", Schema.of("id INT, ts TIMESTAMP"), "file", "ts")


def settings_of(stream: Stream) -> tuple[str | None, int | None, int | None, int | None, int]:
    return (
        stream.estimator,
        stream.slack_us,
        stream.slack_tuples,
        stream.idle_us,
        stream.trust_us,
    )


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, (None, None, None, None, DAY_US)),
        ({"estimator": "max"}, ("max", None, None, None, DAY_US)),
        ({"estimator": "normal"}, ("normal", None, None, None, DAY_US)),
        ({"estimator": "quantile"}, ("quantile", None, None, None, DAY_US)),
        ({"slack": "5 seconds"}, ("fixed", 5_000_000, None, None, DAY_US)),
        ({"estimator": "fixed", "slack": "0 s"}, ("fixed", 0, None, None, DAY_US)),
        ({"slack": 1000}, ("fixed", None, 1000, None, DAY_US)),
        ({"slack": 0}, ("fixed", None, 0, None, DAY_US)),
        ({"slack": "10000 tuples"}, ("fixed", None, 10_000, None, DAY_US)),
        ({"slack": "1TUPLE"}, ("fixed", None, 1, None, DAY_US)),
        ({"idle": "30 s", "trust": "2 h"}, (None, None, None, 30_000_000, 7_200_000_000)),
        ({"idle": "0 s"}, (None, None, None, 0, DAY_US)),
        (
            {"estimator": "quantile", "idle": "1 min", "trust": "7 days"},
            ("quantile", None, None, 60_000_000, 7 * DAY_US),
        ),
    ],
)
def test_disorder_is_what_the_options_say(
    options: dict[str, OptionValue], settings: tuple[Any, ...]
) -> None:
    assert settings_of(with_disorder(PLAIN, **options)) == settings


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"estimator": "quantil"}, "estimator quantil is not known", "did you mean quantile?"),
        ({"estimator": "fixed"}, "estimator fixed needs a slack", "slack = '5 seconds'"),
        ({"estimator": "max", "slack": "1 s"}, "max takes no slack", "estimator = 'fixed'"),
        ({"estimator": "quantile", "slack": 5}, "quantile takes no slack", "estimator = 'fixed'"),
        ({"slack": 10_001}, "slack of 10001 tuples is out of range", "0 to 10000 tuples"),
        ({"slack": "20000 tuples"}, "slack of 20000 tuples is out of range", "a length of time"),
        ({"slack": -1}, "slack of -1 tuples is out of range", "0 to 10000 tuples"),
        ({"slack": "-1 tuples"}, "slack of -1 tuples is out of range", "0 to 10000 tuples"),
        ({"slack": "5"}, "slack: '5' is not a length of time", "'5 seconds', '1000 tuples'"),
        ({"slack": 1.5}, "slack: '1.5' is not a length of time", "'1000 tuples'"),
        ({"slack": True}, "slack: 'True' is not a length of time", "'1000 tuples'"),
        ({"idle": 30}, "idle: '30' is not a length of time", "a number and a unit"),
        ({"idle": "30 tuples"}, "idle: '30 tuples' is not a length of time", "a number and a unit"),
        ({"trust": "long"}, "trust: 'long' is not a length of time", "a number and a unit"),
        ({"trust": "0 s"}, "trust must be longer than zero", "trust = '1 day'"),
        ({"trust": "9999999 days"}, "trust = '9999999 days' is too long", "365000 days"),
        ({"slack": "9999999 days"}, "slack = '9999999 days' is too long", "365000 days"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(
    options: dict[str, OptionValue], message: str, hint: str
) -> None:
    with pytest.raises(PenstockError) as caught:
        with_disorder(PLAIN, **options)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


CREATE = """
CREATE STREAM Ticks (id INT, ts TIMESTAMP)
  WITH (source = 'generator', event_time = 'ts', rows = 10{more});
"""


class Scripts:
    """What statements on streams need of an engine, without Spark."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.engine: Any = SimpleNamespace(
            registry=registry,
            settings=Settings(),
            clock_us=lambda: 0,
            definitions=SimpleNamespace(
                create_stream=registry.put_stream, change_stream=registry.put_stream
            ),
        )

    def run(self, text: str) -> Stream:
        """Carry a script out; the stream as the catalog then has it."""
        self.engine.catalog = Catalog.of(self.registry.streams())
        run_script(self.engine, text)
        [stream] = self.registry.streams()
        return stream


@pytest.fixture
def scripts(tmp_path: Path) -> Iterator[Scripts]:
    registry = Registry(tmp_path / "catalog.sqlite")
    yield Scripts(registry)
    registry.close()


def test_create_stream_takes_all_settings_of_disorder(scripts: Scripts) -> None:
    more = ", slack = 500, idle = '10 s', trust = '1 h'"
    stream = scripts.run(CREATE.format(more=more))
    assert settings_of(stream) == ("fixed", None, 500, 10_000_000, 3_600_000_000)
    assert dict(stream.options) == {"rows": 10}


def test_set_changes_one_setting_and_keeps_the_others(scripts: Scripts) -> None:
    scripts.run(CREATE.format(more=", idle = '10 s'"))
    changes = [
        ("SET Ticks.slack = '2 s'", ("fixed", 2_000_000, None, 10_000_000, DAY_US)),
        ("SET Ticks.estimator = 'fixed'", ("fixed", 2_000_000, None, 10_000_000, DAY_US)),
        ("SET Ticks.slack = 7", ("fixed", None, 7, 10_000_000, DAY_US)),
        ("SET Ticks.estimator = 'fixed'", ("fixed", None, 7, 10_000_000, DAY_US)),
        ("SET Ticks.trust = '2 days'", ("fixed", None, 7, 10_000_000, 2 * DAY_US)),
        ("SET Ticks.estimator = 'quantile'", ("quantile", None, None, 10_000_000, 2 * DAY_US)),
        ("SET Ticks.idle = '1 min'", ("quantile", None, None, 60_000_000, 2 * DAY_US)),
    ]
    for statement, settings in changes:
        assert settings_of(scripts.run(statement)) == settings


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SET Ticks.estimator = 'fixed'", "estimator fixed needs a slack"),
        ("SET Ticks.slack = 10001", "a slack of 10001 tuples is out of range"),
        ("SET Ticks.trust = '0 s'", "trust must be longer than zero"),
        ("SET Ticks.idel = '1 s'", "a stream has no setting idel"),
    ],
)
def test_a_setting_that_is_refused_changes_nothing(
    scripts: Scripts, statement: str, message: str
) -> None:
    before = scripts.run(CREATE.format(more=""))
    with pytest.raises(QueryError, match=message):
        scripts.run(f"SET Ticks.idle = '5 s'; {statement}")
    assert scripts.registry.streams() == [before]


@pytest.mark.parametrize("option", ["slack = '5'", "slack = 20000", "idle = 'x'", "trust = '0 s'"])
def test_a_wrong_option_is_pointed_at(scripts: Scripts, option: str) -> None:
    text = CREATE.format(more=f", {option}")
    with pytest.raises(QueryError) as caught:
        scripts.run(text)
    assert caught.value.span is not None
    assert text[caught.value.span.start : caught.value.span.end] == option
