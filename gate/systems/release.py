"""Several detectors in one release: it fits and judges each as if it were alone, then what all flag together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gate.checks import load_policy
from gate.checks.reuse import Uses
from gate.checks.system import Flags, System, SystemCase, asked_scores, measure
from gate.errors import GateError
from gate.gating import Job, Release, judging_day
from gate.policy import Document, Policy
from gate.record import Record
from gate.record.system import DETECTORS, SystemRecord, compose_system, facts_of
from gate.report.formats import render, rendered
from gate.report.system import Noted
from gate.rows.engine import engine_of_call
from gate.rows.together import Wide, given_together
from gate.storage import manifest_of, write
from gate.systems.detector import judge_one, thresholds_at
from gate.systems.past import NOTHING_BEFORE, Past, read_past
from gate.systems.rows import SystemRows
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
        found = rendered(self.record)
        for name, release in self.releases.items():
            own = {**release.files, "manifest.json": manifest_of(release.files)}
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


def gate_system(job: Job, rows: SystemRows, past: Past = NOTHING_BEFORE) -> SystemRelease:
    """Fit and judge every detector by itself, one after another, then all of them together."""
    documents, policy = job.document.detectors, job.document.policy
    lacking = [name for name in documents if name not in rows.holdout.samples]
    if lacking:
        raise GateError(f"{', '.join(lacking[:5])}: must have held-out rows, got none; give them with --holdout")
    uses = count_uses(job, state_question(job, documents, rows, past), rows)
    releases = {}
    for name, own in documents.items():
        releases[name] = judge_one(replace(job, document=own, uses=uses.get(name)), name, rows, past)
        rows.forget_order(name)
    records = {name: release.record for name, release in releases.items()}
    return SystemRelease(_record(job, records, _measure(policy, rows, releases, uses)), releases)


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


@engine_of_call()
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

    >>> import gate, numpy as np
    >>> from gate.checks import parse_policy
    >>> policy = "{version: 1, name: two, targets: [{fpr: 10%, min_n: 1000, max_relative_error: 0.5}], data: {id: id}"
    >>> policy += ", detectors: [{name: a, score: a}, {name: b, score: b}]"
    >>> policy += ", system: [{score: 0.1, max_fpr: 40%, min_n: 1000}]}"
    >>> rng = np.random.default_rng(0)
    >>> def rows(kind):
    ...     ids = [f"{kind}-{i}" for i in range(4_000)]
    ...     return {"id": np.array(ids), "a": rng.random(4_000), "b": rng.random(4_000)}
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
    rows = SystemRows.read(lambda sample: given_together(sample, given[sample], policies), None)
    job = Job(document, release, created, judging_day(created), ledger)
    return gate_system(job, rows, read_past(baseline, documents))


def _measure(
    policy: Policy, rows: SystemRows, releases: Mapping[str, Release], uses: Mapping[str, Uses]
) -> System | None:
    scores = asked_scores(policy)
    cuts = {name: thresholds_at(release.calibrator, scores) for name, release in releases.items()}
    benign = _flags(rows.holdout.wide, cuts)
    if benign is None:
        return None
    use = max((one.holdout.number for one in uses.values()), default=None)
    spent = max((one.malicious.number for one in uses.values() if one.malicious is not None), default=None)
    return measure(SystemCase(policy, benign, _flags(rows.malicious.wide, cuts), use, spent))


def _flags(wide: Wide | None, cuts: Mapping[str, Sequence[float | None]]) -> Flags | None:
    """What every detector says of each row; None where rows cannot be joined, or none counts."""
    if wide is None or not wide.count(wide.counted):
        return None
    said = [wide.said([*cuts], at) for at in zip(*cuts.values(), strict=True)]
    return Flags(cuts, said, wide.apart)
