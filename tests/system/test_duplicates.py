"""The duplicates check: no row counts twice, by ids, by whole rows, or else by pairs of rows with one score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from gate.inspection.answers import state_of
from gate.verification.release import verify
from gate.verification.result import Data


def rows(scores: Any, names: Any, **columns: Any) -> pa.Table:
    return pa.table({"score": scores, "row": names, **columns})


# --- as a user sees them ----------------------------------------------------------------------------------

POLICY = """\
version: 1
name: x
targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]
data: {id: row, label: label}
checks: {detection: {targets: [{fpr: 1%, min_tpr: 0.5}]}}
"""


def write_samples(place: Path, repeated: int) -> None:
    """Fit, held-out and malicious rows, the last of which repeat the first."""
    rng = np.random.default_rng(10)
    for name, n in (("fit", 20_000), ("holdout", 20_000), ("malicious", 4_000)):
        malicious = name == "malicious"
        values = rng.beta(5 if malicious else 0.5, 3 if malicious else 8, n)
        items = np.concatenate([np.arange(n), np.arange(repeated)])
        labels = np.full(len(items), int(malicious))
        table = rows(values[items], [f"{name}-{i}" for i in items], label=labels)
        pa.parquet.write_table(table, place / f"{name}.parquet")
    (place / "p.yaml").write_text(POLICY)


ARGUMENTS = ("run", "--policy", "p.yaml", "--fit", "fit.parquet", "--holdout", "holdout.parquet")


@pytest.mark.each_run(1)
@pytest.mark.parametrize(("repeated", "code"), [(0, 0), (4, 0), (1_000, 1)])
def test_repeats_count_once_in_every_number_of_the_record(tmp_path: Path, repeated: int, code: int) -> None:
    records = []
    for again in (0, repeated):
        write_samples(tmp_path, again)
        result = commands.gate(
            *ARGUMENTS, "--malicious", "malicious.parquet", "--release", "v1", "--force", "--json", cwd=tmp_path
        )
        assert result.returncode == (code if again else 0), result.stderr
        records.append(json.loads(result.stdout))
    assert "which count once" in result.stderr if repeated else True
    counted = [f for f in records[1]["findings"] if f["check"] != "duplicates"]
    assert counted == [f for f in records[0]["findings"] if f["check"] != "duplicates"]
    assert records[0]["curve"] == records[1]["curve"]
    for part in ("overlap", "exchangeability"):
        assert records[0]["checks"][part] == records[1]["checks"][part]
    for part in ("fit", "holdout", "malicious"):
        assert records[0][part]["n"] == records[1][part]["n"]
        assert records[1]["checks"]["duplicates"][part]["repeated"] == repeated
    finding = next(f for f in records[1]["findings"] if f["check"] == "duplicates")
    assert (finding["outcome"], finding["required"]) == ("fail" if code else "pass", True)
    given: dict[str, Any] = {name: (str(tmp_path / f"{name}.parquet"),) for name in ("fit", "holdout", "malicious")}
    data = Data(**given)
    release = next((tmp_path / "releases").iterdir())
    found = verify(release, data)
    assert state_of(found.answers) == "holds", found.lines


def test_a_check_counts_ids_or_whole_rows(tmp_path: Path) -> None:
    write_samples(tmp_path, 4)
    arguments = (*ARGUMENTS, "--malicious", "malicious.parquet", "--release", "v1")
    assert commands.gate(*arguments, cwd=tmp_path).returncode == 0
    release = str(next((tmp_path / "releases").iterdir()))
    write_samples(tmp_path, 900)
    checked = ("check", release, "--holdout", "holdout.parquet", "--json", "--dry-run")
    result = commands.gate(*checked, "--policy", "p.yaml", "--malicious", "malicious.parquet", cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    record = json.loads(result.stdout)
    assert record["checks"]["overlap"] is None
    assert record["checks"]["duplicates"]["fit"] is None
    assert record["reason"] == "too many rows repeat another one"
    plain = tmp_path / "plain.yaml"
    plain.write_text(POLICY.replace("id: row, ", "").partition("checks:")[0])
    result = commands.gate(*checked, "--policy", "plain.yaml", cwd=tmp_path)
    [found] = [f for f in json.loads(result.stdout)["findings"] if f["check"] == "duplicates"]
    assert (found["outcome"], found["reason"]) == ("fail", "repeated-rows")
    assert found["message"] == "900 of 20,900 held-out rows equal another one in every column", "ids that no key names"


def test_one_id_with_two_scores_is_one_line_and_no_verdict(tmp_path: Path) -> None:
    write_samples(tmp_path, 1)
    table = pa.parquet.read_table(tmp_path / "holdout.parquet")
    scores = table["score"].to_numpy().copy()
    scores[-1] = 0.75
    pa.parquet.write_table(table.set_column(0, "score", pa.array(scores)), tmp_path / "holdout.parquet")
    result = commands.gate(*ARGUMENTS, "--release", "v1", "--dry-run", cwd=tmp_path)
    assert result.returncode == 2
    line = result.stderr.splitlines()[-1]
    assert line.startswith(
        f"gate: holdout.parquet: must have one score for each id, got 'holdout-0' with {float(scores[0])!r}"
    )
    assert " and 0.75; give every row an id of its own" in line
