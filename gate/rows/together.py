"""The rows that several detectors have scored: each one's sample, and what all say of every row. It judges nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gate.contract import Floats, Ints
from gate.errors import GateError
from gate.policy import Columns, Policy
from gate.rows.engine import Engine, number
from gate.rows.labels import Kind
from gate.rows.reading import by_file, columns_for, counted_again, kept, kind_of, objects_by, read_by
from gate.rows.sample import Sample
from gate.rows.split import split
from gate.rows.wording import show
from gate.sources import Split

Views = dict[str, tuple[Columns, tuple[float, float]]]

NOT_SCORED = 2  # beside 1 for a row that a detector flags, and 0 for one that it does not


class Said(NamedTuple):
    """What detectors say of the rows, from some score of each on.

    states   for each combination of answers a line, with 0, 1 or NOT_SCORED for each detector
    rows     the rows of each combination
    groups   the rows of each group, and how many of them any detector flags; None where rows come in none
    """

    states: NDArray[np.uint8]
    rows: Ints
    groups: tuple[Floats, Floats] | None = None


@dataclass(frozen=True)
class Wide:
    """All rows in one relation, each once: `s0`, `s1` ... are the scores of the detectors, NULL where there is none.

    roles   further columns: id, or else nr with f; grp, segment, time
    marks   for each detector the number of its marks: `b0` says whether a row is of the kind for it, `o0` whether it is
            of the other one; a row with neither is not in its files
    """

    engine: Engine
    relation: str
    kind: Kind
    roles: frozenset[str]
    marks: Mapping[str, int]

    @property
    def rows(self) -> str:
        return f"({self.relation}) AS w"

    @property
    def of_any(self) -> str:
        return self._any("b")

    @property
    def counted(self) -> str:
        """Which rows are counted: those that are malicious for any detector, or benign for every one that has them."""
        return f"{self.of_any} AND NOT {self._any('o')}" if self.kind == "benign" else self.of_any

    def _any(self, mark: str) -> str:
        return "(" + " OR ".join(f"{mark}{mark_} = 1" for mark_ in sorted({*self.marks.values()})) + ")"

    def count(self, condition: str) -> int:
        return int(self.engine.ask(f"SELECT count(*) AS n FROM {self.rows} WHERE {condition}")["n"][0])

    @property
    def apart(self) -> int:
        """The rows that are benign for some detectors and not for all."""
        return self.count(f"{self.of_any} AND {self._any('o')}") if self.kind == "benign" else 0

    def unscored(self, name: str) -> int:
        """The rows of the kind that a detector has not scored."""
        return self.count(f"b{self.marks[name]} = 1 AND {self._score(name)} IS NULL")

    def _score(self, name: str) -> str:
        return f"s{[*self.marks].index(name)}"

    def said(self, names: Sequence[str], thresholds: Sequence[float | None]) -> Said:
        """What each of some detectors says of each counted row, from its threshold on."""
        states, hits = [], ["FALSE"]
        for name, threshold in zip(names, thresholds, strict=True):
            if name not in self.marks:
                states.append(f"'{NOT_SCORED}'")
                continue
            score, hit = self._score(name), "FALSE"
            if threshold is not None:
                hit = f"coalesce({self._score(name)} >= {number(self.engine, threshold)}, FALSE)"
            missing = f"{score} IS NULL AND o{self.marks[name]} = 0"
            states.append(f"CASE WHEN {hit} THEN '1' WHEN {missing} THEN '{NOT_SCORED}' ELSE '0' END")
            hits.append(hit)
        found = self.engine.ask(
            f"SELECT {' || '.join(states)} AS states, count(*) AS n FROM {self.rows} WHERE {self.counted} GROUP BY 1"
        )
        texts = "".join(map(str, found["states"].tolist())).encode()
        table = np.frombuffer(texts, dtype=np.uint8).reshape(-1, len(names)) - np.uint8(ord("0"))
        groups = self._groups(" OR ".join(hits)) if "grp" in self.roles else None
        return Said(table, np.asarray(found["n"], dtype=np.int64), groups)

    def _groups(self, hit: str) -> tuple[Floats, Floats]:
        inner = (
            f"SELECT count(*) AS m, count(CASE WHEN {hit} THEN 1 END) AS k FROM {self.rows} "
            f"WHERE {self.counted} GROUP BY grp"
        )
        found = self.engine.ask(f"SELECT m, k, count(*) AS c FROM ({inner}) AS g GROUP BY 1, 2 ORDER BY 1, 2")
        sizes, flagged = (np.repeat(np.asarray(found[key], dtype=np.float64), found["c"]) for key in ("m", "k"))
        return sizes, flagged


@dataclass(frozen=True)
class Several:
    """One sample as several detectors read it: the rows of each, and all of them if they can be joined."""

    samples: Mapping[str, Sample] = field(default_factory=dict)
    wide: Wide | None = None

    def split(self, fraction: float, seed: int) -> tuple[Several, Several, Split]:
        """Divide the rows once for all detectors: a row that one of them is fitted on is held out for none."""
        assert self.wide is not None  # one sample is in files that all detectors share
        wide, first = self.wide, next(iter(self.samples.values()))
        score = number(wide.engine, 0.0)
        relation, roles = f"SELECT *, {score} AS score FROM {wide.rows} WHERE {wide.of_any}", wide.roles | {"score"}
        whole = next((sample for sample in self.samples.values() if "whole" in sample.roles), None)
        if whole is not None:  # rows that are equal in all columns stay together
            relation = (
                f"SELECT a.*, coalesce(b.whole, a.f || ':' || a.nr) AS whole FROM ({relation}) AS a "
                f"LEFT JOIN (SELECT f, nr, whole FROM {whole.rows}) AS b ON a.f = b.f AND a.nr = b.nr"
            )
            roles |= {"whole"}
        rows = Sample(wide.engine, relation, roles, 0, 0.0, 0.0, wide.kind, first.sources)
        fit, holdout, how = split(counted_again(rows), fraction, seed)
        fitted = self._side(fit)
        held_out = self._side(holdout)
        # Rows are counted here and ids there: what is lacking on one side is what is left of both.
        left = {name: sample.unscored - fitted.samples[name].unscored for name, sample in self.samples.items()}
        samples = {name: replace(sample, unscored=left[name]) for name, sample in held_out.samples.items()}
        return fitted, replace(held_out, samples=samples), how

    def _side(self, side: Sample) -> Several:
        assert self.wide is not None
        wide = replace(self.wide, relation=side.relation)
        key = "id" if "id" in wide.roles else "f, nr"
        samples = {}
        for name, sample in self.samples.items():
            inside = f"SELECT q.* FROM {sample.rows} WHERE ({key}) IN (SELECT {key} FROM {side.rows})"
            found = replace(sample, relation=kept(wide.engine, inside), pool=sample, copied=None)
            samples[name] = replace(counted_again(found), unscored=wide.unscored(name))
            if samples[name].n < 2:
                raise GateError(
                    f"{name}: --split: must leave at least 2 {sample.kind} rows on each side, got {samples[name].n}; "
                    "choose another fraction or score more rows"
                )
        return Several(samples, wide)


# --- reading ------------------------------------------------------------------------------------------------


def views_of(sample: str, names: Iterable[str], policies: Mapping[str, Policy]) -> Views:
    """How each of some detectors reads a sample: its columns, and the domain of its scores."""
    return {name: (columns_for(sample, policies[name]), policies[name].calibration.domain) for name in names}


def read_together(sample: str, paths: Mapping[str, tuple[str, ...]], policies: Mapping[str, Policy]) -> Several:
    """Read one sample for every detector that has files of it; files that several detectors share are opened once."""
    shared: dict[tuple[str, ...], list[str]] = {}
    for name, files in paths.items():
        if files:
            shared.setdefault(files, []).append(name)
    return join([read_by(files, views_of(sample, names, policies), kind_of(sample)) for files, names in shared.items()])


def given_together(sample: str, data: Any, policies: Mapping[str, Policy]) -> Several:
    """The same of what Python code gives: a table or files for all detectors, or a mapping with each one's own."""
    if data is None:
        return Several()
    own = data if isinstance(data, Mapping) and data.keys() <= policies.keys() else None
    parts = [([name], value) for name, value in own.items()] if own else [([*policies], data)]
    return join(
        [objects_by(value, sample, views_of(sample, names, policies), kind_of(sample)) for names, value in parts]
    )


