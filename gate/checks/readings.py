"""What numbers say, in sentences that several checks and pages share. Nothing is measured or decided here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from gate.statistics.atoms import Attainability
from gate.statistics.drift import DriftReading, Ratio
from gate.words import plural


class Sentences(NamedTuple):
    """What was found, and what would turn it green; None where nothing need be done."""

    message: str
    remedy: str | None


def percent(rate: float | Fraction | Decimal) -> str:
    """`0.105 %`: three digits, none of them for nothing."""
    return f"{100 * float(rate):.3g} %"


# --- what every statement assumes ---------------------------------------------------------------------------


def assumptions(grouped: bool) -> str:
    """Said once, where statements are read."""
    rows = "benign rows in independent groups" if grouped else "independent benign rows"
    return f"Every statement assumes {rows} like those to come, and the threshold as it is shipped."


def what_a_pass_means(rule: str, ships: Sequence[tuple[float, float]], n: int, grouped: bool) -> str:
    """`By the rule not-refuted, on 20,000 rows, a release at 2 times its target passes 60.4 % of the time, one ...`.

    `ships` are multiples of the target, each with the chance that such a release passes.
    """
    parts = [
        f"{'one' if i else 'a release'} at {multiple:g} times {'it' if i else 'its target passes'} {_chance(passes)}"
        for i, (multiple, passes) in enumerate(sorted({*ships}))
    ]
    parts[0] += " of the time"
    worth = f"rows in groups worth {n:,} independent ones" if grouped else plural(n, "row")
    return f"By the rule {rule}, on {worth}, {', '.join(parts)}"


def _chance(share: float) -> str:
    """Rounded up, so that no chance is shown smaller than it is; `less than 0.1 %` below that."""
    if share < 0.001:
        return "less than 0.1 %"
    return f"{min(math.ceil(share * 1000) / 10, 100):.3g} %"


# --- noise or drift -----------------------------------------------------------------------------------------


def noise_or_drift(ratio: Ratio, reading: DriftReading, above: Fraction, below: Fraction, passed: bool) -> Sentences:
    """What the ratio of held-out to fit rows at a threshold says of a finding."""
    if ratio.value is None:
        return Sentences("no fit row reaches this threshold, so that noise cannot be told from drift", None)
    low, high = f"{ratio.low:.3g}", f"{ratio.high:.3g}" if ratio.high < 1e6 else "any number of"
    told = f"held-out rows reach this threshold {ratio.value:.3g} times as often as fit rows ({low} to {high} times)"
    if reading == "drift":
        look = "look before relying on it" if passed else "drift, leakage, duplicates or other preprocessing"
        return Sentences(f"{told}: the two samples differ; {look}", DRIFT_REMEDY)
    matters = f"{float(1 + above):.3g} times"
    if below < 1:
        matters = f"{float(1 - below):.3g} or {matters}"
    if reading == "noise":
        return Sentences(f"{told}, which leaves out {matters}: whatever differs is noise", None)
    return Sentences(f"{told}: these rows cannot tell noise from drift, for {matters} would look like this", _MORE)


DRIFT_REMEDY = "find out what differs between fit and held-out benign rows, then fit on rows like those to come"
_MORE = "more benign rows to fit on and to hold out tell them apart"


TOP_TIED = "give the detector finer scores: more rows do not part those that share the highest one"


# --- tied scores --------------------------------------------------------------------------------------------


def granularity(
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
    """What the detector's scores leave of a target.

    `counts` are the fit rows that can be flagged, those of the next score, and those that could be flagged if a float
    told all raw scores apart; `reach` and `settle` the fit rows of `atoms.rows_to_reach` and `atoms.rows_to_settle`.
    """
    below, through, apart = counts
    around = f"{percent(below / n)} ({below:,} of {n:,} fit rows) and {percent(through / n)} ({through:,})"
    if attainability == "fine":
        return Sentences(f"around {percent(fpr)} the detector can flag {around}", None)
    if attainability == "resolution":
        message = (
            f"the raw scores differ by less than a float can hold after rescaling: {through - below:,} of {n:,} fit "
            f"rows have become one score, and apart they would let {percent(apart / n)} be flagged"
        )
        return Sentences(message, _LOGITS if domain == (0.0, 1.0) else _DOMAIN)
    end = f"; {through - below:,} of them have the score at the end of the domain" if saturated else ""
    if attainability == "unattainable":
        message = f"the detector cannot resolve {percent(fpr)}: attainable are {around}{end}"
        return Sentences(message, _finer(above, saturated))
    message = f"the detector may not resolve {percent(fpr)}: attainable seem {around}{end}"
    if reach is not None:
        return Sentences(message, f"fit on {reach:,} benign rows: {percent(through / n)} is then reached {_OFTEN}")
    if settle is None:
        return Sentences(message, _finer(above, saturated))
    rows = f"fit on {settle:,} benign rows, which show whether any threshold has this rate"
    return Sentences(message, f"{rows}; it seems that none has, and then {_finer(above, saturated)}")


def floor(fpr: Decimal, n: int, tied: int, lowest_label: float, support: int, of_tie: Sentences | None) -> Sentences:
    """What is said of a target whose rate the fit sample does not show.

    `tied` rows share its highest score; `of_tie` is what granularity says of the target, where that is not fine.
    """
    if tied > 1 and (of_tie is not None or n >= support):
        share = f"{tied:,} of {n:,} fit rows share the highest score"
        message = f"{share}, so that they show no rate below {percent(lowest_label)}: at {percent(fpr)} the threshold"
        return Sentences(f"{message} is extrapolated", TOP_TIED if of_tie is None else of_tie.remedy)
    message = f"{n:,} fit rows are too few to show {percent(fpr)}: the threshold is extrapolated"
    return Sentences(message, f"fit on at least {max(support, n + 1):,} benign rows")


def _finer(above: Fraction, saturated: bool) -> str:
    logits = " (logits with their range as calibration.domain, where it rounds them)" if saturated else ""
    excess = f"max_relative_error: {{above: {float(above):.6g}, below: 1}}"
    return f"more rows cannot help: give the detector finer scores{logits}, or let only excess count with {excess}"


_OFTEN = "95 % of the time"
_LOGITS = "give logits in the place of probabilities, with their range as calibration.domain"
_DOMAIN = "set calibration.domain to the range that the scores have: it is too wide for a float to tell them apart"


# --- groups -------------------------------------------------------------------------------------------------


def skewed_groups(largest: int, n: int, spare: int) -> Sentences:
    """Why groups of unlike sizes cannot prove a count that as many independent rows would."""
    hidden = (
        f"the largest group has {largest:,} of {n:,} rows, and {spare:,} more flagged ones would leave the tolerance"
    )
    return Sentences(f"{hidden}: groups so unlike in size cannot prove it", _GROUPS)


_GROUPS = "hold out more groups: more rows of the same ones add little"
