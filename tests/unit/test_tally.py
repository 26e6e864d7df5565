"""The tally: so many of so many rows, its bounds, what rows in groups are worth to them, and what cannot be."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gate.checks.rates import grade_count
from gate.statistics.binomial import Band, clopper_pearson
from gate.statistics.clusters import effective_rows
from gate.statistics.grouped import _jacobi_nodes
from gate.statistics.tally import Tally, tally

alphas = st.sampled_from([0.5, 0.1, 0.05, 0.01, 1e-6])
sizes = st.integers(1, 10**9) | st.integers(1, 40)


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(sizes)
    return draw(st.integers(0, min(n, 10**4)) | st.integers(0, n)), n


@given(counts(), alphas)
def test_independent_rows_have_the_bounds_of_clopper_and_pearson(count: tuple[int, int], alpha: float) -> None:
    k, n = count
    found = Tally(threshold=0.5, flagged=k, rows=n)
    assert found.interval(alpha) == found.plain_interval(alpha) == clopper_pearson(k, n, alpha)
    assert (found.exact_rate, found.rate) == (Fraction(k, n), k / n)
    assert found.worth == (n, n)
    assert (found.independent_rows, found.shares, found.is_clustered) == (n, (1.0, 1.0), False)


@given(counts(), st.floats(0.01, 1), st.floats(0.01, 1), alphas)
def test_each_bound_counts_the_rows_that_it_may(count: tuple[int, int], low: float, high: float, alpha: float) -> None:
    """Fewer independent rows at the same rate give a wider interval; each side has its own rows."""
    k, n = count
    found = Tally(threshold=0.5, flagged=k, rows=n, effective=(n * low, n * high))
    bounds, plain = found.interval(alpha), found.plain_interval(alpha)
    assert bounds[0] == clopper_pearson(k * (n * low) / n, n * low, alpha)[0]
    assert bounds[1] == clopper_pearson(k * (n * high) / n, n * high, alpha)[1]
    assert plain == clopper_pearson(k, n, alpha)
    assert bounds[0] <= plain[0] * (1 + 1e-9)
    assert bounds[1] >= plain[1] * (1 - 1e-9)
    assert found.independent_rows == n * min(low, high)
    assert found.is_clustered == (found.independent_rows < n)


@given(st.lists(st.tuples(st.integers(1, 30), st.floats(0, 1)), min_size=2, max_size=60), alphas)
@settings(deadline=None)
def test_groups_are_worth_what_their_counts_say(groups: list[tuple[int, float]], alpha: float) -> None:
    rows = np.array([size for size, _ in groups], dtype=np.float64)
    flagged = np.array([round(size * share) for size, share in groups], dtype=np.float64)
    k, n = int(flagged.sum()), int(rows.sum())
    found = tally(0.5, k, n, (rows, flagged), alpha)
    assert found.effective == tuple(effective_rows(rows, flagged, alpha))
    assert all(0 < worth <= n for worth in found.worth)
    assert tally(0.5, k, n, None, alpha) == Tally(threshold=0.5, flagged=k, rows=n)


@given(st.floats(1e-3, 1e4), st.floats(1e-3, 1e4))
@example(0.25, 0.75)  # two rows of a group correlate by one half, where a formula for all nodes divides 0 by 0
@example(0.5, 0.5)
@settings(deadline=None)
def test_the_rates_of_groups_are_integrated_exactly(a: float, b: float) -> None:
    """The nodes have the moments of Beta(a, b)."""
    rates, weights = _jacobi_nodes(a, b)
    moments = [1.0, a / (a + b), a * (a + 1) / ((a + b) * (a + b + 1))]
    assert [float(weights @ rates**power) for power in range(3)] == pytest.approx(moments, rel=1e-9, abs=1e-12)


def test_rows_of_one_group_that_agree_are_worth_about_one() -> None:
    rng = np.random.default_rng(1)
    sizes, chosen = np.full(200, 50.0), rng.random(200) < 0.3
    found = tally(0.5, int(50 * chosen.sum()), 10_000, (sizes, np.asarray(50.0 * chosen, dtype=np.float64)), 0.05)
    assert 100 < found.independent_rows < 300
    low, high = clopper_pearson(int(chosen.sum()), 200, 0.05)
    assert found.interval(0.05) == pytest.approx((low, high), abs=0.03)


@given(
    st.integers(1, 300),
    st.sampled_from(["0.01", "0.1", "0.5"]),
    st.sampled_from(["0.25", "0.5", "1"]),
    st.floats(0.2, 1),
)
@settings(max_examples=examples(60), deadline=None)
def test_the_grade_of_every_count_agrees_with_its_interval(n: int, fpr: str, error: str, worth: float) -> None:
    """The whole interval inside proves, outside refutes; so do the counts at which the grade changes."""
    alpha = Fraction(1, 20)
    band = Band.around(Fraction(fpr), Fraction(error), Fraction(error), alpha)
    for k in range(n + 1):
        found = Tally(threshold=0.5, flagged=k, rows=n, effective=None if worth == 1 else (n * worth, n * worth))
        grade = grade_count(k, found.critical(band))
        low, high = found.interval(float(alpha))
        edges = float(band.low), float(band.high)
        near = any(abs(bound - edge) < 1e-9 for bound in (low, high) for edge in edges)
        if not near:
            assert (grade == "proven") == (edges[0] <= low and high <= edges[1])
            assert (grade == "refuted") == (high < edges[0] or low > edges[1])
            assert (found.refuting_tail(band) < float(alpha) / 2) == (grade == "refuted")


@pytest.mark.parametrize(
    "numbers",
    [
        {"flagged": 11},
        {"flagged": -1},
        {"rows": 0, "flagged": 0},
        {"rows": -5},
        {"rows": 10**15 + 1},
        {"threshold": None},
        {"threshold": float("nan")},
        {"threshold": float("inf")},
        {"effective": (0.0, 10.0)},
        {"effective": (10.0, 0.0)},
        {"effective": (10.1, 5.0)},
        {"effective": (5.0, 10.1)},
        {"effective": (-1.0, 5.0)},
        {"effective": (float("nan"), 5.0)},
        {"effective": (5.0,)},
        {"flagged": 2.5},
        {"flagged": "many"},
    ],
    ids=str,
)
def test_counts_that_no_rows_have_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Tally.model_validate({"threshold": 0.5, "flagged": 3, "rows": 10} | numbers)


@given(counts(), st.none() | st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), st.floats(allow_nan=False))
def test_a_tally_reads_back_equal(count: tuple[int, int], shares: tuple[float, float] | None, threshold: float) -> None:
    k, n = count
    reached = np.isfinite(threshold)
    effective = None if shares is None else (n * shares[0], n * shares[1])
    found = Tally(threshold=threshold if reached else None, flagged=k if reached else 0, rows=n, effective=effective)
    assert Tally.model_validate_json(found.model_dump_json()) == found
