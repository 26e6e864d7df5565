"""What no sample has is refused where it is read: parts of a record, and settings of a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import evidence, tally
from forging import Measured, measured
from pydantic import ValidationError
from samples import sample_of

from gate import policy as policies
from gate.checks import CHECKS, find_policy, fpr, owner, parse_policy, policy_model, policy_schema
from gate.checks.check import Finding
from gate.checks.duplicates import Duplicates, Repeats
from gate.checks.fpr import AtAnchor, JudgedTarget, Targets
from gate.checks.overlap import refuse_identical
from gate.errors import GateError
from gate.names import CheckName
from gate.planning import Advice
from gate.rows.reading import read_sample
from gate.verdict import Verdict, judge

TARGET = "version: 1\nname: parts\ntargets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"


@pytest.fixture(scope="module")
def release() -> Measured:
    return measured("plain")


PARTS = [
    ("segments.names", ["a"], "must have a name, a size and a count for each segment"),
    ("segments.names", ["a", "a"], "must have a name, a size and a count for each segment"),
    ("segments.rows", [402, 0], "must have a name, a size and a count for each segment"),
    ("segments.targets.0.effective", [[9, 9]], "must have a name, a size and a count for each segment"),
    ("segments.targets.0.flagged", [300, 12], "must flag no more rows of a segment than there are"),
    ("segments.targets.0.threshold", None, "must flag no more rows of a segment than there are"),
    ("freshness.oldest", "2026-02-21", "must have a newest day that is not before the oldest"),
    ("freshness.fit_oldest", None, "must have a newest day that is not before the oldest"),
    ("reuse.holdout.number", 2, "must count each earlier use once, with what it shares"),
    ("reuse.holdout", {"number": 2, "earlier": ["v1"], "shared": [0.01]}, "must share 0.05 or more with each earlier"),
    ("baseline.anchors.0.flipped", {"new_only": 99, "old_only": 0}, "must flip rows that are among those flagged"),
    ("baseline.anchors.0.stale.rows", 403, "must count the same rows at the old threshold"),
    ("fpr.anchors.0.tally.flagged", 403, "must flag no more rows than there are, and none without a threshold"),
    ("fpr.anchors.0.tally.effective", [0, 9], "must be worth more than no row, and at most as many as there are"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value", "sentence"), PARTS)
def test_a_part_that_no_sample_has_is_not_read(release: Measured, place: str, value: Any, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        release.forged(place, value)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("exchangeability: {alpha: 0.3}", r"checks\.exchangeability\.alpha: must be from 0\.0001 to 0\.2"),
        ("overlap: {max_share: 1}", r"checks\.overlap\.max_share: must be at least 0 and below 1, such as 0\.001"),
        ("duplicates: {max_share: 1}", r"checks\.duplicates\.max_share: must be at least 0 and below 1"),
        ("freshness: {max_age_days: 40000}", r"checks\.freshness\.max_age_days: must be from 1 to 36,500"),
        ("detection: {targets: [{fpr: 1%, min_tpr: 1}]}", r"min_tpr: must be above 0 and below 1, such as 0\.8"),
        ("detection: {targets: [{fpr: 1%, min_tpr: 0.5}], max_drop: 1}", r"checks\.detection\.max_drop: must be"),
    ],
)
def test_a_setting_that_judges_nothing_is_refused(setting: str, sentence: str) -> None:
    with pytest.raises(GateError, match=sentence):
        parse_policy(f"{TARGET}data: {{timestamp: time}}\nchecks: {{{setting}}}\n", "parts.yaml")


def test_the_same_scores_on_both_sides_are_refused() -> None:
    rows = sample_of(np.linspace(0, 1, 50))
    with pytest.raises(GateError, match="scores: must hold other rows than the fit sample, got the same 50 scores"):
        refuse_identical(rows, sample_of(np.linspace(0, 1, 50)))


def test_the_same_bytes_on_both_sides_are_refused(tmp_path: Path) -> None:
    policy = parse_policy(TARGET, "parts.yaml").policy
    for name in ("fit", "copy"):
        np.save(tmp_path / f"{name}.npy", np.linspace(0, 1, 50))
    fit, copy = (read_sample(name, (str(tmp_path / f"{name}.npy"),), policy) for name in ("fit", "copy"))
    with pytest.raises(GateError, match=r"copy\.npy: must hold other rows than the fit sample, got the same bytes"):
        refuse_identical(fit, copy)


# --- what is not asked, and what is found by name -----------------------------------------------------------


def test_a_policy_that_knows_one_check_asks_for_no_other() -> None:
    policy = policies.parse(TARGET, "parts.yaml", policy_model((fpr.CHECK,))).policy
    nothing = evidence(policy)
    assert [str(asked.name) for check in CHECKS for asked in check.asked(policy, nothing)] == ["fpr@1%"]
    assert all([*check.judge(policy, nothing)] == [] for check in CHECKS)


def test_the_schema_of_a_policy_has_every_check_with_settings() -> None:
    schema: Any = policy_schema()
    assert {check.key for check in CHECKS if check.settings} == {*schema["$defs"]["Checks"]["properties"]}


def test_a_policy_is_found_by_name_or_path(tmp_path: Path) -> None:
    (tmp_path / "parts.yaml").write_text(TARGET)
    assert find_policy(str(tmp_path / "parts.yaml")).policy.name == "parts"
    assert find_policy("built-in").policy.name == "default"


@pytest.mark.parametrize(("name", "key"), [("fpr", "fpr"), ("tpr", "detection"), ("segment", "segments")])
def test_every_finding_has_a_check_that_owns_it(name: str, key: str) -> None:
    found = owner(CheckName(name))
    assert found is not None
    assert found.key == key
    assert found.places[0][0] in ("checks", "targets")


def test_a_verdict_is_shown_in_a_notebook() -> None:
    finding = Finding(check="fpr@1%", outcome="fail", required=True, reason="too-many", message="1 < 2 & 3")
    verdict = Verdict("fail", "rows of a<b disprove it", (finding,), ())
    assert repr(verdict) == "<Verdict fail: rows of a<b disprove it (fpr@1%: 1 < 2 & 3)>"
    assert verdict._repr_html_() == (
        "<p><strong>FAIL</strong>: rows of a&lt;b disprove it.</p>"
        "<table><tr><td>fail</td><td>fpr@1%</td><td>1 &lt; 2 &amp; 3</td></tr></table>"
    )


def test_ids_that_repeat_more_often_than_allowed_fail() -> None:
    policy = parse_policy(TARGET, "parts.yaml").policy
    found = evidence(policy, duplicates=Duplicates(holdout=Repeats(rows=1000, by="ids", repeated=20)))
    finding = next(one for one in judge(policy, found).findings if one.check.kind == "duplicates")
    assert (finding.outcome, finding.reason) == ("fail", "repeated-rows")
    assert finding.message == "20 of 1,000 held-out rows repeat an id"


# --- what would help a target -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("advice", "min_n", "words"),
    [
        (
            Advice(more=3000, fresh=True),
            10,
            "hold out 3,000 benign rows that have judged no release yet: a sound release",
        ),
        (Advice(more=3000), 10, "hold out 2,000 more benign rows (3,000 in all): a sound release with this count"),
        (
            Advice(again=3000),
            10,
            "fit on and hold out 3,000 fresh rows each: on benign rows like those to come, a sound",
        ),
        (Advice(computed=False), 10, "hold out more benign rows, or fit again: how many would do was not computed"),
        (Advice(), 10**12, "lower the min_n of 1,000,000,000,000: gate judges at most 10,000,000,000 rows"),
        (Advice(), 10, "widen max_relative_error or drop this target: no number of rows up to 10,000,000,000 lets a"),
        (None, 10, "give the detector finer scores: more rows do not part those that share the highest one"),
    ],
)
def test_what_would_help_a_target_is_told(
    advice: Advice | None, min_n: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JudgedTarget, "_advice", lambda *_: advice)
    policy = parse_policy(TARGET.replace("1000", str(min_n)), "parts.yaml").policy
    counts = Targets(anchors=(AtAnchor(fpr=policy.targets[0].fpr, tally=tally(13, 1000)),))
    (finding,) = (one for one in judge(policy, evidence(policy, fpr=counts)).findings if one.check.kind == "fpr")
    assert str(finding.remedy).startswith(words)
