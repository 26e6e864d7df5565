"""What bounds for every look promise, by simulation: the table of tests/README.md.

    cd tests && python -m benchmarks.sequential [--paths 20000]

At 0.1 % with a tolerance of 50 %; tests run the same with few paths.
"""

from __future__ import annotations

import argparse
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gate.statistics.binomial import Band, critical_counts
from gate.statistics.sequential import SequentialBand

TARGET, TOLERANCE, ALPHA = Fraction(1, 1000), Fraction(1, 2), Fraction(1, 20)


class Decided(NamedTuple):
    """The shares of releases that were ever proven, or ever refuted, and the rows at which half of all were decided."""

    proven: float
    refuted: float
    median: float


def looks(number: int, most: int = 200_000) -> NDArray[np.int64]:
    """The rows at which one looks: a growing sample, each look a constant share larger."""
    return np.unique(np.geomspace(2000, most, number).round().astype(np.int64))


def promised() -> list[tuple[float, str, float]]:
    """List a release's rate over its target, its grade in the end, and how often at least."""
    return [(1.0, "proven", 0.995), (1.3, "proven", 0.99), (0.3, "refuted", 0.999), (3.0, "refuted", 0.999)]


def decided(kind: type[Band], multiple: float, at: NDArray[np.int64], paths: int, seed: int = 3) -> Decided:
    """Look at growing samples of releases whose true rate is so many times the target, until a look decides."""
    rng = np.random.default_rng([seed, round(multiple * 100)])
    band = kind.around(TARGET, TOLERANCE, TOLERANCE, ALPHA)
    rows = np.diff(at, prepend=0)
    proven, refuted = np.zeros(paths, dtype=bool), np.zeros(paths, dtype=bool)
    count, stopped = np.zeros(paths, dtype=np.int64), np.full(paths, np.inf)
    for n, more in zip(at.tolist(), rows.tolist(), strict=True):
        count += rng.binomial(more, multiple * float(TARGET), paths)
        critical = critical_counts(n, band)
        low, high = critical.proven or (n + 1, n)
        fewest = -1 if critical.refuted_at_or_below is None else critical.refuted_at_or_below
        most = n + 1 if critical.refuted_at_or_above is None else critical.refuted_at_or_above
        undecided = np.isinf(stopped)
        now_proven = undecided & (low <= count) & (count <= high)
        now_refuted = undecided & ((count <= fewest) | (count >= most))
        proven |= now_proven
        refuted |= now_refuted
        stopped[now_proven | now_refuted] = n
    return Decided(float(proven.mean()), float(refuted.mean()), float(np.median(stopped)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", type=int, default=20_000)
    paths = parser.parse_args().paths
    print("| bounds | looks | true rate / target | ever proven | ever refuted | median rows | error |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for kind, at, multiples in (
        (SequentialBand, looks(50), (0.5, 1.5)),
        (Band, looks(50), (0.5, 1.5)),
        (SequentialBand, looks(400, 10**6), (0.3, 0.5, 0.7, 1.0, 1.3, 1.5, 3.0)),
    ):
        for multiple in multiples:
            found = decided(kind, multiple, at, paths)
            error = math.sqrt(0.025 * 0.975 / paths)
            print(
                f"| {'every look' if kind is SequentialBand else 'one look'} | {len(at)} | {multiple:g} "
                f"| {found.proven:.2%} | {found.refuted:.2%} | {found.median:,.0f} | {error:.2%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
