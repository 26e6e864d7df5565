"""On GitHub a verdict shows as step summary, annotations and outputs, and no name from outside can forge any."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from records import ATTACKS, NOON, RECORDS, with_text
from runner import Command, commands, outputs
from small import POLICY, gate, write_inputs

from gate.gating import Release
from gate.gating import run as gate_run
from gate.names import parse_name
from gate.record import Record
from gate.report import github, markdown
from gate.report.numbers import clean

NAMES = ["outcome", "exit-code", "directory", "report-html", "report-md", "verdict-json", "calibrator", "predicate"]
NAMES += ["calibrator-sha256", "manifest-sha256"]


SEGMENTS = """\
data: {segment: language}
checks:
  segments: {targets: [1%], min_n: 1, max_relative_error: 1}
"""


def with_findings(record: Record, count: int) -> Record:
    """Return the record with its blocking finding repeated, as if it were of many segments."""
    finding = next(finding for finding in record.findings if finding.blocks)
    copies = [
        finding.model_copy(update={"check": replace(finding.check, segment=f"segment={i}")}) for i in range(count)
    ]
    return record.model_copy(update={"findings": tuple(copies)})


# --- annotations --------------------------------------------------------------------------------------------


def test_a_blocking_finding_is_an_error_at_its_target_in_the_policy() -> None:
    record = RECORDS["inconclusive"]
    errors = commands("\n".join(github.errors(record, "policies/production.yaml")))
    assert [(error.name, error.properties["file"], error.properties["line"]) for error in errors] == [
        ("error", "policies/production.yaml", "5"),
        ("error", "policies/production.yaml", "6"),
    ]
    lines = record.policy.content.splitlines()
    for error, finding in zip(errors, record.findings[1:3], strict=True):
        assert finding.blocks
        assert str(finding.check) in error.properties["title"]
        assert error.message == f"{finding.message}. What would help: {finding.remedy}"
        assert f"fpr: {str(finding.check).partition('@')[2]}" in lines[int(error.properties["line"]) - 1]


def test_a_check_that_is_no_target_points_at_its_own_line_or_at_the_first() -> None:
    record = RECORDS["pass"]
    blocked = record.findings[0].model_copy(update={"outcome": "fail", "rate": None})
    for check, extra, line in [
        ("exchangeability", "checks:\n  exchangeability: {required: true}\n", "9"),
        ("exchangeability", "", "1"),
        ("reuse", "reuse: {max_uses: 3}\n", "8"),
        ("granularity@0.1%", "", "6"),
        ("granularity@0.1%", "checks:\n  granularity: {required: true}\n", "9"),
        ("fpr@1%/language=a/b", "", "5"),
        ("fpr@1%/language=a/b", SEGMENTS, "10"),
        ("segment/language=fpr@10%", SEGMENTS, "10"),
    ]:
        text = record.policy.content + extra
        changed: dict[str, object] = {"policy": record.policy.model_copy(update={"content": text})}
        changed |= {"findings": (blocked.model_copy(update={"check": parse_name(check)}),)}
        [error] = commands("\n".join(github.errors(record.model_copy(update=changed), "p.yaml")))
        assert error.properties["line"] == line


EVERYTHING = """\
version: 1
name: everything
rule: proven
targets:
  - {fpr: 10%, min_n: 100, max_relative_error: 0.5}                           # fpr@10%
  - {fpr: 1%, min_n: 100, max_relative_error: 0.5}                            # fpr@1%
data: {segment: part, timestamp: seen}
checks:                                                                       # duplicates direction unread
  overlap: {required: true}                                                   # overlap
  exchangeability: {required: true}                                           # exchangeability
  granularity: {required: true}                                               # granularity@10% granularity@1%
  floor: {required: true}                                                     # floor
  freshness: {max_age_days: 36500}                                            # freshness
  detection:
    targets:
      - {fpr: 1%, min_tpr: 0.5}                                               # tpr@1%
      - {fpr: 10%, min_tpr: 0.6}                                              # tpr@10%
    max_drop: 0.1                                                             # tpr-drop@1% tpr-drop@10% baseline
  segments:                                                                   # segments fpr@10%/part=a fpr@10%/part=b
    targets: [10%]
    min_n: 100
    max_relative_error: 0.5
    required: true
    expect: [c]                                                               # segment/part=c
