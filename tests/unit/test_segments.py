"""Every target in every segment: counted like the whole, corrected for how many there are, the worst first."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from cases import evidence, tally, targets
from drawing import examples, often
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import sample_of

import gate
from gate.checks import fpr, parse_policy
from gate.checks.check import Evidence, Finding
from gate.checks.segments import CHECK as SEGMENTS
from gate.checks.segments import MOST_SHOWN, InSegments, Segments, holm
from gate.gating import Job, gate_release
from gate.policy import Document, Policy
from gate.record import Record
from gate.report import terminal
from gate.sources import Source
from gate.verdict import judge

TARGETS = "targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"


def document(rule: str = "proven", more: str = "", waivers: str = "") -> Document:
    text = f"version: 1\nname: parts\nrule: {rule}\n{TARGETS}data: {{segment: language}}\n"
    text += f"checks: {{segments: {{targets: [0.01], min_n: 1000, max_relative_error: 0.5{more}}}}}\n{waivers}"
    return parse_policy(text, "policy.yaml")


def counted(policy: Policy, counts: dict[str, tuple[int, int]]) -> Evidence:
    """The first target's false positives among the rows of each segment."""
    ks, ns = zip(*counts.values(), strict=True)
    at = InSegments(fpr=policy.targets[0].fpr, threshold=0.5, flagged=ks)
    found = Segments(column="language", names=tuple(counts), rows=ns, targets=(at,))
    whole = targets(policy, tally(1_000, 100_000))
    return evidence(policy, lowest_label=1e-6, day=date(2026, 11, 16), fpr=whole, segments=found)


def findings(doc: Document, counts: dict[str, tuple[int, int]]) -> list[Finding]:
    verdict = judge(doc.policy, counted(doc.policy, counts), (fpr.CHECK, SEGMENTS))
    return [finding for finding in verdict.findings if finding.check.family == "segments"]


def judged_again(policy: Policy, record: Record) -> None:
    """The record's own evidence, read back, gives its findings."""
    again = judge(policy, Record.model_validate_json(record.to_json()).evidence)
    assert (again.outcome, again.reason, again.findings) == (record.outcome, record.reason, record.findings)


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


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.floats(0, 0.1) | st.sampled_from([0.0, 0.0125, 0.025, 1.0]), min_size=1, max_size=30))
def test_holm_rejects_step_by_step(tails: list[float]) -> None:
    assert holm(np.array(tails), 0.025).tolist() == step_down(tails, 0.025)


def test_a_sound_family_is_called_bad_at_most_half_of_alpha_of_the_time() -> None:
    """Two hundred segments whose true rate is the edge of the tolerance: the hardest to leave in peace."""
    policy, rng, bad = document().policy, np.random.default_rng(0), 0
    for _ in range(100):
        counts = {str(i): (int(k), 4_000) for i, k in enumerate(rng.binomial(4_000, 0.015, 200))}
        shown = SEGMENTS.judge(policy, counted(policy, counts))
        bad += any(finding.grade == "refuted" for finding in shown)
    assert bad / 100 <= 0.025 + 3 * (0.025 * 0.975 / 100) ** 0.5
    alone = sum(int(k) >= 77 for k in rng.binomial(4_000, 0.015, 200 * 300)) / 300
    assert alone > 1, "without the correction some segment of every family would fail"


# --- one segment --------------------------------------------------------------------------------------------


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(0, 400), st.integers(400, 20_000), st.sampled_from(["proven", "observed", "not-refuted"]))
def test_one_segment_alone_is_judged_like_the_whole(k: int, n: int, rule: str) -> None:
    doc = document(rule)
    (_, alone) = findings(doc, {"de": (k, n)})
    (whole,) = fpr.judge(doc.policy, evidence(doc.policy, lowest_label=1e-6, fpr=targets(doc.policy, tally(k, n))))
    assert (alone.outcome, alone.grade, alone.reason) == (whole.outcome, whole.grade, whole.reason)
    assert alone.rate is not None
    assert whole.rate is not None
    assert alone.rate.interval == whole.rate.interval
    assert (alone.remedy is None) == (alone.outcome == "pass")


