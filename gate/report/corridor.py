"""The figures of a range: the contract at every threshold of it, with the band that holds at all of them at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gate.checks.check import Finding, JudgedRange
from gate.checks.range_words import describe_in_brief
from gate.checks.ranges import InRange, Ranges
from gate.contract import LOWEST, Anchor, Contract, Floats
from gate.record import Record
from gate.report.drawing import COLORS, matplotlib
from gate.report.figures import Display
from gate.statistics.clusters import Effective
from gate.statistics.ranges import Sides, corridor, worth_of
from gate.words import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_DRAWN = 3  # ranges in one report
MOST_POINTS = 160  # points of a curve


def range_findings(record: Record) -> list[Finding]:
    """List the ranges to draw: those that were measured, in the policy's order."""
    found = [f for f in record.findings if f.range is not None and f.check.segment is None]
    return [finding for finding in found if _numbers(record, finding) is not None][:MOST_DRAWN]


@dataclass(frozen=True)
class _AtPoints:
    """A range at the points to draw: its scores, rates, counts as rates, and the band around them."""

    points: Sequence[Anchor]
    fprs: Floats
    observed: Floats
    band: Sides
    edges: Sides


def _numbers(record: Record, finding: Finding) -> _AtPoints | None:
    """Compute the numbers from the record's counts; None if these are not counts at the points of the range."""
    judged, measured = finding.range, record.of(Ranges)
    ends = None if judged is None else (judged.start, judged.stop)
    found: InRange | None = next((r for r in measured.ranges if (r.start, r.stop) == ends), None) if measured else None
    if judged is None or found is None or not _is_possible(record, judged, found):
        return None
    above, below = map(Fraction, judged.tolerance)
    contract = Contract(tuple(Anchor(anchor.fpr, anchor.score) for anchor in record.calibrator.anchors))
    looks = record.policy.interval == "sequential"
    along = corridor(contract, judged.start, judged.stop, above, below, Fraction(1, 20), sequential=looks)
    own = along.grid
    if len(own.points) != len(found.flagged) or found.worth == ():
        return None
    n, counts, worth = record.holdout.n, np.array(found.flagged, dtype=np.int64), None
    if found.worth is not None:
        worth = worth_of(own, n, {at.point: Effective(*at.effective) for at in found.worth})
    named = {judged.start, judged.stop, *judged.refuted}
    named |= {rate for ends in (*judged.proven, *judged.impossible) for rate in ends}
    spread = {round(i) for i in np.linspace(0, len(own.points) - 1, MOST_POINTS)}
    at = sorted(spread | {i for i, point in enumerate(own.points) if point.fpr in named})
    low, high = (np.full(len(at), float(n)),) * 2 if worth is None else (worth.low[at], worth.high[at])
    p, tail, k = own.fprs[at], own.band_level / 2, counts[at] / n
    band = Sides(along.tails.lower(k * low, low, p, tail), along.tails.upper(k * high, high, p, tail))
    return _AtPoints(
        [own.points[i] for i in at],
        p,
        k,
        band,
        Sides(np.maximum(along.edges.low[at], 0), np.minimum(along.edges.high[at], 1)),
    )


def _is_possible(record: Record, judged: JudgedRange, found: InRange) -> bool:
    """Whether the range of a record, which nobody may have verified, can be drawn."""
    worth, last, n = found.worth or (), len(found.flagged) - 1, record.holdout.n
    places = [at.point for at in worth]
    known = not worth or (places[0] == 0 and places[-1] == last and places == sorted({*places}))
    return (
        known
        and LOWEST.fpr <= judged.stop < judged.start <= 1
        and all(0 < error <= 1000 for error in judged.tolerance)
        and all(0 < min(at.effective) <= max(at.effective) <= n for at in worth)
    )


