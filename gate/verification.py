"""Verification: whether a release directory is what its own counts and policy give. It trusts no file in it.

Each check says that something holds, does not hold, or cannot be checked here; the last is no pass. The pickle is
never loaded. What the data give is for `repetition` to tell.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from gate import policy as policies
from gate import segments
from gate.advice import warnings_of
from gate.calibration.calibrator import Calibrator, from_json
from gate.checks.direction import Direction
from gate.checks.duplicates import Duplicates
from gate.checks.overlap import Overlap
from gate.checks.shared import Shared
from gate.comparison import Baseline, Change, Comparison, Counted, Sample, unpaired
from gate.contract import Anchor, Contract
from gate.curve import curve_of, grid
from gate.detection import Detected, measure_anchor
from gate.errors import GateError, plural
from gate.evidence import Evidence, Measurement, Use, by_rate, measure_target, predicted_counts
from gate.ledger import FURTHER
from gate.planning import Budget
from gate.policy import Document, Policy, Target
from gate.release import (
    MAX_LABELS,
    MAX_LISTED_FILES,
    ChangeEntry,
    DetectionChangeEntry,
    FindingEntry,
    Record,
    SampleSection,
    StoredRelease,
    change_entry,
    curve_entry,
    detection_change_entry,
    detection_entry,
    digest_files,
    finding_entry,
    judged_by_day,
    libraries,
    manifest_of,
    parse_record,
    read_regular,
    read_release,
    recorded_samples,
    reuse_entry,
    waiver_entry,
)
from gate.report.formats import rendered
from gate.samples import Ages, Resolution, TieBlock
from gate.segments import SegmentEvidence, TargetCounts
from gate.statistics.binomial import clopper_pearson
from gate.statistics.exchangeability import TailScan, compare_counts, scan_counts
from gate.statistics.proportions import Pairs, mcnemar, paired_interval
from gate.verdict import Verdict, judge

MAX_FILES = 100
MAX_BYTES = 100_000_000  # of one file
MAX_ROWS = 10**10

Thresholds = Mapping[Decimal, float | None]
State = Literal["holds", "does not hold", "cannot be checked"]
# Sentences may change from version to version of gate; what they say of the verdict may not.
SENTENCES = ("message", "remedy")


@dataclass(frozen=True)
class Check:
    """One line of the answer."""

    name: str
    state: State
    message: str

    @property
    def line(self) -> str:
        return f"{self.state}: {self.name}: {self.message}"


class CheckError(Exception):
    """Why a check does not hold, or cannot be made."""

    def __init__(self, message: str, state: State = "does not hold") -> None:
        super().__init__(message)
        self.state = state


@dataclass(frozen=True)
class Inspection:
    """What a directory shows by itself; the record and its policy where these could be read."""

    checks: tuple[Check, ...]
    record: Record | None = None
    document: Document | None = None


def inspect(directory: str | Path, pinned: Document | None = None) -> Inspection:
    """Every check that takes no data, in order; `pinned` is the policy, with its columns, that it must be judged by."""
    files, strange = load(Path(directory))
    checks = [checked("manifest", lambda: _check_manifest(files, strange))]
    try:
        record = parse_record(files.get("verdict.json", b""), Path(directory) / "verdict.json")
    except GateError as error:
        if checks[0].state != "does not hold":
            raise
        return Inspection((*checks, Check("record", "does not hold", str(error))))
    reports = rendered(record)
    checks.append(checked("kind", lambda: _check_kind(files, record, {*reports})))
    try:
        document = _document(record, pinned)
    except CheckError as objection:
        return Inspection((*checks, Check("policy", objection.state, str(objection))), record)
    policy = document.policy
    which = f"is that of {pinned.path}" if pinned else "is the text"
    checks.append(Check("policy", "holds", f"{policy.name!r} {which} with the recorded digest {document.sha256[:12]}"))
    checks.append(checked("calibrator", lambda: _check_calibrator(files, record, policy)))
    checks.append(checked("verdict", lambda: _check_verdict(files, record, policy)))
    checks.append(checked("reports", lambda: _check_reports(files, record, reports)))
    return Inspection(tuple(checks), record, document)


def read_judged(directory: str | Path) -> StoredRelease:
    """Read a release to rely on, and judge its counts again first: a manifest can be sealed by anyone."""
    stored = read_release(directory)
    record = stored.record
    files = {} if stored.calibrator_json is None else {"calibrator.json": stored.calibrator_json}
    try:
        policy = _document(record).policy
        if record.kind == "run":
            _check_thresholds(_calibrator(files), record, policy)
        _judge_again(record, policy, evidence_of(policy, _thresholds(files, record), record))
    except CheckError as objection:
        raise GateError(
            f"{directory}: must be a release whose verdict follows from its own counts and policy, got one where "
            f"{objection}; see `gate verify`, and restore the release"
        ) from None
    return stored


def state_of(checks: tuple[Check, ...]) -> State:
    """One check that does not hold is enough, and one that could not be made is no pass."""
    states: tuple[State, ...] = ("does not hold", "cannot be checked")
    return next((state for state in states if any(check.state == state for check in checks)), "holds")


def checked(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, "holds", check())
    except CheckError as objection:
        return Check(name, objection.state, str(objection))


def other_installation(record: Record) -> str:
    """How what wrote the record differs from this gate, in words: bytes are compared only between the same."""
    theirs = {"gate": record.tool.version, **(record.tool.libraries or {})}
    ours = {"gate": version("fpr-gate"), **libraries()}
    other = [name for name in ours if theirs.get(name) != ours[name]]
    return ", ".join(f"written with {name} {theirs.get(name, 'unknown')}, here {ours[name]}" for name in other)


def _require(true: bool, message: str) -> None:
    if not true:
        raise CheckError(message)


# --- the files ----------------------------------------------------------------------------------------------


def load(directory: Path) -> tuple[dict[str, bytes], list[str]]:
    """Every plain file of the directory, read once, and the names of what is none. Links are not followed."""
    files: dict[str, bytes] = {}
    strange = []
    try:
        names = sorted(os.listdir(directory))
        for name in names[:MAX_FILES]:
            try:
                content = read_regular(directory / name, MAX_BYTES, follow=False)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ELOOP, errno.EISDIR, errno.ENXIO):
                    raise
                strange.append(name)
                continue
            if len(content) > MAX_BYTES:
                strange.append(name)
            else:
                files[name] = content
    except OSError as error:
        raise GateError(f"{directory}: must be a release directory, got {error.strerror or error}") from None
    if not {"manifest.json", "verdict.json"} & files.keys():
        raise GateError(
            f"{directory}: must be a release directory, got one without manifest.json and verdict.json; name one that "
            "`gate run` wrote"
        )
    return files, strange + names[MAX_FILES:]


def _check_manifest(files: Mapping[str, bytes], strange: list[str]) -> str:
    others = {name: content for name, content in files.items() if name != "manifest.json"}
    try:
        content = json.loads(files.get("manifest.json", b""))
        listed = {str(name): str(digest) for name, digest in content["sha256"].items()}
        version = content["schema_version"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise CheckError("manifest.json is missing or no manifest of a release") from None
    if isinstance(version, int) and version > 1:
        raise CheckError(f"manifest.json has schema_version {version}; upgrade gate", "cannot be checked")
    wrong = [name for name in listed if name in others and hashlib.sha256(others[name]).hexdigest() != listed[name]]
    _require(not wrong, f"{_named(wrong)} changed after the release was written")
    missing = sorted(listed.keys() - others.keys() - {*strange})
    _require(not missing, f"{_named(missing)} listed but missing")
    added = sorted(others.keys() - listed.keys())
    _require(not added, f"{_named(added)} added after the release was written")
    _require(not strange, f"{_named(strange)} not a plain file of a release's size")
    _require(files["manifest.json"] == manifest_of(others), "manifest.json is not written as gate writes it")
    return f"{plural(len(others), 'file')} with the digests listed, none missing, none added"


def _check_kind(files: Mapping[str, bytes], record: Record, reports: set[str]) -> str:
    """What a directory may hold follows from its kind: a check fits nothing, so it has no calibrator to deploy."""
    fitted = {"calibrator.joblib", "calibrator.json"}
    if record.kind == "check":
        stray = sorted(files.keys() & fitted)
        _require(not stray, f"{_named(stray)} foreign in a check, which has no calibrator; do not use it")
    else:
        lacking = sorted(fitted - files.keys())
        _require(not lacking, f"{_named(lacking)} missing from a release")
    unknown = sorted(files.keys() - reports - fitted - {"manifest.json"})
    other = other_installation(record)
    if unknown and other:
        raise CheckError(f"{_named(unknown)} unknown here: {other}", "cannot be checked")
    _require(not unknown, f"{_named(unknown)} foreign in a {'check' if record.kind == 'check' else 'release'}")
    if record.kind == "check":
        return f"a check of {record.release!r}, not a release: nothing in it may be deployed"
    return f"the release {record.release!r}, with a calibrator of its own"


def _named(names: list[str]) -> str:
    return f"{_listed(names)} {'is' if len(names) == 1 else 'are'}"


def _listed(names: list[str]) -> str:
    return ", ".join(name[:100] for name in names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _document(record: Record, pinned: Document | None = None) -> Document:
    """The recorded policy, read again from its text; where one is pinned it must be that, with the same columns."""
    section = record.policy
    digest = hashlib.sha256(section.content.encode()).hexdigest()
    _require(digest == section.sha256, f"its text has the digest {digest[:12]}, the record says {section.sha256[:12]}")
    try:
        document = policies.parse(section.content, section.path).with_columns(record.data.model_dump())
    except GateError as error:
        raise CheckError(f"its text cannot be read: {str(error).splitlines()[0]}") from None
    policy = document.policy
    _refuse_differences(
        "policy",
        {"name": section.name, "rule": section.rule, "confidence": section.confidence},
        {"name": policy.name, "rule": policy.rule, "confidence": float(policy.confidence)},
    )
    _refuse_differences("data", record.data.model_dump(), policy.data.model_dump())
    if pinned is not None:
        same = pinned.sha256 == digest
        _require(same, f"it was judged by a text with the digest {digest[:12]}, {pinned.path} has {pinned.sha256[:12]}")
        _refuse_differences("data", record.data.model_dump(), pinned.policy.data.model_dump())
    return document


# --- the calibrator -----------------------------------------------------------------------------------------


def _calibrator(files: Mapping[str, bytes]) -> Calibrator:
    try:
        return from_json(files.get("calibrator.json", b"").decode(errors="replace"))
    except GateError as error:
        raise CheckError(str(error)) from None


def _thresholds(files: Mapping[str, bytes], record: Record) -> Thresholds:
    """The raw threshold of each anchor: what the calibrator gives, or what a check has recorded of its release's."""
    if record.kind == "run":
        return _calibrator(files).thresholds
    found = recorded_samples(record)[0].thresholds
    lacking = [repr(anchor.fpr) for anchor in record.calibrator.contract if Decimal(repr(anchor.fpr)) not in found]
    if lacking:
        raise CheckError(f"the record has no threshold at {_listed(lacking)}", "cannot be checked")
    return found


