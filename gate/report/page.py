"""The parts that the two long reports share: strings, shortened where a host has a limit; it judges nothing."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gate.checks.readings import assumptions, what_a_pass_means
from gate.checks.reuse import Uses
from gate.checks.segments import Segments
from gate.policy import BUILT_IN, BUILT_IN_PATH
from gate.record import Record
from gate.report.changes import changes, detection_rows
from gate.report.numbers import clean
from gate.report.rows import (
    Row,
    baseline_findings,
    detection_findings,
    each_remedy,
    headline,
    in_order,
    not_asked,
    other_rows,
    passed_checks,
    plain_reason,
    segment_rows,
    segment_words,
    shown_targets,
    target_rows,
)
from gate.stored import exact
from gate.words import chance_of_few, percent

MOST = {"segments": 50, "blocking": 12, "unsettled": 12}


@dataclass(frozen=True)
class Limit:
    """How many entries of a list and how many characters of a text a page shows."""

    entries: int
    characters: int


LIMITS = (Limit(100, 2000), Limit(50, 400), Limit(20, 200), Limit(6, 100), Limit(2, 40))


def fitting(render: Callable[[Limit], str], size: int) -> str:
    """Render the fullest page within so many bytes; the last limit always fits."""
    text = ""
    for limit in LIMITS:
        text = render(limit)
        if len(text.encode()) <= size:
            break
    return text


def parts(record: Record, limit: Limit) -> dict[str, Any]:
    """Make what the templates fill in. Names ending in `_more` say how many entries were left out."""
    targets, segments, others = target_rows(record), segment_rows(record), other_rows(record)
    detection, baseline = detection_findings(record), baseline_findings(record)
    judged = in_order(targets + detection + others + baseline + segments)
    cures = [row.remedy for row in judged if row.blocks]
    unsettled = [row for row in judged if row.remedy and not row.blocks]
    changed = changes(record)
    counted: Segments | None = record.of(Segments)
    lists: dict[str, Any] = {
        "targets": targets,
        "ranges": [row for row in others if row.kind == "fpr"],
        "segments": segments,
        "others_open": [row for row in others if row.outcome != "pass" and row.kind != "fpr"],
        "others_passed": [row for row in others if row.outcome == "pass" and row.kind != "fpr"],
        "blocking": [row for row in judged if row.blocks],
        "unsettled": [row for row in unsettled if not any(cure.endswith(row.remedy) for cure in cures)],
        "detection": detection_rows(record),
        "detection_checks": detection,
        "baseline_checks": baseline,
        "changed_rows": changed.rows if changed else [],
        "changed_detection": changed.detection if changed else [],
        "policy_changes": changed.policy if changed else [],
        "waivers": record.waivers,
        "warnings": [clean(warning) for warning in record.warnings],
        "fit_sources": record.fit.sources,
        "holdout_sources": record.holdout.sources,
        "malicious_sources": record.malicious.sources if record.malicious else (),
        "shipped": shipped(record),
    }
    content: dict[str, Any] = {
        "record": record,
        "asked": {row.target for row in targets} | {row.target for row in detection_rows(record) if row.outcome},
        "headline": headline(record),
        "changed": changed,
        "reference": record.reference,
        "reason": plain_reason(record),
        "next_step": next_step(record),
        "assurance": assurance(record, targets),
        "passed_names": passed_checks([row for row in others if row.kind != "fpr"]),
        "confidence": percent(exact(record.confidence)),
        "not_asked": not_asked(record),
        "command": command(record, limit),
        "segment_words": segment_words(record),
        "clustered": any(row.effective for row in targets),
        "predicted": any(row.predicted or row.drift for row in targets),
    }
    for name, entries in lists.items():
        shown = min(limit.entries, MOST.get(name, limit.entries))
        content[name] = entries[:shown]
        content[f"{name}_more"] = max(0, len(entries) - shown)
    for name in ("blocking", "unsettled"):
        content[name] = _what_to_do(content[name])
    if counted is not None:  # it counts all, while its findings name the worst
        tests = len(counted.names) * len(counted.targets)
        content["segments_more"] = tests - len(content["segments"])
    return content


def _what_to_do(findings: list[Row]) -> list[tuple[str, list[Row]]]:
    """List each remedy once with its findings; a proven violation comes before what is open, whatever helps both."""
    listed: list[tuple[str, list[Row]]] = []
    known: set[str] = set()
    groups = [*each_remedy(findings), *(("", [row]) for row in findings if not row.remedy)]
    groups.sort(key=lambda group: findings.index(group[1][0]))
    for outcome in dict.fromkeys(row.outcome for row in findings):
        for remedy, rows in groups:
            helped = [row for row in rows if row.outcome == outcome]
            if helped:
                listed.append(("the same would help" if remedy in known else remedy, helped))
                known |= {remedy} - {""}
    return listed


def next_step(record: Record) -> str:
    """Say what to do if nothing blocks."""
    if record.outcome != "pass":
        return "Nothing was measured that could be judged; look at the warnings."
    if record.kind == "check":
        return "Nothing: the contract holds on these rows. Check again on later ones."
    return (
        "Nothing blocks this release. Deploy it with its calibrator; gate check tells later whether the contract "
        "still holds."
    )


def assurance(record: Record, targets: list[Row]) -> str:
    """Say once what every statement on the page assumes, and how often it errs."""
    confidence = exact(record.confidence)
    clustered = any(row.effective for row in targets)
    interval = "of Clopper and Pearson, exact for independent rows"
    if record.policy.interval == "sequential":
        interval = "of likelihood ratios, which hold at every look while independent rows come in"
    elif clustered:
        interval = "of Clopper and Pearson, on the independent rows that groups are worth, which is an estimate"
    said = f"Intervals are those {interval}, at {percent(confidence)} confidence: a release whose true rate lies "
    said += f"outside the tolerance is called proven at most {percent((1 - confidence) / 2)} of the time."
    if record.malicious_confidence not in (None, record.confidence):
        said += f" Intervals on malicious rows are at {percent(exact(record.malicious_confidence))} confidence."
    if record.policy.rule != "proven":
        said += f" The rule {clean(record.policy.rule)} also lets pass what is not proven."
    return f"{said} {assumptions(clustered)}"


@dataclass(frozen=True)
class Shipped:
    """The chances that a bad release ships at one target: each in percent, with the multiple of the target's rate."""

    target: str
    chances: tuple[tuple[str, str], ...]


