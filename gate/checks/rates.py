"""Rates: how a count is graded against a band, and the sentences that say so. It measures nothing."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from gate.checks.check import JudgedRate, inside
from gate.planning.ranges import round_up
from gate.planning.sequential import Deciding
from gate.statistics.binomial import Band, CountRange, CriticalCounts
from gate.statistics.tally import Tally
from gate.stored import Grade, exact
from gate.words import plural, rounded_percent

PROMISE = "then passes 95 % of the time"
NOT_COMPUTED = "how many would do was not computed"
TIED_SCORES = (
    "more held-out rows cannot help: too many benign rows share the highest scores; give the detector finer scores"
)
UNREACHABLE_TARGET = f"{TIED_SCORES} or drop this target"


def grade_count(k: int, critical: CriticalCounts) -> Grade:
    """What a count proves by itself, whatever the rule."""
    if inside(critical.proven, k):
        return "proven"
    if critical.refuted_at_or_below is not None and k <= critical.refuted_at_or_below:
        return "refuted"
    if critical.refuted_at_or_above is not None and k >= critical.refuted_at_or_above:
        return "refuted"
    return "open"


def judged_rate(
    target: Decimal | None,
    score: Decimal,
    found: Tally,
    band: Band,
    *,
    min_n: int | None = None,
    accepts: CountRange | None = None,
    predicted: CountRange | None = None,
    drift_p_value: float | None = None,
    ships: tuple[tuple[float, float], ...] = (),
) -> JudgedRate:
    """The numbers that a finding on a rate shows."""
    alpha = float(band.alpha)
    return JudgedRate(
        target=target,
        score=score,
        tally=found,
        interval=found.bounds(band),
        plain_interval=found.plain_interval(alpha) if found.is_clustered else None,
        tolerance=(exact(float(max(band.low, Fraction(0)))), exact(float(min(band.high, Fraction(1))))),
        min_n=min_n,
        accepts=accepts,
        predicted=predicted,
        drift_p_value=drift_p_value,
        ships=ships,
    )


def describe_count(found: Tally) -> str:
    """`140 false positives in 139,315 benign rows`, and what the rows are worth if they come in groups."""
    counted = f"{plural(found.flagged, 'false positive')} in {plural(found.rows, 'benign row')}"
    if found.is_clustered:
        counted += f", in groups worth {int(found.independent_rows):,} independent ones"
    return counted


def describe_critical(critical: CriticalCounts, passes: str | None = None) -> str:
    """`126 to 148 prove it, 84 or fewer or 201 or more refute it`; `passes` is false if no count can pass."""
    proven = "no count proves it"
    if passes is not None:
        proven = passes
    elif critical.proven:
        low, high = critical.proven
        proven = f"{low:,} to {high:,} prove it" if low < high else f"only {low:,} proves it"
    limits = []
    if critical.refuted_at_or_below is not None:
        few = critical.refuted_at_or_below
        limits.append(f"{few:,} or fewer" if few else "none at all")
    if critical.refuted_at_or_above is not None:
        limits.append(f"{critical.refuted_at_or_above:,} or more")
    return f"{proven}, {' or '.join(limits)} refute it" if limits else f"{proven}, no count refutes it"


def describe_deciding(found: Deciding, n: int, min_n: int = 1) -> str:
    """The rows to add to these, with sequential looks."""
    rows = round_up(max(found.rows, min_n, n + 1))
    more = f"add about {rows - n:,} benign rows to these ({rows:,} in all) and look again"
    chance = f"it is decided by then {rounded_percent(found.chance)} of the time"
    proven = rounded_percent(found.proven)
    return f"{more}: {chance}, {proven} of the time as proven"