def _check_calibrator(files: Mapping[str, bytes], record: Record, policy: Policy) -> str:
    if record.kind == "check":
        promised = [(float(anchor.fpr), float(anchor.score)) for anchor in policy.anchors.anchors]
        contract = [(anchor.fpr, anchor.score) for anchor in record.calibrator.contract]
        _require(contract == promised, "the record has another contract than the policy")
        return f"a check fits none; it is that of {record.release!r}, which `gate verify` of that release checks"
    section, pickle = record.calibrator, files.get("calibrator.joblib", b"")
    _refuse_differences(
        "calibrator",
        {"sha256": section.sha256, "bytes": section.bytes},
        {"sha256": hashlib.sha256(pickle).hexdigest(), "bytes": len(pickle)},
    )
    calibrator = _calibrator(files)
    _require(
        calibrator.to_json().encode() == files["calibrator.json"], "calibrator.json is not what its own knots give"
    )
    _require(calibrator.settings == policy.calibration, "calibrator.json has other settings than the policy")
    anchors = [(float(anchor.fpr), float(anchor.score)) for anchor in calibrator.contract.anchors]
    promised = [(float(anchor.fpr), float(anchor.score)) for anchor in policy.anchors.anchors]
    _require(anchors == promised, "calibrator.json has another contract than the policy")
    facts, settings = calibrator.facts, policy.calibration
    _refuse_differences(
        "record",
        {
            "fit": {"n": record.fit.n, "distinct": record.fit.distinct, "lowest_label": record.fit.lowest_label},
            "knots": section.knots,
            "plotting_position": section.plotting_position,
            "ties": section.ties,
            "contract": [(anchor.fpr, anchor.score) for anchor in section.contract],
        },
        {
            "fit": {"n": facts.n, "distinct": facts.distinct, "lowest_label": facts.lowest_label},
            "knots": len(calibrator.knots[0]),
            "plotting_position": settings.plotting_position,
            "ties": settings.ties,
            "contract": promised,
        },
    )
    _check_thresholds(calibrator, record, policy)
    if calibrator.artifact != pickle:
        other = other_installation(record)
        _require(bool(other), "calibrator.joblib is not the pipeline of calibrator.json; do not load it")
        raise CheckError(
            "calibrator.json agrees with the record and calibrator.joblib has the recorded digest, but whether it is "
            f"the same pipeline shows only where it was written: {other}",
            "cannot be checked",
        )
    return "calibrator.json agrees with policy and record, and calibrator.joblib is its pipeline, byte for byte"


