"""The formats: each reads the named columns of one file into Arrow or NumPy arrays, or says what is wrong with it."""

from __future__ import annotations

import contextlib
import csv
import difflib
import errno
import gzip
import mmap
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from numpy.typing import NDArray

from gate.contract import Floats
from gate.errors import GateError, plural
from gate.policy import Columns
from gate.scores.wording import is_number, reason_of, show


@dataclass(frozen=True)
class File:
    """One file: printed by the name that the user knows, opened by its path on this machine.

    `keys` are the columns that a partitioned directory writes into its path, as `label=0`.
    """

    name: str
    path: str
    keys: Mapping[str, str] = field(default_factory=dict)
    remote: Any = None  # the filesystem of `path`, where that is not this machine's
    segment: str | None = None  # the column of segments, which has few distinct values
    size: int | None = None  # in bytes, where a listing gave it

    def __str__(self) -> str:
        return self.name

    def __fspath__(self) -> str:
        return self.path

    @property
    def suffix(self) -> str:
        return PurePath(self.name.lower().removesuffix(".gz")).suffix

    @property
    def is_gzip(self) -> bool:
        return self.name.lower().endswith(".gz")


@dataclass(frozen=True)
class Table:
    """The wanted columns of one file or object, and the names of all that it has."""

    columns: Mapping[str, Any]
    names: tuple[str, ...] = ()


def list_wanted(columns: Columns) -> list[str]:
    """The columns that the policy names, the scores first."""
    named = [columns.score, columns.label, columns.group, columns.id, columns.segment, columns.timestamp]
    return list(dict.fromkeys(name for name in named if name is not None))


def read_file(file: File, columns: Columns) -> Table:
    """The columns that the policy names."""
    if file.suffix not in READERS:
        known, got = ", ".join(READERS), file.suffix or "no suffix"
        raise GateError(
            f"{file}: must end in one of {known} (or these with .gz), got {got}; convert it to one of these"
        )
    reader, remedy = READERS[file.suffix]
    keys = {key: value for key, value in file.keys.items() if key in list_wanted(columns)}
    if columns.score in keys:
        raise GateError(
            f"{file}: must hold a score of its own in every row, got {columns.score!r} as a key of its path; "
            "name another column with data.score or --score-column, or rename the folder"
        )
    names = [name for name in list_wanted(columns) if name not in keys]
    try:
        with _fetched(replace(file, segment=columns.segment), columns) as local:
            if local.remote is None and os.stat(local).st_size == 0:
                raise GateError(f"{file}: must hold scores, got an empty file; write it again")
            table = reader(local, names)
    except GateError:
        raise
    except FileNotFoundError:
        raise GateError(f"{file}: must exist, got no such file; check the name") from None
    except PermissionError:
        raise GateError(f"{file}: must be readable, got permission denied; allow this user to read it") from None
    except MemoryError as error:
        what = f"must be a readable {file.suffix} file that fits into memory, got: {reason_of(error)}"
        raise GateError(f"{file}: {what}; give fewer rows or use a larger machine") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # what is packed or piped is copied first
            what = f"must fit into the temporary directory, got: {reason_of(error)}"
            raise GateError(f"{file}: {what}; set TMPDIR to a place with more room") from None
        raise GateError(f"{file}: must be a readable {file.suffix} file, got: {reason_of(error)}; {remedy}") from None
    except Exception as error:  # NumPy, zipfile and Arrow raise a dozen types on a broken file; all say the same
        raise GateError(f"{file}: must be a readable {file.suffix} file, got: {reason_of(error)}; {remedy}") from None
    both = next((key for key in keys if key in table.names), None)
    if both is not None:
        raise GateError(
            f"{file}: must have {both!r} in its path or as a column, got both; remove the column or rename the folder"
        )
    rows = len(table.columns[columns.score])
    repeated = {key: pa.chunked_array([pa.repeat(_key_value(value), rows)]) for key, value in keys.items()}
    return Table({**table.columns, **repeated}, table.names)


def _key_value(text: str) -> Any:
    """What a key says of each row; Hive's word for none is none."""
    return pa.scalar(None if text == "__HIVE_DEFAULT_PARTITION__" else text, pa.string())


@contextlib.contextmanager
def _fetched(file: File, columns: Columns) -> Iterator[File]:
    """The file on this machine and not packed: itself, or a temporary copy of it."""
    if file.path != "-" and not file.is_gzip and (file.remote is None or file.suffix in (".parquet", ".pq")):
        yield file
        return
    with tempfile.NamedTemporaryFile(prefix="gate-", suffix=file.suffix) as copy:
        if file.path == "-":
            copy.write(columns.score.encode() + b"\n")
        with _opened(file) as source:
            shutil.copyfileobj(source, copy, 1 << 20)
        copy.flush()
        yield replace(file, path=copy.name, remote=None)


