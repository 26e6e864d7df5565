"""What the statistics promise where rows are grouped, tied or used again, by simulation: the table of tests/README.md.

    cd tests && python -m benchmarks.simulations [--runs 1000] [NAME ...]

(as a script it would stand in the way of the standard library's module of that name).
Each simulation is a function of a number of runs that yields rows of the table; tests run the same with few runs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from gate.ordered import in_order
from gate.scores import count_by_part
from gate.statistics import exchangeability, permutation
from gate.statistics.binomial import clopper_pearson
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
        return f"| {self.simulation} | {self.promise} | {self.result:.1%} | {self.error:.1%} |"


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
    """The largest tenth of the groups, which has 0.37 of the rows, is flagged three times as often as the others."""
    sizes = _lognormal(rng, 2, 1, 8000)
    large = sizes > math.exp(2 + float(ndtri(0.9)))
    z = rng.standard_normal(len(sizes))
    base = ndtri(np.where(large, 3, 1) * rate / (1 + 2 * 0.3733))
    return sizes, rng.binomial(sizes, ndtr((math.sqrt(0.3) * z + base) / math.sqrt(0.7)))


def _hot(rng: np.random.Generator, rate: float) -> Groups:
    """One group in a hundred has half of all flagged rows."""
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
    (fit_sizes, fit_codes, fit), (sizes, codes, held) = samples
    fitted, held_out = in_order(np.sort(fit)), in_order(np.sort(held))
    at = exchangeability.pooled_scores(fitted, held_out, exchangeability.scanned_ranks(len(fit) + len(held)))
    found = permutation.exchange(
        fit_sizes,
        count_by_part(fit, fit_codes, at).reached,
        sizes,
        count_by_part(held, codes, at).reached,
        draws,
    )
    return found.p_value, exchangeability.pooled_test(fitted, held_out, Fraction(1, 20)).p_value


def simulate_exchange(runs: int) -> Iterator[Row]:
    rng = np.random.default_rng(17)
    values = [exchange_groups(rng, 1.0, draws=1999) for _ in range(runs)]
    for level in (0.05, 0.01):
        share = sum(p <= level for p, _ in values) / runs
        yield Row(f"sound groups told apart at {level:.0%}", f"{level:.0%}", share, share_error(level, runs))
    found = sum(exchange_groups(rng, 2.0, draws=999)[0] <= 0.05 for _ in range(runs // 4)) / (runs // 4)
    yield Row("a tail twice as heavy found at 5 %", "as often as can be", found, share_error(found, runs // 4))


SIMULATIONS: dict[str, Callable[[int], Iterator[Row]]] = {
    "groups": simulate_groups,
    "exchange": simulate_exchange,
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
