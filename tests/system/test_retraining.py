"""Simulated retrainings: what each kind of change does to the verdict, how often, and which sentences say it.

A detector's score is a monotone function of how suspicious a row looks to it. A retraining changes the function, so
raw thresholds move; a sound one leaves the order of the rows nearly as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from drawing import often
from samples import sample_of
from scipy.stats import binom

from gate.checks import parse_policy
from gate.checks.baseline import Comparison, Reference
from gate.checks.drop import Drops
from gate.contract import Floats
from gate.gating import Job, Release, check_release, gate_release
from gate.record import StoredRelease, as_reference, read_release
from gate.rows.labels import Kind
from gate.rows.sample import Sample

pytestmark = pytest.mark.usefixtures("few_points")

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ROWS, ATTACKS = 40_000, 4_000
POLICY = parse_policy(
    """\
version: 1
name: retraining
data: {id: id}
targets:
  - {fpr: 10%, min_n: 3400, max_relative_error: 0.25}
  - {fpr: 1%, min_n: 37000, max_relative_error: 0.25}
checks:
  detection:
    targets: [{fpr: 1%, min_tpr: 0.7}]
    max_drop: 0.03
""",
    "policy.yaml",
)


def old_detector(suspicion: Floats) -> Floats:
    return 1 / (1 + np.exp(4 - 1.2 * suspicion))


def new_detector(suspicion: Floats) -> Floats:
    return 1 / (1 + np.exp(3 - 1.9 * suspicion))


@dataclass(frozen=True)
class World:
    """Rows as they look in truth; a detector sees them with a little noise of its own."""

    rng: np.random.Generator
    holdout: Floats
    malicious: Floats

    @classmethod
    def of(cls, seed: int) -> World:
        rng = np.random.default_rng(seed)
        return cls(rng, rng.normal(size=ROWS), rng.normal(3.4, 1, ATTACKS))

    def seen(self, rows: Floats) -> Floats:
        return 0.95 * rows + np.sqrt(1 - 0.95**2) * self.rng.normal(size=len(rows))

    def fit(self) -> Floats:
        return self.rng.normal(size=ROWS)


def sample(values: Floats, kind: Kind = "benign", first: int = 0) -> Sample:
    return sample_of(values, ids=[f"{kind} {first + i}" for i in range(len(values))], kind=kind, name=kind)


def released(
    name: str, fit: Floats, holdout: Floats, malicious: Floats, baseline: Reference | None = None, first: int = ROWS
) -> Release:
    """Gate a release; the ids of its fit rows begin at `first`, which is where those of the held-out rows end."""
    samples = sample(fit, first=first), sample(holdout)
    attacks = sample(malicious, "malicious")
    job = Job(POLICY, name, NOON, NOON.date())
    return gate_release(job, *samples, malicious=attacks, reference=baseline, first_release=baseline is None)


@dataclass(frozen=True)
class Retraining:
    """An old release with its scores, and the world that it lives in."""

    world: World
    release: Release
    holdout: Sample
    malicious: Sample

    @classmethod
    def of(cls, seed: int) -> Retraining:
        world = World.of(seed)
        seen, attacks = old_detector(world.seen(world.holdout)), old_detector(world.seen(world.malicious))
        release = released("v1", old_detector(world.fit()), seen, attacks)
        return cls(world, release, sample(seen), sample(attacks, "malicious"))

    @property
    def stored(self) -> StoredRelease:
        files = self.release.files
        return StoredRelease("releases/v1", self.release.record, "a" * 64, files["calibrator.json"])

    def judge(self, fit: Floats, holdout: Floats, malicious: Floats, paired: bool = True) -> Release:
        baseline = as_reference(self.stored)
        if paired:
            baseline = baseline.with_scores(self.holdout, self.malicious)
        return released("v2", fit, holdout, malicious, baseline=baseline)


@cache
def retraining(seed: int) -> Retraining:
    return Retraining.of(seed)


def sound(seed: int) -> Release:
    """Trained anew on the same task: other scores, the same order of rows but for noise."""
    past = retraining(seed)
    world = past.world
    seen, attacks = (new_detector(world.seen(rows)) for rows in (world.holdout, world.malicious))
    return past.judge(new_detector(world.fit()), seen, attacks)


def lost(seed: int) -> Release:
    """Benign rows score as before, and malicious ones look half a deviation more harmless."""
    past = retraining(seed)
    world = past.world
    seen, attacks = (new_detector(world.seen(rows)) for rows in (world.holdout, world.malicious - 0.5))
    return past.judge(new_detector(world.fit()), seen, attacks)


def drifted(seed: int) -> Release:
    """Held out from today's traffic, which is more suspicious than the one that was fitted on."""
    past = retraining(seed)
    world = past.world
    seen, attacks = (new_detector(world.seen(rows)) for rows in (world.holdout + 0.25, world.malicious))
    return past.judge(new_detector(world.fit()), seen, attacks)


