"""A check is one file and its line in `CHECKS`: in a copy of gate, where it has both, every command knows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from repository import PACKAGE
from small import CLEAN

FILE = '''\
"""Haystack: whether there are rows enough to look through."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from gate.checks.check import Asked, Case, Check, Evidence, Finding
from gate.names import CheckName
from gate.policy import Flag, Frozen, Policy, PolicyCount
from gate.stored import Count, Section

NAME = CheckName("haystack")


class HaystackSettings(Frozen):
    """How many held-out rows there must be."""

    least: PolicyCount = Field(description="the fewest held-out rows")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")


class Haystack(Section):
    """How many held-out rows there are."""

    rows: Count


def measure(case: Case) -> Haystack:
    return Haystack(rows=len(case.holdout))


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    settings, found = policy.settings(HaystackSettings), evidence.of(Haystack)
    if settings is not None and found is not None:
        is_small = found.rows < settings.least
        yield Finding(
            check=NAME,
            outcome="fail" if is_small else "pass",
            required=settings.required,
            reason="small" if is_small else "large",
            message=f"{found.rows:,} straws where {settings.least:,} are wanted",
            remedy="make more hay" if is_small else None,
        )


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    if (settings := policy.settings(HaystackSettings)) is not None:
        yield Asked(NAME, settings.required, "held-out rows", ("checks", "haystack"))


CHECK = Check(
    key="haystack",
    asks="whether there are rows enough to look through",
    decides="It counts the held-out rows.",
    causes="a small sample",
    helps="Make more hay.",
    evidence=Haystack,
    measure=measure,
    judge=judge,
    asked=asked,
    reasons={"small": "too small a stack", "large": "a large stack"},
    settings=HaystackSettings,
    unasked="null: a stack of any size will do",
)
'''
POLICY = """\
version: 1
name: toy
targets: [{fpr: 10%, min_n: 1000, max_relative_error: 0.5}]
checks: {haystack: {least: 1e6}}
"""
WAIVER = "waivers: [{check: haystack, reason: no hay, owner: o, expires: 2099-12-31}]\n"
SAMPLES = ("--fit", "fit.npy", "--holdout", "holdout.npy")
COMMANDS = {
    "policy schema": ("schema", "policy"),
    "record schema": ("schema", "record"),
    "explained": ("explain", "haystack"),
    "failed": ("run", "--policy", "policy.yaml", "--release", "v1", *SAMPLES),
    "waived": ("run", "--policy", "waived.yaml", "--release", "v2", *SAMPLES, "--dry-run", "--json"),
    "verified": ("verify", "releases/v1", "--policy", "policy.yaml", *SAMPLES),
    "reported": ("report", "releases/v1"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("toy")
    shutil.copytree(PACKAGE, place / "copy" / "gate")
    (place / "copy" / "gate" / "checks" / "haystack.py").write_text(FILE)
    index = place / "copy" / "gate" / "checks" / "__init__.py"
    text = index.read_text()
    for before, added in (("    granularity,\n", "    haystack,\n"), ("    served.CHECK,\n", "    haystack.CHECK,\n")):
        assert text.count(before) == 1
        text = text.replace(before, before + added)
    index.write_text(text)
    (place / "policy.yaml").write_text(POLICY)
    (place / "waived.yaml").write_text(POLICY + WAIVER)
    for seed, name in enumerate(("fit", "holdout")):
        np.save(place / f"{name}.npy", np.random.default_rng(seed).beta(0.5, 8, 2000))
    return place


ALL = """
import json, sys
from calls import call
print(json.dumps({name: vars(call(*words)) for name, words in json.loads(sys.argv[1]).items()}))
"""


@pytest.fixture(scope="module")
def printed(place: Path) -> dict[str, tuple[int, str]]:
    """The exit code and the output of every command, all in one new interpreter that imports the copy."""
    environment = {**CLEAN, "PYTHONPATH": os.pathsep.join((str(place / "copy"), str(Path(__file__).parents[1])))}
    command = [sys.executable, "-c", ALL, json.dumps(COMMANDS)]
    result = subprocess.run(command, cwd=place, env=environment, capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert [name for name, one in found.items() if "Traceback" in one["stderr"]] == []
    return {name: (one["code"], one["stdout"]) for name, one in found.items()}


def test_it_is_in_both_schemas(printed: dict[str, tuple[int, str]]) -> None:
    policy, record = (json.loads(printed[f"{name} schema"][1])["$defs"] for name in ("policy", "record"))
    assert policy["Checks"]["properties"]["haystack"]["description"] == "null: a stack of any size will do"
    assert policy["HaystackSettings"]["properties"]["least"]["description"] == "the fewest held-out rows"
    assert "haystack" in record["Parts"]["properties"]
    assert record["Haystack"]["properties"]["rows"]["type"] == "integer"


def test_it_is_explained(printed: dict[str, tuple[int, str]]) -> None:
    code, text = printed["explained"]
    assert code == 0
    said = ("haystack: whether there are rows enough", "least: the fewest held-out rows", "small: too small a stack")
    assert [part for part in said if part not in text] == []


def test_it_fails_a_release_and_is_in_its_record(place: Path, printed: dict[str, tuple[int, str]]) -> None:
    assert printed["failed"][0] == 1
    record = json.loads((place / "releases" / "v1" / "verdict.json").read_text())
    assert record["checks"]["haystack"] == {"rows": 2000}
    [found] = [finding for finding in record["findings"] if finding["check"] == "haystack"]
    assert (found["outcome"], found["reason"], found["required"], found["waived"]) == ("fail", "small", True, False)
    assert (record["outcome"], record["reason"]) == ("fail", "haystack: too small a stack")


def test_it_is_in_every_report(place: Path, printed: dict[str, tuple[int, str]]) -> None:
    files = {name: (place / "releases" / "v1" / name).read_text() for name in ("report.html", "report.md", "junit.xml")}
    shown = {**files, "terminal": printed["failed"][1], "again": printed["reported"][1]}
    for name, text in shown.items():
        assert {part for part in ("haystack", "2,000 straws", "ake more hay") if part not in text} == set(), name
    [case] = [
        one for one in ElementTree.fromstring(files["junit.xml"]).iter("testcase") if one.get("name") == "haystack"
    ]
    assert case.find("failure") is not None


def test_its_release_is_verified_with_all_data(printed: dict[str, tuple[int, str]]) -> None:
    code, text = printed["verified"]
    assert code == 0
    assert "fail follows from the recorded counts and policy; 8 findings judged again" in text
    assert "holds: data: the whole record, made again from the data, is the same" in text


def test_it_can_be_waived(printed: dict[str, tuple[int, str]]) -> None:
    code, text = printed["waived"]
    record = json.loads(text)
    assert (code, record["outcome"]) == (0, "pass")
    assert [(use["check"], use["status"]) for use in record["waivers"]] == [("haystack", "active")]
    assert [finding["check"] for finding in record["findings"] if finding["waived"]] == ["haystack"]
