"""Planning: how often the gate errs at given sample sizes, and which sizes would do. No data, no judgement.

Without ties, with fit and held-out rows exchangeable, the true FPR of the threshold at fractional rank x is
Beta(x, n_fit - x + 1) to an excellent approximation for x >= 5, so the held-out count is beta-binomial: the
calibrator's own noise is counted, which the rule of thumb n = 4 / (r^2 p) leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from gate.binomial import (
    Band,
    Range,
    beta_binomial_between,
    beta_cdf,
    critical_counts,
    first,
    lower_tail,
    upper_tail,
)
from gate.calibration.positions import fractional_rank, named
from gate.errors import GateError
from gate.policy import Policy, Target

LARGEST = 10**13  # rows; a plan beyond this is no plan
MOST_ROWS = 10**10  # that a record may hold, so that advice on one need not look further
POWER = 0.95
STEPS, ADVICE_STEPS = 2000, 800  # of the searches for the plan of one target, and for all advice of one run
MOST_PLANNED = 100  # targets of a run that are looked at for weaknesses
WEAK_LIVENESS, WEAK_TEETH = 0.8, 0.1
PATIENCE = 1000  # steps of a search, five times what most need
MANY = 10**6  # false positives expected; beyond it a saw-tooth is too fine to be followed, and too small to matter
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
    computed          false where a search took too many steps: a size that is None was not computed then
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
    computed: bool = True

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


def plan_target(
    policy: Policy,
    target: Target,
    fit_n: int | None,
    holdout_n: int | None,
    power: float,
    budget: Budget | None = None,
) -> TargetPlan:
    law = _Law(policy, target, budget or Budget(STEPS))
    n = holdout_n if holdout_n is not None else target.min_n
    n_fit = fit_n if fit_n is not None else n
    r = min(Fraction(target.max_relative_error.above), Fraction(1))
    equal = law.search(lambda: law.holdout_needed(None, power))
    return TargetPlan(
        target=target,
        fit_n=n_fit,
        holdout_n=n,
        sound=law.sound(n, n_fit),
        teeth=law.teeth(n, n_fit),
        holdout_needed=equal if fit_n is None else law.search(lambda: law.holdout_needed(fit_n, power)),
        fit_needed=equal if holdout_n is None else law.search(lambda: law.fit_needed(holdout_n, power)),
        equal_needed=equal,
        teeth_needed=law.search(lambda: law.teeth_needed(n_fit)),
        paper_n=math.ceil(4 / (r**2 * law.p)),
        computed=not law.budget.is_spent,
    )


class Budget:
    """How many steps searches may take, counted and not timed: the same question always has the same answer."""

    def __init__(self, steps: int = ADVICE_STEPS) -> None:
        self.left = steps
        self.is_spent = False

    def spend(self) -> None:
        if self.left <= 0:
            self.is_spent = True
            raise _SpentError
        self.left -= 1


class _SpentError(Exception):
    """A search that is given up."""


# --- advice after a count -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Advice:
    """The rows with which a sound release passes 95 % of the time, after what was counted.

    more        to hold out in all, with the calibrator as it is; where `fresh`, those on hand not among them
    again       to fit anew on, and as many to hold out, where the calibrator cannot be saved or at less cost
    computed    false where the search took too many steps
    """

    more: int | None = None
    again: int | None = None
    computed: bool = True
    fresh: bool = False


def advise(
    policy: Policy,
    target: Target,
    k: int,
    n: int,
    fit_n: int | None,
    budget: Budget,
    *,
    worth: float = 1.0,
    refuted: bool = False,
) -> Advice:
    """What rows would turn a target green that k of n held-out rows have not.

    The calibrator's true rate is Beta(x, n_fit - x + 1) before, and so Beta(x + k, n_fit - x + 1 + n - k) after the
    count: where that lies inside the band often enough, more held-out rows will show it; else a new fit is needed,
    of which this count says nothing. Rows in groups are each worth `worth` independent ones, in either sample.
    """
    law = _Law(policy, target, budget, MOST_ROWS)
    size = n if worth == 1.0 else int(n * worth)
    most = MOST_ROWS * worth
    if target.min_n > most:
        return Advice()
    more = again = None
    fresh = policy.reuse is not None  # rows that have judged would judge with a smaller error the next time
    try:
        if fit_n is not None and not refuted:
            fitted = fit_n if worth == 1.0 else int(fit_n * worth)
            more = law.more_needed(k * worth, size, fitted, fresh)
        if more is None or more > 4 * size:
            again = law.holdout_needed(None, POWER)
            safe = math.ceil(SAFE_RANK / min(law.p, 1 - law.p)) if law.p < 1 else MOST_ROWS + 1
            again = None if again is None else max(again, target.min_n, safe)
    except _SpentError:
        return Advice(_rows(more, worth), None, more is not None, fresh)
    if more is not None and again is not None and 2 * again < more:
        more = None
    return Advice(_rows(more, worth), _rows(again, worth) if more is None else None, fresh=fresh)


def _rows(size: int | None, worth: float) -> int | None:
    rows = None if size is None else math.ceil(size / worth)
    return None if rows is None or rows > MOST_ROWS else rows


def advise_at_rate(
    rule: str, band: Band, k: int, n: int, budget: Budget, *, min_n: int = 1, worth: float = 1.0
) -> Advice:
    """The rows in all, those on hand among them, that pass 95 % of the time if the others show the rate of these."""
    rate = Fraction(k, n)
    if (band.low > 0 and rate <= band.low) or (band.high < 1 and rate >= band.high) or min_n > MOST_ROWS * worth:
        return Advice()
    size = n if worth == 1.0 else int(n * worth)
    coming = _Coming(0.0, 0.0, k * worth, size, float(rate))
    tooth = math.ceil(1 / rate) if k else 1

    def enough(rows: int) -> bool:
        budget.spend()
        return coming.passes(_edges(band, rule, rows, rows + tooth), rows, rows + tooth) >= POWER

    try:
        return Advice(_rows(_fewest(enough, max(size, min_n), MOST_ROWS), worth))
    except _SpentError:
        return Advice(computed=False)


@dataclass(frozen=True)
class _Coming:
    """How many of all rows will be flagged: those counted already, and of the others as their rate has it.

    The rate is Beta(a, b), or known.
    """

    a: float
    b: float
    counted: float
    rows: int
    rate: float | None = None

    def reaches(self, k: int, n: int) -> float:
        """The chance that k or more of n rows are."""
        more, needed = n - self.rows, math.ceil(k - self.counted)
        if needed <= 0 or needed > more:
            return float(needed <= 0)
        if self.rate is not None:
            return upper_tail(needed, more, self.rate)
        return beta_binomial_between(more, self.a, self.b, (needed, more))

    def passes(self, counts: Range | None, low: int, high: int) -> float:
        """A bound from below on the chance that the count is among these, at every number of rows in [low, high]."""
        return 0.0 if counts is None else self.reaches(counts[0], low) - self.reaches(counts[1] + 1, high)


def _edges(band: Band, rule: str, low: int, high: int) -> Range | None:
    """The counts that pass at every number of rows in [low, high]: as rows grow, both ends do."""
    smallest = first(lambda k: band.admits_from_below(rule, k, high), 0, high + 1)
    largest = first(lambda k: not band.admits_from_above(rule, k, low), 0, low + 1) - 1
    return (smallest, largest) if smallest <= largest else None


def _fewest(enough: Callable[[int], bool], start: int, most: int) -> int | None:
    """The rows from about which on there are enough: larger by half until there are, then halved between."""
    low = high = start
    while not enough(high):
        if high >= most:
            return None
        low, high = high, min(high + high // 2 + 1, most)
    return first(enough, low, high)


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


def warnings(policy: Policy, passed: Container[str], fit_n: int, holdout_n: int) -> tuple[str, ...]:
    """A sentence for every target that passed and yet is dead or weak at these sizes, with the number that would do.

    What did not pass has a finding with its own remedy.
    """
    sentences, budget = [], Budget()
    for target in [target for target in policy.targets if target.check in passed][:MOST_PLANNED]:
        law = _Law(policy, target, budget)
        if standing(law.sound(holdout_n, fit_n), law.teeth(holdout_n, fit_n)) != "good":
            planned = plan_target(policy, target, fit_n, None, POWER, budget)
            weak = replace(planned, holdout_n=holdout_n, sound=law.sound(holdout_n, fit_n))
            weak = replace(weak, teeth=law.teeth(holdout_n, fit_n))
            sentences.append(describe_weakness(weak, POWER) or "")
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
    if not planned.computed:
        cure = "how many rows would do was not computed"
    elif planned.liveness >= WEAK_LIVENESS:
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


def band_of(target: Target, alpha: Fraction) -> Band:
    """The target's tolerance in exact numbers, with intervals that miss at most `alpha` of the time."""
    error = target.max_relative_error
    return Band.around(Fraction(target.fpr), Fraction(error.above), Fraction(error.below), alpha)


