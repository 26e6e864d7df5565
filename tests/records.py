"""Records that several test files render: one of each outcome, and names and sizes that reports must survive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
from cases import facts
from samples import sample_of

from gate.checks import CHECKS, Parts, baseline, detection, direction, drop, fpr, parse_policy
from gate.checks.baseline import Comparison, ReferenceFacts
from gate.checks.change import Change, Flipped
from gate.checks.check import AnchorFacts, CalibratorFacts, Check, Evidence, Finding, JudgedRate
from gate.checks.curve import Curve, CurvePoint, grid
from gate.checks.detection import Detection
from gate.checks.direction import Direction
from gate.checks.drop import Drops
from gate.checks.fpr import AtAnchor, Targets
from gate.checks.reuse import Use, Uses
from gate.checks.unread import UnreadColumns
from gate.names import CheckName
from gate.policy import Document, Policy
from gate.policy.changes import policy_changes
from gate.record import Record, compose
from gate.rows.describe import describe
from gate.sources import SampleFacts, Source
from gate.statistics.tally import Tally
from gate.verdict import judge

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)

POLICY = """\
version: 1
name: production
targets:
  - {fpr: 10%, min_n: 3400, max_relative_error: 0.25}
  - {fpr: 1%, min_n: 37000, max_relative_error: 0.25}
  - {fpr: 0.1%, min_n: 98000, max_relative_error: 0.5}
  - {fpr: 0.01%, min_n: 160000, max_relative_error: {above: 0.5, below: 1}, required: false}
"""
ONE_TARGET = """\
version: 1
name: one
targets: [{fpr: 0.1%, min_n: 98000, max_relative_error: 0.5}]
"""
WAIVERS = """\
waivers:
  - {check: fpr@0.1%, reason: known until the next labelling, owner: "@detections", expires: 2026-06-30}
  - {check: fpr@1%, reason: nothing to cover, owner: "@detections", expires: 2026-06-30}
  - {check: fpr@0.01%, reason: too old, owner: "@detections", expires: 2026-01-31}
