"""Several detectors in one release: each fitted and judged as if it were alone, then what all of them flag together."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gate import ledger as ledgers
from gate.calibration.calibrator import Calibrator
from gate.calibration.fit import fit_sorted
from gate.checks import load_policy
from gate.checks.baseline import Reference
from gate.checks.reuse import Use, Uses
from gate.checks.system import Flags, Ints, System, asked_scores, measure
from gate.contract import Anchor, Contract
from gate.errors import GateError
from gate.gating import (
    NO_BASELINE,
    ComparedReleases,
    Job,
    Reader,
    Release,
    check_release,
    compare_stored,
    gate_release,
    judging_day,
    read_reference,
    read_sample,
)
from gate.joint import depends_on_day, judge_together
from gate.policy import Document, Policy
from gate.record import Record, StoredRelease, read_calibrator, stamp
from gate.record.system import DETECTORS, SystemRecord, compose_system, facts_of, read_any, require_name
from gate.report.formats import warm_up
from gate.report.system import Noted, rendered_system
from gate.scores import Scores, kind_of, split
from gate.scores.child import isolate
from gate.scores.place import here
from gate.scores.several import Joined, Panel, gather_panels, join_panels, panel_of, reading_panel, views_of
from gate.scores.shards import cores
from gate.sources import Split
from gate.storage import manifest_of, write
from gate.verification import read_judged

Result = TypeVar("Result")
ROW = 100  # bytes that a row of one detector takes while it is fitted and judged: as read, sorted, compared
SLACK = 1 << 30


@dataclass(frozen=True)
class Rows:
    """All rows of a release: for each sample the panels of files that detectors share.

    `splits` says of each detector how one sample was divided, where it was.
    """

    fit: Sequence[Panel]
    holdout: Sequence[Panel]
    malicious: Sequence[Panel] = ()
    splits: Mapping[str, Split] = field(default_factory=dict)

    @property
    def largest(self) -> int:
        """The rows of the largest sample."""
        panels = [*self.fit, *self.holdout, *self.malicious]
        return max((len(sample) for panel in panels for sample in panel.samples.values()), default=0)

    @property
    def names(self) -> set[str]:
        """The detectors that have rows to be judged on."""
        return {name for panel in self.holdout for name in panel.samples}

    def joined_by(self, others: Rows) -> Rows:
        """What is kept of all batches so far: how their rows go together, without the scores."""
        return Rows((), gather_panels(self.holdout, others.holdout), gather_panels(self.malicious, others.malicious))

    def of(self, name: str) -> tuple[Scores | None, Scores, Scores | None]:
        """One detector's samples."""
        fit, holdout, malicious = (_sample(panels, name) for panels in (self.fit, self.holdout, self.malicious))
        if holdout is None:
            raise GateError(f"{name}: must have held-out rows, got none; give --holdout or its own in `detectors`")
        return fit, holdout, malicious


def _sample(panels: Sequence[Panel], name: str) -> Scores | None:
    return next((panel.samples[name] for panel in panels if name in panel.samples), None)


@dataclass(frozen=True)
class Past:
    """What came before: of each detector the release that it is held against, or which is checked again."""

    references: Mapping[str, Reference] = field(default_factory=dict)
    stored: Mapping[str, StoredRelease] = field(default_factory=dict)
    first: frozenset[str] = frozenset()


NOTHING_BEFORE = Past()


@dataclass(frozen=True)
class Judged:
    """One detector's release, and the rows that it flags at each score of the system, by kind."""

    release: Release
    thresholds: tuple[float | None, ...]
    benign: tuple[Ints, ...]
    malicious: tuple[Ints, ...] | None


@dataclass(frozen=True, repr=False)
class SystemRelease(Noted):
    """A release of several detectors that was judged: the record of all and the release of each."""

    record: SystemRecord
    releases: Mapping[str, Release]

    @property
    def used_ledger(self) -> bool:
        return any(release.used_ledger for release in self.releases.values())

    @cached_property
    def files(self) -> dict[str, bytes]:
        """What the directory holds, by path: a directory for each detector, and what speaks for all."""
        rest = {name: release for name, release in self.releases.items() if "files" not in vars(release)}
        drawn = {name: vars(release).get("files", {}) for name, release in self.releases.items()}
        found = rendered_system(self.record)
        for name, files in (drawn | draw_side_by_side(rest)).items():
            own = {**files, "manifest.json": manifest_of(files)}
            found |= {f"{DETECTORS}/{name}/{file}": content for file, content in own.items()}
        return found

    def write(self, directory: str | Path, force: bool = False, replaces: str | None = None) -> None:
        """Write the release directory, whole or not at all."""
        write(directory, self.files, force, replaces)


