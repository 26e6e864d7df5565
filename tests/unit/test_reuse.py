"""Held-out rows that judge again: counted by their ids, named, paid for where the policy says so, at last refused."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import tempfile
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from records import RECORDS, anchors_of, evidence_of, recorded
from samples import sample_of

from gate import ledger as ledgers
from gate.checks import Parts, fpr, parse_policy, reuse
from gate.checks.check import Evidence, Finding
from gate.checks.detection import Detection
from gate.checks.fpr import Targets
from gate.checks.reuse import Use, Uses
from gate.errors import GateError
from gate.history import _detected
from gate.ledger import Entry, Rows, read, use_of
from gate.policy import Policy
from gate.report.changes import detection_rows
from gate.report.numbers import bounds
from gate.report.page import assurance
from gate.statistics.binomial import Band, critical_counts, upper_tail
from gate.verdict import judge

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "statistics.json").read_text())
REUSE = "reuse: {max_uses: 3}\n"
POLICY = """\
version: 1
name: small
rule: observed
data: {id: row}
targets:
  - {fpr: 10%, min_n: 1000, max_relative_error: 0.5}
"""


def make(reuse: str = "") -> Policy:
    return parse_policy(POLICY + reuse, "test.yaml").policy


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


@pytest.mark.parametrize(("of_benign", "of_malicious"), [(1, 1), (1, 3), (3, 1)])
def test_each_kind_of_rows_is_bounded_at_the_confidence_that_judged_it(of_benign: int, of_malicious: int) -> None:
    """Also at anchors that have no minimum, in the comparison, in the history, and in words where the two differ."""
    known = RECORDS["followed"]
    document = parse_policy(known.policy.content + REUSE, "test.yaml")
    holdout, malicious = (
        Use(number=n, earlier=("v0",) * (n - 1), shared=(1.0,) * (n - 1)) for n in (of_benign, of_malicious)
    )
    used = known.checks.model_copy(update={"reuse": Uses(ledger="l", holdout=holdout, malicious=malicious)})
    assert known.curve is not None
    record = recorded(document, dataclasses.replace(known.evidence, parts=used), known.curve)
    alphas = [0.05 / (n * (n + 1)) if n > 1 else 0.025 for n in (of_benign, of_malicious)]
    assert (record.confidence, record.malicious_confidence) == pytest.approx([1 - a for a in alphas], rel=1e-15)
    assert record.alphas == pytest.approx(alphas, rel=1e-12)
    found = record.of(Detection)
    judged = {f.check.rate: f.rate.interval for f in record.findings if f.check.kind == "tpr" and f.rate is not None}
    assert 0 < len(judged) < len(found.anchors)
    for at, row in zip(found.anchors, detection_rows(record), strict=True):
        interval = at.tally.interval(alphas[1])
        assert row.interval == bounds(interval, None) or at.fpr in judged
        assert judged.get(at.fpr, interval) == pytest.approx(interval, rel=1e-9)
        assert _detected(record)[at.fpr].interval == pytest.approx(interval, rel=1e-9)
    said = "Intervals on malicious rows are at" in assurance(record, [])
    assert said == (of_benign != of_malicious)


# --- the ledger ---------------------------------------------------------------------------------------------


def rows_of(ids: Iterable[int] | None, scores: Any = None, seed: int = 5) -> Rows:
    """Rows as the ledger sees them: named by ids, with scores of their own unless given."""
    names = None if ids is None else [f"row {i}" for i in ids]
    if scores is None:
        assert names is not None
        scores = np.random.default_rng(seed).random(len(names))
    return ledgers.rows_of(sample_of(scores, ids=names))


def entry(rows: Rows, question: str = "q1", release: str = "v1") -> Entry:
    return Entry(question, release, "2026-06-30T00:00:00Z", ledgers._known(rows))


def used(*earlier: str, shared: tuple[float | None, ...] | None = None) -> Use:
    """A use after those of these releases, which share all rows unless it is said."""
    return Use(number=len(earlier) + 1, earlier=earlier, shared=(1.0,) * len(earlier) if shared is None else shared)


def claim(path: Path, rows: Rows, question: str = "q1", release: str = "v1") -> Use:
    return ledgers.claim(str(path), rows, question, release, "2026-06-30T00:00:00Z")


SOME, OTHERS = rows_of(range(3000)), rows_of(range(5000, 8000), seed=6)


def test_uses_are_counted_by_rows_and_question() -> None:
    """Other rows do not count, and the same question again is the same use, whatever has come between."""
    entries = [entry(SOME), entry(SOME, "q2", "v2"), entry(OTHERS, "q3", "v3")]
    assert use_of([], SOME, "q1") == used()
    assert use_of(entries, SOME, "q3") == used("v1", "v2", shared=(1.0, 1.0))
    assert use_of(entries, SOME, "q1") == used()
    assert use_of(entries, SOME, "q2") == used("v1", shared=(1.0,))
    assert use_of([*entries, entry(SOME, "q2", "v2 again")], SOME, "q3") == used("v1", "v2", shared=(1.0, 1.0))
    assert use_of(entries, rows_of(range(9000, 12_000), seed=7), "q1") == used()


@given(dropped=st.integers(0, 2700), added=st.integers(0, 20_000), seed=st.integers(0, 2**32 - 1), ids=st.booleans())
@settings(max_examples=examples(30), deadline=None)
def test_dropped_and_added_rows_are_a_further_use(dropped: int, added: int, seed: int, ids: bool) -> None:
    """This holds for any number and order, and for the same question; rows without ids are compared by scores."""
    rng = np.random.default_rng(seed)
    remaining = rng.permutation(3000)[dropped:]
    numbers = rng.permutation(np.concatenate([remaining, np.arange(3000, 3000 + added)]))
    scores = np.random.default_rng(5).random(23_000)
    before = rows_of(range(3000) if ids else None, scores[:3000])
    after = rows_of(numbers if ids else None, scores[numbers])
    same = dropped == added == 0
    found = use_of([entry(before)], after, "q1")
    assert found.number == (1 if same else 2)
    smaller = min(3000, len(numbers))
    assert same or found.shared[0] == pytest.approx(len(remaining) / smaller, abs=0.1)


def test_rows_in_another_order_and_with_other_scores_are_the_same_by_their_ids() -> None:
    assert use_of([entry(SOME)], rows_of(reversed(range(3000)), seed=8), "q2").number == 2
    assert rows_of(reversed(range(3000)), seed=8).digest == SOME.digest


def test_rows_that_are_scored_anew_answer_anew() -> None:
    """Scored until they pass, under one calibrator: each time is a use, and each again is the same one."""
    scored = [rows_of(range(3000), seed=seed) for seed in range(4)]
    entries = [entry(rows, release=f"v{i}") for i, rows in enumerate(scored)]
    for i, rows in enumerate(scored):
        assert use_of(entries[:i], rows, "q1").number == i + 1
        assert use_of(entries, rows, "q1").number == i + 1


def test_each_scoring_of_the_same_rows_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    scored = [rows_of(range(3000), seed=seed) for seed in (1, 2, 1)]
    assert [claim(path, rows).number for rows in scored] == [1, 2, 1]
    assert len(path.read_bytes().splitlines()) == 2
    with pytest.raises(GateError, match="must have a line for this judgement"):
        ledgers.recall(str(path), rows_of(range(3000), seed=3), "q1")


def test_rows_under_new_ids_are_known_by_their_scores_where_every_row_has_its_own() -> None:
    """Fine scores tell rows apart; coarse ones are alike by chance, and there ids decide."""
    rng = np.random.default_rng(9)
    fine = rng.random(3000)
    assert use_of([entry(rows_of(range(3000), fine))], rows_of(range(3000, 5999), fine[1:]), "q2").number == 2
    coarse = [rng.integers(0, 50, 3000) / 50 for _ in range(2)]
    assert use_of([entry(rows_of(range(3000), coarse[0]))], rows_of(range(3000, 6000), coarse[1]), "q2").number == 1


def test_leaving_the_ids_out_hides_nothing() -> None:
    scores = np.random.default_rng(5).random(3000)
    for before, after in ((range(3000), None), (None, range(3000))):
        assert use_of([entry(rows_of(before, scores))], rows_of(after, scores), "q1").number == 2


def test_without_ids_coarse_scores_count_as_the_same_rows() -> None:
    """Rows of one score cannot be told apart: a use too many, never one too few."""
    first, second = (rows_of(None, np.random.default_rng(i).integers(0, 100, 3000) / 100) for i in range(2))
    assert use_of([entry(first)], second, "q1").number == 2


def test_rows_from_a_far_larger_set_are_a_further_use() -> None:
    """All of them are recognised, and where the sketch has seen none of so few, that is no sign that they are fresh."""
    whole = rows_of(range(200_000))
    for n in (10, 200, 1000, 20_000):
        assert use_of([entry(whole)], rows_of(range(n)), "q1").number == 2
    assert use_of([entry(whole)], rows_of(range(200_000, 220_000), seed=6), "q1").number == 1


def test_entries_read_back_as_they_were_written(tmp_path: Path) -> None:
    """Also with line breaks and other letters in a name: one entry, one line of ASCII, of bounded size."""
    path = tmp_path / "kept" / "ledger.jsonl"
    rows = [SOME, OTHERS, rows_of(None, np.arange(9)), rows_of(range(50_000))]
    names = ["v1", 'two\nlines "quoted"', "naïve 🚦 \u2028", "v4"]
    written = [entry(each, release=name) for each, name in zip(rows, names, strict=True)]
    for each, name in zip(rows, names, strict=True):
        claim(path, each, release=name)
    assert read(str(path)) == written
    assert path.read_bytes().isascii()
    assert path.read_bytes().count(b"\n") == 4
    assert max(map(len, path.read_bytes().splitlines())) < 23_000


def test_a_ledger_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    assert read(str(tmp_path / "none.jsonl")) == []
    assert list(tmp_path.iterdir()) == []


WHOLE = json.loads(ledgers._line(entry(SOME)))


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{", b"[]", b"null", b'"text"', b"{}", b'{"rows": "a"}', b"\xff\xfe", b"[" * 100_000),
        *(
            json.dumps({**WHOLE, **change}).encode()
            for change in (
                {"release": 7},
                {"scores": None},
                {"scores": {**WHOLE["scores"], "n": 10}},
                {"scores": {**WHOLE["scores"], "n": True}},
                {"ids": {**WHOLE["ids"], "hashes": WHOLE["ids"]["hashes"][8:]}},
                {"ids": {**WHOLE["ids"], "hashes": "AAAA" * 2730 + "AAA="}},
                {"n": 0},
                {"n": 2999},
            )
        ),
    ],
)
def test_a_broken_line_is_named(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    claim(path, SOME)
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(GateError) as caught:
        read(str(path))
    assert str(caught.value).startswith(f"{path}:2: must be one judgement as JSON")
    with pytest.raises(GateError, match=":2: must be one judgement as JSON"):
        claim(path, OTHERS)


@given(share=st.floats(0, 1, exclude_max=True))
@settings(max_examples=examples(20), deadline=None)
def test_a_line_that_was_cut_off_counts_as_a_use_of_any_rows(share: float) -> None:
    """Wherever the crash came: it blocks nothing, resets nothing, and the next line stands on its own."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "ledger.jsonl"
        claim(path, SOME)
        first = path.read_bytes()
        line = ledgers._line(entry(OTHERS, "q2", "v2"))[:-1]
        path.write_bytes(first + line[: 1 + int(share * len(line))])
        unrelated = rows_of(range(9000, 12_000), seed=7)
        assert claim(path, unrelated, "q3", "v3") == used(ledgers.CUT, shared=(None,))
        assert path.read_bytes().startswith(first)
        assert [each.release for each in read(str(path))] == ["v1", ledgers.CUT, "v3"]
        assert claim(path, SOME, "q4", "v4") == used("v1", ledgers.CUT, shared=(1.0, None))
        assert claim(path, unrelated, "q3", "v3") == used(ledgers.CUT, shared=(None,))


