"""Drop: whether detection has fallen below the baseline's by more than the policy's margin."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction

from gate.checks.baseline import Comparison, Reference
from gate.checks.change import Change, compare
from gate.checks.check import NOT_MEASURED, PASSED, UNDECIDED, Asked, Case, Check, Evidence, Finding
from gate.checks.detection import DetectionSettings, DetectionTarget, decide
from gate.checks.reuse import malicious_alpha_of
from gate.policy import Policy
from gate.stored import Grade, Outcome, Section
from gate.words import plural, signed

FAMILY = "tpr-drop"


class Drops(Section):
    """The malicious rows at every anchor that both releases have."""

    anchors: tuple[Change, ...]


def measure(case: Case) -> Drops | None:
    """Compare the malicious rows at every anchor; None if either release has none."""
    old: Reference | None = case.reference
    if old is None or old.malicious is None or case.malicious is None:
        return None
    alpha, scores = case.malicious_alpha, (old.malicious_scores, None if case.calibrated else case.malicious)
    return Drops(anchors=tuple(compare(case.anchors, old.malicious, case.detected, alpha, *scores)))


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Test non-inferiority: compare the whole interval of the difference with the margin."""
    settings, found, comparison = policy.settings(DetectionSettings), evidence.of(Drops), evidence.of(Comparison)
    old = None if comparison is None else comparison.reference
    if settings is None or settings.max_drop is None or old is None or old.outcome != "pass":
        return
    if evidence.kind == "check" or evidence.malicious is None:
        return
    changes = {change.fpr: change for change in found.anchors} if found is not None else {}
    for target in settings.targets:
        if (change := changes.get(target.fpr)) is not None:
            alpha = float(malicious_alpha_of(policy, evidence))
            yield _judge_one(policy.rule, settings, target, change, old.release, alpha)


def _judge_one(
    rule: str, settings: DetectionSettings, target: DetectionTarget, change: Change, release: str, alpha: float
) -> Finding:
    margin = Fraction(settings.max_drop or 0)
    edge, (low, high) = -float(margin), change.interval(alpha)
    grade: Grade = "proven" if low >= edge else "refuted" if high < edge else "open"
    accepted = rule == "not-refuted" or (rule == "observed" and change.difference >= -margin)
    outcome, reason = decide(rule, grade, accepted)
    if outcome == "pass" and change.lacks_too_many:
        outcome, reason = "inconclusive", "unscored"
    return Finding(
        check=target.drop_check,
        outcome=outcome,
        grade=grade,
        required=settings.required,
        reason="dropped" if reason == "missed" else reason,
        message=_message(change, (low, high), edge, release),
        remedy=_remedy(outcome, reason, change),
    )


def _message(change: Change, interval: tuple[float, float], edge: float, release: str) -> str:
    new, old, (low, high) = change.new, change.old, interval
    same = "on the same rows" if change.flipped is not None else "taken as different rows"
    counted = f"{new.flagged:,} of {plural(new.rows, 'malicious row')} detected, {old.flagged:,} of {old.rows:,}"
    least, most = _points_beside(low, edge, math.floor), _points_beside(high, edge, math.ceil)
    if change.flipped is not None and change.flipped.lacking:
        same += f", without {plural(change.flipped.lacking, 'row')} that only one of them has scored"
    return (
        f"{counted} by {release}, {same}; a change of {_points_beside(float(change.difference), edge, round)} points, "
        f"between {least} and {most}, where {-edge * 100:.10g} may be lost"
    )


def _remedy(outcome: Outcome, reason: str, change: Change) -> str | None:
    if outcome == "pass":
        return None
    if reason == "unscored":
        return "score all malicious rows by both releases: those left out may be the ones that are no longer detected"
    if outcome == "fail":
        return "find out which malicious rows are no longer detected, and train the detector on rows like them"
    if change.flipped is None:
        return "compare row by row with --baseline-malicious, or score more malicious rows"
    return "score more malicious rows by both releases"


def _points_beside(share: float, edge: float, rounded: Callable[[float], float]) -> str:
    """A difference in percentage points, rounded so that it stays on its side of the edge."""
    shown = share * 100
    for digits in range(2, 15):
        near = rounded(share * 100 * 10**digits) / 10**digits
        if (near < edge * 100) == (share < edge) and (near > edge * 100) == (share > edge):
            shown = near
            break
    return signed(Decimal(f"{shown + 0.0:.10g}"))


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    """No question to a first release, and none if the baseline did not pass, which has a finding of its own."""
    settings, comparison = policy.settings(DetectionSettings), evidence.of(Comparison)
    if settings is None or settings.max_drop is None:
        return
    is_check = evidence.kind == "check"
    needs, lacks = "another release" if is_check else "a baseline", None
    remedy = "name the release that went before with --baseline DIR, or say --baseline none where there is none"
    if not is_check and comparison is not None:
        old = comparison.reference
        if old is None or old.outcome != "pass" or evidence.malicious is None:
            return
        needs, lacks = "the baseline's malicious rows", f"{old.release} recorded no malicious rows"
        remedy = "give its scores of the malicious rows with --baseline-malicious"
    place = ("checks", "detection", "max_drop")
    for target in settings.targets:
        yield Asked(target.drop_check, settings.required, needs, place, by_check=False, lacks=lacks, remedy=remedy)


CHECK = Check(
    key="drop",
    asks="whether detection has fallen below the baseline's by more than the policy's margin",
    decides="It bounds the difference of the two shares, on the same rows where both releases scored them, and holds "
    "the whole interval against max_drop.",
    causes="a retraining that lost some attacks, or too few malicious rows to tell",
    helps=(
        "Look at the malicious rows that only the baseline flagged (`gate compare` counts them); give more malicious "
        "rows where it is open."
    ),
    evidence=Drops,
    measure=measure,
    judge=judge,
    asked=asked,
    families=(FAMILY,),
    about="malicious",
    home=(("checks", "detection", "max_drop"), ("checks", "detection")),
    reasons=PASSED
    | UNDECIDED
    | {"dropped": "detection fell", "unscored": "rows not scored", NOT_MEASURED: "not measured"},
)
