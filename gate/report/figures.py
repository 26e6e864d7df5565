"""The figures: displays that keep numbers and draw them, in a notebook with `.plot()` or on a page as inline SVG.

They follow scikit-learn's displays: the constructor stores numbers, `from_record` takes them from a record, `plot`
draws on axes given or made, and keeps `figure_` and `ax_`. pyplot and its global state are never touched.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self
from xml.etree import ElementTree

from gate.checks.curve import Curve
from gate.checks.detection import Detection
from gate.checks.drop import Drops
from gate.record import Record
from gate.report.drawing import COLORS, STYLE, defaults, matplotlib
from gate.report.numbers import grouped
from gate.report.rows import RatedFinding, shown_targets
from gate.report.svg import simplify
from gate.stored import exact
from gate.words import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = {"pass": "o", "fail": "X", "inconclusive": "D"}
WIDTH = 4.9  # inches of 72 units: on a phone the text has about its nominal size
AXES_BOTTOM, AXES_TOP = 0.55, 0.1  # inches below and above the axes of a figure
MAX_ROWS = 12
LARGEST = 1e100  # the largest raw score drawn; matplotlib's axes end before floats do
MISSING = "the record has no curve; `gate run` writes one"

Numbers = Sequence[float]
Bounds = Sequence[tuple[float, float]]


class Display:
    """What the displays share: axes made where none are given, and their SVG."""

    figure_: Figure
    ax_: Axes
    height = 3.3

    @classmethod
    def from_record(cls, record: Record) -> Self:
        raise NotImplementedError

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a figure of its own."""
        with matplotlib().rc_context(STYLE):
            self.ax_ = _new_axes(*self._size()) if ax is None else ax
            figure = self.ax_.get_figure()
            assert figure is not None
            self.figure_ = figure  # type: ignore[assignment]  # a SubFigure draws as well
            self._draw(self.ax_)
        return self

    def _size(self) -> tuple[float, float]:
        """Return the figure's height and the room left of its axes, in inches."""
        return self.height, 1.0

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError

    def _repr_svg_(self) -> str:
        """Return what a notebook shows."""
        return to_svg(self, "figure", standalone=True)


