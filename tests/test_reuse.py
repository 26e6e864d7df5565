"""Held-out rows that judge again: counted by their ids, named, paid for where the policy says so, at last refused."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from gate.binomial import Band, critical_counts, upper_tail
from gate.errors import GateError
from gate.evidence import Evidence, Use, measure_target
from gate.ledger import Entry, append, read, use_of
from gate.policy import Policy, parse
from gate.verdict import judge, judge_reuse

GOLDEN = json.loads((Path(__file__).parent / "golden" / "statistics.json").read_text())
TODAY = date(2026, 6, 30)
REUSE = "reuse: {spending: harmonic-square, max_uses: 3}\n"
POLICY = """\
version: 1
name: small
rule: observed
data: {id: row}
targets:
  - {fpr: 10%, min_n: 1000, max_relative_error: 0.5}
"""


def make(reuse: str = "") -> Policy:
    return parse(POLICY + reuse, "test.yaml").policy


# --- spending -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GOLDEN["ledger_spending"], ids=lambda c: str(c["use"]))
def test_spending_equals_the_golden_numbers(case: dict[str, Any]) -> None:
    alpha = make(REUSE).alpha(case["use"])
    assert float(alpha) == pytest.approx(case["alpha"], rel=1e-8, abs=1e-10)
    fpr, r = Fraction(str(case["fpr"])), Fraction(str(case["r"]))
    found = critical_counts(case["n"], Band.around(fpr, r, r, alpha))
    assert found.proven == tuple(case["proven"])


def test_all_uses_together_spend_no_more_than_alpha() -> None:
    """alpha / (t (t + 1)) telescopes to alpha t / (t + 1)."""
    policy = make(REUSE)
    assert sum(policy.alpha(use) for use in range(1, 1001)) == Fraction(1, 20) * Fraction(1000, 1001)
    assert {make().alpha(use) for use in (1, 2, 20)} == {Fraction(1, 20)}


RUNS, USES = 20_000, 10


@pytest.mark.parametrize(("reuse", "holds"), [(REUSE, True), ("", False)])
def test_retrying_until_it_passes(reuse: str, holds: bool) -> None:
    """Ten releases, each a hair beyond the tolerance, judged on the same rows until one is proven: 20,000 such runs.

    With spending a false pass comes in at most alpha/2 = 2.5 % of the runs (standard error 0.11 %, three allowed);
    without, it does far more often, as the exact chance 1 - (1 - P(pass))^10 says.
    """
    policy, n, q = make(reuse), 20_000, 0.15
    rng = np.random.default_rng(71)
    passed, missed = np.zeros(RUNS, dtype=bool), 1.0
    for use in range(1, USES + 1):
        band = Band.around(Fraction(1, 10), Fraction(1, 2), Fraction(1, 2), policy.alpha(use))
        proven = critical_counts(n, band).proven
        assert proven is not None
        counts = rng.binomial(n, q, RUNS)
        passed |= (counts >= proven[0]) & (counts <= proven[1])
        missed *= 1 - (upper_tail(proven[0], n, q) - upper_tail(proven[1] + 1, n, q))
    share, slack = float(np.mean(passed)), 3 * (0.025 * 0.975 / RUNS) ** 0.5
    assert share == pytest.approx(1 - missed, abs=4 * (missed * (1 - missed) / RUNS) ** 0.5)
    assert (share <= 0.025 + slack) == holds
    assert holds or share > 0.15


# --- the ledger ---------------------------------------------------------------------------------------------


def entry(rows: str = "rows", question: str = "q1", release: str = "v1") -> Entry:
    return Entry(rows, question, release, "2026-06-30T00:00:00Z", "pass")


def test_uses_are_counted_by_rows_and_question() -> None:
    """Other rows do not count, and the same question again is not another use."""
    entries = [entry(), entry(question="q2", release="v2"), entry(rows="others", question="q3", release="v3")]
    assert use_of([], "rows", "q1") == Use(1, ())
    assert use_of(entries, "rows", "q3") == Use(3, ("v1", "v2"))
    assert use_of(entries[:1], "rows", "q1") == Use(1, ())
    assert use_of([*entries, entry(question="q2", release="v2 again")], "rows", "q3") == Use(3, ("v1", "v2"))
    assert use_of(entries, "fresh", "q1") == Use(1, ())


def test_entries_read_back_as_they_were_written(tmp_path: Path) -> None:
    """Also with line breaks and other letters in a name: one entry, one line of ASCII."""
    path = tmp_path / "kept" / "ledger.jsonl"
    written = [entry(), entry(release='two\nlines "quoted"'), entry(release="naïve 🚦 \u2028")]
    for each in written:
        append(str(path), each)
    assert read(str(path)) == written
    assert path.read_bytes().isascii()
    assert path.read_bytes().count(b"\n") == 3


def test_a_ledger_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    assert read(str(tmp_path / "none.jsonl")) == []


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{", b"[]", b"null", b'"text"', b"{}", b'{"rows": "a"}', b"\xff\xfe", b"[" * 100_000),
        json.dumps({**vars(entry()), "release": 7}).encode(),
    ],
)
def test_a_broken_line_is_named(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    append(str(path), entry())
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(GateError) as caught:
        read(str(path))
    assert str(caught.value).startswith(f"{path}:2: must be one judgement as JSON")


# --- the finding --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reuse", "use", "outcome", "reason", "words"),
    [
        ("", Use(1, ()), "pass", "fresh", "use 1 of these held-out rows"),
        ("", Use(2, ("v1",)), "pass", "reused", "use 2 of these held-out rows, after v1; each further use makes a"),
        (REUSE, Use(2, ("v1",)), "pass", "reused", "after v1; the intervals of this use miss at most 0.0083"),
        (REUSE, Use(3, ("v1", "v2")), "pass", "reused", "use 3 of these held-out rows, after v2 and v1"),
        (REUSE, Use(4, ("v1", "v2", "v3")), "inconclusive", "exhausted", "use 4 of these held-out rows, after v3, v2"),
    ],
)
def test_what_is_said_of_a_use(reuse: str, use: Use, outcome: str, reason: str, words: str) -> None:
    found = judge_reuse(make(reuse), use)
    assert (found.check, found.outcome, found.reason) == ("reuse", outcome, reason)
    assert found.required == bool(reuse)
    assert words in found.message
    assert (found.remedy is not None) == (outcome != "pass")


def test_exhausted_rows_decide_nothing_but_still_refute() -> None:
    policy = make(REUSE)
    for k, outcome in ((1000, "inconclusive"), (5000, "fail")):
        measured = measure_target(policy, policy.targets[0], 0.9, k, 10_000, 1e-9, alpha=policy.alpha(4))
        found = judge(policy, Evidence((measured,), None, Use(4, ("v1", "v2", "v3"))), TODAY)
        assert found.outcome == outcome
    assert judge(policy, Evidence((measured,), None, None), TODAY).outcome == "fail"


def test_the_reason_says_that_rows_have_judged_too_often() -> None:
    policy = make(REUSE)
    measured = measure_target(policy, policy.targets[0], 0.9, 1000, 10_000, 1e-9)
    found = judge(policy, Evidence((measured,), None, Use(4, ("v1", "v2", "v3"))), TODAY)
    assert found.reason == "the held-out rows have judged too often"


# --- the command --------------------------------------------------------------------------------------------

CLEAN = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "SOURCE_DATE_EPOCH", "NO_COLOR")}


def gate(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return commands.gate(*args, cwd=cwd, env=CLEAN)


def write_rows(path: Path, seed: int, ids: list[int] | None, rows: int = 3000) -> None:
    """A release's scores of the same rows: new scores under the same ids."""
    columns: dict[str, Any] = {"score": np.random.default_rng(seed).random(rows)}
    if ids is not None:
        columns["row"] = ids
    pyarrow.parquet.write_table(pa.table(columns), path)


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five releases, each of which scores the same held-out rows anew, in another order."""
    place = tmp_path_factory.mktemp("reuse")
    (place / "spend.yaml").write_text(POLICY + REUSE)
    (place / "warn.yaml").write_text(POLICY)
    (place / "no-ids.yaml").write_text(POLICY.replace("data: {id: row}\n", ""))
    rng = np.random.default_rng(81)
    for i in range(1, 6):
        write_rows(place / f"fit{i}.parquet", i, list(range(10_000, 13_000)))
        write_rows(place / f"holdout{i}.parquet", 100 + i, rng.permutation(3000).tolist())
    return place


def run(place: Path, i: int, *args: str, policy: str = "spend.yaml") -> tuple[int, dict[str, Any]]:
    inputs = ["--fit", f"fit{i}.parquet", "--holdout", f"holdout{i}.parquet", "--release", f"v{i}", "--force"]
    result = gate("run", "--policy", policy, *inputs, "--json", *args, cwd=place)
    assert result.returncode in (0, 1, 3), result.stderr
    return result.returncode, json.loads(result.stdout)


def finding(record: dict[str, Any], check: str) -> dict[str, Any]:
    return next(found for found in record["findings"] if found["check"] == check)


def test_releases_judged_on_the_same_rows_spend_alpha_and_exhaust_them(releases: Path) -> None:
    """Counted by ids though scores and order change; a repetition is free; a dry run leaves no trace."""
    ledger = releases / "spent.jsonl"
    code, first = run(releases, 1, "--ledger", ledger.name)
    assert (code, first["reuse"]["use"], first["reuse"]["earlier"]) == (0, 1, [])
    assert first["reuse"]["confidence"] == pytest.approx(0.975)
    before = ledger.read_bytes()

    code, dry = run(releases, 2, "--ledger", ledger.name, "--dry-run")
    assert (code, dry["reuse"]["use"]) == (0, 2)
    assert ledger.read_bytes() == before

    _, again = run(releases, 1, "--ledger", ledger.name)
    assert (again["reuse"]["use"], again["findings"]) == (1, first["findings"])

    _, second = run(releases, 2, "--ledger", ledger.name)
    assert second["reuse"] == {
        "ledger": "spent.jsonl",
        "use": 2,
        "earlier": ["v1"],
        "confidence": pytest.approx(1 - 0.05 / 6),
    }
    widths = [np.subtract(*finding(record, "fpr@0.1")["interval"][::-1]) for record in (first, second)]
    assert widths[1] > 1.1 * widths[0]

    assert run(releases, 3, "--ledger", ledger.name)[0] == 0
    code, fourth = run(releases, 4, "--ledger", ledger.name)
    assert (code, fourth["outcome"]) == (3, "inconclusive")
    assert finding(fourth, "reuse")["reason"] == "exhausted"
    assert finding(fourth, "fpr@0.1")["outcome"] == "pass"
    entries = read(str(ledger))
    assert [each.release for each in entries] == ["v1", "v1", "v2", "v3", "v4"]
    assert [each.outcome for each in entries] == ["pass", "pass", "pass", "pass", "inconclusive"]
    assert {each.rows for each in entries} == {first["holdout"]["rows_sha256"]}


def test_without_a_limit_in_the_policy_re_use_is_pointed_out(releases: Path) -> None:
    run(releases, 1, "--ledger", "warned.jsonl", policy="warn.yaml")
    code, record = run(releases, 2, "--ledger", "warned.jsonl", policy="warn.yaml")
    found = finding(record, "reuse")
    assert (code, found["outcome"], found["required"]) == (0, "pass", False)
    assert found["message"].endswith("after v1; each further use makes a false pass likelier")
    assert (
        "the held-out rows judge for the 2nd time, and the policy has no `reuse:` to pay for it" in record["warnings"]
    )
    assert record["reuse"]["confidence"] == pytest.approx(0.95)


def test_rows_without_ids_are_recognised_by_their_scores_and_the_record_says_so(releases: Path) -> None:
    _, one = run(releases, 1, "--ledger", "plain.jsonl", policy="no-ids.yaml")
    _, two = run(releases, 2, "--ledger", "plain.jsonl", policy="no-ids.yaml")
    assert [record["reuse"]["use"] for record in (one, two)] == [1, 1]
    assert any("have no ids (data.id)" in warning for warning in one["warnings"])


def test_a_policy_that_spends_needs_a_ledger(releases: Path) -> None:
    inputs = ["--fit", "fit1.parquet", "--holdout", "holdout1.parquet", "--release", "v1", "--dry-run"]
    result = gate("run", "--policy", "spend.yaml", *inputs, cwd=releases)
    assert (result.returncode, result.stdout) == (2, "")
    assert "reuse: must have a ledger to count uses in" in result.stderr


def test_a_broken_ledger_is_no_judgement(releases: Path) -> None:
    (releases / "broken.jsonl").write_text("not json\n")
    inputs = ["--fit", "fit1.parquet", "--holdout", "holdout1.parquet", "--release", "broken"]
    result = gate("run", "--policy", "spend.yaml", *inputs, "--ledger", "broken.jsonl", cwd=releases)
    assert (result.returncode, result.stdout) == (2, "")
    assert "broken.jsonl:1: must be one judgement as JSON" in result.stderr
    assert not (releases / "releases" / "broken").exists()
    assert (releases / "broken.jsonl").read_text() == "not json\n"
