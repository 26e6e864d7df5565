"""Planning: how often the gate errs at given sample sizes, and which sizes would do. No data, no judgement.

Without ties, with fit and held-out rows exchangeable, the true FPR of the threshold at fractional rank x is
Beta(x, n_fit - x + 1) to an excellent approximation for x >= 5, so the held-out count is beta-binomial: the
calibrator's own noise is counted, which the rule of thumb n = 4 / (r^2 p) leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from gate.binomial import Range, beta_binomial_between, beta_cdf, critical_counts, first, lower_tail, upper_tail
from gate.calibration.positions import fractional_rank, named
from gate.errors import GateError
from gate.evidence import band_of
from gate.policy import Policy, Target
from gate.verdict import passing_counts

LARGEST = 10**13  # rows; a plan beyond this is no plan
WEAK_LIVENESS, WEAK_TEETH = 0.8, 0.1
PATIENCE = 1000  # steps of a search, five times what most need
SAFE_RANK = 5.0  # below this fractional rank the beta law is only a bracket


@dataclass(frozen=True)
class Chances:
    """The probabilities of the three outcomes at one target."""

    passes: float
    fails: float

    @property
    def inconclusive(self) -> float:
        return max(0.0, 1.0 - self.passes - self.fails)


@dataclass(frozen=True)
class Teeth:
    """The chance that a release whose true FPR is `multiple` times the target ships."""

    multiple: Fraction
    passes: float


@dataclass(frozen=True)
class TargetPlan:
    """What one target needs, and what it does at the sizes on hand.

    sound             the chances of a sound release: one figure where the beta law is good, else two that bracket it
    holdout_needed    at the fit size given, else at an equal one; likewise `fit_needed`
    equal_needed      both sizes, where they are the same
    teeth_needed      held-out rows at which a bad release ships at most rarely
    """

    target: Target
    fit_n: int
    holdout_n: int
    sound: tuple[Chances, ...]
    teeth: tuple[Teeth, ...]
    holdout_needed: int | None
    fit_needed: int | None
    equal_needed: int | None
    teeth_needed: int | None
    paper_n: int

    @property
    def liveness(self) -> float:
        """The chance that a sound release passes; the lower one where only a bracket is known."""
        return min(chance.passes for chance in self.sound)

    @property
    def standing(self) -> str:
        return standing(self.sound, self.teeth)


@dataclass(frozen=True)
class Plan:
    """A policy's targets with their error rates."""

    power: float
    targets: tuple[TargetPlan, ...]


def plan(policy: Policy, fit_n: int | None = None, holdout_n: int | None = None, power: float = 0.95) -> Plan:
    """Plan every target at the sizes given; where one is not, at its own `min_n`."""
    if not 0.0 < power < 1.0:  # NaN is neither
        raise GateError(f"power: must be above 0 and below 1, got {power}; give one such as 0.95")
    return Plan(power, tuple(plan_target(policy, target, fit_n, holdout_n, power) for target in policy.targets))


def plan_target(policy: Policy, target: Target, fit_n: int | None, holdout_n: int | None, power: float) -> TargetPlan:
    law = _Law(policy, target)
    n = holdout_n if holdout_n is not None else target.min_n
    n_fit = fit_n if fit_n is not None else n
    r = min(Fraction(target.max_relative_error.above), Fraction(1))
    equal = law.holdout_needed(None, power)
    return TargetPlan(
        target=target,
        fit_n=n_fit,
        holdout_n=n,
        sound=law.sound(n, n_fit),
        teeth=law.teeth(n, n_fit),
        holdout_needed=equal if fit_n is None else law.holdout_needed(fit_n, power),
        fit_needed=equal if holdout_n is None else law.fit_needed(holdout_n, power),
        equal_needed=equal,
        teeth_needed=law.teeth_needed(n_fit),
        paper_n=math.ceil(4 / (r**2 * law.p)),
    )


@dataclass(frozen=True)
class Curve:
    """The chance to pass against the true FPR of one target, at the sizes planned."""

    target: str
    holdout_n: int
    multiples: tuple[float, ...]
    passes: tuple[float, ...]


def operating_characteristics(policy: Policy, planned: Plan) -> list[Curve]:
    """One curve per target, from a quarter of the target to five times it."""
    multiples = tuple(0.25 * 20 ** (i / 240) for i in range(241))
    curves = []
    for target in planned.targets:
        law = _Law(policy, target.target)
        rates = [min(1.0, float(law.p) * multiple) for multiple in multiples]
        passes = tuple(law.passes_at(target.holdout_n, target.fit_n, rate) for rate in rates)
        curves.append(Curve(str(target.target.fpr), target.holdout_n, multiples, passes))
    return curves


