"""Sketches: the same for the same rows however they come, and how surely they tell the share of two sets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from drawing import examples, often
from gate.sketch import SIZE, Hashes, hash_each, share, sketch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate import sketch as sketches
from gate.ordered import Ordered
from gate.scores import Scores, text_buffer

TEXTS = st.lists(st.one_of(st.text(max_size=12), st.text(min_size=20, max_size=120)), min_size=1, max_size=60)


def hashes_of(texts: list[str]) -> Hashes:
    return np.unique(hash_each(*text_buffer(pa.array(texts, pa.string()))))


def scores_of(scores: np.ndarray) -> Ordered:
    return Scores(scores).score_hashes()


@given(texts=TEXTS, data=st.data())
@example(texts=["", "\0", "\0\0", "a", "a\0", "\0a", "a" * 64, "a" * 65, "a" * 8, "a" * 9], data=None)
@settings(deadline=None)
def test_texts_have_the_same_hashes_in_any_order_piece_and_type(texts: list[str], data: st.DataObject | None) -> None:
    """And as many as there are different ones: a text's end is part of it."""
    found = hashes_of(texts)
    assert len(found) == len(set(texts))
    again = texts[::-1] if data is None else data.draw(st.permutations(texts))
    wide = pa.concat_arrays([pa.array(["before"]), pa.array([*again, "after"])]).cast(pa.large_string())
    assert np.array_equal(np.unique(hash_each(*text_buffer(wide.slice(1, len(again))))), found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketches, "PIECE", 7)
        assert np.array_equal(hashes_of(again), found)


def test_hashes_are_fixed() -> None:
    """A ledger is read by later versions and on other machines: these may never change."""
    assert [hex(value) for value in hashes_of(["", "a", "row 12345", "x" * 65])] == FIXED_TEXTS
    assert [hex(value) for value in scores_of(np.array([0.0, 0.25, 0.25, 1.0])).values] == FIXED_SCORES


FIXED_TEXTS = ["0x2f4820f1fdc53795", "0xbff53320b4fb7517", "0xda392e041ecc1abe", "0xe220a8397b1dcdaf"]
FIXED_SCORES = ["0x3145a4135da340d5", "0x48218226ff3cd4bf", "0x4b6a1255085f64bf", "0xcac0d25ac9648c66"]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.lists(st.integers(0, 30), min_size=1, max_size=200))
@settings(deadline=None)
def test_small_samples_are_compared_exactly_as_multisets(some: list[int], others: list[int]) -> None:
    """Tied scores count as often as they can be paired."""
    both = sum(min(some.count(value), others.count(value)) for value in set(some))
    first, second = (scores_of(np.sort(np.array(part) / 30)) for part in (some, others))
    assert (first.n, second.n) == (len(some), len(others))
    assert share(sketch(first), second) == pytest.approx(both / min(len(some), len(others)))


# --- how surely ---------------------------------------------------------------------------------------------

RUNS = 400


def shared_by(earlier: Hashes, later: Hashes) -> float | None:
    return share(sketch(Ordered(np.sort(earlier))), Ordered(np.sort(later)))


def estimates(rng: np.random.Generator, earlier: int, later: int, part: float, runs: int = RUNS) -> list[float | None]:
    """What is told of two sets of so many rows of which this part of the smaller one is in both."""
    shared = round(part * min(earlier, later))
    found = []
    for _ in range(runs):
        hashes = rng.integers(0, 2**64, earlier + later - shared, dtype=np.uint64)
        found.append(shared_by(hashes[:earlier], hashes[earlier - shared :]))
    return found


@pytest.mark.each_run(1)
@pytest.mark.parametrize(("earlier", "later"), [(2000, 2000), (2000, 40_000), (30_000, 30_000), (30_000, 20_000)])
def test_ten_percent_is_seen_and_one_percent_is_not(earlier: int, later: int) -> None:
    """With 682 sampled rows and more: a miss has a chance of 1.4e-6, a false alarm one of 1e-14.

    A sample of a tenth as many rows would miss 4 in 100: 100 runs tell that, with a chance of 98 %.
    """
    rng, runs = np.random.default_rng(earlier + later), often(100, RUNS)
    assert all(found is not None and found >= 0.05 for found in estimates(rng, earlier, later, 0.10, runs))
    assert all(found is not None and found < 0.05 for found in estimates(rng, earlier, later, 0.01, runs))


def test_of_a_tenth_of_the_rows_ten_percent_is_seen_as_often_as_the_readme_says() -> None:
    """Some 102 rows are sampled: 96 of 100 are seen, within three errors (1 % each of 400); 1 % raises no alarm."""
    rng, runs = np.random.default_rng(1), often(150, RUNS)
    seen = np.mean([found is not None and found >= 0.05 for found in estimates(rng, 40_000, 4000, 0.10, runs)])
    assert seen == pytest.approx(0.96, abs=3 * (0.96 * 0.04 / runs) ** 0.5)
    alarms = np.mean([found is None or found >= 0.05 for found in estimates(rng, 40_000, 4000, 0.01, runs)])
    assert alarms < 0.01


@pytest.mark.each_run(2)
@pytest.mark.parametrize("later", [20, 400, 4000])
def test_rows_that_are_all_taken_from_an_earlier_set_are_never_missed(later: int) -> None:
    """Where none of them is in the sample, the answer is that nothing can be told."""
    found = estimates(np.random.default_rng(later), 40_000, later, 1.0, often(100, RUNS))
    assert {1.0} <= {*found} <= {1.0, None}


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 5000), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60), deadline=None)
def test_the_share_is_a_share_of_the_smaller_set(earlier: int, later: int, shared: int, seed: int) -> None:
    shared = min(shared, earlier, later)
    hashes = np.random.default_rng(seed).integers(0, 2**64, earlier + later - shared, dtype=np.uint64)
    found = shared_by(hashes[:earlier], hashes[earlier - shared :])
    sampled = min(earlier, later, SIZE * later // max(earlier, later) + 1)
    assert found is None or 0 <= found <= 1
    error = 6 * (0.25 / sampled) ** 0.5 if earlier > SIZE else 1e-12
    assert found is None or abs(found - shared / min(earlier, later)) <= error
