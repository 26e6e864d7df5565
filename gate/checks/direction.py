"""Direction: whether scores rise with malice. A detector whose malicious rows are flagged less often than its benign
ones keeps every promise on false positives and detects nothing."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from gate.checks.check import Asked, Case, Check, Evidence, Finding
from gate.checks.detection import Detection
from gate.checks.fpr import Targets
from gate.checks.reuse import alpha_of, malicious_alpha_of
from gate.names import CheckName
from gate.policy import Flag, Frozen, Policy
from gate.stored import Count, Section
from gate.words import percent

NAME = CheckName("direction")


class DirectionSettings(Frozen):
    """Whether malicious rows (`--malicious`) are flagged at least as often as benign ones."""

    required: Flag = Field(default=True, description="false: shown, but never blocks a release")


class Direction(Section):
    """That both kinds of rows were counted, at so many anchors: the counts are those of `fpr` and of `detection`."""

    anchors: Count


def measure(case: Case) -> Direction | None:
    return None if case.malicious is None else Direction(anchors=len(case.anchors))


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Fail if the malicious rate lies below the benign rate at an anchor: their exact intervals do not meet.

    Each bound misses at most alpha / (2 m) of the time over m anchors, so that sound scores are called reversed at
    most alpha of the time.
    """
    settings, found = policy.settings(DirectionSettings), evidence.of(Direction)
    benign, malicious = evidence.of(Targets), evidence.of(Detection)
    if settings is None or found is None or benign is None or malicious is None:
        return
    m = max(len(malicious.anchors), 1)
    levels = float(malicious_alpha_of(policy, evidence)) / m, float(alpha_of(policy, evidence)) / m
    reversed_at = []
    for anchor in malicious.anchors:
        other = benign.at(anchor.fpr)
        if other is not None and anchor.tally.interval(levels[0])[1] < other.interval(levels[1])[0]:
            reversed_at.append((anchor.fpr, anchor.tally, other))
    if not reversed_at:
        message = "at no anchor are malicious rows provably flagged less often than benign ones"
        yield Finding(check=NAME, outcome="pass", required=settings.required, reason="rising", message=message)
        return
    fpr, flagged, other = max(reversed_at, key=lambda at: at[2].rate - at[1].rate)
    yield Finding(
        check=NAME,
        outcome="fail",
        required=settings.required,
        reason="reversed",
        message=(
            f"{flagged.flagged:,} of {flagged.rows:,} malicious rows are flagged where {other.flagged:,} of "
            f"{other.rows:,} benign ones are, at {percent(fpr)}: provably a lower rate, at "
            f"{len(reversed_at):,} of {len(malicious.anchors):,} anchors"
        ),
        remedy=(
            "give scores that rise with malice: the negative of these, or 1 less them; "
            "or look whether the benign label stands for malicious rows"
        ),
    )


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    """No question if there are no malicious rows; then the headline says that detection was not judged."""
    settings = policy.settings(DirectionSettings)
    if settings is not None and (evidence.kind == "check" or evidence.malicious is not None):
        yield Asked(NAME, settings.required, "malicious rows", ("checks", "direction"), by_check=False)


CHECK = Check(
    key="direction",
    asks="whether malicious rows are flagged at least as often as benign ones",
    decides="It fails where, at any anchor, the malicious rate is provably below the benign one.",
    causes="scores that fall with malice, or a benign label that stands for malicious rows",
    helps=(
        "Look at a few rows of each kind. Negate scores that fall with malice (100 - score, -score), or correct "
        "data.label and data.benign_label."
    ),
    evidence=Direction,
    measure=measure,
    judge=judge,
    asked=asked,
    reasons={"rising": "not reversed", "reversed": "malicious rows flagged less often"},
    sentences={"reversed": "malicious rows are flagged less often than benign ones"},
    settings=DirectionSettings,
    default=DirectionSettings(),
)
