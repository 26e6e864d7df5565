"""Numbers from a pipe are scores like those of a file."""

from __future__ import annotations

from pathlib import Path

import commands
import numpy as np
import pytest

VALUES = np.round(np.random.default_rng(3).beta(0.5, 8, 400), 6)


@pytest.mark.parametrize(
    ("content", "code", "sentence"),
    [
        ("0.5\n0.25\n0.125\n", 3, "3 rows from -: 3 benign, none refused"),
        ("0.5\nabc\n", 2, "stdin.csv: column 'score' must hold numbers, got 'abc' in row 2"),
        ("", 2, "-: must hold at least 2 benign scores, got 0"),
    ],
)
def test_numbers_on_stdin(content: str, code: int, sentence: str, tmp_path: Path) -> None:
    np.save(tmp_path / "fit.npy", VALUES)
    (tmp_path / "stdin").write_text(content)
    with open(tmp_path / "stdin", "rb") as stdin:
        result = commands.gate("run", "--release", "r", "--fit", "fit.npy", "--holdout", "-", cwd=tmp_path, stdin=stdin)
    assert (result.returncode, sentence in result.stderr) == (code, True), result.stderr
