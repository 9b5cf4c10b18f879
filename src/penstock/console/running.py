"""`penstock run` and `penstock explain`: a script on an engine of its own.

Messages go to stderr and rows to stdout. The answers of SHOW, DESCRIBE and EXPLAIN are printed when
the script reaches them; in a bounded run those that end the script are answered after the run, when
there are figures to show. They go to stdout in table format, to stderr otherwise, so that jsonl and
csv are rows only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from penstock.console.failures import FAILED, OK, say
from penstock.console.formats import Format
from penstock.console.progress import engine_for, rows_read, working
from penstock.console.results import ResultPrinter
from penstock.console.scripts import already_there, closing_questions, read_script, without
from penstock.console.tables import print_table
from penstock.errors import PenstockError
from penstock.language.ast import BareSelect, CreateQuery, CreateStream, Explain, Show

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine
    from penstock.runtime.statements import Answer

_LOOK_EVERY_S = 1.0
_KEPT = ("results", "memory")  # sinks whose rows the engine can give back


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """`key=value` options, checked before anything starts; a value may be quoted as in SET."""
    from penstock.runtime.settings import Settings

    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise PenstockError(f"--set {pair} is not key=value", "write --set trigger='1 s'")
        settings[key.strip()] = _unquoted(value.strip())
    Settings().changed(settings)
    return settings


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] == "'"
    return value[1:-1] if quoted else value


def run_file(
    path: str,
    once: bool,
    format_: Format,
    workspace: Path | None,
    settings: Mapping[str, str],
) -> int:
    text, statements = read_script(path)
    printer = ResultPrinter(format_, gather=once)
    answers_to = sys.stdout if format_ is Format.TABLE else sys.stderr
    last = closing_questions(statements) if once else ()
    with engine_for(workspace, bounded=once, terminal=printer.write, settings=settings) as engine:
        known = already_there(engine, statements)
        if known:
            say(f"resumed: {len(known)} streams and queries were in the workspace")
        answers = engine.execute(without(text, known))
        for answer in answers[: len(answers) - len(last)]:
            show(answer, answers_to)
        if once:
            code = _until_done(engine, printer)
            for answer in engine.execute(without(text, statements[: len(statements) - len(last)])):
                show(answer, answers_to)
            return code
        return _until_stopped(engine, printer, workspace)


def _until_done(engine: Engine, printer: ResultPrinter) -> int:
    with working("reading", lambda: rows_read(engine)):
        engine.finish()
    for query in engine.queries():
        rows = query.results() if sink_of(engine, query.name) in _KEPT else None
        if rows is None:
            rows = printer.gathered(query.name)
        if rows is not None:
            printer.print_whole(query.name, rows)
    report_left_out(engine)
    return FAILED if report_stopped(engine, set()) else OK


def _until_stopped(engine: Engine, printer: ResultPrinter, workspace: Path | None) -> int:
    names = [q.name for q in engine.queries()]
    if not names:
        say("no query to run: the script registers none")
        return OK
    say(f"{len(names)} quer{'y' if len(names) == 1 else 'ies'} running; Ctrl-C stops")
    reported: set[str] = set()
    try:
        while not printer.closed.wait(_LOOK_EVERY_S):
            report_stopped(engine, reported)
            if all(q.status.ended for q in engine.queries()):
                say("error: no query is left running")
                return FAILED
    except KeyboardInterrupt:
        pass
    kept = "nothing was kept: give --workspace DIR to be able to resume"
    if workspace is not None:
        kept = f"resume with the same --workspace {workspace}"
    say(f"stopped after {printer.rows:,} printed rows; {kept}")
    return OK


def report_stopped(engine: Engine, reported: set[str]) -> set[str]:
    """Say which queries have stopped by themselves, each once; all that were reported and have not
    come back."""
    for query in engine.queries():
        status = query.status
        if status.state in ("failed", "quarantined") and query.name not in reported:
            reported.add(query.name)
            say(f"query {query.name} {status.state}: {status.error}")
        elif status.state == "running":
            reported.discard(query.name)  # it may happen again
    return reported


def report_left_out(engine: Engine) -> None:
    """Say which records and tuples are in no result, and where they are."""
    for name, figures in engine.metrics()["streams"].items():
        if bad := figures["bad"]:
            say(f"stream {name}: malformed records: {bad:,}; SELECT * FROM {name}.bad has them")
        if lost := figures["lost"]:
            say(f"stream {name}: tuples that came too late: {lost:,}; {name}.late has them")


def sink_of(engine: Engine, query: str) -> str:
    """Kind of a query's sink: results, terminal, parquet, …"""
    from penstock.runtime.sinks.spec import SinkSpec

    row = engine.registry.query(query)
    return "" if row is None else SinkSpec.loads(row.sink).kind


def show(answer: Answer, out: TextIO) -> None:
    """What a statement answered: tables and texts to `out`, messages to stderr."""
    if answer.columns:
        print_table(answer.columns, answer.rows, out)
        out.write("\n")
    elif answer.text is not None:
        out.write(answer.text + "\n\n")
    elif answer.message:
        say(answer.message)
    out.flush()


def explain_file(path: str) -> int:
    """How each query of a script would be run; its streams and queries are made, nothing starts."""
    text, statements = read_script(path)
    explained: list[tuple[str, str]] = []
    with engine_for(bounded=True) as engine, working("planning"):
        for statement in statements:
            alone = without(text, [s for s in statements if s is not statement])
            match statement:
                case CreateQuery() | BareSelect():
                    plan = engine.explain(alone)
                    answer = engine.execute(alone)[0]
                    name = answer.query.name if answer.query is not None else "query"
                    explained.append((f"{name} (line {_line(text, statement.span.start)})", plan))
                case CreateStream(name=name, query=query) if query is not None:
                    title = f"{name} (line {_line(text, statement.span.start)})"
                    explained.append((title, engine.explain(alone)))
                    engine.execute(alone)
                case Explain(select=select) if select is not None:
                    place = f"EXPLAIN (line {_line(text, statement.span.start)})"
                    explained.append((place, engine.execute(alone)[0].text or ""))
                case Explain() | Show():
                    pass  # about running queries, of which there are none here
                case _:
                    engine.execute(alone)
    for title, plan in explained:
        print(f"{title}\n" + "".join(f"  {line}\n" for line in plan.splitlines()))
    if not explained:
        say(f"{path} holds no query")
    return OK


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