reuse: {max_uses: 3}                                                          # reuse
"""


def test_every_check_points_at_the_line_that_asks_for_it(tmp_path: Path) -> None:
    """One run has all checks; each name stands in a comment on its line of the policy."""
    rng = np.random.default_rng(3)

    def table(n: int, benign: bool) -> pa.Table:
        scores = rng.beta(0.5, 8, n) if benign else rng.beta(8, 2, n)
        return pa.table({"score": scores, "part": rng.choice(["a", "b"], n), "seen": ["2026-02-20"] * n})

    def run(release: str, text: str, **more: Any) -> Release:
        (tmp_path / "policy.yaml").write_text(text)
        fit, holdout, malicious = table(20_000, True), table(20_000, True), table(500, False)
        options: dict[str, Any] = {
            "policy": tmp_path / "policy.yaml",
            "ledger": str(tmp_path / "ledger"),
            "created": NOON,
        }
        return gate_run(fit, holdout, release=release, malicious=malicious, **options, **more)

    first = run("v1", EVERYTHING.replace("expect:", "# expect:"), baseline="none")
    assert first.outcome == "pass", first.record.reason
    first.write(tmp_path / "v1")
    second = run("v2", EVERYTHING, baseline=tmp_path / "v1")
    lines = EVERYTHING.splitlines()
    kinds = {str(finding.check).partition("@")[0] for finding in second.record.findings}
    assert kinds >= {"fpr", "tpr", "tpr-drop", "baseline", "granularity", "segment/part=c", "segments", "reuse"}
    for finding in second.record.findings:
        blocked = finding.model_copy(update={"outcome": "fail", "required": True, "waived": False})
        record = second.record.model_copy(update={"findings": (blocked,)})
        [error] = commands("\n".join(github.errors(record, "policy.yaml")))
        line = lines[int(error.properties["line"]) - 1]
        assert str(finding.check) in line.partition("#")[2].split(), f"{finding.check} points at {line!r}"


def test_a_policy_outside_the_repository_has_no_line() -> None:
    errors = commands("\n".join(github.errors(RECORDS["fail"], None)))
    assert [sorted(error.properties) for error in errors] == [["title"]]


def test_what_passes_or_is_waived_or_advisory_is_no_error() -> None:
    assert github.errors(RECORDS["pass"], "p.yaml") == []
    assert github.errors(RECORDS["waived"], "p.yaml") == []


@pytest.mark.parametrize("count", [1, 10, 11, 500])
def test_there_are_at_most_ten_and_the_last_counts_the_rest(count: int) -> None:
    errors = commands("\n".join(github.errors(with_findings(RECORDS["fail"], count), "p.yaml")))
    assert len(errors) == min(count, 10)
    assert [error.properties["line"] for error in errors[:9]] == ["6"] * min(count, 9)
    rest = f"{count - 9} more findings block this release"
    assert (errors[-1].properties["title"] == rest) == (count > 10)


def test_a_proven_violation_comes_before_what_is_open() -> None:
    undecided, failed = with_findings(RECORDS["inconclusive"], 12), RECORDS["fail"]
    mixed = failed.model_copy(update={"findings": (*undecided.findings, *failed.findings)})
    assert "fpr@0.1%: fail" in commands("\n".join(github.errors(mixed, None)))[0].properties["title"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_names_add_no_command_and_change_none(attack: str) -> None:
    text = ATTACKS[attack]
    record = with_text(RECORDS["fail"], text)
    [error] = commands("\n".join(github.errors(record, f"policies/{clean(text)}.yaml")))
    shown = clean(text)
    assert (
        error
        == Command(
            "error",
            {
                "title": f"fpr@0.1%/language={shown}: fail ({shown})"[:200],
                "file": f"policies/{shown}.yaml",
                "line": "1",
            },
            f"{shown}. What would help: {shown}",
        )
        or len(shown) > 80
    )


@given(st.text(), st.text(), st.text())
@settings(max_examples=examples(300), deadline=None)
def test_any_text_makes_one_command_on_one_line(title: str, message: str, file: str) -> None:
    line = github.error(title, message, file, 3)
    assert len(re.split(r"[\r\n]", line)) == 1
    [error] = commands(line)
    assert (error.name, error.properties["file"], error.properties["line"]) == ("error", file, "3")
    assert len(error.message) <= github.MAX_CHARACTERS


# --- the summary --------------------------------------------------------------------------------------------


@pytest.mark.each_run(4)
@pytest.mark.parametrize("case", RECORDS)
def test_the_summary_is_the_markdown_report_within_its_limit(case: str) -> None:
    assert github.summary(RECORDS[case]) == markdown.render(RECORDS[case])
    assert len(github.summary(with_findings(RECORDS["fail"], 5000)).encode()) <= github.MAX_SUMMARY_BYTES


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_refusal_shows_hostile_names_as_text(attack: str) -> None:
    text = github.refusal(f"{clean(ATTACKS[attack])}: must exist")
    assert len(text.splitlines()) == 3
    assert not re.search(r"[<>|`\[\]]|(?<!\w)@\w|https?://", text)


def test_a_long_refusal_is_cut_and_says_so() -> None:
    text = github.refusal("\n".join(f"line {i}" for i in range(25)))
    assert text.count("\n- ") == 10
    assert text.endswith("\nAnd 15 more lines in the log.\n")


# --- outputs ------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from(NAMES), st.text(), min_size=1))
def test_outputs_come_back_as_they_were_whatever_they_hold(values: dict[str, str]) -> None:
    plain = {name: re.sub(r"\r", "", value) for name, value in values.items()}
    assert outputs(github.output_lines(plain, "0123456789abcdef")) == plain


# --- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A checkout with score files, and the runner's own files beside it."""
    place = tmp_path / "workspace"
    place.mkdir()
    write_inputs(place)
    (tmp_path / "runner").mkdir()
    return place


