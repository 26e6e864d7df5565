"""Detection: malicious rows are counted at every anchor and judged by the same three grades, apart from calibration."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from cases import at_anchors, case, evidence, tally, targets
from hypothesis import given
from hypothesis import strategies as st
from samples import column_of, sample_of

import gate
from gate.checks import detection, fpr, parse_policy
from gate.checks.detection import Detection, DetectionSettings
from gate.contract import PAPER_ANCHORS
from gate.errors import GateError
from gate.policy import Columns, Policy
from gate.rows.reading import read
from gate.rows.sample import Sample
from gate.statistics.binomial import clopper_pearson, lower_tail, upper_tail
from gate.statistics.tally import Tally
from gate.verdict import Verdict, judge

POLICY = """\
version: 1
name: small
rule: {rule}
targets: [{{fpr: 10%, min_n: 1000, max_relative_error: 0.5}}]
checks:
  detection:
    targets: [{{fpr: 0.1%, min_tpr: 80%}}, {{fpr: 1%, min_tpr: 0.9}}]
    max_drop: 0.02
    required: {required}
"""


def make(rule: str = "proven", required: str = "true") -> Policy:
    return parse_policy(POLICY.format(rule=rule, required=required), "p.yaml").policy


def judged(policy: Policy, detected: dict[str, Tally] | None) -> Verdict:
    """Detection beside a target that passes; there is no earlier release to have dropped from."""
    asked = policy.settings(DetectionSettings)
    assert asked is not None
    checks = policy.checks.model_copy(update={"detection": asked.model_copy(update={"max_drop": None})})
    alone = policy.model_copy(update={"checks": checks})
    counted = {} if detected is None else {"detection": Detection(anchors=at_anchors(detected))}
    n = None if detected is None else next(iter(detected.values())).rows
    parts: dict[str, Any] = {"fpr": targets(policy, tally(1000, 10_000)), **counted}
    verdict = judge(alone, evidence(policy, malicious_n=n, **parts), CHECKS)
    return replace(verdict, findings=tuple(finding for finding in verdict.findings if finding.check.kind == "tpr"))


CHECKS = (fpr.CHECK, detection.CHECK)


def rows_advised(remedy: str | None) -> int:
    advised = re.search(r"\(([\d,]+) in all\)", str(remedy))
    assert advised
    return int(advised[1].replace(",", ""))


# --- the policy ---------------------------------------------------------------------------------------------


def test_the_policy_names_anchors_and_shares() -> None:
    check = make().settings(DetectionSettings)
    assert check is not None
    assert [(str(target.check), str(target.drop_check), target.min_tpr) for target in check.targets] == [
        ("tpr@0.1%", "tpr-drop@0.1%", Decimal("0.8")),
        ("tpr@1%", "tpr-drop@1%", Decimal("0.9")),
    ]
    assert check.max_drop == Decimal("0.02")
    assert check.required


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fpr: 1%", "fpr: 2%", "p.yaml:7: checks.detection.targets[1].fpr: must be an anchor of the contract"),
        ("fpr: 1%", "fpr: 0.1%", "p.yaml:7: checks.detection.targets[1].fpr: must differ from every other target's"),
        ("min_tpr: 0.9", "min_tpr: 1", "targets[1].min_tpr: must be above 0 and below 1, such as 0.8, got 1"),
        ("min_tpr: 0.9", "min_tpr: 0", "targets[1].min_tpr: must be above 0 and below 1, such as 0.8, got 0"),
        ("min_tpr: 0.9", "mintpr: 0.9", "targets[1].mintpr: must be a known key; did you mean `min_tpr`?"),
        ("max_drop: 0.02", "max_drop: 0", "max_drop: must be above 0 and below 1, such as 0.02 for two points, got 0"),
        (
            "max_drop: 0.02",
            "max_dorp: 0.02",
            "checks.detection.max_dorp: must be a known key; did you mean `max_drop`?",
        ),
    ],
)
def test_a_wrong_detection_check_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(GateError, match=r"^p\.yaml") as caught:
        parse_policy(POLICY.format(rule="proven", required="true").replace(old, new), "p.yaml")
    assert message in str(caught.value)


def test_an_empty_list_of_detection_targets_is_refused() -> None:
    text = POLICY.format(rule="proven", required="true").replace(
        "[{fpr: 0.1%, min_tpr: 80%}, {fpr: 1%, min_tpr: 0.9}]", "[]"
    )
    with pytest.raises(GateError, match=r"checks\.detection\.targets: must list at least one target"):
        parse_policy(text, "p.yaml")


def test_waivers_name_detection_checks_however_the_rate_is_written() -> None:
    text = "waivers: [{check: tpr@0.001, reason: r, owner: o, expires: 2026-12-31}]\n"
    policy = parse_policy(POLICY.format(rule="proven", required="true") + text, "p.yaml").policy
    assert str(policy.waivers[0].check) == "tpr@0.1%"
    verdict = judged(policy, {"0.001": tally(10, 1000), "0.01": tally(990, 1000)})
    assert [(str(f.check), f.outcome, f.waived) for f in verdict.findings] == [
        ("tpr@0.1%", "fail", True),
        ("tpr@1%", "pass", False),
    ]
    assert verdict.outcome == "pass"


# --- counting -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def malicious() -> Sample:
    return sample_of(np.random.default_rng(2).beta(4, 3, 3_000), kind="malicious")


def test_every_anchor_is_counted_as_the_pipeline_would_flag(malicious: Sample) -> None:
    fit, holdout = np.random.default_rng(1).beta(0.5, 8, (2, 50_000))
    asked = case(make(), fit, holdout, malicious)
    detected = detection.measure(asked)
    assert detected is not None
    calibrated = asked.calibrator.predict(column_of(malicious))
    for at, anchor in zip(detected.anchors, PAPER_ANCHORS, strict=True):
        k = int(np.count_nonzero(calibrated >= float(anchor.score)))
        assert (at.fpr, at.tally.flagged, at.tally.rows) == (anchor.fpr, k, 3_000)
        assert at.tally.interval(0.05) == clopper_pearson(k, 3_000, 0.05)


def test_malicious_rows_of_one_family_count_as_the_rows_they_are_worth() -> None:
    """A hundred families whose rows all score alike are worth about a hundred rows."""
    values = np.repeat(np.random.default_rng(3).beta(4, 3, 100), 30)
    families = sample_of(values, groups=np.repeat(np.arange(100), 30), kind="malicious")
    fit, holdout = np.random.default_rng(1).beta(0.5, 8, (2, 50_000))
    detected = detection.measure(case(make(), fit, holdout, families))
    assert detected is not None
    at = detected.at(Decimal("0.01"))
    assert at is not None
    assert 40 < min(at.worth) <= max(at.worth) < 160
    low, high = clopper_pearson(at.flagged, at.rows, 0.05)
    assert at.interval(0.05)[0] < low
    assert at.interval(0.05)[1] > high


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_malicious_rows_are_those_that_are_not_benign(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"score": [0.1, 0.7, 0.9, 0.2], "label": ["benign", "malware", "phish", "benign"]})
    path = str(tmp_path / f"scores{suffix}")
    if suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    columns = Columns(label="label", benign_label="benign")
    scores = read([path], columns, (0.0, 1.0), "malicious")
    assert column_of(scores) == [0.7, 0.9]
    assert (scores.sources[0].rows, scores.sources[0].benign, scores.kind) == (4, 2, "malicious")
    assert scores.summary == (
        f"4 rows from {path}: 2 malicious, 2 of other labels, none refused; "
        "3 labels ('benign' 2 benign, 'malware' 1 malicious, 'phish' 1 malicious)"
    )
    assert column_of(read([path], Columns(), (0.0, 1.0), "malicious")) == [0.1, 0.7, 0.9, 0.2]


def test_a_labelled_file_without_malicious_rows_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "scores.csv")
    Path(path).write_text("score,label\n0.1,0\n0.2,0\n")
    with pytest.raises(GateError, match="must mark malicious rows with something else than '0', got '0' in 2 rows"):
        read([path], Columns(label="label"), (0.0, 1.0), "malicious")
    Path(path).write_text("score,label\n0.1,0\n0.2,1\n")
    with pytest.raises(GateError, match="must hold at least 2 malicious scores, got 1"):
        read([path], Columns(label="label"), (0.0, 1.0), "malicious")


# --- judging ------------------------------------------------------------------------------------------------


@given(st.integers(0, 400), st.integers(2, 400), st.sampled_from(["proven", "observed", "not-refuted"]))
def test_the_grade_is_where_the_interval_lies(k: int, n: int, rule: str) -> None:
    """L >= 0.8 iff P(Bin(n, 0.8) >= k) <= alpha/2, and U < 0.8 iff P(Bin(n, 0.8) <= k) < alpha/2."""
    k, policy = min(k, n), make(rule)
    finding = judged(policy, {"0.001": tally(k, n)}).findings[0]
    proven, refuted = upper_tail(k, n, 0.8) <= 0.025, lower_tail(k, n, 0.8) < 0.025
    assert finding.grade == ("proven" if proven else "refuted" if refuted else "open")
    point = Fraction(k, n) >= Fraction(4, 5)
    passes = proven or (not refuted and (rule == "not-refuted" or (rule == "observed" and point)))
    assert finding.outcome == ("fail" if refuted else "pass" if passes else "inconclusive")
    assert finding.rate is not None
    accepts = finding.rate.accepts
    accepted = accepts is not None and accepts[0] <= k <= accepts[1]
    assert accepted == passes


def test_the_sentences_say_which_counts_decide_and_what_would_help() -> None:
    policy = make()
    lost, open_, near, sure = (judged(policy, {"0.001": tally(k, 1_000)}).findings[0] for k in (700, 810, 790, 900))
    assert lost.message == (
        "700 of 1,000 malicious rows detected; 825 or more prove the minimum of 80 %, 774 or fewer refute it"
    )
    assert (lost.outcome, lost.reason) == ("fail", "missed")
    assert (
        lost.remedy == "train the detector further: it catches too few malicious rows, and no calibration changes that"
    )
    assert (open_.outcome, open_.reason) == ("inconclusive", "open")
    more = rows_advised(open_.remedy)
    assert open_.remedy == (
        f"score {more - 1000:,} more malicious rows ({more:,} in all): at the rate observed, a release then passes "
        "95 % of the time"
    )
    assert near.remedy is not None
    assert near.remedy.startswith("train the detector further: no number of rows in reach")
    assert (sure.outcome, sure.remedy) == ("pass", None)


@pytest.mark.parametrize(("k", "n"), [(810, 1000), (85, 100), (170, 200), (4050, 5000)])
def test_so_many_more_rows_at_the_rate_observed_pass_as_often_as_it_says(k: int, n: int) -> None:
    """5,000 draws of the rows to come; four standard errors of 95 % are 1.2 %."""
    policy, rng = make(), np.random.default_rng(k)
    rows = rows_advised(judged(policy, {"0.001": tally(k, n)}).findings[0].remedy)
    rate = judged(policy, {"0.001": tally(k, rows)}).findings[0].rate
    assert rate is not None
    accepts = rate.accepts
    assert accepts is not None
    counts = k + rng.binomial(rows - n, k / n, 5000)
    assert 0.938 <= np.mean((counts >= accepts[0]) & (counts <= accepts[1])) < 0.99


def test_a_check_without_malicious_rows_is_not_passed_over() -> None:
    """Nothing measured is never a pass."""
    verdict = judged(make(), None)
    assert verdict.outcome == "inconclusive"
    assert verdict.reason == "tpr@0.1% and tpr@1% could not be measured"
    assert {finding.reason for finding in verdict.findings} == {"not-measured"}
    assert "--malicious" in (verdict.findings[0].remedy or "")


def test_an_advisory_check_is_shown_and_does_not_block() -> None:
    policy = make(required="false")
    verdict = judged(policy, {"0.001": tally(10, 1000), "0.01": tally(10, 1000)})
    assert verdict.outcome == "pass"
    assert [finding.outcome for finding in verdict.findings] == ["fail", "fail"]


def test_a_detector_that_detects_nothing_still_calibrates_and_fails() -> None:
    """Malicious rows that score like benign ones: every FPR target holds, detection does not."""
    rng = np.random.default_rng(4)
    document = parse_policy(POLICY.format(rule="proven", required="true"), "p.yaml")
    release = gate.run(
        rng.beta(0.5, 8, 20_000),
        rng.beta(0.5, 8, 20_000),
        release="blind",
        policy=document,
        malicious=rng.beta(0.5, 8, 2_000),
    )
    outcomes = {str(finding.check): finding.outcome for finding in release.record.findings}
    assert outcomes["fpr@10%"] == "pass"
    assert outcomes["tpr@0.1%"] == outcomes["tpr@1%"] == "fail"
    assert release.outcome == "fail"
    assert release.record.reason == "the malicious rows disprove tpr@0.1% and tpr@1%"


def test_the_record_holds_every_anchor_the_findings_numbers_and_the_curve() -> None:
    rng = np.random.default_rng(5)
    release = gate.run(
        rng.beta(0.5, 8, 20_000), rng.beta(0.5, 8, 20_000), release="v1", malicious=rng.beta(6, 2, 2_000)
    )
    record = release.record
    assert record.malicious is not None
    assert record.curve is not None
    counted = record.of(Detection)
    assert (record.malicious.n, len(counted.anchors)) == (2_000, 6)
    at = {point.fpr: point for point in record.curve.points}
    for entry in counted.anchors:
        assert entry.tally.rows == 2_000
        assert at[entry.fpr].detected == entry.tally.flagged
        assert at[entry.fpr].tally.threshold == entry.tally.threshold
    ordered = sorted(at.values(), key=lambda point: point.fpr)
    rates = [point.detected for point in ordered if point.detected is not None]
    assert len(rates) == len(ordered), "counted at every point of the curve"
    assert rates == sorted(rates)
    assert not any(finding.check.kind == "tpr" for finding in record.findings), "no policy asks for it"