"""


# What these records measure and judge: the rows at hand have no ids, no times and no segments.
JUDGED: tuple[Check, ...] = (fpr.CHECK, detection.CHECK, direction.CHECK, baseline.CHECK, drop.CHECK)


def record_of(text: str, counts: Mapping[str, int], benign: int) -> Record:
    """The record of a release with these counts; the calibrator and the scores are stand-ins of fixed content."""
    document = parse_policy(text, "policies/production.yaml")
    curve = curve_through(document.policy, counts, benign)
    at = {point.fpr: point.tally.flagged for point in curve.points}
    flagged = [at[anchor.fpr] for anchor in document.policy.anchors.anchors]
    evidence = evidence_of(document.policy, Parts(fpr=Targets(anchors=anchors_of(document.policy, flagged, benign))))
    return recorded(document, evidence, curve)


def evidence_of(policy: Policy, parts: Any, kind: Any = "run", malicious: SampleFacts | None = None) -> Evidence:
    """Evidence with these parts and samples of fixed content; the held-out rows are those of the targets."""
    benign = max(parts.fpr.anchors[0].tally.rows, 2)
    return Evidence(
        kind,
        NOON.date(),
        stand_in(policy),
        sample("benign-fit.parquet", 200_000, 250_000),
        sample("benign-holdout.parquet", benign, benign),
        malicious,
        parts,
    )


def recorded(document: Document, evidence: Evidence, curve: Curve, checks: tuple[Check, ...] = JUDGED) -> Record:
    return compose(
        release="v2.4.0",
        created=NOON,
        version="1.2.3",
        document=document,
        evidence=evidence,
        verdict=judge(document.policy, evidence, checks),
        curve=curve,
    )


@cache
def sample(path: str, n: int, rows: int, malicious: bool = False) -> SampleFacts:
    source = Source(path=path, rows=rows, benign=rows - n if malicious else n)
    return describe(sample_of(np.arange(n) / n, (source,), kind="malicious" if malicious else "benign"))


def thresholds_of(policy: Policy) -> dict[Decimal, float]:
    return {anchor.fpr: 0.25 + i / 10 for i, anchor in enumerate(policy.anchors.anchors)}


def anchors_of(policy: Policy, flagged: list[int] | tuple[int, ...], rows: int) -> tuple[AtAnchor, ...]:
    """The rows that reach each anchor of the contract."""
    return tuple(
        AtAnchor(fpr=fpr, tally=Tally(threshold=threshold, flagged=k, rows=rows))
        for (fpr, threshold), k in zip(thresholds_of(policy).items(), flagged, strict=True)
    )


def stand_in(policy: Policy) -> CalibratorFacts:
    thresholds = thresholds_of(policy)
    return CalibratorFacts(
        sha256="c" * 64,
        bytes=161_113,
        knots=10_000,
        plotting_position="filliben",
        ties="conservative",
        lowest_label=3.5e-6,
        anchors=tuple(
            AnchorFacts(fpr=anchor.fpr, score=anchor.score, threshold=thresholds[anchor.fpr])
            for anchor in policy.anchors.anchors
        ),
    )


def curve_through(
    policy: Policy, counts: Mapping[str, int], benign: int, detected: Mapping[Decimal, int] | None = None
) -> Curve:
    """A curve that meets the counts at the targets, and errs in between as its neighbours do."""
    anchors = grid(policy.anchors)
    at_targets = {target.fpr: counts[str(target.check)] for target in policy.targets}
    known = [(0.0, 1.0)]
    known += [(float(a.score), at_targets[a.fpr] / benign / float(a.fpr)) for a in anchors if a.fpr in at_targets]
    scores, ratios = zip(*known, strict=True)
    points = []
    for anchor in anchors:
        ratio = float(np.interp(float(anchor.score), scores, ratios))
        flagged = at_targets.get(anchor.fpr, min(round(ratio * float(anchor.fpr) * benign), benign))
        found = Tally(threshold=round(0.2 + float(anchor.score) / 2, 6), flagged=flagged, rows=benign)
        caught = None if detected is None else detected.get(anchor.fpr)
        points.append(CurvePoint(score=anchor.score, fpr=anchor.fpr, tally=found, detected=caught))
    return Curve(floor=float(policy.anchors.score(3.5e-6)), points=tuple(points))


PASSING = {"fpr@10%": 20_100, "fpr@1%": 1_990, "fpr@0.1%": 204, "fpr@0.01%": 15}
FAILING = {"fpr@10%": 20_100, "fpr@1%": 1_990, "fpr@0.1%": 390, "fpr@0.01%": 61}
OPEN = {"fpr@10%": 6_020, "fpr@1%": 700, "fpr@0.1%": 61, "fpr@0.01%": 6}

RECORDS = {
    "pass": record_of(POLICY, PASSING, 200_000),
    "fail": record_of(POLICY, FAILING, 200_000),
    "inconclusive": record_of(POLICY, OPEN, 60_000),
    "waived": record_of(POLICY + WAIVERS, FAILING, 200_000),
}

ATTACKS = {
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)></td></table><h1>PASS</h1><!-- -->",
    "attribute": '" onmouseover="alert(1)" \' x=\'',
    "markdown-link": "[click](https://evil.example/a) ![x](https://evil.example/b.png) <https://evil.example>",
    "bare-link": "https://evil.example www.evil.example WWW.evil.example mailto:a@evil.example",
    "markdown-table": "a | b \\| c \\\\| d |",
    "markdown-emphasis": "**bold** _it_ ~~no~~ `code` ``` $x$ $$y$$ \\* # head",
    "mention": "@octocat, #12 octo/repo#12 (@octo/team)",
    "command": "::error::x ::set-output name=a::b :::: ##[error]y ###[x] x::",
    "command-after-a-long-word": "x" * 71 + "::error::x" + "y" * 300 + "##[error]",
    "lines": "first\n::error::second\r\n| a | b |\n\n# PASS\n- item\x0b\x0c\x85\u2028\u2029end",
    "terminal": "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \x9b2J \x00\x07\x08\x7f",
    "direction": "abc\u202efed\u2066x\u2069 \u200b\u200d\ufeff\U000e0041",
    "entity": "&lt;b&gt; &amp; &#60;b&#62; %0A::error::z {{ 7*7 }} {% raw %} [bold]rich[/bold] :tada:",
    "xml": "]]><evil/> <!DOCTYPE x> <?php ?> \ufffe\uffff",
}


def with_text(record: Record, text: str) -> Record:
    """The record with this text in every place where its format allows any text at all; of names, in their segment."""

    def replaced(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: replaced(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [replaced(part) for part in value]
        fixed = key in ("outcome", "grade", "status", "kind", "unit", "judged_on", "expires")
        if key == "check":
            return value if value == "fpr@10%" else f"{value}/language={text}"
        return text if isinstance(value, str) and not fixed else value

    content = record.model_dump(mode="json")
    a_column = text.isprintable() and bool(text.strip()) and len(text) <= 200
    return Record.model_validate(replaced(content) | ({} if a_column else {"data": content["data"]}))


def hostile() -> Record:
    """One attack in each place that a person, a file name or a policy fills."""
    content = RECORDS["waived"].model_dump(mode="json")
    content["release"] = ATTACKS["html"]
    content["policy"] |= {"name": ATTACKS["markdown-link"], "path": ATTACKS["attribute"]}
    content["fit"]["sources"][0]["path"] = ATTACKS["lines"]
    content["holdout"]["sources"][0]["path"] = ATTACKS["terminal"]
    content["waivers"][0] |= {"owner": ATTACKS["mention"], "reason": ATTACKS["command"]}
    content["waivers"][1] |= {"owner": ATTACKS["direction"], "reason": ATTACKS["markdown-table"]}
    content["waivers"][2] |= {"owner": ATTACKS["entity"], "reason": ATTACKS["markdown-emphasis"]}
    return Record.model_validate(content)


RECORDS["hostile"] = hostile()


def segmented() -> Record:
    """Sixty segments after the targets, checks of the data, warnings and malicious scores."""
    whole = RECORDS["fail"]
    policy = parse_policy(ONE_TARGET, "").policy
    entries = []
    for i in range(60):
        benign = 5_000 + 2_000 * i
        parts = Parts(fpr=Targets(anchors=anchors_of(policy, [max(0, 90 - 3 * i)] * 6, benign)))
        found = Evidence("run", NOON.date(), stand_in(policy), facts(200_000), facts(benign), None, parts)
        (entry,) = judge(policy, found, (fpr.CHECK,)).findings
        name = f"language={ATTACKS['html'] if i == 3 else chr(97 + i // 26) + chr(97 + i % 26)}"
        entries.append(entry.model_copy(update={"check": CheckName("fpr", Decimal("0.001"), segment=name)}))
    checks = [
        check("overlap", "pass", "none", "0 of 200,000 held-out rows are in the fit sample", None),
        check(
            "exchangeability",
            "inconclusive",
            "drift",
            "1,029 false positives where 423 to 581 were to be expected",
            "hold out rows of the same weeks as the fit sample",
        ),
    ]
    assert whole.curve is not None
    points = tuple(
        point.model_copy(update={"detected": max(0, round(40_000 + 5_000 * float(point.fpr.log10())))})
        for point in whole.curve.points
    )
    return whole.model_copy(
        update={
            "findings": (*whole.findings, *checks, *entries),
            "warnings": ("1,200 rows had no timestamp", ATTACKS["markdown-link"]),
            "malicious": sample("malicious.parquet", 40_000, 40_000, malicious=True),
            "curve": whole.curve.model_copy(update={"points": points}),
        }
    )


def check(name: str, outcome: Any, reason: str, message: str, remedy: str | None) -> Finding:
    """A finding that is not about a false-positive rate."""
    words = {"reason": reason, "message": message, "remedy": remedy}
    return Finding(check=name, outcome=outcome, required=False, **words)


RECORDS["segments"] = segmented()


DETECTION = """\
checks:
  detection: {targets: [{fpr: 0.1%, min_tpr: 0.8}, {fpr: 1%, min_tpr: 0.9}], max_drop: 0.02}
