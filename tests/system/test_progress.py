"""Progress: a line on a terminal for whatever takes longer than two seconds, and nothing anywhere else."""

from __future__ import annotations

import os
import pty
import time
from pathlib import Path

import commands
import numpy as np
import pytest
from small import CLEAN

SILENT = {name: value for name, value in CLEAN.items() if name != "CI"} | {"TERM": "xterm"}


def stderr_of(cwd: Path, seconds: float, **environment: str) -> str:
    """What a terminal shows while the held-out scores take so long to come."""
    np.save(cwd / "fit.npy", np.linspace(0, 1, 100))
    ours, theirs = pty.openpty()
    reading, writing = os.pipe()
    words = ("run", "--release", "r", "--fit", "fit.npy", "--holdout", "-", "--dry-run")
    process = commands.start(*words, cwd=cwd, stdin=reading, stderr=theirs, env={**SILENT, **environment})
    for end in (theirs, reading):
        os.close(end)
    seen = b""
    while b"fit: 100 rows" not in seen:  # now it waits for the held-out ones
        seen += os.read(ours, 4096)
    time.sleep(seconds)
    os.write(writing, b"0.5\n0.25\n")
    os.close(writing)
    try:
        while piece := os.read(ours, 4096):
            seen += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    assert process.wait(60) == 3
    os.close(ours)
    return seen.decode()


def test_a_long_wait_is_explained_and_leaves_no_trace(tmp_path: Path) -> None:
    shown = stderr_of(tmp_path, 3.0)
    assert "reading -" in shown
    assert shown.rstrip().endswith("dry run: nothing was written")
    assert "\x1b[2K" in shown, "the line is cleared"


def test_a_short_wait_is_not(tmp_path: Path) -> None:
    assert "reading -" not in stderr_of(tmp_path, 0.0)


@pytest.mark.each_run(1)
@pytest.mark.parametrize("variable", ["CI", "NO_COLOR"])
def test_nor_one_in_ci(tmp_path: Path, variable: str) -> None:
    assert "reading" not in stderr_of(tmp_path, 3.0, **{variable: "true"})
