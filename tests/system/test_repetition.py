"""With its data given, no value of a release's record can be changed: `gate verify` makes the whole record again."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
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

from gate import gating, verdict
from gate.calibration.calibrator import Calibrator, from_json
from gate.checks import parse_policy
from gate.cli import cli
from gate.errors import GateError
from gate.gating import Job, check_release, gate_release, read_reference
from gate.inspection import judgement
from gate.inspection import release as inspection
from gate.inspection.differences import differences
from gate.policy import Document
from gate.record import Record, json_text, read_release
from gate.rows.reading import read_sample
from gate.rows.split import split
from gate.storage import manifest_of
from gate.verification import release as repetition
from gate.verification.compared import not_bound, without
from gate.verification.release import verify
from gate.verification.result import Data

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
POLICY = """\
version: 1
name: small
calibration: {knots: 40}
contract: [{fpr: 10%, score: 0.1}, {fpr: 1%, score: 0.3}]
targets:
  - {fpr: 10%, min_n: 500, max_relative_error: 0.5}
  - {fpr: 1%, min_n: 90000, max_relative_error: 0.5}
waivers:
  - {check: fpr@0.01, reason: more rows by June, owner: "@detections", expires: 2026-06-30}
"""
SEGMENTS = """\
data: {segment: language, timestamp: seen, group: tenant}
checks:
  freshness: {max_age_days: 30}
  segments: {targets: [0.1], min_n: 100, max_relative_error: 1.0, expect: [de, en, fr]}
"""
FOLLOWED = """\
data: {id: row}
reuse: {max_uses: 5}
checks: {detection: {targets: [{fpr: 10%, min_tpr: 0.5}], max_drop: 0.2}}
"""


@dataclass(frozen=True)
class Case:
    """A release directory, with everything that repeating it takes."""

    directory: Path
    data: Data
    document: Document

    def copied(self, place: Path) -> Case:
        shutil.copytree(self.directory, place / "copy")
        return replace(self, directory=place / "copy")

    @property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.directory / "verdict.json").read_bytes())
        return content

    def state(self, **more: Any) -> str:
        return verify(str(self.directory), self.data, pinned=self.document, **more).state


def write_rows(place: Path) -> None:
    """Write benign rows of two releases and of today, and malicious ones of both, with all columns of a policy."""
    rng = np.random.default_rng(7)
    for name, n, shape in (
        ("fit", 1_500, 0.5),
        ("holdout", 2_000, 0.5),
        ("later", 1_800, 0.5),
        ("malicious", 400, 9.0),
    ):
        scores = rng.beta(shape, 8, n)
        for release, values in (("", scores), ("old-", np.clip(scores + rng.normal(0, 1e-3, n), 0, 1))):
            rows = {
                "score": values,
                "row": [f"{name}-{i}" for i in range(n)],
                "tenant": [f"{name}-t{i % 90}" for i in range(n)],
                "language": [("de", "en", "tr")[i % 7 % 3] for i in range(n)],
                "seen": [f"2026-02-{1 + i % 28:02d}T00:00:00Z" for i in range(n)],
            }
            pa.parquet.write_table(pa.table(rows), place / f"{release}{name}.parquet")


@pytest.fixture(scope="module", autouse=True)
def _record_alone() -> Iterator[None]:
    """Let releases have no reports beside the record, and a curve of few points.

    Reports and curves take long, and have their own tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gate.checks.curve.STEPS", 10)
        for module in (gating, inspection):
            patch.setattr(module, "rendered", lambda record, *_: {"verdict.json": record.to_json().encode()})
        yield


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    place = tmp_path_factory.mktemp("cases")
    write_rows(place)
    paths = {name: (str(place / f"{name}.parquet"),) for name in ("fit", "holdout", "later", "malicious")}
    paths |= {f"old-{name}": (str(place / f"old-{name}.parquet"),) for name in ("fit", "holdout", "malicious")}
    plain, segmented, followed = (parse_policy(POLICY + more, "policy.yaml") for more in ("", SEGMENTS, FOLLOWED))
    ledger = str(place / "ledger.jsonl")

    def sample(document: Document, name: str) -> Any:
        return read_sample(name.removeprefix("old-"), paths[name], document.policy)

    def job(name: str, document: Document) -> Job:
        return Job(document, name, NOON, NOON.date(), ledger if document is followed else None)

    def run(name: str, document: Document, prefix: str = "", **more: Any) -> None:
        samples = (sample(document, f"{prefix}{part}") for part in ("fit", "holdout"))
        gate_release(job(name, document), *samples, **more).write(place / name)

    both = Data(paths["fit"], paths["holdout"])
    malicious = sample(followed, "malicious")
    run("plain", plain)
    run("segmented", segmented, malicious=read_sample("malicious", paths["malicious"], segmented.policy))
    whole = read_sample("benign", paths["holdout"], segmented.policy)
    fit, held_out, divided = split(whole, 0.5, 3)
    gate_release(job("split", segmented), fit, held_out, split=divided).write(place / "split")
    run("first", followed, "old-", first_release=True, malicious=sample(followed, "old-malicious"))
    first = str(place / "first")
    run("unpaired", followed, malicious=malicious, reference=read_reference(first, followed, (), ()))
    pairs = paths["old-holdout"], paths["old-malicious"]
    run("paired", followed, malicious=malicious, reference=read_reference(first, followed, *pairs))
    later = read_sample("holdout", paths["later"], followed.policy)
    checked = check_release(job("first", followed), read_release(first), later, malicious=malicious)
    checked.write(place / "check")
    compared = replace(both, malicious=paths["malicious"], baseline=first, ledger=ledger)
    data = {
        "plain": both,
        "segmented": replace(both, malicious=paths["malicious"]),
        "split": Data(benign=paths["holdout"]),
        "first": Data(
            paths["old-fit"], paths["old-holdout"], malicious=paths["old-malicious"], baseline="none", ledger=ledger
        ),
        "unpaired": compared,
        "paired": replace(compared, baseline_holdout=pairs[0], baseline_malicious=pairs[1]),
        "check": replace(compared, fit=(), holdout=paths["later"]),
    }
    documents = {"plain": plain, "segmented": segmented, "split": segmented}
    return {name: Case(place / name, data[name], documents.get(name, followed)) for name in data}


