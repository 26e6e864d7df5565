"""`gate init` writes a policy that loads and is worth its name, and a workflow that runs; both or neither."""

from __future__ import annotations

import json
import os
import re
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from test_cli import CLEAN, contents, gate, log_lines

from gate import init, planning
from gate import policy as policies
from gate.errors import GateError
from gate.report import plan as plans

FILES = [str(init.WORKFLOW), str(init.POLICY)]


def every_line_is_commented(text: str) -> bool:
    """Every key has a comment on its line or, before it, on one of its own."""
    block = text.partition("\ntargets:")[2].partition("\ndata:")[0]
    return all("#" in line for line in block.splitlines() if line.strip())


# --- the policy ---------------------------------------------------------------------------------------------


def test_the_policy_is_the_default_one_where_nothing_is_given() -> None:
    document, default = init.policy(), policies.load_default()
    assert document.policy == default.policy.model_copy(update={"name": "release"})
    assert document.text.splitlines()[0].startswith("# What a release must show")
    assert "$schema" not in document.text
    assert document.text.endswith("\n")


@pytest.mark.parametrize("rule", ["proven", "observed", "not-refuted"])
@pytest.mark.parametrize("targets", ["10%", "1%,0.1%", "0.001, 1e-1", "0.0001%"])
def test_a_tailored_policy_lets_a_sound_release_pass_and_stops_a_bad_one(rule: str, targets: str) -> None:
    """At the rows that it asks for, by the plan's own measure."""
    document = init.policy(targets, rule)
    assert document.policy.rule == rule
    wanted = sorted((policies.rate(name) or Decimal(0) for name in targets.split(",")), reverse=True)
    assert [target.fpr for target in document.policy.targets] == wanted
    assert every_line_is_commented(document.text)
    for planned in planning.plan(document.policy).targets:
        assert planned.standing == "good"
        assert planned.liveness >= 0.95
        assert planned.target.required
    assert ("slips through" in document.text) == (rule == "proven")


@pytest.mark.parametrize("holdout_n", [3316, 20_000, 36_600, 140_000, 2_000_000])
def test_what_the_rows_on_hand_cannot_decide_does_not_block(holdout_n: int) -> None:
    """A required target is one that a sound release passes with these rows; the others are shown."""
    policy = init.policy(holdout_n=holdout_n).policy
    assert [target.fpr for target in policy.targets] == [
        target.fpr for target in policies.load_default().policy.targets
    ]
    planned = planning.plan(policy, holdout_n=holdout_n).targets
    assert any(target.target.required for target in planned)
    for target in planned:
        assert target.target.required == (target.target.min_n <= holdout_n) == (target.liveness >= 0.95)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"targets": "5%"}, "--targets: must be different anchors of the contract (10%, 1%, "),
        ({"targets": "1%,0.01"}, "got '0.01'"),
        ({"targets": "1%,"}, "got ''"),
        ({"targets": "x\n::error::y"}, "got 'x\\n::error::y'"),
        ({"holdout_n": 400}, "--holdout-n: must be at least 3,316 for any of these targets, got 400; hold out more"),
    ],
)
def test_a_policy_that_could_not_judge_is_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(GateError, match=re.escape(sentence)):
        init.policy(**given)  # type: ignore[arg-type]


# --- the workflow -------------------------------------------------------------------------------------------


def installed(tmp_path: Path, origin: object) -> dict[str, str]:
    """An environment in which gate's installation says that it came from there."""
    place = tmp_path / "packages" / "fpr_gate-1.2.3.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: fpr-gate\nVersion: 1.2.3\n")
    if origin is not None:
        (place / "direct_url.json").write_text(json.dumps(origin))
    root = Path(init.__file__).parent.parent
    return {"PYTHONPATH": os.pathsep.join([str(place.parent), str(root)])}


COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIT = {"vcs": "git", "commit_id": COMMIT, "requested_revision": "v1.2.3"}


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
    """With its commit, where pip took it from git; else the user is told to name the repository."""
    env, place = installed(tmp_path, origin), tmp_path / "repository"
    place.mkdir()
    result = gate("init", cwd=place, env=env)
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


@pytest.mark.parametrize(
    "action", ["acme", "acme/gate", "acme/gate@", "a/b@c d", "a/b@c\n      - run: x", "a/b@${{ x }}"]
)
def test_an_action_that_is_none_is_refused(action: str) -> None:
    with pytest.raises(GateError, match="--action: must be OWNER/REPO@REF, got "):
        init.workflow(action)


# --- the command --------------------------------------------------------------------------------------------


def test_it_writes_both_files_and_prints_the_plan(tmp_path: Path) -> None:
    result = gate("init", "--holdout-n", "140000", "--action", "acme/gate@v1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(contents(tmp_path)) == FILES
    document = policies.load(tmp_path / init.POLICY)
    assert result.stdout == plans.render(planning.plan(document.policy, None, 140_000), document.policy)
    assert log_lines(result) == [
        "wrote policies/release.yaml and .github/workflows/release-gate.yml",
        "next: name your score files there, commit both files, and push a tag such as v1.0.0",
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


@pytest.mark.parametrize("obstacle", [".github", ".github/workflows", str(init.WORKFLOW)])
def test_where_one_file_cannot_be_written_neither_is(tmp_path: Path, obstacle: str) -> None:
    """Also with --force, where what was there comes back; a file or a directory stands in the way."""
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


def test_the_clean_environment_has_no_paths_of_its_own() -> None:
    """The tests above put packages in front of gate's own, which only works where nothing else does."""
    assert "PYTHONPATH" not in CLEAN
