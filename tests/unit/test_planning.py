"""The gate's own error rates: planned sizes against brute force, laws of counts against exact arithmetic."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples, often
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

import gate
from gate import planning
from gate.calibration.positions import fractional_rank, named
from gate.checks import parse_policy
from gate.names import parse_name
from gate.planning import Plan, TargetPlan, plan
from gate.planning.law import Law
from gate.policy import Policy
from gate.statistics import binomial
from gate.statistics.binomial import Band, CountLaw, beta_binomial, critical_counts, hypergeometric

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "statistics.json").read_text())
RULES = ("proven", "observed", "not-refuted")


def policy_text(rule: str, *targets: tuple[object, object, object], min_n: int = 1, position: str = "filliben") -> str:
    """Targets are (rate, tolerance above, tolerance below), rates falling."""
    lines = ["version: 1", "name: test", f"rule: {rule}", f"calibration: {{plotting_position: {position}}}"]
    lines += ["contract:", *(f"  - {{fpr: {fpr}, score: 0.{i + 1}}}" for i, (fpr, _, _) in enumerate(targets))]
    lines += ["targets:"]
    lines += [
        f"  - {{fpr: {fpr}, min_n: {min_n}, max_relative_error: {{above: {above}, below: {below}}}}}"
        for fpr, above, below in targets
    ]
    return "\n".join(lines) + "\n"


def make(rule: str, *targets: tuple[object, object, object], min_n: int = 1, position: str = "filliben") -> Policy:
    return parse_policy(policy_text(rule, *targets, min_n=min_n, position=position), "test.yaml").policy


def law(rule: str, fpr: object, above: object, below: object, position: str = "filliben") -> Law:
    policy = make(rule, (fpr, above, below), position=position)
    return Law(policy, policy.targets[0])


def only(planned: Plan) -> TargetPlan:
    assert len(planned.targets) == 1
    return planned.targets[0]


# --- golden numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GOLDEN["operating_characteristic"], ids=lambda c: f"{c['n']}x{c['true_over_target']}")
def test_operating_characteristic_equals_the_golden_numbers(case: dict[str, Any]) -> None:
    """The chances to pass and to fail of a release whose true rate is given."""
    tested = law(case["rule"], case["fpr"], case["r"], case["r"])
    n, q = case["n"], case["fpr"] * case["true_over_target"]
    critical = critical_counts(n, tested.band)
    region = critical.passing(tested.rule_at(n), n)
    passes, fails = (
        sum(binomial.upper_tail(low, n, q) - binomial.upper_tail(high + 1, n, q) for low, high in counts)
        for counts in ([region] if region else [], critical.refuted(n))
    )
    assert passes == pytest.approx(case["passes"], rel=1e-8, abs=1e-12)
    assert fails == pytest.approx(case["fails"], rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("case", GOLDEN["liveness"], ids=lambda c: f"{c['rule']}-{c['n']}")
def test_liveness_equals_the_golden_numbers(case: dict[str, Any]) -> None:
    sound = law(case["rule"], case["fpr"], case["r"], case["r"]).sound(case["n"], case["n_fit"])
    assert min(chance.passes for chance in sound) == pytest.approx(case["passes"], rel=1e-8, abs=1e-12)


R10 = {
    "proven": (20_305, 223_517, 2_259_717, 22_597_602),
    "observed": (6_991, 76_455, 774_546, 7_745_455),
}
SIZES = [(c["rule"], f"{c['fpr']:f}", str(c["r"]), c["holdout_n"]) for c in GOLDEN["plan"]]
SIZES += [(rule, f"1e-{i + 1}", "0.1", n) for rule, sizes in R10.items() for i, n in enumerate(sizes)]


@pytest.mark.each_run(8)
@pytest.mark.parametrize(("rule", "fpr", "r", "rows"), SIZES)
def test_the_table_of_sizes_is_met_to_the_row(rule: str, fpr: str, r: str, rows: int) -> None:
    """Held-out rows for a power of 95 % with as many to fit on: 24 sizes, computed twice elsewhere."""
    found = only(plan(make(rule, (fpr, r, r))))
    assert (found.holdout_needed, found.fit_needed, found.equal_needed) == (rows, rows, rows)


@pytest.mark.parametrize(
    ("rule", "r", "ratio"),
    [
        ("observed", "0.5", "1.96"),
        ("observed", "0.25", "1.96"),
        ("observed", "0.1", "1.94"),
        ("proven", "0.5", "6.11"),
        ("proven", "0.25", "5.76"),
        ("proven", "0.1", "5.65"),
    ],
)
def test_the_papers_rule_asks_for_far_too_few_rows(rule: str, r: str, ratio: str) -> None:
    """At 0.01 %: how many times 4 / (r^2 p) a sound release needs to pass 95 % of the time."""
    found = only(plan(make(rule, ("1e-4", r, r))))
    assert found.paper_n == 4 / (Fraction(r) ** 2 * Fraction(1, 10_000))
    assert found.holdout_needed is not None
    assert f"{found.holdout_needed / found.paper_n:.2f}" == ratio


# --- sizes needed, against trying every size ----------------------------------------------------------------

small = st.tuples(
    st.sampled_from(RULES),
    st.sampled_from(["0.05", "0.1", "0.2", "0.3", "0.5", "0.9"]),
    st.sampled_from(["0.25", "0.3", "0.5", "1", "2"]),
    st.sampled_from(["0.25", "0.5", "0.95", "1"]),
    st.sampled_from(["filliben", "mean", "median", "conformal"]),
)
TRIED = 400


@settings(max_examples=often(6, 15), deadline=None)
@given(small, st.sampled_from([None, 60, 300, 1500]), st.sampled_from([0.6, 0.8, 0.95]))
def test_rows_needed_are_the_fewest_from_which_on_all_do(
    target: tuple[str, str, str, str, str], fit_n: int | None, power: float
) -> None:
    """Liveness at every size one by one: at the size planned and beyond it has the power, one row before it has not."""
    tested = law(*target)
    found = tested.holdout_needed(fit_n, power)
    live = [tested.liveness(n, n if fit_n is None else fit_n) for n in range(1, TRIED + 1)]
    last_bad = max((n for n, chance in enumerate(live, start=1) if chance < power), default=0)
    if found is None:
        assert tested.liveness(10**12, 10**12 if fit_n is None else fit_n) < power
    elif found <= TRIED:
        assert found == last_bad + 1
    else:
        assert tested.liveness(found, found if fit_n is None else fit_n) >= power


def test_one_good_size_does_not_make_the_next_good() -> None:
    """At 10 % plus or minus 50 % some sizes below the planned one pass too: the planner looks beyond the first."""
    tested = law("proven", "0.1", "0.5", "0.5")
    rows = tested.holdout_needed(None, 0.95)
    assert rows == 858
    good = [n for n in range(600, 858) if tested.liveness(n, n) >= 0.95]
    assert good
    assert tested.liveness(857, 857) < 0.95 <= min(tested.liveness(n, n) for n in range(858, 3000))


def test_a_dip_between_good_sizes_is_not_overlooked() -> None:
    """Under `not-refuted` small samples refute nothing, larger ones refute by chance, and large ones no longer do."""
    tested = law("not-refuted", "0.5", "0.1", "0.1")
    rows = tested.holdout_needed(None, 0.95)
    assert rows == 61
    assert tested.liveness(60, 60) < 0.95 <= tested.liveness(4, 4)


@pytest.mark.each_run(1)
@pytest.mark.parametrize(("rule", "n"), [("observed", 63_000), ("proven", 70_000)])
def test_a_search_cut_short_errs_to_more_rows(rule: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If liveness hardly rises any more, the number is a few per cent too large, and never too small."""
    tested = law(rule, "0.001", "0.25", "0.25")
    monkeypatch.setattr("gate.planning.law.PATIENCE", 300)
    quick = tested.holdout_needed(n, 0.95)
    monkeypatch.setattr("gate.planning.law.PATIENCE", 10**9)
    exact = tested.holdout_needed(n, 0.95)
    assert quick is not None
    assert exact is not None
    assert exact < quick < 1.1 * exact
    assert tested.liveness(exact - 1, n) < 0.95 <= tested.liveness(exact, n)
    assert min(tested.liveness(quick + 997 * i, n) for i in range(40)) >= 0.95


