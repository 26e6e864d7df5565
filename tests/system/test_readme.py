"""The README shows what the commands print today, and names only what exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import commands
import joblib
import numpy as np
import pytest

pytestmark = pytest.mark.figures
ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def run(command: str, cwd: Path, last: int) -> subprocess.CompletedProcess[str]:
    """Run one line of a console block; `echo $?` shows the code of the line before, as in a shell."""
    if command == "echo $?":
        return subprocess.CompletedProcess(command, 0, f"{last}\n", "")
    arguments = shlex.split(command)
    assert arguments[0] == "gate", "the README shows gate commands only"
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "GITHUB_ACTIONS")}
    environment["SOURCE_DATE_EPOCH"] = "1772323200"  # what is printed holds on any day
    return commands.gate(*arguments[1:], cwd=cwd, env=environment)


def test_console_blocks_are_what_the_commands_print(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """All blocks of both documents run in order in one directory; `--update-golden` writes them anew."""
    last = 0

    def replay(match: re.Match[str]) -> str:
        nonlocal last
        lines = []
        for command in re.findall(r"^\$ (.*)$", match[1], re.MULTILINE):
            result = run(command, tmp_path, last)
            assert "Traceback" not in result.stderr
            last = result.returncode
            lines.append(f"$ {command}\n{result.stdout}")
        return "```console\n" + "".join(lines) + "```"

    written = {path: path.read_text() for path in (README, ROOT / "gate" / "README.md")}
    shown = {path: BLOCK.sub(replay, text) for path, text in written.items()}
    if request.config.getoption("--update-golden"):
        for path, text in shown.items():
            path.write_text(text)
    assert shown == written


DATA = Path(os.environ.get("GATE_DATA", ROOT.parent / "shared" / "data"))


def section(heading: str) -> str:
    return README.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.skipif(not (DATA / "kdd_http.parquet").is_file(), reason="needs the scores of both detectors")
def test_the_worked_example_prints_what_is_shown(tmp_path: Path) -> None:
    """Both commands run as they stand; the first writes the policy shown, and the second prints what is shown."""
    shown = section("Several detectors")
    (tmp_path / "kdd_http.parquet").symlink_to(DATA / "kdd_http.parquet")
    [script] = re.findall(r"```sh\n(.*?)```", shown, re.DOTALL)
    results = [run(line, tmp_path, 0) for line in script.splitlines()]
    assert [result.returncode for result in results] == [0, 0], results[-1].stderr
    [text] = re.findall(r"```text\n(.*?)```", shown, re.DOTALL)
    assert results[-1].stdout == text
    [entry] = re.findall(r"```yaml\n(.*?)```", shown, re.DOTALL)
    assert entry in (tmp_path / "policies" / "release.yaml").read_text()


def test_the_ranges_of_the_plan_are_those_of_the_folders_readme() -> None:
    """The folder's README replays the whole plan."""
    [table] = re.findall(r"```text\n(.*?)```", section("Every threshold, not only six"), re.DOTALL)
    assert table in (ROOT / "gate" / "README.md").read_text()


def test_the_figure_of_the_range_is_that_of_the_demo(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The words are the same; matplotlib decides how lines are written, and that may change."""
    from gate.record import read_record
    from gate.report.corridor import CorridorDisplay, range_findings, title_of
    from gate.report.figures import to_standalone_svg

    run("gate demo", tmp_path, 0)
    record = read_record(tmp_path / "gate-demo" / "releases" / "demo")
    [finding] = range_findings(record)
    display = CorridorDisplay.from_finding(record, finding)
    drawn = to_standalone_svg(display, "range", title_of(finding), finding.message)
    path = ROOT / ".github" / "every-threshold.svg"
    if request.config.getoption("--update-golden"):
        path.write_text(drawn, encoding="utf-8")
    texts = [re.findall(r"<(?:text|title|desc)[^>]*>([^<]*)<", svg) for svg in (path.read_text(), drawn)]
    assert texts[0] == texts[1]
    assert len(texts[0]) >= 15


def test_the_snippets_of_python_run_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippets that serve a calibrator run on that of the demo."""
    run("gate demo", tmp_path, 0)
    monkeypatch.chdir(tmp_path / "gate-demo" / "releases" / "demo")
    snippets = re.findall(r"```python\n(.*?)```", section("Reading a verdict"), re.DOTALL)
    assert len(snippets) == 2
    found = []
    for snippet in snippets:
        names = {"joblib": joblib, "json": json, "np": np, "Path": Path, "scores": [0.01, 0.2, 0.5, 0.9]}
        exec(compile(snippet, "README", "exec"), names)
        found.append(np.ravel(names["calibrated"]))
    one, other = found
    assert np.array_equal(one, other)
    assert names["blocked"].tolist() == [False, False, True, True]


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 250


def test_the_policy_in_the_readme_is_a_policy() -> None:
    from gate.checks import parse_policy

    blocks = re.findall(r"```yaml\n(version.*?)```", README.read_text(), re.DOTALL)
    assert [parse_policy(block, "README.md").policy.name for block in blocks] == ["production"]


def test_the_promises_name_tests_that_exist() -> None:
    text = (ROOT / "tests" / "README.md").read_text().partition("## What is promised")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)[2:]
    assert len(rows) >= 15
    named = set(re.findall(r"`(?:python )?((?:gate|tests)/[\w./-]*)[^`]*`", text))
    assert len(named) >= 12
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_two_set_up_commands_stand_on_the_first_screen() -> None:
    lines = README.read_text().splitlines()[:30]
    commands = [line for line in lines if line.startswith("python3 -m venv .venv && ")]
    assert [command.split()[-1] for command in commands] == ["demo", ".venv/bin/pytest"]


def test_the_exit_codes_are_those_of_the_help() -> None:
    """The table of the README and the group's help say the same, code by code."""
    from gate.cli import EXIT_CODE_HELP

    table = re.findall(r"^\| (\d+) \| (.*) \|$", README.read_text(), re.MULTILINE)
    listed = re.findall(r"^ +(\d+)  (.*)$", EXIT_CODE_HELP, re.MULTILINE)
    assert table == listed
    assert [code for code, _ in table] == ["0", "1", "2", "3", "70"]
