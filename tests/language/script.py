"""Statements back to text, for round trips; not part of the product, which never needs it."""

from __future__ import annotations

from penstock.language.ast import (
    BareSelect,
    CreateQuery,
    CreateRegions,
    CreateStream,
    Describe,
    Drop,
    Explain,
    Option,
    Resume,
    Select,
    SelectItem,
    SetOption,
    Show,
    Star,
    Statement,
    StreamRef,
    Window,
)
from penstock.language.render import quote_name, quote_string, render


def show(statement: Statement) -> str:
    match statement:
        case CreateStream(name, columns, options, query):
            text = f"CREATE STREAM {quote_name(name)}"
            if columns:
                text += f" ({', '.join(f'{quote_name(c.name)} {c.type}' for c in columns)})"
            text += f" WITH {_options(options)}" if options else ""
            return text if query is None else f"{text} AS {_select(query)}"
        case CreateRegions(name, path, options):
            given = f" WITH {_options(options)}" if options else ""
            return f"CREATE REGIONS {quote_name(name)} FROM {quote_string(path)}{given}"
        case CreateQuery(name, select, options, sink):
            given = f" WITH {_options(options)}" if options else ""
            return f"CREATE QUERY {quote_name(name)}{given} AS {_select(select)}{_sink(sink)}"
        case BareSelect(select, sink):
            return f"{_select(select)}{_sink(sink)}"
        case Drop(what, name, cascade):
            return f"DROP {what} {quote_name(name)}{' CASCADE' if cascade else ''}"
        case Resume(name):
            return f"RESUME QUERY {quote_name(name)}"
        case Show(what):
            return f"SHOW {what}"
        case Describe(name):
            return f"DESCRIBE {_dotted(name)}"
        case Explain(select, name, analyze):
            target = _select(select) if select is not None else _dotted(name or "")
            return f"EXPLAIN {'ANALYZE ' if analyze else ''}{target}"
        case SetOption(option, stream):
            scope = "" if stream is None else _dotted(stream) + "."
            return f"SET {scope}{quote_name(option.key)} = {_value(option.value)}"


def _dotted(name: str) -> str:
    return ".".join(quote_name(part) for part in name.split("."))


def _value(value: str | int | float | bool) -> str:
    return quote_string(value) if isinstance(value, str) else str(value).upper()


def _options(options: tuple[Option, ...]) -> str:
    return f"({', '.join(f'{quote_string(o.key)} = {_value(o.value)}' for o in options)})"


def _sink(sink: tuple[Option, ...] | None) -> str:
    return "" if sink is None else f" INTO {_options(sink)}"


def _select(select: Select) -> str:
    text = f"SELECT {', '.join(_item(i) for i in select.items)}"
    text += f" FROM {', '.join(_stream(s) for s in select.streams)}"
    text += f" WHERE {render(select.where)}" if select.where is not None else ""
    text += f" GROUP BY {', '.join(map(render, select.group_by))}" if select.group_by else ""
    return text + (f" HAVING {render(select.having)}" if select.having is not None else "")


def _item(item: SelectItem | Star) -> str:
    if isinstance(item, Star):
        return "*" if item.qualifier is None else f"{_dotted(item.qualifier)}.*"
    return render(item.expr) + (f" AS {quote_name(item.name)}" if item.name is not None else "")


def _stream(stream: StreamRef) -> str:
    if (events := stream.events) is not None:
        dwell = "" if events.dwell_us is None else f" DWELL {events.dwell_us} MICROSECONDS"
        ratio = "" if events.drop_ratio is None else f" DRATIO {events.drop_ratio * 100:.6f}%"
        name = "" if stream.alias is None else f" AS {quote_name(stream.alias)}"
        return (
            f"EVENTS OF {quote_name(stream.name)} BY {quote_name(events.by.name)} AT"
            f" {render(events.point)} IN {quote_name(events.regions)}"
            f"{f' [{dwell}{ratio}]' if dwell or ratio else ''}{name}"
        )
    alias = "" if stream.alias is None else f" AS {quote_name(stream.alias)}"
    return f"{_dotted(stream.name)}{alias}{'' if stream.window is None else _window(stream.window)}"


def _window(window: Window) -> str:
    parts = [f"RANGE {window.range_us} MICROSECONDS" if window.kind == "range" else window.kind]
    if window.slide_us is not None:
        parts.append(f"SLIDE {window.slide_us} MICROSECONDS")
    if window.wattr is not None:
        parts.append(f"WATTR {render(window.wattr)}")
    if window.drop_ratio is not None:
        parts.append(f"DRATIO {window.drop_ratio * 100:.6f}%")
    if window.drop_ratio_per is not None:
        parts.append(f"PER {render(window.drop_ratio_per)}")
    return f" [{' '.join(parts)}]"