def _opened(file: File) -> Any:
    if file.path == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    if file.remote is not None:
        return file.remote.open_input_stream(file.path, compression="gzip" if file.is_gzip else None)
    return gzip.open(file.path, "rb")


def _read_parquet(path: File, names: list[str]) -> Table:
    source = os.fspath(path) if path.remote is None else path.remote.open_input_file(path.path)
    few = [path.segment] if path.segment in names else None  # kept as Parquet has it: each name once
    with pyarrow.parquet.ParquetFile(source, memory_map=path.remote is None, read_dictionary=few) as file:
        require(names, file.schema_arrow.names, path)
        return Table(pick(file.read(columns=names), names), tuple(file.schema_arrow.names))


def _read_arrow(path: File, names: list[str]) -> Table:
    with pa.OSFile(os.fspath(path)) as source:  # not mapped: the scores must not change with the file
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
    require(names, table.column_names, path)
    return Table(pick(table, names), tuple(table.column_names))


def _read_jsonl(path: File, names: list[str]) -> Table:
    """The named columns alone, if they stay as the first lines have them; else all that the file holds."""
    _refuse_null_lines(path)
    table, present = None, []
    with contextlib.suppress(pa.ArrowException):
        kinds = _first_kinds(path, names[0])
        if {*names} <= {*kinds}:
            wanted = pa.schema([(name, kinds[name]) for name in names])
            alone = pyarrow.json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
            table, present = pyarrow.json.read_json(os.fspath(path), parse_options=alone), list(kinds)
    if table is None:
        table = pyarrow.json.read_json(os.fspath(path))
        present = table.column_names
    require(names, present, path)
    return Table(pick(table, names), tuple(present))


_NULL_LINE = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|\n)[ \t\r\n]*null")


def _refuse_null_lines(path: File) -> None:
    """Arrow crashes on a block of lines that begins with `null` (apache/arrow#47409), and no such line has a score."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        found = _NULL_LINE.search(text) if text.find(b"null") >= 0 else None
        if found:
            row = text[: found.end()].count(b"\n") + 1
            raise GateError(f"{path}: must have one JSON object to a line, got null in line {row:,}; remove it")


def _first_kinds(path: File, score: str) -> dict[str, Any]:
    """The kind of each column in the first lines; whole scores may turn out to be floats further down."""
    with open(path, "rb") as file:
        lines = file.read(1 << 20).rpartition(b"\n")[0]
    schema = pyarrow.json.read_json(pa.BufferReader(lines)).schema if lines else pa.schema([])
    kinds = {field.name: field.type for field in schema if not pa.types.is_null(field.type)}
    return kinds | {score: pa.float64()} if pa.types.is_integer(kinds.get(score, pa.null())) else kinds


def _read_csv(path: File, names: list[str]) -> Table:
    separator = "\t" if path.suffix == ".tsv" else ","
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        header = next(csv.reader(file, delimiter=separator), [])
    if any("\ufffd" in name or "\0" in name for name in header):
        raise GateError(f"{path}: must be UTF-8 text, got other bytes in the header; save it as UTF-8")
    quoted = _has_quotes(path, len(header), separator)
    require(names, header, path)
    # Without `newlines_in_values` Arrow reads in parallel, but may cut a quoted line break in two and invent a row.
    # A blank line is no row, except where there is only one column: there it is a missing score.
    parsing = pyarrow.csv.ParseOptions(
        delimiter=separator, newlines_in_values=quoted, ignore_empty_lines=len(header) > 1
    )
    converting = pyarrow.csv.ConvertOptions(include_columns=names)
    try:
        table = pyarrow.csv.read_csv(os.fspath(path), parse_options=parsing, convert_options=converting)
        return Table(pick(table, names), tuple(header))
    except pa.ArrowInvalid:
        _refuse_uneven_rows(path, len(header), separator)
        raise


_FIELDS = {
    separator: re.compile(
        rb'(?:"(?:[^"]++|"")*+"(?=[SEP\r\n]|\Z)|[^"SEP\r\n][^SEP\r\n]*+|[SEP\r\n])*+'.replace(
            b"SEP", separator.encode()
        )
    )
    for separator in (",", "\t")
}
_QUOTED = re.compile(rb'"(?:[^"]++|"")*+"')


def _has_quotes(path: File, width: int, separator: str) -> bool:
    """Whether a row has quotes. One never closed hides the rows behind it and is refused: Arrow would say nothing."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        header = max(text.find(b"\n"), 0)
        if text.find(b'"', header) < 0 and text[:header].count(b'"') % 2 == 0:  # writers often quote the header alone
            return False
        match = _FIELDS[separator].match(text)
        end = match.end() if match else 0
        if end < len(text):
            lines = _QUOTED.sub(b"_", text[:end] + b"_").splitlines()
            row = len([line for line in lines if line or width == 1]) - 1
            raise GateError(
                f"{path}: must close every quoted field before a comma or the end of its row, got an open one in "
                f"{'the header' if row == 0 else f'row {row:,}'}; double the quotes inside it or restore the file"
            )
        return True