class ForestDisplay(Display):
    """Observed FPR and interval at each target, as multiples of the target, against its tolerance."""

    def __init__(
        self,
        target_fpr: Numbers,
        observed_fpr: Numbers,
        interval: Bounds,
        tolerance: Bounds,
        outcome: Sequence[str],
        labels: Sequence[str],
    ) -> None:
        self.target_fpr = target_fpr
        self.observed_fpr = observed_fpr
        self.interval = interval
        self.tolerance = tolerance
        self.outcome = outcome
        self.labels = labels

    @classmethod
    def from_record(cls, record: Record) -> Self:
        found = shown_targets(record)[:MAX_ROWS]
        counts = [f"{grouped(f.rate.tally.flagged)} of {grouped(f.rate.tally.rows)}" for f in found]
        return cls.of(found, [f"{percent(f.target)}\n{count}" for f, count in zip(found, counts, strict=True)])

    @classmethod
    def of(cls, found: Sequence[RatedFinding], labels: list[str]) -> Self:
        """Make the display with a row for each finding."""
        return cls(
            [f.target_fpr for f in found],
            [f.rate.tally.rate for f in found],
            [f.rate.interval for f in found],
            [f.edges for f in found],
            [f.outcome for f in found],
            labels,
        )

    def _size(self) -> tuple[float, float]:
        longest = max((len(line) for label in self.labels for line in label.split("\n")), default=0)
        return 0.95 + 0.46 * len(self.labels), min(max(0.2 + 0.085 * longest, 1.0), 2.2)

    def _draw(self, ax: Axes) -> None:
        rows = range(len(self.labels))
        ratios = [
            [bound / fpr for bound in (*self.interval[i], *self.tolerance[i], self.observed_fpr[i])]
            for i, fpr in enumerate(self.target_fpr)
        ]
        reach = max((abs(math.log(r)) for row in ratios for r in row if r > 0), default=1.0)
        limit = math.exp(min(max(reach * 1.08, math.log(2.2)), math.log(30)))
        left, right = 1 / limit, limit
        ax.set_xscale("log")
        ax.set_xlim(left, right)
        ax.set_ylim(len(self.labels) - 0.4, -0.6)
        for i in rows:
            low, high, least, most, observed = (min(max(ratio, left), right) for ratio in ratios[i])
            color = COLORS[self.outcome[i]]
            band = matplotlib().patches.Rectangle((least, i - 0.32), most - least, 0.64, color=COLORS["band"], lw=0)
            ax.add_patch(band)
            ax.plot([low, high], [i, i], color=color, lw=2.2, solid_capstyle="butt")
            for end, beyond in ((low, ratios[i][0] < left), (high, ratios[i][1] > right)):
                if not beyond:
                    ax.plot([end, end], [i - 0.13, i + 0.13], color=color, lw=1.4)
            ax.plot([observed], [i], MARKERS[self.outcome[i]], color=color, ms=6.5, mew=0, clip_on=False)
        ax.axvline(1, color=COLORS["ink"], lw=0.9, zorder=1.5)
        ax.set_yticks(list(rows), self.labels)
        ax.tick_params(axis="y", length=0, labelcolor=COLORS["ink"])
        few = (1 / 20, 1 / 5, 1, 5, 20)
        ticks = [t for t in (few if right > 10 else (1 / 10, 1 / 5, 1 / 2, 1, 2, 5, 10)) if left <= t <= right]
        ax.set_xticks(ticks, [f"×{t:.4g}" for t in ticks])
        ax.minorticks_off()
        ax.grid(axis="x", color=COLORS["line"], lw=0.5)
        ax.set_xlabel("held-out false-positive rate ÷ target")
        ax.spines["left"].set_visible(False)


class _CurveDisplay(Display):
    """A display of the curve; the arrays run with the calibrated score."""

    def __init__(
        self,
        score: Numbers,
        expected_fpr: Numbers,
        observed_fpr: Numbers,
        interval: Bounds,
        floor_score: float,
        target_score: Numbers,
        target_fpr: Numbers,
        tolerance: Bounds,
    ) -> None:
        self.score = score
        self.expected_fpr = expected_fpr
        self.observed_fpr = observed_fpr
        self.interval = interval
        self.floor_score = floor_score
        self.target_score = target_score
        self.target_fpr = target_fpr
        self.tolerance = tolerance

    @classmethod
    def from_record(cls, record: Record) -> Self:
        curve = _curve(record)
        found = shown_targets(record)
        return cls(
            [float(p.score) for p in curve.points],
            [float(p.fpr) for p in curve.points],
            [p.tally.rate for p in curve.points],
            [p.tally.interval(record.alphas.benign) for p in curve.points],
            curve.floor,
            [float(f.rate.score) for f in found],
            [f.target_fpr for f in found],
            [f.edges for f in found],
        )

    def _mark_floor(self, ax: Axes) -> None:
        """Mark the floor: everything to its right is extrapolated."""
        right = ax.get_xlim()[1]
        if self.floor_score < right:
            hatched: Any = {"facecolor": "none", "edgecolor": COLORS["line"], "hatch": "////", "lw": 0, "zorder": 0}
            ax.axvspan(self.floor_score, right, **hatched)
            ax.axvline(self.floor_score, color=COLORS["soft"], lw=0.9, ls=(0, (2, 2)))


