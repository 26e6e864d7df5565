"""Exact binomial arithmetic on counts: intervals, tails and critical counts, as pure functions.

The intervals are those of Clopper and Pearson (1934). The tails use the incomplete beta function, because
`scipy.stats.binomtest` and `bdtr` lose digits at the rates judged here.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc, betainccinv, betaincinv, betaln

from gate.contract import Floats

CountRange = tuple[int, int]

# A tail that equals alpha/2 exactly proves and does not refute; rounding moves such a tail by less than this.
TIE = 1e-12
LONGEST_SUM = 20_000  # terms; beyond it, integrate
LARGEST_LAW = 1 << 22  # terms; beyond it (very many held-out rows, few fitted) the memory would not suffice


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
    return low, upper_bound(k, n, alpha / 2)


def upper_bound(k: float, n: float, tail: float) -> float:
    """The rate at which k or fewer of n rows have this chance."""
    return 1.0 if k >= n else _beta_quantile(k + 1, n - k, tail, upper=True)


def _beta_quantile(a: float, b: float, tail: float, upper: bool = False) -> float:
    """The x with P(Beta(a, b) <= x) = tail (or > x, with `upper`): Newton's steps on the tail itself, bracketed.

    scipy's inverse is only the starting value. It is right to 2e-12 almost everywhere, but not everywhere: in scipy
    1.17.1 betaincinv(1000, 1e9, 0.5) is 1.90e-6 instead of 1.00e-6. Earlier versions err by a factor for tails below
    1e-14, and return NaN in the middle of more than 10^11 rows.
    """
    cdf, inverse = (betaincc, betainccinv) if upper else (betainc, betaincinv)
    start = float(inverse(a, b, tail))
    x, low, high = a / (a + b) if math.isnan(start) else start, 0.0, 1.0
    for _ in range(100):
        if not low < x < high:
            break
        miss = float(cdf(a, b, x)) - tail
        too_high = miss < 0 if upper else miss > 0
        low, high = (low, x) if too_high else (x, high)
        closer = x - float(_beta_step(a, b, x, -miss if upper else miss))
        if not low <= closer <= high:
            closer = (low + high) / 2
        if abs(closer - x) <= 1e-15 * x:
            return closer
        x = closer
    return x


def _beta_step(a: ArrayLike, b: ArrayLike, x: ArrayLike, miss: ArrayLike) -> Floats:
    """Newton's step: the error of the distribution function of Beta(a, b) at x, divided by its density."""
    a, b = np.asarray(a), np.asarray(b)
    log_density = (a - 1.0) * np.log(x) + (b - 1.0) * np.log1p(-np.asarray(x)) - betaln(a, b)
    return np.asarray(miss * np.exp(np.minimum(-log_density, 700.0)))


def beta_quantiles(a: ArrayLike, b: ArrayLike, q: ArrayLike) -> Floats:
    """The q quantile of Beta(a, b), elementwise: scipy's value if a step of Newton's confirms it, else ours."""
    a, b, q = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (a, b, q)))
    x = np.array(betaincinv(a, b, q))
    with np.errstate(invalid="ignore", divide="ignore"):  # quantiles below 5e-324 are zero
        right = np.abs(_beta_step(a, b, x, betainc(a, b, x) - q)) <= 1e-12 * x
    for i in np.flatnonzero(~right):
        x.flat[i] = _beta_quantile(float(a.flat[i]), float(b.flat[i]), float(q.flat[i]))
    return x


@dataclass(frozen=True)
class CriticalCounts:
    """The false-positive counts at which n rows change the grade of one target.

    proven, observed   smallest and largest count inside, or None if no count is inside
    refuted_*          counts at or beyond this one disprove the target; None if no count can
    """

    proven: CountRange | None
    observed: CountRange | None
    refuted_at_or_below: int | None
    refuted_at_or_above: int | None

    def passing(self, rule: str, n: int) -> CountRange | None:
        """The smallest and largest count of n rows that a rule lets pass, whatever the policy's minimum of rows."""
        if rule == "proven":
            return self.proven
        if rule == "observed":
            return self.observed
        low = -1 if self.refuted_at_or_below is None else self.refuted_at_or_below
        high = n + 1 if self.refuted_at_or_above is None else self.refuted_at_or_above
        return _range_or_none(low + 1, high - 1)

    def refuted(self, n: int) -> list[CountRange]:
        """The counts of n rows that disprove the target."""
        ranges = []
        if self.refuted_at_or_below is not None:
            ranges.append((0, self.refuted_at_or_below))
        if self.refuted_at_or_above is not None:
            ranges.append((self.refuted_at_or_above, n))
        return ranges


