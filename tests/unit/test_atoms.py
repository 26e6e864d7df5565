"""Tied scores by the calibrator's model: what can be flagged near a target, and when more rows decide."""

from __future__ import annotations

import os
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.calibration.fit import Attainable, attainable, fit
from gate.calibration.positions import Filliben
from gate.checks import floor, granularity
from gate.contract import Anchor, Contract
from gate.policy import Calibration
from gate.rows.ordered import Sorted, sort
from gate.statistics.atoms import attainability, is_unattainable, rows_to_reach, rows_to_settle
from gate.statistics.binomial import Band, lower_tail

RATES = (Decimal("0.1"), Decimal("0.01"), Decimal("0.001"))
CONTRACT = Contract(tuple(Anchor(rate, Decimal(f"0.{2 * i + 3}")) for i, rate in enumerate(RATES)))
BAND = {rate: Band.around(Fraction(rate), Fraction(1, 2), Fraction(1, 2), Fraction(1, 20)) for rate in RATES}


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(20, 3000), st.sampled_from([0, 1, 2, 3, 12]))
def test_what_an_anchor_flags_is_what_it_can(seed: int, n: int, decimals: int) -> None:
    """Between the two counts no threshold falls, and the calibrator takes the lower one or, beyond all scores, none."""
    scores = np.round(np.random.default_rng(seed).beta(0.4, 3, n), decimals)
    calibrator = fit(scores, Calibration(knots=500), CONTRACT)
    for anchor, found in zip(CONTRACT.anchors, attainable(Sorted(sort(scores)), calibrator), strict=True):
        inclusive = {0, *(int(np.sum(scores >= score)) for score in np.unique(scores))}
        assert found.below in inclusive
        assert found.through in inclusive
        assert not any(found.below < count < found.through for count in inclusive)
        flagged = int(np.sum(calibrator.predict(scores) >= float(anchor.score)))
        assert flagged <= found.below <= Fraction(anchor.fpr) * (n + Fraction("0.365")) + Fraction("0.3175")


def test_scores_that_a_float_cannot_tell_apart_are_one() -> None:
    """Sigmoids of logits around -60 differ, but by less than the calibrator can tell; the logits themselves do not."""
    logits = np.random.default_rng(1).normal(-60, 3, 5000)
    merged = attainable(
        Sorted(sort(1 / (1 + np.exp(-logits)))), fit(1 / (1 + np.exp(-logits)), Calibration(), CONTRACT)
    )
    assert all(found.below < 10 and found.through > 4000 for found in merged)
    domain = Calibration(domain=(-100.0, 100.0))
    apart = attainable(Sorted(sort(logits)), fit(logits, domain, CONTRACT))
    assert [(found.below, found.through) for found in apart] == [(500, 501), (50, 51), (5, 6)]


@pytest.mark.parametrize(("share", "expected"), [(0.98, (0.0, 0.02)), (3.0, (0.99, 1.0))])
def test_noise_is_not_called_impossibility(share: float, expected: tuple[float, float]) -> None:
    """An atom of 0.98 times 1 % above which nothing lies can be flagged: of 400 fits hardly one calls it impossible.

    By the point estimate 36 % would. One of three times 1 % cannot be, and nearly all say so.
    """
    rate, n = Decimal("0.01"), 20_000
    rng = np.random.default_rng(round(100 * share))
    called = []
    for through in rng.binomial(n, share * float(rate), 400):
        allowed = Fraction(rate) * (n + Fraction("0.365")) + Fraction("0.3175")
        below, above = (0, int(through)) if through > allowed else (int(through), int(through) + 300)
        called.append(is_unattainable(below, above, n, Fraction(rate), BAND[rate]))
    assert expected[0] <= np.mean(called) <= expected[1]


def test_only_excess_makes_every_rate_attainable() -> None:
    band = Band.around(Fraction(1, 100), Fraction(1, 2), Fraction(1), Fraction(1, 20))
    assert not is_unattainable(0, 5000, 10_000, Fraction(1, 100), band)


# --- remedies, followed to the letter -----------------------------------------------------------------------


