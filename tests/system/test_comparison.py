"""Two releases at the same anchors: counts by brute force, joined rows, policies, and baselines not to be used."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from gate import gating
from gate.checks.baseline import Comparison
from gate.checks.detection import Detection
from gate.checks.fpr import Targets
from gate.checks.reuse import Uses
from gate.errors import GateError
from gate.record import Record, as_reference, read_record, read_release
from gate.statistics.proportions import fisher

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
POLICY = """\
version: 1
name: small
data: {id: id}
targets:
  - {fpr: 10%, min_n: 1000, max_relative_error: 0.5}
  - {fpr: 1%, min_n: 5000, max_relative_error: 0.5}
"""
DETECTION = "checks: {detection: {targets: [{fpr: 1%, min_tpr: 0.5}], max_drop: 0.02}}\n"


# --- stored baselines ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases, scores of both for the same rows, and a check, made by real commands."""
    directory = tmp_path_factory.mktemp("releases")
    rng = np.random.default_rng(5)
    ids = np.arange(20_000).astype(str)
    latent = rng.normal(-5, 1.4, 20_000)
    attack = rng.normal(-0.5, 1.4, 1_000)
    for name, stretch in (("old", 1.0), ("new", 1.5)):
        fit = 1 / (1 + np.exp(-stretch * rng.normal(-5, 1.4, 20_000)))
        held_out = 1 / (1 + np.exp(-stretch * (latent + rng.normal(0, 0.2, 20_000))))
        malicious = 1 / (1 + np.exp(-stretch * (attack + rng.normal(0, 0.2, 1_000))))
        for part, values in (("fit", fit), ("holdout", held_out), ("malicious", malicious)):
            table = pa.table({"id": np.char.add(part[0], ids[: len(values)]), "score": values})
            pyarrow.parquet.write_table(table, directory / f"{name}-{part}.parquet")
    (directory / "policy.yaml").write_text(POLICY + DETECTION)
    for name, release in (("old", "v1"), ("new", "v2")):
        inputs = ["--fit", f"{name}-fit.parquet", "--holdout", f"{name}-holdout.parquet"]
        options = ["--policy", "policy.yaml", "--malicious", f"{name}-malicious.parquet", "--baseline", "none"]
        result = gate("run", "--release", release, *inputs, *options, cwd=directory)
        assert result.returncode == 0, result.stdout + result.stderr
    return directory


def gate(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "GITHUB_ACTIONS", "SOURCE_DATE_EPOCH")}
    return commands.gate(*args, cwd=cwd, env=environment)


NEW = ["--policy", "policy.yaml", "--release", "v3", "--fit", "new-fit.parquet", "--holdout", "new-holdout.parquet"]
NEW += ["--malicious", "new-malicious.parquet", "--dry-run", "--json"]


def test_a_release_is_held_against_its_baseline_row_by_row(place: Path) -> None:
    pairs = ["--baseline-holdout", "old-holdout.parquet", "--baseline-malicious", "old-malicious.parquet"]
    result = gate("run", *NEW, "--baseline", "releases/v1", *pairs, cwd=place)
    assert result.returncode == 0, result.stderr
    record = Record.model_validate_json(result.stdout)
    old, new = (read_record(place / "releases" / name) for name in ("v1", "v2"))
    found = record.of(Comparison)
    section = found.reference
    assert (section.release, section.outcome, found.policy_changes) == ("v1", "pass", ())
    verdict = (place / "releases" / "v1" / "verdict.json").read_bytes()
    assert section.verdict_sha256 == hashlib.sha256(verdict).hexdigest()
    assert section.policy_sha256 == old.policy.sha256
    assert [change.fpr for change in found.anchors] == [anchor.fpr for anchor in record.calibrator.anchors]
    for change in found.anchors:
        assert change.new.rows == change.old.rows == 20_000
        assert change.flipped is not None
        assert change.new.flagged - change.old.flagged == change.flipped.new_only - change.flipped.old_only
        assert change.old == old.of(Targets).at(change.fpr)
    outcomes = {str(finding.check): finding.outcome for finding in record.findings}
    assert (outcomes["baseline"], outcomes["tpr-drop@1%"]) == ("pass", "pass")
    assert [source.path for source in section.sources] == ["old-holdout.parquet"]
    assert new.of(Comparison).reference is None


