"""Sketches: the same for the same rows however they come, and how surely they tell the share of two sets."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from drawing import examples, often
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples import asked_in_parts, sample_of

from gate.rows.sketch import SIZE, Hashes, Named, Sketch, share

TEXTS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12),
    min_size=2,
    max_size=40,
    unique=True,
)


def hash_of(text: str) -> int:
    return int(hashlib.md5(text.encode()).hexdigest()[:16], 16)


def sketch_of(hashes: Hashes) -> Sketch:
    """The sketch of a set that has these hashes."""
    whole = np.unique(hashes)
    return Sketch(len(whole), whole[:SIZE].astype("<u8").tobytes())


@given(TEXTS, st.data())
@example(["a", "b", "row 12345", "x" * 65], None)
@settings(deadline=None, max_examples=examples(60))
def test_a_sketch_has_the_smallest_hashes_in_any_order(texts: list[str], data: st.DataObject | None) -> None:
    again = texts[::-1] if data is None else data.draw(st.permutations(texts))
    one, other = (sample_of(np.linspace(0, 1, len(names)), groups=names) for names in (texts, again))
    found = [Named(sample.ask, sample.rows, "grp") for sample in (one, other)]
    assert found[0].sketch == found[1].sketch
    assert found[0].sketch.possible
    names = set(one.engine.ask(f"SELECT DISTINCT grp FROM {one.rows}")["grp"].tolist())
    assert found[0].sketch == sketch_of(np.array([hash_of(name) for name in names], dtype=np.uint64))


def test_hashes_are_fixed() -> None:
    """A ledger is read by later versions and on other machines: these may never change."""
    ids = sample_of([0.0, 0.25, 1.0, 1e-7], ids=["a", "row 12345", "x" * 65, "é"])
    assert ids.ids is not None
    assert [f"{value:016x}" for value in ids.ids.sketch.hashes] == FIXED_IDS
    assert [f"{value:016x}" for value in ids.distinct_scores.sketch.hashes] == FIXED_SCORES


FIXED_IDS = sorted(hashlib.md5(name.encode()).hexdigest()[:16] for name in ("a", "row 12345", "x" * 65, "é"))
FIXED_SCORES = sorted(hashlib.md5(score.encode()).hexdigest()[:16] for score in ("0.0", "0.25", "1.0", "1e-07"))


@settings(deadline=None, max_examples=examples(40))
@given(st.lists(st.integers(0, 30), min_size=2, max_size=60), st.lists(st.integers(0, 30), min_size=2, max_size=60))
def test_small_samples_are_compared_exactly_as_sets(some: list[int], others: list[int]) -> None:
    one, other = (sample_of(np.array(part) / 30) for part in (some, others))
    both = len({*some} & {*others})
    smaller = min(len({*some}), len({*others}))
    found = share(one.distinct_scores.sketch, other.distinct_scores.sketch, other.distinct_scores.holds)
    assert found == pytest.approx(both / smaller)
    with asked_in_parts():
        assert sample_of(np.array(some) / 30).distinct_scores.sketch == one.distinct_scores.sketch


def test_more_hashes_than_one_question_holds_are_looked_for_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gate.rows.sketch.AT_ONCE", 7)
    sample = sample_of(np.linspace(0, 1, 50), ids=range(50))
    wanted = np.array([hash_of(str(i)) for i in range(30, 80)], dtype=np.uint64)
    assert sample.ids is not None
    assert sample.ids.holds(wanted).tolist() == sorted(hash_of(str(i)) for i in range(30, 50))


@pytest.mark.parametrize("n", [1023, 1024, 1025, 3000])
def test_a_large_set_is_counted_and_keeps_so_many_hashes(n: int) -> None:
    sample = sample_of(np.linspace(0, 1, n), ids=range(n))
    assert sample.ids is not None
    found = sample.ids.sketch
    assert found == sketch_of(np.array([hash_of(str(i)) for i in range(n)], dtype=np.uint64))
    assert (found.n, len(found.hashes), found.possible) == (n, min(n, SIZE), True)
    assert not Sketch(found.n + 5000, found.packed[:-8]).possible
    assert not Sketch(found.n, found.packed[::-1]).possible
    assert not Sketch(found.n, found.packed[:-1]).possible
    assert not Sketch(0, b"").possible


# --- how surely ---------------------------------------------------------------------------------------------

RUNS = 400


def shared_by(earlier: Hashes, later: Hashes) -> float | None:
    return share(sketch_of(earlier), sketch_of(later), lambda hashes: hashes[np.isin(hashes, later)])


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
