"""The roles of columns: score, label, id, group, segment, time, count. Every value is checked before any is used.

A file becomes one SELECT whose columns are named by their roles. What is wrong in it is said in one line, with the
file, the column and the first row; nothing is left out in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gate.errors import GateError
from gate.policy import Columns
from gate.rows.engine import Engine, number, text
from gate.rows.labels import FoundLabel, Kind, judge_labels
from gate.rows.ordered import mixing
from gate.rows.table import Column, Table, explain, plain_list
from gate.rows.wording import NUMBER, name_rows, one_line, shorten, show
from gate.stored import MOST_ROWS
from gate.words import plural

WHOLE = 2**53  # doubles from here on skip whole numbers
TOP = 1.7976931348623157e308
NUMBERS = ("integer", "float", "decimal")
TEXTS = ("text", "json")
UNITS = ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0), (1e20, 1e-3))  # a number's size tells its unit, from 1973 to 5138
OWN_DOMAIN = (
    "set calibration.domain to the detector's range (--set calibration.domain=[LOW,HIGH]), or remove these rows"
)
CALIBRATED = "give calibrated scores, or leave out --calibrated"


@dataclass(frozen=True)
class Reason:
    """One way in which rows can be wrong: the SQL that finds them and shows one, and the words for it."""

    bad: str
    got: str
    must: str
    instead: str


@dataclass(frozen=True)
class Role:
    """One role of the rows: the SQL of its value, which rows are wrong in any way, and the ways, the worst first."""

    name: str
    sql: str
    bad: str = ""
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class FilePart:
    """What one file gives: its rows of one kind, and what was counted in it.

    listed, source    the SQL of its roles, and of where the rows of the kind stand
    own, scored       the SQL of whether a row is of the kind, and of whether it has a score
    roles             the SQL of each role
    rows              all rows, whatever their kind; `taken` are those of the kind, with a score or without
    unscored          rows of the kind that have no score, where such may be left out
    lowest, highest   of the scores; `oldest`, `newest` of the times
    mixed             sums over the scores, as `mixing` gives them
    unread            the columns that have no role
    """

    table: Table
    listed: str
    source: str
    own: str
    scored: str
    roles: Mapping[str, str]
    rows: int
    taken: int
    unscored: int
    lowest: float | None
    highest: float | None
    oldest: int | None
    newest: int | None
    mixed: tuple[int, ...]
    labels: tuple[tuple[FoundLabel, bool], ...]
    unread: tuple[Column, ...]


def wanted_columns(columns: Columns) -> list[str]:
    """The columns that are read, the scores first."""
    label = columns.label if isinstance(columns.label, str) else None
    others = (columns.calibrated, label, columns.segment, columns.group, columns.id, columns.timestamp, columns.count)
    return list(dict.fromkeys([columns.score, *(name for name in others if name is not None)]))


def read_part(
    engine: Engine,
    table: Table,
    columns: Columns,
    domain: tuple[float, float],
    kind: Kind,
    alone: bool,
    gaps: bool = False,
) -> FilePart:
    """The rows of one kind in one file; with `gaps`, rows without a score are left out and counted."""
    if columns.score in table.file.keys:
        raise GateError(
            f"{table.file}: must hold a score of its own in every row, got {columns.score!r} as a key of its path; "
            "name another column with data.score, or rename the folder"
        )
    reading = RoleFinder(engine, table)
    weight = None if columns.count is None else reading.weight(columns.count)
    if weight is not None:
        reading.require(weight, "TRUE")
    taken = "TRUE"
    labels: tuple[tuple[FoundLabel, bool], ...] = ()
    if isinstance(columns.label, str):
        taken, labels = reading.take(columns.label, columns.benign_label, kind, alone, weight)
    roles = reading.scores(columns, domain)
    scored = f"{reading.present(columns.score)}" if gaps else "TRUE"
    roles += [reading.names(role, name) for role in ("id", "group", "segment") if (name := getattr(columns, role))]
    if columns.timestamp is not None:
        roles.append(reading.times(columns.timestamp, taken))
    roles += [] if weight is None else [weight]
    found = reading.facts(roles, taken, scored, domain)
    listed = [f"{role.sql} AS {role.name}" for role in roles] + (["nr"] if table.numbered else [])
    read = {*wanted_columns(columns)}
    return FilePart(
        table=table,
        listed=", ".join(listed),
        source=f"{table.rows} WHERE {taken} AND {scored}{_some(weight)}",
        own=taken,
        scored=scored,
        roles={role.name: role.sql for role in roles},
        rows=found["rows"],
        taken=found["taken"],
        unscored=found["taken"] - found["scored"],
        lowest=found["lowest"],
        highest=found["highest"],
        oldest=found.get("oldest"),
        newest=found.get("newest"),
        mixed=(found["mixed0"], found["mixed1"]),
        labels=labels,
        unread=tuple(column for column in table.columns if column.name not in read),
    )


def _some(weight: Role | None) -> str:
    """The SQL that leaves out rows that stand for none."""
    return "" if weight is None else f" AND {weight.sql} > 0"


@dataclass
class RoleFinder:
    """One file while its roles are found; the SQL of its values, whatever their types."""

    engine: Engine
    table: Table
    columns: dict[str, Column] = field(init=False)

    def __post_init__(self) -> None:
        self.columns = {column.name: column for column in self.table.columns}

    def ask(self, sql: str) -> dict[str, Any]:
        with explain(self.table.file):
            return self.engine.ask(sql)

    def where(self, name: str) -> str:
        return f"{self.table.file}: column {name!r}"

    # --- values as text and as numbers ----------------------------------------------------------------------

    def cast(self, sql: str, kind: str) -> str:
        return f"CAST({sql} AS {kind})"

    def written(self, column: Column) -> str:
        """A value as it is written, null where there is none: text files write a missing value as an empty one."""
        if column.kind == "json":
            return f"({column.sql} ->> '$')"
        if column.kind == "text":
            return f"nullif({column.sql}, '')" if self.table.is_text else column.sql
        return self.cast(column.sql, self.engine.word)

    def present(self, name: str) -> str:
        """Whether a row has a value; float columns often hold NaN for a missing one."""
        column = self.columns[name]
        if column.kind == "float":
            least, most = (number(self.engine, end) for end in (-np.inf, np.inf))
            return f"coalesce({column.sql} BETWEEN {least} AND {most}, FALSE)"
        return f"{self.written(column)} IS NOT NULL"

    def double(self, column: Column) -> str:
        """A value as a double, null where it is none; decimals go by their digits, which a direct cast may miss."""
        if column.kind in TEXTS:
            # JSON keeps the quotes of a text here, so that "0.5" is no number.
            sql = self.cast(column.sql, self.engine.word)
            return f"CASE WHEN regexp_full_match({sql}, {text(NUMBER)}) THEN TRY_CAST({sql} AS DOUBLE) END"
        sql = self.written(column) if column.kind == "decimal" else column.sql
        return self.cast(sql, self.engine.double)

    def shown(self, column: Column) -> str:
        return f"'''' || {self.written(column)} || ''''" if column.kind in TEXTS else self.written(column)

    def numbers(self, name: str, must: str, instead: str) -> tuple[str, tuple[Reason, ...]]:
        """A column of numbers: the SQL of its value, and the reasons why a row has none."""
        column = self.columns[name]
        if column.kind == "text" and not self.table.is_text:
            quoted = Reason("TRUE", self.shown(column), must, "remove these rows or write them as numbers")
            return self.cast("NULL", self.engine.double), (quoted,)
        if column.kind not in (*NUMBERS, *TEXTS, "null"):
            raise GateError(f"{must}, got {column.type}; {instead}")
        value = self.double(column)
        if column.kind not in TEXTS:
            return value, ()
        wrong = f"{self.written(column)} IS NOT NULL AND ({value}) IS NULL"
        return value, (Reason(wrong, self.shown(column), must, "remove these rows or write them as numbers"),)

    # --- roles ----------------------------------------------------------------------------------------------

    def weight(self, name: str) -> Role:
        """How many rows each row stands for."""
        must = f"{self.where(name)} must hold whole numbers of rows"
        value, reasons = self.numbers(name, must, "write what COUNT(*) gives")
        bad = f"NOT coalesce({value} BETWEEN 0 AND {MOST_ROWS} AND {value} = floor({value}), FALSE)"
        rest = Reason(bad, self.shown(self.columns[name]), must, "write what COUNT(*) gives")
        return Role("weight", self.cast(value, "BIGINT"), bad, (*reasons, rest))

    def scores(self, columns: Columns, domain: tuple[float, float]) -> list[Role]:
        """Raw scores in the domain; calibrated ones, where they are judged, are whatever was served."""
        if columns.calibrated == columns.score:
            return [self.score("score", columns.score, (0.0, 1.0), CALIBRATED)]
        if columns.calibrated is None:
            return [self.score("score", columns.score, domain, OWN_DOMAIN)]
        must = f"{self.where(columns.calibrated)} must hold numbers"
        value, reasons = self.numbers(columns.calibrated, must, "write the scores as floats")
        least, most = (number(self.engine, end) for end in (-np.inf, np.inf))
        # A row that was served nothing, or no number, reaches nothing.
        served = f"CASE WHEN {value} BETWEEN {least} AND {most} THEN {value} ELSE {least} END"
        bad = " OR ".join(f"({reason.bad})" for reason in reasons)
        return [self.score("raw", columns.score, domain, OWN_DOMAIN), Role("score", served, bad, reasons)]

    def score(self, role: str, name: str, domain: tuple[float, float], hint: str) -> Role:
        where = self.where(name)
        value, reasons = self.numbers(name, f"{where} must hold numbers", "write the scores as floats")
        low, high = (number(self.engine, min(max(end, -TOP), TOP)) for end in domain)
        none = Reason(
            f"{self.written(self.columns[name])} IS NULL",
            "NULL",
            f"{where} must hold a score in every row",
            "remove or score these rows",
        )
        least, most = (number(self.engine, end) for end in (-np.inf, np.inf))
        nan = Reason(
            f"({value}) > {most} OR NOT ({value}) BETWEEN {least} AND {most}",
            "'NaN'",
            f"{where} must hold numbers",
            "remove or score these rows",
        )
        bad = f"NOT coalesce(({value}) BETWEEN {low} AND {high}, FALSE)"
        inside = f"{where} must lie in the domain [{shorten(domain[0])}, {shorten(domain[1])}]"
        return Role(role, value, bad, (none, *reasons, nan, Reason(bad, value, inside, hint)))

    def names(self, role: str, name: str) -> Role:
        """Ids, groups and segments: one text for one name, whatever the type in which a file writes it."""
        column, where = self.columns[name], self.where(name)
        must = f"{where} must name every row"
        if column.kind == "other":
            raise GateError(f"{where} must hold words or numbers, got {column.type}; write them as text")
        sql = self.name_of(column)
        large = Reason("FALSE", "NULL", must, "")
        if column.kind == "float":
            large = Reason(
                f"abs({column.sql}) >= {number(self.engine, float(WHOLE))}",
                self.written(column),
                f"{where} must hold names that can be told apart",
                "write whole numbers from 2^53 on as integers or text",
            )
        bad = f"({sql}) IS NULL OR {large.bad}"
        none = Reason(f"({sql}) IS NULL", "NULL", must, "name or remove them")
        return Role("grp" if role == "group" else role, sql, bad, (none, large))

    def name_of(self, column: Column) -> str:
        """`5`, 5.0 and a decimal 5.00 are one name; text is as it is written, in one Unicode form."""
        if column.kind == "float":
            value, whole = column.sql, self.cast(self.cast(column.sql, "BIGINT"), self.engine.word)
            finite = f"{value} BETWEEN {number(self.engine, -TOP)} AND {number(self.engine, TOP)}"
            is_whole = f"abs({value}) < {number(self.engine, float(WHOLE))} AND {value} = floor({value})"
            return f"CASE WHEN NOT ({finite}) THEN NULL WHEN {is_whole} THEN {whole} ELSE {self.written(column)} END"
        if column.kind == "decimal":
            digits = self.written(column)
            return f"CASE WHEN {digits} LIKE '%.%' THEN rtrim(rtrim({digits}, '0'), '.') ELSE {digits} END"
        if column.kind == "json":
            number_ = self.double(column)
            as_float = Column(column.name, f"({number_})", "float", "")
            whole = f"json_type({column.sql}) IN ('DOUBLE')"
            written = self.engine.one_form(self.written(column))
            plain = f"CASE WHEN json_type({column.sql}) NOT IN ('OBJECT', 'ARRAY') THEN {written} END"
            return f"CASE WHEN {whole} THEN {self.name_of(as_float)} ELSE {plain} END"
        if column.kind == "text" and self.table.is_text:  # other tools write whole numbers as 5.0
            written = self.written(column)
            whole = f"regexp_full_match({written}, '-?(0|[1-9][0-9]*)[.]0+')"
            return f"CASE WHEN {whole} THEN split_part({written}, '.', 1) ELSE {self.engine.one_form(written)} END"
        if column.kind == "text":
            return self.engine.one_form(self.written(column))
        return self.written(column)

    def times(self, name: str, taken: str) -> Role:
        """When a row was seen, in microseconds since 1970; a time without a zone is UTC."""
        column, where = self.columns[name], self.where(name)
        must = f"{where} must hold times such as 2026-11-01T12:00:00Z or seconds since 1970"
        if column.kind in ("boolean", "other"):
            raise GateError(f"{must}, got {column.type}; write them so")
        if column.kind in ("time", "date"):
            sql = self.engine.microseconds(column.sql)
        elif column.kind in NUMBERS:
            sql = self.moments(self.double(column), taken, must)
        else:
            written, value = self.written(column), self.double(column)
            as_text = self.engine.microseconds(f"TRY_CAST({written} AS TIMESTAMPTZ)")
            sql = f"CASE WHEN ({value}) IS NULL THEN {as_text} ELSE {self.moments(value, taken, must)} END"
        none = Reason(f"{self.written(column)} IS NULL", "NULL", must, "date or remove these rows")
        rest = Reason(f"({sql}) IS NULL", self.shown(column), must, "date or remove these rows")
        return Role("time", sql, f"({sql}) IS NULL", (none, rest))

    def moments(self, value: str, taken: str, must: str) -> str:
        """Numbers since 1970: the largest of them tells whether they are seconds or smaller units."""
        found = self.ask(f"SELECT max(abs({value})) AS most FROM {self.table.rows} WHERE {taken} AND {value} = {value}")
        most = 0.0 if np.ma.is_masked(found["most"][0]) else float(found["most"][0])
        scale = next((scale for limit, scale in UNITS if most < limit), None)
        if scale is None:
            raise GateError(f"{must}, got a number as large as {most:g}; write them so")
        finite = f"{value} BETWEEN {number(self.engine, -TOP)} AND {number(self.engine, TOP)}"
        return f"CASE WHEN {finite} THEN CAST(floor({value} * {number(self.engine, scale)}) AS BIGINT) END"

    # --- labels ---------------------------------------------------------------------------------------------

    def take(
        self, name: str, benign_label: tuple[str, ...], kind: Kind, alone: bool, weight: Role | None
    ) -> tuple[str, tuple[tuple[FoundLabel, bool], ...]]:
        """The SQL of the rows of one kind, and every label with whether it is benign."""
        column, where = self.columns[name], self.where(name)
        if column.kind not in (*NUMBERS, *TEXTS, "boolean", "null"):
            raise GateError(
                f"{where} must hold words, numbers or booleans, got {column.type}; write them as text or numbers"
            )
        label, type_ = self.written(column), self.label_kind(column)
        found = self.labels(label, weight, type_ in NUMBERS)
        for each in found:
            if not each.text or (column.kind == "float" and each.text.lower() == "nan"):
                place = name_rows(each.first, each.rows)
                raise GateError(f"{where} must label every row, got none in {place}; label or remove these rows")
        untyped = self.table.is_text and name not in self.table.file.keys
        judged = judge_labels(found, type_, untyped, benign_label, where)
        benign = [each.text for each, is_benign in zip(found, judged, strict=True) if is_benign]
        if found and alone and (not benign if kind == "benign" else len(benign) == len(found)):
            shown = ", ".join(show(each.text) for each in found[:5]) + (", ..." if len(found) > 5 else "")
            marks = " or ".join(map(repr, benign_label))
            rows = plural(sum(each.rows for each in found), "row")
            raise GateError(
                f"{where} must mark {kind} rows with {'' if kind == 'benign' else 'something else than '}{marks}, "
                f"got {shown} in {rows}; set data.benign_label"
            )
        chosen = f"{label} IN ({', '.join(map(text, benign))})" if benign else "FALSE"
        return (chosen if kind == "benign" else f"NOT ({chosen})"), tuple(zip(found, judged, strict=True))

    def label_kind(self, column: Column) -> str:
        """What labels are; JSON says so value by value."""
        if column.kind != "json":
            return column.kind
        found = self.ask(f"SELECT DISTINCT json_type({column.sql}) AS t FROM {self.table.rows}")["t"]
        types = {each for each in plain_list(found) if each not in (None, "NULL")}
        if types & {"OBJECT", "ARRAY"}:
            must = f"{self.where(column.name)} must hold words, numbers or booleans"
            raise GateError(f"{must}, got an {min(types & {'OBJECT', 'ARRAY'}).lower()}; name a field inside it")
        kinds = {"text" if each == "VARCHAR" else "boolean" if each == "BOOLEAN" else "decimal" for each in types}
        return kinds.pop() if len(kinds) == 1 else "text"

    def labels(self, label: str, weight: Role | None, is_number: bool) -> list[FoundLabel]:
        """Every distinct label with its rows, in the order in which they first appear."""
        counted = "count(*)" if weight is None else f"CAST(sum({weight.sql}) AS BIGINT)"
        first = "min(nr)" if self.table.numbered else "0"
        found = self.ask(
            f"SELECT {label} AS label, count(*) AS n, {counted} AS w, {first} AS f FROM {self.table.rows} GROUP BY 1"
        )
        texts = np.ma.asarray(found["label"]).tolist()  # None where there is no label
        rows = zip(texts, *(np.asarray(found[key]).tolist() for key in ("n", "w", "f")), strict=True)
        numbered = self.table.numbered
        listed = [FoundLabel(word or "", n, first if numbered else None, w, is_number) for word, n, w, first in rows]
        return sorted(listed, key=lambda each: (each.first or 0, each.text))

    # --- what holds for all rows ----------------------------------------------------------------------------

    def facts(self, roles: list[Role], taken: str, scored: str, domain: tuple[float, float]) -> dict[str, Any]:
        """One question for all that must be known of a file; a row that breaks a rule is refused."""
        sql = {role.name: role.sql for role in roles}
        both, weight = f"{taken} AND {scored}", sql.get("weight")
        weighted = next((role for role in roles if role.name == "weight"), None)
        rows = f"CAST(coalesce(sum(CASE WHEN {{}} THEN {weight} END), 0) AS BIGINT)"
        counted = rows if weight else "count(CASE WHEN {} THEN 1 END)"
        asked = {"rows": counted.format("TRUE"), "taken": counted.format(taken), "scored": counted.format(both)}
        ends = [
            ("lowest", "min", "score"),
            ("highest", "max", "score"),
            ("oldest", "min", "time"),
            ("newest", "max", "time"),
        ]
        some = both + _some(weighted)
        asked |= {key: f"{end}(CASE WHEN {some} THEN {sql[role]} END)" for key, end, role in ends if role in sql}
        for i, mixed in enumerate(mixing(self.engine, domain, sql["score"])):
            each = f"{mixed} * {weight}" if weight else mixed
            asked[f"mixed{i}"] = f"CAST(coalesce(sum(CASE WHEN {both} THEN {each} END), 0) AS BIGINT)"
        # Rows without a score are counted with others by their names and times, so these must be sound.
        within = {role.name: both if role.name in ("score", "raw", "weight") else taken for role in roles}
        for role in roles:
            if role.bad:
                asked[f"bad_{role.name}"] = f"count(CASE WHEN {within[role.name]} AND ({role.bad}) THEN 1 END)"
        answer = self.ask(f"SELECT {', '.join(f'{s} AS {key}' for key, s in asked.items())} FROM {self.table.rows}")
        found: dict[str, Any] = {
            key: None if np.ma.is_masked(column[0]) else column[0].item() for key, column in answer.items()
        }
        for role in roles:
            if found.get(f"bad_{role.name}"):
                self.require(role, within[role.name])
        if found["rows"] > MOST_ROWS:
            raise GateError(
                f"{self.table.file}: must hold at most {MOST_ROWS:,} rows, got {found['rows']:,}; "
                "look whether data.count holds counts"
            )
        return found

    def require(self, role: Role, within: str) -> None:
        """Raise with the first row that is wrong, by the first reason that any row is wrong for."""
        nr = "nr" if self.table.numbered else "0"
        for reason in role.reasons:
            where = f"{within} AND ({reason.bad})"
            rows = self.ask(f"SELECT count(*) AS n FROM {self.table.rows} WHERE {where}")["n"][0]
            if rows:
                found = self.ask(
                    f"SELECT CAST({reason.got} AS {self.engine.word}) AS got, {nr} AS nr FROM {self.table.rows} "
                    f"WHERE {where} ORDER BY 2, 1 LIMIT 1"
                )
                got = "none" if np.ma.is_masked(found["got"][0]) else one_line(str(found["got"][0]), 40)
                place = name_rows(int(found["nr"][0]) if self.table.numbered else None, int(rows))
                raise GateError(f"{reason.must}, got {got} in {place}; {reason.instead}")
