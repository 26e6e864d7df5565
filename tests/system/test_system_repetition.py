"""Several detectors: with their data given, no value of the record of all can be changed, as `test_repetition` asks."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from forging import Place, altered, at, branches, changed, dotted, leaves

from gate.checks import parse_policy
from gate.cli import cli
from gate.errors import GateError
from gate.gating import Job
from gate.inspection.differences import differences
from gate.policy import Document
from gate.record import json_text
from gate.record.system import parse_system
from gate.report.formats import rendered
from gate.rows.together import Several, given_together
from gate.storage import manifest_of
from gate.systems import Past, SystemRows, gate_system, read_stored_system
from gate.systems.past import NOTHING_BEFORE
from gate.verification import system as repetition
from gate.verification.compared import UNBOUND_OF_SEVERAL
from gate.verification.result import Data
from gate.verification.system import verify_system

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ROWS = {"fit": 1_500, "holdout": 1_600, "later": 1_400, "malicious": 300}
POLICY = """\
version: 1
name: two
calibration: {{knots: 40}}
contract: [{{fpr: 10%, score: 0.1}}, {{fpr: 5%, score: 0.3}}]
targets: [{{fpr: 10%, min_n: 500, max_relative_error: 0.5}}]
data: {{id: id}}
{reuse}detectors:
  - {{name: a, score: a{a}}}
  - {{name: b, score: b{b}}}
system: [{{score: 0.1, max_fpr: 40%, min_n: 500}}, {{score: 0.3, max_fpr: 30%, min_n: 500}}]
waivers:
  - {{check: system@0.3, reason: more rows by June, owner: "@detections", expires: 2026-06-30}}
  - {{check: "b:fpr@10%", reason: more rows by June, owner: "@detections", expires: 2026-06-30}}
"""
LABELS = {"a": ", label: la, benign_label: ok", "b": ", label: lb"}


@dataclass(frozen=True)
class Case:
    directory: Path
    data: Data
    document: Document

    @property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.directory / "verdict.json").read_bytes())
        return content


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """Releases whose uses a ledger counts, whose detectors have labels or files of their own, and checks of them."""
    place = tmp_path_factory.mktemp("cases")
    rng, paths = np.random.default_rng(7), {}
    for name, n in ROWS.items():
        bad = name == "malicious"
        rows: dict[str, Any] = {column: rng.beta(9 if bad else 0.5, 8, n) for column in ("a", "b")}
        rows |= {"id": [f"{name}-{i}" for i in range(n)], "la": ["bad" if bad else "ok"] * n, "lb": [str(int(bad))] * n}
        rows["b"] = pa.array(rows["b"], mask=np.arange(n) == 3)
        pa.parquet.write_table(pa.table(rows), place / f"{name}.parquet")
        paths[name] = (str(place / f"{name}.parquet"),)
    ledger = str(place / "ledger.jsonl")
    files = "".join(f", {name}: {paths[name][0]}" for name in ("fit", "holdout", "malicious"))
    documents = {
        "counted": parse_policy(POLICY.format(a="", b="", reuse="reuse: {max_uses: 5}\n"), "two.yaml"),
        "labelled": parse_policy(POLICY.format(**LABELS, reuse=""), "two.yaml"),
        "own files": parse_policy(POLICY.format(a=files, b=files, reuse=""), "two.yaml"),
    }

    def run(name: str, document: Document, samples: dict[str, str], past: Past = NOTHING_BEFORE, to: str = "") -> None:
        own = {key: detector.policy for key, detector in document.detectors.items()}
        read = {sample: given_together(sample, paths[files], own) for sample, files in samples.items()}
        rows = SystemRows.read(lambda sample: read.get(sample, Several()), None)
        job = Job(document, name, NOON, NOON.date(), ledger if document is documents["counted"] else None)
        gate_system(job, rows, past).write(place / (to or name))

    for name, document in documents.items():
        run(name, document, {"fit": "fit", "holdout": "holdout", "malicious": "malicious"})
    for name, of in (("check", "counted"), ("check of own files", "own files")):
        _, stored = read_stored_system(place / of)
        run(of, documents[of], {"holdout": "later", "malicious": "malicious"}, Past(stored=stored), name)
    data = Data(paths["fit"], paths["holdout"], malicious=paths["malicious"])
    checked = Data(holdout=paths["later"], malicious=paths["malicious"], baseline=str(place / "counted"), ledger=ledger)
    return {
        "counted": Case(place / "counted", replace(data, ledger=ledger), documents["counted"]),
        "labelled": Case(place / "labelled", data, documents["labelled"]),
        "check": Case(place / "check", checked, documents["counted"]),
        "own files": Case(place / "own files", Data(paths["fit"]), documents["own files"]),
        "check of own files": Case(
            place / "check of own files",
            replace(checked, baseline=str(place / "own files"), ledger=None),
            documents["own files"],
        ),
    }


NAMES = ["counted", "labelled", "check"]


def seal(directory: Path, content: dict[str, Any], whole: bool = False) -> None:
    """The record as it was changed, rendered and sealed again: all of it, or the record alone."""
    text = json_text(content).encode()
    files = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    files |= rendered(parse_system(text, directory)) if whole else {"verdict.json": text}
    del files["manifest.json"]
    for name, data in (files | {"manifest.json": manifest_of(files)}).items():
        (directory / name).write_bytes(data)


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories of detectors, which nobody changes here, are inspected once; what is repeated alike is made once."""
    made: dict[str, Any] = {}

    def once(name: str, key: Callable[..., str]) -> None:
        real = getattr(repetition, name)

        def call(*given: Any) -> Any:
            known = name + key(*given)
            if known not in made:
                made[known] = real(*given)
            return made[known]

        monkeypatch.setattr(repetition, name, call)

    once("_inspect_one", lambda _found, place, own: repr((place, own)))
    once("_read", lambda record, *_: record.kind)
    once("_repeat", lambda record, *_: repr((record.kind, record.release, record.created, record.day)))
    monkeypatch.setattr(repetition, "rendered", lambda record: {"verdict.json": record.to_json().encode()})