def test_no_held_out_rows_make_up_for_a_noisy_calibrator() -> None:
    """With 30,000 rows to fit, a 0.1 % threshold is itself inside 25 % only 83 % of the time."""
    tested = law("observed", "0.001", "0.25", "0.25")
    rank = 0.001 * 30_000.365 + 0.3175
    inside = np.diff(beta.cdf([0.00075, 0.00125], rank, 30_000 - rank + 1))[0]
    assert inside == pytest.approx(0.83, abs=0.005)
    found = only(plan(make("observed", ("0.001", "0.25", "0.25")), fit_n=30_000))
    assert found.holdout_needed is None
    assert found.equal_needed == 125_600
    assert tested.liveness(10**12, 30_000) == pytest.approx(inside, abs=1e-4)
    assert tested.holdout_needed(30_000, 0.82) is not None


@pytest.mark.each_run(2)
@pytest.mark.parametrize("rule", ["proven", "observed"])
@pytest.mark.parametrize("holdout_n", [3000, 6000, 20_000])
def test_rows_to_fit_are_the_fewest_at_the_held_out_size(rule: str, holdout_n: int) -> None:
    """Trying sizes around the answer: none fewer has the power, all more have."""
    tested = law(rule, "0.1", "0.25", "0.25")
    found = only(plan(make(rule, ("0.1", "0.25", "0.25")), holdout_n=holdout_n)).fit_needed
    assert found is not None
    assert all(tested.liveness(holdout_n, n) < 0.95 for n in range(max(10, found - 300), found))
    assert all(tested.liveness(holdout_n, n) >= 0.95 for n in range(found, found + 300))