class _Law:
    """One target's pass region and the law of its held-out count."""

    def __init__(self, policy: Policy, target: Target, budget: Budget | None = None, largest: int = LARGEST) -> None:
        self.budget = budget or Budget(10**9)
        self.largest = largest
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
        region = critical.passing(self.rule_at(n_fit), n) if n >= self.min_n else None
        x = self.rank(n_fit)
        if x >= SAFE_RANK or x == math.floor(x) >= 1:  # at a whole rank the law is exact
            fails = sum(_chance(n, n_fit, x, tail) for tail in critical.refuted(n))
            return (Chances(passes=_chance(n, n_fit, x, region), fails=fails),)
        # Whatever the distribution of scores, the rate lies between those of the two ranks, and so does the chance of
        # reaching a count; the chance of falling among counts is the difference of two such.
        rarer, commoner = (partial(_reaches, n, n_fit, rank) for rank in (math.floor(x), math.floor(x) + 1))
        few, many = critical.refuted_at_or_below, critical.refuted_at_or_above
        low, high = region or (n + 1, n)
        return tuple(
            Chances(
                passes=min(max(one(low) - other(high + 1), 0.0), 1.0),
                fails=(0.0 if few is None else 1 - one(few + 1)) + (0.0 if many is None else other(many)),
            )
            for one, other in ((rarer, commoner), (commoner, rarer))
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
        self.budget.spend()
        return _chance(n, n_fit, self.rank(n_fit), self._region(n, n_fit))

    def _region(self, n: int, n_fit: int) -> Range | None:
        """The counts that pass, whatever the minimum of rows."""
        return _edges(self.band, self.rule_at(n_fit), n, n)

    # --- sizes needed

    def search(self, needed: Callable[[], int | None]) -> int | None:
        """A size, or None where the budget is spent before it is found."""
        try:
            return needed()
        except _SpentError:
            return None

    def more_needed(self, k: float, n: int, n_fit: int, fresh: bool) -> int | None:
        """The held-out rows in all, k of n being counted, with which the calibrator passes; None where it may not."""
        x = self.rank(n_fit)
        if min(x, n_fit + 1 - x) < SAFE_RANK:
            return None
        a, b = x + k, n_fit - x + 1 + n - k
        if self._inside(a, b) < POWER:
            return None
        coming = _Coming(a, b, 0.0, 0) if fresh else _Coming(a, b, k, n)
        rule, tooth = self.rule_at(n_fit), math.ceil(1 / self.p)

        def enough(rows: int) -> bool:
            self.budget.spend()
            return coming.passes(_edges(self.band, rule, rows, rows + tooth), rows, rows + tooth) >= POWER

        return _fewest(enough, max(1 if fresh else n, self.min_n), self.largest)

    def fit_needed(self, holdout_n: int | None, power: float) -> int | None:
        """The fewest rows to fit on at this held-out size (or at an equal one) for the power; None if none do."""
        if holdout_n is None:
            return self.holdout_needed(None, power)
        least = math.ceil(1 / self.p)
        found = first(lambda n_fit: self.liveness(holdout_n, n_fit) >= power, least, self.largest)
        return found if found < self.largest else None

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
            self.budget.spend()
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

        high = min(math.ceil(64 / (self.narrowest**2 * self.p)), self.largest)
        while not enough(high):
            if high >= self.largest:
                return None
            high = min(2 * high, self.largest)
        low = high
        while low > 1 and enough(low):
            low, high = low * 7 // 10, low
        start = first(enough, low, high)
        expected = int(start * self.p)
        if expected > MANY:  # a tooth is worth sqrt(expected) of them at most: that many more, and all are good
            return start + tooth * math.isqrt(expected)
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
        self.budget.spend()
        fit_low, fit_high = (low, high) if fit_n is None else (fit_n, fit_n)
        counts = _edges(self.band, self.rule_at(fit_low), low, high)
        if counts is None:
            return 0.0
        smallest, largest = counts
        if low == high:
            return _chance(low, fit_low, self.rank(fit_low), (smallest, largest))
        reaches = _chance(low, fit_low, self.rank(fit_low), (smallest, low))
        return reaches - _chance(high, fit_high, self.rank(fit_high), (largest + 1, high))

    def _with_endless_rows(self, n_fit: int) -> float:
        """What liveness tends to as held-out rows grow: the chance that the calibrator itself is inside the band."""
        rank = max(self.rank(n_fit), 1e-9)
        return self._inside(rank, n_fit - rank + 1)

    def _inside(self, a: float, b: float) -> float:
        """The chance that a rate of Beta(a, b) lies in the band."""
        low, high = max(float(self.band.low), 0.0), min(float(self.band.high), 1.0)
        return float(beta_cdf(a, b, high) - beta_cdf(a, b, low))


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


def _reaches(n: int, n_fit: int, rank: int, k: int) -> float:
    """The chance that the held-out count is k or more, the threshold being at a whole rank of the fit sample."""
    return _chance(n, n_fit, rank, (k, n)) if k <= n else 0.0


def _chance(n: int, n_fit: int, rank: float, counts: Range | None) -> float:
    """The chance that the held-out count falls among `counts`, the threshold being at a rank of the fit sample."""
    if counts is None:
        return 0.0
    if rank <= 0:  # beyond the largest fit score: nothing is flagged
        return float(counts[0] <= 0)
    return beta_binomial_between(n, rank, n_fit - rank + 1, counts)
