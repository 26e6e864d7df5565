"""The overlap check: copies of fit rows among the held-out ones, told from scores that are alike by chance."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from cases import case
from drawing import examples, often
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from samples import sample_of

import gate
from gate.checks import overlap, parse_policy
from gate.checks.check import Judgement
from gate.checks.overlap import Overlap, decide, refuse_identical
from gate.checks.overlap import OverlapSettings as Settings
from gate.checks.shared import LEVEL, Shared, compare_scores
from gate.errors import GateError
from gate.policy import Columns
from gate.rows.labels import Kind
from gate.rows.reading import read
from gate.rows.sample import Sample
from gate.rows.split import split

DATA = Path(os.environ.get("GATE_DATA", Path(__file__).parents[3] / "shared" / "data"))
PROFILES = json.loads((Path(__file__).parents[1] / "golden" / "ties.json").read_text())
POLICY = parse_policy("version: 1\nname: x\ntargets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n", "p").policy


def measure(fit: Sample, holdout: Sample, malicious: Sample | None = None) -> Overlap:
    found = overlap.measure(case(POLICY, fit, holdout, malicious))
    assert found is not None
    return found


def shared_of(fit: np.ndarray, holdout: np.ndarray) -> Shared:
    return compare_scores(sample_of(fit), sample_of(holdout))


def judged(fit: Sample, holdout: Sample) -> Judgement:
    return decide(Settings(), measure(fit, holdout))


def said(finding: Judgement) -> tuple[str, str, bool]:
    return finding.outcome, finding.reason, finding.required


# --- what chance shares -------------------------------------------------------------------------------------

POOLS = {
    "4 digits": lambda rng: np.round(rng.beta(0.5, 8, 9_000), 4),
    "6 digits": lambda rng: np.round(rng.beta(0.5, 8, 9_000), 6),
    "float32": lambda rng: rng.uniform(size=9_000).astype(np.float32).astype(np.float64),
    "trees": lambda rng: 1 / (1 + np.exp(-rng.integers(0, 2, (9_000, 12)) @ rng.normal(size=12))),
    "items": lambda rng: np.repeat(rng.uniform(size=4_000), rng.integers(1, 4, 4_000)),
    "zipf": lambda rng: rng.zipf(1.3, 5_000).clip(max=10**6) / 1e6,
}


@pytest.mark.each_run(2)
@pytest.mark.parametrize("name", POOLS)
def test_random_divisions_raise_no_alarm(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for i in range(often(20, 200)):
        pooled = rng.permutation(POOLS[name](rng))
        n = int(len(pooled) * (0.5, 0.1, 0.9)[i % 3])
        shared = shared_of(pooled[n:], pooled[:n])
        assert (shared.copied, shared.repeated) == (0, 0)


@pytest.mark.skipif(not DATA.is_dir(), reason="the real scores are not at hand")
@pytest.mark.parametrize("column", ["logistic", "boosted"])
@pytest.mark.parametrize("name", ["kdd_http", "kdd_smtp"])
def test_the_real_scores_raise_no_alarm(name: str, column: str) -> None:
    table = pa.parquet.read_table(DATA / f"{name}.parquet")
    values = np.asarray(table[column])[np.asarray(table["label"]) == 0]
    rng = np.random.default_rng(0)
    for share in (0.5, 0.2, 0.8, 0.5, 0.05):
        held = rng.random(len(values)) < share
        shared = shared_of(values[~held], values[held])
        assert (shared.copied, shared.repeated) == (0, 0)


@pytest.mark.each_run(2)
@pytest.mark.parametrize("name", PROFILES)
def test_scores_tied_like_real_ones_raise_no_alarm(name: str) -> None:
    """`ties.json` says of the benign scores of four detectors how many values so many rows share."""
    sizes, values = np.array(PROFILES[name]).T
    rng = np.random.default_rng(0)
    distinct = np.sort(rng.uniform(0.5, 1, values.sum()))
    for share in (0.5, 0.2, 0.8, 0.05):
        pooled = np.repeat(distinct, rng.permutation(np.repeat(sizes, values)))
        held = rng.random(len(pooled)) < share
        shared = shared_of(pooled[~held], pooled[held])
        assert (shared.copied, shared.repeated) == (0, 0)


@pytest.mark.each_run(2)
@pytest.mark.parametrize("digits", [3, 4, 5, 6, 17])
def test_drift_is_neither_overlap_nor_repetition(digits: int) -> None:
    """The samples may differ in where their scores lie; that does not show whether rows of one recur in the other."""
    rng = np.random.default_rng(digits)
    for a, b in ((0.6, 7), (2, 7), (0.5, 20)):
        fit, holdout = np.round(rng.beta(0.5, 8, 40_000), digits), np.round(rng.beta(a, b, 60_000), digits)
        shared = shared_of(fit, holdout)
        assert (shared.copied, shared.repeated) == (0, 0)


# --- judged -------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(st.sets(st.integers(0, 40), min_size=2), st.sets(st.integers(0, 40), min_size=2))
def test_a_shared_id_fails(some: set[int], others: set[int]) -> None:
    fit, holdout = (
        sample_of(np.full(len(part), score), ids=[f"row {i}" for i in part])
        for score, part in ((0.5, some), (0.25, others))
    )
    found = measure(fit, holdout)
    assert found.ids == len(some & others)
    assert (decide(Settings(), found).outcome == "fail") == bool(some & others)


def test_rows_equal_in_every_column_fail_where_a_column_tells_rows_apart() -> None:
    """Scores of two digits share all their values; a text as well tells copies from rows that are alike."""
    rng = np.random.default_rng(4)
    scores = [np.round(rng.beta(0.5, 8, 5_000), 2) for _ in range(2)]
    texts = [[f"{side} {i}" for i in range(5_000)] for side in ("fit", "held")]
    fit, holdout = (sample_of(s, others={"text": t}) for s, t in zip(scores, texts, strict=True))
    found = measure(fit, holdout)
    assert (found.rows, decide(Settings(), found).outcome) == (0, "pass")
    leaked = sample_of(
        np.concatenate([scores[0][:400], scores[1][400:]]), others={"text": texts[0][:400] + texts[1][400:]}
    )
    found = measure(fit, leaked)
    finding = decide(Settings(), found)
    assert (found.rows, said(finding)) == (400, ("fail", "shared-rows", True))
    assert "400 of 5,000 held-out rows equal a fit row in every column" in finding.message


def test_malicious_rows_among_the_benign_ones_fail() -> None:
    """Ids or whole rows show it; without either nothing is said of it."""
    rng = np.random.default_rng(5)
    fit, holdout, bad = (rng.random(n) for n in (900, 1000, 500))
    bad[:60] = holdout[:60]
    names = [[f"{side}{i}" for i in range(n)] for side, n in (("f", 900), ("h", 1000), ("m", 500))]
    names[2][:60] = names[1][:60]
    for given_ids in (True, False):
        kinds: tuple[Kind, ...] = ("benign", "benign", "malicious")
        parts = [
            sample_of(values, **({"ids": own} if given_ids else {"others": {"text": own}}), kind=kind)
            for values, own, kind in zip((fit, holdout, bad), names, kinds, strict=True)
        ]
        found = measure(*parts)
        assert found.malicious == 60
        finding = decide(Settings(), found, 500)
        assert said(finding) == ("fail", "both-kinds", True)
        assert "60 malicious rows are among the benign ones too" in finding.message
        assert decide(Settings.model_validate({"max_share": "20%"}), found, 500).outcome == "pass"
    alone = measure(sample_of(fit), sample_of(holdout), sample_of(bad, kind="malicious"))
    assert alone.malicious is None


@pytest.mark.parametrize("digits", [2, 3, 4, 6, 17])
def test_ties_are_no_overlap_however_many(digits: int) -> None:
    """A sound detector with few distinct scores shares most of its values between any two samples."""
    for seed in range(often(2, 8)):
        rng = np.random.default_rng(seed)
        fit, holdout = (np.round(rng.beta(0.5, 8, n), digits) for n in (20_000, 30_000))
        finding = judged(sample_of(fit), sample_of(holdout))
        assert said(finding) in (("pass", "apart", True), ("inconclusive", "cannot-tell", False))
        assert (finding.reason == "apart") == (digits > 4), "what cannot be told never blocks"


# --- what can be told, and from what share on ---------------------------------------------------------------


def test_three_decimals_tell_nothing_and_it_is_said() -> None:
    """No pass claims that nothing is shared; copies of half of the rows are not called sound either."""
    rng = np.random.default_rng(6)
    fit, holdout = (np.round(rng.beta(0.5, 8, n), 3) for n in (20_000, 30_000))
    finding = judged(sample_of(fit), sample_of(holdout))
    assert said(finding) == ("inconclusive", "cannot-tell", False)
    assert finding.message.startswith("by these scores, copies of fit rows ")
    assert finding.remedy == "name an id: the column that tells rows apart, as data.id"
    holdout[:15_000] = rng.choice(fit, 15_000)
    assert judged(sample_of(fit), sample_of(holdout)).outcome != "pass"


def test_of_scores_that_are_all_tied_nothing_can_be_told() -> None:
    finding = judged(sample_of(np.repeat([0.1, 0.2, 0.5], 100)), sample_of(np.repeat([0.1, 0.2, 0.9], 100)))
    assert said(finding) == ("inconclusive", "cannot-tell", False)
    assert finding.message == "by these scores, copies of fit rows cannot be told from ties"


@pytest.mark.each_run(1)
@pytest.mark.parametrize("digits", [6, 17])
def test_copies_are_seen_from_the_share_that_is_said(digits: int) -> None:
    """Copies show at that share in 9 of 10 cases at least, and at a third of it in few."""
    rng = np.random.default_rng(digits)

    def drawn(share: float) -> Shared:
        fit, holdout = (np.round(rng.beta(0.5, 8, n), digits) for n in (20_000, 30_000))
        copies = round(share * len(holdout))
        holdout[:copies] = rng.choice(fit, copies, replace=False)
        return shared_of(fit, holdout)

    seen_from = drawn(0.0).seen_from
    assert seen_from is not None
    assert np.mean([drawn(1.25 * seen_from).copied > 0 for _ in range(10)]) >= 0.9
    assert np.mean([drawn(0.3 * seen_from).copied > 0 for _ in range(10)]) <= 0.3


def test_a_division_by_gate_divides_copies_too_and_it_is_said() -> None:
    """Without names nothing tells copies; with ids, groups or whole rows it is known that none is on both sides."""
    rng = np.random.default_rng(9)
    values = np.repeat(rng.uniform(size=3_000), 2)
    finding = judged(*split(sample_of(values), 0.5, 1)[:2])
    assert said(finding) == ("inconclusive", "cannot-tell", False)
    assert finding.message.startswith("gate divided one sample at random, which also divides copies")
    named = judged(*split(sample_of(values, ids=np.arange(6_000)), 0.5, 1)[:2])
    assert said(named)[:2] == ("pass", "apart")


def test_tied_rows_of_small_segments_are_divided_as_the_split_divides_them() -> None:
    """Halves of segments of a few hundred rows with a few values each, and of pairs: no division raises an alarm."""
    rng = np.random.default_rng(7)
    for size in (60, 300):
        segments = 6_000 // size
        values = (np.repeat(rng.uniform(size=segments * (size // 2)), 2)).reshape(segments, -1)
        names = np.repeat([f"s{i}" for i in range(segments)], size)
        whole = sample_of(values.ravel(), segments=names)
        for seed in range(3):
            fit, holdout, _ = split(whole, 0.5, seed)
            assert decide(Settings(), measure(fit, holdout)).outcome != "fail"


# --- items that recur -----------------------------------------------------------------------------------------


def recurring(rng: np.random.Generator, days: int, items: int) -> tuple[np.ndarray, np.ndarray]:
    """The same items every day, each with its own score, beside as many rows that come once."""
    scores = rng.uniform(size=items)
    values = np.concatenate([np.concatenate([scores, rng.uniform(size=items)]) for _ in range(days)])
    return values, np.repeat(np.arange(days), 2 * items) * 86_400 + 10**9


def test_items_that_recur_from_day_to_day_are_no_copies_of_earlier_ones() -> None:
    """Divided by time they are on both sides, as they are inside the fit sample; real copies still are found."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        values, when = recurring(rng, 2, 600)
        half = len(values) // 2
        # Each item comes twice in the fit days and once later, or in one of each: pairs and ties alike.
        fresh = rng.uniform(size=1200)
        again = np.concatenate([rng.choice(values[half:], 300, replace=False), fresh])
        fit = sample_of(values, times=when)
        holdout = sample_of(again, times=np.full(len(again), 2 * 86_400 + 10**9))
        finding = judged(fit, holdout)
        assert said(finding)[:2] in (("pass", "recurring"), ("pass", "apart"))
    once = rng.uniform(size=6_000)
    fit = sample_of(once, times=np.arange(6_000) + 10**9)
    holdout = sample_of(np.append(once[:2_999], 0.5), times=np.arange(3_000) + 2 * 10**9)
    assert judged(fit, holdout).reason == "shared-rows"


