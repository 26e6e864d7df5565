"""Looks at score files: what each column is for, and what the scores are like. It judges nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from gate.checks.unread import Suspect, find_suspect
from gate.errors import GateError
from gate.policy import Columns
from gate.rows.engine import here
from gate.rows.labels import Kind
from gate.rows.ordered import Ordered
from gate.rows.reading import join_parts, source_of
from gate.rows.roles import FilePart, read_part
from gate.rows.sample import Sample
from gate.rows.sources import find_each, refuse_copies
from gate.rows.split import split
from gate.rows.wording import show
from gate.starter.columns import MOST_LABELS, PartColumns, Seen, look_at, plain
from gate.words import plural

ANY = (-math.inf, math.inf)
LARGEST = 1e38  # a policy holds no domain much wider
HALF = 0.5  # the share of one sample that is fitted on

BENIGN_WORDS = {"0", "0.0", "false", "no", "benign", "clean", "good", "normal", "negative", "neg", "ham", "legit"}
BENIGN_WORDS |= {"legitimate", "safe", "ok", "allow", "allowed", "human", "genuine", "non-malicious", "not malicious"}
MALICIOUS_WORDS = {
    "malicious",
    "attack",
    "malware",
    "phishing",
    "fraud",
    "spam",
    "bad",
    "positive",
    "anomaly",
    "unsafe",
}
LABELS = {"label", "labels", "y", "y_true", "target", "targets", "class", "classes", "ground_truth", "truth", "gt"}
LABELS |= {f"{prefix}{word}" for prefix in ("", "is_") for word in ("malicious", "benign", "attack", "bad", "positive")}
LABELS |= {f"{prefix}{word}" for prefix in ("", "is_") for word in ("malware", "phishing", "spam", "fraud", "anomaly")}
_MALICIOUS_NAME = re.compile(r"malicious|attack|malware|phish|fraud|spam|positive|anomal|threat|unsafe")
_FIT_NAME = re.compile(r"(?<![a-z])(fit|train|training|calib\w*)(?![a-z])")
_HOLDOUT_NAME = re.compile(r"(?<![a-z])(hold-?out|held\w*|test|eval\w*|valid\w*|dev)(?![a-z])")
_ID_NAME = re.compile(r"(?:^|_)(id|uuid|guid|key|sha256|sha1|md5|hash|index|rowid|url|filename|request|event)$")
_SCORE_NAME = re.compile(r"score|prob|logit|pred|risk|confidence|likelihood|margin|distance|anomaly|p_|^p$")


@dataclass(frozen=True)
class Facts:
    """What the scores are like: their range, ties, digits, and how malicious rows compare with benign ones."""

    low: float
    high: float
    distinct: int
    rows: int
    largest_tie: int
    digits: int | None  # digits after the point, if the scores are rounded
    concordance: float | None  # how often a malicious row scores higher than a benign one; a tie counts half


@dataclass(frozen=True)
class Survey:
    """All that a policy for these files needs to know.

    others      further columns that look like scores
    odd         columns that hold neither numbers, words nor times
    dropped     why a column that looks like ids or times is not used
    repeated    rows with the id of another, left out
    shared      rows with ids that both files to fit on and files held out have
    suspect     a value that looks like a label, in a column whose name does not
    """

    parts: tuple[PartColumns, ...]
    columns: Columns
    facts: Facts
    others: tuple[str, ...]
    odd: tuple[str, ...]
    dropped: tuple[str, ...]
    labels: tuple[tuple[str, int], ...]
    fit_n: int
    holdout_n: int
    malicious_n: int
    repeated: int
    shared: int
    by: str
    suspect: Suspect | None
    benign: Ordered

    def paths(self, role: str) -> tuple[str, ...]:
        return tuple(part.path for part in self.parts if part.role == role)

    @property
    def malicious(self) -> tuple[str, ...]:
        """The files with malicious rows: files of their own, or the labelled ones."""
        apart = self.paths("malicious")
        return apart or (tuple(part.path for part in self.parts) if self.malicious_n else ())

    def tail(self, rate: float) -> float:
        """Return the largest share of benign rows, at most this rate, that some threshold flags."""
        n = self.benign.n
        cut = self.benign.at_rank([max(1, math.ceil(rate * n))])
        reached = int(self.benign.at_or_above(cut)[0])
        if reached > rate * n:
            reached = int(self.benign.at_or_above([math.nextafter(float(cut[0]), math.inf)])[0])
        return reached / n


def look(paths: Sequence[str]) -> Survey:
    """Look at the files that some arguments name, or say what keeps gate from reading them."""
    if "-" in paths:
        raise GateError("--scores: must name files, got - for stdin; save the scores as a file")
    return survey([look_at(path, found) for path, found in find_each(paths)])


# --- what each column is for --------------------------------------------------------------------------------


def survey(parts: Sequence[PartColumns], named: str | None = None) -> Survey:
    """Find what each column is for, and what the scores are like; `named` is the column of scores, if it is known."""
    shared = [name for name in parts[0].names if all(name in part.names for part in parts)]
    label = _label_of(parts, shared)
    seen = {name: [part.columns[part.names.index(name)] for part in parts] for name in shared}
    benign_label: tuple[str, ...] = ("0",)
    labels: dict[str, int] = {}
    if label is not None:
        for column in seen[label]:
            for value, rows in column.values:
                labels[value] = labels.get(value, 0) + rows
        benign_label = _benign_of(label, labels)
    score, others = _score_of(parts, shared, seen, label, named)
    columns = Columns(score=score, label=label, benign_label=benign_label)
    parts = _roles(parts, columns, seen)
    dropped: list[str] = []
    identity = _id_of(parts, shared, seen, columns, dropped)
    time = next((n for n in shared if n not in (score, label, identity) and all(s.is_time for s in seen[n])), None)
    if time is not None and any(column.missing for column in seen[time]):
        dropped.append(f"{show(time)} looks like times, but some rows have none, so it is not used")
        time = None
    columns = columns.model_copy(update={"id": identity, "timestamp": time})
    found = _measure(parts, columns, tuple(sorted(labels.items())))
    odd = dict.fromkeys(column.name for part in parts for column in part.columns if column.kind == "other")
    return replace(found, others=others, odd=tuple(odd), dropped=(*dropped, *found.dropped))


def _label_of(parts: Sequence[PartColumns], shared: list[str]) -> str | None:
    """Find the column of labels: by its name, or else by words in it."""
    for part in parts:
        for seen in part.columns:
            named = plain(seen.name) in LABELS and 1 <= len(seen.values) <= MOST_LABELS
            words = {value.casefold().strip() for value, _ in seen.values}
            by_words = seen.kind == "text" and bool(words & (BENIGN_WORDS - {"0", "ok", "no"})) and len(words) <= 10
            if named or by_words:
                if seen.name not in shared:
                    lacking = next(other.path for other in parts if seen.name not in other.names)
                    raise GateError(
                        f"{lacking}: must have the labels {seen.name!r} that {part.path} has, got no such column; "
                        "give files with the same columns, or look at each kind by itself"
                    )
                return seen.name
    return None


def _benign_of(label: str, labels: dict[str, int]) -> tuple[str, ...]:
    """Find the label of benign rows: by its word, by the column's name, or else that of most rows."""
    name = plain(label)
    if name in ("benign", "is_benign") and {value.casefold() for value in labels} <= {"0", "1", "true", "false"}:
        return tuple(value for value in labels if value.casefold() in ("1", "true")) or ("1",)
    known = tuple(value for value in labels if value.casefold().strip() in BENIGN_WORDS)
    if known:
        return known
    others = [value for value in labels if value.casefold().strip() not in MALICIOUS_WORDS]
    return (max(others, key=lambda value: labels[value]),) if others and len(labels) > 1 else ("0",)


