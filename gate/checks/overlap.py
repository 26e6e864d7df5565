"""Overlap: whether held-out rows are among the fit rows; such rows are not held out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from gate.checks.check import Asked, Case, Check, Evidence, Finding, Judgement
from gate.checks.shared import Shared, compare_scores
from gate.errors import GateError
from gate.names import CheckName
from gate.policy import Flag, Frozen, Policy, PolicyRate
from gate.stored import Count, Outcome, Section
from gate.words import plural

if TYPE_CHECKING:
    from gate.rows.sample import Sample

NAME = CheckName("overlap")


class OverlapSettings(Frozen):
    """Whether held-out rows are among the fit rows: then they are not held out."""

    max_share: PolicyRate = Field(default=Decimal("0.001"), description="the share of held-out rows that may be")
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("max_share")
    @classmethod
    def _share(cls, value: Decimal) -> Decimal:
        return a_share(value)


def a_share(value: Decimal) -> Decimal:
    if not 0 <= value < 1:
        raise PydanticCustomError("share", "must be at least 0 and below 1, such as 0.001")
    return value


class Overlap(Section):
    """Held-out rows that are among the fit rows.

    ids                     those with the id of a fit row; None without ids
    rows                    those equal to a fit row in every column; None where no column tells rows apart
    scores                  what rows of one score say
    rows_in_shared_groups   those whose group has fit rows too; None without groups
    divided                 whether gate divided one sample
    recurring               of samples one after the other, what the later fit rows share with the earlier ones
    malicious               malicious rows that are among the benign ones, by id or in every column; None if nothing
                            shows them
    """

    benign: Count
    ids: Count | None
    rows: Count | None
    scores: Shared
    shared_groups: Count | None
    rows_in_shared_groups: Count | None
    divided: bool = False
    recurring: Shared | None = None
    malicious: Count | None = None


def refuse_identical(fit: Sample, holdout: Sample) -> None:
    """Refuse the same rows on both sides, whatever their ids: nothing is held out, so nothing would be evidence."""
    from gate.rows.sources import find_copy  # here: reading a record need not wait for the engine

    if fit.pool is not None and fit.pool is holdout.pool:
        return
    copy = find_copy([piece.file for sample in (fit, holdout) for piece in sample.pieces if piece.taken])
    if copy is not None:
        raise GateError(
            f"{copy[1]}: must hold other rows than the fit sample, got the same bytes as in {copy[0]}; hold out rows "
            "that the calibrator is not fitted on"
        )
    if fit.n == holdout.n and fit.fingerprint == holdout.fingerprint:
        raise GateError(
            f"{_sources(holdout)}: must hold other rows than the fit sample, got the same {len(fit):,} scores as in "
            f"{_sources(fit)}; hold out rows that the calibrator is not fitted on"
        )


def refuse_copies_of(case: Case) -> None:
    """Refuse rows that were given twice: as benign and malicious rows, or to fit and to judge on."""
    for sample in (case.fit, case.holdout):
        if case.malicious is not None and sample is not None:
            _refuse_both_kinds(sample, case.malicious)
    if case.fit is not None:
        refuse_identical(case.fit, case.holdout)


def _refuse_both_kinds(benign: Sample, malicious: Sample) -> None:
    """Refuse a file that is given as both kinds: without labels all its rows are of one kind."""
    from gate.rows.sources import find_copy

    if malicious.labels is None:
        copy = find_copy([piece.file for sample in (benign, malicious) for piece in sample.pieces])
        if copy is not None:
            raise GateError(
                f"{copy[1]}: must hold malicious rows alone, got the same bytes as in {copy[0]}, which was given as "
                "benign; name the column that tells them apart in data.label"
            )


def measure(case: Case) -> Overlap | None:
    """Count the held-out rows that the fit sample holds too; the gate has refused identical samples before."""
    fit, holdout = case.fit, case.holdout
    if fit is None:
        return None
    groups = rows_in_groups = None
    if fit.has_groups and holdout.has_groups:
        groups, rows_in_groups = holdout.shared(fit, "grp")
    return Overlap(
        benign=len(holdout),
        ids=_shared(holdout, fit, "id"),
        rows=_shared(holdout, fit, "whole"),
        scores=compare_scores(fit, holdout),
        shared_groups=groups,
        rows_in_shared_groups=rows_in_groups,
        divided=fit.pool is not None and fit.pool is holdout.pool,
        recurring=_compare_in_time(fit, holdout),
        malicious=_among_benign(case),
    )


def _shared(one: Sample, other: Sample, role: Literal["id", "whole"]) -> int | None:
    """The rows of one sample that another one has too; None where nothing names them."""
    if role not in one.roles or role not in other.roles or (role == "whole" and one.others != other.others):
        return None
    return one.shared(other, role)[1]


def _among_benign(case: Case) -> int | None:
    """The malicious rows that are among the benign ones."""
    if case.malicious is None or case.fit is None:
        return None
    found = []
    for role in ROLES:
        found += [_shared(case.malicious, sample, role) for sample in (case.fit, case.holdout)]
    counted = [count for count in found if count is not None]
    return min(sum(counted), len(case.malicious)) if counted else None


ROLES: tuple[Literal["id", "whole"], ...] = ("id", "whole")


def _compare_in_time(fit: Sample, holdout: Sample) -> Shared | None:
    """What later fit rows share with earlier ones, if all fit rows are older than the held-out rows.

    Items that recur day by day are on both sides of any moment, and chance does not divide them. So their share is
    measured at another moment.
    """
    if fit.seen is None or holdout.seen is None or fit.seen[1] > holdout.seen[0]:
        return None
    share = len(holdout) / (len(fit) + len(holdout))
    parts = fit.divided_at_time(min(max(round((1 - share) * len(fit)), 1), len(fit) - 1))
    return None if parts is None else compare_scores(*parts)


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    found, settings = evidence.of(Overlap), policy.settings(OverlapSettings)
    if found is not None and settings is not None:
        malicious_n = 0 if evidence.malicious is None else evidence.malicious.n
        yield decide(settings, found, malicious_n).finding(NAME)


def decide(settings: OverlapSettings, found: Overlap, malicious_n: int = 0) -> Judgement:
    """Fail if more held-out rows than allowed are fit rows, or more malicious rows than allowed are benign ones.

    Scores shared beyond chance by rows with different ids may be items that recur: they fail only above half of the
    rows, and below that they advise. Items that recur by their times pass, unless most rows are such: then these show
    nothing about other items. If nothing can tell, the finding advises too, and never blocks.
    """
    allowed, scores = found.benign * settings.max_share, found.scores
    copied = scores.copied if scores.copied > scores.n * settings.max_share else 0
    recurs = bool(copied) and _recurs(found)
    most = 2 * copied > scores.n
    copied = 0 if recurs else copied
    named = found.ids is not None
    if (found.ids or 0) > allowed or (found.rows or 0) > allowed or (copied and not named):
        reason = "shared-rows"
    elif (found.malicious or 0) > malicious_n * settings.max_share:
        reason = "both-kinds"
    elif (found.rows_in_shared_groups or 0) > allowed:
        reason = "shared-groups"
    elif copied:
        reason = "shared-scores"
    elif recurs:
        reason = "mostly-recurring" if most else "recurring"
    else:
        reason = "apart" if _shows_copies(found) else "cannot-tell"
    advises = reason == "cannot-tell" or (reason == "shared-scores" and not most)
    open_ = advises or reason == "mostly-recurring"
    outcome: Outcome = "inconclusive" if open_ else "fail" if reason in _REMEDIES else "pass"
    message = _message(found, reason) + _MORE.get(reason, "")
    return Judgement(outcome, settings.required and not advises, reason, message, _REMEDIES.get(reason))


def _recurs(found: Overlap) -> bool:
    """Whether later fit rows share scores with earlier ones at least half as often as held-out ones with fit rows."""
    within, scores = found.recurring, found.scores
    return within is not None and 2 * within.copied * scores.n >= scores.copied * within.n


def _shows_copies(found: Overlap) -> bool:
    """Whether copies would have shown: by name, by all columns, or by scores, which a random division hides."""
    by_name = found.ids is not None or found.shared_groups is not None or found.rows is not None
    return by_name or (found.scores.shows_copies and not found.divided)


def _message(found: Overlap, reason: str) -> str:
    parts = []
    if found.ids is not None:
        parts.append(f"{found.ids:,} of {found.benign:,} held-out rows have the id of a fit row")
    if found.rows is not None:
        parts.append(f"{found.rows:,} of {found.benign:,} held-out rows equal a fit row in every column")
    if reason == "cannot-tell":
        parts.append(_cannot_tell(found))
    elif not parts or found.scores.copied:
        parts.append(_counted(found.scores))
    if found.shared_groups:
        in_groups = found.rows_in_shared_groups or 0
        parts.append(f"{plural(found.shared_groups, 'group')} with {in_groups:,} held-out rows have fit rows too")
    if found.malicious:
        parts.append(f"{plural(found.malicious, 'malicious row')} are among the benign ones too")
    return "; ".join(parts)


def _cannot_tell(found: Overlap) -> str:
    if found.divided:
        return "gate divided one sample at random, which also divides copies: without ids they cannot be told"
    if found.scores.seen_from is None:
        return "by these scores, copies of fit rows cannot be told from ties"
    share = math.ceil(100 * found.scores.seen_from)
    return f"by these scores, copies of fit rows show only from {share} % of the held-out rows on"


def _counted(shared: Shared) -> str:
    """`3,040 pairs of rows with one score have one row on each side, where chance puts about 40: ...`."""
    looked = "" if shared.one_of == 1 else f" (of one score in {shared.one_of:,})"
    what = "rows" if shared.unit == "rows" else "groups"
    message = f"{plural(shared.across, 'pair')} of {what} with one score{looked} have one on each side"
    if shared.copied:
        copies = f"about {shared.copied:,} held-out {what} are copies"
        return f"{message}, where chance puts about {shared.expected[0]:,.0f}: {copies}"
    if not shared.pairs:
        return f"no score is that of exactly two {what}"
    return f"{message}; chance puts about {shared.expected[0]:,.0f} so"


_RECURS = "; scores recur inside the fit sample as well, from its earlier rows to its later ones"
_MORE = {"recurring": _RECURS, "mostly-recurring": _RECURS}
_REMEDIES = {
    "cannot-tell": "name an id: the column that tells rows apart, as data.id",
    "shared-rows": "hold out rows that the calibrator is not fitted on: these prove nothing about rows to come",
    "both-kinds": "find out which kind these rows are of, and give each row once",
    "shared-scores": "find out whether these are the same items under new ids; if so, hold out other rows",
    "mostly-recurring": "hold out other items; or name items with data.group, and split by `gate run --benign --split`",
    "shared-groups": "keep all rows of a group on one side, as `gate run --benign --split` does",
}


def _sources(sample: Sample) -> str:
    return ", ".join(source.path for source in sample.sources) or "the sample"


# --- the check ----------------------------------------------------------------------------------------------


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(OverlapSettings)
    if settings is not None:
        yield Asked(NAME, settings.required, "fit rows", ("checks", "overlap"), by_check=False)


CHECK = Check(
    key="overlap",
    asks="whether held-out rows are among the fit rows: then they are not held out",
    decides="It counts ids and whole rows that both samples have, and pairs of rows with one score, divided by chance.",
    causes="a split that was drawn twice, a join that copied rows, or the same items under new ids",
    helps=(
        "Split again so that no row is in both samples, whole groups together; with data.id the shared rows are known "
        "and not estimated."
    ),
    evidence=Overlap,
    measure=measure,
    judge=judge,
    asked=asked,
    reasons={
        "apart": "nothing shared",
        "cannot-tell": "cannot tell",
        "recurring": "items that recur",
        "mostly-recurring": "mostly items that recur",
        "shared-rows": "rows in both samples",
        "both-kinds": "rows of both kinds",
        "shared-scores": "scores in both samples",
        "shared-groups": "groups in both samples",
    },
    sentences={
        "shared-rows": "held-out rows are among the fit rows",
        "both-kinds": "malicious rows are among the benign ones",
        "shared-scores": "most held-out rows have the scores of fit rows",
        "shared-groups": "held-out and fit rows share groups",
        "mostly-recurring": "most held-out rows recur from the fit rows",
    },
    settings=OverlapSettings,
    default=OverlapSettings(),
)
