"""The gate on other hosts: the action's README shows files that fit the published schemas and scripts that work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from repository import ACTION_README
from small import CLEAN, POLICY, RELEASE_FILES

DOCUMENT = ACTION_README.read_text(encoding="utf-8")


def shown(heading: str) -> str:
    """The one file below a heading."""
    section = re.search(rf"^### {heading}\n(.*?)(?=^##|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert section, heading
    (block,) = re.findall(r"^```\w+\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL)
    return block


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a repository with a policy and two score files, and gate where the scripts install it."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "release.yaml").write_text(POLICY)
    (tmp_path / "scores").mkdir()
    write_scores(tmp_path, "fit", 0)
    write_scores(tmp_path, "holdout", 0)
    (tmp_path / ".gate" / "bin").mkdir(parents=True)
    commands.write_program(tmp_path / ".gate" / "bin" / "gate")
    return tmp_path


def write_scores(directory: Path, name: str, shift: float, rows: int = 20_000) -> None:
    rng = np.random.default_rng(len(name))
    rows_of = pa.table({"score": 1 / (1 + np.exp(-rng.normal(-5 + shift, 1.4, rows)))})
    pa.parquet.write_table(rows_of, directory / "scores" / f"benign-{name}.parquet")


@pytest.mark.parametrize(
    ("heading", "schema"), [("GitLab", "vendor.gitlab-ci"), ("Azure Pipelines", "vendor.azure-pipelines")]
)
def test_the_files_fit_the_published_schemas(tmp_path: Path, heading: str, schema: str) -> None:
    """A misspelt key does not fit."""
    path = tmp_path / "pipeline.yml"
    transform = ["--data-transform", "azure-pipelines", "--regex-variant", "nonunicode"] if "azure" in schema else []
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *transform, str(path)]
    misspelt = re.sub(r"^( +(?:- )?)script:", r"\1skript:", shown(heading), flags=re.MULTILINE)
    for text, code in ((shown(heading), 0), (misspelt, 1)):
        path.write_text(text)
        done = subprocess.run(check, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout


def test_the_azure_script_gates_the_tag(checkout: Path) -> None:
    jobs = yaml.safe_load(shown("Azure Pipelines"))["jobs"]
    steps = {step.get("displayName") or step.get("task") or "publish": step for step in jobs[0]["steps"]}
    script = steps["Gate the release"]["script"]
    assert "$(" not in script + "".join(str(step.get("script")) for step in steps.values())  # a macro is pasted as text
    environment = {**CLEAN, "BUILD_SOURCEBRANCHNAME": 'v1"; exit 0; "'}
    run = ["bash", "-euo", "pipefail", "-c", script]
    assert subprocess.run(run, cwd=checkout, env=environment, timeout=300).returncode == 0
    assert sorted(os.listdir(checkout / steps["publish"]["publish"])) == RELEASE_FILES
    assert (checkout / steps["PublishTestResults@2"]["inputs"]["testResultsFiles"]).is_file()
    assert [steps[name]["condition"] for name in ("PublishTestResults@2", "publish")] == ["always()"] * 2
    assert jobs[1]["dependsOn"] == jobs[0]["job"]
    assert jobs[1]["condition"].startswith("and(succeeded(), ")


def test_cron_says_nothing_while_the_contract_holds(checkout: Path) -> None:
    """On the first day on which the contract fails or cannot be judged, it prints one line and the verdict."""
    (checkout / "watch.sh").write_text(shown("cron"))
    (checkout / "watch.sh").chmod(0o755)
    environment = {**CLEAN, "PATH": f"{checkout / '.gate' / 'bin'}:{CLEAN['PATH']}"}
    fitted = ("--fit", "scores/benign-fit.parquet", "--holdout", "scores/benign-holdout.parquet")
    run = ["gate", "run", "--policy", "policies/release.yaml", "--release", "v1", *fitted]
    assert subprocess.run(run, cwd=checkout, env=environment, capture_output=True, timeout=300).returncode == 0
    day = datetime.now(UTC).date().isoformat()
    found = []
    for shift, rows in ((0, 20_000), (1, 20_000), (0, 300), (0, 0)):
        if rows:
            write_scores(checkout, day, shift, rows)
        else:
            (checkout / "scores" / f"benign-{day}.parquet").unlink()
        watch = ["./watch.sh", "releases/v1"]
        done = subprocess.run(watch, cwd=checkout, env=environment, capture_output=True, text=True, timeout=300)
        assert done.stderr == ""
        found.append((done.returncode, done.stdout.partition("\n")[0]))
        for written in (checkout / "releases/v1").glob("checks/20*"):  # the next check may come within the same second
            written.rename(written.with_name(str(len(found))))
    assert found == [
        (0, ""),
        (1, f"{day}: the contract of releases/v1 no longer holds"),
        (3, f"{day}: too few rows to say whether the contract of releases/v1 holds"),
        (2, f"{day}: no judgement on releases/v1 was possible (exit code 2)"),
    ]
    assert sorted(os.listdir(checkout / "releases/v1/checks")) == ["1", "2", "3"]
    history = subprocess.run(
        ["gate", "history", "releases"], cwd=checkout, env=environment, capture_output=True, text=True, timeout=300
    )
    assert (history.returncode, history.stderr) == (0, "")
    assert "1 release and 3 checks of " in history.stdout
