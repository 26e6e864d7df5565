"""The overlap check: copies of fit rows among the held-out ones, told from scores that are alike by chance."""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from cases import case
from drawing import examples, often
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gate
from gate.checks import overlap, parse_policy
from gate.checks.overlap import Overlap, decide, refuse_identical
from gate.checks.overlap import OverlapSettings as Settings
from gate.checks.shared import Shared, compare_scores, near_cells
from gate.errors import GateError
from gate.policy import Columns
from gate.scores import Scores, from_object, split
from gate.statistics.ties import LEVEL

DATA = Path(os.environ.get("GATE_DATA", Path(__file__).parents[3] / "shared" / "data"))
PROFILES = json.loads((Path(__file__).parents[1] / "golden" / "ties.json").read_text())


def sample(values: list[float] | np.ndarray, ids: list[str] | None = None) -> Scores:
    names = None if ids is None else pa.array(ids, pa.large_string())
    return Scores(np.array(values, dtype=np.float64), (), None, names)


POLICY = parse_policy("version: 1\nname: x\ntargets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n", "p").policy


def measure(fit: Scores, holdout: Scores) -> Overlap:
    found = overlap.measure(case(POLICY, fit, holdout))
    assert found is not None
    return found


def shared_of(fit: np.ndarray, holdout: np.ndarray) -> Shared:
    return compare_scores(sample(fit), sample(holdout))


# --- what chance shares -------------------------------------------------------------------------------------

SMALL = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.4, 0.5]), min_size=2, max_size=30)


@settings(max_examples=examples(200), deadline=None)
@given(SMALL, SMALL)
def test_shared_scores_are_those_found_one_by_one(fit: list[float], holdout: list[float]) -> None:
    assert shared_of(np.array(fit), np.array(holdout)).shared == len({*fit} & {*holdout})


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=400), st.integers(0, 2**32))
def test_shared_scores_are_counted_alike_in_pieces(sizes: list[int], seed: int) -> None:
    """Blocks of tied rows, some larger than a piece, whatever their order."""
    rng = np.random.default_rng(seed)
    pooled = np.repeat(rng.uniform(size=len(sizes)), np.array(sizes) ** rng.integers(1, 5))[:20_000]
    held = rng.random(len(pooled)) < rng.uniform(0.05, 0.95)
    held[:2], held[-2:] = True, False
    if len(pooled) < 4:
        return
    found = shared_of(pooled[~held], pooled[held])
    assert found.shared == len(np.intersect1d(near_cells(pooled[held]), near_cells(pooled[~held])))
    assert 0 <= found.expected <= found.n
    assert 1.0 in (found.fewer, found.more)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4]), min_size=4, max_size=9), st.data())
