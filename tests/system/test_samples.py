"""The checks of the data: shared rows, coarse scores, rates beyond the fit sample, old rows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import commands
import numpy as np

TARGETS = "targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"


# --- as a user sees them ------------------------------------------------------------------------------------


def run(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.gate("run", "--release", "r", "--json", "--dry-run", *arguments, cwd=cwd)


def test_a_check_without_its_column_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(f"version: 1\nname: x\n{TARGETS}checks: {{freshness: {{max_age_days: 3}}}}\n")
    result = run(tmp_path, "--policy", "p.yaml", "--fit", "absent.npy", "--holdout", "absent.npy")
    assert result.returncode == 2
    assert result.stderr == (
        "gate: p.yaml:4: checks.freshness: must have data.timestamp name a column, got null; "
        "write `data: {timestamp: NAME}` or give --set data.timestamp=NAME\n"
    )


def test_the_same_file_is_not_counted_twice(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.linspace(0, 1, 100))
    np.save(tmp_path / "b.npy", np.linspace(0, 0.9, 100))
    (tmp_path / "link.npy").symlink_to("a.npy")
    for again in ("a.npy", "./a.npy", "*.npy", "link.npy"):
        result = run(tmp_path, "--fit", "a.npy", "--fit", again, "--holdout", "b.npy")
        assert result.returncode == 2
        assert "must be read once, got the same file again as a.npy; name it once" in result.stderr
