"""The calibrator equals the paper where it should, and keeps its promise on ties where the paper does not."""

from __future__ import annotations

import copy
import io
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from drawing import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate.calibration.calibrator import Calibrator, from_json
from gate.calibration.fit import RESOLUTION, fit, fit_ordered
from gate.contract import Anchor, Contract
from gate.errors import GateError
from gate.policy import Calibration
from gate.rows.ordered import Sorted

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "calibration.json").read_text())
CASES = {case["name"]: case for case in GOLDEN["cases"]}


def golden_scores(case: dict[str, Any]) -> np.ndarray:
    return eval(case["scores"], {"np": np})  # the golden file states its scores as numpy expressions


def golden_settings(case: dict[str, Any], ties: str) -> Calibration:
    options = case["options"]
    return Calibration(
        knots=options.get("n_knots", 10_000),
        plotting_position=options.get("plotting_position", "filliben"),
        ties=ties,
    )


@pytest.mark.parametrize("name", CASES)
def test_average_ties_equal_the_paper(name: str) -> None:
    """Every probe and threshold of an independent implementation is met within 1e-12."""
    case = CASES[name]
    calibrator = fit(golden_scores(case), golden_settings(case, "average"))
    assert len(calibrator.knots[0]) == case["knots"]
    np.testing.assert_allclose(calibrator.predict(case["probes"]), case["calibrated"], rtol=0, atol=1e-12)
    for found, expected in zip(calibrator.thresholds.values(), case["thresholds"], strict=True):
        assert (found is None) == (expected is None)
        assert found is None or found == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("name", ["beta_1k", "beta_50k", "uniform_3", "uniform_2", "mean_position", "few_knots"])
def test_without_ties_both_modes_are_the_same_pipeline(name: str) -> None:
    case = CASES[name]
    scores = golden_scores(case)
    average = fit(scores, golden_settings(case, "average"))
    conservative = fit(scores, golden_settings(case, "conservative"))
    assert np.array_equal(average.knots, conservative.knots)
    assert average.facts == conservative.facts


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(2, 3000), st.integers(0, 2**32 - 1), st.sampled_from(["filliben", "mean"]))
def test_without_ties_both_modes_are_the_same_on_random_scores(n: int, seed: int, position: str) -> None:
    scores = np.random.default_rng(seed).beta(0.7, 5, n)
    average = fit(scores, Calibration(ties="average", plotting_position=position, knots=1000))
    conservative = fit(scores, Calibration(ties="conservative", plotting_position=position, knots=1000))
    assert np.array_equal(average.knots, conservative.knots)


few_values = st.lists(
    st.sampled_from([0.0, 1e-20, 0.1, 0.1 + 1e-17, 0.25, 0.25 + 2e-15, 0.5, 1 - 2e-16, 1.0, np.nextafter(0.25, 1)]),
    min_size=2,
    max_size=400,
)
near_values = st.builds(
    lambda base, steps: np.clip(base + np.array(steps) * 4e-16, 0, 1).tolist(),
    st.sampled_from([0.0, 0.3, 0.75, 1.0]),
    st.lists(st.integers(-20, 20), min_size=2, max_size=200),
)


def beside_the_resolution(base: float, gaps: list[int], tied: list[int], others: list[float]) -> list[float]:
    """Scores just as far apart as the calibrator can tell, or a few floats more or less, some of them tied."""
    fewest = round(RESOLUTION / 0.99 / np.spacing(base))
    scores = np.minimum(base + np.cumsum([0, *(fewest + gap for gap in gaps)]) * np.spacing(base), 1.0)
    return [*np.repeat(scores, [*tied, *[1] * len(scores)][: len(scores)]).tolist(), *others]


