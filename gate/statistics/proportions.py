"""Two proportions: exact tests of whether they changed, and intervals for their difference, as pure functions.

Newcombe (1998), "Interval estimation for the difference between independent proportions" (method 10 there, the
hybrid score interval) and "Improved confidence intervals for the difference between binomial proportions based on
paired data" (method 10 there). Counts may be fractions, because clustered rows are worth fewer independent ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from gate.statistics.binomial import clopper_pearson, hypergeometric, lower_tail

Interval = tuple[float, float]


@dataclass(frozen=True)
class Pairs:
    """The same rows under two releases: flagged by both, by one of them only, or by neither."""

    both: float
    new_only: float
    old_only: float
    neither: float

    @property
    def rows(self) -> float:
        return self.both + self.new_only + self.old_only + self.neither

    def worth(self, share: float) -> Pairs:
        """The table that as many independent rows as these are worth would show."""
        return Pairs(self.both * share, self.new_only * share, self.old_only * share, self.neither * share)


def mcnemar(new_only: int, old_only: int) -> float:
    """The exact two-sided test: either release flags each row whose flag flipped with probability 1/2."""
    flipped = new_only + old_only
    return min(1.0, 2.0 * lower_tail(min(new_only, old_only), flipped, 0.5))


def fisher(new: int, new_rows: int, old: int, old_rows: int) -> float:
    """Fisher's exact two-sided test: all tables with the same margins that are no likelier than this one."""
    return hypergeometric(new_rows + old_rows, new + old, new_rows).no_likelier_than(new)


def wilson(k: float, n: float, alpha: float) -> Interval:
    """The score interval (Wilson 1927); its ends at k = 0 and k = n are exactly 0 and 1."""
    z = -NormalDist().inv_cdf(alpha / 2)
    middle, half = k + z * z / 2, z * math.sqrt(k * (1 - k / n) + z * z / 4)
    low = 0.0 if k <= 0 else (middle - half) / (n + z * z)
    return low, 1.0 if k >= n else (middle + half) / (n + z * z)


def difference_interval(new: float, new_rows: float, old: float, old_rows: float, alpha: float) -> Interval:
    """The new rate less the old rate on different rows, by Newcombe's hybrid score interval."""
    return _hybrid((new, new_rows), (old, old_rows), 0.0, alpha)


def paired_interval(pairs: Pairs, alpha: float) -> Interval:
    """The new rate less the old rate on the same rows, by Newcombe's method 10."""
    new, old, n = pairs.both + pairs.new_only, pairs.both + pairs.old_only, pairs.rows
    product = pairs.both * pairs.neither - pairs.new_only * pairs.old_only
    corrected = max(product - n / 2, 0.0) if product > 0 else product
    not_new, not_old = pairs.old_only + pairs.neither, pairs.new_only + pairs.neither
    margins = math.sqrt(new) * math.sqrt(not_new) * math.sqrt(old) * math.sqrt(not_old)
    return _hybrid((new, n), (old, n), corrected / margins if margins > 0 else 0.0, alpha)


def ratio_interval(new: float, new_rows: float, old: float, old_rows: float, alpha: float) -> Interval:
    """The new rate over the old rate on different rows: the new rows are a binomial share of all that are flagged.

    It is exact if flagged rows are rare, else a little too wide. The upper end is infinite if no old row is flagged.
    """
    low, high = clopper_pearson(new, new + old, alpha) if new + old > 0 else (0.0, 1.0)
    scale = old_rows / new_rows
    return scale * low / (1 - low) if low < 1 else math.inf, scale * high / (1 - high) if high < 1 else math.inf


def _hybrid(new: Interval, old: Interval, correlation: float, alpha: float) -> Interval:
    """The two score intervals joined around the difference of the rates."""
    (k1, n1), (k2, n2) = new, old
    (low1, high1), (low2, high2) = wilson(k1, n1, alpha), wilson(k2, n2, alpha)
    p1, p2 = k1 / n1, k2 / n2

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(one * one - 2 * correlation * one * other + other * other, 0.0))

    down, up = reach(p1 - low1, high2 - p2), reach(high1 - p1, p2 - low2)
    return max(p1 - p2 - down, -1.0), min(p1 - p2 + up, 1.0)
