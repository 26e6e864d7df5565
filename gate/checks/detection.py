"""Detection: whether enough malicious rows are flagged at each anchor. Calibration alone promises nothing of them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from gate.checks.check import PASSED, UNDECIDED, Asked, Case, Check, Evidence, Finding, inside
from gate.checks.fpr import AtAnchor, AtAnchors
from gate.checks.rates import NOT_COMPUTED, PROMISE, grade_count, judged_rate
from gate.checks.reuse import malicious_alpha_of
from gate.names import CheckName
from gate.planning import Advice, Budget, advise_at_rate
from gate.policy import Flag, Frozen, Policy, PolicyRate
from gate.statistics.binomial import CriticalCounts
from gate.statistics.sequential import one_sided
from gate.statistics.tally import Tally
from gate.stored import Grade, Outcome
from gate.words import percent, plural


class DetectionTarget(Frozen):
    """An anchor at which enough malicious rows must be detected."""

    fpr: PolicyRate = Field(description="the false-positive rate promised at this anchor of the contract")
    min_tpr: PolicyRate = Field(description="the share of malicious rows that must be flagged there")

    @field_validator("min_tpr")
    @classmethod
    def _provable(cls, value: Decimal) -> Decimal:
        if not 0 < value < 1:
            raise PydanticCustomError("min_tpr", "must be above 0 and below 1, such as 0.8")
        return value

    @property
    def check(self) -> CheckName:
        return CheckName("tpr", self.fpr)

    @property
    def drop_check(self) -> CheckName:
        return CheckName("tpr-drop", self.fpr)


class DetectionSettings(Frozen):
    """What the detector must still catch (`--malicious`)."""

    targets: tuple[DetectionTarget, ...] = Field(
        description="the shares that must be detected", json_schema_extra={"minItems": 1}
    )
    max_drop: PolicyRate | None = Field(
        default=None, description="how far the share may fall below the baseline's (`--baseline`): 0.02 is two points"
    )
    required: Flag = Field(default=True, description="false: shown, but never blocks a release")

    @field_validator("max_drop")
    @classmethod
    def _margin(cls, value: Decimal | None) -> Decimal | None:
        if value is not None and not 0 < value < 1:
            raise PydanticCustomError("max_drop", "must be above 0 and below 1, such as 0.02 for two points")
        return value


class Detection(AtAnchors):
    """The malicious rows at every anchor of the contract."""


def measure(case: Case) -> Detection | None:
    """Count the malicious rows at every anchor; None if there are no such rows."""
    if case.malicious is None:
        return None
    return Detection(anchors=tuple(AtAnchor(fpr=fpr, tally=found) for fpr, found in case.detected.items()))


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Grade each minimum as a target is graded, with only a lower edge."""
    settings, found, budget = policy.settings(DetectionSettings), evidence.of(Detection), Budget()
    if settings is None or found is None:
        return
    scores = {point.fpr: point.score for point in policy.contract}
    for target in settings.targets:
        if (counted := found.at(target.fpr)) is None:
            continue
        band = one_sided(Fraction(target.min_tpr), Fraction(1), malicious_alpha_of(policy, evidence), policy.interval)
        critical = counted.critical(band)
        accepts = critical.passing(policy.rule, counted.rows)
        grade = grade_count(counted.flagged, critical)
        passes = inside(accepts, counted.flagged)
        outcome, reason = decide(policy.rule, grade, passes)
        advice = None
        if not passes:
            worth = counted.independent_rows / counted.rows
            advice = advise_at_rate(policy.rule, band, counted.flagged, counted.rows, budget, worth=worth)
        yield Finding(
            check=target.check,
            outcome=outcome,
            grade=grade,
            required=settings.required,
            reason=reason,
            message=_message(
                counted, critical, target, 0 if evidence.malicious is None else evidence.malicious.unscored
            ),
            remedy=_remedy(policy.rule, counted, reason, advice),
            rate=judged_rate(target.fpr, scores[target.fpr], counted, band, accepts=accepts),
        )


def decide(rule: str, grade: Grade, accepted: bool) -> tuple[Outcome, str]:
    """What a rule makes of a grade; `accepted` says whether it lets an open one pass."""
    if grade == "refuted":
        return "fail", "missed"
    if grade == "proven":
        return "pass", "proven"
    if accepted:
        return "pass", rule
    return "inconclusive", "open" if rule == "proven" else "outside"


def _message(found: Tally, critical: CriticalCounts, target: DetectionTarget, unscored: int) -> str:
    """`812 of 1,000 malicious rows detected; 825 or more prove the minimum of 80 %, 773 or fewer refute it`."""
    counted = f"{found.flagged:,} of {plural(found.rows, 'malicious row')} detected"
    if found.is_clustered:
        counted += f", in groups worth {int(found.independent_rows):,} independent ones"
    if unscored:
        counted += f"; {plural(unscored, 'row')} without a score {'counts' if unscored == 1 else 'count'} as missed"
    if found.threshold is None:
        counted += "; no raw score reaches this anchor, so nothing is ever detected there"
    minimum = f"the minimum of {percent(target.min_tpr)}"
    proven = f"{critical.proven[0]:,} or more prove {minimum}" if critical.proven else f"no count proves {minimum}"
    few = critical.refuted_at_or_below
    refuted = (
        "no count refutes it" if few is None else f"{few:,} or fewer refute it" if few else "none at all refutes it"
    )
    return f"{counted}; {proven}, {refuted}"


def _remedy(rule: str, found: Tally, reason: str, advice: Advice | None) -> str | None:
    if reason == "missed":
        return "train the detector further: it catches too few malicious rows, and no calibration changes that"
    if reason not in ("open", "outside"):
        return None
    if advice is not None and advice.more is not None:
        more = f"score {advice.more - found.rows:,} more malicious rows ({advice.more:,} in all)"
        return f"{more}: at the rate observed, a release {PROMISE}"
    if advice is not None and not advice.computed:
        return f"score more malicious rows: {NOT_COMPUTED}"
    if rule == "proven":
        return "train the detector further: no number of rows in reach proves a rate so near, at or below the minimum"
    return "train the detector further: the rate observed lies below the minimum, though not provably"


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(DetectionSettings)
    for i, target in enumerate(settings.targets if settings else ()):
        yield Asked(
            target.check,
            settings is not None and settings.required,
            "malicious rows",
            ("checks", "detection", "targets", i),
            by_check=False,
            remedy="give the detector's scores of malicious rows with --malicious",
        )


CHECK = Check(
    key="detection",
    asks="whether enough malicious rows are detected at each anchor",
    decides="It counts the malicious rows that reach the anchor's threshold, and holds exact bounds of their share "
    "against the policy's minimum. A row without a score counts as missed.",
    causes="a detector that catches too little, too few malicious rows to tell, or scores that fall with malice",
    helps=(
        "Look at the malicious rows that score lowest, and train on more like them; give more malicious rows where it "
        "is open. A lower min_tpr is a decision of those who bear the misses."
    ),
    evidence=Detection,
    measure=measure,
    judge=judge,
    asked=asked,
    families=("tpr",),
    about="malicious",
    reasons=PASSED | UNDECIDED | {"missed": "too few detected"},
    settings=DetectionSettings,
    unasked="null: malicious scores are shown and not judged",
)
