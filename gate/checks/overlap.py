"""Overlap: whether held-out rows are among the fit rows; such rows are not held out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from gate.checks.check import Asked, Case, Check, Evidence, Finding, Judgement
from gate.checks.shared import Shared, compare_keys, compare_scores
from gate.errors import GateError
from gate.names import CheckName
from gate.policy import Flag, Frozen, Policy, PolicyRate
from gate.stored import Count, Outcome, Section
from gate.words import plural

if TYPE_CHECKING:
    from gate.scores import Scores

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
    rows                    those equal to a fit row in every column read, where there are other columns but no ids
    scores                  those with the score of a fit row, or nearly
    rows_in_shared_groups   those whose group has fit rows too; None without groups
    divided                 whether gate divided one sample: then no row is on both sides
    recurring               of samples one after the other, what the later fit rows share with the earlier ones
    """

    benign: Count
    ids: Count | None
    rows: Shared | None
    scores: Shared
    shared_groups: Count | None
    rows_in_shared_groups: Count | None
    divided: bool = False
    recurring: Shared | None = None


def refuse_identical(fit: Scores, holdout: Scores) -> None:
    """Refuse the same rows on both sides, whatever their ids: nothing is held out, so nothing would be evidence."""
    from gate.scores import find_copy  # here and below: reading a record need not wait for pyarrow

    copy = None
    if fit.pieces is not holdout.pieces:  # the two parts of a split sample have the same pieces
        copy = find_copy([piece.file for sample in (fit, holdout) for piece in sample.pieces if piece.taken])
    if copy is not None:
        raise GateError(
            f"{copy[1]}: must hold other rows than the fit sample, got the same bytes as in {copy[0]}; hold out rows "
            "that the calibrator is not fitted on"
        )
    if fit.sha256 == holdout.sha256:
        raise GateError(
            f"{_sources(holdout)}: must hold other rows than the fit sample, got the same {len(fit):,} scores as in "
            f"{_sources(fit)}; hold out rows that the calibrator is not fitted on"
        )


def measure(case: Case) -> Overlap | None:
    """Count the held-out rows that the fit sample holds too; the gate has refused identical samples before."""
    fit, holdout = case.fit, case.holdout
    if fit is None:
        return None

    ids = groups = rows_in_groups = None
    if fit.has_ids and holdout.has_ids:
        ids = holdout.shared_ids(fit)
    if fit.has_groups and holdout.has_groups:
        groups, rows_in_groups = holdout.shared_groups(fit)
    return Overlap(
        benign=len(holdout),
        ids=ids,
        rows=_compare_rows(fit, holdout) if ids is None else None,
        scores=compare_scores(fit, holdout),
        shared_groups=groups,
        rows_in_shared_groups=rows_in_groups,
        divided=bool(fit.pieces) and fit.pieces is holdout.pieces,
        recurring=_compare_in_time(fit, holdout),
    )


def _compare_in_time(fit: Scores, holdout: Scores) -> Shared | None:
    """What later fit rows share with earlier ones, if all fit rows are older than the held-out rows.

    Items that recur day by day are on both sides of any moment, and chance does not divide them. So their share is
    measured at another moment.
    """
    seen, held_out = fit.seen, holdout.seen
    if seen is None or held_out is None or seen[1] > held_out[0]:
        return None
    times = fit.in_order(_times)
    share = len(holdout) / (len(fit) + len(holdout))
    place = min(max(round((1 - share) * len(fit)), 1), len(fit) - 1)
    later, earlier = fit.divide(partial(_is_later, cut=int(times.at_rank(times.n - place))))
    return compare_scores(earlier, later) if min(len(earlier), len(later)) else None


def _times(part: Scores) -> NDArray[np.int64]:
    assert part.timestamps is not None
    return part.timestamps


def _is_later(part: Scores, cut: int) -> NDArray[np.bool_]:
    return np.asarray(_times(part) >= cut)


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    found, settings = evidence.of(Overlap), policy.settings(OverlapSettings)
    if found is not None and settings is not None:
        yield decide(settings, found).finding(NAME)


