"""Describes each column of score files: its kind, its values where they are few, and whether they read as times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gate.errors import GateError
from gate.rows.engine import here, text
from gate.rows.formats import open_table
from gate.rows.roles import NUMBERS, WHOLE, RoleFinder
from gate.rows.sample import LOOKED_AT
from gate.rows.sources import Found
from gate.rows.table import Column, Table, explain
from gate.rows.wording import NUMBER, is_number, show
from gate.words import plural

if TYPE_CHECKING:
    from gate.rows.table import File

MOST_COLUMNS = 40  # columns of a file that are looked at
MOST_LABELS = 50  # a column with more distinct values has no labels
_TIME_NAME = re.compile(r"(?:^|_)(time|timestamp|ts|date|datetime|seen|created|at|day)(?:_at)?$")
_YEARS = tuple(int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 10**6 for year in (1990, 2100))
_INFINITE = ("inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")


@dataclass(frozen=True)
class Seen:
    """One column, described as the files have it.

    kind         "number", "text", "flag", "time", "other", or "" where it holds no value at all
    whole        all its values are whole numbers
    infinite     rows with an infinite number
    values       its distinct values with their rows, if they are few enough to be labels
    differs      no two of its first rows have one value
    is_numbers   it numbers the rows of each file from 0 or 1
    """

    name: str
    kind: str
    rows: int = 0
    missing: int = 0
    whole: bool = False
    infinite: int = 0
    values: tuple[tuple[str, int], ...] = ()
    differs: bool = False
    is_numbers: bool = False
    is_time: bool = False


@dataclass(frozen=True)
class PartColumns:
    """What one argument names: its rows, its columns, and what it is taken for.

    header   the line that must be put in front of a text file that has none
    """

    path: str
    rows: int
    columns: tuple[Seen, ...]
    tables: tuple[Table, ...] = field(repr=False)
    header: str | None = None
    role: str = "benign"

    @property
    def names(self) -> list[str]:
        return [seen.name for seen in self.columns]


def look_at(path: str, found: Found) -> PartColumns:
    """Describe the columns of one argument, over all its files together."""
    tables = [open_table(here(), file, []) for file in found.files]
    header, first = None, _names(tables[0])
    if tables[0].is_text and first and all(is_number(name) or not name for name in first):
        if len(tables) > 1 or tables[0].file.is_gzip or tables[0].file.is_remote:
            raise GateError(f"{tables[0].file}: must have a header line that names the columns, got numbers; add one")
        header, copy = _with_header(tables[0].file, len(first))
        tables = [open_table(here(), copy, [])]
    common = [name for name in _names(tables[0]) if name and all(name in _names(table) for table in tables[1:])]
    seen = []
    for table in tables:
        with explain(table.file):
            seen.append(_see(table, common[:MOST_COLUMNS]))
    is_untyped = all(table.is_text for table in tables)
    columns = tuple(_together(each, is_untyped) for each in zip(*seen, strict=True))
    return PartColumns(path, sum(_count(table) for table in tables), columns, tuple(tables), header)


def _names(table: Table) -> list[str]:
    return list(dict.fromkeys(column.name for column in table.columns))


def _count(table: Table) -> int:
    counted = table.count
    return int(here().ask(f"SELECT count(*) AS n FROM {table.rows}")["n"][0]) if counted is None else counted


def _with_header(file: File, width: int) -> tuple[str, File]:
    """The header that a file lacks, and a copy in scratch that has it."""
    names = [f"column{i}" for i in range(1, width + 1)] if width > 1 else ["score"]
    copy = f"{here().folder}/{here().name('named')}{file.suffix}"
    with open(file.path, "rb") as source, open(copy, "wb") as target:
        line = source.readline()
        header = next((mark for mark in ("\t", ";") if mark.encode() in line), ",").join(names)
        target.write(header.encode() + b"\n" + line)
        while piece := source.read(1 << 20):
            target.write(piece)
    return header, replace(file, path=copy)


# --- one file -----------------------------------------------------------------------------------------------


def _see(table: Table, names: Sequence[str]) -> list[Seen]:
    """Describe some columns of one file, all with the same few questions."""
    reading = RoleFinder(here(), table)
    listed = [column.name for column in table.columns]
    odd = {column.name for column in table.columns if column.kind == "other" or listed.count(column.name) > 1}
    empty = {column.name for column in table.columns if column.kind == "null"} - odd
    seen = {name: Seen(name, "other" if name in odd else "") for name in names}
    readable = [reading.columns[name] for name in names if name not in odd | empty]
    asked = [_asked(reading, column) for column in readable]
    found = _ask(table.rows, {f"{key}{i}": sql for i, each in enumerate(asked) for key, sql in each.items()})
    words = "".join(f", {_word(reading, column)} AS v{i}" for i, column in enumerate(readable))
    first_rows = f"(SELECT nr{words} FROM {table.rows} LIMIT {LOOKED_AT}) AS q"
    different = _ask(first_rows, {f"d{i}": f"count(DISTINCT v{i})" for i in range(len(readable))})
    for i, column in enumerate(readable):
        facts = {key: found[f"{key}{i}"] for key in asked[i]}
        seen[column.name] = _describe(reading, column, facts, found["n"], different[f"d{i}"])
    return [seen[name] for name in names]


def _ask(rows: str, asked: dict[str, str]) -> dict[str, int]:
    """One question for many numbers of a file."""
    listed = "".join(f", {sql} AS {key}" for key, sql in asked.items())
    found = here().ask(f"SELECT count(*) AS n{listed} FROM {rows}")
    return {key: int(column[0]) for key, column in found.items()}


def _word(reading: RoleFinder, column: Column) -> str:
    """A value as the policy writes it: 1.0 of a float as `1`."""
    return reading.name_of(column) if column.kind in NUMBERS else reading.written(column)


def _asked(reading: RoleFinder, column: Column) -> dict[str, str]:
    """The SQL of how many values a column has, how many are of each kind, and whether they number the rows."""
    kinds = {
        "held": "TRUE",
        "numbers": "FALSE",
        "flags": "FALSE",
        "words": "FALSE",
        "whole": "FALSE",
        "infinite": "FALSE",
    }
    if column.name in reading.table.file.keys:
        kinds["words"] = "TRUE"
    elif reading.table.is_text:
        kinds |= _kinds_of_text(reading.written(column))
    elif column.kind == "json":
        kinds |= _kinds_of_json(f"json_type({column.sql})")
    elif column.kind in NUMBERS:
        kinds |= _kinds_of_numbers(column)
    elif column.kind in ("boolean", "text"):
        kinds["flags" if column.kind == "boolean" else "words"] = "TRUE"
    present = reading.present(column.name)
    asked = {key: f"count(CASE WHEN {present} AND ({sql}) THEN 1 END)" for key, sql in kinds.items()}
    place = f"TRY_CAST({_word(reading, column)} AS HUGEINT) - nr"
    asked["counts_up"] = f"coalesce(min({place}) = max({place}) AND min({place}) IN (0, 1), FALSE)"
    return asked


def _kinds_of_text(written: str) -> dict[str, str]:
    endless = f"lower(trim({written})) IN ({', '.join(map(text, _INFINITE))})"
    return {
        "numbers": f"regexp_full_match({written}, {text(NUMBER)}) OR {endless} OR lower(trim({written})) = 'nan'",
        "flags": f"lower({written}) IN ('true', 'false')",
        "words": "TRUE",
        "whole": rf"regexp_full_match({written}, '\s*[-+]?[0-9]+\s*')",
        "infinite": endless,
    }


def _kinds_of_json(kind: str) -> dict[str, str]:
    whole = f"{kind} IN ('BIGINT', 'UBIGINT', 'HUGEINT', 'UHUGEINT')"
    numbers = f"{whole} OR {kind} = 'DOUBLE'"
    return {"numbers": numbers, "flags": f"{kind} = 'BOOLEAN'", "words": f"{kind} = 'VARCHAR'", "whole": whole}


def _kinds_of_numbers(column: Column) -> dict[str, str]:
    if column.kind == "integer":
        return {"numbers": "TRUE", "whole": "TRUE"}
    whole = f"{column.sql} = floor({column.sql})"
    if column.kind == "decimal":
        return {"numbers": "TRUE", "whole": whole}
    return {
        "numbers": "TRUE",
        "whole": f"abs({column.sql}) < {WHOLE} AND {whole}",
        "infinite": f"isinf({column.sql})",
    }


def _describe(reading: RoleFinder, column: Column, facts: dict[str, int], rows: int, different: int) -> Seen:
    """One column of one file, from what was counted."""
    held = facts["held"]
    if not held:
        return Seen(column.name, "", rows, rows)
    if column.kind in ("time", "date"):
        return Seen(column.name, "time", rows, rows - held, is_time=True)
    order = (("number", "numbers"), ("flag", "flags"), ("text", "words"))
    kind = next((kind for kind, key in order if facts[key] == held), "other")
    return Seen(
        column.name,
        kind,
        rows,
        rows - held,
        whole=facts["whole"] == held,
        infinite=facts["infinite"],
        values=_values(reading, column) if kind != "other" and different <= MOST_LABELS else (),
        differs=different == min(rows, LOOKED_AT),
        is_numbers=bool(facts["counts_up"]) and held == rows,
        is_time=kind != "other" and bool(_TIME_NAME.search(plain(column.name))) and _reads_as_time(reading, column),
    )


def _values(reading: RoleFinder, column: Column) -> tuple[tuple[str, int], ...]:
    """Every distinct value with its rows; none if they are many."""
    found = here().ask(
        f"SELECT {_word(reading, column)} AS word, count(*) AS n FROM {reading.table.rows} "
        f"WHERE {reading.present(column.name)} GROUP BY 1 LIMIT {MOST_LABELS + 1}"
    )
    pairs = [(str(word), int(n)) for word, n in zip(found["word"], found["n"], strict=True) if str(word)]
    return tuple(sorted(pairs)) if len(found["word"]) <= MOST_LABELS else ()


def _reads_as_time(reading: RoleFinder, column: Column) -> bool:
    present = reading.present(column.name)
    try:
        moment = reading.times(column.name, present).sql
    except GateError:
        return False
    inside = f"count(CASE WHEN {present} AND ({moment}) BETWEEN {_YEARS[0]} AND {_YEARS[1]} THEN 1 END)"
    found = _ask(reading.table.rows, {"inside": inside, "held": f"count(CASE WHEN {present} THEN 1 END)"})
    return found["inside"] == found["held"]


# --- several files ------------------------------------------------------------------------------------------


def _together(seen: Iterable[Seen], is_untyped: bool) -> Seen:
    """One column of several files; without types, numbers in one file are words where another has words."""
    parts = list(seen)
    held = [part for part in parts if part.kind] or parts
    kinds = {part.kind for part in held}
    kind = kinds.pop() if len(kinds) == 1 else "text" if is_untyped and "other" not in kinds else "other"
    counts: dict[str, int] = {}
    for value, rows in (pair for part in held for pair in part.values):
        counts[value] = counts.get(value, 0) + rows
    is_few = all(part.values for part in held) and len(counts) <= MOST_LABELS
    return Seen(
        parts[0].name,
        kind,
        sum(part.rows for part in parts),
        sum(part.missing for part in parts),
        whole=all(part.whole for part in held),
        infinite=sum(part.infinite for part in held),
        values=tuple(sorted(counts.items())) if is_few and kind != "other" else (),
        differs=all(part.differs for part in held),
        is_numbers=all(part.is_numbers for part in held),
        is_time=all(part.is_time for part in held),
    )


def plain(name: str) -> str:
    return re.sub(r"[\W_]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).strip()).casefold().strip("_")


def describe_rows(part: PartColumns) -> str:
    """Describe a file in a few words."""
    shown = ", ".join(map(show, part.names[:10])) + (", ..." if len(part.names) > 10 else "")
    return f"{part.path}: {plural(part.rows, 'row')}, {plural(len(part.names), 'column')} ({shown})"
