"""The checks of the data: shared rows, coarse scores, rates beyond the fit sample, old rows."""

from __future__ import annotations

import itertools
import json
import subprocess
from datetime import date
from fractions import Fraction
from pathlib import Path

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gate
from gate import policy as policies
from gate.errors import GateError
from gate.evidence import measure_target
from gate.samples import (
    Ages,
    Overlap,
    Resolution,
    _by_chance,
    ages,
    overlap,
    refuse_identical,
    resolution,
    shared_rows,
    tie_block,
)
from gate.scores import Scores, from_object
from gate.verdict import judge_floor, judge_freshness, judge_granularity, judge_overlap

TARGETS = "targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"
POLICY = policies.parse(f"version: 1\nname: data\n{TARGETS}", "policy.yaml").policy


def sample(values: list[float] | np.ndarray, ids: list[str] | None = None) -> Scores:
    return Scores(
        np.array(values, dtype=np.float64), (), None, None if ids is None else pa.array(ids, pa.large_string())
    )


def table(**columns: object) -> pa.Table:
    return pa.table(columns)


# --- overlap ------------------------------------------------------------------------------------------------

SMALL = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.4, 0.5]), min_size=2, max_size=30)


@settings(max_examples=200, deadline=None)
@given(SMALL, SMALL)
def test_shared_rows_are_those_found_one_by_one(fit: list[float], holdout: list[float]) -> None:
    shared, _, _ = shared_rows(sample(fit), sample(holdout))
    assert shared == sum(value in fit for value in holdout)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4]), min_size=4, max_size=9), st.data())
def test_what_chance_shares_is_the_mean_over_every_division(pooled: list[float], data: st.DataObject) -> None:
    n = data.draw(st.integers(1, len(pooled) - 1))
    counts = []
    for held in itertools.combinations(range(len(pooled)), n):
        fit = [value for i, value in enumerate(pooled) if i not in held]
        counts.append(sum(pooled[i] in fit for i in held))
    fit, holdout = pooled[n:], pooled[:n]
    _, expected, deviation = shared_rows(sample(fit), sample(holdout))
    assert expected == pytest.approx(np.mean(counts), abs=1e-9)
    assert deviation == pytest.approx(np.std(counts), abs=1e-6)


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 10**7), st.integers(2, 10**7))
@example(11, 14)
@example(385, 482)
@example(76_462, 86_504)
def test_without_ties_chance_shares_nothing_whatever_the_sizes(fit_n: int, n: int) -> None:
    """Not even a rounding error's worth, which may lie below zero."""
    none = np.empty(0, dtype=np.int64)
    assert _by_chance(none, none, n, n + fit_n) == (0.0, 0.0)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.integers(2, 300), st.integers(1, 1_000), max_size=9), st.integers(0, 10**7), st.data())
def test_what_chance_shares_lies_between_none_and_all_tied_rows(
    blocks: dict[int, int], single: int, data: st.DataObject
) -> None:
    tied = sum(size * values for size, values in blocks.items())
    total = tied + single + 2
    n = data.draw(st.integers(1, total - 1))
    sizes, values = (np.array(list(part), dtype=np.int64) for part in (blocks.keys(), blocks.values()))
    expected, deviation = _by_chance(sizes, values, n, total)
    assert 0 <= expected <= tied * n / total * (1 + 1e-12)
    assert 0 <= deviation <= tied


@pytest.mark.parametrize(("fit_n", "n"), [(11, 14), (385, 482), (76_462, 86_504)])
def test_any_two_sample_sizes_come_to_a_record(fit_n: int, n: int) -> None:
    rng = np.random.default_rng(n)
    record = gate.run(rng.uniform(size=fit_n), rng.uniform(size=n), release="r").record
    assert record.overlap is not None
    assert (record.overlap.shared, record.overlap.expected, record.overlap.deviation) == (0, 0.0, 0.0)


