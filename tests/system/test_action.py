"""The composite action and the reusable workflow, their steps run as GitHub's runner would run them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import commands
import numpy
import pytest
import runner
import yaml
from drawing import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from records import RECORDS
from repository import ACTION, ACTION_FILE, ROOT
from small import CLEAN, RELEASE_FILES, gate, write_inputs

from gate.cli import cli
from gate.ledger import read as read_ledger
from gate.report import markdown
from gate.storage import manifest_of

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release-gate.yml").read_text())
STEPS = {step.get("id", step["name"]): step for step in ACTION["runs"]["steps"]}
CODES = {"pass": 0, "fail": 1, "inconclusive": 3}
# Options that a workflow has no use for, and one that needs more than the action installs.
OWN = {"--json", "--connect"}
INPUTS = {"policy": "policy.yaml", "fit": "fit.npy", "release": "v1"}

HOSTILE = {
    "spaces": " a  b ",
    "quotes": "it's \"quoted\" \\' \\",
    "command": "$(touch pwned) `touch pwned` ; touch pwned && touch pwned | touch pwned",
    "expansion": "$HOME ${PATH} ~ * ? [a-z] {a,b} !! <(ls) > pwned",
    "log": "::error::x ::set-output name=outcome::pass ##[error]y",
    "option": "--force",
    "dash": "-n",
    "expression": "${{ github.token }} ${{ inputs.release }}",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    write_inputs(place)
    return place


@pytest.fixture
def here(workspace: Path) -> Callable[..., runner.Job]:
    """The action with these inputs in the workspace, gate being installed there already."""
    temporary = workspace.parent / "temp"
    (temporary / "venv" / "bin").mkdir(parents=True)
    commands.write_program(temporary / "venv" / "bin" / "python", "-I", "-m", "gate")
    env = {**CLEAN, "RUNNER_TEMP": str(temporary), "GITHUB_ACTION_PATH": str(ACTION_FILE.parent)}

    def act(environment: dict[str, str] | None = None, **given: str) -> runner.Job:
        done = {"python": {"python-path": sys.executable}, "install": {"place": str(temporary)}}
        shutil.rmtree(temporary / "release", ignore_errors=True)
        inputs = {name.replace("_", "-"): value for name, value in given.items()}
        return runner.run_action(ACTION, inputs, workspace, {**env, **(environment or {})}, done)

    return act


# --- the four outcomes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", CODES)
def test_a_verdict_sets_outputs_summary_annotations_artifact_and_status(
    here: Callable[..., runner.Job], workspace: Path, outcome: str
) -> None:
    """Whatever the verdict, the job sets and writes everything, and only then fails."""
    job = here(**INPUTS, holdout=f"{outcome}.npy")
    code = CODES[outcome]
    assert job.codes == {"gate": 0, "collect": 0, "Verdict": code}, job.log
    assert job.failed == (code != 0)
    release = workspace / "releases" / "v1"
    files = {path.name: path.read_bytes() for path in release.iterdir()}
    assert sorted(files) == RELEASE_FILES
    assert job.uploads == {"release-gate": files}
    assert job.summary.strip() == files["report.md"].decode().strip()
    assert job.outputs == {
        "outcome": outcome,
        "exit-code": str(code),
        "report-html": "releases/v1/report.html",
        "report-md": "releases/v1/report.md",
        "verdict-json": "releases/v1/verdict.json",
        "calibrator": "releases/v1/calibrator.joblib",
        "calibrator-sha256": hashlib.sha256(files["calibrator.joblib"]).hexdigest(),
        "predicate": "releases/v1/predicate.json",
        "manifest-sha256": hashlib.sha256(files["manifest.json"]).hexdigest(),
    }
    blocking = [finding for finding in json.loads(files["verdict.json"])["findings"] if finding["blocks"]]
    errors = runner.commands(job.log)
    assert [error.name for error in errors] == ["error"] * len(blocking)
    assert {error.properties["file"] for error in errors} <= {"policy.yaml"}
    assert bool(blocking) == (code != 0)


def test_bad_input_has_no_outcome_no_artifact_and_fails_whatever_fail_on_says(here: Callable[..., runner.Job]) -> None:
    job = here(**INPUTS, holdout="none.npy", fail_on="never")
    assert job.codes == {"gate": 0, "Verdict": 2}
    assert job.uploads == {}
    assert {name: value for name, value in job.outputs.items() if value} == {"exit-code": "2"}
    assert [error.properties["title"] for error in runner.commands(job.log)] == ["no judgement possible"]
    assert job.summary.strip().startswith("# NO JUDGEMENT")


@pytest.mark.parametrize("given", [{"fail_on": "Never"}, {"fail_on": ""}, {"force": "yes"}], ids=str)
def test_an_input_of_no_known_value_stops_before_anything_runs(
    here: Callable[..., runner.Job], workspace: Path, given: dict[str, str]
) -> None:
    job = here(**INPUTS, holdout="pass.npy", **given)
    assert job.codes == {"gate": 2, "Verdict": 2}
    assert job.outputs["outcome"] == ""
    assert not (workspace / "releases").exists()


PASSES = {"inconclusive": {"0"}, "fail": {"0", "3"}, "never": {"0", "1", "3"}}


@pytest.mark.parametrize("fail_on", PASSES)
@pytest.mark.parametrize("code", ["0", "1", "2", "3", "70", "130", "137", ""])
def test_fail_on_decides_which_verdicts_fail_the_job(tmp_path: Path, fail_on: str, code: str) -> None:
    """A run that could not judge, crashed or was killed fails it always."""
    outcome = {"0": "pass", "1": "fail", "3": "inconclusive"}.get(code, "")
    values = {"inputs.fail-on": fail_on, "steps.gate.outputs.exit-code": code, "steps.gate.outputs.outcome": outcome}
    result = runner.run(STEPS["Verdict"], values, tmp_path, CLEAN)
    assert (result.code == 0) == (code in PASSES[fail_on])
    if code in ("1", "2", "3", "70"):
        assert result.code in (0, int(code))
    assert runner.commands(result.log) == []


@pytest.mark.parametrize("outcome", ["", "fail", "passed"])
def test_an_exit_code_without_its_verdict_never_passes(tmp_path: Path, outcome: str) -> None:
    values = {"inputs.fail-on": "never", "steps.gate.outputs.exit-code": "0", "steps.gate.outputs.outcome": outcome}
    assert runner.run(STEPS["Verdict"], values, tmp_path, CLEAN).code == 70


def test_a_step_that_breaks_before_the_verdict_never_passes(tmp_path: Path) -> None:
    """Then there is no exit code, and the last step says so."""
    values = {"inputs.fail-on": "never"}
    assert runner.wanted(STEPS["Verdict"]["if"], values, failed=True)
    assert runner.run(STEPS["Verdict"], values, tmp_path, CLEAN).code == 70
    for later in ("collect", "Upload the release directory"):
        assert not runner.wanted(STEPS[later]["if"], values, failed=True)


# --- inputs that would like to be commands ------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a place with a Python that only writes down its arguments, separated by NUL."""
    place = tmp_path_factory.mktemp("recorder")
    script = place / "venv" / "bin" / "python"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" >'{place}/arguments'\n")
    script.chmod(0o755)
    return place


