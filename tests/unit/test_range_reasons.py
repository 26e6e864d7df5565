"""Why a range, a segment and a range in a segment are decided as they are, each with its sentence and its remedy."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from cases import evidence, tally, targets

from gate.checks import parse_policy, range_words, ranges, segments
from gate.checks.check import Evidence, Finding, JudgedRange
from gate.checks.exchangeability import AtScore, AtTarget, Exchangeability
from gate.checks.ranges import InRange, Ranges, WorthAt, asked_of_groups
from gate.checks.readings import DRIFT_REMEDY
from gate.checks.segment_ranges import RangeInSegments
from gate.checks.segments import InSegments, Segments
from gate.planning.range_advice import RangeAdvice
from gate.planning.ranges import corridor_of, segment_corridor_of
from gate.planning.sequential import Deciding
from gate.policy import Policy

Counts = Callable[[np.ndarray], np.ndarray]  # makes the counts found from the expected counts of all points
TENTH, HUNDREDTH = Decimal("0.1"), Decimal("0.01")


def policy_of(text: str) -> Policy:
    return parse_policy(f"version: 1\nname: reasons\n{text}", "reasons.yaml").policy


def said(finding: Finding) -> tuple[str, str]:
    return finding.outcome, finding.reason


# --- ranges -------------------------------------------------------------------------------------------------


def counted(
    n: int, change: Counts, unreached: int = 0, error: str = "0.5", more: str = "", worth: float = 0, **facts: Any
) -> tuple[Policy, Evidence]:
    """A range from 10 to 1 % with the expected counts of n rows, changed so; rows in groups are `worth` so many."""
    target = "targets: [{fpr: 10%, min_n: 10, max_relative_error: 0.5, required: false}]\n"
    span = facts.pop("span", "from: 10%, to: 1%")
    policy = policy_of(f"{target}ranges: [{{{span}, min_n: 10, max_relative_error: {error}}}]\n{more}")
    asked = policy.ranges[0]
    grid = corridor_of(policy, asked, policy.alpha()).grid
    flagged = tuple(int(k) for k in change(grid.fprs * n))
    places = asked_of_groups(grid, policy.anchors.anchors)
    found = InRange(
        start=asked.start,
        stop=asked.stop,
        reached=len(flagged) - unreached,
        flagged=flagged,
        worth=tuple(WorthAt(point=i, effective=(worth, worth)) for i in places) if worth else None,
    )
    return policy, evidence(policy, holdout_n=n, ranges=Ranges(ranges=(found,)), **facts)


def judged(*asked: Any, **facts: Any) -> Finding:
    (finding,) = ranges.judge(*counted(*asked, **facts))
    return finding


def as_expected(expected: np.ndarray) -> np.ndarray:
    return expected


def fading(expected: np.ndarray) -> np.ndarray:
    """The counts are as expected except at the last points, where fewer and fewer rows are found and at last none."""
    return expected * np.r_[np.ones(len(expected) - 20), np.linspace(1, 0.25, 19), 0]


def none_at_the_end(expected: np.ndarray) -> np.ndarray:
    return np.r_[expected[:-1], 0]


def tied_between_two_points(expected: np.ndarray) -> np.ndarray:
    """Many rows share a score in the middle between two points that may refute: too many above, too few below."""
    middle = len(expected) // 2 - 1
    before, after = expected[:middle].copy(), expected[middle:].copy()
    return np.r_[np.maximum(before, 1.45 * expected[middle]), np.minimum(after, 0.4 * expected[middle])]


UNREACHED = "from 1 % on no raw score reaches the threshold, so nothing is ever flagged there"


def test_a_range_whose_end_no_score_reaches_fails_where_so_many_rows_show_it() -> None:
    finding = judged(2000, fading, 1)
    assert said(finding) == ("fail", "unreachable")
    assert UNREACHED in finding.message
    assert finding.remedy == range_words.UNREACHABLE_RANGE


def test_a_range_whose_end_no_score_reaches_is_inconclusive_of_few_rows() -> None:
    finding = judged(300, none_at_the_end, 1)
    assert said(finding) == ("inconclusive", "unreachable")
    assert UNREACHED in finding.message
    assert finding.remedy == range_words.UNREACHABLE_RANGE
    assert said(judged(300, none_at_the_end, 1, more="rule: not-refuted\n")) == ("pass", "not-refuted")


def test_a_jump_between_the_points_that_may_refute_keeps_a_range_open() -> None:
    finding = judged(100_000, tied_between_two_points)
    assert said(finding) == ("inconclusive", "granularity")
    assert "rows share one score there, and no threshold keeps both sides in the tolerance" in finding.message
    assert str(finding.remedy).startswith("more rows cannot help: give the detector finer scores")


def test_a_range_of_which_everything_is_tolerated_has_no_nearest_point() -> None:
    finding = judged(1000, as_expected, error="{above: 30, below: 1}", span="from: 10%, to: 5%")
    assert said(finding) == ("pass", "proven")
    assert finding.range is not None
    assert finding.range.nearest is None
    assert "the curve" not in finding.message


def test_scores_tied_at_the_top_leave_the_end_of_a_range_extrapolated() -> None:
    """More fit rows than would show the lowest rate, and yet they do not: they share the highest score."""
    finding = judged(1000, as_expected, lowest_label=0.02)
    assert said(finding) == ("inconclusive", "extrapolated")
    assert finding.remedy == range_words.TIED_TOP
    fewer = judged(1000, as_expected, lowest_label=0.02, fit_n=50)
    assert ", at least 69 to fit" in str(fewer.remedy) or "fit on and hold out about" in str(fewer.remedy)


def test_rows_in_groups_prove_a_range_by_what_they_are_worth() -> None:
    alone, grouped = judged(50_000, as_expected), judged(50_000, as_expected, worth=500.0)
    assert (said(alone), said(grouped)) == (("pass", "proven"), ("inconclusive", "open"))
    assert "50,000 benign rows at 236 thresholds, in groups worth 500 independent ones" in grouped.message


def test_a_range_that_jumps_and_is_disproved_says_that_it_jumps() -> None:
    finding = judged(100_000, lambda expected: tied_between_two_points(expected) * 0.5)
    assert said(finding) == ("fail", "granularity")
    assert "only excess count with max_relative_error: {above: 0.5, below: 1}" in str(finding.remedy)


@pytest.mark.parametrize(("factor", "reason"), [(2, "too-many"), (0.3, "too-few")])
def test_a_range_that_drift_disproves_wants_no_more_rows(factor: float, reason: str) -> None:
    at = AtTarget(fpr=TENTH, fit=tally(5000, 50_000), pooled=7000, held_out=2000)
    parts = Exchangeability(ranks=(AtScore(pooled=7000, held_out=2000),), targets=(at,))
    finding = judged(10_000, lambda expected: factor * expected, exchangeability=parts)
    assert said(finding) == ("fail", reason)
    assert finding.remedy == DRIFT_REMEDY


def test_a_range_that_passes_and_yet_is_weak_is_pointed_out() -> None:
    """By the rule not-refuted a few rows pass nearly anything; where one may look again that is no weakness."""
    weak = counted(300, as_expected, more="rule: not-refuted\n", fit_n=300)
    assert len([*ranges.warnings(*weak)]) == 1
    assert [*ranges.warnings(*counted(300, as_expected, more="rule: not-refuted\ninterval: sequential\n"))] == []
    assert [*ranges.warnings(*counted(500_000, as_expected, fit_n=500_000))] == []


NUMBERS = JudgedRange(start=TENTH, stop=HUNDREDTH, points=9, rows=900.0, min_n=10, tolerance=(0.5, 0.5), nearest=None)
STRETCH = ((TENTH, Decimal("0.05")),)


@pytest.mark.parametrize(
    ("update", "grade", "words"),
    [
        ({}, "proven", "Proven at every threshold from 10 to 1 %"),
        ({"impossible": STRETCH}, "open", "Rows of one score make the rate jump at 10 %, out of the tolerance"),
        ({"refuted": (TENTH,)}, "refuted", "Disproved at 10 %, in the range from 10 to 1 %"),
        ({"proven": STRETCH}, "open", "Proven from 10 to 5 %; the rest of 10 to 1 % is open"),
        ({}, "open", "Open at every threshold from 10 to 1 %"),
    ],
)
def test_a_range_is_told_in_brief(update: dict[str, Any], grade: str, words: str) -> None:
    assert range_words.describe_in_brief(NUMBERS.model_copy(update=update), grade) == words


@pytest.mark.parametrize(
    ("advice", "words"),
    [
        (
            None,
            "hold out more benign rows, or fit again, at least 70 to fit, which show its lowest rate: how many would",
        ),
        (
            RangeAdvice(deciding=Deciding(2000, 0.9, 0.8, 0.01)),
            "add about 1,000 benign rows to these (2,000 in all) and",
        ),
        (
            RangeAdvice(more=3000, fresh=True),
            "hold out about 3,000 benign rows that have judged no release yet, in groups",
        ),
        (RangeAdvice(more=3000), "hold out about 2,000 more benign rows (3,000 in all), in groups like these: a sound"),
        (
            RangeAdvice(again=60),
            "fit on and hold out about 70 fresh rows each, in groups like these: on benign rows like",
        ),
        (RangeAdvice(), "widen max_relative_error or end the range at a higher rate: no number of rows lets a sound"),
    ],
)
def test_what_would_help_a_range_is_told(advice: RangeAdvice | None, words: str) -> None:
    assert range_words.describe_advice(advice, 1000, 70, grouped=True).startswith(words)


# --- segments -----------------------------------------------------------------------------------------------

SEGMENTS = """\
targets: [{fpr: 10%, min_n: 10, max_relative_error: 0.5, required: false}]
data: {segment: language}
checks: {segments: {targets: [10%], min_n: 100, max_relative_error: 0.5, ranges: [{from: 10%, to: 1%}]}}
"""


def in_segment(
    k: int, n: int, change: Counts = as_expected, unreached: int = 0, more: str = "", worth: float = 0, **facts: Any
) -> list[Finding]:
    """One segment, its target with k of n rows flagged, and its range; a target without a count is not reached."""
    policy = policy_of(SEGMENTS + more)
    (span,) = segments.question_of(policy).spans
    grid = segment_corridor_of(policy, span, segments.question_of(policy).error, policy.alpha()).grid
    counts = tuple(int(count) for count in change(grid.fprs * n))
    along = RangeInSegments(
        start=span.start,
        stop=span.stop,
        reached=len(counts) - unreached,
        flagged=(counts,),
        effective=(((worth, worth),) * len(asked_of_groups(grid, policy.anchors.anchors)),) if worth else None,
    )
    at = InSegments(fpr=TENTH, threshold=0.5 if k else None, flagged=(k,))
    found = Segments(column="language", names=("de",), rows=(n,), targets=(at,), ranges=(along,))
    whole = targets(policy, tally(k, n, threshold=at.threshold))
    return [*segments.judge(policy, evidence(policy, fpr=whole, segments=found, **facts))][1:]


def of_target(*counts: Any, **facts: Any) -> Finding:
    return next(finding for finding in in_segment(*counts, **facts) if finding.rate is not None)


def of_range(*counts: Any, **facts: Any) -> Finding:
    return next(finding for finding in in_segment(*counts, **facts) if finding.range is not None)


@pytest.mark.parametrize(("n", "outcome"), [(2000, "fail"), (30, "inconclusive")])
def test_a_target_that_no_score_reaches_is_none_in_a_segment_either(n: int, outcome: str) -> None:
    finding = of_target(0, n)
    assert said(finding) == (outcome, "unreachable")
    assert str(finding.remedy).startswith("more held-out rows cannot help: too many benign rows share the highest")


@pytest.mark.parametrize(
    ("more", "facts", "decided"),
    [
        ("", {}, ("inconclusive", "open")),
        ("rule: observed\n", {}, ("pass", "observed")),
        ("rule: not-refuted\n", {}, ("pass", "not-refuted")),
        ("rule: observed\n", {"lowest_label": 0.2}, ("inconclusive", "extrapolated")),
    ],
)
def test_a_segment_is_decided_by_the_rule_unless_it_is_extrapolated(
    more: str, facts: dict[str, Any], decided: tuple[str, str]
) -> None:
    assert said(of_target(13, 120, more=more, **facts)) == decided
    assert said(of_range(13, 120, more=more, **facts)) == decided


def test_rows_outside_the_tolerance_are_so_in_a_segment_too() -> None:
    decided = said(of_range(13, 120, lambda expected: 1.6 * expected, more="rule: observed\n"))
    assert decided == ("inconclusive", "outside")
    assert said(of_target(19, 120, more="rule: observed\n")) == decided


def test_a_range_in_a_segment_whose_end_no_score_reaches_is_unreachable() -> None:
    finding = of_range(12, 120, none_at_the_end, 1)
    assert said(finding) == ("inconclusive", "unreachable")
    assert finding.remedy == range_words.UNREACHABLE_RANGE


@pytest.mark.parametrize(("k", "n", "decided"), [(200, 2000, "too-few"), (5, 50, "min-n")])
def test_a_range_in_a_segment_is_refuted_or_too_small(k: int, n: int, decided: str) -> None:
    finding = of_range(k, n, (lambda expected: expected / 10) if n > 100 else as_expected)
    assert finding.reason == decided
    assert ("disproved even as one of 2 tests" if n > 100 else "100 wanted") in finding.message


def test_a_range_in_a_segment_is_proven_by_what_its_rows_are_worth() -> None:
    alone, grouped = of_range(2000, 20_000), of_range(2000, 20_000, worth=300.0)
    assert (said(alone), said(grouped)) == (("pass", "proven"), ("inconclusive", "open"))
    assert alone.message.endswith("every threshold is proven")
    assert ", in groups worth 300 independent ones" in grouped.message


def test_more_segments_than_are_judged_along_ranges_are_asked_for_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MOST_SEGMENTS", 1)
    policy = policy_of(SEGMENTS)
    at = InSegments(fpr=TENTH, threshold=0.5, flagged=(1, 1))
    found = Segments(column="language", names=("de", "en"), rows=(10, 10), targets=(at,))
    *_, last = segments.asked(policy, evidence(policy, segments=found))
    assert (str(last.name), last.needs) == ("segments@10%..1%", "at most 1 segments, and there are 2")
    assert str(last.remedy).startswith("judge ranges in fewer segments: name a coarser column in data.segment")


def test_more_rows_of_a_segment_are_advised_at_every_look_too() -> None:
    once, always = (str(of_range(200, 2000, more=more).remedy) for more in ("", "interval: sequential\n"))
    assert once != always
    assert all(remedy.startswith("hold out at least ") for remedy in (once, always))


def test_a_range_in_a_segment_beside_its_tolerance_gets_no_number_of_rows() -> None:
    finding = of_range(13, 120, lambda expected: 1.6 * expected)
    assert finding.remedy == "find out how benign rows of this segment differ, or hold out many more of them"


def test_rows_of_a_segment_that_there_was_no_time_to_compute_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "STEPS", 0)
    remedy = of_target(13, 120).remedy
    assert remedy == "hold out more benign rows of this segment: how many would do was not computed"
    monkeypatch.undo()
    assert str(of_target(13, 120).remedy).startswith("hold out ")
    assert str(of_target(19, 120).remedy).endswith("at the rate observed no number of rows would pass")
