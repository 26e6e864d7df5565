"""Files are put where they were named: through no link of a checkout, and so that a power cut loses none."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from drawing import often
from small import contents, gate, log_lines, write_inputs


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and beside it one that nobody may reach through a link."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "checkout")
    return tmp_path / "checkout"


def link(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(Path.cwd().parent / "elsewhere")


@pytest.mark.parametrize("linked", ["releases", "releases/v1", "demo", "demo/releases", "demo/benign-fit.parquet"])
def test_commands_write_through_no_link(checkout: Path, linked: str) -> None:
    write_inputs(checkout)
    link(Path(linked))
    if linked.startswith("releases"):
        result = gate(
            *("run", "--policy", "policy.yaml", "--fit", "fit.npy", "--holdout", "pass.npy", "--release", "v1"),
            cwd=checkout,
        )
    else:
        result = gate("demo", "--out", "demo", "--force", cwd=checkout)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert linked in result.stderr
    assert list((checkout.parent / "elsewhere").iterdir()) == []


RUN = ("run", "--policy", "policy.yaml", "--fit", "fit.npy", "--holdout", "pass.npy", "--release", "v2")
SPLIT = ("run", "--policy", "policy.yaml", "--benign", "scores.csv", "--split", "50%", "--release", "v2")
SEVERAL = """\
version: 1
name: both
targets: [{fpr: 10%, min_n: 100, max_relative_error: 0.9}]
detectors: [{name: a, score: a}, {name: b, score: b}]
"""


def with_(option: str, value: str) -> tuple[str, ...]:
    """The arguments of a run with another value for one option."""
    at = RUN.index(option) + 1
    return (*RUN[:at], value, *RUN[at + 1 :])


OVERWRITING = [  # a command, the option that names its output, and the input that lies there
    (with_("--holdout", "scores.csv"), "--flagged", "scores.csv"),
    (with_("--fit", "."), "--flagged", "scores.csv"),
    (with_("--fit", "./s*.csv"), "--flagged", "scores.csv"),
    (SPLIT, "--flagged", "scores.csv"),
    ((*RUN, "--malicious", "scores.csv"), "--flagged", "scores.csv"),
    (with_("--policy", "own.yaml"), "--flagged", "scores.csv"),
    ((*RUN, "--baseline", "releases/v1", "--baseline-holdout", "scores.csv"), "--flagged", "scores.csv"),
    (with_("--policy", "policy.csv"), "--flagged", "policy.csv"),
    ((*RUN, "--ledger", "scores.csv"), "--flagged", "scores.csv"),
    (("check", "releases/v1", "--holdout", "scores.csv"), "--flagged", "scores.csv"),
    (RUN, "--ledger", "policy.yaml"),
    ((*RUN, "--baseline", "releases/v1"), "--ledger", "releases/v1/report.md"),
    (("check", "releases/v1", "--holdout", "scores.csv"), "--ledger", "releases/v1/verdict.json"),
    (("check", "releases/both", "--holdout", "scores.csv"), "--ledger", "scores.csv"),
    ((*SPLIT[:2], "both.yaml#a", *SPLIT[3:]), "--ledger", "both.yaml"),
    (("report", "releases/v1"), "-o", "releases/v1/verdict.json"),
    (("compare", "releases/v1", "releases/v1"), "-o", "releases/v1/report.md"),
    (("history", "releases"), "-o", "releases/v1/verdict.json"),
    (("export", "releases/v1", "--to", "onnx"), "-o", "releases/v1/calibrator.json"),
]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of one detector and one of two, and a score file that any option may name."""
    made = tmp_path_factory.mktemp("released")
    write_inputs(made)
    rows = "".join(f"{i},{score},{score},{score}\n" for i, score in enumerate(np.load(made / "pass.npy")[:5000]))
    (made / "scores.csv").write_text(f"id,score,a,b\n{rows}")
    policy = (made / "policy.yaml").read_text()
    (made / "own.yaml").write_text(f"{policy}data: {{malicious: scores.csv}}\n")
    (made / "both.yaml").write_text(SEVERAL)
    (made / "policy.csv").write_text(policy)
    both = ("run", "--policy", "both.yaml", "--benign", "scores.csv", "--split", "50%", "--release", "both")
    for args in ((*RUN[:-1], "v1"), both):
        result = gate(*args, cwd=made)
        assert result.returncode in (0, 1, 3), result.stderr
    return made


@pytest.fixture
def place(checkout: Path, released: Path) -> Path:
    shutil.copytree(released, checkout, dirs_exist_ok=True)
    return checkout


@pytest.mark.parametrize("seed", range(often(2, 20)))
def test_no_command_writes_over_its_own_input(place: Path, seed: int) -> None:
    """Whichever option reads it, whatever name it is written by, in a dry run too; it ends before any row is read."""
    rng = random.Random(seed)
    for args, option, path in OVERWRITING:
        name = rng.choice(["same", "dotted", "absolute", "hard", "symbolic"])
        other = f"../other{Path(path).suffix}"
        Path(other).unlink(missing_ok=True)
        if name in ("hard", "symbolic"):
            (os.link if name == "hard" else os.symlink)(place / path, other)
        written = {"same": path, "dotted": f"./x/../{path}", "absolute": str(place / path)}.get(name, other)
        dry = ["--dry-run"] if args[0] in ("run", "check") and rng.random() < 0.5 else []
        before = contents(place.parent)
        result = gate(*args, *dry, option, written, cwd=place)
        assert (result.returncode, result.stdout) == (2, ""), (args, written)
        (line,) = log_lines(result)
        said = "must lead through no symbolic link" if name == "symbolic" else "must be no input of this run"
        assert said in line, (args, written)
        assert contents(place.parent) == before, (args, written)


