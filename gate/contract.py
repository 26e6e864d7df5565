"""The contract: the fixed map between FPR and calibrated score. It knows no data, model or release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Anchor:
    """One point of the contract: benign rows reach `score` at the rate `fpr`."""

    fpr: Decimal
    score: Decimal


FLAG_ALL = Anchor(Decimal(1), Decimal(0))
LOWEST = Anchor(Decimal("1e-10"), Decimal("0.99"))

PAPER_ANCHORS = tuple(
    Anchor(Decimal(fpr), Decimal(score))
    for fpr, score in [
        ("0.1", "0.1"),
        ("0.01", "0.3"),
        ("0.001", "0.5"),
        ("0.0001", "0.7"),
        ("0.00001", "0.85"),
        ("0.000001", "0.95"),
    ]
)


@dataclass(frozen=True)
class Contract:
    """Piecewise linear in log10(FPR) between its anchors; the ends 1 <-> 0 and 1e-10 <-> 0.99 are implied."""

    anchors: tuple[Anchor, ...] = PAPER_ANCHORS

    @cached_property
    def _knots(self) -> tuple[Floats, Floats]:
        """log10(FPR) ascending, and the scores there."""
        points = (LOWEST, *reversed(self.anchors), FLAG_ALL)
        fprs = np.array([float(point.fpr) for point in points])
        scores = np.array([float(point.score) for point in points])
        return _log10(fprs), scores

    def score(self, fpr: ArrayLike) -> Floats:
        """The calibrated score that promises `fpr`; at an anchor, exactly the anchor's score."""
        log_fprs, scores = self._knots
        reachable = np.maximum(np.asarray(fpr, dtype=np.float64), float(LOWEST.fpr))  # log10(0) would warn
        return np.asarray(np.interp(_log10(reachable), log_fprs, scores))

    def fpr(self, score: ArrayLike) -> Floats:
        """The FPR that a calibrated score promises."""
        log_fprs, scores = self._knots
        return np.asarray(10.0 ** np.interp(np.asarray(score, dtype=np.float64), scores[::-1], log_fprs[::-1]))


def _log10(values: Floats) -> Floats:
    """The logarithm of the C library, which is the same everywhere; NumPy rounds differently with AVX-512."""
    return np.array([math.log10(value) for value in values.ravel().tolist()]).reshape(values.shape)