def stand(found: Attainable, n: int, rate: Decimal) -> str:
    return attainability(found.below, found.through, found.apart, n, Fraction(rate), BAND[rate])


def boosted(rng: np.random.Generator, trees: int, rows: int) -> np.ndarray:
    """The sigmoids of so many trees of four leaves each: few of them make few scores."""
    leaves = np.random.default_rng(trees).normal(size=(trees, 4))
    return 1 / (1 + np.exp(-leaves[np.arange(trees), rng.integers(0, 4, (rows, trees))].sum(axis=1)))


def test_logits_help_where_it_is_said_that_they_do() -> None:
    """Sigmoids of logits around -60 have become one score; the logits, with a domain, let every target be flagged."""
    logits = np.random.default_rng(1).normal(-60, 3, 20_000)
    scores = np.sort(1 / (1 + np.exp(-logits)))
    for rate, found in zip(RATES, attainable(Sorted(sort(scores)), fit(scores, Calibration(), CONTRACT)), strict=True):
        assert stand(found, len(scores), rate) == "resolution"
        said = granularity.describe_ties(
            "resolution",
            rate,
            (found.below, found.through, found.apart),
            len(scores),
            above=Fraction(1, 2),
            domain=(0, 1),
        )
        assert said.remedy == "give logits in the place of probabilities, with their range as calibration.domain"
        assert "differ by less than a float can hold after rescaling" in said.message
    apart = fit(logits, Calibration(domain=(-100.0, 100.0)), CONTRACT)
    for rate, found in zip(RATES, attainable(Sorted(sort(logits)), apart), strict=True):
        assert stand(found, len(logits), rate) == "fine"


@pytest.mark.parametrize("trees", [2, 3, 4, 12])
def test_of_a_boosted_detector_more_rows_help_or_it_is_said_that_none_do(trees: int) -> None:
    """Four times as many rows leave unattainable what was called so, and fine what was."""
    rng = np.random.default_rng(trees)
    few, many = (np.sort(boosted(rng, trees, rows)) for rows in (20_000, 80_000))
    pairs = [attainable(Sorted(sort(scores)), fit(scores, Calibration(knots=500), CONTRACT)) for scores in (few, many)]
    stands = [
        [stand(found, len(scores), rate) for found, rate in zip(part, RATES, strict=True)]
        for part, scores in zip(pairs, (few, many), strict=True)
    ]
    for before, after in zip(*stands, strict=True):
        assert before in ("borderline", after)
    assert ("unattainable" in stands[0]) == (trees < 12)


DATA = Path(os.environ.get("GATE_DATA", Path(__file__).parents[3] / "shared" / "data"))
PAPER = tuple(Decimal(rate) for rate in ("0.1", "0.01", "0.001", "0.0001"))


@pytest.mark.skipif(not DATA.is_dir(), reason="the real scores are not at hand")
@pytest.mark.parametrize("column", ["logistic", "boosted"])
@pytest.mark.parametrize("name", ["kdd_http", "kdd_smtp"])
def test_on_real_scores_the_remedy_works_or_none_would(name: str, column: str) -> None:
    """A tenth of the rows is judged; what all of them show is what was said: never, or told by so many rows."""
    table = pyarrow.parquet.read_table(DATA / f"{name}.parquet")
    scores = np.asarray(table[column])[np.asarray(table["label"]) == 0]
    rng = np.random.default_rng(4)

    def look(rows: int) -> dict[Decimal, tuple[str, Attainable]]:
        some = np.sort(rng.permutation(scores)[:rows])
        calibrator = fit(some, Calibration(knots=2000))
        found = dict(
            zip([a.fpr for a in calibrator.contract.anchors], attainable(Sorted(sort(some)), calibrator), strict=True)
        )
        return {rate: (stand_within(found[rate], rows, rate), found[rate]) for rate in PAPER}

    few, n = len(scores) // 10, len(scores)
    later = look(n)
    for rate, (said, found) in look(few).items():
        assert said != "unattainable" or later[rate][0] == "unattainable"
        if said == "borderline":
            band = Band.around(Fraction(rate), Fraction(1, 2), Fraction(1, 2), Fraction(1, 20))
            needed = rows_to_reach(found.through, few, Fraction(rate), Filliben().rank)
            needed = needed or rows_to_settle(found.below, found.through, few, Fraction(rate), band)
            assert needed is not None
            assert needed > n or later[rate][0] in ("fine", "unattainable")


