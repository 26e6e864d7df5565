"""Every target in every segment: counted like the whole, corrected for how many there are, the worst first."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gate
from gate import policy as policies
from gate import verification
from gate.api import gate_release
from gate.evidence import Evidence, measure_target
from gate.scores import Scores, Source
from gate.segments import SegmentEvidence, TargetCounts, evidence_of, holm
from gate.verdict import MOST_SEGMENTS, Finding, judge, judge_target

TARGETS = "targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"


def document(rule: str = "proven", more: str = "", waivers: str = "") -> policies.Document:
    text = f"version: 1\nname: parts\nrule: {rule}\n{TARGETS}data: {{segment: language}}\n"
    text += f"checks: {{segments: {{targets: [0.01], min_n: 1000, max_relative_error: 0.5{more}}}}}\n{waivers}"
    return policies.parse(text, "policy.yaml")


def evidence(policy: policies.Policy, counts: dict[str, tuple[int, int]]) -> SegmentEvidence:
    names = tuple(counts)
    ks, ns = zip(*counts.values(), strict=True)
    thresholds: dict[Any, float | None] = {point.fpr: 0.5 for point in policy.contract}
    counted = TargetCounts(policy.targets[0].fpr, ks, tuple(float(n) for n in ns))
    return evidence_of(policy, thresholds, 1e-6, names, ns, [counted], policy.alpha())


def findings(doc: policies.Document, counts: dict[str, tuple[int, int]]) -> list[Finding]:
    policy = doc.policy
    whole = measure_target(policy, policy.targets[0], 0.5, 1_000, 100_000, 1e-6)
    verdict = judge(policy, Evidence((whole,), segments=evidence(policy, counts)), date(2026, 11, 16))
    return [finding for finding in verdict.findings if "language" in finding.check or finding.check == "segments"]


# --- Holm ---------------------------------------------------------------------------------------------------


def step_down(tails: list[float], limit: float) -> list[bool]:
    """Holm's procedure as his paper tells it, one hypothesis after the other."""
    left = dict(enumerate(tails))
    while left:
        smallest = min(left, key=lambda i: (left[i], i))
        if left[smallest] >= limit * (1 - 1e-12) / len(left):
            break
        del left[smallest]
    return [i not in left for i in range(len(tails))]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(0, 0.1) | st.sampled_from([0.0, 0.0125, 0.025, 1.0]), min_size=1, max_size=30))
def test_holm_rejects_step_by_step(tails: list[float]) -> None:
    assert holm(np.array(tails), 0.025).tolist() == step_down(tails, 0.025)


def test_a_sound_family_is_called_bad_at_most_half_of_alpha_of_the_time() -> None:
    """Two hundred segments whose true rate is the edge of the tolerance: the hardest to leave in peace."""
    policy, rng, bad = document().policy, np.random.default_rng(0), 0
    for _ in range(300):
        counts = {str(i): (int(k), 4_000) for i, k in enumerate(rng.binomial(4_000, 0.015, 200))}
        bad += any(measured.refuted for measured in evidence(policy, counts).measurements)
    assert bad / 300 <= 0.025 + 3 * (0.025 * 0.975 / 300) ** 0.5
    alone = sum(int(k) >= 77 for k in rng.binomial(4_000, 0.015, 200 * 300)) / 300
    assert alone > 1, "without the correction some segment of every family would fail"


# --- one segment --------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 400), st.integers(400, 20_000), st.sampled_from(["proven", "observed", "not-refuted"]))
def test_one_segment_alone_is_judged_like_the_whole(k: int, n: int, rule: str) -> None:
    doc = document(rule)
    (_, alone) = findings(doc, {"de": (k, n)})
    whole = judge_target(doc.policy, measure_target(doc.policy, doc.policy.targets[0], 0.5, k, n, 1e-6))
    assert (alone.outcome, alone.grade, alone.reason) == (whole.outcome, whole.grade, whole.reason)
    assert alone.measurement is not None
    assert whole.measurement is not None
    assert alone.measurement.interval == whole.measurement.interval
    assert (alone.remedy is None) == (alone.outcome == "pass")