def warnings(policy: Policy, fit_n: int, holdout_n: int, power: float = 0.95) -> tuple[str, ...]:
    """A sentence for every target that is dead or weak at these sizes, with the number that would do."""
    sentences = []
    for target in policy.targets:
        law = _Law(policy, target)
        if standing(law.sound(holdout_n, fit_n), law.teeth(holdout_n, fit_n)) != "good":
            planned = plan_target(policy, target, fit_n, holdout_n, power)
            sentences.append(describe_weakness(planned, power) or "")
    return tuple(sentences)


def standing(sound: tuple[Chances, ...], teeth: tuple[Teeth, ...]) -> str:
    """`dead` where no sound release passes, `weak` where too few do or too many bad ones, else `good`."""
    liveness = min(chances.passes for chances in sound)
    if liveness <= 0.0:
        return "dead"
    return "weak" if liveness < WEAK_LIVENESS or teeth[0].passes > WEAK_TEETH else "good"


def describe_weakness(planned: TargetPlan, power: float) -> str | None:
    """What is wrong with a target at the sizes on hand, and which sizes would do; None where nothing is."""
    if planned.standing == "good":
        return None
    sizes = f"with {planned.fit_n:,} rows to fit and {planned.holdout_n:,} held out"
    if planned.standing == "dead":
        problem = f"no release can pass {sizes}"
    elif planned.liveness < WEAK_LIVENESS:
        problem = f"a sound release passes only {planned.liveness:.1%} of the time {sizes}"
    else:
        multiple = float(planned.teeth[0].multiple)
        problem = f"a release at {multiple:g} times the target still passes {planned.teeth[0].passes:.1%} of the time"
    least = planned.target.min_n
    equal = planned.equal_needed
    if planned.liveness >= WEAK_LIVENESS:
        if planned.teeth_needed is None:
            return f"{planned.target.check}: {problem}; no number of rows would do"
        rows = max(planned.teeth_needed, planned.holdout_needed or least, least)
        cure = f"{rows:,} held-out rows would let it pass at most {WEAK_TEETH:.0%} of the time"
    elif planned.holdout_needed is not None and not (equal and 2 * equal < planned.holdout_needed):
        cure = (
            f"{max(planned.holdout_needed, least):,} held-out rows would let a sound one pass {power:.0%} of the time"
        )
    elif equal is not None:
        both = max(equal, least)
        cure = f"{both:,} rows to fit and as many held out would let a sound one pass {power:.0%} of the time"
    else:
        cure = "no number of rows would do"
    return f"{planned.target.check}: {problem}; {cure}"


