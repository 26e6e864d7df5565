"""`gate init` writes a policy that loads and is worth its name, and a workflow that runs; both or neither."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from repository import COMMIT, GIT, installed
from small import contents, gate, log_lines

from gate import planning
from gate.checks import load_policy
from gate.report import plan as plans
from gate.starter import init

FILES = [str(init.WORKFLOW), str(init.POLICY)]


# --- the workflow -------------------------------------------------------------------------------------------


@pytest.mark.each_run(2)
@pytest.mark.parametrize(
    ("origin", "action"),
    [
        (
            {"url": "https://github.com/acme/gate.git", "vcs_info": GIT},
            f"acme/gate@{COMMIT}",
        ),
        (
            {"url": "ssh://git@github.com/acme/gate", "vcs_info": GIT},
            f"acme/gate@{COMMIT}",
        ),
        ({"url": "https://gitlab.com/acme/gate", "vcs_info": GIT}, "OWNER/REPO@v1.2.3"),
        ({"url": "https://github.com/a/b\n@x", "vcs_info": GIT}, "OWNER/REPO@v1.2.3"),
        ({"url": "file:///home/me/gate", "dir_info": {}}, "OWNER/REPO@v1.2.3"),
        (None, "OWNER/REPO@v1.2.3"),
    ],
    ids=["https", "ssh", "another host", "odd name", "directory", "index"],
)
def test_the_workflow_uses_the_action_that_gate_was_installed_from(tmp_path: Path, origin: object, action: str) -> None:
    """It names the commit if pip took gate from git; otherwise it tells the user to name the repository."""
    packages, place = installed(tmp_path, origin), tmp_path / "repository"
    place.mkdir()
    result = gate("init", cwd=place, before=f"import sys\nsys.path.insert(0, {str(packages)!r})")
    assert result.returncode == 0, result.stderr
    workflow = yaml.safe_load((place / init.WORKFLOW).read_text())
    assert workflow["jobs"]["gate"]["steps"][1]["uses"] == action.replace("@", "/.github/actions/release-gate@")
    assert any("OWNER/REPO" in line for line in log_lines(result)) == action.startswith("OWNER")


def test_the_workflow_deploys_only_what_passed_and_was_judged() -> None:
    workflow = yaml.safe_load(init.workflow("acme/gate@v1"))
    deploy = workflow["jobs"]["deploy"]
    assert (deploy["needs"], deploy["environment"], deploy["permissions"]) == ("gate", "production", {})
    given = workflow["jobs"]["gate"]["steps"][1]["with"]
    assert given["policy"] == str(init.POLICY)
    assert "fail-on" not in given
    assert any("sha256sum --check --strict" in step.get("run", "") for step in deploy["steps"])


# --- the command --------------------------------------------------------------------------------------------


def test_it_writes_both_files_and_prints_the_plan(tmp_path: Path) -> None:
    result = gate("init", "--holdout-n", "140000", "--action", "acme/gate@v1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(contents(tmp_path)) == FILES
    document = load_policy(tmp_path / init.POLICY)
    assert result.stdout == plans.render(planning.plan(document.policy, None, 140_000), document.policy)
    assert log_lines(result) == [
        "wrote policies/release.yaml and .github/workflows/release-gate.yml",
        "next: name your score files there, or let `gate init --scores FILE... --force` do it",
        "next: before any tag, try it here: gate run --release try --fit FILE --holdout FILE --dry-run",
        "next: commit both files, and push a tag such as v1.0.0",
    ]


@pytest.mark.parametrize("name", FILES)
def test_it_never_overwrites_without_force(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("mine")
    before = contents(tmp_path)
    refused = gate("init", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert log_lines(refused) == [f"{name}: must not exist yet; --force to replace it"]
    assert contents(tmp_path) == before
    assert gate("init", "--force", cwd=tmp_path).returncode == 0
    assert sorted(contents(tmp_path)) == FILES
    assert (tmp_path / name).read_text() != "mine"


@pytest.mark.each_run(1)
@pytest.mark.parametrize("obstacle", [".github", ".github/workflows", str(init.WORKFLOW)])
def test_where_one_file_cannot_be_written_neither_is(tmp_path: Path, obstacle: str) -> None:
    """With --force too, what was there comes back; a file or a directory is in the way."""
    place = tmp_path / obstacle
    place.parent.mkdir(parents=True, exist_ok=True)
    if obstacle == str(init.WORKFLOW):
        place.mkdir()
        (place / "kept").write_text("x")
    else:
        place.write_text("in the way")
    for prepared in (False, True):
        if prepared:
            (tmp_path / "policies").mkdir()
            (tmp_path / init.POLICY).write_text("mine")
        before, directories = contents(tmp_path), sorted(path for path in tmp_path.rglob("*") if path.is_dir())
        result = gate("init", "--force", cwd=tmp_path)
        assert (result.returncode, result.stdout) == (2, ""), result.stderr
        assert len(log_lines(result)) == 1
        assert contents(tmp_path) == before
        assert sorted(path for path in tmp_path.rglob("*") if path.is_dir()) == directories