@dataclass(frozen=True)
class Band:
    """The true rates that a policy accepts, and what a count k of n rows says about its edges.

    U(k) <= c iff P(Bin(n, c) <= k) <= alpha/2, and L(k) >= c iff P(Bin(n, c) >= k) <= alpha/2. A lower edge at
    or below zero is vacuous, and so is an upper edge at or above one: nothing can lie beyond it. Counts and rows
    may be fractions, because clustered rows are worth fewer independent ones.
    """

    low: Fraction
    high: Fraction
    alpha: Fraction

    @classmethod
    def around(cls, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction) -> Band:
        return cls(fpr * (1 - below), fpr * (1 + above), alpha)

    @cached_property
    def _limits(self) -> tuple[float, float, float, float]:
        half = float(self.alpha / 2)
        return float(self.low), float(self.high), half * (1 + TIE), half * (1 - TIE)

    def few(self, k: float, n: float, edge: float) -> float:
        """The chance that k or fewer of n rows are flagged at this rate."""
        return lower_tail(k, n, edge)

    def many(self, k: float, n: float, edge: float) -> float:
        """The chance that k or more of n rows are flagged at this rate."""
        return upper_tail(k, n, edge)

    def interval(self, k: float, n: float) -> tuple[float, float]:
        """The bounds of the true rate that this band compares with its edges."""
        return clopper_pearson(k, n, float(self.alpha))

    def proves_low(self, k: float, n: float) -> bool:
        edge, _, at_most, _ = self._limits
        return self.low <= 0 or self.many(k, n, edge) <= at_most

    def proves_high(self, k: float, n: float) -> bool:
        _, edge, at_most, _ = self._limits
        return self.high >= 1 or self.few(k, n, edge) <= at_most

    def refutes_low(self, k: float, n: float) -> bool:
        edge, _, _, less = self._limits
        return self.low > 0 and self.few(k, n, edge) < less

    def refutes_high(self, k: float, n: float) -> bool:
        _, edge, _, less = self._limits
        return self.high < 1 and self.many(k, n, edge) < less

    def tail_below(self, k: float, n: float) -> float:
        """The chance of k or fewer at the lower edge; it refutes if it is below alpha/2."""
        return self.few(k, n, self._limits[0]) if self.low > 0 else 1.0

    def tail_above(self, k: float, n: float) -> float:
        """The chance of k or more at the upper edge; it refutes if it is below alpha/2."""
        return self.many(k, n, self._limits[1]) if self.high < 1 else 1.0

    def admits_from_below(self, rule: str, k: int, n: int) -> bool:
        """Whether k is not too few for a rule to pass; once it is, it stays so as n grows."""
        if rule == "proven":
            return self.proves_low(k, n)
        return k >= n * self.low if rule == "observed" else not self.refutes_low(k, n)

    def admits_from_above(self, rule: str, k: int, n: int) -> bool:
        """Whether k is not too many for a rule to pass; once it is not, it stays so as n grows."""
        if rule == "proven":
            return self.proves_high(k, n)
        return k <= n * self.high if rule == "observed" else not self.refutes_high(k, n)


def critical_counts(n: int, band: Band, shares: tuple[float, float] = (1.0, 1.0)) -> CriticalCounts:
    """Invert the intervals once, so that judging is comparing integers.

    Each row is worth `shares` of an independent one to a lower and to an upper bound.
    """
    low, high = shares
    kmin = first(lambda k: band.proves_low(k * low, n * low), 0, n + 1)
    kmax = first(lambda k: not band.proves_high(k * high, n * high), 0, n + 1) - 1
    refuted_low = first(lambda k: not band.refutes_low(k * high, n * high), 0, n + 1) - 1
    refuted_high = first(lambda k: band.refutes_high(k * low, n * low), 0, n + 1)
    observed = max(math.ceil(n * band.low), 0), min(math.floor(n * band.high), n)
    return CriticalCounts(
        proven=_range_or_none(kmin, kmax),
        observed=_range_or_none(*observed),
        refuted_at_or_below=refuted_low if refuted_low >= 0 else None,
        refuted_at_or_above=refuted_high if refuted_high <= n else None,
    )


