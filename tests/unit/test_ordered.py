"""Scores in order answer alike however they are kept: in memory, counted, or divided where they stand."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import asked_in_parts, is_divided, sample_of

from gate.calibration.fit import fit_ordered
from gate.contract import PAPER_ANCHORS
from gate.errors import GateError
from gate.policy import Calibration
from gate.rows.engine import Duck
from gate.rows.ordered import Divided, Ordered, Sorted, pooled_at_rank, sort, sort_counted

AWKWARD = [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-300, 1.0, -1.0, 1e308, -1e308, 1 / 3, 0.1 + 0.2]


@st.composite
def drawn(draw: st.DrawFn, most: int = 200) -> np.ndarray:
    """Scores as detectors give them: any floats, ties, chains of one ulp, sigmoid tails, denormals, skew."""
    n = draw(st.integers(2, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(
        st.sampled_from(["floats", "awkward", "ties", "chain", "chains", "sigmoid", "denormal", "skew", "wide"])
    )
    if kind == "floats":
        found = draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=n, max_size=n))
        return np.array(found)
    if kind == "awkward":
        return rng.choice(AWKWARD, n)
    if kind == "ties":
        return np.round(rng.beta(0.5, 8, n), draw(st.integers(0, 4)))
    if kind == "chain":
        start = draw(st.sampled_from([0.5, 1.0, 0.1, -0.3, 1e-300, 1e300, 0.0]))
        return np.array([step(start, int(i)) for i in rng.integers(-20, 20, n)])
    if kind == "chains":
        return np.array(
            [step(float(c), int(i)) for c, i in zip(rng.choice([0.1, 0.2, 0.9], n), rng.integers(0, 4, n), strict=True)]
        )
    if kind == "sigmoid":
        return 1 / (1 + np.exp(-rng.normal(0, 20, n)))
    if kind == "denormal":
        return rng.integers(0, 50, n) * 5e-324
    if kind == "skew":
        return rng.random(n) ** draw(st.sampled_from([1.0, 20.0, 200.0]))
    return rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n)


def step(value: float, steps: int) -> float:
    for _ in range(abs(steps)):
        value = float(np.nextafter(value, np.inf if steps > 0 else -np.inf))
    return value


def beside(values: np.ndarray) -> np.ndarray:
    """Every score with the floats on either side of it, and the ends of all floats."""
    values = np.unique(values)
    with np.errstate(over="ignore", under="ignore"):
        up, down = np.nextafter(values, np.inf), np.nextafter(values, -np.inf)
    finite = np.concatenate([values, up, down])
    return np.concatenate([finite[np.isfinite(finite)], [-np.inf, np.inf, 0.5]])


def check(ordered: Ordered, rows: np.ndarray) -> None:
    """Every rank and every count is that of a plain sort."""
    rows = np.sort(rows + 0.0)
    assert ordered.n == len(rows)
    ranks = np.arange(1, len(rows) + 1)
    assert np.asarray(ordered.at_rank(ranks)).tobytes() == rows[::-1].tobytes()
    probes = beside(rows)
    assert ordered.at_or_above(probes).tolist() == [int((rows >= probe).sum()) for probe in probes]


@settings(deadline=None)
@given(drawn())
def test_sorting_as_integers_is_sorting_as_floats(values: np.ndarray) -> None:
    assert sort(values).tobytes() == (np.sort(values) + 0.0).tobytes()


@settings(deadline=None)
@given(drawn(), st.integers(0, 2**32))
def test_in_memory_every_count_is_a_plain_sum(values: np.ndarray, seed: int) -> None:
    check(Sorted(sort(values)), values)
    counts = np.random.default_rng(seed).integers(0, 5, len(values))
    counts[:2] += 1
    check(sort_counted(values, counts), np.repeat(values, counts))


@settings(deadline=None, max_examples=examples(150))
@given(drawn(80), st.integers(0, 9), st.booleans(), st.integers(0, 2**32))
def test_divided_every_count_is_a_plain_sum(values: np.ndarray, fetch: int, weighted: bool, seed: int) -> None:
    """Whatever is fetched at once; with `fetch` 0 every interval is divided to its last score."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 5, len(values)) if weighted else np.ones(len(values), dtype=np.int64)
    weights[:2] += weighted
    with asked_in_parts(fetch):
        sample = sample_of(values, weights=weights if weighted else None)
        assert is_divided(sample)
        order = rng.permutation(2)
        rows = np.repeat(values, weights)
        for question in order:  # ranks first, or counts first
            if question:
                assert sample.ordered.at_or_above(beside(rows)).tolist() == [
                    int((rows >= probe).sum()) for probe in beside(rows)
                ]
            else:
                check(sample.ordered, rows)


