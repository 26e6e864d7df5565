"""The HTML report: it is one file without scripts, takes nothing from the network, and needs no style sheet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gate.checks.detection import Detection
from gate.checks.drop import Drops
from gate.record import Record
from gate.report.numbers import clean, share
from gate.report.page import Limit, fitting, parts
from gate.report.rows import Row, in_order, segment_rows, target_rows
from gate.report.templates import template
from gate.stored import exact
from gate.words import listed, percent

if TYPE_CHECKING:
    from gate.report import figures

MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class FigurePart:
    """A figure as the page shows it, under a title that states what it finds."""

    name: str
    svg: str
    title: str
    caption: str


def render(record: Record) -> str:
    figures = draw(record)
    return fitting(lambda limit: _render(record, figures, limit), MAX_BYTES)


def _render(record: Record, figures: list[FigurePart], limit: Limit) -> str:
    page = template("report.html", clean, clean, limit.characters)
    return page.render(parts(record, limit), first=figures[0] if figures else None, figures=figures[1:])


def draw(record: Record) -> list[FigurePart]:
    """Draw the figures for which the record has numbers; the one that shows the verdict comes first."""
    first = _telling(record)
    return sorted([*_draw_contract(record), *_draw_segments(record)], key=lambda part: part.name != first)


def _draw_segments(record: Record) -> Iterator[FigurePart]:
    from gate.report import figures, segment_figure

    rows = segment_rows(record)
    if rows:
        yield _draw(
            record,
            segment_figure.SegmentsDisplay,
            "segments",
            segment_figure.title_of(rows),
            " ".join(f"{row.segment}. {_in_words(row)}" for row in rows[: figures.MAX_ROWS]),
            "The observed rate and its interval in each segment, as multiples of the target; the worst first.",
        )


def _draw_contract(record: Record) -> list[FigurePart]:
    """Draw ranges, targets, the whole curve and what is detected."""
    from gate.report import figures

    targets, ranges = target_rows(record), list(_draw_ranges(record))
    drawn = [*ranges]
    if targets:
        drawn.append(
            _draw(
                record,
                figures.ForestDisplay,
                "forest",
                _forest_title(targets),
                " ".join(_in_words(row) for row in targets[: figures.MAX_ROWS]),
                "The observed rate and its interval at each target, as multiples of it. The shaded band is what the "
                "policy tolerates.",
            )
        )
    if record.curve and len(record.curve.points) > 1:
        drawn += _draw_curve(record, len(record.curve.points), targets, with_errors=not ranges)
    return drawn


def _draw(
    record: Record, display: type[figures.Display], name: str, title: str, described: str, caption: str
) -> FigurePart:
    from gate.report import figures

    return FigurePart(name, figures.to_svg(display.from_record(record), name, title, described), title, caption)


def _draw_ranges(record: Record) -> Iterator[FigurePart]:
    """Draw each range as rates, and as errors."""
    from gate.report import corridor, figures

    held = corridor.CAPTION.format(confidence=percent(exact(record.confidence)))
    for number, finding in enumerate(corridor.range_findings(record)):
        title, said = corridor.title_of(finding), held
        for display, kind in ((corridor.CorridorDisplay, "range"), (corridor.CorridorErrorDisplay, "range-error")):
            name = _range_name(kind, number)
            svg = figures.to_svg(display.from_finding(record, finding), name, title, finding.message)
            yield FigurePart(name, svg, title, said)
            said = "The same as errors: above zero there are too many false positives."


def _draw_curve(record: Record, points: int, targets: list[Row], with_errors: bool) -> Iterator[FigurePart]:
    """Draw the figures along the whole curve."""
    from gate.report import figures

    lowest = percent(record.calibrator.lowest_label, 3)
    yield _draw(
        record,
        figures.ContractDisplay,
        "contract",
        f"The fit sample supports rates down to {lowest}",
        f"{points} points on {record.holdout.n:,} held-out benign rows; rarer rates are extrapolated.",
        "The whole contract: what each calibrated score promises (dashed), what the held-out rows show, and the "
        "interval at each point by itself. In the hatched part the curve is extrapolated.",
    )
    if with_errors:
        yield _draw(
            record,
            figures.RelativeErrorDisplay,
            "error",
            "Measured against promised: " + ", ".join(f"{row.error} at {row.target}" for row in targets[:4]),
            "At the targets: " + "; ".join(f"{row.target}: {row.error} ({row.outcome})" for row in targets) + ".",
            "Above zero there are too many false positives. The bars are the tolerances at the targets. The line "
            "stops where the interval is wider than twice the promised rate; the hatched part is extrapolated.",
        )
    if not record.calibrated:
        yield _draw(
            record,
            figures.MappingDisplay,
            "mapping",
            "Raw thresholds: " + ", ".join(f"{row.threshold} at {row.target}" for row in targets[:4]),
            "Raw thresholds: " + "; ".join(f"{row.target} at {row.threshold}" for row in targets) + ".",
            "How this release's raw scores become calibrated scores. The marks are the raw thresholds of the targets.",
        )
    if record.malicious is not None and record.of(Detection) is not None:
        yield _draw(
            record,
            figures.DetectionDisplay,
            "detection",
            _detection_title(record),
            f"{points} points on {record.malicious.n + record.malicious.unscored:,} malicious rows.",
            "The share of malicious rows that reach each promised false-positive rate, with its interval at the "
            "anchors, the policy's minimum where it sets one, and the baseline's share where there is one.",
        )


def _telling(record: Record) -> str:
    """Choose the figure that shows why: detection, a segment, or a range that counts; otherwise the targets.

    The tolerance of a range may be wider than that of a target in it, so that its figure would not show a target's.
    """
    from gate.report import corridor

    first = next((finding for finding in in_order(record.findings) if finding.blocks), None)
    if first is not None and first.check.segment:
        return "segments"
    if first is not None and first.check.kind in ("tpr", "tpr-drop", "direction"):
        return "detection"
    for number, finding in enumerate(corridor.range_findings(record)):
        if finding.required and (finding.blocks or first is None):
            return _range_name("range", number)
    return "forest"


def _range_name(kind: str, number: int) -> str:
    return f"{kind}-{number}" if number else kind


def _forest_title(targets: list[Row]) -> str:
    amiss = [row for row in targets if row.outcome != "pass"]
    if not amiss:
        few = {1: "The target passes", 2: "Both targets pass"}
        return few.get(len(targets), f"All {len(targets)} targets pass")
    reasons = dict.fromkeys(row.because for row in amiss)
    named = {reason: [row.target for row in amiss if row.because == reason] for reason in reasons}
    return "; ".join(f"{listed(targets)}: {reason}" for reason, targets in named.items())


def _detection_title(record: Record) -> str:
    """Say what is detected, and what the release before detected; anchors that the policy asks for come first."""
    found, drops = record.of(Detection), record.of(Drops)
    before = {change.fpr: change.old for change in (drops.anchors if drops else ())}
    asked = {finding.check.rate for finding in record.findings if finding.check.kind in ("tpr", "tpr-drop")}
    anchors = sorted(found.anchors if found else (), key=lambda at: at.fpr not in asked)[: len(asked) or 3]
    said = []
    for at in anchors[:3]:
        old = before.get(at.fpr)
        then = "" if old is None else f" ({share(old.flagged, old.rows)} before)"
        said.append(f"{share(at.tally.flagged, at.tally.rows)} at {percent(at.fpr)}{then}")
    return f"Detects {', '.join(said)}" if said else "What is detected"


def _in_words(row: Row) -> str:
    return (
        f"Target {row.target}: {row.counted} = {row.observed}, interval {row.interval}, tolerance {row.tolerance}: "
        f"{row.outcome}."
    )
