"""Evidence is all that a judgement needs: read back from a record it gives the findings of the run; and one file and
one line are all that a check needs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import cases
import numpy as np
import pyarrow as pa
import pytest
from drawing import often
from pydantic import Field
from records import JUDGED, RECORDS
from samples import sample_of

from gate import policy as policies
from gate.calibration.fit import fit_ordered
from gate.checks import CHECKS, EVERY, NOT_MEASURED, curve, granularity, measure, parse_policy, policy_model, reasons
from gate.checks import fpr as targets
from gate.checks.check import Asked, Case, Check, Evidence, Finding
from gate.checks.granularity import Atom, Resolution
from gate.checks.served import ServedRows
from gate.errors import GateError
from gate.gating import Job, Release, calibrator_facts, check_release, gate_release, gather
from gate.inspection.judgement import _contradictions
from gate.names import CheckName
from gate.planning import Budget
from gate.policy import Flag, Frozen, Policy, PolicyCount
from gate.record import Record, StoredRelease, as_reference, parse_record
from gate.report import explain
from gate.rows.describe import describe
from gate.rows.reading import columns_for, from_object, kind_of
from gate.rows.sample import Sample
from gate.stored import Count, Grade, Outcome, Section
from gate.verdict import Verdict, judge

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def says_why(verdict: Verdict | Record) -> bool:
    """Whether the reason is there, and names something that was found."""
    return bool(verdict.reason) and (verdict.reason != "nothing was measured" or not verdict.findings)


def same(verdict: Verdict, record: Record) -> bool:
    parts = ("outcome", "reason", "findings", "waivers", "not_asked", "warnings")
    return all(getattr(verdict, part) == getattr(record, part) for part in parts)


# --- judging again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in RECORDS if case not in ("segments", "hostile")])
def test_the_evidence_of_a_golden_record_gives_its_findings(case: str) -> None:
    record = RECORDS[case]
    again = parse_record(record.to_json().encode(), "verdict.json")
    policy = parse_policy(again.policy.content, again.policy.path).policy
    assert same(judge(policy, again.evidence, CHECKS if again.kind == "check" else JUDGED), record)


class Drawn:
    """Small samples and a policy of any shape: ties, ids, segments, times, malicious rows, a baseline, a check."""

    def __init__(self, seed: int) -> None:
        self.rng, self.draw = np.random.default_rng([17, seed]), random.Random(seed)
        draw = self.draw
        self.digits = draw.choice([None, None, 1, 2, 3])
        self.ids, self.segments, self.times, self.malicious = (draw.random() < 0.4 for _ in range(4))
        self.groups = draw.random() < 0.15  # which take long to weigh
        self.document = parse_policy(self.policy(), "drawn.yaml")

    def policy(self) -> str:
        draw = self.draw
        rates = draw.sample(["10%", "1%", "0.1%"], draw.randint(1, 3))
        lines = ["version: 1", "name: drawn", f"rule: {draw.choice(['proven', 'observed', 'not-refuted'])}"]
        lines += [f"confidence: {draw.choice(['0.5', '0.95', '0.99'])}", "calibration: {knots: 50}", "targets:"]
        for rate in rates:
            error = draw.choice(["0.25", "0.9", "{above: 0.5, below: 1}"])
            required = draw.choice(["true", "false"])
            rows = draw.choice([1, 100, 1000])
            lines.append(f"  - {{fpr: {rate}, min_n: {rows}, max_relative_error: {error}, required: {required}}}")
        columns = {"id": self.ids, "segment": self.segments, "timestamp": self.times, "group": self.groups}
        lines.append(f"data: {json.dumps({name: name if named else None for name, named in columns.items()})}")
        lines += ["checks:", f"  overlap: {{required: {draw.choice(['true', 'false'])}}}"]
        lines += [f"  exchangeability: {{alpha: 0.05, required: {draw.choice(['true', 'false'])}}}"]
        if draw.random() < 0.7:
            lines += [
                f"  detection: {{targets: [{{fpr: 1%, min_tpr: 0.5}}], max_drop: {draw.choice(['0.1', 'null'])}}}"
            ]
        if self.segments and draw.random() < 0.7:
            lines += ["  segments: {targets: [10%], min_n: 10, max_relative_error: 1, expect: [a, z], required: true}"]
        if self.times and draw.random() < 0.7:
            lines += [f"  freshness: {{max_age_days: {draw.choice([10, 1000])}}}"]
        if draw.random() < 0.4:
            waived = draw.choice([f"fpr@{rates[0]}", "overlap", "segment/segment=z", "exchangeability"])
            expires = draw.choice(["2026-01-01", "2026-12-31"])
            lines += [f"waivers: [{{check: '{waived}', reason: r, owner: o, expires: {expires}}}]"]
        return "\n".join(lines)

    def sample(self, name: str) -> Sample:
        """Rows with every column that the policy may name; a few ids stand there twice."""
        kind = kind_of(name)
        n = int(10 ** self.rng.uniform(1.3, 3))
        a, b = (4, 2) if kind == "malicious" else (0.5, 8)
        values = self.rng.beta(a, b, n)
        values = values if self.digits is None else np.round(values, self.digits)
        again = n // 50 if self.ids or self.rng.random() < 0.2 else 0  # where no id is read, whole rows repeat
        rows = self.rng.permutation(np.r_[np.arange(n), np.arange(again)])
        table = {
            "score": values[rows],
            "id": [f"{name}{row}" for row in rows],
            "segment": ["b" if row % 3 == 0 else "a" for row in rows],
            "timestamp": ["2026-02-20"] * len(rows),
            "group": [f"{name}{row % max(2, n // 4)}" for row in rows],
        }
        columns, domain = columns_for(name, self.document.policy), self.document.policy.calibration.domain
        return from_object(pa.table(table), name, columns, domain, kind)

    def job(self, name: str) -> Job:
        return Job(self.document, name, NOON, NOON.date())

    def releases(self) -> Iterator[Release]:
        """One release, one held against it, and a check of the first."""
        attacks = self.sample("malicious") if self.malicious else None
        first = gate_release(self.job("v1"), self.sample("fit"), self.sample("holdout"), malicious=attacks)
        yield first
        stored = StoredRelease("v1", first.record, "a" * 64, first.calibrator.to_json().encode())
        reference = as_reference(stored)
        yield gate_release(
            self.job("v2"), self.sample("fit"), self.sample("holdout"), malicious=attacks, reference=reference
        )
        later = self.sample("holdout")
        yield check_release(self.job("v1"), stored, later, malicious=attacks if self.draw.random() < 0.5 else None)


@pytest.mark.each_run(1)
@pytest.mark.parametrize("block", range(10))
def test_the_evidence_of_drawn_releases_gives_their_findings(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases and checks, three of each draw: read back from JSON, judged again, without a contradiction."""
    monkeypatch.setattr(targets, "Budget", lambda: Budget(60))
    monkeypatch.setattr(curve, "STEPS", 10)
    judged = 0
    outcomes: set[str] = set()
    draws = often(4, 7)
    for seed in range(7 * block, 7 * block + draws):
        for release in Drawn(seed).releases():
            again = parse_record(release.record.to_json().encode(), "verdict.json")
            assert again == release.record
            policy = parse_policy(again.policy.content, again.policy.path).policy
            assert same(judge(policy, again.evidence), release.record), seed
            assert says_why(release.record), seed
            assert [*_contradictions(again, policy)] == [], seed
            judged, outcomes = judged + 1, outcomes | {again.outcome}
    assert judged == 3 * draws
    assert len(outcomes) > 1


