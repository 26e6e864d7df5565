"""The scores really served: how calibrated scores from production differ from those that a release gives, and why.

The module does arithmetic on rows that hold both the raw score and the served calibrated one, and judges nothing.
A rule that explains at least half of the rows left is taken as their cause; rows that no rule explains are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from gate.contract import Floats, Mask
from gate.stored import Count, ExactRate, Rate, Section
from gate.words import plural

if TYPE_CHECKING:
    from gate.calibration.calibrator import Calibrator


ULP32 = 2.0**-24  # the largest relative error of one float32 rounding
DECIMALS = 12  # people do not choose to round to more decimals
NEAR = 1e-6  # the relative error that a factor may leave, float32 included
FEWEST = 3  # so many rows with different scores tell a factor from chance

ROUNDINGS = {"float32-calibrated", "float32-raw", "float32-both", "float32-log", "float32", "decimals"}


class Cause(Section):
    """One cause of differences: its kind, its rows, and the end of the sentence that says what was done to them."""

    kind: str
    rows: Count
    words: str


class Crossing(Section):
    """Rows that one anchor flags as served and not as expected (`more`), and the other way round (`fewer`)."""

    fpr: ExactRate
    score: ExactRate
    more: Count
    fewer: Count


class Served(Section):
    """The rows of one sample: how many were served as the release gives them, and what became of the others.

    largest    the largest difference in calibrated score, where one was served
    lowest     the lowest calibrated score, as expected, of a row that differs
    """

    rows: Count
    equal: Count
    causes: tuple[Cause, ...] = ()
    largest: Annotated[float, Field(ge=0)] = 0.0
    lowest: Rate | None = None
    crossings: tuple[Crossing, ...] = ()

    @property
    def differ(self) -> int:
        return self.rows - self.equal

    @property
    def crossed(self) -> int:
        """How many rows' flags the difference changes, at the anchor where it changes most."""
        return max((crossing.more + crossing.fewer for crossing in self.crossings), default=0)

    @property
    def only_rounded(self) -> bool:
        """Whether only the rounding of numbers differs, and no row is on the other side of an anchor."""
        return self.crossed == 0 and all(cause.kind in ROUNDINGS for cause in self.causes)

    @property
    def only_narrowed(self) -> bool:
        """Whether only float32 rounding differs, which may move a few rows at an anchor to its other side."""
        return all(cause.kind in ROUNDINGS - {"decimals"} for cause in self.causes)

    def at(self, fpr: Decimal) -> Crossing | None:
        """The rows whose flags the difference changes at one anchor."""
        return next((crossing for crossing in self.crossings if crossing.fpr == fpr), None)


def compare(raw: Floats, served: Floats, calibrator: Calibrator) -> Served:
    """Hold the served scores of rows against what the calibrator gives for their raw scores."""
    rows = _Compared(np.asarray(raw, np.float64), np.asarray(served, np.float64), calibrator)
    differ = rows.served != rows.expected  # a missing score, NaN, differs
    if not differ.any():
        return Served(rows=len(rows.raw), equal=len(rows.raw))
    with np.errstate(over="ignore", invalid="ignore"):  # anything may have been served
        causes = tuple(_causes(rows, differ))
    gaps = np.abs(rows.served - rows.expected)[differ & ~rows.missing]
    return Served(
        rows=len(rows.raw),
        equal=int(np.count_nonzero(~differ)),
        causes=causes,
        largest=float(gaps.max(initial=0.0)),
        lowest=float(rows.expected[differ].min()),
        crossings=tuple(_crossings(rows)),
    )


@dataclass(frozen=True)
class _Compared:
    """The rows with what the release gives for them."""

    raw: Floats
    served: Floats
    calibrator: Calibrator
    expected: Floats = field(init=False)
    missing: Mask = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "expected", self.calibrator.predict(self.raw))
        object.__setattr__(self, "missing", ~np.isfinite(self.served))


