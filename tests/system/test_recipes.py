"""The recipes of gate/calibration/README.md, run as they stand there, serve what the calibrator says to the last bit.

GATE_MLFLOW names a Python that has MLflow, a large download; `.ci/run` has one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calibrators import DOMAINS, bits, drawn, exported, predicted, probes, reached
from repository import PACKAGE
from small import gate, write_inputs

from gate.calibration.calibrator import Calibrator
from gate.calibration.export import FILES

README = (PACKAGE / "calibration" / "README.md").read_text(encoding="utf-8")
NOT_FINITE = [np.nan, np.inf, -np.inf]
SEEDS = range(12)


def recipe(heading: str) -> str:
    """The one block of code below a heading."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert section, heading
    (block,) = re.findall(r"^```\w+\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL)
    return block


def run(heading: str, **names: Any) -> dict[str, Any]:
    exec(compile(recipe(heading), f"README: {heading}", "exec"), names)
    return names


@pytest.fixture(params=SEEDS)
def served(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calibrator:
    """Make a drawn calibrator, with its files where the recipes look for them."""
    calibrator = drawn(request.param, domains=DOMAINS)
    monkeypatch.chdir(tmp_path)
    Path("releases/v1").mkdir(parents=True)
    Path("releases/v1/calibrator.joblib").write_bytes(calibrator.artifact)
    Path("releases/v1/calibrator.json").write_text(calibrator.to_json())
    for name, render in FILES.values():
        Path(name).write_bytes(render(exported(calibrator)))
    return calibrator


def points_of(calibrator: Calibrator) -> np.ndarray:
    return probes(calibrator, np.random.default_rng(1), 2_000)


def test_every_recipe_has_its_row_and_its_test() -> None:
    headings = re.findall(r"^## (.+)$", README, re.MULTILINE)
    linked = re.findall(r"^\| \[.*?\]\(#(.*?)\)", README, re.MULTILINE)
    assert [heading.lower().replace(".", "").replace(" ", "-") for heading in headings[:-1]] == linked
    assert headings[-1] == "MLflow"
    own = Path(__file__).read_text(encoding="utf-8")
    assert [heading for heading in headings if f'"{heading}"' not in own] == []


def test_scikit_learn(served: Calibrator) -> None:
    """The pickle that this test wrote; what is no finite number is refused."""
    points = points_of(served)
    with np.errstate(over="ignore"):
        found = run("scikit-learn", scores=points)
    assert np.array_equal(bits(found["calibrated"]), bits(predicted(served, points)))
    for value in NOT_FINITE:
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            found["pipeline"].predict([[value]])


def test_onnx_runtime(served: Calibrator) -> None:
    points = points_of(served)
    found = run("ONNX Runtime", scores=np.concatenate([points, NOT_FINITE]))
    assert np.array_equal(bits(found["calibrated"][: len(points)]), bits(predicted(served, points)))
    assert np.isnan(found["calibrated"][len(points) :]).all()
    assert found["release"] == "v1"


def test_duckdb(served: Calibrator) -> None:
    points = points_of(served)
    scores = [*points.tolist(), *NOT_FINITE, None]
    pq.write_table(pa.table({"score": pa.array(scores, pa.float64())}), "scores.parquet")
    found = [anchor for (anchor,) in run("DuckDB and other SQL")["reached"]]
    assert np.array_equal(found[: len(points)], reached(served, points))
    assert found[len(points) :] == [None] * 4


def test_numpy(served: Calibrator) -> None:
    """The recipe has five lines, as the README promises."""
    points = points_of(served)
    document = json.loads(Path("releases/v1/calibrator.json").read_text())
    with np.errstate(over="ignore"):
        found = run("NumPy")["calibrate"](document, np.concatenate([points, NOT_FINITE]))
    assert np.array_equal(bits(found[: len(points)]), bits(predicted(served, points)))
    assert np.isnan(found[len(points) :]).all()
    assert len(recipe("NumPy").split("\n\n\n")[1].splitlines()) == 5


SERVE = """
import { readFileSync, writeFileSync } from "node:fs";
import { loadCalibrator } from "./calibrate.mjs";
const bytes = readFileSync("scores.bin");
const scores = new Float64Array(bytes.buffer, bytes.byteOffset, bytes.length / 8);
writeFileSync("found.bin", Buffer.from(scores.map(loadCalibrator("releases/v1/calibrator.json")).buffer));
"""


def test_node(served: Calibrator) -> None:
    node = shutil.which("node")
    if not node:
        pytest.skip("node is missing")
    points = points_of(served)
    Path("calibrate.mjs").write_text(recipe("Node.js"))
    Path("serve.mjs").write_text(SERVE)
    np.concatenate([points, NOT_FINITE]).astype("<f8").tofile("scores.bin")
    done = subprocess.run([node, "serve.mjs"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = np.fromfile("found.bin", dtype="<f8")
    assert np.array_equal(bits(found[: len(points)]), bits(predicted(served, points)))
    assert np.isnan(found[len(points) :]).all()


STORE = """
import json, sys
tags = mlflow.get_run(run.info.run_id).data.tags
(found,) = mlflow.search_runs(filter_string="tags.`gate.outcome` = 'pass'", output_format="list")
back = mlflow.artifacts.download_artifacts(run_id=found.info.run_id, artifact_path="release", dst_path="back")
json.dump({"tags": tags, "back": back, "name": found.info.run_name}, sys.stdout)
"""


def test_mlflow(tmp_path: Path) -> None:
    """A real release in a real file store is found by its tag, and comes back the same to the byte."""
    python = os.environ.get("GATE_MLFLOW")
    if not python:
        pytest.skip("GATE_MLFLOW does not name a Python that has MLflow")
    write_inputs(tmp_path)
    files = ("--fit", "fit.npy", "--holdout", "pass.npy")
    assert gate("run", "--policy", "policy.yaml", "--release", "v1", *files, cwd=tmp_path).returncode == 0
    (tmp_path / "log.py").write_text(recipe("MLflow") + STORE)
    (tmp_path / "back").mkdir()
    store = {"MLFLOW_TRACKING_URI": f"file:{tmp_path / 'mlruns'}", "MLFLOW_ALLOW_FILE_STORE": "true"}
    done = subprocess.run(
        [python, "log.py"], cwd=tmp_path, env={**os.environ, **store}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert (run["name"], run["tags"]["gate.outcome"]) == ("v1", "pass")
    record = json.loads((tmp_path / "releases/v1/verdict.json").read_text())
    assert run["tags"]["gate.reason"] == record["reason"]
    assert gate("verify", "back/release", cwd=tmp_path).returncode == 0
