"""Scores that two samples share: what the pairs of rows with one value say of copies, and what chance would say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from gate.statistics.binomial import upper_tail
from gate.stored import Count, Rate, Section, Size

if TYPE_CHECKING:
    from gate.rows.copies import SharedPairs
    from gate.rows.sample import Sample

LEVEL = 1e-6  # sound samples show so many pairs, or so few, with this chance at most
SEEN = 0.25  # of the held-out rows; scores that would not show so many copies cannot tell
SPREADS = 6.5  # standard deviations that copies must exceed to be seen nearly always


class Shared(Section):
    """Values that exactly two rows of two samples have, and what chance says of them.

    unit            what was compared: rows, or groups, each by its highest score
    n, fit_n        the rows (or groups) of either sample; one value of every `one_of` was looked at
    rows, single    those that were looked at, and those of them whose value no other one has
    across          pairs with one row in each sample
    fit, held_out   pairs within one sample
    expected        how many pairs chance puts across, within fit rows and within held-out rows
    tied, even      rows of values that three or more have, and the chance that these are divided so evenly
    """

    unit: Literal["rows", "groups"]
    n: Count
    fit_n: Count
    one_of: Count
    rows: Count
    single: Count
    across: Count
    fit: Count
    held_out: Count
    expected: tuple[Size, Size, Size]
    tied: Count
    even: Rate

    @property
    def pairs(self) -> int:
        return self.across + self.fit + self.held_out

    @property
    def copied(self) -> int:
        """About how many held-out rows are copies of fit rows; none if chance shares so many values."""
        tied = self.one_of * self.tied * self.n // max(self.n + self.fit_n, 1) if self.even <= LEVEL else 0
        return min(self._excess(self.across, self.expected[0]) + tied, self.n)

    @property
    def repeated(self) -> int:
        """About how many rows repeat another of their own sample; none if chance repeats so many."""
        return self._excess(self.fit, self.expected[1]) + self._excess(self.held_out, self.expected[2])

    def _excess(self, found: int, expected: float) -> int:
        """How many pairs are more than chance: each of them is one that chance would have divided too."""
        if found <= expected or not self._is_more(found, expected):
            return 0
        share = expected / self.pairs
        return round(self.one_of * (found - expected) / max(1 - share, 1e-9))

    def _is_more(self, found: int, expected: float) -> bool:
        """SharedPairs of unlike strata vary less than a binomial of the same mean (Hoeffding 1956)."""
        return upper_tail(found, self.pairs, min(expected / self.pairs, 1.0)) <= LEVEL

    @property
    def seen_from(self) -> float | None:
        """The share of held-out rows from which on copies of fit rows would be seen; None where none would."""
        unique = self.single / max(self.rows, 1)  # only the copy of a row without a twin makes a pair
        if not self.n or not self.fit_n or not unique:
            return None
        q = self.n / (self.n + self.fit_n)
        p = 2 * q * (1 - q)
        # x copies make x pairs across, where chance puts p of all pairs: x (1 - p) must exceed the spread of these.
        a, b = (1 - p) ** 2, SPREADS**2 * p * (1 - p)
        needed = (b + math.sqrt(b * b + 4 * a * b * self.pairs)) / (2 * a)
        share = needed * self.one_of / (unique * self.n)
        return share if share <= 1 else None

    @property
    def shows_copies(self) -> bool:
        """Whether the scores would have shown it if many held-out rows were copies."""
        return self.seen_from is not None and self.seen_from <= SEEN


def compare_scores(fit: Sample, holdout: Sample) -> Shared:
    """The pairs of two samples; rows of one group stay together, so groups are what chance divides."""
    if fit.has_groups and holdout.has_groups:
        return _compare("groups", fit.highest_of_groups(), holdout.highest_of_groups())
    return _compare("rows", fit, holdout)


def compare_halves(sample: Sample, beside: int) -> Shared | None:
    """The pairs of the first and the second half of one sample, as rows follow one another in its files.

    It is compared with so many rows beside it too, and asked about the same scores for both.
    """
    from gate.rows.copies import pairs_of_halves, thinning

    found = pairs_of_halves(sample, thinning(sample.n + beside))
    half = sample.n // 2
    return None if found is None else _shared("rows", half, sample.n - half, found)


def _compare(unit: Literal["rows", "groups"], first: Sample, second: Sample) -> Shared:
    from gate.rows.copies import pairs_of

    return _shared(unit, first.n, second.n, pairs_of(first, second))


def _shared(unit: Literal["rows", "groups"], first: int, second: int, found: SharedPairs) -> Shared:
    return Shared(
        unit=unit,
        n=second,
        fit_n=first,
        one_of=found.one_of,
        rows=found.rows,
        single=found.single,
        across=found.across,
        fit=found.within[0],
        held_out=found.within[1],
        expected=found.expected,
        tied=found.tied,
        even=found.even,
    )