def shared(across: int, n: int = 1_000, **more: Any) -> Shared:
    """So many pairs on both sides of samples of 1,000 rows, where chance puts one."""
    known = {
        "unit": "rows",
        "n": n,
        "fit_n": n,
        "one_of": 1,
        "rows": 2 * n,
        "single": 2 * (n - across),
        "across": across,
        "fit": 0,
        "held_out": 0,
        "expected": (across / 2 if across < 5 else 1.0, 0.5, 0.5),
        "tied": 0,
        "even": 0.0,
    }
    return Shared.model_validate(known | more)


def counted(scores: Shared, **more: Any) -> Overlap:
    known = {"benign": scores.n, "ids": None, "rows": None, "shared_groups": None, "rows_in_shared_groups": None}
    return Overlap.model_validate(known | {"scores": scores} | more)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (counted(shared(0)), ("pass", "apart", True)),
        (counted(shared(300)), ("fail", "shared-rows", True)),
        (counted(shared(300), ids=0), ("inconclusive", "shared-scores", False)),
        (counted(shared(600), ids=0), ("fail", "shared-scores", True)),
        (counted(shared(300), recurring=shared(200)), ("pass", "recurring", True)),
        (counted(shared(300), recurring=shared(100)), ("fail", "shared-rows", True)),
        (counted(shared(600), recurring=shared(400)), ("inconclusive", "mostly-recurring", True)),
        (counted(shared(0), ids=2), ("fail", "shared-rows", True)),
        (counted(shared(0), rows=2), ("fail", "shared-rows", True)),
        (counted(shared(0), rows=1), ("pass", "apart", True)),
        (counted(shared(0), shared_groups=1, rows_in_shared_groups=2), ("fail", "shared-groups", True)),
        (counted(shared(0), divided=True), ("inconclusive", "cannot-tell", False)),
        (counted(shared(0), divided=True, rows=0), ("pass", "apart", True)),
        (counted(shared(0, single=0)), ("inconclusive", "cannot-tell", False)),
        (
            counted(shared(100, single=9, fit=900, expected=(500.0, 250.0, 250.0))),
            ("inconclusive", "cannot-tell", False),
        ),
    ],
)
def test_the_finding_follows_from_what_was_counted(found: Overlap, expected: tuple[str, str, bool]) -> None:
    finding = decide(Settings(), found)
    assert said(finding) == expected
    assert (finding.remedy is None) == (finding.outcome == "pass")
    if "recurring" in finding.reason:
        assert "recur inside the fit sample" in finding.message


