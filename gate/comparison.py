"""The comparison: two releases at the same anchors, and what changed in the policy between them. No judgement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gate.calibration.calibrator import count_flagged
from gate.contract import Anchor, Contract, Floats
from gate.detection import effective_n
from gate.policy import Policy, Target, Waiver
from gate.scores import Scores, match
from gate.statistics.binomial import clopper_pearson, effective_rows
from gate.statistics.proportions import Interval, Pairs, difference_interval, fisher, mcnemar, paired_interval

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Counted:
    """The rows at or above one anchor's raw threshold. `effective_n` is None where rows came in groups and nobody
    wrote down how many independent ones they are worth."""

    threshold: float | None
    flagged: int
    rows: int
    effective_n: float | None

    @property
    def independent(self) -> bool:
        return self.effective_n == self.rows


@dataclass(frozen=True)
class Sample:
    """Benign or malicious rows under one release: its thresholds with the counts at them, and the scores if at hand."""

    counts: Mapping[Decimal, Counted]
    scores: Scores | None = None

    @property
    def thresholds(self) -> dict[Decimal, float | None]:
        return {fpr: counted.threshold for fpr, counted in self.counts.items()}


def scored(thresholds: Mapping[Decimal, float | None], scores: Scores, policy: Policy) -> Sample:
    """A sample counted from its scores."""
    counts = {}
    for fpr, threshold in thresholds.items():
        worth = effective_n(scores, threshold, float(policy.alpha()))
        counts[fpr] = Counted(threshold, count_flagged(scores.ordered, threshold), len(scores), worth)
    return Sample(counts, scores)


@dataclass(frozen=True)
class Baseline:
    """A release that went before, as its record tells, with the digests of its held-out scores and of their ids."""

    path: str
    release: str
    created: str
    outcome: Literal["pass", "fail", "inconclusive"]
    verdict_sha256: str
    policy_sha256: str
    policy: Policy
    benign: Sample
    malicious: Sample | None
    scores_sha256: str
    rows_sha256: str | None

    def with_scores(self, benign: Scores | None, malicious: Scores | None) -> Baseline:
        """The same release with the scores that it gave rows which the new release has scored too."""
        thresholds = self.benign.thresholds
        return replace(
            self,
            benign=self.benign if benign is None else scored(thresholds, benign, self.policy),
            malicious=self.malicious if malicious is None else scored(thresholds, malicious, self.policy),
        )


@dataclass(frozen=True)
class Change:
    """One anchor under the old release and under the new one.

    old, new      flagged rows; where both releases scored the same rows, on these
    pairs         which of the same rows each release flags; None where they scored different rows
    p_value       of the exact test that nothing changed; None where rows come in groups, which it cannot count
    interval      of the new rate less the old one
    stale         the new scores that reach the *old* raw threshold: what no recalibration would have meant
    """

    anchor: Anchor
    old: Counted
    new: Counted
    pairs: Pairs | None
    p_value: float | None
    interval: Interval | None
    stale: int | None
    stale_interval: Interval | None

    @property
    def difference(self) -> float:
        return self.new.flagged / self.new.rows - self.old.flagged / self.old.rows


@dataclass(frozen=True)
class Comparison:
    """All that changed; `itself` where the baseline is the release that is being checked again."""

    baseline: Baseline
    policy_changes: tuple[str, ...]
    benign: tuple[Change, ...]
    malicious: tuple[Change, ...]
    itself: bool = False


def compare(
    baseline: Baseline,
    policy: Policy,
    contract: Contract,
    benign: Sample,
    malicious: Sample | None,
    itself: bool = False,
) -> Comparison:
    """Every anchor that both releases have, on benign rows and, where both know any, on malicious ones."""
    alpha = float(policy.alpha())
    detected: tuple[Change, ...] = ()
    if malicious is not None and baseline.malicious is not None:
        detected = tuple(_changes(contract, baseline.malicious, malicious, alpha))
    return Comparison(
        baseline=baseline,
        policy_changes=policy_changes(baseline.policy, policy),
        benign=tuple(_changes(contract, baseline.benign, benign, alpha)),
        malicious=detected,
        itself=itself,
    )


def warnings(comparison: Comparison | None, scores_sha256: str, rows_sha256: str | None) -> tuple[str, ...]:
    """What was not compared, or could be compared better."""
    if comparison is None:
        return ()
    old, sentences = comparison.baseline, []
    if scores_sha256 == old.scores_sha256:
        sentences.append(
            f"these are the very scores that {old.release} was judged on, so nothing new is learnt of them"
        )
    elif rows_sha256 is not None and rows_sha256 == old.rows_sha256 and not any(c.pairs for c in comparison.benign):
        sentences.append(
            f"{old.release} was judged on the same benign rows (by their ids), which the test of change takes for "
            "different ones; --baseline-holdout compares them row by row"
        )
    if any(not side.independent for change in comparison.benign for side in (change.old, change.new)):
        sentences.append("rows come in groups, so no exact test of change is made; its intervals allow for them")
    return tuple(sentences)


def _changes(contract: Contract, old: Sample, new: Sample, alpha: float) -> Iterator[Change]:
    rows = None if old.scores is None or new.scores is None else _SameRows(old.scores, new.scores)
    for anchor in contract.anchors:
        then, now = old.counts.get(anchor.fpr), new.counts.get(anchor.fpr)
        if then is None or now is None:
            continue
        if rows is not None:
            yield rows.change(anchor, then.threshold, now.threshold, alpha)
        else:
            yield _unpaired(anchor, then, now, new.scores, alpha)


def _unpaired(anchor: Anchor, old: Counted, new: Counted, scores: Scores | None, alpha: float) -> Change:
    stale = stale_interval = None
    if scores is not None:
        stale = count_flagged(scores.ordered, old.threshold)
        worth = effective_n(scores, old.threshold, alpha)
        stale_interval = clopper_pearson(stale * worth / len(scores), worth, alpha)
    return replace(unpaired(anchor, old, new, alpha), stale=stale, stale_interval=stale_interval)


def unpaired(anchor: Anchor, old: Counted, new: Counted, alpha: float) -> Change:
    """What two counts of different rows say about one anchor."""
    interval = None
    if new.effective_n is not None and old.effective_n is not None:
        sides = [(c.flagged * n / c.rows, n) for c, n in ((new, new.effective_n), (old, old.effective_n))]
        interval = difference_interval(*sides[0], *sides[1], alpha)
    exact = new.independent and old.independent
    return Change(
        anchor=anchor,
        old=old,
        new=new,
        pairs=None,
        p_value=fisher(new.flagged, new.rows, old.flagged, old.rows) if exact else None,
        interval=interval,
        stale=None,
        stale_interval=None,
    )


class _SameRows:
    """The rows that both releases have scored, joined once for all anchors."""

    def __init__(self, old: Scores, new: Scores) -> None:
        self.old, self.new, rows = match(old, new)
        self.n = len(rows)
        self.groups: NDArray[np.int64] | None = None
        if new.groups is not None:
            self.groups = np.unique(new.groups[rows], return_inverse=True)[1].astype(np.int64)

    def change(self, anchor: Anchor, old: float | None, new: float | None, alpha: float) -> Change:
        then, now, stale = _flags(self.old, old), _flags(self.new, new), _flags(self.new, old)
        both, new_only, old_only = (int(np.count_nonzero(part)) for part in (then & now, now & ~then, then & ~now))
        pairs = Pairs(both, new_only, old_only, self.n - both - new_only - old_only)
        worth, stale_worth = self._worth(alpha, now, then), self._worth(alpha, stale)
        flagged = int(np.count_nonzero(stale))
        return Change(
            anchor=anchor,
            old=Counted(old, both + old_only, self.n, self._worth(alpha, then)),
            new=Counted(new, both + new_only, self.n, self._worth(alpha, now)),
            pairs=pairs,
            p_value=mcnemar(new_only, old_only) if self.groups is None else None,
            interval=paired_interval(pairs.worth(worth / self.n), alpha),
            stale=flagged,
            stale_interval=clopper_pearson(flagged * stale_worth / self.n, stale_worth, alpha),
        )

    def _worth(self, alpha: float, flags: Flags, less: Flags | None = None) -> float:
        """How many independent rows these are worth for the share flagged, or for the difference of two shares."""
        if self.groups is None:
            return float(self.n)
        values = flags.astype(np.float64) - (0.0 if less is None else less)
        sizes = np.bincount(self.groups).astype(np.float64)
        totals = np.asarray(np.bincount(self.groups, weights=values), dtype=np.float64)
        spread = float(np.mean(values**2) - np.mean(values) ** 2)
        return effective_rows(sizes, totals, alpha, spread=spread)[1]


def _flags(scores: Floats, threshold: float | None) -> Flags:
    return np.zeros(len(scores), dtype=bool) if threshold is None else scores >= threshold


# --- what changed in the policy -----------------------------------------------------------------------------

_SIDES = ("above", "below")
_RULES = ("not-refuted", "observed", "proven")
# Where a larger value asks for more (1) or for less (-1), by how a key ends; of other keys only the change can be said.
_DIRECTIONS = {"confidence": 1, "alpha": 1, "min_tpr": 1, "required": 1, "max_drop": -1, "max_uses": -1}


def policy_changes(old: Policy, new: Policy) -> tuple[str, ...]:
    """Every difference in one sentence that starts with `weaker:`, `stricter:` or `changed:`, in that order."""
    found = [*_target_changes(old, new), *_waiver_changes(old, new), *_key_changes(old, new)]
    order = {"weaker": 0, "stricter": 1, "changed": 2}
    return tuple(f"{kind}: {what}" for kind, what in sorted(found, key=lambda change: order[change[0]]))


def _target_changes(old: Policy, new: Policy) -> Iterator[tuple[str, str]]:
    before, after = ({target.check: target for target in policy.targets} for policy in (old, new))
    for check, target in before.items():
        if check not in after:
            yield "weaker", f"{check} is no longer judged"
        else:
            yield from _changes_of_target(target, after[check])
    for check in [check for check in after if check not in before]:
        yield "stricter", f"{check} is judged for the first time"


def _changes_of_target(old: Target, new: Target) -> Iterator[tuple[str, str]]:
    if old.min_n != new.min_n:
        kind = "weaker" if new.min_n < old.min_n else "stricter"
        yield kind, f"{new.check} needs {new.min_n:,} rows instead of {old.min_n:,}"
    sides = {side: (getattr(old.max_relative_error, side), getattr(new.max_relative_error, side)) for side in _SIDES}
    if sides["above"] == sides["below"]:
        sides = {"around": sides["above"]}
    for side, (before, after) in sides.items():
        if before != after:
            kind = "weaker" if after > before else "stricter"
            yield kind, f"{new.check} may err {_percent(after)} {side} its target instead of {_percent(before)}"
    if old.required != new.required:
        yield (
            ("stricter", f"{new.check} is required now")
            if new.required
            else ("weaker", f"{new.check} no longer blocks a release")
        )


def _waiver_changes(old: Policy, new: Policy) -> Iterator[tuple[str, str]]:
    before, after = (_by_check(policy.waivers) for policy in (old, new))
    for check, waiver in after.items():
        if check not in before:
            yield "weaker", f"{check} is waived until {waiver.expires}"
        elif waiver.expires != before[check].expires:
            kind = "weaker" if waiver.expires > before[check].expires else "stricter"
            yield kind, f"{check} is waived until {waiver.expires} instead of {before[check].expires}"
    for check in [check for check in before if check not in after]:
        yield "stricter", f"{check} is no longer waived"


def _by_check(waivers: tuple[Waiver, ...]) -> dict[str, Waiver]:
    return {waiver.check: waiver for waiver in waivers}


def _key_changes(old: Policy, new: Policy) -> Iterator[tuple[str, str]]:
    """Every other key, by its path in the file."""
    before, after = (dict(_leaves(policy.model_dump(exclude={"targets", "waivers"}), "")) for policy in (old, new))
    for key in dict.fromkeys([*before, *after]):
        then, now = before.get(key), after.get(key)
        if then == now or key == "name":
            continue
        kind = _kind(key, then, now)
        yield kind, f"{key} is {_shown(now)} instead of {_shown(then)}"


def _kind(key: str, old: Any, new: Any) -> str:
    direction = _DIRECTIONS.get(key.rpartition(".")[2], 0)
    if key == "rule":
        direction, old, new = 1, _RULES.index(old), _RULES.index(new)
    elif key.startswith(("checks.", "reuse.")) and None in (old, new):  # a check that came or went
        direction, old, new = 1, old is not None, new is not None
    if not direction or None in (old, new):
        return "changed"
    return "stricter" if (new - old) * direction > 0 else "weaker"


def _leaves(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping) and "fpr" in value[0]:
        for part in value:
            rest = {key: number for key, number in part.items() if key != "fpr"}
            yield from _leaves(rest, f"{at}[{part['fpr'].normalize():f}]")
    else:
        yield at, value


def _shown(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value)) or "nothing"
    return "nothing" if value is None else str(value)


def _percent(share: Decimal) -> str:
    return f"{(share * 100).normalize():f} %"
