"""Scores that fall with malice fail, sound ones hardly ever do, and a pass without malicious rows says so."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cases import evidence, tally
from drawing import examples, often
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

import gate
from gate.checks import direction, parse_policy
from gate.checks.detection import Detection
from gate.checks.direction import Direction
from gate.checks.fpr import AtAnchor, Targets
from gate.inspection.answers import state_of
from gate.record import Record
from gate.report import html, junit, markdown, terminal
from gate.statistics.tally import Tally
from gate.verification.release import verify
from gate.verification.result import Data

pytestmark = pytest.mark.usefixtures("few_points")

CREATED = datetime(2026, 3, 1, tzinfo=UTC)
POLICY = "version: 1\nname: x\ntargets: [{fpr: 10%, min_n: 100, max_relative_error: 0.5}]\n"
RENDERERS = {"text": terminal.render, "md": markdown.render, "html": html.render, "junit": junit.render}


Both = tuple[Tally, Tally]


def flagged(detected: int, malicious: int, k: int, benign: int, worth: float = 1.0) -> Both:
    """The malicious and the benign rows at one anchor."""
    return tally(detected, malicious, malicious * worth), tally(k, benign, benign * worth)


def outcome(*anchors: Both) -> str:
    rates = [Decimal(10) ** -(i + 1) for i in range(len(anchors))]
    malicious, benign = (
        tuple(AtAnchor(fpr=fpr, tally=both[side]) for fpr, both in zip(rates, anchors, strict=True)) for side in (0, 1)
    )
    parts: dict[str, Any] = {"fpr": Targets(anchors=benign), "detection": Detection(anchors=malicious)}
    policy = parse_policy(POLICY, "p.yaml").policy
    found = evidence(policy, malicious_n=3, direction=Direction(anchors=len(anchors)), **parts)
    (finding,) = direction.judge(policy, found)
    return finding.outcome


# --- the decision -------------------------------------------------------------------------------------------


@settings(max_examples=examples(80), deadline=None)
@given(st.data(), st.integers(2, 3000), st.integers(2, 3000), st.integers(1, 8))
def test_two_exact_intervals_that_do_not_meet_decide(data: st.DataObject, n: int, m: int, anchors: int) -> None:
    """scipy's Clopper-Pearson interval at the level that all anchors share, at each of them."""
    found = [flagged(data.draw(st.integers(0, n)), n, data.draw(st.integers(0, m)), m) for _ in range(anchors)]
    level = 1 - 0.05 / anchors
    expected = False
    for at in found:
        high = binomtest(at[0].flagged, n).proportion_ci(level).high
        low = binomtest(at[1].flagged, m).proportion_ci(level).low
        if abs(high - low) < 1e-6:
            return
        expected |= high < low
    assert outcome(*found) == ("fail" if expected else "pass")


def test_a_detector_that_knows_nothing_is_called_reversed_at_most_as_often_as_it_says() -> None:
    """Malicious rows scored like benign ones, six anchors: at most 5 % of the times, and three standard errors."""
    rng, rates = np.random.default_rng(1), (0.1, 0.01, 0.001, 1e-4, 1e-5, 1e-6)
    fails, times = 0, often(150, 500)
    for _ in range(times):
        found = [flagged(int(rng.binomial(3000, p)), 3000, int(rng.binomial(100_000, p)), 100_000) for p in rates]
        fails += outcome(*found) == "fail"
    assert fails / times <= 0.05 + 3 * (0.05 * 0.95 / times) ** 0.5


def test_rows_in_groups_count_as_what_they_are_worth() -> None:
    assert outcome(flagged(50, 1000, 1000, 10_000)) == "fail"
    assert outcome(flagged(50, 1000, 1000, 10_000, worth=0.05)) == "pass"


# --- the whole job ------------------------------------------------------------------------------------------


def samples(seed: int, reverse: bool) -> list[pa.Table]:
    rng = np.random.default_rng(seed)
    scores = [rng.beta(0.5, 8, 120_000), rng.beta(0.5, 8, 120_000), rng.beta(6, 2, 3000)]
    return [pa.table({"score": 1 - sample if reverse else sample}) for sample in scores]