# --- what nobody measured -----------------------------------------------------------------------------------

EVERYTHING = """\
version: 1
name: everything
targets: [{fpr: 10%, min_n: 10, max_relative_error: 0.9}]
ranges: [{from: 10%, to: 1%, min_n: 10, max_relative_error: 5}]
data: {segment: segment, timestamp: timestamp, calibrated: served}
checks:
  overlap: {required: true}
  duplicates: {required: true}
  exchangeability: {required: true}
  granularity: {required: true}
  floor: {required: true}
  direction: {required: true}
  freshness: {max_age_days: 1000}
  detection: {targets: [{fpr: 1%, min_tpr: 0.01}], max_drop: 0.9}
  segments: {targets: [10%], min_n: 1, max_relative_error: 5, required: true}
reuse: {max_uses: 3}
"""
ASKED = {
    "fpr": ["fpr@10%"],
    "ranges": ["fpr@10%..1%"],
    "overlap": ["overlap"],
    "duplicates": ["duplicates"],
    "exchangeability": ["exchangeability"],
    "granularity": ["granularity@10%"],
    "floor": ["floor"],
    "freshness": ["freshness"],
    "reuse": ["reuse"],
    "detection": ["tpr@1%"],
    "direction": ["direction"],
    "baseline": ["tpr-drop@1%"],
    "drop": ["tpr-drop@1%"],
    "segments": ["segments"],
    "unread": ["unread"],
}
UNASKED: set[str] = set()
OF_A_CHECK = {"served"}  # only a check of calibrated scores has served ones to compare