def _score_of(
    parts: Sequence[PartColumns], shared: list[str], seen: dict[str, list[Seen]], label: str | None, named: str | None
) -> tuple[str, tuple[str, ...]]:
    """Find the column of scores: the given one by its name, else the first with fractions; list other candidates."""

    def rank(name: str) -> int:
        word = plain(name)
        if word in ("score", "scores"):
            return 0
        named = bool(_SCORE_NAME.search(word))
        fractions = not all(column.whole for column in seen[name])
        return 1 if named and "score" in word else 2 if named else 3 if fractions else 4

    numbers = [
        name
        for name in shared
        if name != label
        and all(column.kind == "number" and not column.is_time for column in seen[name])
        and not _ID_NAME.search(plain(name))
    ]
    if not numbers:
        shown = ", ".join(map(show, parts[0].names[:10])) or "no column"
        raise GateError(f"{parts[0].path}: must have a column of numbers to take for scores, got {shown}; add one")
    if named is not None and named not in numbers:
        known = ", ".join(map(show, numbers[:10]))
        raise GateError(f"--detectors: must name columns of numbers, got {named[:80]!r}; {parts[0].path} has {known}")
    best = named or min(numbers, key=rank)
    if any(column.infinite for column in seen[best]):
        raise GateError("--scores: must hold finite scores, got an infinite one; cut it to the detector's range")
    others = tuple(name for name in numbers if name != best and rank(name) <= 3)
    return best, others


