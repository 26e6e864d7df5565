"""Granularity: whether the detector's scores are fine enough for each target's rate to exist."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
from pydantic import Field

from gate.calibration.positions import fractional_rank, named
from gate.checks.check import Asked, Case, Check, Evidence, Finding
from gate.checks.readings import Sentences
from gate.names import CheckName
from gate.planning import band_of
from gate.policy import Flag, Frozen, Policy, Target
from gate.statistics.atoms import Attainability, attainability, rows_to_reach, rows_to_settle
from gate.statistics.clusters import effective_rows
from gate.stored import Count, ExactRate, Outcome, Section, Size
from gate.words import percent


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
    """How fine the fit scores are: the rows that share the highest one, and the atom at each target."""

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
    return Resolution(
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
    """Whether tied fit scores let a target be reached; `fine` if nothing was measured."""
    found = evidence.of(Resolution)
    atom = None if found is None else found.at(target.fpr)
    if atom is None:
        return "fine"
    band = band_of(target, policy.alpha())
    fpr, n = Fraction(target.fpr), evidence.fit.n
    return attainability(atom.below, atom.through, atom.apart, n, fpr, band, atom.effective)


def describe(policy: Policy, evidence: Evidence, target: Target) -> Sentences | None:
    """What the scores mean for a target, in words, and what would help."""
    found = evidence.of(Resolution)
    atom = None if found is None else found.at(target.fpr)
    if atom is None:
        return None
    band, fpr, n = band_of(target, policy.alpha()), Fraction(target.fpr), evidence.fit.n
    position = named(policy.calibration.plotting_position)
    stands = attainability_of(policy, evidence, target)
    borderline = stands == "borderline"
    rank = partial(fractional_rank, position)
    return describe_ties(
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
    """Fail if it is proven that no threshold has a rate inside the tolerance."""
    found, settings = evidence.of(Resolution), policy.settings(GranularitySettings)
    if found is None or settings is None:
        return
    outcomes: dict[Attainability, Outcome] = {"fine": "pass", "borderline": "inconclusive"}
    for target in policy.targets:
        said = describe(policy, evidence, target)
        stands = attainability_of(policy, evidence, target)
        if said is not None:
            yield Finding(
                check=CheckName("granularity", target.fpr),
                outcome=outcomes.get(stands, "fail"),
                required=settings.required,
                reason="granularity" if stands == "unattainable" else stands,
                message=said.message,
                remedy=said.remedy,
            )


# --- sentences ----------------------------------------------------------------------------------------------


def describe_ties(
    attainability: Attainability,
    fpr: Decimal,
    counts: tuple[int, int, int],
    n: int,
    *,
    above: Fraction,
    domain: tuple[float, float],
    saturated: bool = False,
    reach: int | None = None,
    settle: int | None = None,
) -> Sentences:
    """The sentences on whether the detector's scores can reach a target.

    `counts` are the fit rows that can be flagged, those with the next score, and those that could be flagged if a float
    told all raw scores apart. `reach` and `settle` are fit rows from `atoms.rows_to_reach` and `atoms.rows_to_settle`.
    """
    below, through, apart = counts
    around = f"{percent(below / n, 3)} ({below:,} of {n:,} fit rows) and {percent(through / n, 3)} ({through:,})"
    if attainability == "fine":
        return Sentences(f"around {percent(fpr, 3)} the detector can flag {around}", None)
    if attainability == "resolution":
        message = (
            f"the raw scores differ by less than a float can hold after rescaling: {through - below:,} of {n:,} fit "
            f"rows have become one score, and apart they would let {percent(apart / n, 3)} be flagged"
        )
        return Sentences(message, _LOGITS if domain == (0.0, 1.0) else _DOMAIN)
    end = f"; {through - below:,} of them have the score at the end of the domain" if saturated else ""
    if attainability == "unattainable":
        message = f"the detector cannot resolve {percent(fpr, 3)}: attainable are {around}{end}"
        return Sentences(message, _finer(above, saturated))
    message = f"the detector may not resolve {percent(fpr, 3)}: attainable seem {around}{end}"
    if reach is not None:
        return Sentences(message, f"fit on {reach:,} benign rows: {percent(through / n, 3)} is then reached {_OFTEN}")
    if settle is None:
        return Sentences(message, _finer(above, saturated))
    rows = f"fit on {settle:,} benign rows, which show whether any threshold has this rate"
    return Sentences(message, f"{rows}; it seems that none has, and then {_finer(above, saturated)}")


def _finer(above: Fraction, saturated: bool) -> str:
    logits = " (logits with their range as calibration.domain, where it rounds them)" if saturated else ""
    excess = f"max_relative_error: {{above: {float(above):.6g}, below: 1}}"
    return f"more rows cannot help: give the detector finer scores{logits}, or let only excess count with {excess}"


TOP_TIED = "give the detector finer scores: more rows do not part those that share the highest one"
_OFTEN = "95 % of the time"
_LOGITS = "give logits in the place of probabilities, with their range as calibration.domain"
_DOMAIN = "set calibration.domain to the range that the scores have: it is too wide for a float to tell them apart"


# --- what is asked ------------------------------------------------------------------------------------------


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(GranularitySettings)
    if settings is not None:
        for target in policy.targets:
            name = CheckName("granularity", target.fpr)
            yield Asked(name, settings.required, "fit rows", ("checks", "granularity"), by_check=False)


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
    reasons={
        "fine": "fine enough",
        "granularity": "tied scores allow no such rate",
        "resolution": "floats merge the scores",
        "borderline": "tied scores may allow no such rate",
    },
    sentences={"granularity": "the scores are too coarse for a target"},
    settings=GranularitySettings,
    default=GranularitySettings(),
)