NAMES = ["plain", "segmented", "split", "first", "unpaired", "paired", "check"]


def seal(directory: Path) -> None:
    files = {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "manifest.json"}
    (directory / "manifest.json").write_bytes(manifest_of(files))


# --- every value --------------------------------------------------------------------------------------------


def indexed(place: Place) -> str:
    """Name a place as `differences` does."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)


def is_excepted(record: Record, place: Place) -> bool:
    return any(fnmatchcase(dotted(place), pattern) for pattern in not_bound(record))


@pytest.mark.each_run(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_case_holds_whole(cases: dict[str, Case], name: str, tmp_path: Path) -> None:
    case = cases[name].copied(tmp_path)
    answer = verify(str(case.directory), case.data, pinned=case.document, complete=True)
    assert {found.state for found in answer.answers} == {"holds"}, answer.lines
    assert answer.answers[-1].name == "data"
    assert answer.not_checked == ()


@pytest.mark.parametrize("name", NAMES)
def test_every_single_value_is_compared(cases: dict[str, Case], name: str) -> None:
    """All leaves changed at once are all named; so is each list with an entry removed or repeated, where it stands."""
    case = cases[name]
    record = Record.model_validate(case.content)
    samples = repetition._read(record, case.document.policy, case.data)
    again = repetition._repeat(record, case.document, samples, case.data).model_dump(mode="json")
    content = case.content
    bound = [without(value, not_bound(record)) for value in (content, again)]
    assert [*differences("", *bound)] == []
    places = [*leaves(content)]
    for place in places:
        at(content, place[:-1])[place[-1]] = altered(at(content, place), place)
    forged = without(content, not_bound(record))
    noticed = {line.partition(" is ")[0] for line in differences("", forged, bound[1])}
    unnoticed = [place for place in places if indexed(place) not in noticed]
    assert [place for place in unnoticed if not is_excepted(record, place)] == []
    assert {"created", "release", "policy.path"} & {*map(dotted, unnoticed)}
    content, tried = case.content, len(places)
    for place in branches(content):
        whole = at(content, place)
        shapes = [None] if not isinstance(whole, list) else [whole + whole[-1:], whole[1:]] if whole else [[1]]
        for shape in shapes:
            assert next(differences("", shape, at(again, place)), None), place
            tried += 1
    assert tried > 250


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a record feeds into its repetition decides what comes out: the same is made once."""
    made: dict[str, Any] = {}
    real = repetition._repeat

    def repeat(record: Record, document: Document, samples: Any, data: Data) -> Record:
        fed = record.model_dump(mode="json", include={"kind", "release", "created", "judged_on", "split", "policy"})
        fed |= {"data": record.data.model_dump(), "first": record.is_first}
        fed["baseline"] = record.reference is None
        key = json.dumps([fed, repr(data)])
        if key not in made:
            made[key] = real(record, document, samples, data)
        return made[key]

    judged: dict[str, Any] = {}
    decide = verdict.judge

    def judge(policy: Any, evidence: Any) -> Any:
        key = repr((policy, evidence))
        return judged[key] if key in judged else judged.setdefault(key, decide(policy, evidence))

    fitted: dict[str, Calibrator] = {}
    load = from_json
    monkeypatch.setattr(
        judgement, "from_json", lambda text: fitted[text] if text in fitted else fitted.setdefault(text, load(text))
    )
    traced: dict[Any, Calibrator] = {}

    def replaced(value: Any, **changes: Any) -> Any:
        """Put the calibrator on the curve's grid, whose thresholds are found by bisection."""
        if not isinstance(value, Calibrator):
            return replace(value, **changes)
        return traced.setdefault((id(value), changes["contract"]), replace(value, **changes))

    samples: dict[str, Any] = {}

    def read(name: str, paths: tuple[str, ...], policy: Any, calibrated: Any) -> Any:
        key = repr((name, paths, policy.data, calibrated))
        if key not in samples:
            samples[key] = read_sample(name, paths, policy, calibrated)
        return samples[key]

    monkeypatch.setattr(judgement, "judge", judge)
    monkeypatch.setattr(judgement, "replace", replaced)
    monkeypatch.setattr(repetition, "read_sample", read)
    monkeypatch.setattr(repetition, "_repeat", repeat)


