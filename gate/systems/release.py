"""Several detectors in one release: it fits and judges each as if it were alone, then what all flag together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from gate.checks import load_policy
from gate.checks.reuse import Uses
from gate.checks.system import Flags, System, SystemCase, measure
from gate.contract import Ints
from gate.errors import GateError
from gate.gating import (
    Job,
    Release,
    judging_day,
)
from gate.policy import Document, Policy
from gate.record import Record
from gate.record.system import DETECTORS, SystemRecord, compose_system, facts_of
from gate.report.formats import render, rendered, warm_up
from gate.report.system import Noted
from gate.scores.several import Joined, join_panels
from gate.storage import manifest_of, write
from gate.systems.detector import JudgedDetector, judge_one, side_by_side
from gate.systems.past import NOTHING_BEFORE, Past, read_past
from gate.systems.rows import SystemRows, panels_of
from gate.systems.uses import count_uses, state_question
from gate.systems.verdict import depends_on_day, judge_together


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
        found = rendered(self.record)
        for name, files in (drawn | draw_side_by_side(rest)).items():
            own = {**files, "manifest.json": manifest_of(files)}
            found |= {f"{DETECTORS}/{name}/{file}": content for file, content in own.items()}
        return found

    def render(self, name: str) -> str:
        """The verdict on all detectors in one format, as of a `Release`."""
        return render(self.record, name)

    def write(self, directory: str | Path, force: bool = False, replaces: str | None = None) -> None:
        """Write the directory with all detectors, whole or not at all.

        directory   where it shall be
        force       by default what is there already is refused; true replaces it
        replaces    by default not asked: what was there before the work began, and alone may be replaced

        Raises `gate.errors.GateError` like the `write` of one release.
        """
        write(directory, self.files, force, replaces)


def draw_side_by_side(releases: Mapping[str, Release]) -> dict[str, dict[str, bytes]]:
    """Draw the files of each release, with all reports."""
    if not releases:
        return {}
    warm_up()  # children share what this process imports before it makes them
    return side_by_side({name: partial(_files_of, release) for name, release in releases.items()})


def _files_of(release: Release) -> dict[str, bytes]:
    return release.files


def gate_system(
    job: Job, batches: Sequence[Callable[[], SystemRows]], past: Past = NOTHING_BEFORE, draw: bool = False
) -> SystemRelease:
    """Fit and judge every detector by itself, side by side, then all of them together.

    With `draw`, the child that judges a detector also draws its reports, because the caller will ask for them.

    A batch gives the rows of some of the detectors, and is dropped when the next one is read: of what they flag, and
    how rows go together, only the numbers of rows are kept.
    """
    documents, policy = job.document.detectors, job.document.policy
    question = state_question(job, documents, batches, past)
    done: dict[str, JudgedDetector] = {}
    uses: dict[str, Uses] = {}
    gathered = SystemRows((), ())
    if draw:
        warm_up()
    for batch in batches:
        rows = batch()
        uses |= count_uses(job, question, rows)
        work = {
            name: partial(judge_one, replace(job, document=own, uses=uses.get(name)), name, rows, past, policy, draw)
            for name, own in documents.items()
            if name in rows.names
        }
        done |= side_by_side(work, rows)
        gathered = gathered.joined_by(rows)
        del rows, work
    lacking = [name for name in documents if name not in done]
    if lacking:
        raise GateError(f"{', '.join(lacking[:5])}: must have held-out rows, got none; give them with --holdout")
    found = {name: done[name] for name in documents}
    releases = {name: judged.release for name, judged in found.items()}
    records = {name: release.record for name, release in releases.items()}
    return SystemRelease(_record(job, records, _measure(policy, gathered, found, uses)), releases)


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

    fit         benign rows to fit on
    holdout     other benign rows, to judge on
    release     the name of the release
    policy      a path or a loaded policy, with `detectors:`
    ledger      the file that counts every look at the held-out rows; by default none is counted
    created     the time in the record; now by default
    malicious   malicious rows; by default none, and detection is not judged
    baseline    the directory of the release that went before, "none" where this is the first; by default not compared

    Returns a `SystemRelease` with `outcome`, `record` and `releases`, one for each detector; `write` makes its
    directory. Raises `gate.errors.GateError` for scores, a policy or a baseline that cannot be judged.

    >>> import gate, numpy as np, pyarrow as pa
    >>> from gate.checks import parse_policy
    >>> policy = "{version: 1, name: two, targets: [{fpr: 10%, min_n: 1000, max_relative_error: 0.5}], data: {id: id}"
    >>> policy += ", detectors: [{name: a, score: a}, {name: b, score: b}]"
    >>> policy += ", system: [{score: 0.1, max_fpr: 40%, min_n: 1000}]}"
    >>> rng = np.random.default_rng(0)
    >>> def rows(kind):
    ...     ids = [f"{kind}-{i}" for i in range(4_000)]
    ...     return pa.table({"id": ids, "a": rng.random(4_000), "b": rng.random(4_000)})
    >>> release = gate.run_system(rows("fit"), rows("held out"), release="v1", policy=parse_policy(policy, "two.yaml"))
    >>> release.outcome, sorted(release.releases)
    ('pass', ['a', 'b'])
    """
    document = policy if isinstance(policy, Document) else load_policy(policy)
    created = (created or datetime.now(UTC)).astimezone(UTC)
    documents = document.detectors
    if not documents:
        raise GateError(f"{document.path}: must have `detectors`, got none; call gate.run for one detector")
    document.require_columns()
    given = {"fit": fit, "holdout": holdout, "malicious": malicious}
    policies = {name: own.policy for name, own in documents.items()}
    panels = {sample: panels_of(data, sample, policies) for sample, data in given.items()}
    rows = SystemRows(panels["fit"], panels["holdout"], panels["malicious"])
    job = Job(document, release, created, judging_day(created), ledger)
    return gate_system(job, [lambda: rows], read_past(baseline, documents))


def _measure(
    policy: Policy, rows: SystemRows, found: Mapping[str, JudgedDetector], uses: Mapping[str, Uses]
) -> System | None:
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
    return measure(SystemCase(policy, benign, malicious, use, spent))


def _flags(joined: Joined, found: Mapping[str, JudgedDetector], units: Mapping[str, Sequence[Ints]]) -> Flags:
    scores = len(next(iter(found.values())).thresholds)
    none = [np.empty(0, dtype=np.int64)] * scores
    rows = {name: [joined.rows(name, part) for part in units[name]] if units[name] else none for name in found}
    return Flags(joined, {name: one.thresholds for name, one in found.items()}, rows)