edge_values = st.builds(
    beside_the_resolution,
    st.floats(0.05, 0.99),
    st.lists(st.integers(-3, 4), min_size=1, max_size=6),
    st.lists(st.sampled_from([1, 2, 5, 20]), max_size=7),
    st.lists(st.floats(0, 1), max_size=30),
)
any_values = st.lists(st.floats(0, 1), min_size=2, max_size=200)
repeated = st.builds(
    lambda seed, n, decimals: np.round(np.random.default_rng(seed).beta(0.5, 4, n), decimals).tolist(),
    st.integers(0, 2**32 - 1),
    st.integers(2, 5000),
    st.integers(0, 4),
)
benign = st.one_of(few_values, near_values, edge_values, any_values, repeated, st.floats(0, 1).map(lambda v: [v] * 50))
contracts = st.one_of(
    st.just(Contract()),
    st.lists(st.integers(1, 9999), min_size=1, max_size=6, unique=True).map(
        lambda parts: Contract(
            tuple(
                Anchor(Decimal(part).scaleb(-4), Decimal(i + 1).scaleb(-1))
                for i, part in enumerate(sorted(parts, reverse=True))
            )
        )
    ),
)


def inclusive_label(count: np.ndarray, n: int) -> np.ndarray:
    """Filliben's label by its definition, written independently of the product."""
    label = (count - 0.3175) / (n + 0.365)
    label = np.where(count == n, 0.5 ** (1 / n), label)
    return np.where(count == 1, 1 - 0.5 ** (1 / n), label)


