"""Runs that are killed, stopped, starved of memory or disk, or that meet another: nothing is lost, nothing is half."""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest
from benchmarks.kill_loop import (
    GATE,
    STOPS,
    arguments,
    environment,
    kill_loop,
    snapshot,
    write_inputs,
)
from drawing import often

pytestmark = pytest.mark.figures
RUN = ["run", "--policy", "policy.yaml", "--release", "v1", "--fit", "fit.npy", "--out", "releases/v1"]


def gate(
    *args: str,
    cwd: Path,
    before: str = "",
    command: list[str] | None = None,
) -> subprocess.CompletedProcess[str]:
    if command is None:
        return commands.gate(*args, cwd=cwd, before=before)
    return subprocess.run(
        [*command, *args],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_inputs(tmp_path)
    return tmp_path


def everything(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


class Forked:
    """A run that is forked from a process which has imported everything: what the tests use of `subprocess.Popen`."""

    def __init__(self, place: Path, words: list[str], before: str = "") -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115, `communicate` closes it
        self.process: Any = commands.start(*words, cwd=place, env=environment(), stderr=self.log, before=before)
        self.pid = self.process.pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.process.has_ended():
            self.returncode = self.process.wait()
        return self.returncode

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def communicate(self, timeout: float) -> tuple[None, str]:
        self.returncode = self.process.wait(timeout)
        with self.log as log:
            log.seek(0)
            return None, log.read().decode()


def test_kills_lose_nothing(tmp_path: Path) -> None:
    """`tests/benchmarks/kill_loop.py` does two hundred, of new interpreters."""
    kills = often(10, 20)
    counts = kill_loop(kills, 1, tmp_path, lambda place, holdout: Forked(place, arguments(holdout)))
    assert sum(counts.values()) == kills
    assert sum(count for what, count in counts.items() if "ended" not in what) >= kills // 2


# This run gets a signal at one chosen point, whatever the machine's speed.
STOPPED = """\
import contextlib, os, time
from gate import gating, storage
real = {place}
def stop(*args, **kwargs):
    with contextlib.suppress({swallowed}):
        os.kill(os.getpid(), {number})
        time.sleep(60)
    return real(*args, **kwargs)
{place} = stop
"""


def stopped(here: Path, number: signal.Signals, place: str, swallowed: str) -> None:
    before = everything(here)
    code = STOPPED.format(number=int(number), place=place, swallowed=swallowed)
    result = gate(*RUN, "--holdout", "one.npy", cwd=here, before=code)
    assert result.returncode == STOPS[number]
    lines = result.stderr.splitlines()
    assert lines[-1] == f"gate: stopped by {number.name}"
    assert all(line.startswith("gate: ") for line in lines)
    assert [path for path in everything(here) if path != "releases"] == before


@pytest.mark.each_run(2)
@pytest.mark.parametrize("place", ["gating.gate_release", "storage.write", "storage._put_in_place"])
@pytest.mark.parametrize("number", STOPS)
def test_a_stopped_run_says_so_and_leaves_nothing(here: Path, number: signal.Signals, place: str) -> None:
    """It is stopped before rows are counted, before anything is written, and before what is written gets its name."""
    stopped(here, number, place, "")


def test_a_stop_that_a_library_swallows_is_heeded_before_anything_is_written(here: Path) -> None:
    """Some libraries catch whatever is raised in them while they are imported."""
    stopped(here, signal.SIGTERM, "gating.gate_release", "BaseException")


def test_a_signal_that_the_caller_ignores_stops_nothing(here: Path) -> None:
    """This is so under nohup, or in the background of a shell."""
    code = "import os, signal\nfrom gate import gating\nreal = gating.gate_release\n"
    code += "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)]\n"
    code += "def stop(*args, **kwargs):\n    os.kill(0, 0)\n    [os.kill(os.getpid(), n) for n in (2, 15)]\n"
    code += "    return real(*args, **kwargs)\ngating.gate_release = stop\n"
    result = gate(*RUN, "--holdout", "one.npy", cwd=here, before=code)
    assert result.returncode == 0, result.stderr
    assert (here / "releases" / "v1" / "verdict.json").exists()


# This run waits until the file `go` is there, when all is judged and nothing is written.
WAITING = """\
import os, pathlib, time
from gate import storage
real = storage.write
def write(*args, **kwargs):
    pathlib.Path(f"ready-{os.getpid()}").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.001)
    real(*args, **kwargs)
storage.write = write
"""


@pytest.mark.each_run(1)
@pytest.mark.parametrize("force", [False, True])
def test_of_two_runs_at_once_one_wins_whole_and_the_other_says_so(here: Path, force: bool) -> None:
    if force:
        assert gate(*RUN, "--holdout", "two.npy", cwd=here).returncode in (0, 1, 3)
    extra = ["--force"] if force else []
    runs = {name: Forked(here, [*RUN, "--holdout", f"{name}.npy", *extra], WAITING) for name in ("one", "two")}
    while len([*here.glob("ready-*")]) < 2 and all(run.poll() is None for run in runs.values()):
        time.sleep(0.01)
    (here / "go").touch()
    said = {name: run.communicate(timeout=120)[1] for name, run in runs.items()}
    codes = {name: run.returncode for name, run in runs.items()}
    losers = [name for name, code in codes.items() if code == 2]
    assert len(losers) == 1, (codes, said)
    assert "another run has written meanwhile" in said[losers[0]].splitlines()[-1]
    winner = next(name for name in runs if name not in losers)
    assert f"{winner}.npy" in (here / "releases" / "v1" / "verdict.json").read_text()
    assert everything(here / "releases").count("v1") == 1
    assert [path.name for path in (here / "releases").iterdir()] == ["v1"]
    assert gate("verify", "releases/v1", cwd=here).returncode == 0


def no_file_above(size: int) -> str:
    code = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    return code + f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"


def test_a_full_disk_leaves_the_release_that_was_there(here: Path) -> None:
    """The system's limit on a file's size has the effect that a full disk has on the largest file."""
    assert gate(*RUN, "--holdout", "one.npy", cwd=here).returncode == 0
    before = snapshot(here / "releases" / "v1")
    result = gate(*RUN, "--holdout", "two.npy", "--force", cwd=here, before=no_file_above(100_000))
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith(
        "releases/v1: must be writable, got File too large; nothing was written"
    )
    assert snapshot(here / "releases" / "v1") == before
    assert [path.name for path in (here / "releases").iterdir()] == ["v1"]


def test_a_packed_file_that_does_not_fit_beside_is_refused(here: Path) -> None:
    text = "score\n" + "\n".join(map(str, np.random.default_rng(0).random(20_000)))
    (here / "large.csv.gz").write_bytes(gzip.compress(text.encode()))
    result = gate(*RUN, "--holdout", "large.csv.gz", "--dry-run", cwd=here, before=no_file_above(10_000))
    assert result.returncode == 2
    said = "gate: large.csv.gz: must fit into the directory for temporary files, got: File too large"
    assert result.stderr.splitlines()[-1] == f"{said}; name one with more room with --scratch"


def addresses(size: int) -> str:
    return f"import resource\nresource.setrlimit(resource.RLIMIT_AS, ({size}, {size}))\n"


@pytest.mark.each_run(1)
def test_a_file_larger_than_the_addresses_is_refused(here: Path) -> None:
    """The file is sparse and has 40 GB, as its header says; there are 4 GB of addresses to read it."""
    rows = 5 * 10**9
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows},), }}".ljust(117) + "\n"
    with open(here / "huge.npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        file.truncate(file.tell() + 8 * rows)
    result = gate(*RUN, "--holdout", "huge.npy", cwd=here, before=addresses(4 << 30))
    assert result.returncode == 2, result.stderr
    said = "gate: huge.npy: must hold the 40,000,000,128 bytes that it claims, got a file that is nearly all holes"
    assert result.stderr.splitlines()[-1].startswith(said)
    assert not (here / "releases").exists()


@pytest.mark.each_run(1)
@pytest.mark.parametrize("function", ["fit_ordered", "rendered"])
def test_memory_that_runs_out_later_is_no_crash(here: Path, function: str) -> None:
    code = "import gate.gating\ndef fail(*args, **kwargs):\n    raise MemoryError\n"
    code += f"gate.gating.{function} = fail\n"
    result = gate(*RUN, "--holdout", "one.npy", cwd=here, before=code)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("gate: memory: must have room for this run, got too little; ")
    assert "Traceback" not in result.stderr
    assert not (here / "releases").exists()


def test_a_read_only_place_is_refused_before_any_work(here: Path) -> None:
    (here / "releases").mkdir(mode=0o500)
    user = [] if os.geteuid() else ["setpriv", "--reuid", "65534", "--clear-groups"]
    for path in [here, *here.iterdir()]:
        path.chmod(0o755)
    (here / "releases").chmod(0o555)
    reachable = subprocess.run([*user, "test", "-r", str(here / "fit.npy")]).returncode == 0
    if user and not reachable:
        pytest.skip("another user cannot reach the temporary directory")
    result = gate(*RUN, "--holdout", "one.npy", cwd=here, command=[*user, *GATE])
    assert result.returncode == 2, result.stderr
    assert "releases/v1: must be in a directory that can be written" in result.stderr
    assert everything(here / "releases") == []


def test_a_signal_that_falls_into_the_clearing_up_of_an_object_still_stops() -> None:
    """Python drops an exception that is raised there; the run must end all the same, and without a traceback."""
    code = """
import os, signal, sys, time
from gate import cli
class Cleared:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000): pass
@cli.cli.command()
def wait():
    Cleared()
    time.sleep(30)
cli.main(["wait"])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (result.returncode, result.stderr) == (143, "gate: stopped by SIGTERM\n")
