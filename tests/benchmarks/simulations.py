"""What the statistics promise where rows are grouped, tied or used again, by simulation: the table of tests/README.md.

    cd tests && python -m benchmarks.simulations [--runs 1000] [NAME ...]

(as a script it would stand in the way of the standard library's module of that name).
Each simulation is a function of a number of runs that yields rows of the table; tests run the same with few runs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from gate.calibration.fit import fit
from gate.checks.shared import Shared, compare_scores
from gate.contract import Anchor, Contract, Floats
from gate.planning import band_of, plan
from gate.policy import Calibration, Columns, parse
from gate.rows.ordered import Sorted, pooled_at_rank, sort
from gate.rows.reading import from_object
from gate.rows.sample import Sample
from gate.statistics import drift, exchangeability, permutation, prediction
from gate.statistics.binomial import Band, beta_binomial, clopper_pearson, critical_counts
from gate.statistics.clusters import effective_rows

Ints = NDArray[np.int64]
Groups = tuple[Ints, Ints]  # the rows of each group, and how many of them are flagged


class Row(NamedTuple):
    """A promise with what a simulation shows: a share of the runs, and its standard error where the promise is kept."""

    simulation: str
    promise: str
    result: float
    error: float

    def __str__(self) -> str:
        return f"| {self.simulation} | {self.promise} | {100 * self.result:.1f} % | {100 * self.error:.1f} % |"


def share_error(share: float, runs: int) -> float:
    return math.sqrt(share * (1 - share) / runs)


# --- groups -------------------------------------------------------------------------------------------------


def flag_alike(rng: np.random.Generator, sizes: Ints, rate: float, rho: float) -> Groups:
    """A row is flagged when sqrt(rho) z of its group + sqrt(1 - rho) of its own reaches the quantile of the rate."""
    z = rng.standard_normal(len(sizes))
    rates = ndtr((math.sqrt(rho) * z + ndtri(rate)) / math.sqrt(1 - rho))
    return sizes, rng.binomial(sizes, rates)


def _lognormal(rng: np.random.Generator, mu: float, sigma: float, groups: int) -> Ints:
    return np.ceil(rng.lognormal(mu, sigma, groups)).astype(np.int64)


def _independent(rng: np.random.Generator, rate: float) -> Groups:
    return np.ones(100_000, dtype=np.int64), (rng.random(100_000) < rate).astype(np.int64)


def _templates(rng: np.random.Generator, rate: float) -> Groups:
    sizes = _lognormal(rng, 1, 1, 40_000)
    return sizes, sizes * (rng.random(len(sizes)) < rate)


def _pareto(rng: np.random.Generator, rate: float) -> Groups:
    sizes = np.minimum(20_000, np.ceil(3 * (1 + rng.pareto(1.2, 3000)))).astype(np.int64)
    return flag_alike(rng, sizes, rate, 0.3)


def _informative(rng: np.random.Generator, rate: float) -> Groups:
    """Flag the largest tenth of the groups, which has 0.37 of the rows, three times as often as the others."""
    sizes = _lognormal(rng, 2, 1, 8000)
    large = sizes > math.exp(2 + float(ndtri(0.9)))
    z = rng.standard_normal(len(sizes))
    base = ndtri(np.where(large, 3, 1) * rate / (1 + 2 * 0.3733))
    return sizes, rng.binomial(sizes, ndtr((math.sqrt(0.3) * z + base) / math.sqrt(0.7)))


def _hot(rng: np.random.Generator, rate: float) -> Groups:
    """Give one group in a hundred half of all flagged rows."""
    sizes = _lognormal(rng, 2, 1, 8000)
    return sizes, rng.binomial(sizes, np.where(rng.random(8000) < 0.01, rate * 50, rate / 1.98))


GROUPS: dict[str, Callable[[np.random.Generator, float], Groups]] = {
    "independent, 100 K": _independent,
    "equal: 300 x 300, rho 0.2": lambda rng, rate: flag_alike(rng, np.full(300, 300), rate, 0.2),
    "templates, 40 K groups": _templates,
    "lognormal(3, 1.5), 2 K, rho 0.5": lambda rng, rate: flag_alike(rng, _lognormal(rng, 3, 1.5, 2000), rate, 0.5),
    "Pareto 1.2, 3 K, rho 0.3": _pareto,
    "lognormal(1, 2), 5 K, rho 0.5": lambda rng, rate: flag_alike(rng, _lognormal(rng, 1, 2, 5000), rate, 0.5),
    "few: 40 x 5,000, rho 0.02": lambda rng, rate: flag_alike(rng, np.full(40, 5000), rate, 0.02),
    "pairs: 50,000 x 2, rho 0.5": lambda rng, rate: flag_alike(rng, np.full(50_000, 2), rate, 0.5),
    "larger groups flagged 3 x as often": _informative,
    "one group in 100 has half of all": _hot,
}

TARGET, TOLERANCE, ALPHA = 0.001, 0.5, 0.05


def prove(sizes: Ints, counts: Ints, below: bool = True) -> bool:
    """Whether the bounds of grouped rows lie inside the tolerance; without `below`, the upper one alone."""
    n, k = float(sizes.sum()), float(counts.sum())
    edges = TARGET * (1 - TOLERANCE), TARGET * (1 + TOLERANCE)
    plain = clopper_pearson(k, n, ALPHA)
    if plain[1] > edges[1] or (below and plain[0] < edges[0]):  # grouped rows are never worth more
        return False
    worth = effective_rows(sizes.astype(np.float64), counts.astype(np.float64), ALPHA)
    low, high = (clopper_pearson(k / n * rows, rows, ALPHA)[side] for side, rows in enumerate(worth))
    return high <= edges[1] and (not below or low >= edges[0])


def prove_groups(name: str, runs: int, multiple: float, below: bool = True, seed: int = 7) -> float:
    """How often releases whose true rate is so many times the target are proven."""
    rng = np.random.default_rng([seed, list(GROUPS).index(name), round(multiple * 100), below])
    return sum(prove(*GROUPS[name](rng, multiple * TARGET), below) for _ in range(runs)) / runs


def simulate_groups(runs: int) -> Iterator[Row]:
    error = share_error(ALPHA / 2, runs)
    for name in GROUPS:
        for multiple, below, what in (
            (1.52, True, "proven at 1.52 x"),
            (1.52, False, "the same, only excess counts"),
            (0.48, True, "proven at 0.48 x"),
        ):
            yield Row(f"groups, {name}: {what}", "at most 2.5 %", prove_groups(name, runs, multiple, below), error)
        sound = prove_groups(name, runs, 1.0)
        yield Row(f"groups, {name}: proven at 1 x", "as many as can be", sound, share_error(sound, runs))


# --- the counts that sound releases show ----------------------------------------------------------------------

Drawn = tuple[Floats, Ints]  # the score of each row, and the number of its group


def _rows(rng: np.random.Generator, sizes: Ints, rho: float) -> Drawn:
    """Rows whose scores are alike within a group: sqrt(rho) z of the group + sqrt(1 - rho) of their own."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    own = rng.standard_normal(len(groups))
    return math.sqrt(rho) * rng.standard_normal(len(sizes))[groups] + math.sqrt(1 - rho) * own, groups


