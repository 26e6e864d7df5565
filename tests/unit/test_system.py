"""Several detectors: the policy of each, what they flag together, and the verdict on all."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import several
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gate.checks import parse_policy
from gate.checks.check import MOST_UNSCORED
from gate.checks.system import CHECK, Flags, Member, System, SystemEvidence, count, judge
from gate.checks.system import Together as Counted
from gate.errors import GateError
from gate.gating import Job
from gate.policy import Document
from gate.rows.together import Several, given_together, read_together
from gate.statistics.binomial import Band
from gate.statistics.tally import Tally
from gate.systems import SystemRows, gate_system, run_system
from gate.verdict import find
from gate.verification.result import Data
from gate.verification.system import verify_system

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


def read(table: Any, names: tuple[str, ...], kind: str = "holdout", **columns: Any) -> Several:
    policies = {name: own.policy for name, own in document(names, **columns).detectors.items()}
    return given_together(kind, table, policies)


def gappy(table: pa.Table, column: str, gaps: NDArray[np.bool_]) -> pa.Table:
    """The table without some scores of one column."""
    place = table.column_names.index(column)
    return table.set_column(place, column, pa.array(table[column].to_numpy(), pa.float64(), mask=gaps))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(4, 200), st.integers(1, 6), st.integers(0, 2**32), st.sampled_from(["holdout", "malicious"]), st.data()
)
def test_the_count_is_that_of_every_row_looked_at(n: int, detectors: int, seed: int, sample: str, data: Any) -> None:
    """Any, alone, pairs, gaps, rows apart, groups: as counted by looking at each row, with ids and without."""
    rng = np.random.default_rng(seed)
    names = tuple(f"d{i}" for i in range(detectors))
    named, grouped, again = (data.draw(st.booleans()) for _ in range(3))
    benign, scored = rng.random((n, detectors)) < rng.random(), rng.random((n, detectors)) < 0.8
    if data.draw(st.booleans()):
        benign[:] = benign[:, :1]
    own = benign if sample == "holdout" else ~benign
    own[:2] = scored[:2] = True
    benign[:2] = sample == "holdout"
    scores = rng.integers(1, 20, (n, detectors)) / 20
    rows = np.concatenate([np.arange(n), np.arange(n)[: n // 3]]) if named and again else np.arange(n)
    table = pa.table({"id": [f"row {i}" for i in rows], "g": [f"group {i % 5}" for i in rows]})
    for i, name in enumerate(names):
        table = table.append_column(f"{name}_score", pa.array(scores[rows, i], mask=~scored[rows, i]))
        table = table.append_column(name, pa.array(benign[rows, i].astype(int)))
    policies = {}
    for name, document_of in document(names).detectors.items():
        update = {
            "label": name,
            "benign_label": ("1",),
            "id": "id" if named else None,
            "group": "g" if grouped else None,
        }
        columns = document_of.policy.data.model_copy(update=update)
        policies[name] = document_of.policy.model_copy(update={"data": columns})
    cuts = [data.draw(st.sampled_from([0.3, 0.5, 1.0, None])) for _ in names]
    wide = given_together(sample, table, policies).wide
    assert wide is not None
    flags = Flags({name: [cut] for name, cut in zip(names, cuts, strict=True)}, [wide.said(names, cuts)], wide.apart)
    found = count(flags, Decimal("0.5"), 0, Fraction(1, 20))

    counted = own.all(axis=1) if sample == "holdout" else own.any(axis=1)
    assert flags.apart == (int((own.any(axis=1) & ~counted).sum()) if sample == "holdout" else 0)
    looked = []
    for i in np.flatnonzero(counted).tolist():
        answers = [own[i, j] and scored[i, j] for j in range(detectors)]
        hits = {j for j in range(detectors) if answers[j] and cuts[j] is not None and scores[i, j] >= cuts[j]}
        looked.append((hits, {j for j in range(detectors) if own[i, j] and not scored[i, j]}, i % 5))
    assert (found.tally.flagged, found.tally.rows) == (sum(bool(hits) for hits, _, _ in looked), len(looked))
    assert found.unscored == sum(bool(gaps) for _, gaps, _ in looked)
    assert found.undecided == sum(bool(gaps) and not hits for hits, gaps, _ in looked)
    for i, member in enumerate(found.detectors):
        assert member.flagged == sum(i in hits for hits, _, _ in looked)
        assert member.alone == sum(hits == {i} for hits, _, _ in looked)
        assert member.unscored == sum(i in gaps for _, gaps, _ in looked)
        for j in range(i):
            assert found.both[i - 1][j] == sum({i, j} <= hits for hits, _, _ in looked)
    assert found.largest <= found.tally.rate + 1e-12
    assert found.tally.rate <= found.sum + 1e-12
    by_group = flags.said[0].groups
    assert (by_group is not None) == grouped
    if by_group is not None:
        expected = [
            (len(of), sum(map(bool, of))) for g in range(5) if (of := [hits for hits, _, at in looked if at == g])
        ]
        assert sorted(zip(*(part.tolist() for part in by_group), strict=True)) == sorted(expected)


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(3, 300), st.integers(0, 2**32))
def test_files_of_their_own_are_joined_by_id(n: int, seed: int) -> None:
    """One table with a column each, and a table each with rows in another order, give the same rows to every count."""
    rng = np.random.default_rng(seed)
    table, own = several.simulate(n, NAMES, seed), {}
    for name in NAMES:
        gaps = rng.random(n) < 0.1
        gaps[:2] = False
        table = gappy(table, f"{name}_score", gaps)
        own[name] = table.select(["id", f"{name}_score"]).take(pa.array(rng.permutation(n)))
    own[NAMES[0]] = own[NAMES[0]].filter(pa.array(own[NAMES[0]][f"{NAMES[0]}_score"].is_valid()))  # absent, not empty
    whole, joined = read(table, NAMES).wide, read(own, NAMES).wide
    assert whole is not None
    assert joined is not None
    for cuts in ([0.3, 0.5, 0.9], [0.9, None, 0.2]):
        one, other = (wide.said(NAMES, cuts) for wide in (whole, joined))
        first, second = (
            {tuple(states): rows for states, rows in zip(said.states.tolist(), said.rows.tolist(), strict=True)}
            for said in (one, other)
        )
        assert first == second
        assert sum(first.values()) == n


def test_files_of_their_own_without_ids_are_not_joined() -> None:
    tables = {name: several.simulate(5, [name], 1).drop_columns(["id"]) for name in NAMES[:2]}
    policies = {
        name: own.policy.model_copy(update={"data": own.policy.data.model_copy(update={"id": None})})
        for name, own in document(NAMES[:2]).detectors.items()
    }
    assert given_together("holdout", tables, policies).wide is None


def test_ids_that_do_not_match_are_an_error() -> None:
    """Files that share no row cannot be joined, and the message shows an id of each."""
    tables: Any = {name: several.simulate(5, [name], seed) for seed, name in enumerate(NAMES[:2])}
    with pytest.raises(GateError, match="got no id in common with them, such as '1-0' and '0-0'"):
        read(tables, NAMES[:2])


def test_a_detector_without_scores_is_an_error() -> None:
    """A column without a single score is named, with its detector."""
    table = gappy(several.simulate(5, NAMES[:2], 1), "jailbreak_score", np.ones(5, dtype=bool))
    said = "^jailbreak: holdout: must hold at least 2 benign scores, got 0 and 5 rows without a score in column 'jail"
    with pytest.raises(GateError, match=said):
        read(table, NAMES[:2])


def test_a_row_without_a_score_needs_an_id() -> None:
    """Without one nobody could say whether other detectors have scored it."""
    table = gappy(several.simulate(6, NAMES[:2], 1), "jailbreak_score", np.arange(6) == 3)
    table = table.set_column(0, "id", pa.array(["a", "b", "c", None, "e", "f"]))
    with pytest.raises(GateError, match="'id' must name every row, got none in row 4"):
        read(table.select(["id", "jailbreak_score", "injection_score"]), ("jailbreak", "injection"))


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(40, 300), st.integers(0, 2**32), st.sampled_from([0.3, 0.5]), st.booleans(), st.booleans())
def test_a_row_is_on_one_side_for_all_detectors(n: int, seed: int, share: float, named: bool, grouped: bool) -> None:
    """Whichever detectors have scored it; the gaps of both sides add up to those of the whole sample."""
    rng = np.random.default_rng(seed)
    names = NAMES[:2]
    table = several.simulate(n, names, seed).append_column("g", pa.array([f"g{i // 2}" for i in range(n)]))
    for name in names:
        table = gappy(table, f"{name}_score", rng.random(n) < 0.2)
    policies = {}
    for name, own in document(names).detectors.items():
        columns = own.policy.data.model_copy(update={"id": "id" if named else None, "group": "g" if grouped else None})
        policies[name] = own.policy.model_copy(update={"data": columns})
    whole = given_together("benign", table, policies)
    fit, holdout, how = whole.split(share, seed % 7)
    assert how.fraction == share
    for name in names:
        sides = [side.samples[name] for side in (fit, holdout)]
        assert sum(side.n for side in sides) == whole.samples[name].n
        assert sum(side.unscored for side in sides) == whole.samples[name].unscored
    key = "q.id" if named else "q.nr"
    fitted, held = (
        {
            row
            for sample in side.samples.values()
            for row in sample.engine.ask(f"SELECT {key} AS k FROM {sample.rows}")["k"].tolist()
        }
        for side in (fit, holdout)
    )
    assert not fitted & held
    if not grouped:
        scored = sum(
            not (a is None and b is None)
            for a, b in zip(*(table[f"{n}_score"].to_pylist() for n in names), strict=True)
        )
        assert len(fitted | held) == scored
        assert fit.wide is not None
        assert fit.wide.count("TRUE") == int(np.floor(share * n + 0.5))


# --- rows without a score -----------------------------------------------------------------------------------


def without(rows: int, seed: int, most_likely: str, shift: float, share: float) -> pa.Table:
    """Rows of which one detector has not scored the lowest, the highest, or any, as time-outs do."""
    table = several.simulate(rows, ("a", "b"), seed, shift={"a": shift, "b": shift})
    scores = table["b_score"].to_numpy()
    order = np.argsort({"low": scores, "high": -scores, "any": np.random.default_rng(seed).random(rows)}[most_likely])
    return gappy(table, "b_score", np.isin(np.arange(rows), order[: int(share * rows)]))


GAPS = "checks: {detection: {targets: [{fpr: 10%, min_tpr: 90%}]}}\n"


@pytest.mark.parametrize(("seed", "share"), [(1, 0.3), (2, 0.5)])
def test_malicious_rows_without_a_score_are_missed(seed: int, share: float) -> None:
    """Left out, they would raise the detector's rate to where it passes."""
    policy = document(("a", "b"), "90%", end=GAPS)
    malicious = without(2_000, seed, "low", 1.5, share)
    release = run_system(
        *(several.simulate(6_000, ("a", "b"), seed + i) for i in (1, 2)),
        release="v1",
        policy=policy,
        malicious=malicious,
    )
    record = release.releases["b"].record
    finding = next(finding for finding in record.findings if str(finding.check) == "tpr@10%")
    assert finding.rate is not None
    assert finding.rate.tally.rows == 2_000
    assert finding.outcome == "fail"
    assert f"{int(share * 2_000):,} rows without a score count as missed" in finding.message
    assert release.outcome == "fail"


