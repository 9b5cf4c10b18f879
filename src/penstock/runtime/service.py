"""The epoch service: how Spark's Python processes ask the engine, over HTTP with a token.

Three kinds of process ask: the planner of a source (what is the next micro-batch?), the tasks of a
stage (which slots, which punctuation?) and, when done, the same tasks report what they saw. Answers
are fixed in the registry before they are given, so asking again after a crash gives the same
answer. Messages are one JSON object; binary parts (Arrow) follow it, their lengths named in the
header.
"""

from __future__ import annotations

import hmac
import http.client
import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from penstock.errors import EngineError

LIMIT_BYTES = 256 * 1024 * 1024
TIMEOUT_S = 60.0

Handler = Callable[[dict[str, Any], list[bytes]], Any]


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    token: str


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A worker that goes away is nothing to print about; whoever lost an answer asks again."""


class EpochServer:
    """Serves named calls; listens on the given host only, refuses whoever lacks the token."""

    def __init__(self, calls: dict[str, Handler], host: str = "127.0.0.1") -> None:
        token = secrets.token_urlsafe(24)
        self._server = _QuietServer((host, 0), _handler(calls, token))
        self.address = Address(host, self._server.server_address[1], token)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="penstock-epochs", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _handler(calls: dict[str, Handler], token: str) -> type[BaseHTTPRequestHandler]:
    class Requests(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = TIMEOUT_S * 10
        # an answer is written in two pieces; else the second waits 40 ms for the other side
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            if not hmac.compare_digest(self.headers.get("X-Token", ""), token):
                return self._answer(403, {"error": "wrong token"}, close=True)
            if length > LIMIT_BYTES:
                return self._answer(413, {"error": f"over {LIMIT_BYTES} bytes"}, close=True)
            body = self.rfile.read(length)
            call = calls.get(self.path.strip("/"))
            if call is None:
                return self._answer(404, {"error": f"no call {self.path}"})
            try:
                message, parts = _unpack(body, json.loads(self.headers.get("X-Parts", "[]")))
                return self._answer(200, call(message, parts))
            except Exception as error:  # the asking task must learn why; the engine goes on
                return self._answer(500, {"error": f"{type(error).__name__}: {error}"})

        def _answer(self, status: int, value: Any, close: bool = False) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if close:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Requests


def _unpack(body: bytes, lengths: list[int]) -> tuple[dict[str, Any], list[bytes]]:
    end = len(body) - sum(lengths)
    message, parts = json.loads(body[:end]), []
    for length in lengths:
        parts.append(body[end : end + length])
        end += length
    return message, parts


_connections = threading.local()


def ask(
    address: Address, call: str, message: dict[str, Any], parts: list[bytes] | None = None
) -> Any:
    """One call from another process; calls are idempotent, so a broken one is tried again."""
    body = json.dumps(message).encode() + b"".join(parts or ())
    headers = {"X-Token": address.token, "X-Parts": json.dumps([len(p) for p in parts or ()])}
    kept: dict[Address, http.client.HTTPConnection] = _connections.__dict__.setdefault("kept", {})
    for attempt in (1, 2):
        connection = kept.pop(address, None) or http.client.HTTPConnection(
            address.host, address.port, timeout=TIMEOUT_S
        )
        try:
            connection.request("POST", f"/{call}", body, headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if attempt == 2:
                raise EngineError(f"the engine does not answer {call}: {error}") from error
            continue
        if response.status != 200:
            connection.close()
            raise EngineError(f"the engine refused {call}: {answer['error']}")
        kept[address] = connection
        return answer
    raise AssertionError("unreachable")
