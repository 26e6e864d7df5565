"""Detection: how many malicious rows reach each anchor's threshold, with exact intervals. No judgement."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gate.calibration.calibrator import Calibrator, count_flagged
from gate.contract import Anchor
from gate.planning import Advice, Budget, advise_at_rate
from gate.policy import DetectionTarget, Policy
from gate.scores import Scores
from gate.statistics.binomial import Band, CriticalCounts, clopper_pearson, critical_counts, effective_rows


@dataclass(frozen=True)
class Detected:
    """The malicious rows at one anchor.

    effective_n               how many independent rows these are worth: fewer where they come in groups
    critical, advice          where the policy judges the anchor: the counts that decide, and the rows in all that
                              would do at the rate observed where these do not
    """

    anchor: Anchor
    threshold: float | None
    true_positives: int
    malicious: int
    effective_n: float
    interval: tuple[float, float]
    target: DetectionTarget | None = None
    critical: CriticalCounts | None = None
    advice: Advice | None = None

    @property
    def observed_tpr(self) -> float:
        return self.true_positives / self.malicious


def detect(policy: Policy, calibrator: Calibrator, malicious: Scores) -> tuple[Detected, ...]:
    """Count the malicious scores that reach each anchor of the contract."""
    found, budget = [], Budget()
    for anchor in calibrator.contract.anchors:
        threshold = calibrator.thresholds[anchor.fpr]
        k = count_flagged(malicious.ordered, threshold)
        worth = effective_n(malicious, threshold, float(policy.alpha()))
        found.append(measure_anchor(policy, anchor, threshold, k, len(malicious), worth, budget))
    return tuple(found)


def measure_anchor(
    policy: Policy,
    anchor: Anchor,
    threshold: float | None,
    k: int,
    n: int,
    effective: float | None = None,
    budget: Budget | None = None,
) -> Detected:
    """What k detected of n malicious rows say about one anchor: a function of counts alone."""
    alpha = policy.alpha()
    worth = 1.0 if effective is None else effective / n
    judged = policy.checks.detection.targets if policy.checks.detection else ()
    target = next((target for target in judged if target.fpr == anchor.fpr), None)
    band = Band(Fraction(target.min_tpr), Fraction(1), alpha) if target else None
    critical = critical_counts(n, band, worth) if band else None
    advice = None
    if band and critical and not (counts := critical.passing(policy.rule, n) or (1, 0))[0] <= k <= counts[1]:
        advice = advise_at_rate(policy.rule, band, k, n, budget or Budget(0), worth=worth)
    return Detected(
        anchor=anchor,
        threshold=threshold,
        true_positives=k,
        malicious=n,
        effective_n=n * worth,
        interval=clopper_pearson(k * worth, n * worth, float(alpha)),
        target=target,
        critical=critical,
        advice=advice,
    )


def effective_n(scores: Scores, threshold: float | None, alpha: float) -> float:
    """How many independent rows a sample is worth for the rate at which it reaches a threshold."""
    if scores.groups is None:
        return float(len(scores))
    return effective_rows(scores.group_sizes, scores.flagged_by_group(threshold), alpha)[1]
