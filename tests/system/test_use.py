"""First use: the policy and its files found by themselves, the list of false positives, and what the options take."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from small import POLICY, contents, gate, log_lines, write_inputs

FILES = "data: {fit: fit.npy, holdout: [pass.npy]}\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A repository whose policy names its files."""
    write_inputs(tmp_path)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "release.yaml").write_text(POLICY + FILES)
    return tmp_path


# --- the policy and its files -------------------------------------------------------------------------------


def test_the_release_alone_is_the_whole_command(here: Path) -> None:
    """The first line says which policy and files; the record has no word of where they were named."""
    result = gate("run", "--release", "v2", cwd=here)
    assert result.returncode == 0, result.stderr
    assert log_lines(result)[0] == (
        "policy policies/release.yaml (found here); fit fit.npy (from the policy); holdout pass.npy (from the policy)"
    )
    record = json.loads((here / "releases" / "v2" / "verdict.json").read_text())
    assert {"fit", "holdout", "malicious"} & {*record["data"]} == set()
    assert gate("verify", "releases/v2", "--policy", "policies/release.yaml", cwd=here).returncode == 0


def test_the_command_line_wins_over_the_policy(here: Path) -> None:
    result = gate("run", "--release", "v2", "--holdout", "fail.npy", "--dry-run", cwd=here)
    assert result.returncode == 1, result.stderr
    assert log_lines(result)[0].endswith("fit fit.npy (from the policy); holdout fail.npy")
    split = gate("run", "--release", "v2", "--benign", "pass.npy", "--split", "50%", "--dry-run", cwd=here)
    assert split.returncode in (0, 1, 3), split.stderr
    assert log_lines(split)[0] == "policy policies/release.yaml (found here); benign pass.npy"
    built_in = gate("run", "--release", "v2", "--policy", "built-in", cwd=here)
    assert built_in.returncode == 2
    assert "give either --fit and --holdout (or name them in the policy" in built_in.stderr


def test_a_check_never_takes_the_files_of_the_policy(here: Path) -> None:
    assert gate("run", "--release", "v2", cwd=here).returncode == 0
    refused = gate("check", "releases/v2", cwd=here)
    assert (refused.returncode, "Missing option '--holdout'" in refused.stderr) == (2, True)


@pytest.mark.parametrize("value", ["''", "[]", "7", "[a.npy, '']", "'-'", "{a: b}"])
def test_a_file_that_is_no_name_is_refused_with_its_line(here: Path, value: str) -> None:
    (here / "policies" / "release.yaml").write_text(POLICY + f"data: {{fit: {value}}}\n")
    result = gate("run", "--release", "v2", cwd=here)
    assert result.returncode == 2
    assert "data.fit: must be the name of a file, directory, pattern or URI, or a list of those" in result.stderr


# --- options ------------------------------------------------------------------------------------------------


def test_a_dry_run_does_not_mind_an_existing_directory(here: Path) -> None:
    (here / "releases" / "v2").mkdir(parents=True)
    (here / "releases" / "v2" / "mine").write_text("x")
    assert gate("run", "--release", "v2", cwd=here).returncode == 2
    assert gate("run", "--release", "v2", "--dry-run", cwd=here).returncode == 0
    assert list(contents(here / "releases" / "v2")) == ["mine"]


def test_a_domain_on_the_command_line_is_part_of_the_recorded_policy(here: Path) -> None:
    """Therefore the release verifies, with the same option if the policy is pinned."""
    for name in ("fit", "pass"):
        np.save(here / f"{name}.npy", 200 * np.load(here / f"{name}.npy") - 100)
    assert gate("run", "--release", "v2", cwd=here).returncode == 2
    result = gate("run", "--release", "v2", "--set", "calibration.domain=[-100,1e2]", cwd=here)
    assert result.returncode == 0, result.stderr
    assert gate("verify", "releases/v2", cwd=here).returncode == 0
    pinned = ["verify", "releases/v2", "--policy", "policies/release.yaml"]
    assert gate(*pinned, cwd=here).returncode == 1
    assert gate(*pinned, "--set", "calibration.domain=[-100,1e2]", cwd=here).returncode == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--split", "150%"], "must be a share of the rows above 0 and below 1, such as 50% or 0.3, got '150%'"),
        (["--split", "0"], "such as 50% or 0.3, got '0'"),
        (["--split", "nan"], "got 'nan'"),
        (["--set", "calibration.domain=1"], "--set calibration.domain=1: calibration.domain: must be a list, got 1"),
        (["--set", "calibration.domain=[1,0]"], "must be [lowest, highest] with lowest below highest, got [1, 0]"),
        (["--seed", "0.5"], "must be a whole number from 0 on, got '0.5'"),
        (["--flagged", "x.txt"], "--flagged: must end in .csv or .parquet"),
        (["--flagged", "releases/v2/x.csv"], "--flagged: must lie outside the release directory"),
        (["--flagged", "a/../releases/v2/x/y.csv", "--dry-run"], "--flagged: must lie outside the release directory"),
        (["--ledger", "./releases/v2/ledger.jsonl"], "--ledger: must lie outside the release directory"),
    ],
)
def test_a_value_that_is_none_says_what_to_write(here: Path, options: list[str], sentence: str) -> None:
    result = gate("run", "--release", "v2", *options, cwd=here)
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert not (here / "releases").exists()