@settings(deadline=None, max_examples=examples(60))
@given(drawn(40), drawn(40), st.integers(0, 2**32))
def test_ranks_of_two_samples_together_are_those_of_both_in_one(one: np.ndarray, other: np.ndarray, seed: int) -> None:
    together = np.sort(np.concatenate([one, other]) + 0.0)[::-1]
    ranks = np.random.default_rng(seed).integers(1, len(together) + 1, 20)
    ways: list[list[Ordered]] = [[Sorted(sort(values)) for values in (one, other)]]
    with asked_in_parts(3):
        ways += [[sample_of(values).ordered for values in (one, other)]]
        ways += [[ways[0][0], sample_of(other).ordered], [sample_of(one).ordered, ways[0][1]]]
        for a, b in ways:
            assert (pooled_at_rank(a, b, ranks) + 0.0).tolist() == together[ranks - 1].tolist()


# --- calibrators ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=examples(60))
@given(
    st.integers(0, 2**32),
    st.integers(2, 400),
    st.sampled_from(["30", "1000", "2**40", "2**53", "sigmoid", "chain"]),
    st.booleans(),
    st.sampled_from([(0.0, 1.0), (-3.0, 5.0), (0.0, 100.0)]),
)
def test_a_calibrator_does_not_depend_on_where_the_rows_are(
    seed: int, n: int, kind: str, average: bool, domain: tuple[float, float]
) -> None:
    """To the last byte; at every float around an anchor's threshold it agrees with the counts by threshold."""
    rng = np.random.default_rng(seed)
    values = rng.beta(0.5, 8, n)
    if kind == "sigmoid":
        values = 1 / (1 + np.exp(-rng.normal(0, 20, n)))
    elif kind == "chain":
        values = np.array([step(0.75, int(i)) for i in rng.integers(0, 40, n)])
    else:
        steps = {"30": 30, "1000": 1000, "2**40": 2**40, "2**53": 2**53}[kind]
        values = np.round(values * steps) / steps
    values = np.clip(domain[0] + values * (domain[1] - domain[0]), *domain)
    how = Calibration(knots=200, ties="average" if average else "conservative", domain=domain)
    calibrators = []
    for divided in (False, True):
        with asked_in_parts(5) if divided else contextlib.nullcontext():
            sample = sample_of(values, domain=domain)
            assert is_divided(sample) == divided
            calibrators.append(fit_ordered(sample.ordered, how))
    one, other = calibrators
    assert one.to_json() == other.to_json()
    for anchor in PAPER_ANCHORS:
        threshold = one.thresholds[anchor.fpr]
        if threshold is None or not np.isfinite(threshold):
            continue
        near = np.array([step(threshold, i) for i in range(-3, 4)])
        near = np.concatenate([near[(near >= domain[0]) & (near <= domain[1])], values])
        assert ((one.predict(near) >= float(anchor.score)) == (near >= threshold)).all()


@settings(deadline=None, max_examples=examples(40))
@given(drawn(120), st.sampled_from(["filliben", "mean"]))
def test_no_fit_row_is_promised_rarer_than_the_fit_rows_saw_it(values: np.ndarray, position: str) -> None:
    """The calibrated score of a row stands for a rate; at least so many rows as that rate allows reach it."""
    values = np.abs(values) / (1 + np.abs(values))
    calibrator = fit_ordered(Sorted(sort(values)), Calibration(knots=500, plotting_position=position))
    for anchor in PAPER_ANCHORS:
        flagged = int((calibrator.predict(values) >= float(anchor.score)).sum())
        assert flagged <= np.floor(float(anchor.fpr) * (len(values) + 1) + 1), "an anchor flags more than its rate"


# --- rows that change -------------------------------------------------------------------------------------------


def test_rows_that_change_between_two_questions_are_refused() -> None:
    sample = sample_of(np.random.default_rng(1).random(500))
    engine = sample.engine
    assert isinstance(engine, Duck)
    table = engine.name("changing")
    engine.do(f"CREATE TEMP TABLE {table} AS SELECT score FROM {sample.rows}")
    with asked_in_parts(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr("gate.rows.ordered.FIRST", 3)
        divided = Divided(engine, table, "count(*)", (0.0, 1.0))
        divided.at_rank([1])
        engine.do(f"DELETE FROM {table} WHERE score < 0.5")
        with pytest.raises(GateError, match=r"^rows: must stay as they are while gate asks, got other ones"):
            divided.at_rank([400])
