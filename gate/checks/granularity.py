"""Granularity: whether the detector's scores are fine enough for each target's rate to exist."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

import numpy as np
from pydantic import Field

from gate.calibration.positions import fractional_rank, named
from gate.checks.check import Asked, Case, Check, Evidence, Finding
from gate.errors import plural
from gate.names import CheckName
from gate.planning import band_of
from gate.policy import Flag, Frozen, Policy, Target
from gate.statistics.atoms import is_unattainable
from gate.stored import Count, ExactRate, Section


class GranularitySettings(Frozen):
    """Whether the detector's scores are fine enough for each target's rate to exist."""

    required: Flag = Field(default=False, description="true: scores too coarse for a target block the release")


class Atom(Section):
    """What a threshold near one target can flag of the fit rows: `below`, which the calibrator may promise, or
    `through` all rows that share the next score, which is more."""

    fpr: ExactRate
    below: Count
    through: Count


class Resolution(Section):
    """How fine the fit scores are: so many distinct ones, the most rows that share one, and the atom at each target."""

    distinct: Count
    largest_tie: Count
    targets: tuple[Atom, ...]

    def at(self, fpr: Decimal) -> Atom | None:
        return next((atom for atom in self.targets if atom.fpr == fpr), None)


def measure(case: Case) -> Resolution | None:
    """Look at the fit scores on either side of what each target may flag."""
    if case.fit is None:
        return None
    ordered, position = case.fit.ordered, named(case.policy.calibration.plotting_position)
    atoms = []
    for target in case.policy.targets:
        allowed = math.floor(fractional_rank(position, Fraction(target.fpr), ordered.n))
        score = ordered.at_rank(min(max(allowed + 1, 1), ordered.n))
        below, through = ordered.at_or_above(np.array([np.nextafter(score, np.inf), score]))
        atoms.append(Atom(fpr=target.fpr, below=int(below), through=int(through)))
    survey = ordered.survey
    return Resolution(distinct=survey.distinct, largest_tie=survey.largest_tie, targets=tuple(atoms))


def unattainable_atom(policy: Policy, evidence: Evidence, target: Target) -> Atom | None:
    """The tied scores that leave a target no rate inside its tolerance; None where some rate may be."""
    found = evidence.of(Resolution)
    atom = None if found is None else found.at(target.fpr)
    if atom is None:
        return None
    band = band_of(target, policy.alpha())
    stuck = is_unattainable(atom.below, atom.through, evidence.fit.n, Fraction(target.fpr), band)
    return atom if stuck else None


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Fail where no threshold has a rate inside the tolerance, beyond what chance makes of the fit rows."""
    found, settings = evidence.of(Resolution), policy.settings(GranularitySettings)
    if found is None or settings is None:
        return
    n = evidence.fit.n
    message = f"{n:,} fit rows have {plural(found.distinct, 'distinct score')}"
    message += f", the commonest of them in {plural(found.largest_tie, 'row')}"
    for target in policy.targets:
        atom = found.at(target.fpr)
        coarse = unattainable_atom(policy, evidence, target) is not None
        said = message
        if atom is not None:
            said += f"; a threshold here flags {_share(atom.below, n)} or {_share(atom.through, n)} of them"
        yield Finding(
            check=CheckName("granularity", target.fpr),
            outcome="fail" if coarse else "pass",
            required=settings.required,
            reason="granularity" if coarse else "fine",
            message=f"{said}, neither inside the tolerance" if coarse else said,
            remedy=FINER_SCORES if coarse else None,
        )


def _share(flagged: int, n: int) -> str:
    return f"{flagged:,} ({100 * flagged / n:.6g} %)"


FINER_SCORES = "more rows cannot help: give the detector finer scores or drop this target"


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
    if not (1 <= found.distinct <= n and 1 <= found.largest_tie <= n - found.distinct + 1):
        yield "granularity.distinct and largest_tie are no counts of one sample"
    if [atom.fpr for atom in found.targets] != [target.fpr for target in policy.targets]:
        yield "granularity.targets are others than the policy's"
    if not all(atom.below <= atom.through <= n for atom in found.targets):
        yield "granularity.targets are no counts of the fit sample"


CHECK = Check(
    key="granularity",
    asks="whether the detector's scores are fine enough for each target's rate to exist",
    decides=(
        "With tied scores a threshold flags all rows of a score or none. It fails where what the calibrator may flag "
        "is provably too few for the tolerance, and the next score up provably too many for the target."
    ),
    causes="a detector with few distinct scores, rounded scores, or probabilities so near 0 or 1 that floats merge",
    evidence=Resolution,
    measure=measure,
    judge=judge,
    asked=asked,
    contradictions=contradictions,
    reasons={"fine": "fine enough", "granularity": "tied scores allow no such rate"},
    settings=GranularitySettings,
    default=GranularitySettings(),
)