@pytest.mark.parametrize(
    ("ending", "begins"), [("html", "<!doctype html>"), ("md", "#"), ("xml", "<?xml"), ("json", "{")]
)
def test_the_ending_says_the_format(here: Path, ending: str, begins: str) -> None:
    assert gate("run", "--release", "v2", cwd=here).returncode == 0
    result = gate("report", "releases/v2", "-o", f"x.{ending}", cwd=here)
    assert result.returncode == 0, result.stderr
    assert (here / f"x.{ending}").read_text().lower().startswith(begins)
    refused = gate("report", "releases/v2", "-o", "x.pdf", cwd=here)
    assert refused.returncode == 2
    assert "must end in one of .txt, .md, .html, .xml, .json, or --format must be given" in refused.stderr


def test_help_is_in_the_order_of_use_and_whole(here: Path) -> None:
    """This holds at any width; every option of every command says what it is."""
    for width in ("40", "80", "200"):
        text = gate("--help", cwd=here, env={"COLUMNS": width}).stdout
        listed = text.partition("Commands:")[2].partition("Exit codes")[0]
        assert "..." not in listed
        names = [line.split()[0] for line in listed.splitlines() if line[:2] == "  " and line[2:3].strip()]
        assert names[:4] == ["run", "check", "plan", "report"]
    for name in names:
        assert "Overrides" not in gate(name, "--help", cwd=here).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(here: Path, shell: str) -> None:
    result = gate(cwd=here, env={"_GATE_COMPLETE": f"{shell}_source"})
    assert (result.returncode, "_GATE_COMPLETE" in result.stdout) == (0, True), result.stderr
    words = {"_GATE_COMPLETE": "bash_complete", "COMP_WORDS": "gate ru", "COMP_CWORD": "1"}
    assert "run" in gate(cwd=here, env=words).stdout


@pytest.mark.parametrize("asked", ["bash_source", "bash_complete", "zsh_source", "fish_complete", "x"])
def test_no_variable_turns_a_command_into_a_completion(here: Path, asked: str) -> None:
    """Exit code 0 ships, and a shell that asks for completions gives no arguments."""
    env = {"_GATE_COMPLETE": asked, "COMP_WORDS": "gate ru", "COMP_CWORD": "1"}
    result = gate("run", "--release", "v2", "--fit", "none.npy", "--holdout", "none.npy", cwd=here, env=env)
    assert result.returncode == 2
    assert "none.npy: must exist" in result.stderr


# --- the false positives ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["run", "dry run"])
def test_the_false_positives_are_listed_as_they_are_counted(here: Path, dry: list[str]) -> None:
    result = gate("run", "--release", "v2", "--flagged", "flagged.csv", "--json", *dry, cwd=here)
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader((here / "flagged.csv").read_text().splitlines()))
    counts = {
        entry["rate"]["target"]: entry["rate"]["tally"]["flagged"]
        for entry in json.loads(result.stdout)["findings"]
        if entry["check"].startswith("fpr@") and entry["rate"] is not None
    }
    assert counts
    for fpr, count in counts.items():
        assert sum(float(row["anchor"]) <= fpr for row in rows) == count
    assert f"flagged: {len(rows):,} benign rows in flagged.csv; set data.id to find the rows again" in log_lines(result)
    if not dry:
        checked = gate("check", "releases/v2", "--holdout", "fail.npy", "--flagged", "again.parquet", cwd=here)
        assert checked.returncode == 1, checked.stderr
        assert (here / "again.parquet").read_bytes()[:4] == b"PAR1"