def _check_thresholds(calibrator: Calibrator, record: Record, policy: Policy) -> None:
    thresholds = {target.check: calibrator.thresholds[target.fpr] for target in policy.targets}
    for finding in record.findings:
        if finding.check in thresholds:
            _refuse_differences(
                finding.check, {"threshold": finding.threshold}, {"threshold": thresholds[finding.check]}
            )
    if record.curve is not None:
        traced = replace(calibrator, contract=Contract(grid(policy.anchors))).thresholds
        _refuse_differences("curve", [point.threshold for point in record.curve.points], [*traced.values()])


# --- the verdict --------------------------------------------------------------------------------------------


def _check_verdict(files: Mapping[str, bytes], record: Record, policy: Policy) -> str:
    evidence = evidence_of(policy, _thresholds(files, record), record)
    verdict = _judge_again(record, policy, evidence)
    same_words = record.tool.version == version("fpr-gate")
    if same_words:
        held_out = record.holdout
        digests = (held_out.sha256, held_out.rows_sha256)
        unread = {
            "fit": record.fit.unread_labels if record.kind == "run" else (),
            "holdout": held_out.unread_labels,
            "malicious": record.malicious.unread_labels if record.malicious else (),
        }
        found = warnings_of(policy, record.fit.n, evidence, verdict, *digests, unread)
        _refuse_differences("verdict.json.warnings", record.warnings, found)
    findings = plural(len(record.findings), "finding")
    judged = f"{record.outcome} follows from the recorded counts and policy; {findings} judged again"
    if not same_words:
        other = other_installation(record)
        raise CheckError(f"{judged}, but the sentences may be other ones: {other}", "cannot be checked")
    return judged


