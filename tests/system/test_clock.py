"""The clock judges what expires; SOURCE_DATE_EPOCH only dates the record."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import gate
from gate.cli import cli
from gate.record import read_record

POLICY = """\
version: 1
name: dated
calibration: {{knots: 50}}
data: {{timestamp: seen}}
targets:
  - {{fpr: 10%, min_n: 500, max_relative_error: 0.5}}
  - {{fpr: 1%, min_n: 90000, max_relative_error: 0.5}}
checks: {{freshness: {{max_age_days: {max_age}}}}}
waivers:
  - {{check: fpr@1%, reason: more rows later, owner: "@detections", expires: {expires}}}
"""
TODAY = datetime.now(UTC).date()


def write_inputs(place: Path, expires: date, oldest: date, max_age: int) -> None:
    for seed, name in enumerate(("fit", "holdout")):
        scores = np.random.default_rng(seed).beta(0.5, 8, 2_000)
        rows = pa.table({"score": scores, "seen": [f"{oldest}T00:00:00Z"] * len(scores)})
        pa.parquet.write_table(rows, place / f"{name}.parquet")
    (place / "policy.yaml").write_text(POLICY.format(expires=expires, max_age=max_age))


def drawn(seed: int) -> tuple[date, date, int, date]:
    """When a waiver expires, the day of the oldest row, how old it may be, and a day to put the record on."""
    rng = random.Random(seed)
    near = [timedelta(days=rng.choice([-1, 1]) * rng.randint(2, 900)) for _ in range(2)]
    age = rng.randint(3, 500)
    return TODAY + near[0], TODAY - timedelta(days=age), rng.choice([age - 2, age + 2]), TODAY + near[1]


@pytest.mark.parametrize("seed", range(8))
def test_no_environment_revives_what_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    """The later of today and the day in the variable decides, and the record says which day that was."""
    expires, oldest, max_age, epoch = drawn(seed)
    write_inputs(tmp_path, expires, oldest, max_age)
    monkeypatch.chdir(tmp_path)
    noon = datetime(epoch.year, epoch.month, epoch.day, 12, tzinfo=UTC)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(noon.timestamp())))
    args = ["--policy", "policy.yaml", "--release", "v1", "--fit", "fit.parquet", "--holdout", "holdout.parquet"]
    code = cli.main(["run", *args, "--json", "--dry-run"], standalone_mode=False)
    record = json.loads(capsys.readouterr().out)
    day = max(epoch, TODAY)
    assert record["created"] == f"{epoch}T12:00:00Z"
    assert record["judged_on"] == day.isoformat()
    assert record["waivers"][0]["status"] == ("expired" if expires < day else "active")
    freshness = next(finding for finding in record["findings"] if finding["check"] == "freshness")
    assert freshness["outcome"] == ("fail" if (day - oldest).days > max_age else "pass")
    assert code == (1 if freshness["outcome"] == "fail" else 3 if expires < day else 0)


def test_a_check_and_python_go_by_the_same_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiver that was good when the release was made is not when the release is checked."""
    write_inputs(tmp_path, TODAY - timedelta(days=2), TODAY - timedelta(days=9), 30)
    monkeypatch.chdir(tmp_path)
    past = datetime.now(UTC) - timedelta(days=5)
    judged = gate.run("fit.parquet", "holdout.parquet", release="v1", policy="policy.yaml", created=past)
    assert judged.outcome == "inconclusive"
    assert judged.record.judged_on == TODAY
    judged.write("v1")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(past.timestamp())))
    assert cli.main(["check", "v1", "--holdout", "holdout.parquet", "--out", "c1"], standalone_mode=False) == 3
    assert read_record("c1").judged_on == TODAY


def test_a_policy_without_dates_records_no_day(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(
        POLICY.partition("checks:")[0].format().replace("data: {timestamp: seen}", "")
    )
    samples = [np.random.default_rng(seed).beta(0.5, 8, 2_000) for seed in range(2)]
    assert gate.run(*samples, release="v1", policy=tmp_path / "policy.yaml").record.judged_on is None
