"""Advice after a count: the rows with which a sound release would pass. It judges nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from gate.planning.law import POWER, SAFE_RANK, Budget, Law, PredictedCount, SpentError, edges, fewest
from gate.policy import Policy, Target
from gate.statistics.binomial import Band
from gate.stored import MOST_ROWS


@dataclass(frozen=True)
class Advice:
    """The rows with which a sound release passes 95 % of the time, after what was counted.

    more        rows to hold out in all, with the calibrator as it is; if `fresh`, without the rows on hand
    again       rows for a new fit, and as many to hold out, if the calibrator cannot be saved or this costs less
    computed    false if the search took too many steps
    """

    more: int | None = None
    again: int | None = None
    computed: bool = True
    fresh: bool = False


def advise(
    policy: Policy,
    target: Target,
    k: int,
    n: int,
    fit_n: int | None,
    budget: Budget,
    *,
    worth: float = 1.0,
    refuted: bool = False,
) -> Advice:
    """The rows that would let a target pass which k of n held-out rows do not let pass.

    The law of the calibrator's true rate is Beta(x, n_fit - x + 1) before the count, and so
    Beta(x + k, n_fit - x + 1 + n - k) after it. If this law lies inside the band often enough, more held-out rows will
    show it; else a new fit is needed, of which this count says nothing. In either sample a row in a group is worth
    `worth` independent rows.
    """
    law = Law(policy, target, budget, MOST_ROWS)
    size = n if worth == 1.0 else int(n * worth)
    most = MOST_ROWS * worth
    if target.min_n > most:
        return Advice()
    more = again = None
    fresh = policy.reuse is not None  # rows that have judged would judge with a smaller error the next time
    try:
        if fit_n is not None and not refuted:
            fitted = fit_n if worth == 1.0 else int(fit_n * worth)
            more = law.more_needed(k * worth, size, fitted, fresh)
        if more is None or more > 4 * size:
            again = law.holdout_needed(None, POWER)
            safe = math.ceil(SAFE_RANK / min(law.p, 1 - law.p)) if law.p < 1 else MOST_ROWS + 1
            again = None if again is None else max(again, target.min_n, safe)
    except SpentError:
        return Advice(_rows(more, worth), None, more is not None, fresh)
    if more is not None and again is not None and 2 * again < more:
        more = None
    return Advice(_rows(more, worth), _rows(again, worth) if more is None else None, fresh=fresh)


def _rows(size: int | None, worth: float) -> int | None:
    rows = None if size is None else math.ceil(size / worth)
    return None if rows is None or rows > MOST_ROWS else rows


def advise_at_rate(
    rule: str, band: Band, k: int, n: int, budget: Budget, *, min_n: int = 1, worth: float = 1.0
) -> Advice:
    """The rows in all, with those on hand, that pass 95 % of the time if further rows show the rate observed."""
    rate = Fraction(k, n)
    if (band.low > 0 and rate <= band.low) or (band.high < 1 and rate >= band.high) or min_n > MOST_ROWS * worth:
        return Advice()
    size = n if worth == 1.0 else int(n * worth)
    predicted = PredictedCount(0.0, 0.0, k * worth, size, float(rate))
    period = math.ceil(1 / rate) if k else 1

    def enough(rows: int) -> bool:
        budget.spend()
        return predicted.passes(edges(band, rule, rows, rows + period), rows, rows + period) >= POWER

    try:
        return Advice(_rows(fewest(enough, max(size, min_n), MOST_ROWS), worth))
    except SpentError:
        return Advice(computed=False)
