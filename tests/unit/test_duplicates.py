"""The duplicates check: no row counts twice, with ids by these, without them by what a random division would share."""

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

import gate
from gate.checks import parse_policy
from gate.checks.check import Judgement
from gate.checks.duplicates import Duplicates, Repeats, decide, measure
from gate.checks.duplicates import DuplicatesSettings as Settings
from gate.checks.shared import Shared, compare_scores
from gate.errors import GateError
from gate.policy import Columns
from gate.scores import Scores, from_object, read, split
from gate.statistics.binomial import clopper_pearson

DOMAIN = (0.0, 1.0)
IDS = Columns(id="row")


POLICY_TEXT = "version: 1\nname: x\ntargets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"
POLICY = parse_policy(POLICY_TEXT, "p").policy


def shared_by(fit: np.ndarray, holdout: np.ndarray) -> Shared:
    return compare_scores(Scores(fit), Scores(holdout))


def judged(fit: Scores | np.ndarray, holdout: Scores | np.ndarray) -> Judgement:
    """What the default settings say of two samples, by their ids and by the scores that they share."""
    samples = [sample if isinstance(sample, Scores) else Scores(sample) for sample in (fit, holdout)]
    found = measure(case(POLICY, *samples))
    assert found is not None
    return decide(Settings(), found, compare_scores(*samples))


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
        from_object(
            rows([i / 100 for i in part], [f"r{i}" for i in part], group=[f"g{i % 4}" for i in part]),
            "x",
            Columns(id="row", group="group"),
            DOMAIN,
        )
        for part in (items, shuffled, sorted({*items}))
    ]
    for scores in samples:
        assert len(scores) == len({*items}) == len(scores.ids)
        assert (scores.sha256, scores.rows_sha256) == (samples[-1].sha256, samples[-1].rows_sha256)
        assert np.array_equal(scores.group_sizes, samples[-1].group_sizes)
    alone = replace(case(POLICY, [0.1, 0.2], samples[0]), fit=None)
    assert measure(alone) == Duplicates(holdout=Repeats(rows=len(items), repeated=len(items) - len({*items})))


def test_the_oldest_of_repeated_rows_stands_for_all() -> None:
    times = ["2026-03-02", "2026-03-01", "2026-03-04", "2026-03-03"]
    table = rows([0.1, 0.1, 0.2, 0.3], ["a", "a", "b", "c"], seen=times)
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        scores = from_object(table.take(order), "x", Columns(id="row", timestamp="seen"), DOMAIN)
        seen = dict(zip(scores.ids.to_pylist(), np.asarray(scores.timestamps), strict=True))
        days = {name: str(np.datetime64(int(moment), "us"))[:10] for name, moment in seen.items()}
        assert days == {"a": "2026-03-01", "b": "2026-03-04", "c": "2026-03-03"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "must have one score for each id, got 'b' with 0.2 and 0.25; give every row an id of its own"),
        ({"group": ["x", "y", "x", "z"]}, "must have one group for each id, got 'b' with 'y' and 'z'; give"),
        ({"segment": ["x", "y", "x", "z"]}, "must have one segment for each id, got 'b' with 'y' and 'z'; give"),
    ],
)
def test_one_id_with_differing_values_is_an_error(columns: dict[str, list[str]], message: str) -> None:
    last = 0.2 if columns else np.float64(0.25)
    named = Columns(id="row", **{name: name for name in columns})
    with pytest.raises(GateError) as refused:
        from_object(rows([0.1, 0.2, 0.3, last], ["a", "b", "c", "b"], **columns), "x", named, DOMAIN)
    assert str(refused.value).startswith(f"x: {message}")


def test_an_id_for_all_rows_is_an_error() -> None:
    with pytest.raises(GateError, match="x: must hold at least 2 benign ids, got 1; give every row its own id"):
        from_object(rows([0.1, 0.1, 0.1], ["a", "a", "a"]), "x", IDS, DOMAIN)


def test_a_split_divides_items_and_their_repeats() -> None:
    rng = np.random.default_rng(1)
    items = rng.integers(0, 500, 2_000)
    scores = from_object(rows(items / 500, [f"r{i}" for i in items]), "x", IDS, DOMAIN)
    fit, holdout, _ = split(scores, 0.4, 7)
    for part in (fit, holdout):
        ids = part.ids.to_pylist()
        assert part.repeats is not None
        repeated = {name: int((items == int(name[1:])).sum()) - 1 for name in ids}
        assert len(part.repeats) == sum(repeated.values())
        assert np.bincount(part.repeats, minlength=len(ids)).tolist() == [repeated[name] for name in ids]


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 10**6), st.integers(0, 2_000), st.sampled_from(["0", "0.0001", "0.001", "0.5%"]))
def test_more_repeats_than_allowed_fail(n: int, repeated: int, share: str) -> None:
    settings_ = Settings.model_validate({"max_share": share})
    for sample in ("fit", "holdout", "malicious"):
        found = Duplicates(**{sample: Repeats(rows=n + repeated, repeated=repeated)})
        decided = decide(settings_, found, None)
        assert (decided.outcome == "fail") == (repeated > settings_.max_share * (n + repeated))
        assert decided.reason == ("repeated-ids" if decided.outcome == "fail" else "once")


# --- without ids ------------------------------------------------------------------------------------------


