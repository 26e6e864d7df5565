"""`gate verify` as a command: what it prints of a release directory, and its exit codes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import commands
import pytest
from verified import make


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("made"))


@pytest.fixture
def release(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may tamper with."""
    shutil.copytree(made, tmp_path / "v1")
    return tmp_path / "v1"


def gate(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return commands.gate(*args, cwd=cwd)


def test_the_command_says_one_line_for_each_check(made: Path) -> None:
    data = ["--fit", "fit.parquet", "--holdout", "holdout.parquet"]
    result = gate("verify", "v1", "--policy", "policy.yaml", *data, cwd=made.parent)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    *lines, unbound, expired = result.stdout.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        ["holds", name]
        for name in ("manifest", "kind", "policy", "calibrator", "verdict", "reports", "fit", "holdout", "data")
    ]
    assert unbound.startswith("not bound: created, judged_on, release, ")
    assert expired == "expired: the waiver of fpr@0.1% expired on 2026-06-30, after the judgement of 2026-03-01"


def test_the_command_exits_1_where_something_does_not_hold(release: Path) -> None:
    (release / "a\n::error::b").write_bytes(b"x")
    result = gate("verify", "v1", cwd=release.parent)
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.splitlines()[0].startswith("does not hold: manifest: a\\u000a::error::b is added")


def test_the_command_exits_2_where_nothing_can_be_judged(release: Path) -> None:
    result = gate("verify", "nowhere", cwd=release.parent)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "gate: nowhere: must be a release directory, got No such file or directory\n"