def _judge_again(record: Record, policy: Policy, evidence: Evidence) -> Verdict:
    """Refuse a record that says otherwise than the policy says of its counts; sentences of another gate may differ."""
    verdict = judge(policy, evidence, judged_day(record, policy))
    again = [finding_entry(policy, finding) for finding in verdict.findings]
    unknown = [finding.check for finding in record.findings if finding.check not in {f.check for f in again}]
    if unknown:
        raise CheckError(f"the record has no counts from which {_named(unknown)} to be judged", "cannot be checked")
    reuse = reuse_entry(policy, record.reuse.ledger if record.reuse else None, evidence.use)
    recorded: dict[str, Any] = {
        "outcome": record.outcome,
        "reason": record.reason,
        "findings": [finding.model_dump() for finding in record.findings],
        "waivers": [waiver.model_dump() for waiver in record.waivers],
        "not_asked": [entry.model_dump() for entry in record.not_asked],
        "reuse": record.reuse.model_dump() if record.reuse else None,
        "curve": record.curve.model_dump() if record.curve else None,
        "malicious": [entry.model_dump() for entry in record.malicious.anchors] if record.malicious else [],
        "baseline": [e.model_dump() for e in (*record.baseline.anchors, *record.baseline.detection)]
        if record.baseline
        else [],
    }
    changes = evidence.comparison
    rejudged: dict[str, Any] = {
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "findings": [finding.model_dump() for finding in again],
        "waivers": [waiver_entry(waiver).model_dump() for waiver in verdict.waivers],
        "not_asked": [asdict(entry) for entry in verdict.not_asked],
        "reuse": reuse.model_dump() if reuse else None,
        "curve": _curve(record, policy),
        "malicious": [detection_entry(found).model_dump() for found in evidence.detection or ()],
        "baseline": [
            *(change_entry(change).model_dump() for change in (changes.benign if changes else ())),
            *(detection_change_entry(change).model_dump() for change in (changes.malicious if changes else ())),
        ],
    }
    same_words = record.tool.version == version("fpr-gate")
    for content in (recorded, rejudged):
        if not same_words:
            content |= {"findings": [{**f, **dict.fromkeys(SENTENCES)} for f in content["findings"]], "reason": None}
    _refuse_differences("verdict.json", recorded, rejudged)
    return verdict


def evidence_of(policy: Policy, thresholds: Thresholds, record: Record) -> Evidence:
    """What was measured, from the counts that the record has of it: the inverse of `release.compose`.

    Each part of the evidence has its own function here; a check is judged again only from what one of them gives.
    """
    _refuse_impossible(record)
    use = _use(record)
    alpha = policy.alpha(use.number if use else 1)
    if policy.reuse and use is None:
        raise CheckError("the record does not say which use of its held-out rows it is, as the policy's `reuse` needs")
    fitted = record.kind == "run"  # a check has no fit sample to compare with
    budget = Budget()
    measured = {target: _measurement(policy, target, record, alpha, budget) for target in by_rate(policy)}
    return Evidence(
        measurements=tuple(measured[target] for target in policy.targets),
        tail_scan=_scan(record) if fitted else None,
        use=use,
        overlap=_overlap(record) if fitted else None,
        duplicates=_duplicates(record),
        resolution=_resolution(record) if fitted else None,
        fit_ages=_ages(record.fit.oldest, record.fit.newest) if fitted else None,
        holdout_ages=_ages(record.holdout.oldest, record.holdout.newest),
        segments=_segments(policy, thresholds, record, alpha),
        detection=_detection(policy, thresholds, record),
        direction=_direction(policy, record),
        comparison=_comparison(policy, thresholds, record),
        first_release=record.first_release,
    )


def _use(record: Record) -> Use | None:
    return Use(record.reuse.use, record.reuse.earlier, record.reuse.shared) if record.reuse else None


def _measurement(policy: Policy, target: Target, record: Record, alpha: Fraction, budget: Budget) -> Measurement:
    entry = _finding(record, target.check)
    n, fit_n = record.holdout.n, record.fit.n
    k, drift, tied = entry.false_positives, entry.drift_counts, entry.tied
    if k is None or (record.kind == "run" and (drift is None or tied is None)):
        raise CheckError(f"the record lacks counts of {target.check}", "cannot be checked")
    _require(0 <= k <= n, f"{target.check}: false_positives must be from 0 to {n}, got {k}")
    if drift is not None:
        possible = 0 <= drift[1] <= min(drift[0], n) and 0 < drift[0] - drift[1] + n <= fit_n + n
        _require(possible, f"{target.check}: drift_counts are no counts of these samples")
    if tied is not None:
        _require(0 <= tied[0] <= tied[1] <= fit_n, f"{target.check}: tied are no counts of the fit sample")
    worth = None
    if record.holdout.groups is not None:  # what the groups are worth cannot be told without them
        worth = entry.effective_n
        _require(
            worth is not None and 0 < worth <= n, f"{target.check}: effective_n must be from 0 to {n}, got {worth}"
        )
    p = Fraction(target.fpr)
    return measure_target(
        policy,
        target,
        entry.threshold,
        k,
        n,
        record.fit.lowest_label,
        alpha=alpha,
        effective_n=worth,
        predicted=predicted_counts(policy, p, fit_n, n),
        drift=None if drift is None else compare_counts(*drift, n, n + fit_n),
        tied=None if tied is None else TieBlock(*tied, fit_n),
        fit_n=fit_n,
        budget=budget,
    )


