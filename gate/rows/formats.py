"""The formats of files: each tells where the rows of a file stand, and which columns they have, as SQL can ask them.

What a library says of a broken file becomes one line. Nothing is read as another value than the one that is written.
"""

from __future__ import annotations

import csv
import glob
import gzip
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gate.errors import GateError
from gate.rows.engine import text
from gate.rows.json_lines import read_json_lines
from gate.rows.table import Column, File, Table, columns_of, explain, keep, plain_list, require
from gate.words import plural

if TYPE_CHECKING:
    from gate.rows.engine import Duck

PIECE = 1 << 20  # bytes of a copy
UNPACKED = 1 << 30  # bytes that every packed file may have; larger ones at most RATIO times their size
RATIO = 30
_EMPTY = "{}: must hold scores, got an empty file; write it again"
LONGEST = 2_000_000  # bytes of a line of text without quotes


@dataclass(frozen=True)
class FileFormat:
    """One kind of file: its endings, what reads it, and advice where it cannot be read."""

    endings: tuple[str, ...]
    read: Callable[[Duck, File, str, Sequence[str]], Table]
    remedy: str


def open_table(engine: Duck, file: File, wanted: Sequence[str]) -> Table:
    """The table that a file is; all wanted columns are there once."""
    found = next((each for each in FORMATS if file.suffix in each.endings), None)
    if found is None:
        got = file.suffix or "no suffix"
        must = f"must end in one of {', '.join(endings())} (or these with .gz), got {got}"
        raise GateError(f"{file}: {must}; convert it to one of these")
    asked = [name for name in wanted if name not in file.keys]
    with explain(file, found.remedy):
        path = _local(engine, file)
        table = found.read(engine, file, path, asked)
        if found.read is not _read_parquet and path != os.path.abspath(file.path):
            os.remove(path)  # its rows are in a table of the engine
    keys = []
    for key, value in file.keys.items():
        if key in wanted and any(column.name == key for column in table.columns):
            what = f"must have {key!r} in its path or as a column, got both"
            raise GateError(f"{file}: {what}; remove the column or rename the folder")
        missing = value == "__HIVE_DEFAULT_PARTITION__"  # Hive's word for none
        keys.append(Column(key, f"CAST({'NULL' if missing else text(value)} AS VARCHAR)", "text", "VARCHAR"))
    return Table(file, table.rows, (*table.columns, *keys), table.is_text, table.count)


def open_object(engine: Duck, data: Any, name: str, wanted: Sequence[str]) -> Table:
    """The table that an object in memory is: an array, a data frame, or anything that speaks Arrow's protocols."""
    from gate.rows.arrays import table_of_object

    return table_of_object(engine, File(name, ""), data, wanted)


def endings() -> tuple[str, ...]:
    """Every ending that a score file may have."""
    return tuple(ending for each in FORMATS for ending in each.endings)


# --- where the bytes are ------------------------------------------------------------------------------------


def _local(engine: Duck, file: File) -> str:
    """A path that the readers can open: of the file itself, or of a copy in scratch."""
    is_parquet = file.suffix in (".parquet", ".pq")
    if file.path != "-" and not file.is_gzip:
        if not file.is_remote:
            return _plain(engine, file)
        if is_parquet:
            if file.size == 0:
                raise GateError(_EMPTY.format(file))
            try:
                engine.use_filesystem(file.filesystem)
            except Exception as error:
                if "already been registered" not in str(error):  # by another file of the same store
                    raise
            return file.path
    path = os.path.join(engine.folder, engine.name("copy") + file.suffix)
    with open(path, "wb") as copy:
        if file.path == "-":
            copy.write(b"score\n")
            _copy(sys.stdin.buffer, copy, file, None)
            return path
        with file.open() as source:
            if file.is_gzip:
                _copy(gzip.GzipFile(fileobj=source), copy, file, max(UNPACKED, RATIO * file.size))
            else:
                _copy(source, copy, file, None)
    return _refuse_empty(file, path)


def _copy(source: Any, copy: Any, file: File, most: int | None) -> None:
    """Copy all bytes; few packed ones can unpack to very many."""
    room = shutil.disk_usage(os.path.dirname(copy.name)).free - UNPACKED // 8
    while piece := source.read(PIECE):
        copy.write(piece)
        if most is not None and copy.tell() > most:
            what = f"must unpack to at most {most:,} bytes ({RATIO} times its size, or 1 GB), got more"
            raise GateError(f"{file}: {what}; unpack it first if it is sound")
        if copy.tell() > room:
            what = f"must fit into the directory for temporary files, got more than {room:,} bytes"
            raise GateError(f"{file}: {what}; name one with more room with --scratch")


def _plain(engine: Duck, file: File) -> str:
    """The path of a file that is not empty, or of a link to it where its name is no text."""
    path = os.path.abspath(file.path)
    _refuse_empty(file, path)
    with open(path, "rb"):
        pass
    try:
        path.encode()
    except UnicodeEncodeError:
        link = os.path.join(engine.folder, engine.name("link") + file.suffix)
        os.symlink(path, link)
        return link
    return path


