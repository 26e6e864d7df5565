"""`gate export`: the calibrator leaves a release whole, named, and the same every time, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from small import contents, gate, log_lines, write_inputs

from gate.calibration.calibrator import from_json

NAMES = {"onnx": "calibrator.onnx", "sql": "thresholds.sql"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases, one of which failed, and a check."""
    directory = tmp_path_factory.mktemp("exports")
    write_inputs(directory)
    for release, holdout in (("good", "pass.npy"), ("bad", "fail.npy")):
        files = ("--fit", "fit.npy", "--holdout", holdout)
        gate("run", "--policy", "policy.yaml", "--release", release, *files, cwd=directory)
    gate("check", "releases/good", "--holdout", "pass.npy", "--out", "checks/one", cwd=directory)
    return directory


@pytest.fixture
def releases(place: Path, tmp_path: Path) -> Path:
    shutil.copytree(place, tmp_path / "own")
    return tmp_path / "own"


@pytest.mark.parametrize("format_", ["onnx", "sql"])
def test_the_file_lies_in_the_working_directory_and_nothing_else_changed(releases: Path, format_: str) -> None:
    before = contents(releases)
    result = gate("export", "releases/good", "--to", format_, cwd=releases)
    assert (result.returncode, result.stdout) == (0, "")
    content = (releases / NAMES[format_]).read_bytes()
    assert log_lines(result) == [f"wrote {NAMES[format_]}: {len(content):,} bytes, good (pass)"]
    assert contents(releases) == before | {NAMES[format_]: content}
    again = gate("export", "releases/good", "--to", format_, "-o", "elsewhere", cwd=releases)
    assert log_lines(again)[0].startswith("wrote elsewhere: ")
    assert (releases / "elsewhere").read_bytes() == content
    assert hashlib.sha256((releases / "releases/good/calibrator.json").read_bytes()).hexdigest().encode() in content


def test_the_graph_serves_what_the_release_promises(releases: Path) -> None:
    gate("export", "releases/good", "--to", "onnx", cwd=releases)
    session = onnxruntime.InferenceSession(releases / "calibrator.onnx", providers=["CPUExecutionProvider"])
    scores = np.load(releases / "pass.npy")
    calibrator = from_json((releases / "releases/good/calibrator.json").read_text())
    assert np.array_equal(session.run(None, {"score": scores})[0], calibrator.predict(scores))
    facts = session.get_modelmeta().custom_metadata_map
    record = json.loads((releases / "releases/good/verdict.json").read_text())
    assert facts["calibrator.joblib"] == f"sha256:{record['calibrator']['sha256']}"
    onnx.checker.check_model(onnx.load(str(releases / "calibrator.onnx")), full_check=True)


def test_sql_goes_to_stdout_where_it_is_asked_for(releases: Path) -> None:
    result = gate("export", "releases/good", "--to", "sql", "-o", "-", cwd=releases)
    gate("export", "releases/good", "--to", "sql", cwd=releases)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (releases / "thresholds.sql").read_text()
    assert not (releases / "-").exists()


@pytest.mark.parametrize("format_", ["onnx", "sql"])
def test_a_release_that_failed_is_exported_and_called_so(releases: Path, format_: str) -> None:
    result = gate("export", "releases/bad", "--to", format_, cwd=releases)
    assert result.returncode == 0
    assert log_lines(result)[1] == "bad did not pass the gate (fail); the export says so too"
    assert b"fail" in (releases / NAMES[format_]).read_bytes()


def test_the_pickle_is_never_loaded(releases: Path) -> None:
    (releases / "releases/good/calibrator.joblib").write_bytes(b"no pickle")
    assert gate("export", "releases/good", "--to", "onnx", cwd=releases).returncode == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["releases/good"], "Missing option '--to'"),
        (["releases/good", "--to", "onnx", "-o", "-"], "-o must name a file where --to is onnx: a graph is no text"),
        (["releases/good", "--to", "sql", "-o", "releases"], "releases: must be a file, got a directory; name a file"),
        (["releases/good", "--to", "sql", "-o", "no/where.sql"], "no/where.sql: must be writable, got No such file"),
        (["checks/one", "--to", "sql"], "checks/one: must be a release with a calibrator.json, got none; name the "),
        (["policy.yaml", "--to", "sql"], "policy.yaml/manifest.json: must be the manifest of a release, got "),
        (["releases/torn", "--to", "sql"], "releases/torn/calibrator.json: must be as manifest.json says, got other "),
    ],
)
def test_what_cannot_be_exported_leaves_no_file(releases: Path, args: list[str], said: str) -> None:
    shutil.copytree(releases / "releases/good", releases / "releases/torn")
    with open(releases / "releases/torn/calibrator.json", "a") as file:
        file.write("\n")
    before = contents(releases)
    result = gate("export", *args, cwd=releases)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = log_lines(result)
    assert line.startswith(said)
    assert contents(releases) == before


@pytest.mark.parametrize("format_", ["onnx", "sql"])
def test_nothing_is_written_through_a_link(releases: Path, format_: str) -> None:
    (releases / "victim").write_text("kept")
    (releases / NAMES[format_]).symlink_to("victim")
    result = gate("export", "releases/good", "--to", format_, cwd=releases)
    assert result.returncode == 2
    assert log_lines(result)[0].startswith(f"{NAMES[format_]}: must lead through no symbolic link")
    assert (releases / "victim").read_text() == "kept"
    assert gate("export", "releases/good", "--to", format_, "-o", NAMES[format_], cwd=releases).returncode == 2
    assert (releases / "victim").read_text() == "kept"


def test_without_onnx_one_line_names_the_extra(releases: Path) -> None:
    absent = "import sys\nsys.modules['onnx'] = None"
    result = gate("export", "releases/good", "--to", "onnx", cwd=releases, before=absent)
    assert result.returncode == 2
    assert log_lines(result) == [
        "--to onnx: must have the package onnx, got none; install it with: pip install 'fpr-gate[onnx]'"
    ]
    assert not [name for name in os.listdir(releases) if name.endswith((".onnx", ".partial"))]
