"""The command line: arguments in, one function of `penstock.console` each, an exit code out."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.console.failures import DEBUG, guarded
from penstock.console.formats import Format

app = typer.Typer(
    name="penstock",
    help="Continuous queries in a stream SQL, over disordered streams, on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        "-w",
        metavar="DIR",
        help="Directory for all that lasts: streams, queries, state. Without it, nothing is kept.",
        file_okay=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as trigger='1 s' or cores=2."),
]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A script; - for stdin.")]


def _print_version(asked: bool) -> None:
    if asked:
        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: ARG001 (eager: done before any command)
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks and Spark's log; may stand anywhere.")
    ] = False,
) -> None:
    if debug:
        os.environ[DEBUG] = "1"


@app.command()
def run(
    file: FileArgument,
    once: Annotated[
        bool,
        typer.Option("--once", help="Read what the sources hold now, exactly, print and stop."),
    ] = False,
    format_: Annotated[
        Format, typer.Option("--format", "-f", help="How rows are printed.")
    ] = Format.TABLE,
    workspace: WorkspaceOption = None,
    set_: SetOption = None,
) -> None:
    """Run a script: until Ctrl-C, or with --once to the end of what there is.

    Bare SELECTs print to the terminal; with --once, so do CREATE QUERYs without INTO. Rows go to
    stdout, everything else to stderr.
    """

    def work() -> int:
        from penstock.console.running import run_file, settings_of

        return run_file(file, once, format_, workspace, settings_of(set_ or []))

    raise typer.Exit(guarded(work))


@app.command()
def sql(workspace: WorkspaceOption = None, set_: SetOption = None) -> None:
    """An interactive prompt (or statements from a pipe) on a running engine."""

    def work() -> int:
        from penstock.console.repl import run_repl
        from penstock.console.running import settings_of

        return run_repl(workspace, settings_of(set_ or []))

    raise typer.Exit(guarded(work))


@app.command()
def explain(file: FileArgument) -> None:
    """Explain how each query of a script would be run, without running it."""

    def work() -> int:
        from penstock.console.running import explain_file

        return explain_file(file)

    raise typer.Exit(guarded(work))


@app.command()
def demo(
    seconds: Annotated[
        float, typer.Option(help="How long to watch, once the first results are there.", min=1)
    ] = 35.0,
) -> None:
    """Watch queries come and go on a generated stream of sensor readings."""

    def work() -> int:
        from penstock.console.demo import run_demo

        return run_demo(seconds)

    raise typer.Exit(guarded(work))


@app.command()
def doctor(workspace: WorkspaceOption = None) -> None:
    """Check that all that penstock needs is here and works."""

    def work() -> int:
        from penstock.console.doctor import run_doctor

        return run_doctor(workspace)

    raise typer.Exit(guarded(work))


@app.command()
def warm_up() -> None:
    """Compile and keep what starts need, so that they are quick; once per installation."""

    def work() -> int:
        from penstock.console.warm_up import run_warm_up

        return run_warm_up()

    raise typer.Exit(guarded(work))


@app.command()
def node(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the queues are kept.", file_okay=False)
    ],
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any free one.", min=0, max=65535)] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The token that nodes and clients share, else DIR/token; made if missing.",
        ),
    ] = None,
    backup: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="Backup server: a node's grpc://host:port, or a directory."
        ),
    ] = None,
    backup_gb: Annotated[
        float,
        typer.Option(help="Most that is kept for others, or in a directory.", min=0.001),
    ] = 16.0,
    measure_all: Annotated[
        bool,
        typer.Option(
            "--measure-all", help="Measure all queues, not shared ones while an entry is loaded."
        ),
    ] = False,
    tell: Annotated[
        list[str] | None,
        typer.Option(metavar="URI", help="A node to tell when an entry here is loaded."),
    ] = None,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait until the node of DIR ends, then take its place."),
    ] = False,
) -> None:
    """Hold queues of derived streams in a process of its own, until Ctrl-C or SIGTERM."""

    def work() -> int:
        from penstock.console.node import NodeOptions, run_node

        nbytes, told = int(backup_gb * 1024**3), tuple(tell or ())
        options = NodeOptions(
            host, port, token_file, backup, nbytes, not measure_all, told, standby
        )
        return run_node(directory, options)

    raise typer.Exit(guarded(work))


@app.command()
def bench(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Without a name, the list.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A short run, for a first look.")] = False,
    json_: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures here.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", metavar="DIR", help="Also draw plots there.")
    ] = None,
) -> None:
    """Run a benchmark."""

    def work() -> int:
        from penstock import bench as benchmarks

        if not name:
            for known, measures in benchmarks.NAMES.items():
                print(f"{known:<10} {measures}")
            return 0
        return benchmarks.run(name, quick, json_, plots)

    raise typer.Exit(guarded(work))


def main() -> None:
    """Entry point of the `penstock` program."""
    # A service manager's stop is a user's Ctrl-C: rings end cleanly either way.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = sys.argv[1:]
    if "--debug" in arguments:  # of the program, but people add it at the end of what failed
        arguments.remove("--debug")
        arguments.insert(0, "--debug")
    app(arguments)


if __name__ == "__main__":
    main()