def decide(settings: OverlapSettings, found: Overlap) -> Judgement:
    """Fail if more held-out rows than allowed are fit rows.

    Scores shared beyond chance by rows with different ids may be items that recur: they fail only above half of the
    rows, and below that they advise. Items that recur by their times pass, unless most rows are such: then these show
    nothing about other items. If scores cannot tell, the finding advises too, and never blocks.
    """
    allowed = found.benign * settings.max_share
    scores = found.scores
    copied = scores.copied if scores.copied > scores.n * settings.max_share else 0
    recurs = bool(copied) and _recurs(found)
    copied = 0 if found.divided and found.ids is None else copied
    most = 2 * copied > scores.n
    copied = 0 if recurs else copied
    in_groups = found.rows_in_shared_groups or 0
    same_rows = found.rows.copied if found.rows is not None and not found.divided else 0
    leaked = (found.ids or 0) > allowed or same_rows > allowed
    if leaked or (copied and found.ids is None):
        reason = "shared-rows"
    elif in_groups > allowed:
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
    message = _message(found) + _MORE.get(reason, "") + (_seen_from(found) if reason == "cannot-tell" else "")
    remedy = _BY_ID if reason == "cannot-tell" and found.rows is not None else _REMEDIES.get(reason)
    return Judgement(outcome, settings.required and not advises, reason, message, remedy)


def _recurs(found: Overlap) -> bool:
    """Whether later fit rows share scores with earlier ones at least half as often as held-out ones with fit rows."""
    within, scores = found.recurring, found.scores
    return within is not None and 2 * within.copied * scores.n >= scores.copied * within.n


def _shows_copies(found: Overlap) -> bool:
    """Whether many copies would have shown: by name, by all columns, by scores, or by how the rows were divided."""
    by_name = found.ids is not None or found.shared_groups is not None
    return by_name or found.divided or found.scores.shows_copies or (found.rows is not None and found.rows.shows_copies)


def _seen_from(found: Overlap) -> str:
    """The share of copies from which on they would have shown, by the comparison that shows them best."""
    shares = [part.seen_from for part in (found.scores, found.rows) if part is not None and part.seen_from is not None]
    if not shares:
        return "; by these scores copies of fit rows cannot be told, not even if all held-out rows were copies"
    return f"; by these scores copies of fit rows are told only from {math.ceil(100 * min(shares))} % of the rows on"


def _message(found: Overlap) -> str:
    parts = []
    if found.ids is not None:
        parts.append(f"{found.ids:,} of {found.benign:,} held-out rows have the id of a fit row")
    if found.rows is not None:
        parts.append(_counted(found.rows, "row", "equal a fit row in every column read"))
    if found.divided and not parts:
        parts.append("gate divided one sample: no row is on both sides")
    elif not parts or (found.scores.copied and not found.divided):
        highest = "" if found.scores.unit == "rows" else "highest "
        parts.append(_counted(found.scores, f"{highest}score", f"are those of fit {found.scores.unit} too"))
    if found.shared_groups:
        in_groups = found.rows_in_shared_groups or 0
        parts.append(f"{plural(found.shared_groups, 'group')} with {in_groups:,} held-out rows have fit rows too")
    return "; ".join(parts)


def _counted(shared: Shared, what: str, same: str) -> str:
    """`3,040 scores of 30,000 held-out rows are those of fit rows too, where chance makes about 40: ...`."""
    message = f"{plural(shared.shared, what)} of {shared.n:,} held-out {shared.unit} {same}"
    if shared.copied:
        copies = f"at least {shared.copied:,} or so are copies"
        return f"{message}, where chance makes about {shared.expected:,.0f} alike: {copies}"
    return f"{message}, no more than chance makes alike (about {shared.expected:,.0f})" if shared.shared else message


