"""Every target in every segment: counted like the whole, corrected for how many there are, the worst first."""

from __future__ import annotations

import json
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from gate.evidence import Evidence, measure_target
from gate.segments import SegmentEvidence, TargetCounts, evidence_of

from gate import policy as policies
from gate.verdict import Finding, judge

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


# --- many ---------------------------------------------------------------------------------------------------


def test_a_segment_that_was_averaged_away_is_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    tables = []
    for _ in range(2):
        language = rng.choice(["en", "de", "nl"], 300_000, p=[0.6, 0.35, 0.05])
        score = rng.beta(0.5, 8, 300_000)
        tables.append(
            pa.table({"score": np.where(language == "nl", np.minimum(score * 1.3, 1), score), "lang": language})
        )
    for name, content in zip(("fit", "holdout"), tables, strict=True):
        pa.parquet.write_table(content, tmp_path / f"{name}.parquet")
    (tmp_path / "p.yaml").write_text(document(more=", required: true").text)
    command = ["run", "--policy", "p.yaml", "--release", "r", "--segment-column", "lang", "--json", "--dry-run"]
    result = commands.gate(*command, "--fit", "fit.parquet", "--holdout", "holdout.parquet", cwd=tmp_path)
    record = json.loads(result.stdout)
    assert result.returncode == 1, result.stderr
    assert record["reason"] == "the held-out benign rows disprove fpr@0.01/lang=nl"
    outcomes = {finding["check"]: finding["outcome"] for finding in record["findings"]}
    assert outcomes["fpr@0.01"] == outcomes["fpr@0.01/lang=en"] == outcomes["fpr@0.01/lang=de"] == "pass"
    assert Fraction(record["segments"]["benign"][2]) > 10_000


# --- segments that the policy names and does not ask for ----------------------------------------------------


def tables(rng: np.random.Generator, sizes: dict[str, int], worse: str) -> tuple[pa.Table, pa.Table]:
    names = np.repeat(list(sizes), list(sizes.values()))
    found = []
    for shift in (0.0, 0.6):
        scores = rng.random(len(names))
        scores = np.where(names == worse, scores ** (1 - shift), scores)
        found.append(pa.table({"score": scores, "language": names}))
    return found[0], found[1]
