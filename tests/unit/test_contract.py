"""The contract is exact at its anchors, monotone, and read the same in both directions."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.contract import FLAG_ALL, LOWEST, PAPER_ANCHORS, Anchor, Contract

PAPER_TABLE = [(0.1, 0.1), (0.01, 0.3), (0.001, 0.5), (0.0001, 0.7), (0.00001, 0.85), (0.000001, 0.95)]


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    """Any falling rates, from near 1 to near 1e-10, with rising scores of three decimals."""
    rates = draw(
        st.lists(
            st.builds(lambda digits, e: Decimal(digits).scaleb(-e), st.integers(1, 9999), st.integers(4, 9)),
            min_size=1,
            max_size=8,
            unique=True,
        )
    )
    scores = draw(st.lists(st.integers(1, 989), min_size=len(rates), max_size=len(rates), unique=True))
    points = zip(sorted(rates, reverse=True), sorted(scores), strict=True)
    return Contract(tuple(Anchor(rate, Decimal(score).scaleb(-3)) for rate, score in points))


rates = st.floats(-10, 0).map(lambda exponent: min(max(10.0**exponent, 1e-10), 1.0))


def test_the_default_is_the_papers_table() -> None:
    assert [(float(anchor.fpr), float(anchor.score)) for anchor in Contract().anchors] == PAPER_TABLE
    assert Contract().anchors is PAPER_ANCHORS


@settings(deadline=None)
@given(contracts())
def test_scores_are_exact_at_every_anchor_and_at_the_ends(contract: Contract) -> None:
    """One by one and all at once: no rounding may move an anchor across the score it is compared with."""
    points = (FLAG_ALL, *contract.anchors, LOWEST)
    scores = [float(point.score) for point in points]
    assert [float(contract.score(float(point.fpr))) for point in points] == scores
    assert contract.score([float(point.fpr) for point in points]).tolist() == scores


@settings(deadline=None)
@given(contracts())
def test_rates_come_back_at_every_anchor_and_at_the_ends(contract: Contract) -> None:
    points = (FLAG_ALL, *contract.anchors, LOWEST)
    found = contract.fpr([float(point.score) for point in points])
    np.testing.assert_allclose(found, [float(point.fpr) for point in points], rtol=1e-14)


def test_the_ends_are_1_at_0_and_1e_10_at_0_99() -> None:
    assert Contract().score([1.0, 1e-10]).tolist() == [0.0, 0.99]
    assert Contract().fpr([0.0, 0.99]).tolist() == [1.0, pytest.approx(1e-10, rel=1e-14)]


def test_outside_the_ends_the_ends_hold() -> None:
    """Also at a rate of exactly 0, without a warning about its logarithm."""
    assert Contract().score([5.0, 1e-11, 5e-324, 0.0]).tolist() == [0.0, 0.99, 0.99, 0.99]
    assert Contract().fpr([-1.0, 1.0, np.inf]).tolist() == [1.0, *Contract().fpr([0.99, 0.99])]


def test_no_score_is_made_up_for_nan() -> None:
    assert np.isnan(Contract().score(np.nan))
    assert np.isnan(Contract().fpr(np.nan))


@settings(max_examples=examples(200), deadline=None)
@given(contracts(), rates, rates)
def test_a_lower_rate_never_has_a_lower_score(contract: Contract, one: float, other: float) -> None:
    low, high = sorted([one, other])
    assert contract.score(low) >= contract.score(high)
    if high > low * (1 + 1e-6):
        assert contract.score(low) > contract.score(high)


@settings(max_examples=examples(200), deadline=None)
@given(contracts(), rates)
def test_the_rate_of_a_rates_score_is_the_rate(contract: Contract, rate: float) -> None:
    assert float(contract.fpr(contract.score(rate))) == pytest.approx(rate, rel=1e-9)


@settings(max_examples=examples(200), deadline=None)
@given(contracts(), st.floats(0, 0.99))
def test_the_score_of_a_scores_rate_is_the_score(contract: Contract, score: float) -> None:
    assert float(contract.score(contract.fpr(score))) == pytest.approx(score, abs=1e-9)


@settings(deadline=None)
@given(contracts())
def test_between_anchors_it_is_linear_in_the_logarithm(contract: Contract) -> None:
    """Halfway in log10(FPR) is halfway in score."""
    points = (FLAG_ALL, *contract.anchors, LOWEST)
    for left, right in pairwise(points):
        halfway = (float(left.fpr) * float(right.fpr)) ** 0.5
        assert float(contract.score(halfway)) == pytest.approx(float(left.score + right.score) / 2, abs=1e-9)


def test_one_number_a_list_and_exact_decimals_are_all_understood() -> None:
    contract = Contract()
    assert contract.score(0.001).shape == ()
    assert contract.score([[0.1, 0.01], [0.001, 0.0001]]).tolist() == [[0.1, 0.3], [0.5, 0.7]]
    assert contract.score([float(anchor.fpr) for anchor in PAPER_ANCHORS]).tolist() == [
        score for _, score in PAPER_TABLE
    ]
    assert contract.fpr([float(anchor.score) for anchor in PAPER_ANCHORS]).shape == (6,)


def test_a_contract_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Contract().anchors = ()  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        PAPER_ANCHORS[0].score = Decimal(1)  # type: ignore[misc]
