"""What the judgement of a whole range promises, exactly where it can be computed and by simulation elsewhere.

    cd tests && python -m benchmarks.ranges [--runs 20000] [NAME ...]

The tables of tests/README.md; tests run the same with few runs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np
from benchmarks.simulations import Row, share_error
from scipy.special import ndtr
from scipy.stats import binom, poisson

from gate.contract import Contract, Floats, Ints
from gate.planning.ranges import RangeLaw, draw_counts
from gate.policy import parse
from gate.statistics.clusters import effective_rows
from gate.statistics.ranges import BAND_LEVELS, Corridor, grid, worth_of
from gate.statistics.tails import FixedTails

# --- the band to draw: exact boundary crossing ---------------------------------------------------------------


def band_covers(n: int, start: float, stop: float, level: float) -> float:
    """The chance that intervals of this level cover the true rate at every threshold of a range at once.

    The count rises with the rate; it leaves the band only where a bound is reached. A binomial process is a Poisson
    process given its number of points, whose increments are independent: one convolution from bound to bound.
    """
    k = np.arange(0, math.ceil(n * start + 12 * math.sqrt(n * start) + 40))
    tails = FixedTails()
    low, high = tails.lower(k, n, 0.0, level / 2), tails.upper(k, n, 0.0, level / 2)
    at_most = [(float(at), -1, int(count) - 1) for at, count in zip(low, k, strict=True) if stop < at <= start]
    at_least = [(float(at), int(count) + 1, len(k)) for at, count in zip(high, k, strict=True) if stop <= at < start]
    first, last = int(np.argmax(high >= stop)), int(np.flatnonzero(low <= stop)[-1])
    offset, chances = first, poisson.pmf(np.arange(first, last + 1), n * stop)
    here = stop
    for at, least, most in sorted([*at_most, *at_least, (start, -1, len(k))]):
        mean = n * (at - here)
        steps = poisson.pmf(np.arange(0, int(mean + 9 * math.sqrt(mean) + 12)), mean) if mean > 0 else np.ones(1)
        chances = np.convolve(chances, steps)
        if least > offset:
            chances, offset = chances[least - offset :], least
        chances = chances[: max(most - offset + 1, 0)]
        felt = np.flatnonzero(chances > 1e-18)
        if len(felt) == 0:
            return 0.0
        chances, offset, here = chances[felt[0] : felt[-1] + 1], offset + int(felt[0]), at
    ends = np.arange(offset, offset + len(chances))
    return float(np.sum(chances * np.exp(binom.logpmf(ends, n, start) - poisson.logpmf(ends, n * start))))


def band_level(n: int, start: float, stop: float, confidence: float = 0.95) -> float:
    """The level of single intervals at which all of them together cover with this confidence."""
    low, high = (1 - confidence) / 400, 1 - confidence
    while high / low > 1.002:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if band_covers(n, start, stop, middle) >= confidence else (low, middle)
    return low


# --- false passes and false refutations -----------------------------------------------------------------------

ALPHA = Fraction(1, 20)


def corridor(r: str = "0.5", start: str = "0.1", stop: str = "0.001", sequential: bool = False) -> Corridor:
    """A range of the paper's contract with the same tolerance on both sides."""
    error = Fraction(r)
    return Corridor(grid(Contract(), Decimal(start), Decimal(stop), error, error), error, error, ALPHA, sequential)


def bad_at(fprs: Floats, at: float, edge: float) -> Floats:
    """True rates that are `edge` times what one threshold promises, and elsewhere as near to it as they can be."""
    if edge > 1:
        return np.where(fprs >= at, np.maximum(fprs, at * edge), fprs)
    return np.where(fprs <= at, np.minimum(fprs, at * edge), fprs)


def tied(rates: Floats, ratio: float = 1.15) -> Floats:
    """Return these rates for tied scores: only some rates are possible, so many times apart."""
    steps = np.floor(np.log(rates) / math.log(ratio) + 1e-9)
    return ratio**steps