@pytest.mark.parametrize("cut", [b"", b'{"rows": "ab', b"x" * 100_000])
@pytest.mark.parametrize("accepted", [0, 1, 100, 10_000])
def test_a_disk_that_takes_half_a_line_leaves_the_ledger_as_it_was(
    accepted: int, cut: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No verdict follows from a use that was not counted, and the next run finds no less than was there."""
    path = tmp_path / "ledger.jsonl"
    claim(path, SOME)
    before = path.read_bytes()
    path.write_bytes(before + cut)
    write, left = os.pwrite, [accepted]

    def short(descriptor: int, data: bytes, at: int) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = write(descriptor, data[: left[0]], at)
        left[0] -= taken
        return taken

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", short)
        with pytest.raises(GateError, match="must be a ledger that can be written, got No space left on device"):
            claim(path, OTHERS, "q2", "v2")
    assert path.read_bytes().startswith(before)
    expected = ["v1", *([ledgers.CUT] if cut else [])]
    assert [each.release for each in read(str(path))] == expected
    assert claim(path, OTHERS, "q2", "v2").number == len(expected)


@pytest.mark.parametrize("where", ["the file", "a directory above"])
def test_no_ledger_is_written_through_a_link(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "ledger.jsonl").write_text("")
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    if where == "the file":
        (place / "kept").mkdir()
        (place / "kept" / "ledger.jsonl").symlink_to(tmp_path / "elsewhere" / "ledger.jsonl")
    else:
        (place / "kept").symlink_to(tmp_path / "elsewhere")
    for given_ in (Path("kept/ledger.jsonl"), place / "kept/ledger.jsonl"):
        with pytest.raises(GateError, match="must lead through no symbolic link, got one at"):
            claim(given_, SOME)
    assert (tmp_path / "elsewhere" / "ledger.jsonl").read_text() == ""


def test_what_is_no_file_is_no_ledger(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(GateError, match="must be a plain file"):
            claim(path, SOME)
    with pytest.raises(GateError, match="must be a ledger that can be written, got Is a directory"):
        claim(tmp_path, SOME)


# --- the finding --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reuse", "use", "outcome", "reason", "words"),
    [
        ("", used(), "pass", "fresh", "use 1 of these held-out rows"),
        ("", used("v1"), "pass", "reused", "use 2 of these held-out rows, after v1; each further use makes a"),
        (REUSE, used("v1"), "pass", "reused", "after v1; the intervals of this use miss at most 0.0083"),
        (REUSE, used("v1", "v2"), "pass", "reused", "use 3 of these held-out rows, after v2 and v1"),
        (REUSE, used("v1", "v2", "v3"), "inconclusive", "exhausted", "use 4 of these held-out rows, after v3, v2"),
    ],
)
def test_what_is_said_of_a_use(reuse: str, use: Use, outcome: str, reason: str, words: str) -> None:
    found = judged(make(reuse), use)
    assert (str(found.check), found.outcome, found.reason) == ("reuse", outcome, reason)
    assert found.required == bool(reuse)
    assert words in found.message
    assert (found.remedy is not None) == (outcome != "pass")


def evidence(policy: Policy, k: int, use: Use | None, malicious: Use | None = None) -> Evidence:
    """So many of 10,000 rows at the one target, on rows of this use."""
    counts = Targets(anchors=anchors_of(policy, [k, *[0] * 5], 10_000))
    uses = None if use is None else Uses(ledger="l", holdout=use, malicious=malicious)
    return evidence_of(policy, Parts(fpr=counts, reuse=uses))


def judged(policy: Policy, use: Use, malicious: Use | None = None) -> Finding:
    [finding] = reuse.judge(policy, evidence(policy, 1000, use, malicious))
    return finding


CHECKED = (fpr.CHECK, reuse.CHECK)


def test_exhausted_rows_decide_nothing_but_still_refute() -> None:
    policy = make(REUSE)
    for k, outcome in ((1000, "inconclusive"), (5000, "fail")):
        assert judge(policy, evidence(policy, k, used("v1", "v2", "v3")), CHECKED).outcome == outcome
    assert judge(policy, evidence(policy, 5000, None), CHECKED).outcome == "fail"


def test_a_policy_that_pays_for_uses_asks_for_a_ledger() -> None:
    """Without one nobody knows which use it is, and that is no pass."""
    policy = make(REUSE)
    assert judge(policy, evidence(policy, 1000, used()), CHECKED).outcome == "pass"
    found = judge(policy, evidence(policy, 1000, None), CHECKED)
    assert (found.outcome, found.reason) == ("inconclusive", "reuse could not be measured")


def test_every_use_widens_the_intervals_where_the_policy_pays() -> None:
    for text, widens in ((REUSE, True), ("", False)):
        policy = make(text)
        widths = []
        for use in (used(), used("v1"), used("v1", "v2")):
            rate = judge(policy, evidence(policy, 1000, use), CHECKED).findings[0].rate
            assert rate is not None
            assert rate.interval == rate.tally.interval(float(policy.alpha(use.number)))
            widths.append(rate.interval[1] - rate.interval[0])
        assert (widths[0] < widths[1] < widths[2]) == widens


def test_malicious_rows_are_counted_and_exhausted_like_benign_ones() -> None:
    found = judged(make(REUSE), used(), malicious=used("v1", "v2", "v3"))
    assert (found.outcome, found.reason) == ("inconclusive", "exhausted")
    assert found.remedy == "score malicious rows that have judged no release yet"
    assert "use 1 of these held-out rows; use 4 of these malicious rows, after v3, v2 and v1" in found.message


def test_the_reason_says_that_rows_have_judged_too_often() -> None:
    policy = make(REUSE)
    found = judge(policy, evidence(policy, 1000, used("v1", "v2", "v3")), CHECKED)
    assert found.reason == "rows have judged too often"