def _roles(parts: Sequence[PartColumns], columns: Columns, seen: dict[str, list[Seen]]) -> list[PartColumns]:
    """Decide what each argument holds: by its labels, its name, or its place."""
    kinds = []
    for i, part in enumerate(parts):
        name = PurePath(part.path).name.casefold()
        role = "malicious" if _MALICIOUS_NAME.search(name) and "non-malicious" not in name else "benign"
        if columns.label:
            has_benign = {value for value, _ in seen[columns.label][i].values} & {*columns.benign_label}
            role = "benign" if has_benign else "malicious"
        kinds.append(replace(part, role=role))
    rows = [i for i, part in enumerate(kinds) if part.role == "benign"]
    if not rows:
        raise GateError(f"{parts[0].path}: must have benign rows to fit and to judge on, got none; give some")
    names = {i: PurePath(kinds[i].path).name.casefold() for i in rows}
    held = [i for i in rows if _HOLDOUT_NAME.search(names[i])]
    fitted = [i for i in rows if i not in held and _FIT_NAME.search(names[i])]
    if len(rows) == 2 and not (held and fitted):
        held = held[:1] or [i for i in rows if i not in fitted][-1:]
    if held and len(held) < len(rows):
        kinds = [replace(p, role="holdout" if i in held else "fit") if i in rows else p for i, p in enumerate(kinds)]
    return kinds


def _id_of(
    parts: Sequence[PartColumns], shared: list[str], seen: dict[str, list[Seen]], columns: Columns, dropped: list[str]
) -> str | None:
    """Find the column of ids: by its name, even where ids repeat, or else text that never repeats in a file."""
    repeating: list[str] = []
    texts: list[str] = []
    for name in shared:
        found = seen[name]
        is_text = all(column.kind == "text" for column in found)
        is_named = bool(_ID_NAME.search(plain(name)))
        if name in (columns.score, columns.label) or any(column.is_time for column in found):
            continue
        if is_named and all(column.kind == "text" or (column.kind == "number" and column.whole) for column in found):
            why = _no_id(found)
            named = None if why else _Names.of(parts, columns, name)
            if named is not None and named.differing > named.repeated / 2:
                why = (
                    "names rows with different scores, so it is no id of a row; name it as data.group if rows that "
                    "share it depend on each other"
                )
            if why:
                dropped.append(f"{show(name)} {why}")
            elif named is not None and named.repeated == 0:
                return name
            else:
                repeating.append(name)
        elif is_text and all(column.differs and not column.missing for column in found):
            texts.append(name)
    whole = (name for name in texts if not _Names.of(parts, columns, name).repeated)
    return repeating[0] if repeating else next(whole, None)


def _no_id(found: Sequence[Seen]) -> str:
    """Why a column that is named like ids cannot name rows; empty if it may."""
    missing = sum(column.missing for column in found)
    if missing:
        return f"is named like ids, but {plural(missing, 'row')} have none, so it is not used"
    if all(column.is_numbers for column in found):
        return "numbers the rows of each file, so it is no id across files"
    return ""


@dataclass(frozen=True)
class _Names:
    """How many names of a column repeat within the files of a role, and how many of these have different scores."""

    repeated: int
    differing: int

    @classmethod
    def of(cls, parts: Sequence[PartColumns], columns: Columns, name: str) -> _Names:
        repeated = differing = 0
        named = columns.model_copy(update={"label": None, "id": name})
        for role in {part.role for part in parts}:
            read = [part for _, each in _read(parts, (role,), "benign", named) for part in each]
            rows = " UNION ALL ".join(f"SELECT {part.listed} FROM {part.source}" for part in read)
            names = f"SELECT count(*) AS n, min(score) AS low, max(score) AS high FROM ({rows}) AS r GROUP BY id"
            asked = "count(CASE WHEN n > 1 THEN 1 END) AS again, count(CASE WHEN low < high THEN 1 END) AS differing"
            found = here().ask(f"SELECT {asked} FROM ({names}) AS g")
            repeated += int(found["again"][0])
            differing += int(found["differing"][0])
        return cls(repeated, differing)


# --- what the scores are like -------------------------------------------------------------------------------


def _read(
    parts: Sequence[PartColumns], roles: Sequence[str], kind: Kind, columns: Columns
) -> list[tuple[str, list[FilePart]]]:
    """What each file of some roles gives, by the argument that names it."""
    return [
        (part.path, [read_part(here(), t, columns, ANY, kind, alone=len(part.tables) == 1) for t in part.tables])
        for part in parts
        if part.role in roles
    ]


def _sample(parts: Sequence[PartColumns], roles: Sequence[str], kind: Kind, columns: Columns) -> Sample | None:
    """The rows of one kind in the files of some roles; None where there are no such files."""
    named = _read(parts, roles, kind, columns)
    read = [part for _, each in named for part in each]
    if not read:
        return None
    refuse_copies(part.table.file for part in read if part.rows)
    sources = tuple(source_of(path, each, kind) for path, each in named)
    return join_parts(here(), read, columns, sources, kind, ANY)


