"""The same inputs, policy and versions give the same bytes, whatever the environment and the order of the rows."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

pytestmark = pytest.mark.figures
POLICY = """\
version: 1
name: grouped
data: {group: tenant, id: row}
targets:
  - {fpr: 10%, min_n: 1000, max_relative_error: 0.5}
  - {fpr: 1%, min_n: 2000, max_relative_error: 0.5}
"""
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "one thread": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"},
    "many threads": {"OMP_NUM_THREADS": "7", "OPENBLAS_NUM_THREADS": "5", "ARROW_NUM_THREADS": "6"},
    "another hash seed": {"PYTHONHASHSEED": "12345", "TZ": "Pacific/Kiritimati", "LC_ALL": "C"},
    "another place": {"PYTHONHASHSEED": "0", "TZ": "America/St_Johns", "LANG": "tr_TR.UTF-8", "LC_ALL": "C.UTF-8"},
    "a terminal's wishes": {"COLUMNS": "33", "FORCE_COLOR": "1", "TERM": "xterm", "MPLBACKEND": "svg"},
}
CALIBRATORS = ("calibrator.joblib", "calibrator.json")
MATPLOTLIBRC = "axes.grid: True\nlines.linewidth: 9\nfont.size: 30\nsavefig.bbox: tight\nfigure.dpi: 20\n"


def write_inputs(place: Path, seed: int | None = None) -> None:
    """Write the same rows; a seed gives another order, and pieces may have another size."""
    for name, first in (("fit", 1), ("holdout", 2)):
        scores = np.random.default_rng(first).beta(0.5, 8, 20_000).round(6)
        scores[::100] = -0.0
        order = np.arange(len(scores)) if seed is None else np.random.default_rng(seed).permutation(len(scores))
        rows = pa.table(
            {
                "score": scores[order],
                "tenant": [f"{name}-t{i % 500}" for i in order],
                "row": [f"{name}-{i}" for i in order],
            }
        )
        pa.parquet.write_table(rows, place / f"{name}.parquet", row_group_size=20_000 if seed is None else 777)
    (place / "policy.yaml").write_text(POLICY)


def run(place: Path, env: dict[str, str] | None) -> dict[str, bytes]:
    """Run in an own interpreter with these variables, or, if there are none, in a fork."""
    args = ["run", "--policy", "policy.yaml", "--release", "v1", "--fit", "fit.parquet", "--holdout", "holdout.parquet"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600", **(env or {})}
    start = commands.gate if env is None else commands.cold
    start(*args, "--ledger", "ledger.jsonl", cwd=place, env=environment).check_returncode()
    return {path.name: path.read_bytes() for path in (place / "releases" / "v1").iterdir()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    place = tmp_path_factory.mktemp("plain")
    write_inputs(place)
    return run(place, {})


@pytest.mark.each_run(1)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_release_is_the_same_in_every_environment(
    tmp_path: Path, expected: dict[str, bytes], environment: str
) -> None:
    write_inputs(tmp_path)
    if environment == "another place":
        (tmp_path / "matplotlibrc").write_text(MATPLOTLIBRC)
    assert run(tmp_path, ENVIRONMENTS[environment]) == expected


def test_a_release_holds_on_another_processor(tmp_path: Path, expected: dict[str, bytes]) -> None:
    """Last digits of what is computed may differ there; the calibrator and what follows from the counts may not."""
    write_inputs(tmp_path)
    core = "core" if np.__version__.startswith("1.") else "_core"
    kernels = importlib.import_module(f"numpy.{core}._multiarray_umath")
    fewer = [name for name in kernels.__cpu_dispatch__ if kernels.__cpu_features__[name]]
    made = run(tmp_path, {"NPY_DISABLE_CPU_FEATURES": " ".join(fewer), "OPENBLAS_CORETYPE": "Nehalem"})
    assert {name: made[name] for name in CALIBRATORS} == {name: expected[name] for name in CALIBRATORS}
    given = (
        "--fit",
        "fit.parquet",
        "--holdout",
        "holdout.parquet",
        "--ledger",
        "ledger.jsonl",
        "--policy",
        "policy.yaml",
    )
    held = commands.gate("verify", "releases/v1", *given, cwd=tmp_path)
    assert held.returncode == 0, held.stdout


def test_a_release_is_the_same_whatever_the_order_of_the_rows(tmp_path: Path) -> None:
    """This also holds if rows come in groups and have ids, and in another number of row groups."""
    found = []
    for seed in (None, 9):
        place = tmp_path / str(seed)
        place.mkdir()
        write_inputs(place, seed)
        found.append(run(place, None))
        verdict = json.loads(found[-1]["verdict.json"])
        digests = [verdict[part].pop("files") for part in ("fit", "holdout")]  # these follow the bytes of the files
        assert all(part["first"] for part in digests)
        found[-1] |= {"verdict.json": json.dumps(verdict).encode(), "manifest.json": b""}
    assert found[0] == found[1]
