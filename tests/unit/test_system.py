"""Several detectors: the policy of each, what they flag together, and the verdict on all."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import several
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.checks import parse_policy
from gate.checks.system import CHECK, MOST_UNSCORED, Flags, Member, System, SystemEvidence, Together, count, judge
from gate.errors import GateError
from gate.policy import Document
from gate.scores.several import Joined, join_panels, panel_of
from gate.scores.several import View as Viewed
from gate.statistics.binomial import Band
from gate.statistics.tally import Tally
from gate.verdict import find

NAMES = ("injection", "jailbreak", "data.leak-age_1")


def document(*arguments: Any, **named: Any) -> Document:
    return parse_policy(several.policy(*arguments, **named), "several.yaml")


# --- the policy ---------------------------------------------------------------------------------------------


OWN = (
    "calibration: {domain: [-1e1, 1.25]}",
    "targets: [{fpr: 1e-2, min_n: 98_000, max_relative_error: {above: 0.5, below: 1}}]",
    "rule: observed",
    "checks: {overlap: {max_share: 1%}, granularity: {required: true}}",
    'label: "1e-3", benign_label: [0, "no", 1.5]',
    'fit: a.parquet, holdout: ["b.parquet", "c d.parquet"]',
    "required: false",
)


@settings(deadline=None)
@given(st.lists(st.sampled_from(OWN), unique_by=lambda text: text.partition(":")[0], max_size=4), st.data())
def test_the_policy_of_one_detector_is_that_of_its_own_text(own: list[str], data: st.DataObject) -> None:
    """A detector's own settings replace the shared ones; the text written out reads back as the same policy."""
    name = data.draw(st.sampled_from(NAMES))
    end = f'waivers:\n  - {{check: "{name}:fpr@1%", reason: known, owner: me, expires: 2099-12-31}}\n'
    whole = document(NAMES, more={name: ", ".join(own)} if own else None, end=end)
    for each in NAMES:
        alone = whole.detector(each)
        again = parse_policy(alone.text, alone.path)
        assert again.policy == alone.policy == whole.policy.detector(each)
        assert alone.policy.data.score == f"{each}_score"
        assert [str(waiver.check) for waiver in alone.policy.waivers] == (["fpr@1%"] if each == name else [])
        assert not alone.policy.detectors
        assert not alone.policy.system


WRONG = {
    "name: injection": [
        ("name: ..", "must be 1 to 64 letters, digits, dots, dashes or underscores, and not . or .."),
        ("name: a/b", "must be 1 to 64 letters"),
        (f"name: {'a' * 65}", "must be 1 to 64 letters"),
        ("name: Jailbreak", "must differ from every other detector's, in more than case"),
        ('name: "a\\nb"', "must be 1 to 64 letters"),
    ],
    "score: injection_score": [
        ("scor: injection_score", "did you mean `score`?"),
        ("score: jailbreak_score", "must have a score column or files of its own"),
    ],
    "score: 0.3": [("score: 0.995", "must be a calibrated score above 0 and below 0.99")],
    "max_fpr: 10%": [("max_fpr: 0", "must be above 0 and below 1"), ("max_fp: 10%", "did you mean `max_fpr`?")],
    "injection:fpr": [
        ("fpr", "must begin with the name of a detector (injection, jailbreak)"),
        ("other:fpr", "must begin with the name of a detector"),
    ],
}


@pytest.mark.parametrize(("right", "wrong"), [(right, wrong) for right, some in WRONG.items() for wrong in some])
def test_what_is_wrong_is_said_with_its_line(right: str, wrong: tuple[str, str]) -> None:
    """Every error names the file, the line and what must be true."""
    text = several.policy(("injection", "jailbreak")).replace('"', "")
    text += "waivers:\n  - {check: injection:fpr@1%, reason: known, owner: me, expires: 2099-12-31}\n"
    parse_policy(text, "several.yaml")
    line = text[: text.index(right)].count("\n") + 1
    with pytest.raises(GateError) as refused:
        parse_policy(text.replace(right, wrong[0], 1), "several.yaml")
    assert wrong[1] in str(refused.value)
    lines = (line, line + 1) if "Jailbreak" in wrong[0] or "jailbreak" in wrong[0] else (line,)
    assert any(f"several.yaml:{at}: " in str(refused.value) for at in lines)


