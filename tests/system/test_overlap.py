"""The overlap check: copies of fit rows among the held-out ones, told from scores that are alike by chance."""

from __future__ import annotations

import json
from pathlib import Path

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

# --- judged -------------------------------------------------------------------------------------------------


def test_a_leak_fails_the_release_and_is_recorded(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    fit, holdout = rng.beta(0.5, 8, 200_000), rng.beta(0.5, 8, 200_000)
    holdout[:50_000] = fit[:50_000]
    pa.parquet.write_table(pa.table({"score": fit}), tmp_path / "fit.parquet")
    pa.parquet.write_table(pa.table({"score": holdout}), tmp_path / "holdout.parquet")
    arguments = ("--release", "r", "--json", "--dry-run", "--fit", "fit.parquet", "--holdout", "holdout.parquet")
    result = commands.gate("run", *arguments, cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    record = json.loads(result.stdout)
    assert record["reason"] == "held-out rows are among the fit rows"
    assert record["checks"]["overlap"]["scores"]["across"] == pytest.approx(50_000, rel=0.02)
