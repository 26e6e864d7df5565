"""`gate verify` believes no file of a release directory: whatever is changed in it, by hand or with care, is found."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pickle
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from drawing import often
from forging import Place, at, branches, changed, leaves
from pydantic import ValidationError
from verified import POLICY, job, make, write_scores

from gate.checks import parse_policy
from gate.checks.baseline import Comparison
from gate.checks.duplicates import Duplicates
from gate.errors import GateError
from gate.gating import check_release, gate_release
from gate.inspection import answers
from gate.inspection import release as inspection
from gate.inspection.answers import Answer, state_of
from gate.inspection.files import check_manifest, load
from gate.inspection.judgement import check_verdict, document_of, read_judged
from gate.record import Record, as_reference, parse_record, read_release
from gate.report import formats
from gate.report.formats import rendered
from gate.rows.reading import from_object, read
from gate.storage import manifest_of
from gate.verdict import judge
from gate.verification import release as repetition
from gate.verification.result import Data, Verification

pytestmark = pytest.mark.usefixtures("few_points")

GROUPED = POLICY + "data: {group: tenant, id: row}\nreuse: {max_uses: 5}\n"
EVERYTHING = (
    POLICY
    + """\
data: {group: tenant, segment: language, timestamp: seen}
checks:
  freshness: {max_age_days: 30}
  segments: {targets: [0.1, 0.01], min_n: 1000, max_relative_error: 1.0, expect: [de, en, fr]}
"""
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("made"))


@pytest.fixture(autouse=True)
def _render_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures take their time; the same record gives the same bytes."""
    for module in (inspection, sys.modules[__name__]):
        monkeypatch.setattr(module, "rendered", rendered_once)


RENDERED: dict[str, dict[str, bytes]] = {}


def rendered_once(record: Record) -> dict[str, bytes]:
    text = record.to_json()
    if text not in RENDERED:
        RENDERED[text] = formats.rendered(record)
    return RENDERED[text]