def arguments(recorder: Path, given: dict[str, str], workspace: Path) -> list[str]:
    """Return the arguments of `gate` for these inputs; nothing else may have happened in the workspace."""
    before = sorted(path.name for path in workspace.iterdir())
    values = {f"inputs.{name}": about.get("default", "") for name, about in ACTION["inputs"].items()}
    values |= {f"inputs.{name}": value for name, value in given.items()}
    values["steps.install.outputs.place"] = str(recorder)
    result = runner.run(STEPS["gate"], values, workspace, {**CLEAN, "RUNNER_TEMP": str(recorder)})
    assert result.code == 0, result.log
    assert (result.log, result.outputs) == ("", {"exit-code": "0"})
    assert sorted(path.name for path in workspace.iterdir()) == before
    isolated, *found = (recorder / "arguments").read_text(encoding="utf-8").split("\0")[:-1]
    assert (isolated, *found[:2]) == ("-I", "-m", "gate")
    return found[2:]


OWN_INPUTS = ("fail-on", "artifact", "python-version", "ledger-branch")  # those that are no option of `gate run`
ONE = [name for name in ACTION["inputs"] if name not in (*OWN_INPUTS, "force")]
EACH = ["fit", "holdout", "benign", "malicious", "baseline-holdout", "baseline-malicious"]


