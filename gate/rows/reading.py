"""Reading: from files, objects or tables to a sample. Rows stay where they are as far as that can be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gate.errors import GateError
from gate.policy import Columns, Policy
from gate.rows.engine import Duck, Engine, asked, here
from gate.rows.formats import open_object, open_table
from gate.rows.labels import Kind, count_labels
from gate.rows.ordered import mixing
from gate.rows.roles import FilePart, read_part, wanted_columns
from gate.rows.sample import LOOKED_AT, Piece, Sample
from gate.rows.sources import digest, find_each, refuse_copies
from gate.rows.table import Column, Table
from gate.rows.wording import show
from gate.sources import Source
from gate.stored import MOST_ROWS
from gate.words import plural

MOST_UNREAD = 50  # columns that no role names and that are looked at
NEARLY = 0.9  # of the different rows differ in a column that tells rows apart
ALL_ROLES = ("score", "id", "grp", "segment", "time", "weight", "raw", "whole", "copies")


def read(
    paths: Iterable[str], columns: Columns, domain: tuple[float, float], kind: Kind = "benign", gaps: bool = False
) -> Sample:
    """The benign rows of one or more files, or the malicious ones: all of them where the policy names no label."""
    return read_by(paths, {"": (columns, domain)}, kind, gaps)[""]


def read_by(
    paths: Iterable[str], views: dict[str, tuple[Columns, tuple[float, float]]], kind: Kind, gaps: bool = True
) -> dict[str, Sample]:
    """The same files as several detectors read them, each with its own columns and domain; they are opened once."""
    engine = asked()
    wanted = list(dict.fromkeys(name for columns, _ in views.values() for name in wanted_columns(columns)))
    opened = [*_opened(engine, paths, wanted)]
    digests: dict[str, str] = {}
    samples = {}
    skipped = tuple(each for _, _, skipped in opened for each in skipped)
    for name, (columns, domain) in views.items():
        with naming(name):
            parts, sources = [], []
            for path, tables, _ in opened:
                alone = len(tables) == 1
                now = [read_part(engine, table, columns, domain, kind, alone, gaps) for table in tables]
                sources.append(source_of(path, now, kind))
                parts += now
            pieces = tuple(piece_of(part, digests) for part in parts if part.rows)
            refuse_copies(piece.file for piece in pieces)
            sample = join_parts(engine, parts, columns, tuple(sources), kind, domain, wanted)
        kept_parts = tuple(parts) if name else ()
        samples[name] = replace(sample, pieces=pieces, skipped=skipped, parts=kept_parts)
    return samples


def _opened(
    engine: Engine, paths: Iterable[str], wanted: Sequence[str]
) -> Iterator[tuple[str, list[Table], tuple[tuple[str, str], ...]]]:
    """The tables of each argument: of the files that it names, or of an engine that the user has."""
    if isinstance(engine, Duck):
        for path, found in find_each(paths):
            yield path, [open_table(engine, file, wanted) for file in found.files], found.skipped
        return
    from gate.rows.remote import open_relation

    for path in paths:
        yield path, [open_relation(engine, path, wanted)], ()


@contextlib.contextmanager
def naming(detector: str) -> Iterator[None]:
    """Say of which detector an error is; one that is alone has no name."""
    try:
        yield
    except GateError as error:
        if not detector:
            raise
        raise GateError(*(f"{detector}: {line}" for line in str(error).splitlines())) from None


def from_object(
    data: Any, name: str, columns: Columns, domain: tuple[float, float], kind: Kind = "benign", gaps: bool = False
) -> Sample:
    """The rows of an array, a table, a data frame or named files; `name` stands for the data in messages."""
    return objects_by(data, name, {"": (columns, domain)}, kind, gaps)[""]


def objects_by(
    data: Any, name: str, views: dict[str, tuple[Columns, tuple[float, float]]], kind: Kind, gaps: bool = True
) -> dict[str, Sample]:
    """The same object as several detectors read it."""
    if isinstance(data, Sample):
        return dict.fromkeys(views, data)
    paths = [data] if isinstance(data, str | os.PathLike) else data
    if isinstance(paths, list | tuple) and paths and all(isinstance(path, str | os.PathLike) for path in paths):
        return read_by([os.fspath(path) for path in paths], views, kind, gaps)
    engine = here()
    wanted = list(dict.fromkeys(each for columns, _ in views.values() for each in wanted_columns(columns)))
    table = open_object(engine, data, name, wanted)
    samples = {}
    for view, (columns, domain) in views.items():
        with naming(view):
            part = read_part(engine, table, columns, domain, kind, alone=True, gaps=gaps)
            sample = join_parts(engine, [part], columns, (source_of(name, [part], kind),), kind, domain, wanted)
        kept_parts = (part,) if view else ()
        samples[view] = replace(sample, pieces=(piece_of(part, {}),), parts=kept_parts)
    return samples


def kind_of(name: str) -> Kind:
    """Which rows a sample of this name holds."""
    return "malicious" if name.endswith("malicious") else "benign"


def columns_for(name: str, policy: Policy, calibrated: bool = False) -> Columns:
    """The columns of a sample: only benign rows to fit or to judge on have segments and times read.

    If calibrated scores are judged, they are read from the column of that name, or else from that of the scores.
    """
    data = policy.data
    data = data.model_copy(update={"calibrated": (data.calibrated or data.score) if calibrated else None})
    if name in ("fit", "holdout", "benign"):
        return data
    return data.model_copy(update={"segment": None, "timestamp": None})


def read_sample(name: str, paths: tuple[str, ...], policy: Policy, calibrated: bool = False) -> Sample:
    """One sample of a release, read as its name says."""
    return read(paths, columns_for(name, policy, calibrated), policy.calibration.domain, kind_of(name))


# --- from parts to a sample ---------------------------------------------------------------------------------


def piece_of(part: FilePart, digests: dict[str, str]) -> Piece:
    """What a file gave; several detectors read one file, and its bytes are digested once."""
    file = part.table.file
    if file.path in ("", "-"):
        return Piece(file, part.rows, part.taken)
    if file.path not in digests:
        digests[file.path] = digest(file)
    return Piece(file, part.rows, part.taken, digests[file.path])


def source_of(path: str, parts: Sequence[FilePart], kind: Kind) -> Source:
    rows, taken = sum(part.rows for part in parts), sum(part.taken for part in parts)
    return Source(path=path, rows=rows, benign=taken if kind == "benign" else rows - taken)


def join_parts(
    engine: Engine,
    parts: Sequence[FilePart],
    columns: Columns,
    sources: tuple[Source, ...],
    kind: Kind,
    domain: tuple[float, float],
    wanted: Sequence[str] = (),
) -> Sample:
    """One sample of all files; rows with one id are one observation, and the oldest of them counts.

    `wanted` are the columns that any detector reads: what another one reads is not looked at as if nobody did.
    """
    names = ", ".join(source.path for source in sources)
    n = sum(part.taken - part.unscored for part in parts)
    if n > MOST_ROWS:
        raise GateError(
            f"{names}: must hold at most {MOST_ROWS:,} rows, got {n:,}; look whether data.count holds counts"
        )
    if n < 2:
        unscored = sum(part.unscored for part in parts)
        gaps = f" and {plural(unscored, 'row')} without a score in column {columns.score!r}" if unscored else ""
        raise GateError(f"{names}: must hold at least 2 {kind} scores, got {n}{gaps}; give more {kind} rows")
    held = [part for part in parts if part.taken > part.unscored]
    others = _common(held, wanted)
    relation = _union(engine, parts, others)
    roles = {"score"} | {role for role, column in _named(columns).items() if column is not None}
    roles |= {"nr"} if all(part.table.numbered for part in held) else set()
    roles |= {"raw"} if columns.calibrated not in (None, columns.score) else set()
    ends = [(part.lowest, part.highest) for part in held if part.lowest is not None and part.highest is not None]
    times = [(part.oldest, part.newest) for part in held if part.oldest is not None and part.newest is not None]
    labels = [label for part in parts for label in part.labels]
    unread = dict.fromkeys(column.name for part in parts for column in part.unread)
    sample = Sample(
        engine=engine,
        relation=relation,
        roles=frozenset(roles),
        n=n,
        lowest=min(low for low, _ in ends) + 0.0,
        highest=max(high for _, high in ends) + 0.0,
        kind=kind,
        sources=sources,
        domain=domain,
        labels=count_labels(labels) if isinstance(columns.label, str) else None,
        seen=(min(old for old, _ in times), max(new for _, new in times)) if times else None,
        mixed=tuple(map(sum, zip(*(part.mixed for part in held), strict=True))),
        unread=tuple(unread),
        others=tuple(others),
        unscored=sum(part.unscored for part in parts),
    )
    return count_once(sample) if sample.has_ids else _with_whole_rows(sample, held)


def _named(columns: Columns) -> dict[str, str | None]:
    return {
        "id": columns.id,
        "grp": columns.group,
        "segment": columns.segment,
        "time": columns.timestamp,
        "weight": columns.count,
    }


def _common(parts: Sequence[FilePart], wanted: Sequence[str]) -> list[str]:
    """The columns that no role names and that every file has, as far as they are looked at."""
    if not all(part.table.numbered for part in parts):
        return []
    read = [{column.name for column in part.unread if column.kind != "other"} for part in parts]
    names = [column.name for column in parts[0].unread if column.name not in wanted]
    return [name for name in names if all(name in found for found in read)][:MOST_UNREAD]


def by_file(parts: Sequence[FilePart]) -> list[int]:
    """The places of the files with rows of any kind, in the order of their names, which gives them their numbers."""
    return sorted((i for i, part in enumerate(parts) if part.rows), key=lambda i: str(parts[i].table.file))


def _union(engine: Engine, parts: Sequence[FilePart], others: Sequence[str]) -> str:
    """All rows of all files, numbered by file and row; text is turned into values once."""
    selects = []
    for f, part in enumerate(parts[i] for i in by_file(parts)):
        if part.taken == part.unscored:
            continue
        read = {column.name: column for column in part.unread}
        listed = "".join(f", {_plain(engine, read[name], part.table)} AS u{i}" for i, name in enumerate(others))
        whole = f"SELECT {part.listed}{listed}, {f} AS f FROM {part.source}"
        if part.table.is_text and isinstance(engine, Duck):
            table = engine.name("rows")
            engine.do(f"CREATE TEMP TABLE {table} AS {whole}")
            whole = f"SELECT * FROM {table}"
        selects.append(whole)
    return " UNION ALL ".join(selects)


def _plain(engine: Engine, column: Column, table: Table) -> str:
    if column.kind == "json":
        return f"({column.sql} ->> '$')"
    written = f"CAST({column.sql} AS {engine.word})"
    return f"nullif({written}, '')" if table.is_text else written


def counted_again(sample: Sample) -> Sample:
    """The sample with what its relation holds counted anew, after rows were left out."""
    asked = [f"{sample.counted} AS n", "min(score) AS low", "max(score) AS high"]
    weight = " * weight" if sample.has_weights else ""
    for i, mixed in enumerate(mixing(sample.engine, sample.domain)):
        asked.append(f"CAST(sum({mixed}{weight}) AS BIGINT) AS mixed{i}")
    asked += ["min(time) AS oldest", "max(time) AS newest"] if sample.has_times else []
    asked += ["CAST(sum(copies - 1) AS BIGINT) AS again"] if "copies" in sample.roles else []
    found = sample.ask(f"SELECT {', '.join(asked)} FROM {sample.rows}")
    n = 0 if np.ma.is_masked(found["n"][0]) else int(found["n"][0])
    if n == 0:
        return replace(sample, n=0)
    return replace(
        sample,
        n=n,
        lowest=float(found["low"][0]) + 0.0,
        highest=float(found["high"][0]) + 0.0,
        seen=(int(found["oldest"][0]), int(found["newest"][0])) if sample.has_times else None,
        mixed=(int(found["mixed0"][0]), int(found["mixed1"][0])),
        repeated=int(found["again"][0]) if "copies" in sample.roles else sample.repeated,
    )


def require_unchanged(sample: Sample | None) -> None:
    """Refuse rows of a table elsewhere that changed while gate asked about them."""
    if sample is not None and not sample.is_numbered and counted_again(sample).mixed != sample.mixed:
        raise GateError(f"{sample.files}: must stay as it is while gate asks, got other rows; run again")


def count_once(sample: Sample) -> Sample:
    """One row for each id, the oldest: rows with one id are one observation, and must agree."""
    engine = sample.engine
    distinct = int(sample.ask(f"SELECT count(DISTINCT id) AS n FROM {sample.rows}")["n"][0])
    if distinct == sample.n:
        return replace(sample, repeated=0)
    if distinct < 2:
        raise GateError(f"{sample.files}: must hold at least 2 {sample.kind} ids, got 1; give every row its own id")
    for role, called in (("score", "score"), ("raw", "raw score"), ("grp", "group"), ("segment", "segment")):
        if role in sample.roles:
            _require_agreement(sample, role, called)
    columns = [role for role in ALL_ROLES if role in sample.roles] + [f"u{i}" for i in range(len(sample.others))]
    order = [*(["time"] if sample.has_times else []), *(["f", "nr"] if "nr" in sample.roles else ["score"])]
    columns += ["f", "nr"] if "nr" in sample.roles else []
    inner = (
        f"SELECT {', '.join(columns)}, row_number() OVER (PARTITION BY id ORDER BY {', '.join(order)}) AS place, "
        f"count(*) OVER (PARTITION BY id) AS copies FROM {sample.rows}"
    )
    relation = kept(engine, f"SELECT {', '.join(columns)}, copies FROM ({inner}) AS d WHERE place = 1")
    return counted_again(replace(sample, relation=relation, roles=sample.roles | {"copies"}))


def kept(engine: Engine, select: str) -> str:
    """A relation that is worked out once: a temporary table, where the engine is gate's own."""
    if not isinstance(engine, Duck):
        return select
    table = engine.name("rows")
    engine.do(f"CREATE TEMP TABLE {table} AS {select}")
    return f"SELECT * FROM {table}"


