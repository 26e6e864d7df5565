"""Every plotting position keeps its promise: by the exact law of order statistics and by fitting for real."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples, often
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from gate.calibration.calibrator import from_json
from gate.calibration.fit import fit
from gate.calibration.positions import NeymanPearson, fractional_rank, named, rows_to_support
from gate.checks import parse_policy
from gate.contract import Anchor, Contract
from gate.errors import GateError
from gate.policy import PLOTTING_POSITIONS, Calibration

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "statistics.json").read_text())
POSITIONS = ("filliben", "mean", "median", "conformal", "np 0.95")
positions = st.sampled_from([*POSITIONS, "np 0.5", "np 0.999"])
sizes = st.integers(2, 400) | st.sampled_from([10_000, 59_706, 885_013, 10**6, 12_250_475, 10**8])


# --- golden numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GOLDEN["np_umbrella"], ids=lambda c: str(c["n"]))
def test_the_umbrella_rank_equals_the_golden_numbers(case: dict[str, Any]) -> None:
    """The deepest rank labelled at most the rate, and how often its true rate exceeds it."""
    n, fpr, position = case["n"], case["fpr"], f"np {1 - case['delta']:g}"
    labels = named(position).label(np.arange(1, 200), n)
    deepest = int(np.count_nonzero(labels <= fpr))
    assert deepest == case["rank_from_top"] == int(fractional_rank(named(position), Fraction(str(fpr)), n))
    assert beta.sf(fpr, deepest, n - deepest + 1) == pytest.approx(case["violation"], rel=1e-8)


@pytest.mark.parametrize("case", GOLDEN["np_umbrella_min_n"], ids=lambda c: f"{c['fpr']:g}")
def test_the_umbrellas_fewest_rows_equal_the_golden_numbers(case: dict[str, Any]) -> None:
    """n >= ln(delta) / ln(1 - p)."""
    assert rows_to_support(named(f"np {1 - case['delta']:g}"), case["fpr"]) == case["n"]


# --- the labels ---------------------------------------------------------------------------------------------


@settings(max_examples=examples(150), deadline=None)
@given(sizes, positions)
def test_labels_rise_with_the_rank_and_are_rates(n: int, position: str) -> None:
    ranks = np.unique(np.clip(np.concatenate([np.arange(1, 50), np.geomspace(1, n, 50).astype(int), [n]]), 1, n))
    labels = named(position).label(ranks, n)
    assert np.all(np.diff(labels) > 0)
    assert labels[0] > 0
    assert labels[-1] <= 1


@pytest.mark.parametrize("position", ["median", "np 0.5", "np 0.95", "np 0.999"])
def test_a_label_is_at_most_itself_and_not_a_little_less(position: str) -> None:
    """This holds even if scipy's distribution function is not exact, as at the second of 885,013 rows."""
    rng = np.random.default_rng(3)
    for n in (3, 885_013, 12_250_475, 10**9, 10**12):
        ranks = np.unique(np.clip(np.append((n ** rng.uniform(size=200)).astype(int), [2, 35]), 1, n))
        labels = named(position).label(ranks, n)
        assert np.all(named(position).is_at_most(labels, ranks, n))
        assert not np.any(named(position).is_at_most(labels * (1 - 1e-11), ranks, n))


@settings(max_examples=examples(150), deadline=None)
@given(sizes, positions, st.data())
def test_the_fractional_rank_inverts_the_label(n: int, position: str, data: st.DataObject) -> None:
    """The rate on a label has that rank; a rate between two labels has a rank between them."""
    rank = data.draw(st.integers(2, n - 1)) if n > 3 else 2
    here, deeper = (float(named(position).label(k, n)) for k in (rank, min(rank + 1, n)))
    if rank < n:
        assert float(fractional_rank(named(position), Fraction(here), n)) == pytest.approx(rank, rel=1e-6)
    if rank + 1 < n:
        between = fractional_rank(named(position), Fraction((here + deeper) / 2), n)
        assert rank - 1e-6 * rank <= between <= rank + 1 + 1e-6 * rank


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("fpr", [0.1, 0.01, 0.003])
def test_rows_to_support_are_the_fewest(position: str, fpr: float) -> None:
    rows = rows_to_support(named(position), fpr)
    assert named(position).label(1, rows) <= fpr < named(position).label(1, rows - 1)