@pytest.mark.parametrize("attack", HOSTILE)
def test_every_input_arrives_as_one_argument_to_the_letter(recorder: Path, tmp_path: Path, attack: str) -> None:
    given = dict.fromkeys(ONE, HOSTILE[attack])
    assert sorted(arguments(recorder, given, tmp_path)) == sorted(["run", *(f"--{n}={HOSTILE[attack]}" for n in ONE)])


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n")))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_arrives_as_one_argument(recorder: Path, tmp_path: Path, text: str) -> None:
    given = {"release": text, "policy": "built-in", "out": text, "fit": text}
    wanted = ["run", f"--release={text}", "--policy=built-in"] + ([f"--out={text}", f"--fit={text}"] if text else [])
    assert sorted(arguments(recorder, given, tmp_path)) == sorted(wanted)


@pytest.mark.parametrize("name", EACH)
def test_several_files_stand_one_to_a_line(recorder: Path, tmp_path: Path, name: str) -> None:
    """Empty lines do not count, and Windows line ends are line ends."""
    given = {"release": "v1", "policy": "built-in", name: "\na b.npy\n\nscores/*.parquet\r\n$(touch pwned).npy\n"}
    assert arguments(recorder, given, tmp_path) == [
        "run",
        "--release=v1",
        "--policy=built-in",
        f"--{name}=a b.npy",
        f"--{name}=scores/*.parquet",
        f"--{name}=$(touch pwned).npy",
    ]


def test_a_line_break_in_a_single_value_makes_no_second_one(recorder: Path, tmp_path: Path) -> None:
    given = {"release": "v1\n--force", "policy": "a\n::error::b"}
    assert arguments(recorder, given, tmp_path) == ["run", "--release=v1\n--force", "--policy=a\n::error::b"]


def test_force_is_passed_only_when_true(recorder: Path, tmp_path: Path) -> None:
    given = {"release": "v1", "policy": "built-in", "force": "true"}
    assert arguments(recorder, given, tmp_path) == ["run", "--release=v1", "--policy=built-in", "--force"]


@pytest.mark.each_run(2)
@pytest.mark.parametrize("attack", ["quotes", "command", "log", "expression"])
def test_hostile_names_pass_through_the_whole_action(
    here: Callable[..., runner.Job], workspace: Path, attack: str
) -> None:
    """File, directory and release names run nothing and forge no annotation or output, and the verdict holds."""
    name = HOSTILE[attack].replace("/", "-")
    (workspace / "policy.yaml").rename(workspace / f"{name}.yaml")
    (workspace / "fail.npy").rename(workspace / f"{name}.npy")
    pattern = re.sub(r"([*?[])", r"[\1]", name)
    job = here(policy=f"{name}.yaml", fit="fit.npy", holdout=f"{pattern}.npy", release=HOSTILE[attack], out=f"{name}*")
    assert job.codes == {"gate": 0, "collect": 0, "Verdict": 1}, job.log
    assert job.outputs["outcome"] == "fail"
    assert job.outputs["report-html"] == f"{name}*/report.html"
    errors = runner.commands(job.log)
    assert [error.properties["file"] for error in errors] == [f"{name}.yaml"] * 2
    assert sorted(job.uploads["release-gate"]) == RELEASE_FILES
    assert not list(workspace.parent.rglob("*pwned")), "a command was run"


# --- a workspace that would like to be Python's -------------------------------------------------------------


def test_no_module_of_the_workspace_rewrites_a_verdict(here: Callable[..., runner.Job], workspace: Path) -> None:
    """The job points PYTHONPATH, PYTHONSTARTUP and PYTHONHOME at the workspace, as jobs do for their own tests."""
    python = workspace.parent / "temp" / "venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for module in ("sitecustomize", "usercustomize", "gate", "numpy", "yaml", "click", "pip"):
        (workspace / f"{module}.py").write_text("import os\nopen('pwned', 'w')\nos._exit(0)\n")
    names = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPLATLIBDIR", "PYTHONSTARTUP", "PYTHONSAFEPATH")
    job = here(dict.fromkeys(names, str(workspace)), **INPUTS, holdout="fail.npy")
    assert job.codes == {"gate": 0, "collect": 0, "Verdict": 1}, job.log
    assert job.outputs["outcome"] == "fail"
    assert not (workspace / "pwned").exists()


