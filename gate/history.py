"""The history: how the contract held across recorded releases, from their records alone. It judges nothing anew."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from gate.checks.check import Finding
from gate.checks.detection import Detection
from gate.checks.reuse import Uses
from gate.errors import GateError, visible
from gate.names import CheckName
from gate.record import Record, read_record
from gate.statistics.tally import Tally
from gate.stored import Outcome
from gate.verdict import WaiverUse

RELEASE_FILES = ("verdict.json", "manifest.json", "calibrator.json")


@dataclass(frozen=True)
class Flagged:
    """How many held-out rows the raw threshold of an earlier release flags, as near as the record's curve tells."""

    release: str
    threshold: float
    least: int
    most: int
    benign: int


@dataclass(frozen=True)
class Detected:
    """The malicious rows at one anchor; `minimum` and `outcome` are null where the policy sets none."""

    tally: Tally
    interval: tuple[float, float]
    minimum: float | None
    outcome: Outcome | None


@dataclass(frozen=True)
class Reading:
    """One anchor in one release. `kept` is what the first raw threshold of the history, which is that of the release
    where `origin` is true, would have done here.
    """

    fpr: Finding
    tpr: Detected | None
    origin: bool = False
    kept: Flagged | None = None

    @property
    def threshold(self) -> float | None:
        return None if self.fpr.rate is None else self.fpr.rate.tally.threshold


@dataclass(frozen=True)
class Release:
    """One record. `blocking` names the checks that keep it from passing besides the anchors' own.

    `use` counts the uses of its held-out rows up to this one among the releases read, where asking the same calibrator
    and policy again is none, and `last_use` names the one before; `ledger_use` is the ledger's.
    """

    directory: str
    name: str
    kind: str
    created: str
    outcome: Outcome
    reason: str
    policy: str
    rule: str
    policy_sha256: str
    fit_n: int
    holdout_n: int
    readings: dict[CheckName, Reading]
    blocking: tuple[CheckName, ...]
    waivers: tuple[WaiverUse, ...]
    ledger_use: int | None
    use: int = 1
    last_use: str | None = None


@dataclass(frozen=True)
class Unread:
    """A directory that was named and gave no record, with the sentence that says why."""

    directory: str
    problem: str


@dataclass(frozen=True)
class History:
    """The releases in the order in which they were made, and what could not be read."""

    releases: tuple[Release, ...]
    unread: tuple[Unread, ...]

    @property
    def checks(self) -> tuple[CheckName, ...]:
        """Every anchor that any of the releases was judged at, the most frequent rate first."""
        found = {check for release in self.releases for check in release.readings}
        return tuple(sorted(found, key=lambda check: (-(check.rate or 0), str(check))))


def collect(paths: Iterable[str]) -> History:
    """Read every release named, or held by a directory named, once each; what cannot be read is kept as such."""
    read: list[tuple[Release, _Seen]] = []
    unread: list[Unread] = []
    known: set[str] = set()
    for path in paths:
        try:
            directories = _releases_in(path)
        except GateError as error:
            directories, problem = [], Unread(visible(path), visible(str(error)))
            unread += [] if problem in unread else [problem]
        for directory in directories:
            place = os.path.realpath(directory)
            if place in known:
                continue
            known.add(place)
            try:
                read.append(_release(directory, read_record(directory)))
            except GateError as error:
                unread.append(Unread(visible(directory), visible(str(error))))
    read.sort(key=lambda pair: (pair[0].created, pair[0].name, pair[0].directory))
    return History(_with_the_past(read), tuple(unread))