def test_values_that_come_often_and_evenly_are_copies() -> None:
    """Every fit row twice among the held-out ones: no pair, but no chance divides so evenly."""
    rng = np.random.default_rng(10)
    scores = rng.beta(0.5, 8, 1_500)
    for fitted, held_out in ((1, 2), (1, 12), (5, 1), (2, 2), (3, 2)):
        found = shared_of(np.tile(scores, fitted), np.append(np.tile(scores, held_out), 0.5))
        assert found.copied > 0.9 * 1_500 * min(held_out, 1)
    names = [[f"{side}{i}" for i in range(n)] for side, n in (("f", 1_500), ("h", 3_001))]
    finding = judged(sample_of(scores, ids=names[0]), sample_of(np.append(np.tile(scores, 2), 0.5), ids=names[1]))
    assert said(finding) == ("fail", "shared-scores", True)


@pytest.mark.each_run(6)
@pytest.mark.parametrize("digits", [6, 17])
@pytest.mark.parametrize("copies", [0, 20, 300, 3_000, 20_000])
def test_copied_rows_are_found_among_ties(copies: int, digits: int) -> None:
    rng = np.random.default_rng(copies)
    fit, holdout = (np.round(rng.beta(0.5, 8, n), digits) for n in (20_000, 30_000))
    holdout[:copies] = fit[:copies]
    found = measure(sample_of(fit), sample_of(holdout))
    finding = decide(Settings(), found)
    if digits == 17 and copies >= 300:
        assert found.scores.copied == pytest.approx(copies, rel=0.1)
    assert found.scores.copied <= copies + 450, "rows that are alike by chance are not called copies"
    assert finding.outcome == ("fail" if copies > (30 if digits == 17 else 300) else "pass")
    if finding.outcome == "fail":
        assert (finding.reason, finding.required) == ("shared-rows", True)
        assert "are copies" in finding.message


