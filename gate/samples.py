"""The samples as data: how fine their scores are, how old they are. No judgement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction

import numpy as np

from gate.contract import Floats
from gate.errors import GateError
from gate.ordered import Ordered, in_order
from gate.scores import Scores, find_copy

EPOCH = date(1970, 1, 1)
DAY = 86_400_000_000  # in microseconds


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
class Ages:
    """The days of the oldest and of the newest row of one sample."""

    oldest: date
    newest: date


def refuse_both_kinds(benign: Scores, malicious: Scores) -> None:
    """Without labels every row of a file is of one kind, so that one file cannot be given as both."""
    if malicious.labels is None:
        copy = find_copy([piece.file for sample in (benign, malicious) for piece in sample.pieces])
        if copy is not None:
            raise GateError(
                f"{copy[1]}: must hold malicious rows alone, got the same bytes as in {copy[0]}, which was given as "
                "benign; name the column that tells them apart in data.label or --label-column"
            )


def resolution(fit: Scores, distinct: int) -> Resolution:
    """Of the fit scores, `distinct` of which the calibrator has counted already."""
    return Resolution(len(fit), distinct, fit.ordered.survey.largest_tie)


def tie_block(fit: Ordered | Floats, fpr: Fraction) -> TieBlock:
    """The fit rows that share the score which the share `fpr` of them reaches."""
    ordered = in_order(fit)
    score = ordered.at_rank(min(max(round(fpr * ordered.n), 1), ordered.n))
    above, through = ordered.at_or_above(np.array([np.nextafter(score, np.inf), score]))
    return TieBlock(int(above), int(through), ordered.n)


def ages(scores: Scores | None) -> Ages | None:
    seen = None if scores is None else scores.seen
    return None if seen is None else Ages(*map(_day, seen))


def _day(microseconds: int) -> date:
    try:
        return EPOCH + timedelta(days=microseconds // DAY)
    except OverflowError:
        return date.max if microseconds > 0 else date.min
