"""The HTML report: one file, no scripts, no network, readable without its style sheet."""

from __future__ import annotations

from dataclasses import dataclass

from gate.record import Record
from gate.report.page import Limit, fitting, parts
from gate.report.rows import THIN_SPACE, Row, bare_percent, clean, rows, spaced
from gate.report.templates import template

MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class FigurePart:
    """A figure as the page shows it."""

    name: str
    svg: str
    caption: str


def render(record: Record) -> str:
    figures = draw(record)
    return fitting(lambda limit: _render(record, figures, limit), MAX_BYTES)


def _render(record: Record, figures: list[FigurePart], limit: Limit) -> str:
    page = template("report.html", clean, clean, limit.characters)
    return page.render(parts(record, limit), figures=figures)


def draw(record: Record) -> list[FigurePart]:
    """The figures that the record has numbers for."""
    from gate.report import figures

    targets, curve, drawn = rows(record, THIN_SPACE), record.curve, []

    def add(display: type[figures.Display], name: str, title: str, described: str, caption: str) -> None:
        svg = figures.to_svg(display.from_record(record), name, title, described)
        drawn.append(FigurePart(name, svg, caption))

    if targets:
        add(
            figures.ForestDisplay,
            "forest",
            "Observed rate and interval at each target against its tolerance",
            " ".join(_in_words(row) for row in targets[: figures.MAX_ROWS]),
            "Each target by itself: the observed rate and its interval as multiples of the target. The shaded band is "
            "what the policy tolerates; a whole interval inside it is proven, outside it refuted.",
        )
    if curve and len(curve.points) > 1:
        floor = (
            f"The fit sample supports rates down to {bare_percent(float(f'{record.calibrator.lowest_label:.3g}'))} "
            f"(calibrated score {curve.floor:.3f})"
        )
        add(
            figures.ContractDisplay,
            "contract",
            "Promised and measured false-positive rate against calibrated score",
            f"{len(curve.points)} points on {spaced(record.holdout.n)} held-out benign rows. {floor}; rarer rates are "
            f"extrapolated.",
            f"The whole contract: what each calibrated score promises (dashed), what the held-out rows show, and the "
            f"interval at each point. {floor}; in the hatched part the curve is extrapolated.",
        )
        add(
            figures.RelativeErrorDisplay,
            "error",
            "Relative error of the measured rate across calibrated scores",
            "At the targets: " + "; ".join(f"{row.target}: {row.error} ({row.outcome})" for row in targets) + ".",
            "Measured over promised rate, less one: above zero there are too many false positives. The bars are the "
            "tolerances at the targets. The line stops where the interval is wider than twice the promised rate; the "
            "hatched part is extrapolated. Each point's interval holds by itself, not the whole band at once.",
        )
        add(
            figures.MappingDisplay,
            "mapping",
            "Calibrated score against raw score, with the thresholds",
            "Raw thresholds: " + "; ".join(f"{row.target} at {row.threshold}" for row in targets) + ".",
            "How this release's raw scores become calibrated scores. The marks are the raw thresholds of the targets.",
        )
        if record.malicious is not None:
            add(
                figures.RocDisplay,
                "roc",
                "Malicious rows detected against promised false-positive rate",
                f"{len(curve.points)} points on {spaced(record.malicious.n)} malicious rows.",
                f"What the detector catches at each promised rate, of {spaced(record.malicious.n)} malicious rows. "
                "The marks are the targets.",
            )
    return drawn


def _in_words(row: Row) -> str:
    return (
        f"Target {row.target}: {row.counted} = {row.observed}, interval {row.interval}, tolerance {row.tolerance}: "
        f"{row.outcome}."
    )
