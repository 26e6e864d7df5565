"""Exact binomial arithmetic on counts: intervals, tails and critical counts, as pure functions.

Clopper and Pearson (1934). The tails go through the incomplete beta function: `scipy.stats.binomtest` and
`bdtr` lose digits at the rates judged here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc, betainccinv, betaincinv, betaln

Range = tuple[int, int]
Floats = NDArray[np.float64]

# A tail that equals alpha/2 exactly proves and does not refute; where that happens, rounding moves it by less.
TIE = 1e-12


def lower_tail(k: float, n: float, p: float) -> float:
    """P(Bin(n, p) <= k)."""
    if k < 0:
        return 0.0
    return 1.0 if k >= n else float(betaincc(k + 1, n - k, p))


def upper_tail(k: float, n: float, p: float) -> float:
    """P(Bin(n, p) >= k)."""
    if k <= 0:
        return 1.0
    return 0.0 if k > n else float(betainc(k, n - k + 1, p))


def clopper_pearson(k: float, n: float, alpha: float) -> tuple[float, float]:
    """The interval that misses the true rate with probability at most `alpha`, half of it on each side."""
    low = 0.0 if k <= 0 else _beta_quantile(k, n - k + 1, alpha / 2)
    high = 1.0 if k >= n else _beta_quantile(k + 1, n - k, alpha / 2, upper=True)
    return low, high


def _beta_quantile(a: float, b: float, tail: float, upper: bool = False) -> float:
    """The x with P(Beta(a, b) <= x) = tail (or > x, with `upper`): Newton's steps on the tail itself, bracketed.

    The inverse functions of scipy are only where it starts: for tails below 1e-14 some are off by a factor.
    """
    cdf, inverse = (betaincc, betainccinv) if upper else (betainc, betaincinv)
    x, low, high = float(inverse(a, b, tail)), 0.0, 1.0
    for _ in range(100):
        if not low < x < high:
            break
        miss = float(cdf(a, b, x)) - tail
        too_high = miss < 0 if upper else miss > 0
        low, high = (low, x) if too_high else (x, high)
        log_density = (a - 1.0) * math.log(x) + (b - 1.0) * math.log1p(-x) - float(betaln(a, b))
        step = math.copysign(abs(miss) * math.exp(min(-log_density, 700.0)), 1.0 if too_high else -1.0)
        closer = x - step if low <= x - step <= high else (low + high) / 2
        if abs(closer - x) <= 1e-15 * x:
            return closer
        x = closer
    return x


@dataclass(frozen=True)
class CriticalCounts:
    """The false-positive counts at which n rows change the grade of one target.

    proven, observed   smallest and largest count inside, or None where no count is
    refuted_*          the counts that disprove it at or beyond these, or None where none can
    """

    proven: Range | None
    observed: Range | None
    refuted_at_or_below: int | None
    refuted_at_or_above: int | None


def critical_counts(n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction) -> CriticalCounts:
    """Invert the intervals once, so that judging is comparing integers.

    U(k) <= c iff P(Bin(n, c) <= k) <= alpha/2, and L(k) >= c iff P(Bin(n, c) >= k) <= alpha/2. A lower edge at
    or below zero is vacuous, and so is an upper edge at or above one: nothing can lie beyond it.
    """
    low, high, half = fpr * (1 - below), fpr * (1 + above), float(alpha / 2)
    at_most, less = half * (1 + TIE), half * (1 - TIE)
    kmin, kmax = 0, n
    refuted_low = refuted_high = None
    if low > 0:
        edge = float(low)
        kmin = first(lambda k: upper_tail(k, n, edge) <= at_most, 0, n + 1)
        refuted_low = _none_below(first(lambda k: not lower_tail(k, n, edge) < less, 0, n + 1) - 1)
    if high < 1:
        edge_high = float(high)
        kmax = first(lambda k: not lower_tail(k, n, edge_high) <= at_most, 0, n + 1) - 1
        lowest = first(lambda k: upper_tail(k, n, edge_high) < less, 0, n + 1)
        refuted_high = lowest if lowest <= n else None
    observed = max(math.ceil(n * low), 0), min(math.floor(n * high), n)
    return CriticalCounts(
        proven=_range_or_none(kmin, kmax),
        observed=_range_or_none(*observed),
        refuted_at_or_below=refuted_low,
        refuted_at_or_above=refuted_high,
    )


def rows_to_prove(
    k: int,
    n: int,
    fpr: Fraction,
    above: Fraction,
    below: Fraction,
    alpha: Fraction,
    at_least: int = 1,
    limit: int = 10**12,
) -> int | None:
    """The fewest rows, neither below n nor `at_least`, at which the share k/n (rounded down) is proven.

    None where no number of rows below `limit` would do. Rounding down makes the proof a saw-tooth in the rows:
    with the unrounded share less one at the upper edge, and the unrounded share at the lower, it is monotone and
    never later, so bisection says where to start. From there each count is tried: at the lower edge its fewest
    rows are best, at the upper edge its most.
    """
    low, high, half = fpr * (1 - below), fpr * (1 + above), float(alpha / 2) * (1 + TIE)
    if (high < 1 and Fraction(k, n) >= high) or 0 < low >= Fraction(k, n):
        return None
    low_edge, high_edge = float(low), float(high)

    def few_enough(count: float, rows: int) -> bool:
        return high >= 1 or lower_tail(count, rows, high_edge) <= half

    def enough(count: float, rows: int) -> bool:
        return low <= 0 or upper_tail(count, rows, low_edge) <= half

    rows = max(n, at_least)
    if k > 0:
        rows = first(lambda m: few_enough(m * k / n - 1, m) and enough(m * k / n, m), rows, limit)
    while rows < limit:
        count = rows * k // n
        stop = min(-(-(count + 1) * n // k), limit) if k else limit
        if enough(count, rows) and few_enough(count, stop - 1):
            found = first(partial(few_enough, count), rows, stop)
            if enough(count, found):
                return found
        rows = stop
    return None


def first(holds: Callable[[int], bool], start: int, stop: int) -> int:
    """The first integer in [start, stop) at which a monotone condition holds, else stop."""
    while start < stop:
        middle = (start + stop) // 2
        if holds(middle):
            stop = middle
        else:
            start = middle + 1
    return start


def _range_or_none(low: int, high: int) -> Range | None:
    return (low, high) if low <= high else None


def _none_below(count: int) -> int | None:
    return count if count >= 0 else None


def beta_cdf(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Floats:
    """P(Beta(a, b) <= x), elementwise."""
    return np.asarray(betainc(a, b, x))


def beta_quantiles(a: ArrayLike, b: ArrayLike, q: float) -> Floats:
    """The q quantile of Beta(a, b), elementwise."""
    return np.asarray(betaincinv(a, b, q))


class CountLaw:
    """The law of a count, known by the ratios of its neighbouring terms on a window that holds all but 1e-20 of it.

    Differences of log-gammas lose six digits at n = 1e9; ratios lose none.
    """

    def __init__(self, start: int, ratios: Floats) -> None:
        logs = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
        terms = np.exp(logs - logs.max())
        terms /= terms.sum()
        self.start, self.stop = start, start + len(terms) - 1
        self._at_most = np.cumsum(terms)
        self._at_least = np.cumsum(terms[::-1])[::-1]

    def at_most(self, k: NDArray[np.int64]) -> Floats:
        inside = self._at_most[np.clip(k, self.start, self.stop) - self.start]
        return np.where(k < self.start, 0.0, inside)

    def at_least(self, k: NDArray[np.int64]) -> Floats:
        inside = self._at_least[np.clip(k, self.start, self.stop) - self.start]
        return np.where(k > self.stop, 0.0, inside)

    def between(self, counts: Range) -> float:
        """P(low <= K <= high)."""
        below, above = self.at_most(np.array([counts[0] - 1])), self.at_least(np.array([counts[1] + 1]))
        return max(0.0, 1.0 - float(below[0]) - float(above[0])) if counts[0] <= counts[1] else 0.0

    def two_sided(self, k: NDArray[np.int64]) -> Floats:
        """Twice the smaller tail, at most 1."""
        return np.minimum(1.0, 2.0 * np.minimum(self.at_most(k), self.at_least(k)))

    def quantiles(self, alpha: float) -> Range:
        """The narrowest counts beyond which at most alpha/2 lies on each side."""
        low = int(np.searchsorted(self._at_most, alpha / 2, side="right"))
        high = len(self._at_least) - 1 - int(np.searchsorted(self._at_least[::-1], alpha / 2, side="right"))
        return self.start + low, self.start + high


def beta_binomial(n: int, a: float, b: float) -> CountLaw:
    """How many of n rows exceed a threshold whose exceedance rate is itself Beta(a, b)."""
    mean = n * a / (a + b)
    deviation = math.sqrt(n * a * b * (a + b + n) / ((a + b) ** 2 * (a + b + 1)))
    start = max(0, math.floor(mean - 20 * deviation - 40))
    stop = min(n, math.ceil(mean + 20 * (1 + 2 / a) * deviation + 40))  # a small `a` has an exponential tail
    k = np.arange(start, stop, dtype=np.float64)
    return CountLaw(start, (n - k) / (n - k - 1 + b) * ((k + a) / (k + 1)))


def hypergeometric(total: int, marked: int, drawn: int) -> CountLaw:
    """How many of `marked` rows among `total` are found in `drawn` of them."""
    lowest, highest = max(0, marked - (total - drawn)), min(marked, drawn)
    share = drawn / total
    deviation = math.sqrt(marked * share * (1 - share) * (total - marked) / max(1, total - 1))
    start = max(lowest, math.floor(marked * share - 20 * deviation - 40))
    stop = min(highest, math.ceil(marked * share + 20 * deviation + 40))
    k = np.arange(start, stop, dtype=np.float64)
    return CountLaw(start, (marked - k) / (k + 1) * ((drawn - k) / (total - marked - drawn + k + 1)))
