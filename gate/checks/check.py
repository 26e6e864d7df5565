"""The types that every check shares: the case to measure, the evidence to judge, the findings. It knows no check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import Field, computed_field

from gate.contract import Anchor, Contract, Floats
from gate.names import CheckName, Name
from gate.policy import Frozen, Location, Policy
from gate.sources import SampleFacts
from gate.statistics.clusters import Effective, Groups
from gate.statistics.tally import Tally
from gate.stored import Count, ExactEdge, ExactError, ExactRate, Grade, Outcome, Rate, Section, Size
from gate.words import plural

if TYPE_CHECKING:
    from gate.calibration.calibrator import Calibrator
    from gate.rows.sample import Sample

Part = TypeVar("Part", bound=Section)
CaseT = TypeVar("CaseT")
EvidenceT = TypeVar("EvidenceT")
RecordKind = Literal["run", "check"]


# --- what is measured ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """All that a check may look at: the calibrator, the samples, and what came before.

    fit             None if a release is checked again, because nothing is fitted then
    reference       the release that this one is compared with, as `checks.baseline` reads it
    first_release   whether the release is declared to have no reference
    uses            how often rows like these have judged, as `checks.reuse` counts; None if no ledger is kept
    calibrated      whether the samples hold calibrated scores, as they were served, and not raw ones
    """

    policy: Policy
    calibrator: Calibrator
    holdout: Sample
    fit: Sample | None = None
    malicious: Sample | None = None
    reference: Any = None
    first_release: bool = False
    uses: Any = None
    day: date | None = None
    calibrated: bool = False

    @property
    def kind(self) -> RecordKind:
        return "check" if self.fit is None else "run"

    @property
    def alpha(self) -> Fraction:
        """How often an interval on these held-out rows may miss."""
        return self.policy.alpha(1 if self.uses is None else self.uses.holdout.number)

    @property
    def malicious_alpha(self) -> Fraction:
        """How often an interval on these malicious rows may miss; re-use spends them like benign rows."""
        uses = None if self.uses is None else self.uses.malicious
        return self.policy.alpha(1 if uses is None else uses.number)

    @cached_property
    def anchors(self) -> tuple[Anchor, ...]:
        return self.calibrator.contract.anchors

    @cached_property
    def benign(self) -> Mapping[Decimal, Tally]:
        """The held-out rows at every anchor of the contract."""
        return self._counted(self.holdout, self.alpha)

    @cached_property
    def detected(self) -> Mapping[Decimal, Tally]:
        """The malicious rows at every anchor; none if there are no such rows."""
        return {} if self.malicious is None else self._counted(self.malicious, self.malicious_alpha)

    @cached_property
    def thresholds(self) -> Mapping[Decimal, float | None]:
        """The lowest score that reaches each anchor: a raw score, or the anchor's own if scores are calibrated."""
        return self.thresholds_of(self.calibrator.contract)

    def thresholds_of(self, contract: Contract) -> Mapping[Decimal, float | None]:
        """The lowest scores that reach the points of another contract."""
        if self.calibrated:
            return own_thresholds(contract.anchors)
        if contract is self.calibrator.contract:
            return self.calibrator.thresholds
        return replace(self.calibrator, contract=contract).thresholds

    def _counted(self, sample: Sample, alpha: Fraction) -> Mapping[Decimal, Tally]:
        return dict(zip(self.thresholds, count(sample, [*self.thresholds.values()], alpha), strict=True))


def own_thresholds(anchors: Iterable[Anchor | AnchorFacts]) -> dict[Decimal, float | None]:
    """The thresholds of calibrated scores: the contract's own scores."""
    return {anchor.fpr: float(anchor.score) for anchor in anchors}


def as_scores(thresholds: Iterable[float | None]) -> Floats:
    """Thresholds as scores to count from: one that nothing reaches is infinite."""
    return np.array([np.inf if threshold is None else threshold for threshold in thresholds], dtype=np.float64)


def count(
    sample: Sample, thresholds: list[float | None], alpha: Fraction, weighed: set[int] | None = None
) -> list[Tally]:
    """How many rows of a sample reach each threshold: one question to it, and one to its groups.

    The worth of rows in groups is found at every threshold, or at those `weighed`, which include the first and the
    last. Between two of these the worth is the smaller one: a group flagged together at a score is flagged so at lower
    ones too.
    """
    scores = as_scores(thresholds)
    flagged = sample.ordered.at_or_above(scores)
    worth: list[Effective | None] = [None] * len(thresholds)
    if sample.has_groups:
        places = sorted(range(len(thresholds)) if weighed is None else weighed)
        found = sample.by_group(scores[places])
        groups = Groups(found.sizes)
        known = [groups.worth(found.reached[:, i], float(alpha)) for i in range(len(places))]
        at = np.arange(len(thresholds))
        sides = [known[int(i)] for i in np.searchsorted(places, at, side="right") - 1]
        others = [known[int(i)] for i in np.searchsorted(places, at, side="left")]
        worth = [Effective(*map(min, one, other)) for one, other in zip(sides, others, strict=True)]
    return [
        Tally(
            threshold=threshold,
            flagged=0 if threshold is None else int(flagged[i]),
            rows=len(sample) + (sample.unscored if sample.kind == "malicious" else 0),  # not scored is not detected
            effective=worth[i],
        )
        for i, threshold in enumerate(thresholds)
    ]


