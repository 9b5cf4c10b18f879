"""Which files a file stream reads: its options, and the files that are there now.

A stream's files are immutable once listed. The order (modification time, then path) is the order in
which the planner takes them, so that two listings of the same directory agree. Writers should move
finished files into place; names that writers use for unfinished files (`_x`, `.x`, `x.tmp`,
`x.part`, `x.crc`) are never read.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from penstock.errors import PenstockError
from penstock.runtime.sources.options import (
    OptionValue,
    bytes_option,
    choice_option,
    flag_option,
    integer_option,
    normalise,
    text_option,
)

FORMATS = ("parquet", "arrow", "csv", "json")
_FORMAT_OF_EXTENSION = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_CODEC_OF_EXTENSION = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
COMPRESSIONS = ("auto", "none", "gzip", "zstd", "bz2", "lz4")
_UNFINISHED = (".tmp", ".crc", ".part")
_OPTIONS = (
    "path",
    "format",
    "header",
    "delimiter",
    "quote",
    "null_value",
    "compression",
    "pattern",
    "max_files_per_batch",
    "max_bytes_per_batch",
)
_GLOB = re.compile(r"[*?\[]")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a file stream is read; documented for users in docs/language/sources.md.

    path: a file, a directory (read with its subdirectories), a glob (`in/*/x-*.csv`, `**` crosses
    directories), or a URI (`s3://bucket/in`). format: parquet, arrow, csv or json (one object per
    line); may be left out if `path` or `pattern` ends in a telling extension. header, delimiter,
    quote, null_value: csv only. compression: by the file's extension unless given; text only.
    pattern: a glob that the file's name must match. max_…_per_batch: for the planner.
    """

    path: str
    format: str
    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    null_value: str = ""
    compression: str = "auto"
    pattern: str | None = None
    max_files_per_batch: int = 1000
    max_bytes_per_batch: int = 1 << 27

    @classmethod
    def from_options(cls, given: Mapping[str, OptionValue]) -> FileOptions:
        """Check a stream's options; every mistake is a PenstockError that says what to write."""
        options = normalise(given, _OPTIONS, "file")
        path = text_option(options, "path")
        if not path:
            raise PenstockError("a file source needs the option path", "add path = 'directory'")
        pattern = text_option(options, "pattern")
        if "format" in options:
            format_ = choice_option(options, "format", FORMATS, "")
        else:
            format_ = _infer_format(path) or _infer_format(pattern or "") or ""
        if not format_:
            raise PenstockError(
                f"the format of '{path}' does not follow from its name",
                f"add format = one of {', '.join(FORMATS)}",
            )
        if format_ != "csv":
            for name in ("header", "delimiter", "quote", "null_value"):
                if name in options:
                    raise PenstockError(
                        f"option {name} is for csv files, but the format is {format_}",
                        f"leave {name} out",
                    )
        compression = choice_option(options, "compression", COMPRESSIONS, "auto")
        if format_ in ("parquet", "arrow") and compression not in ("auto", "none"):
            raise PenstockError(
                f"compression = '{compression}' is for csv and json files",
                f"{format_} files are compressed inside; leave compression out",
            )
        tab = "\t" if re.search(r"\.tsv(\.\w+)?$", path.lower()) else ","
        delimiter = text_option(options, "delimiter", tab) or ""
        delimiter = "\t" if delimiter == "\\t" else delimiter
        quote = text_option(options, "quote", '"') or ""
        for name, value, lengths in (("delimiter", delimiter, (1,)), ("quote", quote, (0, 1))):
            if len(value) not in lengths or not value.isascii() or value in ("\r", "\n"):
                raise PenstockError(
                    f"option {name} is {value!r}",
                    "write one ASCII character" + (", or '' for none" if 0 in lengths else ""),
                )
        if delimiter == quote:
            raise PenstockError(
                f"delimiter and quote are both {quote!r}", "write two different characters"
            )
        return cls(
            path=path,
            format=format_,
            header=flag_option(options, "header", True),
            delimiter=delimiter,
            quote=quote,
            null_value=text_option(options, "null_value", "") or "",
            compression=compression,
            pattern=pattern,
            max_files_per_batch=integer_option(options, "max_files_per_batch", 1000, 1),
            max_bytes_per_batch=bytes_option(options, "max_bytes_per_batch", 1 << 27),
        )


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file to read; `path` is the path within the file system that `FileOptions.path` names."""

    path: str
    size: int
    mtime_us: int


def compression_of(path: str, options: FileOptions) -> str | None:
    """The codec that the file's bytes are wrapped in, None for plain."""
    if options.compression != "auto":
        return None if options.compression == "none" else options.compression
    return _CODEC_OF_EXTENSION.get(posixpath.splitext(path.lower())[1])


