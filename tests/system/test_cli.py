"""The command as a script sees it: exit codes, streams, files and the terminal, through real processes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import commands
import jsonschema
import numpy as np
import pytest
import yaml
from commands import GATE
from rich.cells import cell_len
from small import CLEAN, POLICY, RELEASE_FILES, contents, gate, log_lines, write_inputs

from gate.record import Record
from gate.report.page import LIMITS, command

pytestmark = pytest.mark.figures
OUTCOMES = {"pass": 0, "fail": 1, "inconclusive": 3}
COMMANDS = [
    "explain",
    "export",
    "run",
    "check",
    "compare",
    "demo",
    "history",
    "plan",
    "report",
    "init",
    "schema",
    "verify",
]
INPUTS = ["--policy", "policy.yaml", "--fit", "fit.npy"]


def on_terminal(*args: str, cwd: Path, width: int, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run with a terminal of this width as stdout; return the exit code and what the terminal received."""
    screen, process_side = pty.openpty()
    fcntl.ioctl(process_side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    process = commands.start(*args, cwd=cwd, env={**CLEAN, "TERM": "xterm", **(env or {})}, stdout=process_side)
    os.close(process_side)
    sent = b""
    try:
        while part := os.read(screen, 65536):
            sent += part
    except OSError:  # a terminal says in this way that its other side is closed
        pass
    os.close(screen)
    return process.wait(), sent.decode().replace("\r\n", "\n")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working directory of its own with the inputs in it."""
    write_inputs(tmp_path)
    return tmp_path


@dataclass(frozen=True)
class Run:
    """One finished `gate run` that several tests look at; they must not change its directory."""

    place: Path
    directory: Path
    result: subprocess.CompletedProcess[str]


def run_once(tmp_path_factory: pytest.TempPathFactory, outcome: str) -> Run:
    place = tmp_path_factory.mktemp(outcome)
    write_inputs(place)
    result = gate("run", *INPUTS, "--release", outcome, "--holdout", f"{outcome}.npy", cwd=place)
    return Run(place, place / "releases" / outcome, result)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return {outcome: run_once(tmp_path_factory, outcome) for outcome in OUTCOMES}


# --- a run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_exit_code_is_the_verdict_and_the_reports_are_there(runs: dict[str, Run], outcome: str) -> None:
    run = runs[outcome]
    assert run.result.returncode == OUTCOMES[outcome], run.result.stderr
    assert run.result.stdout.startswith(f"{outcome.upper()}: ")
    found = contents(run.directory)
    assert list(found) == RELEASE_FILES
    assert json.loads(found["verdict.json"])["outcome"] == outcome
    manifest = json.loads(found.pop("manifest.json"))["sha256"]
    assert manifest == {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}


def test_results_go_to_stdout_and_logs_to_stderr(runs: dict[str, Run]) -> None:
    run = runs["pass"]
    assert log_lines(run.result) == [
        "policy policy.yaml; fit fit.npy; holdout pass.npy",
        "fit: 20,000 rows from fit.npy: 20,000 benign, none refused",
        "holdout: 20,000 rows from pass.npy: 20,000 benign, none refused",
        f"report: {Path('releases', 'pass', 'report.html')}",
    ]
    assert "gate: " not in run.result.stdout


def test_piped_output_has_no_escape_codes_and_is_80_wide(runs: dict[str, Run]) -> None:
    for run in runs.values():
        assert "\x1b" not in run.result.stdout + run.result.stderr
        assert max(map(len, run.result.stdout.splitlines())) <= 80


def test_json_on_stdout_is_the_record_and_only_its_time_differs(runs: dict[str, Run], here: Path) -> None:
    args = ["run", *INPUTS, "--release", "pass", "--holdout", "pass.npy", "--out", "out/v1", "--json"]
    result = gate(*args, cwd=here, env={"SOURCE_DATE_EPOCH": "0"})
    assert result.returncode == 0
    assert result.stdout.encode() == (here / "out" / "v1" / "verdict.json").read_bytes()
    again, record = json.loads(result.stdout), json.loads((runs["pass"].directory / "verdict.json").read_text())
    assert again.pop("created") == "1970-01-01T00:00:00Z"
    assert record.pop("created") > "2026"
    assert again == record


@pytest.mark.parametrize("outcome", ["fail", "inconclusive"])
def test_a_dry_run_writes_nothing_and_exits_as_the_real_run(runs: dict[str, Run], outcome: str, here: Path) -> None:
    before = contents(here)
    result = gate("run", *INPUTS, "--release", outcome, "--holdout", f"{outcome}.npy", "--dry-run", cwd=here)
    assert result.returncode == OUTCOMES[outcome]
    assert result.stdout == runs[outcome].result.stdout
    assert log_lines(result)[-1] == "dry run: nothing was written"
    assert contents(here) == before
    assert not (here / "releases").exists()


def test_an_existing_release_needs_force(runs: dict[str, Run], here: Path) -> None:
    """This also holds if a file's name is bytes that are no text."""
    name = os.fsdecode(b"fit-\xff.npy")
    (here / "fit.npy").rename(here / name)
    shutil.copytree(runs["pass"].directory, here / "out")
    args = ["run", "--policy", "policy.yaml", "--fit", name, "--holdout", "fail.npy", "--release", "v1", "--out", "out"]
    before = contents(here)
    refused = gate(*args, cwd=here)
    assert refused.returncode == 2
    assert log_lines(refused) == ["out: must not exist yet; choose another --out, or --force to replace this release"]
    assert contents(here) == before
    replaced = gate(*args, "--force", cwd=here)
    assert replaced.returncode == 1, replaced.stderr
    record = json.loads((here / "out" / "verdict.json").read_text())
    assert (record["outcome"], record["fit"]["sources"][0]["path"]) == ("fail", "fit-\\udcff.npy")
    assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []


def test_columns_on_the_command_line_win_over_the_policy(here: Path) -> None:
    """A labelled table: only the benign rows are counted, from the columns named."""
    for name in ("fit", "pass"):
        scores = np.load(here / f"{name}.npy")
        rows = "".join(f"{score!r},ok,7\n1.0,bad,7\n" for score in scores.tolist())
        (here / f"{name}.csv").write_text("risk,kind,score\n" + rows)
    args = ["--release", "v1", "--policy", "policy.yaml", "--fit", "fit.csv", "--holdout", "pass.csv", "--json"]
    columns = ["--set", "data.score=risk", "--set", "data.label=kind", "--set", "data.benign_label=ok"]
    result = gate("run", *args, *columns, "--dry-run", cwd=here)
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    none = dict.fromkeys(("segment", "group", "id", "timestamp", "count", "calibrated"))
    assert record["data"] == {"score": "risk", "label": "kind", "benign_label": ["ok"], **none}
    assert record["holdout"]["sources"] == [{"path": "pass.csv", "rows": 40_000, "benign": 20_000}]
    bare = ["--release", "v1", "--policy", "policy.yaml", "--fit", "fit.npy", "--holdout", "pass.npy", "--json"]
    alone = json.loads(gate("run", *bare, "--dry-run", cwd=here).stdout)
    assert record["holdout"]["sha256"] == alone["holdout"]["sha256"]


@pytest.mark.each_run(3)
@pytest.mark.parametrize("own", [False, True], ids=["", "own policy"])
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--policy", "built-in"],
        ["--set", "calibration.domain=[-1,2]"],
        ["--policy", "built-in", "--set", "calibration.domain=[-1e0,2.5]"],
        ["--policy", "wide.yaml", "--set", "calibration.domain=[0,1]"],
        ["--policy", "two.yaml#a", "--set", "calibration.domain=[0,2]"],
    ],
    ids=" ".join,
)
def test_the_command_of_a_report_gives_the_same_verdict(here: Path, options: list[str], own: bool) -> None:
    """This holds whatever the policy and the domain, and for a check by another policy than the release's."""
    (here / "wide.yaml").write_text(POLICY + "calibration: {domain: [-1, 2.0]}\n")
    detectors = "calibration:\n  domain: [-1, 1]\ndata: {id: id}\ndetectors: [{name: a}, {name: b, score: b}]\n"
    (here / "two.yaml").write_text(POLICY + detectors)
    if own:
        (here / "policies").mkdir()
        shutil.copy(here / "policy.yaml", here / "policies" / "release.yaml")
    files = ["--fit", "fit.csv", "--holdout", "pass.csv"]
    for name in ("fit", "pass"):
        rows = [f"{name} {i},{score!r}" for i, score in enumerate(np.load(here / f"{name}.npy").tolist())]
        (here / f"{name}.csv").write_text("\n".join(["id,score", *rows, ""]))
    first = gate("run", *options, *files, "--release", "v1", "--dry-run", "--json", cwd=here)
    same_verdict(first, here)


