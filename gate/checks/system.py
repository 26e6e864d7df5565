"""The system: what all detectors of a release flag together, as a customer feels it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, computed_field, model_validator

from gate.checks.check import (
    MISCOUNTED,
    MOST_UNSCORED,
    NOT_MEASURED,
    PASSED,
    UNDECIDED,
    Asked,
    CheckOf,
    Finding,
    inside,
)
from gate.checks.rates import NOT_COMPUTED, PROMISE, describe_count, grade_count, judged_rate
from gate.planning import Advice, Budget, advise_at_rate
from gate.policy import Policy, SystemTarget
from gate.statistics.binomial import CriticalCounts
from gate.statistics.sequential import one_sided
from gate.statistics.tally import Tally, tally
from gate.stored import Count, ExactRate, Grade, Outcome, Section
from gate.words import listed, percent, plural

if TYPE_CHECKING:
    from gate.rows.together import Said

NOT_SCORED = 2  # what `Said` has where a detector has not scored a row
ROWS_AT_ONCE = 1 << 16  # lines of the table of pairs


# --- the evidence -------------------------------------------------------------------------------------------


class Member(Section):
    """One detector among all: its raw threshold, the rows that it flags, that it alone flags, that it did not score."""

    name: str
    threshold: float | None
    flagged: Count
    alone: Count
    unscored: Count


class Together(Section):
    """The rows that any detector flags from one calibrated score on, which is the threshold of the tally.

    unscored    rows that at least one detector has not scored
    undecided   those of them that no other one flags: the detector might have
    both        for each detector but the first, the rows that it and each one before it flag
    """

    score: ExactRate
    tally: Tally
    unscored: Count
    undecided: Count
    detectors: tuple[Member, ...] = Field(min_length=1)
    both: tuple[tuple[Count, ...], ...]

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if [len(row) for row in self.both] != [*range(1, len(self.detectors))]:
            raise ValueError("must count every pair of detectors")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def largest(self) -> float:
        """The rate of the detector that flags most: all of them together flag at least so much."""
        return max(member.flagged for member in self.detectors) / self.tally.rows

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sum(self) -> float:
        """The rates of all detectors, added: together they flag at most so much."""
        return math.fsum(member.flagged for member in self.detectors) / self.tally.rows

    @computed_field  # type: ignore[prop-decorator]
    @property
    def independent(self) -> float:
        """What they would flag together if detectors were independent of one another."""
        return 1.0 - math.prod(1.0 - member.flagged / self.tally.rows for member in self.detectors)


class System(Section):
    """What all detectors flag together.

    apart       rows that are benign for some detectors and not for all: they are not counted
    malicious   the same of the rows that are malicious for any detector, where there are such rows
    use         the use of the held-out rows that this is, where a ledger counts; `malicious_use` of the malicious ones
    """

    groups: Count | None = None
    apart: Count = 0
    benign: tuple[Together, ...]
    malicious: tuple[Together, ...] = ()
    use: Count | None = None
    malicious_use: Count | None = None

    def at(self, score: Decimal) -> Together | None:
        return next((one for one in self.benign if one.score == score), None)


@dataclass(frozen=True)
class Flags:
    """What each detector says of the rows of one kind, at each score of the system, and from which raw score on."""

    thresholds: Mapping[str, Sequence[float | None]]
    said: Sequence[Said]
    apart: int = 0


def asked_scores(policy: Policy) -> tuple[Decimal, ...]:
    """The scores at which the policy judges the system; if there are none, the scores of its targets are shown."""
    scores = {point.fpr: point.score for point in policy.contract}
    return tuple(target.score for target in policy.system) or tuple(scores[target.fpr] for target in policy.targets)


@dataclass(frozen=True)
class SystemCase:
    """What all detectors flag of the rows that each has scored, and which use of these rows it is."""

    policy: Policy
    benign: Flags
    malicious: Flags | None = None
    use: int | None = None
    malicious_use: int | None = None


@dataclass(frozen=True, eq=False)
class SystemEvidence:
    """What was counted of these detectors together; None if their rows cannot be joined."""

    detectors: tuple[str, ...]
    counted: System | None


def measure(case: SystemCase) -> System:
    """Count the rows that any detector flags, at each score."""
    policy, benign, malicious = case.policy, case.benign, case.malicious
    scores, groups = asked_scores(policy), benign.said[0].groups
    alpha, malicious_alpha = policy.alpha(case.use or 1), policy.alpha(case.malicious_use or 1)
    return System(
        groups=None if groups is None else len(groups[0]),
        apart=benign.apart,
        benign=tuple(count(benign, score, i, alpha) for i, score in enumerate(scores)),
        malicious=()
        if malicious is None
        else tuple(count(malicious, score, i, malicious_alpha) for i, score in enumerate(scores)),
        use=case.use,
        malicious_use=case.malicious_use,
    )


def count(flags: Flags, score: Decimal, place: int, alpha: Fraction) -> Together:
    """The rows that any detector flags at one score, each row once."""
    said, names = flags.said[place], [*flags.thresholds]
    hits, missed, rows = said.states == 1, said.states == NOT_SCORED, said.rows
    times, lacking = hits.sum(axis=1), missed.any(axis=1)
    flagged, unscored = rows @ hits, rows @ missed
    alone = (rows * (times == 1)) @ hits
    both = np.zeros((len(names), len(names)))  # whole numbers below 2^53
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = hits[start : start + ROWS_AT_ONCE].astype(np.float64)
        both += (part * rows[start : start + ROWS_AT_ONCE, None]).T @ part
    members = [
        Member(
            name=name,
            threshold=flags.thresholds[name][place],
            flagged=int(flagged[i]),
            alone=int(alone[i]),
            unscored=int(unscored[i]),
        )
        for i, name in enumerate(names)
    ]
    return Together(
        score=score,
        tally=tally(float(score), int(rows[times > 0].sum()), int(rows.sum()), said.groups, float(alpha)),
        unscored=int(rows[lacking].sum()),
        undecided=int(rows[lacking & (times == 0)].sum()),
        detectors=tuple(members),
        both=tuple(tuple(int(n) for n in both[i, :i]) for i in range(1, len(names))),
    )


# --- the judgement ------------------------------------------------------------------------------------------


def judge(policy: Policy, evidence: SystemEvidence) -> Iterator[Finding]:
    """Grade each limit as a target is graded, with only an upper edge."""
    found, budget = evidence.counted, Budget()
    for target in policy.system:
        together = None if found is None else found.at(target.score)
        if found is None or together is None:
            continue
        band = one_sided(Fraction(0), Fraction(target.max_fpr), policy.alpha(found.use or 1), policy.interval)
        counted, critical = together.tally, together.tally.critical(band)
        outcome, reason, grade = _decide(policy.rule, target, together, critical, found.apart)
        too_few = counted.independent_rows < target.min_n
        accepts = None if too_few else critical.passing(policy.rule, counted.rows)
        advice = None
        if outcome == "inconclusive" and reason not in ("unscored", "apart"):
            k, n, worth = counted.flagged, counted.rows, counted.independent_rows / counted.rows
            advice = advise_at_rate(policy.rule, band, k, n, budget, min_n=target.min_n, worth=worth)
        yield Finding(
            check=target.check,
            outcome=outcome,
            grade=grade,
            required=target.required,
            reason=reason,
            message=_message(together, target, critical, too_few, found.apart),
            remedy=_remedy(together, reason, advice),
            rate=judged_rate(None, target.score, counted, band, min_n=target.min_n, accepts=accepts),
        )


def _decide(
    rule: str, target: SystemTarget, together: Together, critical: CriticalCounts, apart: int
) -> tuple[Outcome, str, Grade]:
    """Pass only if that holds with every unscored row flagged; a proven excess is one anyway.

    Rows that are benign for some detectors only are no pass either, beyond a few: detectors must agree on them.
    """
    found = together.tally
    grade = grade_count(found.flagged, critical)
    if grade == "refuted":
        return "fail", "too-many", grade
    worst = found.flagged + together.undecided
    if grade == "proven" and not inside(critical.proven, worst):
        grade = "open"
    if together.unscored > MOST_UNSCORED * found.rows:
        return "inconclusive", "unscored", grade
    if apart > MOST_UNSCORED * (found.rows + apart):
        return "inconclusive", "apart", grade
    if found.independent_rows < target.min_n:
        return "inconclusive", "min-n", grade
    accepts = critical.passing(rule, found.rows)
    if inside(accepts, worst):
        return "pass", "proven" if grade == "proven" else rule, grade
    if inside(accepts, found.flagged):
        return "inconclusive", "unscored", grade
    return "inconclusive", "open" if rule == "proven" else "outside", grade


def asked(policy: Policy, evidence: SystemEvidence) -> Iterator[Asked]:
    needs = "the same rows scored by every detector: one file with a column for each, or files joined by data.id"
    for i, target in enumerate(policy.system):
        yield Asked(target.check, target.required, needs, ("system", i))


# --- sentences ----------------------------------------------------------------------------------------------


def _message(together: Together, target: SystemTarget, critical: CriticalCounts, too_few: bool, apart: int) -> str:
    found = together.tally
    said = [f"{describe_count(found)}, flagged by any of {plural(len(together.detectors), 'detector')}"]
    if together.unscored:
        share = percent(together.unscored / found.rows, 2)
        lacking = sorted(together.detectors, key=lambda member: -member.unscored)[:3]
        named = ", ".join(f"{member.name} {member.unscored:,}" for member in lacking if member.unscored)
        said.append(f"{plural(together.unscored, 'row')} ({share}) not scored by every detector ({named})")
    if apart:
        share = percent(apart / (found.rows + apart), 2)
        said.append(f"{plural(apart, 'row')} ({share}) benign for some detectors only and not counted")
    most = f"the limit of {percent(target.max_fpr)}"
    proven = f"{critical.proven[1]:,} or fewer prove {most}" if critical.proven else f"no count proves {most}"
    if too_few:
        independent = "independent " if found.is_clustered else ""
        proven = f"no count passes on fewer than {target.min_n:,} {independent}rows"
    many = critical.refuted_at_or_above
    said.append(f"{proven}, {'no count refutes' if many is None else f'{many:,} or more refute'} it")
    return "; ".join(said)


def _remedy(together: Together, reason: str, advice: Advice | None) -> str | None:
    found = together.tally
    if reason == "unscored":
        return "score these rows with every detector that lacks them"
    if reason == "apart":
        return (
            "label these rows alike for all detectors (data.label), or hold out rows that are benign for each of them"
        )
    if reason == "too-many":
        worst = max(together.detectors, key=lambda member: member.alone)
        return (
            f"raise the score from which detectors act, or act on fewer of them: {worst.name} alone flags "
            f"{plural(worst.alone, 'row')} that no other one does"
        )
    if reason not in ("open", "outside", "min-n"):
        return None
    if advice is not None and advice.more is not None:
        more = f"hold out {advice.more - found.rows:,} more benign rows ({advice.more:,} in all)"
        return f"{more}: at the rate observed, a release {PROMISE}"
    if advice is not None and not advice.computed:
        return f"hold out more benign rows: {NOT_COMPUTED}"
    return "let the detectors act from a higher score, or raise max_fpr: the rate observed is too near the limit"


def describe_pass(required: int, limits: str, waived: int, others: list[str]) -> str:
    """Why all pass: how many required detectors, the limits that hold, the waivers, the others that did not pass."""
    parts = [
        f"{plural(required, 'required detector')} {'passes' if required == 1 else 'pass'}",
        limits,
        f"{plural(waived, 'finding')} waived" if waived else "",
        f"{listed(others)}, not required, did not pass" if others else "",
    ]
    return "; ".join(part for part in parts if part)


CHECK = CheckOf(
    key="system",
    asks="whether all detectors together flag few enough benign rows",
    decides=(
        "It counts the rows, benign for every detector, that any of them flags from a calibrated score on, and holds "
        "exact bounds of their share against max_fpr. Rows that a detector has not scored are counted: a pass must "
        "hold even if each of them were flagged, and beyond 0.1 % of the rows the system is not judged; nor is it "
        "if as many are benign for some detectors and not for all."
    ),
    causes="detectors that flag different benign rows, so that their rates add up; one detector that flags too much; "
    "too few held-out rows; time-outs",
    helps=(
        "Look at what each detector adds (the report has it); let them act from a higher score, or act on fewer of "
        "them. Hold out more benign rows where it is open, and score every row with every detector."
    ),
    evidence=System,
    measure=measure,
    judge=judge,
    asked=asked,
    home=(("system",),),
    reasons={
        **PASSED,
        "too-many": MISCOUNTED["too-many"],
        "min-n": MISCOUNTED["min-n"],
        **UNDECIDED,
        "unscored": "rows that a detector has not scored",
        "apart": "rows that are benign for some detectors only",
    },
    sentences={
        "too-many": "together the detectors flag too many benign rows",
        "min-n": "too few held-out benign rows for what they flag together",
        "unscored": "too many rows are not scored by every detector",
        "apart": "too many rows are benign for some detectors only",
        **dict.fromkeys(UNDECIDED, "the held-out benign rows neither prove nor disprove what they flag together"),
        NOT_MEASURED: "what they flag together could not be measured",
    },
)
