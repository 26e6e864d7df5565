"""Exact binomial arithmetic on counts: intervals, tails and critical counts, as pure functions.

Clopper and Pearson (1934). The tails go through the incomplete beta function: `scipy.stats.binomtest` and
`bdtr` lose digits at the rates judged here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from scipy.special import betainc, betaincc, betaincinv, betaln

Range = tuple[int, int]


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
    """The x with P(Beta(a, b) <= x) = tail (or > x, with `upper`), polished by Newton steps on the tail itself."""
    cdf: Callable[[float, float, float], float] = betaincc if upper else betainc
    sign = -1.0 if upper else 1.0
    x = float(betaincinv(a, b, 1.0 - tail if upper else tail))
    for _ in range(3):
        if not 0.0 < x < 1.0:
            break
        log_density = (a - 1.0) * math.log(x) + (b - 1.0) * math.log1p(-x) - float(betaln(a, b))
        step = sign * (float(cdf(a, b, x)) - tail) * math.exp(-log_density)
        if not math.isfinite(step) or abs(step) > 0.1 * x:
            break
        x -= step
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
    kmin, kmax = 0, n
    refuted_low = refuted_high = None
    if low > 0:
        edge = float(low)
        kmin = _first(lambda k: upper_tail(k, n, edge) <= half, 0, n + 1)
        refuted_low = _none_below(_first(lambda k: not lower_tail(k, n, edge) < half, 0, n + 1) - 1)
    if high < 1:
        edge_high = float(high)
        kmax = _first(lambda k: not lower_tail(k, n, edge_high) <= half, 0, n + 1) - 1
        first = _first(lambda k: upper_tail(k, n, edge_high) < half, 0, n + 1)
        refuted_high = first if first <= n else None
    observed = max(math.ceil(n * low), 0), min(math.floor(n * high), n)
    return CriticalCounts(
        proven=_range_or_none(kmin, kmax),
        observed=_range_or_none(*observed),
        refuted_at_or_below=refuted_low,
        refuted_at_or_above=refuted_high,
    )


def rows_to_prove(
    k: int, n: int, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction, limit: int = 10**12
) -> int | None:
    """The fewest rows, at least n, at which the same share k/n of false positives (rounded down) is proven.

    None where no number of rows below `limit` would do. For each count the rows run from the first that holds it
    to the last before one more is due, and more of them help at the upper edge only: the first that satisfy the
    upper edge are tried against the lower. Few counts are tried one by one, many by doubling and bisection.
    """
    low, high, half = fpr * (1 - below), fpr * (1 + above), float(alpha / 2)
    rate = Fraction(k, n)
    if rate >= high or 0 < low >= rate:
        return None
    low_edge, high_edge = float(low), float(high)

    def rows_for(count: int) -> int | None:
        start = max(n, math.ceil(count / rate)) if k else n
        stop = math.ceil((count + 1) / rate) if k else limit
        if high < 1:
            start = _first(lambda rows: lower_tail(count, rows, high_edge) <= half, start, stop)
        proven_low = low <= 0 or (start < stop and upper_tail(count, start, low_edge) <= half)
        return start if start < stop and proven_low else None

    last = math.floor(limit * rate)
    for count in range(k, min(k + 64, last) + 1):
        if (rows := rows_for(count)) is not None:
            return rows
    reach = k + 64
    while reach < last and rows_for(reach) is None:
        reach *= 2
    if reach >= last:
        return None
    return rows_for(_first(lambda count: rows_for(count) is not None, reach // 2, reach))


def _first(holds: Callable[[int], bool], start: int, stop: int) -> int:
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