def _refuse_empty(file: File, path: str) -> str:
    if os.stat(path).st_size == 0:
        raise GateError(_EMPTY.format(file))
    return path


# --- Parquet ------------------------------------------------------------------------------------------------


def _read_parquet(engine: Duck, file: File, path: str, wanted: Sequence[str]) -> Table:
    """The rows stay in the file. Columns go by their place: names may repeat, or differ in case alone."""
    place = text(glob.escape(path))
    bare = "type LIKE '%BYTE_ARRAY' AND converted_type IS NULL AND logical_type IS NULL"
    schema = engine.ask(f"SELECT name, num_children, precision, {bare} AS bare FROM parquet_schema({place})")
    rows = [plain_list(schema[key]) for key in ("name", "num_children", "precision", "bare")]
    names, digits, bytes_ = _top_level(*rows)
    require(wanted, names, file)
    for name, precision in zip(names, digits, strict=True):
        if name in wanted and precision > 38:
            what = f"column {name!r} must hold decimals of at most 38 digits, got {precision}"
            raise GateError(f"{file}: {what}; write them as float64")
    numbered = "file_row_number" not in names
    alias = ", ".join([*(f"c{i}" for i in range(len(names))), *(["nr"] if numbered else [])])
    options = "hive_partitioning=false, binary_as_string=true" + (", file_row_number=true" if numbered else "")
    source = f"read_parquet({place}, {options}) AS t({alias})"
    if not numbered:  # DuckDB has that name for its own column
        source = f"(SELECT row_number() OVER () - 1 AS nr, * FROM {source})"
    counted = engine.ask(f"SELECT CAST(coalesce(sum(num_rows), 0) AS BIGINT) AS n FROM parquet_file_metadata({place})")
    columns = columns_of(engine, source, names)
    # Bytes are text if a role asks for them; else nobody says so.
    odd = [is_bytes and name not in wanted for name, is_bytes in zip(names, bytes_, strict=True)]
    told = [replace(c, kind="other", type="BLOB") if is_odd else c for c, is_odd in zip(columns, odd, strict=True)]
    return Table(file, source, tuple(told), count=int(counted["n"][0]))


def _top_level(
    names: list[str], children: list[int | None], digits: list[int | None], bare: list[bool | None]
) -> tuple[list[str], list[int], list[bool]]:
    """Of all columns in the order of the file: the names, the most digits of a decimal in each, and which are bytes."""
    found: list[tuple[str, int, bool]] = []
    i = 1
    for _ in range(children[0] or 0):
        first, left = i, 1
        while left:
            left += (children[i] or 0) - 1
            i += 1
        found.append((names[first], max(each or 0 for each in digits[first:i]), bool(bare[first])))
    return [name for name, _, _ in found], [most for _, most, _ in found], [is_bytes for _, _, is_bytes in found]


# --- CSV ----------------------------------------------------------------------------------------------------


def _read_text(engine: Duck, file: File, path: str, wanted: Sequence[str]) -> Table:
    """Text is parsed once into a table of texts; DuckDB guesses nothing."""
    separator, names = _header(file, path, "\t" if file.suffix == ".tsv" else ",;\t", wanted)
    if file.path == "-":
        if len(wanted) > 1:
            raise GateError(
                f"{file}: must have a column {wanted[1]!r}, got numbers without names; give a file with columns"
            )
        names = list(wanted)
    require(wanted, names, file)
    quotes, separators, is_odd = _scan(path, separator)
    size = os.stat(path).st_size
    columns = ", ".join(f"c{i}: 'VARCHAR'" for i in range(len(names)))
    options = f"columns={{{columns}}}, auto_detect=false, header=true, delim={text(separator)}, quote='\"', escape='\"'"
    options += ", strict_mode=true, null_padding=false, ignore_errors=false"
    if quotes:  # in parts, DuckDB would drop the rows after a quote that is never closed
        if size > engine.memory // 2:
            what = f"must fit twice into {engine.memory:,} bytes of memory, since it has quotes, got {size:,} bytes"
            raise GateError(f"{file}: {what}; write it as Parquet, leave quotes out, or raise --memory")
        options += f", buffer_size={size + 1}, max_line_size={size + 1}"
    else:
        options += f", max_line_size={LONGEST}"
    try:
        rows, count = keep(engine, "csv", f"SELECT * FROM read_csv({text(glob.escape(path))}, {options})")
    except Exception:
        _find_fault(file, path, separator, len(names))
        raise
    if is_odd or separators != (len(names) - 1) * (count + 1):
        lengths = ", ".join(f"CAST(coalesce(sum(length(c{i})), 0) AS BIGINT) AS c{i}" for i in range(len(names)))
        found = [int(column[0]) for column in engine.ask(f"SELECT {lengths} FROM {rows}").values()]
        if (count, found) != _find_fault(file, path, separator, len(names)):
            what = "must divide into rows and fields in one way, got quotes that can be read in two"
            raise GateError(f"{file}: {what}; leave no blanks around quoted fields, or write it as Parquet")
    return Table(file, rows, columns_of(engine, rows, names), is_text=True, count=count)