class CorridorDisplay(Display):
    """The contract along a range: promised and measured FPR against calibrated score, the tolerance as a corridor.

    The band holds at every threshold at once 95 % of the time; `proven` are the stretches of scores that are proven,
    `refuted` and `jumps` the scores at which the range is disproved, and at which tied rows make the rate jump.
    """

    height = 3.5

    def __init__(
        self,
        score: Sequence[float],
        expected_fpr: Sequence[float],
        observed_fpr: Sequence[float],
        band: tuple[Sequence[float], Sequence[float]],
        tolerance: tuple[Sequence[float], Sequence[float]],
        proven: Sequence[tuple[float, float]],
        refuted: Sequence[float],
        jumps: Sequence[float] = (),
        floor_score: float = 1.0,
    ) -> None:
        self.score = score
        self.expected_fpr = expected_fpr
        self.observed_fpr = observed_fpr
        self.band = band
        self.tolerance = tolerance
        self.proven = proven
        self.refuted = refuted
        self.jumps = jumps
        self.floor_score = floor_score

    @classmethod
    def from_record(cls, record: Record) -> Self:
        return cls.from_finding(record, range_findings(record)[0])

    @classmethod
    def from_finding(cls, record: Record, finding: Finding) -> Self:
        numbers, judged = _numbers(record, finding), finding.range
        assert numbers is not None
        assert judged is not None
        at = {point.fpr: float(point.score) for point in numbers.points}
        return cls(
            [float(point.score) for point in numbers.points],
            numbers.fprs.tolist(),
            numbers.observed.tolist(),
            (numbers.band.low.tolist(), numbers.band.high.tolist()),
            (numbers.edges.low.tolist(), numbers.edges.high.tolist()),
            [(at[start], at[stop]) for start, stop in judged.proven if start in at and stop in at],
            [at[fpr] for fpr in judged.refuted if fpr in at],
            [at[start] for start, _ in judged.impossible if start in at],
            record.curve.floor if record.curve is not None else 1.0,
        )

    def _drawn(self, values: Sequence[float]) -> list[float]:
        """The values to draw for some rates: the rates themselves."""
        return list(values)

    def _draw(self, ax: Axes) -> None:
        low, high = self.tolerance
        every = [v for v in (*self.expected_fpr, *self.observed_fpr, *high, *self.band[1]) if v > 0]
        bottom = max(min([*self.expected_fpr, *(v for v in (*low, *self.band[0]) if v > 0)]) / 1.2, 1e-11)
        bottom = max(bottom, min(self.expected_fpr) / 10)
        ax.set_yscale("log")
        ax.set_ylim(bottom, min(max(every) * 1.25, 1.6))
        self._draw_parts(ax, bottom / 10)
        ax.plot(self.score, self.expected_fpr, color=COLORS["ink"], lw=1.1, ls=(0, (4, 2)), label="promised")
        top, decades = ax.get_ylim()[1], range(math.ceil(math.log10(bottom)), 1)
        ticks = [10.0**i for i in decades if bottom <= 10.0**i <= top]
        ax.set_yticks(ticks, [percent(tick, 1) for tick in ticks])
        ax.minorticks_off()
        ax.set_ylabel("false-positive rate")
        ax.legend(loc="lower left")  # this corner is free: rates fall from left to right

    def _draw_parts(self, ax: Axes, least: float) -> None:
        """Draw the corridor, the band in the style of what is known of it, the measured curve, and what refutes."""
        margin = 0.02 * (self.score[-1] - self.score[0])
        ax.set_xlim(self.score[0] - margin, self.score[-1] + margin)
        edges, band = (
            [[max(v, least) for v in self._drawn(side)] for side in pair] for pair in (self.tolerance, self.band)
        )
        ax.fill_between(self.score, edges[0], edges[1], color=COLORS["band"], lw=0, label="tolerated")
        solid: Any = {"color": COLORS["pass"], "alpha": 0.28, "lw": 0}
        hatched: Any = {"facecolor": "none", "edgecolor": COLORS["inconclusive"], "hatch": "//////", "lw": 0}
        named: set[str] = set()
        for start, stop, proven in self._stretches():
            part = slice(start, stop + 1)
            style, label = (solid, "band, proven") if proven else (hatched, "band, open")
            style = {**style, "label": None if label in named else label}
            with matplotlib().rc_context({"hatch.color": COLORS["inconclusive"]}):
                ax.fill_between(self.score[part], band[0][part], band[1][part], **style)
            named.add(label)
        for side in band:
            ax.plot(self.score, side, color=COLORS["soft"], lw=0.6)
        seen = [
            (s, o) for s, o, k in zip(self.score, self._drawn(self.observed_fpr), self.observed_fpr, strict=True) if k
        ]
        ax.plot([s for s, _ in seen], [o for _, o in seen], color=COLORS["mark"], lw=1.6, label="held out")
        shown = dict(zip(self.score, self._drawn(self.observed_fpr), strict=True))
        crosses = [s for s in self.refuted if s in shown]
        if crosses:
            mark: Any = {"color": COLORS["fail"], "ms": 8, "mew": 0, "label": "disproved", "clip_on": False}
            ends = ax.get_ylim()
            ax.plot(crosses, [min(max(shown[s], least, ends[0]), ends[1]) for s in crosses], "X", **mark)
        for i, jump in enumerate(self.jumps):
            dotted: Any = {"color": COLORS["fail"], "lw": 0.9, "ls": (0, (1, 2))}
            ax.axvline(jump, label=None if i else "rows of one score", **dotted)
        if self.score[0] < self.floor_score < self.score[-1]:
            ax.axvline(self.floor_score, color=COLORS["soft"], lw=0.9, ls=(0, (2, 2)))
            place: Any = {"textcoords": "offset points", "ha": "right", "va": "top", "fontsize": 9}
            ax.annotate("extrapolated", (self.floor_score, ax.get_ylim()[1]), (-4, -3), color=COLORS["soft"], **place)
        ax.set_xlabel("calibrated score")
        ax.grid(color=COLORS["line"], lw=0.5)

    def _stretches(self) -> list[tuple[int, int, bool]]:
        """Find the runs of steps that are proven or open: the places of their first and last points."""
        steps = [
            any(low <= one and other <= high for low, high in self.proven)
            for one, other in zip(self.score[:-1], self.score[1:], strict=True)
        ]
        turns = [0, *(i for i in range(1, len(steps)) if steps[i] != steps[i - 1]), len(steps)]
        return [(start, stop, steps[start]) for start, stop in pairwise(turns)]


