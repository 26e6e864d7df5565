"""The law of one target's held-out count, and how many rows it needs. It knows no data and judges nothing.

If there are no ties and fit and held-out rows are exchangeable, the true FPR of the threshold at fractional rank x is
Beta(x, n_fit - x + 1), to an excellent approximation for x >= 5. So the held-out count is beta-binomial. This law
counts the calibrator's own noise, which the rule of thumb n = 4 / (r^2 p) leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

from gate.calibration.positions import fractional_rank, named
from gate.policy import Policy, Target
from gate.statistics.binomial import (
    Band,
    CountRange,
    beta_binomial_between,
    beta_cdf,
    critical_counts,
    first,
    lower_tail,
    upper_tail,
)
from gate.statistics.sequential import SequentialBand

LARGEST = 10**13  # rows; a plan beyond this is no plan
POWER = 0.95
ADVICE_STEPS = 800  # that the searches for all advice of one run may take
WEAK_LIVENESS, WEAK_AGAINST_BAD = 0.8, 0.1
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
class BadChance:
    """The chance that a release whose true FPR is `multiple` times the target ships."""

    multiple: Fraction
    passes: float


class Budget:
    """How many steps searches may take. They are not timed, so the same question always has the same answer."""

    def __init__(self, steps: int = ADVICE_STEPS) -> None:
        self.left = steps
        self.is_spent = False

    def spend(self) -> None:
        if self.left <= 0:
            self.is_spent = True
            raise SpentError
        self.left -= 1


class SpentError(Exception):
    """A search that is given up."""


@dataclass(frozen=True)
class PredictedCount:
    """The predicted count of flagged rows: those counted already, and others whose rate is known or has a law.

    `rate` is the known rate; without it the law of the rate is Beta(a, b).
    """

    a: float
    b: float
    counted: float
    rows: int
    rate: float | None = None

    def reaches(self, k: int, n: int) -> float:
        """The chance that k or more of n rows are flagged."""
        more, needed = n - self.rows, math.ceil(k - self.counted)
        if needed <= 0 or needed > more:
            return float(needed <= 0)
        if self.rate is not None:
            return upper_tail(needed, more, self.rate)
        return beta_binomial_between(more, self.a, self.b, (needed, more))

    def passes(self, counts: CountRange | None, low: int, high: int) -> float:
        """A lower bound on the chance that the count is among these, at every number of rows in [low, high]."""
        return 0.0 if counts is None else self.reaches(counts[0], low) - self.reaches(counts[1] + 1, high)


def edges(band: Band, rule: str, low: int, high: int) -> CountRange | None:
    """The counts that pass at every number of rows in [low, high]; both ends grow with the rows."""
    smallest = first(lambda k: band.admits_from_below(rule, k, high), 0, high + 1)
    largest = first(lambda k: not band.admits_from_above(rule, k, low), 0, low + 1) - 1
    return (smallest, largest) if smallest <= largest else None


def fewest(enough: Callable[[int], bool], start: int, most: int) -> int | None:
    """About the fewest rows that are enough: grow the rows by half until they are, then bisect."""
    low = high = start
    while not enough(high):
        if high >= most:
            return None
        low, high = high, min(high + high // 2 + 1, most)
    return first(enough, low, high)


def band_of(target: Target, alpha: Fraction, interval: str = "clopper-pearson") -> Band:
    """The target's tolerance in exact numbers, with intervals that miss at most `alpha` of the time."""
    error, kind = target.max_relative_error, SequentialBand if interval == "sequential" else Band
    return kind.around(Fraction(target.fpr), Fraction(error.above), Fraction(error.below), alpha)


def ships(rule: str, band: Band, fpr: Fraction, excess: Fraction, n: int, min_n: int = 1) -> tuple[BadChance, ...]:
    """What a pass means: how often a release ships whose true rate is 1 + 2r, 2 and 5 times its target.

    `rule` is the rule that judges the release (`proven` if the target is extrapolated). `n` counts rows, or what rows
    in groups are worth. The threshold is taken as it is.
    """
    counts = edges(band, rule, n, n) if n >= min_n else None
    found = []
    for multiple in (1 + 2 * excess, Fraction(2), Fraction(5)):
        q = min(float(fpr * multiple), 1.0)
        found.append(
            BadChance(multiple, upper_tail(counts[0], n, q) - upper_tail(counts[1] + 1, n, q) if counts else 0.0)
        )
    return tuple(found)