class ContractDisplay(_CurveDisplay):
    """Promised and measured FPR against calibrated score, with the pointwise interval and the floor."""

    height = 3.5

    @property
    def _bottom(self) -> float:
        rarest = min([1e-6, *(f / 10 for f in self.target_fpr if f > 0)])
        return 10.0 ** math.floor(math.log10(max(rarest, 1e-10)))

    def _size(self) -> tuple[float, float]:
        return self.height, 0.36 + 0.08 * len(percent(exact(self._bottom)))

    def _draw(self, ax: Axes) -> None:
        bottom = self._bottom
        ax.set_yscale("log")
        ax.set_xlim(0, 1)
        ax.set_ylim(bottom, 1.6)
        low = [max(bound, bottom / 10) for bound, _ in self.interval]
        high = [max(bound, bottom / 10) for _, bound in self.interval]
        ax.fill_between(self.score, low, high, color=COLORS["band"], lw=0, label="interval")
        seen = [(s, o) for s, o in zip(self.score, self.observed_fpr, strict=True) if o > 0]
        ax.plot(self.score, self.expected_fpr, color=COLORS["ink"], lw=1.1, ls=(0, (4, 2)), label="promised")
        ax.plot([s for s, _ in seen], [o for _, o in seen], color=COLORS["mark"], lw=1.7, label="held out")
        ax.plot(self.target_score, self.target_fpr, "o", mfc="none", mec=COLORS["ink"], ms=5.5, label="target")
        decades = [10.0**-i for i in range(round(-math.log10(bottom)) + 1)]
        ax.set_yticks(decades, [percent(d, 1) for d in decades])
        ax.minorticks_off()
        ax.set_xlabel("calibrated score")
        ax.set_ylabel("false-positive rate")
        grid(ax)
        self._mark_floor(ax)
        place: Any = {"textcoords": "offset points", "ha": "right", "va": "top", "color": COLORS["soft"], "fontsize": 9}
        ax.annotate("extrapolated →", (min(self.floor_score, 1), 1.2), (-4, 0), **place)
        ax.legend(loc="lower left", ncols=2)


class RelativeErrorDisplay(_CurveDisplay):
    """Measured over promised FPR, less one, across the curve, with the tolerance at each target.

    The line stops where the interval is first wider than twice the promised rate: what follows is noise.
    """

    height = 3.1

    def _draw(self, ax: Axes) -> None:
        ratios = [
            (s, o / e - 1, low / e - 1, high / e - 1)
            for s, e, o, (low, high) in zip(
                self.score, self.expected_fpr, self.observed_fpr, self.interval, strict=True
            )
        ]
        edges = [bound / fpr - 1 for fpr, band in zip(self.target_fpr, self.tolerance, strict=True) for bound in band]
        at_targets = [r for s, r, _, _ in ratios if any(abs(s - t) < 0.006 for t in self.target_score)]
        top = min(max([0.6, *(1.3 * e for e in edges), *(1.15 * r for r in at_targets)]), 9.0)
        ax.set_xlim(0, 1)
        ax.set_ylim(-1.05, top)
        xs = [s for s, *_ in ratios]
        ax.fill_between(xs, [r[2] for r in ratios], [r[3] for r in ratios], color=COLORS["band"], lw=0)
        first_wide = next((i for i, (_, _, low, high) in enumerate(ratios) if high - low > 2), len(ratios))
        ax.plot(xs[:first_wide], [r[1] for r in ratios[:first_wide]], color=COLORS["mark"], lw=1.6)
        ax.axhline(0, color=COLORS["ink"], lw=1.1, ls=(0, (4, 2)))
        for score, fpr, (least, most) in zip(self.target_score, self.target_fpr, self.tolerance, strict=True):
            ax.plot([score, score], [least / fpr - 1, most / fpr - 1], color=COLORS["ink"], lw=1.2)
            for bound in (least, most):
                ax.plot([score - 0.012, score + 0.012], [bound / fpr - 1] * 2, color=COLORS["ink"], lw=1.2)
        step = 0.5 if top <= 2 else 1.0 if top <= 5 else 2.0
        ticks = [-1 + step * i for i in range(int((top + 1) / step) + 1)]
        ax.set_yticks(ticks, [f"{100 * t:+.0f} %".replace("-", "−") if t else "0 %" for t in ticks])
        ax.set_xlabel("calibrated score")
        ax.set_ylabel("measured ÷ promised − 1")
        grid(ax)
        self._mark_floor(ax)


