"""A policy's plan: how often the gate errs at given sample sizes, and which sizes would do. It sees no data."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, replace
from fractions import Fraction

from gate.errors import GateError
from gate.names import CheckName
from gate.planning.law import POWER, WEAK_AGAINST_BAD, WEAK_LIVENESS, BadChance, Budget, Chances, Law
from gate.planning.ranges import RangePlan, plan_range
from gate.planning.sequential import SequentialPlan, plan_sequential
from gate.policy import Policy, Target
from gate.words import percent, rounded_percent

STEPS = 2000  # that the searches for the plan of one target may take
MOST_PLANNED = 100  # targets of a run that are examined for weaknesses
RANGE_POINTS = 400  # of a range's grid that are simulated; more of them change its chance by less than its error


@dataclass(frozen=True)
class TargetPlan:
    """What one target needs, and what it does at the sizes on hand.

    sound             the chances of a sound release: one value if the beta law is good, else two that bracket it
    holdout_needed    held-out rows at the given fit size, else at an equal one; likewise `fit_needed`
    equal_needed      rows to fit and rows to hold out, if both sizes are the same
    needed_against_bad  held-out rows at which a bad release ships at most rarely
    computed          false if a search took too many steps; then a size that is None was not computed
    """

    target: Target
    fit_n: int
    holdout_n: int
    sound: tuple[Chances, ...]
    bad: tuple[BadChance, ...]
    holdout_needed: int | None
    fit_needed: int | None
    equal_needed: int | None
    needed_against_bad: int | None
    paper_n: int
    computed: bool = True

    @property
    def liveness(self) -> float:
        """The chance that a sound release passes; the lower one where only a bracket is known."""
        return min(chance.passes for chance in self.sound)

    @property
    def strength(self) -> str:
        return strength(self.sound, self.bad)


@dataclass(frozen=True)
class Plan:
    """A policy's targets and ranges with their error rates; with sequential looks, the rows until a look decides."""

    power: float
    targets: tuple[TargetPlan, ...]
    ranges: tuple[RangePlan, ...] = ()
    sequential: tuple[SequentialPlan, ...] = ()


def plan(policy: Policy, fit_n: int | None = None, holdout_n: int | None = None, power: float = 0.95) -> Plan:
    """Plan every target and range at the given sizes; a size that is not given is the `min_n`."""
    if not 0.0 < power < 1.0:  # NaN is neither
        raise GateError(f"power: must be above 0 and below 1, got {power}; give one such as 0.95")
    looks = policy.targets if policy.interval == "sequential" else ()
    return Plan(
        power,
        tuple(plan_target(policy, target, fit_n, holdout_n, power) for target in policy.targets),
        tuple(plan_range(policy, judged, fit_n, holdout_n, power, RANGE_POINTS) for judged in policy.ranges),
        tuple(plan_sequential(policy, target, power) for target in looks),
    )


def plan_target(
    policy: Policy,
    target: Target,
    fit_n: int | None,
    holdout_n: int | None,
    power: float,
    budget: Budget | None = None,
) -> TargetPlan:
    law = Law(policy, target, budget or Budget(STEPS))
    n = holdout_n if holdout_n is not None else target.min_n
    n_fit = fit_n if fit_n is not None else n
    r = min(Fraction(target.max_relative_error.above), Fraction(1))
    equal = law.search(lambda: law.holdout_needed(None, power))
    return TargetPlan(
        target=target,
        fit_n=n_fit,
        holdout_n=n,
        sound=law.sound(n, n_fit),
        bad=law.bad(n, n_fit),
        holdout_needed=equal if fit_n is None else law.search(lambda: law.holdout_needed(fit_n, power)),
        fit_needed=equal if holdout_n is None else law.search(lambda: law.fit_needed(holdout_n, power)),
        equal_needed=equal,
        needed_against_bad=law.search(lambda: law.needed_against_bad(n_fit)),
        paper_n=math.ceil(4 / (r**2 * law.p)),
        computed=not law.budget.is_spent,
    )


def warnings(policy: Policy, passed: Container[CheckName], fit_n: int, holdout_n: int) -> tuple[str, ...]:
    """A sentence, with the rows that would do, for every target that passed and yet is dead or weak at these sizes.

    A target that did not pass has a finding with its own remedy.
    """
    sentences, budget = [], Budget()
    for target in [target for target in policy.targets if target.check in passed][:MOST_PLANNED]:
        law = Law(policy, target, budget)
        if strength(law.sound(holdout_n, fit_n), law.bad(holdout_n, fit_n)) != "good":
            planned = plan_target(policy, target, fit_n, None, POWER, budget)
            weak = replace(planned, holdout_n=holdout_n, sound=law.sound(holdout_n, fit_n))
            weak = replace(weak, bad=law.bad(holdout_n, fit_n))
            sentences.append(describe_weakness(weak, POWER, passed=True) or "")
    return tuple(sentences)


def strength(sound: tuple[Chances, ...], bad: tuple[BadChance, ...]) -> str:
    """`dead` if no sound release passes, `weak` if too few sound or too many bad releases pass, else `good`."""
    passes = [chances.passes for chances in sound]
    if max(passes) <= 0.0:
        return "dead"
    return "weak" if min(passes) < WEAK_LIVENESS or bad[0].passes > WEAK_AGAINST_BAD else "good"


def describe_weakness(planned: TargetPlan, power: float, passed: bool = False) -> str | None:
    """The problem of a target at the sizes on hand, and the sizes that would do; None if there is no problem.

    If the target has `passed`, the sentence does not say that no release can: rows in groups may prove what as many
    independent rows would not.
    """
    if planned.strength == "good":
        return None
    sizes = f"with {planned.fit_n:,} rows to fit and {planned.holdout_n:,} held out"
    if planned.strength == "dead":
        problem = f"a sound release hardly ever passes {sizes}" if passed else f"no release can pass {sizes}"
    elif planned.liveness < WEAK_LIVENESS:
        chances = sorted({format(100 * chances.passes, ".1f") for chances in planned.sound}, key=float)
        problem = f"a sound release passes only {' to '.join(chances)} % of the time {sizes}"
    else:
        multiple = float(planned.bad[0].multiple)
        often = rounded_percent(planned.bad[0].passes, 1)
        problem = f"a release at {multiple:g} times the target still passes {often} of the time"
    least = planned.target.min_n
    equal = planned.equal_needed
    if not planned.computed:
        cure = "how many rows would do was not computed"
    elif planned.liveness >= WEAK_LIVENESS:
        if planned.needed_against_bad is None:
            return f"{planned.target.check}: {problem}; no number of rows would do"
        rows = max(planned.needed_against_bad, planned.holdout_needed or least, least)
        cure = f"{rows:,} held-out rows would let it pass at most {percent(WEAK_AGAINST_BAD, 4)} of the time"
    elif planned.holdout_needed is not None and not (equal and 2 * equal < planned.holdout_needed):
        rows = max(planned.holdout_needed, least)
        cure = f"{rows:,} held-out rows would let a sound one pass {percent(power, 4)} of the time"
    elif equal is not None:
        both = f"{max(equal, least):,} rows to fit and as many held out"
        cure = f"{both} would let a sound one pass {percent(power, 4)} of the time"
    else:
        cure = "no number of rows would do"
    return f"{planned.target.check}: {problem}; {cure}"