@pytest.mark.parametrize("n", [10, 1000, 59_706, 10**9])
@pytest.mark.parametrize("rank", [1, 2, 5, 9])
def test_labels_are_what_they_are_called(n: int, rank: int) -> None:
    """They are those of scipy's beta law: median, mean, 95 % quantile; Filliben's is within 2 % of the median."""
    law = beta(rank, n - rank + 1)
    assert law.cdf(named("median").label(rank, n)) == pytest.approx(0.5, abs=1e-7)
    assert law.cdf(named("np 0.95").label(rank, n)) == pytest.approx(0.95, abs=1e-7)
    assert named("mean").label(rank, n) == pytest.approx(law.mean(), rel=1e-12)
    assert named("filliben").label(rank, n) == pytest.approx(float(named("median").label(rank, n)), rel=0.02)
    assert named("conformal").label(rank, n) == pytest.approx((rank + 1) / (n + 1), rel=1e-15)


def test_a_median_of_a_billion_rows_is_a_median() -> None:
    """Where scipy's inverse of the beta law is off by a factor of two."""
    assert beta.cdf(named("median").label(1000, 10**9), 1000, 10**9 - 999) == pytest.approx(0.5, abs=1e-7)


# --- what the thresholds promise, by real fits --------------------------------------------------------------

N, FITS = 400, 20_000
RATE = Decimal("0.05")
CONTRACT = Contract((Anchor(RATE, Decimal("0.5")),))


def interpolated(samples: np.ndarray, position: str) -> np.ndarray:
    """The 5 % threshold of each sample by definition: between the two ranks whose labels enclose the rate.

    For a bound it is the upper of the two.
    """
    labels = named(position).label(np.arange(1, N + 1), N)
    rank = int(np.count_nonzero(labels <= float(RATE)))
    share = (labels[rank] - float(RATE)) / (labels[rank] - labels[rank - 1])
    share = 1.0 if named(position).is_bound else share
    ordered = np.partition(samples, [N - rank - 1, N - rank], axis=1)
    upper, lower = ordered[:, N - rank], ordered[:, N - rank - 1]
    return np.asarray(lower + share * (upper - lower))


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    """20,000 fit samples of 400 uniform scores, for which the true FPR of a threshold t is 1 - t."""
    return np.random.default_rng(20_262).random((FITS, N))


@pytest.fixture(scope="module")
def true_rates(samples: np.ndarray) -> dict[str, np.ndarray]:
    return {position: 1 - interpolated(samples, position) for position in POSITIONS}


@pytest.mark.each_run(1)
@pytest.mark.parametrize("position", POSITIONS)
def test_a_fitted_threshold_is_the_interpolated_one(position: str, samples: np.ndarray) -> None:
    """What holds for the thresholds simulated here holds for fitted calibrators: they are the same."""
    chosen = Calibration(plotting_position=position, knots=101)
    found = [fit(sample, chosen, CONTRACT).thresholds[RATE] for sample in samples[:25]]
    np.testing.assert_allclose(np.array(found, dtype=float), interpolated(samples[:25], position), rtol=1e-12)


# Monte Carlo: the standard error of a share p among 20,000 fits is sqrt(p (1 - p) / 20,000); four are allowed.
def error(share: float) -> float:
    return 4 * (share * (1 - share) / FITS) ** 0.5