def test_every_python_call_of_the_action_is_isolated() -> None:
    """No variable of Python reaches a call, or the processes that it starts."""
    for step in ACTION["runs"]["steps"]:
        for line in step.get("run", "").splitlines():
            if re.search(r"(bin/python|INTERPRETER|pip)\b", line) and not line.lstrip().startswith("#"):
                assert " -I -m " in line, line
                assert 'unset "${!PYTHON@}"' in step["run"].partition(line)[0]


# --- the ledger on a branch ---------------------------------------------------------------------------------

REUSE = "reuse: {max_uses: 20}\n"
BRANCH = "release-gate-ledger"


@pytest.fixture
def remote(tmp_path: Path, workspace: Path) -> Path:
    """Make a bare repository in GitHub's place, with a branch of its own work, and a policy that spends."""
    place = tmp_path / "server" / "me" / "model"
    place.mkdir(parents=True)
    git("init", "--quiet", "--bare", "--initial-branch=main", place)
    with (workspace / "policy.yaml").open("a") as policy:
        policy.write(REUSE)
    return place


def git(*args: object, cwd: Path | None = None) -> str:
    named = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", *map(str, args)]
    return subprocess.run(command, cwd=cwd, env={**CLEAN, **named}, check=True, capture_output=True, text=True).stdout


def server(remote: Path) -> dict[str, str]:
    return {"GITHUB_SERVER_URL": remote.parent.parent.as_uri(), "GITHUB_REPOSITORY": "me/model"}


def counted(remote: Path, place: Path) -> list[str]:
    """List the releases in the ledger on the server, in order."""
    (place / "seen.jsonl").write_text(git("show", f"{BRANCH}:ledger.jsonl", cwd=remote))
    return [entry.release for entry in read_ledger(str(place / "seen.jsonl"))]


def use(workspace: Path, release: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((workspace / "releases" / release / "verdict.json").read_text())["checks"][
        "reuse"
    ]["holdout"]
    return found


def test_the_ledger_is_kept_on_its_branch_from_run_to_run(
    here: Callable[..., runner.Job], workspace: Path, remote: Path, tmp_path: Path
) -> None:
    """The first run makes the branch; a dropped row is a further use; the same again is the same one."""
    given = {"policy": "policy.yaml", "fit": "fit.npy", "ledger_branch": BRANCH}
    first = here(server(remote), **given, release="v1", holdout="pass.npy")
    assert (first.failed, first.outputs["outcome"]) == (False, "pass"), first.log
    numpy.save(workspace / "fewer.npy", numpy.load(workspace / "pass.npy")[1:])
    second = here(server(remote), **given, release="v2", holdout="fewer.npy")
    assert not second.failed, second.log
    again = here(server(remote), **given, release="v1", holdout="pass.npy", force="true")
    assert not again.failed, again.log
    assert [use(workspace, name)["number"] for name in ("v1", "v2")] == [1, 2]
    assert counted(remote, tmp_path) == ["v1", "v2"]
    assert git("ls-tree", "-r", "--name-only", BRANCH, cwd=remote).split() == ["ledger.jsonl"]
    assert runner.commands(first.log + second.log + again.log) == []
    assert git("branch", "--format=%(refname:short)", cwd=remote).split() == [BRANCH]


def test_a_job_that_was_overtaken_counts_again(
    here: Callable[..., runner.Job], workspace: Path, remote: Path, tmp_path: Path
) -> None:
    """Between fetch and push another job's use of the same rows arrives: this one becomes use 2, and says so."""
    given = {"policy": "policy.yaml", "fit": "fit.npy", "holdout": "pass.npy", "ledger_branch": BRANCH}
    other = tmp_path / "other"
    other.mkdir()
    for name in ("fit.npy", "pass.npy"):
        (other / name).write_bytes((workspace / name).read_bytes())
    (other / "policy.yaml").write_text("# other\n" + (workspace / "policy.yaml").read_text())
    options = [
        "--policy=policy.yaml",
        "--fit=fit.npy",
        "--holdout=pass.npy",
        "--release=other",
        "--ledger=ledger.jsonl",
    ]
    assert gate("run", *options, cwd=other).returncode == 0
    git("init", "--quiet", other)
    git("add", "ledger.jsonl", cwd=other)
    git("commit", "--quiet", "--message=x", cwd=other)
    hook = remote / "hooks" / "pre-receive"
    hook.write_text(
        f'#!/bin/sh\nrm "$0"\nenv -u GIT_QUARANTINE_PATH -u GIT_DIR git -C "{remote}" fetch --quiet "{other}" '
        f"HEAD:refs/heads/{BRANCH}\n"
    )
    hook.chmod(0o755)
    job = here(server(remote), **given, release="late")
    assert not job.failed, job.log
    assert not hook.exists()
    assert counted(remote, tmp_path) == ["other", "late"]
    assert (use(workspace, "late")["number"], use(workspace, "late")["earlier"]) == (2, ["other"])


def test_jobs_at_once_are_as_many_uses(
    here: Callable[..., runner.Job], workspace: Path, remote: Path, tmp_path: Path
) -> None:
    """Two jobs, each on a runner of its own, with the same rows and different policies."""
    places, found = [], []
    for i in range(2):
        place = tmp_path / f"runner {i}"
        shutil.copytree(workspace, place)
        (place / "policy.yaml").write_text(f"# {i}\n" + (workspace / "policy.yaml").read_text())
        places.append(place)

    def work(place: Path) -> runner.Job:
        temporary = place / "temp"
        shutil.copytree(workspace.parent / "temp", temporary)
        env = {**CLEAN, **server(remote), "RUNNER_TEMP": str(temporary), "GITHUB_ACTION_PATH": str(ACTION_FILE.parent)}
        done = {"python": {"python-path": sys.executable}, "install": {"place": str(temporary)}}
        inputs = {**INPUTS, "holdout": "pass.npy", "ledger-branch": BRANCH}
        return runner.run_action(ACTION, inputs, place, env, done)

    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(work, places)]
    assert [job.failed for job in found] == [False, False], "".join(job.log for job in found)
    assert sorted(use(place, "v1")["number"] for place in places) == [1, 2]
    assert len(counted(remote, tmp_path)) == 2