def environment(workspace: Path) -> dict[str, str]:
    files = workspace.parent / "runner"
    named = {"GITHUB_OUTPUT": files / "output", "GITHUB_STEP_SUMMARY": files / "summary"}
    return {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(workspace)} | {k: str(v) for k, v in named.items()}


def outputs_and_summary(env: Mapping[str, str]) -> tuple[dict[str, str], str]:
    found = outputs(Path(env["GITHUB_OUTPUT"]).read_text(encoding="utf-8"))
    return found, Path(env["GITHUB_STEP_SUMMARY"]).read_text(encoding="utf-8")


RUN = ["run", "--policy", "policy.yaml", "--fit", "fit.npy", "--release", "v1"]


@pytest.mark.parametrize(("outcome", "code"), [("pass", 0), ("fail", 1), ("inconclusive", 3)])
def test_a_run_tells_github_its_verdict(workspace: Path, outcome: str, code: int) -> None:
    env = environment(workspace)
    result = gate(*RUN, "--holdout", f"{outcome}.npy", cwd=workspace, env=env)
    assert result.returncode == code, result.stderr
    release = workspace / "releases" / "v1"
    record = json.loads((release / "verdict.json").read_text())
    found, summary = outputs_and_summary(env)
    assert found == {
        "outcome": outcome,
        "exit-code": str(code),
        "directory": "releases/v1",
        "report-html": "releases/v1/report.html",
        "report-md": "releases/v1/report.md",
        "verdict-json": "releases/v1/verdict.json",
        "calibrator": "releases/v1/calibrator.joblib",
        "predicate": "releases/v1/predicate.json",
        "calibrator-sha256": record["calibrator"]["sha256"],
        "manifest-sha256": hashlib.sha256((release / "manifest.json").read_bytes()).hexdigest(),
    }
    assert sorted(found) == sorted(NAMES)
    assert all((workspace / path).exists() for name, path in found.items() if "/" in path)
    assert summary.strip() == (release / "report.md").read_text(encoding="utf-8").strip()
    blocking = [finding for finding in record["findings"] if finding["blocks"]]
    errors = commands(result.stdout + result.stderr)
    lines = [i for i, line in enumerate(POLICY.splitlines(), 1) if "fpr: " in line]
    assert [error.properties["file"] for error in errors] == ["policy.yaml"] * len(blocking)
    assert {int(error.properties["line"]) for error in errors} <= {*lines}
    assert bool(errors) == (outcome != "pass")


def test_elsewhere_nothing_is_told(workspace: Path) -> None:
    env = {**environment(workspace), "GITHUB_ACTIONS": "false"}
    result = gate(*RUN, "--holdout", "fail.npy", cwd=workspace, env=env)
    assert result.returncode == 1
    assert commands(result.stdout + result.stderr) == []
    assert list((workspace.parent / "runner").iterdir()) == []


def test_a_dry_run_names_no_files(workspace: Path) -> None:
    env = environment(workspace)
    result = gate(*RUN, "--holdout", "fail.npy", "--dry-run", "--json", cwd=workspace, env=env)
    assert json.loads(result.stdout)["outcome"] == "fail"
    assert outputs_and_summary(env)[0] == {"outcome": "fail", "exit-code": "1"}


