"""The release: the record of a verdict, and the directory that holds it, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError

from gate.checks.direction import Direction
from gate.checks.duplicates import Duplicates
from gate.checks.overlap import Overlap
from gate.checks.values import Count, Outcome, Rate, Section, Size
from gate.errors import GateError
from gate.storage import refuse_links, sync_directory
from gate.words import escape_json

if TYPE_CHECKING:
    from gate.calibration.calibrator import Calibrator
    from gate.comparison import Baseline, Change, Comparison, Sample
    from gate.curve import Curve
    from gate.detection import Detected
    from gate.evidence import Evidence, Use
    from gate.policy import Detection, Document, Policy
    from gate.samples import Ages
    from gate.scores import Scores, Split
    from gate.segments import SegmentEvidence
    from gate.verdict import Finding, Verdict, WaiverUse

SCHEMA_VERSION = 1
MAX_RECORD_BYTES = 50_000_000
MAX_CURVE_POINTS = 200
MAX_LISTED_FILES = 100
MAX_LABELS = 10

Positive = Annotated[int, Field(gt=0, le=10**15)]
Share = Annotated[float, Field(ge=-1, le=1)]
Promise = Annotated[float, Field(ge=1e-11, le=1)]  # a contract ends at 1e-10


class ToolSection(Section):
    """`libraries` are the versions on which the bytes of the calibrator and of the reports depend."""

    name: str
    version: str
    libraries: dict[str, str] | None = None


@cache
def libraries() -> dict[str, str]:
    """The versions on which the bytes of a release depend, besides gate's own."""
    names = ("numpy", "scipy", "scikit-learn", "joblib", "matplotlib")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


class PolicySection(Section):
    """`content` is the policy's text to the letter, so that `sha256` can be checked against it."""

    name: str
    rule: str
    confidence: Rate
    path: str
    sha256: str
    content: str


class ColumnsSection(Section):
    """The columns read, after the command line had its say."""

    score: str
    label: str | None
    benign: tuple[str, ...]
    segment: str | None = None
    group: str | None = None
    id: str | None = None
    timestamp: str | None = None


class SourceEntry(Section):
    path: str
    rows: Count
    benign: Count


class FileEntry(Section):
    path: str
    rows: Count


class FilesSection(Section):
    """The files with rows: how many, the first of them, and the digest of all: a line of JSON, `[path, rows]`, each."""

    count: Count
    sha256: str
    first: tuple[FileEntry, ...] = Field(max_length=MAX_LISTED_FILES)


class LabelEntry(Section):
    label: str
    rows: Count
    taken_for: Literal["benign", "malicious"]


class LabelsSection(Section):
    """How many distinct labels there are, and the first of them: the benign ones, then those of most rows."""

    distinct: Count
    first: tuple[LabelEntry, ...] = Field(max_length=MAX_LABELS)


class SampleSection(Section):
    """Where rows came from, and what they were taken for; `sha256` is that of the scores with their counts.

    `unread_labels` are columns named like labels, where the policy names no label column.
    """

    sources: tuple[SourceEntry, ...]
    sha256: str
    n: Count
    files: FilesSection | None = None
    labels: LabelsSection | None = None
    unread_labels: tuple[str, ...] = ()


class FitSection(SampleSection):
    """The rows that the calibrator was fitted on."""

    distinct: Count
    lowest_label: Rate
    largest_tie: Count | None = None
    oldest: str | None = None
    newest: str | None = None


class HoldoutSection(SampleSection):
    """`rows_sha256` is over the sorted ids of the rows, where the policy names a column of them."""

    rows_sha256: str | None = None
    groups: Count | None = None
    oldest: str | None = None
    newest: str | None = None


class SegmentTargetEntry(Section):
    fpr: Promise
    false_positives: tuple[Count, ...]
    effective_n: tuple[Size, ...]


class SegmentsSection(Section):
    """Every segment with its rows and counts, in one order; the findings name only the worst."""

    column: str
    names: tuple[str, ...]
    benign: tuple[Count, ...]
    targets: tuple[SegmentTargetEntry, ...]


class DetectionEntry(Section):
    """The malicious rows at one anchor; `interval` is of the share detected."""

    fpr: Promise
    score: Rate
    threshold: float | None
    true_positives: Count
    malicious: Positive
    effective_n: Size
    interval: tuple[Rate, Rate]


class MaliciousSection(SampleSection):
    """The malicious rows: those of `sources` that are not benign, and what they show at each anchor."""

    rows_sha256: str | None = None
    groups: Count | None = None
    anchors: tuple[DetectionEntry, ...] = ()


