"""A whole range from counts: what is proven holds at every threshold, and all that is said follows from the counts."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from benchmarks.ranges import (
    bad_at,
    bad_places,
    band_covers,
    corridor,
    ever_proven,
    groups_proven,
    shares,
    tied,
)
from drawing import examples, often
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gate.contract import Anchor, Contract
from gate.statistics.binomial import Band, clopper_pearson, lower_tail, upper_tail
from gate.statistics.clusters import Effective
from gate.statistics.ranges import (
    BAND_LEVELS,
    FINENESS,
    MOST_POINTS,
    SEGMENT_POINTS,
    Corridor,
    Grid,
    Sides,
    grid,
    worth_of,
)
from gate.statistics.sequential import SequentialBand
from gate.statistics.tails import FixedTails, last_counts

Ints = NDArray[np.int64]
ALPHA = Fraction(1, 20)

decimals = st.integers(1, 999).map(lambda i: Decimal(i) / 1000)
exponents = st.integers(0, 4)
tolerances = st.sampled_from(["0.02", "0.1", "0.25", "0.5", "1", "2"]).map(Fraction)


@st.composite
def grids(draw: st.DrawFn) -> tuple[Contract, Decimal, Decimal, Fraction, Fraction]:
    """A contract and a stretch of it, ends at anchors or anywhere, with its two tolerances."""
    rates = draw(
        st.lists(st.tuples(decimals, exponents), min_size=2, max_size=8, unique_by=lambda r: r[0].scaleb(-r[1]))
    )
    fprs = sorted({rate.scaleb(-places) for rate, places in rates}, reverse=True)
    assume(len(fprs) >= 2 and fprs[0] / fprs[-1] > Decimal("1.001"))
    anchors = tuple(Anchor(fpr, Decimal(i + 1) / (len(fprs) + 2)) for i, fpr in enumerate(fprs))
    start, stop = draw(
        st.sampled_from([(fprs[0], fprs[-1]), (fprs[0], (fprs[0] * fprs[-1]).sqrt().quantize(fprs[-1] / 1000))])
    )
    assume(start / stop > Decimal("1.001"))
    return Contract(anchors), start, stop, draw(tolerances), draw(tolerances)


# --- the grid -----------------------------------------------------------------------------------------------


@settings(max_examples=examples(25), deadline=None)
@given(grids())
def test_a_grid_has_its_ends_and_anchors_and_no_wide_step(
    drawn: tuple[Contract, Decimal, Decimal, Fraction, Fraction],
) -> None:
    """Rates fall, scores rise, no two points differ by more than a fiftieth of the tolerance, unless they are many."""
    contract, start, stop, above, below = drawn
    found = grid(contract, start, stop, above, below)
    rates = [point.fpr for point in found.points]
    scores = [point.score for point in found.points]
    assert (rates[0], rates[-1]) == (start, stop)
    assert rates == sorted(set(rates), reverse=True)
    assert scores == sorted(set(scores))
    inside = {anchor for anchor in contract.anchors if stop <= anchor.fpr <= start}
    assert inside <= set(found.points)
    decades = math.log10(start / stop)
    most = max(1 + float(min(above, below, Fraction(1))) / FINENESS, 10 ** (decades / (MOST_POINTS - 60)))
    assert np.max(found.fprs[:-1] / found.fprs[1:]) <= most * (1 + 1e-9)
    assert len(rates) <= MOST_POINTS + len(contract.anchors) + 60
    assert found == grid(contract, start, stop, above, below)
    assert (found.refuting[0], found.refuting[-1]) == (0, len(rates) - 1)
    assert len(found.refuting) == max(math.ceil(5 * decades - 1e-9), 1) + 1


def test_segments_have_twenty_points_a_decade() -> None:
    found = grid(Contract(), Decimal("0.1"), Decimal("0.001"), Fraction(1, 2), Fraction(1, 2), SEGMENT_POINTS)
    assert len(found.points) == 41
    assert found.points[20] == Anchor(Decimal("0.01"), Decimal("0.3"))


# --- tails of many counts -----------------------------------------------------------------------------------


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(1, 10**10), st.floats(0, 1), st.floats(1e-9, 0.999))
def test_tails_of_arrays_equal_those_of_one_count(n: int, share: float, c: float) -> None:
    k = round(n * share)
    tails = FixedTails()
    assert float(tails.few(k, n, c)) == lower_tail(k, n, c)
    assert float(tails.many(k, n, c)) == upper_tail(k, n, c)
    low, high = clopper_pearson(k, n, 0.05)
    assert float(tails.lower(k, n, 0.0, 0.025)) == pytest.approx(low, rel=1e-9)
    assert float(tails.upper(k, n, 0.0, 0.025)) == pytest.approx(high, rel=1e-9)


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(1, 10**6), st.floats(0, 1), st.lists(st.floats(0, 1.2), min_size=1, max_size=5))
def test_the_last_count_is_found_wherever_it_is(n: int, around: float, ends: list[float]) -> None:
    """This holds far from the place where the search begins, at both ends and beyond them."""
    last = np.array([min(round(n * end) - 1, n) for end in ends])
    assert last_counts(lambda k: k <= last, n, np.full(len(ends), around)).tolist() == last.tolist()


# --- the judgement of counts ----------------------------------------------------------------------------------


@st.composite
def judged_counts(draw: st.DrawFn, sequential: bool | None = None) -> tuple[Corridor, Ints, int]:
    """A range and counts along it that wander around what is promised, near enough to its edges for every grade."""
    above, below = draw(st.sampled_from([("0.25", "0.25"), ("0.5", "0.5"), ("0.5", "1"), ("0.3", "0.6"), ("2", "0.9")]))
    start, stop = draw(st.sampled_from([("0.1", "0.01"), ("0.1", "0.03"), ("0.02", "0.001"), ("0.01", "0.0001")]))
    sides = Fraction(above), Fraction(below)
    found = grid(Contract(), Decimal(start), Decimal(stop), *sides)
    looks = draw(st.booleans()) if sequential is None else sequential
    judged = Corridor(found, *sides, ALPHA, looks)
    n = draw(st.integers(200, 3_000_000))
    seed, wander, level = (
        draw(st.integers(0, 10**6)),
        draw(st.sampled_from([0.0, 0.01, 0.05])),
        draw(st.floats(0.4, 1.6)),
    )
    rng = np.random.default_rng(seed)
    rates = found.fprs * level * np.exp(np.cumsum(rng.normal(0, wander, len(found.fprs))))
    return judged, rng.binomial(n, np.minimum(np.minimum.accumulate(rates), 1.0)).clip(0, n), n


def falling(counts: Ints) -> Ints:
    return np.minimum.accumulate(counts)


@settings(max_examples=examples(25), deadline=None)
@given(judged_counts())
def test_judging_is_comparing_with_critical_counts(drawn: tuple[Corridor, Ints, int]) -> None:
    """Grade, observation and refuted points follow from integers that n alone decides."""
    judged, counts, n = drawn
    counts = falling(counts)
    found, critical = judged.judge(counts, n), judged.critical(n)

    def within(region: tuple[Ints, Ints]) -> bool:
        return bool(np.all((region[0] <= counts) & (counts <= region[1])))

    assert (found.grade == "proven") == within(critical.proven)
    assert found.inside == within(critical.observed)
    assert (found.grade == "refuted") == (not within(critical.unrefuted))
    beyond = np.flatnonzero((counts < critical.unrefuted.low) | (counts > critical.unrefuted.high))
    assert found.refuted == tuple(beyond.tolist())
    assert found.outside == tuple(
        np.flatnonzero((counts < critical.observed.low) | (counts > critical.observed.high)).tolist()
    )


@settings(max_examples=examples(25), deadline=None)
@given(judged_counts())
def test_grades_are_nested(drawn: tuple[Corridor, Ints, int]) -> None:
    """Proven implies observed inside, and that implies not refuted: the three rules are one family."""
    judged, counts, n = drawn
    found = judged.judge(falling(counts), n)
    if found.grade == "proven":
        assert found.inside
        assert found.proven == ((0, len(counts) - 1),)
        assert found.nearest.left > 0
    if found.inside:
        assert found.grade != "refuted"
    assert (found.tail < 0.025) == (found.grade == "refuted") or found.tail == pytest.approx(0.025)


@settings(max_examples=examples(25), deadline=None)
@given(judged_counts(), st.data())
def test_a_proven_range_proves_every_target_inside_it(drawn: tuple[Corridor, Ints, int], data: st.DataObject) -> None:
    """In every proven stretch, a target between two points is proven with any count that its neighbours allow."""
    judged, counts, n = drawn
    counts = falling(counts)
    stretches = judged.judge(counts, n).proven
    assume(stretches)
    stretch = data.draw(st.sampled_from(stretches))
    i = data.draw(st.integers(stretch.first, stretch.last - 1))
    high, low = (Fraction(judged.grid.points[j].fpr) for j in (i, i + 1))
    p = low + (high - low) * data.draw(st.fractions(0, 1, max_denominator=1000))
    k = data.draw(st.integers(int(counts[i + 1]), int(counts[i])))
    kind = SequentialBand if judged.sequential else Band
    band = kind.around(p, judged.above, judged.below, ALPHA)
    assert band.proves_high(k, n)
    assert band.proves_low(k, n)


@settings(max_examples=examples(25), deadline=None)
@given(judged_counts(sequential=False), st.data())
def test_a_stretch_by_itself_is_a_proven_range(drawn: tuple[Corridor, Ints, int], data: st.DataObject) -> None:
    """Stretches come longest first, do not touch, and each is proven as a range of its own."""
    judged, counts, n = drawn
    counts = falling(counts)
    stretches = judged.judge(counts, n).proven
    assume(stretches)
    lengths = [judged.grid.fprs[s.first] / judged.grid.fprs[s.last] for s in stretches]
    assert lengths == sorted(lengths, reverse=True)
    stretch = data.draw(st.sampled_from(stretches))
    part = slice(stretch.first, stretch.last + 1)
    points = judged.grid.points[part]
    alone = Corridor(Grid(points, (0, len(points) - 1)), judged.above, judged.below, ALPHA)
    assert alone.judge(counts[part], n).grade == "proven"


@settings(max_examples=examples(25), deadline=None)
@given(judged_counts(), st.data())
def test_more_false_positives_never_help_above_the_band(drawn: tuple[Corridor, Ints, int], data: st.DataObject) -> None:
    """If only excess counts, a count that rises anywhere proves nothing more and undoes no refutation."""
    judged, counts, n = drawn
    judged = Corridor(judged.grid, judged.above, Fraction(1), ALPHA, judged.sequential)
    before = falling(counts)
    at = data.draw(st.integers(0, len(before) - 1))
    more = before.copy()
    more[at] = min(more[at] + data.draw(st.integers(1, max(n // 100, 1))), n)
    more = np.maximum.accumulate(more[::-1])[::-1]
    one, other = judged.judge(before, n), judged.judge(more, n)
    assert other.grade != "proven" or one.grade == "proven"
    assert one.grade != "refuted" or other.grade == "refuted"
    assert set(one.refuted) <= set(other.refuted)


def test_a_range_says_where_it_is_nearest_to_leaving() -> None:
    """A bump in the middle is where the upper bound has left, and the parts beside it are proven."""
    judged, n = corridor(), 1_000_000
    fprs = judged.grid.fprs
    bump = (fprs < 0.012) & (fprs > 0.0099)
    counts = np.maximum.accumulate(np.round(n * np.where(bump, 0.0175, fprs)).astype(np.int64)[::-1])[::-1]
    found = judged.judge(counts, n)
    assert found.nearest.side == "above"
    assert bump[found.nearest.point]
    assert found.nearest.left < 0
    assert len(found.proven) == 2
    assert [fprs[end] for end in found.proven[0]] == pytest.approx([0.0098, 0.001], rel=1e-2)
    assert [fprs[end] for end in found.proven[1]] == pytest.approx([0.1, 0.012], rel=0.05)
    assert {*found.outside} == set(np.flatnonzero(counts > np.floor(n * fprs * 1.5)).tolist())


def test_an_atom_makes_a_range_impossible() -> None:
    """Where 4 % of all rows have one score, no calibrator keeps both sides of it within half."""
    judged, n = corridor(), 1_000_000
    fprs = judged.grid.fprs
    flagged = np.where(fprs > 0.05, fprs, np.minimum(fprs, 0.01))  # conservative: what is promised, or less
    found = judged.judge(np.round(n * flagged).astype(np.int64), n)
    assert len(found.impossible) == 1
    at = found.impossible[0]
    assert fprs[at] > 0.05 >= fprs[at + 1]
    assert found.grade == "refuted"
    excess = Corridor(judged.grid, judged.above, Fraction(1), ALPHA)
    assert excess.judge(np.round(n * flagged).astype(np.int64), n).impossible == ()
    assert judged.judge(np.round(n * fprs).astype(np.int64), n).impossible == ()


def test_nothing_flagged_and_all_flagged() -> None:
    """The ends of what can be counted are graded and bounded like all else."""
    judged, n = corridor(), 100_000
    none = judged.judge(np.zeros(len(judged.grid.points), dtype=np.int64), n)
    assert (none.grade, none.nearest.side) == ("refuted", "below")
    every = judged.judge(np.full(len(judged.grid.points), n), n)
    assert (every.grade, every.nearest.side) == ("refuted", "above")
    excess = Corridor(judged.grid, judged.above, Fraction(1), ALPHA)
    assert excess.judge(np.zeros(len(judged.grid.points), dtype=np.int64), n).grade == "proven"


# --- groups and segments --------------------------------------------------------------------------------------


@settings(max_examples=examples(30), deadline=None)
@given(judged_counts(sequential=False), st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_rows_worth_less_prove_and_refute_less(drawn: tuple[Corridor, Ints, int], low: float, high: float) -> None:
    """Rows worth what they are change nothing; worth fewer, nothing is decided that was not."""
    judged, counts, n = drawn
    counts = falling(counts)
    plain = judged.judge(counts, n)
    ends = {0: Effective(n, n), len(counts) - 1: Effective(n, n)}
    assert judged.judge(counts, n, worth_of(judged.grid, n, ends)) == plain
    fewer = Sides(np.full(len(counts), n * low), np.full(len(counts), n * high))
    found = judged.judge(counts, n, fewer)
    assert found.inside == plain.inside
    assert found.grade in ("open", plain.grade)


def test_rows_between_two_measured_points_are_worth_the_smaller() -> None:
    points = grid(Contract(), Decimal("0.1"), Decimal("0.05"), Fraction(1, 2), Fraction(1, 2))
    last = len(points.points) - 1
    measured = {0: Effective(500.0, 900.0), 10: Effective(700.0, 300.0), last: Effective(2000.0, 100.0)}
    worth = worth_of(points, 1000, measured)
    assert (worth.low[0], worth.low[5], worth.low[10], worth.low[11], worth.low[last]) == (500, 500, 700, 700, 1000)
    assert (worth.high[0], worth.high[5], worth.high[10], worth.high[11], worth.high[last]) == (900, 300, 300, 100, 100)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(1, 30), st.integers(0, 1000))
def test_many_segments_are_judged_at_once(segments: int, seed: int) -> None:
    """Tails of a table of counts equal those of its rows, so that Holm's procedure sees the same."""
    sides = Fraction(1, 2), Fraction(1, 2)
    points = grid(Contract(), Decimal("0.1"), Decimal("0.01"), *sides, SEGMENT_POINTS)
    judged = Corridor(points, *sides, ALPHA)
    rng = np.random.default_rng(seed)
    n = rng.integers(100, 50_000, segments)
    counts = np.array([falling(rng.binomial(rows, np.minimum(points.fprs * rng.uniform(0.3, 2), 1))) for rows in n])
    column = n[:, None].astype(np.float64)
    tails = judged.refuting_tails(counts, column, column, column).min(axis=1)
    low, high = judged.proves(counts, column, column, column)
    for i in range(segments):
        found = judged.judge(counts[i], int(n[i]))
        assert found.tail == tails[i]
        assert (found.grade == "proven") == bool(low[i].all() and high[i].all())
        assert judged.judge(counts[i], int(n[i]), refuted=False).grade != "refuted"