def file_system(options: FileOptions) -> fs.FileSystem:
    return _resolve(options.path)[0]


def list_files(options: FileOptions) -> list[FileInfo]:
    """The files that are there now, oldest first; none if the directory does not exist (yet)."""
    system, base, glob = _resolve(options.path)
    if glob is None:
        info = system.get_file_info(base)
        if info.type == fs.FileType.NotFound:
            return []
        if info.type == fs.FileType.File:
            return [FileInfo(info.path, info.size, info.mtime_ns // 1000)]
    found = []
    for info in system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True)):
        if info.type != fs.FileType.File:
            continue
        relative = posixpath.relpath(info.path, base)
        if any(part[0] in "._" for part in relative.split("/")) or relative.endswith(_UNFINISHED):
            continue
        if glob is not None and not glob.fullmatch(relative):
            continue
        if options.pattern and not fnmatch.fnmatchcase(info.base_name, options.pattern):
            continue
        found.append(FileInfo(info.path, info.size, info.mtime_ns // 1000))
    return sorted(found, key=lambda file: (file.mtime_us, file.path))


def _infer_format(path: str) -> str | None:
    stem, extension = posixpath.splitext(path.lower())
    if extension in _CODEC_OF_EXTENSION:
        extension = posixpath.splitext(stem)[1]
    return _FORMAT_OF_EXTENSION.get(extension)


def _resolve(path: str) -> tuple[fs.FileSystem, str, re.Pattern[str] | None]:
    """File system, directory or file in it, and what follows as a glob, if there is one."""
    if path.startswith("file://"):
        path = "/" + path.removeprefix("file://").lstrip("/")
    uri = _URI.match(path) is not None
    glob = None
    wild = _GLOB.search(path)
    # In a URI, `?` starts the connection's parameters; a local name may hold glob characters.
    if uri and wild and wild[0] == "?":
        wild = None
    if wild and (uri or not Path(path).exists()):
        cut = path.rfind("/", 0, wild.start()) + 1
        glob = _glob_regex(path[cut:])
        path = path[:cut] or "."
    try:
        if uri:
            system, base = fs.FileSystem.from_uri(path)
            return system, base.rstrip("/") or base, glob
    except (pa.ArrowException, OSError, ValueError) as error:
        raise PenstockError(
            f"'{path}' cannot be opened as a file system: {error}",
            "write a local path or a URI such as s3://bucket/directory or hdfs://host/directory",
        ) from None
    return fs.LocalFileSystem(), str(Path(path).absolute()), glob


def _glob_regex(glob: str) -> re.Pattern[str]:
    """A glob over a relative path: `*` and `?` stay within a name, `**/` spans directories."""
    pieces = []
    for token in re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|.", glob):
        if token == "**/":
            pieces.append("(?:.*/)?")
        elif token == "**":
            pieces.append(".*")
        elif token == "*":
            pieces.append("[^/]*")
        elif token == "?":
            pieces.append("[^/]")
        elif len(token) > 1:
            pieces.append("[" + token[1:-1].replace("\\", "\\\\").replace("!", "^", 1) + "]")
        else:
            pieces.append(re.escape(token))
    return re.compile("".join(pieces))