@pytest.mark.each_run(5)
@pytest.mark.parametrize("digits", [4, 5, 6, 17])
@pytest.mark.parametrize(("distinct", "times"), [(1_000, 120), (60_000, 2), (100, 1_200), (10, 12_000)])
@pytest.mark.parametrize("side", ["holdout", "fit", "both"])
def test_a_tiled_sample_is_inconclusive(side: str, distinct: int, times: int, digits: int) -> None:
    rng = np.random.default_rng(distinct)

    def drawn(tiled: bool) -> np.ndarray:
        values = np.round(rng.beta(0.5, 8, distinct if tiled else distinct * times), digits)
        return np.tile(values, times) if tiled else values

    if digits <= 5 and (distinct == 60_000 or (distinct, side) == (10, "both")):
        return  # if most scores are tied by nature, some more or fewer pairs do not show
    found = judged(drawn(side != "holdout"), drawn(side != "fit"))
    assert (found.outcome, found.required, found.reason) == ("inconclusive", True, "repeated-scores")
    assert found.remedy is not None
    assert "data.id" in found.remedy
    assert "data.group" in found.remedy


def test_the_repeats_are_about_as_many_as_there_are() -> None:
    rng = np.random.default_rng(5)
    for repeated in (300, 3_000, 20_000):
        fit, holdout = rng.beta(0.5, 8, 60_000), rng.beta(0.5, 8, 100_000)
        holdout[:repeated] = holdout[-repeated:]
        assert shared_by(fit, holdout).repeated == pytest.approx(repeated, rel=0.25)


def test_few_repeats_are_let_pass_and_more_are_not() -> None:
    rng = np.random.default_rng(6)
    for repeated, outcome in ((0, "pass"), (60, "pass"), (400, "inconclusive")):
        fit, holdout = rng.beta(0.5, 8, 100_000), rng.beta(0.5, 8, 100_000)
        holdout[:repeated] = holdout[-repeated:] if repeated else holdout[:0]
        assert judged(fit, holdout).outcome == outcome


def test_no_bad_release_passes_because_its_rows_are_tiled() -> None:
    """A true rate at the edge of the tolerance: one run in 40 may pass, but with copies every third would.

    In 200 runs, the count at the fit rows' own quantile says which would pass, and the check whether they may; some
    runs are judged as a whole, which takes longer.
    """
    rng = np.random.default_rng(7)
    fooled = 0
    releases = often(40, 200)
    for release in range(releases):
        fit = rng.uniform(size=5_000)
        base = np.where(rng.random(1_000) < 0.015, rng.uniform(0.99, 1, 1_000), rng.uniform(0, 0.99, 1_000))
        tiled = np.tile(base, int(rng.integers(10, 30)))
        flagged = int((tiled >= np.quantile(fit, 0.99)).sum())
        _, upper = clopper_pearson(flagged, len(tiled), 0.05)
        fooled += upper <= 0.015
        assert decide(Settings(), Duplicates(), shared_by(fit, tiled)).outcome == "inconclusive"
        if release < often(3, 10):
            policy = parse_policy(POLICY_TEXT, "p")
            verdict = gate.evaluate(gate.fit(fit, policy=policy), tiled, fit=fit, policy=policy)
            assert verdict.outcome != "pass"
    assert fooled > releases / 10, "the copies would have passed"


@pytest.mark.parametrize("copies", [1, 5])
def test_rows_may_repeat_within_groups_but_groups_may_not(copies: int) -> None:
    """What a group says again and again is one cluster; the same group under new names is not."""
    rng = np.random.default_rng(8)
    columns = Columns(group="user")
    tables = []
    for side in ("fit", "holdout"):
        users = rng.integers(0, 3_000, 30_000)
        said = rng.beta(0.5, 8, 40_000)[users * 13 + rng.integers(0, 10, len(users))]  # each user repeats ten things
        tables.append(pa.table({"score": said, "user": [f"{side} {user}" for user in users]}))
    fit, holdout = (from_object(table, "x", columns, DOMAIN) for table in tables)
    if copies > 1:
        renamed = [[f"{i} {user}" for user in tables[1]["user"].to_pylist()] for i in range(copies)]
        tiled = pa.concat_tables([tables[1].set_column(1, "user", pa.array(names)) for names in renamed])
        holdout = from_object(tiled, "x", columns, DOMAIN)
    assert judged(fit, holdout).outcome == ("inconclusive" if copies > 1 else "pass")


def test_under_ids_of_their_own_only_most_rows_block() -> None:
    rng = np.random.default_rng(9)
    n = 20_000
    for share, blocks in ((0.2, False), (1.0, True)):
        base = rng.beta(0.5, 8, n)
        again = base[: int(share * n)]
        held = np.concatenate([base, *[again] * (4 if blocks else 1)])
        tables = (("f", rng.beta(0.5, 8, n)), ("h", held))
        fit, holdout = (from_object(rows(v, [f"{s}{i}" for i in range(len(v))]), "x", IDS, DOMAIN) for s, v in tables)
        found = judged(fit, holdout)
        assert (found.outcome, found.required) == ("inconclusive", blocks)


# --- as a user sees them ----------------------------------------------------------------------------------


def test_files_of_one_sample_are_told_apart_by_ids(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pa.parquet.write_table(rows([0.1, 0.2, 0.3], ["x", "y", name]), tmp_path / f"{name}.parquet")
    scores = read([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], IDS, DOMAIN)
    assert sorted(scores.ids.to_pylist()) == ["a", "b", "x", "y"]
    assert scores.repeats is not None
    assert len(scores.repeats) == 2