# --- all rows in one relation ---------------------------------------------------------------------------------


def join(panels: Sequence[Mapping[str, Sample]]) -> Several:
    """The samples of all detectors; those of one panel read the same files. Only rows with ids join several panels."""
    samples = {name: sample for panel in panels for name, sample in panel.items()}
    if not panels or (len(panels) > 1 and not all(sample.has_ids for sample in samples.values())):
        return Several(samples)
    wides: list[Wide] = []
    for panel in panels:
        marks = max((mark for wide in wides for mark in wide.marks.values()), default=-1) + 1
        wides.append(_widen(panel, sum(len(wide.marks) for wide in wides), marks))
    if len(wides) == 1:
        return Several(samples, wides[0])
    for i, wide in enumerate(wides[1:], 1):
        _require_common(wides[:i], wide, *(next(iter(panels[place].values())) for place in (0, i)))
    return Several(samples, _join(wides))


def _widen(panel: Mapping[str, Sample], first: int, first_mark: int) -> Wide:
    """All rows of the same files; detectors with the same labels share their marks."""
    one = next(iter(panel.values()))
    engine, ways = one.engine, [tuple(part.own for part in sample.parts) for sample in panel.values()]
    distinct = [*dict.fromkeys(ways)]
    named = [role for role in ("grp", "segment", "time") if role in one.roles]
    is_text, selects = False, []
    for f, place in enumerate(by_file(one.parts)):
        part = one.parts[place]
        of_any = " OR ".join(f"({way[place]})" for way in distinct)
        columns = [f"{part.roles['id']} AS id"] if one.has_ids else []
        columns += [f"CASE WHEN {of_any} THEN {part.roles[role]} END AS {role}" for role in named]
        columns += ["nr", f"{f} AS f"] if part.table.numbered and not one.has_ids else []
        for mark, way in enumerate(distinct, first_mark):
            columns += [
                f"CASE WHEN {way[place]} THEN {yes} ELSE {1 - yes} END AS {key}{mark}"
                for key, yes in (("b", 1), ("o", 0))
            ]
        for i, own in enumerate((sample.parts[place] for sample in panel.values()), first):
            columns.append(f"CASE WHEN ({own.own}) AND ({own.scored}) THEN {own.roles['score']} END AS s{i}")
        selects.append(f"SELECT {', '.join(columns)} FROM {part.table.rows}")
        is_text |= part.table.is_text or any(column.kind == "json" for column in part.table.columns)
    relation = " UNION ALL ".join(selects)
    marks = {name: first_mark + distinct.index(way) for name, way in zip(panel, ways, strict=True)}
    wide = Wide(engine, kept(engine, relation) if is_text else relation, one.kind, frozenset(named), marks)
    if not one.has_ids:
        return replace(wide, roles=wide.roles | {"nr"})
    return _once(replace(wide, roles=wide.roles | {"id"}), first)


