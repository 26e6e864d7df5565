"""Fits and judges one detector of several as if it were alone, in a child of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from gate.calibration.calibrator import Calibrator
from gate.checks.system import asked_scores
from gate.contract import Anchor, Contract, Ints
from gate.errors import GateError
from gate.gating import (
    Job,
    Release,
    check_release,
    gate_release,
)
from gate.ordered import cores
from gate.policy import Policy
from gate.scores import Scores
from gate.scores.child import Returned, isolate
from gate.scores.place import here
from gate.stored import exact
from gate.systems.past import Past
from gate.systems.rows import SystemRows

ROW = 100  # bytes that a row of one detector takes while it is fitted and judged: read, sorted, compared
SLACK = 1 << 30


@dataclass(frozen=True)
class JudgedDetector:
    """One detector's release, and the rows that it flags at each score of the system, by kind."""

    release: Release
    thresholds: tuple[float | None, ...]
    benign: tuple[Ints, ...]
    malicious: tuple[Ints, ...] | None


def judge_one(job: Job, name: str, rows: SystemRows, past: Past, policy: Policy, draw: bool) -> JudgedDetector:
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
        release.files  # noqa: B018, the files are kept and sent with the release
    cuts = thresholds_at(release.calibrator, asked_scores(policy))
    return JudgedDetector(
        release, cuts, _flagged(holdout, cuts), None if malicious is None else _flagged(malicious, cuts)
    )


def thresholds_at(calibrator: Calibrator, scores: Sequence[Decimal]) -> tuple[float | None, ...]:
    """Find the smallest raw scores whose calibrated scores reach the given ones; None if none does."""
    contract = calibrator.contract
    order = sorted({*scores})
    points = tuple(Anchor(exact(float(contract.fpr(float(score)))), score) for score in order)
    found = [*replace(calibrator, contract=Contract(points)).thresholds.values()]
    return tuple(found[order.index(score)] for score in scores)


def _flagged(sample: Scores, cuts: Sequence[float | None]) -> tuple[Ints, ...]:
    """Return the numbers of the rows that reach each threshold."""
    assert sample.units is not None
    none = sample.units[:0]
    return tuple(none if cut is None else sample.units[sample.values >= cut] for cut in cuts)


def side_by_side(work: Mapping[str, Callable[[], Returned]], rows: SystemRows | None = None) -> dict[str, Returned]:
    """Run each detector in a child of this process, as many at a time as there are cores and memory for.

    A child shares the rows and all that is imported; its memory is free again when it has ended.
    """
    from joblib import Parallel, delayed

    place = here()
    largest = 0 if rows is None else rows.largest
    workers = int(min(cores(), len(work), max(1, place.memory // (2 * largest * ROW + (1 << 27)))))
    done = Parallel(n_jobs=workers, prefer="threads")(
        delayed(_isolated)(name, function, place.memory + SLACK) for name, function in work.items()
    )
    return dict(zip(work, done, strict=True))


def _isolated(name: str, function: Callable[[], Returned], most: int) -> Returned:
    try:
        return isolate(function, most)
    except GateError as error:
        raise GateError(*(f"{name}: {line}" for line in str(error).splitlines())) from None