SCORES: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "independent, 20 K": lambda rng: _rows(rng, np.ones(20_000, dtype=np.int64), 0.0),
    "equal: 300 x 300, rho 0.2": lambda rng: _rows(rng, np.full(300, 300), 0.2),
    "templates, 10 K groups": lambda rng: _rows(rng, _lognormal(rng, 1, 1, 10_000), 1.0),
    "lognormal(3, 1.5), 2 K, rho 0.5": lambda rng: _rows(rng, _lognormal(rng, 3, 1.5, 2000), 0.5),
    "Pareto 1.2, 3 K, rho 0.3": lambda rng: _rows(
        rng, np.minimum(20_000, np.ceil(3 * (1 + rng.pareto(1.2, 3000)))).astype(np.int64), 0.3
    ),
    "lognormal(1, 2), 5 K, rho 0.5": lambda rng: _rows(rng, _lognormal(rng, 1, 2, 5000), 0.5),
}


RATES = (0.001, 0.01)


def predict_groups(name: str, runs: int, divisions: int, seed: int = 11) -> tuple[Floats, Floats]:
    """How often held-out counts lie in the range predicted for groups, and in that for rows, at each rate."""
    rng = np.random.default_rng([seed, list(SCORES).index(name)])
    grouped, plain = np.zeros(len(RATES)), np.zeros(len(RATES))
    for _ in range(runs):
        samples = SCORES[name](rng), SCORES[name](rng)
        fit, held = (Sorted(sort(values)) for values, _ in samples)
        ranks = [rate * (fit.n + 0.365) + 0.3175 for rate in RATES]
        at = pooled_at_rank(fit, held, prediction.looked_at(fit.n + held.n))
        counts = [count_groups(values, codes % 4096, at) for values, codes in samples]
        for i, found in enumerate(prediction.predicted_counts(counts[0], counts[1], ranks, divisions=divisions)):
            whole = math.floor(ranks[i])
            below, above = fit.at_rank([whole + 1, whole])
            k = int(held.at_or_above(below + (ranks[i] - whole) * (above - below)))
            by_rows = beta_binomial(held.n, ranks[i], fit.n - ranks[i] + 1).quantiles(0.05)
            grouped[i] += found[0] <= k <= found[1]
            plain[i] += by_rows[0] <= k <= by_rows[1]
    return grouped / runs, plain / runs