def test_no_fit_makes_up_for_too_few_held_out_rows() -> None:
    assert only(plan(make("proven", ("0.001", "0.25", "0.25")), holdout_n=139_315)).fit_needed is None


@pytest.mark.parametrize("rule", ["observed", "not-refuted"])
def test_rows_at_which_bad_releases_rarely_ship(rule: str) -> None:
    """The release is at 1 + 2r times the target; every size from there on will do, and one row fewer will not."""
    tested = law(rule, "0.1", "0.5", "0.5")
    found = tested.needed_against_bad(1000)
    assert found is not None
    assert tested.bad(found - 1, 1000)[0].passes > 0.1
    assert max(tested.bad(n, 1000)[0].passes for n in range(found, found + 1500)) <= 0.1


def test_six_targets_down_to_a_millionth_in_one_plan() -> None:
    rates = ["1e-1", "1e-2", "1e-3", "1e-4", "1e-5", "1e-6"]
    found = plan(make("proven", *((rate, "0.1", "0.1") for rate in rates)))
    needed = [target.holdout_needed for target in found.targets]
    assert needed[:4] == list(R10["proven"])
    assert needed[4:] == [226_069_187, 2_260_692_310]


# --- strength -----------------------------------------------------------------------------------------------


def test_the_papers_size_is_dead_by_the_proven_rule() -> None:
    """0.1 % plus or minus 25 % with 64,000 rows: no count at all is proven."""
    found = only(plan(make("proven", ("0.001", "0.25", "0.25")), fit_n=64_000, holdout_n=64_000))
    assert (found.strength, found.liveness) == ("dead", 0.0)
    assert planning.describe_weakness(found, 0.95) == (
        "fpr@0.1%: no release can pass with 64,000 rows to fit and 64,000 held out; "
        "368,864 rows to fit and as many held out would let a sound one pass 95 % of the time"
    )