def test_what_chance_shares_is_the_mean_over_every_division(pooled: list[float], data: st.DataObject) -> None:
    n = data.draw(st.integers(2, len(pooled) - 2))
    counts = []
    for held in itertools.combinations(range(len(pooled)), n):
        fit = [value for i, value in enumerate(pooled) if i not in held]
        counts.append(len({pooled[i] for i in held} & {*fit}))
    found = shared_of(np.array(pooled[n:]), np.array(pooled[:n]))
    assert found.expected == pytest.approx(np.mean(counts), abs=1e-9)
    as_few, as_many = np.mean(np.array(counts) <= found.shared), np.mean(np.array(counts) >= found.shared)
    # The bounds divide each value by itself; that n is fixed changes a chance by a factor below that of n itself.
    q = n / len(pooled)
    factor = 1.2 * math.sqrt(2 * math.pi * len(pooled) * q * (1 - q))
    assert found.fewer * factor >= as_few
    assert found.more * factor >= as_many


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(2, 100_000), st.integers(2, 100_000))
@example(11, 14)
@example(385, 482)
@example(76_462, 86_504)
def test_without_ties_chance_shares_nothing_whatever_the_sizes(fit_n: int, n: int) -> None:
    """Not even a rounding error's worth, which may lie below zero."""
    values = np.linspace(0.5, 1.0, fit_n + n)
    found = shared_of(values[:fit_n], values[fit_n:])
    assert (found.shared, found.expected, found.fewer, found.more) == (0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize(("fit_n", "n"), [(11, 14), (385, 482), (76_462, 86_504)])
def test_any_two_sample_sizes_come_to_a_record(fit_n: int, n: int) -> None:
    rng = np.random.default_rng(n)
    record = gate.run(rng.uniform(size=fit_n), rng.uniform(size=n), release="r").record
    assert record.of(Overlap).scores.expected >= 0


POOLS = {
    "4 digits": lambda rng: np.round(rng.beta(0.5, 8, 9_000), 4),
    "6 digits": lambda rng: np.round(rng.beta(0.5, 8, 9_000), 6),
    "float32": lambda rng: rng.uniform(size=9_000).astype(np.float32).astype(np.float64),
    "trees": lambda rng: 1 / (1 + np.exp(-rng.integers(0, 2, (9_000, 12)) @ rng.normal(size=12))),
    "items": lambda rng: np.repeat(rng.uniform(size=4_000), rng.integers(1, 4, 4_000)),
    "zipf": lambda rng: rng.zipf(1.3, 5_000).clip(max=10**6) / 1e6,
}


@pytest.mark.each_run(1)
@pytest.mark.parametrize("name", POOLS)
def test_the_chances_are_bounds(name: str) -> None:
    """At most as many of 100 random divisions (--long: 200) as promised seem to share too few or too many."""
    rng, divisions = np.random.default_rng(len(name)), often(100, 200)
    found = []
    for i in range(divisions):
        pooled = rng.permutation(POOLS[name](rng))
        n = int(len(pooled) * (0.5, 0.1, 0.9)[i % 3])
        shared = shared_of(pooled[n:], pooled[:n])
        found.append((shared.fewer, shared.more))
    for level in (0.1, 0.02):
        assert (np.array(found) <= level).sum(axis=0).max() <= divisions * level
    assert np.min(found) > LEVEL


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
        assert min(shared.fewer, shared.more) > 1e-3
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
        assert min(shared.fewer, shared.more) > 1e-3
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


# --- near -------------------------------------------------------------------------------------------------


@settings(max_examples=examples(300), deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False, width=32), st.integers(-4, 4))
def test_a_float32_is_near_whatever_rounds_to_it_and_its_neighbours(value: float, steps: int) -> None:
    moved = np.float64(value)
    for _ in range(abs(steps)):
        moved = np.nextafter(moved, np.inf if steps > 0 else -np.inf)
    cells = near_cells(np.array([value + 0.0, moved + 0.0]))
    assert cells[0] == cells[1]


def test_near_scores_are_equal_as_float32() -> None:
    rng = np.random.default_rng(1)
    values = rng.uniform(0.5, 1, 100_000) * 10.0 ** rng.integers(-30, 30, 100_000)
    assert np.array_equal(near_cells(values), near_cells(values.astype(np.float32).astype(np.float64)))
    assert len(np.unique(near_cells(rng.uniform(0.5, 1, 1_000)))) > 990
    assert len(np.unique(near_cells(rng.uniform(0.5, 1, 1_000) * 1e-300))) > 990


# --- judged -------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100), deadline=None)
@given(st.sets(st.integers(0, 40), min_size=2), st.sets(st.integers(0, 40), min_size=2))
def test_a_shared_id_fails(some: set[int], others: set[int]) -> None:
    fit, holdout = (
        sample(np.full(len(part), score), [f"row {i}" for i in part]) for score, part in ((0.5, some), (0.25, others))
    )
    found = measure(fit, holdout)
    assert found.ids == len(some & others)
    assert (decide(Settings(), found).outcome == "fail") == bool(some & others)