def simulate_prediction(runs: int) -> Iterator[Row]:
    for name in SCORES:
        for rate, grouped, plain in zip(RATES, *predict_groups(name, runs, 399), strict=True):
            what = f"held-out counts inside what is predicted, {name}, at {rate:.1%}"
            yield Row(f"{what} (by rows: {plain:.0%})", "at least 95 %", float(grouped), share_error(0.05, runs))


# --- noise or drift -------------------------------------------------------------------------------------------


def read_tails(
    rng: np.random.Generator, runs: int, factor: float, rows: tuple[int, int], rate: float = 0.001
) -> dict[str, float]:
    """How often each reading is given of held-out rows that truly reach the threshold so many times as often."""
    (fit_n, n), half = rows, Fraction(1, 2)
    rank = max(int(rate * fit_n), 1)
    said = {"noise": 0, "drift": 0, "cannot tell": 0}
    for q in rng.beta(rank, fit_n - rank + 1, runs):
        k = int(rng.binomial(n, min(factor * q, 1.0)))
        ratio = drift.ratio_of(drift.Tail.independent(k, n), drift.Tail.independent(rank, fit_n), ALPHA)
        p_value = exchangeability.compare_counts(k + rank, k, n, n + fit_n).p_value
        said[drift.read_ratio(ratio, half, half, p_value, 0.001)] += 1
    return {reading: count / runs for reading, count in said.items()}


def simulate_drift(runs: int) -> Iterator[Row]:
    rng = np.random.default_rng(23)
    for rows in ((20_000, 50_000), (60_000, 140_000), (400_000, 400_000)):
        of = f"{rows[0]:,} fit and {rows[1]:,} held-out rows at 0.1 %"
        for factor in (1.5, 0.5):
            said = read_tails(rng, runs, factor, rows)["noise"]
            yield Row(f"noise, of a tail {factor} x as heavy, {of}", "at most 2.5 %", said, share_error(0.025, runs))
        sound = read_tails(rng, runs, 1.0, rows)
        yield Row(f"drift, of sound rows, {of}", "at most 0.1 %", sound["drift"], share_error(0.001, runs))
        yield Row(
            f"noise, of sound rows, {of}", "as often as can be", sound["noise"], share_error(sound["noise"], runs)
        )


def count_groups(values: Floats, groups: NDArray[np.int64], scores: Floats) -> Floats:
    """How many rows of each group reach each of some scores."""
    counts = [np.bincount(groups[values >= score], minlength=int(groups.max()) + 1) for score in scores]
    return np.stack(counts, axis=1).astype(np.float64)


# --- groups exchanged ---------------------------------------------------------------------------------------


def exchange_groups(rng: np.random.Generator, factor: float, draws: int = permutation.DRAWS) -> tuple[float, float]:
    """The p-values of samples in groups, by groups and by rows at 5 %; the held-out tail is so many times as heavy."""
    samples = []
    for groups, times in ((150, 1.0), (300, factor)):
        sizes = _lognormal(rng, 2.5, 0.8, groups)
        codes = np.repeat(np.arange(groups), sizes)
        values = ndtr(
            math.sqrt(0.3) * rng.standard_normal(groups)[codes] + math.sqrt(0.7) * rng.standard_normal(len(codes))
        )
        samples.append((sizes.astype(np.float64), codes, 1 - (1 - values) / times))
    (fit_sizes, fit_codes, fit), (held_sizes, held_codes, held) = samples
    fitted, held_out = Sorted(sort(fit)), Sorted(sort(held))
    at = pooled_at_rank(fitted, held_out, exchangeability.scanned_ranks(len(fit) + len(held)))
    found = permutation.exchange(
        fit_sizes,
        count_groups(fit, fit_codes, at),
        held_sizes,
        count_groups(held, held_codes, at),
        draws,
    )
    n, total = len(held), len(fit) + len(held)
    reached = pooled_at_rank(fitted, held_out, np.array([round(total / 20)]))
    of_held = int(held_out.at_or_above(reached)[0])
    rows = exchangeability.compare_counts(of_held + int(fitted.at_or_above(reached)[0]), of_held, n, total)
    return found.p_value, rows.p_value