def test_what_a_bracket_leaves_open_is_not_called_impossible() -> None:
    """With few fit rows only bounds of the chance are known; the lower one may be 0 although releases do pass."""
    found = only(plan(make("observed", ("0.001", "0.1", "0.1")), fit_n=3_000, holdout_n=13_969))
    assert found.liveness == 0
    assert found.strength == "weak"
    assert "a sound release passes only 0.0 to 33.1 % of the time" in (planning.describe_weakness(found, 0.95) or "")


@pytest.mark.parametrize("fit_n", [30, 3_000, 30_000])
@pytest.mark.parametrize("rule", ["proven", "observed", "not-refuted"])
def test_what_has_passed_is_never_said_to_be_impossible(rule: str, fit_n: int) -> None:
    policy = make(rule, ("0.001", "0.1", "0.1"))
    said = planning.warnings(policy, {policy.targets[0].check}, fit_n, 13_969)
    assert len(said) == 1
    assert "no release can pass" not in said[0]


@pytest.mark.parametrize(
    ("rule", "n", "expected"),
    [
        ("proven", 160_000, "weak"),  # a sound release passes too rarely
        ("proven", 369_000, "good"),
        ("observed", 10_000, "weak"),  # a bad one passes too often
        ("observed", 125_600, "good"),
        ("not-refuted", 100_000, "weak"),
    ],
)
def test_strength(rule: str, n: int, expected: str) -> None:
    found = only(plan(make(rule, ("0.001", "0.25", "0.25")), fit_n=n, holdout_n=n))
    assert found.strength == expected
    weak = found.liveness < 0.8 or found.bad[0].passes > 0.1
    assert weak == (expected == "weak")
    assert (planning.describe_weakness(found, 0.95) is None) == (expected == "good")


@pytest.mark.each_run(3)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [12_000, 100_000, 300_000])
def test_the_number_in_a_warning_would_do(rule: str, n: int) -> None:
    """Planned again at the sizes that the sentence names, the target is no longer dead or weak for that reason."""
    policy = make(rule, ("0.001", "0.25", "0.25"))
    found = only(plan(policy, fit_n=n, holdout_n=n))
    sentence = planning.describe_weakness(found, 0.95)
    if sentence is None:
        assert found.strength == "good"
        return
    rows = int(re.findall(r"; ([\d,]+) ", sentence)[0].replace(",", ""))
    fit_n = rows if "to fit and as many" in sentence else n
    cured = only(plan(policy, fit_n=fit_n, holdout_n=rows))
    if "let it pass at most 10 %" in sentence:
        assert found.bad[0].passes > 0.1 >= cured.bad[0].passes
    else:
        assert found.liveness < 0.8
        assert cured.liveness >= 0.95


def test_nothing_passes_before_the_minimum_of_rows() -> None:
    """One row fewer than min_n: dead, and the warning asks for min_n; refutations count all the same."""
    policy = make("observed", ("0.01", "0.5", "0.5"), min_n=9000)
    short, enough = (only(plan(policy, fit_n=9000, holdout_n=n)) for n in (8999, 9000))
    assert (short.strength, short.liveness, short.bad[0].passes) == ("dead", 0.0, 0.0)
    assert enough.strength == "good"
    assert short.sound[0].fails == pytest.approx(enough.sound[0].fails, rel=0.01)
    assert short.sound[0].inconclusive > 0.99
    assert "; 9,000 held-out rows would" in (planning.describe_weakness(short, 0.95) or "")
    at_min_n = only(plan(policy))
    assert (at_min_n.fit_n, at_min_n.holdout_n) == (9000, 9000)