def _require_agreement(sample: Sample, role: str, called: str) -> None:
    word = sample.engine.word
    found = sample.ask(
        f"SELECT id, CAST(min({role}) AS {word}) AS one, CAST(max({role}) AS {word}) AS other "
        f"FROM {sample.rows} GROUP BY id HAVING min({role}) <> max({role}) ORDER BY id LIMIT 1"
    )
    if len(found["id"]):
        name, one, other = (str(found[key][0]) for key in ("id", "one", "other"))
        raise GateError(
            f"{sample.files}: must have one {called} for each id, got {show(name)} with {one} and {other}; "
            "give every row an id of its own, or each row once"
        )


# --- whole rows ---------------------------------------------------------------------------------------------


def _with_whole_rows(sample: Sample, parts: Sequence[FilePart]) -> Sample:
    """Where a column tells rows apart, rows that are equal in all columns are copies of one another."""
    apart = _telling_apart(sample, parts)
    if apart is None:
        return sample
    used, best = apart
    relation = f"SELECT *, {_whole(sample, used)} AS whole FROM {sample.rows}"
    whole = replace(sample, relation=relation, roles=sample.roles | {"whole"})
    found = sample.ask(f"SELECT count(DISTINCT whole) AS w, count(DISTINCT u{best}) AS d FROM {whole.rows}")
    different, distinct = int(found["w"][0]), int(found["d"][0])
    if distinct < NEARLY * different:
        return sample
    return replace(whole, copied=sample.n - different)