def _scan(record: Record) -> TailScan:
    section, n, total = record.exchangeability, record.holdout.n, record.holdout.n + record.fit.n
    if section is None:
        raise CheckError("the record lacks the counts of exchangeability", "cannot be checked")
    before = (0, 0)
    for pooled, held_out in section.counts:
        more, more_held_out = pooled - before[0], held_out - before[1]
        possible = more > 0 and 0 <= more_held_out <= more and held_out <= n and pooled - held_out <= total - n
        _require(possible, "exchangeability.counts are no counts of these samples")
        before = (pooled, held_out)
    return scan_counts(section.counts, n, total)


def _overlap(record: Record) -> Overlap:
    found = record.overlap
    if found is None:
        raise CheckError("the record lacks the counts of overlap", "cannot be checked")
    _require(found.benign == record.holdout.n, "overlap.benign is not the number of held-out rows")
    named = record.holdout.rows_sha256 is not None and (record.duplicates is None or record.duplicates.fit is not None)
    _require((found.ids is not None) == named, "overlap.ids must be counted where the rows have ids, only there")
    columns = record.data
    other = any(name is not None for name in (columns.group, columns.segment, columns.timestamp))
    possible = found.rows is None or (other and found.ids is None)
    _require(possible, "overlap.rows are not those of these columns")
    _require_shared(found.scores, record, record.holdout.groups)
    if found.rows is not None:
        _require_shared(found.rows, record, None)
    most = max(found.ids or 0, found.rows_in_shared_groups or 0)
    _require(most <= found.benign, "overlap has more rows than were held out")
    return found


def _require_shared(found: Shared, record: Record, groups: int | None) -> None:
    """Of rows both numbers are known, of groups only how many are held out."""
    n, fit_n = (record.holdout.n, record.fit.n) if groups is None else (groups, found.fit_n)
    units = (found.unit == "rows") == (groups is None)
    _require(units and (found.n, found.fit_n) == (n, fit_n), "scores are compared of other rows than the record has")
    _require(found.shared <= n, "more scores are shared than were held out")
    _require(1.0 in (found.fewer, found.more), "scores cannot be shared both too often and too seldom")


def _duplicates(record: Record) -> Duplicates | None:
    """What repeats, in each sample that has ids; of the fit sample only its own count says whether it has."""
    found, fitted = record.duplicates or Duplicates(), record.kind == "run"
    named = {"fit": found.fit is not None and fitted, "holdout": record.holdout.rows_sha256 is not None}
    named["malicious"] = record.malicious is not None and record.malicious.rows_sha256 is not None
    for name, has_ids in named.items():
        sample, counts = getattr(found, name), getattr(record, name)
        _require((sample is not None) == has_ids, f"duplicates.{name} must be counted where rows have ids, only there")
        _require(sample is None or record.data.id is not None, f"duplicates.{name} has ids of no column")
        same = sample is None or sample.rows - sample.repeated == counts.n
        _require(same, f"duplicates.{name} are no counts of these rows")
    shared = record.overlap.scores if record.overlap and fitted else None
    _require(found.scores == shared, "duplicates.scores are others than overlap.scores")
    return record.duplicates


def _resolution(record: Record) -> Resolution:
    fit = record.fit
    if fit.largest_tie is None:
        raise CheckError("the record lacks the counts of granularity", "cannot be checked")
    possible = 1 <= fit.distinct <= fit.n and 1 <= fit.largest_tie <= fit.n - fit.distinct + 1
    _require(possible, "fit.distinct and fit.largest_tie are no counts of one sample")
    return Resolution(fit.n, fit.distinct, fit.largest_tie)


def _ages(oldest: str | None, newest: str | None) -> Ages | None:
    if oldest is None or newest is None:
        return None
    try:
        ages = Ages(date.fromisoformat(oldest), date.fromisoformat(newest))
    except ValueError:
        raise CheckError("oldest and newest must be days such as 2026-03-01") from None
    _require(ages.oldest <= ages.newest, "oldest must not be later than newest")
    return ages


def _segments(policy: Policy, thresholds: Thresholds, record: Record, alpha: Fraction) -> SegmentEvidence | None:
    section = record.segments
    if section is None:  # then they are not measured, which the findings say where the policy asks for them
        return None
    _require(section.column == policy.data.segment, "segments are those of another column than the policy's")
    rates = [target.fpr for target in segments.targets_of(policy)]
    _require(
        [float(rate) for rate in rates] == [counted.fpr for counted in section.targets], "segments have other rates"
    )
    rows = len(section.names)
    _require(len({*section.names}) == rows == len(section.benign), "segments must have a name and a size each")
    all_shown = policy.checks.segments is not None or rows < segments.MOST_UNASKED
    counted_rows = sum(section.benign)
    possible = counted_rows == record.holdout.n if all_shown else counted_rows <= record.holdout.n
    _require(possible and min(section.benign) > 0, "segments are not the held-out rows")
    counts = []
    for fpr, counted in zip(rates, section.targets, strict=True):
        _require(rows == len(counted.false_positives) == len(counted.effective_n), "segments must have a count each")
        parts = zip(counted.false_positives, section.benign, counted.effective_n, strict=True)
        grouped = record.holdout.groups is not None
        possible = all(k <= n and (0 < worth <= n if grouped else worth == n) for k, n, worth in parts)
        _require(possible, "segments have counts that no sample has")
        whole = next((f.false_positives for f in record.findings if f.check == policies.fpr_check(fpr)), None)
        counted_ones = sum(counted.false_positives)
        possible = whole in (None, counted_ones) or (not all_shown and whole is not None and counted_ones <= whole)
        _require(possible, f"segments count otherwise than {policies.fpr_check(fpr)}")
        counts.append(TargetCounts(fpr, counted.false_positives, counted.effective_n))
    label = record.fit.lowest_label
    return segments.evidence_of(policy, thresholds, label, section.names, section.benign, counts, alpha)


