"""Clustered rows: how many independent ones they are worth to a bound of their rate. No judgement.

Rows of one group are flagged together more often than other rows. The groups that have flagged rows show how much more
often. Of the other groups, perhaps the largest among them, only the sizes are known. So the upper bound compares the
count with its law given all sizes, with beta-binomial groups as unlike one another as the counts allow. The lower bound
uses the variance between groups, which is large whenever a large group has been flagged. Both bounds are approximate:
`tests/README.md` has the results of simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import betaln, ndtri, stdtrit

from gate.contract import Floats
from gate.statistics.binomial import upper_bound
from gate.statistics.grouped import Sizes, bins_of, tails

FINE, FINE_RATIO = 64, 1.02  # sizes up to 64 rows each have a cell; larger sizes within 2 % share one
COARSE, COARSE_RATIO = 16, 1.08  # the cells if more than MANY groups have flagged rows
MANY = 1000
DROP = 0.5  # groups may be so unlike one another that the log-likelihood drops by this much
LEAST, MOST = 1e-6, 0.999  # correlation of two rows of a group
_CORRELATIONS = np.log(
    np.concatenate([np.geomspace(LEAST, 0.03, 13), [0.05, 0.08, 0.12, 0.18, 0.25, 0.35, 0.5, 0.7, 0.9, 0.97, MOST]])
)


class Effective(NamedTuple):
    """How many independent rows clustered ones are worth to a lower and to an upper bound of their rate."""

    low: float
    high: float


def effective_rows(sizes: Floats, counts: Floats, alpha: float) -> Effective:
    """What groups of these sizes, with so many flagged rows each, are worth to bounds that miss alpha/2 each.

    For several counts of the same groups, use `Groups`.
    """
    return Groups(sizes).worth(counts, alpha)


class Groups:
    """The groups of one sample by their sizes, tabulated once for the counts of many thresholds."""

    def __init__(self, sizes: Floats) -> None:
        self.sizes = np.asarray(sizes, dtype=np.float64)
        self.n, self.squares = float(self.sizes.sum()), float(np.sum(self.sizes**2))
        self.largest = float(self.sizes.max(initial=0.0))
        self._bins = bins_of(self.sizes, FINE, FINE_RATIO)
        self._of_bin = np.bincount(self._bins).astype(np.float64)
        self._rows_of_bin = np.bincount(self._bins, self.sizes)

    @property
    def kish(self) -> float:
        """The rows that groups are worth if all rows of a group are alike, by their sizes alone (Kish 1965)."""
        return self.n**2 / self.squares

    def worth(self, counts: Floats, alpha: float) -> Effective:
        """The rows for which Clopper and Pearson's interval, at the observed rate, has the bounds of the groups.

        If no row or every row is flagged, the counts do not show how groups differ, and the number is Kish's: n^2 / sum
        of squared sizes. A large group may hide rows of the rarer kind, flagged or not; so if more than half are
        flagged, the sides change places.
        """
        n, k = self.n, float(counts.sum())
        if len(self.sizes) < 2:
            return Effective(1.0, 1.0)
        if self.largest <= 1:
            return Effective(n, n)
        if k <= 0 or k >= n:
            return Effective(self.kish, self.kish)
        if k > n / 2:
            return Effective(*reversed(self.worth(self.sizes - counts, alpha)))
        bound = _bound_of_groups(self._tabulate(counts), n, k, alpha / 2)
        return Effective(self.korn_graubard(counts, alpha), _rows_with_bound(k / n, n, bound, alpha / 2))

    def korn_graubard(self, counts: Floats, alpha: float) -> float:
        """Effective rows by the variance between groups; see `korn_graubard` below."""
        hit = np.flatnonzero(counts)
        k, m, rate = counts[hit], self.sizes[hit], float(counts.sum()) / self.n
        squares = float(np.sum(k * k - 2 * rate * k * m)) + rate**2 * self.squares
        return _by_variance(max(squares, 0.0), self.n, len(self.sizes), rate * (1 - rate), alpha)

    def _tabulate(self, counts: Floats) -> _CountsBySize:
        """Cells of groups that hardly differ: unflagged groups by size, other groups by size and flagged rows.

        If there are so many groups that cells must be coarse, these cells alone still show the correlation of rows.
        """
        hit = np.flatnonzero(counts)
        flagged, left = counts[hit], self.sizes[hit] - counts[hit]
        bins = self._bins[hit]
        silent = self._of_bin - np.bincount(bins, minlength=len(self._of_bin))
        rows = self._rows_of_bin - np.bincount(bins, self.sizes[hit], minlength=len(self._of_bin))
        some, any_ = silent > 0, self._of_bin > 0
        cell = (COARSE, COARSE_RATIO) if len(hit) > MANY else (FINE, FINE_RATIO)
        wide = bins_of(left, *cell)
        cells = bins_of(flagged, *cell) * (int(wide.max(initial=0)) + 1) + wide
        of_cell = np.bincount(cells)
        found = np.flatnonzero(of_cell)
        of_cell = of_cell[found]
        means = [np.bincount(cells, part)[found] / of_cell for part in (flagged, left)]
        return _CountsBySize(
            sizes=Sizes(self._rows_of_bin[any_] / self._of_bin[any_], self._of_bin[any_]),
            flagged=np.append(np.zeros(int(some.sum())), means[0]),
            left=np.append(rows[some] / silent[some], means[1]),
            of_cell=np.append(silent[some], of_cell),
        )


def korn_graubard(sizes: Floats, counts: Floats, alpha: float, spread: float | None = None) -> float:
    """The effective rows of Korn and Graubard (1998), by the variance between groups over that of independent rows.

    The quantiles of Student's t allow for few groups. `spread` is the variance of one row's value if it is not 0 or 1.
    """
    n, groups = float(sizes.sum()), len(sizes)
    if groups < 2:
        return 1.0
    rate = float(counts.sum()) / n
    spread = rate * (1 - rate) if spread is None else spread
    if spread <= 0:
        return n**2 / float(np.sum(sizes**2))
    return _by_variance(float(np.sum((counts - rate * sizes) ** 2)), n, groups, spread, alpha)


def _by_variance(squares: float, n: float, groups: int, spread: float, alpha: float) -> float:
    """The effective rows, from the sum of squared differences between groups' counts and those expected by size."""
    variance = groups / (groups - 1) * squares / n**2
    few_groups = float(stdtrit(n - 1, alpha / 2) / stdtrit(groups - 1, alpha / 2)) ** 2
    return min(n, n / max(1.0, variance * n / spread) * few_groups)


