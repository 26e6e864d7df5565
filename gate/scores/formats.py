"""The formats: each reads the named columns of one file into Arrow or NumPy arrays, or says what is wrong with it."""

from __future__ import annotations

import contextlib
import csv
import difflib
import gzip
import math
import mmap
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from numpy.typing import NDArray

from gate.contract import Floats
from gate.errors import GateError, plural
from gate.policy import Columns
from gate.scores.budget import Budget
from gate.scores.child import name_copies, tell
from gate.scores.layout import check_file, check_stream
from gate.scores.wording import explain, is_number, show


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
    label: str | None = None  # the column of labels, of which a text file keeps how each is written
    calibrated: str | None = None  # the column of served scores
    size: int | None = None  # in bytes, where a listing gave it

    def __str__(self) -> str:
        return self.name

    def __fspath__(self) -> str:
        return self.path

    @property
    def suffix(self) -> str:
        return PurePath(self.name.lower().removesuffix(".gz")).suffix

    @property
    def is_text(self) -> bool:
        """Whether what a column holds is known only by how it is written."""
        return self.suffix in (".csv", ".tsv")

    @property
    def bytes(self) -> int:
        """How long it is; of what cannot be told, nothing."""
        try:
            return self.size or 0 if self.remote is not None else os.stat(self.path).st_size
        except OSError:
            return 0

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
    c = columns
    named = (c.score, c.calibrated, c.label, c.group, c.id, c.segment, c.timestamp)
    return list(dict.fromkeys(name for name in named if name is not None))


def read_file(file: File, columns: Columns, budget: Budget) -> Table:
    """The columns that the policy names, every length and number of a name in them checked."""
    if file.suffix not in READERS:
        known, got = ", ".join(READERS), file.suffix or "no suffix"
        raise GateError(
            f"{file}: must end in one of {known} (or these with .gz), got {got}; convert it to one of these"
        )
    tell(str(file))
    reader, remedy = READERS[file.suffix]
    keys = {key: value for key, value in file.keys.items() if key in list_wanted(columns)}
    if columns.score in keys:
        raise GateError(
            f"{file}: must hold a score of its own in every row, got {columns.score!r} as a key of its path; "
            "name another column with data.score or --score-column, or rename the folder"
        )
    names = [name for name in list_wanted(columns) if name not in keys]
    local: File
    with (
        explain(file, remedy),
        _fetched(_with_roles(file, columns), columns, budget) as local,
    ):
        if local.remote is None and os.stat(local).st_size == 0:
            raise GateError(f"{file}: must hold scores, got an empty file; write it again")
        table = reader(local, names, budget)
    return finish(file, table, columns, keys, budget)


def _with_roles(file: File, c: Columns) -> File:
    return replace(file, segment=c.segment, label=c.label, calibrated=c.calibrated)


def list_columns(file: File, budget: Budget) -> tuple[str, ...]:
    """The names of all columns of a file, in its own order; none where its format has no names."""
    reader, remedy = READERS[file.suffix]
    with explain(file, remedy), _fetched(file, Columns(), budget) as local:
        return reader(local, [], budget).names


def finish(file: File, table: Table, columns: Columns, keys: Mapping[str, str], budget: Budget) -> Table:
    """The columns of a file and those that its path carries."""
    c = columns
    plain = {c.score, c.calibrated, c.label, c.id, c.timestamp}  # groups and segments stay as they are
    for name in table.columns.keys() & plain:
        budget.refuse(_written_out(table.columns[name]), file)
    both = next((key for key in keys if key in table.names), None)
    if both is not None:
        raise GateError(
            f"{file}: must have {both!r} in its path or as a column, got both; remove the column or rename the folder"
        )
    rows = len(table.columns[columns.score])
    repeated = {key: pa.chunked_array([pa.repeat(_key_value(value), rows)]) for key, value in keys.items()}
    return Table({**table.columns, **repeated}, table.names)


def _written_out(column: Any) -> int:
    """How many bytes the values of a dictionary are when each stands in every row that has it."""
    if isinstance(column, np.ndarray) or not pa.types.is_dictionary(column.type):
        return 0
    if pa.types.is_primitive(column.type.value_type):
        return len(column) * _width(column.type.value_type)
    lengths = (
        pc.binary_length(chunk.dictionary.cast(pa.large_binary())).take(chunk.indices) for chunk in column.chunks
    )
    return sum(int(pc.sum(part).as_py() or 0) for part in lengths)


