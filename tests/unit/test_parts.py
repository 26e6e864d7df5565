"""What a sample says of its parts: the rows of each group, of each segment, of each group within a segment."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import asked_in_parts, sample_of

from gate.rows.sample import Reached

SCORES = st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.5, 0.9, 1.0, 5e-324])


def lines(found: Reached) -> list[tuple[float, ...]]:
    """Size and counts of each part, in an order that hangs on nothing else."""
    return sorted((size, *row) for size, row in zip(found.sizes.tolist(), found.reached.tolist(), strict=True))


def one_by_one(values: np.ndarray, codes: np.ndarray, scores: list[float]) -> list[tuple[float, ...]]:
    parts = [values[codes == part] for part in np.unique(codes)]
    return sorted((len(own), *(float(np.count_nonzero(own >= score)) for score in scores)) for own in parts)


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(st.tuples(SCORES, st.integers(0, 4), st.integers(0, 2)), min_size=2, max_size=60),
    scores=st.lists(st.sampled_from([-np.inf, 0.1, 0.15, 0.5, 0.95, np.inf, 0.0, 1e-323]), max_size=6),
    divided=st.booleans(),
)
def test_every_part_is_counted_at_every_score(
    rows: list[tuple[float, int, int]], scores: list[float], divided: bool
) -> None:
    """The counts are those of a plain loop, ties, infinities and absent parts included."""
    values, groups, segments = (np.array(column) for column in zip(*rows, strict=True))
    with asked_in_parts() if divided else nullcontext():
        sample = sample_of(values, groups=groups, segments=segments)
        wanted = np.array(scores)
        assert lines(sample.by_group(wanted)) == one_by_one(values, groups, scores)
        assert lines(sample.by_group_in_segment(wanted)) == one_by_one(values, segments * 5 + groups, scores)
        found = sample.by_segment(wanted)
        names = sorted({*segments.astype(str)})
        assert sample.segment_names == tuple(names)
        assert found.parts.tolist() == list(range(len(names)))
        for name, size, reached in zip(names, found.sizes, found.reached, strict=True):
            own = values[segments.astype(str) == name]
            assert size == len(own)
            assert reached.tolist() == [np.count_nonzero(own >= score) for score in scores]
        assert (sample.group_count, sample.largest_group) == (len({*groups}), max(np.bincount(groups)))


def test_the_parts_of_each_segment_are_told_apart() -> None:
    sample = sample_of([0.1, 0.2, 0.3, 0.4, 0.5], groups=["a", "b", "a", "a", "b"], segments=["y", "x", "y", "x", "x"])
    found = sample.by_group_in_segment(np.array([0.3]))
    assert [part // sample.group_count for part in found.parts] == [0, 0, 1]
    assert found.sizes.tolist() == [1, 2, 2]
    assert found.reached[:, 0].tolist() == [1, 1, 1]


@settings(max_examples=examples(10), deadline=None)
@given(groups=st.integers(4000, 4300), seed=st.integers(0, 2**32))
def test_too_many_groups_are_joined_by_a_hash_of_their_names(groups: int, seed: int) -> None:
    """No row is lost, the rows of one group stay together, and groups are joined only where they must be."""
    rng = np.random.default_rng(seed)
    members = np.concatenate([np.arange(groups), rng.integers(0, groups, groups)])
    sample = sample_of(rng.random(2 * groups), groups=members)
    whole, units = sample.by_group(np.array([0.5])), sample.by_group(np.array([0.5]), units=True)
    assert (whole.sizes.sum(), whole.reached.sum()) == (units.sizes.sum(), units.reached.sum())
    assert len(whole.sizes) == groups
    assert (len(units.sizes) == groups) == (groups <= 4096)
    assert units.sizes.max() >= whole.sizes.max()