def _measure(parts: Sequence[PartColumns], columns: Columns, labels: tuple[tuple[str, int], ...]) -> Survey:
    """Read the rows, and divide those of one sample."""
    fit = _sample(parts, ("fit",), "benign", columns)
    holdout = _sample(parts, ("holdout",), "benign", columns)
    by, dropped, shared, wholes = "files", [], 0, [fit, holdout]
    if fit is None or holdout is None:
        whole = _sample(parts, ("benign",), "benign", columns)
        assert whole is not None
        wholes = [whole]
        try:
            fit, holdout, divided = split(whole, HALF, 0)
        except GateError:
            if columns.timestamp is None:
                raise
            dropped.append(f"{show(columns.timestamp)} cannot divide the rows by time, so it is not used")
            columns = columns.model_copy(update={"timestamp": None})
            fit, holdout, divided = split(replace(whole, roles=whole.roles - {"time"}), HALF, 0)
        by = divided.by
    elif columns.id is not None:
        _, shared = holdout.shared(fit, "id")
    untimed = columns.model_copy(update={"timestamp": None})
    malicious = _sample(parts, ("malicious",), "malicious", untimed)
    if malicious is None and {value for value, _ in labels} - {*columns.benign_label}:
        malicious = _sample(parts, ("fit", "holdout", "benign"), "malicious", untimed)
    samples = [each for each in (*wholes, malicious) if each is not None]
    suspects = [find_suspect(each) for each in wholes if each is not None] if columns.label is None else []
    benign = replace(
        fit,
        relation=f"SELECT score FROM {fit.rows} UNION ALL SELECT score FROM {holdout.rows}",
        roles=frozenset({"score"}),
        n=fit.n + holdout.n,
        lowest=min(fit.lowest, holdout.lowest),
        highest=max(fit.highest, holdout.highest),
    )
    return Survey(
        parts=tuple(parts),
        columns=columns,
        facts=_facts(benign, malicious),
        others=(),
        odd=(),
        dropped=tuple(dropped),
        labels=labels,
        fit_n=len(fit),
        holdout_n=len(holdout),
        malicious_n=0 if malicious is None else len(malicious),
        repeated=sum(each.repeated or 0 for each in samples),
        shared=shared,
        by=by,
        suspect=next((each for each in suspects if each is not None), None),
        benign=benign.ordered,
    )


def _facts(benign: Sample, malicious: Sample | None) -> Facts:
    samples = [benign] if malicious is None else [benign, malicious]
    most = max(max(-each.lowest, each.highest) for each in samples)
    if most > LARGEST:
        raise GateError(f"--scores: must hold scores of at most {LARGEST:g}, got {most:g}; write them on another scale")
    ties = f"SELECT count(*) AS n FROM {benign.rows} GROUP BY score"
    found = here().ask(f"SELECT count(*) AS scores, max(n) AS largest FROM ({ties}) AS t")
    return Facts(
        low=min(each.lowest for each in samples),
        high=max(each.highest for each in samples),
        distinct=int(found["scores"][0]),
        rows=benign.n,
        largest_tie=int(found["largest"][0]),
        digits=_digits(samples),
        concordance=None if malicious is None else _concordance(benign, malicious),
    )


def _digits(samples: Sequence[Sample]) -> int | None:
    """Find to how many digits after the point the scores are rounded; None if they are not."""
    rows = " UNION ALL ".join(f"SELECT score FROM {each.rows}" for each in samples)
    asked = ", ".join(f"bool_and(round(score, {digits}) = score) AS d{digits}" for digits in range(7))
    found = here().ask(f"SELECT {asked} FROM ({rows}) AS r")
    return next((digits for digits in range(7) if found[f"d{digits}"][0]), None)


def _concordance(benign: Sample, malicious: Sample) -> float:
    """How often a malicious row scores higher than a benign one; a tie counts half."""
    rows = f"SELECT score, 1 AS b, 0 AS m FROM {benign.rows} UNION ALL SELECT score, 0, 1 FROM {malicious.rows}"
    scores = f"SELECT score, sum(b) AS b, sum(m) AS m FROM ({rows}) AS r GROUP BY score"
    below = f"SELECT b, m, sum(b) OVER (ORDER BY score) - b AS below FROM ({scores}) AS s"
    found = here().ask(f"SELECT sum(m * (below + b / 2.0)) AS pairs FROM ({below}) AS p")
    return float(found["pairs"][0]) / (benign.n * malicious.n)
