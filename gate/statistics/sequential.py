"""Bounds that hold at every look: likelihood ratios of a count, as pure functions. No judgement.

With k of n rows flagged so far, an edge c and an alternative a, E = (a/c)^k ((1 - a)/(1 - c))^(n - k) is a
supermartingale under every rate at or beyond the edge (Wald 1945), and so is the mean of several: it ever reaches 1/x
with a chance of at most x (Ville 1939), however often one looks and whenever one stops. So 1/E takes the place of the
tail at a fixed number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from gate.contract import Floats
from gate.statistics.binomial import Band
from gate.statistics.tails import as_columns

STEPS = (Fraction(0), Fraction(1, 2), Fraction(4, 5))  # the alternatives' shares of the way from target to edge
HALVINGS = 100
LEAST_RATE = 1e-300


@dataclass(frozen=True)
class SequentialTails:
    """The mixtures of likelihood ratios that one tolerance has at every rate p; all arguments may be arrays.

    The alternatives lie between the target and its edges. If the edge that is asked about is nearer than that of the
    tolerance, they move with it. If only excess counts, the lower alternatives are those of 1 / (1 + above).
    """

    above: Fraction
    below: Fraction

    @cached_property
    def _upper(self) -> tuple[Floats, float]:
        """The alternatives towards the upper edge, and the edge, in units of the target."""
        edge = 1 + self.above
        return np.array([float(1 + step * (edge - 1)) for step in STEPS]), float(edge)

    @cached_property
    def _lower(self) -> tuple[Floats, float]:
        edge = 1 - self.below if self.below < 1 else 1 / (1 + self.above)
        return np.array([float(1 + step * (edge - 1)) for step in STEPS]), float(edge)

    def few(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike) -> Floats:
        """The chance, at a rate of c or more, that a count is ever as low for its rows as k of n."""
        return self._chance(self._against_more(k, n, c, p))

    def many(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike) -> Floats:
        """The chance, at a rate of c or less, that a count is ever as high for its rows as k of n."""
        return self._chance(self._against_less(k, n, c, p))

    def lower(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, tail: float) -> Floats:
        """The lower bound: every rate below it is rejected, with a chance of at most `tail` to err at any look.

        If not even LEAST_RATE is rejected, as with one of a billion rows at a target of 0.1 %, the bound is 0.
        """
        k, n, p = as_columns(k, n, p)
        never = self._against_less(k, n, np.full(k.shape, LEAST_RATE), p) < -np.log(tail)
        low, high = np.full(k.shape, LEAST_RATE), np.maximum(k / n, LEAST_RATE)
        for _ in range(HALVINGS):
            middle = np.sqrt(low) * np.sqrt(high)
            rejected = self._against_less(k, n, middle, p) >= -np.log(tail)
            low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
        return np.where((k <= 0) | never, 0.0, low)

    def upper(self, k: ArrayLike, n: ArrayLike, p: ArrayLike, tail: float) -> Floats:
        """The upper bound: every rate above it is rejected."""
        k, n, p = as_columns(k, n, p)
        low, high = np.maximum(k / n, LEAST_RATE), np.ones(k.shape)
        for _ in range(HALVINGS):
            middle = np.sqrt(low) * np.sqrt(high)
            rejected = self._against_more(k, n, np.minimum(middle, 1 - 1e-16), p) >= -np.log(tail)
            low, high = np.where(rejected, low, middle), np.where(rejected, middle, high)
        return np.where(k >= n, 1.0, high)

    def _against_more(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike) -> Floats:
        """The logarithm of the mixture against every rate of c or more."""
        alternatives, edge = self._upper
        c, p = np.asarray(c, dtype=np.float64)[..., None], np.asarray(p, dtype=np.float64)[..., None]
        return _log_mean(k, n, c, alternatives / np.maximum(c / p, edge))

    def _against_less(self, k: ArrayLike, n: ArrayLike, c: ArrayLike, p: ArrayLike) -> Floats:
        """The logarithm of the mixture against every rate of c or less."""
        alternatives, edge = self._lower
        c, p = np.asarray(c, dtype=np.float64)[..., None], np.asarray(p, dtype=np.float64)[..., None]
        return _log_mean(k, n, c, np.minimum((1 + c) / (2 * c), alternatives / np.minimum(c / p, edge)))

    @staticmethod
    def _chance(log_evidence: Floats) -> Floats:
        return np.exp(-np.maximum(log_evidence, 0.0))


def _log_mean(k: ArrayLike, n: ArrayLike, c: Floats, ratios: Floats) -> Floats:
    """The logarithm of the mean likelihood ratio of rates `ratios` times c against c itself."""
    k, n = np.asarray(k, dtype=np.float64)[..., None], np.asarray(n, dtype=np.float64)[..., None]
    logs = k * np.log(ratios) + (n - k) * np.log1p(c * (1 - ratios) / (1 - c))
    most = logs.max(axis=-1, keepdims=True)
    return np.asarray(most[..., 0] + np.log(np.mean(np.exp(logs - most), axis=-1)))


@dataclass(frozen=True)
class SequentialBand(Band):
    """The true rates that a policy accepts, and what k of n rows say about its edges at whatever look this is.

    `fpr` is the target, from which the alternatives start.
    """

    fpr: Fraction

    @classmethod
    def around(cls, fpr: Fraction, above: Fraction, below: Fraction, alpha: Fraction) -> SequentialBand:
        return cls(fpr * (1 - below), fpr * (1 + above), alpha, fpr)

    @cached_property
    def _tails(self) -> SequentialTails:
        return SequentialTails(self.high / self.fpr - 1, 1 - self.low / self.fpr)

    def few(self, k: float, n: float, edge: float) -> float:
        return float(self._tails.few(k, n, edge, float(self.fpr)))

    def many(self, k: float, n: float, edge: float) -> float:
        return float(self._tails.many(k, n, edge, float(self.fpr)))

    def interval(self, k: float, n: float) -> tuple[float, float]:
        p, tail = float(self.fpr), float(self.alpha / 2)
        return float(self._tails.lower(k, n, p, tail)), float(self._tails.upper(k, n, p, tail))


def one_sided(low: Fraction, high: Fraction, alpha: Fraction, interval: str) -> Band:
    """A band with one edge; its other end is 0 or 1. With sequential looks the middle stands for a sound rate."""
    return SequentialBand(low, high, alpha, (low + high) / 2) if interval == "sequential" else Band(low, high, alpha)
