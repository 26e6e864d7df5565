"""Overlap: whether held-out rows are among the fit rows; then they are not held out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gate.checks.shared import Shared, compare_keys, compare_scores
from gate.checks.values import Count, Judgement, Outcome, Section
from gate.contract import Floats
from gate.errors import GateError, plural
from gate.ordered import Ordered, collapse, join_entries

if TYPE_CHECKING:
    from gate.policy import Overlap as Settings
    from gate.scores import Scores

Keys = NDArray[Any]

PIECE = 1 << 20


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
    """The same rows on both sides hold nothing out, whatever their ids; what they showed would be no evidence."""
    from gate.scores import find_copy  # here and below: reading a record need not wait for pyarrow

    copy = None
    if fit.pieces is not holdout.pieces:  # of one sample that was split they are the same
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


def measure(fit: Scores, holdout: Scores, divided: bool | None = None) -> Overlap:
    """Count the held-out rows that the fit sample holds too.

    `divided` says whether both are parts of one sample; without it, parts know by the pieces that they were read from.
    """
    from gate.scores import shared_names

    ids = groups = rows_in_groups = None
    if fit.ids is not None and holdout.ids is not None:
        ids = int(shared_names(holdout.ids, fit.ids).sum())
    if fit.groups is not None and holdout.groups is not None:
        both = shared_names(holdout.group_names, fit.group_names)
        groups, rows_in_groups = int(both.sum()), int(holdout.group_sizes[both].sum())
    return Overlap(
        benign=len(holdout),
        ids=ids,
        rows=_compare_rows(fit, holdout) if ids is None else None,
        scores=compare_scores(fit, holdout),
        shared_groups=groups,
        rows_in_shared_groups=rows_in_groups,
        divided=bool(fit.pieces) and fit.pieces is holdout.pieces if divided is None else divided,
        recurring=_compare_in_time(fit, holdout),
    )


def _compare_in_time(fit: Scores, holdout: Scores) -> Shared | None:
    """Of fit rows that are all older than the held-out ones: what their own later rows share with the earlier ones.

    Items that recur day by day are on both sides of any moment, and chance does not divide them: what it shares is
    measured at another moment.
    """
    if fit.timestamps is None or holdout.timestamps is None or fit.timestamps.max() > holdout.timestamps.min():
        return None
    share = len(holdout) / (len(fit) + len(holdout))
    place = min(max(round((1 - share) * len(fit)), 1), len(fit) - 1)
    later = fit.timestamps >= np.partition(fit.timestamps, place)[place]
    if not 0 < int(later.sum()) < len(fit):
        return None
    return compare_scores(fit.part(~later), fit.part(later))


def judge(settings: Settings, found: Overlap) -> Judgement:
    """More held-out rows than allowed that are fit rows fail.

    Scores that are shared beyond chance under ids of their own may be items that recur: only above half of the rows do
    these fail too, and below that they advise. What scores cannot tell advises too, and never blocks.
    """
    allowed = found.benign * settings.max_share
    scores = found.scores
    copied = scores.copied if scores.copied > scores.n * settings.max_share else 0
    recurs = bool(copied) and _recurs(found)
    copied = 0 if recurs or (found.divided and found.ids is None) else copied
    most = 2 * copied > scores.n
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
        reason = "recurring"
    else:
        reason = "apart" if _tells(found) else "cannot-tell"
    advises = reason == "cannot-tell" or (reason == "shared-scores" and not most)
    outcome: Outcome = "inconclusive" if advises else "fail" if reason in _REMEDIES else "pass"
    message = _message(found) + _MORE.get(reason, "") + (_seen_from(found) if reason == "cannot-tell" else "")
    return Judgement(outcome, settings.required and not advises, reason, message, _REMEDIES.get(reason))


def _recurs(found: Overlap) -> bool:
    """Whether later fit rows share scores with earlier ones at least half as often as held-out ones with fit rows."""
    within, scores = found.recurring, found.scores
    return within is not None and 2 * within.copied * scores.n >= scores.copied * within.n


def _tells(found: Overlap) -> bool:
    """Whether many copies would have been seen: by name, by all columns, by scores, or by how the rows were divided."""
    by_name = found.ids is not None or found.shared_groups is not None
    return by_name or found.divided or found.scores.tells or (found.rows is not None and found.rows.tells)


def _seen_from(found: Overlap) -> str:
    """From what share on copies would have been seen, by whatever sees them best."""
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


_MORE = {
    "recurring": "; scores recur inside the fit sample as well, from its earlier rows to its later ones",
}
_REMEDIES = {
    "cannot-tell": "name what tells rows apart with data.id, or when they were seen with data.timestamp",
    "shared-rows": "hold out rows that the calibrator is not fitted on: these prove nothing about rows to come",
    "shared-scores": "find out whether these are the same items under new ids; if so, hold out other rows",
    "shared-groups": "keep all rows of a group on one side, as `gate run --benign --split` does",
}


# --- rows by all of their columns ---------------------------------------------------------------------------


def _compare_rows(fit: Scores, holdout: Scores) -> Shared | None:
    """The rows that agree in all columns; None where there is none but the score."""
    others = _other_columns(fit, holdout)
    if others is None:
        return None
    alike = _alike(fit.ordered, holdout.ordered)
    fitted, held_out = (_row_keys(s.values, c, alike) for s, c in zip((fit, holdout), others, strict=True))
    return compare_keys(fitted, held_out, len(fit), len(holdout))


def _other_columns(fit: Scores, holdout: Scores) -> tuple[list[Keys], list[Keys]] | None:
    """What rows of both samples have beside their scores, numbered alike."""
    pairs = []
    if fit.groups is not None and holdout.groups is not None:
        pairs.append(_numbered_alike([fit.group_names, holdout.group_names], [fit.groups, holdout.groups]))
    if fit.segments is not None and holdout.segments is not None:
        pairs.append(_numbered_alike([fit.segment_names, holdout.segment_names], [fit.segments, holdout.segments]))
    if fit.timestamps is not None and holdout.timestamps is not None:
        pairs.append([fit.timestamps, holdout.timestamps])
    return ([pair[0] for pair in pairs], [pair[1] for pair in pairs]) if pairs else None


def _row_keys(values: Floats, columns: list[Keys], alike: Keys) -> Ordered:
    """The rows whose score is among the alike, as one number each for all of their columns."""
    if len(alike) == 0:
        return Ordered(np.empty(0, dtype=np.int64))
    places = np.minimum(np.searchsorted(alike, values), len(alike) - 1)
    rows = np.flatnonzero(alike[places] == values)
    key = (values[rows] + 0.0).view(np.uint64)
    for column in columns:
        key = _mixed(key) + column[rows].astype(np.uint64)
    keys = (_mixed(key) >> np.uint64(2)).astype(np.int64)
    keys.sort()
    return Ordered(keys)


def _alike(fit: Ordered, holdout: Ordered) -> Floats:
    """The scores that more than one row has, in either sample or across them."""
    found = [np.empty(0)]
    cuts = [*fit.cuts(PIECE)]
    for ends in zip([None, *cuts], [*cuts, None], strict=True):
        parts = [sample.between(*ends) for sample in (fit, holdout)]
        values, rows = collapse(*join_entries(parts))
        found.append(values[rows > 1])
    return np.concatenate(found)


def _numbered_alike(names: list[Any], codes: list[Keys]) -> list[NDArray[np.int64]]:
    from gate.scores import number_alike

    return [number[code] for number, code in zip(number_alike(names), codes, strict=True)]


def _mixed(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit numbers that spreads neighbours apart (Steele, Lea and Flood 2014, SplitMix)."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


def _sources(scores: Scores) -> str:
    return ", ".join(source.path for source in scores.sources) or "the sample"
