"""Groups exchanged between two samples: sound ones are told apart as seldom as promised, others are found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks import simulations as statistics
from drawing import examples, often
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.statistics import permutation
from gate.statistics.permutation import exchange


def test_sound_groups_are_told_apart_as_seldom_as_promised() -> None:
    """Pairs of samples in groups of one population: 5 % of them at the level 5 %, within 3 errors (of 2 %, of 120).

    The exact test of independent rows, at 5 % of them, tells more than 30 % apart.
    """
    runs = often(40, 120)
    values = [statistics.exchange_groups(np.random.default_rng([3, i]), 1.0, draws=199) for i in range(runs)]
    assert np.mean([p <= 0.05 for p, _ in values]) <= 0.05 + 3 * statistics.share_error(0.05, runs)
    assert np.mean([p <= 0.25 for p, _ in values]) >= 0.1  # and it is no test that never rejects
    assert np.mean([rows <= 0.05 for _, rows in values]) >= 0.3


def test_a_tail_three_times_as_heavy_is_found() -> None:
    """It is found in at least 10 of 12 pairs of samples with such a tail, at the level 5 %."""
    values = [statistics.exchange_groups(np.random.default_rng([4, i]), 3.0, draws=199) for i in range(12)]
    assert sum(p <= 0.05 for p, _ in values) >= 10


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(2, 30), st.integers(1, 4))
def test_p_values_are_chances_and_the_order_of_samples_is_none(seed: int, fitted: int, held: int, scores: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 20, fitted + held).astype(float)
    counts = rng.binomial(sizes.astype(int)[:, None], 0.2, (fitted + held, scores)).astype(float)
    found = exchange(sizes[:fitted], counts[:fitted], sizes[fitted:], counts[fitted:], draws=99)
    assert len(found.each) == scores
    assert all(0 < p <= 1 for p in (found.p_value, *found.each))
    assert found.least == pytest.approx(max(1 / math.comb(fitted + held, held), 0.01))
    again = exchange(sizes[:fitted], counts[:fitted], sizes[fitted:], counts[fitted:], draws=99)
    assert again == found


def test_samples_that_differ_in_every_group_have_the_smallest_p_value() -> None:
    """Ten groups a side: no exchange of 99 is as far apart, however the draws fall."""
    sizes = np.full(10, 20.0)
    found = exchange(sizes, np.zeros((10, 1)), sizes, np.arange(10.0, 20.0)[:, None], draws=99)
    assert found.p_value == pytest.approx(0.01)


@pytest.mark.parametrize("held", [0, 1])
def test_fewer_than_two_groups_tell_nothing(held: int) -> None:
    sizes, counts = np.full(10, 5.0), np.ones((10, 2))
    found = exchange(sizes, counts, sizes[:held], counts[:held])
    assert (found.p_value, found.least) == (1.0, 1.0)


@pytest.mark.parametrize("most", [4000, 40])
def test_many_groups_are_put_together(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 groups of which 40 units remain: what differs is still found, what does not is not."""
    monkeypatch.setattr(permutation, "MOST_UNITS", most)
    rng = np.random.default_rng(6)
    sizes = rng.integers(1, 20, 200)
    weights = sizes.astype(np.float64)
    for rate, differs in ((0.2, False), (0.4, True)):
        fitted, held = (rng.binomial(sizes, p)[:, None].astype(np.float64) for p in (0.2, rate))
        assert (exchange(weights, fitted, weights, held, draws=999).p_value <= 0.01) == differs