class Law:
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
        self.band = band_of(target, policy.alpha(), policy.interval)

    # --- at given sizes

    def rank(self, n_fit: int) -> float:
        """The fractional rank in the fit sample at which the threshold lies."""
        return _rank(self.position, self.p, n_fit)

    def rule_at(self, n_fit: int) -> str:
        """Targets below the lowest fit label pass only when proven, whatever the rule."""
        return _rule_at(self.rule, self.position, self.p, n_fit)

    def sound(self, n: int, n_fit: int) -> tuple[Chances, ...]:
        """The chances of a release whose calibrator was fitted on n_fit exchangeable rows."""
        critical = critical_counts(n, self.band)
        region = critical.passing(self.rule_at(n_fit), n) if n >= self.min_n else None
        x = self.rank(n_fit)
        if x >= SAFE_RANK or x == math.floor(x) >= 1:  # at a whole rank the law is exact
            fails = sum(_chance(n, n_fit, x, tail) for tail in critical.refuted(n))
            return (Chances(passes=_chance(n, n_fit, x, region), fails=fails),)
        # For any distribution of scores the rate lies between the rates of the two ranks, and so does the chance of
        # reaching a count. The chance of falling among counts is the difference of two such chances.
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

    def bad(self, n: int, n_fit: int) -> tuple[BadChance, ...]:
        """The chances that a release far over its target ships, at 1 + 2r times it first."""
        return ships(self.rule_at(n_fit), self.band, self.p, self.excess, n, self.min_n)

    def liveness(self, n: int, n_fit: int) -> float:
        """The chance that a sound release passes, by the beta law alone; the planner searches with it."""
        self.budget.spend()
        return _chance(n, n_fit, self.rank(n_fit), self._region(n, n_fit))

    def _region(self, n: int, n_fit: int) -> CountRange | None:
        """The counts that pass, whatever the minimum of rows."""
        return edges(self.band, self.rule_at(n_fit), n, n)

    # --- sizes needed

    def search(self, needed: Callable[[], int | None]) -> int | None:
        """A size, or None where the budget is spent before it is found."""
        try:
            return needed()
        except SpentError:
            return None

    def more_needed(self, k: float, n: int, n_fit: int, fresh: bool) -> int | None:
        """The held-out rows in all with which the calibrator passes, after k of n; None if it may not pass."""
        x = self.rank(n_fit)
        if min(x, n_fit + 1 - x) < SAFE_RANK:
            return None
        a, b = x + k, n_fit - x + 1 + n - k
        if self._inside(a, b) < POWER:
            return None
        predicted = PredictedCount(a, b, 0.0, 0) if fresh else PredictedCount(a, b, k, n)
        rule, period = self.rule_at(n_fit), math.ceil(1 / self.p)

        def enough(rows: int) -> bool:
            self.budget.spend()
            return predicted.passes(edges(self.band, rule, rows, rows + period), rows, rows + period) >= POWER

        return fewest(enough, max(1 if fresh else n, self.min_n), self.largest)

    def fit_needed(self, holdout_n: int | None, power: float) -> int | None:
        """The fewest rows to fit on at this held-out size (or at an equal one) for the power; None if none do."""
        if holdout_n is None:
            return self.holdout_needed(None, power)
        least = math.ceil(1 / self.p)
        found = first(lambda n_fit: self.liveness(holdout_n, n_fit) >= power, least, self.largest)
        return found if found < self.largest else None

    def holdout_needed(self, fit_n: int | None, power: float) -> int | None:
        """The fewest held-out rows with which, and with any more, a sound release passes with this power.

        Liveness is a saw-tooth in n, so one good n says nothing of the next; its least value in a period is nearly
        monotone.
        """
        if fit_n is not None and self._with_endless_rows(fit_n) < power:
            return None
        return self._from_which_on(lambda low, high: self._at_least(low, high, fit_n) >= power)

    def needed_against_bad(self, n_fit: int) -> int | None:
        """The fewest held-out rows from which on a release at 1 + 2r times the target ships at most rarely."""
        q = min(float(self.p * (1 + 2 * self.excess)), 1.0)
        rule = self.rule_at(n_fit)

        def rare(low: int, high: int) -> bool:
            self.budget.spend()
            largest = first(lambda k: not self.band.admits_from_above(rule, k, high), 0, high + 1) - 1
            return lower_tail(largest, low, q) <= WEAK_AGAINST_BAD

        return self._from_which_on(rare)

    def _from_which_on(self, good: Callable[[int, int], bool]) -> int | None:
        """The fewest rows that are good, as is every larger number; `good(low, high)` tests all numbers of a stretch.

        The search goes from above, because what is refuted by chance alone comes and goes as the rows grow fewer.
        """
        period = math.ceil(1 / self.p)

        def enough(n: int) -> bool:
            return good(n, n + period)

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
        if expected > MANY:  # a drop is worth sqrt(expected) false positives at most: with their rows, all are good
            return start + period * math.isqrt(expected)
        while True:
            stop = start + 8 * period + start // 50
            last = _last_not(good, 1, stop)
            if last < (start + stop) // 2:
                return last + 1
            start = stop  # still rising at the end of the window: look further

    def _at_least(self, low: int, high: int, fit_n: int | None) -> float:
        """A lower bound on the liveness at every n in [low, high]; the liveness itself if low equals high.

        The count grows with n, and so do the smallest and the largest count that pass.
        """
        self.budget.spend()
        return _at_least(self.band, self.rule, self.position, self.p, low, high, fit_n)

    def _with_endless_rows(self, n_fit: int) -> float:
        """The limit of liveness as held-out rows grow: the chance that the calibrator's rate is in the band."""
        rank = max(self.rank(n_fit), 1e-9)
        return self._inside(rank, n_fit - rank + 1)

    def _inside(self, a: float, b: float) -> float:
        """The chance that a rate of Beta(a, b) lies in the band."""
        low, high = max(float(self.band.low), 0.0), min(float(self.band.high), 1.0)
        return float(beta_cdf(a, b, high) - beta_cdf(a, b, low))


