"""Planning: how often the gate errs at given sample sizes, and which sizes would do. No data, no judgement."""

from gate.planning.advice import Advice, advise, advise_at_rate
from gate.planning.law import Budget, band_of
from gate.planning.plan import (
    WEAK_LIVENESS,
    Curve,
    Plan,
    TargetPlan,
    describe_weakness,
    operating_characteristics,
    plan,
    plan_target,
    warnings,
)

__all__ = [
    "WEAK_LIVENESS",
    "Advice",
    "Budget",
    "Curve",
    "Plan",
    "TargetPlan",
    "advise",
    "advise_at_rate",
    "band_of",
    "describe_weakness",
    "operating_characteristics",
    "plan",
    "plan_target",
    "warnings",
]
