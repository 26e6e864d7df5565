"""A range's plan: how often a sound release passes it, by simulation, and which sizes would do.

Let x_i be the fractional fit ranks of the grid. The true rates (q_m, q_{m-1} - q_m, ...) are Dirichlet with parameters
(x_m, x_{m-1} - x_m, ..., n_fit + 1 - x_0), and given these rates the counts are cumulated multinomial. Simulations have
one seed, so that the same question always has the same answer; they state their error. The module sees no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from statistics import NormalDist

import numpy as np

from gate.calibration.positions import fractional_rank, named
from gate.contract import Floats, Ints, Mask
from gate.planning.law import LARGEST, SAFE_RANK, WEAK_AGAINST_BAD, WEAK_LIVENESS, Law
from gate.policy import Policy, Range, Span, Target, Tolerance
from gate.statistics.ranges import SEGMENT_POINTS, Corridor, Counts, corridor
from gate.statistics.tails import FixedTails
from gate.words import between, percent, rounded_percent

DRAWS = 4000
PIECE = 1000  # draws at a time
SEED = 0
MOST_POINTS = 1500  # of the grid that are simulated
MOST_NEAR = 600  # points among those that may decide; if there were more, neighbours would hardly differ
FAR = 6.5  # deviations from every edge; beyond it a point never decides
MOST_GROWTH = 10_000  # times the rows on hand
WINDOW = (0.9, 0.95, 1.0, 1.05, 1.1, 1.15)  # sizes around the one sought, over which its chance is smoothed
NORMAL = NormalDist()


@dataclass(frozen=True)
class Estimate:
    """A number that a simulation found, and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class BadInDecade:
    """An upper bound on the chance that a release ships whose rates are `multiple` times too high in one decade."""

    start: float
    stop: float
    multiple: Fraction
    passes: float


@dataclass(frozen=True)
class RangePlan:
    """What one range needs, and what it does at the sizes on hand.

    passes, fails     the chances of a sound release, simulated
    holdout_needed    held-out rows at the given fit size, else at an equal one
    equal_needed      rows to fit and rows to hold out, if both sizes are the same
    needed_against_bad  held-out rows with which a bad release ships at most rarely; null if it does so already
    anchor_needed     rows needed for its lowest rate alone; the range costs the rest because it looks everywhere
    exact             false if so few fit rows lie beyond the lowest rate that the law is only approximate
    """

    judged: Range
    fit_n: int
    holdout_n: int
    passes: Estimate
    fails: Estimate
    bad: tuple[BadInDecade, ...]
    holdout_needed: Estimate | None
    equal_needed: Estimate | None
    anchor_needed: int | None
    exact: bool
    needed_against_bad: int | None = None

    @property
    def cost(self) -> float | None:
        """The rows that the range takes beyond those of its lowest rate, as a share of them."""
        if self.equal_needed is None or self.anchor_needed is None:
            return None
        return self.equal_needed.value / self.anchor_needed - 1

    @property
    def worst_bad(self) -> BadInDecade:
        return max(self.bad, key=lambda bad: bad.passes)


def corridor_of(policy: Policy, judged: Range, alpha: Fraction) -> Corridor:
    """The range's tolerance on its grid, in exact numbers."""
    return _corridor(policy, judged, judged.max_relative_error, alpha, None)


def segment_corridor_of(policy: Policy, span: Span, error: Tolerance, alpha: Fraction) -> Corridor:
    """The range's tolerance on the coarser grid on which every segment is judged."""
    return _corridor(policy, span, error, alpha, SEGMENT_POINTS)


def _corridor(policy: Policy, span: Span, error: Tolerance, alpha: Fraction, a_decade: int | None) -> Corridor:
    above, below, looks = Fraction(error.above), Fraction(error.below), policy.interval == "sequential"
    return corridor(policy.anchors, span.start, span.stop, above, below, alpha, a_decade, looks)