def _once(wide: Wide, first: int) -> Wide:
    """Each id once: what is true of any of its rows is true of it, and its scores are alike."""
    wide = replace(wide, relation=f"SELECT * FROM {wide.rows} WHERE id IS NOT NULL")
    found = wide.engine.ask(f"SELECT count(*) AS n, count(DISTINCT id) AS d FROM {wide.rows}")
    if int(found["n"][0]) == int(found["d"][0]):
        return wide
    highest = [f"{key}{mark}" for mark in {*wide.marks.values()} for key in "bo"]
    highest += [f"s{i}" for i in range(first, first + len(wide.marks))]
    columns = ["id", *(f"max({key}) AS {key}" for key in highest)]
    columns += [f"min({role}) AS {role}" for role in sorted(wide.roles - {"id"})]
    return replace(wide, relation=kept(wide.engine, f"SELECT {', '.join(columns)} FROM {wide.rows} GROUP BY id"))


def _require_common(known: Sequence[Wide], wide: Wide, one: Sample, other: Sample) -> None:
    ids = " UNION ALL ".join(f"SELECT id FROM {each.rows}" for each in known)
    if wide.count(f"id IN ({ids})"):
        return
    shown = [str(each.engine.ask(f"SELECT min(id) AS id FROM {each.rows}")["id"][0]) for each in (wide, known[0])]
    raise GateError(
        f"{other.files}: must have scored the rows of {one.files} too, got no id in common with them, such as "
        f"{show(shown[0])} and {show(shown[1])}; name the column of ids in data.id"
    )


def _join(wides: Sequence[Wide]) -> Wide:
    """The rows of all panels by their ids; a row that a panel lacks has none of its marks."""
    sides, columns = [], ["id"]
    grouped = all("grp" in wide.roles for wide in wides)
    if grouped:
        columns.append(f"coalesce({', '.join(f'g{i}' for i in range(len(wides)))}) AS grp")
    marks: dict[str, int] = {}
    for i, wide in enumerate(wides):
        own = [f"{key}{mark}" for mark in sorted({*wide.marks.values()}) for key in "bo"]
        scores = [f"s{place}" for place in range(len(marks), len(marks) + len(wide.marks))]
        group = f"grp AS g{i}, " if grouped else ""
        sides.append(f"(SELECT id, {group}{', '.join([*own, *scores])} FROM {wide.rows}) AS p{i}")
        columns += [f"coalesce({key}, 0) AS {key}" for key in own] + scores
        marks |= wide.marks
    joined = sides[0] + "".join(f" FULL JOIN {side} USING (id)" for side in sides[1:])
    relation = kept(wides[0].engine, f"SELECT {', '.join(columns)} FROM {joined}")
    return Wide(wides[0].engine, relation, wides[0].kind, frozenset({"id", "grp"} if grouped else {"id"}), marks)