# --- the upper bound ----------------------------------------------------------------------------------------


class _CountsBySize(NamedTuple):
    """How many groups there are of each size, with so many rows flagged and so many left."""

    sizes: Sizes
    flagged: Floats
    left: Floats
    of_cell: Floats


def _bound_of_groups(known: _CountsBySize, n: float, k: float, tail: float) -> float:
    """The rate at which so few flagged rows have this chance, if groups are as unlike as they may be at that rate."""
    bound = upper_bound(k, n, tail)
    for _ in range(12):  # the correlation hardly changes with the rate, so a few steps settle both
        if bound >= 1:
            return 1.0
        correlation = _largest_correlation(known, bound)
        last, bound = bound, _rate_with_tail(known, k, correlation, tail)
        if abs(bound - last) <= 5e-4 * bound:
            break
    return bound


def _largest_correlation(known: _CountsBySize, rate: float) -> float:
    """The largest correlation of two rows of a group, at this rate, whose log-likelihood is within DROP of the best."""

    def likelihood(logs: Floats) -> Floats:
        correlations = np.exp(logs)
        strength = (1 - correlations) / correlations
        a, b = rate * strength, (1 - rate) * strength
        terms = betaln(known.flagged[:, None] + a, known.left[:, None] + b)
        return np.asarray(np.sum((terms - betaln(a, b)).T * known.of_cell, axis=1))

    logs = _CORRELATIONS
    values = likelihood(logs)
    for _ in range(3):
        i = int(values.argmax())
        more = np.linspace(logs[max(i - 1, 0)], logs[min(i + 1, len(logs) - 1)], 7)[1:-1]
        logs, values = np.concatenate([logs, more]), np.concatenate([values, likelihood(more)])
        order = np.argsort(logs)
        logs, values = logs[order], values[order]
    enough = values.max() - DROP
    i = int(np.flatnonzero(values >= enough)[-1])
    if i == len(logs) - 1:
        return MOST
    low, high = logs[i], logs[i + 1]
    for _ in range(3):
        steps = np.linspace(low, high, 8)
        last = int(np.flatnonzero(np.append(True, likelihood(steps[1:-1]) >= enough))[-1])
        low, high = steps[last], steps[last + 1]
    return float(np.exp(low))


def _rate_with_tail(known: _CountsBySize, k: float, correlation: float, tail: float) -> float:
    """The rate at which k or fewer flagged rows have this chance; 1 if no rate gives so small a chance."""
    wanted = float(ndtri(tail))

    def miss(log_rate: float) -> float:
        rate = math.exp(log_rate)
        if k + 1 >= rate * n:
            return -wanted
        chance = float(tails(known.sizes, np.array([k + 1]), np.array([rate]), correlation).below[0])
        return float(ndtri(min(max(chance, 1e-300), 0.5))) - wanted

    n = known.sizes.n
    low, high = math.log(k / n), math.log(min(2 * k / n + 3 / n, 1 - 1e-9))
    while miss(high) > 0:
        if high >= math.log(1 - 1e-9):
            return 1.0
        low, high = high, min(high + math.log(2), math.log(1 - 1e-9))
    return math.exp(_crossing(miss, low, high))


def _crossing(value: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a falling function, by the rule of false position with halved ends (the Illinois method)."""
    at_low, at_high = value(low), value(high)
    side = 0
    for _ in range(60):
        middle = low + (high - low) * at_low / (at_low - at_high) if at_low > at_high else (low + high) / 2
        found = value(middle)
        if abs(high - low) <= 1e-5 or abs(found) <= 1e-5:
            return middle
        if found > 0:
            low, at_low = middle, found
            at_high = at_high / 2 if side > 0 else at_high
            side = 1
        else:
            high, at_high = middle, found
            at_low = at_low / 2 if side < 0 else at_low
            side = -1
    return (low + high) / 2


def _rows_with_bound(rate: float, n: float, bound: float, tail: float) -> float:
    """The rows whose Clopper and Pearson upper bound, at the observed rate, is this one; at most n."""
    low, high = 1e-6, n
    if bound >= 1 or upper_bound(rate * n, n, tail) >= bound:
        return low if bound >= 1 else n
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        is_above = upper_bound(rate * middle, middle, tail) > bound
        low, high = (middle, high) if is_above else (low, middle)
    return high
