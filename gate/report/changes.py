"""The strings of what is detected and of what changed since another release, for every report."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from gate.errors import plural
from gate.release import BaselineSection, ChangeEntry, DetectionChangeEntry, FindingEntry, Record
from gate.report.rows import REASONS, beside, clean, grouped, in_order, p_value, percent, regrouped, standing


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
    standing: str = ""


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


def detection_rows(record: Record, separator: str = ",") -> list[DetectionRow]:
    """Every anchor that malicious rows were counted at, those that block the release first."""
    if record.malicious is None:
        return []
    judged = {finding.target_fpr: finding for finding in record.findings if finding.check.startswith("tpr@")}
    blocking = [finding.target_fpr for finding in in_order(judged.values()) if finding.blocks]
    places = {fpr: place for place, fpr in enumerate(blocking)}
    rows = []
    for entry in sorted(record.malicious.anchors, key=lambda entry: places.get(entry.fpr, len(places))):
        finding = judged.get(entry.fpr)
        minimum = None if finding is None else finding.min_tpr
        rows.append(
            DetectionRow(
                target=percent(_exact(entry.fpr)),
                score=f"{entry.score:g}",
                counted=f"{grouped(entry.true_positives, separator)} / {grouped(entry.malicious, separator)}",
                observed=_share(entry.true_positives, entry.malicious, minimum),
                interval=_interval(entry.interval, minimum),
                **_judgement(finding, minimum),
            )
        )
    return rows


def _judgement(finding: FindingEntry | None, minimum: float | None) -> dict[str, str]:
    if finding is None or minimum is None:
        return {}
    return {
        "minimum": percent(_exact(minimum)),
        "outcome": finding.outcome,
        "because": REASONS.get(finding.reason, clean(finding.reason)),
        "standing": standing(finding),
    }


def changes(section: BaselineSection, kind: str, separator: str = ",") -> Changes:
    """The section of a record, or of `gate compare`, as strings."""
    return Changes(
        release=clean(section.release),
        created=clean(section.created),
        outcome=section.outcome,
        is_reference=section.outcome == "pass",
        since="the release" if kind == "check" else clean(section.release),
        rows=[_row(entry, separator) for entry in section.anchors],
        detection=[_detection_row(entry, separator) for entry in section.detection],
        policy=[regrouped(clean(change), separator) for change in section.policy_changes],
        policy_same=not section.policy_changes,
        paired=any(entry.paired for entry in section.anchors),
        stale=any(e.stale_false_positives is not None and e.old_threshold != e.new_threshold for e in section.anchors),
    )


def _row(entry: ChangeEntry, separator: str) -> ChangeRow:
    stale = entry.stale_false_positives
    return ChangeRow(
        target=percent(_exact(entry.fpr)),
        thresholds=_thresholds(entry.old_threshold, entry.new_threshold),
        old=_share(entry.old_false_positives, entry.old_benign),
        new=_share(entry.false_positives, entry.benign),
        old_counted=f"{grouped(entry.old_false_positives, separator)} / {grouped(entry.old_benign, separator)}",
        new_counted=f"{grouped(entry.false_positives, separator)} / {grouped(entry.benign, separator)}",
        difference=_difference(entry.difference, entry.difference_interval),
        p="not tested" if entry.p_value is None else p_value(entry.p_value),
        stale="" if stale is None else f"{_share(stale, entry.benign)} ({_times(stale, entry)})",
        stale_counted="" if stale is None else f"{grouped(stale, separator)} / {grouped(entry.benign, separator)}",
        **_flips(entry.newly_flagged, entry.no_longer_flagged, entry.rows, separator),
    )


def _detection_row(entry: DetectionChangeEntry, separator: str) -> ChangeRow:
    return ChangeRow(
        target=percent(_exact(entry.fpr)),
        thresholds=("", ""),
        old=_share(entry.old_true_positives, entry.old_malicious),
        new=_share(entry.true_positives, entry.malicious),
        old_counted=f"{grouped(entry.old_true_positives, separator)} / {grouped(entry.old_malicious, separator)}",
        new_counted=f"{grouped(entry.true_positives, separator)} / {grouped(entry.malicious, separator)}",
        difference=_difference(entry.difference, entry.difference_interval),
        p="not tested" if entry.p_value is None else p_value(entry.p_value),
        stale="",
        stale_counted="",
        **_flips(entry.newly_detected, entry.no_longer_detected, entry.rows, separator),
    )


def _thresholds(old: float | None, new: float | None) -> tuple[str, str]:
    """Six digits, or as many as it takes to tell two thresholds apart."""
    for digits in range(6, 18):
        shown = tuple("none" if value is None else f"{value:.{digits}g}" for value in (old, new))
        if (shown[0] == shown[1]) == (old == new):
            return shown[0], shown[1]
    return repr(old), repr(new)


def _share(k: int, n: int, edge: float | None = None) -> str:
    rate = Decimal(k) / Decimal(n)
    edges = [] if edge is None else [_exact(edge)]
    return percent(beside(rate, edges, 3, ROUND_HALF_EVEN))


def _interval(interval: tuple[float, float], edge: float | None) -> str:
    edges = [] if edge is None else [_exact(edge)]
    low = beside(_exact(interval[0]), edges, 3, ROUND_FLOOR)
    high = beside(_exact(interval[1]), edges, 3, ROUND_CEILING)
    return f"{percent(low).removesuffix(' %')} to {percent(high)}"


def _difference(difference: float, interval: tuple[float, float] | None) -> str:
    shown = f"{_points(difference, ROUND_HALF_EVEN)} points"
    if interval is None:
        return shown
    return f"{shown} ({_points(interval[0], ROUND_FLOOR)} to {_points(interval[1], ROUND_CEILING)})"


def _points(share: float, rounding: str) -> str:
    """A difference of rates in percentage points, signed."""
    points = Context(prec=2, rounding=rounding).create_decimal(_exact(share) * 100)
    return f"{points:+f}".replace("-", "−") if points else "0"


def _times(k: int, entry: ChangeEntry) -> str:
    """How many times the promised rate this is."""
    ratio = Context(prec=2).create_decimal(Decimal(k) / Decimal(entry.benign) / _exact(entry.fpr))
    return f"{ratio.normalize():f} × the target"


def _flips(newly: int | None, no_longer: int | None, rows: int | None, separator: str) -> dict[str, str]:
    if newly is None or no_longer is None or rows is None:
        return {}
    share = percent(Context(prec=3).create_decimal(Decimal(newly + no_longer) / rows))
    return {
        "gained": grouped(newly, separator),
        "lost": grouped(no_longer, separator),
        "flipped": f"{share} of {regrouped(plural(rows, 'row'), separator)}",
    }


def _exact(number: float) -> Decimal:
    return Decimal(repr(number))
