"""One benign sample divided here: repeatable, complete, and with the rows of a group on one side."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest


def gate(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return commands.gate(*arguments, cwd=cwd)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("split")
    rows = 60_000
    rng = np.random.default_rng(2)
    table = {"score": rng.beta(0.5, 8, rows), "tenant": rng.integers(0, 500, rows), "id": np.arange(rows)}
    pa.parquet.write_table(pa.table(table), path / "benign.parquet")
    policy = "version: 1\nname: one\ntargets: [{fpr: 10%, min_n: 1000, max_relative_error: 0.5}]\n"
    (path / "policy.yaml").write_text(policy)
    return path


RUN = ["run", "--policy", "policy.yaml", "--release", "r", "--benign", "benign.parquet"]


def test_one_file_is_gated_and_the_record_says_how_it_was_divided(here: Path) -> None:
    result = gate(*RUN, "--split", "0.3", "--seed", "7", "--json", "--dry-run", cwd=here)
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert (record["fit"]["n"], record["holdout"]["n"]) == (18_000, 42_000)
    assert record["split"] == {"fraction": 0.3, "seed": 7, "by": "rows", "cut": None}
    assert (
        "60,000 rows from benign.parquet: 60,000 benign, none refused; not read: 'tenant', 'id'; "
        "18,000 to fit, 42,000 held out (rows)\n"
    ) in result.stderr


def test_a_check_of_a_release_that_was_split_verifies(here: Path) -> None:
    """Its record names the sources of the release, which hold more rows than were fitted on."""
    release = gate("run", "--release", "v9", "--benign", "benign.parquet", "--split", "0.3", "--out", "nine", cwd=here)
    assert release.returncode in (0, 1, 3), release.stderr
    gate("check", "nine", "--holdout", "benign.parquet", "--out", "nine-checked", cwd=here)
    data = ["--holdout", "benign.parquet", "--baseline", "nine", "--policy", "built-in"]
    verified = gate("verify", "nine-checked", *data, cwd=here)
    assert verified.returncode == 0, verified.stdout


def test_groups_named_on_the_command_line_are_kept_whole(here: Path) -> None:
    result = gate(*RUN, "--split", "0.3", "--set", "data.group=tenant", "--json", "--dry-run", cwd=here)
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["split"] == {"fraction": 0.3, "seed": 0, "by": "groups", "cut": None}
    assert record["holdout"]["groups"] < 500
    finding = record["findings"][0]
    found = finding["rate"]["tally"]
    assert max(found["effective"]) <= found["rows"] == record["holdout"]["n"]


@pytest.mark.parametrize(
    "arguments",
    [
        RUN,
        [*RUN, "--split", "0.5", "--fit", "benign.parquet"],
        [*RUN[:-2], "--split", "0.5"],
        [*RUN[:-2], "--fit", "benign.parquet"],
        [*RUN[:-2], "--fit", "benign.parquet", "--holdout", "benign.parquet", "--split", "0.5"],
    ],
)
def test_half_a_pair_of_samples_is_refused(arguments: list[str], here: Path) -> None:
    result = gate(*arguments, cwd=here)
    assert result.returncode == 2
    assert "give either --fit and --holdout (or name them in the policy" in result.stderr


@pytest.mark.parametrize("fraction", ["0", "1", "-0.1", "1.5", "nan", "x"])
def test_a_fraction_that_divides_nothing_is_refused(fraction: str, here: Path) -> None:
    result = gate(*RUN, "--split", fraction, cwd=here)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
