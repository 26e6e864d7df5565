"""What checks measure of real rows, against a plain count: ranges, with groups and in segments, and many groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import case
from samples import sample_of

from gate.checks import parse_policy, ranges, segment_ranges, segments
from gate.checks.check import Case
from gate.checks.overlap import refuse_copies_of
from gate.errors import GateError
from gate.planning.ranges import corridor_of
from gate.policy import Columns, Policy
from gate.rows.reading import kind_of, read
from gate.sources import Labels
from gate.statistics.permutation import MOST_UNITS, exchange
from gate.statistics.ranges import MOST_SEGMENTS

TARGETS = "version: 1\nname: measured\ntargets: [{fpr: 10%, min_n: 100, max_relative_error: 0.5}]\n"
RANGES = "ranges: [{from: 10%, to: 1%, min_n: 100, max_relative_error: 1}]\n"
SEGMENTS = """\
data: {segment: segments}
checks: {segments: {targets: [10%], min_n: 20, max_relative_error: 1, ranges: [{from: 10%, to: 1%}]}}
"""
N = 4_000


def policy_of(more: str) -> Policy:
    return parse_policy(TARGETS + more, "policy.yaml").policy


def looked_at(policy: Policy, grouped: bool, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "segments": rng.choice(["de", "en", "fr"], N),
        "groups": rng.integers(0, 900, N) if grouped else None,
    }
    return case(policy, rng.beta(0.5, 8, N), sample_of(rng.beta(0.5, 8, N), **columns))


def test_without_ranges_nothing_is_counted() -> None:
    assert ranges.measure(looked_at(policy_of(""), grouped=False)) is None


@pytest.mark.parametrize("grouped", [False, True])
def test_a_range_counts_the_rows_that_reach_each_of_its_points(grouped: bool) -> None:
    policy = policy_of(RANGES)
    measured = looked_at(policy, grouped)
    found = ranges.measure(measured)
    assert found is not None
    [along] = found.ranges
    grid = corridor_of(policy, policy.ranges[0], measured.alpha).grid
    [scores] = ranges.scores_on(measured, [grid])
    rows = measured.holdout.ordered.at_rank(np.arange(1, N + 1))
    assert list(along.flagged) == [int(np.count_nonzero(rows >= score)) for score in scores.tolist()]
    if not grouped:
        assert along.worth is None
        return
    assert along.worth is not None
    asked = ranges.asked_of_groups(grid, measured.anchors)
    assert [at.point for at in along.worth] == asked
    assert all(0 < rows <= N for at in along.worth for rows in at.effective)


def test_a_range_is_counted_in_every_segment_unless_they_are_too_many() -> None:
    policy = policy_of(SEGMENTS)
    measured, question = looked_at(policy, grouped=True), segments.question_of(policy)
    [along] = segment_ranges.measure(measured, question, 3)
    assert len(along.flagged) == 3
    assert along.effective is not None
    assert not segment_ranges.measure(measured, question, MOST_SEGMENTS + 1)


@pytest.mark.parametrize("groups", [50, MOST_UNITS])
@pytest.mark.parametrize("differ", [False, True])
def test_groups_beyond_the_table_are_joined_at_random(differ: bool, groups: int) -> None:
    """More than a table holds, and few: samples alike stay so, and samples that differ are still told apart."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 5, groups).astype(np.float64) * (MOST_UNITS // groups)
    parts = [np.column_stack([rng.binomial(sizes.astype(int), rate)]).astype(np.float64) for rate in (0.1, 0.1)]
    if differ:
        parts[1] = np.column_stack([rng.binomial(sizes.astype(int), 0.2)]).astype(np.float64)
    found = exchange(sizes, parts[0], sizes, parts[1], draws=499)
    assert (found.p_value < 0.01) == differ


@pytest.mark.parametrize("kind", ["fit", "holdout"])
def test_a_file_that_is_given_as_both_kinds_is_refused(tmp_path: Path, kind: str) -> None:
    """By its bytes, whatever its name."""
    values = {name: np.random.default_rng(seed).random(50) for seed, name in enumerate(("fit", "holdout"))}
    values["malicious"] = values[kind]
    samples = []
    for name, scores in values.items():
        np.save(tmp_path / f"{name}.npy", scores)
        samples.append(read([str(tmp_path / f"{name}.npy")], Columns(), (0.0, 1.0), kind_of(name)))
    asked = case(policy_of(""), *samples)
    with pytest.raises(GateError, match=r"\.npy: must hold malicious rows alone, got the same bytes as in "):
        refuse_copies_of(asked)
    refuse_copies_of(replace(asked, malicious=replace(samples[2], labels=Labels(distinct=0, first=()))))
    refuse_copies_of(replace(asked, malicious=sample_of(values[kind])))