def test_the_worst_come_first_and_what_they_lack_is_named() -> None:
    counts = {"en": (500, 50_000), "de": (900, 30_000), "fr": (3, 300), "nl": (12, 1_200), "pt": (0, 5_000)}
    summary, *rest = findings(document(more=", expect: [en, es, it]"), counts)
    assert summary.message == "5 segments, 5 tests: 2 fail, 2 inconclusive, 1 pass, 2 expected segments absent"
    assert (summary.outcome, summary.required) == ("fail", False)
    assert [str(finding.check) for finding in rest] == [
        "segment/language=es",
        "segment/language=it",
        "fpr@1%/language=de",
        "fpr@1%/language=pt",
        "fpr@1%/language=fr",
        "fpr@1%/language=nl",
        "fpr@1%/language=en",
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
    names = [f"s{i}" for i in range(MOST_SHOWN + 10)]
    waivers = "waivers:\n" + "".join(
        f"- {{check: fpr@0.01/language={name}, reason: known, owner: me, expires: 2026-12-31}}\n" for name in names
    )
    counts = dict.fromkeys(names, (900, 30000)) | {"open": (12, 1_200)}
    shown = findings(document(more=", required: true", waivers=waivers), counts)
    assert [str(finding.check) for finding in shown if finding.blocks] == ["fpr@1%/language=open"]


def test_thousands_of_segments_give_fifty_findings_and_every_count(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    segments = often(1_500, 10_000)
    n = 100 * segments
    names = np.array([f"s{i:05}" for i in range(segments)])
    samples = [
        pa.table({"score": rng.beta(0.5, 8, n), "language": names[rng.integers(0, segments, n)]}) for _ in range(2)
    ]
    policy = tmp_path / "policy.yaml"
    policy.write_text(document(more="").text.replace("targets: [0.01]", "targets: [0.1, 0.01]"))
    release = gate.run(*samples, release="r", policy=policy)
    record = release.record
    found = record.of(Segments)
    assert len(found.names) == segments
    assert sum(found.rows) == n
    assert [sum(target.flagged) for target in found.targets] == [
        int((samples[1]["score"].to_numpy() >= release.calibrator.thresholds[fpr]).sum())
        for fpr in sorted(release.calibrator.thresholds, reverse=True)[:2]
    ]
    assert sum("language" in str(finding.check) for finding in record.findings) == MOST_SHOWN
    assert len(release.files["verdict.json"]) < 2_000_000
    assert len(release.files["report.html"]) < 1_000_000
    left = f"{2 * segments - 50:,} more tests of segments, which verdict.json lists"
    assert left in release.files["report.html"].decode()
    assert left in release.files["report.md"].decode()
    assert f"{2 * segments - 10:,} more tests of segments, which verdict.json lists" in terminal.render(record)


@settings(max_examples=often(4, 8), deadline=None)
@given(st.integers(0, 2**32))
def test_counts_are_those_found_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 2_000
    languages = rng.choice(["de", "en", "fr"], n)
    holdout = pa.table({"score": rng.uniform(size=n), "language": languages})
    fit = pa.table({"score": rng.uniform(size=n), "language": languages})
    release = gate.run(fit, holdout, release="r", policy=document())
    section = release.record.of(Segments)
    threshold = release.calibrator.thresholds[document().policy.targets[0].fpr]
    for name, benign, k in zip(section.names, section.rows, section.targets[0].flagged, strict=True):
        rows = holdout["score"].to_numpy()[languages == name]
        assert (len(rows), int((rows >= threshold).sum())) == (benign, k)


def test_rows_that_come_in_groups_are_worth_less_in_a_segment_too() -> None:
    rng = np.random.default_rng(2)
    columns = {
        "score": np.repeat(rng.beta(0.5, 8, 800), 20),
        "language": np.repeat(rng.choice(["de", "en"], 800), 20),
        "user": np.repeat(np.arange(800), 20),
    }
    fit = pa.table(columns | {"score": rng.beta(0.5, 8, 16_000), "user": np.arange(16_000) + 5_000})
    doc = document().override(["data.group=user"])
    section = gate.run(fit, pa.table(columns), release="r", policy=doc).record.of(Segments)
    for benign, worth in zip(section.rows, section.targets[0].effective, strict=True):
        assert benign / 60 < min(worth) <= max(worth) <= benign / 20 * 1.1


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
    document = parse_policy(UNASKED, "p.yaml")
    release = gate.run(fit, holdout, release="v1", policy=document)
    found = {str(finding.check): finding for finding in release.record.findings}
    assert release.outcome == "pass"
    assert {check for check in found if "/" in check} == {
        "fpr@10%/language=en",
        "fpr@10%/language=de",
        "fpr@1%/language=en",
    }
    assert not any(finding.required for check, finding in found.items() if "/" in check or check == "segments")
    assert found["fpr@10%/language=de"].outcome == "fail"
    assert found["segments"].outcome == "fail"
    assert found["segments"].message == (
        "3 segments, 6 tests: 1 fail, 0 inconclusive, 2 pass, 3 with too few rows; for information, as the policy has "
        "no checks.segments"
    )
    judged_again(document.policy, release.record)


def test_of_very_many_segments_nobody_asked_for_the_largest_are_shown() -> None:
    sizes = {f"s{i:03}": 1000 + i for i in range(150)}
    fit, holdout = tables(np.random.default_rng(2), sizes, worse="none")
    release = gate.run(fit, holdout, release="v1", policy=parse_policy(UNASKED, "p.yaml"))
    assert set(release.record.of(Segments).names) == {f"s{i:03}" for i in range(50, 150)}
    judged_again(parse_policy(UNASKED, "p.yaml").policy, release.record)


@pytest.mark.parametrize("required", [True, False])
def test_what_the_policy_asks_for_and_nobody_measured_is_inconclusive(required: bool) -> None:
    """Samples without the columns: their segments and ages are not silently left out."""
    flag = f"required: {str(required).lower()}"
    text = UNASKED.replace("language}", "language, timestamp: seen}") + (
        f"checks:\n  freshness: {{max_age_days: 9, {flag}}}\n"
        f"  segments: {{targets: [10%], min_n: 100, max_relative_error: 0.5, {flag}}}\n"
    )
    rng = np.random.default_rng(3)
    fit, holdout = (
        sample_of(rng.random(30_000), (Source(path=name, rows=30_000, benign=30_000),)) for name in ("fit", "holdout")
    )
    document = parse_policy(text, "p.yaml")
    created = datetime(2026, 11, 16, tzinfo=UTC)
    release = gate_release(Job(document, "v1", created, created.date()), fit, holdout)
    record = release.record
    found = {str(finding.check): (finding.outcome, finding.reason, finding.required) for finding in record.findings}
    for check in ("freshness", "segments"):
        assert found[check] == ("inconclusive", "not-measured", required)
    assert record.outcome == ("inconclusive" if required else "pass")
    assert ("freshness and segments could not be measured" in record.reason) == required
    judged_again(document.policy, record)