@pytest.mark.parametrize("name", [*NAMES, "own files", "check of own files"])
def test_every_case_holds_whole(cases: dict[str, Case], name: str) -> None:
    """A check is of the files that it was given, whatever files of their own the detectors have."""
    case = cases[name]
    answer = verify_system(case.directory, case.data, pinned=case.document, complete=True)
    assert {found.state for found in answer.answers} == {"holds"}, answer.lines
    assert answer.answers[-1].name == "data"
    assert answer.not_checked == ()


@pytest.mark.parametrize("name", NAMES)
def test_every_single_value_is_compared(cases: dict[str, Case], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each leaf changed by itself, each section left out, each list with an entry more or less."""
    case, compared = cases[name], []
    monkeypatch.setattr("gate.verification.compared.refuse_differences", lambda _, *pair: compared.append(pair))
    verify_system(case.directory, case.data, pinned=case.document)
    recorded, again = compared[-1]
    assert recorded == again
    forged = [
        (place, altered(at(recorded, place), place)) for place in leaves(recorded) if at(recorded, place) is not None
    ]
    for place in branches(recorded):
        whole = at(recorded, place)
        shapes = [None] if isinstance(whole, dict) else [whole + whole[-1:], whole[1:]] if whole else [[1]]
        forged += [(place, shape) for shape in shapes]
    for place, value in forged:
        assert next(differences("", changed(recorded, place, value), again), None), place
    assert len(forged) > 150
    places = {*map(dotted, leaves(case.content))} - {*map(dotted, leaves(recorded))}
    assert [place for place in places if not is_excepted(place)] == []


@pytest.mark.each_run(1)
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("name", NAMES)
def test_no_changed_record_of_all_holds_with_all_data_given(cases: dict[str, Case], name: str, tmp_path: Path) -> None:
    """Sealed again by whoever changed it: what is fed into the repetition, and some of all else."""
    case = cases[name]
    directory, content = Path(shutil.copytree(case.directory, tmp_path / name)), case.content
    places = [*leaves(content)]
    fed = {"schema_version", "kind", "tool", "release", "created", "judged_on", "outcome", "reason", "policy", "data"}
    chosen = [place for place in places if place[0] in fed and not {"content", "libraries"} & {*place}]
    chosen += random.Random(name).sample([place for place in places if place[0] == "system"], 15)
    forged = [(place, altered(at(content, place), place)) for place in chosen]
    forged += [((key,), [] if isinstance(content[key], list) else None) for key in content if content[key]]
    tried, held = 0, set()
    for place, value in forged:
        forgery = changed(content, place, value)
        with contextlib.suppress(GateError):
            parse_system(json_text(forgery).encode(), "x")
            seal(directory, forgery)
            tried += 1
            if verify_system(directory, case.data, pinned=case.document).state == "holds":
                held.add(dotted(place))
    assert tried > 20
    assert [place for place in held if not is_excepted(place)] == []
    assert "policy.path" in held, "nothing can bind it"


def is_excepted(place: str) -> bool:
    return any(fnmatchcase(place, pattern) for pattern in UNBOUND_OF_SEVERAL)


@pytest.mark.parametrize("kind", ["benign", "malicious"])
@pytest.mark.usefixtures("remembered")
def test_other_thresholds_and_uses_are_found_without_data(cases: dict[str, Case], kind: str, tmp_path: Path) -> None:
    """They follow from the detectors' own calibrators and records."""
    case = cases["counted"]
    directory, content = Path(shutil.copytree(case.directory, tmp_path / "v1")), case.content
    assert verify_system(directory).state == "holds"
    own: Place = ("system", kind, 0, "detectors", 0)
    places = [(*own, "threshold"), ("system", "use" if kind == "benign" else "malicious_use")]
    for place in places:
        seal(directory, changed(content, place, altered(at(content, place), place)))
        found = {answer.name: answer.state for answer in verify_system(directory).answers}
        assert found["system"] == "does not hold", place
    seal(directory, changed(content, places[-1], None))
    assert verify_system(directory).state == "does not hold"


@pytest.mark.parametrize(
    "place",
    [("detectors",), ("system", "benign", 0, "detectors"), ("system", "malicious", 0, "both"), ("system", "benign")],
)
def test_a_record_without_detectors_crashes_no_command(
    cases: dict[str, Case], tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command refuses it in one line; commands that only show a record may show it."""
    case = cases["labelled"]
    directory = Path(shutil.copytree(case.directory, tmp_path / "v1"))
    seal(directory, changed(case.content, place, []))
    monkeypatch.chdir(tmp_path)
    held_out = ["--holdout", case.data.holdout[0]]
    for command in (
        ["verify", "v1"],
        ["report", "v1"],
        ["history", "."],
        ["check", "v1", *held_out],
        ["compare", "v1", str(case.directory)],
        ["compare", str(case.directory), "v1"],
    ):
        code = 2
        with contextlib.suppress(GateError):
            code = cli.main(command, standalone_mode=False)
        assert code in (1, 2) or command[0] in ("report", "history"), command


@pytest.mark.parametrize(
    ("today", "expired"),
    [
        (date(2026, 6, 30), []),
        (date(2026, 7, 1), ["the waiver of system@0.3 expired on 2026-06-30", "the waiver of b:fpr@10% expired"]),
    ],
)
def test_waivers_of_all_and_of_each_detector_that_have_expired_are_said(
    cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch, today: date, expired: list[str]
) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Later:
            return cls(today.year, today.month, today.day, tzinfo=tz)

    monkeypatch.setattr(repetition, "datetime", Later)
    answer = verify_system(cases["labelled"].directory)
    assert len(answer.expired) == len(expired)
    for said, start in zip(answer.expired, expired, strict=True):
        assert said.startswith(start)


def test_each_sample_that_is_given_is_compared_though_others_are_lacking(cases: dict[str, Case]) -> None:
    """Each detector's sample is compared by the digest of its scores."""
    case = cases["counted"]
    for paths, state, of_all in (
        (case.data.holdout, "holds", "cannot be checked"),
        (case.data.fit, "does not hold", "does not hold"),
    ):
        answer = verify_system(case.directory, Data(holdout=paths))
        said = [(found.name, found.state) for found in answer.answers if "holdout" in found.name]
        assert said == [(name, state) for name in (["holdout"] if state == "holds" else ["a: holdout", "b: holdout"])]
        assert answer.state == of_all