def _last_not(good: Callable[[int, int], bool], low: int, high: int) -> int:
    """The last n in [low, high] that is not good, else low - 1; it skips stretches that are good as a whole.

    If liveness hardly rises, the search is cut short and gives an n that is a little too large.
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
    """The chance that the held-out count is k or more, if the threshold is at a whole rank of the fit sample."""
    return _chance(n, n_fit, rank, (k, n)) if k <= n else 0.0


def _chance(n: int, n_fit: int, rank: float, counts: CountRange | None) -> float:
    """The chance that the held-out count falls among `counts`, if the threshold is at this rank of the fit sample."""
    if counts is None:
        return 0.0
    if rank <= 0:  # beyond the largest fit score: nothing is flagged
        return float(counts[0] <= 0)
    return beta_binomial_between(n, rank, n_fit - rank + 1, counts)


def _rank(position: str, p: Fraction, n_fit: int) -> float:
    return float(fractional_rank(named(position), p, n_fit))


def _rule_at(rule: str, position: str, p: Fraction, n_fit: int) -> str:
    return "proven" if float(p) < float(named(position).label(1, n_fit)) else rule


@lru_cache(maxsize=4096)  # many targets and segments ask the same question
def _at_least(band: Band, rule: str, position: str, p: Fraction, low: int, high: int, fit_n: int | None) -> float:
    fit_low, fit_high = (low, high) if fit_n is None else (fit_n, fit_n)
    counts = edges(band, _rule_at(rule, position, p, fit_low), low, high)
    if counts is None:
        return 0.0
    smallest, largest = counts
    if low == high:
        return _chance(low, fit_low, _rank(position, p, fit_low), (smallest, largest))
    reaches = _chance(low, fit_low, _rank(position, p, fit_low), (smallest, low))
    return reaches - _chance(high, fit_high, _rank(position, p, fit_high), (largest + 1, high))