@pytest.mark.each_run(1)
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("name", NAMES)
def test_no_changed_record_holds_with_all_data_given(cases: dict[str, Case], name: str, tmp_path: Path) -> None:
    """The changed record is rendered and sealed again; changes include inputs of the repetition, and omissions."""
    case = cases[name].copied(tmp_path)
    content = case.content
    record = Record.model_validate(content)
    assert json_text(content) == (case.directory / "verdict.json").read_text()
    fed: tuple[Any, ...] = (
        "schema_version",
        "kind",
        "tool",
        "release",
        "created",
        "judged_on",
        "outcome",
        "reason",
        "policy",
        "data",
    )
    fed += ("split", "warnings", ("checks", "reuse"), ("checks", "baseline"), ("checks", "direction"))
    places = [*leaves(content)]
    chosen = [place for place in places if {place[0], place[:2]} & {*fed} and not {*place[2:]} & {"anchors", "content"}]
    chosen += random.Random(name).sample(places, 20)
    forged = [changed(content, place, altered(at(content, place), place)) for place in chosen]
    sections: list[Place] = [(key,) for key, value in content.items() if isinstance(value, dict | list) and value]
    sections += [("checks", key) for key, value in content["checks"].items() if value]
    forged += [changed(content, place, None if isinstance(at(content, place), dict) else []) for place in sections]
    forged += [changed(content, ("findings",), content["findings"][:-1])]
    tried, held = 0, []
    for place, forgery in zip([*chosen, *sections, ("findings",)], forged, strict=True):
        text = json_text(forgery)
        try:
            Record.model_validate(forgery)
        except ValueError:
            continue
        (case.directory / "verdict.json").write_text(text, encoding="utf-8")
        seal(case.directory)
        tried += 1
        try:
            state = case.state()
        except GateError:
            state = "refused"
        if state == "holds":
            held.append(dotted(place))
            assert is_excepted(record, place), dotted(place)
    assert tried > 40
    assert {"created", "policy.path", "tool.libraries.numpy"} <= {*held}, "nothing can bind these"


# --- what is not checked, and what is no release ------------------------------------------------------------


