"""No text that gate is given reaches a log as a command to the CI system, whichever command or format prints it."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import runner
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import PACKAGE
from small import CLEAN, POLICY, gate

from gate.cli import cli
from gate.cli.streams import Inert
from gate.words import escape_json

PIECES = st.sampled_from(
    ["::", ":", "##[", "#", "[", "##vso[", "\n", "\r", " ", "\t", "\u3000", "\ufeff", "x", "error"]
)
TEXTS = st.lists(st.lists(PIECES, max_size=8).map("".join), max_size=8)


def shown(texts: list[str]) -> str:
    raw = io.BytesIO()
    stream = Inert(raw, "utf-8", newline="")
    for text in texts:
        assert stream.write(text) == len(text)
    stream.flush()
    return raw.getvalue().decode()


@given(TEXTS)
@settings(max_examples=examples(500), deadline=None)
def test_text_in_any_pieces_is_no_command_and_keeps_its_letters(texts: list[str]) -> None:
    found = shown(texts)
    assert runner.commands(found) == []
    assert not any(line.strip().strip("\ufeff").startswith("::") for line in found.splitlines())
    assert "##[" not in found
    assert "##vso[" not in found
    assert found.replace(" ", "") == "".join(texts).replace(" ", "")
    assert found == shown(["".join(texts)])


@given(st.text(max_size=200))
@settings(deadline=None)
def test_other_text_stays_as_it_is(text: str) -> None:
    plain = text.replace(":", ";").replace("#", "+")
    assert shown([plain]) == plain


def test_a_long_line_of_blanks_hides_no_command() -> None:
    assert runner.commands(shown([" " * 5000, "\t" * 5000, ":", ":error::x"])) == []


@given(st.recursive(st.text(st.sampled_from('#[]vso :\\"')), st.lists, max_leaves=8))
@settings(deadline=None)
def test_json_keeps_its_values(value: object) -> None:
    text = escape_json(json.dumps(value, indent=1))
    assert json.loads(text) == value
    assert shown([text]) == text


def test_a_command_is_written_only_as_one() -> None:
    raw = io.BytesIO()
    stream = Inert(raw, "utf-8")
    stream.write("a")
    stream.write_command("\n::error::b")
    stream.write("::c\n")
    stream.flush()
    assert [command.message for command in runner.commands(raw.getvalue().decode())] == ["b"]


# --- every command with hostile names -----------------------------------------------------------------------

EVIL = "::error::forged ##[error]forged ##vso[task.complete]"
NAME = "##[error]forged ::set-output name=outcome::pass"


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases with hostile names of everything that has one, in a directory and under a policy of that kind."""
    place = tmp_path_factory.mktemp("evil") / f"{NAME}\n{EVIL}"
    place.mkdir()
    rng = np.random.default_rng(4)
    rows = [f"{score},{EVIL} {i % 2}" for i, score in enumerate(rng.random(6000))]
    for name, part in (("fit", rows[:3000]), ("holdout", rows[3000:])):
        (place / f"{EVIL}{name}.csv").write_text("\n".join([f"score,{NAME}", *part]) + "\n")
    text = POLICY.replace("name: ", f"name: {json.dumps(EVIL)} # ") + f"data: {{segment: {json.dumps(NAME)}}}\n"
    waiver = {"check": "fpr@1%", "reason": EVIL, "owner": EVIL, "expires": "2099-01-01"}
    text += f"waivers: [{json.dumps(waiver)}]\n"
    (place / f"{EVIL}.yaml").write_text(text)
    for name in ("a", "b"):
        result = gate(*run_of(EVIL + name), "--force", cwd=place)
        assert result.returncode in (0, 1, 3), result.stderr
        assert runner.commands(result.stdout + result.stderr) == []
    return place


def run_of(release: str) -> list[str]:
    files = [f"--{name}=./{EVIL}{name}.csv" for name in ("fit", "holdout")]
    return ["run", f"--policy={EVIL}.yaml", *files, f"--release={release}", f"--out=releases/{release}"]


