"""What is said of numbers: rates, chances and settings, wherever they are read."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.stored import ExactEdge, Section
from gate.words import between, chance, chance_at_most, chance_of_few, listed, percent, rounded_percent, shown, signed


class Edge(Section):
    at: ExactEdge


@given(st.floats(0, 1), st.integers(1, 6))
def test_a_rate_is_said_without_an_exponent_and_to_its_digits(rate: float, digits: int) -> None:
    said = percent(rate, digits)
    assert "e" not in said.lower()
    assert float(said.removesuffix(" %")) == float(f"{100 * rate:.{digits}g}")


@given(st.decimals(0, 1, places=12, allow_nan=False))
def test_all_digits_of_an_exact_rate_are_said(rate: Decimal) -> None:
    assert Decimal(percent(rate).removesuffix(" %")) / 100 == rate
    low, high = (Decimal(percent(rate, 3, side).removesuffix(" %")) for side in (ROUND_FLOOR, ROUND_CEILING))
    assert low <= rate * 100 <= high


@pytest.mark.parametrize("rate", [0.6041, 0.0004, 0.9996, 0.99999, 0.0, 1.0, 0.00005])
def test_chances_are_said_by_what_they_are_for(rate: float) -> None:
    """One in a plan is never certain, one that a reader relies on is never said smaller, one on a page may be rare."""
    said = {
        0.6041: ("60.4 %", "60.5 %", "60.4 %"),
        0.0004: ("<0.1 %", "less than 0.1 %", "0.04 %"),
        0.9996: (">99.9 %", "100 %", "100 %"),
        0.99999: (">99.9 %", "100 %", "100 %"),
        0.0: ("0 %", "less than 0.1 %", "below 0.01 %"),
        1.0: (">99.9 %", "100 %", "100 %"),
        0.00005: ("<0.1 %", "less than 0.1 %", "below 0.01 %"),
    }
    assert (chance(rate), chance_at_most(rate), chance_of_few(rate)) == said[rate]


def test_settings_lists_and_differences_are_said_as_a_person_would() -> None:
    assert [shown(value) for value in (Decimal("1E-3"), True, None, (), ("a", "b"), 20)] == [
        "0.001",
        "true",
        "nothing",
        "nothing",
        "a, b",
        "20",
    ]
    assert shown(None, "none") == "none"
    assert [listed(list("abcdef"[:n]), "or") for n in (1, 2, 3, 6)] == ["a", "a or b", "a, b or c", "a, b, c or 3 more"]
    assert (signed(Decimal("-0.50")), signed(Decimal(2))) == ("−0.50", "+2")
    assert (between("0.05 %", "0.15 %"), rounded_percent(0.6, 1)) == ("0.05 to 0.15 %", "60.0 %")


@pytest.mark.parametrize("text", ["1e-999999999", "0", 0, 0.0])
def test_no_text_in_a_record_makes_a_number_of_more_digits_than_a_float(text: object) -> None:
    assert percent(Edge.model_validate({"at": text}).at) == "0 %"