@pytest.fixture
def record_alone(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let releases have no reports beside the record, for tests of many records."""
    for module in (inspection, sys.modules[__name__]):
        monkeypatch.setattr(module, "rendered", lambda record, *_: {"verdict.json": record.to_json().encode()})
    for name in ("report.html", "report.md", "junit.xml", "predicate.json"):
        (release / name).unlink()
    seal(release)


@pytest.fixture
def release(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may tamper with."""
    shutil.copytree(made, tmp_path / "v1")
    return tmp_path / "v1"


def data_of(made: Path, *names: str) -> Data:
    given: dict[str, Any] = {name: (str(made.parent / f"{name}.parquet"),) for name in names}
    return Data(**given)


def answer(release: Path, data: Data = Data(), **more: Any) -> Verification:  # noqa: B008, it is frozen
    return repetition.verify(str(release), data, **more)


def verify(release: Path, data: Data = Data()) -> tuple[Answer, ...]:  # noqa: B008, it is frozen
    return answer(release, data).answers


def states(checks: tuple[Answer, ...]) -> dict[str, str]:
    return {check.name: check.state for check in checks}


def seal(release: Path) -> None:
    """Do what a careful forger does last: make the manifest agree again."""
    files = {path.name: path.read_bytes() for path in release.iterdir() if path.name != "manifest.json"}
    (release / "manifest.json").write_bytes(manifest_of(files))


def forge(release: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the record, render every report from it again, and seal."""
    content = json.loads((release / "verdict.json").read_bytes())
    change(content)
    for name, text in rendered(Record.model_validate(content)).items():
        (release / name).write_bytes(text)
    seal(release)


# --- what holds ---------------------------------------------------------------------------------------------


def test_a_release_holds_with_and_without_its_data(made: Path) -> None:
    own = ["manifest", "kind", "policy", "calibrator", "verdict", "reports"]
    assert states(verify(made)) == dict.fromkeys(own, "holds")
    checks = verify(made, data_of(made, "fit", "holdout"))
    assert states(checks) == dict.fromkeys([*own, "fit", "holdout", "data"], "holds")
    assert state_of(checks) == "holds"


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of rows in groups with its data and its ledger; tests change only a copy of it."""
    place = tmp_path_factory.mktemp("grouped")
    return make(place, GROUPED, ledger=str(place / "ledger.jsonl"))


def test_groups_ids_and_a_ledger_are_repeated_too(grouped: Path) -> None:
    made = grouped
    data = dataclasses.replace(data_of(made, "fit", "holdout"), ledger=str(made.parent / "ledger.jsonl"))
    assert states(verify(made, data))["data"] == "holds"
    record = parse_record((made / "verdict.json").read_bytes(), "verdict.json")
    found = record.of(Duplicates)
    assert found is not None
    assert found.holdout is not None
    assert (found.holdout.rows, found.holdout.repeated) == (record.holdout.n + 1, 1)


TAMPERED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a count": lambda r: segments(r)["targets"][1]["flagged"].__setitem__(0, 0),
    "counts moved": lambda r: segments(r)["targets"][0]["flagged"].reverse(),
    "worth": lambda r: segments(r)["targets"][0]["effective"].__setitem__(0, [1.0, 1.0]),
    "a size": lambda r: segments(r)["rows"].__setitem__(0, segments(r)["rows"][0] + 1),
    "a name": lambda r: segments(r)["names"].__setitem__(0, "fr"),
    "a column": lambda r: segments(r).update(column="seen"),
    "all of them": lambda r: r["checks"].update(segments=None),
    "a finding": lambda r: r["findings"].pop(),
    "a day": lambda r: r["holdout"].update(oldest="2025-12-31"),
    "no day": lambda r: r["holdout"].update(oldest="yesterday"),
    "an age": lambda r: r["checks"]["freshness"].update(oldest="2026-02-02"),
    "the overlap": lambda r: r["checks"]["overlap"].update(rows_in_shared_groups=0),
}


def segments(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["checks"]["segments"]
    return found


def test_segments_and_days_are_judged_again_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(tmp_path, EVERYTHING)
    data = data_of(made, "fit", "holdout")
    assert state_of(verify(made, data)) == "holds"
    findings = {str(f.check): f.outcome for f in parse_record((made / "verdict.json").read_bytes(), "").findings}
    assert findings["segment/language=fr"] == findings["overlap"] == "fail"
    assert {"freshness", "fpr@1%/language=tr", "granularity@0.1%", "floor"} <= findings.keys()
    for module in (inspection, sys.modules[__name__]):
        monkeypatch.setattr(module, "rendered", lambda record, *_: {"verdict.json": record.to_json().encode()})
    original = (made / "verdict.json").read_bytes()
    for case, tamper in TAMPERED.items():
        (made / "verdict.json").write_bytes(original)
        forge(made, tamper)
        if states(verify(made))["verdict"] == "holds":
            assert states(verify(made, data))["data"] == "does not hold", case


def test_a_sample_that_was_split_is_split_again(tmp_path: Path) -> None:
    made = make(tmp_path, divide=True)
    benign = Data(benign=(str(tmp_path / "fit.parquet"),))
    assert {*states(verify(made, benign)).values()} == {"holds"}
    with pytest.raises(GateError, match="give it with --benign"):
        verify(made, data_of(made, "fit"))
    forge(made, lambda record: record["split"].update(seed=8))
    assert state_of(verify(made)) == "holds"
    assert states(verify(made, benign))["fit"] == "does not hold"


def test_only_a_release_that_was_split_takes_one_sample(made: Path) -> None:
    with pytest.raises(GateError, match=r"^--benign: must be"):
        verify(made, Data(benign=(str(made.parent / "fit.parquet"),)))


def test_the_other_sample_is_not_the_one_that_was_counted(made: Path) -> None:
    exchanged = Data(fit=(str(made.parent / "holdout.parquet"),), holdout=(str(made.parent / "fit.parquet"),))
    found = states(verify(made, exchanged))
    assert (found["fit"], found["holdout"], found["data"]) == ("does not hold",) * 3


# --- tampering without care ---------------------------------------------------------------------------------

FILES = [
    "calibrator.joblib",
    "calibrator.json",
    "junit.xml",
    "manifest.json",
    "report.html",
    "report.md",
    "verdict.json",
]


def damages(content: bytes) -> Iterator[bytes]:
    """Yield damaged files: one byte of each class changed in up to three places, or an end cut or extended."""
    classes = {
        "digit": b"0123456789",
        "letter": bytes(range(ord("a"), ord("z") + 1)),
        "space": b" \n",
        "mark": b'{}[]",:<>/.',
        "control": bytes(range(9)),
        "high": bytes(range(128, 256)),
    }
    for members in classes.values():
        places = [place for place, byte in enumerate(content) if byte in members]
        for place in {*places[:1], *places[len(places) // 2 :][:1], *places[-1:]}:
            yield content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    yield content[:-1]
    yield content + b"\n"
    yield b""


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_of_any_class_in_any_file_is_found(release: Path, name: str) -> None:
    content = (release / name).read_bytes()
    tried = 0
    for damaged in damages(content):
        (release / name).write_bytes(damaged)
        found = answers.answer("manifest", lambda: check_manifest(load(release)))
        assert found.state == "does not hold", damaged[:100]
        tried += 1
    assert tried >= 10
    assert state_of(verify(release)) == "does not hold"


@pytest.mark.each_run(3)
@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_found_even_where_the_manifest_no_longer_lists_it(release: Path, name: str) -> None:
    (release / name).unlink()
    assert state_of(verify(release)) == "does not hold"
    if name not in ("manifest.json", "verdict.json"):
        seal(release)
        found = states(verify(release))
        assert found["manifest"] == "holds"
        assert "does not hold" in found.values()


@pytest.mark.each_run(3)
@pytest.mark.parametrize("name", ["extra.txt", ".hidden", "report.html.bak", "x" * 200, "a\n::error::b", "\u202exml"])
def test_an_added_file_is_found_even_where_the_manifest_lists_it(release: Path, name: str) -> None:
    (release / name).write_bytes(b"x")
    assert states(verify(release))["manifest"] == "does not hold"
    seal(release)
    assert states(verify(release))["kind"] == "does not hold"


def replace_by_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.each_run(8)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("replace", [replace_by_link, replace_by_pipe, replace_by_directory])
def test_only_plain_files_count(release: Path, name: str, replace: Callable[[Path], None]) -> None:
    """A link may point to what changes later, and a pipe would be waited for."""
    replace(release / name)
    assert state_of(verify(release)) == "does not hold"


def test_a_directory_within_is_found(release: Path) -> None:
    (release / "more").mkdir()
    assert states(verify(release))["manifest"] == "does not hold"


MANIFESTS = {
    "up": lambda listed: {**listed, "../policy.yaml": "0" * 64},
    "absolute": lambda listed: {**listed, "/etc/hostname": "0" * 64},
    "itself": lambda listed: {**listed, "manifest.json": "0" * 64},
    "nothing": lambda listed: {},
    "empty name": lambda listed: {**listed, "": "0" * 64},
    "another digest": lambda listed: {**listed, "report.md": "0" * 64},
    "no text": lambda listed: {**listed, "report.md": None},
    "a list": lambda listed: [*listed],
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_names_the_files_beside_it_and_nothing_else(release: Path, case: str) -> None:
    content = json.loads((release / "manifest.json").read_bytes())
    content["sha256"] = MANIFESTS[case](content["sha256"])
    (release / "manifest.json").write_text(json.dumps(content, indent=2) + "\n")
    assert states(verify(release))["manifest"] == "does not hold"


def test_a_manifest_is_written_as_gate_writes_it(release: Path) -> None:
    """A name given twice would hide one of its digests from most readers."""
    path = release / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"report.md"', b'"report.md": "00", "report.md"'))
    assert states(verify(release))["manifest"] == "does not hold"


# --- tampering with care: every digest agrees again ---------------------------------------------------------


def test_counts_that_agree_with_each_other_are_still_held_against_the_data(made: Path, tmp_path: Path) -> None:
    """Whoever invents a whole sample gets a verdict that follows; only the data show that it is not theirs."""
    other = tmp_path / "other"
    other.mkdir()
    forged = make(other)
    policy = parse_policy(POLICY, "policy.yaml")
    held_out = read([str(made.parent / "holdout.parquet")], policy.policy.data, (0.0, 1.0))
    fit = read([str(made.parent / "fit.parquet")], policy.policy.data, (0.0, 1.0))
    scores = np.asarray(pa.parquet.read_table(made.parent / "holdout.parquet")["score"])
    lower = from_object(scores * 0.9, "holdout", policy.policy.data, (0.0, 1.0))
    shutil.rmtree(forged)
    gate_release(job(policy, "v1"), fit, lower).write(forged)
    forge(forged, lambda record: record["holdout"].update(sha256=held_out.fingerprint))
    assert state_of(verify(forged)) == "holds"
    found = states(verify(forged, data_of(made, "fit", "holdout")))
    assert (found["holdout"], found["data"]) == ("holds", "does not hold")


def test_what_groups_are_worth_is_held_against_the_data(grouped: Path, tmp_path: Path) -> None:
    made = shutil.copytree(grouped, tmp_path / "v1")
    record = parse_record((made / "verdict.json").read_bytes(), "verdict.json")
    rate = record.findings[1].rate
    assert rate is not None
    assert rate.tally.effective is not None
    low, high = rate.tally.effective
    assert min(low, high) < record.holdout.n
    original = (made / "verdict.json").read_bytes()
    more = [low * 0.99, high * 0.99]
    forge(made, lambda content: content["findings"][1]["rate"]["tally"].update(effective=more))
    assert states(verify(made))["verdict"] == "does not hold"
    (made / "verdict.json").write_bytes(original)

    def everywhere(content: dict[str, Any]) -> None:
        """Change a value in the evidence and in everything that is drawn from it, so that the rest follows."""
        content["checks"]["fpr"]["anchors"][1]["tally"].update(effective=more)
        for point in content["curve"]["points"]:
            if point["fpr"] == 0.01:
                point["tally"].update(effective=more)
        judged = judge(parse_policy(GROUPED, "policy.yaml").policy, Record.model_validate(content).evidence)
        content["findings"] = [finding.model_dump(mode="json") for finding in judged.findings]

    forge(made, everywhere)
    assert states(verify(made))["verdict"] == "holds"
    data = dataclasses.replace(data_of(grouped, "fit", "holdout"), ledger=str(grouped.parent / "ledger.jsonl"))
    assert states(verify(made, data))["data"] == "does not hold"


class Harmful:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_another_pickle_is_found_without_being_loaded(release: Path, tmp_path: Path) -> None:
    trace = tmp_path / "loaded"
    harmful = pickle.dumps(Harmful(trace))
    (release / "calibrator.joblib").write_bytes(harmful)
    digest = hashlib.sha256(harmful).hexdigest()
    forge(release, lambda record: record["calibrator"].update(sha256=digest, bytes=len(harmful)))
    checks = {check.name: check for check in verify(release)}
    assert checks["calibrator"].state == "does not hold"
    assert checks["calibrator"].message.endswith("do not load it")
    assert not trace.exists()
    pickle.loads(harmful)
    assert trace.exists()  # otherwise its absence above would show nothing


def test_a_knot_moved_in_calibrator_json_is_found(release: Path) -> None:
    path = release / "calibrator.json"
    content = json.loads(path.read_bytes())
    content["calibrated"][50] = content["calibrated"][51]
    path.write_text(json.dumps(content, indent=1) + "\n")
    seal(release)
    assert states(verify(release))["calibrator"] == "does not hold"


def test_the_last_digit_of_a_label_in_calibrator_json_is_the_record_s(release: Path) -> None:
    path = release / "calibrator.json"
    said = str(json.loads(path.read_bytes())["fit"]["lowest_label"])
    path.write_text(path.read_text().replace(said, repr(float(np.nextafter(float(said), 1)))))
    seal(release)
    assert states(verify(release))["calibrator"] == "does not hold"


def test_a_looser_policy_is_not_the_one_that_was_recorded(release: Path) -> None:
    def loosen(record: dict[str, Any]) -> None:
        text = record["policy"]["content"].replace("max_relative_error: 0.5", "max_relative_error: 0.9")
        record["policy"].update(content=text, sha256=hashlib.sha256(text.encode()).hexdigest())

    forge(release, loosen)
    assert states(verify(release))["verdict"] == "does not hold"


@pytest.mark.parametrize("content", ["version: 2\n", "", "[" * 100, "version: 1\nname: *a\n"])
def test_a_recorded_policy_that_cannot_be_read_does_not_hold(release: Path, content: str) -> None:
    digest = hashlib.sha256(content.encode()).hexdigest()
    forge(release, lambda record: record["policy"].update(content=content, sha256=digest))
    assert states(verify(release))["policy"] == "does not hold"


IMPOSSIBLE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a count of other rows": lambda r: tally(r).update(rows=19_999),
    "another threshold": lambda r: tally(r).update(threshold=0.5),
    "more at a rarer rate": lambda r: tally(r, 2).update(flagged=15_000),
    "another count than the curve": lambda r: tally(r).update(flagged=tally(r)["flagged"] + 1),
    "a target twice": lambda r: r["findings"].append(r["findings"][0]),
    "a target less": lambda r: r["findings"].pop(0),
    "no target": lambda r: r.update(findings=[], outcome="pass"),
    "nothing counted": lambda r: r["checks"].update(fpr=None),
    "an anchor less": lambda r: r["checks"]["fpr"]["anchors"].pop(),
    "falling counts": lambda r: r["checks"]["exchangeability"]["ranks"].reverse(),
    "counts of nothing": lambda r: r["checks"]["exchangeability"].update(ranks=[{"pooled": 0, "held_out": 0}]),
    "no curve point": lambda r: r["curve"].update(points=[]),
    "tied beyond the sample": lambda r: r["checks"]["granularity"]["targets"][0].update(through=10**9),
    "drift beyond the sample": lambda r: r["checks"]["exchangeability"]["targets"][0].update(pooled=10**9, held_out=5),
    "rows in groups that nobody has": lambda r: tally(r).update(effective=[100.0, 100.0]),
}


def tally(record: dict[str, Any], anchor: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = record["checks"]["fpr"]["anchors"][anchor]["tally"]
    return found


@pytest.mark.each_run(6)
@pytest.mark.usefixtures("record_alone")
@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_numbers_that_no_sample_has_do_not_hold(made: Path, release: Path, case: str) -> None:
    """The judgement finds what it reads; the data show the rest."""
    forge(release, IMPOSSIBLE[case])
    assert state_of(verify(release, data_of(made, "fit", "holdout"))) == "does not hold"


BREAKING: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a count for each point but the last": lambda r: along(r)["flagged"].pop(),
    "no threshold that anything reaches": lambda r: along(r).update(reached=0),
    "no size of a segment's count": lambda r: segments(r)["ranges"][0]["flagged"][0].pop(),
    "the smallest rate, found by the calibrator": lambda r: r["calibrator"].update(lowest_label=5e-324),
    "no ranks": lambda r: r["checks"]["exchangeability"].update(ranks=[]),
    "no day": lambda r: r.update(judged_on=None),
    "less than no rows by an exact test": lambda r: tally(r).update(effective=[5e-324, 5e-324]),
}


BREAKS = ("a count for each point but the last", "no size of a segment's count")


def along(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["checks"]["ranges"]["ranges"][0]
    return found


RANGED = EVERYTHING.replace("expect:", "ranges: [{from: 10%, to: 1%}], expect:") + (
    "ranges: [{from: 10%, to: 1%, min_n: 10, max_relative_error: 0.5}]\n"
)
HOSTILE: list[Any] = [None, True, 0, 1, -1, 2, 0.5, 5e-324, 1e15, 10**10, 10**15, "", "x", [], {}]


def judge_alone(record: Record) -> str:
    return check_verdict(record, document_of(record).policy)


@pytest.mark.each_run(1)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_record_holds_is_judged_or_refused(tmp_path: Path, seed: int) -> None:
    """Without a traceback and without a long wait: values and lists of one to three places are others."""
    draw, tried = random.Random(seed), set()
    content = json.loads((make(tmp_path, RANGED) / "verdict.json").read_bytes())
    judged = {"kind", "judged_on", "fit", "holdout", "calibrator", "calibrated", "curve", "checks"}
    places = [place for place in (*leaves(content), *branches(content)) if place[0] in judged]
    named = {tuple(step for step in place if isinstance(step, str)): place for place in places}
    for _ in range(often(40, 300)):
        forged = content
        for place in draw.sample([*named.values()], draw.choice([1, 1, 2, 3])):
            with contextlib.suppress(LookupError, TypeError):  # another change took the place away
                old = at(forged, place)
                lists = [old[1:], old[:-1], old + old[-1:], old[::-1]] if isinstance(old, list) else []
                forged = changed(forged, place, draw.choice([*lists, *HOSTILE]))
        try:
            record = parse_record(json.dumps(forged).encode(), "verdict.json")
        except GateError:
            continue
        began = time.process_time()
        said = answers.answer("verdict", partial(judge_alone, record))
        assert said.line.isprintable()
        assert time.process_time() - began < 20
        tried.add(said.state)
    assert tried == {"holds", "does not hold"}


def test_a_record_that_breaks_the_judgement_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path, RANGED)
    for module in (inspection, sys.modules[__name__]):
        monkeypatch.setattr(module, "rendered", lambda record, *_: {"verdict.json": record.to_json().encode()})
    original = (made / "verdict.json").read_bytes()
    for case, tamper in BREAKING.items():
        (made / "verdict.json").write_bytes(original)
        forge(made, tamper)
        found = verify(made)
        said = [one.line for one in found if one.state == "does not hold"]
        assert said, case
        assert case not in BREAKS or "its record breaks the judgement: " in said[0]
        assert all(line.isprintable() and len(line) < 400 for line in said)
        with pytest.raises(GateError, match="must be a release whose verdict follows") as refused:
            read_judged(made)
        assert "\n" not in str(refused.value)


UNREADABLE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "more false positives than rows": lambda r: tally(r).update(flagged=10**6),
    "no rows": lambda r: r["holdout"].update(n=0),
    "more rows than a sample may have": lambda r: r["holdout"].update(n=10**12),
    "counted on more than that": lambda r: tally(r).update(rows=10**12),
    "a fit sample of one": lambda r: r["fit"].update(n=1),
    "no day": lambda r: r.update(created="2026-02-30T00:00:00Z"),
    "a rate of nothing": lambda r: r["calibrator"].update(lowest_label=0.0),
    "use zero": lambda r: r["checks"].update(reuse={"ledger": "l", "holdout": {"number": 0}}),
    "a use that nobody made": lambda r: r["checks"].update(reuse={"ledger": "l", "holdout": {"number": 2}}),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_numbers_that_no_record_may_hold_are_refused_on_reading(release: Path, case: str) -> None:
    """Before any report, comparison or history does arithmetic with them."""
    content = json.loads((release / "verdict.json").read_bytes())
    UNREADABLE[case](content)
    (release / "verdict.json").write_text(json.dumps(content))
    assert state_of(verify(release)) == "does not hold"
    seal(release)
    with pytest.raises(GateError, match=r"verdict\.json: .*must"):
        verify(release)


# --- what cannot be checked is no pass ----------------------------------------------------------------------


def test_a_check_that_nobody_knows_does_not_hold(release: Path) -> None:
    """No evidence gives such a finding, whoever wrote it."""

    def add(record: dict[str, Any]) -> None:
        record["findings"].append({**record["findings"][-1], "check": "horoscope"})

    forge(release, add)
    assert states(verify(release))["verdict"] == "does not hold"


@pytest.mark.parametrize("lacking", [lambda r: r["checks"].pop("exchangeability"), lambda r: r.pop("curve")])
def test_a_record_without_its_counts_does_not_hold(release: Path, lacking: Callable[[Any], Any]) -> None:
    forge(release, lacking)
    assert states(verify(release))["verdict"] == "does not hold"


def test_reports_of_another_version_are_not_called_forged(release: Path) -> None:
    """They are not called sound either: they may say anything."""

    def older(record: dict[str, Any]) -> None:
        record["tool"]["version"] = "0.0.9"
        for finding in record["findings"]:
            finding["message"] = "in other words"

    forge(release, older)
    (release / "report.md").write_text("written in another way")
    seal(release)
    checks = {check.name: check for check in verify(release)}
    assert checks["verdict"].state == checks["reports"].state == "cannot be checked"
    assert "gate 0.0.9" in checks["reports"].message
    forge(release, lambda record: record.update(outcome="fail"))
    assert states(verify(release))["verdict"] == "does not hold"


def test_another_matplotlib_may_draw_otherwise(release: Path) -> None:
    forge(release, lambda record: record["tool"]["libraries"].update(matplotlib="3.0.0"))
    assert states(verify(release))["reports"] == "holds"
    page = release / "report.html"
    page.write_bytes(page.read_bytes().replace(b"<svg", b"<svg x='1'", 1))
    seal(release)
    checks = {check.name: check for check in verify(release)}
    assert checks["reports"].state == "cannot be checked"
    assert "matplotlib 3.0.0" in checks["reports"].message


# --- the command --------------------------------------------------------------------------------------------


def test_what_is_no_release_is_refused(release: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place, said in [(release / "verdict.json", "got Not a directory"), (tmp_path / "empty", "got one without")]:
        with pytest.raises(GateError, match=said):
            verify(place)
    with pytest.raises(GateError, match=r"nowhere\.npy: must exist"):
        verify(release, Data(fit=("nowhere.npy",)))


def test_a_newer_record_is_no_forgery(release: Path) -> None:
    content = json.loads((release / "verdict.json").read_bytes())
    (release / "verdict.json").write_text(json.dumps({**content, "schema_version": 2}))
    seal(release)
    with pytest.raises(GateError, match="upgrade gate"):
        verify(release)


# --- detection, baselines and checks ------------------------------------------------------------------------

FOLLOWED = (
    POLICY
    + """\
data: {id: row}
checks: {detection: {targets: [{fpr: 0.01, min_tpr: 0.8}], max_drop: 0.1}}
"""
)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases and a check: the second held against the first, row by row and by its counts alone."""
    place = tmp_path_factory.mktemp("followed")
    write_scores(place)
    document = parse_policy(FOLLOWED, "policy.yaml")
    columns, domain = document.policy.data, document.policy.calibration.domain
    rng = np.random.default_rng(5)
    old = rng.beta(8, 2, 2_000)
    for name, values in (("old", old), ("new", np.clip(old + rng.normal(0, 0.02, 2_000), 0, 1))):
        rows = pa.table({"score": values, "row": [f"bad-{i}" for i in range(2_000)]})
        pa.parquet.write_table(rows, place / f"{name}.parquet")
    fit = read([str(place / "fit.parquet")], columns, domain)
    scores = np.asarray(pa.parquet.read_table(place / "holdout.parquet")["score"])
    names = [f"row-{i}" for i in range(len(scores))]  # no row is another one again
    holdout = from_object({"score": scores, "row": names}, "holdout", columns, domain)
    bad = {name: read([str(place / f"{name}.parquet")], columns, domain, "malicious") for name in ("old", "new")}
    gate_release(job(document, "v1"), fit, holdout, malicious=bad["old"], first_release=True).write(place / "v1")
    baseline = as_reference(read_release(place / "v1"))
    moved = np.clip(scores + rng.normal(0, 1e-3, len(scores)), 0, 1)
    shaken = from_object({"score": moved, "row": names}, "holdout", columns, domain)
    for name, reference in (("counts", baseline), ("rows", baseline.with_scores(holdout, bad["old"]))):
        judged = gate_release(job(document, name), fit, shaken, malicious=bad["new"], reference=reference)
        found = judged.record.of(Comparison)
        assert found is not None
        assert {change.flipped is not None for change in found.anchors} == {name == "rows"}
        judged.write(place / name)
    stored = read_release(place / "v1")
    check_release(job(document, "v1"), stored, shaken, malicious=bad["new"]).write(place / "check")
    return place


@pytest.mark.each_run(2)
@pytest.mark.parametrize("name", ["v1", "counts", "rows", "check"])
def test_releases_held_against_others_hold(followed: Path, name: str) -> None:
    checks = verify(followed / name)
    assert {check.state for check in checks} == {"holds"}, checks


@pytest.mark.each_run(8)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("v1", lambda record: detected(record).update(flagged=1_999)),
        ("v1", lambda record: detected(record).update(threshold=0.1)),
        ("v1", lambda record: finding(record, "tpr@1%")["rate"]["tally"].update(flagged=2_000)),
        ("v1", lambda record: record.update(malicious=None)),
        ("v1", lambda record: record.update(malicious_confidence=0.5)),
        ("v1", lambda record: record.update(malicious_confidence=None)),
        ("v1", lambda record: record["checks"].update(direction=None)),
        ("counts", lambda record: record["checks"]["baseline"]["reference"].update(outcome="fail")),
        ("counts", lambda record: change(record, "drop", 1)["old"].update(flagged=1)),
        ("counts", lambda record: finding(record, "tpr-drop@1%").update(outcome="fail")),
        ("counts", lambda record: record["checks"].update(baseline=None)),
        ("rows", lambda record: change(record)["flipped"].update(new_only=0)),
        ("rows", lambda record: change(record)["stale"].update(threshold=0.0)),
        ("rows", lambda record: change(record, "drop", 1)["flipped"].update(new_only=1, old_only=500)),
        ("check", lambda record: finding(record, "fpr@1%")["rate"]["tally"].update(flagged=1)),
        ("check", lambda record: record["calibrator"]["anchors"][0].update(fpr=0.2)),
        ("check", lambda record: record.update(kind="run")),
        ("check", lambda record: record["checks"].update(baseline=None)),
    ],
)
def test_no_count_of_a_comparison_can_be_changed(
    followed: Path, tmp_path: Path, name: str, change: Callable[[Any], None]
) -> None:
    shutil.copytree(followed / name, tmp_path / name)
    release = tmp_path / name
    try:
        forge(release, change)
    except ValidationError:  # no gate renders such a record, and none reads it
        content = json.loads((release / "verdict.json").read_bytes())
        change(content)
        (release / "verdict.json").write_text(json.dumps(content))
        seal(release)
        with pytest.raises(GateError, match=r"verdict\.json: .*must follow `gate schema record`"):
            verify(release)
        return
    assert state_of(verify(release)) != "holds"


@pytest.mark.each_run(2)
@pytest.mark.parametrize("name", ["v1", "counts", "check"])
def test_no_part_of_the_evidence_can_be_left_out(followed: Path, tmp_path: Path, name: str) -> None:
    """What is then not measured is not as the record has it; a check judges no drop."""
    release = Path(shutil.copytree(followed / name, tmp_path / name))
    content = json.loads((release / "verdict.json").read_bytes())
    parts: list[Place] = [("checks", key) for key, part in content["checks"].items() if part is not None]
    if name == "check":
        parts.remove(("checks", "drop"))
    assert len(parts) > 5
    for place in [*parts, ("curve",)]:
        lacking = changed(content, place, None)
        (release / "verdict.json").write_text(json.dumps(lacking))
        seal(release)
        assert states(verify(release))["verdict"] == "does not hold", place


def test_a_check_is_counted_again_on_its_rows_and_takes_no_others(followed: Path) -> None:
    with pytest.raises(GateError, match=r"^--fit, --benign: must be left out for a check"):
        verify(followed / "check", Data(fit=(str(followed / "fit.parquet"),)))
    found = states(verify(followed / "check", Data(holdout=(str(followed / "holdout.parquet"),))))
    assert found["holdout"] == "does not hold", "these are not the rows that it was made on"


def finding(record: dict[str, Any], check: str) -> dict[str, Any]:
    return next(found for found in record["findings"] if found["check"] == check)


def detected(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["checks"]["detection"]["anchors"][1]["tally"]
    return found


def change(record: dict[str, Any], part: str = "baseline", anchor: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = record["checks"][part]["anchors"][anchor]
    return found
