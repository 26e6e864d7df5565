"""Each rival's wrapper on a case with a known answer; what the comparison prints, and what the README took from it.

Rivals that are not installed are skipped: `tests/benchmarks/peers.py` names the command.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from benchmarks import peers
from benchmarks.peers import RATES, RIVALS, Fitted, Floats, Rival, Sample
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import read_tables
from scipy.special import expit
from scipy.stats import binom, expon, norm

TESTS = Path(__file__).parents[1]
GOLDEN = json.loads((TESTS / "golden" / "statistics.json").read_text())
BY_NAME = {rival.name: rival for rival in RIVALS}
NAMES = list(BY_NAME)


def fit(name: str, sample: Sample) -> Fitted:
    rival = BY_NAME[name]
    if rival.version is None:
        pytest.skip(f"{rival.package} is not installed, or too old: {peers.INSTALL}")
    return rival.fit(sample)


def sample_of(scores: Floats, malicious: Floats | None = None, second: Floats | None = None) -> Sample:
    attacks = np.linspace(0.5, 1, 50) if malicious is None else malicious
    return Sample(np.column_stack([scores, scores if second is None else second]), np.column_stack([attacks, attacks]))


def some_sample(seed: int, n: int, tied: bool = False) -> Sample:
    rng = np.random.default_rng(seed)
    benign, malicious = expit(rng.normal(-4, 1.3, (n, 2))), expit(rng.normal(1, 1.3, (max(20, n // 50), 2)))
    return Sample(*(np.round(scores, 3) if tied else scores for scores in (benign, malicious)))


# --- each rival, where the answer is known ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gate (conservative ties)", "gate (average ties)", "fprcal"])
def test_the_contract_stands_at_the_ranks_that_carry_its_rates(name: str) -> None:
    """Evenly spaced scores: the threshold of rate p has p (n + 0.365) + 0.3175 of them at or above it."""
    n = 50_000
    fitted = fit(name, sample_of(np.arange(1, n + 1) / (n + 1)))
    found = n + 1 - peers.find_thresholds(fitted, fitted.levels) * (n + 1)
    assert found == pytest.approx(RATES * (n + 0.365) + 0.3175, rel=1e-3, abs=0.05)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(50, 5000), tied=st.booleans())
def test_average_ties_are_those_of_the_papers_package(seed: int, n: int, tied: bool) -> None:
    sample = some_sample(seed, n, tied)
    ours, theirs = fit("gate (average ties)", sample), fit("fprcal", sample)
    rows = np.random.default_rng(seed).random(500)
    assert ours.values(rows) == pytest.approx(theirs.values(rows), abs=1e-9)


def test_the_raw_threshold_has_the_rate_on_the_fit_rows() -> None:
    scores = np.random.default_rng(1).permutation(np.arange(20_000) / 20_000)
    fitted = fit("raw threshold kept", sample_of(scores))
    assert [np.count_nonzero(scores >= level) for level in fitted.levels] == [2000, 200, 20, 2]


def test_platt_scaling_finds_the_logistic_law() -> None:
    """The labels are drawn with probability expit(8 s - 5)."""
    rng = np.random.default_rng(2)
    scores = rng.random(200_000)
    positive = rng.random(200_000) < expit(8 * scores - 5)
    fitted = fit("Platt scaling", sample_of(scores[~positive], scores[positive]))
    rows = np.linspace(0, 1, 21)
    assert fitted.values(rows) == pytest.approx(expit(8 * rows - 5), abs=0.01)


def test_isotonic_calibration_pools_adjacent_violators() -> None:
    """Labels 0 1 0 1 1 0 1 along the scores: the blocks are 0, 1/2 1/2, 2/3 2/3 2/3, 1."""
    scores, labels = np.arange(1, 8) / 10, np.array([0, 1, 0, 1, 1, 0, 1])
    many = np.repeat(scores, 20), np.repeat(labels, 20)  # its default of five folds needs rows of both kinds
    fitted = fit("isotonic calibration", sample_of(many[0][many[1] == 0], many[0][many[1] == 1]))
    assert fitted.values(scores) == pytest.approx([0, 1 / 2, 1 / 2, 2 / 3, 2 / 3, 2 / 3, 1], abs=1e-9)


def test_beta_calibration_leaves_probabilities_as_they_are() -> None:
    rng = np.random.default_rng(3)
    scores = rng.random(200_000)
    positive = rng.random(200_000) < scores
    fitted = fit("beta calibration", sample_of(scores[~positive], scores[positive]))
    rows = np.linspace(0.02, 0.98, 21)
    assert fitted.values(rows) == pytest.approx(rows, abs=0.01)


def test_unification_is_exact_for_normal_scores() -> None:
    """1 - value is the probability of a score as far from the mean, on either side."""
    scores = norm.ppf((np.arange(100_000) + 0.5) / 100_000, 0.5, 0.1)
    fitted = fit("Kriegel's unification (PyOD)", sample_of(scores))
    z = np.array([0.5, 1.0, 2.0, 3.0])
    assert 1 - fitted.values(0.5 + 0.1 * z) == pytest.approx(2 * norm.sf(z), rel=1e-2)
    assert peers.find_thresholds(fitted, fitted.levels) == pytest.approx(0.5 + 0.1 * norm.isf(RATES / 2), abs=1e-3)


def test_merlion_gives_back_the_absolute_normal_at_its_knots() -> None:
    scores = norm.isf((1 - (np.arange(100_000) + 0.5) / 100_000) / 2) / 10
    fitted = fit("Merlion's score calibration", sample_of(scores))
    z = np.array([0.5, 1.0, 1.5, 2.0])
    assert fitted.values(z / 10) == pytest.approx(z, abs=1e-3)
    assert fitted.values(scores[-1:]) == pytest.approx(math.sqrt(2 * math.log(100_000)))


@pytest.mark.parametrize("case", GOLDEN["np_umbrella"], ids=lambda c: str(c["n"]))
def test_the_umbrella_flags_above_the_golden_rank(case: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """The golden rank is the last one whose inclusive threshold is safe: exactly so many fit rows are flagged."""
    monkeypatch.setattr(peers, "RATES", np.array([case["fpr"]]))
    monkeypatch.setattr(peers, "DELTA", case["delta"])
    n = int(case["n"])
    scores = np.arange(1, n + 1) / (n + 1)
    (level,) = fit("Neyman-Pearson umbrella", sample_of(scores)).levels
    assert np.count_nonzero(scores >= level) == case["rank_from_top"] - 1


def test_the_umbrella_flags_nothing_with_too_few_rows() -> None:
    """n >= ln delta / ln(1 - p): 29,956 rows for 0.01 %."""
    few, enough = (fit("Neyman-Pearson umbrella", sample_of(np.arange(n) / n)).levels[-1] for n in (29_955, 29_956))
    assert few == math.inf
    assert enough < 1


@pytest.mark.parametrize(
    ("name", "alone"), [("Learn-then-Test (MAPIE, Holm)", False), ("Learn-then-Test (MAPIE, fixed sequence)", True)]
)
def test_learn_then_test_takes_the_lowest_candidate_that_it_proves(name: str, alone: bool) -> None:
    """Holm: the first of 100 tests at delta / 100, the next at delta / 99; in a fixed sequence each at delta."""
    n = 20_000
    scores = np.arange(1, n + 1) / (n + 1)
    fitted = fit(name, sample_of(scores))
    ranks = np.unique(np.geomspace(1, n / 2, 100).astype(int))
    for rate, level in zip(RATES, fitted.levels, strict=True):
        p_values = binom.cdf(ranks, n, rate)  # exact for a risk of 0 and 1
        allowed = peers.DELTA / (1 if alone else len(ranks) - np.arange(len(ranks)))
        expected = int(np.argmin(np.append(p_values <= allowed, False)))
        if expected == 0:
            assert level == math.inf
        else:
            assert np.count_nonzero(scores >= level) == ranks[expected - 1]


def test_conformal_p_values_count_the_fit_rows_at_or_above() -> None:
    fitted = fit("conformal p-values (crepes)", sample_of(np.array([0.1, 0.2, 0.2, 0.4])))
    assert -fitted.values(np.array([0.05, 0.1, 0.2, 0.3, 0.5])) == pytest.approx(np.array([5, 5, 4, 2, 1]) / 5)


def test_cell_averaging_is_exact_for_exponential_scores() -> None:
    rows = expon.rvs(size=(400_000, 2), random_state=4)
    fitted = fit("cell-averaging CFAR", sample_of(rows[:, 0]))
    flagged = np.count_nonzero(fitted.values(rows)[:, None] >= fitted.levels, axis=0)
    spread = 5 * np.sqrt(len(rows) * RATES)  # rows share their neighbours
    assert np.all(np.abs(flagged - len(rows) * RATES) <= spread)


def test_a_cell_does_not_see_itself_nor_its_guards() -> None:
    """One row that stands out is divided by the mean of the others, however large it is."""
    rows = np.full((200, 2), 0.01)
    rows[100] = 1.0
    values = fit("cell-averaging CFAR", sample_of(rows[:, 0])).values(rows)
    assert values[100] == pytest.approx(100)
    assert values[[98, 99, 101, 102]] == pytest.approx(1)


def test_spot_finds_the_quantiles_of_exponential_scores() -> None:
    """A generalised Pareto tail of shape 0: -log p, a sixteenth of it so that all lie below 1."""
    scores = expon.ppf((np.arange(200_000) + 0.5) / 200_000) / 16
    shuffled = np.random.default_rng(5).permutation(scores)
    fitted = fit("SPOT (libspot)", sample_of(shuffled))
    assert np.exp(-16 * fitted.levels) / RATES == pytest.approx(1, abs=0.05)


def test_combined_p_values_of_one_detector_twice_are_its_own() -> None:
    """Brown's correction: twice the same statistic has scale 2 and two degrees of freedom."""
    n = 100_000
    scores = np.arange(1, n + 1) / (n + 1)
    fitted = fit("Dadalto's combined p-values", sample_of(scores))
    rows = 1 - np.array([0.5, 0.1, 0.01, 0.001])
    assert -fitted.values(np.column_stack([rows, rows])) == pytest.approx(1 - rows, rel=0.02)


