"""Errors in words."""

from __future__ import annotations

import errno
import os
import sqlite3

import pytest

from penstock.console.failures import describe


@pytest.mark.parametrize(
    "error",
    [
        sqlite3.OperationalError("database or disk is full"),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "w/rings"),
    ],
)
def test_a_full_disk_is_told_with_what_helps(error: Exception) -> None:
    told, advice = describe(error).splitlines()
    assert told.startswith("error: no room is left on the disk: ")
    assert advice.startswith("make room and start again")


def test_of_what_nobody_foresaw_the_first_line_is_told() -> None:
    told = describe(ValueError("one\ntwo")).splitlines()
    assert told == ["error: ValueError: one", "add --debug to see where it comes from"]