def _telling_apart(sample: Sample, parts: Sequence[FilePart]) -> tuple[list[int], int] | None:
    """The columns that make up a whole row, and the one that tells rows apart best; numbers of rows tell nothing."""
    if not sample.others or sample.has_weights or "nr" not in sample.roles:
        return None
    kinds = {column.name: column.kind for column in parts[0].unread}
    listed = range(len(sample.others))
    few = f"(SELECT * FROM {sample.rows} LIMIT {LOOKED_AT}) AS q"
    asked = [f"count(DISTINCT u{i}) AS d{i}, count(DISTINCT TRY_CAST(u{i} AS HUGEINT) - nr) AS r{i}" for i in listed]
    found = sample.ask(f"SELECT {', '.join(asked)} FROM {few}")
    numbers = ("integer", "text", "json")
    used = [i for i in listed if not (int(found[f"r{i}"][0]) == 1 and kinds[sample.others[i]] in numbers)]
    best = max(used, key=lambda i: int(found[f"d{i}"][0]), default=None)
    if best is None:
        return None
    different = int(sample.ask(f"SELECT count(DISTINCT {_whole(sample, used)}) AS w FROM {few}")["w"][0])
    return (used, best) if int(found[f"d{best}"][0]) >= NEARLY * different else None


def _whole(sample: Sample, used: Sequence[int]) -> str:
    """The SQL of what is the same in rows that are equal in all columns."""
    cells = [sample.written_score, *(f"coalesce(u{i}, '\\0')" for i in used)]
    cells += [f"CAST({role} AS VARCHAR)" for role in ("grp", "segment", "time") if role in sample.roles]
    return f"md5(concat_ws(chr(31), {', '.join(cells)}))"