_RECURS = "; scores recur inside the fit sample as well, from its earlier rows to its later ones"
_MORE = {"recurring": _RECURS, "mostly-recurring": _RECURS}
_BY_ID = "name what tells rows apart with data.id"  # if other columns are read already and show too little
_REMEDIES = {
    "cannot-tell": f"{_BY_ID}, or when they were seen with data.timestamp",
    "shared-rows": "hold out rows that the calibrator is not fitted on: these prove nothing about rows to come",
    "shared-scores": "find out whether these are the same items under new ids; if so, hold out other rows",
    "mostly-recurring": "hold out other items; or name items with data.group, and split by `gate run --benign --split`",
    "shared-groups": "keep all rows of a group on one side, as `gate run --benign --split` does",
}


# --- rows by all of their columns ---------------------------------------------------------------------------


def _compare_rows(fit: Scores, holdout: Scores) -> Shared | None:
    """The rows that agree in all columns; None if there is no column but the score."""
    from gate.scores import row_keys

    keys = row_keys(fit, holdout)
    return None if keys is None else compare_keys(*keys, len(fit), len(holdout))


def _sources(scores: Scores) -> str:
    return ", ".join(source.path for source in scores.sources) or "the sample"


# --- the check ----------------------------------------------------------------------------------------------


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(OverlapSettings)
    if settings is not None:
        yield Asked(NAME, settings.required, "fit rows", ("checks", "overlap"), by_check=False)


def contradictions(policy: Policy, evidence: Evidence) -> Iterator[str]:
    """Counts of other rows or columns than the record's."""
    found, holdout, fit = evidence.of(Overlap), evidence.holdout, evidence.fit
    if found is None:
        return
    if found.benign != holdout.n:
        yield "overlap.benign is not the number of held-out rows"
    if (found.ids is not None) != (holdout.rows_sha256 is not None and fit.rows_sha256 is not None):
        yield "overlap.ids must be counted where the rows have ids, only there"
    columns = policy.data
    other = any(name is not None for name in (columns.group, columns.segment, columns.timestamp))
    if found.rows is not None and not (other and found.ids is None):
        yield "overlap.rows are not those of these columns"
    for shared, groups in ((found.scores, holdout.groups), (found.rows, None)):
        if shared is not None:
            yield from _impossible(shared, holdout.n, fit.n, groups, fit.groups)
    if max(found.ids or 0, found.rows_in_shared_groups or 0) > found.benign:
        yield "overlap has more rows than were held out"


def _impossible(found: Shared, n: int, fit_n: int, groups: int | None, fit_groups: int | None) -> Iterator[str]:
    by_rows = groups is None or fit_groups is None
    sizes = (n, fit_n) if by_rows else (groups, fit_groups)
    if (found.unit == "rows") != by_rows or (found.n, found.fit_n) != sizes:
        yield "scores are compared of other rows than the record has"
    if max(found.shared, found.copies) > found.n:
        yield "more scores are shared than were held out"
    if 1.0 not in (found.fewer, found.more):
        yield "scores cannot be shared both too often and too seldom"


CHECK = Check(
    key="overlap",
    asks="whether held-out rows are among the fit rows: then they are not held out",
    decides="It counts ids, rows and scores that both samples have, the last two against what chance makes alike.",
    causes="a split that was drawn twice, a join that copied rows, or the same items under new ids",
    helps=(
        "Split again so that no row is in both samples, whole groups together; with data.id the shared rows are known "
        "and not estimated."
    ),
    evidence=Overlap,
    measure=measure,
    judge=judge,
    asked=asked,
    contradictions=contradictions,
    reasons={
        "apart": "nothing shared",
        "cannot-tell": "scores cannot tell",
        "recurring": "items that recur",
        "mostly-recurring": "mostly items that recur",
        "shared-rows": "rows in both samples",
        "shared-scores": "scores in both samples",
        "shared-groups": "groups in both samples",
    },
    sentences={
        "shared-rows": "held-out rows are among the fit rows",
        "shared-scores": "most held-out rows have the scores of fit rows",
        "shared-groups": "held-out and fit rows share groups",
        "mostly-recurring": "most held-out rows recur from the fit rows",
    },
    settings=OverlapSettings,
    default=OverlapSettings(),
)
