"""Held-out rows that judge again: counted by their ids, named, paid for where the policy says so, at last refused."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from samples import sample_of

from gate import ledger as ledgers
from gate.ledger import Rows, read

REUSE = "reuse: {max_uses: 3}\n"
POLICY = """\
version: 1
name: small
rule: observed
data: {id: row}
targets:
  - {fpr: 10%, min_n: 1000, max_relative_error: 0.5}
"""


# --- the ledger ---------------------------------------------------------------------------------------------


def rows_of(ids: Iterable[int] | None, scores: Any = None, seed: int = 5) -> Rows:
    """Rows as the ledger sees them: named by ids, with scores of their own unless given."""
    names = None if ids is None else [f"row {i}" for i in ids]
    if scores is None:
        assert names is not None
        scores = np.random.default_rng(seed).random(len(names))
    return ledgers.rows_of(sample_of(scores, ids=names))


def test_runs_at_once_are_as_many_uses(tmp_path: Path) -> None:
    """Twelve processes, each with a question of its own: every use from 1 to 12 is given once."""
    path = tmp_path / "ledger.jsonl"
    with ProcessPoolExecutor(4, get_context("fork")) as pool:
        uses = [*pool.map(_claim_one, [str(path)] * 12, range(12))]
    assert sorted(uses) == [*range(1, 13)]
    assert len(read(str(path))) == 12


def _claim_one(path: str, i: int) -> int:
    return ledgers.claim(path, rows_of(range(3000)), f"q{i}", f"v{i}", "2026-06-30T00:00:00Z").number


# --- the command --------------------------------------------------------------------------------------------

CLEAN = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "SOURCE_DATE_EPOCH", "NO_COLOR")}


def gate(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return commands.gate(*args, cwd=cwd, env=CLEAN)


def write_rows(path: Path, seed: int, ids: list[int] | None, rows: int = 3000) -> None:
    """Write a release's scores of the same rows: new scores under the same ids."""
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


def uses(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["checks"]["reuse"]["holdout"]
    return found


def test_releases_judged_on_the_same_rows_spend_alpha_and_exhaust_them(releases: Path) -> None:
    """Uses are counted by ids though scores and order change; a repetition is free; a dry run is a use too."""
    ledger = releases / "spent.jsonl"
    code, first = run(releases, 1, "--ledger", ledger.name)
    assert (code, uses(first)["number"], uses(first)["earlier"]) == (0, 1, [])
    assert first["confidence"] == pytest.approx(0.975)
    before = ledger.read_bytes()

    code, dry = run(releases, 2, "--ledger", ledger.name, "--dry-run")
    assert (code, uses(dry)["number"]) == (0, 2)
    assert not (releases / "releases" / "v2").exists()
    counted = ledger.read_bytes()
    assert counted.startswith(before)
    assert counted.count(b"\n") == 2

    _, again = run(releases, 1, "--ledger", ledger.name)
    assert (uses(again)["number"], again["findings"]) == (1, first["findings"])

    _, second = run(releases, 2, "--ledger", ledger.name)
    use = {"number": 2, "earlier": ["v1"], "shared": [1.0]}
    assert second["checks"]["reuse"] == {"ledger": "spent.jsonl", "holdout": use, "malicious": None}
    assert second["confidence"] == pytest.approx(1 - 0.05 / 6)
    assert second["findings"] == dry["findings"]
    assert ledger.read_bytes() == counted
    widths = [np.subtract(*finding(record, "fpr@10%")["rate"]["interval"][::-1]) for record in (first, second)]
    assert widths[1] > 1.1 * widths[0]

    assert run(releases, 3, "--ledger", ledger.name)[0] == 0
    code, fourth = run(releases, 4, "--ledger", ledger.name)
    assert (code, fourth["outcome"]) == (3, "inconclusive")
    assert finding(fourth, "reuse")["reason"] == "exhausted"
    assert finding(fourth, "fpr@10%")["outcome"] == "pass"
    entries = read(str(ledger))
    assert [each.release for each in entries] == ["v1", "v2", "v3", "v4"]
    assert {each.held_out.rows for each in entries} == {first["holdout"]["rows_sha256"]}


def test_without_a_limit_in_the_policy_re_use_is_pointed_out(releases: Path) -> None:
    run(releases, 1, "--ledger", "warned.jsonl", policy="warn.yaml")
    code, record = run(releases, 2, "--ledger", "warned.jsonl", policy="warn.yaml")
    found = finding(record, "reuse")
    assert (code, found["outcome"], found["required"]) == (0, "pass", False)
    assert found["message"].endswith("after v1; each further use makes a false pass likelier")
    assert (
        "the held-out rows judge for the 2nd time, and the policy has no `reuse:` to pay for it" in record["warnings"]
    )
    assert record["confidence"] == pytest.approx(0.95)


def test_rows_without_ids_are_recognised_by_their_scores_and_the_record_says_so(releases: Path) -> None:
    _, one = run(releases, 1, "--ledger", "plain.jsonl", policy="no-ids.yaml")
    _, two = run(releases, 2, "--ledger", "plain.jsonl", policy="no-ids.yaml")
    assert [uses(record)["number"] for record in (one, two)] == [1, 1]
    assert any("have no ids (data.id)" in warning for warning in one["warnings"])


def test_a_policy_that_spends_needs_a_ledger(releases: Path) -> None:
    inputs = ["--fit", "fit1.parquet", "--holdout", "holdout1.parquet", "--release", "new", "--dry-run"]
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