def _detection(policy: Policy, thresholds: Thresholds, record: Record) -> tuple[Detected, ...] | None:
    section = record.malicious
    if section is None:
        return None
    anchors = policy.anchors.anchors
    _require(
        [float(anchor.fpr) for anchor in anchors] == [entry.fpr for entry in section.anchors],
        "malicious must have one count at every anchor",
    )
    others = sum(source.rows - source.benign for source in section.sources)
    repeats = record.duplicates.malicious if record.duplicates else None
    others -= repeats.repeated if repeats else 0
    _require(others == section.n, "malicious.n is not the malicious rows of its sources")
    found, budget = [], Budget()
    for anchor, entry in zip(anchors, section.anchors, strict=True):
        at = policies.fpr_check(anchor.fpr)
        _require(entry.threshold == thresholds[anchor.fpr], f"malicious rows at {at} have another threshold")
        worth, n = entry.effective_n, section.n
        possible = entry.malicious == n and entry.true_positives <= n and 0 < worth <= n
        _require(possible and (worth == n or section.groups is not None), f"malicious rows at {at} are no counts")
        found.append(measure_anchor(policy, anchor, entry.threshold, entry.true_positives, n, worth, budget))
    roc = record.curve.roc if record.curve else None
    if roc is not None:
        drawn = {point.fpr: (point.threshold, point.true_positives) for point in roc.points}
        _require(
            roc.malicious == section.n
            and all(
                drawn.get(e.fpr, (e.threshold, e.true_positives)) == (e.threshold, e.true_positives)
                for e in section.anchors
            )
            and all(k <= section.n for _, k in drawn.values()),
            "the curve of detection counts otherwise than malicious",
        )
    return tuple(found)


def _direction(policy: Policy, record: Record) -> Direction | None:
    """The recorded counts, each of which another part of the record has too."""
    found, section = record.direction, record.malicious
    _require((found is None) == (section is None), "direction must be recorded where malicious rows are, only there")
    if found is None or section is None:
        return None
    n, grouped = record.holdout.n, record.holdout.groups is not None
    detected = [(at.fpr, at.true_positives, at.malicious, at.effective_n) for at in section.anchors]
    recorded = [(at.fpr, at.true_positives, at.malicious, at.malicious_worth) for at in found.anchors]
    _require(recorded == detected, "direction counts malicious rows otherwise than malicious")
    counts = {point.expected_fpr: point.false_positives for point in record.curve.points} if record.curve else {}
    counts |= {float(target.fpr): _finding(record, target.check).false_positives or 0 for target in policy.targets}
    for at in found.anchors:
        possible = at.benign == n and at.false_positives <= n and 0 < at.benign_worth <= n
        _require(possible and (grouped or at.benign_worth == n), "direction has counts that no sample has")
        same = counts.get(at.fpr, at.false_positives) == at.false_positives
        _require(same, "direction counts benign rows otherwise than the targets and the curve")
    return found


def _comparison(policy: Policy, thresholds: Thresholds, record: Record) -> Comparison | None:
    """The recorded comparison, every number that follows from its counts computed again.

    What the other release was, and what changed since its policy, only its own directory shows.
    """
    section = record.baseline
    if section is None:
        return None
    benign, malicious = recorded_samples(record)
    return Comparison(
        baseline=Baseline(
            path=section.path,
            release=section.release,
            created=section.created,
            outcome=section.outcome,
            verdict_sha256=section.verdict_sha256,
            policy_sha256=section.policy_sha256,
            policy=policy,
            benign=Sample({}),
            malicious=None,
            scores_sha256=section.holdout_sha256 or "",
            rows_sha256=section.rows_sha256,
        ),
        policy_changes=section.policy_changes,
        benign=tuple(_benign_change(policy, thresholds, entry, benign) for entry in section.anchors),
        malicious=tuple(_malicious_change(policy, thresholds, entry, malicious) for entry in section.detection),
        itself=record.kind == "check",
    )


def _benign_change(policy: Policy, thresholds: Thresholds, entry: ChangeEntry, counted: Sample) -> Change:
    anchor = _anchor(policy, entry.fpr)
    old = Counted(entry.old_threshold, entry.old_false_positives, entry.old_benign, float(entry.old_benign))
    new = Counted(entry.new_threshold, entry.false_positives, entry.benign, float(entry.benign))
    flipped = (entry.newly_flagged, entry.no_longer_flagged, entry.rows)
    _require(entry.new_threshold == thresholds[anchor.fpr], "the baseline's anchors have another threshold than this")
    change = _change(policy, anchor, old, new, entry, flipped, counted)
    if entry.stale_false_positives is None:
        return change
    _require(entry.stale_false_positives <= entry.benign, "the baseline flags more than there are rows")
    stale = entry.stale_interval
    if change.p_value is not None:  # else rows come in groups, and nobody without them can tell
        stale = clopper_pearson(entry.stale_false_positives, entry.benign, float(policy.alpha()))
    return replace(change, stale=entry.stale_false_positives, stale_interval=stale)