def _key_value(text: str) -> Any:
    """What a key says of each row; Hive's word for none is none."""
    return pa.scalar(None if text == "__HIVE_DEFAULT_PARTITION__" else text, pa.string())


@contextlib.contextmanager
def _fetched(file: File, columns: Columns, budget: Budget) -> Iterator[File]:
    """The file on this machine and not packed: itself, or a temporary copy of it."""
    if file.path != "-" and not file.is_gzip and (file.remote is None or file.suffix in (".parquet", ".pq")):
        yield file
        return
    with tempfile.NamedTemporaryFile(prefix=name_copies(), suffix=file.suffix) as copy:
        if file.path == "-":
            copy.write(columns.score.encode() + b"\n")
        with _opened(file) as source:
            _copy(source, copy, file, budget)
        copy.flush()
        yield replace(file, path=copy.name, remote=None)


def _copy(source: Any, copy: Any, file: File, budget: Budget) -> None:
    """All bytes, or, of what is packed or piped, so many as may be decoded: few bytes can unpack to very many."""
    most = budget.limit if file.is_gzip or file.path == "-" else None
    while piece := source.read(1 << 20):
        copy.write(piece)
        if most is not None and copy.tell() > most:
            must = f"must {'unpack to' if file.is_gzip else 'be'} at most {most:,} bytes, got more"
            raise GateError(f"{file}: {must}; raise --max-bytes, or give fewer rows or columns")


def _opened(file: File) -> Any:
    if file.path == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    if file.remote is not None:
        return file.remote.open_input_stream(file.path, compression="gzip" if file.is_gzip else None)
    return gzip.open(file.path, "rb")


_ROWS = 1 << 20  # of a batch


def _read_parquet(path: File, names: list[str], budget: Budget) -> Table:
    source = os.fspath(path) if path.remote is None else path.remote.open_input_file(path.path)
    few = [path.segment] if path.segment in names else None  # kept as Parquet has it: each name once
    with pyarrow.parquet.ParquetFile(source, memory_map=path.remote is None, read_dictionary=few) as file:
        require(names, file.schema_arrow.names, path)
        kinds = [file.schema_arrow.field(name).type for name in names]
        rows = file.metadata.num_rows
        budget.refuse(rows * sum(map(_width, kinds)), path)  # at least so many; text is counted as it comes
        batches = []
        for batch in file.iter_batches(_ROWS, columns=names):
            batches.append(batch)
            budget.take(batch.nbytes, path)
        table = pa.Table.from_batches(batches) if batches else file.read(columns=names)
        counted = sum(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))
        if not rows == counted == len(table):
            raise ValueError(f"{rows:,} rows in the footer, {counted:,} in the row groups, {len(table):,} in the pages")
        return Table(pick(table, names), tuple(file.schema_arrow.names))


def _width(kind: Any) -> int:
    """The bytes of one decoded value, where all have the same; at least one otherwise."""
    return kind.bit_width // 8 or 1 if pa.types.is_primitive(kind) else 1