def drawn_for_everything() -> Drawn:
    drawn = Drawn(1)
    drawn.ids = drawn.groups = False
    drawn.segments = drawn.times = drawn.malicious = True
    drawn.digits = None
    drawn.document = parse_policy(EVERYTHING, "everything.yaml")
    return drawn


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Evidence]:
    """A release for which every check has measured something, except those that only a check can measure."""
    drawn = drawn_for_everything()
    place = tmp_path_factory.mktemp("everything")
    reference, found = None, None
    for name in ("v1", "v2"):
        job = dataclasses.replace(drawn.job(name), ledger=str(place / "ledger"))
        samples = (drawn.sample("fit"), drawn.sample("holdout"))
        attacks = drawn.sample("malicious")
        found = gate_release(job, *samples, malicious=attacks, reference=reference, first_release=reference is None)
        stored = StoredRelease("v1", found.record, "a" * 64, found.calibrator.to_json().encode())
        reference = dataclasses.replace(as_reference(stored), outcome="pass")
    assert found is not None
    return drawn.document.policy, found.record.evidence


def test_every_check_has_measured_and_found_something(everything: tuple[Policy, Evidence]) -> None:
    policy, evidence = everything
    assert {*ASKED, *OF_A_CHECK, *UNASKED} == {check.key for check in CHECKS}
    for check in CHECKS:
        assert (getattr(evidence.parts, check.key) is None) == (check.key in OF_A_CHECK)
        assert bool([*check.judge(policy, evidence)]) == (check.key not in OF_A_CHECK), check.key
    assert not [f for f in judge(policy, evidence).findings if f.reason == NOT_MEASURED]


@pytest.mark.parametrize("beside", [True, False])
def test_a_check_of_calibrated_scores_measures_what_was_served_or_says_what_it_lacks(
    beside: bool, tmp_path: Path
) -> None:
    """With raw scores beside them there is a finding; without, `served` is listed as not asked."""
    drawn = drawn_for_everything()
    job = dataclasses.replace(drawn.job("v1"), ledger=str(tmp_path / "ledger"))
    fitted = gate_release(job, drawn.sample("fit"), drawn.sample("holdout"), first_release=True)
    stored = StoredRelease("v1", fitted.record, "a" * 64, fitted.calibrator.to_json().encode())
    raw = drawn.rng.beta(0.5, 8, 500)
    if not beside:
        drawn.document = parse_policy(EVERYTHING.replace("calibrated: served", "calibrated: score"), "everything.yaml")
    policy = drawn.document.policy
    table = pa.table(
        {
            "score": raw if beside else fitted.calibrator.predict(raw),
            "served": fitted.calibrator.predict(raw),
            "segment": ["a"] * 500,
            "timestamp": ["2026-02-20"] * 500,
        }
    )
    rows = from_object(table, "holdout", columns_for("holdout", policy, True), policy.calibration.domain)
    job = dataclasses.replace(drawn.job("v1"), ledger=str(tmp_path / "ledger"))
    record = check_release(job, stored, rows, calibrated=True).record
    found = {str(finding.check): finding for finding in record.findings}
    assert (record.evidence.of(ServedRows) is not None) == ("served" in found) == beside
    assert ("served" in {str(one.check) for one in record.not_asked}) == (not beside)
    if beside:
        assert (found["served"].outcome, found["served"].required) == ("pass", True)


