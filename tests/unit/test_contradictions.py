"""Whichever value of a record's evidence is forged into one that no samples have, a sentence objects to it."""

from __future__ import annotations

from typing import Any

import pytest
from forging import COLUMNS, Measured, case_of, measured

from gate.checks import ranges

pytestmark = pytest.mark.figures  # the points of figures are forged too
N, FIT, MALICIOUS = 402, 602, 102  # rows of the samples without ids


@pytest.fixture(scope="module")
def releases() -> dict[str, Measured]:
    return {kind: measured(kind) for kind in COLUMNS}


def more(old: Any) -> Any:
    return old + 1


def first_left_out(old: list[Any]) -> list[Any]:
    return old[1:]


def last_left_out(old: list[Any]) -> list[Any]:
    return old[:-1]


IN_GROUPS = "must say what its rows are worth where they come in groups, only there"
WORTH = "must be worth more than no row, and at most as many as there are"
Forgeries = dict[str, list[tuple[str, str, Any]]]  # under each sentence: whose evidence, where, and what is put there

TARGETS: Forgeries = {
    "fpr.anchors must be those of the contract": [("plain", "fpr.anchors", last_left_out)],
    "fpr@10% is not counted on the 402 rows of its sample": [("plain", "fpr.anchors.0.tally.rows", more)],
    "fpr@10% is counted at another threshold than the calibrator's": [
        ("plain", "fpr.anchors.0.tally.threshold", 0.5),
    ],
    f"fpr@10% {IN_GROUPS}": [
        ("plain", "fpr.anchors.0.tally.effective", [9, 9]),
        ("grouped", "fpr.anchors.0.tally.effective", None),
    ],
    "fpr.anchors must flag no more at a rarer rate": [("plain", "fpr.anchors.0.tally.flagged", 0)],
    "detection must be counted where there are malicious rows, only there": [
        ("plain", "detection", None),
        ("plain", "malicious", None),
    ],
    "detection.anchors must be those of the contract": [("plain", "detection.anchors", first_left_out)],
    "tpr@1% is not counted on the 102 rows of its sample": [
        ("plain", "detection.anchors.1.tally.rows", more),
    ],
    "direction must be measured at every anchor where there are malicious rows, only there": [
        ("plain", "direction", None),
        ("plain", "direction.anchors", 5),
        ("plain", "malicious", None),
    ],
    "baseline at 10 % has another threshold than this release": [
        ("plain", "baseline.anchors.0.new.threshold", 0.5),
        ("plain", "fpr", None),
    ],
    "baseline at 10 % counts otherwise than this release": [("plain", "baseline.anchors.0.new.flagged", more)],
    "baseline must be the release that was checked": [
        ("served", "baseline", None),
        ("served", "baseline.reference", None),
    ],
    "drop at 10 % has another threshold than this release": [
        ("plain", "drop.anchors.0.new.threshold", 0.5),
        ("plain", "detection", None),
    ],
    "drop at 1 % counts otherwise than this release": [("plain", "drop.anchors.1.new.flagged", more)],
    "reuse must be counted, as the policy asks": [("plain", "reuse", None)],
    "reuse must count malicious rows where there are any, only there": [
        ("plain", "reuse.malicious", None),
        ("plain", "malicious", None),
    ],
}

SAMPLES: Forgeries = {
    "floor.lowest_label is not that of the calibrator": [("plain", "floor.lowest_label", 0.5)],
    "freshness has other days than the held-out rows": [
        ("plain", "freshness", None),
        ("plain", "freshness.oldest", "2026-02-19"),
        ("plain", "holdout.newest", "2026-02-21"),
    ],
    "granularity.top_tie is no count of this sample": [("plain", "granularity.top_tie", 0)],
    "granularity.targets are others than the policy's": [("plain", "granularity.targets", last_left_out)],
    "granularity.targets are no counts of the fit sample": [
        ("plain", "granularity.targets.0.apart", 0),
        ("plain", "granularity.targets.0.through", FIT + 1),
    ],
    "exchangeability.ranks are no counts of these samples": [
        ("plain", "exchangeability.ranks.1.pooled", 5),
        ("plain", "exchangeability.ranks.1.held_out", 0),
        ("plain", "exchangeability.ranks.8.pooled", N + FIT),
    ],
    "exchangeability.targets are others than the policy's": [("plain", "exchangeability.targets", first_left_out)],
    "exchangeability.targets are no counts of these samples": [
        ("plain", "exchangeability.targets.0.held_out", 101),
        ("plain", "exchangeability.targets.0.pooled", FIT + 101),
    ],
    "exchangeability.targets are not counted on the fit rows at the calibrator's thresholds": [
        ("plain", "exchangeability.targets.0.fit.rows", more),
        ("plain", "exchangeability.targets.0.fit.threshold", 0.5),
    ],
    "exchangeability must be tested by groups where rows come in groups, only there": [
        ("plain", "exchangeability.unit", "groups"),
        ("plain", "exchangeability.least", 0.1),
        ("grouped", "exchangeability.ranks.0.p_value", None),
    ],
}

