"""The forms that rows can be printed in; apart, so that reading arguments loads nothing heavy."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