@pytest.mark.parametrize("key", ASKED)
def test_what_is_asked_and_not_measured_is_inconclusive(key: str, everything: tuple[Policy, Evidence]) -> None:
    """Whichever part is missing, its findings are there, say so and block."""
    policy, evidence = everything
    lacking = dataclasses.replace(evidence, parts=evidence.parts.model_copy(update={key: None}))
    found = {str(finding.check): finding for finding in judge(policy, lacking).findings}
    for name in ASKED[key]:
        assert (found[name].outcome, found[name].reason, found[name].required) == ("inconclusive", NOT_MEASURED, True)
        assert found[name].remedy
    whole = {str(f.check) for f in judge(policy, evidence).findings if f.required and f.check.segment is None}
    assert whole <= found.keys() | {"baseline"}


def test_of_nothing_measured_everything_is_inconclusive(everything: tuple[Policy, Evidence]) -> None:
    policy, evidence = everything
    empty = dataclasses.replace(evidence, parts=type(evidence.parts)())
    verdict = judge(policy, empty)
    assert {finding.outcome for finding in verdict.findings} == {"inconclusive"}
    assert {str(finding.check) for finding in verdict.findings} == {name for names in ASKED.values() for name in names}
    assert verdict.outcome == "inconclusive"


# --- one check more -----------------------------------------------------------------------------------------


class HaystackSettings(Frozen):
    """How many held-out rows there must be."""

    least: PolicyCount = Field(description="the fewest held-out rows")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")


class Haystack(Section):
    """How many held-out rows there are."""

    rows: Count