def _crossings(rows: _Compared) -> Iterator[Crossing]:
    for anchor in rows.calibrator.contract.anchors:
        is_flagged, shall_be = rows.served >= float(anchor.score), rows.expected >= float(anchor.score)
        more, fewer = int(np.count_nonzero(is_flagged & ~shall_be)), int(np.count_nonzero(shall_be & ~is_flagged))
        if more or fewer:
            yield Crossing(fpr=anchor.fpr, score=anchor.score, more=more, fewer=fewer)


def _causes(rows: _Compared, differ: Mask) -> Iterator[Cause]:
    """The causes in order, each of which explains at least half of the rows left; then the rest, unexplained."""
    left = differ & ~rows.missing
    if rows.missing.any():
        yield Cause(kind="missing", rows=int(np.count_nonzero(rows.missing)), words="no calibrated score was served")
    found = True
    while found and left.any():
        found = False
        for kind, words, mask in _explanations(rows, left):
            explained = mask & left
            if 2 * np.count_nonzero(explained) >= np.count_nonzero(left):
                yield Cause(kind=kind, rows=int(np.count_nonzero(explained)), words=words)
                left, found = left & ~explained, True
                break
    if left.any():
        yield _rest(rows, left)


def _rest(rows: _Compared, left: Mask) -> Cause:
    """Rows that no cause explains: if they keep their order, most likely another calibrator, else another column."""
    count = int(np.count_nonzero(left))
    raw, served = rows.raw[left], rows.served[left]
    if len(np.unique(raw)) < FEWEST:
        return Cause(kind="unexplained", rows=count, words="another score was served, by too few rows to say why")
    order = np.lexsort((served, raw))
    raw, served = raw[order], served[order]
    rising = bool(np.all(np.diff(served) >= 0))
    if rising and bool(np.all((np.diff(served) == 0) | (np.diff(raw) > 0))):
        words = "another calibrator was served: scores keep their order and have other values"
        return Cause(kind="other-release", rows=count, words=words)
    if 2 * count >= len(rows.raw):
        words = "the served score does not follow from the raw one: another column, or rows in another order"
        return Cause(kind="other-column", rows=count, words=words)
    return Cause(kind="unexplained", rows=count, words="another score was served, and no one rule gives it")


# --- what may have happened -----------------------------------------------------------------------------------

Explanation = tuple[str, str, Mask]


def _explanations(rows: _Compared, left: Mask) -> Iterator[Explanation]:
    """Every rule that gives a served score, the most particular first, with the rows that it gives."""
    yield from _float32(rows, left)
    narrow = _narrowed(rows.raw)
    yield "uncalibrated", "the raw score was served", (rows.served == rows.raw) | (rows.served == narrow)
    yield from _clipped(rows, left)
    yield from _decimals(rows)
    yield from _scaled(rows, left)
    yield from _scaled_raw(rows, left)
    yield _in_float32(rows)


def _narrowed(values: Floats) -> Floats:
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(np.float32).astype(np.float64)


def _float32(rows: _Compared, left: Mask) -> Iterator[Explanation]:
    """Rounded to float32: the calibrated score, the raw one before it was calibrated, both, or the logged raw one."""
    served, narrow = rows.served, _narrowed(rows.raw)
    from_narrow = rows.calibrator.predict(np.clip(narrow, *rows.calibrator.settings.domain))
    before = "the raw score was rounded to float32 before it was calibrated"
    ways: list[Explanation] = [
        ("float32-calibrated", "the calibrated score was rounded to float32", served == _narrowed(rows.expected)),
        ("float32-raw", before, served == from_narrow),
        ("float32-both", "the raw and the calibrated score were rounded to float32", served == _narrowed(from_narrow)),
    ]
    yield from sorted(ways, key=lambda way: -np.count_nonzero(way[2] & left))  # ways may agree on many rows
    if np.array_equal(narrow, rows.raw):
        low, high = _between(rows, ULP32 * np.maximum(np.abs(rows.raw), np.finfo(np.float32).tiny))
        words = "the raw score beside it was rounded to float32 after it was calibrated"
        yield "float32-log", words, (served >= low) & (served <= high)