def test_the_command_of_a_check_by_the_built_in_policy_does_so_too(here: Path) -> None:
    gate("run", *INPUTS, "--holdout", "pass.npy", "--release", "v1", "--out", "v1", cwd=here)
    options = ["--policy", "built-in", "--holdout", "pass.npy", "--dry-run", "--json"]
    same_verdict(gate("check", "v1", *options, cwd=here), here)


def same_verdict(first: subprocess.CompletedProcess[str], here: Path) -> None:
    """Check that the command in a report gives the same verdict on the same files, to the byte."""
    assert first.returncode in OUTCOMES.values(), first.stderr
    moment, program, *words = shlex.split(" ".join(command(Record.model_validate_json(first.stdout), LIMITS[0])))
    assert program == "gate"
    key, value = moment.split("=")
    again = gate(*words, "--dry-run", "--json", cwd=here, env={key: value})
    assert again.returncode == first.returncode, again.stderr
    assert again.stdout == first.stdout


# --- exit code 2: no judgement ------------------------------------------------------------------------------

V1 = ["run", *INPUTS, "--release", "v1"]
HELD_OUT = ["--holdout", "pass.npy"]
NAMED = ["run", *INPUTS, *HELD_OUT, "--release"]
BY_POLICY = ["run", "--fit", "fit.npy", *HELD_OUT, "--release", "v1", "--policy"]
NO_JUDGEMENT = {
    "no command": ([], "Usage: gate"),
    "unknown command": (["rnu"], "No such command 'rnu'"),
    "unknown option": (["run", "--polciy", "x"], "--policy"),  # click says what was meant
    "option of two lines": (["run", "--x\n::error::y"], "No such option"),
    "missing option": (["run", *INPUTS, *HELD_OUT], "Missing option '--release'"),
    "missing argument": (["schema"], "Choose from: policy, record"),
    "unknown format": (["report", "x", "--format", "pdf"], "'pdf' is not one of"),
    "empty policy name": ([*BY_POLICY, ""], "Invalid value for '--policy': must not be empty"),
    "empty file name": ([*V1, "--holdout", ""], "Invalid value for '--holdout': must not be empty"),
    "empty release name": ([*NAMED, " "], "--release: must be one line"),
    "release name of two lines": ([*NAMED, "a\n::error::b"], "got 'a\\n::error::b'"),
    "release name too long": ([*NAMED, "a" * 201], "1 to 200 printable"),
    "release name as path": ([*NAMED, "a/b"], "name it with --out"),
    "release name dot dot": ([*NAMED, ".."], "must be a plain name"),
    "release name too long for a directory": ([*NAMED, "ü" * 200], "File name too long"),
    "no policy": ([*BY_POLICY, "none.yaml"], "none.yaml: must be a readable policy"),
    "bad policy": ([*BY_POLICY, "bad.yaml"], "bad.yaml:3: "),
    "no scores": ([*V1, "--holdout", "none.npy"], "none.npy: must exist"),
    "bad scores": ([*V1, "--holdout", "nan.npy"], "must hold numbers, got NaN in row 3"),
    "bad column": ([*V1, *HELD_OUT, "--set", "data.score=''"], "data.score: must be one line"),
    "existing directory": ([*V1, *HELD_OUT, "--out", "site"], "site: must not exist yet"),
    "force on no release": ([*V1, *HELD_OUT, "--out", "site", "--force"], "site: must be a release for --force"),
    "out below a file": ([*V1, *HELD_OUT, "--out", "policy.yaml/v1"], "must be in a directory that can be written"),
    "report without record": (["report", "site"], "verdict.json: must be the record of a release"),
    "report of a broken record": (["report", "broken"], "broken/verdict.json: must be JSON"),
    "demo over other scores": (["demo", "--out", "mine"], "benign-fit.parquet: must not exist yet"),
}


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with everything that the mistakes need; no mistake may change it."""
    place = tmp_path_factory.mktemp("mistakes")
    write_inputs(place)
    (place / "bad.yaml").write_text("version: 1\nname: bad\nruel: proven\ntargets: []\n")
    np.save(place / "nan.npy", [0.1, 0.2, np.nan])
    for name in ("site", "broken", "mine"):
        (place / name).mkdir()
    (place / "site" / "manifest.json").write_text('{"name": "an app"}')
    (place / "broken" / "verdict.json").write_text("{")
    (place / "mine" / "benign-fit.parquet").write_text("precious")
    return place


@pytest.mark.parametrize("case", NO_JUDGEMENT)
def test_a_mistake_is_exit_code_2_and_says_what_is_wrong(mistakes: Path, case: str) -> None:
    """It gives one or a few lines on stderr, nothing on stdout and no traceback, and writes nothing."""
    args, sentence = NO_JUDGEMENT[case]
    before = contents(mistakes)
    result = gate(*args, cwd=mistakes)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert contents(mistakes) == before
    if args:
        assert 1 <= len(log_lines(result)) <= 4


@pytest.mark.parametrize("epoch", ["", "yesterday", "1.5", "-1", "1_000", "9" * 30])
def test_a_bad_source_date_epoch_is_exit_code_2(here: Path, epoch: str) -> None:
    result = gate(*V1, "--holdout", "pass.npy", cwd=here, env={"SOURCE_DATE_EPOCH": epoch})
    assert result.returncode == 2
    assert log_lines(result)[-1].startswith("SOURCE_DATE_EPOCH: must be whole seconds since 1970, got ")
    assert not (here / "releases").exists()


# --- exit code 70: a crash is not a verdict -----------------------------------------------------------------

CRASH = """
import gate.{stage}
def crash(*args, **kwargs):
    raise {error}
