"""What a sample says of its parts: the rows of each group, of each segment, of each group within a segment."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gate.scores import Scores

SCORES = st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9, 1.0])


@given(
    rows=st.lists(st.tuples(SCORES, st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=60),
    scores=st.lists(st.sampled_from([-np.inf, 0.1, 0.15, 0.5, 0.95, np.inf]), max_size=6),
)
def test_every_part_is_counted_at_every_score(rows: list[tuple[float, int, int]], scores: list[float]) -> None:
    """The counts are those of a plain loop, ties, infinities and absent parts included."""
    values, groups, segments = (np.array(column) for column in zip(*rows, strict=True))
    sample = Scores(values, groups=groups.astype(np.int64), segments=segments.astype(np.int32))
    number = len(sample.group_sizes)
    for found, codes in (
        (sample.by_group(np.array(scores)), groups),
        (sample.by_segment(np.array(scores)), segments),
        (sample.by_group_in_segment(np.array(scores)), segments * number + groups),
    ):
        assert found.parts.tolist() == sorted({*codes.tolist()})
        for part, size, reached in zip(found.parts, found.sizes, found.reached, strict=True):
            own = values[codes == part]
            assert size == len(own)
            assert reached.tolist() == [np.count_nonzero(own >= score) for score in scores]
