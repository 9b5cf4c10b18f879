"""Nodes as processes of their own, for measuring and for killing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from penstock.exchange.client import NodeClient
from penstock.exchange.failures import ExchangeError
from penstock.exchange.wire import NodeAddress

_TOKEN = "a token for one run"
_PATIENCE_S = 60.0
_LOOK_S = 0.01
LONG_S = 600.0  # patience of clients that must outlive every kill


class NodeProcess:
    """`penstock node` on a directory; it can be killed and started again at the same address.

    With a standby, what is killed is the one that serves, and what starts is the next standby.
    """

    def __init__(self, directory: Path, *options: str, standby: bool = False) -> None:
        directory.mkdir(parents=True)
        (directory / "token").write_text(_TOKEN)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        program = [sys.executable, "-m", "penstock.cli", "node", str(directory)]
        self._command = [*program, "--port", str(port), *options]
        self.address = NodeAddress(f"grpc://127.0.0.1:{port}", _TOKEN)
        self._standby: subprocess.Popen[bytes] | None = None
        self._has_standby = standby
        self.process = self._run()
        if standby:
            self.wait()
            self.start()

    def start(self) -> None:
        if self._has_standby:
            self._standby = self._run("--standby")
        else:
            self.process = self._run()

    def _run(self, *options: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self._command, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def prepare(self) -> None:
        """Until a standby, if there is to be one, is ready."""
        if self._standby is not None and self._standby.stdout is not None:
            self._standby.stdout.readline()

    def wait(self) -> None:
        """Until it answers."""
        with self.client(patience_s=_PATIENCE_S) as client:
            client.stats()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self._standby is not None:
            self.process, self._standby = self._standby, None

    def stop(self) -> None:
        for process in (self._standby, self.process):
            if process is not None:
                process.terminate()
                process.wait()

    def client(self, **options: float) -> NodeClient:
        return NodeClient(self.address, **options)  # type: ignore[arg-type]

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def with_backup(directory: Path, standby: bool = False) -> tuple[NodeProcess, NodeProcess]:
    """A node, with or without a standby, and its backup server, both answering."""
    backup = NodeProcess(directory / "backup")
    node = NodeProcess(
        directory / "node",
        "--backup",
        backup.address.uri,
        "--token-file",
        str(directory / "node" / "token"),
        standby=standby,
    )
    for one in (backup, node):
        one.wait()
    return node, backup


def patiently_until(condition, patience_s: float = _PATIENCE_S) -> None:
    """Wait for it; the time in which the whole machine pauses does not count."""
    for _ in range(int(patience_s / _LOOK_S)):
        if condition():
            return
        time.sleep(_LOOK_S)
    raise ExchangeError("nothing happened for too long")