gate.{stage}.{function} = crash
"""


@pytest.mark.each_run(1)
@pytest.mark.parametrize(
    ("stage", "function", "error", "code"),
    [
        ("gating", "measure", "ZeroDivisionError('a\\n::error::b')", 70),
        ("gating", "judge", "SystemExit(0)", 2),
        ("gating", "judge", "KeyboardInterrupt", 130),
    ],
)
def test_a_crash_is_no_verdict(here: Path, stage: str, function: str, error: str, code: int) -> None:
    """A bug has its own exit code and shows where it is; neither it nor an early exit can read as a pass or fail."""
    source = CRASH.format(stage=stage, function=function, error=error)
    result = gate(*V1, "--holdout", "pass.npy", cwd=here, before=source)
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert not (here / "releases").exists()
    if code == 70:
        assert "Traceback" in result.stderr
        assert log_lines(result)[-1].startswith("internal error: ZeroDivisionError: a\\u000a::error::b; this is a bug")


# --- the terminal -------------------------------------------------------------------------------------------

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize(("width", "term"), [(40, "xterm"), (40, "unknown"), (132, "xterm")])
def test_a_terminal_gets_colour_and_no_line_wider_than_itself(runs: dict[str, Run], width: int, term: str) -> None:
    code, sent = on_terminal("report", "releases/fail", cwd=runs["fail"].place, width=width, env={"TERM": term})
    assert code == 0
    assert "\x1b[1;31mFAIL: " in sent
    lines = ESCAPE.sub("", sent).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert "fail (too-many)" in ESCAPE.sub("", sent)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_colour_can_be_refused(runs: dict[str, Run], env: dict[str, str]) -> None:
    run = runs["fail"]
    code, sent = on_terminal("report", "releases/fail", cwd=run.place, width=80, env=env)
    assert (code, sent) == (0, run.result.stdout)


def test_a_run_on_a_terminal_has_the_same_verdict(here: Path) -> None:
    code, sent = on_terminal(*V1, "--holdout", "fail.npy", "--dry-run", cwd=here, width=60)
    assert code == 1
    assert max(map(cell_len, ESCAPE.sub("", sent).splitlines())) <= 60


# --- streams that go away -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_goes_away_changes_nothing(here: Path, stream: str) -> None:
    """After `| head -1` the exit code is still the verdict's, the files are there, and nothing is printed about it."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    streams: dict[str, Any] = {stream: write_end}
    result = gate(*V1, "--holdout", "inconclusive.npy", "--json", cwd=here, **streams)
    os.close(write_end)
    assert result.returncode == 3
    assert contents(here / "releases" / "v1").keys() == {*RELEASE_FILES}
    assert "Traceback" not in (result.stderr or "")
    assert "BrokenPipe" not in (result.stderr or "")
    if stream == "stderr":
        assert json.loads(result.stdout)["outcome"] == "inconclusive"