def leaked(seed: int) -> Release:
    """The detector was trained on the held-out rows, so these look more harmless to it than unseen rows do."""
    past = retraining(seed)
    world = past.world
    seen, attacks = (new_detector(world.seen(rows)) for rows in (world.holdout - 0.3, world.malicious))
    return past.judge(new_detector(world.fit()), seen, attacks)


def copied(seed: int) -> Release:
    """A sound retraining, but a tenth of the held-out rows are rows that the calibrator was fitted on."""
    past = retraining(seed)
    world = past.world
    fit, holdout, malicious = (new_detector(world.seen(r)) for r in (world.fit(), world.holdout, world.malicious))
    holdout[: ROWS // 10] = fit[-ROWS // 10 :]
    return released("v2", fit, holdout, malicious, as_reference(past.stored), first=ROWS // 10 - ROWS)


def outcomes(release: Release) -> dict[str, str]:
    return {str(finding.check): finding.outcome for finding in release.record.findings}


def messages(release: Release) -> dict[str, str]:
    return {str(finding.check): finding.message for finding in release.record.findings}


# --- how often ----------------------------------------------------------------------------------------------

SEEDS = range(often(4, 12))


def tally(scenario: Callable[[int], Release]) -> Counter[str]:
    return Counter(scenario(seed).outcome for seed in SEEDS)


def at_least(rate: float) -> int:
    """The fewest of the seeds that a scenario with this rate shows all but once in ten thousand times."""
    return int(binom.ppf(1e-4, len(SEEDS), rate))


def test_a_sound_retraining_passes_as_often_as_the_plan_says() -> None:
    """Both targets are planned to pass 95 % of the time or more, so both together at least 90 %."""
    found = tally(sound)
    assert found["pass"] >= at_least(0.9)
    assert found["fail"] == 0, "fail means a proven violation"


@pytest.mark.each_run(1)
@pytest.mark.parametrize("scenario", [lost, drifted, leaked, copied])
def test_a_bad_retraining_never_passes_and_fails_almost_always(scenario: Callable[[int], Release]) -> None:
    found = tally(scenario)
    assert found["pass"] == 0
    assert found["fail"] >= at_least(0.99)


# --- which sentences ----------------------------------------------------------------------------------------


def test_a_sound_retraining_moves_every_threshold_and_keeps_the_contract() -> None:
    release = sound(1)
    assert release.outcome == "pass"
    found = release.record.of(Comparison)
    assert found is not None
    for change in found.anchors[:2]:
        promised = float(change.fpr)
        assert change.stale is not None
        assert change.stale.interval(0.05)[0] > 1.5 * promised, "without recalibration the promise would be broken"
        assert abs(float(change.difference)) < 0.25 * promised
        assert change.p_value is not None
        assert change.p_value > 0.001
        assert change.flipped is not None
        assert change.flipped.new_only
        assert change.flipped.old_only
    assert messages(release)["baseline"] == "compared with v1 of 2026-03-01, which passed its own gate"
    assert "on the same rows" in messages(release)["tpr-drop@1%"]


def test_row_by_row_proves_what_counts_alone_leave_open() -> None:
    """Both releases score the same rows, so the noise of the rows cancels."""
    past, widths = retraining(2), []
    world = past.world
    seen, attacks = (new_detector(world.seen(rows)) for rows in (world.holdout, world.malicious))
    fit = new_detector(world.fit())
    for paired in (True, False):
        found = past.judge(fit, seen, attacks, paired=paired).record.of(Drops)
        assert found is not None
        (interval,) = [change.interval(0.05) for change in found.anchors if float(change.fpr) == 0.01]
        widths.append(interval[1] - interval[0])
    assert widths[0] < 0.8 * widths[1]


def test_a_detector_with_lost_detection_calibrates_and_fails() -> None:
    release = lost(1)
    found = outcomes(release)
    assert (found["fpr@10%"], found["fpr@1%"]) == ("pass", "pass")
    assert found["tpr-drop@1%"] == "fail"
    assert release.record.reason.startswith("the malicious rows disprove")
    assert "where 3 may be lost" in messages(release)["tpr-drop@1%"]


def test_a_drifted_population_is_called_drift() -> None:
    release = drifted(1)
    assert outcomes(release)["fpr@1%"] == "fail"
    assert "the two samples differ; drift, leakage, duplicates or other preprocessing" in messages(release)["fpr@1%"]
    assert outcomes(release)["exchangeability"] == "fail"


def test_a_leaked_holdout_shows_too_few_false_positives_and_is_no_pass() -> None:
    release = leaked(1)
    finding = next(finding for finding in release.record.findings if str(finding.check) == "fpr@1%")
    assert (finding.outcome, finding.reason) == ("fail", "too-few")
    assert "drift, leakage, duplicates or other preprocessing" in finding.message


def test_held_out_rows_that_were_fitted_on_are_found_by_their_ids() -> None:
    release = copied(1)
    assert release.outcome == "fail"
    assert outcomes(release)["fpr@1%"] == "pass", "which is why the counts alone would not tell"
    assert messages(release)["overlap"].startswith("4,000 of 40,000 held-out rows have the id of a fit row")


# --- later --------------------------------------------------------------------------------------------------


def test_a_check_of_the_release_holds_on_the_same_traffic_and_fails_on_other() -> None:
    past = retraining(3)
    world = past.world
    same, other = (old_detector(world.seen(world.rng.normal(shift, 1, ROWS))) for shift in (0.0, 0.3))
    attacks = sample(old_detector(world.seen(world.malicious)), "malicious")
    job = Job(POLICY, "v1", NOON, NOON.date())
    held, broken = (check_release(job, past.stored, sample(rows), malicious=attacks) for rows in (same, other))
    assert (held.outcome, broken.outcome) == ("pass", "fail")
    assert (held.record.kind, set(held.files)) == (
        "check",
        {"verdict.json", "report.html", "report.md", "junit.xml", "predicate.json"},
    )
    then, now = (checked.record.of(Comparison).anchors[1].p_value for checked in (held, broken))
    assert then > 0.001
    assert now < 1e-6


def test_a_failed_release_never_becomes_the_reference() -> None:
    """Against a release that lost detection, one that lost as much would not be inferior; it is not judged so."""
    bad = lost(1)
    stored = StoredRelease("releases/v2", bad.record, "a" * 64, bad.files["calibrator.json"])
    world = retraining(1).world
    seen, attacks = (new_detector(world.seen(rows)) for rows in (world.holdout, world.malicious))
    release = released("v3", new_detector(world.fit()), seen, attacks, baseline=as_reference(stored))
    found = outcomes(release)
    assert "tpr-drop@1%" not in found
    assert (found["tpr@1%"], found["baseline"], release.outcome) == ("pass", "inconclusive", "inconclusive")
    assert release.record.reason == "the baseline did not pass its own gate"
    assert len(release.record.of(Comparison).anchors) == 6, "shown all the same"


def test_written_releases_are_read_back_as_references(tmp_path: Path) -> None:
    past, directory = retraining(1), tmp_path / "v1"
    past.release.write(directory)
    stored = read_release(directory)
    assert stored.record == past.release.record
    assert as_reference(stored).benign == as_reference(past.stored).benign