@pytest.mark.each_run(1)
@pytest.mark.parametrize("position", ["median", "filliben"])
def test_medians_exceed_their_target_half_of_the_time(position: str, true_rates: dict[str, np.ndarray]) -> None:
    """Within 4 standard errors, 1.4 %, and half a per cent that interpolating between two ranks may move it."""
    assert np.mean(true_rates[position] > float(RATE)) == pytest.approx(0.5, abs=error(0.5) + 0.005)


def test_the_mean_meets_its_target_on_average(true_rates: dict[str, np.ndarray]) -> None:
    """Four standard errors of the mean of 20,000 rates, each with a deviation of about 1.1 %, are 0.03 %."""
    rates = true_rates["mean"]
    assert np.mean(rates) == pytest.approx(float(RATE), abs=4 * float(np.std(rates)) / FITS**0.5)
    assert np.mean(true_rates["filliben"]) > np.mean(rates) + 0.0005  # biased up by 0.3175 / n


def test_conformal_thresholds_are_marginally_valid(true_rates: dict[str, np.ndarray]) -> None:
    """A fresh score reaches them at most at the target rate: on average one rank, 1 / 401, less."""
    rates = true_rates["conformal"]
    mean, slack = float(np.mean(rates)), 4 * float(np.std(rates)) / FITS**0.5
    assert mean <= float(RATE) + slack
    assert mean == pytest.approx(float(RATE) - 1 / (N + 1), abs=slack)


def test_umbrella_thresholds_keep_their_target_with_the_stated_confidence(true_rates: dict[str, np.ndarray]) -> None:
    """95 % of the time, less at most 4 standard errors of 0.15 %; no other position comes near it.

    The 13th of 400 rows is the deepest that keeps 5 %: 97.1 % of the time, as the beta law says.
    """
    within = {position: float(np.mean(rates <= float(RATE))) for position, rates in true_rates.items()}
    assert within["np 0.95"] >= 0.95 - error(0.95)
    assert within["np 0.95"] == pytest.approx(beta.cdf(0.05, 13, 388), abs=error(0.95))
    assert max(share for position, share in within.items() if position != "np 0.95") < 0.8


@pytest.mark.parametrize("position", POSITIONS)
def test_true_rates_follow_the_beta_law_of_the_fractional_rank(
    position: str, true_rates: dict[str, np.ndarray]
) -> None:
    """Kolmogorov's distance to it: 2.2 / sqrt(n) has a chance of 1 in 8,000, and the law is off by 0.01 at most."""
    x = float(fractional_rank(named(position), Fraction(RATE), N))
    levels = np.sort(beta.cdf(true_rates[position], x, N - x + 1))
    steps = np.arange(FITS + 1) / FITS
    assert max(np.max(levels - steps[:-1]), np.max(steps[1:] - levels)) < 2.2 / FITS**0.5 + 0.01


# --- bounds -------------------------------------------------------------------------------------------------

SATURATING = {  # a score's true rate by its distribution; most rows of the last two lie within 1e-6 of their end
    "uniform": (lambda u: u, lambda t: 1 - t),
    "near one": (lambda u: 1 - 10 ** (-12 * u), lambda t: 1 + np.log10(np.maximum(1 - t, 1e-300)) / 12),
    "near zero": (lambda u: u**20, lambda t: 1 - t**0.05),
}


@pytest.mark.each_run(4)
@pytest.mark.parametrize("shape", SATURATING)
@pytest.mark.parametrize("n", [320, 350, 380])
def test_a_bound_stands_on_a_score_whose_label_holds(shape: str, n: int) -> None:
    """np 0.95 at 1 %, of few rows: the threshold is the largest score, whose true rate keeps 1 % so often as promised.

    4,000 samples by definition, 4 standard errors allowed; calibrators fitted on the first of them have that threshold
    within the step of the stored curve. Between the largest two scores it would be kept 86 to 92 % of the time.
    """
    contract, rate = Contract((Anchor(Decimal("0.01"), Decimal("0.5")),)), 0.01
    draw, true_rate = SATURATING[shape]
    samples = draw(np.random.default_rng(n).random((4000, n)))
    rank = int(named("np 0.95").rank(Fraction(rate), n))
    thresholds = np.partition(samples, n - rank, axis=1)[:, n - rank]
    within = float(np.mean(true_rate(thresholds) <= rate))
    assert within >= 0.95 - 4 * (0.95 * 0.05 / 4000) ** 0.5
    chosen = Calibration(plotting_position="np 0.95", knots=101)
    found = [fit(sample, chosen, contract).thresholds[Decimal("0.01")] for sample in samples[:3]]
    np.testing.assert_allclose(np.array(found, dtype=float), thresholds[:3], rtol=0, atol=4e-15)