_LEFT: Any = {"xytext": (-7, 3), "ha": "right", "va": "bottom"}  # the label lies left of a point and above the curve
_RIGHT: Any = {"xytext": (7, -3), "va": "top"}


class MappingDisplay(Display):
    """Calibrated score against raw score, with the raw threshold of each target marked."""

    height = 3.3

    def __init__(
        self, raw: Numbers, score: Numbers, threshold: Numbers, target_score: Numbers, labels: Sequence[str]
    ) -> None:
        self.raw = raw
        self.score = score
        self.threshold = threshold
        self.target_score = target_score
        self.labels = labels

    @classmethod
    def from_record(cls, record: Record) -> Self:
        points = [p for p in _curve(record).points if p.tally.threshold is not None]
        found = [f for f in shown_targets(record) if f.rate.tally.threshold is not None]
        return cls(
            [p.tally.threshold for p in points if p.tally.threshold is not None],
            [float(p.score) for p in points],
            [f.rate.tally.threshold for f in found if f.rate.tally.threshold is not None],
            [float(f.rate.score) for f in found],
            [percent(f.target) for f in found],
        )

    def _draw(self, ax: Axes) -> None:
        ends = [*self.raw, *self.threshold] or [0.0, 1.0]
        low, high = min(ends), max(ends)
        margin = 0.03 * ((high - low) or 1.0)
        ax.set_xlim(low - margin, high + margin)
        ax.set_ylim(0, 1.03)
        ax.plot(self.raw, self.score, color=COLORS["mark"], lw=1.7)
        for threshold, score, label in zip(self.threshold, self.target_score, self.labels, strict=True):
            ax.plot(
                [threshold, threshold, low - margin], [0, score, score], color=COLORS["soft"], lw=0.8, ls=(0, (2, 2))
            )
            ax.plot([threshold], [score], "o", color=COLORS["ink"], ms=5, mew=0)
            beside = _LEFT if threshold > low + 0.8 * (high - low) else _RIGHT
            ax.annotate(label, (threshold, score), textcoords="offset points", fontsize=9.5, **beside)
        ax.set_xlabel("raw score")
        ax.set_ylabel("calibrated score")
        grid(ax)


