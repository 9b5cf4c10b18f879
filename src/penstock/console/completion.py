"""What can stand at the cursor: keywords, streams, columns, functions, queries.

A guess from the words before the cursor, not a parse: half a statement does not parse. Where
nothing narrows it down, everything that fits the word begun is offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from penstock.language.functions import AGGREGATES, NEVER_FAILS, SPATIAL
from penstock.plan.catalog import COMPANIONS

STATEMENTS = (
    "CREATE STREAM", "CREATE REGIONS", "CREATE QUERY", "SELECT", "DROP QUERY", "DROP STREAM",
    "DROP REGIONS", "RESUME QUERY", "SHOW STREAMS", "SHOW REGIONS", "SHOW QUERIES", "SHOW RINGS",
    "SHOW EXCHANGE", "DESCRIBE", "EXPLAIN", "SET",
)  # fmt: skip
CLAUSES = (
    "AS", "FROM", "WHERE", "GROUP BY", "HAVING", "INTO", "WITH", "AND", "OR", "NOT", "IN",
    "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "DISTINCT",
    "CASCADE",
)  # fmt: skip
WINDOW = (
    "RANGE", "SLIDE", "WATTR", "DRATIO", "PER", "NOW", "UNBOUNDED", "MILLISECONDS", "SECONDS",
    "MINUTES", "HOURS", "DAYS",
)  # fmt: skip
OPTIONS = (
    "source", "path", "format", "event_time", "arrival_time", "slack", "estimator", "idle", "trust",
    "rate", "rows", "seed", "start", "generate", "delay", "max_delay", "sink", "layout",
)  # fmt: skip
FUNCTIONS = tuple(sorted(AGGREGATES | NEVER_FAILS | SPATIAL))
SHORTCUTS = (".help", ".queries", ".quit", ".results", ".rings", ".streams")

_WORD = re.compile(r"[\w.`]*$")
_TOKEN = re.compile(r"'(?:[^']|'')*'?|`[^`]*`|[\w.]+|[^\s\w]")


@dataclass(frozen=True, slots=True)
class Names:
    """What the engine holds: streams with their columns, queries, regions with attributes."""

    streams: Mapping[str, Sequence[str]] = field(default_factory=dict)
    queries: Sequence[str] = ()
    regions: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, Sequence[str]]:
        """All that has columns."""
        return {**self.streams, **self.regions}


def suggestions(before: str, names: Names) -> list[str]:
    """Completions of the last word of the text before the cursor, best first.

    >>> suggestions("SELECT * FROM Se", Names({"Sensors": ("id", "temp")}))
    ['Sensors', 'Sensors.late', 'Sensors.bad']
    >>> suggestions("select te", Names({"Sensors": ("id", "temp")}))
    ['temp']
    """
    if before.lstrip().startswith("."):
        return _fitting(before.strip(), SHORTCUTS) if " " not in before.strip() else []
    match = _WORD.search(before)
    word = match[0] if match else ""
    statement = _TOKEN.findall(before[: len(before) - len(word)])
    statement = statement[_after_last(statement, ";") :]
    if statement and statement[-1].startswith("'"):
        return []
    return _fitting(word, _candidates([t.upper() for t in statement], word, before, names))


def _candidates(tokens: list[str], word: str, text: str, names: Names) -> Iterable[str]:
    if not tokens:
        return STATEMENTS
    streams = [s for name in names.streams for s in (name, *(f"{name}.{c}" for c in COMPANIONS))]
    last = tokens[-2:]
    if last == ["DROP", "REGIONS"]:
        return names.regions
    if last[-1] in ("FROM", "DESCRIBE"):
        return (*streams, *names.regions)
    if last == ["DROP", "STREAM"]:
        return streams
    if last in (["DROP", "QUERY"], ["RESUME", "QUERY"]):
        return names.queries
    if last[-1] == "EXPLAIN":
        return ("SELECT", "ANALYZE", *names.queries)
    if last[-1] in ("CREATE", "DROP"):
        return ("STREAM", "REGIONS", "QUERY")
    if last[-1] == "RESUME":
        return ("QUERY",)
    if last[-1] == "SHOW":
        return ("STREAMS", "REGIONS", "QUERIES", "RINGS", "EXCHANGE")
    if _after_last(tokens, "[") > _after_last(tokens, "]"):
        return WINDOW
    opened = max(_after_last(tokens, "WITH"), _after_last(tokens, "INTO"))
    if opened and tokens.count("(") > tokens.count(")"):
        return OPTIONS
    if "." in word:
        return _qualified(word, text, names)
    tables = names.tables
    mentioned = [s for s in tables if re.search(rf"\b{re.escape(s)}\b", text, re.IGNORECASE)]
    columns = [c for s in mentioned or tables for c in tables[s]]
    return (*dict.fromkeys(columns), *CLAUSES, *FUNCTIONS)


def _qualified(word: str, text: str, names: Names) -> list[str]:
    """Columns behind a stream's name or its alias."""
    owner = word.rpartition(".")[0]
    for name, columns in names.tables.items():
        alias = re.search(rf"\b{re.escape(name)}\s+{re.escape(owner)}\b", text, re.IGNORECASE)
        if alias or name.lower() == owner.lower():
            return [f"{owner}.{c}" for c in columns]
    return []


def _after_last(tokens: Sequence[str], token: str) -> int:
    """Position after a token's last occurrence; 0 where there is none."""
    return next((i for i in range(len(tokens), 0, -1) if tokens[i - 1] == token), 0)


def _fitting(word: str, candidates: Iterable[str]) -> list[str]:
    start = word.lower()
    return [c for c in candidates if c.lower().startswith(start) and c.lower() != start]


class ScriptCompleter(Completer):
    """`suggestions` for prompt_toolkit; names are asked for anew, as they change."""

    def __init__(self, names: Callable[[], Names]) -> None:
        self._names = names

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        shortcut = before.lstrip().startswith(".")
        match = None if shortcut else _WORD.search(before)
        length = len(before.strip()) if match is None else len(match[0])
        for text in suggestions(before, self._names()):
            yield Completion(text, start_position=-length)
