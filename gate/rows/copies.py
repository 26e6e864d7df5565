"""Copies by pairs: of the values that exactly two rows of two samples have, how many have one row on each side.

Chance puts a pair on both sides 2 q (1 - q) of the time, where q is the share of one side. Copies across always stand
on both sides, copies within a sample never do. Rows are compared with those of neighbouring scores only, so that
samples which differ in where their scores lie show neither. No judgement.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gate.contract import Floats, Ints
from gate.rows.engine import number
from gate.rows.ordered import LAST, Sorted, place_in, sort_counted
from gate.rows.sample import Sample
from gate.statistics.evenness import chance_of_evenness

ENOUGH = 1 << 21  # rows that are compared; of more, some values are
STRATA = 256
LEAST, MOST = 1 << 7, 1 << 18  # rows of a stratum


class SharedPairs(NamedTuple):
    """What two samples share, one sample first.

    one_of     of so many values one was looked at
    rows       the rows that were looked at, of both samples
    single     rows whose value no other row has
    within     pairs inside the first sample, and inside the second
    across     pairs with one row in each
    expected   how many pairs chance puts across, and inside the first and the second
    tied       rows of values that three rows or more have
    even       the chance that these are divided so evenly: hardly any where one sample repeats the other
    """

    one_of: int
    rows: int
    single: int
    within: tuple[int, int]
    across: int
    expected: tuple[float, float, float]
    tied: int
    even: float

    @property
    def total(self) -> int:
        return self.across + sum(self.within)


@dataclass(frozen=True)
class Thinned:
    """The distinct scores of a sample, or one value of so many: the rows of each, and those in the first half."""

    values: Floats
    rows: Ints
    first: Ints

    @cached_property
    def whole(self) -> Sorted:
        return sort_counted(self.values, self.rows)

    @cached_property
    def halves(self) -> tuple[Sorted, Sorted]:
        return sort_counted(self.values, self.first), sort_counted(self.values, self.rows - self.first)


def pairs_of(first: Sample, second: Sample) -> SharedPairs:
    """Count the pairs of two samples; where one of them is of float32, both are compared so."""
    one_of = thinning(first.n + second.n)
    single = [_is_single(thinned(sample, one_of).values) for sample in (first, second)]
    one, other = (thinned(sample, one_of, single[0] != single[1]).whole for sample in (first, second))
    return count_pairs(one, other, one_of)


def pairs_of_halves(sample: Sample, one_of: int) -> SharedPairs | None:
    """Count the pairs of the first and the second half of a sample's rows, as they follow one another in its files."""
    first, second = thinned(sample, one_of).halves
    return count_pairs(first, second, one_of) if first.n and second.n else None


def thinning(rows: int) -> int:
    """Of how many values one is looked at; it is odd, so that the zeros at the end of rounded scores do no harm."""
    return rows // ENOUGH | 1


def count_pairs(first: Sorted, second: Sorted, one_of: int = 1) -> SharedPairs:
    """Count the pairs of two samples whose scores are at hand."""
    (a, of_a), (b, of_b) = _collapsed(first), _collapsed(second)
    places = np.searchsorted(a, b)
    shared = np.zeros(len(b), dtype=bool)
    inside = places < len(a)
    shared[inside] = a[places[inside]] == b[inside]
    in_a = np.zeros(len(a), dtype=bool)
    in_a[places[shared]] = True
    across = b[shared][(of_b[shared] == 1) & (of_a[places[shared]] == 1)]
    within_a, within_b = a[~in_a & (of_a == 2)], b[~shared & (of_b == 2)]
    single = int(np.count_nonzero(~in_a & (of_a == 1)) + np.count_nonzero(~shared & (of_b == 1)))
    expected = _expected(np.concatenate([across, within_a, within_b]), first, second)
    sizes = np.concatenate([of_a[~in_a], of_b[~shared], of_a[places[shared]] + of_b[shared]])
    held = np.concatenate([np.zeros(int((~in_a).sum()), dtype=np.int64), of_b[~shared], of_b[shared]])
    tied, even = _evenness(sizes, held, second.n / max(first.n + second.n, 1))
    rows = first.n + second.n
    return SharedPairs(one_of, rows, single, (len(within_a), len(within_b)), len(across), expected, tied, even)


