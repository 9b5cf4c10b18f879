"""The epoch service: who may ask, what is refused, what comes back."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import EngineError
from penstock.runtime.service import Address, EpochServer, ask


def _echo(message: dict[str, Any], parts: list[bytes]) -> Any:
    return {"message": message, "parts": [part.hex() for part in parts]}


def _fail(message: dict[str, Any], parts: list[bytes]) -> Any:
    raise ValueError("no such ring")


@pytest.fixture
def address() -> Iterator[Address]:
    server = EpochServer({"echo": _echo, "fail": _fail})
    yield server.address
    server.close()


def test_a_call_carries_a_message_and_binary_parts(address: Address) -> None:
    answer = ask(address, "echo", {"ring": "ä", "n": 2**62}, [b"\x00\n{}", b""])
    assert answer == {"message": {"ring": "ä", "n": 2**62}, "parts": ["000a7b7d", ""]}


def test_an_answer_does_not_wait_for_the_next_packet(address: Address) -> None:
    took = []
    for _ in range(10):
        begin = time.perf_counter()
        ask(address, "echo", {})
        took.append(time.perf_counter() - begin)
    assert min(took[1:]) < 0.02  # of a delayed acknowledgement: 0.04


def test_the_service_listens_on_loopback_only(address: Address) -> None:
    assert address.host == "127.0.0.1"


def test_whoever_lacks_the_token_is_refused(address: Address) -> None:
    with pytest.raises(EngineError, match="wrong token"):
        ask(replace(address, token="guess"), "echo", {})
    assert ask(address, "echo", {})["message"] == {}


def test_a_failing_call_tells_why_and_the_service_goes_on(address: Address) -> None:
    with pytest.raises(EngineError, match="no such ring"):
        ask(address, "fail", {})
    with pytest.raises(EngineError, match="no call /nothing"):
        ask(address, "nothing", {})
    assert ask(address, "echo", {"n": 1})["message"] == {"n": 1}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[]"])
def test_a_malformed_message_gets_an_error_and_changes_nothing(
    address: Address, body: bytes
) -> None:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=5)
    connection.request("POST", "/fail", body, {"X-Token": address.token})
    assert connection.getresponse().status == 500
    connection.close()
    assert ask(address, "echo", {})["parts"] == []


def test_an_engine_that_is_gone_is_said_to_be_gone() -> None:
    server = EpochServer({"echo": _echo})
    server.close()
    with pytest.raises(EngineError, match="does not answer echo"):
        ask(server.address, "echo", {})
