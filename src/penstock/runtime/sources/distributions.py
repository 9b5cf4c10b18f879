"""Distributions of generated values and delays: their notation, and how they are drawn.

Row i's value in a column is a pure function of (seed, column, i): a counter hashed by SplitMix64's
mixer gives a uniform number, the distribution's inverse (or Box and Muller's formula) the value. So
any set of rows can be made anywhere, in any order, and a column does not depend on the others.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import PenstockError
from penstock.runtime.sources.options import parse_duration_us, suggest

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*(?:null\s+([0-9.]+)\s*%)?\s*", re.DOTALL)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

# Arguments: how many at least, how many at most.
_VALUE_ARGUMENTS: dict[str, tuple[int, int]] = {
    "uniform": (2, 2),
    "normal": (2, 2),
    "exponential": (1, 1),
    "lognormal": (2, 2),
    "zipf": (2, 2),
    "choice": (1, 100_000),
    "sequence": (0, 1),
    "bernoulli": (1, 1),
    "constant": (1, 1),
}
_DELAY_ARGUMENTS: dict[str, tuple[int, int]] = {
    "none": (0, 0),
    "constant": (1, 1),
    "uniform": (2, 2),
    "exponential": (1, 1),
    "normal": (2, 2),
    "lognormal": (2, 2),
    "pareto": (2, 2),
}
_DELAY_NUMBERS = {"lognormal": "sigma", "pareto": "alpha"}  # second argument without a unit


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution as written: its name, its arguments, and the share of NULLs (0 to 1)."""

    name: str
    arguments: tuple[str, ...] = ()
    null_share: float = 0.0

    def number(self, index: int, where: str) -> float:
        try:
            value = float(self.arguments[index])
        except ValueError:
            value = float("nan")
        if not np.isfinite(value):
            raise PenstockError(
                f"{where}: '{self.arguments[index]}' is not a number",
                f"write {self.name} with numbers",
            )
        return value


@dataclass(frozen=True, slots=True)
class Delay:
    """How much later than its event a tuple arrives: parameters in microseconds."""

    name: str = "none"
    first: float = 0.0
    second: float = 0.0


NO_DELAY = Delay()


def split_outside(text: str, separators: str) -> list[str]:
    """Cut at separators that stand outside parentheses and double quotes."""
    pieces, depth, quoted, current = [], 0, False, ""
    for character in text:
        if character == '"':
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(character, 0)
        if character in separators and depth == 0 and not quoted:
            pieces.append(current)
            current = ""
        else:
            current += character
    return [*pieces, current]


def parse_distribution(text: str, where: str) -> Distribution:
    """Read `normal(20, 5) null 1%`."""
    return _parse_call(text, where, _VALUE_ARGUMENTS)


def parse_generate(text: str) -> dict[str, Distribution]:
    """Read the option `generate`: `column: distribution; …`, by lower-case column name."""
    columns: dict[str, Distribution] = {}
    for part in split_outside(text, ";"):
        if not part.strip():
            continue
        name, colon, call = part.partition(":")
        name = name.strip().strip("`")
        if not colon or not name:
            raise PenstockError(
                f"generate: '{part.strip()}' has no column",
                "write generate = 'temp: normal(20, 5); room: choice(kitchen, hall)'",
            )
        if name.lower() in columns:
            raise PenstockError(f"generate: column {name} is given twice", "give it once")
        columns[name.lower()] = parse_distribution(call, f"generate, column {name}")
    return columns


def parse_delay(text: str) -> Delay:
    """Read the option `delay`: `exponential(200 ms)`, `pareto(10 ms, 1.5)`, …"""
    call = _parse_call(text, "delay", _DELAY_ARGUMENTS)
    if call.null_share:
        raise PenstockError("delay: a delay cannot be NULL", "leave 'null …%' out")
    values = []
    for index, argument in enumerate(call.arguments):
        if index == 1 and call.name in _DELAY_NUMBERS:
            values.append(call.number(index, f"delay, {_DELAY_NUMBERS[call.name]}"))
        else:
            values.append(float(parse_duration_us(argument, "delay")))
    delay = Delay(call.name, *values)
    if call.name == "uniform" and delay.first > delay.second:
        raise PenstockError(f"delay: '{text}' is empty", "write uniform(least, most)")
    if call.name in _DELAY_NUMBERS and delay.second <= 0:
        raise PenstockError(
            f"delay: {_DELAY_NUMBERS[call.name]} is {delay.second}", "write a number above 0"
        )
    return delay


