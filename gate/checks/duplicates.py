"""Duplicates: whether rows count more than once. Copies narrow every interval, but are no further evidence."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from gate.checks.check import Asked, Case, Check, Evidence, Finding, Judgement
from gate.checks.overlap import Overlap, a_share
from gate.checks.shared import Shared
from gate.names import CheckName
from gate.policy import Flag, Frozen, Policy, PolicyRate
from gate.stored import Count, Section
from gate.words import plural

if TYPE_CHECKING:
    from gate.scores import Scores

NAME = CheckName("duplicates")


class DuplicatesSettings(Frozen):
    """Whether rows count more than once: copies are no further evidence."""

    max_share: PolicyRate = Field(
        default=Decimal("0.001"), description="the share of a sample's rows that may repeat others"
    )
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("max_share")
    @classmethod
    def _share(cls, value: Decimal) -> Decimal:
        return a_share(value)


class Repeats(Section):
    """Rows read of one sample, and how many of them have the id of another: these count once."""

    rows: Count
    repeated: Count


class Duplicates(Section):
    """Rows that repeat: by id in each sample that has ids, and by the scores that fit and held-out rows share.

    The shared scores are those of the overlap. Copies inside one sample leave fewer of them than true ties would, which
    appear on both sides. Rows of one group may repeat: what groups are worth accounts for it, and of each one only its
    highest score is compared.
    """

    fit: Repeats | None = None
    holdout: Repeats | None = None
    malicious: Repeats | None = None


def measure(case: Case) -> Duplicates | None:
    """Count the repeats; None if there are neither ids nor fit rows to compare with."""
    samples = {"fit": case.fit, "holdout": case.holdout, "malicious": case.malicious}
    counted = {name: repeats_of(sample) for name, sample in samples.items()}
    return None if case.fit is None and not any(counted.values()) else Duplicates(**counted)


def repeats_of(scores: Scores | None) -> Repeats | None:
    if scores is None or scores.repeated is None:
        return None
    return Repeats(rows=len(scores) + scores.repeated, repeated=scores.repeated)


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    found, settings, overlap = evidence.of(Duplicates), policy.settings(DuplicatesSettings), evidence.of(Overlap)
    if found is not None and settings is not None:
        yield decide(settings, found, None if overlap is None else overlap.scores).finding(NAME)


def decide(settings: DuplicatesSettings, found: Duplicates, scores: Shared | None) -> Judgement:
    """Fail if more ids repeat than allowed; block as inconclusive if fewer scores are shared than chance leaves.

    If these rows have different ids, they may be items that recur. Then they block only if most rows repeat, and else
    advise.
    """
    samples = {"fit": found.fit, "held-out": found.holdout, "malicious": found.malicious}
    counted = {name: sample for name, sample in samples.items() if sample is not None}
    excess = [name for name, sample in counted.items() if sample.repeated > settings.max_share * sample.rows]
    parts = [f"{s.repeated:,} of {plural(s.rows, f'{name} row')} repeat an id" for name, s in counted.items()]
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


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(DuplicatesSettings)
    if settings is not None:
        needs = "ids or fit rows" if evidence.kind == "check" else "fit rows"
        yield Asked(NAME, settings.required, needs, ("checks", "duplicates"), by_check=False)


def contradictions(policy: Policy, evidence: Evidence) -> Iterator[str]:
    """Repeats of other rows than the record's, or not counted in exactly the samples that have ids."""
    found = evidence.of(Duplicates) or Duplicates()
    fit = evidence.fit if evidence.kind == "run" else None
    samples = {"fit": (found.fit, fit), "holdout": (found.holdout, evidence.holdout)}
    samples["malicious"] = (found.malicious, evidence.malicious)
    for name, (counted, facts) in samples.items():
        if (counted is not None) != (facts is not None and facts.rows_sha256 is not None):
            yield f"duplicates.{name} must be counted where rows have ids, only there"
        elif counted is not None and facts is not None and counted.rows - counted.repeated != facts.n:
            yield f"duplicates.{name} are no counts of these rows"


CHECK = Check(
    key="duplicates",
    asks="whether rows count more than once",
    decides="Rows with one id count once, and more of them than max_share fail. Without ids, copies inside one sample "
    "leave fewer scores shared between the samples than true ties would.",
    causes="a join that multiplied rows, a file read twice, or items that recur",
    helps=(
        "Remove the copies and run again. Where items recur, name them: data.id for rows that are the same, "
        "data.group for rows that belong together."
    ),
    evidence=Duplicates,
    measure=measure,
    judge=judge,
    asked=asked,
    contradictions=contradictions,
    reasons={
        "once": "each row counts once",
        "repeated-ids": "ids that repeat",
        "repeated-scores": "rows that seem to repeat",
    },
    sentences={
        "repeated-ids": "too many rows repeat the id of another",
        "repeated-scores": "rows repeat inside one sample, so that some count more than once",
    },
    settings=DuplicatesSettings,
    default=DuplicatesSettings(),
)
