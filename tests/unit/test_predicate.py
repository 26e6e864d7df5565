"""The attestation predicate is a published in-toto test result, and never says more than the verdict does."""

from __future__ import annotations

import hashlib
import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from drawing import examples
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from records import ATTACKS, RECORDS, with_text
from samples import sample_of

import gate
from gate.checks import default_policy
from gate.checks.baseline import Comparison
from gate.checks.reuse import Use, Uses
from gate.policy import Columns
from gate.record import Record, read_record
from gate.report import predicate
from gate.sources import Split

FIELDS = ["result", "configuration", "passedTests", "warnedTests", "failedTests"]
ABSENT = {"uri": "", "content": "", "downloadLocation": "", "mediaType": ""}  # the fields of a resource descriptor


def rendered(record: Record) -> dict[str, Any]:
    """The predicate, once in-toto's own published message has taken every field of it."""
    text = predicate.render(record)
    message = json_format.Parse(text, test_result_pb2.TestResult())
    content: dict[str, Any] = json.loads(text)
    assert json_format.MessageToDict(message, always_print_fields_with_no_presence=True) == {
        **content,
        "configuration": [{**ABSENT, **descriptor} for descriptor in content["configuration"]],
        "url": "",
    }
    return content


@pytest.mark.parametrize(
    ("case", "result", "tests"),
    [
        ("pass", "PASSED", {"passed": 4, "warned": 0, "failed": 0}),
        ("fail", "FAILED", {"passed": 2, "warned": 1, "failed": 1}),
        ("inconclusive", "FAILED", {"passed": 1, "warned": 1, "failed": 2}),
        ("waived", "WARNED", {"passed": 2, "warned": 2, "failed": 0}),
    ],
)
def test_the_result_follows_the_verdict(case: str, result: str, tests: dict[str, int]) -> None:
    """Inconclusive is FAILED, waived is WARNED, and every check stands in one list."""
    record = RECORDS[case]
    content = rendered(record)
    assert content["result"] == result
    assert {kind: len(content[f"{kind}Tests"]) for kind in tests} == tests
    listed = [name for kind in tests for name in content[f"{kind}Tests"]]
    assert sorted(listed) == sorted(str(finding.check) for finding in record.findings)
    assert list(content) == FIELDS


@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_only_an_unblemished_pass_is_PASSED(data: st.DataObject) -> None:  # noqa: N802 - the word of the format
    """This holds for any record, even one that contradicts itself."""
    findings = []
    for finding in RECORDS["waived"].findings:
        outcome = data.draw(st.sampled_from(["pass", "fail", "inconclusive"]))
        required, waived = data.draw(st.booleans()), data.draw(st.booleans())
        changed = {"outcome": outcome, "required": required, "waived": waived}
        findings.append(finding.model_copy(update=changed))
    overall = data.draw(st.sampled_from(["pass", "fail", "inconclusive"]))
    content = rendered(RECORDS["pass"].model_copy(update={"findings": tuple(findings), "outcome": overall}))
    clean = overall == "pass" and all(f.outcome == "pass" and not f.blocks for f in findings)
    assert (content["result"] == "PASSED") == clean
    assert (content["result"] == "FAILED") == (overall != "pass" or any(f.blocks for f in findings))