@settings(max_examples=examples(400), deadline=None)
@given(benign, contracts, st.sampled_from([11, 101, 1000, 10_000]))
@example([0.6, *[0.6000000000000012] * 5, 0.9, 0.3], Contract(), 1000)  # the knots that merge begin above the score
@example([0.75, 0.7500000000000013, *np.linspace(0.1, 0.95, 9).tolist()], Contract(), 1000)
def test_conservative_ties_never_promise_too_much(values: list[float], contract: Contract, knots: int) -> None:
    """No anchor flags more fit scores than its rank allows, and no score is promised rarer than it was seen."""
    scores = np.array(values)
    n = len(scores)
    calibrator = fit(scores, Calibration(knots=knots), contract)
    calibrated = calibrator.predict(scores)
    for anchor in contract.anchors:
        flagged = int(np.count_nonzero(calibrated >= float(anchor.score)))
        assert flagged <= Fraction(anchor.fpr) * (n + Fraction("0.365")) + Fraction("0.3175"), anchor
    probes = np.unique(np.concatenate([scores, np.nextafter(scores, 0), np.nextafter(scores, 1), [0, 0.5, 1]]))
    probes = probes[(probes >= 0) & (probes <= 1)]
    at_or_above = n - np.searchsorted(np.sort(scores), probes, side="left")
    seen = at_or_above > 0
    step = 10 ** (1 / ((knots - 1) // 10))
    promised = contract.fpr(calibrator.predict(probes[seen]))
    assert np.all(promised * step * (1 + 1e-9) >= inclusive_label(at_or_above[seen], n))


def assert_counts_agree(calibrator: Calibrator, scores: np.ndarray) -> None:
    calibrated = calibrator.predict(scores)
    for anchor in calibrator.contract.anchors:
        threshold = calibrator.thresholds[anchor.fpr]
        by_threshold = scores >= threshold if threshold is not None else np.zeros(len(scores), dtype=bool)
        assert np.array_equal(by_threshold, calibrated >= float(anchor.score)), anchor


@settings(max_examples=examples(200), deadline=None)
@given(benign, st.sampled_from(["average", "conservative"]), st.sampled_from([11, 1000, 10_000]))
def test_counting_by_threshold_is_counting_by_pipeline(values: list[float], ties: str, knots: int) -> None:
    """This holds at the floats next to every threshold and every knot too."""
    calibrator = fit(values, Calibration(ties=ties, knots=knots))
    near = np.array([t for t in calibrator.thresholds.values() if t is not None] + values)
    raw_knots = calibrator.knots[0] / 0.99
    probes = np.concatenate([near, raw_knots, np.nextafter(near, 0), np.nextafter(raw_knots, 0)])
    probes = np.concatenate([probes, np.nextafter(near, 1), np.nextafter(raw_knots, 1)])
    assert_counts_agree(calibrator, probes[(probes >= 0) & (probes <= 1)])


@pytest.mark.each_run(1)
@pytest.mark.parametrize("ties", ["average", "conservative"])
@pytest.mark.parametrize("decimals", [None, 3])
def test_counts_agree_on_millions_of_scores(ties: str, decimals: int | None) -> None:
    rng = np.random.default_rng(5)
    scores = rng.beta(0.4, 6, 2_000_000)
    scores = scores if decimals is None else np.round(scores, decimals)
    calibrator = fit(scores[:50_000], Calibration(ties=ties))
    near = np.array([t for t in calibrator.thresholds.values() if t is not None])
    steps = near.view(np.int64)[:, None] + np.arange(-1000, 1000)
    assert_counts_agree(calibrator, np.concatenate([scores, steps.ravel().view(np.float64)]))


def test_thresholds_in_a_domain_with_negative_scores() -> None:
    """Margins work like probabilities: the domain is a setting, the arithmetic the same."""
    scores = np.random.default_rng(8).normal(-2, 1, 20_000).clip(-8, 8)
    calibrator = fit(scores, Calibration(domain=(-8.0, 8.0)))
    assert_counts_agree(calibrator, np.concatenate([scores, np.linspace(-8, 8, 200_001), [-0.0, 0.0, 5e-324]]))
    assert calibrator.thresholds[Decimal("0.1")] == pytest.approx(np.quantile(scores, 0.9), abs=0.01)


def test_a_saturated_detector_cannot_reach_rates_it_cannot_resolve() -> None:
    """200 of 20,000 rows tied at the maximum: below 1 % no threshold exists, and none is invented."""
    scores = golden_scores(CASES["saturated_1pct"])
    thresholds = fit(scores).thresholds
    assert np.count_nonzero(scores >= thresholds[Decimal("0.01")]) == 200
    assert [thresholds[Decimal(fpr)] for fpr in ("0.001", "0.0001", "0.00001", "0.000001")] == [None] * 4


def test_output_stays_inside_the_contract_outside_the_domain() -> None:
    calibrator = fit(np.random.default_rng(1).uniform(size=1000))
    assert calibrator.predict([-5.0, 0.0, 1.0, 1.5, 1e300]).tolist() == pytest.approx(
        [calibrator.predict([0.0])[0]] * 2 + [calibrator.predict([1.0])[0]] * 3, abs=0
    )
    assert calibrator.predict([1e300])[0] <= 0.99


def test_float32_scores_are_promoted_first() -> None:
    scores = np.random.default_rng(2).beta(0.5, 8, 5000).astype(np.float32)
    one, other = fit(scores), fit(scores.astype(np.float64))
    assert np.array_equal(one.knots, other.knots)
    assert np.array_equal(one.predict(scores), other.predict(scores.astype(np.float64)))


def test_fitting_reads_sorted_scores_without_changing_them() -> None:
    scores = np.sort(np.array([0.1, 0.1 + 1e-17, 0.25, np.nextafter(0.25, 1), 0.9]))
    before = scores.copy()
    scores.setflags(write=False)
    fit_ordered(Sorted(scores))
    assert np.array_equal(scores, before)


def test_order_of_rows_does_not_matter() -> None:
    scores = np.round(np.random.default_rng(3).beta(0.5, 8, 3000), 3)
    assert fit(scores).artifact == fit(scores[::-1]).artifact


def test_near_ties_count_as_one_score() -> None:
    """Float noise inside an atom of a boosted-tree detector is not a difference between rows."""
    noise = np.arange(1000) * 1e-20
    clean = fit(np.repeat([0.1, 0.2, 0.7], 1000))
    noisy = fit(np.concatenate([0.1 + noise, 0.2 + noise, 0.7 + noise]))
    np.testing.assert_allclose(noisy.predict([0.1, 0.2, 0.3, 0.7, 0.9]), clean.predict([0.1, 0.2, 0.3, 0.7, 0.9]))


def test_many_scores_far_below_the_resolution_stay_affordable() -> None:
    """A wrong domain squeezes all scores into a few float steps; fitting still ends and still keeps its promise."""
    scores = np.random.default_rng(4).uniform(0, 1e-11, 200_000)
    calibrator = fit(scores)
    flagged = np.count_nonzero(calibrator.predict(scores) >= 0.1)
    assert flagged <= 0.1 * (200_000 + 0.365) + 0.3175


@pytest.mark.parametrize("n", [1_000, 100_000, 1_000_000])
def test_artifact_stays_small(n: int) -> None:
    assert len(fit(np.random.default_rng(n).beta(0.5, 8, n)).artifact) < 200_000


def test_the_artifact_needs_none_of_our_code() -> None:
    calibrator = fit(np.random.default_rng(6).beta(0.5, 8, 2000))
    artifact = calibrator.artifact
    assert b"gate" not in artifact
    loaded = joblib.load(io.BytesIO(artifact))
    assert [type(step).__name__ for step in loaded] == ["MinMaxScaler", "IsotonicRegression"]
    probes = np.linspace(0, 1, 1001).reshape(-1, 1)
    assert np.array_equal(loaded.predict(probes), calibrator.pipeline.predict(probes))


@settings(max_examples=examples(50), deadline=None)
@given(benign, contracts, st.sampled_from(["average", "conservative"]))
def test_json_reads_back_bit_equal(values: list[float], contract: Contract, ties: str) -> None:
    calibrator = fit(values, Calibration(ties=ties, knots=500), contract)
    again = from_json(calibrator.to_json())
    probes = np.concatenate([np.linspace(0, 1, 5001), values])
    assert np.array_equal(again.predict(probes), calibrator.predict(probes))
    assert (again.thresholds, again.facts, again.settings) == (
        calibrator.thresholds,
        calibrator.facts,
        calibrator.settings,
    )
    assert again.to_json() == calibrator.to_json()


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ([0.5], "at least 2 benign scores, got 1"),
        ([0.5, float("nan")], "must lie in the domain"),
        ([0.5, 1.5], "must lie in the domain [0, 1], got 0.5 to 1.5"),
        ([-0.5, 0.5], "set calibration.domain"),
    ],
)
def test_bad_scores_are_refused(scores: list[float], sentence: str) -> None:
    with pytest.raises(GateError) as caught:
        fit(scores)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"domain": [0, 1]}', "NaN"])