def test_the_worst_come_first_and_what_they_lack_is_named() -> None:
    counts = {"en": (500, 50_000), "de": (900, 30_000), "fr": (3, 300), "nl": (12, 1_200), "pt": (0, 5_000)}
    summary, *rest = findings(document(more=", expect: [en, es, it]"), counts)
    assert summary.message == "5 segments, 5 tests: 2 fail, 2 inconclusive, 1 pass, 2 expected segments absent"
    assert (summary.outcome, summary.required) == ("fail", False)
    assert [finding.check for finding in rest] == [
        "segment/language=es",
        "segment/language=it",
        "fpr@0.01/language=de",
        "fpr@0.01/language=pt",
        "fpr@0.01/language=fr",
        "fpr@0.01/language=nl",
        "fpr@0.01/language=en",
    ]
    assert [finding.reason for finding in rest] == [
        "missing",
        "missing",
        "too-many",
        "too-few",
        "min-n",
        "open",
        "proven",
    ]
    assert rest[2].message == "900 false positives in 30,000 benign rows; disproved even as one of 5 tests"
    assert str(rest[5].remedy).startswith("hold out ")
    assert "more benign rows of this segment" in str(rest[5].remedy)
    assert not any(finding.blocks for finding in rest)


def test_the_rows_named_as_wanted_do_prove_it() -> None:
    (_, finding) = findings(document(), {"nl": (12, 1_200)})
    rows = int(str(finding.remedy).partition("(")[2].partition(" in all")[0].replace(",", ""))
    (_, then) = findings(document(), {"nl": (rows * 12 // 1_200, rows)})
    assert (then.outcome, then.grade) == ("pass", "proven")


# --- many ---------------------------------------------------------------------------------------------------


def test_a_required_segment_blocks_unless_waived() -> None:
    waiver = "waivers: [{check: fpr@1%/language=de, reason: known, owner: me, expires: 2026-12-31}]\n"
    counts = {"de": (900, 30_000), "en": (500, 50_000)}
    for waivers, blocks in (("", True), (waiver, False)):
        doc = document(more=", required: true", waivers=waivers)
        assert any(finding.blocks for finding in findings(doc, counts)) is blocks


def test_no_number_of_waived_segments_hides_one_that_blocks() -> None:
    names = [f"s{i}" for i in range(MOST_SEGMENTS + 10)]
    waivers = "waivers:\n" + "".join(
        f"- {{check: fpr@0.01/language={name}, reason: known, owner: me, expires: 2026-12-31}}\n" for name in names
    )
    counts = dict.fromkeys(names, (900, 30000)) | {"open": (12, 1_200)}
    shown = findings(document(more=", required: true", waivers=waivers), counts)
    assert [finding.check for finding in shown if finding.blocks] == ["fpr@0.01/language=open"]


def test_ten_thousand_segments_give_fifty_findings_and_every_count(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    n = 1_000_000
    names = np.array([f"s{i:05}" for i in range(10_000)])
    samples = [
        pa.table({"score": rng.beta(0.5, 8, n), "language": names[rng.integers(0, 10_000, n)]}) for _ in range(2)
    ]
    policy = tmp_path / "policy.yaml"
    policy.write_text(document(more="").text.replace("targets: [0.01]", "targets: [0.1, 0.01]"))
    release = gate.run(*samples, release="r", policy=policy)
    record = release.record
    assert record.segments is not None
    assert len(record.segments.names) == 10_000
    assert sum(record.segments.benign) == n
    assert [sum(target.false_positives) for target in record.segments.targets] == [
        int((samples[1]["score"].to_numpy() >= release.calibrator.thresholds[fpr]).sum())
        for fpr in sorted(release.calibrator.thresholds, reverse=True)[:2]
    ]
    assert sum("language" in finding.check for finding in record.findings) == MOST_SEGMENTS
    assert len(release.files["verdict.json"]) < 2_000_000
    assert len(release.files["report.html"]) < 1_000_000
    assert "19\u202f950 more segments" in release.files["report.html"].decode()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_counts_are_those_found_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 2_000
    languages = rng.choice(["de", "en", "fr"], n)
    holdout = pa.table({"score": rng.uniform(size=n), "language": languages})
    fit = pa.table({"score": rng.uniform(size=n), "language": languages})
    release = gate.run(fit, holdout, release="r", policy=document())
    section = release.record.segments
    assert section is not None
    threshold = release.calibrator.thresholds[document().policy.targets[0].fpr]
    for name, benign, k in zip(section.names, section.benign, section.targets[0].false_positives, strict=True):
        rows = holdout["score"].to_numpy()[languages == name]
        assert (len(rows), int((rows >= threshold).sum())) == (benign, k)


def test_rows_that_come_in_groups_are_worth_less_in_a_segment_too() -> None:
    rng = np.random.default_rng(2)
    columns = {
        "score": np.repeat(rng.beta(0.5, 8, 2_000), 20),
        "language": np.repeat(rng.choice(["de", "en"], 2_000), 20),
        "user": np.repeat(np.arange(2_000), 20),
    }
    fit = pa.table(columns | {"score": rng.beta(0.5, 8, 40_000), "user": np.arange(40_000) + 5_000})
    doc = document().with_columns({"group": "user"})
    section = gate.run(fit, pa.table(columns), release="r", policy=doc).record.segments
    assert section is not None
    for benign, worth in zip(section.benign, section.targets[0].effective_n, strict=True):
        assert worth == pytest.approx(benign / 20, rel=0.1)


# --- segments that the policy names and does not ask for ----------------------------------------------------

UNASKED = """\
version: 1
name: unasked
rule: observed
targets:
  - {fpr: 10%, min_n: 1000, max_relative_error: 0.5}
  - {fpr: 1%, min_n: 20000, max_relative_error: 0.5}
data: {segment: language}
"""


def tables(rng: np.random.Generator, sizes: dict[str, int], worse: str) -> tuple[pa.Table, pa.Table]:
    names = np.repeat(list(sizes), list(sizes.values()))
    found = []
    for shift in (0.0, 0.6):
        scores = rng.random(len(names))
        scores = np.where(names == worse, scores ** (1 - shift), scores)
        found.append(pa.table({"score": scores, "language": names}))
    return found[0], found[1]


def test_segments_that_nobody_asked_for_advise() -> None:
    """Only where there are rows enough for a target; nothing of it blocks, and a worse segment is seen."""
    fit, holdout = tables(np.random.default_rng(1), {"en": 30_000, "de": 2000, "nl": 500}, worse="de")
    document = policies.parse(UNASKED, "p.yaml")
    release = gate.run(fit, holdout, release="v1", policy=document)
    found = {finding.check: finding for finding in release.record.findings}
    assert release.outcome == "pass"
    assert {check for check in found if "/" in check} == {
        "fpr@0.1/language=en",
        "fpr@0.1/language=de",
        "fpr@0.01/language=en",
    }
    assert not any(finding.required for check, finding in found.items() if "/" in check or check == "segments")
    assert found["fpr@0.1/language=de"].outcome == "fail"
    assert found["segments"].outcome == "fail"
    assert found["segments"].message == (
        "3 segments, 6 tests: 1 fail, 0 inconclusive, 2 pass, 3 with too few rows; for information, as the policy has "
        "no checks.segments"
    )
    evidence = verification.evidence_of(document.policy, release.calibrator.thresholds, release.record)
    again = judge(document.policy, evidence, date(2026, 11, 16))
    assert [f.message for f in again.findings] == [f.message for f in release.record.findings]


def test_of_very_many_segments_nobody_asked_for_the_largest_are_shown() -> None:
    sizes = {f"s{i:03}": 1000 + i for i in range(150)}
    fit, holdout = tables(np.random.default_rng(2), sizes, worse="none")
    release = gate.run(fit, holdout, release="v1", policy=policies.parse(UNASKED, "p.yaml"))
    assert release.record.segments is not None
    assert set(release.record.segments.names) == {f"s{i:03}" for i in range(50, 150)}
    evidence = verification.evidence_of(
        policies.parse(UNASKED, "p.yaml").policy, release.calibrator.thresholds, release.record
    )
    assert evidence.segments is not None


@pytest.mark.parametrize("required", [True, False])
def test_what_the_policy_asks_for_and_nobody_measured_is_inconclusive(required: bool) -> None:
    """Samples without the columns: their segments and ages are not silently left out."""
    flag = f"required: {str(required).lower()}"
    text = UNASKED.replace("language}", "language, timestamp: seen}") + (
        f"checks:\n  freshness: {{max_age_days: 9, {flag}}}\n"
        f"  segments: {{targets: [10%], min_n: 100, max_relative_error: 0.5, {flag}}}\n"
    )
    rng = np.random.default_rng(3)
    fit, holdout = (Scores(rng.random(30_000), (Source(name, 30_000, 30_000),)) for name in ("fit", "holdout"))
    document = policies.parse(text, "p.yaml")
    release = gate_release(document, "v1", datetime(2026, 11, 16, tzinfo=UTC), fit, holdout)
    record = release.record
    found = {finding.check: (finding.outcome, finding.reason, finding.required) for finding in record.findings}
    for check in ("freshness", "segments"):
        assert found[check] == ("inconclusive", "not-measured", required)
    assert record.outcome == ("inconclusive" if required else "pass")
    assert ("freshness and segments could not be measured" in record.reason) == required
    evidence = verification.evidence_of(document.policy, release.calibrator.thresholds, record)
    again = judge(document.policy, evidence, date(2026, 11, 16))
    assert (again.outcome, again.reason) == (record.outcome, record.reason)