def _read_arrow(path: File, names: list[str], budget: Budget) -> Table:
    with pa.OSFile(os.fspath(path)) as source:  # not mapped: the scores must not change with the file
        is_file = source.read(6) == b"ARROW1"
        check_layout, opened = (check_file, pa.ipc.open_file) if is_file else (check_stream, pa.ipc.open_stream)
        check_layout(source)
        source.seek(0)
        schema = opened(source).schema
        require(names, schema.names, path)
        wanted = pa.ipc.IpcReadOptions(included_fields=sorted(schema.names.index(name) for name in names))
        source.seek(0)
        reader = opened(source, options=wanted)
        batches = []
        for batch in (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader:
            batch.validate(full=True)  # no length may be used before
            batches.append(batch)
            budget.take(batch.nbytes, path)
    return Table(pick(pa.Table.from_batches(batches, reader.schema), names), tuple(schema.names))


def _read_jsonl(path: File, names: list[str], budget: Budget) -> Table:
    """The named columns alone, if they stay as the first lines have them; else all that the file holds."""
    _refuse_null_lines(path)
    table, present = None, []
    with contextlib.suppress(pa.ArrowException):
        kinds = _first_kinds(path, names[0] if names else "")
        if {*names} <= {*kinds}:
            wanted = pa.schema([(name, kinds[name]) for name in names])
            alone = pyarrow.json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
            table, present = pyarrow.json.read_json(os.fspath(path), parse_options=alone), list(kinds)
    if table is None:
        table = pyarrow.json.read_json(os.fspath(path))
        present = table.column_names
    require(names, present, path)
    budget.take(table.select(names).nbytes, path)
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


def _read_csv(path: File, names: list[str], budget: Budget) -> Table:
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
    kinds = {path.label: pa.string()} if path.label in names else None
    converting = pyarrow.csv.ConvertOptions(include_columns=names, column_types=kinds)
    try:
        table = pyarrow.csv.read_csv(os.fspath(path), parse_options=parsing, convert_options=converting)
        budget.take(table.nbytes, path)
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


def _read_npy(path: File, names: list[str], budget: Budget) -> Table:
    if len(names) > 1:
        got = "a .npy file, which has none; name no such column in the policy or use .npz"
        raise GateError(f"{path}: must have a column {names[1]!r}, got {got}")
    if not names:
        return Table({})
    with open(path, "rb") as file:
        return Table({names[0]: _read_array(file, os.fstat(file.fileno()).st_size, path, budget)})


def _read_npz(path: File, names: list[str], budget: Budget) -> Table:
    with zipfile.ZipFile(path) as archive:
        present = [name.removesuffix(".npy") for name in archive.namelist()]
        members = dict(zip(present, archive.infolist(), strict=True))
        wanted = present if len(names) == len(present) == 1 else names
        require(wanted, present, path)
        if not all(members[name].filename.endswith(".npy") for name in wanted):
            raise GateError(f"{path}: must hold arrays, got another kind of file inside; save them with numpy.savez")
        table = {}
        for name, member in zip(names, (members[name] for name in wanted), strict=True):
            with archive.open(member) as file:
                table[name] = _read_array(file, member.file_size, path, budget)
    if len({len(array) for array in table.values()}) > 1:
        lengths = ", ".join(f"{name!r}: {len(array):,}" for name, array in table.items())
        raise GateError(f"{path}: its arrays must be of one length, got {lengths}; save one label for every score")
    return Table(table, tuple(present))


def _read_array(file: Any, size: int, path: File, budget: Budget) -> NDArray[Any]:
    """The array in so many bytes of the .npy format, which must be as many as its header says; never a pickle."""
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read_header(file)
    claimed, held = math.prod(shape) * kind.itemsize, size - file.tell()
    if claimed != held and not kind.hasobject:
        raise ValueError(f"{plural(held, 'byte')} where its header says {claimed:,}")
    budget.take(claimed, path)
    file.seek(0)
    return one_dimensional(np.lib.format.read_array(file, allow_pickle=False), path)


READERS: dict[str, tuple[Callable[[File, list[str], Budget], Table], str]] = {
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
    """The named columns, with every offset, index and text in them checked before it is used."""
    table.select(names).validate(full=True)
    for kind in (getattr(table.schema.field(name).type, "value_type", table.schema.field(name).type) for name in names):
        if pa.types.is_decimal(kind) and abs(kind.scale) > (38 if kind.bit_width <= 128 else 76):
            raise pa.ArrowInvalid(f"decimals with {kind.scale} digits behind the point")  # which Arrow cannot print
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
        roles = {
            path.calibrated: "--calibrated-column NAME",
            names[0]: "--score-column NAME",
            path.label: "--label-column NAME",
            path.segment: "--segment-column NAME",
        }
        option = roles.get(name, "--group-column, --id-column or --timestamp-column NAME")
        hint = f"name the one that it has with {option} or in the policy's `data:`"
        if close:
            hint = f"did you mean {show(close[0])}? {hint}"
        if len(present) == 1 and name in re.split(r"[;\t|]", present[0]):
            hint = "separate the columns with commas"
        if present and all(map(is_number, present)):
            hint = "add a header line that names the columns"
        raise GateError(f"{path}: must have a column {name!r}, got {shown or 'no column at all'}; {hint}")


def one_dimensional(array: NDArray[Any], path: File) -> NDArray[Any]:
    column: NDArray[Any] = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if column.ndim != 1:
        raise GateError(f"{path}: must be a list of scores, got an array of shape {array.shape}; save one column of it")
    return column


def write_parquet(path: Path, values: Floats) -> None:
    """Write scores as one column, the way `read` expects them by default."""
    pyarrow.parquet.write_table(pa.table({Columns().score: values}), path)
