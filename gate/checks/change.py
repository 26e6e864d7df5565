"""One anchor under an earlier release and under this one: which rows each flags, and what follows from the counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from gate.checks.check import count
from gate.contract import Anchor, Floats
from gate.statistics.clusters import korn_graubard
from gate.statistics.proportions import Interval, Pairs, difference_interval, fisher, mcnemar, paired_interval
from gate.statistics.tally import Tally, tally
from gate.stored import Count, ExactRate, Section, Size

if TYPE_CHECKING:
    from gate.rows.joined import Paired
    from gate.rows.sample import Sample


UNSCORED = 0.001  # of the rows; if more of them have no score, nothing passes


class Flipped(Section):
    """Rows that both releases scored and only one of them flags.

    lacking     the rows that one of the two has not scored
    effective   the independent rows that these are worth to the difference of the rates; null where all are
    """

    new_only: Count
    old_only: Count
    lacking: Count = 0
    effective: Size | None = None


class Change(Section):
    """One anchor under the old release and under the new one; where both scored the same rows, on these.

    stale   the new scores that reach the *old* raw threshold: what no recalibration would have meant
    """

    fpr: ExactRate
    score: ExactRate
    old: Tally
    new: Tally
    flipped: Flipped | None = None
    stale: Tally | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.flipped is not None:
            both = self.new.flagged - self.flipped.new_only
            apart = self.flipped.new_only + self.flipped.old_only
            same = self.old.rows == self.new.rows and self.old.flagged == both + self.flipped.old_only
            if both < 0 or both + apart > self.new.rows or not same:
                raise ValueError("must flip rows that are among those flagged")
        if self.stale is not None and (self.stale.rows, self.stale.threshold) != (self.new.rows, self.old.threshold):
            raise ValueError("must count the same rows at the old threshold")
        return self

    @property
    def pairs(self) -> Pairs | None:
        if self.flipped is None:
            return None
        both, rows = self.new.flagged - self.flipped.new_only, self.new.rows
        apart = self.flipped.new_only + self.flipped.old_only
        return Pairs(both, self.flipped.new_only, self.flipped.old_only, rows - both - apart)

    @property
    def lacks_too_many(self) -> bool:
        """Whether more rows than may be ignored have a score of only one of the two releases."""
        return self.flipped is not None and self.flipped.lacking > UNSCORED * (self.new.rows + self.flipped.lacking)

    @property
    def is_exact(self) -> bool:
        """Whether every row is independent of the others."""
        return self.old.effective is None and self.new.effective is None

    @property
    def p_value(self) -> float | None:
        """The p-value of the exact test that nothing changed; None if rows come in groups, which it cannot count."""
        if not self.is_exact:
            return None
        if self.flipped is not None:
            return mcnemar(self.flipped.new_only, self.flipped.old_only)
        return fisher(self.new.flagged, self.new.rows, self.old.flagged, self.old.rows)

    @property
    def difference(self) -> Fraction:
        """The new rate less the old one."""
        return self.new.exact_rate - self.old.exact_rate

    def interval(self, alpha: float) -> Interval:
        """The interval of the difference."""
        if (pairs := self.pairs) is not None and self.flipped is not None:
            worth = 1.0 if self.flipped.effective is None else self.flipped.effective / self.new.rows
            return paired_interval(pairs.worth(worth), alpha)
        new, old = ((s.flagged * s.independent_rows / s.rows, s.independent_rows) for s in (self.new, self.old))
        return difference_interval(*new, *old, alpha)


def compare(
    anchors: tuple[Anchor, ...],
    old: Mapping[Decimal, Tally],
    new: Mapping[Decimal, Tally],
    alpha: Fraction,
    old_scores: Sample | None = None,
    new_scores: Sample | None = None,
) -> Iterator[Change]:
    """Every anchor that both releases have, compared row by row if both sides' scores are at hand."""
    common = [anchor for anchor in anchors if anchor.fpr in old and anchor.fpr in new]
    if old_scores is not None and new_scores is not None:
        from gate.rows.joined import paired

        both = [(old[anchor.fpr].threshold, new[anchor.fpr].threshold) for anchor in common]
        found = paired(old_scores, new_scores, both)
        for i, anchor in enumerate(common):
            yield _paired(found, anchor, i, *both[i], float(alpha))
        return
    thresholds = [old[anchor.fpr].threshold for anchor in common]
    stale: list[Tally] | list[None] = [None] * len(common)
    if new_scores is not None:
        stale = count(new_scores, thresholds, alpha)
    for anchor, would in zip(common, stale, strict=True):
        yield Change(fpr=anchor.fpr, score=anchor.score, old=old[anchor.fpr], new=new[anchor.fpr], stale=would)


def _paired(found: Paired, anchor: Anchor, i: int, old: float | None, new: float | None, alpha: float) -> Change:
    """One anchor on the rows that both releases have scored."""
    grouped = len(found.sizes) > 1

    def counted(threshold: float | None, flagged: Floats) -> Tally:
        by_group = (found.sizes, flagged[:, i]) if grouped else None
        return tally(threshold, int(flagged[:, i].sum()), found.rows, by_group, alpha)

    return Change(
        fpr=anchor.fpr,
        score=anchor.score,
        old=counted(old, found.old),
        new=counted(new, found.new),
        flipped=Flipped(
            new_only=int(found.new_only[:, i].sum()),
            old_only=int(found.old_only[:, i].sum()),
            lacking=found.lacking,
            effective=_effective_difference(found, i, alpha) if grouped else None,
        ),
        stale=counted(old, found.stale),
    )


def _effective_difference(found: Paired, i: int, alpha: float) -> float:
    """How many independent rows these are worth for the difference of two shares."""
    more, fewer = found.new_only[:, i], found.old_only[:, i]
    mean = float((more - fewer).sum()) / found.rows
    spread = float((more + fewer).sum()) / found.rows - mean**2
    return korn_graubard(found.sizes, more - fewer, alpha, spread)