# --- what the simulations say, with few runs; tests/benchmarks/ranges.py has many ---------------------------------

RUNS = often(800, 1500)
ALLOWED = 0.025 + 3 * math.sqrt(0.025 * 0.975 / RUNS)


@pytest.mark.each_run(2)
@pytest.mark.parametrize("edge", [1.5, 0.5])
@pytest.mark.parametrize("place", [*bad_places(corridor())])
def test_a_range_bad_at_one_threshold_is_rarely_proven(place: str, edge: float) -> None:
    """At most alpha/2 of the time, wherever it is, also between two points and with tied scores."""
    judged = corridor()
    rates = bad_at(judged.grid.fprs, bad_places(judged)[place], edge)
    assert shares(judged, rates, 400_000, RUNS)[0] <= ALLOWED
    steps = np.where(rates == judged.grid.fprs, tied(rates), rates)
    steps = np.maximum.accumulate(steps[::-1])[::-1] if edge > 1 else np.minimum.accumulate(steps)
    assert shares(judged, steps, 400_000, RUNS)[0] <= ALLOWED


@pytest.mark.parametrize("edge", [1.5, 0.5])
def test_a_range_at_its_edge_is_rarely_refuted(edge: float) -> None:
    judged = corridor()
    assert shares(judged, judged.grid.fprs * edge, 100_000, RUNS)[1] <= ALLOWED
    assert shares(judged, judged.grid.fprs * edge**2, 100_000, 500)[1] > 0.99


