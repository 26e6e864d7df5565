"""The duplicates check: no row counts twice, by ids, by whole rows, or by what the order of the files shows."""

from __future__ import annotations

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
from samples import column_of, sample_of

import gate
from gate.checks import parse_policy
from gate.checks.check import Judgement
from gate.checks.duplicates import Duplicates, Repeats, decide, measure
from gate.checks.duplicates import DuplicatesSettings as Settings
from gate.checks.shared import Shared, compare_scores
from gate.errors import GateError
from gate.policy import Columns
from gate.rows.reading import from_object, read
from gate.rows.sample import Sample
from gate.rows.split import split
from gate.statistics.binomial import clopper_pearson

DOMAIN = (0.0, 1.0)
IDS = Columns(id="row")
POLICY_TEXT = "version: 1\nname: x\ntargets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"
POLICY = parse_policy(POLICY_TEXT, "p").policy


def judged(fit: Sample, holdout: Sample, malicious: Sample | None = None) -> Judgement:
    """What the default settings say of samples, by their ids, whole rows, order, and the scores that they share."""
    found = measure(case(POLICY, fit, holdout, malicious))
    assert found is not None
    return decide(Settings(), found, compare_scores(fit, holdout))


def said(finding: Judgement) -> tuple[str, str, bool]:
    return finding.outcome, finding.reason, finding.required


def rows(scores: Any, names: Any, **columns: Any) -> pa.Table:
    return pa.table({"score": scores, "row": names, **columns})


# --- with ids -----------------------------------------------------------------------------------------------


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.integers(0, 30), min_size=2, max_size=60), st.permutations(range(60)))
def test_rows_with_one_id_are_one_observation(items: list[int], order: list[int]) -> None:
    """This holds for any order of rows and any number of copies."""
    shuffled = [items[i] for i in order if i < len(items)]
    if len({*items}) < 2:
        return
    samples = [
        sample_of([i / 100 for i in part], ids=[f"r{i}" for i in part], groups=[f"g{i % 4}" for i in part])
        for part in (items, shuffled, sorted({*items}))
    ]
    for sample in samples:
        assert len(sample) == len({*items})
        assert (sample.fingerprint, sample.rows_sha256) == (samples[-1].fingerprint, samples[-1].rows_sha256)
    alone = replace(case(POLICY, [0.1, 0.2], samples[0]), fit=None)
    repeated = len(items) - len({*items})
    assert measure(alone) == Duplicates(holdout=Repeats(rows=len(items), by="ids", repeated=repeated))


def test_one_id_with_differing_scores_is_an_error() -> None:
    with pytest.raises(
        GateError, match=r"^x: must have one score for each id, got 'b' with 0\.2 and 0\.25; give every"
    ):
        from_object(rows([0.1, 0.2, 0.3, 0.25], ["a", "b", "c", "b"]), "x", IDS, DOMAIN)


def test_an_id_for_all_rows_is_an_error() -> None:
    with pytest.raises(GateError, match="x: must hold at least 2 benign ids, got 1; give every row its own id"):
        from_object(rows([0.1, 0.1, 0.1], ["a", "a", "a"]), "x", IDS, DOMAIN)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.integers(1, 10**6),
    st.integers(0, 2_000),
    st.sampled_from(["0", "0.0001", "0.001", "0.5%"]),
    st.sampled_from(["ids", "rows"]),
)
def test_more_repeats_than_allowed_fail(n: int, repeated: int, share: str, by: Any) -> None:
    settings_ = Settings.model_validate({"max_share": share})
    for sample in ("fit", "holdout", "pool", "malicious"):
        found = Duplicates(**{sample: Repeats(rows=n + repeated, by=by, repeated=repeated)})
        decided = decide(settings_, found, None)
        assert (decided.outcome == "fail") == (repeated > settings_.max_share * (n + repeated))
        assert decided.reason == ("repeated-rows" if decided.outcome == "fail" else "once")
        assert ("repeat an id" if by == "ids" else "in every column") in decided.message


