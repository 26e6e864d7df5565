"""The gate's own error rates: planned sizes against brute force, laws of counts against exact arithmetic."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import commands
import pytest

from gate import planning
from gate.checks import load_policy, parse_policy
from gate.planning import plan
from gate.planning.law import Law
from gate.policy import Policy

pytestmark = pytest.mark.figures


def policy_text(rule: str, *targets: tuple[object, object, object], min_n: int = 1, position: str = "filliben") -> str:
    """Targets are (rate, tolerance above, tolerance below), rates falling."""
    lines = ["version: 1", "name: test", f"rule: {rule}", f"calibration: {{plotting_position: {position}}}"]
    lines += ["contract:", *(f"  - {{fpr: {fpr}, score: 0.{i + 1}}}" for i, (fpr, _, _) in enumerate(targets))]
    lines += ["targets:"]
    lines += [
        f"  - {{fpr: {fpr}, min_n: {min_n}, max_relative_error: {{above: {above}, below: {below}}}}}"
        for fpr, above, below in targets
    ]
    return "\n".join(lines) + "\n"


def make(rule: str, *targets: tuple[object, object, object], min_n: int = 1, position: str = "filliben") -> Policy:
    return parse_policy(policy_text(rule, *targets, min_n=min_n, position=position), "test.yaml").policy


def law(rule: str, fpr: object, above: object, below: object, position: str = "filliben") -> Law:
    policy = make(rule, (fpr, above, below), position=position)
    return Law(policy, policy.targets[0])


# --- the command --------------------------------------------------------------------------------------------

CLEAN = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "SOURCE_DATE_EPOCH", "NO_COLOR")}


def gate(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return commands.gate(*args, cwd=cwd, env=CLEAN)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plan")
    text = policy_text("proven", ("0.01", "0.5", "0.5"), ("0.001", "0.25", "0.25"), min_n=5000)
    (directory / "policy.yaml").write_text(text)
    return directory


def test_the_table_shows_sizes_chances_and_warnings(place: Path) -> None:
    result = gate("plan", "--policy", "policy.yaml", cwd=place)
    assert (result.returncode, result.stderr) == (0, "")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["1", "%", "-50", "%", "to", "+50", "%", "9,700", "9,700", "1,600"] in rows
    assert ["0.1", "%", "-25", "%", "to", "+25", "%", "368,864", "368,864", "64,000"] in rows
    words = " ".join(result.stdout.split())
    assert "dead: fpr@0.1%: no release can pass with 5,000 rows to fit and 5,000 held out; 368,864" in words
    assert "weak: fpr@1%: a sound release passes only" in words


def test_json_agrees_with_the_planner(place: Path) -> None:
    result = gate("plan", "--policy", "policy.yaml", "--fit-n", "60000", "--holdout-n", "140000", "--json", cwd=place)
    document = json.loads(result.stdout)
    planned = plan(load_policy(place / "policy.yaml").policy, 60_000, 140_000)
    assert [target["check"] for target in document["targets"]] == ["fpr@1%", "fpr@0.1%"]
    for found, target in zip(document["targets"], planned.targets, strict=True):
        assert (found["fit_n"], found["holdout_n"], found["min_n"]) == (60_000, 140_000, 5000)
        assert found["holdout_needed"] == target.holdout_needed
        assert found["fit_needed"] == target.fit_needed
        assert found["paper_n"] == target.paper_n
        assert found["strength"] == target.strength
        assert found["sound"]["passes"][0] == target.liveness
        assert [bad["passes"] for bad in found["bad"]] == [bad.passes for bad in target.bad]
        assert found["warning"] == planning.describe_weakness(target, 0.95)


def test_the_power_asked_for_is_the_power_planned(place: Path) -> None:
    result = gate("plan", "--policy", "policy.yaml", "--power", "0.8", "--json", cwd=place)
    document = json.loads(result.stdout)
    assert document["power"] == 0.8
    tested = law("proven", "0.01", "0.5", "0.5")
    rows = document["targets"][0]["holdout_needed"]
    assert tested.liveness(rows - 1, rows - 1) < 0.8 <= tested.liveness(rows, rows)


@pytest.mark.parametrize(
    "args",
    [
        ["--fit-n", "1"],
        ["--fit-n", "many"],
        ["--holdout-n", "0"],
        ["--holdout-n", "1.5"],
        ["--holdout-n", "50%"],
        ["--holdout-n", "-5"],
        ["--fit-n", "10000000000000"],
        ["--power", "1"],
        ["--power", "0.2"],
        ["--power", "nan"],
        ["--policy", "nowhere.yaml"],
    ],
)
def test_bad_values_are_usage_errors(args: list[str], tmp_path: Path) -> None:
    """Each gives one line on stderr, exit code 2 and nothing on stdout."""
    result = gate("plan", *args, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("gate: ")


def test_the_default_policy_is_planned_without_any_option(tmp_path: Path) -> None:
    result = gate("plan", "--json", cwd=tmp_path)
    found = {target["check"]: target for target in json.loads(result.stdout)["targets"]}
    assert {check: target["strength"] for check, target in found.items() if check != "fpr@0.01%"} == {
        "fpr@10%": "good",
        "fpr@1%": "good",
        "fpr@0.1%": "good",
    }