def shipped(record: Record) -> list[Shipped]:
    """Say what a pass means at each target: how often a release with so many times the rate would pass as well.

    Tolerances differ, and so do the multiples: every row has all columns, with a dash for a multiple of other rows.
    """
    found = [(percent(one.target), dict(one.rate.ships)) for one in shown_targets(record) if one.rate.ships]
    columns = sorted({times for _, chances in found for times in chances})
    said = [{times: chance_of_few(chance) for times, chance in chances.items()} for _, chances in found]
    return [
        Shipped(target, tuple((chances.get(times, "–"), f"{times:g}") for times in columns))
        for (target, _), chances in zip(found, said, strict=True)
    ]


def weakest_pass(record: Record) -> str:
    """Say what a pass means that is no proof: at the target where a bad release ships most often."""
    found = [one for one in shown_targets(record) if one.rate.ships]
    if not found:
        return ""
    weakest = max(found, key=lambda one: max(chance for _, chance in one.rate.ships))
    rows, tally = int(weakest.rate.tally.independent_rows), weakest.rate.tally
    said = what_a_pass_means(record.policy.rule, weakest.rate.ships, rows, tally.is_clustered)
    return f"{percent(weakest.target)}: {said}"


def command(record: Record, limit: Limit) -> list[str]:
    """Write the command that gives the same verdict again, one option to a line, quoted for a POSIX shell."""
    baseline, uses = record.reference, record.of(Uses)
    named = BUILT_IN if record.policy.path == BUILT_IN_PATH else record.policy.path
    policy = [_option("--policy", named), *(_option("--set", text) for text in record.policy.set)]
    samples = [("--fit", record.fit.sources), ("--holdout", record.holdout.sources)]
    if record.kind == "check" and baseline is not None:
        lines = [f"gate check {shlex.quote(clean(baseline.path))}"]
        samples = samples[1:]
        if record.policy.sha256 != baseline.policy_sha256:
            lines += policy
    else:
        lines = ["gate run", *policy]
        lines.append(_option("--release", record.release))
        if baseline is not None:
            lines.append(_option("--baseline", baseline.path))
            samples += [("--baseline-holdout", baseline.sources), ("--baseline-malicious", baseline.malicious_sources)]
        if record.is_first:
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
    if record.calibrated:
        lines.append("--calibrated")
    if uses is not None:
        lines.append(_option("--ledger", uses.ledger))
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


def _doublings(rate: float, fpr: float) -> float:
    return math.log2(min(rate / fpr, 2.0**64))  # a forged record may have any target


def forest(record: Record, entries: int) -> list[str]:
    """Draw each target's tolerance, interval and observed rate as multiples of the target, on a log scale.

    A cell is drawn if the interval touches it, so that what lies inside the tolerance is drawn inside.
    """
    found = shown_targets(record)[:entries]
    if not found:
        return []
    edges = [(f.target_fpr, bound) for f in found for bound in (*f.rate.interval, *f.edges)]
    reach = [abs(_doublings(bound, fpr)) for fpr, bound in edges if bound > 0]
    doublings = min(max(1, math.ceil(max(reach))), 5)
    names = [percent(f.target) for f in found]
    width = max(map(len, names))
    left, right = f"×1/{2**doublings}", f"×{2**doublings}"
    half = CELLS // 2
    lines = [f"{'':{width}}  {left:<{half}}1{right:>{half}}"]
    for f, name in zip(found, names, strict=True):

        def cell(rate: float, fpr: float = f.target_fpr) -> int:
            if rate <= 0:
                return 0
            share = (_doublings(rate, fpr) / doublings + 1) / 2
            return min(max(math.floor(share * CELLS), 0), CELLS - 1)

        bar = ["·"] * CELLS
        _fill(bar, "░", *map(cell, f.edges))
        bar[half] = "│"
        _fill(bar, "━", cell(f.rate.interval[0]), cell(f.rate.interval[1]))
        bar[cell(f.rate.tally.rate)] = "●"
        lines.append(f"{name:>{width}}  {''.join(bar)}  {f.outcome}")
    return lines


def _fill(bar: list[str], mark: str, first: int, last: int) -> None:
    bar[first : last + 1] = mark * (last + 1 - first)