RANGES: Forgeries = {
    "ranges are others than the policy's": [
        ("plain", "ranges.ranges.0.start", 0.05),
        ("plain", "ranges.ranges", first_left_out),
    ],
    "fpr@10%..1% must have a count at each of the 121 points of its grid": [
        ("plain", "ranges.ranges.0.flagged", last_left_out),
        ("plain", "ranges.ranges.0.reached", 122),
    ],
    "fpr@10%..1% must flag no more than the held-out rows, no more at a rarer rate, none beyond all scores": [
        ("plain", "ranges.ranges.0.flagged.0", N + 1),
        ("plain", "ranges.ranges.0.flagged.1", 0),
        ("plain", "ranges.ranges.0.reached", 120),
    ],
    "fpr@10%..1% counts otherwise than the targets at 10 %": [("plain", "ranges.ranges.0.flagged.0", 43)],
    f"fpr@10%..1% {IN_GROUPS}": [
        ("plain", "ranges.ranges.0.worth", []),
        ("grouped", "ranges.ranges.0.worth", None),
    ],
    "fpr@10%..1% must say what its rows are worth at the points that are asked": [
        ("grouped", "ranges.ranges.0.worth", first_left_out),
    ],
    f"fpr@10%..1% {WORTH}": [
        ("grouped", "ranges.ranges.0.worth.0.effective", [0, 9]),
        ("grouped", "ranges.ranges.0.worth.0.effective", [9, N]),
    ],
}

SEGMENTS: Forgeries = {
    "segments are those of another column than the policy's": [("plain", "segments.column", "other")],
    "segments have other rates than the policy asks": [("plain", "segments.targets.0.fpr", 0.01)],
    "segments are not the held-out rows": [("plain", "segments.rows.0", more)],
    "segments count otherwise than fpr@10%": [("plain", "segments.targets.0.flagged.0", more)],
    "segments at 10 % are counted at another threshold than the calibrator's": [
        ("plain", "segments.targets.0.threshold", 0.5),
    ],
    "segments must say what their rows are worth where they come in groups, only there": [
        ("plain", "segments.targets.0.effective", [[9, 9], [9, 9]]),
        ("grouped", "segments.targets.0.effective", None),
    ],
    "segments have other ranges than the policy asks": [
        ("plain", "segments.ranges", []),
        ("plain", "segments.ranges.0.stop", 0.05),
    ],
    "segments@10%..2% must have a count for each segment at each of the 17 points of its grid": [
        ("plain", "segments.ranges.0.flagged", last_left_out),
        ("plain", "segments.ranges.0.flagged.1", last_left_out),
    ],
    "segments@10%..2% must flag no more than its rows, no more at a rarer rate, none beyond all scores": [
        ("plain", "segments.ranges.0.flagged.1.1", 0),
        ("plain", "segments.ranges.0.flagged.0.0", N),
        ("plain", "segments.ranges.0.reached", 16),
    ],
    "segments@10%..2% counts otherwise than the targets at 10 %": [("plain", "segments.ranges.0.flagged.0.0", more)],
    f"segments@10%..2% {IN_GROUPS}": [
        ("plain", "segments.ranges.0.effective", []),
        ("grouped", "segments.ranges.0.effective", None),
    ],
    f"segments@10%..2% {WORTH}": [
        ("grouped", "segments.ranges.0.effective", last_left_out),
        ("grouped", "segments.ranges.0.effective.0", last_left_out),
        ("grouped", "segments.ranges.0.effective.0.0", [0, 9]),
        ("grouped", "segments.ranges.0.effective.1.0", [9, N]),
    ],
}

SERVED: Forgeries = {
    "served must be measured where calibrated scores have raw ones beside them, only there": [
        ("served", "served", None),
        ("served", "calibrated", False),
    ],
    "served must be counted on malicious rows where there are any, only there": [
        ("served", "served.malicious", None),
        ("served", "malicious", None),
    ],
    "served is not counted on the rows of its sample": [("served", "served.benign.rows", more)],
    "served must name a cause where rows differ, only there": [
        ("served", "served.benign.equal", N + 1),
        ("served", "served.benign.missing", 1),
        ("served", "served.malicious.cause", None),
    ],
    "served.factor must be there where scores were scaled, only there": [
        ("served", "served.benign.factor", 2.0),
        ("served", "served.malicious.cause", "scaled"),
    ],
    "served.lowest must be that of rows that differ": [("served", "served.benign.lowest", None)],
    "served.crossings must be at anchors of the contract": [
        ("served", "served.benign.crossings", [{"fpr": 0.5, "score": 0.01, "more": 1, "fewer": 0}]),
    ],
    "served.crossings must be of rows that differ": [
        ("served", "served.benign.crossings", [{"fpr": 0.1, "score": 0.1, "more": 1, "fewer": 1}]),
    ],
}