def judge_haystack(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    settings, found = policy.settings(HaystackSettings), evidence.of(Haystack)
    if settings is not None and found is not None:
        small = found.rows < settings.least
        yield Finding(
            check=CheckName("haystack"),
            outcome="fail" if small else "pass",
            required=settings.required,
            reason="small" if small else "large",
            message=f"{found.rows:,} rows where {settings.least:,} are wanted",
            remedy="hold out more rows" if small else None,
        )


def ask_haystack(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    if (settings := policy.settings(HaystackSettings)) is not None:
        yield Asked(CheckName("haystack"), settings.required, "held-out rows", ("checks", "haystack"))


def contradict_haystack(policy: Policy, evidence: Evidence) -> Iterator[str]:
    found = evidence.of(Haystack)
    if found is not None and found.rows != evidence.holdout.n:
        yield "haystack.rows is not the number of held-out rows"


TOY = Check(
    key="haystack",
    asks="whether there are rows enough to look through",
    decides="It counts the held-out rows.",
    causes="a small sample",
    helps="Hold out more rows.",
    evidence=Haystack,
    measure=lambda case: Haystack(rows=len(case.holdout)),
    judge=judge_haystack,
    asked=ask_haystack,
    contradictions=contradict_haystack,
    reasons={"small": "too small", "large": "large enough"},
    sentences={"small": "there are too few rows to look through"},
    settings=HaystackSettings,
    unasked="null: any size will do",
)
WITH_TOY = (*CHECKS, TOY)

TOY_POLICY = """\
version: 1
name: toy
targets: [{fpr: 10%, min_n: 10, max_relative_error: 0.9, required: false}]
checks: {haystack: {least: 1e6}}
"""
TOY_WAIVER = "waivers: [{check: haystack, reason: r, owner: o, expires: 2026-12-31}]\n"


def parse_toy(text: str) -> Policy:
    return policies.parse(text, "toy.yaml", policy_model(WITH_TOY)).policy


def toy_evidence(policy: Policy) -> Evidence:
    rng = np.random.default_rng(3)
    fit, holdout = (sample_of(rng.beta(0.5, 8, 500)) for _ in range(2))
    calibrator = fit_ordered(fit.ordered, policy.calibration, policy.anchors)
    case = Case(policy, calibrator, holdout, fit)
    whole = gather(case, describe(fit), calibrator_facts(calibrator), date(2026, 3, 1))
    return dataclasses.replace(whole, parts=measure(case, WITH_TOY))


def test_a_toy_check_is_in_the_schema_of_a_policy() -> None:
    schema: Any = policies.schema(policy_model(WITH_TOY))
    checks = schema["$defs"]["Checks"]["properties"]
    assert [*checks][-1] == "haystack"
    assert checks["haystack"]["description"] == TOY.unasked
    assert schema["$defs"]["HaystackSettings"]["properties"]["least"]["description"] == "the fewest held-out rows"
    assert "haystack" not in json.dumps(policies.schema(policy_model(CHECKS)))


def test_a_toy_check_is_measured_recorded_and_judged() -> None:
    policy = parse_toy(TOY_POLICY)
    evidence = toy_evidence(policy)
    again = type(evidence.parts).model_validate_json(evidence.parts.model_dump_json())
    assert again == evidence.parts
    assert json.loads(evidence.parts.model_dump_json())["haystack"] == {"rows": 500}
    verdict = judge(policy, dataclasses.replace(evidence, parts=again), WITH_TOY)
    [finding] = [finding for finding in verdict.findings if finding.check == CheckName("haystack")]
    assert (finding.outcome, finding.blocks, finding.reason) == ("fail", True, "small")
    assert (verdict.outcome, verdict.reason) == ("fail", "there are too few rows to look through")
    assert judge(parse_toy(TOY_POLICY.replace("1e6", "500")), evidence, WITH_TOY).outcome == "pass"


@pytest.mark.parametrize(("words", "said"), [({"small": "too small"}, "too small"), ({}, "small")])
def test_a_toy_check_without_a_sentence_blocks_with_its_name_and_its_reason(words: dict[str, str], said: str) -> None:
    policy = parse_toy(TOY_POLICY)
    terse = dataclasses.replace(TOY, sentences={}, reasons=words)
    verdict = judge(policy, toy_evidence(policy), (*CHECKS, terse))
    assert (verdict.outcome, verdict.reason) == ("fail", f"haystack: {said}")


def test_a_toy_check_that_nobody_measured_is_inconclusive() -> None:
    policy = parse_toy(TOY_POLICY)
    evidence = toy_evidence(policy)
    lacking = dataclasses.replace(evidence, parts=evidence.parts.model_copy(update={"haystack": None}))
    verdict = judge(policy, lacking, WITH_TOY)
    [finding] = [finding for finding in verdict.findings if finding.check == CheckName("haystack")]
    assert (finding.outcome, finding.reason, verdict.outcome) == ("inconclusive", NOT_MEASURED, "inconclusive")
    assert verdict.reason == "haystack could not be measured"


def test_a_toy_check_can_be_waived_where_it_is_known() -> None:
    policy = parse_toy(TOY_POLICY + TOY_WAIVER)
    verdict = judge(policy, toy_evidence(policy), WITH_TOY)
    assert [(str(use.check), use.status) for use in verdict.waivers] == [("haystack", "active")]
    assert verdict.outcome == "pass"
    unknown = TOY_POLICY.replace("checks: {haystack: {least: 1e6}}\n", "") + TOY_WAIVER
    with pytest.raises(GateError, match=r"waivers.*must name a check that gate makes"):
        parse_policy(unknown, "toy.yaml")


def test_a_toy_check_finds_its_contradictions() -> None:
    policy = parse_toy(TOY_POLICY)
    evidence = toy_evidence(policy)
    assert [*TOY.contradictions(policy, evidence)] == []
    forged = dataclasses.replace(evidence, parts=evidence.parts.model_copy(update={"haystack": Haystack(rows=10**6)}))
    assert [*TOY.contradictions(policy, forged)] == ["haystack.rows is not the number of held-out rows"]


@pytest.mark.parametrize("check", EVERY, ids=lambda check: check.key)
@pytest.mark.parametrize("width", [60, 80])
def test_an_explanation_says_what_to_do_and_no_word_twice(check: Check, width: int) -> None:
    """Also without a release: what it asks, how it decides, the usual causes, what to do next."""
    text = explain.render(check.key, width=width)
    headings = ["How it decides", "The usual causes", "What to do next", "Its reasons"]
    places = [text.index(f"\n\n{heading}\n  ") for heading in headings]
    assert places == sorted(places)
    assert " ".join(text.split()).startswith(f"{check.key}: {check.asks} How it decides")
    assert all(len(line) <= width for line in text.splitlines())
    assert not re.search(r"^ +([\w-]+): \1$", text, re.MULTILINE), "proven: proven"
    assert not re.search(r"^ *%", text, re.MULTILINE)


@pytest.mark.parametrize("check", EVERY, ids=lambda check: check.key)
def test_every_sentence_is_of_a_reason_that_the_check_has(check: Check) -> None:
    """One of another code would never be said."""
    assert check.sentences.keys() <= {*check.reasons, NOT_MEASURED}
    reasons.cache_clear()
    assert reasons()[NOT_MEASURED] == "not measured"


def that_finds(check: Check, finding: Finding) -> Check:
    """The check with this one finding, whatever was measured."""
    return dataclasses.replace(check, judge=lambda *_: iter([finding]), asked=lambda *_: iter(()))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.key)
@pytest.mark.parametrize("outcome", ["fail", "inconclusive"])
@pytest.mark.parametrize("grade", [None, "open"])
def test_whatever_blocks_a_release_is_said(check: Check, outcome: Outcome, grade: Grade | None) -> None:
    """The headline uses the check's sentence if the finding has no rate, else its name."""
    policy = parse_toy(TOY_POLICY)
    evidence = toy_evidence(policy)
    for reason, family in itertools.product(check.reasons, check.names):
        name = CheckName(family)
        found = Finding(check=name, outcome=outcome, grade=grade, required=True, reason=reason, message="")
        verdict = judge(policy, evidence, (that_finds(check, found),))
        assert verdict.outcome == outcome
        assert says_why(verdict)
        said = str(name) if grade is not None else check.sentences.get(reason, str(name))
        assert said in verdict.reason


def test_what_makes_the_samples_worthless_is_said_first() -> None:
    """Whatever else blocks, and in the order of a report."""
    policy = parse_toy(TOY_POLICY)
    blocked = []
    for check, reason in ((one, reason) for one in CHECKS for reason in one.sentences):
        found = Finding(check=CheckName(check.names[0]), outcome="fail", required=True, reason=reason, message="")
        blocked.append(that_finds(check, found))
    sentences = {check.key: "; ".join(check.sentences.values()) for check in CHECKS if check.sentences}
    first = (
        "unread",
        "direction",
        "overlap",
        "reuse",
        "duplicates",
        "floor",
        "exchangeability",
        "granularity",
        "freshness",
    )
    assert {*sentences} - {*first} == {"segments", "served", "baseline"}
    order = [*first, "segments", "served", "baseline"]
    assert judge(policy, toy_evidence(policy), tuple(blocked)).reason == "; ".join(sentences[key] for key in order)


COARSE = """\
version: 1
name: coarse
targets: [{fpr: 1%, min_n: 10, max_relative_error: 0.5, required: false}]
checks: {granularity: {required: true}}
"""


@pytest.mark.parametrize(
    ("through", "apart", "outcome", "reason"),
    [
        (2500, 0, "fail", "the scores are too coarse for a target"),
        (2500, 500, "fail", "granularity@1%: floats merge the scores"),
        (510, 0, "inconclusive", "granularity@1%: tied scores may allow no such rate"),
    ],
)
def test_scores_too_coarse_for_a_target_are_what_blocks(through: int, apart: int, outcome: str, reason: str) -> None:
    """Also where these rows cannot tell whether they are."""
    policy = parse_policy(COARSE, "coarse.yaml").policy
    atom = Atom(fpr=Decimal("0.01"), below=0, through=through, apart=apart)
    found = Resolution(top_tie=through, targets=(atom,))
    verdict = judge(policy, cases.evidence(policy, granularity=found), (granularity.CHECK,))
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