def first(holds: Callable[[int], bool], start: int, stop: int) -> int:
    """The first integer in [start, stop) at which a monotone condition holds, else stop."""
    return start + bisect_left(range(start, stop), True, key=holds)


def _range_or_none(low: int, high: int) -> CountRange | None:
    return (low, high) if low <= high else None


def beta_cdf(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Floats:
    """P(Beta(a, b) <= x), elementwise."""
    return np.asarray(betainc(a, b, x))


class CountLaw:
    """The law of a count, given by the ratios of neighbouring terms on a window that holds all but 1e-20 of it.

    Differences of log-gammas lose six digits at n = 1e9; ratios lose none.
    """

    def __init__(self, start: int, ratios: Floats) -> None:
        logs = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
        terms = np.exp(logs - logs.max())
        terms /= terms.sum()
        self.start, self.stop, self._terms = start, start + len(terms) - 1, terms
        self._at_most = np.cumsum(terms)
        self._at_least = np.cumsum(terms[::-1])[::-1]

    def at_most(self, k: NDArray[np.int64]) -> Floats:
        inside = self._at_most[np.clip(k, self.start, self.stop) - self.start]
        return np.where(k < self.start, 0.0, inside)

    def at_least(self, k: NDArray[np.int64]) -> Floats:
        inside = self._at_least[np.clip(k, self.start, self.stop) - self.start]
        return np.where(k > self.stop, 0.0, inside)

    def between(self, counts: CountRange) -> float:
        """P(low <= K <= high)."""
        below, above = self.at_most(np.array([counts[0] - 1])), self.at_least(np.array([counts[1] + 1]))
        return max(0.0, 1.0 - float(below[0]) - float(above[0])) if counts[0] <= counts[1] else 0.0

    def two_sided(self, k: NDArray[np.int64]) -> Floats:
        """Twice the smaller tail, at most 1."""
        return np.minimum(1.0, 2.0 * np.minimum(self.at_most(k), self.at_least(k)))

    def no_likelier_than(self, k: int) -> float:
        """The chance of all counts that are at most as likely as k; terms equal but for rounding count as equal."""
        if not self.start <= k <= self.stop:
            return 0.0
        likely = self._terms > self._terms[k - self.start] * (1 + 1e-9)
        return min(1.0, float(np.sum(self._terms[~likely])))

    def quantiles(self, alpha: float) -> CountRange:
        """The narrowest counts beyond which at most alpha/2 lies on each side."""
        low = int(np.searchsorted(self._at_most, alpha / 2, side="right"))
        high = len(self._at_least) - 1 - int(np.searchsorted(self._at_least[::-1], alpha / 2, side="right"))
        return self.start + low, self.start + high


def beta_binomial_between(n: int, a: float, b: float, counts: CountRange) -> float:
    """P(low <= K <= high) for K ~ BetaBinomial(n, a, b): summed, or integrated where the sum would be too long."""
    if counts[0] > counts[1]:
        return 0.0
    if _beta_binomial_deviation(n, a, b) <= LONGEST_SUM / 40:
        return beta_binomial(n, a, b).between(counts)
    rates, weights = _nodes_between_cuts(a, b, np.array([k / n + t * _deviation(k, n) for k in counts for t in _STEPS]))
    at_least, beyond = (_upper_tails(k, n, rates) for k in (counts[0], counts[1] + 1))
    return float(np.sum(weights * (at_least - beyond)))


def beta_binomial_quantiles(n: int, a: float, b: float, alpha: float) -> CountRange:
    """The narrowest counts beyond which at most alpha/2 of BetaBinomial(n, a, b) lies on each side."""
    if _beta_binomial_deviation(n, a, b) <= LARGEST_LAW / 40:
        return beta_binomial(n, a, b).quantiles(alpha)
    low = bisect_right(range(n), alpha / 2, key=lambda k: beta_binomial_between(n, a, b, (0, k)))
    above = bisect_right(range(n), alpha / 2, key=lambda k: beta_binomial_between(n, a, b, (n - k, n)))
    return low, n - above


_STEPS = (-8.0, -5.0, -3.0, -1.0, 1.0, 3.0, 5.0, 8.0)  # deviations around an edge; between them its tail is smooth
_SPREADS = np.array(
    [t * side for t in (0.0, 1.0, 2.0, 3.5, 5.0, 7.0, 10.0, 14.0, 20.0, 30.0, 45.0) for side in (-1, 1)]
)
_GAUSS = [(np.polynomial.legendre.leggauss(16)[i] + 1 - i) / 2 for i in (0, 1)]  # nodes and weights on [0, 1]


def _deviation(k: int, n: int) -> float:
    return math.sqrt(max(k * (1 - k / n), 1.0)) / n


def _nodes_between_cuts(a: float, b: float, cuts: Floats) -> tuple[Floats, Floats]:
    """Rates and weights that integrate over Beta(a, b), by Gauss's rule between cuts and deep into both tails."""
    nodes, weights = _GAUSS
    if min(a, b) < 1:  # the density has no bound: integrate over levels, which takes the inverse, not over rates
        tails = np.array([1e-12, 1e-9, 1e-6, 1e-3, 0.03])
        inner = beta_cdf(a, b, np.clip(cuts, 0.0, 1.0))
        ends = np.unique(np.concatenate([[0.0, 0.5, 1.0], tails, 1 - tails, inner]))
        widths = np.diff(ends)[:, None]
        levels = ends[:-1, None] + widths * nodes
        return beta_quantiles(a, b, levels.ravel()), (widths * weights).ravel()
    mean = a / (a + b)
    spread = math.sqrt(mean * (1 - mean) / (a + b + 1))
    ends = np.unique(np.clip(np.concatenate([[0.0, 1.0], mean + spread * _SPREADS, cuts]), 0.0, 1.0))
    widths = np.diff(ends)[:, None]
    rates = (ends[:-1, None] + widths * nodes).ravel()
    with np.errstate(divide="ignore"):  # no mass lies where a rate is rounded to 1
        logs = (a - 1) * np.log(rates / mean) + (b - 1) * np.log1p((mean - rates) / (1 - mean))
    density = np.exp(logs - logs.max()) * (widths * weights).ravel()
    felt = density > 1e-20 * density.max()
    return rates[felt], density[felt] / density[felt].sum()


def _upper_tails(k: int, n: int, rates: Floats) -> Floats:
    if k <= 0:
        return np.ones_like(rates)
    return np.zeros_like(rates) if k > n else np.asarray(betainc(k, n - k + 1, rates))


def _beta_binomial_deviation(n: int, a: float, b: float) -> float:
    return math.sqrt(n * a * b * (a + b + n) / ((a + b) ** 2 * (a + b + 1)))


def beta_binomial(n: int, a: float, b: float) -> CountLaw:
    """The law of how many of n rows exceed a threshold whose exceedance rate has the law Beta(a, b)."""
    mean, deviation = n * a / (a + b), _beta_binomial_deviation(n, a, b)
    start = max(0, math.floor(mean - 20 * deviation - 40))
    stop = min(n, math.ceil(mean + 20 * (1 + 2 / a) * deviation + 40))  # a small `a` has an exponential tail
    k = np.arange(start, stop, dtype=np.float64)
    return CountLaw(start, (n - k) / (n - k - 1 + b) * ((k + a) / (k + 1)))


def hypergeometric(total: int, marked: int, drawn: int) -> CountLaw:
    """The law of how many of the `marked` rows among `total` are among `drawn` rows."""
    lowest, highest = max(0, marked - (total - drawn)), min(marked, drawn)
    share = drawn / total
    deviation = math.sqrt(marked * share * (1 - share) * (total - marked) / max(1, total - 1))
    start = max(lowest, math.floor(marked * share - 20 * deviation - 40))
    stop = min(highest, math.ceil(marked * share + 20 * deviation + 40))
    k = np.arange(start, stop, dtype=np.float64)
    return CountLaw(start, (marked - k) / (k + 1) * ((drawn - k) / (total - marked - drawn + k + 1)))
