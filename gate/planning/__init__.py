"""Planning: how often the gate errs at given sample sizes, and which sizes would do. No data, no judgement."""

from gate.planning.advice import Advice, advise, advise_at_rate
from gate.planning.law import BadChance, Budget, band_of, ships
from gate.planning.plan import (
    Plan,
    TargetPlan,
    describe_weakness,
    plan,
    plan_target,
    warnings,
)
from gate.planning.ranges import (
    RangeLaw,
    RangePlan,
    corridor_of,
    plan_range,
    segment_corridor_of,
)
from gate.planning.sequential import Deciding, SequentialPlan, decide_band, plan_sequential
from gate.planning.watch import CHECKS_A_YEAR, Alarm, TargetWatch, Watch, watch

__all__ = [
    "CHECKS_A_YEAR",
    "Advice",
    "Alarm",
    "BadChance",
    "Budget",
    "Deciding",
    "Plan",
    "RangeLaw",
    "RangePlan",
    "SequentialPlan",
    "TargetPlan",
    "TargetWatch",
    "Watch",
    "advise",
    "advise_at_rate",
    "band_of",
    "corridor_of",
    "decide_band",
    "describe_weakness",
    "plan",
    "plan_range",
    "plan_sequential",
    "plan_target",
    "segment_corridor_of",
    "ships",
    "warnings",
    "watch",
]
