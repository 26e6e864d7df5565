"""The checks of the data: shared rows, coarse scores, rates beyond the fit sample, old rows."""

from __future__ import annotations

import re
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from cases import case, evidence, tally, targets
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.calibration.positions import named, rows_to_support
from gate.checks import floor, freshness, granularity, parse_policy
from gate.checks.floor import Floor
from gate.checks.fpr import Targets
from gate.checks.freshness import Ages
from gate.checks.granularity import Atom, Resolution
from gate.errors import GateError
from gate.policy import Columns
from gate.rows.describe import days_of
from gate.rows.reading import from_object
from gate.statistics.binomial import lower_tail, upper_tail

TARGETS = "targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"


def table(**columns: object) -> pa.Table:
    return pa.table(columns)


# --- granularity and floor ----------------------------------------------------------------------------------


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2_000), st.integers(1, 2_000), st.sampled_from(["0.001", "0.01", "0.1"]), st.integers(1, 9))
def test_a_rate_is_unattainable_where_both_sides_of_a_tie_are_provably_outside(
    above: int, tied: int, fpr: str, error: int
) -> None:
    n = 10_000
    text = f"version: 1\nname: x\ntargets: [{{fpr: {fpr}, min_n: 10, max_relative_error: 0.{error}}}]\n"
    policy = parse_policy(text, "p").policy
    target = policy.targets[0]
    fit = np.concatenate([np.linspace(0, 0.4, n - above - tied), np.full(tied, 0.5), np.linspace(0.6, 1, above)])
    found = granularity.measure(case(policy, fit, np.linspace(0, 1, 100)))
    assert found is not None
    (finding,) = granularity.judge(policy, evidence(policy, fit_n=n, granularity=found))
    allowed = float(target.fpr) * (n + 0.365) + 0.3175  # how many rows a calibrator may flag, by Filliben's position
    block = (above, above + tied) if above <= allowed < above + tied else None
    atom = found.targets[0]
    if block is not None:
        assert (atom.below, atom.through) == block
    else:
        assert atom.through - atom.below == 1
    alpha = 0.025
    too_few = target.tolerance[0] > 0 and lower_tail(atom.below, n, float(target.tolerance[0])) < alpha
    too_many = upper_tail(atom.through, n, float(target.fpr)) < alpha
    assert (finding.outcome == "fail") == (too_few and too_many)
    if finding.outcome == "fail":
        assert block is not None
        assert above < float(target.tolerance[0]) * n, "what lies below the tie is outside the tolerance"
    assert finding.required is False
    if finding.outcome == "fail":
        assert f"cannot resolve {float(fpr) * 100:g} %: attainable are " in finding.message
        assert f" % ({above:,} of 10,000 fit rows) and " in finding.message
        assert f" % ({above + tied:,})" in finding.message
        assert str(finding.remedy).startswith("more rows cannot help")


def test_the_resolution_of_the_fit_scores() -> None:
    policy = parse_policy(f"version: 1\nname: x\n{TARGETS}", "p").policy
    for values, top, atom in (
        ([0.1, 0.2, 0.2, 0.2, 0.3, 0.3], 2, (0, 2)),
        ([0.1, 0.2, 0.3], 1, (0, 1)),
    ):
        found = granularity.measure(case(policy, values, [0.1, 0.2]))
        assert found == Resolution(
            top_tie=top,
            targets=(Atom(fpr=policy.targets[0].fpr, below=atom[0], through=atom[1], apart=0),),
        )


def test_a_target_beyond_the_fit_sample_is_named_with_the_rows_that_would_show_it() -> None:
    text = "version: 1\nname: x\ntargets:\n" + "".join(
        f"- {{fpr: {fpr}, min_n: 10, max_relative_error: 0.5}}\n" for fpr in ("0.01", "0.0001", "0.00001")
    )
    policy = parse_policy(text, "p").policy
    counts = targets(policy, tally(5, 1_000))
    found = evidence(policy, fit_n=1_400, lowest_label=0.0005, fpr=counts, floor=Floor(lowest_label=0.0005))
    (finding,) = floor.judge(policy, found)
    assert (finding.outcome, finding.reason, finding.required) == ("inconclusive", "extrapolated", False)
    assert finding.message == (
        "1,400 fit rows are too few to show 0.001 %: the threshold is extrapolated; so is that of fpr@0.01%"
    )
    advised = re.fullmatch(r"fit on at least ([\d,]+) benign rows", str(finding.remedy))
    assert advised
    least = rows_to_support(named("filliben"), float(policy.targets[-1].fpr))
    assert int(advised[1].replace(",", "")) >= least
    alone = evidence(
        policy,
        lowest_label=0.0005,
        fpr=Targets(anchors=counts.anchors[:1]),
        floor=Floor(lowest_label=0.0005),
    )
    (finding,) = floor.judge(policy, alone)
    assert finding.outcome == "pass"


# --- freshness ----------------------------------------------------------------------------------------------

FRESH = parse_policy(
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
    held = Ages(oldest=date.fromisoformat(oldest), newest=date.fromisoformat(newest))
    (finding,) = freshness.judge(FRESH, evidence(FRESH, day=date(2026, 11, 16), freshness=held))
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
    columns = Columns(timestamp="when")
    scores = from_object(table(score=[0.1, 0.2], when=column), "x", columns, (0, 1))
    assert days_of(scores) == (date(2026, 11, 1), date(2026, 11, 1))


@pytest.mark.parametrize(
    ("column", "got"),
    [
        (["2026-11-01", "yesterday"], "got 'yesterday' in row 2"),
        (["2026-11-01", None], "got none in row 2"),
        ([1e30, 2.0], "got a number as large as 1e[+]30"),
        ([True, False], "got BOOLEAN; "),
    ],
)
def test_what_is_no_time_is_refused(column: list[object], got: str) -> None:
    columns = Columns(timestamp="when")
    with pytest.raises(GateError, match=rf"^x: column 'when' must hold times such as 2026-.*, {got}"):
        from_object(table(score=[0.1, 0.2], when=column), "x", columns, (0, 1))