# --- a file concatenated with itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("named", ["ids", "rows"])
def test_a_file_with_rows_again_fails_before_it_is_divided(named: str, share: float) -> None:
    """`cat a.csv a.csv`: copies are counted in the whole, and a split takes them to one side."""
    rng = np.random.default_rng(1)
    drawn = np.concatenate([np.arange(4_000), np.arange(int(4_000 * share))])
    scores, names = rng.beta(0.5, 8, 4_000)[drawn], [f"n{i}" for i in drawn]
    whole = sample_of(scores, **({"ids": names} if named == "ids" else {"others": {"text": names}}))
    fit, holdout, _ = split(whole, 0.5, 3)
    finding = judged(fit, holdout)
    assert said(finding) == ("fail", "repeated-rows", True)
    assert f"{int(4_000 * share):,} of {len(drawn):,} benign rows " in finding.message
    assert not {*column_of(fit)} & {*column_of(holdout)}


def test_without_names_a_file_twice_shows_by_its_order() -> None:
    rng = np.random.default_rng(2)
    once = rng.beta(0.5, 8, 4_000)
    finding = judged(*split(sample_of(np.tile(once, 2)), 0.5, 3)[:2])
    assert (finding.outcome, finding.reason) == ("inconclusive", "repeated-scores")
    assert "of 8,000 benign rows have the scores of others, by their order in the files" in finding.message
    sound = judged(*split(sample_of(rng.beta(0.5, 8, 8_000)), 0.5, 3)[:2])
    assert sound.outcome == "pass"


def test_repeated_malicious_rows_fail_or_are_inconclusive() -> None:
    """Fifty copies of each prove no detection."""
    rng = np.random.default_rng(3)
    fit, holdout = (sample_of(rng.random(2_000), ids=[f"{s}{i}" for i in range(2_000)]) for s in "fh")
    few = rng.beta(4, 2, 40)
    bad = sample_of(np.tile(few, 50), others={"text": np.array([f"m{i}" for i in range(40)] * 50)}, kind="malicious")
    assert said(judged(fit, holdout, bad)) == ("fail", "repeated-rows", True)
    alone = judged(fit, holdout, sample_of(np.tile(few, 50), kind="malicious"))
    assert alone.outcome != "pass"


# --- without names --------------------------------------------------------------------------------------------


@pytest.mark.each_run(4)
@pytest.mark.parametrize("digits", [6, 17])
@pytest.mark.parametrize(("distinct", "times"), [(1_000, 120), (60_000, 2), (100, 1_200)])
@pytest.mark.parametrize("side", ["holdout", "fit", "both"])
def test_a_tiled_sample_is_inconclusive(side: str, distinct: int, times: int, digits: int) -> None:
    rng = np.random.default_rng(distinct)

    def drawn(tiled: bool) -> np.ndarray:
        values = np.round(rng.beta(0.5, 8, distinct if tiled else distinct * times), digits)
        return np.tile(values, times) if tiled else values

    found = judged(sample_of(drawn(side != "holdout")), sample_of(drawn(side != "fit")))
    assert said(found) == ("inconclusive", "repeated-scores", True)
    assert found.remedy is not None
    assert "data.id" in found.remedy
    assert "data.group" in found.remedy


def test_few_repeats_are_let_pass_and_more_are_not() -> None:
    rng = np.random.default_rng(6)
    for repeated, outcome in ((0, "pass"), (40, "pass"), (1_000, "inconclusive")):
        fit, holdout = rng.beta(0.5, 8, 50_000), rng.beta(0.5, 8, 50_000)
        holdout[:repeated] = holdout[-repeated:] if repeated else holdout[:0]
        assert judged(sample_of(fit), sample_of(holdout)).outcome == outcome


