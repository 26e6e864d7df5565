"""Duplicates: whether rows count more than once. Copies narrow every interval, but are no further evidence."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from gate.checks.check import Asked, Case, Check, Evidence, Finding, Judgement
from gate.checks.overlap import Overlap, a_share
from gate.checks.shared import Shared, compare_halves
from gate.names import CheckName
from gate.policy import Flag, Frozen, Policy, PolicyRate
from gate.stored import Count, Section
from gate.words import plural

if TYPE_CHECKING:
    from gate.rows.sample import Sample

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
    """Rows of one sample as they were read, and how many of them repeat another one.

    by   what shows it: the same id, or the same value in every column; null where no column tells rows apart
    halves   what rows of one score say, of the first and the second half of the rows in the order of the files
    """

    rows: Count
    by: Literal["ids", "rows"] | None = None
    repeated: Count = 0
    halves: Shared | None = None

    @property
    def excess(self) -> int:
        """The rows that repeat others, by whatever shows it."""
        return self.repeated if self.by else self._by_halves

    @property
    def _by_halves(self) -> int:
        return 0 if self.halves is None else self.halves.copied

    @property
    def could_show(self) -> bool:
        """Whether many copies would have shown."""
        return self.by is not None or (self.halves is not None and self.halves.shows_copies)


class Duplicates(Section):
    """Rows that repeat, in each sample; where gate divided one sample, in the whole of it, as `pool`.

    Copies inside one sample also leave fewer pairs of rows with one score on both sides than true ties would: these are
    the shared scores of the overlap. Rows of one group may repeat: the effective sample size accounts for it.
    """

    fit: Repeats | None = None
    holdout: Repeats | None = None
    pool: Repeats | None = None
    malicious: Repeats | None = None

    @property
    def samples(self) -> dict[str, Repeats]:
        named = {"fit": self.fit, "held-out": self.holdout, "benign": self.pool, "malicious": self.malicious}
        return {name: found for name, found in named.items() if found is not None}


def measure(case: Case) -> Duplicates | None:
    """Count the repeats of every sample."""
    malicious = None if case.malicious is None else repeats_of(case.malicious)
    beside = 0 if case.fit is None else len(case.fit)
    if case.holdout.pool is not None:
        return Duplicates(pool=repeats_of(case.holdout.pool), malicious=malicious)
    fit = None if case.fit is None else repeats_of(case.fit, len(case.holdout))
    return Duplicates(fit=fit, holdout=repeats_of(case.holdout, beside), malicious=malicious)


def repeats_of(sample: Sample, beside: int = 0) -> Repeats:
    if sample.repeated is not None:
        return Repeats(rows=sample.n + sample.repeated, by="ids", repeated=sample.repeated)
    if sample.copied is not None:
        return Repeats(rows=sample.n, by="rows", repeated=sample.copied)
    halves = None if sample.has_groups or sample.has_weights else compare_halves(sample, beside)
    return Repeats(rows=sample.n, halves=halves)


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    found, settings, overlap = evidence.of(Duplicates), policy.settings(DuplicatesSettings), evidence.of(Overlap)
    if found is not None and settings is not None:
        yield decide(settings, found, None if overlap is None else overlap.scores).finding(NAME)


def decide(settings: DuplicatesSettings, found: Duplicates, scores: Shared | None) -> Judgement:
    """Fail if more rows repeat than allowed; block as inconclusive if only scores say so.

    If rows with different ids share scores, they may be items that recur. Then they block only if most rows repeat, and
    else advise.
    """
    samples = found.samples
    excess = [part for part in samples.values() if part.excess > settings.max_share * part.rows]
    repeated = 0 if scores is None or scores.repeated <= settings.max_share * scores.n else scores.repeated
    parts = [_message(name, part, part in excess) for name, part in samples.items() if part.by or part in excess]
    if scores is not None and repeated:
        parts.append(_shared_message(scores, repeated))
    named = any(part.by == "ids" for part in samples.values())
    if any(part.by for part in excess):
        return Judgement("fail", settings.required, "repeated-rows", "; ".join(parts), _COPIES)
    if excess or repeated:
        recur = not excess and named and scores is not None and 2 * repeated <= scores.n
        remedy = _RECUR if named else _SCORES
        return Judgement("inconclusive", settings.required and not recur, "repeated-scores", "; ".join(parts), remedy)
    hidden = [name for name, part in samples.items() if not part.could_show]
    if hidden:
        parts.append(f"in the {' and '.join(hidden)} rows no column would show a copy")
        return Judgement("inconclusive", False, "cannot-tell", "; ".join(parts), _BY_ID)
    message = "; ".join(parts) or "rows of one score are as rare as chance makes them"
    return Judgement("pass", settings.required, "once", message, None)


def _message(name: str, part: Repeats, exceeds: bool) -> str:
    rows = plural(part.rows, f"{name} row")
    if part.by == "ids":
        return f"{part.repeated:,} of {rows} repeat an id"
    if part.by == "rows":
        return f"{part.repeated:,} of {rows} equal another one in every column"
    return f"about {part.excess:,} of {rows} have the scores of others, by their order in the files" if exceeds else ""


def _shared_message(scores: Shared, repeated: int) -> str:
    """`900 pairs of rows with one score are within one sample, where chance puts about 40: ...`."""
    within, expected = scores.fit + scores.held_out, scores.expected[1] + scores.expected[2]
    pairs = f"{plural(within, 'pair')} of {scores.unit} with one score are within one sample"
    return f"{pairs}, where chance puts about {expected:,.0f}: about {repeated:,} {scores.unit} repeat another one"


_BY_ID = "name an id: the column that tells rows apart, as data.id"
_COPIES = "give each row once: rows with one id were counted once, but whatever repeats rows is wrong"
_SCORES = "name what tells rows apart with data.id, or what they share with data.group; or give each row once"
_RECUR = "find out what recurs inside one sample, and name it with data.group; or give each row once"


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(DuplicatesSettings)
    if settings is not None:
        yield Asked(NAME, settings.required, "held-out rows", ("checks", "duplicates"), by_check=False)


CHECK = Check(
    key="duplicates",
    asks="whether rows count more than once",
    decides="Rows with one id count once, and more of them than max_share fail; so do rows that are equal in every "
    "column, where one column tells rows apart. Without either, pairs of rows with one score may show copies.",
    causes="a join that multiplied rows, a file read twice, or items that recur",
    helps=(
        "Remove the copies and run again. Where items recur, name them: data.id for rows that are the same, "
        "data.group for rows that belong together."
    ),
    evidence=Duplicates,
    measure=measure,
    judge=judge,
    asked=asked,
    reasons={
        "once": "each row counts once",
        "cannot-tell": "cannot tell",
        "repeated-rows": "rows that repeat",
        "repeated-scores": "rows that seem to repeat",
    },
    sentences={
        "repeated-rows": "too many rows repeat another one",
        "repeated-scores": "rows seem to repeat others, so that some count more than once",
    },
    settings=DuplicatesSettings,
    default=DuplicatesSettings(),
)