def draw_side_by_side(releases: Mapping[str, Release]) -> dict[str, dict[str, bytes]]:
    """The files of each release, reports and all."""
    if not releases:
        return {}
    warm_up()  # children share what is imported before they are made
    return side_by_side({name: partial(_files_of, release) for name, release in releases.items()})


def _files_of(release: Release) -> dict[str, bytes]:
    return release.files


def gate_system(
    job: Job, batches: Sequence[Callable[[], Rows]], past: Past = NOTHING_BEFORE, draw: bool = False
) -> SystemRelease:
    """Fit and judge every detector by itself, side by side, then all of them together.

    With `draw` each one's reports are drawn where it is judged, which they will be asked for in any case.

    A batch gives the rows of some of the detectors, which are gone when the next one is read: of what they flag, and
    how rows go together, only the numbers of rows are kept.
    """
    documents, policy = job.document.detectors, job.document.policy
    question = _question(job, documents, batches, past)
    done: dict[str, Judged] = {}
    uses: dict[str, Uses] = {}
    kept = Rows((), ())
    if draw:
        warm_up()
    for batch in batches:
        rows = batch()
        uses |= _count_uses(job, question, rows)
        work = {
            name: partial(_judge_one, replace(job, document=own, uses=uses.get(name)), name, rows, past, policy, draw)
            for name, own in documents.items()
            if name in rows.names
        }
        done |= side_by_side(work, rows)
        kept = kept.joined_by(rows)
        del rows, work
    lacking = [name for name in documents if name not in done]
    if lacking:
        raise GateError(f"{', '.join(lacking[:5])}: must have held-out rows, got none; give them with --holdout")
    found = {name: done[name] for name in documents}
    releases = {name: judged.release for name, judged in found.items()}
    records = {name: release.record for name, release in releases.items()}
    return SystemRelease(_record(job, records, _measure(policy, kept, found, uses)), releases)


def _record(job: Job, records: Mapping[str, Record], system: System | None) -> SystemRecord:
    policy = job.document.policy
    required = {detector.name: detector.required for detector in policy.detectors}
    facts = []
    for name, record in records.items():
        digest = hashlib.sha256(record.to_json().encode()).hexdigest()
        facts.append(facts_of(name, required[name], record, digest))
    return compose_system(
        kind=next(iter(records.values())).kind,
        release=job.release,
        created=job.created,
        judged_on=job.day if depends_on_day(policy) else None,
        version=version("fpr-gate"),
        document=job.document,
        detectors=tuple(facts),
        verdict=judge_together(policy, records, system, job.day),
        system=system,
    )


# --- from files and tables ----------------------------------------------------------------------------------


def split_panels(
    panels: Sequence[Panel], fraction: float, seed: int
) -> tuple[list[Panel], list[Panel], dict[str, Split]]:
    """One sample of every detector divided in two, the same rows alike for all that have scored them."""
    fit, holdout, how = [], [], {}
    for panel in panels:
        halves = {}
        for name, scores in panel.samples.items():
            *both, how[name] = split(scores, fraction, seed)
            halves[name] = both[0], both[1]
        parts = panel.divided(halves)
        fit.append(parts[0])
        holdout.append(parts[1])
    return fit, holdout, how


def run_system(
    fit: Any,
    holdout: Any,
    *,
    release: str,
    policy: str | Path | Document,
    ledger: str | None = None,
    created: datetime | None = None,
    malicious: Any = None,
    baseline: str | Path | None = None,
) -> SystemRelease:
    """Fit, evaluate and judge several detectors: what `gate run` does before it writes.

    Each sample is a table or files with a column for each detector, or a mapping from a detector's name to its own.
    """
    document = policy if isinstance(policy, Document) else load_policy(policy)
    created = created or datetime.now(UTC)
    documents = document.detectors
    if not documents:
        raise GateError(f"{document.path}: must have `detectors`, got none; call gate.run for one detector")
    document.require_columns()
    given = {"fit": fit, "holdout": holdout, "malicious": malicious}
    policies = {name: own.policy for name, own in documents.items()}
    panels = {sample: _panels_of(data, sample, policies) for sample, data in given.items()}
    rows = Rows(panels["fit"], panels["holdout"], panels["malicious"])
    job = Job(document, release, created, judging_day(created), ledger)
    return gate_system(job, [lambda: rows], read_past(baseline, documents))