@pytest.mark.parametrize("sample", ["fit", "holdout"])
@pytest.mark.parametrize(
    ("seed", "share", "most"), [(1, 0.002, "any"), (2, 0.01, "any"), (3, 0.002, "high"), (4, 0.02, "high")]
)
def test_benign_rows_without_a_score_let_nothing_pass(seed: int, share: float, most: str, sample: str) -> None:
    """Left out, those that score highest would lower the false-positive rate; targets, ranges and segments say it."""
    ranges = "ranges: [{from: 10%, to: 5%, min_n: 1000, max_relative_error: 0.9}]\n"
    parts = "checks: {segments: {targets: [10%], min_n: 500, max_relative_error: 0.9, required: true}}\n"
    text = several.policy(("a", "b"), "90%", end=ranges + parts).replace("{id: id}", "{id: id, segment: part}")
    rows = {name: several.simulate(12_000, ("a", "b"), seed + i) for i, name in enumerate(("fit", "holdout"))}
    rows[sample] = without(12_000, seed + 5, most, 0.0, share)
    rows = {name: table.append_column("part", pa.array(["x", "y"] * 6_000)) for name, table in rows.items()}
    release = run_system(**rows, release="v1", policy=parse_policy(text, "several.yaml"))
    assert {finding.outcome for finding in release.releases["a"].record.findings if finding.check.kind == "fpr"} == {
        "pass"
    }
    findings = [finding for finding in release.releases["b"].record.findings if finding.check.kind == "fpr"]
    assert len(findings) == 5
    unscored = [finding for finding in findings if finding.reason == "unscored"]
    assert [finding.outcome for finding in unscored] == ["inconclusive"] * len(unscored)
    assert {finding.outcome for finding in findings if finding not in unscored} <= {"fail"}
    assert len(unscored) == 5 or most == "high"
    name = "fit" if sample == "fit" else "held-out"
    for finding in unscored:
        assert f"{int(share * 12_000):,} {name} benign rows without a score" in finding.message
        assert "score these rows" in str(finding.remedy)
    assert release.outcome != "pass"