class ChangeEntry(Section):
    """One anchor on benign rows under the baseline and under this release; rates are flagged / benign.

    `difference` is new less old, and `stale_false_positives` what the baseline's raw threshold flags of the new scores.
    Where both releases scored the same rows all counts are of these.
    """

    fpr: Promise
    score: Rate
    old_threshold: float | None
    new_threshold: float | None
    old_false_positives: Count
    old_benign: Positive
    false_positives: Count
    benign: Positive
    stale_false_positives: Count | None
    stale_interval: tuple[Rate, Rate] | None
    paired: bool
    p_value: Rate | None
    difference: Share
    difference_interval: tuple[Share, Share] | None
    newly_flagged: Count | None = None
    no_longer_flagged: Count | None = None
    rows: Positive | None = None


class DetectionChangeEntry(Section):
    """The same on malicious rows."""

    fpr: Promise
    score: Rate
    old_true_positives: Count
    old_malicious: Positive
    true_positives: Count
    malicious: Positive
    paired: bool
    p_value: Rate | None
    difference: Share
    difference_interval: tuple[Share, Share] | None
    newly_detected: Count | None = None
    no_longer_detected: Count | None = None
    rows: Positive | None = None


class BaselineSection(Section):
    """The release that this one is held against; of a check, the release that was checked.

    `sources` and `malicious_sources` hold the baseline's scores of the same rows, where these were given.
    """

    path: str
    release: str
    created: str
    outcome: Outcome
    verdict_sha256: str
    policy_sha256: str
    holdout_sha256: str | None = None
    rows_sha256: str | None = None
    policy_changes: tuple[str, ...] = ()
    anchors: tuple[ChangeEntry, ...] = ()
    detection: tuple[DetectionChangeEntry, ...] = ()
    sources: tuple[SourceEntry, ...] = ()
    malicious_sources: tuple[SourceEntry, ...] = ()


class SplitSection(Section):
    """How one benign sample was divided; null where fit and held-out rows came apart already."""

    fraction: float
    seed: int
    by: str
    cut: str | None = None


class ReuseSection(Section):
    """The held-out rows' history in the ledger; `confidence` is what this use of them was judged at.

    Each earlier judgement `shared` so much of the smaller set of rows; null where that cannot be told.
    """

    ledger: str
    use: Count
    earlier: tuple[str, ...]
    confidence: Rate
    shared: tuple[Rate | None, ...] = ()


class AnchorEntry(Section):
    fpr: Rate
    score: Rate


class CalibratorSection(Section):
    sha256: str
    bytes: Count
    knots: Count
    plotting_position: str
    ties: str
    contract: tuple[AnchorEntry, ...]


class FindingEntry(Section):
    """One check; the numbers from `target_fpr` on belong to FPR checks, those from `true_positives` on to detection.

    `drift_counts` are the rows of both samples that reach one score and the held-out ones among them; a threshold
    near the target flags the first or the second number of `tied` fit rows. Of a drop in detection, `interval` is that
    of `difference`, which is new less old.
    """

    check: str
    outcome: Outcome
    grade: Literal["proven", "open", "refuted"] | None
    required: bool
    waived: bool
    blocks: bool
    reason: str
    message: str
    remedy: str | None
    target_fpr: Promise | None = None
    score: Rate | None = None
    threshold: float | None = None
    false_positives: Count | None = None
    benign: Count | None = None
    effective_n: Size | None = None
    min_n: Count | None = None
    observed_fpr: Rate | None = None
    interval: tuple[Share, Share] | None = None
    plain_interval: tuple[Rate, Rate] | None = None
    relative_error: float | None = None
    tolerance: tuple[Rate, Rate] | None = None
    accepts: tuple[Count, Count] | None = None
    predicted: tuple[Count, Count] | None = None
    drift_p_value: Rate | None = None
    drift_counts: tuple[Count, Count] | None = None
    tied: tuple[Count, Count] | None = None
    true_positives: Count | None = None
    malicious: Count | None = None
    observed_tpr: Rate | None = None
    min_tpr: Rate | None = None
    old_true_positives: Count | None = None
    old_malicious: Count | None = None
    difference: Share | None = None
    max_drop: Rate | None = None


class CurvePoint(Section):
    """The held-out rows at one calibrated score; `threshold` is the smallest raw score that reaches it."""

    score: Rate
    expected_fpr: Promise
    threshold: float | None
    false_positives: Count
    interval: tuple[Rate, Rate]


class RocPoint(Section):
    fpr: Promise
    threshold: float | None
    true_positives: Count


