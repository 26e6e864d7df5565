"""The same numbers are the same scores, whatever the format and wherever the file is."""

from __future__ import annotations

import io
from pathlib import Path

import commands
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.fs
import pyarrow.parquet
import pytest
from gate.scores import Scores, read

from gate.policy import Columns

DOMAIN = (0.0, 1.0)
ROWS = 400
VALUES = np.round(np.random.default_rng(3).beta(0.5, 8, ROWS), 6)
LABELS = (np.arange(ROWS) % 4 == 0).astype(np.int64)  # 1 is malicious
TENANTS = np.array([f"tenant {i % 7}" for i in range(ROWS)])
TABLE = pa.table({"id": np.arange(ROWS), "label": LABELS, "score": VALUES, "tenant": TENANTS})
COLUMNS = Columns(label="label", group="tenant", id="id")


def parquet() -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(TABLE, sink, row_group_size=100)
    return sink.getvalue()


@pytest.fixture(scope="module", autouse=True)
def reference(tmp_path_factory: pytest.TempPathFactory) -> None:
    global REFERENCE
    path = tmp_path_factory.mktemp("reference") / "s.parquet"
    path.write_bytes(parquet())
    REFERENCE = read([str(path)], COLUMNS, DOMAIN)


REFERENCE: Scores


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