def _panels_of(data: Any, sample: str, policies: Mapping[str, Policy]) -> list[Panel]:
    """A sample as Python gives it."""
    if data is None:
        return []
    own = data if isinstance(data, Mapping) and data.keys() <= policies.keys() else None
    parts = [(views_of(sample, [name], policies), value) for name, value in own.items()] if own else []
    panels = []
    for views, value in parts or [(views_of(sample, policies, policies), data)]:
        paths = [value] if isinstance(value, str | os.PathLike) else value
        if isinstance(paths, list | tuple) and paths and all(isinstance(path, str | os.PathLike) for path in paths):
            with reading_panel([os.fspath(path) for path in paths], views, kind_of(sample)) as panel:
                panels.append(panel())
        else:
            panels.append(panel_of(value, sample, views, kind_of(sample)))
    return panels


def read_past(
    baseline: str | Path | None,
    documents: Mapping[str, Document],
    scored: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
    reader: Reader = read_sample,
) -> Past:
    """The release that went before, detector by detector; one that it did not have is released for the first time."""
    if baseline is None:
        return Past()
    if baseline == NO_BASELINE:
        return Past(first=frozenset(documents))
    place = Path(baseline) / DETECTORS
    known = {name for name in documents if (place / name).is_dir()}
    if not known:
        raise GateError(f"{baseline}: must be a release of these detectors, got none of them; name another --baseline")
    old = {name: str(place / name) for name in documents if name in known}
    references = {name: read_reference(path, documents[name], *scored, reader) for name, path in old.items()}
    return Past(references=references, first=frozenset(documents.keys() - known))


# --- one detector -------------------------------------------------------------------------------------------


def _judge_one(job: Job, name: str, rows: Rows, past: Past, policy: Policy, draw: bool) -> Judged:
    fit, holdout, malicious = rows.of(name)
    if name in past.stored:
        release = check_release(job, past.stored[name], holdout, malicious=malicious)
    else:
        assert fit is not None
        release = gate_release(
            job,
            fit,
            holdout,
            split=rows.splits.get(name),
            malicious=malicious,
            reference=past.references.get(name),
            first_release=name in past.first,
        )
    if draw:
        release.files  # noqa: B018, which are kept, and go with the release
    cuts = thresholds_at(release.calibrator, asked_scores(policy))
    return Judged(release, cuts, _flagged(holdout, cuts), None if malicious is None else _flagged(malicious, cuts))


def thresholds_at(calibrator: Calibrator, scores: Sequence[Decimal]) -> tuple[float | None, ...]:
    """The smallest raw score whose calibrated one reaches each of some; None where none does."""
    contract = calibrator.contract
    order = sorted({*scores})
    points = tuple(Anchor(Decimal(repr(float(contract.fpr(float(score))))), score) for score in order)
    found = [*replace(calibrator, contract=Contract(points)).thresholds.values()]
    return tuple(found[order.index(score)] for score in scores)


def _flagged(sample: Scores, cuts: Sequence[float | None]) -> tuple[Ints, ...]:
    """The numbers of the rows that reach each threshold."""
    assert sample.units is not None
    none = sample.units[:0]
    return tuple(none if cut is None else sample.units[sample.values >= cut] for cut in cuts)


