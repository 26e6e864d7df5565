"""Planning: how often the gate errs at given sample sizes, and which sizes would do. No data, no judgement."""

from gate.planning.advice import Advice, advise, advise_at_rate
from gate.planning.law import Budget, band_of, ships
from gate.planning.plan import Plan, TargetPlan, describe_weakness, plan, plan_target, warnings
from gate.planning.watch import CHECKS_A_YEAR, Alarm, TargetWatch, Watch, watch

__all__ = [
    "CHECKS_A_YEAR",
    "Advice",
    "Alarm",
    "Budget",
    "Plan",
    "TargetPlan",
    "TargetWatch",
    "Watch",
    "advise",
    "advise_at_rate",
    "band_of",
    "describe_weakness",
    "plan",
    "plan_target",
    "ships",
    "warnings",
    "watch",
]
