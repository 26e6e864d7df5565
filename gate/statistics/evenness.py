"""Evenness: whether values that several rows have are divided between two samples more evenly than chance would.

Copies of one sample in another divide every value in the same share. Chance leaves a binomial spread around that share,
and drift only adds to it. No judgement.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom

from gate.contract import Floats, Ints

LARGE = 200  # rows of a value; from here on its spread is that of a normal law
STEPS = np.logspace(-2, 4, 60)


def chance_of_evenness(sizes: Ints, held: Ints, q: float) -> float:
    """A bound on the chance that values of these sizes are divided so evenly, with a share q of their rows in `held`.

    The statistic is the sum of (h - c q)^2 / (c q (1 - q)); Chernoff's bound of its lower tail holds for all sizes.
    """
    if not len(sizes) or not 0 < q < 1:
        return 1.0
    found = float(np.sum((held - sizes * q) ** 2 / (sizes * q * (1 - q))))
    logs = STEPS * found
    kinds, values = np.unique(np.minimum(sizes, LARGE), return_counts=True)
    for c, count in zip(kinds.tolist(), values.tolist(), strict=True):
        logs = logs + count * _log_mean(c, q)
    return math.exp(min(float(logs.min()), 0.0))


def _log_mean(c: int, q: float) -> Floats:
    """The logarithm of the mean of exp(-t x) at every step t, for the statistic x of one value of c rows."""
    if c >= LARGE:
        return np.asarray(-0.5 * np.log1p(2 * STEPS))
    h = np.arange(c + 1)
    x = (h - c * q) ** 2 / (c * q * (1 - q))
    return np.asarray(logsumexp(binom.logpmf(h, c, q) - STEPS[:, None] * x, axis=1))
