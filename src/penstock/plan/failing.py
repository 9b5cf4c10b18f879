"""Whether computing an expression can raise an error for some row.

Under ANSI rules `a / b`, an overflow or a cast of the text 'x' to a number ends the query. In
`b <> 0 AND a / b > 2` Spark never divides where b is 0, so a part that can fail must not be
computed by itself. The answers here err to one side only: False may be wrong, True may not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from penstock.language.ast import (
    Aggregate,
    And,
    Between,
    Column,
    Comparison,
    Expr,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Opaque,
    Operator,
    Or,
    SpatialCall,
    StartsWith,
)
from penstock.language.functions import NEVER_FAILS
from penstock.language.tree import children
from penstock.plan.comparisons import (
    compared,
    constant_of,
    fit_one_decimal,
    is_exact_type,
    literal_type,
    members,
)
from penstock.plan.patterns import read_pattern
from penstock.schema import FLOAT_TYPES

# The type of an expression that is no condition, None if unknown.
TypeOf = Callable[[Expr], str | None]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>'(?:[^'\\]|\\.|'')*')
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
      | (?P<word>[A-Za-z_]\w*)
      | (?P<compare><=>|<=|>=|<>|!=|==|=|<|>)
      | (?P<arithmetic>[+*-])
      | (?P<mark>[(),])
    )""",
    re.VERBOSE,
)
_KEYWORDS = _words("and between case else end false in is like not null or then true when")
# Words and functions that bring several operands to one type, besides comparison signs.
_UNIFYING_FUNCTIONS = _words("coalesce greatest ifnull least nullif nvl nvl2")
_UNIFYING = _UNIFYING_FUNCTIONS | _words("between case in")
# Functions that take text as it is: no argument of theirs is cast from text to something else.
_TEXT_TO_TEXT = _words("concat initcap lcase lower ltrim reverse rtrim trim ucase upper")
_TEXT_TO_OTHER = _words(
    "ascii bit_length char_length character_length contains endswith isnotnull isnull length"
    " octet_length startswith"
)
_TEXT_FUNCTIONS = _TEXT_TO_TEXT | _TEXT_TO_OTHER | _UNIFYING_FUNCTIONS
# Functions that make a timestamp of a date, for which a far date is too far.
_OF_TIMESTAMPS = _words("hour minute second")


def cannot_fail(expr: Expr, type_of: TypeOf) -> bool:
    """Whether the expression has a value (or NULL) for every row, whatever the columns hold."""
    match expr:
        case Column():
            return type_of(expr) is not None
        case Literal() | SpatialCall():
            return True
        case Aggregate():
            return False
        case Opaque():
            return constant_of(expr) is not None or _text_cannot_fail(expr, type_of)
        case And() | Or() | Not() | IsNull():
            return all(cannot_fail(child, type_of) for child in children(expr))
        case Comparison(op, left, right):
            if constant_of(left) is not None:
                left, right = right, left
            safe = _can_compare(left, op, right, type_of)
        case Between(operand, low, high):
            safe = _can_compare(operand, ">=", low, type_of)
            safe = safe and _can_compare(operand, "<=", high, type_of)
        case InList(operand, items):
            safe = _can_unify(operand, items, type_of)
        case Like(operand, pattern, escape):
            safe = type_of(operand) is not None and _can_match(pattern, escape)
        case StartsWith(operand, prefix):
            safe = type_of(operand) == type_of(prefix) == "string"
    return safe and all(cannot_fail(child, type_of) for child in children(expr))


def _can_compare(left: Expr, op: Operator, right: Expr, type_of: TypeOf) -> bool:
    constant = constant_of(right)
    if constant is not None and constant.value is None:
        return True
    left_type = type_of(left)
    if left_type is None:
        return False
    if constant is not None:
        if compared(left_type, op, constant.value) is not None:
            return True
        right_type = literal_type(constant.value)
    else:
        right_type = type_of(right)
    return right_type is not None and _have_common_type([left_type, right_type])


def _can_match(pattern: Expr, escape: str) -> bool:
    """A pattern can be wrong in its escapes only."""
    constant = constant_of(pattern)
    return (
        constant is not None
        and isinstance(constant.value, str)
        and read_pattern(constant.value, escape) is not None
    )


