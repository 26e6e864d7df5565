"""A record has every key that its schema promises, reads back equal, or is refused in one line."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from records import RECORDS
from samples import sample_of

from gate.checks import default_policy, parse_policy, policy_schema
from gate.errors import GateError
from gate.gating import Job, gate_release
from gate.record import Record, parse_record, read, read_record, schema
from gate.sources import Source
from gate.storage import write_file

POLICY = """\
version: 1
name: small
targets: [{fpr: 10%, min_n: 1000, max_relative_error: 0.5}]
waivers: [{check: fpr@0.1, reason: until relabelled, owner: "@detections", expires: 2026-12-31}]
"""


def make_record(path: str = "fit.npy") -> Record:
    rng = np.random.default_rng(7)
    fit, holdout = (
        sample_of(rng.beta(0.5, 8, 2000), (Source(path=name, rows=2000, benign=2000),))
        for name in (path, "holdout.npy")
    )
    created = datetime(2026, 3, 1, 12, 0, 0, 999_999, tzinfo=UTC)
    job = Job(parse_policy(POLICY, "policy.yaml"), "v1", created, created.date())
    return gate_release(job, fit, holdout).record


@pytest.fixture(scope="module")
def record() -> Record:
    return make_record()


@contextmanager
def refused() -> Iterator[Callable[[], str]]:
    """The block must raise a GateError of one line; the value gives the line."""
    lines: list[str] = []
    with pytest.raises(GateError) as caught:
        yield lambda: lines[0]
    lines.extend(str(caught.value).splitlines())
    assert len(lines) == 1
    assert lines[0]


# --- the record ---------------------------------------------------------------------------------------------

KEYS = {
    "": "schema_version kind tool release created outcome policy fit holdout calibrator findings checks",
    "tool": "name version",
    "policy": "name sha256 content",
    "fit": "sources sha256 n",
    "holdout": "sources sha256 n",
    "calibrator": "sha256 bytes knots plotting_position ties lowest_label anchors",
    "checks": "fpr overlap duplicates exchangeability granularity floor freshness reuse detection direction baseline "
    "drop segments",
}
FINDING_KEYS = "check outcome grade required waived blocks reason message remedy rate"
RATE_KEYS = "target score tally interval tolerance accepts predicted observed relative_error"
TALLY_KEYS = "threshold flagged rows effective"


def test_the_record_has_every_documented_key(record: Record) -> None:
    content = json.loads(record.to_json())
    assert content["schema_version"] == 1
    for section, keys in KEYS.items():
        assert set(keys.split()) <= (content[section] if section else content).keys(), section
    for finding in content["findings"]:
        assert set(FINDING_KEYS.split()) <= finding.keys()
    rate = content["findings"][0]["rate"]
    assert set(RATE_KEYS.split()) <= rate.keys()
    assert set(TALLY_KEYS.split()) <= rate["tally"].keys()


def test_the_record_says_when_to_the_second_in_utc(record: Record) -> None:
    assert record.created == "2026-03-01T12:00:00Z"


def test_the_record_carries_the_policy_to_the_letter(record: Record) -> None:
    assert record.policy.content == POLICY
    assert record.policy.sha256 == hashlib.sha256(POLICY.encode()).hexdigest()


def test_the_record_reads_back_equal(tmp_path: Path, record: Record) -> None:
    (tmp_path / "verdict.json").write_text(record.to_json(), encoding="utf-8")
    again = read_record(tmp_path)
    assert again == record
    assert again.to_json() == record.to_json()


def test_the_record_follows_its_schema(record: Record) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(record.to_json()), schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        (("holdout",), "n", -1),
        (("holdout",), "n", 10**400),
        (("calibrator",), "lowest_label", 1.5),
        (("policy",), "confidence", -0.5),
        (("findings", 0, "rate"), "target", 0),
        (("findings", 0, "rate"), "interval", [0.1, 1.1]),
        (("findings", 0, "rate", "tally"), "flagged", -1),
        (("findings", 0, "rate", "tally"), "flagged", 10**6),
        (("findings", 0, "rate", "tally"), "effective", [1e300, 1e300]),
        (("checks", "fpr", "anchors", 0, "tally"), "flagged", 2001),
        (("checks", "fpr", "anchors", 0, "tally"), "rows", 0),
        (("checks", "fpr", "anchors", 0), "fpr", 0.0),
    ],
)
def test_numbers_that_no_sample_has_are_refused(
    tmp_path: Path, record: Record, place: tuple[str | int, ...], key: str, value: Any
) -> None:
    """So that no report divides by them."""
    content = json.loads(record.to_json())
    part = content
    for step in place:
        part = part[step]
    part[key] = value
    (tmp_path / "verdict.json").write_text(json.dumps(content))
    with refused() as line:
        read_record(tmp_path)
    assert str(place[-1]) in line()
    assert "must follow `gate schema record`" in line()


def test_a_pipe_in_the_place_of_the_record_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "verdict.json")
    with refused() as line:
        read_record(tmp_path)
    assert "got something that is no file" in line()


def test_a_file_name_that_is_no_text_is_recorded_visibly(tmp_path: Path) -> None:
    """File names are bytes; a record is UTF-8."""
    name = os.fsdecode(b"fit-\xff.npy")
    record = make_record(name)
    assert record.fit.sources[0].path == "fit-\\udcff.npy"
    write_file(tmp_path / "verdict.json", record.to_json().encode())
    assert read_record(tmp_path) == record


def test_keys_added_by_a_later_gate_are_ignored(tmp_path: Path, record: Record) -> None:
    content = json.loads(record.to_json())
    content["added"] = {"deep": [1, None]}
    content["policy"]["added"] = 1
    content["findings"][0]["added"] = "x"
    (tmp_path / "verdict.json").write_text(json.dumps(content))
    assert read_record(tmp_path) == record


def edited(record: Record, edit: Callable[[dict[str, Any]], object]) -> bytes:
    content = json.loads(record.to_json())
    edit(content)
    return json.dumps(content).encode()


def rate(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = content["findings"][0]["rate"]
    return found


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda r: r.update(schema_version=2), "schema_version must be at most 1, got 2; upgrade gate"),
        (lambda r: r.update(schema_version=0), "schema_version: must follow `gate schema record`"),
        (lambda r: r.update(outcome="maybe"), "outcome: must follow `gate schema record`"),
        (lambda r: r.pop("findings"), "findings: must follow `gate schema record`, got an error: Field required"),
        (lambda r: r["findings"][0].update(check="Fpr 10 %"), "findings.0.check: must follow"),
        (lambda r: rate(r).update(target=float("nan")), "findings.0.rate.target: must follow"),
        (lambda r: rate(r).update(interval=[0, float("inf")]), "findings.0.rate.interval.1: must follow"),
        (lambda r: rate(r).update(interval=[0.1]), "findings.0.rate.interval.1: must follow"),
        (lambda r: rate(r)["tally"].update(rows="many"), "findings.0.rate.tally.rows: must follow"),
        (lambda r: r.update(release="\ud800"), "must be JSON, got an error: 'utf-8' codec can't encode"),
    ],
)
def test_a_record_that_is_none_is_refused(
    tmp_path: Path, record: Record, edit: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    (tmp_path / "verdict.json").write_bytes(edited(record, edit))
    with refused() as line:
        read_record(tmp_path)
    assert line().startswith(f"{tmp_path / 'verdict.json'}: ")
    assert sentence in line()


@pytest.mark.parametrize(
    "garbage",
    [b"", b"{", b"nothing", b"\xff\xfe\xfd", b"[" * 10**6, b'{"a":' * 10**5, b"9" * 10_000],
    ids=["empty", "cut", "words", "bytes", "deep list", "deep mapping", "long number"],
)
def test_garbage_is_refused(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "verdict.json").write_bytes(garbage)
    with refused() as line:
        read_record(tmp_path)
    assert "verdict.json: must be JSON, got an error: " in line()


@pytest.mark.parametrize("content", [b"[]", b"null", b"1", b'"text"', b"NaN"])
def test_json_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "verdict.json").write_bytes(content)
    with refused() as line:
        read_record(tmp_path)
    assert "record: must follow `gate schema record`" in line()


@pytest.mark.parametrize("place", ["", "missing", "file"])
def test_a_directory_without_a_record_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with refused() as line:
        read_record(tmp_path / place)
    assert "must be the record of a release" in line()


def test_an_enormous_record_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MAX_BYTES", 1000)
    (tmp_path / "verdict.json").write_bytes(b" " * 1001)
    with refused() as line:
        read_record(tmp_path)
    assert "at most 1,000 bytes" in line()


def test_the_built_in_policy_follows_the_policy_schema() -> None:
    content = yaml.safe_load(default_policy().text)
    jsonschema.validate(content, policy_schema(), cls=jsonschema.Draft202012Validator)


def test_every_rate_of_a_record_has_a_target() -> None:
    """Reports take it for granted; only the rates of several detectors together have none."""
    content = RECORDS["fail"].model_dump(mode="json")
    next(found for found in content["findings"] if found["rate"])["rate"]["target"] = None
    with pytest.raises(GateError, match="must name the target of every rate"):
        parse_record(json.dumps(content).encode(), "verdict.json")
