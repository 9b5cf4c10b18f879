"""Signs of life on stderr: a spinner on a terminal, a line now and then anywhere else."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from penstock.console.failures import debugging, say
from penstock.errors import EngineError, PenstockError

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine
    from penstock.runtime.sinks.outlets import Terminal

_LINE_EVERY_S = 10.0


@contextmanager
def engine_for(
    workspace: str | os.PathLike[str] | None = None,
    *,
    bounded: bool = False,
    terminal: Terminal | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Engine]:
    """An engine for one command, its slow start shown, stopped whatever happens."""
    engine = start_engine(workspace, bounded=bounded, terminal=terminal, settings=settings)
    try:
        yield engine
    except BaseException:
        # what happened matters more than a complaint of a half-started engine on its way out
        with contextlib.suppress(Exception):
            engine.stop()
        raise
    engine.stop()


def start_engine(workspace: str | os.PathLike[str] | None = None, **options: Any) -> Engine:
    with working("starting Spark"):
        try:
            from penstock.runtime.engine import Engine  # takes seconds: after the sign of life

            return Engine(workspace=workspace, **options)
        except PenstockError:
            raise
        except Exception as error:
            if debugging():
                raise
            first = str(error).strip().splitlines()[:1] or [type(error).__name__]
            hint = "penstock doctor shows what is missing; --debug shows Spark's own words"
            raise EngineError(f"Spark did not start: {first[0]}", hint) from None


@contextmanager
def working(doing: str, figure: Callable[[], str] | None = None) -> Iterator[None]:
    """Show that something is being done and for how long; `figure` says how far it is."""
    if sys.stderr.isatty():
        with _spinning(doing, figure):
            yield
        return
    say(doing)
    if figure is None:
        yield
        return
    done = threading.Event()
    reporter = threading.Thread(target=_report, args=(doing, figure, done), daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()


def _report(doing: str, figure: Callable[[], str], done: threading.Event) -> None:
    last = ""
    while not done.wait(_LINE_EVERY_S):
        if (now := _try(figure)) and now != last:
            say(f"{doing}: {now}")
            last = now


def _try(figure: Callable[[], str]) -> str:
    try:
        return figure()
    except Exception:  # the engine may be going away; figures are not worth an error
        return ""


@contextmanager
def _spinning(doing: str, figure: Callable[[], str] | None) -> Iterator[None]:
    columns = (SpinnerColumn(), TextColumn("{task.description} {task.elapsed:.0f} s", markup=False))
    done = threading.Event()
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as shown:
        task = shown.add_task(f"{doing}…")

        def follow() -> None:
            while figure is not None and not done.wait(1.0):
                if now := _try(figure):
                    shown.update(task, description=f"{doing}: {now},")

        threading.Thread(target=follow, daemon=True).start()
        try:
            yield
        finally:
            done.set()


def rows_read(engine: Engine) -> str:
    """How much the streams have given so far, in words; empty before the first rows."""
    answer = engine.execute("SHOW STREAMS")[0]
    rows = sum(row[answer.columns.index("rows")] or 0 for row in answer.rows)
    return f"{rows:,} rows read" if rows else ""
