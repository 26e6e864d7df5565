"""Every target in every segment: counted like the whole, corrected for how many there are, the worst first."""

from __future__ import annotations

import json
from pathlib import Path

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet

POLICY = """\
version: 1
name: parts
targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]
data: {segment: language}
checks: {segments: {targets: [0.01], min_n: 1000, max_relative_error: 0.5, required: true}}
"""


def test_a_segment_that_was_averaged_away_is_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    tables = []
    for _ in range(2):
        language = rng.choice(["en", "de", "nl"], 300_000, p=[0.6, 0.35, 0.05])
        score = rng.beta(0.5, 8, 300_000)
        tables.append(
            pa.table({"score": np.where(language == "nl", np.minimum(score * 1.3, 1), score), "lang": language})
        )
    for name, content in zip(("fit", "holdout"), tables, strict=True):
        pa.parquet.write_table(content, tmp_path / f"{name}.parquet")
    (tmp_path / "p.yaml").write_text(POLICY)
    command = ["run", "--policy", "p.yaml", "--release", "r", "--set", "data.segment=lang", "--json", "--dry-run"]
    result = commands.gate(*command, "--fit", "fit.parquet", "--holdout", "holdout.parquet", cwd=tmp_path)
    record = json.loads(result.stdout)
    assert result.returncode == 1, result.stderr
    assert record["reason"] == "the held-out benign rows disprove fpr@1%/lang=nl"
    outcomes = {finding["check"]: finding["outcome"] for finding in record["findings"]}
    assert outcomes["fpr@1%"] == outcomes["fpr@1%/lang=en"] == outcomes["fpr@1%/lang=de"] == "pass"
    found = record["checks"]["segments"]
    assert dict(zip(found["names"], found["rows"], strict=True))["nl"] > 10_000