class RocSection(Section):
    """What the malicious scores reach at each promised FPR."""

    malicious: Count
    points: tuple[RocPoint, ...] = Field(max_length=MAX_CURVE_POINTS)


class CurveSection(Section):
    """The whole contract at a bounded number of points, for figures without data; beyond `floor` it is extrapolated."""

    benign: Count
    floor: AnchorEntry
    points: tuple[CurvePoint, ...] = Field(max_length=MAX_CURVE_POINTS)
    roc: RocSection | None = None


class ExchangeabilitySection(Section):
    """Rows of both samples that reach each of a list of scores, and the held-out ones among them."""

    counts: tuple[tuple[Count, Count], ...] = Field(max_length=MAX_CURVE_POINTS)


class WaiverEntry(Section):
    check: str
    reason: str
    owner: str
    expires: str
    status: Literal["active", "expired", "unused"]


class NotAskedEntry(Section):
    """What the policy asks of a release and a check cannot ask again, and what it would need."""

    check: str
    needs: str


class Record(Section):
    """Everything a report needs, without the data.

    Of a check, in which nothing was fitted, `fit` and `calibrator` are those of the release that was checked.
    `judged_on` is the day by which waivers and ages were judged, where the policy has any. `first_release` says that
    there was none to compare with, by declaration.
    """

    schema_version: Literal[1]
    kind: Literal["run", "check"] = "run"
    tool: ToolSection
    release: str
    created: str
    judged_on: str | None = None
    outcome: Outcome
    reason: str
    policy: PolicySection
    data: ColumnsSection
    fit: FitSection
    holdout: HoldoutSection
    calibrator: CalibratorSection
    findings: tuple[FindingEntry, ...]
    not_asked: tuple[NotAskedEntry, ...] = ()
    waivers: tuple[WaiverEntry, ...]
    warnings: tuple[str, ...] = ()
    reuse: ReuseSection | None = None
    split: SplitSection | None = None
    overlap: Overlap | None = None
    duplicates: Duplicates | None = None
    segments: SegmentsSection | None = None
    curve: CurveSection | None = None
    malicious: MaliciousSection | None = None
    direction: Direction | None = None
    baseline: BaselineSection | None = None
    first_release: bool = False
    exchangeability: ExchangeabilitySection | None = None

    def to_json(self) -> str:
        return json_text(self.model_dump(mode="json"))


