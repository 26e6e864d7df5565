"""Daily checks find a drift as soon as `gate plan --rows-per-check` says, and alarm at sound months no oftener."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.watching import Watched, prepare
from calls import call
from scipy.stats import binom, nbinom
from watched import policy_text

CHANCE = 3e-5  # the chance that a test of true chances fails: four deviations


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return prepare(tmp_path_factory.mktemp("watching"))


def test_the_plan_is_what_the_command_prints(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(policy_text("10%", "0.25", 500))
    rows = ("--rows-per-check", str(watched.rows))
    watch = json.loads(call("plan", "--policy", str(tmp_path / "policy.yaml"), *rows, "--json").stdout)["watch"]
    (target,) = watch["targets"]
    assert [alarm["fails"] for alarm in target["drifted"]] == [alarm.fails for alarm in watched.planned.drifted]
    assert target["sound"]["fails"] == watched.planned.sound.fails


@pytest.mark.each_run(2)
@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_drift_is_found_as_soon_as_planned(watched: Watched, which: int, calibrated: bool) -> None:
    """On raw and on served scores, the days until the first failure are those of the planned chance."""
    alarm = watched.planned.drifted[which]
    waited = watched.days_until_found(which, float(alarm.multiple), 12, calibrated)
    low, high = nbinom.ppf([CHANCE, 1 - CHANCE], len(waited), alarm.fails) + len(waited)
    assert low <= sum(waited) <= high


@pytest.mark.each_run(0)
@pytest.mark.parametrize("calibrated", [False, True])
def test_sound_months_alarm_no_oftener_than_planned(watched: Watched, calibrated: bool) -> None:
    """Two months of a sound release: it fails as rarely, and passes as often, as the plan says of each check."""
    found, sound = watched.outcomes(7 + calibrated, 1.0, 60, calibrated), watched.planned.sound
    assert found.count("fail") <= binom.ppf(1 - CHANCE, len(found), sound.fails)
    low, high = binom.ppf([CHANCE, 1 - CHANCE], len(found), sound.not_passes)
    assert low <= len(found) - found.count("pass") <= high


def test_rows_of_one_day_do_not_hide_in_those_of_other_days(watched: Watched) -> None:
    """A check judges its own rows: after months of sound days a drift is found no later than on the first day."""
    before = watched.outcomes(20, 1.0, 5)
    assert before.count("fail") == 0
    assert watched.outcomes(21, 5.0, 1) == ["fail"]
    assert watched.planned.drifted[2].fails > 1 - CHANCE
