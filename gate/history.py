"""The history: how the contract held across releases and their checks, from their records alone. It judges nothing."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from gate.checks.check import Finding
from gate.checks.detection import Detection
from gate.checks.reuse import Uses
from gate.errors import GateError
from gate.names import CheckName
from gate.record import Record, read_with_digest
from gate.record.system import DETECTORS, SystemRecord, read_any, require_detector
from gate.statistics.tally import Tally
from gate.storage import CHECKS_DIRECTORY
from gate.stored import Outcome
from gate.verdict import WaiverUse
from gate.words import visible

RELEASE_FILES = ("verdict.json", "manifest.json", "calibrator.json")


@dataclass(frozen=True)
class Flagged:
    """The least and the most held-out rows that an earlier release's raw threshold flags, by the record's curve."""

    release: str
    threshold: float
    least: int
    most: int
    benign: int


@dataclass(frozen=True)
class Detected:
    """The malicious rows at one anchor; `minimum` and `outcome` are null if the policy sets no minimum."""

    tally: Tally
    interval: tuple[float, float]
    minimum: Decimal | None
    outcome: Outcome | None


@dataclass(frozen=True)
class Reading:
    """One anchor in one release. `if_kept` is what the first raw threshold of the history would have done here; the
    threshold is that of the release for which `origin` is true.
    """

    fpr: Finding
    tpr: Detected | None
    threshold: float | None  # the raw threshold, even if calibrated scores were judged
    origin: bool = False
    if_kept: Flagged | None = None


@dataclass(frozen=True)
class PastRelease:
    """One record, of a release or of a check of a release; a check has the release's name.

    `sha256` is the digest of its record; `of_sha256`, which a check has, is the digest of its release's record.
    `blocking` names the checks, other than those of the anchors, that keep it from passing.
    `use` counts the uses of its held-out rows up to this one among the releases read; the same calibrator and policy
    again are no new use. `last_use` names the use before; `ledger_use` is the ledger's count.
    """

    directory: str
    name: str
    kind: str
    created: str
    calibrated: bool
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
    sha256: str
    of_sha256: str | None
    use: int = 1
    last_use: str | None = None


@dataclass(frozen=True)
class Unread:
    """A directory that was named and gave no record, with the sentence that says why."""

    directory: str
    problem: str


@dataclass(frozen=True)
class History:
    """The releases in the order in which they were made, what could not be read, and the record of the latest."""

    releases: tuple[PastRelease, ...]
    unread: tuple[Unread, ...]
    record: Record | SystemRecord | None = None

    @property
    def checks(self) -> tuple[CheckName, ...]:
        """Every anchor at which any of the releases was judged, the highest rate first."""
        found = {check for release in self.releases for check in release.readings}
        return tuple(sorted(found, key=lambda check: (-(check.rate or 0), str(check))))

    def released(self, check: PastRelease) -> PastRelease | None:
        """The release that a check belongs to, by the digest of its record; None if it is not here."""
        return self._by_digest.get(check.of_sha256) if check.of_sha256 is not None else None

    @cached_property
    def _by_digest(self) -> dict[str, PastRelease]:
        return {each.sha256: each for each in self.releases if each.kind == "run"}


def collect(paths: Iterable[str]) -> History:
    """Read once every release that is named or lies in a named directory; an unreadable one is listed as such."""
    read: list[tuple[PastRelease, _ForComparison]] = []
    unread: list[Unread] = []
    last: tuple[tuple[str, str, str], Record | SystemRecord] | None = None
    known: set[str] = set()
    for path in paths:
        for directory, problem in _found(path):
            place = os.path.realpath(directory)
            if problem is None and place in known:
                continue
            known.add(place)
            try:
                if problem is not None:
                    raise GateError(problem)
                record = read_any(directory)
                if isinstance(record, Record):
                    read.append(_release(directory, *read_with_digest(directory)))
                else:
                    read.append(_system(directory, record))
                if last is None or _moment(read[-1][0]) > last[0]:
                    last = _moment(read[-1][0]), record
            except GateError as error:
                missed = Unread(visible(directory), visible(str(error)))
                unread += [] if missed in unread else [missed]
    read.sort(key=lambda pair: _moment(pair[0]))
    return History(_with_the_past(read), tuple(unread), None if last is None else last[1])


def _moment(release: PastRelease) -> tuple[str, str, str]:
    return release.created, release.name, release.directory


def _found(path: str) -> Iterator[tuple[str, str | None]]:
    """The releases that a path names, each with the checks below it, and the directories not readable, with why."""
    try:
        directories = _releases_in(path)
    except GateError as error:
        yield path, str(error)
        return
    for directory in directories:
        yield directory, None
        place = os.path.join(directory, CHECKS_DIRECTORY)
        try:
            yield from ((check, None) for check in _directories_in(place) if _has_release_files(check))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            yield place, f"{place}: must be a directory of checks, got {error.strerror}; name what `gate check` wrote"


def _releases_in(path: str) -> list[str]:
    """The directory itself, or the releases directly in it; others in it are no releases and do not count."""
    try:
        found = (
            [path] if _has_release_files(path) else [each for each in _directories_in(path) if _has_release_files(each)]
        )
    except OSError as error:
        raise GateError(
            f"{path}: must be a release directory, or hold some, got {error.strerror}; name what `gate run` wrote"
        ) from None
    if not found:
        raise GateError(f"{path}: must be a release directory, or hold some, got neither; name what `gate run` wrote")
    return found


def _directories_in(path: str) -> list[str]:
    return sorted(entry.path for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith("."))


def _has_release_files(path: str) -> bool:
    """Whether this is a release, even without its record: a release that lost it is broken, not absent."""
    return any(os.path.lexists(Path(path) / name) for name in RELEASE_FILES)


@dataclass(frozen=True)
class _ForComparison:
    """Facts that only the comparison with other releases needs: held-out rows, the question, and the curve."""

    rows: str
    question: str
    benign: int
    thresholds: tuple[float, ...]
    counts: tuple[int, ...]
    of: Mapping[str | None, _ForComparison] = field(default_factory=dict)  # by detector, if there are several


def _release(directory: str, record: Record, sha256: str) -> tuple[PastRelease, _ForComparison]:
    tprs = _detected(record)
    fprs = [f for f in record.findings if f.check.family == "fpr" and f.rate is not None]
    raw = record.calibrator.thresholds
    readings = {f.check: Reading(f, tprs.get(f.check.rate), raw.get(f.check.rate or Decimal(0))) for f in fprs}
    uses: Uses | None = record.of(Uses)
    reference = record.reference if record.kind == "check" else None
    release = PastRelease(
        directory=visible(directory),
        name=record.release,
        kind=record.kind,
        created=record.created,
        calibrated=record.calibrated,
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
        sha256=sha256,
        of_sha256=None if reference is None else reference.verdict_sha256,
    )
    points = [point.tally for point in record.curve.points] if record.curve and not record.calibrated else []
    counted = sorted((tally.threshold, tally.flagged) for tally in points if tally.threshold is not None)
    seen = _ForComparison(
        rows=record.holdout.rows_sha256 or record.holdout.sha256,
        question=f"{record.calibrator.sha256} {record.policy.sha256}",
        benign=record.holdout.n if points else 0,
        thresholds=tuple(threshold for threshold, _ in counted),
        counts=tuple(count for _, count in counted),
    )
    return release, seen


def _system(directory: str, record: SystemRecord) -> tuple[PastRelease, _ForComparison]:
    """A release of several detectors: every anchor of each, with the detector's name."""
    parts = {}
    for facts in record.detectors:
        require_detector(facts.name, directory)
        place = os.path.join(directory, DETECTORS, facts.name)
        parts[facts.name] = _release(place, *read_with_digest(place))
    readings = {}
    for name, (own, _) in parts.items():
        for check, reading in own.readings.items():
            named = replace(check, detector=name)
            readings[named] = replace(reading, fpr=reading.fpr.model_copy(update={"check": named}))
    first, seen = next(iter(parts.values()))
    whole = replace(
        first,
        directory=visible(directory),
        outcome=record.outcome,
        reason=record.reason,
        policy_sha256=record.policy.sha256,
        readings=readings,
        blocking=tuple(f.check for f in record.findings if f.blocks and f.check not in readings),
        waivers=record.waivers,
    )
    return whole, replace(seen, of={name: own for name, (_, own) in parts.items()})


def _detected(record: Record) -> dict[Decimal | None, Detected]:
    """The malicious rows that were detected, by anchor; only this function reads them from a record."""
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


def _with_the_past(read: list[tuple[PastRelease, _ForComparison]]) -> tuple[PastRelease, ...]:
    """Each release with its uses of held-out rows and the effect of the first raw thresholds."""
    first: dict[CheckName, tuple[str, float]] = {}
    asked: dict[str, dict[str, str]] = {}
    releases = []
    for release, seen in read:
        readings = {}
        for check, reading in release.readings.items():
            if check in first:
                readings[check] = replace(reading, if_kept=_flagged(seen.of.get(check.detector, seen), *first[check]))
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


def _flagged(seen: _ForComparison, name: str, threshold: float) -> Flagged | None:
    """The counts at the two points of the curve between which the threshold lies; exact if it is one of them."""
    if not seen.thresholds:
        return None
    below = bisect_right(seen.thresholds, threshold)
    above = bisect_left(seen.thresholds, threshold)
    most = seen.counts[below - 1] if below else seen.benign
    least = seen.counts[above] if above < len(seen.counts) else 0
    return Flagged(name, threshold, min(least, most), max(least, most), seen.benign)
