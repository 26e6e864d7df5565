"""Records that several test files render: one of each outcome, and names and sizes that reports must survive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np

from gate import policy as policies
from gate.calibration.calibrator import FitFacts
from gate.checks.direction import Direction, Flagged
from gate.comparison import Baseline, Change, Comparison, Counted, Sample, policy_changes
from gate.curve import Curve, curve_of, grid
from gate.detection import measure_anchor
from gate.evidence import Evidence, measure_target
from gate.planning import Budget
from gate.policy import Policy
from gate.release import FindingEntry, Record, RocPoint, RocSection, compose
from gate.scores import Scores, Source
from gate.statistics.binomial import clopper_pearson
from gate.statistics.proportions import Pairs, difference_interval, fisher, mcnemar, paired_interval
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
WAIVERS = """\
waivers:
  - {check: fpr@0.001, reason: known until the next labelling, owner: "@detections", expires: 2026-06-30}
  - {check: fpr@0.01, reason: nothing to cover, owner: "@detections", expires: 2026-06-30}
  - {check: fpr@0.0001, reason: too old, owner: "@detections", expires: 2026-01-31}
"""


def record_of(text: str, counts: Mapping[str, int], benign: int) -> Record:
    """The record of a release with these counts; the calibrator and the scores are stand-ins of fixed content."""
    document = policies.parse(text, "policies/production.yaml")
    measurements = tuple(
        measure_target(
            document.policy, target, 0.25 + i / 10, counts[target.check], benign, 1e-6, fit_n=200_000, budget=Budget()
        )
        for i, target in enumerate(document.policy.targets)
    )
    return compose(
        release="v2.4.0",
        created=NOON,
        judged_on=NOON.date(),
        version="1.2.3",
        document=document,
        fit=Scores(np.arange(200_000) / 200_000, (Source("benign-fit.parquet", 250_000, 200_000),)),
        holdout=Scores(np.arange(benign) / benign, (Source("benign-holdout.parquet", benign, benign),)),
        calibrator=stand_in(),
        verdict=judge(document.policy, Evidence(measurements), NOON.date()),
        curve=curve_through(document.policy, counts, benign),
    )


def stand_in() -> Any:
    return SimpleNamespace(
        facts=FitFacts(200_000, 180_000, 3.5e-6),
        sha256="c" * 64,
        artifact=bytes(161_113),
        knots=(range(10_000), range(10_000)),
    )


def curve_through(policy: Policy, counts: Mapping[str, int], benign: int) -> Curve:
    """A curve that meets the counts at the targets, and errs in between as its neighbours do."""
    anchors = grid(policy.anchors)
    at_targets = {target.fpr: counts[target.check] for target in policy.targets}
    known = [(0.0, 1.0)]
    known += [(float(a.score), at_targets[a.fpr] / benign / float(a.fpr)) for a in anchors if a.fpr in at_targets]
    found: dict[Decimal, int] = {}
    for anchor in anchors:
        ratio = float(np.interp(float(anchor.score), *zip(*known, strict=True)))
        found[anchor.fpr] = at_targets.get(anchor.fpr, min(round(ratio * float(anchor.fpr) * benign), benign))
    thresholds = {anchor.fpr: round(0.2 + float(anchor.score) / 2, 6) for anchor in anchors}
    return curve_of(policy.anchors, thresholds, found, benign, 3.5e-6, policy.alpha())


PASSING = {"fpr@0.1": 20_100, "fpr@0.01": 1_990, "fpr@0.001": 204, "fpr@0.0001": 15}
FAILING = {"fpr@0.1": 20_100, "fpr@0.01": 1_990, "fpr@0.001": 390, "fpr@0.0001": 61}
OPEN = {"fpr@0.1": 6_020, "fpr@0.01": 700, "fpr@0.001": 61, "fpr@0.0001": 6}

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
    """The record with this text in every place where its format allows any text at all."""

    def replaced(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: replaced(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [replaced(part) for part in value]
        fixed = key in ("outcome", "grade", "status", "kind")
        return text if isinstance(value, str) and not fixed else value

    return Record.model_validate(replaced(record.model_dump(mode="json")))


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
    entries = []
    for i in range(60):
        benign = 5_000 + 2_000 * i
        counts = {"fpr@0.1": benign // 10, "fpr@0.01": benign // 100, "fpr@0.001": max(0, 90 - 3 * i), "fpr@0.0001": 0}
        entry = record_of(POLICY, counts, benign).findings[2]
        name = f"language={ATTACKS['html'] if i == 3 else chr(97 + i // 26) + chr(97 + i % 26)}"
        entries.append(entry.model_copy(update={"check": f"fpr@0.001/{name}"}))
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
    roc = RocSection(
        malicious=40_000,
        points=tuple(RocPoint(fpr=10.0**-i, threshold=0.1 * i, true_positives=40_000 - 5_000 * i) for i in range(7)),
    )
    assert whole.curve is not None
    return whole.model_copy(
        update={
            "findings": (*whole.findings, *checks, *entries),
            "warnings": ("1,200 rows had no timestamp", ATTACKS["markdown-link"]),
            "curve": whole.curve.model_copy(update={"roc": roc}),
        }
    )


def check(name: str, outcome: Any, reason: str, message: str, remedy: str | None) -> FindingEntry:
    """A finding that is not about a false-positive rate."""
    words = {"reason": reason, "message": message, "remedy": remedy}
    return FindingEntry(check=name, outcome=outcome, grade=None, required=False, waived=False, blocks=False, **words)


RECORDS["segments"] = segmented()


DETECTION = """\
checks:
  detection: {targets: [{fpr: 0.1%, min_tpr: 0.8}, {fpr: 1%, min_tpr: 0.9}], max_drop: 0.02}