def test_the_configuration_is_what_the_verdict_rests_on() -> None:
    record = RECORDS["pass"]
    *files, options = rendered(record)["configuration"]
    assert {entry["name"]: entry["digest"] for entry in files} == {
        "policy": {"sha256": record.policy.sha256},
        "fit": {"sha256": record.fit.sha256},
        "holdout": {"sha256": record.holdout.sha256},
        "calibrator": {"sha256": record.calibrator.sha256},
    }
    text = json.dumps(options["annotations"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert options["digest"] == {"sha256": hashlib.sha256(text.encode()).hexdigest()}
    ids = record.model_copy(update={"holdout": record.holdout.model_copy(update={"rows_sha256": "1" * 64})})
    assert rendered(ids)["configuration"][-2] == {"name": "holdout ids", "digest": {"sha256": "1" * 64}}
    followed = {entry["name"]: entry["digest"] for entry in rendered(RECORDS["followed"])["configuration"]}
    assert followed["baseline"] == {"sha256": "a" * 64}
    assert RECORDS["followed"].malicious is not None
    assert followed["malicious"] == {"sha256": RECORDS["followed"].malicious.sha256}


SPLIT = Split(fraction=0.5, seed=2**63 + 1, by="rows")
FOLLOWED = RECORDS["followed"]


def used(number: int, malicious: int | None = None) -> Uses:
    first, other = (
        None if n is None else Use(number=n, earlier=("v0",) * (n - 1), shared=(1.0,) * (n - 1))
        for n in (number, malicious)
    )
    assert first is not None
    return Uses(ledger="l", holdout=first, malicious=other)


COLUMNS = ("score", "calibrated", "label", "benign_label", "segment", "group", "id", "timestamp", "count")
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *((key, {"data": {key: "other"}}) for key in COLUMNS if key != "benign_label"),
    ("benign label", {"data": {"benign_label": ("x", "y")}}),
    ("split", {"split": SPLIT}),
    ("seed", {"split": SPLIT.model_copy(update={"seed": 2**63})}),
    ("fraction", {"split": SPLIT.model_copy(update={"fraction": 0.25})}),
    ("first release", {"checks": {"baseline": Comparison(reference=None)}}),
    ("use", {"checks": {"reuse": used(2)}}),
    ("another use", {"checks": {"reuse": used(3)}}),
    ("use of malicious rows", {"checks": {"reuse": used(3, malicious=2)}}),
    ("judged on", {"judged_on": date(2026, 3, 2)}),
    ("kind", {"kind": "check"}),
    ("malicious", {"malicious": FOLLOWED.malicious}),
    ("baseline", {"checks": {"baseline": FOLLOWED.of(Comparison)}}),
]


def test_every_option_that_bears_on_the_verdict_is_named() -> None:
    """Columns named on the command line are in no file that has a digest: each choice has its own configuration."""
    plain = RECORDS["pass"]
    seen = {json.dumps(rendered(plain)["configuration"])}
    for name, change in OPTIONS:
        for part in {"data", "checks"} & change.keys():
            change = {part: getattr(plain, part).model_copy(update=change[part])}
        content = rendered(plain.model_copy(update=change))["configuration"]
        options = content[-1]
        assert options["name"] == "options"
        assert json.dumps(content) not in seen, name
        seen.add(json.dumps(content))
    assert options["annotations"]["baseline"] == "v2.3.0"
    assert {*COLUMNS} == {*options["annotations"]["columns"]}
    columns = {name for name, field in Columns.model_fields.items() if not field.exclude}  # others are files
    assert columns == {*options["annotations"]["columns"]}, "and each that a policy may name"


def test_a_column_named_on_the_command_line_leaves_its_trace(tmp_path: Path) -> None:
    """The same policy and files, another column: the verdict is another one, and so is what is signed."""
    rng = np.random.default_rng(4)
    for name in ("fit", "holdout"):
        scores = rng.beta(0.5, 8, 3_000)
        table = pa.table({"score": scores, "calibrated": scores if name == "fit" else scores**0.5})
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    found = {}
    for column in ("score", "calibrated"):
        document = default_policy().override([f"data.score={column}"])
        samples = (str(tmp_path / f"{name}.parquet") for name in ("fit", "holdout"))
        record = gate.run(*samples, release="v1", policy=document).record
        found[column] = (record.outcome, rendered(record)["configuration"][-1]["annotations"]["columns"]["score"])
    assert found["score"][0] != found["calibrated"][0] == "fail"
    assert [columns for _, columns in found.values()] == ["score", "calibrated"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_names_stay_names(attack: str) -> None:
    record = with_text(RECORDS["waived"], ATTACKS[attack])
    names = [f"{name}/language={ATTACKS[attack]}" for name in ("fpr@0.1%", "fpr@0.01%")]
    assert rendered(record)["warnedTests"] == names


def test_the_release_has_it_and_its_digests_are_those_of_the_files(tmp_path: Path) -> None:
    scores = np.random.default_rng(1).beta(0.5, 8, 60_000)
    gate.run(scores[:30_000], scores[30_000:], release="v1").write(tmp_path / "v1")
    files = {path.name: path.read_bytes() for path in (tmp_path / "v1").iterdir()}
    manifest = json.loads(files["manifest.json"])["sha256"]
    assert manifest["predicate.json"] == hashlib.sha256(files["predicate.json"]).hexdigest()
    record = read_record(tmp_path / "v1")
    assert predicate.render(record).encode() == files["predicate.json"]
    digests = {entry["name"]: entry["digest"]["sha256"] for entry in rendered(record)["configuration"]}
    assert digests["calibrator"] == hashlib.sha256(files["calibrator.joblib"]).hexdigest()
    assert digests["policy"] == hashlib.sha256(record.policy.content.encode()).hexdigest()
    for name, part in [("fit", scores[:30_000]), ("holdout", scores[30_000:])]:
        assert digests[name] == sample_of(part[::-1]).fingerprint
