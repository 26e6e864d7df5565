"""Clustered rows: how many independent ones they are worth to a bound of their rate. No judgement.

A group's rows are flagged together more often than others are. How much more is learnt from the groups that have
flagged rows; what the others, among them perhaps the largest, would do is not seen, but their sizes are known. So the
upper bound holds the count against its law given all sizes, with beta-binomial groups as unlike one another as the
counts allow; the lower bound takes the variance between groups, which is large whenever a large group has been flagged.
Both are approximate: `tests/README.md` has what simulations show. Sums are NumPy's own, not matrix products: threads
of a BLAS library wait for one another on arrays as small as these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.special import betainccinv, betaln, ndtr, ndtri, stdtrit

from gate.contract import Floats

NODES = 48  # of the integral over the rates of groups
DROP = 0.5  # of the log-likelihood, up to which groups may be unlike one another
LEAST, MOST = 1e-6, 0.999  # correlation of two rows of a group
_CORRELATIONS = np.log(
    np.concatenate([np.geomspace(LEAST, 0.03, 13), [0.05, 0.08, 0.12, 0.18, 0.25, 0.35, 0.5, 0.7, 0.9, 0.97, MOST]])
)


class Effective(NamedTuple):
    """How many independent rows clustered ones are worth to a lower and to an upper bound of their rate."""

    low: float
    high: float


def effective_rows(sizes: Floats, counts: Floats, alpha: float) -> Effective:
    """Of groups of these sizes, so many rows each are flagged: what they are worth to bounds that miss alpha/2 each.

    The interval of Clopper and Pearson on so many rows, with the rate observed, has these bounds. Where nothing, or
    all, is flagged nothing is seen of how groups differ: Kish's n^2 / sum of squared sizes. The rarer of flagged and
    not flagged is what a large group may hide: where more than half is flagged, the sides change places.
    """
    n, k = float(sizes.sum()), float(counts.sum())
    if len(sizes) < 2:
        return Effective(1.0, 1.0)
    if sizes.max() <= 1:
        return Effective(n, n)
    if k <= 0 or k >= n:
        kish = n**2 / float(np.sum(sizes**2))
        return Effective(kish, kish)
    if k > n / 2:
        return Effective(*reversed(effective_rows(sizes, sizes - counts, alpha)))
    bound = _upper_bound(sizes, counts, alpha / 2)
    return Effective(korn_graubard(sizes, counts, alpha), _rows_with_bound(k / n, n, bound, alpha / 2))


def korn_graubard(sizes: Floats, counts: Floats, alpha: float, spread: float | None = None) -> float:
    """The effective rows of Korn and Graubard (1998): the variance between groups against that of independent rows.

    The quantiles of Student's t allow for few groups. `spread` is the variance of one row's value where that is not 0
    or 1.
    """
    n, groups = float(sizes.sum()), len(sizes)
    if groups < 2:
        return 1.0
    rate = float(counts.sum()) / n
    spread = rate * (1 - rate) if spread is None else spread
    if spread <= 0:
        return n**2 / float(np.sum(sizes**2))
    variance = groups / (groups - 1) * float(np.sum((counts - rate * sizes) ** 2)) / n**2
    few_groups = float(stdtrit(n - 1, alpha / 2) / stdtrit(groups - 1, alpha / 2)) ** 2
    return min(n, n / max(1.0, variance * n / spread) * few_groups)


# --- the upper bound ----------------------------------------------------------------------------------------


class _Counts(NamedTuple):
    """Groups by size, and by size and count: so many of each."""

    sizes: Floats
    of_size: Floats
    pair_sizes: Floats
    pair_counts: Floats
    of_pair: Floats


def _upper_bound(sizes: Floats, counts: Floats, tail: float) -> float:
    """The rate at which so few flagged rows have this chance, groups being as unlike as they may be at that rate."""
    n, k = float(sizes.sum()), float(counts.sum())
    longest = int(sizes.max()) + 1
    pairs, of_pair = np.unique(sizes.astype(np.int64) * longest + counts.astype(np.int64), return_counts=True)
    distinct, of_size = np.unique(sizes, return_counts=True)
    columns = (distinct, of_size, pairs // longest, pairs % longest, of_pair)
    known = _Counts(*(column.astype(np.float64) for column in columns))
    bound = float(betainccinv(k + 1, n - k, tail))
    for _ in range(12):  # the correlation hardly moves with the rate: a few steps settle both
        correlation = _largest_correlation(known, bound)
        last, bound = bound, _rate_with_tail(known, k, correlation, tail)
        if abs(bound - last) <= 5e-4 * bound:
            break
    return bound


def _largest_correlation(known: _Counts, rate: float) -> float:
    """Of two rows of a group, at this rate: the largest that the counts leave within DROP of the likeliest."""

    def likelihood(logs: Floats) -> Floats:
        correlations = np.exp(logs)
        strength = (1 - correlations) / correlations
        a, b = rate * strength, (1 - rate) * strength
        terms = betaln(known.pair_counts[:, None] + a, (known.pair_sizes - known.pair_counts)[:, None] + b)
        return np.asarray(np.sum((terms - betaln(a, b)).T * known.of_pair, axis=1))

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


def _rate_with_tail(known: _Counts, k: float, correlation: float, tail: float) -> float:
    """The rate at which k or fewer flagged rows have this chance; 1 where none has so small a one."""
    wanted = float(ndtri(tail))

    def miss(log_rate: float) -> float:
        chance = _lower_tail(known, k, math.exp(log_rate), correlation)
        return float(ndtri(min(max(chance, 1e-300), 0.5))) - wanted

    n = float(known.sizes @ known.of_size)
    low, high = math.log(k / n), math.log(min(2 * k / n + 3 / n, 1 - 1e-9))
    while miss(high) > 0:
        if high >= math.log(1 - 1e-9):
            return 1.0
        low, high = high, min(high + math.log(2), math.log(1 - 1e-9))
    return math.exp(_crossing(miss, low, high))


def _crossing(value: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function is zero, by the rule of false position with halved ends (the Illinois method)."""
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