CURVE: Forgeries = {
    "the curve must have the 100 points of the contract": [
        ("plain", "curve.points", last_left_out),
        ("plain", "curve.points.0.fpr", 0.5),
        ("plain", "curve.points.0.score", 0.5),
    ],
    "the curve has another floor than the fit sample": [("plain", "curve.floor", 0.5)],
    "the curve is not counted at the calibrated scores themselves": [
        ("served", "curve.points.7.tally.threshold", 0.5),
    ],
    "the curve is not counted on the held-out rows": [("plain", "curve.points.7.tally.rows", more)],
    "the curve counts otherwise than the targets at 10 %": [("plain", "curve.points.10.tally.flagged", more)],
    "the curve counts malicious rows otherwise than detection at 10 %": [
        ("plain", "curve.points.10.detected", 0),
        ("plain", "curve.points.10.detected", None),
        ("plain", "detection", None),
    ],
    "the curve flags more rows from a score of 0.5 on than from 0.49 on": [
        ("plain", "curve.points.50.tally.flagged", 300),
        ("plain", "curve.points.50.detected", 101),
        ("served", "curve.points.50.tally.flagged", 300),
    ],
    "the curve counts otherwise than fpr@10%..1%": [
        ("plain", "curve.points.20.tally.flagged", 0),
        ("plain", "ranges.ranges.0.flagged.1", N),
    ],
}

FORGERIES = [
    (*forgery, sentence)
    for table in (TARGETS, SAMPLES, RANGES, SEGMENTS, SERVED, CURVE)
    for sentence, forgeries in table.items()
    for forgery in forgeries
]


@pytest.mark.parametrize("kind", COLUMNS)
def test_sound_evidence_contradicts_nothing(releases: dict[str, Measured], kind: str) -> None:
    assert releases[kind].contradictions() == []


@pytest.mark.parametrize("place", ["ranges", "segments", "baseline", "baseline.reference", "drop"])
def test_what_need_not_be_measured_is_no_contradiction(releases: dict[str, Measured], place: str) -> None:
    """Nothing along ranges or in segments, and no release before this one."""
    assert releases["plain"].forged(place, None).contradictions() == []


@pytest.mark.parametrize(("kind", "place", "value", "sentence"), FORGERIES)
def test_a_forged_value_is_contradicted(
    releases: dict[str, Measured], kind: str, place: str, value: Any, sentence: str
) -> None:
    """The forged part can be read back, and one of the objections is the sentence on it."""
    assert sentence in releases[kind].forged(place, value).contradictions()


@pytest.mark.parametrize(
    ("place", "value", "sentences"),
    [
        ("holdout.newest", None, []),
        ("ranges", None, []),
        ("ranges.ranges.0.flagged", last_left_out, []),
        ("ranges.ranges.0.reached", 120, ["fpr@10%..1% says otherwise than the calibrator what raw scores reach"]),
        ("ranges.ranges.0.flagged.60", 0, ["0 rows reach 0.", "which no rows do"]),
    ],
)
def test_counts_along_a_range_are_those_of_the_calibrators_own_thresholds(
    releases: dict[str, Measured], place: str, value: Any, sentences: list[str]
) -> None:
    """One threshold has one count, and a higher one no more; the first that breaks it is named."""
    forged, calibrator = releases["plain"].forged(place, value), case_of("plain").calibrator
    known = [(point.tally.threshold, point.tally.flagged) for point in forged.curve.points]
    found = [*ranges.counted_otherwise(forged.policy, forged.evidence, calibrator, known)]
    assert len(found) == bool(sentences)
    assert all(sentence in found[0] for sentence in sentences)


def test_calibrated_scores_are_counted_along_ranges_as_the_raw_ones_are(releases: dict[str, Measured]) -> None:
    """A calibrated score reaches a point's own score where its raw score reaches the point's raw threshold."""
    raw, served = (releases[kind].evidence.parts.model_dump() for kind in ("plain", "served"))
    assert served["ranges"] == raw["ranges"]
    assert served["segments"]["ranges"] == raw["segments"]["ranges"]