def test_the_deviation_is_that_of_many_divisions() -> None:
    rng = np.random.default_rng(0)
    pooled = np.round(rng.beta(0.5, 8, 4_000), 4)
    found = []
    for _ in range(400):
        rng.shuffle(pooled)
        found.append(shared_rows(sample(pooled[:2_500]), sample(pooled[2_500:])))
    shared, expected, deviation = np.array(found).T
    assert abs(shared.mean() - expected[0]) < 5 * shared.std() / 20
    assert 0.85 < deviation[0] / shared.std() < 1.15


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, 40), min_size=2), st.sets(st.integers(0, 40), min_size=2))
def test_ids_decide_where_there_are_any(some: set[int], others: set[int]) -> None:
    fit, holdout = (sample(np.full(len(part), 0.5), [f"row {i}" for i in part]) for part in (some, others))
    found = overlap(fit, holdout)
    assert (found.by, found.shared, found.copied) == ("ids", len(some & others), len(some & others))
    allowed = judge_overlap(POLICY, found)
    assert (allowed.outcome == "fail") == bool(some & others)


@pytest.mark.parametrize("digits", [2, 3, 4, 6, 17])
def test_ties_are_no_overlap_however_many(digits: int) -> None:
    """A sound detector with few distinct scores shares most of its values between any two samples."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        fit, holdout = (np.round(rng.beta(0.5, 8, n), digits) for n in (20_000, 30_000))
        assert judge_overlap(POLICY, overlap(sample(fit), sample(holdout))).outcome == "pass"


@pytest.mark.parametrize("digits", [5, 6, 17])
@pytest.mark.parametrize("copies", [0, 20, 300, 3_000, 20_000])
def test_copied_rows_are_found_among_ties(copies: int, digits: int) -> None:
    rng = np.random.default_rng(copies)
    fit, holdout = (np.round(rng.beta(0.5, 8, n), digits) for n in (20_000, 30_000))
    holdout[:copies] = fit[:copies]
    found = overlap(sample(fit), sample(holdout))
    finding = judge_overlap(POLICY, found)
    if digits == 17:
        assert found.copied == pytest.approx(copies, abs=2)
    assert found.copied <= copies + 250, "rows that are alike by chance are not called copies"
    assert finding.outcome == ("fail" if copies > (30 if digits == 17 else 300) else "pass")
    if finding.outcome == "fail":
        assert (finding.reason, finding.required) == ("shared-rows", True)
        assert "are copies" in finding.message


def test_all_columns_that_were_read_must_agree() -> None:
    """Equal scores in other segments, groups or moments are other rows."""
    rng = np.random.default_rng(3)
    values = rng.uniform(size=1_000)
    columns = policies.Columns(segment="language", group="user", timestamp="when")
    when = np.datetime64("2026-01-01", "s") + np.arange(1_000).astype("timedelta64[s]")
    users = np.arange(1_000)
    first = table(score=values, language=["de"] * 1_000, user=users, when=when)
    for name, column in (
        ("language", ["en"] * 1_000),
        ("user", users + 1_000),
        ("when", when + np.timedelta64(1, "D")),
    ):
        place = first.column_names.index(name)
        second = first.set_column(place, name, pa.array(column))
        fit, same, other = (from_object(t, "x", columns, (0, 1)) for t in (first, first, second))
        assert overlap(fit, same).shared == 1_000
        assert overlap(fit, other).shared == 0


def test_groups_on_both_sides_are_an_overlap() -> None:
    columns = policies.Columns(group="user")
    rng = np.random.default_rng(4)
    fit, holdout = (
        from_object(table(score=rng.uniform(size=len(users)), user=users), "x", columns, (0, 1))
        for users in (["a", "a", "b", "c"], ["c", "c", "d", "b", "e"])
    )
    found = overlap(fit, holdout)
    assert (found.shared, found.shared_groups, found.rows_in_shared_groups) == (0, 2, 3)
    finding = judge_overlap(POLICY, found)
    assert (finding.outcome, finding.reason) == ("fail", "shared-groups")
    assert "2 groups with 3 held-out rows have fit rows too" in finding.message


def test_the_policy_says_how_much_may_be_shared() -> None:
    few = Overlap("ids", 5, 1_000, 0.0, 0.0, 5, None, None)
    for share, outcome in (("0", "fail"), ("0.004", "fail"), ("0.005", "pass"), ("0.5%", "pass")):
        text = f"version: 1\nname: x\n{TARGETS}checks: {{overlap: {{max_share: {share}, required: false}}}}\n"
        finding = judge_overlap(policies.parse(text, "p").policy, few)
        assert (finding.outcome, finding.required) == (outcome, False)


def test_identical_samples_are_refused() -> None:
    values = np.random.default_rng(5).uniform(size=100)
    shuffled = values[::-1].copy()
    for other in (values, shuffled):
        with pytest.raises(GateError, match=r"must hold other rows than the fit sample, got the same 100 scores"):
            gate.run(values, other, release="r")
    ids = [f"row {i}" for i in range(100)]
    with pytest.raises(GateError, match="the same 100 scores"):
        refuse_identical(sample(values, ids), sample(shuffled, ids[::-1]))
    refuse_identical(sample(values, ids), sample(values, [f"new {i}" for i in range(100)]))


# --- granularity and floor ----------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2_000), st.integers(1, 2_000), st.sampled_from(["0.001", "0.01", "0.1"]), st.integers(1, 9))
def test_a_rate_is_attainable_iff_a_threshold_beside_the_tie_has_it(
    above: int, tied: int, fpr: str, error: int
) -> None:
    n = 10_000
    text = f"version: 1\nname: x\ntargets: [{{fpr: {fpr}, min_n: 10, max_relative_error: 0.{error}}}]\n"
    policy = policies.parse(text, "p").policy
    target = policy.targets[0]
    fit = np.sort(
        np.concatenate([np.linspace(0, 0.4, n - above - tied), np.full(tied, 0.5), np.linspace(0.6, 1, above)])
    )
    block = tie_block(fit, Fraction(target.fpr))
    low, high = target.tolerance
    attainable = [flagged for flagged in range(n + 1) if flagged <= above or flagged >= above + tied]
    inside = [flagged for flagged in attainable if low * n <= flagged <= high * n]
    measured = measure_target(policy, target, 0.5, 5, 1_000, 1e-5, tied=block)
    finding = judge_granularity(policy, Resolution(n, n - tied + 1, tied), measured)
    if tied >= 10:
        assert (finding.outcome == "fail") == (not inside)
    assert finding.required is False
    if finding.outcome == "fail":
        assert "neither inside the tolerance" in finding.message
        assert str(finding.remedy).startswith("more rows cannot help")


def test_the_resolution_of_the_fit_scores() -> None:
    assert resolution(sample([0.1, 0.2, 0.2, 0.2, 0.3, 0.3]), 3) == Resolution(6, 3, 3)
    assert resolution(sample([0.1, 0.2, 0.3]), 3) == Resolution(3, 3, 1)


def test_a_target_beyond_the_fit_sample_is_named_with_the_rows_that_would_show_it() -> None:
    text = "version: 1\nname: x\ntargets:\n" + "".join(
        f"- {{fpr: {fpr}, min_n: 10, max_relative_error: 0.5}}\n" for fpr in ("0.01", "0.0001", "0.00001")
    )
    policy = policies.parse(text, "p").policy
    measured = tuple(measure_target(policy, target, 0.5, 5, 1_000, 0.0005) for target in policy.targets)
    finding = judge_floor(policy, measured)
    assert (finding.outcome, finding.reason, finding.required) == ("inconclusive", "extrapolated", False)
    assert "fpr@0.0001 and fpr@0.00001" in finding.message
    rows = measured[-1].fit_rows_to_support
    assert finding.remedy == f"fit on at least {rows:,} benign rows whose highest scores are not tied"
    assert judge_floor(policy, measured[:1]).outcome == "pass"


# --- freshness ----------------------------------------------------------------------------------------------

FRESH = policies.parse(
    f"version: 1\nname: x\n{TARGETS}data: {{timestamp: when}}\nchecks: {{freshness: {{max_age_days: 30}}}}\n", "p"
).policy


@pytest.mark.parametrize(
    ("oldest", "newest", "outcome", "reason"),
    [
        ("2026-10-17", "2026-11-16", "pass", "recent"),
        ("2026-10-16", "2026-11-16", "fail", "stale"),
        ("2026-11-16", "2026-11-17", "pass", "recent"),
        ("2026-11-16", "2026-11-18", "fail", "future"),
        ("1970-01-21", "1970-01-21", "fail", "stale"),
        ("2026-11-01", "9999-12-31", "fail", "future"),
    ],
)
def test_no_held_out_row_may_be_older_than_the_policy_allows(
    oldest: str, newest: str, outcome: str, reason: str
) -> None:
    held = Ages(date.fromisoformat(oldest), date.fromisoformat(newest))
    finding = judge_freshness(FRESH, held, None, date(2026, 11, 16))
    assert (finding.outcome, finding.reason) == (outcome, reason)
    assert oldest in finding.message
    assert (finding.remedy is None) == (outcome == "pass")


MOMENT = np.datetime64("2026-11-01T12:00:00", "s")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([MOMENT.item()] * 2),
        pa.array([MOMENT.item()] * 2, pa.timestamp("ns", "Europe/Berlin")),
        pa.array([date(2026, 11, 1)] * 2),
        pa.array([1_793_534_400] * 2),
        pa.array([1_793_534_400.5] * 2),
        pa.array([1_793_534_400_000] * 2),
        pa.array([1_793_534_400_000_000] * 2),
        pa.array([1_793_534_400_000_000_000] * 2),
        pa.array(["2026-11-01T12:00:00"] * 2),
        pa.array(["2026-11-01T12:00:00Z"] * 2),
        pa.array(["2026-11-01 14:00:00+02:00"] * 2).dictionary_encode(),
        pa.array(["2026-11-01"] * 2),
    ],
    ids=lambda column: str(column.type),
)
def test_times_are_read_as_they_are_kept(column: pa.Array) -> None:
    columns = policies.Columns(timestamp="when")
    scores = from_object(table(score=[0.1, 0.2], when=column), "x", columns, (0, 1))
    assert ages(scores) == Ages(date(2026, 11, 1), date(2026, 11, 1))


@pytest.mark.parametrize(
    ("column", "got"),
    [
        (["2026-11-01", "yesterday"], "got string: "),
        (["2026-11-01", None], "got none in row 2"),
        ([1e30, 2.0], "got double: a number as large as 1e[+]30"),
        ([True, False], "got bool: "),
    ],
)
def test_what_is_no_time_is_refused(column: list[object], got: str) -> None:
    columns = policies.Columns(timestamp="when")
    with pytest.raises(GateError, match=rf"^x: column 'when' must hold times such as 2026-.*, {got}"):
        from_object(table(score=[0.1, 0.2], when=column), "x", columns, (0, 1))


# --- as a user sees them ------------------------------------------------------------------------------------


def run(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.gate("run", "--release", "r", "--json", "--dry-run", *arguments, cwd=cwd)


def test_a_leak_fails_the_release_and_is_recorded(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    fit, holdout = rng.beta(0.5, 8, 200_000), rng.beta(0.5, 8, 200_000)
    holdout[:50_000] = fit[:50_000]
    pa.parquet.write_table(pa.table({"score": fit}), tmp_path / "fit.parquet")
    pa.parquet.write_table(pa.table({"score": holdout}), tmp_path / "holdout.parquet")
    result = run(tmp_path, "--fit", "fit.parquet", "--holdout", "holdout.parquet")
    assert result.returncode == 1, result.stderr
    record = json.loads(result.stdout)
    assert record["reason"] == "held-out rows are among the fit rows"
    assert record["overlap"]["shared"] == 50_000
    assert record["overlap"]["copied"] == pytest.approx(50_000, abs=10)


def test_a_check_without_its_column_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(f"version: 1\nname: x\n{TARGETS}checks: {{freshness: {{max_age_days: 3}}}}\n")
    result = run(tmp_path, "--policy", "p.yaml", "--fit", "absent.npy", "--holdout", "absent.npy")
    assert result.returncode == 2
    assert result.stderr == (
        "gate: p.yaml:4: checks.freshness: must have data.timestamp name a column, got null; "
        "write `data: {timestamp: NAME}` or give --timestamp-column NAME\n"
    )


def test_the_same_file_is_not_counted_twice(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.linspace(0, 1, 100))
    np.save(tmp_path / "b.npy", np.linspace(0, 0.9, 100))
    (tmp_path / "link.npy").symlink_to("a.npy")
    for again in ("a.npy", "./a.npy", "*.npy", "link.npy"):
        result = run(tmp_path, "--fit", "a.npy", "--fit", again, "--holdout", "b.npy")
        assert result.returncode == 2
        assert "must be read once, got the same file again as a.npy; name it once" in result.stderr
