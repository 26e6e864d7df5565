"""Sentences about numbers that several checks and pages share. The module measures and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from gate.statistics.drift import DriftReading, Ratio
from gate.words import chance_at_most, plural


class Sentences(NamedTuple):
    """The sentence on what was found, and on what would let it pass; None if nothing need be done."""

    message: str
    remedy: str | None


# --- what every statement assumes ---------------------------------------------------------------------------


def assumptions(grouped: bool) -> str:
    """The assumptions of every statement, in one sentence that is printed once."""
    rows = "benign rows in independent groups" if grouped else "independent benign rows"
    return f"Every statement assumes {rows} like those to come, and the threshold as it is shipped."


def what_a_pass_means(rule: str, ships: Sequence[tuple[float, float]], n: int, grouped: bool) -> str:
    """`By the rule not-refuted, on 20,000 rows, a release at 2 times its target passes 60.4 % of the time, one ...`.

    `ships` are multiples of the target, each with the chance that such a release passes.
    """
    parts = [
        f"{'one' if i else 'a release'} at {times:g} times {'it' if i else 'its target passes'} {chance_at_most(often)}"
        for i, (times, often) in enumerate(sorted({*ships}))
    ]
    parts[0] += " of the time"
    worth = f"rows in groups worth {n:,} independent ones" if grouped else plural(n, "row")
    return f"By the rule {rule}, on {worth}, {', '.join(parts)}"


# --- noise or drift -----------------------------------------------------------------------------------------


def noise_or_drift(ratio: Ratio, reading: DriftReading, above: Fraction, below: Fraction, passed: bool) -> Sentences:
    """What the ratio of held-out to fit rows at a threshold says of a finding."""
    if ratio.value is None:
        return Sentences("no fit row reaches this threshold, so that noise cannot be told from drift", None)
    low, high = f"{ratio.low:.3g}", f"{ratio.high:.3g}" if ratio.high < 1e6 else "any number of"
    stated = f"held-out rows reach this threshold {ratio.value:.3g} times as often as fit rows ({low} to {high} times)"
    if reading == "drift":
        look = "look before relying on it" if passed else "drift, leakage, duplicates or other preprocessing"
        return Sentences(f"{stated}: the two samples differ; {look}", DRIFT_REMEDY)
    matters = f"{float(1 + above):.3g} times"
    if below < 1:
        matters = f"{float(1 - below):.3g} or {matters}"
    if reading == "noise":
        return Sentences(f"{stated}, which leaves out {matters}: whatever differs is noise", None)
    return Sentences(f"{stated}: these rows cannot tell noise from drift, for {matters} would look like this", _MORE)


DRIFT_REMEDY = "find out what differs between fit and held-out benign rows, then fit on rows like those to come"
_MORE = "more benign rows to fit on and to hold out tell them apart"


# --- groups -------------------------------------------------------------------------------------------------


def skewed_groups(largest: int, n: int, spare: int) -> Sentences:
    """Why groups of unlike sizes cannot prove a count that as many independent rows would."""
    hidden = (
        f"the largest group has {largest:,} of {n:,} rows, and {spare:,} more flagged ones would leave the tolerance"
    )
    return Sentences(f"{hidden}: groups so unlike in size cannot prove it", _GROUPS)


_GROUPS = "hold out more groups: more rows of the same ones add little"
