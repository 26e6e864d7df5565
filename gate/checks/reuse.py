"""Re-use: how often rows like these have judged a release before. Each further use makes a false pass likelier."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple, Self, TypedDict

from pydantic import model_validator

from gate.checks.check import Asked, Case, Check, Evidence, Finding
from gate.names import CheckName
from gate.policy import Policy
from gate.sources import PathText
from gate.stored import Ordinal, Outcome, Rate, Section
from gate.words import listed, rounded_percent

NAME = CheckName("reuse")
FURTHER = 0.05  # of the smaller set of rows: sharing this much is a further use


class Use(Section):
    """How often rows like these have judged releases, this time included, and which.

    shared   of each earlier one, the share of the smaller set of rows that is in both; null where it cannot be told
    """

    number: Ordinal
    earlier: tuple[str, ...] = ()
    shared: tuple[Rate | None, ...] = ()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.number != len(self.earlier) + 1 or len(self.shared) != len(self.earlier):
            raise ValueError("must count each earlier use once, with what it shares")
        if any(share is not None and share < FURTHER for share in self.shared):
            raise ValueError(f"must share {FURTHER} or more with each earlier use")
        return self


class Uses(Section):
    """What the ledger counts of the held-out rows, and of the malicious ones where there are any."""

    ledger: PathText
    holdout: Use
    malicious: Use | None = None


def measure(case: Case) -> Uses | None:
    """Take what the ledger has counted already; None if no ledger is kept."""
    found: Uses | None = case.uses
    return found


def alpha_of(policy: Policy, evidence: Evidence) -> Fraction:
    """How often an interval on these held-out rows may miss."""
    found = evidence.of(Uses)
    return policy.alpha(1 if found is None else found.holdout.number)


def malicious_alpha_of(policy: Policy, evidence: Evidence) -> Fraction:
    """How often an interval on these malicious rows may miss."""
    found = evidence.of(Uses)
    return policy.alpha(1 if found is None or found.malicious is None else found.malicious.number)


class Confidences(TypedDict):
    """The alphas of the intervals on held-out rows, and on malicious rows if there are any, for a record."""

    confidence: float
    malicious_confidence: float | None


def confidences(policy: Policy, evidence: Evidence) -> Confidences:
    """The policy's alpha, less what earlier uses of the rows have spent."""
    malicious = None if evidence.malicious is None else float(1 - malicious_alpha_of(policy, evidence))
    return Confidences(confidence=float(1 - alpha_of(policy, evidence)), malicious_confidence=malicious)


class Alphas(NamedTuple):
    """How often an interval may miss, on benign and on malicious rows."""

    benign: float
    malicious: float


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Stop rows that have judged too often from deciding; if the policy sets no limit, only report them."""
    found = evidence.of(Uses)
    if found is None:
        return
    uses = {"held-out": found.holdout, "malicious": found.malicious}
    counted = {name: use for name, use in uses.items() if use is not None}
    message = "; ".join(_describe(name, use) for name, use in counted.items())
    most = max(use.number for use in counted.values())
    limit = None if policy.reuse is None else policy.reuse.max_uses
    exhausted = [name for name, use in counted.items() if limit is not None and use.number > limit]
    reused = any(use.earlier for use in counted.values())
    if policy.reuse is not None:
        message += f"; the intervals of this use miss at most {float(policy.alpha(most)):.2g} of the time"
    elif reused:
        message += "; each further use makes a false pass likelier"
    outcome: Outcome = "inconclusive" if exhausted else "pass"
    yield Finding(
        check=NAME,
        outcome=outcome,
        required=policy.reuse is not None,
        reason="exhausted" if exhausted else "reused" if reused else "fresh",
        message=message,
        remedy=_REMEDIES[exhausted[0]] if exhausted else None,
    )


_REMEDIES = {
    "held-out": "hold out benign rows that have judged no release yet",
    "malicious": "score malicious rows that have judged no release yet",
}


def _describe(name: str, use: Use) -> str:
    said = f"use {use.number} of these {name} rows"
    if not use.earlier:
        return said
    before = [_earlier(*entry) for entry in zip(use.earlier, use.shared, strict=True)]
    return f"{said}, after {listed(before[::-1])}"


def _earlier(release: str, share: float | None) -> str:
    """An earlier judgement, and the share of the smaller set of rows in common if that is not all."""
    if share is None:
        return f"{release} (which shares an unknown part of them)"
    return release if share == 1 else f"{release} (which shares about {rounded_percent(share)} of the smaller set)"


def warnings(policy: Policy, evidence: Evidence) -> Iterator[str]:
    """What the ledger cannot see, and what the policy does not pay for; nothing if no ledger is kept."""
    found = evidence.of(Uses)
    if found is None:
        if policy.interval == "sequential" and evidence.kind == "check":
            yield "without a ledger nothing tells whether rows were added to those of the last look; give --ledger FILE"
        return
    if evidence.holdout.rows_sha256 is None:
        yield (
            "the held-out rows have no ids (data.id), so the ledger compares scores: those of another release hide a "
            "further use, and scores that are alike by chance count as one"
        )
    if found.holdout.earlier and policy.reuse is None:
        often = _ordinal(found.holdout.number)
        yield f"the held-out rows judge for the {often} time, and the policy has no `reuse:` to pay for it"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    if policy.reuse is not None:
        yield Asked(NAME, True, "a ledger", ("reuse",))


CHECK = Check(
    key="reuse",
    asks="how often rows like these have judged a release before",
    decides=(
        "The ledger keeps a small sketch of every set of rows that has judged. A set that shares 5 % or more of the "
        "smaller one is a further use, judged at a smaller error; after max_uses the rows no longer decide."
    ),
    causes="the same held-out rows judging release after release",
    helps="Hold out rows that have judged no release yet, or raise reuse.max_uses and accept wider intervals.",
    evidence=Uses,
    measure=measure,
    judge=judge,
    asked=asked,
    warnings=warnings,
    home=(("reuse",),),
    reasons={"fresh": "first use", "reused": "used before", "exhausted": "used too often"},
    sentences={"exhausted": "rows have judged too often"},
)