def test_no_bad_release_passes_because_its_rows_are_tiled() -> None:
    """A true rate at the edge of the tolerance: one run in 40 may pass, but with copies every third would."""
    rng = np.random.default_rng(7)
    fooled = 0
    releases = often(15, 200)
    for _ in range(releases):
        fit = rng.uniform(size=5_000)
        base = np.where(rng.random(1_000) < 0.015, rng.uniform(0.99, 1, 1_000), rng.uniform(0, 0.99, 1_000))
        tiled = np.tile(base, int(rng.integers(10, 30)))
        flagged = int((tiled >= np.quantile(fit, 0.99)).sum())
        fooled += clopper_pearson(flagged, len(tiled), 0.05)[1] <= 0.015
        assert judged(sample_of(fit), sample_of(tiled)).outcome == "inconclusive"
    assert fooled > releases / 20, "the copies would have passed"
    policy = parse_policy(POLICY_TEXT, "p")
    assert gate.evaluate(gate.fit(fit, policy=policy), tiled, fit=fit, policy=policy).outcome != "pass"


def test_rows_may_repeat_within_groups() -> None:
    """What a group says again and again is one cluster."""
    rng = np.random.default_rng(8)
    parts = []
    for side in ("fit", "holdout"):
        users = rng.integers(0, 3_000, 30_000)
        said_ = rng.beta(0.5, 8, 40_000)[users * 13 + rng.integers(0, 10, len(users))]  # each repeats ten things
        parts.append(sample_of(said_, groups=[f"{side} {user}" for user in users]))
    assert judged(*parts).outcome != "fail"
    assert not judged(*parts).required or judged(*parts).outcome == "pass"


def shared(fit: int, held_out: int) -> Shared:
    """So many pairs inside samples of 1,000 rows, where chance puts one."""
    known = {"unit": "rows", "n": 1_000, "fit_n": 1_000, "one_of": 1, "rows": 2_000, "single": 2_000, "across": 0}
    more = {"fit": fit, "held_out": held_out, "expected": (0.5, 0.5, 0.5), "tied": 0, "even": 0.0}
    return Shared.model_validate(known | more)


SOUND = shared(0, 0)
NAMED = Repeats(rows=1_000, by="ids")


@pytest.mark.parametrize(
    ("found", "scores", "expected"),
    [
        (Duplicates(fit=NAMED, holdout=NAMED), SOUND, ("pass", "once", True)),
        (Duplicates(fit=NAMED, holdout=NAMED), shared(0, 200), ("inconclusive", "repeated-scores", False)),
        (Duplicates(fit=NAMED, holdout=NAMED), shared(200, 600), ("inconclusive", "repeated-scores", True)),
        (Duplicates(holdout=Repeats(rows=1_000, halves=SOUND)), SOUND, ("pass", "once", True)),
        (
            Duplicates(holdout=Repeats(rows=1_000, halves=SOUND)),
            shared(0, 200),
            ("inconclusive", "repeated-scores", True),
        ),
        (Duplicates(holdout=Repeats(rows=1_000)), SOUND, ("inconclusive", "cannot-tell", False)),
        (Duplicates(holdout=NAMED, malicious=Repeats(rows=9)), None, ("inconclusive", "cannot-tell", False)),
    ],
)
def test_the_finding_follows_from_what_was_counted(
    found: Duplicates, scores: Shared | None, expected: tuple[str, str, bool]
) -> None:
    finding = decide(Settings(), found, scores)
    assert said(finding) == expected
    assert (finding.remedy is None) == (finding.outcome == "pass")


# --- as a user sees them ----------------------------------------------------------------------------------


def test_files_of_one_sample_are_told_apart_by_ids(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pa.parquet.write_table(rows([0.1, 0.2, 0.3], ["x", "y", name]), tmp_path / f"{name}.parquet")
    sample = read([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], IDS, DOMAIN)
    assert sorted(column_of(sample, "id")) == ["a", "b", "x", "y"]
    assert sample.repeated == 2
