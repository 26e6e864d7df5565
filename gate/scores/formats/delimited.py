"""Text with a header, its columns divided by commas or tabs."""

from __future__ import annotations

import csv
import mmap
import os
import re
from typing import Any

import pyarrow as pa
import pyarrow.csv

from gate.errors import GateError
from gate.policy import Columns
from gate.scores.budget import ByteBudget
from gate.scores.formats.table import BLOCK, LONGEST, Batches, File, Table, pick, refuse_longer, require
from gate.words import plural

MOST_CHARACTERS = 1 << 30  # in one field, when the faulty row is looked for


def read(file: File, names: list[str], budget: ByteBudget) -> Table:
    header, parsing = _layout(file, names)
    converting = pyarrow.csv.ConvertOptions(include_columns=names, column_types=_as_written(names, file.columns))
    try:
        table = pyarrow.csv.read_csv(os.fspath(file), parse_options=parsing, convert_options=converting)
        budget.take(table.nbytes, file)
        return Table(pick(table, names), tuple(header))
    except pa.ArrowInvalid:
        _refuse_uneven_rows(file, len(header), parsing.delimiter)
        raise


def stream(file: File, names: list[str], columns: Columns) -> Batches:
    kinds = {name: pa.float64() for name in (columns.score, columns.count) if name is not None}
    kinds |= _as_written(names, columns)
    if not {*names} <= {*kinds}:
        raise pa.ArrowInvalid("columns whose kind only all rows tell")
    header, parsing = _layout(file, names)
    converting = pyarrow.csv.ConvertOptions(include_columns=names, column_types=kinds)
    blocks = pyarrow.csv.ReadOptions(block_size=BLOCK)
    with pyarrow.csv.open_csv(os.fspath(file), blocks, parsing, converting) as reader:
        for batch in reader:
            yield batch, tuple(header)


def _layout(file: File, names: list[str]) -> tuple[list[str], Any]:
    """Read the names of all columns and of the wanted ones, and decide how Arrow divides the text."""
    separator = "\t" if file.suffix == ".tsv" else ","
    with open(file, encoding="utf-8-sig", errors="replace", newline="") as opened:
        header = next(csv.reader(opened, delimiter=separator), [])
    if any("\ufffd" in name or "\0" in name for name in header):
        raise GateError(f"{file}: must be UTF-8 text, got other bytes in the header; save it as UTF-8")
    quoted = has_quotes(file, len(header), separator)
    require(names, header, file)
    return header, _parsing(header, separator, quoted)


def _as_written(names: list[str], columns: Columns) -> dict[str, Any]:
    """List the columns that are kept as they are written: neither `01` nor `true` is another name for `1`."""
    texts = (columns.label, columns.id, columns.group, columns.segment)
    return {name: pa.string() for name in texts if name in names and name != columns.score}


def _parsing(header: list[str], separator: str, quoted: bool) -> Any:
    """Decide how Arrow divides the text.

    Without `newlines_in_values` it reads in parallel, but may cut a quoted line break in two and invent a row. A blank
    line is no row, except where there is only one column: there it is a missing score.
    """
    return pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=quoted, ignore_empty_lines=len(header) > 1)


_FIELDS = {
    separator: re.compile(
        rb'(?:"(?:[^"]++|"")*+"(?=[SEP\r\n]|\Z)|[^"SEP\r\n][^SEP\r\n]*+|[SEP\r\n])*+'.replace(
            b"SEP", separator.encode()
        )
    )
    for separator in (",", "\t")
}
_QUOTED = re.compile(rb'"(?:[^"]++|"")*+"')


def has_quotes(file: File, width: int, separator: str) -> bool:
    """Whether a row has quotes. An unclosed quote hides the rows after it and is refused: Arrow would say nothing."""
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
        header = max(text.find(b"\n"), 0)
        if text.find(b'"', header) < 0 and text[:header].count(b'"') % 2 == 0:  # writers often quote the header alone
            return False
        match = _FIELDS[separator].match(text)
        end = match.end() if match else 0
        if end < len(text):
            lines = _QUOTED.sub(b"_", text[:end] + b"_").splitlines()
            row = len([line for line in lines if line or width == 1]) - 1
            raise GateError(
                f"{file}: must close every quoted field before a comma or the end of its row, got an open one in "
                f"{'the header' if row == 0 else f'row {row:,}'}; double the quotes inside it or restore the file"
            )
        return True


def _refuse_uneven_rows(file: File, width: int, separator: str) -> None:
    """Name the row that Arrow could not split; slow, and only used on a file that is refused anyway."""
    row, long, limit = 0, 0, csv.field_size_limit(MOST_CHARACTERS)
    with open(file, encoding="utf-8-sig", errors="replace", newline="") as opened:
        lines = csv.reader(opened, delimiter=separator)
        try:
            next(lines)
            for fields in lines:
                row += bool(fields) or width == 1
                long = long or row * (sum(map(len, fields)) > LONGEST)
                if fields and len(fields) != width:
                    raise GateError(
                        f"{file}: must have {plural(width, 'column')} in every row, got {len(fields)} in row {row:,}; "
                        "quote fields that hold commas, or restore the row"
                    )
        except csv.Error as error:
            raise GateError(
                f"{file}: must be a readable .csv file, got: {error} in row {row + 1:,}; remove it"
            ) from None
        finally:
            csv.field_size_limit(limit)
    if long:
        refuse_longer(file, "row", long)