def uniforms(seed: int, stream: str, rows: np.ndarray) -> np.ndarray:
    """Row i's number in [0, 1) of the stream of random numbers with this name."""
    mixed = rows.astype(np.uint64)
    mixed *= _GOLDEN
    mixed += np.uint64(_stream_key(seed, stream))
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= factor
    mixed ^= mixed >> np.uint64(31)
    mixed >>= np.uint64(11)
    return mixed * 2.0**-53


def normals(seed: int, stream: str, rows: np.ndarray) -> np.ndarray:
    """Row i's standard normal number (Box and Muller)."""
    radius = np.sqrt(-2.0 * np.log(1.0 - uniforms(seed, stream, rows)))
    return radius * np.cos(2.0 * np.pi * uniforms(seed, stream + "/angle", rows))


def draw_numbers(
    name: str, parameters: tuple[float, ...], seed: int, stream: str, rows: np.ndarray
) -> np.ndarray:
    """Doubles of a continuous distribution."""
    match name:
        case "uniform":
            low, high = parameters
            return low + uniforms(seed, stream, rows) * (high - low)
        case "exponential":
            return -parameters[0] * np.log(1.0 - uniforms(seed, stream, rows))
        case "normal":
            return parameters[0] + parameters[1] * normals(seed, stream, rows)
        case "lognormal":
            return np.exp(parameters[0] + parameters[1] * normals(seed, stream, rows))
    raise AssertionError(name)


def draw_delays(delay: Delay, longest_us: int, seed: int, rows: np.ndarray) -> np.ndarray:
    """Whole microseconds from 0 to `longest_us`."""
    stream = " delay"  # no column has this name
    match delay.name:
        case "none":
            return np.zeros(len(rows), dtype=np.int64)
        case "constant":
            drawn = np.full(len(rows), delay.first)
        case "lognormal":
            drawn = delay.first * np.exp(delay.second * normals(seed, stream, rows))
        case "pareto":
            spread = (1.0 - uniforms(seed, stream, rows)) ** (-1.0 / delay.second)
            drawn = delay.first * spread
        case _:
            drawn = draw_numbers(delay.name, (delay.first, delay.second), seed, stream, rows)
    return np.clip(drawn, 0, longest_us).astype(np.int64)


@functools.lru_cache(maxsize=16)
def zipf_shares(exponent: float, count: int) -> np.ndarray:
    """Cumulated shares of the ranks 1 … count, rank r with weight r ** -exponent."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return np.cumsum(weights) / weights.sum()


@functools.lru_cache(maxsize=1024)
def _stream_key(seed: int, stream: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _parse_call(text: str, where: str, known: dict[str, tuple[int, int]]) -> Distribution:
    match: Any = _CALL.fullmatch(text)
    example = "write, for example, " + (
        "normal(20, 5)" if "zipf" in known else "normal(1 s, 200 ms)"
    )
    if match is None:
        raise PenstockError(f"{where}: '{text.strip()}' is not a distribution", example)
    name = match[1].lower()
    if name not in known:
        raise PenstockError(
            f"{where}: {match[1]} is not a known distribution",
            suggest(name, known, "distributions"),
        )
    inside = match[2] or ""
    separators = "|" if name == "choice" and len(split_outside(inside, "|")) > 1 else ","
    arguments = [part.strip() for part in split_outside(inside, separators)]
    if arguments == [""]:
        arguments = []
    least, most = known[name]
    if not least <= len(arguments) <= most or "" in arguments:
        count = str(least) if least == most else f"{least} to {most}"
        raise PenstockError(f"{where}: {name} takes {count} arguments, not '{inside}'", example)
    share = float(match[3] or 0) / 100
    if not 0 <= share <= 1:
        raise PenstockError(f"{where}: null {match[3]}% is out of range", "write 0% to 100%")
    return Distribution(name, tuple(arguments), share)
