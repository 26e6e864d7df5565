"""Plotting positions: which false-positive rate the k-th largest of n benign scores stands for, and what that promises.

The true rate at that score is Beta(k, n - k + 1), whatever the distribution of scores; a position takes one number
from this law as its label. Each is a class with its formula (`label`), its inverse (`rank`) and its `promise`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pkgutil import resolve_name
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from gate.contract import Floats, Mask
from gate.errors import GateError
from gate.policy import PLOTTING_POSITIONS
from gate.statistics.binomial import beta_cdf, beta_quantiles, first

NEAR = 2e-4  # chances as close as this may be equal
NP = "np"  # the word for the bound in a policy; it takes a number
ROUNDING = 2e-12  # the relative error of a label


class Position(Protocol):
    """What the fit and the planner ask of a plotting position."""

    promise: ClassVar[str]  # what holds for the true rate at a threshold; policies/README.md shows it
    is_bound: ClassVar[bool] = False  # whether thresholds stay on scores whose labels hold, not between two

    def label(self, rank: ArrayLike, n: int) -> Floats:
        """The rate that the rank-th largest of n scores stands for."""

    def rank(self, fpr: Fraction, n: int) -> Fraction:
        """The real-valued rank whose label is `fpr`; a threshold interpolates there. It may lie outside 0 .. n.

        For a bound it is the deepest whole rank whose label does not exceed `fpr`.
        """

    def is_at_most(self, fpr: ArrayLike, rank: ArrayLike, n: int) -> Mask:
        """Whether the label of a rank does not exceed `fpr`."""
        return self.label(rank, n) <= np.asarray(fpr)


class Filliben(Position):
    """Filliben (1975): the median of the law, approximately, and exactly at both ends."""

    promise: ClassVar[str] = "the true rate is above its target half of the time"

    def label(self, rank: ArrayLike, n: int) -> Floats:
        k = np.asarray(rank, dtype=np.float64)
        # Rank 1 is computed as in the paper's package, to the bit; expm1 would be nearer to the median by 6e-12.
        ends = np.where(k <= 1, 1 - 0.5 ** (1 / n), 0.5 ** (1 / n))
        return np.where((k <= 1) | (k >= n), ends, (k - 0.3175) / (n + 0.365))

    def rank(self, fpr: Fraction, n: int) -> Fraction:
        return fpr * (n + Fraction("0.365")) + Fraction("0.3175")


class Mean(Position):
    """The mean of the law, k / (n + 1)."""

    promise: ClassVar[str] = "the true rate is its target on average"

    def label(self, rank: ArrayLike, n: int) -> Floats:
        return np.asarray(rank, dtype=np.float64) / (n + 1)

    def rank(self, fpr: Fraction, n: int) -> Fraction:
        return fpr * (n + 1)


class Conformal(Position):
    """(k + 1) / (n + 1), the conformal p-value of a fresh row at that score (Bates et al. 2023)."""

    promise: ClassVar[str] = "a fresh benign row is flagged at most at the target, on average"

    def label(self, rank: ArrayLike, n: int) -> Floats:
        return (np.asarray(rank, dtype=np.float64) + 1) / (n + 1)

    def rank(self, fpr: Fraction, n: int) -> Fraction:
        return fpr * (n + 1) - 1


class Median(Position):
    """The median of the law, exactly."""

    promise: ClassVar[str] = "the true rate is above its target half of the time"

    def label(self, rank: ArrayLike, n: int) -> Floats:
        return _quantile(0.5, rank, n)

    def rank(self, fpr: Fraction, n: int) -> Fraction:
        return _rank_by_halving(lambda rank: self.is_at_most(float(fpr), rank, n), n)

    def is_at_most(self, fpr: ArrayLike, rank: ArrayLike, n: int) -> Mask:
        return _is_quantile_at_most(0.5, fpr, rank, n)


@dataclass(frozen=True)
class NeymanPearson(Position):
    """The C quantile of the law (Tong, Feng and Li 2018), written `{np: C}`."""

    confidence: float
    promise: ClassVar[str] = "the true rate is at most its target with probability C"
    is_bound: ClassVar[bool] = True

    def label(self, rank: ArrayLike, n: int) -> Floats:
        return _quantile(self.confidence, rank, n)

    def rank(self, fpr: Fraction, n: int) -> Fraction:
        return Fraction(first(lambda rank: not self.is_at_most(float(fpr), rank, n), 1, n + 1) - 1)

    def is_at_most(self, fpr: ArrayLike, rank: ArrayLike, n: int) -> Mask:
        return _is_quantile_at_most(self.confidence, fpr, rank, n)


def named(text: str) -> Position:
    """The position that a policy names `filliben` or `np 0.95`; an unknown name is an error."""
    word, *arguments = text.split() or [""]
    try:
        if word == NP:
            return NeymanPearson(*map(float, arguments))
        if word in PLOTTING_POSITIONS:
            found: Position = resolve_name(PLOTTING_POSITIONS[word])(*map(float, arguments))
            return found
    except (TypeError, ValueError):
        pass
    known = ", ".join([*PLOTTING_POSITIONS, NP])
    raise GateError(f"plotting position: must be one of {known}, got {text!r}; write `filliben` or `np 0.95`")


def fractional_rank(position: Position, fpr: Fraction, n: int) -> Fraction:
    """The rank, from 0 to n, whose label is `fpr`."""
    return min(max(position.rank(fpr, n), Fraction(0)), Fraction(n))


def rows_to_support(position: Position, fpr: float) -> int:
    """The fewest benign rows whose largest score, if not tied, is labelled `fpr` or less."""
    return first(lambda n: bool(position.is_at_most(fpr, 1, n)), 1, 10**12)


def _quantile(q: float, rank: ArrayLike, n: int) -> Floats:
    k = np.asarray(rank, dtype=np.float64)
    return beta_quantiles(k, n - k + 1, q)


def _is_quantile_at_most(q: float, fpr: ArrayLike, rank: ArrayLike, n: int) -> Mask:
    """Compare the distribution function with q, ten times as fast as inverting it; near q compare the label itself.

    The function errs by up to 8e-7 at 10^12 rows (6e-5 before scipy 1.17), and then a label would exceed itself.
    """
    k, rates = np.broadcast_arrays(np.asarray(rank, dtype=np.float64), np.asarray(fpr, dtype=np.float64))
    reached = beta_cdf(k, n - k + 1, rates)
    at_most, near = np.array(reached >= q), np.abs(reached - q) <= NEAR * q
    if near.any():
        at_most[near] = _quantile(q, k[near], n) <= rates[near] * (1 + ROUNDING)
    return at_most


def _rank_by_halving(reaches: Callable[[float], Mask], n: int) -> Fraction:
    """The highest rank that still reaches; it is a whole rank if it lies within rounding of one."""
    low, high = 0.0, float(n)
    while np.nextafter(low, high) < high and high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if reaches(middle) else (low, middle)
    whole = round(low)
    return Fraction(whole if abs(whole - low) < 1e-6 and bool(reaches(whole)) else low)