@pytest.mark.parametrize("split", [False, True])
def test_rows_without_a_score_are_recorded_as_they_are_and_verified(tmp_path: Path, split: bool) -> None:
    """The release holds with its data, without and with a split, where detectors have gaps in every sample."""
    names = ("a", "b")
    for i, sample in enumerate(("fit", "holdout", "malicious")):
        table = several.simulate(3_000, names, i, shift=dict.fromkeys(names, 2.0 * (sample == "malicious")))
        for j, name in enumerate(names):
            table = gappy(table, f"{name}_score", np.random.default_rng([i, j]).random(3_000) < 0.05)
        pq.write_table(table, tmp_path / f"{sample}.parquet")
    files = {sample: (str(tmp_path / f"{sample}.parquet"),) for sample in ("fit", "holdout", "malicious")}
    whole = document(names, "90%", end=GAPS)
    policies = {name: own.policy for name, own in whole.detectors.items()}

    def ask(sample: str) -> Several:
        return read_together(sample, dict.fromkeys(names, files["fit" if sample == "benign" else sample]), policies)

    rows = SystemRows.read(ask, (0.5, 3) if split else None)
    job = Job(whole, "v1", datetime(2026, 3, 1, tzinfo=UTC), date(2026, 3, 1))
    gate_system(job, rows).write(tmp_path / "v1")
    benign = Data(benign=files["fit"]) if split else Data(files["fit"], files["holdout"])
    data = replace(benign, malicious=files["malicious"])
    found = verify_system(tmp_path / "v1", data, pinned=whole, complete=True)
    assert {one.state for one in found.answers} == {"holds"}, found.lines


def test_a_few_rows_without_a_score_are_shown_and_no_more() -> None:
    """One row in a thousand may have none."""
    rows = [several.simulate(12_000, ("a", "b"), seed) for seed in (1, 2)]
    for gaps, outcome in ((12, "pass"), (13, "inconclusive")):
        table = gappy(rows[1], "b_score", np.arange(12_000) < gaps)
        release = run_system(rows[0], table, release="v1", policy=document(("a", "b"), "90%"))
        assert release.outcome == outcome
        assert release.record.detectors[1].unscored == gaps


# --- the judgement ------------------------------------------------------------------------------------------


def together(k: int, n: int, unscored: int = 0) -> Counted:
    member = Member(name="a", threshold=0.5, flagged=k, alone=k, unscored=unscored)
    tally = Tally(threshold=0.3, flagged=k, rows=n)
    return Counted(
        score=Decimal("0.3"), tally=tally, unscored=unscored, undecided=unscored, detectors=(member,), both=()
    )


def known(counted: Counted) -> SystemEvidence:
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