def test_a_system_without_detectors_is_refused() -> None:
    """`system:` alone judges nothing, and a waiver of one detector has none to cover."""
    text = "version: 1\nname: one\ntargets:\n  - {fpr: 1%, min_n: 100, max_relative_error: 0.5}\n"
    for more in (
        "system: [{score: 0.5, max_fpr: 1%, min_n: 10}]\n",
        'waivers: [{check: "a:fpr@1%", reason: x, owner: y, expires: 2099-01-01}]\n',
        "waivers: [{check: system@0.5, reason: x, owner: y, expires: 2099-01-01}]\n",
    ):
        with pytest.raises(GateError, match=r"several\.yaml:5: "):
            parse_policy(text + more, "several.yaml")


# --- what they flag together --------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 400), st.integers(1, 6), st.integers(0, 2**32), st.booleans())
def test_the_count_is_that_of_every_row_looked_at(n: int, detectors: int, seed: int, grouped: bool) -> None:
    """Any, alone, pairs, gaps: as counted by looking at each row, whatever is flagged, missing or of another kind."""
    rng = np.random.default_rng(seed)
    names = [f"d{i}" for i in range(detectors)]
    flagged = rng.random((n, detectors)) < rng.random(detectors)
    scored = rng.random((n, detectors)) < 0.9
    counted = rng.random(n) < 0.8
    counted[0] = True
    flagged &= scored
    groups = rng.integers(0, 5, n) if grouped else None
    joined = Joined(
        counted=counted,
        apart=0,
        unscored={name: np.flatnonzero(~scored[:, i]) for i, name in enumerate(names)},
        places=dict.fromkeys(names),
        groups=groups,
        group_count=5 if grouped else 0,
    )
    rows = {name: [np.flatnonzero(flagged[:, i])] for i, name in enumerate(names)}
    found = count(Flags(joined, {name: [0.5] for name in names}, rows), Decimal("0.5"), 0, Fraction(1, 20))
    both = zip(flagged, scored, counted, strict=True)
    looked = [({*np.flatnonzero(hits)}, {*np.flatnonzero(~seen)}) for hits, seen, here in both if here]
    assert (found.tally.flagged, found.tally.rows) == (sum(bool(hits) for hits, _ in looked), len(looked))
    assert found.unscored == sum(bool(gaps) for _, gaps in looked)
    assert found.undecided == sum(bool(gaps) and not hits for hits, gaps in looked)
    for i, member in enumerate(found.detectors):
        assert member.flagged == sum(i in hits for hits, _ in looked)
        assert member.alone == sum(hits == {i} for hits, _ in looked)
        assert member.unscored == sum(i in gaps for _, gaps in looked)
        for j in range(i):
            assert found.both[i - 1][j] == sum({i, j} <= hits for hits, _ in looked)
    assert found.largest <= found.tally.rate + 1e-12
    assert found.tally.rate <= found.sum + 1e-12
    assert (found.tally.effective is not None) == grouped


def views(names: tuple[str, ...], **columns: Any) -> dict[str, Viewed]:
    own = document(names).detectors
    return {
        name: Viewed(own[name].policy.data.model_copy(update=columns), own[name].policy.calibration.domain)
        for name in names
    }


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(3, 300), st.integers(0, 2**32))
def test_files_of_their_own_are_joined_by_id(n: int, seed: int) -> None:
    """One table with a column each, and a table each with rows in another order, give the same rows to every count."""
    rng = np.random.default_rng(seed)
    table = several.simulate(n, NAMES, seed)
    gaps = {name: rng.random(n) < 0.1 for name in NAMES}
    for name in NAMES:
        gaps[name][:2] = False
        values = pa.array(table[f"{name}_score"].to_numpy(), mask=gaps[name])
        table = table.set_column(table.column_names.index(f"{name}_score"), f"{name}_score", values)
    whole = join_panels([panel_of(table, "holdout", views(NAMES), "benign")], "benign")
    parts = []
    for name in NAMES:
        order = rng.permutation(n)
        own = table.select(["id", f"{name}_score"]).take(pa.array(order))
        parts.append(panel_of(own, "holdout", {name: views(NAMES)[name]}, "benign"))
    joined = join_panels(parts, "benign")
    assert whole is not None
    assert joined is not None
    assert whole.counted.sum() == joined.counted.sum() == n
    for name in NAMES:
        assert len(whole.unscored[name]) == len(joined.unscored[name]) == gaps[name].sum()
        sample = next(part for part in parts if name in part.samples).samples[name]
        ids = dict(zip(sample.ids.to_pylist(), joined.rows(name, np.asarray(sample.units)), strict=True))
        first = parts[0].samples[NAMES[0]]
        other = dict(zip(first.ids.to_pylist(), joined.rows(NAMES[0], np.asarray(first.units)), strict=True))
        assert all(other[key] == place for key, place in ids.items() if key in other)


