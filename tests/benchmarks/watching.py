"""A release that serves, checked day by day: what `gate plan --rows-per-check` says, and what simulated days show.

    cd tests && python -m benchmarks.watching [--episodes 400] [--years 10]

Each day is judged by `gate check`'s own stages, on raw scores and on those that were served; tests run the same with
few days. An episode is a drift that lasts until a check fails.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from watched import START, check_day, day_of, days, document_of, make_release

from gate.planning import CHECKS_A_YEAR, watch
from gate.planning.watch import TargetWatch
from gate.policy import Document
from gate.record import StoredRelease

ROWS = 700  # a day


@dataclass(frozen=True)
class Watched:
    """A policy, a release made under it, and what its plan says of checks of so many rows."""

    document: Document
    stored: StoredRelease
    planned: TargetWatch
    rows: int = ROWS

    @property
    def threshold(self) -> float:
        (anchor,) = self.stored.record.calibrator.anchors
        assert anchor.threshold is not None
        return anchor.threshold

    def outcomes(self, seed: int, multiple: float, count: int, calibrated: bool = False) -> list[str]:
        """How so many days come out whose true rate is a multiple of the target."""
        rng = np.random.default_rng(seed)
        rate = float(self.document.policy.targets[0].fpr) * multiple
        found: list[str] = []
        for day in days(count):
            scores = day_of(rng, rate, self.threshold, self.rows)
            found.append(check_day(self.document, self.stored, scores, day, calibrated).outcome)
        return found

    def days_until_found(self, seed: int, multiple: float, episodes: int, calibrated: bool = False) -> list[int]:
        """How many days each of some drifts lasted, the day on which a check fails included."""
        rng, waited = np.random.default_rng(seed), []
        for _ in range(episodes):
            waited.append(1)
            while self.outcomes(int(rng.integers(2**62)), multiple, 1, calibrated) != ["fail"]:
                waited[-1] += 1
        return waited


def prepare(place: Path, rows: int = ROWS) -> Watched:
    document = document_of()
    stored = make_release(document, place / "v1", "v1", START)
    (planned,) = watch(document.policy, rows, stored.record.fit.n).targets
    return Watched(document, stored, planned, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--years", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        watched = prepare(Path(place))
        print("| true rate / target | planned | found | days until found, planned | found |")
        print("| ---: | ---: | ---: | ---: | ---: |")
        for alarm in watched.planned.drifted:
            multiple = float(alarm.multiple)
            waited = watched.days_until_found(int(10 * multiple), multiple, options.episodes, calibrated=True)
            share = len(waited) / sum(waited)
            print(f"| {multiple:g} | {alarm.fails:.3f} | {share:.3f} | {1 / alarm.fails:.2f} | {np.mean(waited):.2f} |")
        count = options.years * CHECKS_A_YEAR
        found = watched.outcomes(1, 1.0, count)
        sound, fails = watched.planned.sound, found.count("fail")
        print(f"sound: {fails} of {count:,} checks failed, {sound.fails * count:.3g} planned; ", end="")
        print(f"{count - found.count('pass'):,} did not pass, {sound.not_passes * count:.5g} planned")


if __name__ == "__main__":
    main()
