"""Granularity: whether the detector's scores are fine enough for each target's rate to exist."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
from pydantic import Field

from gate.calibration.positions import fractional_rank, named
from gate.checks import readings
from gate.checks.check import Asked, Case, Check, Evidence, Finding
from gate.checks.readings import Sentences
from gate.names import CheckName
from gate.planning import band_of
from gate.policy import Flag, Frozen, Policy, Target
from gate.statistics.atoms import Attainability, attainability, rows_to_reach, rows_to_settle
from gate.statistics.clusters import effective_rows
from gate.stored import Count, ExactRate, Outcome, Section, Size
from gate.words import plural


class GranularitySettings(Frozen):
    """Whether the detector's scores are fine enough for each target's rate to exist."""

    required: Flag = Field(default=False, description="true: scores too coarse for a target block the release")


class Atom(Section):
    """What a threshold near one target can flag of the fit rows, as the calibrator sees their scores.

    below       as many as it may promise
    through     those of the next score too, which is more
    apart       as many as could be flagged if a float told all raw scores apart
    saturated   whether the next score is an end of the domain
    effective   the independent rows that fit rows in groups are worth here; null where every row is independent
    """

    fpr: ExactRate
    below: Count
    through: Count
    apart: Count
    saturated: bool = False
    effective: Size | None = None


class Resolution(Section):
    """How fine the fit scores are: so many distinct ones, the most rows that share one, those that share the highest,
    and the atom at each target."""

    distinct: Count
    largest_tie: Count
    top_tie: Count
    targets: tuple[Atom, ...]

    def at(self, fpr: Decimal) -> Atom | None:
        return next((atom for atom in self.targets if atom.fpr == fpr), None)


def measure(case: Case) -> Resolution | None:
    """Look at the fit scores on either side of what each target may flag."""
    from gate.calibration.fit import attainable

    fit = case.fit
    if fit is None:
        return None
    found = dict(zip((anchor.fpr for anchor in case.anchors), attainable(fit.ordered, case.calibrator), strict=True))
    rates = [target.fpr for target in case.policy.targets]
    worth: list[float] | list[None] = [None] * len(rates)
    if fit.has_groups:
        ranks = np.array([min(max(found[fpr].through, 1), len(fit)) for fpr in rates])
        groups = fit.by_group(fit.ordered.at_rank(ranks))
        alpha = float(case.policy.alpha())
        worth = [min(effective_rows(groups.sizes, groups.reached[:, i], alpha)) for i in range(len(rates))]
    survey = fit.ordered.survey
    return Resolution(
        distinct=survey.distinct,
        largest_tie=survey.largest_tie,
        top_tie=int(fit.ordered.at_or_above(fit.ordered.at_rank(1))),
        targets=tuple(
            Atom(
                fpr=fpr,
                below=found[fpr].below,
                through=found[fpr].through,
                apart=found[fpr].apart,
                saturated=found[fpr].saturated,
                effective=rows,
            )
            for fpr, rows in zip(rates, worth, strict=True)
        ),
    )


def attainability_of(policy: Policy, evidence: Evidence, target: Target) -> Attainability:
    """What tied fit scores leave of a target; `fine` where nothing was measured."""
    found = evidence.of(Resolution)
    atom = None if found is None else found.at(target.fpr)
    if atom is None:
        return "fine"
    band = band_of(target, policy.alpha())
    fpr, n = Fraction(target.fpr), evidence.fit.n
    return attainability(atom.below, atom.through, atom.apart, n, fpr, band, atom.effective)


def describe(policy: Policy, evidence: Evidence, target: Target) -> Sentences | None:
    """What the scores leave of a target in words, and what would help."""
    found = evidence.of(Resolution)
    atom = None if found is None else found.at(target.fpr)
    if atom is None:
        return None
    band, fpr, n = band_of(target, policy.alpha()), Fraction(target.fpr), evidence.fit.n
    position = named(policy.calibration.plotting_position)
    stands = attainability_of(policy, evidence, target)
    borderline = stands == "borderline"
    rank = partial(fractional_rank, position)
    return readings.granularity(
        stands,
        target.fpr,
        (atom.below, atom.through, atom.apart),
        n,
        above=Fraction(target.max_relative_error.above),
        domain=policy.calibration.domain,
        saturated=atom.saturated,
        reach=rows_to_reach(atom.through, n, fpr, rank, atom.effective) if borderline else None,
        settle=rows_to_settle(atom.below, atom.through, n, fpr, band, atom.effective) if borderline else None,
    )


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Fail where no threshold has a rate inside the tolerance, beyond what chance makes of the fit rows."""
    found, settings = evidence.of(Resolution), policy.settings(GranularitySettings)
    if found is None or settings is None:
        return
    outcomes: dict[Attainability, Outcome] = {"fine": "pass", "borderline": "inconclusive"}
    fineness = f"{evidence.fit.n:,} fit rows have {plural(found.distinct, 'distinct score')}"
    fineness += f", the commonest of them in {plural(found.largest_tie, 'row')}"
    for target in policy.targets:
        said = describe(policy, evidence, target)
        stands = attainability_of(policy, evidence, target)
        if said is not None:
            yield Finding(
                check=CheckName("granularity", target.fpr),
                outcome=outcomes.get(stands, "fail"),
                required=settings.required,
                reason="granularity" if stands == "unattainable" else stands,
                message=f"{said.message}; {fineness}",
                remedy=said.remedy,
            )


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(GranularitySettings)
    if settings is not None:
        for target in policy.targets:
            name = CheckName("granularity", target.fpr)
            yield Asked(name, settings.required, "fit rows", ("checks", "granularity"), by_check=False)


def contradictions(policy: Policy, evidence: Evidence) -> Iterator[str]:
    found, n = evidence.of(Resolution), evidence.fit.n
    if found is None:
        return
    if found.distinct != evidence.calibrator.distinct:
        yield "granularity.distinct is not that of the calibrator"
    if not (1 <= found.distinct <= n and 1 <= found.top_tie <= found.largest_tie <= n - found.distinct + 1):
        yield "granularity.distinct and largest_tie are no counts of one sample"
    if [atom.fpr for atom in found.targets] != [target.fpr for target in policy.targets]:
        yield "granularity.targets are others than the policy's"
    if not all(atom.below <= atom.apart <= atom.through <= n for atom in found.targets):
        yield "granularity.targets are no counts of the fit sample"


CHECK = Check(
    key="granularity",
    asks="whether the detector's scores are fine enough for each target's rate to exist",
    decides=(
        "With tied scores a threshold flags all rows of a score or none. It fails where what the calibrator may flag "
        "is provably too few for the tolerance, and the next score up provably too many for the target."
    ),
    causes="a detector with few distinct scores, rounded scores, or probabilities so near 0 or 1 that floats merge",
    helps=(
        "Export scores unrounded, or logits in place of probabilities, with calibration.domain set to their range; "
        "else drop the target or widen its tolerance below."
    ),
    evidence=Resolution,
    measure=measure,
    judge=judge,
    asked=asked,
    contradictions=contradictions,
    reasons={
        "fine": "fine enough",
        "granularity": "tied scores allow no such rate",
        "resolution": "floats merge the scores",
        "borderline": "tied scores may allow no such rate",
    },
    settings=GranularitySettings,
    default=GranularitySettings(),
)