def asked(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the answer of the command."""
    code = cli.main(["verify", *args, "--json"], standalone_mode=False)
    return code, json.loads(capsys.readouterr().out)


def options(case: Case) -> dict[str, list[str]]:
    """Return the arguments of the command by option."""
    given = {}
    for name in case.data.given:
        value, option = getattr(case.data, name), f"--{name.replace('_', '-')}"
        given[option] = [option, value if isinstance(value, str) else value[0]]
    return given


@pytest.mark.each_run(1)
@pytest.mark.parametrize("name", NAMES)
def test_what_nothing_binds_is_listed_and_is_no_pass_once_data_is_given(
    cases: dict[str, Case], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, pin = cases[name], tmp_path / "policy.yaml"
    pin.write_text(case.document.text)
    directory, given = str(case.directory), options(case)
    code, answer = asked(capsys, directory)
    assert (code, answer["state"]) == (0, "holds")
    assert {entry["option"].split()[0] for entry in answer["not_checked"]} == {"--policy", *given}
    assert asked(capsys, directory, "--complete")[0] == 2
    left_out = sorted(given)[len(name) % len(given)]
    partly = [word for option, words in given.items() if option != left_out for word in words]
    if partly:
        code, answer = asked(capsys, directory, *partly, "--policy", str(pin))
        assert (code, answer["state"]) == (2, "cannot be checked")
        assert left_out in {entry["option"].split()[0] for entry in answer["not_checked"]}
    whole = [word for words in given.values() for word in words]
    code, answer = asked(capsys, directory, *whole)
    assert (code, [entry["option"] for entry in answer["not_checked"]]) == (2, ["--policy FILE"])
    code, answer = asked(capsys, directory, *whole, "--policy", str(pin))
    assert (code, answer["state"], answer["not_checked"]) == (0, "holds", [])
    assert answer["kind"] == ("check" if name == "check" else "release")
    assert "created" in answer["not_bound"]


def test_a_check_is_never_taken_for_a_release(
    cases: dict[str, Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither words nor JSON show it as a release, and no calibrator can be slipped into it."""
    case = cases["check"].copied(tmp_path)
    assert cli.main(["verify", str(case.directory)], standalone_mode=False) == 0
    assert "holds: kind: a check of 'first', not a release: nothing in it may be deployed" in capsys.readouterr().out
    assert asked(capsys, str(case.directory))[1]["kind"] == "check"
    for name in ("calibrator.joblib", "calibrator.json"):
        shutil.copy(cases["first"].directory / name, case.directory / name)
        seal(case.directory)
        code, answer = asked(capsys, str(case.directory))
        assert code == 1
        found = {check["name"]: check for check in answer["checks"]}
        assert found["kind"]["state"] == "does not hold"
        assert found["kind"]["message"].startswith(f"{name} is foreign in a check")
        (case.directory / name).unlink()


@pytest.mark.parametrize("name", ["calibrator.joblib", "calibrator.json"])
def test_a_release_has_its_calibrator(cases: dict[str, Case], tmp_path: Path, name: str) -> None:
    case = cases["plain"].copied(tmp_path)
    (case.directory / name).unlink()
    seal(case.directory)
    found = {found.name: found.state for found in verify(str(case.directory)).answers}
    assert found["kind"] == "does not hold"


def test_the_policy_and_its_columns_are_those_that_the_verifier_pins(
    cases: dict[str, Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, pin = cases["plain"], tmp_path / "policy.yaml"
    pin.write_text(POLICY.replace("min_n: 500", "min_n: 501"))
    code, answer = asked(capsys, str(case.directory), "--policy", str(pin))
    assert code == 1
    assert "it was judged by a text with the digest" in answer["checks"][-1]["message"]
    pin.write_text(POLICY)
    assert asked(capsys, str(case.directory), "--policy", str(pin))[0] == 0
    code, answer = asked(capsys, str(case.directory), "--policy", str(pin), "--set", "data.score=other")
    assert code == 1
    assert "data.score is 'score' in the record, but 'other' follows" in answer["checks"][-1]["message"]
    assert asked(capsys, str(case.directory), "--policy", "built-in")[0] == 1


def test_data_that_the_record_was_made_without_is_refused(cases: dict[str, Case]) -> None:
    """Whoever has malicious rows, a baseline or a ledger for it has another record."""
    case = cases["plain"]
    for more in ({"malicious": case.data.fit}, {"baseline": "none"}, {"ledger": "ledger.jsonl"}):
        with pytest.raises(GateError, match=f"^--{next(iter(more))}: must be left out, for the record says"):
            verify(str(case.directory), replace(case.data, **more))
    with pytest.raises(GateError, match=r"^--baseline: must fit the record, which is of a first release"):
        verify(str(cases["first"].directory), replace(cases["first"].data, baseline=str(case.directory)))
    with pytest.raises(GateError, match=r"^--fit: must be given as the run had it, by 1 argument in the same order"):
        verify(str(case.directory), replace(case.data, fit=case.data.fit + case.data.holdout))


def test_a_ledger_without_the_judgement_is_another_ledger(cases: dict[str, Case], tmp_path: Path) -> None:
    case = cases["first"]
    with pytest.raises(GateError, match="must have a line for this judgement of these rows, got none"):
        verify(str(case.directory), replace(case.data, ledger=str(tmp_path / "new.jsonl")))


@pytest.mark.parametrize(
    ("today", "expired"),
    [
        (date(2026, 3, 2), []),
        (date(2026, 3, 4), ["held-out row is 31 days"]),
        (date(2026, 6, 30), ["held-out"]),
        (date(2026, 7, 1), ["waiver of fpr@1% expired on 2026-06-30, after the judgement of 2026-03-01", "held-out"]),
    ],
)
def test_what_has_expired_since_is_a_line_of_its_own(cases: dict[str, Case], today: date, expired: list[str]) -> None:
    """It changes nothing about what was true on the day of the judgement."""
    answer = verify(str(cases["segmented"].directory), today=today)
    assert answer.state == "holds"
    assert len(answer.expired) == len(expired)
    for sentence, part in zip(answer.expired, expired, strict=True):
        assert part in sentence
        assert f"expired: {sentence}" in answer.lines


# --- baselines ----------------------------------------------------------------------------------------------

REFUSED = r"^bad: must be a release whose verdict follows from its own counts and policy, got one where "
EDITS = {
    "outcome": lambda r: r.update(outcome="pass"),
    "finding": lambda r: [finding.update(outcome="pass", blocks=False) for finding in r["findings"]],
    "everything that says so": lambda r: [
        r.update(outcome="pass", reason="2 required targets proven on held-out benign rows"),
        *(finding.update(outcome="pass", blocks=False, grade="proven", reason="proven") for finding in r["findings"]),
    ],
    "a count": lambda r: r["findings"][0]["rate"]["tally"].update(flagged=200),
    "a count of the evidence": lambda r: r["checks"]["fpr"]["anchors"][0]["tally"].update(flagged=200),
    "a count wherever it stands": lambda r: [
        found.update(flagged=200)
        for found in (r["findings"][0]["rate"]["tally"], r["checks"]["fpr"]["anchors"][0]["tally"])
    ],
    "a threshold": lambda r: r["checks"]["fpr"]["anchors"][0]["tally"].update(threshold=0.5),
    "a looser policy": lambda r: r["policy"].update(content=r["policy"]["content"].replace("0.5", "0.9")),
}


@pytest.mark.each_run(3)
@pytest.mark.parametrize("edit", EDITS)
def test_a_failed_release_edited_to_pass_is_no_reference(
    cases: dict[str, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: str
) -> None:
    """Its manifest can be made to agree; its counts and policy cannot. Not for a run, a check or a comparison."""
    fit = pa.parquet.read_table(cases["plain"].data.fit[0])["score"].to_numpy()
    drifted = fit[::-1] ** 0.5
    failed = gating.run(fit, drifted, release="bad", policy=cases["plain"].document)
    assert failed.outcome == "fail"
    monkeypatch.chdir(tmp_path)
    failed.write("bad")
    content = json.loads(Path("bad/verdict.json").read_bytes())
    EDITS[edit](content)
    Path("bad/verdict.json").write_text(Record.model_validate(content).to_json())
    seal(Path("bad"))
    Path("policy.yaml").write_text(POLICY)
    data = ["--fit", cases["plain"].data.fit[0], "--holdout", cases["plain"].data.holdout[0]]
    run = ["run", "--policy", "policy.yaml", "--release", "v2", *data, "--baseline", "bad"]
    check = ["check", "bad", "--holdout", cases["plain"].data.holdout[0]]
    plain = str(cases["plain"].directory)
    for command in (run, check, ["compare", "bad", plain], ["compare", plain, "bad"]):
        with pytest.raises(GateError, match=REFUSED):
            cli.main(command, standalone_mode=False)
    with pytest.raises(GateError, match=REFUSED):
        gating.run(fit, drifted, release="v2", policy="policy.yaml", baseline="bad")
    assert not Path("releases").exists()
