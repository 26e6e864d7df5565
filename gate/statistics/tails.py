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
    """How rarely k of n rows are so few, or so many, at a rate c; p is the rate that was promised there."""

    def few(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike) -> Floats: ...

    def many(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike) -> Floats: ...

    def lower(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, tail: float) -> Floats: ...

    def upper(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, tail: float) -> Floats: ...


class FixedTails:
    """The binomial tails of Clopper and Pearson (1934): for one look at a number of rows fixed before."""

    def few(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike = 0.0) -> Floats:
        """P(Bin(n, c) <= k)."""
        k, n, c = columns(k, n, c)
        inside = betaincc(np.clip(k, 0, None) + 1, np.maximum(n - k, 1e-300), c)
        return np.where(k < 0, 0.0, np.where(k >= n, 1.0, inside))

    def many(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike = 0.0) -> Floats:
        """P(Bin(n, c) >= k)."""
        k, n, c = columns(k, n, c)
        inside = betainc(np.maximum(k, 1e-300), np.maximum(n - k, 0) + 1, c)
        return np.where(k <= 0, 1.0, np.where(k > n, 0.0, inside))

    def lower(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, tail: float) -> Floats:
        """The rates of which so many have this chance; 0 where none is flagged."""
        k, n, _ = columns(k, n, p)
        return np.where(k <= 0, 0.0, beta_quantiles(np.where(k <= 0, 1.0, k), n - k + 1, tail))

    def upper(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, tail: float) -> Floats:
        """The rates of which so few have this chance; 1 where all are flagged."""
        k, n, _ = columns(k, n, p)
        return np.where(k >= n, 1.0, beta_quantiles(k + 1, np.where(k >= n, 1.0, n - k), 1 - tail))


def columns(*values: ArrayLike) -> tuple[Floats, ...]:
    """Floats of one shape."""
    return tuple(np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in values)))


def last_counts(holds: Callable[[Ints], Mask], n: int, around: Floats) -> Ints:
    """For each point the largest count of n rows at which a condition holds that then never holds again; -1 if none.

    Looked for near n times the rate `around` first, which is where exact tails change.
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
