"""Draws what all detectors flag together: the share of benign rows that each flags, and that any of them flags."""

from __future__ import annotations

from decimal import Decimal
from html import escape

from gate.checks.check import Finding
from gate.checks.system import Together
from gate.record.system import SystemRecord
from gate.report.html import FigurePart
from gate.report.numbers import clean, grouped, share
from gate.words import cut_within, in_digits, percent, plural

WIDTH, NAME, VALUE, ROW = 560, 176, 74, 30  # pixels: the whole width, the names, the numbers, and the height of a row
CHARACTERS, MOST = 18, 8  # characters of a name; detectors that are drawn, those that flag most


def picture(record: SystemRecord) -> FigurePart | None:
    """Draw what all flag together, at the limit that blocks, or else at the first."""
    system = record.system
    if system is None or not system.benign:
        return None
    findings = {finding.check.rate: finding for finding in record.joint}
    blocked = [one for one in system.benign if one.score in findings and findings[one.score].blocks]
    one = (blocked or [one for one in system.benign if one.score in findings] or system.benign)[0]
    found = findings.get(one.score)
    caption = "The share of benign rows that each detector flags, and that any of them does"
    caption += ", with its interval and the limit." if found is not None and found.rate is not None else "."
    return FigurePart("together", draw(one, found), title_of(one, found), caption)


def title_of(one: Together, finding: Finding | None) -> str:
    """Say what it shows: `Together they flag 0.185 % from a score of 0.5 on; 0.3 % is allowed`."""
    edges = _edges(finding)
    observed = share(one.tally.flagged, one.tally.rows, edges)
    said = f"Together they flag {observed} from a score of {in_digits(one.score)} on"
    return said if edges is None else f"{said}; {percent(edges[1])} is allowed"


def draw(one: Together, finding: Finding | None) -> str:
    """Draw bars for the detectors that flag most and for all together, the limit as a line, intervals as whiskers."""
    edges, rows = _edges(finding), one.tally.rows
    interval = None if finding is None or finding.rate is None else finding.rate.interval
    largest = sorted(one.detectors, key=lambda member: -member.flagged)[:MOST]
    bars = [(clean(member.name), member.flagged / max(rows, 1), member.flagged) for member in largest]
    top = max(one.tally.rate, *(rate for _, rate, _ in bars), *(interval or ()), *map(float, edges or ()), 1e-12) * 1.04
    more = len(one.detectors) - len(bars)
    height, title = ROW * (len(bars) + 2) + 8, title_of(one, finding)

    def x(rate: float) -> str:
        return f"{NAME + (WIDTH - NAME - VALUE) * rate / top:.1f}"

    def row(i: int, name: str, rate: float, flagged: int, role: str) -> list[str]:
        y, wide = i * ROW + 6, max(float(x(rate)) - NAME, 1.0)
        bar = f'<rect x="{NAME}" y="{y}" width="{wide:.1f}" height="{ROW - 12}" class="fill-{role}">'
        said = f"<title>{escape(name)}: {grouped(flagged)} of {grouped(rows)}</title></rect>"
        shown = _text(NAME - 8, y + 14, cut_within(name, CHARACTERS), "end")
        return [shown, bar + said, _text(WIDTH - 2, y + 14, share(flagged, rows, edges), "end")]

    drawn = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(title)}</title>",
    ]
    for i, (name, rate, flagged) in enumerate(bars):
        drawn += row(i, name, rate, flagged, "band")
    last, outcome = len(bars), "mark" if finding is None else finding.outcome
    drawn += row(last, "any of them", one.tally.rate, one.tally.flagged, outcome)
    middle = last * ROW + 6 + (ROW - 12) / 2
    if interval is not None:
        drawn.append(f'<path d="M{x(interval[0])} {middle}H{x(interval[1])}" class="stroke-ink" stroke-width="2"/>')
    if edges is not None:
        limit = x(float(edges[1]))
        drawn.append(
            f'<path d="M{limit} 0V{height - 26}" class="stroke-ink" stroke-width="1.4" stroke-dasharray="4 3"/>'
        )
        place = min(float(limit), WIDTH - 50.0)
        drawn.append(_text(place, height - 12, f"allowed {percent(edges[1])}", "middle", "soft"))
    if more > 0:
        drawn.append(_text(4, height - 12, f"and {plural(more, 'detector')}", "start", "soft"))
    return "\n".join([*drawn, "</svg>"])


def _text(x: float, y: float, words: str, anchor: str, role: str = "ink") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" class="fill-{role}"'
    return f"<text {place}>{escape(words)}</text>"


def _edges(finding: Finding | None) -> tuple[Decimal, Decimal] | None:
    return None if finding is None or finding.rate is None else finding.rate.tolerance