@pytest.mark.parametrize("digits", [2, 3, 4, 6, 17])
def test_ties_are_no_overlap_however_many(digits: int) -> None:
    """A sound detector with few distinct scores shares most of its values between any two samples."""
    for seed in range(often(2, 8)):
        rng = np.random.default_rng(seed)
        fit, holdout = (np.round(rng.beta(0.5, 8, n), digits) for n in (20_000, 30_000))
        found = decide(Settings(), measure(sample(fit), sample(holdout)))
        assert (found.outcome, found.reason) == (("pass", "apart") if digits > 3 else ("inconclusive", "cannot-tell"))
        assert found.required == (digits > 3), "what cannot be told never blocks"


# --- what can be told, and from what share on ---------------------------------------------------------------


@pytest.mark.parametrize("leaked", [0.0, 0.5])
def test_three_decimals_tell_nothing_and_it_is_said(leaked: float) -> None:
    """Half of the held-out rows copied look like none copied: no pass claims that nothing is shared."""
    rng = np.random.default_rng(6)
    fit, holdout = (np.round(rng.beta(0.5, 8, n), 3) for n in (20_000, 30_000))
    holdout[: int(leaked * len(holdout))] = rng.choice(fit, int(leaked * len(holdout)))
    found = decide(Settings(), measure(sample(fit), sample(holdout)))
    assert (found.outcome, found.reason, found.required) == ("inconclusive", "cannot-tell", False)
    assert found.message.endswith("cannot be told, not even if all held-out rows were copies")
    assert found.remedy is not None
    assert "data.id" in found.remedy


def test_a_column_that_is_read_already_is_no_remedy() -> None:
    """Rows of one day, with coarse scores: their times were looked at, and tell nothing."""
    rng = np.random.default_rng(7)
    tables = [pa.table({"score": np.round(rng.beta(0.5, 8, n), 2), "when": np.full(n, 10**9)}) for n in (4_000, 5_000)]
    found = decide(Settings(), measure(*(from_object(t, "x", Columns(timestamp="when"), (0, 1)) for t in tables)))
    assert (found.reason, found.remedy) == ("cannot-tell", "name what tells rows apart with data.id")


@pytest.mark.each_run(1)
@pytest.mark.parametrize("digits", [4, 6, 17])
def test_copies_are_seen_from_the_share_that_is_said(digits: int) -> None:
    """Copies show at that share in 9 of 10 cases at least, and at half of it in few."""
    rng = np.random.default_rng(digits)

    def drawn(share: float) -> Shared:
        fit, holdout = (np.round(rng.beta(0.5, 8, n), digits) for n in (20_000, 30_000))
        copies = round(share * len(holdout))
        holdout[:copies] = rng.choice(fit, copies)
        return shared_of(fit, holdout)

    seen_from = drawn(0.0).seen_from
    assert seen_from is not None
    assert np.mean([drawn(1.25 * seen_from).more <= LEVEL for _ in range(10)]) >= 0.9
    assert np.mean([drawn(0.5 * seen_from).more <= LEVEL for _ in range(10)]) <= 0.3


# --- the chance model is that of the split ------------------------------------------------------------------


