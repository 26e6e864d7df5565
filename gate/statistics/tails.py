"""The tails of many counts at once, and the counts at which they become small. No judgement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincc

from gate.contract import Floats, Ints, Mask
from gate.statistics.binomial import beta_quantiles


class Tails(Protocol):
    """The chances of k or fewer, and of k or more, of n rows at a rate c; p is the rate that was promised there."""

    def few(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike) -> Floats: ...

    def many(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike) -> Floats: ...

    def lower(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, tail: float) -> Floats: ...

    def upper(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, tail: float) -> Floats: ...


class FixedTails:
    """The binomial tails of Clopper and Pearson (1934), for one look at a number of rows fixed before."""

    def few(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike = 0.0) -> Floats:
        """P(Bin(n, c) <= k)."""
        k, n, c = as_columns(k, n, c)
        inside = betaincc(np.clip(k, 0, None) + 1, np.maximum(n - k, 1e-300), c)
        return np.where(k < 0, 0.0, np.where(k >= n, 1.0, inside))

    def many(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike = 0.0) -> Floats:
        """P(Bin(n, c) >= k)."""
        k, n, c = as_columns(k, n, c)
        inside = betainc(np.maximum(k, 1e-300), np.maximum(n - k, 0) + 1, c)
        return np.where(k <= 0, 1.0, np.where(k > n, 0.0, inside))

    def lower(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, tail: float) -> Floats:
        """The rates at which k or more have this chance; 0 if no row is flagged."""
        k, n, _ = as_columns(k, n, p)
        return np.where(k <= 0, 0.0, beta_quantiles(np.where(k <= 0, 1.0, k), n - k + 1, tail))

    def upper(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, tail: float) -> Floats:
        """The rates at which k or fewer have this chance; 1 if all rows are flagged."""
        k, n, _ = as_columns(k, n, p)
        return np.where(k >= n, 1.0, beta_quantiles(k + 1, np.where(k >= n, 1.0, n - k), 1 - tail))


def as_columns(k: ArrayLike, n: ArrayLike, c: ArrayLike) -> tuple[Floats, ...]:
    """Counts, rows and rates as arrays of one shape."""
    return tuple(np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (k, n, c))))


def last_counts(holds: Callable[[Ints], Mask], n: int, around: Floats) -> Ints:
    """The largest count of n rows, at each point, at which a condition holds that no larger count meets; -1 if none.

    The search looks near n times the rate `around` first, because exact tails change there.
    """
    spread = 12 * np.sqrt(n * around) + 60
    middle = n * around
    low = np.maximum(np.floor(middle - spread), -1).astype(np.int64)
    high = np.minimum(np.ceil(middle + spread), n + 1).astype(np.int64)
    low = np.where((low < 0) | ~holds(np.maximum(low, 0)), -1, low)
    high = np.where((high <= n) & holds(np.minimum(high, n)), n + 1, high)
    while np.any(high - low > 1):
        halfway = np.clip((low + high) // 2, 0, n)
        held = holds(halfway)
        wide = high - low > 1
        low, high = np.where(wide & held, halfway, low), np.where(wide & ~held, halfway, high)
    return low
