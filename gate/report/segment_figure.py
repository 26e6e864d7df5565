"""Draws the figure of segments: the rate and interval of each against its tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from gate.record import Record
from gate.report.drawing import COLORS
from gate.report.figures import MAX_ROWS, ForestDisplay
from gate.report.numbers import clean
from gate.report.rows import Row, shown_segments
from gate.words import cut_within, listed, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = 20  # characters of a segment's name beside the axes


class SegmentsDisplay(ForestDisplay):
    """A forest of the segments that come first in the report: those that block, then the worst."""

    @classmethod
    def from_record(cls, record: Record) -> Self:
        found = shown_segments(record)[:MAX_ROWS]
        names = [cut_within(clean(f.finding.check.segment or ""), NAME) for f in found]
        return cls.of(found, [f"{name}, {percent(f.target)}" for f, name in zip(found, names, strict=True)])

    def _size(self) -> tuple[float, float]:
        return 0.85 + 0.34 * len(self.labels), 2.4  # the size does not depend on the names, which come from outside

    def _draw(self, ax: Axes) -> None:
        super()._draw(ax)
        ax.set_yticklabels([""] * len(self.labels))
        place: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "parse_math": False}
        aligned: Any = {"ha": "right", "va": "baseline", "color": COLORS["ink"], "fontsize": 9.5}
        for i, label in enumerate(self.labels):  # labels stand on their baseline, so no glyph of a name moves anything
            ax.annotate(label, (0, i), (-6, -3.3), annotation_clip=False, **place, **aligned)


def title_of(segments: list[Row]) -> str:
    """Say what the figure shows: the segments that do not pass, and why."""
    amiss = [row for row in segments if row.outcome != "pass"]
    if not amiss:
        return "The segment passes" if len(segments) == 1 else f"All {len(segments):,} pass"
    named = listed([f"{row.segment} at {row.target}" for row in amiss[:3]])
    more = f" and {len(amiss) - 3:,} more" if len(amiss) > 3 else ""
    return f"{named}{more}: {', '.join(dict.fromkeys(row.because for row in amiss[:3]))}"