@pytest.mark.parametrize("rule", RULES)
def test_chances_add_up_and_passes_of_bad_releases_fall(rule: str) -> None:
    found = only(plan(make(rule, ("0.001", "0.25", "0.25")), fit_n=60_000, holdout_n=140_000))
    (sound,) = found.sound
    assert sound.passes + sound.fails + sound.inconclusive == pytest.approx(1.0, abs=1e-12)
    assert [float(bad.multiple) for bad in found.bad] == [1.5, 2.0, 5.0]
    assert 1.0 > found.bad[0].passes > found.bad[1].passes >= found.bad[2].passes


def test_few_fit_rows_give_a_bracket_not_a_number() -> None:
    """Below rank 5 the law lies between those of the neighbouring ranks, and the lower chance is what counts."""
    found = only(plan(make("observed", ("0.001", "0.5", "0.5")), fit_n=3000, holdout_n=100_000))
    assert len(found.sound) == 2
    assert found.liveness == min(chance.passes for chance in found.sound)
    (one,) = only(plan(make("observed", ("0.001", "0.5", "0.5")), fit_n=4800, holdout_n=100_000)).sound
    assert 0 < one.passes < 1


SHAPES = {  # a score by the share of rows above it: a threshold half-way between two scores has another rate for each
    "linear": (lambda u: -u, lambda s: -s),
    "convex": (lambda u: u**-0.5, lambda s: s**-2.0),
    "concave": (lambda u: -(u**3), lambda s: (-s) ** (1 / 3)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("rule", "n_fit", "n"), [("observed", 3000, 100_000), ("proven", 4000, 130_000)])
def test_the_bracket_holds_what_is_simulated(shape: str, rule: str, n_fit: int, n: int) -> None:
    """100,000 fits and counts by the law of two order statistics, whatever lies between them; 4 errors allowed.

    The chances at the two ranks alone were 0.581 and 0.616 where 0.632 is simulated.
    """
    policy = make(rule, ("0.001", "0.5", "0.5"))
    found = only(plan(policy, fit_n=n_fit, holdout_n=n)).sound
    rng, runs = np.random.default_rng(n), 100_000
    x = float(fractional_rank(named("filliben"), Fraction(1, 1000), n_fit))
    rank, share = int(x), x - int(x)
    lower = rng.beta(rank + 1, n_fit - rank, runs)
    upper = lower * rng.beta(rank, 1, runs)
    to_score, to_rate = SHAPES[shape]
    counts = rng.binomial(n, to_rate((1 - share) * to_score(upper) + share * to_score(lower)))
    low, high = critical_counts(n, law(rule, "0.001", "0.5", "0.5").band).passing(rule, n) or (1, 0)
    passes = float(np.mean((counts >= low) & (counts <= high)))
    slack = 4 * (passes * (1 - passes) / runs) ** 0.5
    ends = sorted(chances.passes for chances in found)
    assert ends[0] - slack <= passes <= ends[1] + slack


@pytest.mark.parametrize("error", ["0.001", "0.0001"])
@pytest.mark.parametrize(("rule", "deviations"), [("proven", 1 + 2**0.5), ("observed", 2**0.5)])
def test_tiny_tolerances_are_planned_by_the_normal_law(error: str, rule: str, deviations: float) -> None:
    """There the count is normal: r sqrt(n p / (1 - p)) must be so many times 1.96; within 0.2 %, in few steps."""
    budget = planning.Budget(300)
    policy = make(rule, ("0.001", error, error))
    found = planning.plan_target(policy, policy.targets[0], None, None, 0.95, budget)
    assert found.computed
    rows = (deviations * 1.959964 / float(error)) ** 2 * 0.999 / 0.001
    assert found.equal_needed == pytest.approx(rows, rel=0.002)
    # And a little fewer do not do.
    held = Law(policy, policy.targets[0])
    assert (
        held.liveness(int(rows * 0.98), int(rows * 0.98))
        < 0.95
        <= held.liveness(found.equal_needed or 0, found.equal_needed or 0)
    )


@pytest.mark.parametrize(("n_fit", "rule"), [(683, "proven"), (692, "proven"), (693, "observed"), (694, "observed")])
def test_a_target_is_extrapolated_where_the_gate_says_so(n_fit: int, rule: str) -> None:
    """Below the lowest fit label, 1 - 0.5^(1/n): with 692 rows 0.1 % is, with 693 it is not."""
    assert (1 - 0.5 ** (1 / n_fit) > 0.001) == (rule == "proven")
    assert law("observed", "0.001", "0.5", "0.5").rule_at(n_fit) == rule


DRAWS = 4000


def test_chances_hold_in_a_simulation_with_fit_noise() -> None:
    """4,000 sound releases: uniform scores, the threshold of a real fit rank, its true rate, a held-out count.

    The standard error of a chance p is sqrt(p (1 - p) / 4000), at most 0.8 %; four of them are allowed.
    """
    n_fit, n = 5000, 12_000
    found = only(plan(make("proven", ("0.01", "0.5", "0.5")), fit_n=n_fit, holdout_n=n))
    tested = law("proven", "0.01", "0.5", "0.5")
    rng = np.random.default_rng(20_261)
    x = tested.rank(n_fit)
    whole = math.floor(x)
    places = [n_fit - whole, n_fit - whole - 1]  # places of the two ranks, counted from the smallest score
    largest = np.partition(rng.random((DRAWS, n_fit)), places, axis=1)[:, places]
    thresholds = largest[:, 0] + (x - whole) * (largest[:, 1] - largest[:, 0])
    counts = rng.binomial(n, 1 - thresholds)
    critical = critical_counts(n, tested.band)
    assert critical.proven is not None
    passes = np.mean((counts >= critical.proven[0]) & (counts <= critical.proven[1]))
    fails = np.mean([any(low <= k <= high for low, high in critical.refuted(n)) for k in counts.tolist()])
    (sound,) = found.sound
    for share, chance in ((passes, sound.passes), (fails, sound.fails)):
        assert share == pytest.approx(chance, abs=4 * (chance * (1 - chance) / DRAWS) ** 0.5 + 1e-3)


# --- the laws of counts -------------------------------------------------------------------------------------


def rising(x: Fraction, k: int) -> Fraction:
    """x (x + 1) ... (x + k - 1)."""
    return math.prod((x + i for i in range(k)), start=Fraction(1))


def exact_beta_binomial(n: int, a: Fraction, b: Fraction) -> list[Fraction]:
    return [math.comb(n, k) * rising(a, k) * rising(b, n - k) / rising(a + b, n) for k in range(n + 1)]


def exact_hypergeometric(total: int, marked: int, drawn: int) -> list[Fraction]:
    ways = math.comb(total, drawn)
    return [Fraction(math.comb(marked, k) * math.comb(total - marked, drawn - k), ways) for k in range(drawn + 1)]


def assert_law(found: CountLaw, exact: list[Fraction]) -> None:
    counts = np.arange(-1, len(exact) + 1)
    at_most = [float(sum(exact[: k + 1])) for k in counts.tolist()]
    at_least = [float(sum(exact[max(k, 0) :])) for k in counts.tolist()]
    np.testing.assert_allclose(found.at_most(counts), [0.0, *at_most[1:]], rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(found.at_least(counts), at_least, rtol=1e-11, atol=1e-15)
    two = [min(1.0, 2 * min(low, high)) for low, high in zip([0.0, *at_most[1:]], at_least, strict=True)]
    np.testing.assert_allclose(found.two_sided(counts), two, rtol=1e-11, atol=1e-15)


positive = st.builds(Fraction, st.integers(1, 400), st.sampled_from([1, 2, 8]))


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 50), positive, positive)
def test_beta_binomial_equals_rational_arithmetic(n: int, a: Fraction, b: Fraction) -> None:
    assert_law(beta_binomial(n, float(a), float(b)), exact_beta_binomial(n, a, b))


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.integers(1, 60))
def test_hypergeometric_equals_rational_arithmetic(data: st.DataObject, total: int) -> None:
    marked, drawn = data.draw(st.integers(0, total)), data.draw(st.integers(0, total))
    assert_law(hypergeometric(total, marked, drawn), exact_hypergeometric(total, marked, drawn))


