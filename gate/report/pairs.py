"""Draws many pairs: how many rows each two detectors both flag; more rows are darker."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gate.checks.system import Together
from gate.report.numbers import grouped
from gate.words import in_digits

CELL, NAME = 13, 150  # pixels of a cell, and of the names beside it
CHARACTERS = 22


def draw_pairs(names: Sequence[str], one: Together) -> str:
    """Draw the lower half of the matrix as SVG; a cell says what it counts when one points at it."""
    n = len(names)
    width, height = NAME + n * CELL + 10, n * CELL + 20
    counts = [member.flagged for member in one.detectors]
    drawn = [
        f'<svg viewBox="0 0 {width} {height}" role="img" xmlns="http://www.w3.org/2000/svg">',
        f"<title>Rows that each two of {n} detectors both flag at a score of {in_digits(one.score)}</title>",
    ]
    for i, name in enumerate(names):
        shown = name if len(name) <= CHARACTERS else f"{name[: CHARACTERS - 1]}…"
        y = i * CELL + CELL - 3
        drawn.append(
            f'<text x="{NAME - 6}" y="{y}" text-anchor="end" font-size="10" class="fill-ink">{escape(shown)}</text>'
        )
        for j in range(i + 1):
            both = counts[i] if i == j else one.both[i - 1][j]
            fewer = min(counts[i], counts[j])
            strength = both / fewer if fewer else 0.0
            said = (
                f"{name} and {names[j]}: {grouped(both)} of {grouped(fewer)}" if i != j else f"{name}: {grouped(both)}"
            )
            role, opacity = ("line", 1.0) if i == j else ("mark", round(0.06 + 0.94 * strength, 2))
            drawn.append(
                f'<rect x="{NAME + j * CELL}" y="{i * CELL}" width="{CELL - 1}" height="{CELL - 1}" '
                f'class="fill-{role}" fill-opacity="{opacity}"><title>{escape(said)}</title></rect>'
            )
    return "\n".join([*drawn, "</svg>"])
