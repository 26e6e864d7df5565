"""Turns what is detected, and what changed since another release, into strings for every report; it judges nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from gate.checks import reasons
from gate.checks.baseline import Comparison
from gate.checks.change import Change, Flipped
from gate.checks.check import Finding
from gate.checks.detection import Detection
from gate.checks.drop import Drops
from gate.checks.reuse import Alphas
from gate.record import Record
from gate.report.numbers import bounds, clean, grouped, share
from gate.report.rows import in_order, weight
from gate.statistics.tally import Tally
from gate.stored import exact
from gate.words import in_digits, p_value, percent, plural, signed


@dataclass(frozen=True)
class DetectionRow:
    """One anchor on malicious rows; the cells from `minimum` on are empty where the policy does not judge it."""

    target: str
    score: str
    counted: str
    observed: str
    interval: str
    minimum: str = ""
    outcome: str = ""
    because: str = ""
    weight: str = ""


@dataclass(frozen=True)
class ChangeRow:
    """One anchor under two releases; the last three cells are empty where they scored different rows."""

    target: str
    thresholds: tuple[str, str]
    old: str
    new: str
    old_counted: str
    new_counted: str
    difference: str
    p: str
    stale: str
    stale_counted: str
    gained: str = ""
    lost: str = ""
    flipped: str = ""


@dataclass(frozen=True)
class Changes:
    """What changed since a release, ready to print."""

    release: str
    created: str
    outcome: str
    is_reference: bool
    since: str
    rows: list[ChangeRow]
    detection: list[ChangeRow]
    policy: list[str]
    policy_same: bool
    paired: bool
    stale: bool


def detection_rows(record: Record) -> list[DetectionRow]:
    """List every anchor at which malicious rows were counted; those that block the release come first."""
    found: Detection | None = record.of(Detection)
    if found is None:
        return []
    judged = {finding.check.rate: finding for finding in record.findings if finding.check.kind == "tpr"}
    blocking = [finding.check.rate for finding in in_order(judged.values()) if finding.blocks]
    places = {fpr: place for place, fpr in enumerate(blocking)}
    scores = {anchor.fpr: anchor.score for anchor in record.calibrator.anchors}
    rows = []
    for anchor in sorted(found.anchors, key=lambda anchor: places.get(anchor.fpr, len(places))):
        finding = judged.get(anchor.fpr)
        rate = None if finding is None else finding.rate
        minimum = None if rate is None else rate.tolerance[0]
        edges = None if minimum is None else (minimum, Decimal(1))
        interval = anchor.tally.interval(record.alphas.malicious) if rate is None else rate.interval
        rows.append(
            DetectionRow(
                target=percent(anchor.fpr),
                score=f"{scores[anchor.fpr]:g}",
                counted=_counted(anchor.tally),
                observed=share(anchor.tally.flagged, anchor.tally.rows, edges),
                interval=bounds(interval, edges),
                **_judgement(finding, minimum),
            )
        )
    return rows


def _judgement(finding: Finding | None, minimum: Decimal | None) -> dict[str, str]:
    if finding is None or minimum is None:
        return {}
    return {
        "minimum": percent(minimum),
        "outcome": finding.outcome,
        "because": reasons().get(finding.reason, clean(finding.reason)),
        "weight": weight(finding),
    }


def changes(record: Record) -> Changes | None:
    """Write as strings what a record says has changed since another release."""
    found = record.of(Comparison)
    return found and describe_changes(found, record.of(Drops), record.alphas, record.kind, record.calibrated)


def describe_changes(
    found: Comparison, drops: Drops | None, alphas: Alphas, kind: str = "run", calibrated: bool = False
) -> Changes | None:
    """Write a comparison as strings; `calibrated` says that the newer rows are not counted at a raw threshold."""
    old = found.reference
    if old is None:
        return None
    stale = any(c.stale is not None and c.old.threshold != c.new.threshold for c in found.anchors)
    return Changes(
        release=clean(old.release),
        created=clean(old.created),
        outcome=old.outcome,
        is_reference=old.outcome == "pass",
        since="the release" if kind == "check" else clean(old.release),
        rows=[_row(change, alphas.benign, calibrated) for change in found.anchors],
        detection=[_change_row(change, alphas.malicious, 2) for change in (drops.anchors if drops else ())],
        policy=[clean(change) for change in found.policy_changes],
        policy_same=not found.policy_changes,
        paired=any(change.flipped is not None for change in found.anchors),
        stale=stale,
    )


def _row(change: Change, alpha: float, calibrated: bool) -> ChangeRow:
    row, thresholds = _change_row(change, alpha), _thresholds(change.old.threshold, change.new.threshold)
    stale = change.stale
    return replace(
        row,
        thresholds=(thresholds[0], "as served") if calibrated else thresholds,
        stale="" if stale is None else f"{share(stale.flagged, stale.rows)} ({_times(stale, change.fpr)})",
        stale_counted="" if stale is None else _counted(stale),
    )


def _change_row(change: Change, alpha: float, digits: int | None = None) -> ChangeRow:
    """Make one row; `digits` is how many digits a difference has after the point, if findings name it with as many."""
    return ChangeRow(
        target=percent(change.fpr),
        thresholds=("", ""),
        old=share(change.old.flagged, change.old.rows),
        new=share(change.new.flagged, change.new.rows),
        old_counted=_counted(change.old),
        new_counted=_counted(change.new),
        difference=_difference(float(change.difference), change.interval(alpha), digits),
        p="not tested" if change.p_value is None else p_value(change.p_value),
        stale="",
        stale_counted="",
        **_flips(change.flipped, change.new.rows),
    )


def _counted(found: Tally) -> str:
    return f"{grouped(found.flagged)} / {grouped(found.rows)}"


def _thresholds(old: float | None, new: float | None) -> tuple[str, str]:
    """Write two thresholds with six digits, or with as many as it takes to tell them apart."""
    for digits in range(6, 18):
        shown = tuple("none" if value is None else f"{value:.{digits}g}" for value in (old, new))
        if (shown[0] == shown[1]) == (old == new):
            return shown[0], shown[1]
    return repr(old), repr(new)


def _difference(difference: float, interval: tuple[float, float], digits: int | None) -> str:
    shown = f"{_points(difference, ROUND_HALF_EVEN, digits)} points"
    return f"{shown} ({_points(interval[0], ROUND_FLOOR, digits)} to {_points(interval[1], ROUND_CEILING, digits)})"


def _points(share: float, rounding: str, digits: int | None) -> str:
    """Write a difference of rates in percentage points with its sign: two digits, or so many after the point."""
    points = exact(share) * 100
    if digits is None:
        points = Context(prec=2, rounding=rounding).create_decimal(points)
    else:
        points = points.quantize(Decimal(1).scaleb(-digits), rounding=rounding).normalize()
    return signed(points) if points else "0"


def _times(found: Tally, fpr: Decimal) -> str:
    """Say how many times the promised rate this is."""
    ratio = Context(prec=2).create_decimal(Decimal(found.flagged) / Decimal(found.rows) / fpr)
    return f"{in_digits(ratio)} × the target"


def _flips(flipped: Flipped | None, rows: int) -> dict[str, str]:
    if flipped is None:
        return {}
    share = percent(Context(prec=3).create_decimal(Decimal(flipped.new_only + flipped.old_only) / rows))
    return {
        "gained": grouped(flipped.new_only),
        "lost": grouped(flipped.old_only),
        "flipped": f"{share} of {plural(rows, 'row')}",
    }
