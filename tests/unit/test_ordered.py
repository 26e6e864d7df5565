"""Scores in order answer four questions alike in every storage: written out, or as rows that stand for many."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import ordered as orders
from gate.calibration.fit import fit_sorted
from gate.checks.shared import compare_scores
from gate.ordered import Ordered, collapse, sort
from gate.policy import Calibration
from gate.scores import Scores

FLOATS = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60)
TIED = st.lists(st.integers(-5, 5).map(lambda i: i / 7), min_size=1, max_size=60)


def ways(values: list[float]) -> list[Ordered]:
    """One sample in each storage."""
    rows = sort(np.array(values))
    return [Ordered(rows), Ordered(*collapse(rows, None))]


@given(st.one_of(FLOATS, TIED))
def test_sorting_as_integers_is_sorting_as_floats(values: list[float]) -> None:
    assert sort(np.array(values)).tobytes() == (np.sort(np.array(values)) + 0.0).tobytes()


@given(st.one_of(FLOATS, TIED), st.data())
def test_every_way_answers_as_a_list_would(values: list[float], data: st.DataObject) -> None:
    rows = sorted(values)
    ranks = data.draw(st.lists(st.integers(1, len(rows)), min_size=1))
    scores = data.draw(st.lists(st.one_of(st.sampled_from(rows), st.floats(allow_nan=False)), min_size=1))
    low, high = sorted(data.draw(st.tuples(st.sampled_from(rows), st.sampled_from(rows))))
    for ordered in ways(values):
        assert ordered.n == len(rows)
        assert ordered.at_rank(ranks).tolist() == [rows[-rank] for rank in ranks]
        assert ordered.at_or_above(scores).tolist() == [sum(row >= score for row in rows) for score in scores]
        found, counts = ordered.between(low, high)
        written_out = found if counts is None else np.repeat(found, counts)
        assert written_out.tolist() == [row for row in rows if low <= row < high]


@settings(deadline=None)
@given(st.one_of(FLOATS, TIED), st.integers(1, 20))
def test_ranges_hold_every_row_once_and_no_score_twice(values: list[float], size: int) -> None:
    for ordered in ways(values):
        ranges = [np.repeat(*collapse(*entries)) for entries in ordered.ranges(size)]
        assert np.concatenate(ranges).tolist() == sorted(values)
        assert all(len(part) for part in ranges)
        assert all(one[-1] < other[0] for one, other in pairwise(ranges))
        assert all(np.count_nonzero(part < part[-1]) < size + np.count_nonzero(part == part[0]) for part in ranges)


@settings(deadline=None)
@given(st.one_of(FLOATS, TIED), st.integers(1, 20))
def test_a_survey_is_the_same_in_every_way(values: list[float], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders.Ordered.cuts, "__defaults__", (size,))
        one, other = (ordered.survey for ordered in ways(values))
    assert one == other
    assert one.distinct == len({*values})
    assert one.largest_tie == max(values.count(value) for value in values)


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(1, 10**6), st.integers(2, 400), st.sampled_from([30, 1000, 2**40, 2**53]), st.booleans())
def test_a_calibrator_does_not_depend_on_how_the_rows_are_kept(seed: int, n: int, steps: int, average: bool) -> None:
    rng = np.random.default_rng(seed)
    values = np.round(rng.beta(0.5, 8, n) * steps) / steps
    settings = Calibration(knots=200, ties="average" if average else "conservative")
    one, other = (fit_sorted(ordered, settings) for ordered in ways(values.tolist()))
    assert one.to_json() == other.to_json()


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(1, 10**6), st.integers(1, 4000), st.integers(1, 4000), st.sampled_from([3, 1000, 2**30]))
def test_shared_scores_are_the_same_however_the_rows_are_kept(seed: int, n: int, m: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    samples = [np.round(rng.beta(0.5, 8, size) * steps) / steps for size in (n, m)]
    found = []
    for i in range(2):
        fit, holdout = (Scores(values) for values in samples)
        fit.__dict__["ordered"], holdout.__dict__["ordered"] = (ways(values.tolist())[i] for values in samples)
        found.append(compare_scores(fit, holdout))
    assert found[0] == found[1]