@pytest.mark.parametrize("case", GOLDEN["beta_binomial"], ids=lambda c: str(c["k"]))
def test_beta_binomial_equals_the_golden_numbers(case: dict[str, Any]) -> None:
    found = beta_binomial(case["n"], case["rank"], case["n_fit"] - case["rank"] + 1)
    k = np.array([case["k"]])
    assert found.at_most(k)[0] == pytest.approx(case["cdf"], rel=1e-9, abs=5e-14)
    assert found.at_least(k)[0] == pytest.approx(case["sf"], rel=1e-9, abs=5e-14)
    assert found.between((case["k"], case["k"])) == pytest.approx(case["pmf"], rel=1e-9, abs=5e-14)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 50), positive, positive, st.sampled_from([0.05, 0.01, 0.5]))
def test_prediction_intervals_are_the_narrowest_central_ones(n: int, a: Fraction, b: Fraction, alpha: float) -> None:
    """At most alpha/2 lies beyond either end, and one count further in it would be more."""
    exact = exact_beta_binomial(n, a, b)
    low, high = beta_binomial(n, float(a), float(b)).quantiles(alpha)
    half, slack = Fraction(alpha) / 2, Fraction(1, 10**12)
    assert sum(exact[:low]) <= half + slack
    assert sum(exact[: low + 1]) > half - slack
    assert sum(exact[high + 1 :]) <= half + slack
    assert sum(exact[high:]) > half - slack
    assert sum(exact[low : high + 1]) >= 1 - Fraction(alpha) - 2 * slack