def _refuse_uneven_rows(path: File, width: int, separator: str) -> None:
    """Name the row that Arrow could not split; slow, and only used on a file that is refused anyway."""
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = csv.reader(file, delimiter=separator)
        next(lines)
        row = 0
        try:
            for fields in lines:
                row += bool(fields) or width == 1
                if fields and len(fields) != width:
                    raise GateError(
                        f"{path}: must have {plural(width, 'column')} in every row, got {len(fields)} in row {row:,}; "
                        "quote fields that hold commas, or restore the row"
                    )
        except csv.Error as error:
            raise GateError(
                f"{path}: must be a readable .csv file, got: {error} in row {row + 1:,}; remove it"
            ) from None


def _read_npy(path: File, names: list[str]) -> Table:
    if len(names) > 1:
        got = "a .npy file, which has none; name no such column in the policy or use .npz"
        raise GateError(f"{path}: must have a column {names[1]!r}, got {got}")
    array = np.lib.format.open_memmap(os.fspath(path), mode="r")  # never loads a pickle
    return Table({names[0]: one_dimensional(array, path)})


def _read_npz(path: File, names: list[str]) -> Table:
    with open(path, "rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
        if len(names) == 1 and len(archive.files) == 1:
            return Table({names[0]: one_dimensional(archive[archive.files[0]], path)})
        require(names, archive.files, path)
        table = {name: one_dimensional(archive[name], path) for name in names}
        present = tuple(archive.files)
    if len({len(column) for column in table.values()}) > 1:
        lengths = ", ".join(f"{name!r}: {len(column):,}" for name, column in table.items())
        raise GateError(f"{path}: its arrays must be of one length, got {lengths}; save one label for every score")
    return Table(table, present)


READERS: dict[str, tuple[Callable[[File, list[str]], Table], str]] = {
    ".parquet": (_read_parquet, "write it again"),
    ".pq": (_read_parquet, "write it again"),
    ".csv": (_read_csv, "save it as comma-separated UTF-8 text with a header"),
    ".tsv": (_read_csv, "save it as tab-separated UTF-8 text with a header"),
    ".feather": (_read_arrow, "write it again"),
    ".arrow": (_read_arrow, "write it again"),
    ".jsonl": (_read_jsonl, "write one JSON object to a line"),
    ".ndjson": (_read_jsonl, "write one JSON object to a line"),
    ".npy": (_read_npy, "save one plain array of numbers with numpy.save"),
    ".npz": (_read_npz, "save plain arrays of numbers with numpy.savez"),
}


def pick(table: pa.Table, names: list[str]) -> Mapping[str, Any]:
    return {name: table.column(name) for name in names}


def require(names: list[str], present: list[str], path: File) -> None:
    for name in names:
        if present.count(name) == 1:
            continue
        if name in present:
            count = present.count(name)
            raise GateError(f"{path}: must have one column {name!r}, got {count} of that name; rename or remove one")
        close = difflib.get_close_matches(name, present, n=1)
        shown = ", ".join(map(show, present[:10])) + (", ..." if len(present) > 10 else "")
        hint = "name the column in the policy's `data:` or on the command line"
        if close:
            hint = f"did you mean {show(close[0])}?"
        if len(present) == 1 and name in re.split(r"[;\t|]", present[0]):
            hint = "separate the columns with commas"
        if present and all(map(is_number, present)):
            hint = "add a header line that names the columns"
        raise GateError(f"{path}: must have a column {name!r}, got {shown or 'no column at all'}; {hint}")


def one_dimensional(array: Any, path: File) -> NDArray[Any]:
    if not isinstance(array, np.ndarray):
        raise GateError(f"{path}: must hold arrays, got another kind of file inside; save them with numpy.savez")
    column: NDArray[Any] = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if column.ndim != 1:
        raise GateError(f"{path}: must be a list of scores, got an array of shape {array.shape}; save one column of it")
    return column


def write_parquet(path: Path, values: Floats) -> None:
    """Write scores as one column, the way `read` expects them by default."""
    pyarrow.parquet.write_table(pa.table({Columns().score: values}), path)
