"""A release directory beside its data, as `gate run` writes it, for tests of `gate verify`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from gate.checks import parse_policy
from gate.gating import Job, gate_release
from gate.policy import Document
from gate.rows.reading import read
from gate.rows.split import split

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
POLICY = """\
version: 1
name: small
calibration: {knots: 200}
targets:
  - {fpr: 10%, min_n: 1000, max_relative_error: 0.5}
  - {fpr: 1%, min_n: 2000, max_relative_error: 0.5}
  - {fpr: 0.1%, min_n: 90000, max_relative_error: 0.5}
waivers:
  - {check: fpr@0.1%, reason: more rows by June, owner: "@detections", expires: 2026-06-30}
"""


def write_scores(place: Path) -> None:
    """Two samples in Parquet, rows named and grouped; the last row of each is the first again."""
    for name, seed in (("fit", 1), ("holdout", 2)):
        values = np.random.default_rng(seed).beta(0.5, 8, 20_000)
        values[-1] = values[0]
        items = [i % 19_999 for i in range(len(values))]
        rows = pa.table(
            {
                "score": values,
                "tenant": [f"t{i % 700}" for i in items],
                "row": [f"{name}-{i}" for i in items],
                "language": [("de", "en", "tr")[i % 7 % 3] for i in items],
                "seen": [f"2026-02-{1 + i % 28:02d}T00:00:00Z" for i in range(len(values))],
            }
        )
        pa.parquet.write_table(rows, place / f"{name}.parquet")


def make(place: Path, text: str = POLICY, ledger: str | None = None, divide: bool = False) -> Path:
    """A release directory as `gate run` writes it, beside its data."""
    write_scores(place)
    (place / "policy.yaml").write_text(text)
    document = parse_policy(text, "policy.yaml")
    columns, domain = document.policy.data, document.policy.calibration.domain
    fit, holdout = (read([str(place / f"{name}.parquet")], columns, domain) for name in ("fit", "holdout"))
    divided = None
    if divide:
        fit, holdout, divided = split(fit, 0.5, 7)
    gate_release(job(document, "v1", ledger), fit, holdout, split=divided).write(place / "v1")
    return place / "v1"


def job(document: Document, name: str, ledger: str | None = None) -> Job:
    return Job(document, name, NOON, NOON.date(), ledger)