def json_text(content: dict[str, Any]) -> str:
    """In a log, `##[error]` would be a command to the CI system."""
    return escape_json(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def compose(
    *,
    release: str,
    created: datetime,
    judged_on: date | None = None,
    version: str,
    libraries: dict[str, str] | None = None,
    document: Document,
    fit: Scores | Record,
    holdout: Scores,
    calibrator: Calibrator,
    verdict: Verdict,
    evidence: Evidence | None = None,
    warnings: tuple[str, ...] = (),
    ledger: str | None = None,
    split: Split | None = None,
    curve: Curve | None = None,
    malicious: Scores | None = None,
) -> Record:
    """Put together what was decided and where it came from.

    Where nothing was fitted, the record of the release that was checked stands in the place of the fit sample.
    """
    policy, scan = document.policy, evidence.tail_scan if evidence else None
    return Record(
        schema_version=SCHEMA_VERSION,
        kind="check" if isinstance(fit, Record) else "run",
        tool=ToolSection(name="fpr-gate", version=version, libraries=libraries),
        release=release,
        created=stamp(created),
        judged_on=judged_on.isoformat() if judged_on and judged_by_day(policy) else None,
        outcome=verdict.outcome,
        reason=verdict.reason,
        policy=PolicySection(
            name=policy.name,
            rule=policy.rule,
            confidence=float(policy.confidence),
            path=_storable(document.path),
            sha256=document.sha256,
            content=document.text,
        ),
        data=ColumnsSection(**policy.data.model_dump()),
        fit=fit.fit if isinstance(fit, Record) else _fit(fit, calibrator, evidence),
        holdout=HoldoutSection(
            **sample_entry(holdout),
            rows_sha256=holdout.rows_sha256,
            groups=None if holdout.groups is None else len(holdout.group_sizes),
            **_days(evidence.holdout_ages if evidence else None),
        ),
        calibrator=fit.calibrator if isinstance(fit, Record) else _calibrator(policy, calibrator),
        findings=tuple(finding_entry(policy, finding) for finding in verdict.findings),
        not_asked=tuple(NotAskedEntry(**asdict(entry)) for entry in verdict.not_asked),
        waivers=tuple(waiver_entry(use) for use in verdict.waivers),
        warnings=warnings,
        reuse=reuse_entry(document.policy, ledger, verdict.use),
        split=None if split is None else SplitSection(**asdict(split)),
        overlap=evidence.overlap if evidence else None,
        duplicates=evidence.duplicates if evidence else None,
        segments=_segments(evidence.segments) if evidence and evidence.segments else None,
        curve=curve_entry(curve) if curve else None,
        malicious=None if malicious is None else _malicious(malicious, (evidence and evidence.detection) or ()),
        direction=evidence.direction if evidence else None,
        baseline=baseline_section(evidence.comparison) if evidence and evidence.comparison else None,
        first_release=bool(evidence and evidence.first_release),
        exchangeability=ExchangeabilitySection(counts=scan.counts) if scan else None,
    )


def judged_by_day(policy: Policy) -> bool:
    """Whether the verdict depends on the day."""
    return bool(policy.waivers) or policy.checks.freshness is not None


def stamp(created: datetime) -> str:
    return created.strftime("%Y-%m-%dT%H:%M:%SZ")


def _fit(fit: Scores, calibrator: Calibrator, evidence: Evidence | None) -> FitSection:
    return FitSection(
        **sample_entry(fit),
        distinct=calibrator.facts.distinct,
        lowest_label=calibrator.facts.lowest_label,
        largest_tie=evidence.resolution.largest_tie if evidence and evidence.resolution else None,
        **_days(evidence.fit_ages if evidence else None),
    )


def _calibrator(policy: Policy, calibrator: Calibrator) -> CalibratorSection:
    return CalibratorSection(
        sha256=calibrator.sha256,
        bytes=len(calibrator.artifact),
        knots=len(calibrator.knots[0]),
        plotting_position=policy.calibration.plotting_position,
        ties=policy.calibration.ties,
        contract=tuple(AnchorEntry(fpr=float(p.fpr), score=float(p.score)) for p in policy.contract),
    )


def _malicious(malicious: Scores, detection: tuple[Detected, ...]) -> MaliciousSection:
    return MaliciousSection(
        **sample_entry(malicious),
        rows_sha256=malicious.rows_sha256,
        groups=None if malicious.groups is None else len(malicious.group_sizes),
        anchors=tuple(detection_entry(found) for found in detection),
    )


def detection_entry(found: Detected) -> DetectionEntry:
    return DetectionEntry(
        fpr=float(found.anchor.fpr),
        score=float(found.anchor.score),
        threshold=found.threshold,
        true_positives=found.true_positives,
        malicious=found.malicious,
        effective_n=found.effective_n,
        interval=found.interval,
    )


def baseline_section(comparison: Comparison) -> BaselineSection:
    """A comparison as the record keeps it."""
    old = comparison.baseline
    scored = [None if sample is None else sample.scores for sample in (old.benign, old.malicious)]
    sources, malicious_sources = (() if scores is None else _sources(scores) for scores in scored)
    return BaselineSection(
        path=_storable(old.path),
        release=old.release,
        created=old.created,
        outcome=old.outcome,
        verdict_sha256=old.verdict_sha256,
        policy_sha256=old.policy_sha256,
        holdout_sha256=old.scores_sha256,
        rows_sha256=old.rows_sha256,
        policy_changes=comparison.policy_changes,
        anchors=tuple(change_entry(change) for change in comparison.benign),
        detection=tuple(detection_change_entry(change) for change in comparison.malicious),
        sources=sources,
        malicious_sources=malicious_sources,
    )


def change_entry(change: Change) -> ChangeEntry:
    pairs = change.pairs
    return ChangeEntry(
        fpr=float(change.anchor.fpr),
        score=float(change.anchor.score),
        old_threshold=change.old.threshold,
        new_threshold=change.new.threshold,
        old_false_positives=change.old.flagged,
        old_benign=change.old.rows,
        false_positives=change.new.flagged,
        benign=change.new.rows,
        stale_false_positives=change.stale,
        stale_interval=change.stale_interval,
        paired=pairs is not None,
        p_value=change.p_value,
        difference=change.difference,
        difference_interval=change.interval,
        newly_flagged=None if pairs is None else int(pairs.new_only),
        no_longer_flagged=None if pairs is None else int(pairs.old_only),
        rows=None if pairs is None else change.new.rows,
    )


def detection_change_entry(change: Change) -> DetectionChangeEntry:
    pairs = change.pairs
    return DetectionChangeEntry(
        fpr=float(change.anchor.fpr),
        score=float(change.anchor.score),
        old_true_positives=change.old.flagged,
        old_malicious=change.old.rows,
        true_positives=change.new.flagged,
        malicious=change.new.rows,
        paired=pairs is not None,
        p_value=change.p_value,
        difference=change.difference,
        difference_interval=change.interval,
        newly_detected=None if pairs is None else int(pairs.new_only),
        no_longer_detected=None if pairs is None else int(pairs.old_only),
        rows=None if pairs is None else change.new.rows,
    )


def waiver_entry(use: WaiverUse) -> WaiverEntry:
    return WaiverEntry(
        check=use.waiver.check,
        reason=use.waiver.reason,
        owner=use.waiver.owner,
        expires=use.waiver.expires.isoformat(),
        status=use.status,
    )


def reuse_entry(policy: Policy, ledger: str | None, use: Use | None) -> ReuseSection | None:
    if ledger is None or use is None:
        return None
    confidence = float(1 - policy.alpha(use.number))
    counted = {"use": use.number, "earlier": use.earlier, "shared": use.shared}
    return ReuseSection(ledger=_storable(ledger), confidence=confidence, **counted)


def sample_entry(scores: Scores) -> dict[str, Any]:
    """What the record says of any sample."""
    files = tuple(FileEntry(path=_storable(piece.file.name), rows=piece.rows) for piece in scores.pieces)
    return {
        "sources": _sources(scores),
        "sha256": scores.sha256,
        "n": len(scores),
        "files": FilesSection(count=len(files), sha256=digest_files(files), first=files[:MAX_LISTED_FILES])
        if files
        else None,
        "labels": scores.labels and LabelsSection(**asdict(scores.labels)),
        "unread_labels": scores.unread,
    }


def digest_files(files: Iterable[FileEntry]) -> str:
    lines = (json.dumps([file.path, file.rows], ensure_ascii=False) + "\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _sources(scores: Scores) -> tuple[SourceEntry, ...]:
    return tuple(SourceEntry(path=_storable(s.path), rows=s.rows, benign=s.benign) for s in scores.sources)


def _days(ages: Ages | None) -> dict[str, str]:
    return {} if ages is None else {"oldest": ages.oldest.isoformat(), "newest": ages.newest.isoformat()}


def _segments(evidence: SegmentEvidence) -> SegmentsSection:
    return SegmentsSection(
        column=evidence.column,
        names=evidence.names,
        benign=evidence.benign,
        targets=tuple(
            SegmentTargetEntry(
                fpr=float(counts.fpr), false_positives=counts.false_positives, effective_n=counts.effective_n
            )
            for counts in evidence.counts
        ),
    )


def curve_entry(curve: Curve) -> CurveSection:
    return CurveSection(
        benign=curve.benign,
        floor=AnchorEntry(fpr=float(curve.floor.fpr), score=float(curve.floor.score)),
        points=tuple(
            CurvePoint(
                score=point.score,
                expected_fpr=point.expected_fpr,
                threshold=point.threshold,
                false_positives=point.false_positives,
                interval=point.interval,
            )
            for point in curve.points
        ),
        roc=None if curve.malicious is None else _roc(curve, curve.malicious),
    )


def _roc(curve: Curve, malicious: int) -> RocSection:
    return RocSection(
        malicious=malicious,
        points=tuple(
            RocPoint(fpr=point.expected_fpr, threshold=point.threshold, true_positives=point.true_positives)
            for point in curve.points
            if point.true_positives is not None
        ),
    )


def _storable(path: str) -> str:
    """A path as UTF-8 can hold it: file names are bytes, and may be no text at all."""
    return path.encode(errors="backslashreplace").decode()


def finding_entry(policy: Policy, finding: Finding) -> FindingEntry:
    entry = FindingEntry(
        check=finding.check,
        outcome=finding.outcome,
        grade=finding.grade,
        required=finding.required,
        waived=finding.waived,
        blocks=finding.blocks,
        reason=finding.reason,
        message=finding.message,
        remedy=finding.remedy,
    )
    if finding.detected is not None:
        return entry.model_copy(update=_detection_numbers(finding.detected, finding.accepts))
    if finding.change is not None and policy.checks.detection is not None:
        return entry.model_copy(update=_drop_numbers(finding.change, policy.checks.detection))
    measured = finding.measurement
    if measured is None:
        return entry
    low, high = measured.tolerance
    numbers = {
        "target_fpr": float(measured.target.fpr),
        "score": float(measured.score),
        "threshold": measured.threshold,
        "false_positives": measured.false_positives,
        "benign": measured.benign,
        "effective_n": measured.effective_n,
        "min_n": measured.target.min_n,
        "observed_fpr": measured.observed_fpr,
        "interval": measured.interval,
        "plain_interval": measured.plain_interval,
        "relative_error": measured.relative_error,
        "tolerance": (float(low), float(high)),
        "accepts": finding.accepts,
        "predicted": measured.predicted,
        "drift_p_value": None if measured.drift is None else measured.drift.p_value,
        "drift_counts": None if measured.drift is None else (measured.drift.pooled, measured.drift.held_out),
        "tied": None if measured.tied is None else (measured.tied.above, measured.tied.through),
    }
    return entry.model_copy(update=numbers)


def _detection_numbers(found: Detected, accepts: tuple[int, int] | None) -> dict[str, Any]:
    return {
        "target_fpr": float(found.anchor.fpr),
        "score": float(found.anchor.score),
        "threshold": found.threshold,
        "true_positives": found.true_positives,
        "malicious": found.malicious,
        "effective_n": found.effective_n,
        "observed_tpr": found.observed_tpr,
        "interval": found.interval,
        "min_tpr": None if found.target is None else float(found.target.min_tpr),
        "accepts": accepts,
    }


def _drop_numbers(change: Change, check: Detection) -> dict[str, Any]:
    return {
        "target_fpr": float(change.anchor.fpr),
        "score": float(change.anchor.score),
        "threshold": change.new.threshold,
        "true_positives": change.new.flagged,
        "malicious": change.new.rows,
        "observed_tpr": change.new.flagged / change.new.rows,
        "old_true_positives": change.old.flagged,
        "old_malicious": change.old.rows,
        "difference": change.difference,
        "interval": change.interval,
        "max_drop": None if check.max_drop is None else float(check.max_drop),
    }


def schema() -> dict[str, Any]:
    """The JSON Schema of `verdict.json`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Record.model_json_schema()}


# --- the directory ------------------------------------------------------------------------------------------


def read_record(directory: str | Path) -> Record:
    """Read `verdict.json` back, or say what is wrong with it."""
    path = Path(directory) / "verdict.json"
    return parse_record(_read_bytes(path, "the record of a release"), path)


@dataclass(frozen=True)
class StoredRelease:
    """A release directory whose record, and calibrator where it has one, are those that its manifest names."""

    path: str
    record: Record
    verdict_sha256: str
    calibrator_json: bytes | None


def read_release(directory: str | Path) -> StoredRelease:
    """Read a release to rely on: what its manifest does not vouch for is refused."""
    place = Path(directory)
    manifest = place / "manifest.json"
    try:
        digests = dict(json.loads(_read_bytes(manifest, "the manifest of a release"))["sha256"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise GateError(f"{manifest}: must be a manifest that `gate run` wrote; restore the release") from None
    found = {}
    for name in ("verdict.json", "calibrator.json"):
        if name not in digests and name == "calibrator.json":  # a check has none
            continue
        found[name] = _read_bytes(place / name, "a file of a release")
        if hashlib.sha256(found[name]).hexdigest() != digests.get(name):
            raise GateError(f"{place / name}: must be as manifest.json says, got other bytes; restore the release")
    record = parse_record(found["verdict.json"], place / "verdict.json")
    return StoredRelease(str(directory), record, str(digests["verdict.json"]), found.get("calibrator.json"))


def as_baseline(stored: StoredRelease) -> Baseline:
    """A stored release as one that another is held against."""
    from gate.comparison import Baseline

    record = stored.record
    if record.kind != "run":
        raise GateError(f"{stored.path}: must be a release, got a check of {record.release}; name the release itself")
    benign, malicious = recorded_samples(record)
    return Baseline(
        path=stored.path,
        release=record.release,
        created=record.created,
        outcome=record.outcome,
        verdict_sha256=stored.verdict_sha256,
        policy_sha256=record.policy.sha256,
        policy=recorded_policy(stored).policy,
        benign=benign,
        malicious=malicious,
        scores_sha256=record.holdout.sha256,
        rows_sha256=record.holdout.rows_sha256,
    )


def read_calibrator(stored: StoredRelease) -> Calibrator:
    """The calibrator of a stored release, from its JSON and never from its pickle."""
    from gate.calibration.calibrator import from_json

    if stored.calibrator_json is None:
        raise GateError(f"{stored.path}: must be a release with a calibrator.json, got none; name the release itself")
    try:
        text = stored.calibrator_json.decode()
    except UnicodeDecodeError:
        raise GateError(f"{stored.path}/calibrator.json: must be UTF-8 text; restore the release") from None
    return from_json(text, f"{stored.path}/calibrator.json")


def recorded_policy(stored: StoredRelease) -> Document:
    """The policy that a release was judged by, with the columns that were read."""
    from gate.policy import parse

    record = stored.record
    return parse(record.policy.content, record.policy.path).with_columns(record.data.model_dump())


def recorded_samples(record: Record) -> tuple[Sample, Sample | None]:
    """The counts at each anchor on held-out benign rows and on malicious ones, as far as they were recorded.

    Records without a curve know the targets only.
    """
    from gate.comparison import Counted, Sample

    targets = {f.target_fpr: f for f in record.findings if f.check.startswith("fpr@") and "/" not in f.check}
    grouped = record.holdout.groups is not None
    points = {point.expected_fpr: (point.threshold, point.false_positives) for point in _points(record)}
    benign = {}
    for anchor in record.calibrator.contract:
        target = targets.get(anchor.fpr)
        if target is not None and target.false_positives is not None:
            points.setdefault(anchor.fpr, (target.threshold, target.false_positives))
        if anchor.fpr in points:
            worth = float(record.holdout.n) if not grouped else target.effective_n if target else None
            benign[_decimal(anchor.fpr)] = Counted(*points[anchor.fpr], record.holdout.n, worth)
    if record.malicious is None:
        return Sample(benign), None
    detected = {
        _decimal(entry.fpr): Counted(entry.threshold, entry.true_positives, entry.malicious, entry.effective_n)
        for entry in record.malicious.anchors
    }
    return Sample(benign), Sample(detected)


def _points(record: Record) -> tuple[CurvePoint, ...]:
    return () if record.curve is None else record.curve.points


def _decimal(fpr: float) -> Decimal:
    """The rate as a policy writes it: floats keep all digits that an anchor may have."""
    return Decimal(repr(fpr))


def _read_bytes(path: Path, what: str) -> bytes:
    try:
        raw = read_regular(path, MAX_RECORD_BYTES)
    except OSError as error:
        raise GateError(
            f"{path}: must be {what}, got {error.strerror}; name a directory that `gate run` wrote"
        ) from None
    if len(raw) > MAX_RECORD_BYTES:
        raise GateError(f"{path}: must be {what} of at most {MAX_RECORD_BYTES:,} bytes; is this another file?")
    return raw


def read_regular(path: Path, most: int, follow: bool = True) -> bytes:
    """The bytes of a file, at most one more than `most`; a pipe would be waited for, a device may never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "something that is no file")
        return file.read(min(most, status.st_size) + 1)  # which asks for as much memory at once


def parse_record(raw: bytes, path: str | Path) -> Record:
    """The record in the bytes of a `verdict.json`; `path` only names it in messages."""
    try:
        content = json.loads(raw)
        json.dumps(content, ensure_ascii=False).encode()  # JSON can name half a character, which no report could show
    except (ValueError, RecursionError) as error:
        raise GateError(f"{path}: must be JSON, got an error: {error}; write it again with `gate run`") from None
    known = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(known, int) and known > SCHEMA_VERSION:
        raise GateError(f"{path}: schema_version must be at most {SCHEMA_VERSION}, got {known}; upgrade gate")
    try:
        return Record.model_validate(content)
    except ValidationError as error:
        detail = error.errors()[0]
        key = ".".join(str(step) for step in detail["loc"]) or "record"
        message = f"{path}: {key}: must follow `gate schema record`, got an error: {detail['msg']}"
        raise GateError(f"{message}; write it again with `gate run`") from None


def refuse_existing(directory: str | Path, force: bool) -> str:
    """Stop before any work is done where the result could not be put; what `write` may replace there, by its digest."""
    target = Path(directory)
    try:
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            raise GateError(f"{target}: must be a new directory, got something else; choose another --out")
        refuse_links(target)
        parent = next(path for path in target.absolute().parents if path.exists())
        if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
            raise GateError(f"{target}: must be in a directory that can be written, which {parent} is not")
        if not target.exists() or not any(target.iterdir()):
            return NOTHING
        if not force:
            raise GateError(f"{target}: must not exist yet; choose another --out, or --force to replace this release")
        if not _is_release(target):
            raise GateError(
                f"{target}: must be a release for --force to replace it, got a directory without a release's "
                "manifest.json; choose another --out"
            )
        return _identity(target)
    except OSError as error:
        raise GateError(f"{target}: must be a directory that can be written, got {error.strerror}") from None


NOTHING = "nothing"  # what is there to replace where no release is


def _identity(directory: Path) -> str:
    """A release by its manifest: another run that has written there since shows in it."""
    try:
        return hashlib.sha256(read_regular(directory / "manifest.json", MAX_RECORD_BYTES)).hexdigest()
    except FileNotFoundError:
        return NOTHING


def _is_release(directory: Path) -> bool:
    """Whether its manifest is one that `write` wrote: other programs have a manifest.json too."""
    try:
        return "verdict.json" in json.loads(read_regular(directory / "manifest.json", MAX_RECORD_BYTES))["sha256"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False


def write(directory: str | Path, files: Mapping[str, bytes], force: bool, replaces: str | None = None) -> None:
    """Write the files and their manifest beside the target, then rename: the directory appears whole.

    `replaces` is what `refuse_existing` found when the run began. Where another run has written there since, that
    one has won, and this one says so.
    """
    target = Path(os.path.abspath(directory))
    try:
        refuse_links(target.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        if replaces is None:
            replaces = refuse_existing(target, force)
        with _staging(target.parent) as staging:
            for name, data in {**files, "manifest.json": manifest_of(files)}.items():
                _write_durably(staging / name, data)
            staging.chmod(0o777 & ~_umask())
            with _locked(target.parent):
                if _identity(target) != replaces:
                    raise GateError(
                        f"{target}: must be written by one run at a time, got a release that another run has written "
                        "meanwhile; that one stays, nothing else was written"
                    )
                refuse_existing(target, force)
                sync_directory(staging)
                _put_in_place(staging, target)
            for parent in (target.parent, target.parent.parent):  # which this run may have made
                sync_directory(parent)
    except OSError as error:
        raise GateError(f"{target}: must be writable, got {error.strerror or error}; nothing was written") from None


def manifest_of(files: Mapping[str, bytes]) -> bytes:
    """The content of `manifest.json`: the digest of every other file."""
    digests = {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)}
    return (json.dumps({"schema_version": SCHEMA_VERSION, "sha256": digests}, indent=2) + "\n").encode()


@contextlib.contextmanager
def _staging(parent: Path) -> Iterator[Path]:
    """A new directory to write in, locked while this process lives, and gone at the end.

    A process that is killed leaves its directory behind, unlocked: the next run here removes it.
    """
    staging = parent / f".gate-{secrets.token_hex(8)}.partial"
    with contextlib.ExitStack() as lock:
        lock.callback(_remove, staging)  # before it is made: a signal may come at any moment
        with _locked(parent):
            for left in parent.glob(".gate-*.partial"):
                with contextlib.suppress(OSError), _locked(left, wait=False):
                    shutil.rmtree(left, ignore_errors=True)
            staging.mkdir(mode=0o700)
            lock.enter_context(_locked(staging))
        yield staging


def _remove(staging: Path) -> None:
    """Delete it even where a signal comes in between."""
    try:
        shutil.rmtree(staging, ignore_errors=True)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


@contextlib.contextmanager
def _locked(directory: Path, wait: bool = True) -> Iterator[None]:
    """Hold a directory's lock, which the system takes back from a process that dies; no file is left behind.

    Without `wait`, an error where another process holds it. Some network file systems lock no directories: there
    nothing tells a dead process's directory from a living one's, and it stays.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW if not wait else os.O_RDONLY)
    try:
        with contextlib.suppress(OSError) if wait else contextlib.nullcontext():
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes) -> None:
    """Write one file beside its place and rename it there, so that no half of it is ever seen.

    A device or a pipe is written into: a rename would replace `/dev/null` by a file.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        place = Path(os.path.realpath(path))  # through a link, to the file that it names
        staging = place.parent / f".gate-{secrets.token_hex(8)}.partial"
        try:
            _write_durably(staging, data)
            staging.replace(place)
            sync_directory(place.parent)
        finally:
            staging.unlink(missing_ok=True)
    except OSError as error:
        raise GateError(f"{path}: must be writable, got {error.strerror or error}; nothing was written") from None


def _write_durably(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _put_in_place(staging: Path, target: Path) -> None:
    """Rename onto the target. An older release there changes places with the new one in one step.

    Where the file system cannot do that, the older one is set aside first and comes back whatever goes wrong.
    """
    if not target.exists() or not any(target.iterdir()):
        staging.rename(target)
        return
    if _exchanged(staging, target):
        return
    aside = Path(tempfile.mkdtemp(prefix=".gate-", suffix=".replaced", dir=target.parent))
    old = aside / "release"
    try:
        target.rename(old)
        staging.rename(target)
    except BaseException:
        _put_back(old, target)
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two directories change places at once, by Linux's renameat2; False where there is no such thing."""
    import ctypes

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code))


def _put_back(old: Path, target: Path) -> None:
    """Undo the setting aside; where that fails too, nothing is deleted and the message says where it is."""
    try:
        if old.exists():
            old.rename(target)
    except OSError as error:
        raise GateError(
            f"{target}: must be writable, got {error.strerror}; the release that was here is in {old}"
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
