"""Advice on a range after its counts: the rows with which a sound release would pass, or a look would decide it.

The calibrator's true rates have a Dirichlet law before the counts (`gate.planning.ranges`), and that law with the
counts added after them. The simulation has one seed, a coarser grid and a bounded number of draws and sizes, so that
advice never delays a verdict, and the same counts always get the same advice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from gate.contract import Floats, Ints
from gate.planning.law import POWER, SAFE_RANK, WEAK_LIVENESS
from gate.planning.ranges import (
    SEED,
    Estimate,
    RangeLaw,
    RangePlan,
    describe_weakness,
    draw_counts,
    draw_rates,
    round_up,
    within,
)
from gate.planning.sequential import Deciding
from gate.policy import Policy, Range
from gate.stored import MOST_ROWS

POINTS = 200  # of the grid that are simulated
DRAWS = 400
FINE_POINTS, FINE_DRAWS = 400, 1600  # for the rows that a new fit needs
MOST_GROWTH = 64  # times the rows on hand; a finding that takes more is at an edge
GROWTH = 1.15  # rows from look to look


@dataclass(frozen=True)
class RangeAdvice:
    """About the rows with which a sound release passes 95 % of the time, after the counts of a range.

    more       rows to hold out in all, with the calibrator as it is; if `fresh`, without the rows on hand
    again      rows for a new fit, and as many to hold out, if the calibrator cannot be saved or this costs less
    deciding   with sequential looks, the rows in all with which the range is decided, and how often
    """

    more: int | None = None
    again: int | None = None
    fresh: bool = False
    deciding: Deciding | None = None


def advise_range(
    policy: Policy,
    judged: Range,
    alpha: Fraction,
    counts: Ints,
    n: int,
    fit_n: int,
    *,
    worth: float = 1.0,
    refuted: bool = False,
) -> RangeAdvice:
    """The rows that would let a range pass which these counts of n held-out rows do not let pass.

    In either sample a row in a group is worth `worth` independent rows.
    """
    looks = policy.interval == "sequential"
    fresh = policy.reuse is not None and not looks  # rows that have judged would judge with a smaller error next time
    law = RangeLaw(policy, judged, alpha if looks else None, POINTS)
    if judged.min_n > MOST_ROWS * worth:
        return RangeAdvice()
    size, fitted = int(n * worth), int(fit_n * worth)
    after = _After(law, np.floor(counts[law.points] * worth).astype(np.int64), size, fitted)
    if looks and not refuted and after.is_law:
        return RangeAdvice(deciding=after.decide())
    more = after.more(fresh) if not refuted and after.is_law else None
    again = None
    if more is None or more > 4 * size:
        again = _again(policy, judged)
    if more is not None and again is not None and 2 * again < more:
        more = None
    return RangeAdvice(_rows(more, worth), _rows(again, worth) if more is None else None, fresh)


@lru_cache(maxsize=64)
def _again(policy: Policy, judged: Range) -> int | None:
    """The rows for a new fit, and as many to hold out."""
    found = RangeLaw(policy, judged, most_points=FINE_POINTS).holdout_needed(None, POWER, FINE_DRAWS)
    return None if found is None else max(round_up(found.value + found.error), judged.min_n)


def _rows(size: int | None, worth: float) -> int | None:
    rows = None if size is None else size if worth == 1.0 else round_up(size / worth)
    return None if rows is None or rows > MOST_ROWS else rows


class _After:
    """The law of the true rates after the counts, drawn once, and what more rows would show of these rates."""

    def __init__(self, law: RangeLaw, counts: Ints, n: int, n_fit: int) -> None:
        self.law, self.counts, self.n, self.n_fit = law, counts, n, n_fit
        self.ranks = law.ranks(n_fit)

    @property
    def is_law(self) -> bool:
        """Whether enough fit rows lie beyond the lowest rate for the law to be near."""
        return bool(self.ranks[-1] >= SAFE_RANK)

    def rates(self, rng: np.random.Generator) -> Floats:
        return draw_rates(rng, self.ranks + self.counts, self.n_fit + self.n, DRAWS)

    def more(self, fresh: bool) -> int | None:
        """The rows in all with which the calibrator passes 95 % of the time; None if it may not pass."""
        rng = np.random.default_rng(SEED)
        rates, edges, points = self.rates(rng), self.law.corridor.edges, self.law.points
        inside = np.all((edges.low[points] <= rates) & (rates <= edges.high[points]), axis=1)
        if inside.mean() < POWER:
            return None
        had, start = (np.zeros_like(self.counts), 0) if fresh else (self.counts, self.n)
        rule = self.law.rule_at(self.n_fit)

        def enough(rows: int) -> bool:
            counts = had + draw_counts(np.random.default_rng(SEED), rates, rows - start)
            region = self.law.corridor.critical(rows, points).passing(rule)
            return float(within(counts, region).mean()) >= POWER

        low = high = max(start + start // 50 + 1, self.law.judged.min_n, 2)
        while not enough(high):
            low, high = high, 2 * high
            if high > MOST_GROWTH * max(self.n, self.law.judged.min_n):
                return None
        while high / low > 1.02:
            middle = math.ceil(math.sqrt(low) * math.sqrt(high))
            low, high = (low, middle) if enough(middle) else (middle, high)
        return round_up(high)

    def decide(self) -> Deciding | None:
        """The rows in all with which the range is decided 80 % of the time, or as often as the horizon allows."""
        rng, points = np.random.default_rng(SEED), self.law.points
        rates, counts = self.rates(rng), np.broadcast_to(self.counts, (DRAWS, len(points))).copy()
        decided = proven = np.zeros(DRAWS, dtype=bool)
        rows, best = max(self.n, 2), None
        while rows < MOST_GROWTH * self.n and decided.mean() < WEAK_LIVENESS:
            last, rows = rows, round_up(rows * GROWTH)
            counts += draw_counts(rng, rates, rows - last)
            critical = self.law.corridor.critical(rows, points)
            good = within(counts, critical.proven) & (rows >= self.law.judged.min_n) & ~decided
            proven = proven | good
            decided = decided | good | ~within(counts, critical.unrefuted)
            share = float(decided.mean())
            if best is None or share > best.chance:
                best = Deciding(
                    rows, share, float(proven.mean()), math.sqrt(max(share * (1 - share), 1 / DRAWS) / DRAWS)
                )
        return best if best is not None and best.chance > 0 else None


def range_warning(policy: Policy, judged: Range, fit_n: int, holdout_n: int) -> str | None:
    """The problem of a range that passed at these sizes, and the sizes that would do; None if there is no problem."""
    law = RangeLaw(policy, judged, most_points=POINTS)
    passes, fails = law.sound(holdout_n, fit_n, DRAWS)
    bad = law.bad(holdout_n, fit_n)
    planned = RangePlan(
        judged=judged,
        fit_n=fit_n,
        holdout_n=holdout_n,
        passes=passes,
        fails=fails,
        bad=bad,
        holdout_needed=None,
        equal_needed=Estimate(0.0, 0.0),
        anchor_needed=None,
        exact=True,
    )
    if describe_weakness(planned, POWER) is None:
        return None
    if passes.value >= WEAK_LIVENESS:  # then its problem is that bad releases pass
        return describe_weakness(replace(planned, needed_against_bad=law.needed_against_bad(holdout_n, fit_n)), POWER)
    rows = _again(policy, judged)
    planned = replace(planned, equal_needed=None if rows is None else Estimate(rows, 0.0))
    return describe_weakness(planned, POWER, passed=True)