"""
OLD_POLICY = POLICY.replace("min_n: 98000, max_relative_error: 0.5", "min_n: 98000, max_relative_error: 0.4")
DETECTED = (39_200, 37_100, 33_000, 25_400, 17_100, 8_300)


def followed(malicious: tuple[int, ...] = DETECTED, outcome: Any = "pass", checked: bool = False) -> Record:
    """A release compared with the one before it, on the same rows; or the check of a release, on other rows."""
    document = parse_policy(POLICY + DETECTION, "policies/production.yaml")
    policy, benign, attacks = document.policy, 200_000, 40_000
    counts = [20_100, 1_990, 204, 15, 2, 0]
    before = [k + 7 - i for i, k in enumerate(counts)], [k + 90 - 9 * i for i, k in enumerate(DETECTED)]
    parts = Parts(
        fpr=Targets(anchors=anchors_of(policy, counts, benign)),
        detection=Detection(anchors=anchors_of(policy, malicious, attacks)),
        direction=Direction(anchors=len(counts)),
        baseline=Comparison(
            reference=reference(document, outcome, checked),
            policy_changes=() if checked else policy_changes(parse_policy(OLD_POLICY, "").policy, policy),
            anchors=tuple(changes(policy, counts, before[0], benign, checked)),
        ),
        drop=Drops(anchors=tuple(changes(policy, malicious, before[1], attacks, checked))),
        unread=UnreadColumns(n=benign) if checked else None,
    )
    caught = {point.fpr: round(attacks * (1 - float(point.score)) ** 0.5) for point in grid(policy.anchors)}
    evidence = evidence_of(
        policy, parts, "check" if checked else "run", sample("malicious.parquet", attacks, 50_000, malicious=True)
    )
    return recorded(
        document,
        evidence,
        curve_through(policy, PASSING, benign, caught),
        CHECKS if checked else JUDGED,
    )


def reference(document: Document, outcome: Any, checked: bool) -> ReferenceFacts:
    """The reference: the release before; for a check, the release itself."""
    return ReferenceFacts(
        path="releases/v2.3.0",
        release="v2.4.0" if checked else "v2.3.0",
        created="2026-02-01T12:00:00Z",
        outcome=outcome,
        verdict_sha256="a" * 64,
        policy_sha256=document.sha256 if checked else "b" * 64,
        holdout_sha256="d" * 64,
        sources=() if checked else (Source(path="old-benign.parquet", rows=200_000, benign=200_000),),
    )


def changes(
    policy: Policy, now: list[int] | tuple[int, ...], then: list[int], rows: int, checked: bool
) -> Iterator[Change]:
    """Every anchor under two releases; on the same rows unless a release is checked."""
    parts = zip(policy.anchors.anchors, thresholds_of(policy).values(), now, then, strict=True)
    for i, (anchor, threshold, k, was) in enumerate(parts):
        old = threshold if checked else 0.2 + i / 10
        only = min(3 + max(k, was) // 20, rows - max(k, was))
        few = min(k, was) <= only
        flipped = Flipped(
            new_only=k if few else only + max(k - was, 0), old_only=was if few else only + max(was - k, 0)
        )
        yield Change(
            fpr=anchor.fpr,
            score=anchor.score,
            old=Tally(threshold=old, flagged=was, rows=rows),
            new=Tally(threshold=threshold, flagged=k, rows=rows),
            flipped=None if checked else flipped,
            stale=Tally(threshold=old, flagged=k if checked else min(5 * k + 4, rows), rows=rows),
        )


RECORDS["followed"] = followed()
RECORDS["dropped"] = followed((39_200, 33_900, 29_000, 25_400, 17_100, 8_300))
RECORDS["no-reference"] = followed(outcome="fail")
RECORDS["check"] = followed(checked=True)


def retrained(record: Record, name: str, created: str, factor: float, **changes: Any) -> Record:
    """The record as another release of the same detector: its raw scores, and so every threshold, scaled."""
    content = record.model_dump(mode="json") | {"release": name, "created": created} | changes

    def scaled(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: part * factor if key == "threshold" and part is not None else scaled(part)
                for key, part in value.items()
            }
        return [scaled(part) for part in value] if isinstance(value, list) else value

    content = scaled(content)
    content["calibrator"]["sha256"] = f"{name:c>64}"[-64:]
    return Record.model_validate(content)


def with_detection(record: Record, true_positives: int, malicious: int) -> Record:
    """The record with what was detected at 0.1 %; the interval is a stand-in of fixed width."""
    rate = true_positives / malicious
    finding = check("tpr@0.1%", "pass", "proven", "most malicious rows are detected", None).model_copy(
        update={
            "rate": JudgedRate(
                target=Decimal("0.001"),
                score=Decimal("0.5"),
                tally=Tally(threshold=0.45, flagged=true_positives, rows=malicious),
                interval=(rate - 0.01, rate + 0.01),
                tolerance=(0.8, 1.0),
            )
        }
    )
    return record.model_copy(update={"findings": (*record.findings, finding)})


def reused(record: Record, number: int) -> Record:
    """The record of rows that the ledger has seen before."""
    use = Use(number=number, earlier=tuple(f"v{i}" for i in range(number - 1)), shared=(1.0,) * (number - 1))
    uses = Uses(ledger="ledger.jsonl", holdout=use)
    return record.model_copy(update={"checks": record.checks.model_copy(update={"reuse": uses})})


def releases() -> list[Record]:
    """A history: releases with waivers, re-used rows and malicious scores, a check, and a policy that changed."""
    other = record_of(POLICY.replace("0.1%, min_n: 98000, max_relative_error: 0.5", "0.1%, min_n: 98000, "
                                     "max_relative_error: 0.6").replace("  - {fpr: 10%", "  - {fpr: 20%")
                      .replace("name: production", "name: production\ncontract: [{fpr: 20%, score: 0.05}, {fpr: 1%, "
                               "score: 0.3}, {fpr: 0.1%, score: 0.5}, {fpr: 0.01%, score: 0.7}]"),
                      {"fpr@20%": 40_100, **{k: v for k, v in PASSING.items() if k != "fpr@10%"}}, 200_000)  # fmt: skip
    return [
        retrained(RECORDS["pass"], "v1", "2026-01-05T09:00:00Z", 1.0),
        retrained(reused(RECORDS["waived"], 3), "v2", "2026-02-02T09:00:00Z", 1.1),
        retrained(with_detection(RECORDS["inconclusive"], 36_480, 40_000), "v3", "2026-03-02T09:00:00Z", 0.8),
        retrained(RECORDS["fail"], "v3", "2026-03-09T09:00:00Z", 0.8, kind="check"),
        retrained(with_detection(other, 35_001, 40_000), ATTACKS["html"], "2026-04-06T09:00:00Z", 1.05),
    ]
