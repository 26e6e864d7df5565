"""Floor: whether the fit sample is large enough to see each target's rate."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from pydantic import Field

from gate.checks.check import Asked, Case, Check, Evidence, Finding
from gate.checks.fpr import judge_targets
from gate.checks.granularity import TOP_TIED, Resolution, attainability_of, describe
from gate.checks.readings import Sentences
from gate.names import CheckName
from gate.policy import Flag, Frozen, Policy
from gate.stored import Rate, Section
from gate.words import listed, percent

NAME = CheckName("floor")


class FloorSettings(Frozen):
    """Whether the fit sample is large enough to see each target's rate."""

    required: Flag = Field(default=False, description="true: a target beyond the fit sample blocks the release")


class Floor(Section):
    """The rarest rate that the fit sample shows."""

    lowest_label: Rate = Field(gt=0)


def measure(case: Case) -> Floor | None:
    return None if case.fit is None else Floor(lowest_label=case.calibrator.facts.lowest_label)


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Inconclusive if the threshold of a target is extrapolated beyond the fit sample."""
    settings = policy.settings(FloorSettings)
    if evidence.of(Floor) is None or settings is None:
        return
    below = [judged for judged in judge_targets(policy, evidence) if judged.extrapolated]
    if not below:
        message = "the fit sample shows every target's rate"
        yield Finding(check=NAME, outcome="pass", required=settings.required, reason="seen", message=message)
        return
    rarest = min(below, key=lambda judged: judged.target.fpr)
    found = evidence.of(Resolution)
    tied = 0 if found is None else found.top_tie
    coarse = attainability_of(policy, evidence, rarest.target) != "fine"
    advised = [(judged.advice and judged.advice.again) or judged.support for judged in below]
    said = describe_support(
        rarest.target.fpr,
        evidence.fit.n,
        tied,
        evidence.calibrator.lowest_label,
        max(advised),  # the number that the target's finding gives, if it has one
        describe(policy, evidence, rarest.target) if coarse else None,
    )
    others = [str(judged.target.check) for judged in below if judged is not rarest]
    yield Finding(
        check=NAME,
        outcome="inconclusive",
        required=settings.required,
        reason="extrapolated",
        message=f"{said.message}{f'; so is that of {listed(others)}' if others else ''}",
        remedy=said.remedy,
    )


def describe_support(
    fpr: Decimal, n: int, tied: int, lowest_label: float, support: int, of_tie: Sentences | None
) -> Sentences:
    """The sentences about a target whose rate the fit sample does not show.

    `tied` rows share the highest fit score; `of_tie` is what granularity says of the target, if not fine.
    """
    if tied > 1 and (of_tie is not None or n >= support):
        share = f"{tied:,} of {n:,} fit rows share the highest score"
        message = (
            f"{share}, so that they show no rate below {percent(lowest_label, 3)}: at {percent(fpr, 3)} the threshold"
        )
        return Sentences(f"{message} is extrapolated", TOP_TIED if of_tie is None else of_tie.remedy)
    message = f"{n:,} fit rows are too few to show {percent(fpr, 3)}: the threshold is extrapolated"
    return Sentences(message, f"fit on at least {max(support, n + 1):,} benign rows")


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(FloorSettings)
    if settings is not None:
        yield Asked(NAME, settings.required, "fit rows", ("checks", "floor"), by_check=False)


CHECK = Check(
    key="floor",
    asks="whether the fit sample is large enough to see each target's rate",
    decides=(
        "The highest fit score stands for a rate of about 0.69 / n. Below it the threshold is extrapolated, and such a "
        "target passes only if held-out rows prove it."
    ),
    causes="too few fit rows for a rare rate, or highest scores that many rows share",
    helps=(
        "Fit on more benign rows: about 0.69 / rate of them see a rate. Or ask for no rarer rate than these rows see."
    ),
    evidence=Floor,
    measure=measure,
    judge=judge,
    asked=asked,
    reasons={"seen": "all within the fit sample", "extrapolated": "beyond the fit sample, not proven"},
    sentences={"extrapolated": "the fit sample does not reach every target"},
    settings=FloorSettings,
    default=FloorSettings(),
)