A, B = f"releases/{EVIL}a", f"releases/{EVIL}b"
COMMANDS: dict[str, list[list[str]]] = {
    "run": [
        *(
            [*run_of(EVIL), "--dry-run", *more]
            for more in ([], ["--json"], [f"--ledger={EVIL}.jsonl"], ["--baseline", A])
        ),
        ["run", f"--fit={EVIL}", f"--holdout={EVIL}", f"--release={EVIL}"],
        ["run", f"--policy={EVIL}", "--fit=x", "--holdout=y", "--release=v1"],
        ["run", f"--{EVIL}"],
        ["run", "--split", EVIL],
        ["run", "--release", f"\n{EVIL}\n", "--fit", "a", "--holdout", "b"],
    ],
    "check": [["check", A, f"--holdout=./{EVIL}holdout.csv", "--dry-run", *more] for more in ([], ["--json"])]
    + [["check", EVIL, "--holdout", EVIL]],
    "report": [["report", A, "--format", name] for name in ("text", "md", "html", "junit", "json")]
    + [["report", EVIL], ["report", A, "--format", EVIL], ["report", A, "-o", f"{EVIL}/{EVIL}"]],
    "verify": [["verify", A], ["verify", A, f"--holdout=./{EVIL}holdout.csv"], ["verify", EVIL]],
    "compare": [["compare", A, B, "--format", name] for name in ("text", "md", "json")] + [["compare", EVIL, A]],
    "history": [["history", "releases", "--format", name] for name in ("text", "md", "html", "json")]
    + [["history", EVIL], ["history", "releases", EVIL]],
    "plan": [
        ["plan", f"--policy={EVIL}.yaml"],
        ["plan", f"--policy={EVIL}.yaml", "--json"],
        ["plan", "--policy", EVIL],
    ],
    "init": [["init", "--force"], ["init", "--targets", EVIL], ["init", "--action", EVIL], ["init", "--rule", EVIL]],
    "demo": [["demo", "--out", f"{EVIL}/../{EVIL}.csv/x"], ["demo", "--releases", EVIL]],
    "explain": [["explain", EVIL], ["explain", "fpr@0.1%"]],
    "export": [["export", A, "--to", name] for name in ("sql", EVIL)] + [["export", EVIL, "--to", "sql"]],
    "schema": [["schema", "policy"], ["schema", "record"], ["schema", EVIL]],
    "the group": [[EVIL], [f"--{EVIL}"], ["--help"], ["--version"], ["\n" + EVIL]],
}


def test_every_command_is_tried() -> None:
    assert {*COMMANDS} == {*cli.commands, "the group"}


@pytest.mark.each_run(5)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_hostile_name_is_a_command_in_the_log(evil: Path, command: str) -> None:
    """Annotations aside, which gate writes itself and only on GitHub; JSON stays JSON with the names as they are."""
    forged = 0
    for args in COMMANDS[command]:
        result = gate(*args, cwd=evil)
        assert result.returncode in (0, 1, 2, 3), result.stderr
        for text in (result.stdout, result.stderr):
            assert runner.commands(text) == [], f"{args}: {text}"
            assert "##vso[" not in text
            forged += "forged" in text
        if result.returncode != 2 and ("--json" in args or "json" in args):
            assert result.stdout == escape_json(result.stdout)
            json.loads(result.stdout)
    assert forged or command == "schema"


def test_what_a_command_prints_as_json_is_the_record_to_the_letter(evil: Path) -> None:
    result = gate("report", A, "--format", "json", cwd=evil)
    record = json.loads(result.stdout)
    assert record["release"] == f"{EVIL}a"
    assert record["data"]["segment"] == NAME
    assert result.stdout == (evil / A / "verdict.json").read_text()


def test_annotations_are_commands_and_the_only_ones(evil: Path) -> None:
    """On GitHub there are as many as findings block, and none is forged."""
    (evil / "strict.yaml").write_text((evil / f"{EVIL}.yaml").read_text().replace("min_n: 1000", "min_n: 100000"))
    args = [arg.replace(f"--policy={EVIL}", "--policy=strict") for arg in run_of("c")]
    result = gate(*args, "--dry-run", "--json", cwd=evil, env={"GITHUB_ACTIONS": "true"})
    blocking = [found for found in json.loads(result.stdout)["findings"] if found["blocks"]]
    found = runner.commands(result.stderr)
    assert len(found) == len(blocking) > 0
    assert {each.name for each in found} == {"error"}


# --- the working directory has no say -----------------------------------------------------------------------


@pytest.mark.each_run(1)
@pytest.mark.parametrize("variable", [None, ".", "matplotlibrc"])
def test_no_matplotlibrc_of_the_working_directory_is_read(tmp_path: Path, variable: str | None) -> None:
    """Here it is a pipe: a process that read it would wait for ever."""
    os.mkfifo(tmp_path / "matplotlibrc")
    env = {**CLEAN, "MPLBACKEND": "nonsense", **({"MATPLOTLIBRC": variable} if variable else {})}
    code = (
        "import os\nfrom gate.report.figures import ForestDisplay, to_svg\n"
        "to_svg(ForestDisplay([0.1], [0.1], [(0.05, 0.2)], [(0.05, 0.15)], ['pass'], ['10 %']), 'forest')\n"
        "import matplotlib\nprint(os.environ.get('MATPLOTLIBRC'), os.environ['MPLBACKEND'])\n"
        "print(matplotlib.rcParams == matplotlib.rcParamsDefault)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    found = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert (found.stdout, found.stderr) == (f"{variable} nonsense\nTrue\n", "")


def test_matplotlib_is_imported_in_one_place_only() -> None:
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        typed = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in typed:
                names = [str(node.module)] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                assert path.name == "drawing.py" or not any(name.startswith("matplotlib") for name in names), path


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_log_that_nobody_reads_changes_no_exit_code(tmp_path: Path, unbuffered: str) -> None:
    """This also holds if Python does not buffer: the interpreter's last flush must find nothing to fail at."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "gate", "report", "nowhere"]
    environment = {**CLEAN, "PYTHONUNBUFFERED": unbuffered}
    result = subprocess.run(command, cwd=tmp_path, env=environment, stdout=write_end, stderr=write_end, timeout=60)
    os.close(write_end)
    assert result.returncode == 2