def test_a_broken_calibrator_file_is_refused(text: str) -> None:
    with pytest.raises(GateError, match=r"calibrator\.json: must be a calibrator written by gate"):
        from_json(text)


ODD: list[Any] = [
    "",
    "x",
    [],
    {},
    None,
    True,
    False,
    0,
    -1,
    0.5,
    10**400,
    [None],
    [[]],
    {"fpr": 0.1},
    "nan",
    [0.1, 0.2],
]


def test_any_value_replaced_by_an_odd_one_is_refused_or_usable() -> None:
    """Every calibrator that is accepted gives its thresholds and can be written again."""
    whole = json.loads(fit(np.linspace(0, 1, 50)).to_json())
    places = [(key,) for key in whole] + [
        (key, inner) for key in whole if isinstance(whole[key], dict) for inner in whole[key]
    ]
    places += [(key, 0) for key in whole if isinstance(whole[key], list)]
    taken = 0
    for *outer, last in places:
        for odd in ODD:
            document = copy.deepcopy(whole)
            inside = document[outer[0]] if outer else document
            inside[last] = odd
            try:
                calibrator = from_json(json.dumps(document))
            except GateError:
                continue
            taken += 1
            assert len(calibrator.predict([0.0, 0.5, 1.0])) == 3
            from_json(calibrator.to_json())
    assert 0 < taken < len(places) * len(ODD) / 2


def test_a_calibrator_is_shown_in_one_line_and_as_a_small_table() -> None:
    """A notebook shows the raw threshold of every anchor; neither form prints the knots."""
    calibrator = fit(np.random.default_rng(0).beta(0.5, 8, 500))
    assert repr(calibrator).startswith("Calibrator(fitted on 500 benign scores, 6 anchors, domain [0, 1]")
    assert len(repr(calibrator)) < 120
    page = calibrator._repr_html_()
    assert page.count("<tr>") == 1 + len(calibrator.thresholds)
    assert len(page) < 1500
