"""Tied scores: which rates a detector can have near a target, and what more rows would change. No judgement.

The model is that of the calibrator. At a target it flags whole scores, which are merged if a float cannot tell them
apart, as long as no more fit rows reach them than its plotting position allows. The next score exceeds that number.
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
    """Whether it is proven that no threshold has a rate inside the band.

    A threshold flags `below` of n rows, or `through`, which is more than a calibrator may promise as `fpr`. The first
    number must be provably too small for the band, and the second provably above the target. Only more rows settle
    an atom that lies near the target.
    """
    return through > below and band.refutes_low(below, n) and upper_tail(through, n, float(fpr)) < float(band.alpha / 2)


def attainability(
    below: int, through: int, apart: int, n: int, fpr: Fraction, band: Band, n_eff: float | None = None
) -> Attainability:
    """Whether tied fit scores let a target be reached.

    `apart` rows could be flagged if a float told all raw scores apart. `n_eff` is the number of independent rows that
    fit rows in groups are worth.

    fine           the rate that can be flagged lies in the band, or no tie keeps it out
    resolution     it would lie there if rescaling had not merged scores that differ
    unattainable   no rows help: provably no threshold has a rate in the band
    borderline     chance may have put the score on the wrong side of the target; more fit rows decide
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
    """The fit rows with which a tied score of the observed rate is flagged 95 % of the time; None if none do.

    `rank` is the plotting position's: how many of so many rows may be flagged at a rate.
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
    """The fit rows that prove the target unattainable at the observed rates; None if no number of rows does.

    The rate above the tied score must be too low for the band, and the rate with that score must exceed `fpr`. So many
    rows show either this, or that one of the two rates is not as it seemed.
    """
    if below >= n * band.low:
        return None

    worth = 1.0 if n_eff is None else n_eff / n

    def settles(rows: int) -> bool:
        return is_unattainable(below / n * rows * worth, through / n * rows * worth, rows * worth, fpr, band)

    found = first(settles, n, MOST_ROWS)
    return found if found < MOST_ROWS else None