def test_a_policy_that_spends_is_refused_without_a_branch(here: Callable[..., runner.Job], remote: Path) -> None:
    job = here(server(remote), **INPUTS, holdout="pass.npy")
    assert job.codes == {"gate": 0, "Verdict": 2}
    assert "reuse: must have a ledger to count uses in" in job.log
    assert "ledger-branch" in job.log


REFUSALS = {
    "no right to push": "must be one that this job may push to; give it contents: write",
    "no server": "must be a branch that can be fetched",
    "other work": "must be a branch of its own",
    "no name": "must be the name of a branch",
    "a torn server": "must be a branch that can be fetched",
}


@pytest.mark.each_run(2)
@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_counted_is_not_judged(
    here: Callable[..., runner.Job], workspace: Path, remote: Path, case: str
) -> None:
    """There is no verdict, release or artifact: only exit code 2 and a line that says why."""
    branch = "..a" if case == "no name" else "main" if case == "other work" else BRANCH
    if case == "no right to push":
        (remote / "hooks" / "pre-receive").write_text("#!/bin/sh\nexit 1\n")
        (remote / "hooks" / "pre-receive").chmod(0o755)
    elif case == "no server":
        shutil.rmtree(remote)
    elif case == "other work":
        git("init", "--quiet", workspace)
        git("add", "policy.yaml", cwd=workspace)
        git("commit", "--quiet", "--message=x", cwd=workspace)
        git("push", "--quiet", remote, "HEAD:main", cwd=workspace)
    elif case == "a torn server":
        (remote / "refs" / "heads" / BRANCH).write_text("0123456789abcdef0123456789abcdef01234567\n")
    job = here(server(remote), **INPUTS, holdout="pass.npy", ledger_branch=branch, fail_on="never")
    assert job.codes == {"gate": 2, "Verdict": 2}, job.log
    assert REFUSALS[case] in job.log
    assert {name: value for name, value in job.outputs.items() if value} == {"exit-code": "2"}
    assert not (workspace / "releases").exists()
    assert job.uploads == {}


# --- the installation ---------------------------------------------------------------------------------------