def shares(judged: Corridor, rates: Floats, n: int, runs: int, seed: int = 5) -> tuple[float, float]:
    """How often releases with these true rates are proven, and how often refuted."""
    rng = np.random.default_rng([seed, n, int(rates.sum() * 1e9)])
    critical = judged.critical(n)
    proven = refuted = 0
    for _ in range(runs // 500):
        counts = draw_counts(rng, np.broadcast_to(rates, (500, len(rates))), n)
        inside = np.all((critical.proven.low <= counts) & (counts <= critical.proven.high), axis=1)
        proven += int(np.count_nonzero(inside))
        unrefuted = np.all((critical.unrefuted.low <= counts) & (counts <= critical.unrefuted.high), axis=1)
        refuted += int(np.count_nonzero(~unrefuted))
    return proven / (runs // 500 * 500), refuted / (runs // 500 * 500)


def bad_places(judged: Corridor) -> dict[str, float]:
    """Thresholds at which a release is bad: at the ends, at a point, between two, and at an atom's foot."""
    fprs = judged.grid.fprs
    middle = len(fprs) // 2
    return {
        "at the lowest rate": float(fprs[-1]),
        "at a point": float(fprs[middle]),
        "between two points": math.sqrt(float(fprs[middle] * fprs[middle + 1])),
        "near the highest rate": float(fprs[len(fprs) // 20]),
    }


def simulate_false_passes(runs: int) -> Iterator[Row]:
    judged, n = corridor(), 400_000
    fprs, error = judged.grid.fprs, share_error(0.025, runs)
    for name, at in bad_places(judged).items():
        for edge in (1.5, 0.5):
            for kind, base in (("", fprs), (", tied scores", tied(fprs))):
                rates = np.where(bad_at(fprs, at, edge) == fprs, base, bad_at(fprs, at, edge))
                rates = np.maximum.accumulate(rates[::-1])[::-1] if edge > 1 else np.minimum.accumulate(rates)
                found = shares(judged, rates, n, runs)[0]
                yield Row(f"range bad at {edge:g} x {name}{kind}: proven", "at most 2.5 %", found, error)


def simulate_false_refutations(runs: int) -> Iterator[Row]:
    judged = corridor()
    for edge in (1.5, 0.5):
        found = shares(judged, judged.grid.fprs * edge, 100_000, runs)[1]
        yield Row(f"range at {edge:g} x everywhere: refuted", "at most 2.5 %", found, share_error(0.025, runs))


def ever_proven(judged: Corridor, rates: Floats, looks: list[int], runs: int) -> float:
    """How often a range is proven at some look at a growing sample."""
    rng = np.random.default_rng(11)
    rates = np.broadcast_to(rates, (runs, len(rates)))
    counts, ever, n = np.zeros(rates.shape, dtype=np.int64), np.zeros(runs, dtype=bool), 0
    for rows in looks:
        counts += draw_counts(rng, rates, rows - n)
        n = rows
        critical = judged.critical(n).proven
        ever |= np.all((critical.low <= counts) & (counts <= critical.high), axis=1)
    return float(ever.mean())


def simulate_looks(runs: int) -> Iterator[Row]:
    looks = np.unique(np.geomspace(20_000, 1_000_000, 50).astype(int)).tolist()
    for sequential, promise in ((True, "at most 2.5 %"), (False, "none: one look only")):
        judged = corridor(start="0.01", sequential=sequential)
        rates = bad_at(judged.grid.fprs, 0.001, 1.5)
        found = ever_proven(judged, rates, looks, min(runs, 4000))
        kind = "sequential" if sequential else "fixed"
        name = f"range bad at 1.5 x its lowest rate: ever proven in {len(looks)} looks, {kind}"
        yield Row(name, promise, found, share_error(0.025, min(runs, 4000)))


# --- groups -------------------------------------------------------------------------------------------------


def prove_groups(rng: np.random.Generator, judged: Corridor, rates: Floats, sizes: Ints, rho: float) -> bool:
    """Whether a range is proven of rows whose scores are alike within groups, at these true rates."""
    codes = np.repeat(np.arange(len(sizes)), sizes)
    alike = math.sqrt(rho) * rng.standard_normal(len(sizes))[codes]
    tail = ndtr(alike + math.sqrt(1 - rho) * rng.standard_normal(len(codes)))
    n = len(tail)
    counts = np.searchsorted(np.sort(tail), rates, side="right")
    plain = judged.judge(counts, n)
    if plain.grade != "proven":  # grouped rows are never worth more
        return False
    whole = sizes.astype(np.float64)
    measured = {}
    for i in judged.grid.refuting:
        flagged = np.bincount(codes[tail <= rates[i]], minlength=len(sizes)).astype(np.float64)
        measured[i] = effective_rows(whole, flagged, float(ALPHA))
    return judged.judge(counts, n, worth_of(judged.grid, n, measured)).grade == "proven"


GROUPS: dict[str, Callable[[np.random.Generator], tuple[Ints, float]]] = {
    "equal: 1,000 x 100, rho 0.1": lambda rng: (np.full(1000, 100), 0.1),
    "equal: 300 x 300, rho 0.2": lambda rng: (np.full(300, 300), 0.2),
    "lognormal(2, 1), 10 K, rho 0.3": lambda rng: (np.ceil(rng.lognormal(2, 1, 10_000)).astype(np.int64), 0.3),
}


def groups_proven(name: str, edge: float, runs: int, at: str = "between two points") -> float:
    judged = corridor(stop="0.01")
    rates = judged.grid.fprs if edge == 1 else bad_at(judged.grid.fprs, bad_places(judged)[at], edge)
    rng = np.random.default_rng([13, list(GROUPS).index(name), round(edge * 100)])
    return sum(prove_groups(rng, judged, rates, *GROUPS[name](rng)) for _ in range(runs)) / runs


def simulate_groups(runs: int) -> Iterator[Row]:
    runs = max(runs // 20, 1)
    for name in GROUPS:
        for at in ("between two points", "at the lowest rate"):
            for edge in (1.5, 0.5):
                found = groups_proven(name, edge, runs, at)
                what = f"range of groups, {name}: bad at {edge:g} x {at}: proven"
                yield Row(what, "at most 2.5 %", found, share_error(0.025, runs))
        sound = groups_proven(name, 1, max(runs // 10, 1))
        what = f"range of groups, {name}: proven at 1 x"
        yield Row(what, "as many as can be", sound, share_error(sound, max(runs // 10, 1)))


# --- pass rates and the band ----------------------------------------------------------------------------------

PASS_RATES = (("0.5", 97_826, 0.925), ("0.5", 109_000, 0.95), ("0.25", 368_864, 0.915), ("0.25", 420_000, 0.95))


def law(r: str, stop: str = "0.1%", interval: str = "clopper-pearson") -> RangeLaw:
    text = (
        f"version: 1\nname: x\ninterval: {interval}\n"
        f"targets: [{{fpr: 0.1%, min_n: 1, max_relative_error: {r}}}]\n"
        f"ranges: [{{from: 10%, to: {stop}, min_n: 1, max_relative_error: {r}}}]\n"
    )
    policy = parse(text, "p.yaml").policy
    return RangeLaw(policy, policy.ranges[0])


def simulate_pass_rates(runs: int) -> Iterator[Row]:
    for r, n, promised in PASS_RATES:
        found = law(r).sound(n, n, runs)[0]
        yield Row(f"sound range, r = {r}, {n:,} rows: proven", f"{promised:.1%}", found.value, found.error)


def simulate_band(runs: int) -> Iterator[Row]:
    yield Row("band at 0.0023, 10 % to 0.1 %, 100,000 rows, exactly", "95 %", band_covers(10**5, 0.1, 0.001, 0.0023), 0)
    yield Row("band at 0.0016, 10 % to 0.01 %, 100,000 rows, exactly", "95 %", band_covers(10**5, 0.1, 1e-4, 0.0016), 0)
    for decades, level in BAND_LEVELS[:6]:
        stop = 0.1 / 10**decades
        covered = band_covers(round(300 / stop), 0.1, stop, level)
        yield Row(f"band of {decades:g} decades, 300 rows beyond, exactly", "at least 95 %", covered, 0)


SIMULATIONS: dict[str, Callable[[int], Iterator[Row]]] = {
    "false-passes": simulate_false_passes,
    "false-refutations": simulate_false_refutations,
    "looks": simulate_looks,
    "groups": simulate_groups,
    "pass-rates": simulate_pass_rates,
    "band": simulate_band,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(SIMULATIONS)}; all where none is given"
    )
    parser.add_argument("--runs", type=int, default=20_000)
    arguments = parser.parse_args()
    print("| simulation | promise | result | error |\n| --- | --- | ---: | ---: |")
    for name in arguments.names or SIMULATIONS:
        for row in SIMULATIONS[name](arguments.runs):
            print(row, flush=True)


if __name__ == "__main__":
    main()
