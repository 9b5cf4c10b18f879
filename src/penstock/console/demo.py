"""`penstock demo`: queries come and go on a running stream, and one can watch.

A generated stream of sensor readings arrives out of order; windows wait just long enough to miss no
more than 1% of it (DRATIO 1%). Selections and windows are registered and dropped while it runs;
queries of one composition share a ring, which goes on as it is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live

from penstock.console.failures import FAILED, OK, say
from penstock.console.live import Figures, Screen, Tally, Watch, headline, status_line
from penstock.console.progress import engine_for, working
from penstock.console.results import by_window
from penstock.console.tables import print_table
from penstock.runtime.engine import Engine
from penstock.runtime.figures import share, span, target
from penstock.runtime.sinks.rows import python_rows

_ALERTS = 40
_FIRST_RESULTS_S = 120.0  # seconds on an idle machine; a busy one is given time
_LINE_EVERY_S = 5.0
_STREAM = """
    CREATE STREAM Sensors (id INT, room STRING, temp DOUBLE, ts TIMESTAMP, arrived TIMESTAMP)
      WITH (source = 'generator', start = 'now', rate = 2000, seed = 7,
            event_time = 'ts', arrival_time = 'arrived',
            delay = 'lognormal(150 ms, 1.1)', max_delay = '8 s',
            generate = 'id: uniform(1, 100); room: choice(kitchen*2, hall, attic, cellar);
                        temp: normal(21, 5)')
"""
_HOT = "SELECT id, room, temp, ts FROM Sensors WHERE temp > 33"
_ROOMS = """
    SELECT room, count(*) AS readings, avg(temp) AS mean, max(temp) AS hottest
    FROM Sensors [RANGE 3 SECONDS SLIDE 1 SECOND DRATIO 1%] GROUP BY room
"""
_WARM = """
    SELECT room, count(*) AS readings, avg(temp) AS mean, max(temp) AS hottest
    FROM Sensors [RANGE 2 SECONDS DRATIO 1%]
    WHERE temp > 25 AND room IN ('attic', 'kitchen') GROUP BY room
"""


@dataclass(slots=True)
class Stage:
    """The engine with what the demo has done on it so far."""

    engine: Engine
    tallies: dict[str, Tally] = field(default_factory=dict)
    registered: int = 0
    dropped: int = 0
    tell: Callable[[str], None] = field(default=lambda _: None)

    def register(self, what: str, **queries: str) -> None:
        began = time.monotonic()
        with self.engine.together():
            for name, text in queries.items():
                self.tallies[name] = Tally()
                self.engine.register(text, name, sink=self.tallies[name])
        self.registered += len(queries)
        self.tell(f"registered {what} in {_ms(began)}")

    def drop(self, what: str, *names: str) -> None:
        began = time.monotonic()
        for name in names:
            self.engine.drop_query(name)
        self.dropped += len(names)
        self.tell(f"dropped {what} in {_ms(began)}")


def _ms(began: float) -> str:
    return f"{(time.monotonic() - began) * 1000:.0f} ms"


def _alert(sensor: int) -> str:
    return (
        f"SELECT id, room, temp, ts FROM Sensors WHERE id = {sensor} AND temp > {26 + sensor % 5}"
    )


def script() -> list[tuple[float, Callable[[Stage], None]]]:
    """What happens when, as shares of the demo's length."""
    alerts = {f"alert_{n}": _alert(n) for n in range(1, _ALERTS + 1)}
    half = list(alerts)[_ALERTS // 2 :]
    return [
        (
            0.15,
            lambda s: s.register(f"{_ALERTS} alerts: same composition as hot, same ring", **alerts),
        ),
        (0.35, lambda s: s.register("warm: other window, other predicate, same ring", warm=_WARM)),
        (0.60, lambda s: s.drop(f"{len(half)} alerts", *half)),
        (0.75, lambda s: s.drop("hot", "hot")),
        (
            0.85,
            lambda s: s.register("mild: hot with another constant", mild=_HOT.replace("33", "30")),
        ),
    ]


def run_demo(seconds: float) -> int:
    with engine_for(settings={"trigger": "500 ms"}) as engine:
        stage = Stage(engine)
        engine.execute(_STREAM)
        stage.register("hot (a selection) and rooms (windows)", hot=_HOT, rooms=_ROOMS)
        with working("waiting for the first results"):
            _await_first_results(engine, stage)
        watch = Watch(engine, "Sensors")
        figures = _play(stage, watch, seconds)
        _summarise(stage, watch, figures)
        stopped = [q.name for q in engine.queries() if q.status.state != "running"]
        return FAILED if stopped or not any(t.rows for t in stage.tallies.values()) else OK


def _await_first_results(engine: Engine, stage: Stage) -> None:
    deadline = time.monotonic() + _FIRST_RESULTS_S
    while time.monotonic() < deadline and not all(t.rows for t in stage.tallies.values()):
        if any(ring["state"] == "failed" for ring in engine.rings()):
            return
        time.sleep(0.2)


def _play(stage: Stage, watch: Watch, seconds: float) -> Figures:
    """Run the script to its end, showing it."""
    screen = Screen(stage.tallies)
    steps = script()
    began = time.monotonic()
    shown = -_LINE_EVERY_S
    live = Live(screen, refresh_per_second=4, transient=True) if sys.stdout.isatty() else None

    def tell(event: str) -> None:
        event = f"{time.monotonic() - began:3.0f} s  {event}"
        screen.tell(event)
        if live is None:
            print(event, flush=True)

    stage.tell = tell
    figures = watch.look()
    if live is not None:
        live.start()
    try:
        while (now := time.monotonic() - began) < seconds:
            while steps and now >= steps[0][0] * seconds:
                steps.pop(0)[1](stage)
            figures = watch.look()
            screen.update(figures)
            if live is None and now - shown >= _LINE_EVERY_S:
                print(status_line(figures, stage.tallies), flush=True)
                shown = now
            time.sleep(0.25)
    except KeyboardInterrupt:
        say("stopped early")
    finally:
        if live is not None:
            live.stop()
    return figures


def _bargain(disorder: Mapping[str, Any]) -> str:
    """What a drop ratio buys."""
    return (
        f"DRATIO {target(disorder['target'])}: {share(disorder['ratio'])} of the tuples came too"
        f" late, and windows wait {span(disorder['buffer_us'])} instead of the"
        f" {span(disorder['delay_max_us'])} that the slowest tuple took"
    )


def _summarise(stage: Stage, watch: Watch, figures: Figures) -> None:
    console = Console(highlight=False, soft_wrap=True)
    results = sum(t.rows for t in stage.tallies.values())
    console.print("\nWhat was seen", style="bold")
    console.print(headline(figures).strip())
    console.print(
        f"{stage.registered} queries registered, {stage.dropped} dropped while the stream ran;"
        f" {results:,} result rows"
    )
    rings = ", ".join(f"{r['ring']} ({r.get('batch', 0)} batches)" for r in figures.rings)
    told = "none of them restarted" if not watch.restarted else f"restarted: {watch.restarted}"
    console.print(f"{len(figures.rings)} rings carried them: {rings}; {told}")
    for name in ("rooms", "hot"):
        if (latency := stage.tallies[name].latency_s) is not None:
            since = "a window's end" if name == "rooms" else "the event"
            console.print(f"{name}: results {latency:.1f} s after {since}, in the median")
    if (disorder := figures.disorder) is not None and disorder["buffer_us"] is not None:
        console.print(_bargain(disorder))
    console.print(
        f"{figures.late:,} times a tuple came after a window of a query had closed: counted and"
        " kept, to be queried as Sensors.late"
    )
    if (last := stage.tallies["rooms"].last) is not None:
        console.print("\nThe last windows of rooms", style="bold")
        sys.stdout.flush()
        newest = by_window(last).slice(max(0, last.num_rows - 6))
        print_table(newest.schema.names, python_rows(newest), sys.stdout)
    console.print("\nTry next", style="bold")
    console.print("penstock sql                                  a prompt: write queries yourself")
    console.print("penstock run examples/sensors.cql --once      a script over files, to the end")
    console.print("penstock explain examples/sensors.cql         how its queries would be run")
