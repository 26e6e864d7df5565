"""Looks at score files: what each column is for, and what the scores are like. It judges nothing."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath

import numpy as np

from gate.contract import Floats
from gate.errors import GateError
from gate.policy import Columns
from gate.scores import Kind, Scores, read, shared_names, split
from gate.scores.budget import ByteBudget
from gate.scores.child import isolate
from gate.scores.labels import find_labels
from gate.scores.wording import show
from gate.starter.columns import MOST_LABELS, PartColumns, Seen, look_at, named_copy, names_of, plain

ANY = (-math.inf, math.inf)
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
    dropped     why a column that looks like ids or times is not used
    tails       for each of some rates, the largest share of benign rows, at most it, that a threshold can flag
    """

    parts: tuple[PartColumns, ...]
    columns: Columns
    facts: Facts
    others: tuple[str, ...]
    dropped: tuple[str, ...]
    labels: tuple[tuple[str, int], ...]
    fit_n: int
    holdout_n: int
    malicious_n: int
    by: str
    benign: Floats  # in rising order

    def paths(self, role: str) -> tuple[str, ...]:
        return tuple(part.path for part in self.parts if part.role == role)

    @property
    def malicious(self) -> tuple[str, ...]:
        """The files with malicious rows: files of their own, or the labelled ones."""
        apart = self.paths("malicious")
        return apart or (tuple(part.path for part in self.parts) if self.malicious_n else ())

    def tail(self, rate: float) -> float:
        """Return the largest share of benign rows, at most this rate, that some threshold flags."""
        n = len(self.benign)
        cut = self.benign[max(0, n - max(1, math.ceil(rate * n)))]
        reached = n - np.searchsorted(self.benign, cut, side="left")
        if reached > rate * n:
            reached = n - np.searchsorted(self.benign, cut, side="right")
        return float(reached / n)


def look(paths: Sequence[str], score: str | None = None) -> Survey:
    """Look at the files that some arguments name, or say what keeps gate from reading them.

    `score` names the column of scores, if it need not be found.
    """
    if "-" in paths:
        raise GateError("--scores: must name files, got - for stdin; save the scores as a file")
    with tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        parts = [isolate(partial(look_at, path, scratch), ByteBudget().memory) for path in paths]
        return _survey(parts, scratch, score)


# --- what each column is for --------------------------------------------------------------------------------


def _survey(parts: list[PartColumns], scratch: str, named: str | None) -> Survey:
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
    parts = _roles(parts, columns, seen, score)
    dropped: list[str] = []
    identity = _id_of(parts, shared, seen, {score, label}, scratch, dropped)
    time = next((n for n in shared if n not in (score, label, identity) and all(s.is_time for s in seen[n])), None)
    if time is not None and any(column.missing for column in seen[time]):
        dropped.append(f"{show(time)} looks like times, but some rows have none, so it is not used")
        time = None
    columns = columns.model_copy(update={"id": identity, "timestamp": time})
    return _measure(parts, columns, others, dropped, tuple(sorted(labels.items())), scratch)


def _label_of(parts: list[PartColumns], shared: list[str]) -> str | None:
    """Find the column of labels: by its name, or else by words in it."""
    for part in parts:
        for seen in part.columns:
            named = seen.name in find_labels([seen.name]) and 1 <= len(seen.values) <= MOST_LABELS
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
    parts: list[PartColumns], shared: list[str], seen: dict[str, list[Seen]], label: str | None, named: str | None
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
    others = tuple(name for name in numbers if name != best and rank(name) <= 3)
    return best, others


def _roles(parts: list[PartColumns], columns: Columns, seen: dict[str, list[Seen]], score: str) -> list[PartColumns]:
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
    parts: list[PartColumns],
    shared: list[str],
    seen: dict[str, list[Seen]],
    taken: set[str | None],
    scratch: str,
    dropped: list[str],
) -> str | None:
    """Find the column of ids: by its name, or text that never repeats; row numbers of two files are no ids."""
    for name in shared:
        columns = seen[name]
        kinds = {column.kind for column in columns}
        unique = all(column.distinct == column.rows and not column.missing for column in columns)
        named = bool(_ID_NAME.search(plain(name))) and (kinds == {"text"} or all(column.whole for column in columns))
        if name in taken or any(column.is_time for column in columns):
            continue
        if named and not unique:
            dropped.append(f"{show(name)} is named like ids, but some repeat or are missing, so it is not used")
        if not unique or not (named or kinds == {"text"}):
            continue
        texts = [isolate(partial(names_of, part, name, scratch), ByteBudget().memory) for part in parts]
        again = sum(int(shared_names(one, other).sum()) for i, one in enumerate(texts) for other in texts[:i])
        if again:
            dropped.append(f"{show(name)} names rows of several files alike ({again:,}), so it is no id across files")
            continue
        return name
    return None


# --- what the scores are like -------------------------------------------------------------------------------


def _measure(
    parts: list[PartColumns],
    columns: Columns,
    others: tuple[str, ...],
    dropped: list[str],
    labels: tuple[tuple[str, int], ...],
    scratch: str,
) -> Survey:
    def sample(roles: tuple[str, ...], kind: Kind, wanted: Columns) -> Scores | None:
        places = [named_copy(part.path, scratch) if part.header else part.path for part in parts if part.role in roles]
        return read(places, wanted, ANY, kind) if places else None

    fit = sample(("fit",), "benign", columns)
    holdout = sample(("holdout",), "benign", columns)
    by = "files"
    if fit is None or holdout is None:
        whole = sample(("benign",), "benign", columns)
        assert whole is not None
        try:
            fit, holdout, divided = split(whole, HALF, 0)
        except GateError:
            if columns.timestamp is None:
                raise
            dropped.append(f"{show(columns.timestamp)} cannot divide the rows by time, so it is not used")
            columns = columns.model_copy(update={"timestamp": None})
            fit, holdout, divided = split(replace(whole, timestamps=None), HALF, 0)
        by = divided.by
    plain = columns.model_copy(update={"timestamp": None})
    malicious = sample(("malicious",), "malicious", plain)
    if malicious is None and {value for value, _ in labels} - {*columns.benign_label}:
        malicious = sample(("fit", "holdout", "benign"), "malicious", plain)
    benign = np.sort(np.concatenate([fit.values, holdout.values]))
    return Survey(
        tuple(parts),
        columns,
        _facts(benign, None if malicious is None else malicious.values),
        others,
        tuple(dropped),
        labels,
        len(fit),
        len(holdout),
        0 if malicious is None else len(malicious),
        by,
        benign,
    )


def _facts(benign: Floats, malicious: Floats | None) -> Facts:
    values = benign if malicious is None else np.concatenate([benign, malicious])
    low, high = float(values.min()), float(values.max())
    if not math.isfinite(low) or not math.isfinite(high):
        raise GateError("--scores: must hold finite scores, got an infinite one; cut it to the detector's range")
    starts = np.flatnonzero(np.diff(benign, prepend=benign[0] - 1.0))
    ties = np.diff(starts, append=len(benign))
    concordance = None
    if malicious is not None:
        below = np.searchsorted(benign, malicious, "left") + np.searchsorted(benign, malicious, "right")
        concordance = float(below.mean() / (2 * len(benign)))
    return Facts(low, high, len(starts), len(benign), int(ties.max()), _digits(values), concordance)


def _digits(values: Floats) -> int | None:
    """Find to how many digits after the point the scores are rounded; None if they are not."""
    for digits in range(7):
        if np.array_equal(np.round(values, digits), values):
            return digits
    return None