@pytest.mark.parametrize(
    "args",
    [
        (*RUN, "--flagged", "out.csv"),
        (*RUN, "--dry-run", "--flagged", "out.csv"),
        (*RUN, "--ledger", "out.csv"),
        ("check", "releases/v1", "--holdout", "pass.npy", "--flagged", "out.csv"),
        ("report", "releases/v1", "-o", "out.csv", "--format", "md"),
        ("export", "releases/v1", "--to", "sql", "-o", "out.csv"),
        ("history", "releases", "-o", "out.csv", "--format", "md"),
        ("compare", "releases/v1", "releases/v1", "-o", "out.csv", "--format", "md"),
    ],
    ids=lambda args: " ".join(each for each in args if each[:2] in ("ru", "ch", "re", "ex", "hi", "co", "pl", "--")),
)
def test_what_is_no_plain_file_is_not_written_to(place: Path, args: tuple[str, ...]) -> None:
    out = Path(next(each for each in args if each.startswith("out.")))
    victim = place.parent / "elsewhere" / "profile"
    victim.write_text("kept")
    kinds: list[tuple[str, Callable[[], None]]] = [
        ("must lead through no symbolic link, got one at", lambda: out.symlink_to(victim)),
        ("must lead through no symbolic link, got one at", lambda: out.symlink_to(victim.with_name("no"))),
        ("must be a file, got a pipe", lambda: os.mkfifo(out)),
        ("must be a file, got a directory", out.mkdir),
    ]
    for said, make in kinds:
        make()
        before, mode = contents(place.parent), out.lstat().st_mode
        result = gate(*args, cwd=place)
        assert (result.returncode, result.stdout) == (2, "")
        assert said in log_lines(result)[-1]
        assert (contents(place.parent), out.lstat().st_mode) == (before, mode)
        out.unlink() if out.is_symlink() or not out.is_dir() else out.rmdir()


@pytest.mark.parametrize("name", ["notes.md", "holdout.npy", "ledger.jsonl", "detectors/a/labels.csv"])
def test_force_replaces_a_release_and_nothing_else(place: Path, name: str) -> None:
    release = "releases/both" if name.startswith("detectors") else "releases/v1"
    (place / release / name).write_text("precious")
    before = contents(place)
    result = gate(*RUN, "--out", release, "--force", cwd=place)
    assert (result.returncode, result.stdout) == (2, "")
    must = f"{release}: must hold nothing but a release for --force to replace it, got {name}; "
    assert log_lines(result) == [f"{must}move it away, or choose another --out"]
    assert contents(place) == before
    (place / release / name).unlink()
    assert gate(*RUN, "--out", release, "--force", cwd=place).returncode == 0


def test_no_release_replaces_the_one_that_it_is_held_against(place: Path) -> None:
    before = contents(place)
    for args in ((*RUN, "--baseline", "releases/v1"), ("check", "releases/v1", "--holdout", "pass.npy")):
        result = gate(*args, "--out", "releases/v1", "--force", cwd=place)
        assert result.returncode == 2
        assert "must be no input of this run" in log_lines(result)[0]
    assert contents(place) == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "nothing was written"),
        (["--flagged", "out.csv"], "only out.csv was written"),
        (["--ledger", "uses.jsonl"], "only the ledger's line was written"),
        (["--flagged", "out.csv", "--ledger", "uses.jsonl"], "only out.csv and the ledger's line were written"),
    ],
)
def test_a_dry_run_says_what_it_wrote(place: Path, given: list[str], said: str) -> None:
    before = contents(place)
    result = gate(*RUN, "--dry-run", *given, cwd=place)
    assert result.returncode == 0
    assert log_lines(result)[-1] == f"dry run: {said}"
    assert contents(place).keys() - before.keys() == {name for name in given if not name.startswith("--")}


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_policy_that_is_a_pipe_is_not_waited_for(place: Path, command: str) -> None:
    os.mkfifo("pipe")
    args = {"run": with_("--policy", "pipe"), "plan": ("plan", "--policy", "pipe")}
    result = gate(*args[command], cwd=place)
    assert (result.returncode, result.stdout) == (2, "")
    assert log_lines(result)[0].startswith("pipe: must be a readable policy file, got: something that is no file; ")


def test_what_was_written_may_be_written_again(place: Path) -> None:
    """An output beside what was read, or within a release without being of it, is no input."""
    for args in (
        ("history", "releases", "-o", "releases/history.html"),
        ("export", "releases/v1", "--to", "sql", "-o", "releases/v1/thresholds.sql"),
        ("report", "releases/v1", "-o", "report.md"),
        (*RUN, "--dry-run", "--flagged", "flagged.csv", "--ledger", "uses.jsonl"),
        ("init", "--scores", "fit.npy", "pass.npy", "--force"),
        ("demo", "--force"),
    ):
        for _ in range(2):
            result = gate(*args, cwd=place)
            assert result.returncode == 0, result.stderr
