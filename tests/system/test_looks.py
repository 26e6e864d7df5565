"""Looking again while rows come in: what counts as added rows, what as re-use, and what more rows would decide."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import sample_of

import gate
from gate import ledger
from gate.checks import parse_policy
from gate.checks.reuse import Uses
from gate.errors import GateError
from gate.gating import Job, check_release, gate_release
from gate.inspection.judgement import read_judged
from gate.ledger import Entry, Known, Rows
from gate.policy import Document
from gate.record import Record
from gate.rows.reading import from_object, read
from gate.rows.sketch import Named

pytestmark = pytest.mark.usefixtures("few_points")

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
POLICY = """\
version: 1
name: looks
interval: sequential
reuse: {max_uses: 20}
targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]
ranges: [{from: 10%, to: 1%, min_n: 1000, max_relative_error: 0.5}]
"""


def document(text: str = POLICY) -> Document:
    return parse_policy(text, "policy.yaml")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release on a first file of held-out rows, counted in a ledger, and five more such files."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    np.save("fit.npy", rng.random(20_000))
    for i in range(6):
        np.save(f"h{i}.npy", rng.random(2_000))
    doc = document()
    columns, domain = doc.policy.data, doc.policy.calibration.domain
    fit, holdout = (read([name], columns, domain) for name in ("fit.npy", "h0.npy"))
    gate_release(Job(doc, "v1", NOON, NOON.date(), "ledger.jsonl"), fit, holdout).write("v1")
    return tmp_path


def look(*files: str, doc: Document | None = None) -> Record:
    doc = doc or document()
    holdout = read(list(files), doc.policy.data, doc.policy.calibration.domain)
    return check_release(Job(doc, "v1", NOON, NOON.date(), "ledger.jsonl"), read_judged("v1"), holdout).record


def use(record: Record) -> int:
    found: Uses = record.of(Uses)
    return found.holdout.number


@pytest.mark.usefixtures("place")
def test_files_that_are_added_are_the_same_use_in_whatever_order_and_however_often() -> None:
    assert use(look("h0.npy", "h1.npy")) == 1
    assert use(look("h2.npy", "h1.npy", "h0.npy", "h3.npy")) == 1
    grown = look("h0.npy", "h1.npy", "h2.npy", "h3.npy", "h4.npy", "h5.npy")
    assert use(grown) == 1
    assert grown.confidence == pytest.approx(1 - 0.05 / 2)
    assert grown.outcome == "pass"


@pytest.mark.usefixtures("place")
def test_a_look_without_all_files_of_the_last_one_is_re_use_and_so_is_a_changed_file() -> None:
    look("h0.npy", "h1.npy")
    assert use(look("h0.npy", "h2.npy")) == 2
    assert use(look("h0.npy", "h2.npy", "h3.npy")) == 2, "a further look of the second use"
    rows = np.load("h1.npy")
    np.save("h1.npy", np.delete(rows, rows.argmax()))  # one false positive fewer: a sketch could not see it
    assert use(look("h0.npy", "h1.npy", "h4.npy")) == 3


@pytest.mark.usefixtures("place")
def test_another_policy_is_another_question() -> None:
    look("h0.npy", "h1.npy")
    other = document(POLICY.replace("0.5}]\nranges", "0.4}]\nranges"))
    assert use(look("h0.npy", "h1.npy", "h2.npy", doc=other)) == 2


@pytest.mark.usefixtures("place")
def test_an_open_look_says_how_many_more_rows_decide_it_and_how_often() -> None:
    record = look("h0.npy", "h1.npy")
    target, stretch = (f for f in record.findings if f.check.kind == "fpr")
    for finding in (target, stretch):
        assert finding.outcome == "inconclusive"
        assert finding.remedy is not None
        assert finding.remedy.startswith("add about ")
        assert "and look again: it is decided by then" in finding.remedy


def test_the_interval_of_one_look_is_counted_by_rows_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    for name in ("fit", "h0", "h1"):
        np.save(f"{name}.npy", rng.random(2_000))
    doc = document(POLICY.replace("interval: sequential\n", ""))
    columns, domain = doc.policy.data, doc.policy.calibration.domain
    fit, holdout = (read([name], columns, domain) for name in ("fit.npy", "h0.npy"))
    gate_release(Job(doc, "v1", NOON, NOON.date(), "ledger.jsonl"), fit, holdout).write("v1")
    assert use(look("h0.npy", "h1.npy", doc=doc)) == 2


def test_groups_and_looks_are_refused() -> None:
    with pytest.raises(GateError, match="no bound for rows in groups holds at every look"):
        document(POLICY + "data: {group: user}\n")


def test_without_a_ledger_a_check_says_that_nothing_tells_added_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    doc = document(POLICY.replace("reuse: {max_uses: 20}\n", ""))
    gate.run(rng.random(3_000), rng.random(3_000), release="v1", policy=doc, created=NOON).write(tmp_path / "v1")
    holdout = from_object(rng.random(3_000), "holdout", doc.policy.data, doc.policy.calibration.domain)
    record = check_release(Job(doc, "v1", NOON, NOON.date()), read_judged(tmp_path / "v1"), holdout).record
    assert any("without a ledger" in warning for warning in record.warnings)


# --- the ledger's arithmetic ----------------------------------------------------------------------------------

FILES = "abcdef"


@cache
def named(n: int) -> Named:
    """So many rows, each with its own score."""
    return sample_of(np.arange(float(n))).distinct_scores


def entry(number: int, files: frozenset[str], question: str) -> Entry:
    """Make an entry that shares all of its rows with every other."""
    return Entry(
        question, f"v{number}", "", Known(f"rows {number}", None, named(100).sketch, 100, tuple(sorted(files)))
    )


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.frozensets(st.sampled_from(FILES)), st.sampled_from("pq")), max_size=6),
    st.frozensets(st.sampled_from(FILES), min_size=1),
)
def test_a_use_is_counted_once_for_each_chain_of_looks(
    earlier: list[tuple[frozenset[str], str]], files: frozenset[str]
) -> None:
    """An earlier judgement counts unless a later one with the same question, or this one, has read all of its files."""
    entries = [entry(i, some, question) for i, (some, question) in enumerate(earlier)]
    rows = Rows("now", None, named(100), 100, tuple(sorted(files)))
    later = [*earlier, (files, "p")]
    expected = [
        f"v{i}"
        for i, (some, question) in enumerate(earlier)
        if not (some and any(asked == question and some <= others for others, asked in later[i + 1 :]))
    ]
    found = ledger.use_of(entries, rows, "p")
    assert list(found.earlier) == expected
    assert found.number == len(expected) + 1


def test_a_ledger_keeps_the_digests_of_files_and_old_lines_have_none(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.jsonl")
    rows = Rows("r", None, named(10), 10, ("a", "b"))
    ledger.claim(path, rows, "q", "v1", "2026-03-01T12:00:00Z")
    ledger.claim(path, Rows("s", None, rows.scores, 10), "q", "v2", "2026-03-01T12:00:00Z")
    assert [found.held_out.files for found in ledger.read(path)] == [("a", "b"), ()]
    text = Path(path).read_text()
    Path(path).write_text(text.replace('"files": ["a", "b"]', '"files": [1]'))
    with pytest.raises(GateError, match="must be one judgement"):
        ledger.read(path)