def stand_within(found: Attainable, n: int, rate: Decimal) -> str:
    half = Fraction(1, 2)
    band = Band.around(Fraction(rate), half, half, Fraction(1, 20))
    return attainability(found.below, found.through, found.apart, n, Fraction(rate), band)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(2000, 50_000), st.floats(0.6, 0.99), st.integers(0, 2**32 - 1))
def test_as_many_rows_as_are_advised_reach_a_tied_score(n: int, share: float, seed: int) -> None:
    """A score of that rate is within what the calibrator may flag 95 % of the time, and with fewer rows less often."""
    rate = Fraction(1, 100)
    through = int(share * n / 100)
    rows = rows_to_reach(through, n, rate, Filliben().rank)
    assert rows is not None
    allowed = [int(Filliben().rank(rate, size)) for size in (rows, max(rows // 2, 1))]
    assert lower_tail(allowed[0], rows, through / n) >= 0.95
    drawn = np.random.default_rng(seed).binomial(rows, through / n, 400)
    assert np.mean(drawn <= allowed[0]) >= 0.95 - 4 * (0.05 * 0.95 / 400) ** 0.5
    assert rows == n or lower_tail(allowed[1], max(rows // 2, 1), through / n) < 0.97
    assert rows_to_reach(n // 50, n, rate, Filliben().rank) is None, "a score above the target is never within it"


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(100, 100_000), st.integers(0, 3), st.floats(0.05, 1))
def test_as_many_rows_as_are_advised_settle_what_lies_above_a_tied_score(n: int, below: int, worth: float) -> None:
    """At the observed rate and worth in groups, so many rows prove that it is too little; one row fewer does not."""
    band, fpr = BAND[Decimal("0.001")], Fraction(1, 1000)

    def proves(through: int, rows: int) -> bool:
        return is_unattainable(below / n * rows * worth, through / n * rows * worth, rows * worth, fpr, band)

    far, near = n // 2 + below + 2, n // 500 + below + 2  # above the target for sure, and perhaps by chance
    found = [rows_to_settle(below, through, n, fpr, band, n * worth) for through in (far, near)]
    if below >= n * band.low:
        assert found == [None, None]
        return
    assert found[0] is not None
    assert found[1] is not None
    assert found[1] >= found[0]
    for through, rows in zip((far, near), found, strict=True):
        assert rows is not None
        assert proves(through, rows)
        assert rows == n or not proves(through, rows - 1)
    if worth == 1:
        assert rows_to_settle(below, near, n, fpr, band) == found[1]


def test_the_floor_of_a_tied_sample_is_not_its_size() -> None:
    """The top 80 of 54,375 rows are tied: these hide 0.1 %, not a lack of rows."""
    rng = np.random.default_rng(3)
    scores = np.sort(np.append(rng.beta(1, 20, 54_295), np.full(80, 1.0)))
    calibrator = fit(scores, Calibration(), CONTRACT)
    rate, n = Decimal("0.001"), len(scores)
    found = attainable(Sorted(sort(scores)), calibrator)[2]
    assert (found.below, found.through, found.saturated) == (0, 80, True)
    assert stand(found, n, rate) == "unattainable"
    tie = granularity.describe_ties(
        "unattainable", rate, (0, 80, 0), n, above=Fraction(1, 2), domain=(0, 1), saturated=found.saturated
    )
    said = floor.describe_support(rate, n, 80, calibrator.facts.lowest_label, 693, tie)
    assert said.message.startswith(
        "80 of 54,375 fit rows share the highest score, so that they show no rate below 0.14"
    )
    assert said.remedy is not None
    assert said.remedy.startswith("more rows cannot help: give the detector finer scores (logits")
    small = floor.describe_support(rate, 400, 1, 0.002, 693, None)
    assert small.remedy == "fit on at least 693 benign rows"