def test_rows_that_are_benign_for_some_only_are_not_counted() -> None:
    """If detectors have labels of their own, the system counts rows that are benign for each and names the others."""
    table = several.simulate(6, NAMES[:2], 1)
    table = table.append_column("a", pa.array([0, 0, 0, 0, 1, 1])).append_column("b", pa.array([0, 0, 0, 1, 0, 1]))
    found = views(NAMES[:2])
    labelled = {
        name: Viewed(view.columns.model_copy(update={"label": label}), view.domain)
        for (name, view), label in zip(found.items(), "ab", strict=True)
    }
    joined = join_panels([panel_of(table, "holdout", labelled, "benign")], "benign")
    assert joined is not None
    assert joined.counted.tolist() == [True, True, True, False, False, False]
    assert joined.apart == 2
    malicious = join_panels([panel_of(table, "malicious", labelled, "malicious")], "malicious")
    assert malicious is not None
    assert malicious.counted.tolist() == [False, False, False, True, True, True]


def test_ids_that_do_not_match_are_an_error() -> None:
    """Files that share no row cannot be joined, and the message shows an id of each."""
    panels = []
    for seed, name in enumerate(NAMES[:2]):
        panels.append(panel_of(several.simulate(5, [name], seed), "holdout", {name: views(NAMES)[name]}, "benign"))
    with pytest.raises(GateError, match="got no id in common with them, such as '1-0' and '0-0'"):
        join_panels(panels, "benign")


def test_a_detector_without_scores_is_an_error() -> None:
    """A column without a single score is named, with its detector."""
    table = several.simulate(5, NAMES[:2], 1)
    table = table.set_column(2, "jailbreak_score", pa.array([None] * 5, pa.float64()))
    with pytest.raises(
        GateError, match=r"'jailbreak_score' must hold at least 2 benign scores of the detector jailbreak"
    ):
        panel_of(table, "holdout", views(NAMES[:2]), "benign")


# --- the judgement ------------------------------------------------------------------------------------------


def together(k: int, n: int, unscored: int = 0) -> Together:
    member = Member(name="a", threshold=0.5, flagged=k, alone=k, unscored=unscored)
    tally = Tally(threshold=0.3, flagged=k, rows=n)
    return Together(
        score=Decimal("0.3"), tally=tally, unscored=unscored, undecided=unscored, detectors=(member,), both=()
    )


def known(counted: Together) -> SystemEvidence:
    return SystemEvidence(("a",), System(benign=(counted,)))


@given(st.integers(5000, 200_000), st.floats(0, 0.3), st.integers(0, 400), st.sampled_from(["proven", "observed"]))
def test_only_excess_counts_and_gaps_are_never_silently_smaller(n: int, rate: float, gaps: int, rule: str) -> None:
    """Fail is proven excess; a pass holds even if every row were flagged that a detector has not scored."""
    policy = document(["a"]).policy.model_copy(update={"rule": rule})
    k = int(n * rate)
    gaps = min(gaps, n - k)
    (finding,) = judge(policy, known(together(k, n, gaps)))
    band = Band(Fraction(0), Fraction(1, 10), policy.alpha())
    if band.refutes_high(k, n):
        assert (finding.outcome, finding.reason) == ("fail", "too-many")
    elif gaps > MOST_UNSCORED * n:
        assert (finding.outcome, finding.reason) == ("inconclusive", "unscored")
    elif finding.outcome == "pass":
        worst = k + gaps
        assert band.proves_high(worst, n) if rule == "proven" else worst <= n * band.high
    assert (finding.outcome == "pass") <= (finding.reason in ("proven", rule))


@pytest.mark.each_run(1)
def test_a_bad_system_is_rarely_passed() -> None:
    """At a true rate just above the limit, no more than alpha/2 of the releases pass, but for chance."""
    policy, rng, runs, n = document(["a"], "1%").policy, np.random.default_rng(17), 4000, 20_000
    passed = sum(
        int(times)
        for k, times in zip(*np.unique(rng.binomial(n, 0.01, runs), return_counts=True), strict=True)
        if next(judge(policy, known(together(int(k), n)))).outcome == "pass"
    )
    most = 0.025
    assert passed / runs <= most + 3 * np.sqrt(most * (1 - most) / runs)


def test_too_few_rows_and_nothing_counted_are_no_pass() -> None:
    """Fewer rows than min_n, or rows that could not be joined, leave the system inconclusive."""
    policy = document(["a"]).policy
    assert [f.reason for f in judge(policy, known(together(1, 4000)))] == ["min-n"]
    found, _ = find(policy, SystemEvidence(("a",), None), (CHECK,))
    assert [(f.outcome, f.reason) for f in found] == [("inconclusive", "not-measured")]
