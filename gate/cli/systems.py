"""`gate run` and `gate check` of several detectors: it reads their files once for all, and gives one verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import click

from gate.cli.inputs import found_here, read_scores, require_ledger
from gate.cli.options import Request, connect
from gate.cli.outputs import conclude, refuse_places
from gate.cli.streams import log, working
from gate.errors import GateError
from gate.words import plural

if TYPE_CHECKING:
    from gate.policy import Document, Policy
    from gate.rows.together import Several

    _Paths = Mapping[str, Mapping[str, tuple[str, ...]]]

SAMPLES = ("fit", "holdout", "malicious")


@dataclass(frozen=True)
class Given:
    """What `gate run` gets: the files of each sample, how one is divided, the earlier release, and its scores."""

    policy: str | None
    samples: Mapping[str, tuple[str, ...]]
    split: tuple[float, int] | None
    baseline: str | None
    scored: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def others(self) -> list[str]:
        """What is read besides the samples."""
        return [*filter(None, [self.baseline]), *chain(*self.scored)]


def run_detectors(document: Document, given: Given, asked: Request) -> int:
    """Fit, evaluate and judge every detector of a policy, and all of them together."""
    refuse_unfit(asked)
    policies = {detector.name: document.policy.detector(detector.name) for detector in document.policy.detectors}
    paths = _paths(policies, document, given.samples, given.split is not None)
    files = {file for by_detector in paths.values() for named in by_detector.values() for file in named}
    replaces = refuse_places(asked, document.path, [*files, *given.others])
    _announce(document, given.policy, paths, given.samples)
    require_ledger(document, asked.ledger)
    from gate.gating import Job, judging_day
    from gate.systems import SystemRows, gate_system, read_past

    past = read_past(given.baseline, document.detectors, given.scored, read_scores)
    rows = SystemRows.read(partial(_read, paths, policies), given.split)
    job = Job(document, asked.release, asked.created, judging_day(asked.created), asked.ledger)
    with working(f"fitting and judging {plural(len(policies), 'detector')}"):
        judged = gate_system(job, rows, past)
    return conclude(judged, asked.out, asked.force, asked.as_json, replaces)


def check_detectors(
    directory: str,
    named: str | None,
    overrides: tuple[str, ...],
    given: Mapping[str, tuple[str, ...]],
    asked: Request,
) -> int:
    """Judge every detector of an earlier release on new benign scores."""
    from gate.checks import find_policy
    from gate.record import recorded_policy
    from gate.systems import Past, SystemRows, gate_system, read_stored_system

    refuse_unfit(asked)
    record, stored = read_stored_system(directory)
    document = find_policy(named, overrides) if named else recorded_policy(record.policy).override(overrides)
    document.require_columns()
    connect(document.policy.data)
    policies = {detector.name: document.policy.detector(detector.name) for detector in document.policy.detectors}
    if [*policies] != [*stored]:
        raise GateError(
            f"{document.path}: detectors: must be those of {directory} ({', '.join(stored)}), got "
            f"{', '.join(policies) or 'none'}; check it with the policy it was released under"
        )
    replaces = refuse_places(asked, named, [directory, *chain(*given.values())])
    paths = {sample: dict.fromkeys(policies, given[sample]) for sample in ("holdout", "malicious")}
    _announce(document, named or document.path, paths, given)
    require_ledger(document, asked.ledger)
    from gate.gating import Job, judging_day

    rows = SystemRows.read(partial(_read, paths, policies), None)
    job = Job(document, record.release, asked.created, judging_day(asked.created), asked.ledger)
    with working(f"judging {plural(len(policies), 'detector')}"):
        judged = gate_system(job, rows, Past(stored=stored))
    return conclude(judged, asked.out, asked.force, asked.as_json, replaces)


def refuse_unfit(asked: Request) -> None:
    if asked.flagged is not None:
        raise click.UsageError("--flagged lists the false positives of one detector; name one as --policy FILE#NAME")


def _paths(
    policies: Mapping[str, Policy], document: Document, given: Mapping[str, tuple[str, ...]], divided: bool
) -> dict[str, dict[str, tuple[str, ...]]]:
    """Find each detector's files of each sample: its own, or else the command line's, or else the policy's."""
    own = {detector.name: detector for detector in document.policy.detectors}
    paths: dict[str, dict[str, tuple[str, ...]]] = {}
    if divided:
        paths["benign"] = dict.fromkeys(policies, given["benign"] or document.policy.data.benign or ())
    for sample in SAMPLES if not divided else ("malicious",):
        shared = given[sample] or getattr(document.policy.data, sample) or ()
        paths[sample] = {name: getattr(own[name], sample) or shared for name in policies}
        lacking = [name for name, files in paths[sample].items() if not files]
        if lacking and sample != "malicious":
            purpose = "fit" if sample == "fit" else "judge"
            raise GateError(
                f"{document.path}: detectors: must each have files to {purpose} on, got none for "
                f"{', '.join(lacking[:5])}; give --{sample} FILE, or {sample}: FILE in the detector's entry"
            )
    return paths


def _read(paths: _Paths, policies: Mapping[str, Policy], sample: str) -> Several:
    """Read one sample for all detectors, and describe it on stderr."""
    from gate.rows.together import Several, read_together

    files = paths.get(sample, {})
    if not any(files.values()):
        return Several()
    with working(f"reading {sample} rows"):
        found = read_together(sample, files, policies)
    first = next(iter(found.samples.values()))
    unread = [name for name in first.unread if all(name in rows.unread for rows in found.samples.values())]
    first = replace(first, unread=tuple(unread))
    short = [f"{name} {rows.unscored:,}" for name, rows in found.samples.items() if rows.unscored]
    gaps = f"; not scored: {', '.join(short[:5])}{' ...' if len(short) > 5 else ''}" if short else ""
    log(f"{sample}: {plural(len(found.samples), 'detector')}, {first.summary}{gaps}")
    return found


def _announce(document: Document, named: str | None, paths: _Paths, given: Mapping[str, tuple[str, ...]]) -> None:
    files = []
    for sample, by_detector in paths.items():
        some = dict.fromkeys(path for named in by_detector.values() for path in named)
        if some:
            listed = [*some][:5] + ([f"and {len(some) - 5} more"] if len(some) > 5 else [])
            files.append(f"{sample} {', '.join(listed)}{'' if given.get(sample) else ' (from the policy)'}")
    counted = plural(len(document.policy.detectors), "detector")
    log(f"policy {document.path}{found_here(document, named)}; {counted}; {'; '.join(files)}")
