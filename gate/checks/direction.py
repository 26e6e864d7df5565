"""Direction: whether scores rise with malice. A detector whose malicious rows are flagged less often than its benign
ones keeps every promise on false positives and detects nothing."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from gate.checks.values import Count, Judgement, Rate, Section, Size
from gate.statistics.binomial import clopper_pearson

if TYPE_CHECKING:
    from gate.policy import Direction as Settings


class Flagged(Section):
    """Malicious and benign rows that reach one anchor's threshold, and the independent rows that each are worth."""

    fpr: Rate
    true_positives: Count
    malicious: Count
    malicious_worth: Size
    false_positives: Count
    benign: Count
    benign_worth: Size


class Direction(Section):
    """Both kinds of rows at every anchor of the contract."""

    anchors: tuple[Flagged, ...]


def judge(settings: Settings, alpha: Fraction, found: Direction) -> Judgement:
    """Fail where the malicious rate lies below the benign one at an anchor: two exact intervals that do not meet.

    Each bound misses at most alpha / (2 m) of the time over m anchors, so that sound scores are called reversed at
    most alpha of the time.
    """
    level = float(alpha) / max(len(found.anchors), 1)
    reversed_at = [flagged for flagged in found.anchors if _is_reversed(flagged, level)]
    if not reversed_at:
        message = "at no anchor are malicious rows provably flagged less often than benign ones"
        return Judgement("pass", settings.required, "rising", message, None)
    worst = max(reversed_at, key=lambda at: at.false_positives / at.benign - at.true_positives / at.malicious)
    message = (
        f"{worst.true_positives:,} of {worst.malicious:,} malicious rows are flagged where "
        f"{worst.false_positives:,} of {worst.benign:,} benign ones are, at {100 * worst.fpr:.10g} %: "
        f"provably a lower rate, at {len(reversed_at):,} of {len(found.anchors):,} anchors"
    )
    return Judgement("fail", settings.required, "reversed", message, _REMEDY)


def _is_reversed(flagged: Flagged, level: float) -> bool:
    malicious_share = flagged.malicious_worth / flagged.malicious
    benign_share = flagged.benign_worth / flagged.benign
    _, most = clopper_pearson(flagged.true_positives * malicious_share, flagged.malicious_worth, level)
    least, _ = clopper_pearson(flagged.false_positives * benign_share, flagged.benign_worth, level)
    return most < least


_REMEDY = (
    "give scores that rise with malice: the negative of these, or 1 less them; "
    "or look whether the benign label stands for malicious rows"
)
