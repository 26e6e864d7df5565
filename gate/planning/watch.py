"""Watching a release that serves: what one check of so many rows finds, and how often it alarms by chance.

A release that serves has one true rate at each threshold, and each check counts rows of its own. So counts are binomial
and checks are independent, and no law of the calibrator's noise is needed. The module sees no data.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from gate.planning.law import Law
from gate.policy import Policy, Target
from gate.statistics.binomial import critical_counts, lower_tail, upper_tail

CHECKS_A_YEAR = 365


@dataclass(frozen=True)
class Alarm:
    """The chances of one check at a true rate: that it fails, and that it fails or stays inconclusive."""

    multiple: Fraction  # times the target
    fails: float
    not_passes: float


@dataclass(frozen=True)
class TargetWatch:
    """One target, watched with so many rows a check.

    drifted    at 1 + 2r, 2 and 5 times the target
    sound      at the target itself
    edges      at the edges of the tolerance: the worst releases that the policy still accepts
    """

    target: Target
    rows: int
    drifted: tuple[Alarm, ...]
    sound: Alarm
    edges: tuple[Alarm, ...]

    @property
    def at_an_edge(self) -> float:
        """An upper bound on the chance that one check fails a release that the policy still accepts."""
        return max((alarm.fails for alarm in self.edges), default=0.0)


@dataclass(frozen=True)
class Watch:
    """All targets of a policy, watched with so many rows a check."""

    rows: int
    targets: tuple[TargetWatch, ...]

    @property
    def together(self) -> Alarm:
        """Upper bounds on the chances that any required target stops a sound release: the sums over targets."""
        alarms = [watched.sound for watched in self.targets if watched.target.required]
        fails, not_passes = sum(a.fails for a in alarms), sum(a.not_passes for a in alarms)
        return Alarm(Fraction(1), min(fails, 1.0), min(not_passes, 1.0))


def watch(policy: Policy, rows: int, fit_n: int | None = None) -> Watch:
    """What a check of so many rows does at every target; `fit_n`, as in `plan`, gives the lowest label."""
    return Watch(rows, tuple(_watch_target(policy, target, rows, fit_n) for target in policy.targets))


def _watch_target(policy: Policy, target: Target, rows: int, fit_n: int | None) -> TargetWatch:
    law = Law(policy, target)
    error = target.max_relative_error
    multiples = (1 + 2 * law.excess, Fraction(2), Fraction(5))
    edges = [1 + Fraction(error.above), *([1 - Fraction(error.below)] if error.below < 1 else [])]
    alarm = _Alarms(law, rows, fit_n if fit_n is not None else target.min_n)
    return TargetWatch(
        target=target,
        rows=rows,
        drifted=tuple(alarm.at(multiple) for multiple in multiples),
        sound=alarm.at(Fraction(1)),
        edges=tuple(alarm.at(multiple) for multiple in edges),
    )


class _Alarms:
    """The counts of one check that fail and that pass, found once for all rates."""

    def __init__(self, law: Law, rows: int, fit_n: int) -> None:
        self.p, self.rows = law.p, rows
        critical = critical_counts(rows, law.band)
        self.few, self.many = critical.refuted_at_or_below, critical.refuted_at_or_above
        self.passing = critical.passing(law.rule_at(fit_n), rows) if rows >= law.min_n else None

    def at(self, multiple: Fraction) -> Alarm:
        """Each chance is the sum of two tails, so that a small chance is not the difference of two large ones."""
        rate = min(float(self.p * multiple), 1.0)
        fails = self._beyond(self.few, self.many, rate)
        if self.passing is None:
            return Alarm(multiple, fails, 1.0)
        low, high = self.passing
        return Alarm(multiple, fails, self._beyond(low - 1, high + 1, rate))

    def _beyond(self, few: int | None, many: int | None, rate: float) -> float:
        below = 0.0 if few is None or few < 0 else lower_tail(few, self.rows, rate)
        above = 0.0 if many is None or many > self.rows else upper_tail(many, self.rows, rate)
        return min(below + above, 1.0)
