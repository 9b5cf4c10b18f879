"""`penstock sql`: statements as they are typed, or from a pipe; results appear above the prompt.

A bare SELECT goes on printing until DROP QUERY or Ctrl-C. From a pipe, the first error ends the
run, and at its end what the sources hold is still read, so that `echo 'SELECT …' | penstock sql`
answers.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout

from penstock import __version__
from penstock.console.completion import Names, ScriptCompleter
from penstock.console.failures import FAILED, OK, debugging, describe, say
from penstock.console.formats import Format
from penstock.console.progress import engine_for
from penstock.console.results import ResultPrinter
from penstock.console.running import report_stopped, show, sink_of
from penstock.errors import EngineError, PenstockError
from penstock.language import is_complete

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

_PIPE_WAIT_S = 60.0
_SHOW = {".streams": "SHOW STREAMS", ".queries": "SHOW QUERIES", ".rings": "SHOW RINGS"}
HELP = """\
Statements end with a semicolon and may take several lines.
  CREATE STREAM name (column TYPE, …) WITH (source = 'file', path = 'in/', event_time = 'ts');
  SELECT room, max(temp) AS t FROM Sensors [RANGE 5 MINUTES SLIDE 1 MINUTE] GROUP BY room;
  CREATE QUERY name AS SELECT …;          runs on; .results name shows what it found
  CREATE STREAM name AS SELECT …;         its results as a stream for other queries
  CREATE REGIONS name FROM 'zones.geojson';   areas that tuples are looked up in
  DROP QUERY name;   DROP STREAM name;    SHOW STREAMS | REGIONS | QUERIES | RINGS | EXCHANGE;
  DESCRIBE name;     EXPLAIN SELECT …;    SET key = value;
A SELECT prints its rows above the prompt as they come, until DROP QUERY or Ctrl-C.
  .streams  .queries  .rings    what SHOW says of them
  .results NAME [ROWS]          the last rows kept for a query
  .quit  or Ctrl-D              leave"""


class Leave(Exception):
    """The user wants out."""


def run_repl(workspace: Path | None, settings: Mapping[str, str]) -> int:
    printer = ResultPrinter(Format.TABLE)
    with engine_for(workspace, terminal=printer.write, settings=settings) as engine:
        if not sys.stdin.isatty():
            return _read_pipe(engine, printer)
        say(f"penstock {__version__}; .help for help, Ctrl-D to leave")
        if workspace is None:
            say("nothing is kept after this session; start with --workspace DIR to keep it")
        _prompt(engine)
        return OK


def _read_pipe(engine: Engine, printer: ResultPrinter) -> int:
    for statement in piped_statements(sys.stdin):
        try:
            run_statement(engine, statement)
        except Leave:
            break
    if any(sink_of(engine, q.name) == "terminal" for q in engine.queries()):
        with contextlib.suppress(EngineError):  # an endless source never falls idle
            engine.await_idle(_PIPE_WAIT_S)
    sys.stdout.flush()
    return FAILED if report_stopped(engine, set()) and not printer.closed.is_set() else OK


def piped_statements(lines: Iterable[str]) -> Iterator[str]:
    """Lines gathered to whole statements, empty lines before them so that errors name the right
    line; the last statement needs no semicolon."""
    pending = ""
    for count, line in enumerate(lines, 1):
        pending += line
        if pending.lstrip().startswith(".") or is_complete(pending):
            yield pending
            pending = "\n" * count
    if pending.strip():
        yield pending


def run_statement(engine: Engine, text: str) -> None:
    """Carry out what was typed: a shortcut or statements; answers go to stdout."""
    words = text.split()
    if not words:
        return
    if not words[0].startswith("."):
        for answer in engine.execute(text):
            show(answer, sys.stdout)
        return
    shortcut, *arguments = [w.rstrip(";") for w in words]
    match shortcut.lower():
        case ".quit" | ".exit" | ".q":
            raise Leave
        case ".help" | ".h" | ".?":
            print(HELP)
        case ".results" if arguments:
            _print_results(engine, arguments)
        case ".results":
            raise PenstockError(".results needs a query's name", "write .results name")
        case name if name in _SHOW:
            show(engine.execute(_SHOW[name])[0], sys.stdout)
        case _:
            raise PenstockError(f"{shortcut} is not known", ".help shows what is")


def _print_results(engine: Engine, arguments: list[str]) -> None:
    query = engine.query(arguments[0])
    count = arguments[1] if len(arguments) > 1 else "20"
    if not count.isdigit():
        raise PenstockError(f"{count} is not a number of rows", "write .results name 20")
    rows = query.results()
    first = max(0, rows.num_rows - int(count))
    ResultPrinter(Format.TABLE).print_whole(query.name, rows.slice(first))
    if first:
        say(f"the last {rows.num_rows - first} of {rows.num_rows} rows")


def _prompt(engine: Engine) -> None:
    session: PromptSession[str] = PromptSession(
        "penstock> ",
        history=_history(),
        completer=ScriptCompleter(lambda: names_of(engine)),
        complete_while_typing=False,
        multiline=True,
        prompt_continuation=lambda width, *_: "." * (width - 2) + " ",
        key_bindings=_enter_runs_whole_statements(),
    )
    done = threading.Event()
    with patch_stdout(raw=True):
        threading.Thread(target=_watch, args=(engine, done), daemon=True).start()
        try:
            while True:
                if not _prompt_once(session, engine):
                    return
        finally:
            done.set()


def _prompt_once(session: PromptSession[str], engine: Engine) -> bool:
    try:
        run_statement(engine, session.prompt())
    except KeyboardInterrupt:
        _stop_printing(engine)
    except (EOFError, Leave):
        return False
    except Exception as error:  # a prompt outlives whatever a statement raises
        if debugging():
            raise
        say(describe(error))
    return True


def _stop_printing(engine: Engine) -> None:
    printing = [q.name for q in engine.queries() if sink_of(engine, q.name) == "terminal"]
    for name in printing:
        engine.drop_query(name)
    say(f"dropped {', '.join(printing)}" if printing else "Ctrl-D or .quit leaves")


def _enter_runs_whole_statements() -> KeyBindings:
    bindings = KeyBindings()

    def whole() -> bool:
        from prompt_toolkit.application import get_app

        text = get_app().current_buffer.text
        return not text.strip() or text.lstrip().startswith(".") or is_complete(text)

    @bindings.add("enter", filter=Condition(whole))
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return bindings


def _watch(engine: Engine, done: threading.Event) -> None:
    reported: set[str] = set()
    while not done.wait(1.0):
        with contextlib.suppress(Exception):  # the engine may be on its way out
            report_stopped(engine, reported)


def names_of(engine: Engine) -> Names:
    catalog = engine.catalog
    streams = {s.name: s.schema.names for s in catalog.streams.values()}
    regions = {r.name: r.schema.names for r in catalog.regions.values()}
    return Names(streams, [q.name for q in engine.queries()], regions)


def _history() -> History:
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(home).expanduser() / "penstock" / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
