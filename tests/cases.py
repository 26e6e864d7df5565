"""Evidence from counts alone, as the tests of single checks need it: no sample is read and nothing is fitted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Literal

from samples import sample_of

from gate.calibration.fit import fit_ordered
from gate.checks import Parts
from gate.checks.check import AnchorFacts, CalibratorFacts, Case, Evidence
from gate.checks.fpr import AtAnchor, Targets
from gate.policy import Policy
from gate.rows.sample import Sample
from gate.sources import SampleFacts
from gate.statistics.tally import Tally

TODAY = date(2026, 6, 30)


def tally(k: int, n: int, worth: float | None = None, threshold: float | None = 0.5) -> Tally:
    """k of n rows; if `worth` is given, the rows are in groups that make them worth so many to either bound."""
    return Tally(threshold=threshold, flagged=k, rows=n, effective=None if worth is None else (worth, worth))


def at_anchors(counts: Mapping[str, Tally]) -> tuple[AtAnchor, ...]:
    return tuple(AtAnchor(fpr=Decimal(fpr), tally=found) for fpr, found in counts.items())


def targets(policy: Policy, found: Tally) -> Targets:
    """One count at every target."""
    return Targets(anchors=tuple(AtAnchor(fpr=target.fpr, tally=found) for target in policy.targets))


def evidence(
    policy: Policy,
    *,
    fit_n: int = 50_000,
    holdout_n: int | None = None,
    malicious_n: int | None = None,
    lowest_label: float = 1e-12,
    day: date = TODAY,
    kind: Literal["run", "check"] = "run",
    **parts: Any,
) -> Evidence:
    """Evidence with these parts; the number of held-out rows is that of the targets."""
    if holdout_n is None:
        holdout_n = parts["fpr"].anchors[0].tally.rows if "fpr" in parts else 10_000
    return Evidence(
        kind,
        day,
        calibrator_facts(policy, lowest_label),
        facts(fit_n),
        facts(holdout_n),
        None if malicious_n is None else facts(malicious_n),
        Parts(**parts),
    )


def facts(n: int) -> SampleFacts:
    return SampleFacts(sources=(), sha256="", n=n)


def calibrator_facts(policy: Policy, lowest_label: float = 1e-12) -> CalibratorFacts:
    return CalibratorFacts(
        sha256="",
        bytes=0,
        knots=100,
        plotting_position=policy.calibration.plotting_position,
        ties=policy.calibration.ties,
        lowest_label=lowest_label,
        anchors=tuple(
            AnchorFacts(fpr=anchor.fpr, score=anchor.score, threshold=0.5) for anchor in policy.anchors.anchors
        ),
    )


def case(policy: Policy, fit: Any, holdout: Any, malicious: Sample | None = None) -> Case:
    """Two benign samples, given as numbers or as samples, and the calibrator of the first."""
    fitted, held_out = (each if isinstance(each, Sample) else sample_of(each) for each in (fit, holdout))
    calibrator = fit_ordered(fitted.ordered, policy.calibration, policy.anchors)
    return Case(policy, calibrator, held_out, fitted, malicious)