"""
OLD_POLICY = POLICY.replace("min_n: 98000, max_relative_error: 0.5", "min_n: 98000, max_relative_error: 0.4")
DETECTED = (39_200, 37_100, 33_000, 25_400, 17_100, 8_300)


def followed(malicious: tuple[int, ...] = DETECTED, outcome: Any = "pass", checked: bool = False) -> Record:
    """A release that is held against the one before it, on the same rows; or the check of a release, on other rows."""
    document = policies.parse(POLICY + DETECTION, "policies/production.yaml")
    policy, benign, attacks = document.policy, 200_000, 40_000
    anchors = policy.anchors.anchors
    counts = [20_100, 1_990, 204, 15, 2, 0]
    measurements = tuple(
        measure_target(
            policy, target, 0.25 + i / 10, PASSING[target.check], benign, 1e-6, fit_n=200_000, budget=Budget()
        )
        for i, target in enumerate(policy.targets)
    )
    detection = tuple(
        measure_anchor(policy, anchor, 0.25 + i / 10, k, attacks)
        for i, (anchor, k) in enumerate(zip(anchors, malicious, strict=True))
    )

    def change(i: int, k: int, was: int, n: int, paired: bool) -> Change:
        only = 3 + max(k, was) // 20
        pairs = Pairs(min(k, was) - only, only + max(k - was, 0), only + max(was - k, 0), 0)
        pairs = replace(pairs, neither=n - pairs.rows) if min(k, was) > only else Pairs(0, k, was, n - k - was)
        old, new = Counted(0.2 + i / 10, was, n, float(n)), Counted(0.25 + i / 10, k, n, float(n))
        stale = min(5 * k + 4, n)
        return Change(
            anchor=anchors[i],
            old=replace(old, threshold=new.threshold) if checked else old,
            new=new,
            pairs=pairs if paired else None,
            p_value=mcnemar(int(pairs.new_only), int(pairs.old_only)) if paired else fisher(k, n, was, n),
            interval=paired_interval(pairs, 0.05) if paired else difference_interval(k, n, was, n, 0.05),
            stale=k if checked else stale,
            stale_interval=clopper_pearson(k if checked else stale, n, 0.05),
        )

    old = Baseline(
        path="releases/v2.3.0",
        release="v2.4.0" if checked else "v2.3.0",
        created="2026-02-01T12:00:00Z",
        outcome=outcome,
        verdict_sha256="a" * 64,
        policy_sha256=document.sha256 if checked else "b" * 64,
        policy=policy if checked else policies.parse(OLD_POLICY, "policies/production.yaml").policy,
        benign=Sample({}, None if checked else Scores(np.zeros(2), (Source("old-benign.parquet", benign, benign),))),
        malicious=None,
        scores_sha256="d" * 64,
        rows_sha256=None,
    )
    comparison = Comparison(
        baseline=old,
        policy_changes=policy_changes(old.policy, policy),
        benign=tuple(change(i, k, k + 7 - i, benign, not checked) for i, k in enumerate(counts)),
        malicious=tuple(change(i, k, DETECTED[i] + 90 - 9 * i, attacks, not checked) for i, k in enumerate(malicious)),
        itself=checked,
    )
    direction = Direction(
        anchors=tuple(
            Flagged(
                fpr=float(found.anchor.fpr),
                true_positives=found.true_positives,
                malicious=attacks,
                malicious_worth=attacks,
                false_positives=k,
                benign=benign,
                benign_worth=benign,
            )
            for found, k in zip(detection, counts, strict=True)
        )
    )
    evidence = Evidence(measurements, detection=detection, direction=direction, comparison=comparison)
    whole = RECORDS["pass"]
    curve = curve_through(policy, PASSING, benign)
    points = [replace(p, true_positives=round(attacks * (1 - p.score) ** 0.5)) for p in curve.points]
    return compose(
        release="v2.4.0",
        created=NOON,
        version="1.2.3",
        document=document,
        fit=whole
        if checked
        else Scores(np.arange(200_000) / 200_000, (Source("benign-fit.parquet", 250_000, 200_000),)),
        holdout=Scores(np.arange(benign) / benign, (Source("benign-holdout.parquet", benign, benign),)),
        calibrator=stand_in(),
        verdict=judge(policy, evidence, NOON.date()),
        curve=replace(curve, points=tuple(points), malicious=attacks),
        malicious=Scores(
            np.arange(attacks) / attacks, (Source("malicious.parquet", 50_000, 10_000),), kind="malicious"
        ),
        evidence=evidence,
    )


RECORDS["followed"] = followed()
RECORDS["dropped"] = followed((39_200, 33_900, 29_000, 25_400, 17_100, 8_300))
RECORDS["no-reference"] = followed(outcome="fail")
RECORDS["check"] = followed(checked=True)


def retrained(record: Record, name: str, created: str, factor: float, **changes: Any) -> Record:
    """The record as another release of the same detector: its raw scores, and so every threshold, scaled."""
    content = record.model_dump(mode="json") | {"release": name, "created": created} | changes
    for part in (*content["findings"], *content["curve"]["points"]):
        if part["threshold"] is not None:
            part["threshold"] *= factor
    content["calibrator"]["sha256"] = f"{name:c>64}"[-64:]
    return Record.model_validate(content)


def with_detection(record: Record, true_positives: int, malicious: int) -> Record:
    """The record with what was detected at 0.1 %; the interval is a stand-in of fixed width."""
    rate = true_positives / malicious
    finding = check("tpr@0.001", "pass", "proven", "most malicious rows are detected", None).model_copy(
        update={
            "target_fpr": 0.001,
            "true_positives": true_positives,
            "malicious": malicious,
            "observed_tpr": rate,
            "min_tpr": 0.8,
            "interval": (rate - 0.01, rate + 0.01),
        }
    )
    return record.model_copy(update={"findings": (*record.findings, finding)})


def releases() -> list[Record]:
    """A history: releases with waivers, re-used rows and malicious scores, a check, and a policy that changed."""
    reuse = {"ledger": "ledger.jsonl", "use": 3, "earlier": ["v0", "v1"], "confidence": 0.99}
    other = record_of(POLICY.replace("0.1%, min_n: 98000, max_relative_error: 0.5", "0.1%, min_n: 98000, "
                                     "max_relative_error: 0.6").replace("  - {fpr: 10%", "  - {fpr: 20%")
                      .replace("name: production", "name: production\ncontract: [{fpr: 20%, score: 0.05}, {fpr: 1%, "
                               "score: 0.3}, {fpr: 0.1%, score: 0.5}, {fpr: 0.01%, score: 0.7}]"),
                      {"fpr@0.2": 40_100, **{k: v for k, v in PASSING.items() if k != "fpr@0.1"}}, 200_000)  # fmt: skip
    return [
        retrained(RECORDS["pass"], "v1", "2026-01-05T09:00:00Z", 1.0),
        retrained(RECORDS["waived"], "v2", "2026-02-02T09:00:00Z", 1.1, reuse=reuse),
        retrained(with_detection(RECORDS["inconclusive"], 36_480, 40_000), "v3", "2026-03-02T09:00:00Z", 0.8),
        retrained(RECORDS["fail"], "v3", "2026-03-09T09:00:00Z", 0.8, kind="check"),
        retrained(with_detection(other, 35_001, 40_000), ATTACKS["html"], "2026-04-06T09:00:00Z", 1.05),
    ]