def test_a_policy_of_another_directory_is_named_from_the_top_of_the_checkout(workspace: Path) -> None:
    (workspace / "models").mkdir()
    elsewhere = workspace.parent / "policy.yaml"
    shutil.copy(workspace / "policy.yaml", elsewhere)
    args = ["run", "--release", "v1", "--fit", "../fit.npy", "--holdout", "../fail.npy", "--dry-run"]
    found = []
    for policy in ("../policy.yaml", str(elsewhere)):
        result = gate(*args, "--policy", policy, cwd=workspace / "models", env=environment(workspace))
        found.append({error.properties.get("file") for error in commands(result.stderr)})
    assert found == [{"policy.yaml"}, {None}]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([*RUN, "--holdout", "none.npy"], "none.npy: must exist"),
        ([*RUN, "--holdout", "fit.npy", "--polciy", "x\n::error::y"], "No such option"),
        (
            ["run", "--release", "a\n::set-output name=outcome::pass", "--fit", "fit.npy", "--holdout", "x"],
            "--release:",
        ),
    ],
)
def test_a_mistake_is_told_without_an_outcome(workspace: Path, args: list[str], sentence: str) -> None:
    env = environment(workspace)
    result = gate(*args, cwd=workspace, env=env)
    assert result.returncode == 2
    [error] = commands(result.stdout + result.stderr)
    assert (error.name, error.properties) == ("error", {"title": "no judgement possible"})
    assert sentence in error.message
    found, summary = outputs_and_summary(env)
    assert found == {"exit-code": "2"}
    assert summary.strip().startswith("# NO JUDGEMENT: this release was not judged\n")


def test_other_commands_tell_github_nothing(workspace: Path) -> None:
    for args in (["report", "none"], ["plan", "--policy", "none"]):
        result = gate(*args, cwd=workspace, env=environment(workspace))
        assert result.returncode == 2
        assert commands(result.stderr) == []
    assert list((workspace.parent / "runner").iterdir()) == []


@pytest.mark.each_run(2)
@pytest.mark.parametrize("attack", ["command", "command-after-a-long-word", "entity", "markdown-link"])
def test_hostile_names_reach_no_command_through_any_stream(workspace: Path, attack: str) -> None:
    """The names are those of the release, the files and the policy; the streams hold a table and JSON."""
    name = ATTACKS[attack][:60].replace("/", "-")
    for kind in ("fit", "fail"):
        shutil.copy(workspace / f"{kind}.npy", workspace / f"{name} {kind}.npy")
    policy = POLICY.replace("name: small", f"name: {json.dumps(ATTACKS[attack][:200], ensure_ascii=False)}")
    (workspace / f"{name}.yaml").write_text(policy, encoding="utf-8")
    args = ["run", "--release", ATTACKS[attack][:200], "--policy", f"{name}.yaml", "--out", f"out {name}"]
    args += ["--fit", f"{glob.escape(name)} fit.npy", "--holdout", "fail.npy"]
    for extra in ([], ["--json", "--force"]):
        env = environment(workspace)
        result = gate(*args, *extra, cwd=workspace, env=env)
        assert result.returncode == 1, result.stderr
        errors = commands(result.stdout + "\n" + result.stderr)
        assert [error.properties["file"] for error in errors] == [f"{name}.yaml"] * 2
        assert outputs_and_summary(env)[0]["report-html"] == f"out {name}/report.html"


def test_what_cannot_be_written_changes_no_verdict(workspace: Path) -> None:
    env = environment(workspace) | {"GITHUB_OUTPUT": str(workspace), "GITHUB_STEP_SUMMARY": "/dev/full/x"}
    result = gate(*RUN, "--holdout", "fail.npy", cwd=workspace, env=env)
    assert result.returncode == 1
    assert "gate: GITHUB_OUTPUT: must name a file that can be written, got Is a directory;" in result.stderr
    assert "gate: GITHUB_STEP_SUMMARY: must name a file that can be written, got Not a directory;" in result.stderr
    unset = {name: value for name, value in environment(workspace).items() if name == "GITHUB_ACTIONS"}
    assert gate(*RUN, "--holdout", "fail.npy", "--force", cwd=workspace, env=unset).returncode == 1


def test_what_is_there_already_stays_and_a_full_summary_stays_below_its_limit(workspace: Path) -> None:
    env = environment(workspace)
    for name, text in [("GITHUB_OUTPUT", "mine=1"), ("GITHUB_STEP_SUMMARY", "x" * 917_000)]:
        Path(env[name]).write_text(text)
    for i in (1, 2):
        assert gate(*RUN, "--holdout", "pass.npy", "--out", f"o{i}", cwd=workspace, env=env).returncode == 0
    found, summary = outputs_and_summary(env)
    assert (found["mine"], found["directory"]) == ("1", "o2")
    assert summary.count("\n# PASS: ") == 1
    assert len(summary.encode()) <= github.MAX_SUMMARY_BYTES


def test_the_environment_of_the_tests_is_not_a_runner() -> None:
    assert "GITHUB_ACTIONS" not in os.environ
