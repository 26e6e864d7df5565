"""A small policy, scores that pass, fail and cannot tell, and `gate` in an environment that says nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import commands
import numpy as np

RELEASE_FILES = [
    "calibrator.joblib",
    "calibrator.json",
    "junit.xml",
    "manifest.json",
    "predicate.json",
    "report.html",
    "report.md",
    "verdict.json",
]


POLICY = """\
version: 1
name: small
targets:
  - {fpr: 10%, min_n: 1000, max_relative_error: 0.5}
  - {fpr: 1%, min_n: 5000, max_relative_error: 0.5}
"""


# Commands must not see what the tests' environment says of terminals and clocks.
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "SOURCE_DATE_EPOCH", "GITHUB_ACTIONS")
}


def gate(
    *args: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    before: str = "",
) -> subprocess.CompletedProcess[str]:
    if command is None:
        return commands.gate(*args, cwd=cwd, env={**CLEAN, **(env or {})}, stdout=stdout, stderr=stderr, before=before)
    return subprocess.run(
        [*command, *args],
        cwd=cwd,
        env={**CLEAN, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def write_inputs(directory: Path, reverse: bool = False) -> None:
    """Benign scores to fit on, and held-out ones that pass, fail and cannot tell."""
    rng = np.random.default_rng(11)
    step = -1 if reverse else 1
    for name, shift, rows in [("fit", 0, 20_000), ("pass", 0, 20_000), ("fail", 1, 20_000), ("inconclusive", 0, 500)]:
        scores = 1 / (1 + np.exp(-rng.normal(-5 + shift, 1.4, rows)))
        np.save(directory / f"{name}.npy", scores[::step])
    (directory / "policy.yaml").write_text(POLICY)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def log_lines(result: subprocess.CompletedProcess[str]) -> list[str]:
    """stderr without the prefix that every line of it has."""
    lines = result.stderr.splitlines()
    assert all(line.startswith("gate: ") for line in lines), result.stderr
    return [line.removeprefix("gate: ") for line in lines]
