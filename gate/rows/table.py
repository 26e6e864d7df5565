"""A table: the rows of one file or object as SQL can ask them, its columns, and what all formats ask of these.

What a library says of a broken file becomes one line.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gate.errors import GateError
from gate.rows.wording import is_number, one_line, reason_of, show
from gate.words import listed

if TYPE_CHECKING:
    from gate.rows.engine import Duck


@dataclass(frozen=True)
class File:
    """One file: its name as the user knows it, its path ("" for an object in memory, "-" for stdin), and its keys.

    `keys` are the columns that a partitioned directory writes into its path, as `label=0`. A file of a store has the
    file system that reads it, and the size that its listing gave.
    """

    name: str
    path: str
    keys: Mapping[str, str] = field(default_factory=dict)
    filesystem: Any = None
    listed: int | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def suffix(self) -> str:
        return PurePath(self.name.lower().removesuffix(".gz")).suffix

    @property
    def is_gzip(self) -> bool:
        return self.name.lower().endswith(".gz")

    @property
    def is_remote(self) -> bool:
        return self.filesystem is not None

    @property
    def size(self) -> int:
        return os.stat(self.path).st_size if self.listed is None else self.listed

    def open(self) -> Any:
        return open(self.path, "rb") if self.filesystem is None else self.filesystem.open(self.path, "rb")


@dataclass(frozen=True)
class Column:
    """One column: its name as the user writes it, the SQL that gives it, and what it holds.

    kind   "integer", "float", "decimal", "text", "boolean", "time", "date", "json", "null" or "other"
    type   the engine's word for it
    """

    name: str
    sql: str
    kind: str
    type: str


@dataclass(frozen=True)
class Table:
    """The rows of one file or object: what stands after FROM, and the columns that can be asked.

    `nr` is the number of a row in its file, from 0. Where `is_text`, an empty value is a missing one.
    """

    file: File
    rows: str
    columns: tuple[Column, ...]
    is_text: bool = False
    count: int | None = None
    numbered: bool = True


# --- what every format asks of its columns ------------------------------------------------------------------


def require(names: Sequence[str], present: Sequence[str], file: File) -> None:
    """Refuse a file unless each name is there once; all that is wrong is said at once."""
    wrong = [name for name in dict.fromkeys(names) if list(present).count(name) != 1]
    if not wrong:
        return
    repeated = next((name for name in wrong if name in present), None)
    if repeated is not None:
        count = list(present).count(repeated)
        raise GateError(f"{file}: must have one column {repeated!r}, got {count} of that name; rename or remove one")
    shown = ", ".join(map(show, present[:10])) + (", ..." if len(present) > 10 else "")
    hint = "name those that it has in the policy's `data:` or with --set, such as --set data.score=NAME"
    close = [near[0] for name in wrong for near in [difflib.get_close_matches(name, present, n=1)] if near]
    if close:
        hint = f"did you mean {listed(list(map(show, close)), 'or')}? {hint}"
    if present and all(map(is_number, present)):
        hint = "add a header line that names the columns"
    what = f"{'a column' if len(wrong) == 1 else 'columns'} {listed(list(map(repr, wrong)))}"
    raise GateError(f"{file}: must have {what}, got {shown or 'no column at all'}; {hint}")


KINDS = (
    (r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|BIGNUM", "integer"),
    (r"FLOAT|DOUBLE", "float"),
    (r"DECIMAL\(\d+,\d+\)", "decimal"),
    (r"VARCHAR|ENUM\(.*\)|UUID", "text"),
    (r"BOOLEAN", "boolean"),
    (r"TIMESTAMP.*", "time"),
    (r"DATE", "date"),
    (r"JSON", "json"),
    (r'"?NULL"?', "null"),
)


def columns_of(engine: Duck, rows: str, names: Sequence[str]) -> tuple[Column, ...]:
    """The columns c0, c1, ... of a relation, by the names that the user knows."""
    found = engine.ask(f"SELECT column_name AS name, column_type AS type FROM (DESCRIBE SELECT * FROM {rows})")
    types = dict(zip(map(str, found["name"]), map(str, found["type"]), strict=True))
    typed = [(name, f"c{i}", types[f"c{i}"]) for i, name in enumerate(names)]
    return tuple(Column(name, sql, kind_of(type_), one_line(type_, 80)) for name, sql, type_ in typed)


def kind_of(type_: str) -> str:
    return next((kind for pattern, kind in KINDS if re.fullmatch(pattern, type_, re.DOTALL)), "other")


def keep(engine: Duck, prefix: str, select: str) -> tuple[str, int]:
    """Copy what a SELECT gives into a temporary table: its rows, numbered in their order, and how many they are."""
    table = engine.name(prefix)
    engine.do(f"CREATE TEMP TABLE {table} AS {select}")
    return f"(SELECT rowid AS nr, * FROM {table})", int(engine.ask(f"SELECT count(*) AS n FROM {table}")["n"][0])


def plain_list(column: Any) -> list[Any]:
    import numpy as np

    return list(np.ma.asarray(column).tolist())


# --- what a library says of a broken file -------------------------------------------------------------------


@contextlib.contextmanager
def explain(file: File, remedy: str = "write it again") -> Iterator[None]:
    """Turn whatever a library raises in reading into one line that names the file and what to do."""
    try:
        yield
    except GateError:
        raise
    except FileNotFoundError:
        raise GateError(f"{file}: must exist, got no such file; check the name") from None
    except PermissionError:
        raise GateError(f"{file}: must be readable, got permission denied; allow this user to read it") from None
    except Exception as error:  # NumPy, zipfile, Arrow and DuckDB raise dozens of types on a broken file
        said = str(error)
        if type(error).__name__ == "InterruptException":
            raise
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if full or "No space left" in said or "max_temp_directory_size" in said:
            what = f"must fit into the directory for temporary files, got: {_reason(error)}"
            raise GateError(f"{file}: {what}; name one with more room with --scratch") from None
        if (
            isinstance(error, MemoryError)
            or said.startswith("Out of Memory")
            or getattr(error, "errno", 0) == errno.ENOMEM
        ):
            what = f"must be a readable {file.suffix} file that fits into memory, got: {_reason(error)}"
            raise GateError(f"{file}: {what}; raise --memory, or write it as Parquet") from None
        raise GateError(f"{file}: must be {_readable(file)}, got: {_reason(error)}; {remedy}") from None


def _readable(file: File) -> str:
    return f"a readable {file.suffix} file" if file.path else "readable"


def _reason(error: Exception) -> str:
    """The reason without DuckDB's class of errors and without the place of a copy."""
    said = re.sub(r"^[A-Z]\w+( \w+)* Error: ", "", reason_of(error))
    return re.sub(r" ?(in|of|at end of)? ?(file )?['\"][^'\"]*/[^'\"]*['\"]", "", said)