def _header(file: File, path: str, separators: str, wanted: Sequence[str]) -> tuple[str, list[str]]:
    """What separates the columns, and their names: the separator under which the wanted ones are there."""
    found: dict[str, list[str]] = {}
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as opened:
        for separator in separators:
            opened.seek(0)
            found[separator] = next(csv.reader(opened, delimiter=separator), [])
    if any("\ufffd" in name or "\0" in name for names in found.values() for name in names):
        raise GateError(f"{file}: must be UTF-8 text, got other bytes in the header; save it as UTF-8")
    best = max(separators, key=lambda each: (sum(found[each].count(name) == 1 for name in wanted), len(found[each])))
    return best, found[best]


def _scan(path: str, separator: str) -> tuple[int, int, bool]:
    """How many quotes there are, how many separators outside of them, and whether readers may differ on the quotes."""
    import numpy as np

    quotes = separators = 0
    blank = re.compile(rb'(\A|[\r\nSEP]) +"|" +([\r\nSEP]|\Z)'.replace(b"SEP", separator.encode()))
    is_odd, end = False, b""
    with open(path, "rb") as opened:
        while piece := opened.read(PIECE):
            part = np.frombuffer(piece, np.uint8)
            is_separator = part == ord(separator)
            if b'"' in piece or quotes % 2:
                marks = part == ord('"')
                is_separator &= np.logical_xor.accumulate(marks) == bool(quotes % 2)
                quotes += int(np.count_nonzero(marks))
                is_odd = is_odd or blank.search(end + piece) is not None
            separators += int(np.count_nonzero(is_separator))
            end = piece[-64:]
    return quotes, separators, is_odd or quotes % 2 == 1


def _find_fault(file: File, path: str, separator: str, width: int) -> tuple[int, list[int]]:
    """Name the row that is wrong, or count rows and characters; slow, and only used where something is odd."""
    rows, longest, lengths = 0, 0, [0] * width
    limit = csv.field_size_limit(1 << 30)
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as opened:
        lines = csv.reader(opened, delimiter=separator, strict=True)
        try:
            for i, fields in enumerate(lines):
                rows += i > 0 and (bool(fields) or width == 1)
                if fields and len(fields) != width:
                    what = f"must have {plural(width, 'column')} in every row, got {len(fields)} in row {rows:,}"
                    raise GateError(f"{file}: {what}; quote fields that hold separators, or restore the row")
                if any("\udc80" <= char <= "\udcff" for char in "".join(fields)):
                    raise GateError(f"{file}: must be UTF-8 text, got other bytes in row {rows:,}; save it as UTF-8")
                longest = longest or rows * (sum(map(len, fields)) > LONGEST)
                lengths = [length + len(each) for length, each in zip(lengths, fields or [""] * width, strict=True)]
                lengths = lengths if i else [0] * width
        except csv.Error:
            what = "must close every quoted field before a separator or the end of its row, got an open one in"
            raise GateError(
                f"{file}: {what} row {rows + 1:,}; double the quotes inside it or restore the file"
            ) from None
        finally:
            csv.field_size_limit(limit)
    if longest:
        what = f"must have rows of at most {LONGEST:,} bytes, got a longer one in row {longest:,}"
        raise GateError(f"{file}: {what}; leave long texts out, or write it as Parquet")
    return rows, lengths


# --- arrays, and the table of formats -----------------------------------------------------------------------


def _in_arrays(function: str) -> Callable[[Duck, File, str, Sequence[str]], Table]:
    """A reader of the module that needs NumPy or Arrow, which is loaded when a file asks for it."""

    def read(engine: Duck, file: File, path: str, wanted: Sequence[str]) -> Table:
        table: Table = getattr(import_module("gate.rows.arrays"), function)(engine, file, path, wanted)
        return table

    return read


FORMATS = (
    FileFormat((".parquet", ".pq"), _read_parquet, "write it again"),
    FileFormat((".csv",), _read_text, "save it as comma-separated UTF-8 text with a header"),
    FileFormat((".tsv",), _read_text, "save it as tab-separated UTF-8 text with a header"),
    FileFormat((".feather", ".arrow"), _in_arrays("read_arrow"), "write it again"),
    FileFormat((".jsonl", ".ndjson"), read_json_lines, "write one JSON object to a line"),
    FileFormat((".npy",), _in_arrays("read_npy"), "save one plain array of numbers with numpy.save"),
    FileFormat((".npz",), _in_arrays("read_npz"), "save plain arrays of numbers with numpy.savez"),
)