class CorridorErrorDisplay(CorridorDisplay):
    """The contract along a range as errors: measured over promised FPR, less one."""

    height = 3.1

    def _drawn(self, values: Sequence[float]) -> list[float]:
        return [value / expected - 1 for value, expected in zip(values, self.expected_fpr, strict=True)]

    def _draw(self, ax: Axes) -> None:
        edges = [e for side in self.tolerance for e in self._drawn(side)]
        reach = max(abs(e) for e in edges)
        seen = [*self._drawn(self.observed_fpr), *(b for side in self.band for b in self._drawn(side))]
        top = min(max([1.25 * max(edges), *(1.1 * b for b in seen)]), 4 * reach)
        bottom = max(min([1.25 * min(edges), *(1.1 * b for b in seen)]), -1.05)
        ax.set_ylim(bottom, top)
        self._draw_parts(ax, -2.0)
        ax.axhline(0, color=COLORS["ink"], lw=1.1, ls=(0, (4, 2)))
        ax.locator_params(axis="y", nbins=6)
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+.4g} %".replace("-", "−") if value else "0 %")
        ax.set_ylabel("measured ÷ promised − 1")


def title_of(finding: Finding) -> str:
    """Say in a few words what the figure shows."""
    assert finding.range is not None
    return describe_in_brief(finding.range, finding.grade)


CAPTION = (
    "The band holds at every threshold at once {confidence} of the time. A proof at each takes a narrower interval, so "
    "that the band may leave the tolerance where it is proven."
)