def _releases_in(path: str) -> list[str]:
    """The directory itself, or the releases directly in it; others in it are no releases and do not count."""
    try:
        if _has_release_files(path):
            return [path]
        inside = sorted(entry.path for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise GateError(
            f"{path}: must be a release directory, or hold some, got {error.strerror}; name what `gate run` wrote"
        ) from None
    found = [directory for directory in inside if _has_release_files(directory)]
    if not found:
        raise GateError(f"{path}: must be a release directory, or hold some, got neither; name what `gate run` wrote")
    return found


def _has_release_files(path: str) -> bool:
    """Also without its record: a release that lost it is broken, not absent."""
    return any(os.path.lexists(Path(path) / name) for name in RELEASE_FILES)


@dataclass(frozen=True)
class _Seen:
    """What only the comparison with other releases needs: held-out rows, what they were asked, and the curve."""

    rows: str
    question: str
    benign: int
    thresholds: tuple[float, ...]
    counts: tuple[int, ...]


def _release(directory: str, record: Record) -> tuple[Release, _Seen]:
    tprs = _detected(record)
    fprs = [f for f in record.findings if f.check.family == "fpr" and f.rate is not None]
    readings = {finding.check: Reading(finding, tprs.get(finding.check.rate)) for finding in fprs}
    uses: Uses | None = record.of(Uses)
    release = Release(
        directory=visible(directory),
        name=record.release,
        kind=record.kind,
        created=record.created,
        outcome=record.outcome,
        reason=record.reason,
        policy=record.policy.name,
        rule=record.policy.rule,
        policy_sha256=record.policy.sha256,
        fit_n=record.fit.n,
        holdout_n=record.holdout.n,
        readings=readings,
        blocking=tuple(f.check for f in record.findings if f.blocks and f.check not in readings),
        waivers=record.waivers,
        ledger_use=None if uses is None else uses.holdout.number,
    )
    points = [point.tally for point in record.curve.points] if record.curve else []
    counted = sorted((tally.threshold, tally.flagged) for tally in points if tally.threshold is not None)
    seen = _Seen(
        rows=record.holdout.rows_sha256 or record.holdout.sha256,
        question=f"{record.calibrator.sha256} {record.policy.sha256}",
        benign=record.holdout.n if points else 0,
        thresholds=tuple(threshold for threshold, _ in counted),
        counts=tuple(count for _, count in counted),
    )
    return release, seen


def _detected(record: Record) -> dict[Decimal | None, Detected]:
    """What was detected, by anchor: the one place where a record is asked for it."""
    found: Detection | None = record.of(Detection)
    alpha = record.alphas.malicious
    counted: dict[Decimal | None, Detected] = {
        at.fpr: Detected(at.tally, at.tally.interval(alpha), None, None) for at in (found.anchors if found else ())
    }
    return counted | {
        f.check.rate: Detected(f.rate.tally, f.rate.interval, f.rate.tolerance[0], f.outcome)
        for f in record.findings
        if f.check.kind == "tpr" and f.rate is not None
    }


def _with_the_past(read: list[tuple[Release, _Seen]]) -> tuple[Release, ...]:
    """Each release with what it shares with those before it: held-out rows, and the first raw thresholds."""
    first: dict[CheckName, tuple[str, float]] = {}
    asked: dict[str, dict[str, str]] = {}
    releases = []
    for release, seen in read:
        readings = {}
        for check, reading in release.readings.items():
            if check in first:
                readings[check] = replace(reading, kept=_flagged(seen, *first[check]))
            elif reading.threshold is not None:
                readings[check] = replace(reading, origin=True)
                first[check] = (release.name, reading.threshold)
            else:
                readings[check] = reading
        uses = asked.setdefault(seen.rows, {})
        others = [name for question, name in uses.items() if question != seen.question]
        uses.setdefault(seen.question, release.name)
        last = others[-1] if others else None
        releases.append(replace(release, readings=readings, use=len(others) + 1, last_use=last))
    return tuple(releases)


def _flagged(seen: _Seen, name: str, threshold: float) -> Flagged | None:
    """The counts at the two points of the curve between which the threshold lies; exact where it is one of them."""
    if not seen.thresholds:
        return None
    below = bisect_right(seen.thresholds, threshold)
    above = bisect_left(seen.thresholds, threshold)
    most = seen.counts[below - 1] if below else seen.benign
    least = seen.counts[above] if above < len(seen.counts) else 0
    return Flagged(name, threshold, min(least, most), max(least, most), seen.benign)