def test_combined_p_values_of_two_independent_detectors_are_fishers() -> None:
    """p1 p2 (1 - log(p1 p2)), the survival of a chi-squared with four degrees of freedom."""
    rng = np.random.default_rng(6)
    fitted = fit("Dadalto's combined p-values", sample_of(rng.random(200_000), second=rng.random(200_000)))
    p = np.array([[0.5, 0.5], [0.1, 0.01], [0.001, 0.3]])
    product = p.prod(axis=1)
    assert -fitted.values(1 - p) == pytest.approx(product * (1 - np.log(product)), rel=0.1)


# --- measuring ----------------------------------------------------------------------------------------------


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(200, 3000), tied=st.booleans())
@pytest.mark.parametrize("name", [rival.name for rival in RIVALS if not rival.whole])
def test_counting_by_threshold_is_counting_row_by_row(name: str, seed: int, n: int, tied: bool) -> None:
    sample = some_sample(seed, n, tied)
    fitted = fit(name, sample)
    fresh = some_sample(seed + 1, 500, tied).benign
    release = peers.Release(sample, fresh)
    expected = np.count_nonzero(fitted.values(fresh[:, 0])[:, None] >= fitted.levels, axis=0) / (len(fresh) * RATES)
    found = peers.measure_ratio(BY_NAME[name], fitted, fitted.levels, release, np.sort(fresh[:, 0]))
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_probability_that_falls_with_the_score_is_counted_row_by_row() -> None:
    falling = Fitted(lambda scores: 1 - scores, np.array([0.75, 0.5, 0.5, 0.25]), 0)
    fresh = np.column_stack([np.arange(100) / 100] * 2)
    release = peers.Release(sample_of(fresh[:, 0]), fresh)
    found = peers.measure_ratio(RIVALS[0], falling, falling.levels, release, fresh[:, 0])
    assert found * RATES == pytest.approx([0.26, 0.51, 0.51, 0.76])


