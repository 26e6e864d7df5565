"""The README's five minutes and its other hosts: a repository with two score files goes green, then red."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import commands
import pytest
import runner
import yaml
from repository import ACTION, ACTION_README, COMMIT, GIT, ROOT, blocks, installed
from small import CLEAN, RELEASE_FILES

from gate.rows.engine import here
from gate.starter import init
from gate.starter.demo import simulate

pytestmark = pytest.mark.figures
README = ROOT / "README.md"
PERSON = {"NAME": "me", "EMAIL": "me@example.org"}


def shell(script: str, cwd: Path, env: dict[str, str]) -> int:
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=cwd, env=env, timeout=300).returncode


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make what a runner checks out for the tag that the README's commands have pushed."""
    place = tmp_path_factory.mktemp("quickstart")
    repository, remote, env = place / "repository", place / "remote", dict(CLEAN)
    env |= {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in PERSON.items()}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    assert shell(f"git init --quiet --bare {remote} && git init --quiet {repository}", place, env) == 0
    assert shell(f"git remote add origin {remote}", repository, env) == 0
    (repository / "scores").mkdir()
    for name, scores in simulate():
        folder = place if "drift" in name else repository / "scores"
        (folder / f"{name}.parquet").write_bytes(here().parquet({"score": scores}))
    origin = {"url": "https://github.com/acme/gate", "vcs_info": GIT}  # what pip notes of the README's first line
    install(repository / ".venv", f"import sys\nsys.path.insert(0, {str(installed(place, origin))!r})")
    [block] = blocks("sh", 'python3 -m venv .venv && .venv/bin/pip install --quiet "git+https')
    first, rest = block.split("\n", 1)
    assert re.fullmatch(r'[^"]* "git\+https://github\.com/OWNER/REPO@v[\d.]+"', first)
    assert shell(rest, repository, env) == 0
    checkout = place / "checkout"
    assert shell(f"git clone --quiet --branch v1.0.0 {remote} {checkout}", place, env) == 0
    return checkout


def test_the_readme_installs_this_version() -> None:
    named = re.findall(r"OWNER/REPO@v([\d.]+)", README.read_text() + ACTION_README.read_text())
    assert len(named) == 4
    assert set(named) == {version("fpr-gate")}


def install(venv: Path, before: str = "") -> None:
    """gate where a virtual environment would have it, with code that is run before the command."""
    script = venv / "bin" / "gate"
    script.parent.mkdir(parents=True)
    commands.write_program(venv / "bin" / "python", "-I", "-m", "gate")
    commands.write_program(script, before=before)


def test_five_minutes_end_in_green_and_in_red(checkout: Path, tmp_path: Path) -> None:
    """The written workflow gates the tag; the deploy job takes the calibrator that was judged, and no other."""
    drifted, checkout = checkout.parent / "benign-drifted.parquet", shutil.copytree(checkout, tmp_path / "checkout")
    workflow = yaml.safe_load((checkout / init.WORKFLOW).read_text())
    gate, deploy = workflow["jobs"]["gate"], workflow["jobs"]["deploy"]
    step = gate["steps"][1]
    assert step["uses"] == f"acme/gate/.github/actions/release-gate@{COMMIT}"
    given = {name: runner.fill(value, {"github.ref_name": "v1.0.0"}) for name, value in step["with"].items()}
    install(tmp_path / "venv")
    done = {"python": {}, "install": {"place": str(tmp_path)}}
    job = runner.run_action(ACTION, given, checkout, CLEAN, done)
    assert (job.failed, job.outputs["outcome"]) == (False, "pass"), job.log
    assert runner.commands(job.log) == []
    assert sorted(job.uploads["release-gate"]) == RELEASE_FILES
    assert runner.wanted(deploy["if"], {"github.ref_type": "tag"}, job.failed)

    [compare] = [step for step in deploy["steps"] if "sha256sum" in step.get("run", "")]
    values = {"needs.gate.outputs.calibrator-sha256": job.outputs["calibrator-sha256"]}
    (tmp_path / "release-of-run" / "release").mkdir(parents=True)
    for name, content in job.uploads["release-gate"].items():
        (tmp_path / "release-of-run" / "release" / name).write_bytes(content)
    assert runner.run(compare, values, tmp_path / "release-of-run", CLEAN).code == 0
    (tmp_path / "release-of-run" / "release" / "calibrator.joblib").write_bytes(b"another")
    assert runner.run(compare, values, tmp_path / "release-of-run", CLEAN).code != 0

    (tmp_path / "release").rename(tmp_path / "green")
    given |= {"holdout": str(drifted), "out": "red"}
    job = runner.run_action(ACTION, given, checkout, CLEAN, done)
    assert (job.failed, job.codes["Verdict"], job.outputs["outcome"]) == (True, 1, "fail")
    errors = runner.commands(job.log)
    policy = (checkout / init.POLICY).read_text().splitlines()
    assert {error.properties["file"] for error in errors} == {str(init.POLICY)}
    assert ["- fpr: " in policy[int(error.properties["line"]) - 1] for error in errors] == [True] * 4
    assert not runner.wanted(deploy["if"], {"github.ref_type": "tag"}, job.failed)


def test_the_gitlab_job_runs_and_leaves_its_report(checkout: Path, tmp_path: Path) -> None:
    [block] = blocks("yaml", "release-gate:\n", ACTION_README)
    job = yaml.safe_load(block)["release-gate"]
    place = tmp_path / "build"
    shutil.copytree(checkout, place)
    install(tmp_path / "venv")
    env = {**CLEAN, "CI_COMMIT_TAG": "v1.0.0", "PATH": f"{tmp_path}/venv/bin:{CLEAN['PATH']}"}
    assert shell("\n".join(job["script"]), place, env) == 0
    assert (place / job["artifacts"]["reports"]["junit"]).is_file()
    assert sorted(path.name for path in (place / job["artifacts"]["paths"][0]).iterdir()) == RELEASE_FILES


def test_the_jenkins_script_gives_the_exit_code_that_it_branches_on(checkout: Path, tmp_path: Path) -> None:
    """A second build in the same workspace does not show the first one's report."""
    [block] = blocks("groovy", "pipeline {", ACTION_README)
    [script] = re.findall(r"'''\n(.*?)'''", block, re.DOTALL)
    assert set(re.findall(r"code [!=]= (\d)", block)) == {"0", "3"}
    place = tmp_path / "build"
    shutil.copytree(checkout, place)
    install(place / ".gate")
    env = {**CLEAN, "TAG_NAME": "v1.0.0"}
    assert shell(script, place, env) == 0
    assert (place / "release" / "junit.xml").is_file()
    (place / "scores" / "benign-holdout.parquet").unlink()
    assert shell(script, place, env) == 2
    assert not (place / "release").exists()
