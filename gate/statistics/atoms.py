"""Tied scores: whether a detector can have a rate at all. No judgement."""

from __future__ import annotations

from fractions import Fraction

from gate.statistics.binomial import Band, upper_tail


def is_unattainable(below: int, through: int, n: int, fpr: Fraction, band: Band) -> bool:
    """Whether no threshold has a rate inside the band, beyond what chance makes of n rows.

    A threshold flags `below` of them, or `through`, which is more than a calibrator may promise as `fpr`. The first
    must be provably too few for the band, and the second provably above the target: an atom that lies near the target
    is settled by more rows only.
    """
    return through > below and band.refutes_low(below, n) and upper_tail(through, n, float(fpr)) < float(band.alpha / 2)