def test_users_keep_a_score_and_look_up_a_threshold_again() -> None:
    """A retraining that halves every score: a kept threshold flags nothing, one found again what it should."""

    def draw(seed: int) -> list[peers.Release]:
        scores = (np.arange(20_000) + seed) / 20_010
        return [peers.Release(sample_of(scores / by), np.column_stack([scores, scores]) / by) for by in (1, 2)]

    setting = peers.Setting(draw, {"halved": (0, 1)})
    kept = BY_NAME["raw threshold kept"]
    again = Rival("found again", kept.fit, "", "", "", keeps=False)
    found = peers.measure([kept, again], setting, 3)["halved"]
    for outcome in found.values():
        assert outcome.first == pytest.approx(np.ones((3, 4)))
    assert found[kept.name].retrained == pytest.approx(np.zeros((3, 4)))
    assert found[again.name].retrained == pytest.approx(np.ones((3, 4)))


@pytest.mark.parametrize(
    ("means", "words"),
    [
        ([1.0, 1.1, 0.9, 1.5], "yes"),
        ([1.0, 0.9, 0.7, 0.2], "not above; 0.20 x at 0.01 %"),
        ([1.0, 0.1, 22.0, 157.0], "no: 157 x at 0.01 %"),
        ([1.0, 1.0, 1.51, 1.0], "no: 1.51 x at 0.1 %"),
        ([0.0, 1.0, 1.0, 1.0], "not above; 0 x at 10 %"),
        ([1.0, 0.0001, 1.0, 1.0], "not above; <0.01 x at 1 %"),
    ],
)
def test_what_holds_is_said_in_words(means: list[float], words: str) -> None:
    assert peers.hold(np.array([means, means])) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0004, "<0.01"),
        (0.0151, "0.02"),
        (0.999, "1.00"),
        (9.998, "10.0"),
        (157.4, "157"),
        (12345, "12,300"),
    ],
)
def test_numbers_have_three_digits_at_most(value: float, text: str) -> None:
    assert peers.number(value) == text