@pytest.mark.each_run(1)
@pytest.mark.parametrize("seed", [1, 2])
def test_reversed_scores_fail_under_the_default_policy(seed: int, tmp_path: Path) -> None:
    """0 of 3,000 attacks at every anchor, and every promise on false positives kept."""
    fit, holdout, malicious = samples(seed, reverse=True)
    release = gate.run(fit, holdout, release="v1", malicious=malicious, created=CREATED)
    found = {str(finding.check): finding for finding in release.record.findings}
    assert (release.outcome, found["direction"].reason) == ("fail", "reversed")
    assert [check for check, finding in found.items() if finding.blocks] == ["direction"]
    assert release.record.reason == "malicious rows are flagged less often than benign ones"
    assert "0 of 3,000 malicious rows are flagged where" in found["direction"].message
    assert "1 less them" in (found["direction"].remedy or "")
    release.write(tmp_path / "v1")
    assert state_of(verify(tmp_path / "v1").answers) == "holds"


def test_sound_scores_pass_and_an_advisory_check_blocks_nothing() -> None:
    fit, holdout, malicious = samples(3, reverse=False)
    sound = gate.run(fit, holdout, release="v1", malicious=malicious, created=CREATED)
    found = {str(finding.check): finding for finding in sound.record.findings}
    assert (sound.outcome, found["direction"].outcome, found["direction"].remedy) == ("pass", "pass", None)
    document = parse_policy(POLICY + "checks: {direction: {required: false}}\n", "p.yaml")
    fit, holdout, malicious = samples(3, reverse=True)
    release = gate.run(fit, holdout, release="v1", malicious=malicious, policy=document, created=CREATED)
    assert release.outcome == "pass"


@pytest.mark.each_run(1)
@pytest.mark.parametrize("groups", [False, True])
def test_no_count_of_it_can_be_changed_unnoticed(groups: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("gating", "inspection.release"):  # without its reports, which take longer than all else
        monkeypatch.setattr(f"gate.{module}.rendered", lambda record, *_: {"verdict.json": record.to_json().encode()})
    text = "version: 1\nname: x\nrule: observed\ntargets: [{fpr: 10%, min_n: 100, max_relative_error: 0.9}]\n"
    (tmp_path / "p.yaml").write_text(text + ("data: {group: user}\n" if groups else ""))
    paths = []
    for i, whole in enumerate(samples(4, reverse=False)):
        table = whole.slice(0, 9_000)
        users = np.arange(len(table)) // 7 + i * 10**6
        paths.append(str(tmp_path / f"{i}.parquet"))
        pa.parquet.write_table(table.append_column("user", pa.array(users)), paths[-1])
    release = gate.run(*paths[:2], release="v1", malicious=paths[2], policy=tmp_path / "p.yaml", created=CREATED)
    release.write(tmp_path / "v1")
    data = Data(fit=(paths[0],), holdout=(paths[1],), malicious=(paths[2],))
    assert state_of(verify(tmp_path / "v1", data).answers) == "holds"
    changes: list[tuple[Any, ...]] = [("direction", "anchors")]
    for part in ("fpr", "detection"):
        changes += [(part, "anchors", 3, "tally", field) for field in ("flagged",)]
        changes += [(part, "anchors", 3, "tally", "effective", i) for i in range(2 if groups else 0)]
    for place in changes:
        content = json.loads(release.record.to_json())
        at = content["checks"]
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] += 1 if isinstance(at[place[-1]], int) else -0.01 * at[place[-1]]
        changed = Record.model_validate(content)
        target = tmp_path / "-".join(map(str, place))
        type(release)(changed, release.calibrator).write(target)
        assert state_of(verify(target, data).answers) == "does not hold", place


# --- a pass that judged no detection ------------------------------------------------------------------------


@pytest.mark.each_run(1)
@pytest.mark.parametrize("format_", RENDERERS)
def test_the_headline_of_a_pass_without_malicious_rows_says_so(format_: str) -> None:
    fit, holdout, malicious = samples(5, reverse=False)
    alone = gate.run(fit, holdout, release="v1", created=CREATED).record
    assert alone.outcome == "pass"
    assert alone.reason.endswith("; without malicious rows, detection was not judged")
    assert "may ship; detection was not judged" in " ".join(RENDERERS[format_](alone).split())
    judged = gate.run(fit, holdout, release="v1", malicious=malicious, created=CREATED).record
    assert "detection was not judged" not in RENDERERS[format_](judged) + judged.reason