def test_many_looks_prove_a_bad_range_as_rarely_as_one() -> None:
    """Sequential bounds keep alpha/2 over 50 looks where fixed ones do not: these prove it in 15 % of all runs."""
    runs = often(200, 1000)
    looks = np.unique(np.geomspace(20_000, 400_000, 50).astype(int)).tolist()
    found = {}
    for sequential in (True, False):
        judged = corridor(start="0.003", sequential=sequential)
        found[sequential] = ever_proven(judged, bad_at(judged.grid.fprs, 0.001, 1.5), looks, runs)
    assert found[True] <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / runs)
    assert found[False] > 0.06


def test_a_bad_range_of_groups_is_rarely_proven() -> None:
    """With few runs it shows only gross errors: of rows taken as independent three in ten would pass here."""
    assert groups_proven("equal: 300 x 300, rho 0.2", 1.5, often(24, 40)) <= 0.125


# --- the band to draw -----------------------------------------------------------------------------------------


@pytest.mark.each_run(2)
@pytest.mark.parametrize(("decades", "level"), BAND_LEVELS[:6])
def test_the_band_of_a_whole_range_covers_it(decades: float, level: float) -> None:
    """Exactly, by boundary crossing: 95 % at least, and not much more."""
    stop = 0.1 / 10**decades
    assert 0.95 <= band_covers(round(30 / stop), 0.1, stop, level) <= 0.972


