"""Noise or drift: how much oftener held-out rows reach a threshold than fit rows do. No judgement.

A test that does not tell two samples apart does not show that they agree: if few rows reach a tail, one half as heavy
again goes unseen. So the module bounds the ratio of the two rates, and reads noise only if no difference within the
bounds matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from gate.statistics.clusters import Effective
from gate.statistics.proportions import ratio_interval

DriftReading = Literal["noise", "drift", "cannot tell"]


class Tail(NamedTuple):
    """k of n rows reach a threshold, and what these rows are worth to either bound of their rate."""

    k: int
    n: int
    worth: Effective

    @classmethod
    def independent(cls, k: int, n: int) -> Tail:
        return cls(k, n, Effective(n, n))


@dataclass(frozen=True)
class Ratio:
    """The held-out rate over the fit rate at one threshold, and its interval; None if no fit row reaches it."""

    value: float | None
    low: float
    high: float


def ratio_of(held_out: Tail, fit: Tail, alpha: float) -> Ratio:
    """The ratio of the two rates: each end of its interval misses alpha/2 of the time."""
    value = None if fit.k == 0 else held_out.k / held_out.n * fit.n / fit.k
    ends = []
    for side, (own, other) in enumerate(((0, 1), (1, 0))):  # a low ratio is a low rate over a high one
        rows, fit_rows = held_out.worth[own], fit.worth[other]
        counts = held_out.k * rows / held_out.n, rows, fit.k * fit_rows / fit.n, fit_rows
        ends.append(ratio_interval(*counts, alpha)[side])
    return Ratio(value, *ends)


def read_ratio(ratio: Ratio, above: Fraction, below: Fraction, p_value: float, level: float) -> DriftReading:
    """What the ratio says of two samples for which a test of difference gave this p-value.

    drift         they differ: the test says so at its level
    noise         any difference is less than the tolerance: no end of the interval reaches what would matter
    cannot tell   neither
    """
    if p_value <= level:
        return "drift"
    small = ratio.high < 1 + above and (below >= 1 or ratio.low > 1 - below)
    return "noise" if small and math.isfinite(ratio.high) else "cannot tell"