class DetectionDisplay(Display):
    """Detection rate of malicious rows against promised FPR, with interval, minimum and baseline at the anchors."""

    height = 3.4

    def __init__(
        self,
        fpr: Numbers,
        tpr: Numbers,
        anchor_fpr: Numbers,
        anchor_tpr: Numbers,
        interval: Bounds,
        minimum: Sequence[tuple[float, float]] = (),
        baseline: Sequence[tuple[float, float]] = (),
    ) -> None:
        self.fpr = fpr
        self.tpr = tpr
        self.anchor_fpr = anchor_fpr
        self.anchor_tpr = anchor_tpr
        self.interval = interval
        self.minimum = minimum
        self.baseline = baseline

    @classmethod
    def from_record(cls, record: Record) -> Self:
        found, drops = record.of(Detection), record.of(Drops)
        if record.malicious is None or found is None:
            raise ValueError("the record has no malicious rows")
        points = [p for p in _curve(record).points if p.detected is not None]
        minima = [f.rate for f in record.findings if f.check.kind == "tpr" and f.rate is not None]
        return cls(
            [float(p.fpr) for p in points],
            [(p.detected or 0) / (record.malicious.n + record.malicious.unscored) for p in points],
            [float(at.fpr) for at in found.anchors],
            [at.tally.rate for at in found.anchors],
            [at.tally.interval(record.alphas.malicious) for at in found.anchors],
            [(float(rate.target), float(rate.tolerance[0])) for rate in minima if rate.target is not None],
            [(float(change.fpr), change.old.rate) for change in (drops.anchors if drops else ())],
        )

    def _draw(self, ax: Axes) -> None:
        rarest = min([*self.anchor_fpr, 0.1])
        bottom = rarest / 2.5
        order = sorted((x, y) for x, y in zip(self.fpr, self.tpr, strict=True) if x >= bottom) or [(1.0, 1.0)]
        ax.set_xscale("log")
        ax.set_xlim(bottom, 1.2)
        ax.set_ylim(-0.02, 1.03)
        ax.plot([x for x, _ in order], [y for _, y in order], color=COLORS["mark"], lw=1.7, label="detected")
        for x, (low, high) in zip(self.anchor_fpr, self.interval, strict=True):
            ax.plot([x, x], [low, high], color=COLORS["ink"], lw=1.6, solid_capstyle="butt")
        ax.plot(self.anchor_fpr, self.anchor_tpr, "o", color=COLORS["ink"], ms=5, mew=0, label="at an anchor")
        if self.baseline:
            xs, ys = [x for x, _ in self.baseline], [y for _, y in self.baseline]
            ax.plot(xs, ys, "s", mfc="none", mec=COLORS["soft"], ms=5.5, label="baseline")
        if self.minimum:
            xs, ys = [x for x, _ in self.minimum], [y for _, y in self.minimum]
            ax.plot(xs, ys, "_", color=COLORS["fail"], ms=16, mew=2, label="minimum")
        decades = [10.0**-i for i in range(round(-math.log10(bottom)), -1, -1)]
        shown = decades[:: -(-len(decades) // 5)]
        ax.set_xticks(shown, [percent(d, 1) for d in shown])
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        ax.minorticks_off()
        ax.set_xlabel("promised false-positive rate")
        ax.set_ylabel("malicious rows detected")
        grid(ax)
        ax.legend(loc="lower right")


def _curve(record: Record) -> Curve:
    if record.curve is None:
        raise ValueError(MISSING)
    return record.curve


# --- the page's figures -------------------------------------------------------------------------------------


def _new_axes(height: float, left: float) -> Axes:
    """Make axes with room in inches for the labels, without a layout engine: the same numbers give the same bytes."""
    figure: Figure = matplotlib().figure.Figure(figsize=(WIDTH, height))
    right, bottom, top = 0.2, AXES_BOTTOM, AXES_TOP
    box = (left / WIDTH, bottom / height, (WIDTH - left - right) / WIDTH, (height - bottom - top) / height)
    return figure.add_axes(box)


def grid(ax: Axes) -> None:
    ax.grid(color=COLORS["line"], lw=0.5)


def to_svg(display: Display, name: str, title: str = "", description: str = "", standalone: bool = False) -> str:
    """Draw the display as inline SVG: real text, presentation attributes, colours as classes, ids of its own."""
    buffer = io.StringIO()
    with matplotlib().rc_context({**defaults(), **STYLE, "svg.hashsalt": name}):
        display.plot()
        display.figure_.savefig(buffer, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    simplify(root, name, COLORS)
    root.attrib.pop("height", None)  # a style sheet may change the width, and the height follows
    root.attrib |= {"role": "img", "width": "560", "font-family": "system-ui, sans-serif", "stroke-linejoin": "round"}
    if standalone:
        root.set("xmlns", "http://www.w3.org/2000/svg")
    if title:
        root.set("aria-labelledby", f"{name}-title {name}-desc")
        texts = []
        for tag, text in (("title", title), ("desc", description)):
            element = ElementTree.Element(tag, id=f"{name}-{tag}")
            element.text = text
            texts.append(element)
        root[:0] = texts
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def to_standalone_svg(display: Display, name: str, title: str, description: str) -> str:
    """Draw the display as an SVG file on a white ground: pages that show it may have any colours."""
    svg = to_svg(display, name, title, description, standalone=True)
    opening, rest = svg.split(">", 1)
    return f'{opening}>\n<rect width="100%" height="100%" fill="#ffffff" />{rest}\n'