class _Law:
    """One target's pass region and the law of its held-out count."""

    def __init__(self, policy: Policy, target: Target) -> None:
        self.rule = policy.rule
        self.position = policy.calibration.plotting_position
        self.min_n = target.min_n
        self.p = Fraction(target.fpr)
        error = target.max_relative_error
        self.excess = Fraction(error.above)
        self.narrowest = min(self.excess, Fraction(error.below), Fraction(1))
        self.band = band_of(target, policy.alpha())

    # --- at given sizes

    def rank(self, n_fit: int) -> float:
        """The fractional rank in the fit sample at which the threshold lies."""
        return float(fractional_rank(named(self.position), self.p, n_fit))

    def rule_at(self, n_fit: int) -> str:
        """Targets below the lowest fit label pass only when proven, whatever the rule."""
        return "proven" if float(self.p) < float(named(self.position).label(1, n_fit)) else self.rule

    def sound(self, n: int, n_fit: int) -> tuple[Chances, ...]:
        """The chances of a release whose calibrator was fitted on n_fit exchangeable rows."""
        critical = critical_counts(n, self.band)
        region = passing_counts(self.rule_at(n_fit), critical, n) if n >= self.min_n else None
        x = self.rank(n_fit)
        ranks = [x] if x >= SAFE_RANK else [float(math.floor(x)), math.floor(x) + 1.0]
        return tuple(
            Chances(
                passes=_chance(n, n_fit, rank, region),
                fails=sum(_chance(n, n_fit, rank, tail) for tail in critical.refuted(n)),
            )
            for rank in ranks
        )

    def passes_at(self, n: int, n_fit: int, q: float) -> float:
        """The chance to pass at a true FPR of q, the threshold taken as it is."""
        region = self._region(n, n_fit) if n >= self.min_n else None
        return upper_tail(region[0], n, q) - upper_tail(region[1] + 1, n, q) if region else 0.0

    def teeth(self, n: int, n_fit: int) -> tuple[Teeth, ...]:
        """The chances that a release far over its target ships, at 1 + 2r times it first."""
        return tuple(
            Teeth(m, self.passes_at(n, n_fit, min(float(self.p * m), 1.0)))
            for m in (1 + 2 * self.excess, Fraction(2), Fraction(5))
        )

    def liveness(self, n: int, n_fit: int) -> float:
        """The chance that a sound release passes, by the beta law alone: what the planner searches with."""
        return _chance(n, n_fit, self.rank(n_fit), self._region(n, n_fit))

    def _region(self, n: int, n_fit: int) -> Range | None:
        """The counts that pass, whatever the minimum of rows."""
        rule = self.rule_at(n_fit)
        smallest = first(lambda k: self.band.admits_from_below(rule, k, n), 0, n + 1)
        largest = first(lambda k: not self.band.admits_from_above(rule, k, n), 0, n + 1) - 1
        return (smallest, largest) if smallest <= largest else None

    # --- sizes needed

    def fit_needed(self, holdout_n: int | None, power: float) -> int | None:
        """The fewest rows to fit on at this held-out size (or at an equal one) for the power; None if none do."""
        if holdout_n is None:
            return self.holdout_needed(None, power)
        least = math.ceil(1 / self.p)
        found = first(lambda n_fit: self.liveness(holdout_n, n_fit) >= power, least, LARGEST)
        return found if found < LARGEST else None

    def holdout_needed(self, fit_n: int | None, power: float) -> int | None:
        """The fewest held-out rows from which on, at every larger number too, a sound release passes with the power.

        Liveness is a saw-tooth in n, so one good n says nothing of the next; its worst within a tooth is nearly
        monotone.
        """
        if fit_n is not None and self._with_endless_rows(fit_n) < power:
            return None
        return self._from_which_on(lambda low, high: self._at_least(low, high, fit_n) >= power)

    def teeth_needed(self, n_fit: int) -> int | None:
        """The fewest held-out rows from which on a release at 1 + 2r times the target ships at most rarely."""
        q = min(float(self.p * (1 + 2 * self.excess)), 1.0)
        rule = self.rule_at(n_fit)

        def rare(low: int, high: int) -> bool:
            largest = first(lambda k: not self.band.admits_from_above(rule, k, high), 0, high + 1) - 1
            return lower_tail(largest, low, q) <= WEAK_TEETH

        return self._from_which_on(rare)

    def _from_which_on(self, good: Callable[[int, int], bool]) -> int | None:
        """The fewest rows from which on all are good; `good(low, high)` says so of a whole stretch, itself included.

        Searched from above, because what is refuted by chance alone comes and goes as the rows grow fewer.
        """
        tooth = math.ceil(1 / self.p)

        def enough(n: int) -> bool:
            return good(n, n + tooth)

        high = math.ceil(64 / (self.narrowest**2 * self.p))
        while not enough(high):
            high *= 2
            if high > LARGEST:
                return None
        low = high
        while low > 1 and enough(low):
            low, high = low * 7 // 10, low
        start = first(enough, low, high)
        while True:
            stop = start + 8 * tooth + start // 50
            last = _last_not(good, 1, stop)
            if last < (start + stop) // 2:
                return last + 1
            start = stop  # still rising at the end of the window: look further

    def _at_least(self, low: int, high: int, fit_n: int | None) -> float:
        """A bound from below on the liveness at every n in [low, high]; where these are one, the liveness.

        As n grows the count grows, and so do the smallest and the largest that pass.
        """
        fit_low, fit_high = (low, high) if fit_n is None else (fit_n, fit_n)
        rule = self.rule_at(fit_low)
        smallest = first(lambda k: self.band.admits_from_below(rule, k, high), 0, high + 1)
        largest = first(lambda k: not self.band.admits_from_above(rule, k, low), 0, low + 1) - 1
        if smallest > largest:
            return 0.0
        if low == high:
            return _chance(low, fit_low, self.rank(fit_low), (smallest, largest))
        reaches = _chance(low, fit_low, self.rank(fit_low), (smallest, low))
        return reaches - _chance(high, fit_high, self.rank(fit_high), (largest + 1, high))

    def _with_endless_rows(self, n_fit: int) -> float:
        """What liveness tends to as held-out rows grow: the chance that the calibrator itself is inside the band."""
        rank = max(self.rank(n_fit), 1e-9)
        low, high = max(float(self.band.low), 0.0), min(float(self.band.high), 1.0)
        inside = beta_cdf(rank, n_fit - rank + 1, high) - beta_cdf(rank, n_fit - rank + 1, low)
        return float(inside)


def _last_not(good: Callable[[int, int], bool], low: int, high: int) -> int:
    """The last n in [low, high] that is not good, else low - 1; stretches that are good are passed over whole.

    Where the good hardly grows better it may be an n a little later: the search is cut short there.
    """
    stretches, steps = [(low, high)], 0
    while stretches:
        start, stop = stretches.pop()
        steps += 1
        if good(start, stop):
            continue
        if start == stop or steps > PATIENCE:
            return stop
        middle = (start + stop) // 2
        stretches += [(start, middle), (middle + 1, stop)]
    return low - 1


def _chance(n: int, n_fit: int, rank: float, counts: Range | None) -> float:
    """The chance that the held-out count falls among `counts`, the threshold being at a rank of the fit sample."""
    if counts is None:
        return 0.0
    if rank <= 0:  # beyond the largest fit score: nothing is flagged
        return float(counts[0] <= 0)
    return beta_binomial_between(n, rank, n_fit - rank + 1, counts)