@settings(max_examples=often(4, 10), deadline=None)
@given(st.integers(50, 400), st.floats(0.02, 0.3), st.floats(0.001, 0.05), st.integers(0, 100))
def test_boundary_crossing_equals_simulation(n: int, stop: float, level: float, seed: int) -> None:
    """The share of samples whose intervals cover at every rate, against the exact one."""
    start, draws = min(3 * stop, 0.9), 2000
    rng = np.random.default_rng(seed)
    tails = FixedTails()
    low, high = (side(np.arange(n + 1), n, 0.0, level / 2) for side in (tails.lower, tails.upper))
    covered = 0
    for _ in range(draws):
        values = np.sort(rng.random(n))
        jumps = values[(values >= stop) & (values <= start)]
        before = np.searchsorted(values, jumps, side="left")
        first, last = np.searchsorted(values, [stop, start], side="right")
        ends = low[first] <= stop <= high[first] and low[last] <= start <= high[last]
        covered += bool(ends and np.all(high[before] >= jumps) and np.all(low[before + 1] <= jumps))
    exact = band_covers(n, start, stop, level)
    assert abs(covered / draws - exact) <= 4.5 * math.sqrt(max(exact * (1 - exact), 1e-3) / draws)


def test_the_drawn_band_is_wider_than_the_pointwise_one() -> None:
    judged, n = corridor(), 100_000
    counts = np.round(n * judged.grid.fprs).astype(np.int64)
    rows, p, tail = np.full(len(counts), float(n)), judged.grid.fprs, judged.grid.band_level / 2
    drawn = Sides(judged.tails.lower(counts, rows, p, tail), judged.tails.upper(counts, rows, p, tail))
    single = judged.bounds(counts, n)
    ratio = (drawn.high - drawn.low) / (single.high - single.low)
    assert np.all((ratio > 1.5) & (ratio < 1.65))