def test_without_the_old_scores_the_recorded_counts_are_compared(place: Path) -> None:
    result = gate("run", *NEW, "--baseline", "releases/v1", cwd=place)
    assert result.returncode in (0, 3)
    record = Record.model_validate_json(result.stdout)
    found = record.of(Comparison)
    assert not any(change.flipped for change in found.anchors)
    change = found.anchors[1]
    assert change.stale is not None
    assert change.p_value == fisher(change.new.flagged, change.new.rows, change.old.flagged, change.old.rows)
    assert any("--baseline-holdout compares them row by row" in warning for warning in record.warnings)


def break_file(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        (directory / name).write_bytes(change((directory / name).read_bytes()))

    return edit


def fake_schema(directory: Path) -> None:
    """A record of a later gate, under a manifest that agrees with it."""
    record = json.loads((directory / "verdict.json").read_text()) | {"schema_version": 2}
    raw = json.dumps(record).encode()
    (directory / "verdict.json").write_bytes(raw)
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["sha256"]["verdict.json"] = hashlib.sha256(raw).hexdigest()
    (directory / "manifest.json").write_text(json.dumps(manifest))


BROKEN: list[tuple[str, Callable[[Path], object], str]] = [
    ("missing", lambda d: [f.unlink() for f in d.iterdir()] and d.rmdir(), "manifest.json: must be the manifest"),
    ("no verdict", lambda d: (d / "verdict.json").unlink(), "verdict.json: must be a file of a release, got No such"),
    ("no manifest", lambda d: (d / "manifest.json").unlink(), "manifest.json: must be the manifest of a release"),
    ("verdict", break_file("verdict.json", lambda raw: raw.replace(b"inconclusive", b"pass")), "got other bytes"),
    ("space", break_file("verdict.json", lambda raw: raw + b" "), "verdict.json: must be as manifest.json says"),
    ("calibrator", break_file("calibrator.json", lambda raw: raw + b" "), "calibrator.json: must be as manifest.json"),
    ("manifest", break_file("manifest.json", lambda raw: b"[]"), "manifest.json: must be a manifest that `gate run`"),
    ("not json", break_file("manifest.json", lambda raw: b"{"), "manifest.json: must be a manifest that `gate run`"),
    ("schema", fake_schema, "schema_version must be at most 1, got 2; upgrade gate"),
]


@pytest.mark.parametrize(("breaking", "message"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_missing_or_tampered_baseline_is_no_judgement(
    place: Path, tmp_path: Path, breaking: Callable[[Path], None], message: str
) -> None:
    """A missing baseline is never ignored: the command exits with 2 before it reads any score."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in (place / "releases" / "v1").iterdir():
        (broken / file.name).write_bytes(file.read_bytes().replace(b'"outcome": "pass"', b'"outcome": "inconclusive"'))
    refresh(broken)
    breaking(broken)
    with pytest.raises(GateError) as caught:
        read_release(broken)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def refresh(directory: Path) -> None:
    manifest = json.loads((directory / "manifest.json").read_text())
    for name in manifest["sha256"]:
        manifest["sha256"][name] = hashlib.sha256((directory / name).read_bytes()).hexdigest()
    (directory / "manifest.json").write_text(json.dumps(manifest))


def test_the_command_says_so_in_one_line_and_exits_2(place: Path) -> None:
    for args in (
        ["run", *NEW, "--baseline", "releases/none"],
        ["check", "releases/none", "--holdout", "new-holdout.parquet"],
        ["compare", "releases/none", "releases/v2"],
        ["compare", "releases/v1", "releases/none"],
    ):
        result = gate(*args, cwd=place)
        assert (result.returncode, result.stdout) == (2, "")
        *before, refused = result.stderr.splitlines()
        assert refused.startswith("gate: releases/none/manifest.json: must be the manifest of a release")
        assert all(line.startswith("gate: policy ") for line in before)


def test_a_pair_needs_its_partner_and_ids(place: Path) -> None:
    for args, message in (
        (["run", *NEW, "--baseline-holdout", "old-holdout.parquet"], "--baseline-holdout needs --baseline"),
        (
            ["compare", "releases/v1", "releases/v2", "--baseline-malicious", "old-malicious.parquet"],
            "--baseline-malicious needs --malicious",
        ),
    ):
        result = gate(*args, cwd=place)
        assert result.returncode == 2
        assert message in result.stderr


# --- checking a release again -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checked(place: Path) -> Path:
    result = gate("check", "releases/v2", "--holdout", "new-holdout.parquet", "--out", "checks/v2", cwd=place)
    assert result.returncode == 0, "detection is not asked where no malicious rows are given"
    return place / "checks" / "v2"


def test_a_check_counts_what_the_release_counted_without_fitting(place: Path, checked: Path) -> None:
    record, release = read_record(checked), read_record(place / "releases" / "v2")
    assert (record.kind, release.kind) == ("check", "run")
    assert (record.fit, record.calibrator) == (release.fit, release.calibrator)
    assert record.policy.content == release.policy.content
    assert record.of(Targets) == release.of(Targets)
    counted, before = (
        [(f.check, f.outcome, f.rate.tally, f.rate.interval) for f in r.findings if f.check.kind == "fpr" and f.rate]
        for r in (record, release)
    )
    assert counted == before
    assert not any(str(finding.check) == "exchangeability" for finding in record.findings), "there is no fit sample"
    assert all(finding.rate.drift_p_value is None for finding in record.findings if finding.rate)
    assert sorted(path.name for path in checked.iterdir()) == [
        "junit.xml",
        "manifest.json",
        "predicate.json",
        "report.html",
        "report.md",
        "verdict.json",
    ]
    assert record.warnings == ("these are the very scores that v2 was judged on, so nothing new is learnt of them",)


def test_a_check_never_reads_the_pickle(place: Path, tmp_path: Path) -> None:
    """A pickle that would run code if it were loaded, under a manifest that agrees with it."""
    copy = tmp_path / "v2"
    copy.mkdir()
    for file in (place / "releases" / "v2").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (copy / "calibrator.joblib").write_bytes(b"cos\nsystem\n(S'touch was-loaded'\ntR.")
    refresh(copy)
    options = ["--holdout", str(place / "new-holdout.parquet"), "--malicious", str(place / "new-malicious.parquet")]
    result = gate("check", str(copy), *options, "--dry-run", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    checks = [str(finding.check) for finding in Record.model_validate_json(result.stdout).findings]
    assert checks == ["fpr@10%", "fpr@1%", "unread", "duplicates", "tpr@1%", "direction", "baseline"], (
        "one detector: nothing can have dropped"
    )
    assert not (tmp_path / "was-loaded").exists()


def test_the_reports_of_a_check_say_that_nothing_was_fitted(checked: Path) -> None:
    for name in ("report.html", "report.md"):
        text = (checked / name).read_text()
        assert re.search("nothing (was )?fitted", text)
        assert "v2 still keeps its contract" in text
        assert "may ship" not in text
        assert "gate check releases/v2" in text


def test_a_check_is_no_baseline_and_cannot_be_checked(place: Path, checked: Path) -> None:
    with pytest.raises(GateError, match="must be a release, got a check of v2; name the release itself"):
        as_reference(read_release(checked))
    result = gate("check", "checks/v2", "--holdout", "new-holdout.parquet", cwd=place)
    assert result.returncode == 2
    assert "must be a release with a calibrator.json, got none" in result.stderr


def test_a_check_by_another_policy_names_what_changed(place: Path) -> None:
    (place / "loose.yaml").write_text(POLICY.replace("min_n: 5000", "min_n: 100"))
    options = ["--policy", "loose.yaml", "--holdout", "new-holdout.parquet", "--dry-run", "--json"]
    result = gate("check", "releases/v2", *options, cwd=place)
    assert result.returncode == 0
    section = Record.model_validate_json(result.stdout).of(Comparison)
    assert section.policy_changes[0] == "weaker: fpr@1% needs 100 rows instead of 5,000"
    assert "weaker: checks.detection.targets[1%].min_tpr is nothing instead of 0.5" in section.policy_changes


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ("contract: [{fpr: 10%, score: 0.2}, {fpr: 1%, score: 0.3}]\n", "contract"),
        ("calibration: {domain: [0, 2]}\n", "calibration.domain"),
    ],
)
def test_a_check_by_another_contract_or_domain_is_refused(place: Path, extra: str, key: str) -> None:
    (place / "other.yaml").write_text(POLICY + extra)
    result = gate(
        "check", "releases/v2", "--policy", "other.yaml", "--holdout", "new-holdout.parquet", "--dry-run", cwd=place
    )
    assert result.returncode == 2
    assert f"other.yaml: {key}: must be the one that releases/v2 was fitted to, got another" in result.stderr


def test_a_check_goes_into_a_directory_of_its_own_and_counts_its_use(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "releases" / "v2", tmp_path / "v2")
    options = ["--holdout", str(place / "new-holdout.parquet"), "--ledger", "ledger.jsonl"]
    result = gate("check", "v2", *options, cwd=tmp_path)
    assert result.returncode == 0
    (written,) = (tmp_path / "v2" / "checks").iterdir()
    assert written.name.startswith("20")
    assert len((tmp_path / "ledger.jsonl").read_text().splitlines()) == 1
    assert read_record(written).of(Uses) is not None


# --- side by side -------------------------------------------------------------------------------------------


def test_compare_shows_recorded_counts_and_with_scores_what_flipped(place: Path) -> None:
    plain = gate("compare", "releases/v1", "releases/v2", "--format", "json", cwd=place)
    files = ["--holdout", "new-holdout.parquet", "--baseline-holdout", "old-holdout.parquet"]
    paired = gate("compare", "releases/v1", "releases/v2", *files, "--format", "json", cwd=place)
    assert (plain.returncode, paired.returncode) == (0, 0)
    for before, after in zip(
        *(json.loads(result.stdout)["baseline"]["anchors"] for result in (plain, paired)), strict=True
    ):
        assert before["new"] == after["new"]
        assert before["old"]["threshold"] == after["old"]["threshold"]
        assert (before["stale"], before["flipped"]) == (None, None)
        assert after["stale"] is not None
        assert after["flipped"] is not None
        assert after["new"]["rows"] == 20_000
    text = gate("compare", "releases/v1", "releases/v2", *files, cwd=place).stdout
    assert text.startswith("v1 (pass) and v2 (pass)\n")
    assert "newly flagged" in text
    assert "The policy asks for the same." in text
    page = gate("compare", "releases/v1", "releases/v2", *files, "--format", "md", cwd=place).stdout
    assert page.startswith("# What changed from v1 to v2\n")
    assert "old threshold on the new scores" in page


def test_compare_can_write_a_file(place: Path, tmp_path: Path) -> None:
    target = tmp_path / "changes.md"
    result = gate("compare", "releases/v1", "releases/v2", "--format", "md", "-o", str(target), cwd=place)
    assert (result.returncode, result.stdout) == (0, "")
    assert target.read_text().startswith("# What changed from v1 to v2")


def test_a_record_with_the_targets_alone_can_be_a_baseline(place: Path) -> None:
    """If a record lacks what a later version may have added, what it has is compared."""
    stored = read_release(place / "releases" / "v1")
    content = json.loads(stored.record.to_json())
    for key in ("malicious", "curve", "split", "warnings"):
        del content[key]
    content["checks"] = {"fpr": content["checks"]["fpr"]}
    old, whole = as_reference(replace(stored, record=Record.model_validate(content))), as_reference(stored)
    assert old.benign == whole.benign
    assert len(old.benign) == 6
    assert old.malicious is None
    assert whole.malicious is not None


def test_the_python_call_takes_malicious_rows_and_a_baseline(place: Path) -> None:
    release = gating.run(
        str(place / "new-fit.parquet"),
        str(place / "new-holdout.parquet"),
        release="v3",
        policy=str(place / "policy.yaml"),
        malicious=str(place / "new-malicious.parquet"),
        baseline=place / "releases" / "v1",
        created=NOON,
    )
    assert release.record.of(Comparison).reference is not None
    assert release.record.malicious is not None
    assert release.record.of(Detection) is not None
    assert {"baseline", "tpr@1%", "tpr-drop@1%"} <= {str(finding.check) for finding in release.record.findings}