@pytest.mark.parametrize(
    ("n", "n_fit", "rank"),
    [
        (100_000, 100, 30.0),
        (10_000, 10_000, 1000.3),
        (10**6, 1000, 2.3),
        (10**6, 10**6, 1000.0),
        (10**5, 100, 0.32),
        (10**4, 10**6, 5.3),
        (10**7, 10**7, 10_000.0),
        (10**9, 10**9, 1000.0),
    ],
)
def test_integrating_equals_summing(n: int, n_fit: int, rank: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether held-out or fit noise prevails, and with either end anywhere."""
    rate = rank / (n_fit + 1)
    regions = [(round(n * rate * low), round(n * rate * high)) for low, high in ((0.5, 1.5), (0.9, 1.1), (0, 0.99))]
    regions += [(0, 0), (round(n * rate), n), (3, 2)]
    law_ = beta_binomial(n, rank, n_fit - rank + 1)
    monkeypatch.setattr(binomial, "LONGEST_SUM", 0)
    for region in regions:
        integrated = binomial.beta_binomial_between(n, rank, n_fit - rank + 1, region)
        assert integrated == pytest.approx(law_.between(region), abs=1e-7)


def test_beta_quantiles_hold_where_the_inverse_function_does_not() -> None:
    """Between 1e-9 and 1 - 1e-9, also at a = 1000 and b = 1e9, where scipy's inverse is off by a factor of two."""
    levels = np.array([1e-9, 1e-3, 0.1, 0.5, 0.95, 0.999, 1 - 1e-9])
    for n, a in ((10**9, 1000.0), (10**8, 1000.0), (10**9, 1e8), (10**12, 1e6), (59_706, 60.0), (10, 1.0), (10, 10.0)):
        found = binomial.beta_quantiles(a, n - a + 1, levels)
        np.testing.assert_allclose(binomial.beta_cdf(a, n - a + 1, found), levels, rtol=1e-7)
        assert np.all(np.diff(found) > 0)


def test_plans_for_a_trillion_rows_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """No array longer than a few thousand terms is ever made, however many rows are named."""
    longest, arange = 0, np.arange

    def watched(*ends: float, **options: Any) -> Any:
        nonlocal longest
        longest = max(longest, int(ends[-1] - (ends[0] if len(ends) > 1 else 0)))
        return arange(*ends, **options)

    monkeypatch.setattr(np, "arange", watched)
    policy = make("proven", ("0.1", "0.25", "0.25"), ("1e-6", "0.1", "0.1"))
    for fit_n in (2, 1000, 10**12):
        plan(policy, fit_n=fit_n, holdout_n=10**12)
    assert 0 < longest <= 10 * binomial.LONGEST_SUM


# --- the command --------------------------------------------------------------------------------------------


def test_a_run_warns_of_what_passed_as_the_plan_does() -> None:
    """The same sentences at the sizes of the run; what did not pass has a remedy, and no second number of rows."""
    policy = make("observed", ("0.01", "0.25", "0.25"), ("0.001", "0.25", "0.25"))
    planned = plan(policy, fit_n=60_000, holdout_n=2000)
    sentences = [planning.describe_weakness(target, 0.95) for target in planned.targets]
    assert all(sentences)
    names = [name for text in ("fpr@1%", "fpr@0.1%") if (name := parse_name(text)) is not None]
    assert list(planning.warnings(policy, {*names}, 60_000, 2000)) == sentences
    assert list(planning.warnings(policy, {names[1]}, 60_000, 2000)) == sentences[1:]
    rng = np.random.default_rng(1)
    document = parse_policy(
        policy_text("proven", ("0.01", "0.5", "0.5"), ("0.001", "0.25", "0.25"), min_n=5000), "p.yaml"
    )
    record = gate.run(rng.beta(0.5, 8, 6000), rng.beta(0.5, 8, 5000), release="v1", policy=document).record
    assert [finding.outcome for finding in record.findings[:2]] == ["inconclusive", "inconclusive"]
    assert record.warnings == ()


# --- critical counts where a row is worth less than one -----------------------------------------------------

rates = st.sampled_from([Fraction(1, 10), Fraction(3, 10), Fraction(1, 2), Fraction(1, 50)])
tolerances = st.sampled_from([Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(1)])


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(2, 150),
    st.tuples(st.floats(0.02, 1.0), st.floats(0.02, 1.0)),
    rates,
    st.tuples(tolerances, tolerances),
    st.sampled_from(["0.05", "0.5"]),
)
def test_critical_counts_of_clustered_rows_judge_every_count_by_its_interval(
    n: int, worth: tuple[float, float], fpr: Fraction, errors: tuple[Fraction, Fraction], alpha: str
) -> None:
    """Real-valued counts and rows in the interval, whole counts in the decision: they agree for each count."""
    band = Band.around(fpr, *errors, Fraction(alpha))
    found = critical_counts(n, band, worth)
    low, high = float(band.low), float(band.high)
    proven, refuted = found.proven or (1, 0), found.refuted(n)
    for k in range(n + 1):
        lower, upper = (binomial.clopper_pearson(k * rows, n * rows, float(alpha))[i] for i, rows in enumerate(worth))
        ends = [abs(end - edge) for end in (lower, upper) for edge in (low, high)]
        if min(ends) < 1e-9:
            continue
        is_proven = (low <= 0 or lower >= low) and (high >= 1 or upper <= high)
        is_refuted = (low > 0 and upper < low) or (high < 1 and lower > high)
        assert (proven[0] <= k <= proven[1]) == is_proven
        assert any(start <= k <= stop for start, stop in refuted) == is_refuted