def _in_float32(rows: _Compared) -> Explanation:
    """What a few float32 roundings on the way can do."""
    bottom, top = rows.calibrator.settings.domain
    low, high = _between(rows, 4 * ULP32 * np.maximum(np.abs(rows.raw), max(abs(bottom), abs(top))))
    inside = (rows.served >= low * (1 - 4 * ULP32)) & (rows.served <= high * (1 + 4 * ULP32))
    return "float32", "the calibrated score was computed in float32", inside


def _between(rows: _Compared, width: Floats) -> tuple[Floats, Floats]:
    """What the calibrator gives at either end of what a raw score may have been."""
    domain = rows.calibrator.settings.domain
    low, high = (rows.calibrator.predict(np.clip(rows.raw + sign * width, *domain)) for sign in (-1, 1))
    return low, high


def _clipped(rows: _Compared, left: Mask) -> Iterator[Explanation]:
    """Whether every score that should be higher (or lower) is served as one score, which none exceeds."""
    present = rows.served[~rows.missing]
    low, high = float(present.min()), float(present.max())
    above, below = (rows.served == high) & (rows.expected > high), (rows.served == low) & (rows.expected < low)
    ends = [f"at most {high:.6g}"] if (above & left).any() else []
    ends += [f"at least {low:.6g}"] if (below & left).any() else []
    if ends:
        yield "clipped", f"the calibrated score was clipped to {' and '.join(ends)}", above | below


def _decimals(rows: _Compared) -> Iterator[Explanation]:
    for digits in range(1, DECIMALS + 1):
        given = (rows.served == np.round(rows.served, digits)) & (np.abs(rows.served - rows.expected) < 10.0**-digits)
        yield "decimals", f"the calibrated score was rounded or cut to {plural(digits, 'decimal')}", given


def _scaled(rows: _Compared, left: Mask) -> Iterator[Explanation]:
    line = _line(rows.expected[left], rows.served[left])
    if line is not None:
        given = line[0] * rows.expected + line[1]
        close = np.abs(rows.served - given) <= NEAR * np.abs(rows.served[left]).max()
        yield "scaled", f"the calibrated score was {_by(*line)}", close


def _scaled_raw(rows: _Compared, left: Mask) -> Iterator[Explanation]:
    """Whether scores were scaled before calibration: the raw scores that give the served ones then lie on a line."""
    x, y = rows.calibrator.knots
    scaler, (low, high) = rows.calibrator.pipeline[0], rows.calibrator.settings.domain
    inner = left & (rows.served > y[0]) & (rows.served < rows.calibrator.predict([high])[0])
    meant = (np.interp(rows.served[inner], y, x) - scaler.min_[0]) / scaler.scale_[0]
    line = _line(rows.raw[inner], meant)
    if line is not None:
        given = rows.calibrator.predict(np.clip(line[0] * rows.raw + line[1], low, high))
        yield (
            "scaled-raw",
            f"the raw score was {_by(*line)} before it was calibrated",
            np.abs(rows.served - given) <= NEAR,
        )


def _line(x: Floats, y: Floats) -> tuple[float, float] | None:
    """Factor and offset from two rows in the middle; None if these tell nothing or the line is the identity."""
    if len(np.unique(x)) < FEWEST:
        return None
    order = np.argsort(x, kind="stable")
    first, second = order[len(order) // 4], order[3 * len(order) // 4]
    if x[first] == x[second]:
        first, second = order[0], order[-1]
    factor = float((y[second] - y[first]) / (x[second] - x[first]))
    offset = float(y[first] - factor * x[first])
    scale = max(abs(factor) * float(np.abs(x).max()), abs(offset))
    offset = 0.0 if abs(offset) <= NEAR * scale else offset
    is_equality = abs(factor - 1) <= NEAR and offset == 0.0
    return None if is_equality or factor == 0.0 or not np.isfinite([factor, offset]).all() else (factor, offset)


def _by(factor: float, offset: float) -> str:
    if abs(factor + 1) <= NEAR and offset:
        return f"subtracted from {offset:.6g}"
    multiplied = [] if abs(factor - 1) <= NEAR else [f"multiplied by {factor:.6g}"]
    moved = [] if not offset else [f"moved by {offset:+.6g}"]
    return " and ".join([*multiplied, *moved])