@settings(max_examples=often(5, 12), deadline=None)
@given(st.integers(300, 1500), st.integers(0, 2**32 - 1), st.sampled_from([None, 2, 4]), st.sampled_from([11, 500]))
@example(711, 65005232, None, 11)  # two scores lie 7e-15 apart
def test_a_bound_promises_no_score_more_than_its_label(n: int, seed: int, decimals: int | None, knots: int) -> None:
    """The promise holds at every score of the fit sample and half-way between two, not at anchors alone."""
    scores = np.sort(np.random.default_rng(seed).beta(0.3, 3, n))
    scores = scores if decimals is None else np.round(scores, decimals)
    calibrator = fit(scores, Calibration(plotting_position="np 0.9", knots=knots))
    assert len(calibrator.knots[0]) <= knots + 2 * len(calibrator.contract.anchors) + 40
    points = np.unique(np.concatenate([scores, (scores[1:] + scores[:-1]) / 2]))
    # A step takes 2e-15: the row that ends it is left out of the count.
    reached = n - np.searchsorted(scores, points - 3e-15, side="left")
    below = scores[np.maximum(np.searchsorted(scores, points + 3e-15, side="left") - 1, 0)]
    reached = np.maximum(reached, n - np.searchsorted(scores, below, side="left"))
    labels = named("np 0.9").label(reached, n)
    assert np.all(calibrator.predict(points) <= calibrator.contract.score(labels) + 1e-9)


# --- the paper's package ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", ["conservative", "average"])
@pytest.mark.parametrize("n", [2, 999, 59_706, 139_315, 10**6])
def test_fillibens_first_label_is_that_of_the_papers_package(ties: str, n: int) -> None:
    """To the bit, in both modes: where sets are compared within 1e-12, 6e-12 nearer to the median is a difference."""
    assert float(named("filliben").label(1, n)) == 1 - 0.5 ** (1 / n)
    assert float(named("median").label(1, n)) == pytest.approx(-np.expm1(np.log(0.5) / n), rel=1e-12)
    sample = np.linspace(0.1, 0.9, min(n, 999))
    assert fit(sample, Calibration(ties=ties, knots=11)).facts.lowest_label == 1 - 0.5 ** (1 / len(sample))


# --- ties ---------------------------------------------------------------------------------------------------

tied = st.builds(
    lambda seed, n, decimals: np.round(np.random.default_rng(seed).beta(0.5, 4, n), decimals),
    st.integers(0, 2**32 - 1),
    st.integers(2, 1500),
    st.integers(0, 4),
)


@settings(max_examples=examples(100), deadline=None)
@given(tied, positions)
@example(np.repeat([0.1, 0.5, 1.0], 7), "np 0.95")
@example(np.full(50, 0.5), "conformal")
def test_conservative_ties_flag_no_more_than_the_position_allows(scores: np.ndarray, position: str) -> None:
    """At every anchor, the fit scores flagged have a label that does not exceed the anchor's rate."""
    n = len(scores)
    calibrator = fit(scores, Calibration(plotting_position=position, knots=1000))
    calibrated = calibrator.predict(scores)
    for anchor in calibrator.contract.anchors:
        flagged = int(np.count_nonzero(calibrated >= float(anchor.score)))
        assert flagged <= fractional_rank(named(position), Fraction(anchor.fpr), n)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(2, 2000), st.integers(0, 2**32 - 1), positions)
