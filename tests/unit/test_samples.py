"""The checks of the data: shared rows, coarse scores, rates beyond the fit sample, old rows."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import policy as policies
from gate.errors import GateError
from gate.evidence import measure_target
from gate.samples import Ages, Resolution, ages, resolution, tie_block
from gate.scores import Scores, from_object
from gate.verdict import judge_floor, judge_freshness, judge_granularity

TARGETS = "targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"


def sample(values: list[float] | np.ndarray, ids: list[str] | None = None) -> Scores:
    return Scores(
        np.array(values, dtype=np.float64), (), None, None if ids is None else pa.array(ids, pa.large_string())
    )


def table(**columns: object) -> pa.Table:
    return pa.table(columns)


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
