"""Scripts to statements: `parse` is the way in, one function per statement below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from penstock.errors import PenstockError, QueryError
from penstock.language.ast import (
    BareSelect,
    ColumnDef,
    CreateQuery,
    CreateRegions,
    CreateStream,
    Describe,
    Drop,
    Explain,
    Option,
    Resume,
    Select,
    SetOption,
    Show,
    Statement,
)
from penstock.language.cursor import Cursor, check_brackets, span_of, split_at_commas
from penstock.language.options import parse_options, parse_value
from penstock.language.select import CLAUSES, parse_select
from penstock.language.tokens import Token, decode_string, tokenize
from penstock.schema import canonical_type

_TO_CREATE = ("STREAM", "REGIONS", "QUERY")


def parse(text: str) -> tuple[Statement, ...]:
    """Read a script; every refusal is a QueryError that shows its place in the script."""
    try:
        return tuple(_statement(tokens, text) for tokens in _statements(tokenize(text)))
    except QueryError as error:
        raise error.at(text) from None


def _statements(tokens: Sequence[Token]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.is_symbol(";"):
            statements.append([])
        else:
            statements[-1].append(token)
    return [s for s in statements if s]


def _statement(tokens: list[Token], script: str) -> Statement:
    check_brackets(tokens)
    cursor = Cursor(tokens)
    first = cursor.peek()
    if first.upper in ("WITH", "VALUES") or first.is_symbol("("):
        what = "WITH before SELECT" if first.upper == "WITH" else first.text
        raise QueryError(
            f"{what} is not supported",
            "make the inner query a stream with CREATE STREAM … AS",
            first.span,
        )
    read = _STATEMENTS.get(first.upper)
    if read is None:
        raise cursor.unexpected("expected a statement", _STATEMENTS)
    statement = read(cursor, script)
    cursor.finish()
    return statement


def _create(cursor: Cursor, script: str) -> CreateStream | CreateRegions | CreateQuery:
    cursor.expect("CREATE")
    what = cursor.peek()
    if what.upper in ("TABLE", "VIEW", "OR", "TEMPORARY"):
        raise QueryError(
            f"CREATE {what.upper} is not supported",
            "write CREATE STREAM, CREATE REGIONS or CREATE QUERY",
            what.span,
        )
    cursor.expect(*_TO_CREATE)
    if cursor.peek().upper == "IF" and cursor.peek(1).upper in ("NOT", "EXISTS"):
        raise QueryError("IF NOT EXISTS is not supported", "leave it out", cursor.peek().span)
    name = _plain_name(cursor, f"a name after CREATE {what.upper}")
    if what.upper == "STREAM":
        return _create_stream(cursor, name, script)
    if what.upper == "REGIONS":
        return _create_regions(cursor, name)
    options = _with(cursor)
    cursor.expect("AS")
    select, sink = _select(cursor, script)
    return CreateQuery(name, select, options, sink, span_of(cursor.tokens))


def _create_stream(cursor: Cursor, name: str, script: str) -> CreateStream:
    if cursor.peek().is_symbol("("):
        opening = cursor.peek()
        inside = cursor.group()
        if not inside:
            raise QueryError("a stream needs columns", "write (id INT, ts TIMESTAMP)", opening.span)
        columns = _columns(inside)
        options = _with(cursor)
        if cursor.peek().upper == "AS":
            raise QueryError(
                "a stream has columns or AS SELECT, not both",
                "leave the columns out",
                cursor.peek().span,
            )
        cursor.finish(["WITH"])
        return CreateStream(name, columns, options, None, span_of(cursor.tokens))
    options = _with(cursor)
    if not cursor.accept("AS"):
        raise cursor.unexpected("expected ( columns ) or AS SELECT", ["AS", "WITH"])
    select, sink = _select(cursor, script)
    if sink is not None:
        raise QueryError(
            "a derived stream has no INTO", "read it with a query that has one", select.span
        )
    return CreateStream(name, (), options, select, span_of(cursor.tokens))


def _create_regions(cursor: Cursor, name: str) -> CreateRegions:
    cursor.expect("FROM")
    path = cursor.peek()
    if path.kind != "string":
        raise QueryError("regions come from a file", "write FROM 'zones.geojson'", path.span)
    cursor.take()
    options = _with(cursor)
    cursor.finish(["WITH"])
    return CreateRegions(name, decode_string(path.text), options, span_of(cursor.tokens))


def _columns(tokens: Sequence[Token]) -> tuple[ColumnDef, ...]:
    columns: dict[str, ColumnDef] = {}
    for piece in _split_types(tokens):
        cursor = Cursor(piece)
        name = cursor.name("a column name")
        type_ = piece[cursor.at :]
        if not type_:
            raise QueryError(
                f"column {name.text} has no type", "write a name and a type", name.span
            )
        if name.name.lower() in columns:
            raise QueryError(f"column {name.text} is given twice", None, name.span)
        written = _type_text(type_)
        try:
            canonical = canonical_type(written)
        except PenstockError as error:
            raise QueryError(error.message, error.hint, span_of(type_)) from None
        columns[name.name.lower()] = ColumnDef(name.name, canonical, span_of(piece))
    return tuple(columns.values())


def _split_types(tokens: Sequence[Token]) -> list[list[Token]]:
    """Cut at commas; those in `map<a,b>` belong to the type."""
    pieces: list[list[Token]] = []
    angles = 0
    for piece in split_at_commas(tokens, "a column"):
        if angles:
            pieces[-1].extend(piece)
        else:
            pieces.append(piece)
        angles += sum(t.is_symbol("<") - t.is_symbol(">") for t in piece)
    return pieces


def _type_text(tokens: Sequence[Token]) -> str:
    for before, token in pairwise(tokens):
        if before.kind == token.kind == "word":
            raise QueryError(
                f"unexpected {token.text} after the type",
                "a column is a name and a type",
                token.span,
            )
    return "".join(token.text for token in tokens)


def _with(cursor: Cursor) -> tuple[Option, ...]:
    if not cursor.accept("WITH"):
        return ()
    if not cursor.peek().is_symbol("("):
        raise cursor.unexpected("expected ( after WITH")
    return parse_options(cursor)


def _select(cursor: Cursor, script: str) -> tuple[Select, tuple[Option, ...] | None]:
    """Read `SELECT … [INTO (…)]` to the end of the statement."""
    if cursor.peek().upper != "SELECT":
        raise cursor.unexpected("expected SELECT", ["SELECT"])
    start = cursor.at
    while not cursor.done and not (cursor.at > start and _is_into(cursor)):
        if cursor.peek().is_symbol("(", "["):
            cursor.group()
        else:
            cursor.take()
    tokens = cursor.tokens[start : cursor.at]
    if not cursor.accept("INTO"):
        return parse_select(tokens, script), None
    if not cursor.peek().is_symbol("("):
        raise QueryError(
            "expected ( after INTO", "write INTO (sink = 'parquet', path = …)", cursor.peek().span
        )
    sink = parse_options(cursor)
    cursor.finish()
    return parse_select(tokens, script), sink


def _is_into(cursor: Cursor) -> bool:
    return cursor.peek().upper == "INTO" and not cursor.peek(-1).is_symbol(".")


def _bare_select(cursor: Cursor, script: str) -> BareSelect:
    select, sink = _select(cursor, script)
    return BareSelect(select, sink, span_of(cursor.tokens))


def _drop(cursor: Cursor, _script: str) -> Drop:
    cursor.expect("DROP")
    what = cursor.expect(*_TO_CREATE)
    name = _plain_name(cursor, f"a name after DROP {what.upper}")
    cascade = cursor.accept("CASCADE") is not None
    cursor.finish(["CASCADE"])
    span = span_of(cursor.tokens)
    match what.upper:
        case "STREAM":
            return Drop("stream", name, cascade, span)
        case "REGIONS":
            return Drop("regions", name, cascade, span)
        case _:
            return Drop("query", name, cascade, span)


def _resume(cursor: Cursor, _script: str) -> Resume:
    cursor.expect("RESUME")
    cursor.expect("QUERY")
    name = _plain_name(cursor, "a name after RESUME QUERY")
    cursor.finish()
    return Resume(name, span_of(cursor.tokens))


def _show(cursor: Cursor, _script: str) -> Show:
    cursor.expect("SHOW")
    match cursor.expect("STREAMS", "REGIONS", "QUERIES", "RINGS", "EXCHANGE").upper:
        case "STREAMS":
            return Show("streams", span_of(cursor.tokens))
        case "REGIONS":
            return Show("regions", span_of(cursor.tokens))
        case "QUERIES":
            return Show("queries", span_of(cursor.tokens))
        case "EXCHANGE":
            return Show("exchange", span_of(cursor.tokens))
        case _:
            return Show("rings", span_of(cursor.tokens))


def _describe(cursor: Cursor, _script: str) -> Describe:
    cursor.take()
    return Describe(_dotted_name(cursor, "a stream, regions or a query"), span_of(cursor.tokens))


def _explain(cursor: Cursor, script: str) -> Explain:
    cursor.expect("EXPLAIN")
    analyze = cursor.accept("ANALYZE") is not None
    span = span_of(cursor.tokens)
    if cursor.peek().upper == "SELECT":
        return Explain(_select(cursor, script)[0], None, analyze, span)
    if cursor.peek().upper == "CREATE":
        created = _create(cursor, script)
        if isinstance(created, CreateRegions):
            raise QueryError("regions have no plan", "EXPLAIN a query", created.span)
        select = created.select if isinstance(created, CreateQuery) else created.query
        if select is None:
            raise QueryError("a stream with a source has no plan", "EXPLAIN a query", created.span)
        return Explain(select, None, analyze, span)
    if not cursor.peek().is_name:
        raise cursor.unexpected("expected SELECT, CREATE QUERY or a query's name", CLAUSES)
    return Explain(None, _dotted_name(cursor, "a query"), analyze, span)


def _set(cursor: Cursor, _script: str) -> SetOption:
    cursor.expect("SET")
    start = cursor.at
    names = [cursor.name("an option").name]
    while cursor.accept("."):
        names.append(cursor.name("an option").name)
    cursor.expect("=")
    value = parse_value(cursor)
    option = Option(names[-1].lower(), value, span_of(cursor.tokens[start : cursor.at]))
    return SetOption(option, ".".join(names[:-1]) or None, span_of(cursor.tokens))


def _plain_name(cursor: Cursor, what: str) -> str:
    token = cursor.name(what)
    if "." in token.name or cursor.peek().is_symbol("."):
        raise QueryError("the name of a stream or query has no dot", "use _ instead", token.span)
    return token.name


def _dotted_name(cursor: Cursor, what: str) -> str:
    name = cursor.name(what).name
    while cursor.accept("."):
        name += "." + cursor.name(what).name
    return name


_STATEMENTS: dict[str, Callable[[Cursor, str], Statement]] = {
    "SELECT": _bare_select,
    "CREATE": _create,
    "DROP": _drop,
    "RESUME": _resume,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXPLAIN": _explain,
    "SET": _set,
}