def side_by_side(work: Mapping[str, Callable[[], Result]], rows: Rows | None = None) -> dict[str, Result]:
    """Each detector in a child of this process, as many at a time as there are cores and memory for.

    A child shares the rows and all that is imported; what it took is free again when it has ended.
    """
    from joblib import Parallel, delayed

    place = here()
    largest = 0 if rows is None else rows.largest
    workers = int(min(cores(), len(work), max(1, place.memory // (2 * largest * ROW + (1 << 27)))))
    done = Parallel(n_jobs=workers, prefer="threads")(
        delayed(_isolated)(name, function, place.memory + SLACK) for name, function in work.items()
    )
    return dict(zip(work, done, strict=True))


def _isolated(name: str, function: Callable[[], Result], most: int) -> Result:
    try:
        return isolate(function, most)
    except GateError as error:
        raise GateError(*(f"{name}: {line}" for line in str(error).splitlines())) from None


# --- all of them --------------------------------------------------------------------------------------------


def _measure(policy: Policy, rows: Rows, found: Mapping[str, Judged], uses: Mapping[str, Uses]) -> System | None:
    joined = join_panels(rows.holdout, "benign")
    if joined is None or not joined.counted.any():
        return None
    joined_malicious = join_panels(rows.malicious, "malicious") if rows.malicious else None
    malicious = None
    if joined_malicious is not None and joined_malicious.counted.any():
        malicious = _flags(joined_malicious, found, {name: one.malicious or () for name, one in found.items()})
    benign = _flags(joined, found, {name: one.benign for name, one in found.items()})
    use = max((one.holdout.number for one in uses.values()), default=None)
    spent = max((one.malicious.number for one in uses.values() if one.malicious is not None), default=None)
    return measure(policy, benign, malicious, use, spent)


def _flags(joined: Joined, found: Mapping[str, Judged], units: Mapping[str, Sequence[Ints]]) -> Flags:
    scores = len(next(iter(found.values())).thresholds)
    none = [np.empty(0, dtype=np.int64)] * scores
    rows = {name: [joined.rows(name, part) for part in units[name]] if units[name] else none for name in found}
    return Flags(joined, {name: one.thresholds for name, one in found.items()}, rows)


# --- the ledger ---------------------------------------------------------------------------------------------


def _question(
    job: Job, documents: Mapping[str, Document], batches: Sequence[Callable[[], Rows]], past: Past
) -> str | None:
    """What all detectors ask of the rows: it names every calibrator and every sample; None where no ledger is kept.

    One judgement of a release is one use of its rows, however many detectors it has.
    """
    ledgers.require(job.document, job.ledger)
    if job.ledger is None:
        return None
    asked: dict[str, list[Any]] = {}
    for batch in batches:
        rows = batch()
        here_now = {name: own for name, own in documents.items() if name in rows.names}
        asked |= side_by_side({name: partial(_ask, own, name, rows, past) for name, own in here_now.items()}, rows)
    whole = json.dumps([job.document.sha256, job.document.policy.data.model_dump(), asked], sort_keys=True)
    return f"{ledgers.TOGETHER}{hashlib.sha256(whole.encode()).hexdigest()}"


def _count_uses(job: Job, question: str | None, rows: Rows) -> dict[str, Uses]:
    """Count the judgement in the ledger, or tell which one it was."""
    if question is None or job.ledger is None:
        return {}
    found = {}
    for name in sorted(rows.names):
        _, holdout, malicious = rows.of(name)
        spent: list[Use | None] = []
        for sample in (holdout, malicious):
            if sample is None:
                spent.append(None)
            elif job.counted:
                spent.append(ledgers.recall(job.ledger, ledgers.rows_of(sample), question))
            else:
                known = ledgers.rows_of(sample)
                spent.append(ledgers.claim(job.ledger, known, question, job.release, stamp(job.created)))
        assert spent[0] is not None
        found[name] = Uses(ledger=job.ledger, holdout=spent[0], malicious=spent[1])
    return found


def _ask(document: Document, name: str, rows: Rows, past: Past) -> list[Any]:
    """What one detector asks of its rows: its calibrator, and the rows by their digests."""
    fit, holdout, malicious = rows.of(name)
    policy = document.policy
    if name in past.stored:
        calibrator = read_calibrator(past.stored[name])
    else:
        assert fit is not None
        calibrator = fit_sorted(fit.ordered, policy.calibration, policy.anchors)
    digests = [sample and (sample.rows_sha256 or sample.sha256) for sample in (holdout, malicious)]
    return [document.sha256, calibrator.sha256, *digests]


# --- a release that is checked again ------------------------------------------------------------------------


def read_stored_system(directory: str | Path) -> tuple[SystemRecord, dict[str, StoredRelease]]:
    """A release of several detectors to rely on: each judged again, and its record the one that the top names."""
    place = Path(directory)
    record = read_any(place)
    if isinstance(record, Record):
        raise GateError(f"{directory}: must be a release of several detectors, got one of a single one")
    stored = {}
    for facts in record.detectors:
        require_name(facts.name, place)
        found = read_judged(place / DETECTORS / facts.name)
        if found.verdict_sha256 != facts.verdict_sha256:
            raise GateError(f"{directory}: must have the record of {facts.name} that it names; restore the release")
        stored[facts.name] = found
    return record, stored


@dataclass(frozen=True)
class ComparedSystems:
    """Two releases of several detectors side by side: the detectors of both, and those of one only."""

    both: Mapping[str, ComparedReleases]
    came: tuple[str, ...]
    went: tuple[str, ...]


def compare_systems(
    old: str,
    new: str,
    columns: Mapping[str, str | tuple[str, ...] | None],
    files: Mapping[str, tuple[str, ...]],
    reader: Reader = read_sample,
) -> ComparedSystems:
    """What two releases say of each other, detector by detector."""
    (_, before), (_, after) = (read_stored_system(directory) for directory in (old, new))
    found = {}
    for name in [name for name in after if name in before]:
        found[name] = compare_stored(before[name].path, after[name].path, columns, files, reader)
    came = tuple(name for name in after if name not in before)
    return ComparedSystems(found, came, tuple(name for name in before if name not in after))
