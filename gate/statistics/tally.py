"""The tally: so many of so many rows reach one threshold. The one type for every count, benign or malicious."""

from __future__ import annotations

from fractions import Fraction
from typing import Self

from pydantic import model_validator

from gate.contract import Floats
from gate.statistics.binomial import Band, CriticalCounts, clopper_pearson, critical_counts
from gate.statistics.clusters import Effective, effective_rows
from gate.statistics.proportions import Interval
from gate.stored import Count, RowCount, Section, Size


class Tally(Section):
    """`flagged` of `rows` rows reach a raw threshold; none where there is no threshold, which nothing reaches.

    `effective` are the independent rows that these are worth to a lower and to an upper bound of their rate; null
    where every row is independent.
    """

    threshold: float | None
    flagged: Count
    rows: RowCount
    effective: tuple[Size, Size] | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        worth = self.effective or (1.0, 1.0)
        if self.flagged > self.rows or (self.threshold is None and self.flagged):
            raise ValueError("must flag no more rows than there are, and none without a threshold")
        if not all(0 < rows <= self.rows for rows in worth):
            raise ValueError("must be worth more than no row, and at most as many as there are")
        return self

    @property
    def rate(self) -> float:
        return self.flagged / self.rows

    @property
    def exact_rate(self) -> Fraction:
        return Fraction(self.flagged, self.rows)

    @property
    def worth(self) -> Effective:
        """The independent rows that these rows are worth to a lower and to an upper bound."""
        return Effective(float(self.rows), float(self.rows)) if self.effective is None else Effective(*self.effective)

    @property
    def shares(self) -> Effective:
        """The share of an independent row that each row is worth to either bound."""
        return Effective(*(rows / self.rows for rows in self.worth))

    @property
    def independent_rows(self) -> float:
        """The independent rows that these rows are worth to the bound to which they are worth less."""
        return min(self.worth)

    @property
    def is_clustered(self) -> bool:
        return self.effective is not None and self.independent_rows < self.rows

    def interval(self, alpha: float) -> Interval:
        """The bounds of Clopper and Pearson, each with the rows that it may count."""
        low, high = (clopper_pearson(self.flagged * rows / self.rows, rows, alpha) for rows in self.worth)
        return low[0], high[1]

    def bounds(self, band: Band) -> Interval:
        """The bounds that a band compares with its edges, each with the rows that it may count."""
        low, high = (band.interval(self.flagged * rows / self.rows, rows) for rows in self.worth)
        return low[0], high[1]

    def plain_interval(self, alpha: float) -> Interval:
        """The bounds of Clopper and Pearson as if all rows were independent."""
        return clopper_pearson(self.flagged, self.rows, alpha)

    def critical(self, band: Band) -> CriticalCounts:
        """The counts of these rows at which the grade changes."""
        return critical_counts(self.rows, band, self.shares)

    def refuting_tail(self, band: Band) -> float:
        """The chance of so extreme a count at the nearer edge of the band; a small chance refutes the band."""
        low, high = self.worth
        too_many = band.tail_above(self.flagged * low / self.rows, low)
        return min(too_many, band.tail_below(self.flagged * high / self.rows, high))


def tally(
    threshold: float | None, flagged: int, rows: int, by_group: tuple[Floats, Floats] | None, alpha: float
) -> Tally:
    """A tally; if rows come in groups, `by_group` has the sizes of groups and the flagged rows of each."""
    effective = None if by_group is None else tuple(effective_rows(*by_group, alpha))
    return Tally(threshold=threshold, flagged=flagged, rows=rows, effective=effective)
