"""`gate verify` believes no file of a release directory: whatever is changed in it, by hand or with care, is found."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from gate.checks import parse_policy
from gate.gating import Job, gate_release
from gate.inspection import release as inspection
from gate.inspection.answers import Answer
from gate.record import Record
from gate.report import formats
from gate.scores import read, split
from gate.verification import release as repetition
from gate.verification.result import Data, Verification

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
    job = Job(document, "v1", NOON, NOON.date(), ledger)
    gate_release(job, fit, holdout, split=divided).write(place / "v1")
    return place / "v1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("made"))


@pytest.fixture(autouse=True)
def _render_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures take their time; the same record gives the same bytes."""
    monkeypatch.setattr(inspection, "rendered", rendered_once)


RENDERED: dict[str, dict[str, bytes]] = {}


def rendered_once(record: Record) -> dict[str, bytes]:
    text = record.to_json()
    if text not in RENDERED:
        RENDERED[text] = formats.rendered(record)
    return RENDERED[text]


@pytest.fixture
def release(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may tamper with."""
    shutil.copytree(made, tmp_path / "v1")
    return tmp_path / "v1"


def answer(release: Path, data: Data = Data(), **more: Any) -> Verification:  # noqa: B008, it is frozen
    return repetition.verify(str(release), data, **more)


def verify(release: Path, data: Data = Data()) -> tuple[Answer, ...]:  # noqa: B008, it is frozen
    return answer(release, data).answers


# --- the command --------------------------------------------------------------------------------------------


def gate(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return commands.gate(*args, cwd=cwd)


def test_the_command_says_one_line_for_each_check(made: Path) -> None:
    data = ["--fit", "fit.parquet", "--holdout", "holdout.parquet"]
    result = gate("verify", "v1", "--policy", "policy.yaml", *data, cwd=made.parent)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    *lines, unbound, expired = result.stdout.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        ["holds", name]
        for name in ("manifest", "kind", "policy", "calibrator", "verdict", "reports", "fit", "holdout", "data")
    ]
    assert unbound.startswith("not bound: created, judged_on, release, ")
    assert expired == "expired: the waiver of fpr@0.1% expired on 2026-06-30, after the judgement of 2026-03-01"


def test_the_command_exits_1_where_something_does_not_hold(release: Path) -> None:
    (release / "a\n::error::b").write_bytes(b"x")
    result = gate("verify", "v1", cwd=release.parent)
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.splitlines()[0].startswith("does not hold: manifest: a\\u000a::error::b is added")


def test_the_command_exits_2_where_nothing_can_be_judged(release: Path) -> None:
    result = gate("verify", "nowhere", cwd=release.parent)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "gate: nowhere: must be a release directory, got No such file or directory\n"
