"""The scores really served: how calibrated scores from production differ from those that a release gives, and why.

The module does arithmetic on rows that hold both the raw score and the served calibrated one, and judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from gate.contract import Floats, Ints
from gate.stored import Count, ExactRate, Rate, Section

if TYPE_CHECKING:
    from gate.calibration.calibrator import Calibrator


ROUNDING = 4 * 2.0**-24  # the relative error of a few float32 roundings one after another
TINY = float(np.finfo(np.float32).tiny)  # below it float32 has fewer digits, or none
NEAR = 1e-6  # the relative error that a factor may leave, float32 included
FEWEST = 3  # so many different scores tell a factor from chance

Cause = Literal["float32", "scaled", "other"]


class Crossing(Section):
    """Rows that one anchor flags as served and not as expected (`more`), and the other way round (`fewer`)."""

    fpr: ExactRate
    score: ExactRate
    more: Count
    fewer: Count


class Served(Section):
    """The rows of one sample: how many were served as the release gives them, and what became of the others.

    missing    how many rows were served nothing, or no number
    cause      what gave all other rows that differ: float32 rounding, one factor, or neither
    largest    the largest difference in calibrated score, where one was served
    lowest     the lowest calibrated score, as expected, of a row that differs
    """

    rows: Count
    equal: Count
    missing: Count = 0
    cause: Cause | None = None
    factor: float | None = None
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
        """Whether float32 rounding explains every row that differs."""
        return self.missing == 0 and self.cause in (None, "float32")

    def at(self, fpr: Decimal) -> Crossing | None:
        """The rows whose flags the difference changes at one anchor."""
        return next((crossing for crossing in self.crossings if crossing.fpr == fpr), None)


def compare(raw: Floats, served: Floats, weights: Ints, calibrator: Calibrator) -> Served:
    """Hold the served scores of rows against what the calibrator gives for their raw scores.

    `weights` says how many rows each stands for.
    """
    expected, rows = calibrator.predict(raw), int(weights.sum())
    differ = served != expected  # a missing score, NaN, differs
    if not differ.any():
        return Served(rows=rows, equal=rows)
    given = differ & np.isfinite(served)
    cause, factor = _cause(raw[given], served[given], expected[given], calibrator)
    return Served(
        rows=rows,
        equal=int(weights[~differ].sum()),
        missing=int(weights[differ & ~given].sum()),
        cause=cause,
        factor=factor,
        largest=float(np.abs(served - expected)[given].max(initial=0.0)),
        lowest=float(expected[differ].min()),
        crossings=tuple(_crossings(served, expected, weights, calibrator)),
    )


def _crossings(served: Floats, expected: Floats, weights: Ints, calibrator: Calibrator) -> Iterator[Crossing]:
    for anchor in calibrator.contract.anchors:
        is_flagged, shall_be = served >= float(anchor.score), expected >= float(anchor.score)
        more, fewer = int(weights[is_flagged & ~shall_be].sum()), int(weights[shall_be & ~is_flagged].sum())
        if more or fewer:
            yield Crossing(fpr=anchor.fpr, score=anchor.score, more=more, fewer=fewer)


def _cause(raw: Floats, served: Floats, expected: Floats, calibrator: Calibrator) -> tuple[Cause | None, float | None]:
    """What gave rows that were served another number, and the factor if it is one."""
    if not len(raw):
        return None, None
    if _is_rounded(raw, served, calibrator):
        return "float32", None
    factor = _factor(served, expected)
    return ("other", None) if factor is None else ("scaled", factor)


def _is_rounded(raw: Floats, served: Floats, calibrator: Calibrator) -> bool:
    """Whether float32 rounding of raw or calibrated scores, before or after they were calibrated, explains all rows."""
    bottom, top = calibrator.settings.domain
    width = ROUNDING * np.maximum(np.abs(raw), max(abs(bottom), abs(top)))
    low, high = (calibrator.predict(np.clip(raw + sign * width, bottom, top)) for sign in (-1, 1))
    inside = (served >= low * (1 - ROUNDING) - TINY) & (served <= high * (1 + ROUNDING) + TINY)
    return bool(inside.all())


def _factor(served: Floats, expected: Floats) -> float | None:
    """The one factor by which all rows were multiplied, if there is one and enough different scores tell it."""
    if len(np.unique(expected)) < FEWEST:
        return None
    at = expected.argmax()
    with np.errstate(over="ignore", invalid="ignore"):  # anything may have been served
        factor = float(served[at] / expected[at])
        is_factor = np.isfinite(factor) and factor != 0 and abs(factor - 1) > NEAR
        given = factor * expected
        return factor if is_factor and (np.abs(served - given) <= NEAR * np.abs(given)).all() else None
