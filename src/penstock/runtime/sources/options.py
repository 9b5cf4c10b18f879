"""Reading the options of a source: names checked with a suggestion, values by their form."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from penstock.errors import PenstockError

OptionValue = str | int | float | bool

_UNITS_US = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "second": 1_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_BYTE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_BYTES = re.compile(r"\s*(\d+)\s*(b|[kmgt](?:i?b)?)?\s*", re.IGNORECASE)


def suggest(word: str, known: Iterable[str], what: str) -> str:
    """A hint for a word that is not known: the nearest one, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word.lower(), names, n=1)
    return f"did you mean {near[0]}?" if near else f"known {what}: {', '.join(names)}"


def normalise(
    given: Mapping[str, OptionValue], known: Iterable[str], source: str
) -> dict[str, OptionValue]:
    """The options by lower-case name; a name outside `known` is an error."""
    names = frozenset(known)
    options: dict[str, OptionValue] = {}
    for name, value in given.items():
        lower = name.lower()
        if lower not in names:
            raise PenstockError(
                f"option {name} is not known for a {source} source",
                suggest(lower, names, "options"),
            )
        if lower in options:
            raise PenstockError(f"option {lower} is given twice", "give it once")
        options[lower] = value
    return options


def text_option(
    options: Mapping[str, OptionValue], name: str, default: str | None = None
) -> str | None:
    value = options.get(name, default)
    if value is None or isinstance(value, str):
        return value
    raise PenstockError(f"option {name} is {value!r}", f"write a text: {name} = '…'")


def choice_option(
    options: Mapping[str, OptionValue], name: str, choices: Iterable[str], default: str
) -> str:
    allowed = tuple(choices)
    value = str(options.get(name, default)).lower()
    if value not in allowed:
        raise PenstockError(f"option {name} is '{value}'", suggest(value, allowed, "values"))
    return value


def flag_option(options: Mapping[str, OptionValue], name: str, default: bool) -> bool:
    value = options.get(name, default)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, bool):
        return value
    raise PenstockError(f"option {name} is {value!r}", f"write {name} = true or {name} = false")


def integer_option(options: Mapping[str, OptionValue], name: str, default: int, lowest: int) -> int:
    value: object = options.get(name, default)
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise PenstockError(f"option {name} is {value!r}", f"write a whole number from {lowest} on")
    return value


def bytes_option(options: Mapping[str, OptionValue], name: str, default: int) -> int:
    """A number of bytes: 1048576, '512 MB', '1g' (units are powers of 1024)."""
    value = options.get(name, default)
    match = None if isinstance(value, bool) else _BYTES.fullmatch(str(value))
    if match is None or int(match[1]) == 0:
        raise PenstockError(f"option {name} is {value!r}", f"write {name} = '256 MB'")
    return int(match[1]) * _BYTE_UNITS[(match[2] or "")[:1].lower()]


def parse_duration_us(text: str, where: str) -> int:
    """A length of time such as '200 ms', '1.5 seconds' or '2 min', in microseconds."""
    match = _DURATION.fullmatch(text)
    unit = match[2].lower() if match else ""
    factor = _UNITS_US.get(unit) or _UNITS_US.get(unit.removesuffix("s"))
    if match is None or factor is None:
        raise PenstockError(
            f"{where}: '{text.strip()}' is not a length of time",
            "write a number and a unit: us, ms, s, min, h, d; for example '200 ms'",
        )
    return round(float(match[1]) * factor)
