"""Every workflow and action, those that `gate init` writes included: GitHub's own parser and two linters are content.

GATE_WORKFLOW_PARSER names the dist directory of the npm package @actions/workflow-parser; `.ci/run` has it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from repository import ACTION_README, COMMIT, ROOT, blocks

from gate.starter import init

OWN = sorted([*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob(".github/actions/*/action.yml")])
PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """This repository's files, and those of one where `gate init` has been."""
    written = []
    for name, action in [("installed", f"acme/gate@{COMMIT}"), ("unknown", f"{init.UNKNOWN}@v1.2.3")]:
        path = tmp_path_factory.mktemp(name) / init.WORKFLOW
        path.parent.mkdir(parents=True)
        path.write_text(init.workflow(action))
        written.append(path)
    [shown] = blocks("yaml", "name: release\n", ACTION_README)
    path = tmp_path_factory.mktemp("readme") / ".github" / "workflows" / "release.yml"
    path.parent.mkdir(parents=True)
    path.write_text(shown.replace("OWNER/REPO", "acme/gate").replace("COMMIT", COMMIT))
    return [*OWN, *written, path]


def broken(directory: Path) -> list[Path]:
    """A workflow and an action that no checker may let pass."""
    workflow, action = directory / ".github" / "workflows" / "x.yml", directory / "action.yml"
    workflow.parent.mkdir(parents=True)
    step = "      - run: echo ${{ github.event.issue.title }}\n        shel: bash\n"
    workflow.write_text(f"on: issues\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n{step}")
    action.write_text("name: x\nruns:\n  using: composite\n  steps:\n    - run: echo ${{ inputs.x }}\n")
    return [workflow, action]


def result(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)


def test_githubs_parser_finds_nothing(files: list[Path], tmp_path: Path) -> None:
    dist, node = os.environ.get("GATE_WORKFLOW_PARSER"), shutil.which("node")
    if not dist or not node:
        pytest.skip("GATE_WORKFLOW_PARSER does not name the parser's dist directory, or node is missing")
    script = ROOT / "tests" / "workflow_parser.mjs"
    bad = broken(tmp_path)
    found = result(node, script, dist, *files, *bad)
    assert found.returncode == 0, found.stderr
    assert {line.partition(": ")[0] for line in found.stdout.splitlines()} == {str(path) for path in bad}, found.stdout


def test_zizmor_finds_nothing(files: list[Path], tmp_path: Path) -> None:
    """Without a network it judges the files alone, and all of `.github`, as in CI."""
    zizmor = [PROGRAMS / "zizmor", "--offline", "--no-progress", "--quiet"]
    found = result(*zizmor, ROOT / ".github", *(path for path in files if path not in OWN))
    assert (found.returncode, found.stderr) == (0, ""), found.stdout
    assert result(*zizmor, *broken(tmp_path)).returncode > 10


def test_the_published_schemas_fit(files: list[Path], tmp_path: Path) -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    for schema, name, bad in zip(
        ("vendor.github-workflows", "vendor.github-actions"), ("workflows", "actions"), broken(tmp_path), strict=True
    ):
        found = result(*check, schema, *(path for path in files if name in path.parts))
        assert found.returncode == 0, found.stdout
        assert result(*check, schema, bad).returncode == 1


# --- what no linter asks for --------------------------------------------------------------------------------


def steps(path: Path) -> list[dict[str, Any]]:
    content = yaml.safe_load(path.read_text())
    jobs = content["jobs"].values() if "jobs" in content else [content["runs"]]
    return [step for job in jobs for step in job.get("steps", [])]


def test_no_script_has_an_expression_in_it(files: list[Path]) -> None:
    scripts = [step["run"] for path in files for step in steps(path) if "run" in step]
    assert len(scripts) > 8
    assert [script for script in scripts if "${{" in script] == []


def test_every_action_is_pinned_to_one_commit_with_its_version_beside_it(files: list[Path]) -> None:
    """Every file has the same commit; this repository's own action is the one of the running commit."""
    pins: dict[str, set[str]] = {}
    for path in files:
        for uses in re.findall(r"^ +(?:- )?uses: (.+)$", path.read_text(), re.MULTILINE):
            if not uses.startswith(("./", "$/", "acme/gate/", init.UNKNOWN)):
                assert re.fullmatch(r"(actions|pypa)/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", uses), f"{path}: {uses}"
                pins.setdefault(uses.partition("@")[0], set()).add(uses)
    assert len(pins) >= 5
    assert {name: found for name, found in pins.items() if len(found) > 1} == {}


def test_no_job_has_more_permissions_than_it_names(files: list[Path]) -> None:
    for path in files:
        content = yaml.safe_load(path.read_text())
        if "jobs" in content:
            assert content["permissions"] == {}, path
            assert all("permissions" in job for job in content["jobs"].values()), path


# --- other hosts --------------------------------------------------------------------------------------------


def test_the_gitlab_file_of_the_readme_fits_its_published_schema(tmp_path: Path) -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci"]
    [shown] = blocks("yaml", "release-gate:\n", ACTION_README)
    path = tmp_path / ".gitlab-ci.yml"
    path.write_text(shown)
    assert result(*check, path).returncode == 0, result(*check, path).stdout
    path.write_text(shown.replace("    when: always", "    when: ever"))
    assert result(*check, path).returncode == 1
    warned = yaml.safe_load(shown) | {"x": {"script": "x", "allow_failure": {"exit_codes": [3]}}}
    path.write_text(yaml.safe_dump(warned))
    assert result(*check, path).returncode == 0


def test_the_jenkins_file_of_the_readme_is_whole() -> None:
    """Quotes and brackets close in order, and the parts of a declarative pipeline stand where they must."""
    [shown] = blocks("groovy", "pipeline {", ACTION_README)
    bare = re.sub(r"'''.*?'''|'[^'\n]*'|\"[^\"\n]*\"", "Q", shown, flags=re.DOTALL)
    assert not re.search(r"['\"]", bare)
    open_brackets: list[str] = []
    parents: list[list[str]] = []
    for token in re.findall(r"\w+(?=\s*(?:\(Q\)\s*)?\{)|[{}()\[\]]", bare):
        if token in "([{":
            open_brackets.append(token)
        elif token in ")]}":
            assert open_brackets.pop() + token in ("()", "[]", "{}")
        else:
            parents.append([token, str(len([b for b in open_brackets if b == "{"]))])
    assert open_brackets == []
    depths = {(name, int(depth)) for name, depth in parents}
    assert depths >= {("pipeline", 0), ("stages", 1), ("stage", 2), ("steps", 3), ("script", 4), ("post", 3)}
    assert depths >= {("always", 4), ("when", 3)}