def test_tied_rows_of_small_segments_are_divided_as_the_split_divides_them() -> None:
    """Halves of segments of a few hundred rows with a few values each, and of pairs: 10 divisions raise no alarm.

    A division of all rows alike would leave fewer shared, and called them copies.
    """
    rng = np.random.default_rng(7)
    for size in (4, 300):
        segments = 6_000 // size
        values = (np.repeat(rng.uniform(size=segments * (size // 2)), 2)).reshape(segments, -1)
        names = np.repeat([f"s{i}" for i in range(segments)], size)
        table = pa.table({"score": values.ravel(), "segment": names})
        whole = from_object(table, "x", Columns(segment="segment"), (0, 1))
        for seed in range(5):
            fit, holdout, _ = split(whole, 0.5, seed)
            found = measure(fit, holdout)
            assert (found.scores.copied, found.scores.repeated) == (0, 0)
            assert decide(Settings(), found).outcome != "fail"


def test_copies_inside_segments_are_found() -> None:
    rng = np.random.default_rng(8)
    columns = Columns(segment="segment")
    values, names = rng.uniform(size=(2, 6_000)), rng.integers(0, 20, (2, 6_000)).astype(str)
    values[1, :600], names[1, :600] = values[0, :600], names[0, :600]
    parts = [pa.table({"score": v, "segment": s}) for v, s in zip(values, names, strict=True)]
    found = measure(*(from_object(part, "x", columns, (0, 1)) for part in parts))
    assert found.scores.copied == pytest.approx(600, rel=0.1)
    assert decide(Settings(), found).reason == "shared-rows"


def recurring(rng: np.random.Generator, days: int, items: int) -> pa.Table:
    """The same items every day, each with its own score, beside as many rows that come once."""
    scores = rng.uniform(size=items)
    values = np.concatenate([np.concatenate([scores, rng.uniform(size=items)]) for _ in range(days)])
    return pa.table({"score": values, "when": np.repeat(np.arange(days), 2 * items) * 86_400 + 10**9})


def test_items_that_recur_every_day_are_no_copies_of_earlier_ones() -> None:
    """Divided by time each of them is on both sides, as it is inside the fit sample; real copies still are found."""
    columns = Columns(timestamp="when")
    for seed in range(3):
        rng = np.random.default_rng(seed)
        table = recurring(rng, 5, 600)
        cut = int(0.6 * table.num_rows)
        fit, holdout = (from_object(t, "x", columns, (0, 1)) for t in (table.slice(0, cut), table.slice(cut)))
        finding = decide(Settings(), measure(fit, holdout))
        assert (finding.outcome, finding.reason) == ("pass", "recurring")
        assert "recur inside the fit sample" in finding.message
    once = pa.table({"score": rng.uniform(size=6_000), "when": np.arange(6_000) + 10**9})
    late = pa.table({"score": np.asarray(once["score"])[:3_000], "when": np.arange(3_000) + 2 * 10**9})
    fit, holdout = (from_object(t, "x", columns, (0, 1)) for t in (once, late))
    assert decide(Settings(), measure(fit, holdout)).reason == "shared-rows"


@pytest.mark.parametrize("named", [False, True])
def test_items_that_recur_are_no_evidence_where_there_are_hardly_others(named: bool) -> None:
    """An export that holds the same rows every day, with its own times and ids, holds nothing out."""
    scores = np.random.default_rng(4).uniform(size=1_000)
    columns = Columns(timestamp="when", id="id" if named else None)

    def days(first: int, count: int) -> Scores:
        n = count * len(scores)
        when = np.repeat(np.arange(first, first + count), len(scores)) * 86_400 + 10**9
        table = pa.table({"score": np.tile(scores, count), "when": when, "id": [f"{first}-{i}" for i in range(n)]})
        return from_object(table.slice(0, n - 1), "x", columns, (0, 1))

    for fitted, held_out in ((2, 1), (2, 3), (1, 3)):
        finding = decide(Settings(), measure(days(0, fitted), days(fitted, held_out)))
        assert finding.required
        assert finding.outcome != "pass"
        assert finding.reason in ("mostly-recurring", "shared-rows", "shared-scores")


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize(("fitted", "held_out"), [(1, 2), (1, 3), (1, 12), (5, 1), (2, 2), (3, 2)])
def test_copies_of_fit_rows_block_under_new_ids_however_often_each_is_there(
    fitted: int, held_out: int, near: bool
) -> None:
    """What counts is how many held-out rows are copies, not how many scores these have."""
    rng = np.random.default_rng(fitted * 100 + held_out)
    scores, n = rng.beta(0.5, 8, 1_500), 1_500 * held_out
    held = np.append(np.tile(scores, held_out), 0.5)
    held = np.nextafter(held, 1) if near else held
    names = [[f"{side}{i}" for i in range(size)] for side, size in (("f", 1_500 * fitted), ("h", n + 1))]
    found = measure(sample(np.tile(scores, fitted), names[0]), sample(held, names[1]))
    finding = decide(Settings(), found)
    assert (finding.outcome, finding.reason, finding.required) == ("fail", "shared-scores", True)
    assert found.scores.copied == pytest.approx(n, rel=0.01)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8])
@pytest.mark.parametrize("times", [1, 2, 4])
def test_half_of_the_rows_is_where_copies_under_new_ids_begin_to_block(share: float, times: int) -> None:
    """This holds beside rows that are there as often, and beside ties."""
    rng = np.random.default_rng(round(100 * share) + times)
    fit, fresh = (np.round(rng.beta(0.5, 8, 3_000), 6) for _ in range(2))
    copies = round(share * 3_000)
    held = np.tile(np.concatenate([rng.choice(fit, copies, replace=False), fresh[copies:]]), times)
    names = [[f"{side}{i}" for i in range(size)] for side, size in (("f", len(fit)), ("h", len(held)))]
    finding = decide(Settings(), measure(sample(fit, names[0]), sample(held, names[1])))
    assert (finding.reason, finding.required) == ("shared-scores", share > 0.5)


def test_one_sample_that_gate_divided_has_no_row_on_both_sides() -> None:
    """This holds for any scores: rows that repeat others belong to the check of duplicates."""
    rng = np.random.default_rng(9)
    values = np.repeat(rng.uniform(size=3_000), 2)
    whole = from_object(values, "x", Columns(), (0, 1))
    fit, holdout, _ = split(whole, 0.5, 1)
    finding = decide(Settings(), measure(fit, holdout))
    assert (finding.outcome, finding.reason) == ("pass", "apart")
    assert finding.message == "gate divided one sample: no row is on both sides"


@pytest.mark.each_run(6)
@pytest.mark.parametrize("digits", [5, 6, 17])
@pytest.mark.parametrize("copies", [0, 20, 300, 3_000, 20_000])
def test_copied_rows_are_found_among_ties(copies: int, digits: int) -> None:
    rng = np.random.default_rng(copies)
    fit, holdout = (np.round(rng.beta(0.5, 8, n), digits) for n in (20_000, 30_000))
    holdout[:copies] = fit[:copies]
    found = measure(sample(fit), sample(holdout))
    finding = decide(Settings(), found)
    if digits == 17 and copies >= 300:
        assert found.scores.copied == pytest.approx(copies, rel=0.1)
    assert found.scores.copied <= copies + 250, "rows that are alike by chance are not called copies"
    assert finding.outcome == ("fail" if copies > (30 if digits == 17 else 300) else "pass")
    if finding.outcome == "fail":
        assert (finding.reason, finding.required) == ("shared-rows", True)
        assert "are copies" in finding.message


def one_ulp(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.nextafter(values, rng.integers(0, 2, len(values)))


DISGUISES = {
    "none": lambda values, rng: values,
    "one ulp": one_ulp,
    "float32": lambda values, rng: values.astype(np.float32).astype(np.float64),
}


@pytest.mark.each_run(6)
@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("column", [None, "id", "timestamp", "segment", "group"])
def test_no_other_column_hides_copies(column: str | None, share: float, disguise: str) -> None:
    """Under new ids they advise, and above half of the rows they block; in any other disguise they block."""
    rng = np.random.default_rng(3)
    n = 6_000
    fit, holdout = rng.beta(0.5, 8, n), rng.beta(0.5, 8, n + 1)
    copies = round(share * n)
    holdout[:copies] = DISGUISES[disguise](fit[:copies], rng)
    tables = []
    for name, values in (("fit", fit), ("holdout", holdout)):
        columns: dict[str, Any] = {"score": values}
        if column == "timestamp":
            columns["x"] = np.arange(len(values)) + (0 if name == "fit" else 10**6)
        elif column is not None:
            columns["x"] = [f"{name} {i if column != 'segment' else 1}" for i in range(len(values))]
        tables.append(pa.table(columns))
    wanted = Columns(**({} if column is None else {column: "x"}))
    found = measure(*(from_object(t, "x", wanted, (0, 1)) for t in tables))
    finding = decide(Settings(), found)
    if column == "id":
        expected = ("fail", True) if share > 0.5 else ("inconclusive", False)
        assert (finding.outcome, finding.required, finding.reason) == (*expected, "shared-scores")
    else:
        assert (finding.outcome, finding.required, finding.reason) == ("fail", True, "shared-rows")
    assert found.scores.copied == pytest.approx(copies, rel=0.1)


def test_rows_that_agree_in_all_columns_are_found_among_coarse_scores() -> None:
    """Scores of two digits share all their values; a time as well tells copies from rows that are alike."""
    rng = np.random.default_rng(4)
    columns = Columns(timestamp="when")
    tables = [pa.table({"score": np.round(rng.beta(0.5, 8, 5_000), 2), "when": rng.integers(10**9, 2 * 10**9, 5_000)})
              for _ in range(2)]  # fmt: skip
    fit, holdout = (from_object(table, "x", columns, (0, 1)) for table in tables)
    assert decide(Settings(), measure(fit, holdout)).outcome == "pass"
    leaked = pa.concat_tables([tables[0].slice(0, 400), tables[1].slice(400)])
    found = measure(fit, from_object(leaked, "x", columns, (0, 1)))
    assert found.rows is not None
    assert found.rows.copied == pytest.approx(400, abs=5)
    assert decide(Settings(), found).reason == "shared-rows"


def test_groups_on_both_sides_are_an_overlap() -> None:
    columns = Columns(group="user")
    rng = np.random.default_rng(4)
    fit, holdout = (
        from_object(pa.table({"score": rng.uniform(size=len(users)), "user": users}), "x", columns, (0, 1))
        for users in (["a", "a", "b", "c"], ["c", "c", "d", "b", "e"])
    )
    found = measure(fit, holdout)
    assert (found.scores.unit, found.shared_groups, found.rows_in_shared_groups) == ("groups", 2, 3)
    finding = decide(Settings(), found)
    assert (finding.outcome, finding.reason) == ("fail", "shared-groups")
    assert "2 groups with 3 held-out rows have fit rows too" in finding.message


def test_the_policy_says_how_much_may_be_shared() -> None:
    none = shared_of(np.linspace(0, 0.4, 1_000), np.linspace(0.5, 1, 1_000))
    few = Overlap(benign=1_000, ids=5, rows=None, scores=none, shared_groups=None, rows_in_shared_groups=None)
    for share, outcome in (("0", "fail"), ("0.004", "fail"), ("0.005", "pass"), ("0.5%", "pass")):
        finding = decide(Settings.model_validate({"max_share": share, "required": False}), few)
        assert (finding.outcome, finding.required) == (outcome, False)


def test_identical_samples_are_refused_whatever_their_ids() -> None:
    values = np.random.default_rng(5).uniform(size=100)
    shuffled = values[::-1].copy()
    for other in (values, shuffled):
        with pytest.raises(GateError, match=r"must hold other rows than the fit sample, got the same 100 scores"):
            gate.run(values, other, release="r")
    ids = [f"row {i}" for i in range(100)]
    for names in (ids, ids[::-1], [f"new {i}" for i in range(100)]):
        with pytest.raises(GateError, match="the same 100 scores"):
            refuse_identical(sample(values, ids), sample(shuffled, names))