# --- what is judged -----------------------------------------------------------------------------------------


class Measured(Section):
    """What each check measured: one field for each, by its key, null where there was nothing to measure."""

    def of(self, part: type[Part]) -> Part | None:
        """The evidence of one check."""
        return next((value for value in vars(self).values() if isinstance(value, part)), None)


class AnchorFacts(Section):
    """One anchor of the contract, and the raw score that first reaches it."""

    fpr: ExactRate
    score: ExactRate
    threshold: float | None


class CalibratorFacts(Section):
    """What was fitted, of how many rows; `lowest_label` is the rarest rate that they show."""

    sha256: str
    bytes: Count
    knots: Count
    plotting_position: str
    ties: str
    lowest_label: Rate = Field(gt=0)
    anchors: tuple[AnchorFacts, ...]

    @cached_property
    def thresholds(self) -> dict[Decimal, float | None]:
        return {anchor.fpr: anchor.threshold for anchor in self.anchors}


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that was measured, fresh or from a record: a judgement follows from it and the policy alone.

    `calibrated` says that the rows' scores were calibrated already.
    Two are equal only if they are the same object, so that answers for several checks can be cached.
    """

    kind: RecordKind
    day: date
    calibrator: CalibratorFacts
    fit: SampleFacts
    holdout: SampleFacts
    malicious: SampleFacts | None
    parts: Measured
    calibrated: bool = False

    def of(self, part: type[Part]) -> Part | None:
        """The evidence of one check; None if there was nothing to measure."""
        return self.parts.of(part)


# --- what is found ------------------------------------------------------------------------------------------


class JudgedRate(Section):
    """The numbers of a finding on a rate, none of them rounded.

    target, score    the anchor: the promised rate and the calibrated score; of a system, only the score
    interval         of the rate, with the independent rows that the tally is worth
    tolerance        the rates that the policy accepts
    accepts          the counts that pass on these rows; null where none does
    predicted        the counts that 95 % of sound releases show
    ships            the chance that a release which is so many times over its target passes on as many rows
    drift_p_value    how likely so uneven a division of all rows at this rate is, if the samples are alike
    """

    target: ExactRate | None
    score: ExactRate
    tally: Tally
    interval: tuple[Rate, Rate]
    plain_interval: tuple[Rate, Rate] | None = None
    tolerance: tuple[ExactEdge, ExactEdge]
    min_n: Count | None = None
    accepts: tuple[Count, Count] | None = None
    predicted: tuple[Count, Count] | None = None
    drift_p_value: Rate | None = None
    ships: tuple[tuple[float, Rate], ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def observed(self) -> float:
        return self.tally.rate

    @computed_field  # type: ignore[prop-decorator]
    @property
    def relative_error(self) -> float | None:
        """The observed rate over the target, less one; positive means too many."""
        return None if self.target is None else float(self.tally.exact_rate / Fraction(self.target) - 1)


class NearestPoint(Section):
    """Where a bound of a range comes nearest to leaving the tolerance, or has left it farthest.

    fpr, score   the threshold: what it promises, and its calibrated score
    error        the bound over the promise at the next threshold that it must hold at, less one
    left         the share of the tolerance that is left; negative where the bound is outside
    """

    fpr: ExactRate
    score: ExactRate
    side: Literal["above", "below"]
    flagged: Count
    bound: Rate
    error: float
    left: float


class JudgedRange(Section):
    """The numbers of a finding on a range, none of them rounded.

    rows         the independent rows that the held-out ones are worth where they are worth least
    tolerance    above and below, as relative errors
    proven       the stretches that are proven, each by itself, the longest first
    refuted      the rates at which it is disproved
    impossible   between which two rates so many rows have one score that no threshold keeps both sides in
    """

    start: ExactRate
    stop: ExactRate
    points: Count
    rows: Size
    min_n: Count
    tolerance: tuple[ExactError, ExactError]
    nearest: NearestPoint | None
    proven: tuple[tuple[ExactRate, ExactRate], ...] = ()
    refuted: tuple[ExactRate, ...] = ()
    impossible: tuple[tuple[ExactRate, ExactRate], ...] = ()


class Finding(Section):
    """One check's outcome with its reason, in words that a person can act on."""

    check: Name
    outcome: Outcome
    grade: Grade | None = None
    required: bool
    waived: bool = False
    reason: str
    message: str
    remedy: str | None = None
    rate: JudgedRate | None = None
    range: JudgedRange | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def blocks(self) -> bool:
        return self.required and not self.waived and self.outcome != "pass"


