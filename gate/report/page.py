"""What the two long reports share: every part of the page as strings, shortened where a host has a limit."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gate.release import Record
from gate.report.changes import changes, detection_rows
from gate.report.rows import (
    THIN_SPACE,
    baseline_findings,
    by_remedy,
    clean,
    detection_findings,
    fpr_findings,
    headline,
    in_order,
    not_asked,
    other_rows,
    percent,
    regrouped,
    rows,
    segment_rows,
    shown_targets,
)

MOST = {"segments": 50, "blocking": 12, "unsettled": 12}


@dataclass(frozen=True)
class Limit:
    """How many entries of a list and how many characters of a text a page shows."""

    entries: int
    characters: int


LIMITS = (Limit(100, 2000), Limit(50, 400), Limit(20, 200), Limit(6, 100), Limit(2, 40))


def fitting(render: Callable[[Limit], str], size: int) -> str:
    """The fullest page within so many bytes; the last limit always is."""
    text = ""
    for limit in LIMITS:
        text = render(limit)
        if len(text.encode()) <= size:
            break
    return text


def parts(record: Record, limit: Limit) -> dict[str, Any]:
    """What the templates fill in. Names ending in `_more` say how many entries were left out."""
    targets, segments = rows(record, THIN_SPACE), segment_rows(record, THIN_SPACE)
    others = other_rows(record, THIN_SPACE)
    detection, baseline = detection_findings(record, THIN_SPACE), baseline_findings(record, THIN_SPACE)
    judged = in_order(targets + detection + others + baseline + segments)
    changed = None if record.baseline is None else changes(record.baseline, record.kind, THIN_SPACE)
    halves: dict[str, Any] = {
        "targets": targets,
        "segments": segments,
        "others": others,
        "blocking": [row for row in judged if row.blocks],
        "unsettled": [row for row in judged if row.remedy and not row.blocks],
        "settled": [row for row in targets if not row.remedy and not row.blocks],
        "detection": detection_rows(record, THIN_SPACE),
        "detection_checks": detection,
        "baseline_checks": baseline,
        "changed_rows": changed.rows if changed else [],
        "changed_detection": changed.detection if changed else [],
        "policy_changes": changed.policy if changed else [],
        "waivers": record.waivers,
        "warnings": [regrouped(clean(warning), THIN_SPACE) for warning in record.warnings],
        "fit_sources": record.fit.sources,
        "holdout_sources": record.holdout.sources,
        "malicious_sources": record.malicious.sources if record.malicious else (),
    }
    confidence = Decimal(repr(record.reuse.confidence if record.reuse else record.policy.confidence))
    content: dict[str, Any] = {
        "record": record,
        "headline": headline(record),
        "changed": changed,
        "reason": regrouped(clean(record.reason), THIN_SPACE),
        "confidence": percent(confidence),
        "error": percent((1 - confidence) / 2),
        "not_asked": not_asked(record),
        "command": command(record, limit),
        "clustered": any(row.effective for row in targets),
        "predicted": any(row.predicted or row.drift for row in targets),
    }
    for name, entries in halves.items():
        shown = min(limit.entries, MOST.get(name, limit.entries))
        content[name] = entries[:shown]
        content[f"{name}_more"] = max(0, len(entries) - shown)
    for name in ("blocking", "unsettled"):
        content[name] = by_remedy(content[name])
    if record.segments is not None:  # all of which it counts, where its findings name the worst
        tests = len(record.segments.names) * len(record.segments.targets)
        content["segments_more"] = tests - len(content["segments"])
    return content


def command(record: Record, limit: Limit) -> list[str]:
    """The command that gives the same verdict again, one option to a line, quoted for a POSIX shell."""
    baseline = record.baseline
    samples = [("--fit", record.fit.sources), ("--holdout", record.holdout.sources)]
    if record.kind == "check" and baseline is not None:
        lines = [f"gate check {shlex.quote(clean(baseline.path))}"]
        samples = samples[1:]
        if record.policy.sha256 != baseline.policy_sha256:
            lines.append(_option("--policy", record.policy.path))
    else:
        lines = ["gate run"]
        if record.policy.path != "built-in default":
            lines.append(_option("--policy", record.policy.path))
        lines.append(_option("--release", record.release))
        if baseline is not None:
            lines.append(_option("--baseline", baseline.path))
            samples += [("--baseline-holdout", baseline.sources), ("--baseline-malicious", baseline.malicious_sources)]
        if record.first_release:
            lines.append("--baseline none")
    if record.malicious is not None:
        samples.append(("--malicious", record.malicious.sources))
    if record.split is not None:
        samples[:2] = [("--benign", record.fit.sources)]
        lines.append(f"--split {record.split.fraction!r} --seed {record.split.seed}")
    for option, sources in samples:
        lines += [_option(option, source.path) for source in sources[: limit.entries]]
        if len(sources) > limit.entries:
            lines.append(f"{option} ...")
    lines.append(_option("--score-column", record.data.score))
    if record.data.label is not None:
        lines.append(_option("--label-column", record.data.label))
        lines += [_option("--benign-label", label) for label in record.data.benign]
    for name in ("segment", "group", "id", "timestamp", "count"):
        column = record.data.model_dump().get(name)
        if column is not None:
            lines.append(_option(f"--{name}-column", column))
    if record.reuse is not None:
        lines.append(_option("--ledger", record.reuse.ledger))
    epoch = _epoch(record.created)
    if epoch is not None:
        lines[0] = f"SOURCE_DATE_EPOCH={epoch} {lines[0]}"
    return lines


def _option(name: str, value: str) -> str:
    return f"{name} {shlex.quote(clean(value))}"


def _epoch(created: str) -> int | None:
    try:
        return int(datetime.strptime(created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


# --- a forest plot in characters ----------------------------------------------------------------------------

CELLS = 49  # an odd number: the target is the middle one


def forest(record: Record, entries: int) -> list[str]:
    """Each target's tolerance, interval and observed rate as multiples of the target, on a log scale.

    A cell is drawn where the interval touches it, so that what lies inside the tolerance is drawn inside.
    """
    found = fpr_findings(shown_targets(record)[:entries])
    if not found:
        return []
    reach = [abs(math.log2(bound / f.target_fpr)) for f in found for bound in (*f.interval, *f.tolerance) if bound > 0]
    doublings = min(max(1, math.ceil(max(reach))), 5)
    names = [percent(Decimal(repr(f.target_fpr))) for f in found]
    width = max(map(len, names))
    left, right = f"×1/{2**doublings}", f"×{2**doublings}"
    half = CELLS // 2
    lines = [f"{'':{width}}  {left:<{half}}1{right:>{half}}"]
    for f, name in zip(found, names, strict=True):

        def cell(rate: float, fpr: float = f.target_fpr) -> int:
            if rate <= 0:
                return 0
            share = (math.log2(rate / fpr) / doublings + 1) / 2
            return min(max(math.floor(share * CELLS), 0), CELLS - 1)

        bar = ["·"] * CELLS
        _fill(bar, "░", cell(f.tolerance[0]), cell(f.tolerance[1]))
        bar[half] = "│"
        _fill(bar, "━", cell(f.interval[0]), cell(f.interval[1]))
        bar[cell(f.observed_fpr)] = "●"
        lines.append(f"{name:>{width}}  {''.join(bar)}  {f.outcome}")
    return lines


def _fill(bar: list[str], mark: str, first: int, last: int) -> None:
    bar[first : last + 1] = mark * (last + 1 - first)
