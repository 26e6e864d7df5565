"""The two samples as data: rows that they share, how fine their scores are, how old they are. No judgement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gate.contract import Floats
from gate.errors import GateError
from gate.scores import Scores, find_copy, number_alike, shared_names

EPOCH = date(1970, 1, 1)
DAY = 86_400_000_000  # in microseconds
PIECE = 1 << 20

Keys = NDArray[Any]


@dataclass(frozen=True)
class TieBlock:
    """Fit rows that share the score at a target: a threshold flags `above` of the n rows or `through` of them."""

    above: int
    through: int
    n: int


@dataclass(frozen=True)
class Resolution:
    """How fine the fit scores are: so many distinct ones among n rows, and the most rows that share one."""

    n: int
    distinct: int
    largest_tie: int


@dataclass(frozen=True)
class Overlap:
    """Held-out rows that are among the fit rows.

    by                    "ids", or "rows" where there are none and rows are compared in all columns that were read
    shared, benign        held-out rows that are also fit rows, and all held-out rows
    expected, deviation   how many a random division of the same rows shares, because rows are alike by nature
    copied                how many rows stand in both samples: all that are shared, or at least what exceeds chance
    rows_in_shared_groups held-out rows whose group has fit rows too; None without groups
    """

    by: Literal["ids", "rows"]
    shared: int
    benign: int
    expected: float
    deviation: float
    copied: int
    shared_groups: int | None
    rows_in_shared_groups: int | None


@dataclass(frozen=True)
class Ages:
    """The days of the oldest and of the newest row of one sample."""

    oldest: date
    newest: date


def refuse_identical(fit: Scores, holdout: Scores) -> None:
    """The same rows on both sides hold nothing out; whatever they showed would be no evidence."""
    copy = None
    if fit.pieces is not holdout.pieces:  # of one sample that was split they are the same
        copy = find_copy([piece.file for sample in (fit, holdout) for piece in sample.pieces if piece.taken])
    if copy is not None:
        raise GateError(
            f"{copy[1]}: must hold other rows than the fit sample, got the same bytes as in {copy[0]}; hold out rows "
            "that the calibrator is not fitted on"
        )
    same_rows = fit.ids is None or holdout.ids is None or fit.rows_sha256 == holdout.rows_sha256
    if len(fit) == len(holdout) and same_rows and np.array_equal(fit.ordered, holdout.ordered):
        raise GateError(
            f"{_sources(holdout)}: must hold other rows than the fit sample, got the same {len(fit):,} scores as in "
            f"{_sources(fit)}; hold out rows that the calibrator is not fitted on"
        )


def refuse_both_kinds(benign: Scores, malicious: Scores) -> None:
    """Without labels every row of a file is of one kind, so that one file cannot be given as both."""
    if malicious.labels is None:
        copy = find_copy([piece.file for sample in (benign, malicious) for piece in sample.pieces])
        if copy is not None:
            raise GateError(
                f"{copy[1]}: must hold malicious rows alone, got the same bytes as in {copy[0]}, which was given as "
                "benign; name the column that tells them apart in data.label or --label-column"
            )


def overlap(fit: Scores, holdout: Scores) -> Overlap:
    """Count the held-out rows that the fit sample holds too, by id where both have ids."""
    groups = rows_in_groups = None
    if fit.groups is not None and holdout.groups is not None:
        both = shared_names(holdout.group_names, fit.group_names)
        groups, rows_in_groups = int(both.sum()), int(holdout.group_sizes[both].sum())
    n = len(holdout)
    if fit.ids is not None and holdout.ids is not None:
        shared = int(shared_names(holdout.ids, fit.ids).sum())
        return Overlap("ids", shared, n, 0.0, 0.0, shared, groups, rows_in_groups)
    shared, expected, deviation = shared_rows(fit, holdout)
    copied = copied_rows(shared, expected, n, len(fit))
    return Overlap("rows", shared, n, expected, deviation, copied, groups, rows_in_groups)


def copied_rows(shared: int, expected: float, n: int, fit_n: int) -> int:
    """How many rows stand in both samples, at least, where so many are alike and so many would be by chance.

    A row that stands in both samples makes a pair of equal rows. Chance divides a pair 2 q (1 - q) of the time, and
    a copy always: so much of each copy exceeds what is expected.
    """
    q = n / (n + fit_n)
    return round(max(0.0, shared - expected) / (1 - 2 * q * (1 - q)))


def shared_rows(fit: Scores, holdout: Scores) -> tuple[int, float, float]:
    """How many held-out rows equal a fit row, and what a random division of the same rows shows: mean and deviation.

    A value that c of all N rows have is shared unless all c fall on one side. Other columns are looked at only where
    scores are equal, which among fine scores is nowhere.
    """
    fitted_keys: Keys = fit.ordered
    held_keys: Keys = holdout.ordered
    alike = _alike(fitted_keys, held_keys)
    others = _other_columns(fit, holdout) if len(alike) else None
    if others:
        fitted_keys, held_keys = (
            _row_keys(sample.values, columns, alike) for sample, columns in zip((fit, holdout), others, strict=True)
        )
        alike = _alike(fitted_keys, held_keys)
    fitted, held = _count(fitted_keys, alike), _count(held_keys, alike)
    sizes, values = np.unique(fitted + held, return_counts=True)
    return int(held[fitted > 0].sum()), *_by_chance(sizes, values, len(holdout), len(holdout) + len(fit))


def _by_chance(sizes: NDArray[np.int64], values: NDArray[np.int64], n: int, total: int) -> tuple[float, float]:
    """Mean and deviation of the shared held-out rows where so many values have blocks of each size, two or more.

    They are the held-out rows of these blocks less those whose whole block is held out. Single rows are never shared:
    counted in and taken out again, they would leave their rounding behind, which may be below zero.
    """
    most = next((c for c in range(1, total + 1) if (n / total) ** c < 1e-12), total)  # larger blocks are always shared
    within = sizes <= most
    tied = float(sizes @ values)
    c, m = sizes[within].astype(np.float64), values[within].astype(np.float64)
    drawn = np.arange(2 * int(c.max(initial=1)))
    whole = np.concatenate([[1.0], np.cumprod(np.maximum(n - drawn, 0) / np.maximum(total - drawn, 1))])
    q, alone = n / total, whole[c.astype(int)]  # the chance that a row, and that a given block, is held out whole
    both = whole[np.add.outer(c, c).astype(int)] - np.outer(alone, alone)
    pairs = np.outer(m, m) - np.diag(m)
    of_rows = tied * q * (1 - q) * (total - tied) / max(1, total - 1)
    of_blocks = np.sum(m * c**2 * alone * (1 - alone)) + np.sum(pairs * np.outer(c, c) * both)
    together = np.sum(m * c**2 * alone * (1 - q) * (total - tied) / np.maximum(total - c, 1))
    expected = float(np.sum(m * c * (q - alone)) + q * float(sizes[~within] @ values[~within]))
    return expected, math.sqrt(max(0.0, of_rows + of_blocks - 2 * together))


def _other_columns(fit: Scores, holdout: Scores) -> tuple[list[NDArray[Any]], list[NDArray[Any]]] | None:
    """What rows of both samples have beside their scores, numbered alike."""
    pairs = []
    if fit.groups is not None and holdout.groups is not None:
        pairs.append(_numbered_alike([fit.group_names, holdout.group_names], [fit.groups, holdout.groups]))
    if fit.segments is not None and holdout.segments is not None:
        pairs.append(_numbered_alike([fit.segment_names, holdout.segment_names], [fit.segments, holdout.segments]))
    if fit.timestamps is not None and holdout.timestamps is not None:
        pairs.append([fit.timestamps, holdout.timestamps])
    return ([pair[0] for pair in pairs], [pair[1] for pair in pairs]) if pairs else None


def _row_keys(values: Floats, columns: list[NDArray[Any]], alike: Keys) -> Keys:
    """The rows whose score is among the alike, as one number each for all of their columns, in rising order."""
    places = np.minimum(np.searchsorted(alike, values), len(alike) - 1)
    rows = np.flatnonzero(alike[places] == values)
    key = (values[rows] + 0.0).view(np.uint64)
    for column in columns:
        key = _mixed(key) + column[rows].astype(np.uint64)
    key = _mixed(key)
    key.sort()
    return key


def resolution(fit: Scores, distinct: int) -> Resolution:
    """Of the fit scores, `distinct` of which the calibrator has counted already."""
    largest = int(_count(fit.ordered, _tied(fit.ordered)).max(initial=1))
    return Resolution(len(fit), distinct, largest)


def tie_block(fit: Floats, fpr: Fraction) -> TieBlock:
    """The fit rows that share the score which the share `fpr` of them reaches."""
    n = len(fit)
    score = fit[n - min(max(round(fpr * n), 1), n)]
    return TieBlock(n - int(np.searchsorted(fit, score, "right")), n - int(np.searchsorted(fit, score, "left")), n)


def ages(scores: Scores | None) -> Ages | None:
    if scores is None or scores.timestamps is None:
        return None
    oldest, newest = (_day(int(moment)) for moment in (scores.timestamps.min(), scores.timestamps.max()))
    return Ages(oldest, newest)


def _day(microseconds: int) -> date:
    try:
        return EPOCH + timedelta(days=microseconds // DAY)
    except OverflowError:
        return date.max if microseconds > 0 else date.min


def _sources(scores: Scores) -> str:
    return ", ".join(source.path for source in scores.sources) or "the sample"


def _alike(fit: Keys, holdout: Keys) -> Keys:
    """The values that more than one row has, in either sample or across them."""
    return np.unique(np.concatenate([_tied(fit), _tied(holdout), _common(fit, holdout)]))


def _tied(ordered: Keys) -> Keys:
    """The values that occur more than once, at least once each."""
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def _common(fit: Keys, holdout: Keys) -> Keys:
    """The held-out values that the fit sample has too."""
    found = [holdout[:0]]
    for start in range(0, len(holdout) if len(fit) else 0, PIECE):
        piece = holdout[start : start + PIECE]
        places = np.minimum(np.searchsorted(fit, piece), len(fit) - 1)
        found.append(np.unique(piece[fit[places] == piece]))
    return np.concatenate(found)


def _count(ordered: Keys, values: Keys) -> NDArray[np.int64]:
    return np.searchsorted(ordered, values, "right") - np.searchsorted(ordered, values)


def _numbered_alike(names: list[Any], codes: list[NDArray[Any]]) -> list[NDArray[np.int64]]:
    return [number[code] for number, code in zip(number_alike(names), codes, strict=True)]


def _mixed(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit numbers that spreads neighbours apart (Steele, Lea and Flood 2014, SplitMix)."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))