def _evenness(sizes: Ints, held: Ints, q: float) -> tuple[int, float]:
    """The rows of values that three or more have, and the chance that these are divided so evenly."""
    many = sizes > 2
    return int(sizes[many].sum()), chance_of_evenness(sizes[many], held[many], q)


def _expected(values: Floats, first: Sorted, second: Sorted) -> tuple[float, float, float]:
    """How chance divides the pairs, each among the rows of its neighbouring scores."""
    total = first.n + second.n
    if not len(values):
        return 0.0, 0.0, 0.0
    rows = min(max(total // STRATA, LEAST), MOST)
    larger = max(first, second, key=lambda sample: sample.n)
    ranks = np.arange(1, larger.n, max(rows * larger.n // total, 1))
    cuts = np.unique(larger.at_rank(ranks))
    cuts = cuts[(first.at_or_above(cuts) + second.at_or_above(cuts)) <= total - LEAST // 2]
    n, m = (_between(sample, cuts) for sample in (first, second))
    pairs = np.bincount(np.searchsorted(cuts, values, side="right"), minlength=len(cuts) + 1)
    t = np.maximum(n + m, 2).astype(np.float64)
    ways = t * (t - 1)
    parts = (2 * n * m, n * (n - 1), m * (m - 1))
    across, in_first, in_second = (float(np.sum(pairs * part / ways)) for part in parts)
    return across, in_first, in_second


def _between(sample: Sorted, cuts: Floats) -> Floats:
    """The rows between neighbouring cuts."""
    reached = np.concatenate([[sample.n], sample.at_or_above(cuts), [0]])
    return -np.diff(reached).astype(np.float64)


def _collapsed(sample: Sorted) -> tuple[Floats, Ints]:
    values = np.asarray(sample.values)
    if sample.ends is not None:
        return values, np.diff(sample.ends)
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(values), 1), dtype=bool), values[1:] != values[:-1]]))
    return values[starts], np.diff(starts, append=len(values))


def _is_single(values: Floats) -> bool:
    """Whether scores are those of float32."""
    with np.errstate(over="ignore", under="ignore"):
        return bool(np.all(values.astype(np.float32).astype(np.float64) == values))


def thinned(sample: Sample, one_of: int, single: bool = False) -> Thinned:
    """The scores of a sample, or one value of so many, chosen by the value itself; asked once."""
    known: dict[object, Thinned] = vars(sample).setdefault("thinned", {})
    if (one_of, single) not in known:
        known[one_of, single] = _ask(sample, one_of, single)
    return known[one_of, single]


def _ask(sample: Sample, one_of: int, single: bool) -> Thinned:
    engine = sample.engine
    score = f"CAST(CAST(score AS REAL) AS {engine.double})" if single else "score"
    where = ""
    if one_of > 1:
        place = place_in(engine, sample.domain, score)
        where = f" WHERE CAST(floor(({place}) * {number(engine, 2.0**LAST)}) AS BIGINT) % {one_of} = 0"
    weight = "weight" if sample.has_weights else "1"
    in_first = _in_first_half(sample)
    found = sample.ask(
        f"SELECT {score} AS score, CAST(sum({weight}) AS BIGINT) AS n, "
        f"CAST(sum(CASE WHEN {in_first} THEN {weight} ELSE 0 END) AS BIGINT) AS half "
        f"FROM {sample.rows}{where} GROUP BY 1"
    )
    rows, first = (np.asarray(found[key], dtype=np.int64) for key in ("n", "half"))
    return Thinned(np.asarray(found["score"], dtype=np.float64), rows, first)


def _in_first_half(sample: Sample) -> str:
    """The SQL of whether a row is in the first half of the rows, as they follow one another in the files."""
    if "nr" not in sample.roles:
        return "FALSE"
    found = sample.ask(
        f"SELECT f, count(*) AS n, min(nr) AS low, max(nr) AS high FROM {sample.rows} GROUP BY 1 ORDER BY 1"
    )
    counts = np.asarray(found["n"], dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(counts)])
    half = before[-1] / 2
    i = int(np.searchsorted(before, half, side="right")) - 1
    file, low, high = (int(found[key][i]) for key in ("f", "low", "high"))
    cut = low + int((half - before[i]) / counts[i] * (high + 1 - low))
    return f"f < {file} OR (f = {file} AND nr < {cut})"
