"""The time line: it chooses which releases and checks of a history are shown, and draws one anchor over them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gate.history import Flagged, History, PastRelease, Reading
from gate.names import CheckName
from gate.report.drawing import COLORS
from gate.report.figures import LARGEST, MARKERS, Bounds, Display, Numbers, grid, to_standalone_svg
from gate.report.rows import RatedFinding, rated
from gate.words import percent, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_DRAWN = 300  # the most records in a figure: about one for each point of its width
DRAWN_NAME = 9


@dataclass(frozen=True)
class HistoryColumn:
    """One anchor: what the latest release that was judged there had to keep."""

    check: CheckName
    target: str
    score: str
    tolerance: str
    required: bool
    first: str


def counted(history: History) -> str:
    """`6 releases and 2 checks`."""
    kinds = Counter(release.kind for release in history.releases)
    nouns = (("run", "release"), ("check", "check"))
    return " and ".join(plural(kinds[kind], noun) for kind, noun in nouns if kinds[kind])


class HistoryDisplay(Display):
    """One anchor over time: observed FPR ÷ target with intervals and tolerance, above; the raw threshold, beneath.

    `release` holds for each record the place of the release that it is of: its own for a release, that of another for
    a check, -1 for a check whose release is not drawn. Checks are smaller and hollow, and a line ties them to their
    release. `if_kept` holds the least and the most that `first_threshold`, the first release's, flags in each record,
    and `threshold` each record's own; each is null where there is none. Of many releases the intervals become a band.
    """

    height = 3.7
    CROWDED = 40  # more releases than this lie too close together

    def __init__(
        self,
        target_fpr: float,
        labels: Sequence[str],
        observed_fpr: Numbers,
        interval: Bounds,
        tolerance: Bounds,
        outcome: Sequence[str],
        threshold: Sequence[float | None],
        if_kept: Sequence[tuple[float, float] | None],
        first_threshold: float | None = None,
        release: Sequence[int] | None = None,
    ) -> None:
        self.target_fpr = target_fpr
        self.labels = labels
        self.observed_fpr = observed_fpr
        self.interval = interval
        self.tolerance = tolerance
        self.outcome = outcome
        self.threshold = threshold
        self.if_kept = if_kept
        self.first_threshold = first_threshold
        self.release = range(len(labels)) if release is None else release

    def to_svg(self, title: str = "", description: str = "") -> str:
        """Draw the figure as an SVG file."""
        return to_standalone_svg(self, "history", title, description)

    def _size(self) -> tuple[float, float]:
        return self.height, 0.95

    @property
    def _releases(self) -> list[int]:
        return [i for i, of in enumerate(self.release) if of == i]

    @property
    def _checks(self) -> list[int]:
        return [i for i, of in enumerate(self.release) if of != i]

    @property
    def positions(self) -> list[float]:
        """Place records in the order of time: releases stand apart, and all checks take no more room than releases."""
        room = max(len(self._releases), 4)
        step = min(0.5, room / max(len(self._checks), 1))
        found: list[float] = []
        for i, of in enumerate(self.release):
            after_check = i > 0 and self.release[i - 1] != i - 1
            found.append((found[-1] if found else 0.0) + (1.0 if of == i else step if after_check else max(step, 0.4)))
        return found

    def _draw(self, ax: Axes) -> None:
        ax.set_axis_off()
        rates, thresholds = ax.inset_axes((0, 0.41, 1, 0.51)), ax.inset_axes((0, -0.07, 1, 0.39))
        xs = self.positions
        self._draw_rates(rates, xs)
        self._draw_thresholds(thresholds, xs)
        for panel in (rates, thresholds):
            panel.set_xlim(xs[0] - 0.6, xs[-1] + 0.6)
            panel.minorticks_off()
            panel.yaxis.set_label_coords(-0.2, 0.5)  # the place does not depend on the ticks' labels
            grid(panel)
        rates.set_xticks([], [])
        ticks = self._ticks(xs)
        thresholds.set_xticks([xs[i] for i in ticks], [self.labels[i] for i in ticks], parse_math=False)

    def _ticks(self, xs: Numbers) -> list[int]:
        """Choose as many releases as have room for their names, with the latest one; without releases, checks."""
        letter = (xs[-1] - xs[0] + 1.2) / 42
        chosen: list[int] = []
        for i in reversed(self._releases or self._checks):
            widths = [max(len(self.labels[j]), 3) for j in (i, *chosen[:1])]
            if not chosen or xs[chosen[0]] - xs[i] >= letter * sum(widths) / 2:
                chosen.insert(0, i)
        return chosen

    def _draw_rates(self, ax: Axes, xs: Numbers) -> None:
        intervals, tolerances = self._ratios(self.interval), self._ratios(self.tolerance)
        observed = [rate / self.target_fpr for rate in self.observed_fpr]
        at_first = [None if pair is None else self._ratios([pair])[0] for pair in self.if_kept]
        seen = [r for pair in [*intervals, *tolerances, *at_first] if pair for r in pair if r > 0] or [1.0]
        lowest, top = max(min([*seen, 1 / 2]) / 1.15, 1 / 100), min(max([*seen, 2]) * 1.15, 2000)
        below = [r for r in [*observed, *(r for pair in at_first if pair for r in pair)] if r < lowest]
        bottom = lowest / 3 if below else lowest  # rates below the axis stand on a line of their own
        room = (top / bottom) ** 0.04  # for half a marker

        def drawn(ratio: float) -> float:
            return min(ratio, top) if ratio >= lowest else bottom

        ax.set_yscale("log")
        ax.set_ylim(bottom / room, top * room)
        edges = [xs[0] - 0.6, *((one + other) / 2 for one, other in pairwise(xs)), xs[-1] + 0.6]
        sides = [x for pair in pairwise(edges) for x in pair]
        least, most = ([drawn(pair[i]) for pair in tolerances for _ in range(2)] for i in (0, 1))
        ax.fill_between(sides, least, most, color=COLORS["band"], lw=0, label="tolerance")
        ax.axhline(1, color=COLORS["ink"], lw=0.9)
        known = [(x, math.sqrt(drawn(pair[0]) * drawn(pair[1]))) for x, pair in zip(xs, at_first, strict=True) if pair]
        if known:
            dashed: Any = {"color": COLORS["ink"], "lw": 1.0, "ls": (0, (3, 2)), "mfc": COLORS["band"], "ms": 4.5}
            dashed |= {"marker": "" if self._crowded or self._checks else "s", "label": "first threshold kept"}
            ax.plot([x for x, _ in known], [ratio for _, ratio in known], clip_on=False, **dashed)
        rates, bars = [drawn(r) for r in observed], [(drawn(low), drawn(high)) for low, high in intervals]
        self._draw_checks(ax, xs, rates, bars)
        self._draw_releases(ax, xs, rates, bars)
        wide = top / bottom > 60
        ticks = [m * 10.0**e for e in range(-2, 4) for m in ((1,) if wide else (1, 2, 5))]
        ticks = [t for t in ticks if lowest <= t <= top]
        names = [f"×{t:.4g}" for t in ticks]
        if below:
            ticks, names = [bottom, *ticks], ["0" if max(below) == 0 else "≈ 0", *names]
        ax.set_yticks(ticks, names)
        ax.set_ylabel("FPR ÷ target")
        tight: Any = {"columnspacing": 0.9, "handlelength": 1.3, "handletextpad": 0.5} if self._checks else {}
        ax.legend(loc="lower left", bbox_to_anchor=(-0.24, 1.0), ncols=4, borderaxespad=0.2, **tight)

    def _draw_releases(self, ax: Axes, xs: Numbers, observed: Numbers, intervals: Bounds) -> None:
        drawn = self._releases
        if self._crowded:
            least, most = ([intervals[i][end] for i in drawn] for end in (0, 1))
            ax.fill_between([xs[i] for i in drawn], least, most, color=COLORS["line"], lw=0)
            line = [observed[i] for i in drawn]
            ax.plot([xs[i] for i in drawn], line, color=COLORS["mark"], lw=1.2, label="observed")
        elif drawn:
            last, label = self.outcome[drawn[-1]], "release" if self._checks else "observed"
            ax.plot([], [], MARKERS[last], color=COLORS[last], ms=6, mew=0, label=label)
        for i in drawn:
            outcome = self.outcome[i]
            if not self._crowded:
                ax.plot([xs[i]] * 2, intervals[i], color=COLORS[outcome], lw=2.2, solid_capstyle="butt")
            if not self._crowded or outcome != "pass":
                ax.plot([xs[i]], [observed[i]], MARKERS[outcome], color=COLORS[outcome], ms=6, mew=0, clip_on=False)

    def _draw_checks(self, ax: Axes, xs: Numbers, observed: Numbers, intervals: Bounds) -> None:
        """Draw the checks; if there are many, only those that failed have an interval, so that they can be seen."""
        many = len(self._checks) > self.CROWDED
        size, edge = (3.0, 0.7) if many else (4.0, 1.0)
        for of in dict.fromkeys(self.release[i] for i in self._checks):
            tied = [i for i, other in enumerate(self.release) if other == of and of >= 0]
            ax.plot([xs[i] for i in tied], [observed[i] for i in tied], color=COLORS["soft"], lw=0.5)
        for i in self._checks:
            outcome = self.outcome[i]
            hollow: Any = {"color": COLORS[outcome], "mfc": "none", "ms": size, "mew": edge, "clip_on": False}
            if not many or outcome == "fail":
                ax.plot([xs[i]] * 2, intervals[i], color=COLORS[outcome], lw=0.8, solid_capstyle="butt")
            ax.plot([xs[i]], [observed[i]], MARKERS[outcome], **hollow)
        if self._checks:
            last = self.outcome[self._checks[-1]]
            hollow = {"color": COLORS[last], "mfc": "none", "ms": size, "mew": edge}
            ax.plot([], [], MARKERS[last], ls="", **hollow, label="check")

    def _draw_thresholds(self, ax: Axes, xs: Numbers) -> None:
        own = [t if t is not None and abs(t) < LARGEST else math.nan for t in self.threshold]
        drawn = self._releases or self._checks
        style = "-" if self._crowded else "o-"
        ax.plot([xs[i] for i in drawn], [own[i] for i in drawn], style, color=COLORS["mark"], lw=1.5, ms=4.5, mew=0)
        for i in self._releases:
            last = max((j for j in self._checks if self.release[j] == i), default=i)
            if last > i:  # the time in which the release was checked
                ax.plot([xs[i], xs[last]], [own[i]] * 2, color=COLORS["soft"], lw=0.8)
        if self.first_threshold is not None and abs(self.first_threshold) < LARGEST:
            ax.axhline(self.first_threshold, color=COLORS["ink"], lw=1.0, ls=(0, (3, 2)))
        ax.margins(y=0.18)
        ax.locator_params(axis="y", nbins=4)
        low, high = ax.get_ylim()
        ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
        ax.set_yticks(ticks, _distinct_labels(ticks))
        ax.set_ylabel("raw threshold")

    @property
    def _crowded(self) -> bool:
        return len(self._releases) > self.CROWDED

    def _ratios(self, bounds: Bounds) -> list[tuple[float, float]]:
        return [(low / self.target_fpr, high / self.target_fpr) for low, high in bounds]


def _distinct_labels(values: Numbers) -> list[str]:
    """Write values with three digits, or with as many as it takes to tell them apart."""
    for digits in range(3, 17):
        shown = [f"{value:.{digits}g}" for value in values]
        if len({*shown}) == len({*values}):
            break
    return shown if values else []


# --- which are drawn --------------------------------------------------------------------------------------------


def display(history: History, check: CheckName) -> HistoryDisplay:
    """Make the figure of one anchor over the latest releases and checks that were judged there."""
    judged = [record for record in history.releases if check in record.readings]
    drawn = latest(judged, MOST_DRAWN)
    readings = [record.readings[check] for record in drawn]
    numbers = [rated([reading.fpr])[0] for reading in readings]
    places = {id(record): place for place, record in enumerate(drawn)}
    of = [record if record.kind == "run" else history.released(record) for record in drawn]
    number = {id(record): number for number, record in enumerate(history.releases, start=1)}
    return HistoryDisplay(
        numbers[-1].target_fpr,
        [_drawn_name(number[id(record)], record.name) for record in drawn],
        [found.rate.tally.rate for found in numbers],
        [found.rate.interval for found in numbers],
        [found.edges for found in numbers],
        [found.outcome for found in numbers],
        [reading.threshold for reading in readings],
        [_rates_at_first(reading, found) for reading, found in zip(readings, numbers, strict=True)],
        next((reading.threshold for r in judged if (reading := r.readings[check]).origin), None),
        [-1 if release is None else places.get(id(release), -1) for release in of],
    )


def latest(records: Sequence[PastRelease], most: int) -> list[PastRelease]:
    """Choose the latest releases and checks, so many in all, in the order of time; neither crowds the other out.

    Each kind has half of the places; the other kind may use those that it does not need.
    """
    releases, checks = ([record for record in records if record.kind == kind] for kind in ("run", "check"))
    room = max(most - len(checks), most - most // 2)
    latest_releases = releases[-room:]
    left = most - len(latest_releases)
    chosen = {id(record) for record in (*latest_releases, *(checks[-left:] if left else ()))}
    return [record for record in records if id(record) in chosen]


def _drawn_name(number: int, name: str) -> str:
    """Return the release's name if the figure's font has it and there is room, or else its number in the table."""
    return name if len(name) <= DRAWN_NAME and name.isascii() and name.isprintable() else f"no. {number}"


def _rates_at_first(reading: Reading, found: RatedFinding) -> tuple[float, float] | None:
    """Return the rates that the first threshold flags; its own release has the observed rate."""
    if reading.origin:
        return found.rate.tally.rate, found.rate.tally.rate
    return _rates(reading.if_kept) if reading.if_kept else None


def _rates(flagged: Flagged) -> tuple[float, float]:
    n = max(flagged.benign, 1)
    return flagged.least / n, flagged.most / n


def in_words(history: History, column: HistoryColumn) -> str:
    """Describe the figure of an anchor for people who do not see it."""
    judged = [release.readings[column.check] for release in history.releases if column.check in release.readings]
    numbers = [found for reading in judged for found in rated([reading.fpr])]
    ratios = [f"{found.rate.tally.rate / found.target_fpr:.3g}" for found in numbers]
    observed = f"between {min(ratios, key=float)} and {max(ratios, key=float)} times the target"
    judged_there = History(tuple(r for r in history.releases if column.check in r.readings), ())
    sentences = [f"{counted(judged_there)} judged at {column.target}. The observed rate was {observed}."]
    thresholds = [f"{t:.4g}" for reading in judged if (t := reading.threshold) is not None]
    if thresholds:
        low, high = min(thresholds, key=float), max(thresholds, key=float)
        sentences.append(f"The raw threshold was between {low} and {high}, and is {thresholds[-1]} in the latest.")
    rates = [_rates(reading.if_kept) for reading in judged if reading.if_kept]
    if rates:
        low, high = (percent(rate, 3) for rate in (min(rates)[0], max(most for _, most in rates)))
        sentences.append(
            f"Kept from {column.first} on, its raw threshold would have flagged between {low} and {high} of the "
            "held-out rows."
        )
    return " ".join(sentences)


def figure(history: History, shown: list[HistoryColumn]) -> str:
    """Draw the figure at the rarest target that the latest releases must meet (or at the rarest of all)."""
    column = [*(c for c in shown if not c.required), *(c for c in shown if c.required)][-1]
    return display(history, column.check).to_svg(title_of(column), in_words(history, column))


def finding_of(history: History, column: HistoryColumn) -> str:
    """Say what the figure shows: how many pass there, and what the first threshold would flag if it were kept."""
    judged = tuple(release for release in history.releases if column.check in release.readings)
    found = [release.readings[column.check] for release in judged]
    amiss = sum(reading.fpr.outcome != "pass" for reading in found)
    there = counted(History(judged, ()))
    said = f"{column.target}: {there} {'passes' if len(found) == 1 else 'pass'}"
    if amiss:
        said = f"{column.target}: {amiss} of {len(found)} {'does' if amiss == 1 else 'do'} not pass ({there})"
    rates = [_rates(reading.if_kept)[1] / float(column.check.rate or 1) for reading in found if reading.if_kept]
    return f"{said}; the first threshold, kept, flags up to {max(rates):.2g} times the target" if rates else said


def title_of(column: HistoryColumn) -> str:
    return f"False-positive rate and raw threshold at {column.target} over releases"
