"""The Python API: the same verdict and the same bytes from arrays, Arrow and data frames as from files."""

from __future__ import annotations

import doctest
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pyarrow as pa
import pyarrow.interchange
import pyarrow.parquet
import pytest
from small import CLEAN

import gate
import gate.gating
import gate.systems.release

RNG = np.random.default_rng(5)
FIT, HOLDOUT = RNG.beta(0.5, 8, 60_000), RNG.beta(0.5, 8, 60_000)
CREATED = datetime(2026, 11, 1, tzinfo=UTC)
POLICY = "version: 1\nname: api\ntargets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"


def table(values: np.ndarray) -> pa.Table:
    return pa.table({"id": np.arange(len(values)), "score": values})


def run(fit: Any, holdout: Any, policy: Any = None) -> gate.Release:
    return gate.run(fit, holdout, release="r", policy=policy, created=CREATED)


def test_the_example_of_several_detectors_runs() -> None:
    ran = doctest.testmod(gate.systems.release)
    assert (ran.failed, ran.attempted > 5) == (0, True)


def test_the_command_writes_what_the_api_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, values in (("fit", FIT), ("holdout", HOLDOUT)):
        pa.parquet.write_table(table(values), tmp_path / f"{name}.parquet")
    (tmp_path / "policy.yaml").write_text(POLICY)
    arguments = ["--release", "r", "--policy", "policy.yaml", "--fit", "fit.parquet", "--holdout", "holdout.parquet"]
    environment = {**CLEAN, "SOURCE_DATE_EPOCH": str(int(CREATED.timestamp()))}
    commands.gate("run", *arguments, "--out", "cli", cwd=tmp_path, env=environment).check_returncode()
    monkeypatch.chdir(tmp_path)
    gate.run("fit.parquet", "holdout.parquet", release="r", policy="policy.yaml", created=CREATED).write("api")
    for path in sorted((tmp_path / "cli").iterdir()):
        assert path.read_bytes() == (tmp_path / "api" / path.name).read_bytes(), path.name


THREADED = """
import duckdb, gate, numpy as np, polars as pl, pyarrow.parquet as pq, threading
pl.DataFrame({"x": np.arange(10**6)[::-1]}).sort("x")
print(duckdb.sql("select count(*) from 'fit.parquet'").fetchall()[0][0])
threading.Thread(target=pq.read_table, args=("fit.parquet",)).start()
print(gate.run("fit.parquet", "holdout.parquet", release="r", policy="policy.yaml").outcome)
"""


def test_reading_waits_for_no_thread_of_the_callers(tmp_path: Path) -> None:
    """Files are read in a fork, in which the threads that polars, DuckDB or Arrow have started are gone."""
    for name, values in (("fit", FIT), ("holdout", HOLDOUT)):
        pa.parquet.write_table(table(values), tmp_path / f"{name}.parquet")
    (tmp_path / "policy.yaml").write_text(POLICY)
    command = [sys.executable, "-W", "ignore", "-c", THREADED]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.stdout.split() == ["60000", "pass"], result.stderr


def test_gate_needs_no_data_frame_library() -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("pandas", "polars", "pyarrow"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import gate, numpy as np
print(gate.run(np.linspace(0, 1, 100), np.linspace(0, 1, 99), release="r").outcome)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "inconclusive\n"
