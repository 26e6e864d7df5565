"""Planning for several detectors together: the chance to pass if each keeps its promise exactly. It sees no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gate.planning.law import Chances, PredictedCount, edges, fewest
from gate.planning.plan import Plan, plan
from gate.policy import Policy, SystemTarget
from gate.statistics.binomial import Band, critical_counts, lower_tail, upper_tail
from gate.statistics.sequential import one_sided
from gate.stored import MOST_ROWS


@dataclass(frozen=True)
class AtRate:
    """What the gate does if the system flags at one true rate; `needed` rows let it pass often enough."""

    rate: float
    chances: Chances
    needed: int | None


@dataclass(frozen=True)
class SystemTargetPlan:
    """One limit on the system: if detectors flag rows independently, and if no two flag the same row."""

    target: SystemTarget
    rows: int
    independent: AtRate
    at_the_sum: AtRate


@dataclass(frozen=True)
class SystemPlan:
    """Every detector's own plan, and the plan of the limits on all of them.

    `all_pass` is at most the chance that every required detector passes, if all are sound and independent.
    """

    power: float
    detectors: Mapping[str, Plan]
    system: tuple[SystemTargetPlan, ...]
    all_pass: float


def plan_system(
    policy: Policy, fit_n: int | None = None, holdout_n: int | None = None, power: float = 0.95
) -> SystemPlan:
    """Plan every detector by itself and every limit on all together."""
    plans, known = {}, dict[str, Plan]()
    for detector in policy.detectors:
        own = policy.detector(detector.name)
        key = repr((own.rule, own.targets, own.calibration, own.ranges))
        if key not in known:
            known[key] = plan(own, fit_n, holdout_n, power)
        plans[detector.name] = known[key]
    all_pass = 1.0
    for detector in policy.detectors:
        required = [target.liveness for target in plans[detector.name].targets if target.target.required]
        all_pass *= min(required, default=1.0) if detector.required else 1.0
    return SystemPlan(
        power,
        plans,
        tuple(_plan_target(policy, target, holdout_n or target.min_n, power) for target in policy.system),
        all_pass,
    )


def _plan_target(policy: Policy, target: SystemTarget, rows: int, power: float) -> SystemTargetPlan:
    promised = min(1.0, float(policy.anchors.fpr(float(target.score))))
    detectors = len(policy.detectors)
    independent, added = 1 - (1 - promised) ** detectors, min(1.0, promised * detectors)
    band = one_sided(Fraction(0), Fraction(target.max_fpr), policy.alpha(), policy.interval)
    return SystemTargetPlan(
        target,
        rows,
        _at(policy.rule, band, target.min_n, rows, independent, power),
        _at(policy.rule, band, target.min_n, rows, added, power),
    )


def _at(rule: str, band: Band, min_n: int, rows: int, rate: float, power: float) -> AtRate:
    accepted = None if rows < min_n else edges(band, rule, rows, rows)
    passes = 0.0 if accepted is None else lower_tail(accepted[1], rows, rate)
    refuted = critical_counts(rows, band).refuted_at_or_above
    fails = 0.0 if refuted is None else upper_tail(refuted, rows, rate)

    def enough(n: int) -> bool:
        return PredictedCount(0.0, 0.0, 0.0, 0, rate).passes(edges(band, rule, n, n), n, n) >= power

    needed = fewest(enough, min_n, MOST_ROWS) if rate < float(band.high) else None
    return AtRate(rate, Chances(passes, fails), needed)