class Judgement(NamedTuple):
    """What a check with one finding decides about its evidence, and says of it."""

    outcome: Outcome
    required: bool
    reason: str
    message: str
    remedy: str | None

    def finding(self, check: CheckName) -> Finding:
        return Finding(check=check, **self._asdict())


@dataclass(frozen=True)
class Asked:
    """One question of a policy: its name, whether it must pass, what it needs, and where the policy asks it.

    `by_check` is false if a release that is checked again is asked it only when the needed input is at hand. `lacks`
    says what is missing if that is known better than by the needed input.
    """

    name: CheckName
    required: bool
    needs: str
    place: Location
    by_check: bool = True
    lacks: str | None = None
    remedy: str | None = None


NOT_MEASURED = "not-measured"


def not_measured(asked: Asked) -> Finding:
    """The finding for a question of the policy that no given input answers."""
    return Finding(
        check=asked.name,
        outcome="inconclusive",
        required=asked.required,
        reason=NOT_MEASURED,
        message=asked.lacks or f"the policy asks for this, and nothing that was given shows it: it takes {asked.needs}",
        remedy=asked.remedy or f"give {asked.needs}",
    )


def nothing(*_: object) -> Iterator[Any]:
    """The sentences or questions of a check that has none."""
    return iter(())


@dataclass(frozen=True, eq=False)
class CheckOf(Generic[CaseT, EvidenceT]):
    """One question put to a release, with all that belongs to it.

    key               its place in the record, and in the policy's `checks:` where it has settings
    asks, decides     what it asks and how it decides, in words for people
    causes, helps     what usually makes it red, and what to do then
    measure           gives the evidence of a case; None if there is nothing to measure
    judge             gives the findings of a policy and the evidence
    asked             the questions of the policy to it that the evidence leaves open
    reasons           its reason codes, in words
    sentences         by reason code, what a finding that blocks and has no rate says of the release
    families          the beginnings of its findings' names; by default its key
    about             what its findings speak of: the benign rows, the malicious ones, or the baseline
    settings          the type of its settings, and the default: None if only a policy that writes them asks
    warnings          what a reader should know and no finding says
    home              the places in a policy that concern it, the best first; by default its settings
    """

    key: str
    asks: str
    decides: str
    causes: str
    helps: str
    evidence: type[Section]
    measure: Callable[[CaseT], Section | None]
    judge: Callable[[Policy, EvidenceT], Iterator[Finding]]
    reasons: Mapping[str, str]
    asked: Callable[[Policy, EvidenceT], Iterator[Asked]] = nothing
    sentences: Mapping[str, str] = field(default_factory=dict)
    families: tuple[str, ...] = ()
    about: Literal["benign", "malicious", "baseline"] = "benign"
    settings: type[Frozen] | None = None
    default: Frozen | None = None
    unasked: str = ""
    warnings: Callable[[Policy, EvidenceT], Iterator[str]] = nothing
    home: tuple[Location, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.families or (self.key,)

    @property
    def places(self) -> tuple[Location, ...]:
        return self.home or (("checks", self.key),)


class Check(CheckOf[Case, Evidence]):
    """Whether each detector is asked it by itself."""


# --- one rule for every rate --------------------------------------------------------------------------------

# Reason codes in words.
PASSED = {"proven": "proven", "observed": "observed inside, not proven", "not-refuted": "not refuted"}
MISCOUNTED = {"too-many": "too many false positives", "too-few": "too few false positives", "min-n": "too few rows"}
UNDECIDED = {"open": "neither proven nor refuted", "outside": "observed outside, not proven"}
UNSUPPORTED = {"extrapolated": "beyond the fit sample, not proven", "unreachable": "no raw score reaches it"}
TIED = {"granularity": "tied scores allow no such rate"}
UNSCORED = {"unscored": "rows without a score"}

MOST_UNSCORED = Fraction(1, 1000)  # of the rows; if more have no score, nothing passes
SCORE_THEM = "score these rows: those that are left out may be the ones that the detector flags"


def describe_unscored(evidence: Evidence) -> str | None:
    """The benign rows without a score, where they are more than may be; a check has no fit rows."""
    samples = [("fit", evidence.fit)] if evidence.kind == "run" else []
    said = [
        f"{plural(sample.unscored, f'{name} benign row')} without a score beside {sample.n:,} with one"
        for name, sample in [*samples, ("held-out", evidence.holdout)]
        if sample.unscored > MOST_UNSCORED * (sample.n + sample.unscored)
    ]
    return " and ".join(said) or None


def inside(counts: tuple[int, int] | None, k: int) -> bool:
    return counts is not None and counts[0] <= k <= counts[1]
