"""The evidence: counts on held-out benign rows, their intervals and the counts that would decide. No judgement."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

from gate.binomial import CriticalCounts, clopper_pearson, critical_counts, rows_to_prove
from gate.calibrator import Calibrator, rows_to_support
from gate.contract import Floats
from gate.policy import Policy, Target


@dataclass(frozen=True)
class Measurement:
    """One target measured: every number that a verdict or a report may need, none of them rounded.

    critical, critical_at_min_n   the counts that decide on these rows, and on min_n rows where these are fewer
    rows_to_prove                 the fewest rows, min_n or more, that would prove the target at the observed rate
    """

    target: Target
    score: Decimal
    threshold: float | None
    false_positives: int
    benign: int
    interval: tuple[float, float]
    critical: CriticalCounts
    critical_at_min_n: CriticalCounts
    rows_to_prove: int | None
    extrapolated: bool
    fit_rows_to_support: int

    @property
    def check(self) -> str:
        return self.target.check

    @property
    def observed_fpr(self) -> float:
        return self.false_positives / self.benign

    @property
    def relative_error(self) -> float:
        """Observed over target, less one: positive means too many false positives."""
        return float(Fraction(self.false_positives, self.benign) / Fraction(self.target.fpr) - 1)

    @property
    def tolerance(self) -> tuple[Decimal, Decimal]:
        """The band of true rates that the policy accepts."""
        error = self.target.max_relative_error
        low, high = self.target.fpr * (1 - error.below), self.target.fpr * (1 + error.above)
        return max(low, Decimal(0)), min(high, Decimal(1))


@dataclass(frozen=True)
class Evidence:
    """All that was measured on one held-out sample."""

    measurements: tuple[Measurement, ...]


def measure(policy: Policy, calibrator: Calibrator, ordered: Floats) -> Evidence:
    """Count the held-out benign scores, given in rising order, that reach each target's threshold."""
    measurements = []
    for target in policy.targets:
        threshold = calibrator.thresholds[target.fpr]
        reached = 0 if threshold is None else len(ordered) - int(np.searchsorted(ordered, threshold, side="left"))
        measurements.append(
            measure_target(policy, target, threshold, reached, len(ordered), calibrator.facts.lowest_label)
        )
    return Evidence(tuple(measurements))


def measure_target(
    policy: Policy, target: Target, threshold: float | None, k: int, n: int, lowest_label: float
) -> Measurement:
    """What k false positives among n held-out benign rows say about one target: a function of counts alone."""
    p, alpha = Fraction(target.fpr), 1 - Fraction(policy.confidence)
    above, below = Fraction(target.max_relative_error.above), Fraction(target.max_relative_error.below)
    score = next(point.score for point in policy.contract if point.fpr == target.fpr)
    return Measurement(
        target=target,
        score=score,
        threshold=threshold,
        false_positives=k,
        benign=n,
        interval=clopper_pearson(k, n, float(alpha)),
        critical=critical_counts(n, p, above, below, alpha),
        critical_at_min_n=critical_counts(max(n, target.min_n), p, above, below, alpha),
        rows_to_prove=rows_to_prove(k, n, p, above, below, alpha, at_least=target.min_n),
        extrapolated=float(target.fpr) < lowest_label,
        fit_rows_to_support=rows_to_support(float(target.fpr), policy.calibration.plotting_position),
    )