def _malicious_change(
    policy: Policy, thresholds: Thresholds, entry: DetectionChangeEntry, counted: Sample | None
) -> Change:
    anchor = _anchor(policy, entry.fpr)
    old = Counted(None, entry.old_true_positives, entry.old_malicious, float(entry.old_malicious))
    new = Counted(thresholds[anchor.fpr], entry.true_positives, entry.malicious, float(entry.malicious))
    flipped = (entry.newly_detected, entry.no_longer_detected, entry.rows)
    return _change(policy, anchor, old, new, entry, flipped, counted)


def _change(
    policy: Policy,
    anchor: Anchor,
    old: Counted,
    new: Counted,
    entry: ChangeEntry | DetectionChangeEntry,
    flipped: tuple[int | None, int | None, int | None],
    counted: Sample | None,
) -> Change:
    where = f"baseline at {policies.fpr_check(anchor.fpr)}"
    _require(old.flagged <= old.rows and new.flagged <= new.rows, f"{where}: more rows flagged than there are")
    alpha = float(policy.alpha())
    pairs = None
    if entry.paired:
        new_only, old_only, rows = flipped
        if new_only is None or old_only is None or rows is None:
            raise CheckError(f"{where}: the record lacks the rows that flipped", "cannot be checked")
        both = new.flagged - new_only
        pairs = Pairs(both, new_only, old_only, rows - both - new_only - old_only)
        same = both >= 0 and pairs.neither >= 0 and old.flagged == both + old_only and old.rows == new.rows == rows
        _require(same, f"{where}: the rows that flipped are no part of those flagged")
    elif counted is not None and anchor.fpr in counted.counts:
        here = counted.counts[anchor.fpr]
        _require((new.flagged, new.rows) == (here.flagged, here.rows), f"{where}: counts otherwise than the record")
    if entry.p_value is None:  # rows come in groups: no test, and an interval that only they give
        grouped = replace(unpaired(anchor, old, new, alpha), pairs=pairs, p_value=None)
        old, new = replace(old, effective_n=None), replace(new, effective_n=None)
        return replace(grouped, old=old, new=new, interval=entry.difference_interval)
    if pairs is None:
        return unpaired(anchor, old, new, alpha)
    exact = mcnemar(int(pairs.new_only), int(pairs.old_only))
    return replace(
        unpaired(anchor, old, new, alpha), pairs=pairs, p_value=exact, interval=paired_interval(pairs, alpha)
    )


def _anchor(policy: Policy, fpr: float) -> Anchor:
    found = next((anchor for anchor in policy.anchors.anchors if float(anchor.fpr) == fpr), None)
    if found is None:
        raise CheckError(f"the baseline has a rate {fpr!r} that the contract has not")
    return found


def _curve(record: Record, policy: Policy) -> dict[str, Any] | None:
    section = record.curve
    if section is None:
        return None
    anchors = grid(policy.anchors)
    _require(len(section.points) == len(anchors), f"the curve must have {len(anchors)} points")
    n = record.holdout.n
    points = dict(zip((anchor.fpr for anchor in anchors), section.points, strict=True))
    counts = {fpr: point.false_positives for fpr, point in points.items()}
    _require(all(0 <= k <= n for k in counts.values()), f"the curve's counts must be from 0 to {n}")
    for target in policy.targets:
        counted = _finding(record, target.check).false_positives
        _require(counts.get(target.fpr, counted) == counted, f"the curve counts otherwise than {target.check}")
    alpha = policy.alpha(record.reuse.use if record.reuse else 1)
    thresholds = {fpr: point.threshold for fpr, point in points.items()}
    again = curve_of(policy.anchors, thresholds, counts, n, record.fit.lowest_label, alpha)
    return {**curve_entry(again).model_dump(), "roc": section.roc.model_dump() if section.roc else None}


def _finding(record: Record, check: str) -> FindingEntry:
    found = [finding for finding in record.findings if finding.check == check]
    _require(len(found) == 1, f"the record must have one finding {check}, got {len(found)}")
    return found[0]


