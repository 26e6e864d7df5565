"""The evidence: counts on held-out benign rows, their intervals and the counts that would decide. No judgement."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gate import segments
from gate.calibration.calibrator import Calibrator, count_flagged
from gate.calibration.positions import fractional_rank, named, rows_to_support
from gate.checks import duplicates, overlap
from gate.checks.direction import Direction, Flagged
from gate.checks.duplicates import Duplicates
from gate.checks.overlap import Overlap
from gate.comparison import Comparison
from gate.detection import Detected, effective_n
from gate.planning import Advice, Budget, advise, advise_at_rate, band_of
from gate.policy import Policy, Target
from gate.samples import Ages, Resolution, TieBlock, ages, resolution, tie_block
from gate.scores import Scores
from gate.segments import SegmentEvidence
from gate.statistics.binomial import (
    CriticalCounts,
    Range,
    beta_binomial,
    clopper_pearson,
    critical_counts,
    effective_rows,
)
from gate.statistics.exchangeability import PooledTest, TailScan, pooled_test, tail_scan

LEAST_ATOM = 10  # tied fit rows; fewer may be chance


@dataclass(frozen=True)
class Measurement:
    """One target measured: every number that a verdict or a report may need, none of them rounded.

    effective_n                   how many independent rows these are worth: fewer where they come in groups
    interval, plain_interval      with the effective rows, and as if all were independent
    predicted                     the counts that 95 % of sound releases show
    critical                      the counts that decide
    advice                        the rows that would do, where the count does not pass
    """

    target: Target
    score: Decimal
    threshold: float | None
    false_positives: int
    benign: int
    effective_n: float
    interval: tuple[float, float]
    plain_interval: tuple[float, float]
    predicted: Range | None
    drift: PooledTest | None
    tied: TieBlock | None
    critical: CriticalCounts
    advice: Advice | None
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
    def unattainable(self) -> bool:
        """Whether tied scores leave no rate inside the tolerance, in the fit sample: then no number of rows helps."""
        if self.tied is None or self.tied.through - self.tied.above < LEAST_ATOM:
            return False
        low, high = self.tolerance
        return not any(
            low * self.tied.n <= flagged <= high * self.tied.n for flagged in (self.tied.above, self.tied.through)
        )

    @property
    def tolerance(self) -> tuple[Decimal, Decimal]:
        return self.target.tolerance

    @property
    def inside(self) -> bool:
        """Whether the observed rate lies in the tolerance."""
        return _inside(self.critical.observed, self.false_positives)


@dataclass(frozen=True)
class Evidence:
    """All that was measured: on one held-out sample, on malicious rows, and against an earlier release.

    `first_release` says that there is no earlier one, by declaration.
    """

    measurements: tuple[Measurement, ...]
    tail_scan: TailScan | None = None
    use: Use | None = None
    overlap: Overlap | None = None
    resolution: Resolution | None = None
    fit_ages: Ages | None = None
    holdout_ages: Ages | None = None
    segments: SegmentEvidence | None = None
    detection: tuple[Detected, ...] | None = None
    direction: Direction | None = None
    comparison: Comparison | None = None
    first_release: bool = False
    duplicates: Duplicates | None = None

    @property
    def effective_n(self) -> int:
        """How many independent rows the held-out sample is worth where it is worth least."""
        return int(min(measurement.effective_n for measurement in self.measurements))


@dataclass(frozen=True)
class Use:
    """How often rows like these held-out ones have judged releases, this time included, and which.

    shared   of each earlier one, the share of the smaller set of rows that is in both; None where it cannot be told
    """

    number: int
    earlier: tuple[str, ...]
    shared: tuple[float | None, ...] = ()


def measure(
    policy: Policy,
    calibrator: Calibrator,
    fit: Scores | None,
    holdout: Scores,
    use: Use | None = None,
    malicious: Scores | None = None,
) -> Evidence:
    """Count the held-out benign scores that reach each target's threshold, and test them against the fit sample.

    Without the fit sample, what takes both is left out. Of malicious rows it is only told here whether they repeat.
    """
    alpha = policy.alpha(use.number if use else 1)
    if fit is not None:
        overlap.refuse_identical(fit, holdout)
    n, deff, budget = len(holdout), 1.0, Budget()
    measured = {}
    # From the highest rate down: a design effect seen at a high rate holds at the rarer ones too, where fewer
    # false positives show less of it.
    for target in by_rate(policy):
        threshold = calibrator.thresholds[target.fpr]
        k = count_flagged(holdout.ordered, threshold)
        worth = float(n)
        if holdout.groups is not None:
            counts = holdout.flagged_by_group(threshold)
            deff, worth = effective_rows(holdout.group_sizes, counts, float(alpha), deff)
        p = Fraction(target.fpr)
        measured[target] = measure_target(
            policy,
            target,
            threshold,
            k,
            n,
            calibrator.facts.lowest_label,
            alpha=alpha,
            effective_n=worth,
            predicted=predicted_counts(policy, p, calibrator.facts.n, n),
            drift=pooled_test(fit.ordered, holdout.ordered, p) if fit is not None else None,
            tied=tie_block(fit.ordered, p) if fit is not None else None,
            fit_n=calibrator.facts.n,
            budget=budget,
        )
    measurements = tuple(measured[target] for target in policy.targets)
    shared = overlap.measure(fit, holdout) if fit is not None else None
    return Evidence(
        measurements,
        tail_scan(fit.ordered, holdout.ordered) if fit is not None else None,
        use,
        shared,
        resolution(fit, calibrator.facts.distinct) if fit is not None else None,
        ages(fit),
        ages(holdout),
        segments.measure(policy, calibrator, holdout, alpha),
        duplicates=duplicates.measure(fit, holdout, malicious, shared.scores if shared else None),
    )


def measure_direction(
    calibrator: Calibrator, holdout: Scores, detection: tuple[Detected, ...], alpha: Fraction
) -> Direction:
    """The benign rows at every anchor beside the malicious ones."""
    anchors = []
    for found in detection:
        threshold = calibrator.thresholds[found.anchor.fpr]
        anchors.append(
            Flagged(
                fpr=float(found.anchor.fpr),
                true_positives=found.true_positives,
                malicious=found.malicious,
                malicious_worth=found.effective_n,
                false_positives=count_flagged(holdout.ordered, threshold),
                benign=len(holdout),
                benign_worth=effective_n(holdout, threshold, float(alpha)),
            )
        )
    return Direction(anchors=tuple(anchors))


def by_rate(policy: Policy) -> list[Target]:
    """The targets from the highest rate down: the order in which they are measured and share one budget of advice."""
    return sorted(policy.targets, key=lambda target: -target.fpr)


def measure_target(
    policy: Policy,
    target: Target,
    threshold: float | None,
    k: int,
    n: int,
    lowest_label: float,
    *,
    alpha: Fraction | None = None,
    effective_n: float | None = None,
    predicted: Range | None = None,
    drift: PooledTest | None = None,
    tied: TieBlock | None = None,
    fit_n: int | None = None,
    budget: Budget | None = None,
) -> Measurement:
    """What k false positives among n held-out benign rows say about one target: a function of counts alone.

    Advice is computed within the budget given, else not at all.
    """
    alpha = policy.alpha() if alpha is None else alpha
    effective = float(n) if effective_n is None else effective_n
    worth = effective / n
    band = band_of(target, alpha)
    critical = critical_counts(n, band, worth)
    extrapolated = float(target.fpr) < lowest_label
    support = rows_to_support(named(policy.calibration.plotting_position), float(target.fpr))
    advice, budget, rule = None, budget or Budget(0), "proven" if extrapolated else policy.rule
    if _inside(critical.passing(rule, n), k) and effective >= target.min_n:
        pass
    elif threshold is None:  # nothing is ever flagged
        advice = advise_at_rate(rule, band, 0, n, budget, min_n=target.min_n, worth=worth)
    elif not extrapolated or fit_n is None or fit_n < support:  # else tied scores are the cause
        refuted = any(_inside(counts, k) for counts in critical.refuted(n))
        advice = advise(policy, target, k, n, fit_n, budget, worth=worth, refuted=refuted)
    return Measurement(
        target=target,
        score=next(point.score for point in policy.contract if point.fpr == target.fpr),
        threshold=threshold,
        false_positives=k,
        benign=n,
        effective_n=effective,
        interval=clopper_pearson(k * worth, effective, float(alpha)),
        plain_interval=clopper_pearson(k, n, float(alpha)),
        predicted=predicted,
        drift=drift,
        tied=tied,
        critical=critical,
        advice=advice,
        extrapolated=extrapolated,
        fit_rows_to_support=support,
    )


def _inside(counts: Range | None, k: int) -> bool:
    return counts is not None and counts[0] <= k <= counts[1]


def predicted_counts(policy: Policy, fpr: Fraction, fit_n: int, n: int) -> Range | None:
    """The counts that 95 % of sound releases show: the noise of the calibrator and that of the held-out sample."""
    rank = float(fractional_rank(named(policy.calibration.plotting_position), fpr, fit_n))
    return beta_binomial(n, rank, fit_n - rank + 1).quantiles(0.05) if rank >= 1 else None