def _can_unify(operand: Expr, items: tuple[Expr, ...], type_of: TypeOf) -> bool:
    constants = [constant_of(item) for item in items]
    values = [c.value for c in constants if c is not None and c.value is not None]
    operand_type = type_of(operand)
    if operand_type is None:
        return False
    if None not in constants and members(operand_type, values) is not None:
        return True
    others = [
        type_of(item) if constant is None else literal_type(constant.value)
        for item, constant in zip(items, constants, strict=True)
        if constant is None or constant.value is not None
    ]
    known = [t for t in others if t is not None]
    return len(known) == len(others) and _have_common_type([operand_type, *known])


def _have_common_type(types: list[str]) -> bool:
    """Whether Spark brings any values of these types to one type without an error."""
    if len(set(types)) == 1:
        return True
    exact = [t for t in types if is_exact_type(t)]
    if not all(t in FLOAT_TYPES for t in types if t not in exact):
        return False  # a text becomes a number or a date by a cast that may fail
    return fit_one_decimal(exact)


def _text_cannot_fail(expr: Opaque, type_of: TypeOf) -> bool:
    """Read Spark SQL text word by word; whatever is not known to be safe can fail."""
    tokens = _tokens(expr)
    nodes = [part for part in expr.parts if not isinstance(part, str)]
    if tokens is None or not all(cannot_fail(node, type_of) for node in nodes):
        return False
    types = {
        "boolean"
        if isinstance(
            node, Comparison | And | Or | Not | InList | Between | IsNull | Like | StartsWith
        )
        else type_of(node)
        for node in nodes
    }
    kinds = {kind for kind, _ in tokens}
    if "arithmetic" in kinds:
        return _is_float_arithmetic(tokens, kinds, types)
    functions: set[str] = set()
    keywords: set[str] = set()
    for (kind, text), (next_kind, following) in pairwise([*tokens, ("end", "")]):
        if (kind, text) == ("word", "like") and (next_kind != "string" or "\\" in following):
            return False  # a pattern can be wrong in its escapes only
        if kind == "word" and text in _KEYWORDS:
            keywords.add(text)
        elif kind == "word":
            if following != "(" or text not in NEVER_FAILS:
                return False
            functions.add(text)
    if functions & _OF_TIMESTAMPS and "date" in types:
        return False
    texts = "string" in kinds or "string" in types
    numbers = "number" in kinds
    if not texts:
        return len(_families(types, numbers)) <= 1 or not _unifies(kinds, keywords, functions)
    # An implicit cast of text fails on most texts, so text may only meet text.
    if not functions <= _TEXT_FUNCTIONS:
        return False
    if not _unifies(kinds, keywords, functions):
        return True
    only_text = types <= {"string"} and not numbers and not functions & _TEXT_TO_OTHER
    return only_text and keywords <= {"null"} and "compare" not in kinds


def _tokens(expr: Opaque) -> list[tuple[str, str]] | None:
    """(kind, lower-case text) of each word, a node being one; None if some text is not known."""
    tokens: list[tuple[str, str]] = []
    for part in expr.parts:
        if not isinstance(part, str):
            tokens.append(("node", ""))
            continue
        position, end = 0, len(part.rstrip())
        while position < end:
            match = _TOKEN.match(part, position)
            if match is None or match.lastgroup is None:
                return None
            text = match[match.lastgroup]
            tokens.append((match.lastgroup, text if text.startswith("'") else text.lower()))
            position = match.end()
    return tokens


def _is_float_arithmetic(
    tokens: list[tuple[str, str]], kinds: set[str], types: set[str | None]
) -> bool:
    """+ - * of float columns and numbers; two numbers side by side would be integer arithmetic."""
    if not kinds <= {"arithmetic", "node", "number", "mark"} or not types <= FLOAT_TYPES:
        return False
    if not types or any(text == "," for _, text in tokens):
        return False
    plain = [kind for kind, _ in tokens if kind != "mark"]
    numbers = [i for i, kind in enumerate(plain) if kind == "number"]
    return all(after - before > 2 for before, after in pairwise(numbers))


def _unifies(kinds: set[str], keywords: set[str], functions: set[str]) -> bool:
    return "compare" in kinds or bool((keywords | functions) & _UNIFYING)


def _families(types: set[str | None], numbers: bool) -> set[str]:
    """Groups of types inside which Spark's own casts never fail."""
    families = {"number"} if numbers else set()
    for type_ in types:
        if type_ is None or not (type_ in FLOAT_TYPES or is_exact_type(type_)):
            families.add(type_ or "unknown")
        elif type_.startswith("decimal"):
            families.add(type_)  # the common type of two decimals may be too narrow
        else:
            families.add("number")
    return families