class RangeLaw:
    """One range's pass region and the law of its held-out counts."""

    def __init__(
        self, policy: Policy, judged: Range, alpha: Fraction | None = None, most_points: int = MOST_POINTS
    ) -> None:
        self.policy, self.judged, self.most_points = policy, judged, most_points
        self.corridor = corridor_of(policy, judged, policy.alpha() if alpha is None else alpha)
        self.position = named(policy.calibration.plotting_position)

    @cached_property
    def points(self) -> Ints:
        """The points of the grid that are simulated; if there are too many, they are evenly chosen."""
        size = len(self.corridor.grid.points)
        return np.union1d(
            np.arange(size - 1, -1, -math.ceil(size / self.most_points)), [0, *self.corridor.grid.refuting]
        )

    @cached_property
    def _rates(self) -> list[Fraction]:
        return [Fraction(self.corridor.grid.points[i].fpr) for i in self.points.tolist()]

    def ranks(self, n_fit: int) -> Floats:
        """The fractional rank of each point's threshold in the fit sample."""
        return np.array([float(fractional_rank(self.position, p, n_fit)) for p in self._rates])

    def rule_at(self, n_fit: int) -> str:
        """A range that goes below the lowest fit label passes only when proven, whatever the rule."""
        below = float(self._rates[-1]) < float(self.position.label(1, n_fit))
        return "proven" if below else self.policy.rule

    def sound(self, n: int, n_fit: int, draws: int = DRAWS) -> tuple[Estimate, Estimate]:
        """The chances that a release passes and that it is refuted, if it was fitted on n_fit exchangeable rows."""
        critical = self.corridor.critical(n, self.points)
        region, unrefuted = critical.passing(self.rule_at(n_fit)), critical.unrefuted
        ranks = self.ranks(n_fit)
        near = _near(ranks, n, n_fit, region, unrefuted)
        dead = n < self.judged.min_n or bool(np.any(region.low > region.high))
        passes = fails = 0
        rng = np.random.default_rng(SEED)
        for size in _pieces(draws):
            counts = draw_counts(rng, draw_rates(rng, ranks[near], n_fit, size), n)
            passes += 0 if dead else int(np.count_nonzero(within(counts, region, near)))
            fails += int(np.count_nonzero(~within(counts, unrefuted, near)))
        return Estimate(0.0, 0.0) if dead else _share(passes, draws), _share(fails, draws)

    def bad(self, n: int, n_fit: int) -> tuple[BadInDecade, ...]:
        """The chance, for every decade, that a release ships whose rates are 1 + 2r times too high there.

        It ships only if every point passes, so it ships at most as often as the point that passes least often.
        """
        region = self.corridor.critical(n, self.points).passing(self.rule_at(n_fit))
        multiple = 1 + 2 * Fraction(self.judged.max_relative_error.above)
        fprs = self.corridor.grid.fprs[self.points]
        found = []
        for start, stop in _decades(fprs):
            rates = off_in_one_decade(fprs, start, stop, float(multiple))
            tails = FixedTails()
            chances = tails.many(region.low, n, rates) - tails.many(region.high + 1, n, rates)
            allowed = n >= self.judged.min_n and bool(np.all(region.low <= region.high))
            found.append(BadInDecade(start, stop, multiple, max(float(chances.min()), 0.0) if allowed else 0.0))
        return tuple(found)

    def needed_against_bad(self, n: int, n_fit: int) -> int | None:
        """The held-out rows, n or more, with which a release off in one decade ships rarely; None if none do."""

        def rare(rows: int) -> bool:
            return max(one.passes for one in self.bad(rows, n_fit)) <= WEAK_AGAINST_BAD

        low = high = max(n, self.judged.min_n)
        while not rare(high):
            low, high = high, 2 * high
            if high > MOST_GROWTH * max(n, self.judged.min_n):
                return None
        while high / low > 1.02 and high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if rare(middle) else (middle, high)
        return round_up(high)

    def holdout_needed(self, fit_n: int | None, power: float, draws: int = DRAWS) -> Estimate | None:
        """About the fewest held-out rows with which a sound release passes with this power; None if none do.

        Few draws bracket a size; around it the normal score of the chance is a line in the logarithm of the size.
        """

        def chance(rows: float, runs: int) -> Estimate:
            n = round(rows)
            return self._live(n, n if fit_n is None else fit_n, runs)

        if np.any(self.corridor.reach.low >= self.corridor.reach.high):  # the grid cannot be so fine
            return None
        if fit_n is not None and self._with_endless_rows(fit_n, draws) < power:
            return None
        low, high = self._bracket(lambda rows: chance(rows, draws // 8).value >= power)
        if high is None:
            return None
        for _ in range(12):
            if high / low <= 1.1:
                break
            middle = math.sqrt(low * high)
            low, high = (low, middle) if chance(middle, draws // 8).value >= power else (middle, high)
        sizes = [high * share for share in WINDOW]
        found = _smoothed(sizes, [chance(size, draws) for size in sizes], power, draws)
        return found or Estimate(high, high - low)

    def _bracket(self, enough: Callable[[float], bool]) -> tuple[float, float | None]:
        """Two sizes; the larger one is enough."""
        error = self.judged.max_relative_error
        narrowest = float(min(error.above, error.below, Decimal(1)))
        high = max(4 / (narrowest**2 * float(self._rates[-1])), 2.0)
        if enough(high):
            while high > 2 and enough(high / 2):
                high /= 2
            return high / 2, high
        while high < LARGEST:
            low, high = high, high * 2
            if enough(high):
                return low, high
        return high, None

    def _with_endless_rows(self, n_fit: int, draws: int) -> float:
        """The limit of the chance as held-out rows grow: that the calibrator's rates are inside at every point."""
        rng, (low, high) = np.random.default_rng(SEED), (edge[self.points] for edge in self.corridor.edges)
        inside = 0
        for size in _pieces(draws):
            rates = draw_rates(rng, self.ranks(n_fit), n_fit, size)
            inside += int(np.count_nonzero(np.all((low <= rates) & (rates <= high), axis=1)))
        return inside / draws

    def _live(self, n: int, n_fit: int, draws: int) -> Estimate:
        """The chance to pass, whatever the policy's minimum of rows."""
        region = self.corridor.critical(n, self.points).passing(self.rule_at(n_fit))
        if np.any(region.low > region.high):
            return Estimate(0.0, 0.0)
        ranks = self.ranks(n_fit)
        near = _near(ranks, n, n_fit, region, region)
        rng = np.random.default_rng(SEED)
        passes = 0
        for size in _pieces(draws):
            counts = draw_counts(rng, draw_rates(rng, ranks[near], n_fit, size), n)
            passes += int(np.count_nonzero(within(counts, region, near)))
        return _share(passes, draws)


@lru_cache(maxsize=64)
def plan_range(
    policy: Policy,
    judged: Range,
    fit_n: int | None = None,
    holdout_n: int | None = None,
    power: float = 0.95,
    most_points: int = MOST_POINTS,
) -> RangePlan:
    """Plan a range at the given sizes; a size that is not given is its `min_n`."""
    law = RangeLaw(policy, judged, most_points=most_points)
    n = holdout_n if holdout_n is not None else judged.min_n
    n_fit = fit_n if fit_n is not None else n
    passes, fails = law.sound(n, n_fit)
    equal = law.holdout_needed(None, power)
    bad = law.bad(n, n_fit)
    weak = max(one.passes for one in bad) > WEAK_AGAINST_BAD
    lowest = Target(fpr=judged.stop, min_n=1, max_relative_error=judged.max_relative_error)
    return RangePlan(
        judged=judged,
        fit_n=n_fit,
        holdout_n=n,
        passes=passes,
        fails=fails,
        bad=bad,
        holdout_needed=equal if fit_n is None else law.holdout_needed(fit_n, power),
        equal_needed=equal,
        anchor_needed=Law(policy, lowest).holdout_needed(None, power),
        exact=bool(law.ranks(n_fit)[-1] >= SAFE_RANK),
        needed_against_bad=law.needed_against_bad(n, n_fit) if weak else None,
    )


def describe_weakness(planned: RangePlan, power: float, passed: bool = False) -> str | None:
    """The problem of a range at the sizes on hand, and the sizes that would do; None if there is no problem.

    If the range has `passed`, the sentence does not say that no release can: rows in groups may prove what as many
    independent rows would not.
    """
    sizes = f"with {planned.fit_n:,} rows to fit and {planned.holdout_n:,} held out"
    worst = planned.worst_bad
    if planned.passes == Estimate(0.0, 0.0):  # no count passes; a share of 0 among the draws would not prove it
        problem = f"a sound release hardly ever passes {sizes}" if passed else f"no release can pass {sizes}"
    elif planned.passes.value < WEAK_LIVENESS:
        problem = f"a sound release passes only {rounded_percent(planned.passes.value)} of the time {sizes}"
    elif worst.passes > WEAK_AGAINST_BAD:
        decade = f"from {between(percent(worst.start, 3), percent(worst.stop, 3))}"
        problem = f"a release at {float(worst.multiple):g} times its rates {decade} may still pass"
        needed = planned.needed_against_bad
        cure = (
            "no number of rows would do" if needed is None else f"about {needed:,} held-out rows would let it pass at"
        )
        cure += "" if needed is None else f" most {percent(WEAK_AGAINST_BAD, 4)} of the time"
        return f"{planned.judged.check}: {problem} {rounded_percent(worst.passes)} of the time; {cure}"
    else:
        return None
    rows = planned.equal_needed
    cure = "no number of rows would do" if rows is None else f"about {round_up(rows.value):,} rows to fit and as many"
    return f"{planned.judged.check}: {problem}; {cure}" + (
        "" if rows is None else f" held out would let a sound one pass {percent(power, 4)} of the time"
    )


def round_up(rows: float) -> int:
    """Rows rounded up to three digits; a simulation knows no more digits."""
    unit: int = 10 ** max(math.floor(math.log10(max(rows, 1))) - 2, 0)
    return int(math.ceil(rows / unit) * unit)


# --- the simulation -----------------------------------------------------------------------------------------


def draw_rates(rng: np.random.Generator, ranks: Floats, n_fit: int, draws: int) -> Floats:
    """True rates at thresholds of these falling ranks: a row for each draw."""
    shapes = np.concatenate([ranks[-1:], -np.diff(ranks)[::-1]])
    parts = rng.standard_gamma(np.maximum(shapes, 0.0), (draws, len(ranks)))
    rest = rng.standard_gamma(max(n_fit + 1 - float(ranks[0]), 1e-9), (draws, 1))
    sums = np.cumsum(parts, axis=1)
    return (sums / (sums[:, -1:] + rest))[:, ::-1]


def draw_counts(rng: np.random.Generator, rates: Floats, n: int) -> Ints:
    """Counts of n rows at thresholds of these falling true rates: a row for each draw."""
    counts = np.zeros(rates.shape, dtype=np.int64)
    count, last = np.zeros(len(rates), dtype=np.int64), np.zeros(len(rates))
    for i in range(rates.shape[1] - 1, -1, -1):
        share = np.clip((rates[:, i] - last) / np.maximum(1 - last, 1e-300), 0.0, 1.0)
        count = count + rng.binomial(n - count, share)
        counts[:, i], last = count, rates[:, i]
    return counts


def off_in_one_decade(fprs: Floats, start: float, stop: float, multiple: float) -> Floats:
    """Rates `multiple` times the promised ones from start to stop, and elsewhere as near to them as they can be."""
    inside = (fprs <= start * (1 + 1e-9)) & (fprs >= stop * (1 - 1e-9))
    wanted = np.minimum(np.where(inside, fprs * multiple, fprs), 1.0)
    return np.maximum.accumulate(wanted[::-1])[::-1]


def _decades(fprs: Floats) -> Iterator[tuple[float, float]]:
    """The decades of a range from its lowest rate up; the last one may reach over its highest."""
    stop = float(fprs[-1])
    while stop < fprs[0] * (1 - 1e-9):
        yield min(10 * stop, float(fprs[0])), stop
        stop *= 10


def _near(ranks: Floats, n: int, n_fit: int, *regions: Counts) -> Ints:
    """The points at which a count may leave a region, by the normal law of a beta-binomial count; at least the last."""
    mean = n * ranks / (n_fit + 1)
    spread = np.sqrt(mean * (1 + mean / np.maximum(ranks, 1e-9))) + 1
    near = np.zeros(len(ranks), dtype=bool)
    near[-1] = True
    for region in regions:
        near |= (region.high < n) & (region.high < mean + FAR * spread)
        near |= (region.low > 0) & (region.low > mean - FAR * spread)
    found = np.flatnonzero(near)
    return found[::-1][:: math.ceil(len(found) / MOST_NEAR)][::-1]


def within(counts: Ints, region: Counts, points: Ints | slice = slice(None)) -> Mask:
    """Whether each draw has every count in a region, or every count at some points."""
    inside = (region.low[points] <= counts) & (counts <= region.high[points])
    return np.asarray(inside.all(axis=1))


def _pieces(draws: int) -> Iterator[int]:
    for start in range(0, draws, PIECE):
        yield min(PIECE, draws - start)


def _share(hits: int, draws: int) -> Estimate:
    """A share and its standard error, which is not zero where none or all are hit."""
    share = hits / draws
    return Estimate(share, math.sqrt(max(share * (1 - share), 1 / draws) / draws))


def _smoothed(sizes: list[float], chances: list[Estimate], power: float, draws: int) -> Estimate | None:
    """The size at which a line through the chances' normal scores, over the logarithms of sizes, has the power."""
    shares = np.clip([chance.value for chance in chances], 0.5 / draws, 1 - 0.5 / draws)
    scores = np.array([NORMAL.inv_cdf(float(share)) for share in shares])
    weights = np.array([NORMAL.pdf(score) for score in scores]) / np.sqrt(shares * (1 - shares))
    logs = np.log(sizes)
    (slope, level), covariance = np.polyfit(logs, scores, 1, w=weights, cov="unscaled")
    if slope <= 0:
        return None
    at = (NORMAL.inv_cdf(power) - level) / slope
    gradient = np.array([at, 1.0]) / slope
    error = math.sqrt(float(gradient @ covariance @ gradient) / draws)
    return Estimate(float(np.exp(at)), float(np.exp(at)) * error)