@pytest.mark.each_run(0)
def test_gate_is_installed_from_the_actions_own_checkout(workspace: Path, tmp_path: Path) -> None:
    """Into an environment of its own; modules of the workspace do not pass for Python's, and no index is needed here.

    In the place of setup-python stands a Python whose new environments see the packages of this one, so that pip has
    nothing to fetch.
    """
    checkout = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".venv", ".git", "*cache*", "gate-demo", "tests", "benchmarks")
    shutil.copytree(ROOT, checkout, ignore=ignored)
    errors = checkout / "gate" / "errors.py"
    errors.write_text(errors.read_text() + "\nWHERE = __file__\n")
    for module in ("venv", "pip", "yaml", "gate"):
        (workspace / f"{module}.py").write_text("open('pwned', 'w')\nraise SystemExit(9)\n")
    python = tmp_path / "python"
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    python.write_text(
        f'#!/bin/sh\n"{sys.executable}" "$@" || exit\nfor last; do :; done\n'
        f'for place in "$last"/lib/python*/site-packages; do echo "{packages}" >"$place/seen.pth"; done\n'
    )
    python.chmod(0o755)
    env = {**CLEAN, "RUNNER_TEMP": str(tmp_path), "GITHUB_ACTION_PATH": str(checkout / ".github/actions/release-gate")}
    # pip reads the third of these the other way round: 0 builds without an environment of its own.
    env |= {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PYTHONPATH": str(workspace)}
    values = {"steps.python.outputs.python-path": str(python)}
    result = runner.run(STEPS["install"], values, workspace, env)
    assert result.code == 0, result.log
    assert not (workspace / "pwned").exists()
    place = Path(result.outputs["place"])
    command = [str(place / "venv" / "bin" / "python"), "-I", "-c", "import gate.errors; print(gate.errors.WHERE)"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(found).is_relative_to(place / "venv")


# --- the files agree with each other and with gate ----------------------------------------------------------


def test_every_option_that_the_action_passes_is_one_of_gate_run() -> None:
    """Every option of `gate run` that a workflow needs is also an input, under the same name."""
    passed = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", STEPS["gate"]["run"]))
    options = {name for option in cli.commands["run"].params for name in option.opts if name.startswith("--")}
    assert passed <= options
    assert options - passed == OWN
    assert passed - {"--ledger", "--dry-run"} == {f"--{name}" for name in ACTION["inputs"] if name not in OWN_INPUTS}


def test_every_input_and_output_is_documented() -> None:
    for about in [*ACTION["inputs"].values(), *ACTION["outputs"].values()]:
        assert about["description"].endswith(".")
    assert [name for name, about in ACTION["inputs"].items() if about.get("required")] == ["release", "policy"]
    assert set(ACTION["outputs"]) == {
        *("outcome", "exit-code", "report-html", "report-md", "verdict-json"),
        *("calibrator", "calibrator-sha256", "predicate", "manifest-sha256"),
    }


def test_the_folders_readme_lists_every_input_and_output() -> None:
    """The README has the words of the action itself, and the defaults."""
    text = (ROOT / ".github" / "actions" / "release-gate" / "README.md").read_text()
    shown = {
        name: (rest[0], rest[-1])
        for name, *rest in re.findall(r"^\| `([\w-]+)` \| (?:(.*?) \| )?(.*) \|$", text, re.MULTILINE)
    }
    for name, about in {**ACTION["inputs"], **ACTION["outputs"]}.items():
        default, meaning = shown.pop(name)
        assert meaning == " ".join(about["description"].split()).rstrip(".")
        if name in ACTION["inputs"]:
            given = f"`{about['default']}`" if about.get("default") else "empty"
            assert default == ("required" if about.get("required") else given)
    assert shown == {}


def test_the_reusable_workflow_has_the_inputs_of_the_action() -> None:
    """It lacks only inputs on places on the runner, which is gone after the call, and what needs the right to push."""
    called = WORKFLOW[True]["workflow_call"]  # YAML 1.1 reads the key `on` as true
    [step] = [step for step in WORKFLOW["jobs"]["gate"]["steps"] if step.get("id") == "gate"]
    assert step["uses"] == "$/.github/actions/release-gate"
    own = {"scores-artifact", "attest", "comment"}
    passed = {name for name, value in step["with"].items() if value == f"${{{{ inputs.{name} }}}}"}
    places = {"out", "force", "ledger-branch", "scratch", "flagged"}
    assert set(called["inputs"]) - own == passed == set(ACTION["inputs"]) - places
    assert set(step["with"]) - passed == {"out"}  # a release's name may be no directory's, such as 7/merge
    for name in passed:
        assert called["inputs"][name].get("default") == ACTION["inputs"][name].get("default"), name


# --- the jobs of the reusable workflow ----------------------------------------------------------------------

JOBS: dict[str, Any] = WORKFLOW["jobs"]
FROM_HERE = {
    "github.event_name": "pull_request",
    "github.event.pull_request.head.repo.full_name": "me/model",
    "github.repository": "me/model",
    "github.event.pull_request.number": "7",
}


def release_in(directory: Path) -> Path:
    """Make a release directory as the artifact unpacks it."""
    import numpy as np

    import gate

    scores = np.random.default_rng(1).beta(0.5, 8, 40_000)
    gate.run(scores[:20_000], scores[20_000:], release="v1").write(directory / "release")
    return directory / "release"


def test_each_job_has_the_least_permissions() -> None:
    assert WORKFLOW["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "gate": {"contents": "read"},
        "attest": {"id-token": "write", "attestations": "write"},
        "comment": {"pull-requests": "write"},
    }


@pytest.mark.parametrize(
    ("job", "given", "runs"),
    [
        ("attest", {"inputs.attest": "true", "github.event_name": "push"}, True),
        ("attest", {"inputs.attest": "true"}, False),
        *(
            ("attest", {"inputs.attest": "true", "github.event_name": event}, False)
            for event in ("pull_request_target", "workflow_dispatch", "schedule", "workflow_run", "merge_group")
        ),
        ("attest", {"inputs.attest": "", "github.event_name": "push"}, False),
        ("attest", {"inputs.attest": "true", "github.event_name": "push", "needs.gate.outputs.outcome": ""}, False),
        ("comment", {"inputs.comment": "true"}, True),
        ("comment", {"inputs.comment": ""}, False),
        ("comment", {"inputs.comment": "true", "github.event_name": "push"}, False),
        ("comment", {"inputs.comment": "true", "github.event.pull_request.head.repo.full_name": "fork/model"}, False),
    ],
)
def test_a_verdict_is_attested_and_commented_on_also_when_it_fails(job: str, given: dict[str, str], runs: bool) -> None:
    values = {"needs.gate.outputs.outcome": "fail", **FROM_HERE, **given}
    assert runner.wanted(JOBS[job]["if"], values, failed=True) == runs


def test_what_is_attested_is_what_was_judged(tmp_path: Path) -> None:
    """The subjects and the predicate are files of the release, and every file has the digest that the gate gave."""
    release = release_in(tmp_path)
    compare, attest = JOBS["attest"]["steps"][-2:]
    assert JOBS["comment"]["steps"][-2] == compare  # the text that people read is compared too
    subjects = [path for line in attest["with"]["subject-path"].split() for path in tmp_path.glob(line)]
    assert [path.name for path in subjects] == ["calibrator.joblib", "calibrator.json", "verdict.json"]
    assert all(path.is_file() for path in [*subjects, tmp_path / attest["with"]["predicate-path"]])
    judged = hashlib.sha256((release / "manifest.json").read_bytes()).hexdigest()
    values = {"needs.gate.outputs.manifest-sha256": judged}
    assert runner.run(compare, values, tmp_path, CLEAN).code == 0
    assert runner.run(compare, {}, tmp_path, CLEAN).code != 0
    for name in RELEASE_FILES:
        content = (release / name).read_bytes()
        for forged in (content + b" ", b"", None):
            (release / name).unlink()
            if forged is not None:
                (release / name).write_bytes(forged)
            assert runner.run(compare, values, tmp_path, CLEAN).code != 0, name
            (release / name).write_bytes(content)
    assert runner.run(compare, values, tmp_path, CLEAN).code == 0
    (release / "calibrator.pkl").write_bytes(b"")
    assert runner.run(compare, values, tmp_path, CLEAN).code != 0


def test_a_release_of_several_detectors_is_attested_with_each_of_them(tmp_path: Path) -> None:
    """The detectors' directories are accepted; any other directory is refused, and so is a link in place of one."""
    release = tmp_path / "release"
    files = {f"detectors/{name}/{file}": b"x" for name in "ab" for file in ("calibrator.joblib", "verdict.json")}
    files |= dict.fromkeys(("verdict.json", "predicate.json"), b"y")
    for name, content in files.items():
        (release / name).parent.mkdir(parents=True, exist_ok=True)
        (release / name).write_bytes(content)
    manifest = manifest_of(files)
    (release / "manifest.json").write_bytes(manifest)
    compare, attest = JOBS["attest"]["steps"][-2:]
    values = {"needs.gate.outputs.manifest-sha256": hashlib.sha256(manifest).hexdigest()}
    result = runner.run(compare, values, tmp_path, CLEAN)
    assert result.code == 0, result.log
    subjects = {path for line in attest["with"]["subject-path"].split() for path in tmp_path.glob(line)}
    assert subjects == {release / name for name in files if name != "predicate.json"}
    (release / "detectors" / "c").mkdir()
    assert runner.run(compare, values, tmp_path, CLEAN).code != 0
    (release / "detectors" / "c").rmdir()
    (release / "detectors" / "a").rename(tmp_path / "a")
    (release / "detectors" / "a").symlink_to(tmp_path / "a")
    assert runner.run(compare, values, tmp_path, CLEAN).code != 0


@pytest.mark.parametrize("job", ["attest", "comment"])
def test_a_release_sealed_again_is_neither_attested_nor_shown(job: str, tmp_path: Path) -> None:
    """A predicate that was changed together with its manifest agrees with itself, and not with what was judged."""
    release = release_in(tmp_path)
    compare = JOBS[job]["steps"][-2]
    values = {
        "needs.gate.outputs.manifest-sha256": hashlib.sha256((release / "manifest.json").read_bytes()).hexdigest()
    }
    files = {path.name: path.read_bytes() for path in release.iterdir() if path.name != "manifest.json"}
    files["predicate.json"] = (
        files["predicate.json"].replace(b"FAILED", b"PASSED").replace(b"WARNED", b"PASSED") + b"\n"
    )
    files["report.md"] = files["report.md"].replace(b"FAIL", b"PASS") + b"\n"
    for name in ("predicate.json", "report.md"):
        (release / name).write_bytes(files[name])
    (release / "manifest.json").write_bytes(manifest_of(files))
    assert runner.run(compare, values, tmp_path, CLEAN).code != 0


def test_the_predicate_type_is_the_one_that_gate_writes() -> None:
    from gate.report.predicate import TYPE

    assert JOBS["attest"]["steps"][-1]["with"]["predicate-type"] == TYPE


@pytest.mark.parametrize("existing", ["", "41"])
def test_one_comment_is_kept_up_to_date(tmp_path: Path, existing: str) -> None:
    """`gh` is asked for the comment with the marker, and then changes it or writes the first."""
    release_in(tmp_path)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "gh"
    script.write_text(
        "#!/bin/sh\nprintf '%s\\n' \"$*\" >>calls\n"
        f'case "$*" in *--paginate*) [ "$marker" = "<!-- release-gate a b -->" ] && echo "{existing}" ;; esac\n'
    )
    script.chmod(0o755)
    [*_, step] = JOBS["comment"]["steps"]
    env = {**CLEAN, "PATH": f"{tmp_path / 'bin'}:{CLEAN['PATH']}"}
    values = {**FROM_HERE, "inputs.artifact": "a b", "github.token": "none"}
    result = runner.run(step, values, tmp_path, env)
    assert result.code == 0, result.log
    _, call = (tmp_path / "calls").read_text().splitlines()
    target = "PATCH repos/me/model/issues/comments/41" if existing else "POST repos/me/model/issues/7/comments"
    assert call == f"api --silent --method {target} --field body=@comment.md"
    comment = (tmp_path / "comment.md").read_text()
    assert comment == "<!-- release-gate a b -->\n" + (tmp_path / "release" / "report.md").read_text()


def test_the_longest_report_fits_into_a_comment() -> None:
    assert markdown.MAX_BYTES + 1000 <= 65_536
    assert max(len(markdown.render(record)) for record in RECORDS.values()) <= markdown.MAX_BYTES
