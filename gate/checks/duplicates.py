"""Duplicates: whether rows count more than once. Copies are no further evidence, and narrow every interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gate.checks.shared import Shared
from gate.checks.values import Count, Judgement, Section
from gate.errors import plural

if TYPE_CHECKING:
    from gate.policy import Duplicates as Settings
    from gate.scores import Scores


class Repeats(Section):
    """Rows read of one sample, and how many of them have the id of another: these count once."""

    rows: Count
    repeated: Count


class Duplicates(Section):
    """Rows that repeat: by id in each sample that has ids, else by the scores that fit and held-out rows share.

    Copies inside one sample leave fewer scores shared than true ties would, which appear on both sides. Rows of one
    group may repeat: what groups are worth accounts for it, and of each one only its highest score is compared.
    """

    fit: Repeats | None = None
    holdout: Repeats | None = None
    malicious: Repeats | None = None
    scores: Shared | None = None


def measure(fit: Scores | None, holdout: Scores, malicious: Scores | None, scores: Shared | None) -> Duplicates | None:
    """None where nothing tells: no ids, and no fit rows to compare with."""
    counted = {"fit": repeats_of(fit), "holdout": repeats_of(holdout), "malicious": repeats_of(malicious)}
    if scores is None and not any(counted.values()):
        return None
    return Duplicates(**counted, scores=scores)


def repeats_of(scores: Scores | None) -> Repeats | None:
    if scores is None or scores.repeats is None:
        return None
    return Repeats(rows=len(scores) + len(scores.repeats), repeated=len(scores.repeats))


def judge(settings: Settings, found: Duplicates) -> Judgement:
    """More repeated ids than allowed fail. Fewer shared scores than chance leaves decide nothing, so they block too.

    Under ids of their own these may be items that recur: they block only where most rows repeat, and else advise.
    """
    samples = {"fit": found.fit, "held-out": found.holdout, "malicious": found.malicious}
    counted = {name: sample for name, sample in samples.items() if sample is not None}
    excess = [name for name, sample in counted.items() if sample.repeated > settings.max_share * sample.rows]
    parts = [f"{s.repeated:,} of {plural(s.rows, f'{name} row')} repeat an id" for name, s in counted.items()]
    scores = found.scores
    repeated = 0
    if scores is not None and scores.repeated > settings.max_share * scores.n:
        repeated = scores.repeated
    if scores is not None and (repeated or not counted):
        parts.append(_shared_message(scores, repeated))
    message = "; ".join(parts)
    if excess:
        return Judgement("fail", settings.required, "repeated-ids", message, _IDS_REMEDY)
    if scores is None or not repeated:
        return Judgement("pass", settings.required, "once", message, None)
    recur = bool(counted) and 2 * repeated <= scores.n
    remedy = _RECUR_REMEDY if counted else _SCORES_REMEDY
    return Judgement("inconclusive", settings.required and not recur, "repeated-scores", message, remedy)


def _shared_message(scores: Shared, repeated: int) -> str:
    """`0 scores of 120,000 held-out rows are those of fit rows too, where true ties leave about 1,900: ...`."""
    message = f"{plural(scores.shared, 'score')} of {scores.n:,} held-out {scores.unit} are those of fit {scores.unit}"
    if not repeated:
        return f"{message} too, as many as true ties leave (about {scores.expected:,.0f})"
    copies = f"about {repeated:,} of both samples repeat another of their own"
    return f"{message} too, where true ties leave about {scores.expected:,.0f}: {copies}"


_IDS_REMEDY = "give each row once: rows with one id were counted once, but whatever repeats them is wrong"
_SCORES_REMEDY = "name what tells rows apart with data.id, or what they share with data.group; or give each row once"
_RECUR_REMEDY = "find out what recurs inside one sample, and name it with data.group; or give each row once"
