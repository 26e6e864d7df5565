"""Exchangeability: whether held-out and fit benign scores can come from one population."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import numpy as np
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from gate.checks.check import Asked, Case, Check, Evidence, Finding, count
from gate.checks.readings import DRIFT_REMEDY
from gate.names import CheckName
from gate.policy import Flag, Frozen, Policy, PolicyRate
from gate.statistics.tally import Tally
from gate.stored import Count, ExactRate, Rate, Section

NAME = CheckName("exchangeability")
MAX_RANKS = 200


class ExchangeabilitySettings(Frozen):
    """Whether held-out and fit benign scores can come from one population."""

    alpha: PolicyRate = Field(default=Decimal("0.001"), description="how often samples that do may be called different")
    required: Flag = Field(default=False, description="true: a difference blocks the release")

    @field_validator("alpha")
    @classmethod
    def _testable(cls, value: Decimal) -> Decimal:
        if not Decimal("0.0001") <= value <= Decimal("0.2"):
            raise PydanticCustomError("alpha", "must be from 0.0001 to 0.2")
        return value


class AtScore(Section):
    """Rows of both samples that reach one score, and the held-out ones among them.

    `p_value` is that of exchanging groups; null where rows are independent and the counts tell it.
    """

    pooled: Count
    held_out: Count
    p_value: Rate | None = None


class AtTarget(AtScore):
    """Rows of both samples that reach the score of one target's share of the pooled rows, and the held-out ones.

    fit         the fit rows at the target's own threshold
    predicted   the held-out counts that 95 % of divisions of all groups show; null where rows are independent
    """

    fpr: ExactRate
    fit: Tally
    predicted: tuple[Count, Count] | None = None


class Exchangeability(Section):
    """Both samples at log-spaced ranks of the pooled rows, and at each target.

    unit      what could be exchanged: rows, or whole groups
    p_value   of exchanging groups, over all ranks together; `least` is the smallest that so few groups can have
    """

    unit: Literal["rows", "groups"] = "rows"
    ranks: tuple[AtScore, ...] = Field(max_length=MAX_RANKS)
    targets: tuple[AtTarget, ...]
    p_value: Rate | None = None
    least: Rate | None = None

    def at(self, fpr: Decimal) -> AtTarget | None:
        return next((at for at in self.targets if at.fpr == fpr), None)


def measure(case: Case) -> Exchangeability | None:
    """Count both samples at pooled scores; if rows come in groups, exchange the groups."""
    from gate.rows.ordered import pooled_at_rank
    from gate.statistics.exchangeability import scanned_ranks

    if case.fit is None:
        return None
    fit, holdout = case.fit, case.holdout
    total = len(fit) + len(holdout)
    rates = [target.fpr for target in case.policy.targets]
    wanted = [min(max(round(Fraction(fpr) * total), 1), total) for fpr in rates]
    ranks = scanned_ranks(total)
    scores = pooled_at_rank(fit.ordered, holdout.ordered, np.concatenate([ranks, wanted]).astype(np.int64))
    held_out = holdout.ordered.at_or_above(scores)
    pooled = held_out + fit.ordered.at_or_above(scores)
    p_values: list[float | None] = [None] * len(scores)
    whole = least = None
    if fit.has_groups and holdout.has_groups:
        from gate.statistics.permutation import exchange

        of_fit, held = fit.by_group(scores, units=True), holdout.by_group(scores, units=True)
        found = exchange(of_fit.sizes, of_fit.reached, held.sizes, held.reached)
        p_values, whole, least = [*found.each], found.p_value, found.least
    fitted = count(fit, [case.calibrator.thresholds[fpr] for fpr in rates], case.alpha)
    predicted = _predicted(case, rates)
    parts = zip(pooled, held_out, p_values, strict=True)
    at = [AtScore(pooled=int(m), held_out=int(k), p_value=p) for m, k, p in parts]
    first = {point.pooled: point for point in reversed(at[: len(ranks)])}
    return Exchangeability(
        unit="rows" if whole is None else "groups",
        ranks=tuple(first[m] for m in sorted(first)),
        targets=tuple(
            AtTarget(fpr=fpr, fit=reached, predicted=counts, **point.model_dump())
            for fpr, reached, counts, point in zip(rates, fitted, predicted, at[len(ranks) :], strict=True)
        ),
        p_value=whole,
        least=least,
    )


def _predicted(case: Case, rates: list[Decimal]) -> list[tuple[int, int] | None]:
    """The held-out counts of sound releases at each target, from new divisions of whole groups."""
    from gate.calibration.positions import fractional_rank, named
    from gate.rows.ordered import pooled_at_rank
    from gate.statistics.prediction import looked_at, predicted_counts

    fit, holdout = case.fit, case.holdout
    none: list[tuple[int, int] | None] = [None] * len(rates)
    if fit is None or not (fit.has_groups and holdout.has_groups):
        return none
    scores = pooled_at_rank(fit.ordered, holdout.ordered, looked_at(len(fit) + len(holdout)))
    position = named(case.policy.calibration.plotting_position)
    ranks = [float(fractional_rank(position, Fraction(fpr), len(fit))) for fpr in rates]
    of_fit, held = (sample.by_group(scores, units=True).reached for sample in (fit, holdout))
    if min(len(of_fit), len(held)) < 2:
        return none
    found = predicted_counts(of_fit, held, ranks)
    return [counts if rank >= 1 else None for counts, rank in zip(found, ranks, strict=True)]


def p_value_at(evidence: Evidence, fpr: Decimal) -> float | None:
    """The chance of so uneven a division at one target, if both samples come from one population."""
    from gate.statistics.exchangeability import compare_counts

    found = evidence.of(Exchangeability)
    at = None if found is None else found.at(fpr)
    if at is None:
        return None
    n = evidence.holdout.n
    return compare_counts(at.pooled, at.held_out, n, n + evidence.fit.n).p_value if at.p_value is None else at.p_value


def judge(policy: Policy, evidence: Evidence) -> Iterator[Finding]:
    """Fail if the largest difference over the upper half of the curve is rarer than the level allows."""
    from gate.statistics.exchangeability import compare_counts, scan_counts

    found, settings = evidence.of(Exchangeability), policy.settings(ExchangeabilitySettings)
    if found is None or settings is None:
        return
    n, total = evidence.holdout.n, evidence.holdout.n + evidence.fit.n
    level = float(settings.alpha)
    if found.p_value is None:
        scan = scan_counts(tuple((at.pooled, at.held_out) for at in found.ranks), n, total)
        p_value, worst = scan.p_value, scan.worst
    else:
        p_value = found.p_value
        at = min(found.ranks, key=lambda at: at.p_value or 0.0, default=None)
        worst = None if at is None else compare_counts(at.pooled, at.held_out, n, total)
        if found.least is not None and found.least > level:
            message = "so few groups cannot tell whether held-out and fit benign scores come from one population"
            yield Finding(
                check=NAME,
                outcome="inconclusive",
                required=settings.required,
                reason="too-few-groups",
                message=f"{message} (the smallest p possible is {found.least:.2g})",
                remedy="hold out and fit on rows of more groups",
            )
            return
    differ = p_value <= level
    message = f"held-out and fit benign scores {'differ' if differ else 'can come from one population'}"
    message += f" (p = {p_value:.4f}{', by exchanging groups' if found.unit == 'groups' else ''})"
    if worst is not None:
        message += (
            f"; most at the top {worst.pooled:,} rows of both, {worst.held_out:,} of them held out "
            f"where {worst.expected:,.0f} would be on average"
        )
    yield Finding(
        check=NAME,
        outcome="fail" if differ else "pass",
        required=settings.required,
        reason="differ" if differ else "exchangeable",
        message=message,
        remedy=DRIFT_REMEDY if differ else None,
    )


def differ(policy: Policy, evidence: Evidence) -> bool:
    """Whether the test told the two samples apart."""
    return any(finding.reason == "differ" for finding in judge(policy, evidence))


def asked(policy: Policy, evidence: Evidence) -> Iterator[Asked]:
    settings = policy.settings(ExchangeabilitySettings)
    if settings is not None:
        yield Asked(NAME, settings.required, "fit rows", ("checks", "exchangeability"), by_check=False)


CHECK = Check(
    key="exchangeability",
    asks="whether held-out and fit benign scores can come from one population",
    decides=(
        "At log-spaced ranks of all rows together it counts the held-out ones. If the samples are alike, chance alone "
        "divides these: an exact test, whatever the scores and their ties. Where rows come in groups, whole groups are "
        "exchanged between the samples instead, which is a permutation test and not exact."
    ),
    causes="drift between the two samples, other preprocessing, leaked or duplicated rows",
    helps=(
        "Find out what differs between fit and held-out benign rows, then fit on rows like those to come: one pool, "
        "split at random (--benign and --split), has no drift between its parts."
    ),
    evidence=Exchangeability,
    measure=measure,
    judge=judge,
    asked=asked,
    reasons={
        "exchangeable": "one population",
        "differ": "the samples differ",
        "too-few-groups": "too few groups to tell",
    },
    sentences={
        "differ": "held-out and fit benign rows differ",
        "too-few-groups": "there are too few groups to compare the samples",
    },
    settings=ExchangeabilitySettings,
    default=ExchangeabilitySettings(),
)