def _refuse_impossible(record: Record) -> None:
    """Numbers that no sample has, before any arithmetic is done with them."""
    for name, n in (("fit.n", record.fit.n), ("holdout.n", record.holdout.n)):
        _require(2 <= n <= MAX_ROWS, f"{name} must be from 2 to {MAX_ROWS:,}, got {n}")
    _require(0 < record.fit.lowest_label <= 1, "fit.lowest_label must be a rate")
    fit, holdout = (sum(source.benign for source in part.sources) for part in (record.fit, record.holdout))
    repeats = [getattr(record.duplicates, name, None) for name in ("fit", "holdout")]
    again, held_again = (0 if sample is None else sample.repeated for sample in repeats)
    if record.split is not None:
        divided = fit == holdout == record.fit.n + record.holdout.n + again + held_again
        _require(divided, "fit.n and holdout.n do not add up to the benign rows of their sources")
    else:
        # A check names the sources of the release that it checks, which may have split them or counted rows once.
        whole = fit == record.fit.n + again or (record.kind == "check" and fit > record.fit.n)
        _require(whole, "fit.n is not the benign rows of its sources")
        _require(holdout == record.holdout.n + held_again, "holdout.n is not the benign rows of its sources")
    samples = {"fit": record.fit, "holdout": record.holdout, "malicious": record.malicious}
    for name, section in samples.items():
        if section is not None:
            foreign = name == "fit" and record.kind == "check"  # the release's, which may have had other columns
            labelled = section.labels is not None if foreign else record.data.label is not None
            _refuse_impossible_reading(name, section, labelled)
    if record.reuse is not None:
        earlier = len(record.reuse.earlier)
        _require(record.reuse.use == earlier + 1, f"reuse.use must be {earlier + 1}, got {record.reuse.use}")
        shared = [0.0 if share is not None and share < FURTHER else 1.0 for share in record.reuse.shared]
        _require(shared == [1.0] * earlier, f"reuse.shared must be {plural(earlier, 'share')} of {FURTHER} or more")


def _refuse_impossible_reading(name: str, section: SampleSection, labelled: bool) -> None:
    """The files and the labels of a sample must be those of its rows."""
    rows, benign = (sum(getattr(source, key) for source in section.sources) for key in ("rows", "benign"))
    files, labels = section.files, section.labels
    if files is not None:
        held = sum(file.rows for file in files.first)
        whole = files.count == len(files.first) and held == rows and digest_files(files.first) == files.sha256
        partly = files.count > len(files.first) == MAX_LISTED_FILES and held < rows
        _require(whole or partly, f"{name}.files are not those of its rows")
    _require((labels is not None) == labelled, f"{name}.labels must be counted where there is a column of them")
    _require(not (labelled and section.unread_labels), f"{name}.unread_labels must be empty beside a label column")
    if labels is None:
        return
    counted = sum(label.rows for label in labels.first)
    marked = sum(label.rows for label in labels.first if label.taken_for == "benign")
    whole = labels.distinct == len(labels.first) and counted == rows
    partly = labels.distinct > len(labels.first) == MAX_LABELS and counted < rows
    _require((whole or partly) and (marked == benign or partly), f"{name}.labels are not those of its rows")


def judged_day(record: Record, policy: Policy) -> date:
    """The day by which waivers and ages were judged: not before the record's own time."""
    try:
        created = datetime.strptime(record.created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).date()
    except ValueError:
        raise CheckError(f"created must be a time such as 2026-03-01T12:00:00Z, got {record.created[:40]!r}") from None
    _require(
        (record.judged_on is not None) == judged_by_day(policy),
        "judged_on must be recorded where the policy has waivers or a freshness, only there",
    )
    if record.judged_on is None:
        return created
    try:
        day = date.fromisoformat(record.judged_on)
        _require(day.isoformat() == record.judged_on, "judged_on must be written as 2026-03-01")
    except ValueError:
        raise CheckError(f"judged_on must be a day such as 2026-03-01, got {record.judged_on[:40]!r}") from None
    _require(day >= created, f"judged_on must not be before the record was created, got {day} and {created}")
    return day


# --- the reports --------------------------------------------------------------------------------------------


def _check_reports(files: Mapping[str, bytes], record: Record, expected: Mapping[str, bytes]) -> str:
    differs = sorted(name for name, content in expected.items() if files.get(name) != content)
    other = other_installation(record)
    if differs and other:
        raise CheckError(f"{_named(differs)} to be compared where it was written: {other}", "cannot be checked")
    _require(not differs, f"{_named(differs)} not what the record renders to")
    return f"{_listed(sorted(expected))} are what the record renders to, byte for byte"


# --- differences --------------------------------------------------------------------------------------------


def _refuse_differences(where: str, recorded: Any, found: Any) -> None:
    first = next(differences(where, recorded, found), None)
    if first is not None:
        raise CheckError(first)


def differences(where: str, recorded: Any, found: Any) -> Iterator[str]:
    """Where two plain values differ; numbers that were computed may differ in the last digits."""
    if isinstance(recorded, dict) and isinstance(found, dict) and recorded.keys() == found.keys():
        for key in recorded:
            yield from differences(f"{where}.{key}", recorded[key], found[key])
    elif isinstance(recorded, list | tuple) and isinstance(found, list | tuple) and len(recorded) == len(found):
        for i, (one, other) in enumerate(zip(recorded, found, strict=True)):
            yield from differences(f"{where}[{i}]", one, other)
    elif isinstance(recorded, float) and isinstance(found, float):
        if not math.isclose(recorded, found, rel_tol=1e-9):
            yield f"{where} is {recorded!r} in the record, but {found!r} follows"
    elif recorded != found:
        yield f"{where} is {_shown(recorded)} in the record, but {_shown(found)} follows"


def _shown(value: Any) -> str:
    match value:
        case dict() | list() | tuple():
            return f"a list of {len(value)}"
        case _:
            text = repr(value)
            return text if len(text) <= 80 else text[:77] + "..."