def _lower_tail(known: _Counts, k: float, rate: float, correlation: float) -> float:
    """P(K <= k) for the sum of beta-binomial groups, by the saddlepoint (Lugannani and Rice 1980; Daniels 1987)."""
    strength = (1 - correlation) / correlation
    rates, weights = _beta_nodes(rate * strength, (1 - rate) * strength)
    sizes, groups = known.sizes, known.of_size
    at = k + 1
    if at >= rate * float(sizes @ groups):
        return 0.5
    low, high, theta = -700.0, 0.0, math.log(at / (rate * float(sizes @ groups)))
    for _ in range(100):
        tilt = math.expm1(theta)
        powers = np.exp(np.outer(sizes, np.log1p(rates * tilt))) * weights
        flagged = rates * math.exp(theta) / (1 + rates * tilt)
        total = powers.sum(axis=1)
        once, twice = sizes * np.sum(powers * flagged, axis=1), np.sum(powers * flagged**2, axis=1)
        mean = once / total
        first = float(groups @ mean)
        second = float(groups @ ((once + (sizes**2 - sizes) * twice) / total - mean**2))
        if abs(first - at) <= 1e-9 * at:
            break
        low, high = (low, theta) if first > at else (theta, high)
        step = theta - (first - at) / second if second > 0 else low
        theta = step if low < step < high else (low + high) / 2
    depth = 2 * (theta * at - float(groups @ np.log(total)))
    if depth <= 1e-6:
        return 0.5
    root, spread = -math.sqrt(depth), -math.expm1(-theta) * math.sqrt(second)
    density = math.exp(-depth / 2) / math.sqrt(2 * math.pi)
    return min(max(float(ndtr(root)) - density * (1 / spread - 1 / root), 0.0), 0.5)


def _beta_nodes(a: float, b: float) -> tuple[Floats, Floats]:
    """Rates and weights that integrate polynomials over Beta(a, b): Gauss and Jacobi, by Golub and Welsch (1969)."""
    i = np.arange(1.0, NODES)
    total = a + b - 2
    diagonal = np.append((a - b) / (a + b), (a - b) * total / ((2 * i + total) * (2 * i + total + 2)))
    first, i = 4 * a * b / ((a + b) ** 2 * (a + b + 1)), i[1:]  # where the formula of the others may divide 0 by 0
    squares = 4 * i * (i + a - 1) * (i + b - 1) * (i + total) / ((2 * i + total) ** 2 * ((2 * i + total) ** 2 - 1))
    beside = np.sqrt(np.maximum(np.append(first, squares), 0.0))
    roots, vectors = eigh_tridiagonal(diagonal, beside)
    return np.clip((1 + roots) / 2, 0.0, 1.0), vectors[0] ** 2


def _rows_with_bound(rate: float, n: float, bound: float, tail: float) -> float:
    """The rows whose upper bound of Clopper and Pearson is this, with the rate observed; at most n."""
    low, high = 1e-6, n
    if bound >= 1 or float(betainccinv(rate * n + 1, n - rate * n, tail)) >= bound:
        return low if bound >= 1 else n
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (
            (middle, high)
            if float(betainccinv(rate * middle + 1, middle - rate * middle, tail)) > bound
            else (low, middle)
        )
        if high / low <= 1 + 1e-9:
            break
    return high
