"""The law of how many rows of many groups are flagged, where rows of one group are alike. No judgement.

Each group has a rate of its own, drawn from one beta distribution, and its rows are flagged at that rate. Sums over
groups of known sizes have no closed law; the saddlepoint approximates their tails with a relative error of a few
hundredths (Lugannani and Rice 1980; Daniels 1987). The code uses NumPy's sums, not matrix products, because threads of
a BLAS library wait for one another on arrays as small as these.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.special import ndtr

from gate.contract import Floats, Ints

NODES = 48  # nodes of the integral over the rates of groups
STEPS = 100


class Sizes(NamedTuple):
    """How many groups there are of each size; a size may be the mean of sizes that hardly differ."""

    rows: Floats
    groups: Floats

    @property
    def n(self) -> float:
        return float(np.sum(self.rows * self.groups))


def bins_of(values: Floats, exact: int, ratio: float) -> Ints:
    """The number of each value's bin; each whole number up to `exact` has a bin of its own."""
    scaled = np.log(np.maximum(values, exact) / exact) / math.log(ratio)
    return np.where(values <= exact, values, exact + 1 + scaled).astype(np.int64)


class TailChances(NamedTuple):
    """The chance of fewer flagged rows than a number, and the chance of as many or more."""

    below: Floats
    reached: Floats


def tails(sizes: Sizes, at: Floats, rates: Floats, correlation: float) -> TailChances:
    """The chance, at each rate, that fewer rows than `at` are flagged, and the chance that as many or more are.

    `correlation` is the correlation of two rows of one group. At the mean the formula has no value; both are a half.
    """
    at, rates = np.broadcast_arrays(np.asarray(at, dtype=np.float64), np.asarray(rates, dtype=np.float64))
    strength = (1 - correlation) / correlation
    pairs = [_jacobi_nodes(q * strength, (1 - q) * strength) for q in rates]
    nodes, weights = (np.array([pair[i] for pair in pairs]) for i in (0, 1))
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    theta, depth, spread = _saddlepoint(sizes, at, rates, nodes, logs)
    root = np.copysign(np.sqrt(np.maximum(depth, 0.0)), theta)
    near = depth <= 1e-6
    with np.errstate(divide="ignore", invalid="ignore"):
        correction = np.exp(-depth / 2) / math.sqrt(2 * math.pi) * (1 / (-np.expm1(-theta) * spread) - 1 / root)
    correction = np.where(near, 0.0, correction)
    below, reached = ndtr(root) - correction, ndtr(-root) + correction
    return TailChances(np.where(near, 0.5, np.clip(below, 0.0, 1.0)), np.where(near, 0.5, np.clip(reached, 0.0, 1.0)))


def _saddlepoint(sizes: Sizes, at: Floats, rates: Floats, nodes: Floats, logs: Floats) -> tuple[Floats, Floats, Floats]:
    """The tilt at which the mean is `at`, twice the exponent there, and the deviation, by Newton's bracketed steps."""
    m, groups = sizes.rows[:, None], sizes.groups
    low, high = np.full(len(at), -700.0), np.full(len(at), 700.0)
    theta = np.clip(np.log(at / (rates * sizes.n)), -2.0, 2.0)
    for _ in range(STEPS):
        tilt, up = np.expm1(theta)[:, None], np.exp(theta)[:, None]
        exponents = m * np.log1p(np.maximum(nodes * tilt, -1 + 1e-16))[:, None, :] + logs[:, None, :]
        most = exponents.max(axis=2)
        powers = np.exp(exponents - most[:, :, None])
        flagged = (nodes * up / (1 + nodes * tilt))[:, None, :]
        total = powers.sum(axis=2)
        once, twice = np.sum(powers * flagged, axis=2) / total, np.sum(powers * flagged**2, axis=2) / total
        mean = sizes.rows * once
        first = np.sum(groups * mean, axis=1)
        second = np.sum(groups * (mean + (sizes.rows**2 - sizes.rows) * twice - mean**2), axis=1)
        if np.all(np.abs(first - at) <= 1e-8 * at):
            break
        low, high = np.where(first > at, low, theta), np.where(first > at, theta, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = theta - (first - at) / second
        theta = np.where((low < step) & (step < high), step, (low + high) / 2)
    cumulants = np.sum(groups * (most + np.log(total)), axis=1)
    return theta, 2 * (theta * at - cumulants), np.sqrt(np.maximum(second, 0.0))


def _jacobi_nodes(a: float, b: float) -> tuple[Floats, Floats]:
    """Rates and weights that integrate polynomials over Beta(a, b): Gauss-Jacobi quadrature (Golub and Welsch 1969)."""
    i = np.arange(1.0, NODES)
    total = a + b - 2
    diagonal = np.append((a - b) / (a + b), (a - b) * total / ((2 * i + total) * (2 * i + total + 2)))
    first, i = 4 * a * b / ((a + b) ** 2 * (a + b + 1)), i[1:]  # the formula of the others may divide 0 by 0 here
    squares = 4 * i * (i + a - 1) * (i + b - 1) * (i + total) / ((2 * i + total) ** 2 * ((2 * i + total) ** 2 - 1))
    beside = np.sqrt(np.maximum(np.append(first, squares), 0.0))
    roots, vectors = eigh_tridiagonal(diagonal, beside)
    return np.clip((1 + roots) / 2, 0.0, 1.0), vectors[0] ** 2
