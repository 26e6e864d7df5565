"""Tied scores: which rates a detector can have near a target, and what more rows would change. No judgement.

One model, that of the calibrator: at a target it flags whole scores, merged where a float cannot tell them apart, as
long as no more fit rows reach them than its plotting position allows. The next score has more, however few.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

from gate.statistics.binomial import Band, first, lower_tail, upper_tail
from gate.stored import MOST_ROWS

Attainability = Literal["fine", "resolution", "unattainable", "borderline"]
POWER = 0.95


def is_unattainable(below: float, through: float, n: float, fpr: Fraction, band: Band) -> bool:
    """Whether no threshold has a rate inside the band, beyond what chance makes of n rows.

    A threshold flags `below` of them, or `through`, which is more than a calibrator may promise as `fpr`. The first
    must be provably too few for the band, and the second provably above the target: an atom that lies near the target
    is settled by more rows only.
    """
    return through > below and band.refutes_low(below, n) and upper_tail(through, n, float(fpr)) < float(band.alpha / 2)


def attainability(
    below: int, through: int, apart: int, n: int, fpr: Fraction, band: Band, n_eff: float | None = None
) -> Attainability:
    """What tied fit scores leave of a target.

    `apart` is what could be flagged if a float told all raw scores apart; `n_eff` the independent rows that fit rows
    in groups are worth.

    fine           the rate that can be flagged lies in the band, or no tie keeps it out
    resolution     it would, if scores that differ had not become one by rescaling
    unattainable   no rows help: provably no threshold has a rate in the band
    borderline     chance may have put the score on the wrong side of the target; more fit rows tell
    """
    if band.low <= 0 or below >= n * band.low or through - below <= 1:
        return "fine"
    if apart >= n * band.low:
        return "resolution"
    worth = 1.0 if n_eff is None else n_eff / n
    return "unattainable" if is_unattainable(below * worth, through * worth, n * worth, fpr, band) else "borderline"


def rows_to_reach(
    through: int, n: int, fpr: Fraction, rank: Callable[[Fraction, int], Fraction], n_eff: float | None = None
) -> int | None:
    """The fit rows on which a tied score of the rate observed is flagged 95 % of the time; None where none do.

    `rank` is that of the plotting position: how many of so many rows may be flagged at a rate.
    """
    rate, worth = through / n, 1.0 if n_eff is None else n_eff / n
    if rate >= fpr:
        return None

    def reaches(rows: int) -> bool:
        allowed = float(rank(fpr, rows)) * worth
        return lower_tail(math.floor(allowed) if worth == 1.0 else allowed, rows * worth, rate) >= POWER

    found = first(reaches, n, MOST_ROWS)
    return found if found < MOST_ROWS else None


def rows_to_settle(
    below: int, through: int, n: int, fpr: Fraction, band: Band, n_eff: float | None = None
) -> int | None:
    """The fit rows at which, with the rates observed, the target is provably unattainable; None where it is not.

    What lies above the tied score must be too little for the band, and that score, with `through` rows, above `fpr`.
    As many rows show either that, or that one of the two is not as it seemed.
    """
    if below >= n * band.low:
        return None

    worth = 1.0 if n_eff is None else n_eff / n

    def settles(rows: int) -> bool:
        return is_unattainable(below / n * rows * worth, through / n * rows * worth, rows * worth, fpr, band)

    found = first(settles, n, MOST_ROWS)
    return found if found < MOST_ROWS else None