@example(999, 1, "median")
@example(61, 0, "median")
@example(999, 1, "conformal")
def test_without_ties_both_modes_are_identical(n: int, seed: int, position: str) -> None:
    """This holds at an anchor of one half too, on which the median of an odd number of rows lies exactly."""
    scores = np.random.default_rng(seed).beta(0.7, 5, n)
    contract = Contract((Anchor(Decimal("0.5"), Decimal("0.1")), Anchor(Decimal("0.01"), Decimal("0.5"))))
    modes = [
        fit(scores, Calibration(ties=ties, plotting_position=position, knots=500), contract)
        for ties in ("average", "conservative")
    ]
    assert np.array_equal(modes[0].knots, modes[1].knots)
    assert modes[0].facts == modes[1].facts


# --- end to end ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", POSITIONS)
def test_calibrators_read_back_bit_equal(position: str) -> None:
    scores = np.round(np.random.default_rng(3).beta(0.5, 8, 5000), 4)
    calibrator = fit(scores, Calibration(plotting_position=position))
    again = from_json(calibrator.to_json())
    assert again.settings.plotting_position == position
    assert again.to_json() == calibrator.to_json()
    assert again.thresholds == calibrator.thresholds


def test_stricter_promises_put_thresholds_higher() -> None:
    scores = np.random.default_rng(4).random(20_000)
    at: dict[str, float] = {}
    for position in (*POSITIONS, "np 0.5"):
        threshold = fit(scores, Calibration(plotting_position=position)).thresholds[Decimal("0.001")]
        assert threshold is not None
        at[position] = threshold
    assert at["np 0.95"] > at["conformal"] > at["mean"] > at["filliben"]
    between = scores[(scores >= at["median"]) & (scores < at["np 0.5"])]
    assert at["median"] <= at["np 0.5"], "the same quantile, but a bound takes the score above instead of a line"
    assert len(between) <= 1


def policy_with(position: str) -> str:
    return f"""\
version: 1
name: test
calibration: {{plotting_position: {position}}}
targets: [{{fpr: 1%, min_n: 100, max_relative_error: 0.5}}]
"""


@pytest.mark.parametrize(
    ("written", "stored"),
    [("{np: 0.95}", "np 0.95"), ("{np: 95%}", "np 0.95"), ("{np: 0.950}", "np 0.95"), ("conformal", "conformal")],
)
def test_positions_in_a_policy(written: str, stored: str) -> None:
    policy = parse_policy(policy_with(written), "test.yaml").policy
    assert policy.calibration.plotting_position == stored
    calibrator = fit(np.random.default_rng(5).random(1000), policy.calibration, policy.anchors)
    assert calibrator.facts.lowest_label == named(stored).label(1, 1000)


@pytest.mark.parametrize("written", ["{np: 1}", "{np: 0.4}", "{np: high}", "np", "{mean: 0.9}", "weibull", "[np, 0.9]"])
def test_other_positions_are_refused(written: str) -> None:
    with pytest.raises(GateError, match=r"test\.yaml:3: calibration\.plotting_position"):
        parse_policy(policy_with(written), "test.yaml")


@pytest.mark.parametrize("text", ["weibull", "", "np", "np x", "filliben 0.5", "np 0.9 0.8", "Filliben"])
def test_an_unknown_position_is_an_error_everywhere(text: str) -> None:
    with pytest.raises(
        GateError, match=r"^plotting position: must be one of filliben, mean, median, conformal, np, got"
    ):
        named(text)


def test_every_position_that_a_policy_may_name_has_a_class_of_that_name() -> None:
    assert [type(named(name)).__name__.lower() for name in PLOTTING_POSITIONS] == [*PLOTTING_POSITIONS]
    assert named("np 0.95") == NeymanPearson(0.95)
