"""Errors that a user may see: each says what is wrong, where, and what would be right."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of query text: character offsets, end excluded."""

    start: int
    end: int


class PenstockError(Exception):
    """Base of all errors that penstock raises on purpose."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class QueryError(PenstockError):
    """A statement that cannot be taken; `at` completes it with the text it stands in."""

    def __init__(self, message: str, hint: str | None = None, span: Span | None = None) -> None:
        super().__init__(message, hint)
        self.span = span
        self.text: str | None = None

    def at(self, text: str) -> QueryError:
        """Attach the whole text that `span` refers to, once."""
        if self.text is None:
            self.text = text
        return self

    @property
    def line(self) -> int | None:
        if self.text is None or self.span is None:
            return None
        return self.text.count("\n", 0, self.span.start) + 1

    @property
    def column(self) -> int | None:
        if self.text is None or self.span is None:
            return None
        return self.span.start - (self.text.rfind("\n", 0, self.span.start) + 1) + 1

    def __str__(self) -> str:
        if self.text is None or self.span is None:
            return super().__str__()
        begin = self.text.rfind("\n", 0, self.span.start) + 1
        end = self.text.find("\n", self.span.start)
        source = self.text[begin : end if end >= 0 else len(self.text)]
        offset = self.span.start - begin
        width = max(1, min(self.span.end - self.span.start, len(source) - offset))
        padding = "".join("\t" if c == "\t" else " " for c in source[:offset])
        lines = [
            f"line {self.line}, column {self.column}: {self.message}",
            f"  {source}",
            f"  {padding}{'^' * width}",
        ]
        return "\n".join(lines if self.hint is None else [*lines, self.hint])


class WorkspaceError(PenstockError):
    """The workspace is in use, damaged, or of another version."""


class EngineError(PenstockError):
    """The running system cannot do what was asked."""