def test_every_rival_of_the_issue_is_there_and_says_what_it_needs() -> None:
    assert len(NAMES) == len(set(NAMES)) == 16
    assert all(rival.needs and rival.better and rival.lacks for rival in RIVALS)
    assert set(peers.README_RIVALS) <= set(NAMES)
    assert len(peers.README_RIVALS) <= 10


def test_packages_are_pinned_and_none_is_needed_by_gate() -> None:
    pins = dict(
        re.findall(
            r"^([\w-]+)==(\S+)$",
            "".join((TESTS / "benchmarks" / f"peers-{kind}.txt").read_text() for kind in ("requirements", "no-deps")),
            re.MULTILINE,
        )
    )
    wanted = {rival.package for rival in RIVALS if rival.package} - {"fpr-gate", "scikit-learn"}
    assert set(pins) == wanted
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]
    needed = f"{project['dependencies']} {project['optional-dependencies']}"
    assert [package for package in pins if package in needed] == []


# --- what is printed ----------------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TESTS / "benchmarks" / "peers.py"), *arguments]
    return subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)


def test_it_runs_to_the_end_on_a_plain_machine_and_on_files(tmp_path: Path) -> None:
    """It needs no package but gate's: two simulated settings with small samples, and a file with two score columns."""
    rng = np.random.default_rng(8)
    labels = (rng.random(4000) < 0.05).astype(int)
    columns = {name: expit(rng.normal(-3 + 4 * labels, 1.2)) for name in ("old", "new")}
    pa.parquet.write_table(pa.table({"id": np.arange(4000), "label": labels, **columns}), tmp_path / "scores.parquet")
    result = run(str(tmp_path / "scores.parquet"), "--fits", "1", "--rows", "1500", "--fresh", "1500")
    assert result.returncode == 0, result.stderr
    tables = read_tables(result.stdout)
    assert len(tables) == 2 * 4 + 2
    installed = [rival.name for rival in RIVALS if rival.version is not None]
    for rows in tables[:-2]:
        assert [row[0] for row in rows[1:]] == installed
        assert all(re.fullmatch(r"[<\d.,]+ \([<\d.,]+–[<\d.,]+\)", cell) for row in rows[1:] for cell in row[1:5])
    costs = {row[0]: row[1] for row in tables[-2][1:]}
    assert list(costs) == [*NAMES, *peers.UNMEASURED]
    for rival in RIVALS:
        assert costs[rival.name] == (rival.version or f"not installed: {rival.package}")
    assert (peers.INSTALL in result.stdout) == (len(installed) < len(RIVALS))
    assert "scores: old, retrained as new" in result.stdout
    assert "scores: new, retrained as old" in result.stdout
    check_readme_table(tables[-1], [name for name in peers.README_RIVALS if name in installed])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "must be a .parquet or .csv file, got none"),
        ({"score": [0.5]}, "must have the column 'label', got ['score']"),
        ({"label": [0, 1], "a": [0.5, 0.5]}, "got 1, 1 and 1; add scores or rows"),
        ({"label": [0] * 2000, "a": [0.5] * 2000, "b": [0.1] * 2000}, "got 2, 2,000 and 0; add scores or rows"),
        ({"label": [0, 1] * 2000, "a": [1.5] * 4000, "b": [0.1] * 4000}, "got 1, 2,000 and 2,000"),
    ],
)
def test_a_file_that_will_not_do_is_refused_in_words(
    columns: dict[str, list[float]] | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "scores.parquet"
    if columns is not None:
        pa.parquet.write_table(pa.table(columns), path)
    with pytest.raises(ValueError, match=re.escape(f"{path}: ")) as refusal:
        peers.read_setting(path, "label")
    assert message in str(refusal.value)


# --- the README ---------------------------------------------------------------------------------------------


def check_readme_table(rows: list[list[str]], names: list[str]) -> None:
    assert rows[0] == peers.README_HEADER
    assert [row[0] for row in rows[1:]] == names
    for row in rows[1:]:
        assert all(re.fullmatch(r"[<\d.,]+", cell) for cell in row[1:4])
        assert re.match(r"yes$|not above; |no: ", row[4])
        assert row[6:] == [BY_NAME[row[0]].better, BY_NAME[row[0]].lacks]


def readme_table() -> list[list[str]]:
    section = (TESTS.parent / "README.md").read_text().partition("## How it compares")[2]
    return read_tables(section.partition("\n## ")[0])[0]


def test_the_readme_shows_six_rows_of_the_scripts_table() -> None:
    check_readme_table(readme_table(), list(peers.README_RIVALS))


def test_the_whole_output_stands_in_the_tests_readme() -> None:
    """The README has every rival as measured, and the same words for what each needs and lacks."""
    tables = [rows for rows in read_tables((TESTS / "README.md").read_text()) if rows[0][0] == "rival"]
    *rates, costs = tables
    assert len(rates) >= 4
    for rows in rates:
        assert [row[0] for row in rows[1:]] == NAMES
    assert [row[0] for row in costs[1:]] == [*NAMES, *peers.UNMEASURED]
    for row, rival in zip(costs[1:], RIVALS, strict=False):
        assert row[5:] == [rival.needs, rival.better, rival.lacks]
    shown = {row[0]: row for row in readme_table()[1:]}
    for row in rates[1][1:]:
        if row[0] in shown:
            assert [cell.partition(" ")[0] for cell in row[3:5]] == shown[row[0]][1:3]
            assert row[5] == shown[row[0]][4]


@pytest.mark.numbers
def test_the_numbers_of_the_readme_are_the_scripts() -> None:
    """The whole run, with every rival at its pinned version: rates and sizes are within a tenth of those shown."""
    missing = [rival.package for rival in RIVALS if rival.version is None]
    if missing:
        pytest.skip(f"{', '.join(map(str, missing))}: not installed: {peers.INSTALL}")
    printed = read_tables(run().stdout)[-1]
    for row, shown in zip(printed[1:], readme_table()[1:], strict=True):
        found, claimed = ([float(re.sub(r"[<,]", "", cell)) for cell in cells[1:4]] for cells in (row, shown))
        assert found == pytest.approx(claimed, rel=0.1, abs=0.1), row[0]
        assert row[5] == shown[5], row[0]
