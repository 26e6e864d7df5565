"""The baseline: which release this one is compared with, and what changed since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from gate.checks.change import Change, compare
from gate.checks.check import Case, Check, Evidence, Finding, count
from gate.checks.detection import DetectionSettings
from gate.names import CheckName
from gate.policy import Policy
from gate.policy.changes import policy_changes
from gate.sources import PathText, Source
from gate.statistics.tally import Tally
from gate.stored import Outcome, Section
from gate.words import plural

if TYPE_CHECKING:
    from gate.rows.sample import Sample

NAME = CheckName("baseline")


@dataclass(frozen=True)
class Reference:
    """An earlier release by its record, with its scores of the new release's rows if these are given."""

    path: str
    release: str
    created: str
    outcome: Outcome
    verdict_sha256: str
    policy_sha256: str
    policy: Policy
    benign: Mapping[Decimal, Tally]
    malicious: Mapping[Decimal, Tally] | None
    holdout_sha256: str
    rows_sha256: str | None
    scores: Sample | None = None
    malicious_scores: Sample | None = None

    def with_scores(self, benign: Sample | None, malicious: Sample | None) -> Reference:
        """The earlier release with its scores of rows that the new release has scored too."""
        thresholds = {fpr: tally.threshold for fpr, tally in self.benign.items()}

        def counted(scores: Sample) -> Mapping[Decimal, Tally]:
            return dict(zip(thresholds, count(scores, [*thresholds.values()], self.policy.alpha()), strict=True))

        return replace(
            self,
            benign=self.benign if benign is None else counted(benign),
            malicious=self.malicious if malicious is None else counted(malicious),
            scores=benign,
            malicious_scores=malicious,
        )


class ReferenceFacts(Section):
    """The release that this one is held against; where a release is checked again, that release.

    `sources` and `malicious_sources` hold its scores of the same rows, where these were given.
    """

    path: PathText
    release: str
    created: str
    outcome: Outcome
    verdict_sha256: str
    policy_sha256: str
    holdout_sha256: str
    rows_sha256: str | None = None
    sources: tuple[Source, ...] = ()
    malicious_sources: tuple[Source, ...] = ()


class Comparison(Section):
    """What changed since another release; `reference` is null where this one is declared to be the first."""

    reference: ReferenceFacts | None
    policy_changes: tuple[str, ...] = ()
    anchors: tuple[Change, ...] = ()


def measure(case: Case) -> Comparison | None:
    """Compare every anchor of the contract with the reference; None if none was given."""
    old: Reference | None = case.reference
    if old is None:
        return Comparison(reference=None) if case.first_release else None
    rows = None if case.calibrated else case.holdout  # calibrated scores reach no raw threshold
    return compare_releases(old, case.policy, case.benign, rows)


def compare_releases(
    old: Reference, policy: Policy, benign: Mapping[Decimal, Tally], holdout: Sample | None
) -> Comparison:
    """Every anchor that both releases have on benign rows, and what changed in the policy."""
    return Comparison(
        reference=ReferenceFacts(
            path=old.path,
            release=old.release,
            created=old.created,
            outcome=old.outcome,
            verdict_sha256=old.verdict_sha256,
            policy_sha256=old.policy_sha256,
            holdout_sha256=old.holdout_sha256,
            rows_sha256=old.rows_sha256,
            sources=() if old.scores is None else old.scores.sources,
            malicious_sources=() if old.malicious_scores is None else old.malicious_scores.sources,
        ),
        policy_changes=policy_changes(old.policy, policy),
        anchors=tuple(compare(policy.anchors.anchors, old.benign, benign, policy.alpha(), old.scores, holdout)),
    )


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """A reference that did not pass is shown, but nothing is judged against it."""
    found, settings = evidence.of(Comparison), policy.settings(DetectionSettings)
    if found is None:
        return
    old = found.reference
    if old is None:
        message = "declared to be the first release: there is none to compare with"
        yield Finding(check=NAME, outcome="pass", required=False, reason="first-release", message=message)
        return
    passed, is_check = old.outcome == "pass", evidence.kind == "check"
    message = f"compared with {'its own release, ' if is_check else ''}{old.release} of {old.created[:10]}, which " + (
        "passed its own gate" if passed else f"did not pass its own gate ({old.outcome}) and so is no reference"
    )
    if found.policy_changes:
        weaker = sum(change.startswith("weaker") for change in found.policy_changes)
        changes = plural(len(found.policy_changes), "change")
        message += f"; {changes} in the policy since, {weaker or 'none'} of them weaker"
    limited = settings is not None and settings.required and settings.max_drop is not None
    yield Finding(
        check=NAME,
        outcome="pass" if passed else "inconclusive",
        required=limited and not is_check,
        reason="passed" if passed else "did-not-pass",
        message=message,
        remedy=None if passed else "name a release that passed",
    )


def warnings(policy: Policy, evidence: Evidence) -> Iterator[str]:
    """Comparisons that were not made, or that could be made better."""
    found, held_out = evidence.of(Comparison), evidence.holdout
    old = None if found is None else found.reference
    if found is None or old is None:
        return
    if held_out.sha256 == old.holdout_sha256:
        yield f"these are the very scores that {old.release} was judged on, so nothing new is learnt of them"
    elif held_out.rows_sha256 in {old.rows_sha256} - {None} and not any(change.flipped for change in found.anchors):
        yield (
            f"{old.release} was judged on the same benign rows (by their ids), which the test of change takes for "
            "different ones; --baseline-holdout compares them row by row"
        )
    if any(not change.is_exact for change in found.anchors):
        yield "rows come in groups, so no exact test of change is made; its intervals allow for them"


CHECK = Check(
    key="baseline",
    asks="which release this one is held against, and whether that one passed its own gate",
    decides="A release that did not pass is no reference. Its record is judged again before it is believed.",
    causes="a baseline that failed or was inconclusive, or none where the policy has a max_drop",
    helps="Name the last release that passed (--baseline DIR), or declare a first release (--baseline none).",
    evidence=Comparison,
    measure=measure,
    judge=judge,
    warnings=warnings,
    home=(("checks", "detection", "max_drop"), ("checks", "detection")),
    reasons={
        "passed": "passed its own gate",
        "did-not-pass": "did not pass its own gate",
        "first-release": "first release",
    },
    about="baseline",
    sentences={"did-not-pass": "the baseline did not pass its own gate"},
)