def simulate_exchange(runs: int) -> Iterator[Row]:
    rng = np.random.default_rng(17)
    values = [exchange_groups(rng, 1.0, draws=1999) for _ in range(runs)]
    for level in (0.05, 0.01):
        share = sum(p <= level for p, _ in values) / runs
        yield Row(f"sound groups told apart at {level:.0%}", f"{level:.0%}", share, share_error(level, runs))
    found = sum(exchange_groups(rng, 2.0, draws=999)[0] <= 0.05 for _ in range(runs // 4)) / (runs // 4)
    yield Row("a tail twice as heavy found at 5 %", "as often as can be", found, share_error(found, runs // 4))


# --- rows that judge again ------------------------------------------------------------------------------------


def look_again(rng: np.random.Generator, runs: int, looks: int, spend: bool) -> float:
    """How often a release at 1.5 times its target is proven at one of some looks, each with as many rows more."""
    rows, half = 40_000, Fraction(1, 2)
    passed, counts = np.zeros(runs, dtype=bool), np.zeros(runs, dtype=np.int64)
    for look in range(1, looks + 1):
        counts += rng.binomial(rows, 0.0015, runs)
        alpha = Fraction(1, 20) / (look * (look + 1) if spend else 1)
        proven = critical_counts(look * rows, Band.around(Fraction(1, 1000), half, half, alpha)).proven
        if proven is not None:
            passed |= (counts >= proven[0]) & (counts <= proven[1])
    return float(np.mean(passed))


def simulate_looks(runs: int) -> Iterator[Row]:
    rng = np.random.default_rng(29)
    for looks in (5, 20):
        for spend in (True, False):
            share = look_again(rng, 20 * runs, looks, spend)
            what = f"false passes after {looks} looks at rows that grow, {'spent' if spend else 'not spent'}"
            promise = "at most 2.5 %" if spend else "none"
            yield Row(what, promise, share, share_error(0.025, 20 * runs))


# --- bounds as plotting positions -----------------------------------------------------------------------------

SATURATING: dict[str, tuple[Callable[[Floats], Floats], Callable[[float], float]]] = {
    "uniform": (lambda u: u, lambda t: 1 - t),
    "within 1e-12 of one": (lambda u: 1 - 10 ** (-12 * u), lambda t: 1 + math.log10(max(1 - t, 1e-300)) / 12),
    "near zero": (lambda u: u**20, lambda t: 1 - t**0.05),
    "cut off at a rate of 0.8 %": (lambda u: np.minimum(u, 0.992), lambda t: 1 - t if t <= 0.992 else 0.0),
}


def keep_bound(shape: str, n: int, runs: int) -> float:
    """How often the true rate at the threshold of a calibrator fitted with `np 0.95` is at most its 1 %."""
    draw, true_rate = SATURATING[shape]
    contract = Contract((Anchor(Decimal("0.01"), Decimal("0.5")),))
    chosen = Calibration(plotting_position="np 0.95", knots=101)
    rng, held = np.random.default_rng([n, len(shape)]), 0
    for _ in range(runs):
        threshold = fit(draw(rng.random(n)), chosen, contract).thresholds[Decimal("0.01")]
        held += threshold is None or true_rate(float(threshold)) <= 0.01
    return held / runs


def simulate_bounds(runs: int) -> Iterator[Row]:
    for shape in SATURATING:
        for n in (320, 350, 380):
            what = f"`np: 0.95` keeps 1 % of {n} rows, scores {shape}"
            yield Row(what, "at least 95 %", keep_bound(shape, n, runs), share_error(0.05, runs))


# --- planning below rank 5 ------------------------------------------------------------------------------------

BETWEEN: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    # A score by the share of rows above it: a threshold half-way between two scores has another rate for each.
    "linear": (lambda u: -u, lambda s: -s),
    "convex": (lambda u: u**-0.5, lambda s: s**-2.0),
    "concave": (lambda u: -(u**3), lambda s: (-s) ** (1 / 3)),
}


def simulate_planning(runs: int) -> Iterator[Row]:
    for rule, fit_n, n in (("observed", 3000, 100_000), ("proven", 4000, 130_000)):
        target = "{fpr: 0.001, min_n: 1, max_relative_error: 0.5}"
        policy = parse(f"version: 1\nname: bracket\nrule: {rule}\ntargets: [{target}]\n", "bracket.yaml").policy
        planned = plan(policy, fit_n=fit_n, holdout_n=n).targets[0]
        ends = sorted(chances.passes for chances in planned.sound)
        rank = 0.001 * (fit_n + 0.365) + 0.3175
        accepted = critical_counts(n, band_of(policy.targets[0], policy.alpha())).passing(rule, n) or (1, 0)
        for shape, (to_score, to_rate) in BETWEEN.items():
            rng = np.random.default_rng([n, len(shape)])
            lower = rng.beta(int(rank) + 1, fit_n - int(rank), 100 * runs)
            upper = lower * rng.beta(int(rank), 1, 100 * runs)
            share = rank - int(rank)
            counts = rng.binomial(n, to_rate((1 - share) * to_score(upper) + share * to_score(lower)))
            passes = float(np.mean((counts >= accepted[0]) & (counts <= accepted[1])))
            what = f"a sound release passes `{rule}`, {fit_n:,} fit and {n:,} held-out rows at 0.1 %, {shape} scores"
            promise = f"{ends[0]:.1%} to {ends[1]:.1%}".replace("%", " %")
            yield Row(what, promise, passes, share_error(passes, 100 * runs))


# --- overlap without ids --------------------------------------------------------------------------------------


def _table(values: Floats, **columns: NDArray[np.generic]) -> Sample:
    wanted = Columns(segment="segment" if columns else None)
    return from_object(pa.table({"score": values, **columns}), "benchmark", wanted, (0.0, 1.0))


def _in_segments(rng: np.random.Generator) -> tuple[Sample, Sample]:
    """Pairs of tied rows in 1,500 segments of 4 rows, half of each segment held out: two of three pairs are divided."""
    values = np.repeat(rng.random(3000), 2)
    held = np.argsort(rng.random((1500, 4)), axis=1).ravel() < 2
    segments = np.repeat(np.arange(1500), 4).astype(str)
    return _table(values[~held], segment=segments[~held]), _table(values[held], segment=segments[held])


def _decimals(digits: int, leaked: float) -> Callable[[np.random.Generator], tuple[Sample, Sample]]:
    def draw(rng: np.random.Generator) -> tuple[Sample, Sample]:
        fitted, held = (np.round(rng.beta(0.5, 8, rows), digits) for rows in (20_000, 30_000))
        held[: int(leaked * len(held))] = rng.choice(fitted, int(leaked * len(held)))
        return _table(fitted), _table(held)

    return draw


def _copies(shared: Shared) -> bool:
    return shared.copied > 0.001 * shared.n


def _nothing(shared: Shared) -> bool:
    """Whether it is said that nothing is shared, and not that nothing can be told."""
    return not _copies(shared) and shared.shows_copies


OVERLAPS: dict[str, tuple[Callable[[np.random.Generator], tuple[Sample, Sample]], Callable[[Shared], bool], str]] = {
    "sound pairs of tied rows in small segments: called copies": (_in_segments, _copies, "never"),
    "sound rows, six decimals: called copies": (_decimals(6, 0.0), _copies, "never"),
    "half of the rows copied, six decimals: called copies": (_decimals(6, 0.5), _copies, "always"),
    "half of the rows copied, three decimals: called none": (_decimals(3, 0.5), _nothing, "never"),
}


def simulate_overlap(runs: int) -> Iterator[Row]:
    for name, (draw, said, promise) in OVERLAPS.items():
        rng, some = np.random.default_rng(len(name)), max(runs // 5, 5)
        share = sum(said(compare_scores(*draw(rng))) for _ in range(some)) / some
        yield Row(f"overlap without ids, {name}", promise, share, share_error(share, some))


SIMULATIONS: dict[str, Callable[[int], Iterator[Row]]] = {
    "groups": simulate_groups,
    "prediction": simulate_prediction,
    "exchange": simulate_exchange,
    "drift": simulate_drift,
    "looks": simulate_looks,
    "bounds": simulate_bounds,
    "planning": simulate_planning,
    "overlap": simulate_overlap,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(SIMULATIONS)}; all where none is given"
    )
    parser.add_argument("--runs", type=int, default=1000)
    arguments = parser.parse_args()
    print("| simulation | promise | result | error |\n| --- | --- | ---: | ---: |")
    for name in arguments.names or SIMULATIONS:
        for row in SIMULATIONS[name](arguments.runs):
            print(row, flush=True)


if __name__ == "__main__":
    main()