DISGUISES = {"none": lambda values: values, "float32": lambda values: values.astype(np.float32).astype(np.float64)}


@pytest.mark.each_run(6)
@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("column", [None, "ids", "times", "segments", "groups"])
def test_no_other_column_hides_copies(column: str | None, share: float, disguise: str) -> None:
    """Under new ids they advise, and above half of the rows they block; in any other disguise they block."""
    rng = np.random.default_rng(3)
    n = 6_000
    fit, holdout = rng.beta(0.5, 8, n), rng.beta(0.5, 8, n + 1)
    copies = round(share * n)
    holdout[:copies] = fit[:copies]
    holdout = DISGUISES[disguise](holdout)
    parts = []
    for name, values in (("fit", fit), ("holdout", holdout)):
        own: Any = [f"{name} {i if column != 'segments' else 1}" for i in range(len(values))]
        if column == "times":
            own = np.arange(len(values)) + 10**9 + (0 if name == "fit" else 10**6)
        parts.append(sample_of(values, **({} if column is None else {column: own})))
    found = measure(*parts)
    finding = decide(Settings(), found)
    if column == "ids":
        expected = ("fail", True) if share > 0.5 else ("inconclusive", False)
        assert (finding.outcome, finding.required, finding.reason) == (*expected, "shared-scores")
    else:
        assert said(finding) == ("fail", "shared-rows", True)
    assert found.scores.copied == pytest.approx(copies, rel=0.1)