def test_help_without_a_reader_is_no_failed_verdict(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = gate("--help", cwd=tmp_path, stdout=write_end)
    os.close(write_end)
    assert (result.returncode, result.stderr) == (2, "")


def test_a_full_disk_behind_stdout_is_said(runs: dict[str, Run]) -> None:
    with open("/dev/full", "w") as full:
        result = gate("report", "releases/pass", cwd=runs["pass"].place, stdout=full.fileno())
    assert result.returncode == 2
    assert log_lines(result) == ["stdout: must be writable, got No space left on device; the result was not printed"]


def test_a_closed_stdout_is_no_crash(runs: dict[str, Run]) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *GATE]
    result = gate("report", "releases/pass", cwd=runs["pass"].place, command=command)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_output_is_utf8_in_every_locale(here: Path) -> None:
    args = ["run", *INPUTS, "--release", "größe", "--holdout", "pass.npy", "--dry-run", "--json"]
    result = gate(*args, cwd=here, env={"PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["release"] == "größe"


# --- same inputs, same bytes --------------------------------------------------------------------------------


@pytest.mark.each_run(0)
def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    """The hash seed, the time zone, the language, the file mode and the order of the rows change nothing."""
    environments = [
        {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C", "OMP_NUM_THREADS": "1"},
        {"PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo", "LC_ALL": "de_DE.UTF-8", "COLUMNS": "40"},
    ]
    found = []
    for i, env in enumerate(environments):
        place = tmp_path / str(i)
        place.mkdir()
        write_inputs(place, reverse=bool(i))
        result = gate(*V1, "--holdout", "pass.npy", cwd=place, env={**env, "SOURCE_DATE_EPOCH": "1767225600"})
        assert result.returncode == 0, result.stderr
        found.append((result.stdout, contents(place / "releases" / "v1")))
    assert found[0] == found[1]
    assert json.loads(found[0][1]["verdict.json"])["created"] == "2026-01-01T00:00:00Z"


# --- the other commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format_", "name"),
    [("html", "report.html"), ("md", "report.md"), ("junit", "junit.xml"), ("json", "verdict.json")],
)
def test_a_report_rendered_again_is_the_file_in_the_release(runs: dict[str, Run], format_: str, name: str) -> None:
    run = runs["inconclusive"]
    result = gate("report", "releases/inconclusive", "--format", format_, cwd=run.place)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.encode() == (run.directory / name).read_bytes()


def test_a_text_report_rendered_again_is_what_the_run_printed(runs: dict[str, Run], tmp_path: Path) -> None:
    """This holds on stdout, in a file, and for `-`, which means stdout and is no file name."""
    run = runs["fail"]
    for args in ([], ["-o", "-"], ["-o", str(tmp_path / "report.txt")]):
        result = gate("report", "releases/fail", *args, cwd=run.place)
        assert (result.returncode, result.stderr) == (0, "")
        printed = result.stdout or (tmp_path / "report.txt").read_text(encoding="utf-8")
        assert printed == run.result.stdout
    assert not (run.place / "-").exists()


def test_schemas_are_valid_and_fit_their_files(runs: dict[str, Run], tmp_path: Path) -> None:
    schemas = {}
    for name in ("policy", "record"):
        result = gate("schema", name, cwd=tmp_path)
        assert (result.returncode, result.stderr) == (0, "")
        schemas[name] = json.loads(result.stdout)
        jsonschema.Draft202012Validator.check_schema(schemas[name])
    validator = jsonschema.Draft202012Validator
    for run in runs.values():
        validator(schemas["record"]).validate(json.loads((run.directory / "verdict.json").read_text()))
    validator(schemas["policy"]).validate(yaml.safe_load(POLICY))
    assert not validator(schemas["policy"]).is_valid({"version": 1, "name": "x", "targets": [], "ruel": "proven"})


def test_the_demo_runs_end_to_end(tmp_path: Path) -> None:
    """It passes, refuses to overwrite, replaces with --force, and its second example fails as it says."""
    first = gate("demo", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("PASS: ")
    release = tmp_path / "gate-demo" / "releases" / "demo"
    assert list(contents(release)) == RELEASE_FILES
    before = contents(tmp_path)
    second = gate("demo", cwd=tmp_path)
    assert (second.returncode, second.stdout) == (2, "")
    assert "--force" in log_lines(second)[0]
    assert contents(tmp_path) == before
    third = gate("demo", "--force", cwd=tmp_path)
    assert third.returncode == 0, third.stderr
    assert third.stdout == first.stdout
    after = contents(tmp_path)
    assert after.keys() == before.keys()
    assert [
        name for name in after if after[name] != before[name] and name.endswith((".parquet", "calibrator.json"))
    ] == []
    help_text = gate("demo", "--help", cwd=tmp_path).stdout
    example = re.search(r"gate (run --release drifted .*)", help_text)
    assert example
    drifted = gate(*example[1].split(), cwd=tmp_path)
    assert drifted.returncode == 1, drifted.stderr


# --- help ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_in_its_help(tmp_path: Path, command: str) -> None:
    result = gate(command, "--help", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Example:" in result.stdout
    assert f"gate {command}" in result.stdout.partition("Example:")[2]


def test_the_help_of_the_group_lists_the_commands_and_the_exit_codes(tmp_path: Path) -> None:
    result = gate("--help", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    listed = re.search(r"Commands:\n((?:  .+\n)+)", result.stdout)
    assert listed
    assert sorted(re.findall(r"^  (\w+) ", listed[1], re.MULTILINE)) == sorted(COMMANDS)
    table = dict(re.findall(r"^ +(\d+)  (\w[\w ]*)", result.stdout.partition("Exit codes:")[2], re.MULTILINE))
    assert {code: meaning.strip() for code, meaning in table.items()} == {
        "0": "pass",
        "1": "fail",
        "2": "no judgement possible",
        "3": "inconclusive",
        "70": "internal error",
    }


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["rnu"]], ids=" ".join)
def test_the_console_script_and_the_module_are_one_command(tmp_path: Path, args: list[str]) -> None:
    script = shutil.which("gate", path=str(Path(sys.executable).parent))
    assert script, "the package must be installed"
    one, other = gate(*args, cwd=tmp_path), gate(*args, cwd=tmp_path, command=[script])
    assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)