def test_groups_on_both_sides_are_an_overlap() -> None:
    rng = np.random.default_rng(4)
    fit, holdout = (
        sample_of(rng.uniform(size=len(users)), groups=users)
        for users in (["a", "a", "b", "c"], ["c", "c", "d", "b", "e"])
    )
    found = measure(fit, holdout)
    assert (found.scores.unit, found.shared_groups, found.rows_in_shared_groups) == ("groups", 2, 3)
    finding = decide(Settings(), found)
    assert (finding.outcome, finding.reason) == ("fail", "shared-groups")
    assert "2 groups with 3 held-out rows have fit rows too" in finding.message


def test_the_policy_says_how_much_may_be_shared() -> None:
    few = counted(shared(0), ids=5)
    for share, outcome in (("0", "fail"), ("0.004", "fail"), ("0.005", "pass"), ("0.5%", "pass")):
        finding = decide(Settings.model_validate({"max_share": share, "required": False}), few)
        assert (finding.outcome, finding.required) == (outcome, False)
    for share in ("1", "-0.1"):
        with pytest.raises(ValidationError, match="must be at least 0 and below 1"):
            Settings.model_validate({"max_share": share})


def test_of_one_value_in_many_it_is_said_and_counted_as_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gate.rows.copies.ENOUGH", 4_000)
    rng = np.random.default_rng(12)
    fit, holdout = rng.random(20_000), rng.random(20_000)
    holdout[:8_000] = fit[:8_000]
    found = measure(sample_of(fit), sample_of(holdout))
    assert found.scores.one_of == 11
    assert found.scores.copied == pytest.approx(8_000, rel=0.15)
    assert "with one score (of one score in 11) have one on each side" in decide(Settings(), found).message


# --- the same samples -----------------------------------------------------------------------------------------


def test_identical_samples_are_refused_whatever_their_ids(tmp_path: Path) -> None:
    values = np.random.default_rng(5).uniform(size=100)
    shuffled = values[::-1].copy()
    for other in (values, shuffled):
        with pytest.raises(GateError, match=r"must hold other rows than the fit sample, got the same 100 scores"):
            gate.run(values, other, release="r")
    ids = [f"row {i}" for i in range(100)]
    for names in (ids, ids[::-1], [f"new {i}" for i in range(100)]):
        with pytest.raises(GateError, match="the same 100 scores"):
            refuse_identical(sample_of(values, ids=ids), sample_of(shuffled, ids=names))
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", values)
    files = [read([str(tmp_path / f"{name}.npy")], Columns(), (0.0, 1.0)) for name in ("a", "b")]
    with pytest.raises(GateError, match=r"b\.npy: must hold other rows than the fit sample, got the same bytes as in "):
        refuse_identical(*files)
    refuse_identical(*split(sample_of(np.repeat(values, 2)), 0.5, 1)[:2])


def test_without_fit_rows_nothing_is_measured() -> None:
    assert overlap.measure(replace(case(POLICY, [0.1, 0.2], [0.3, 0.4]), fit=None)) is None


def test_chance_is_compared_at_a_level_that_sound_samples_hardly_reach() -> None:
    assert shared(5, expected=(2.5, 1.0, 1.0), fit=2, held_out=2).copied == 0
    assert LEVEL <= 1e-6
