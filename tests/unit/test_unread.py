"""Columns that nobody reads: a value that looks like a label keeps a release from passing until somebody says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import case, evidence
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import sample_of

from gate.checks import parse_policy, unread
from gate.checks.check import Case
from gate.checks.unread import Suspect, UnreadColumns
from gate.policy import Policy
from gate.rows.split import split

TEXT = "version: 1\nname: unread\ntargets: [{fpr: 10%, min_n: 100, max_relative_error: 0.5}]\n"
POLICY = parse_policy(TEXT, "policy.yaml").policy


def policy_with(more: str) -> Policy:
    return parse_policy(TEXT + more, "policy.yaml").policy


def benign(seed: int, n: int = 3_000) -> np.ndarray:
    return np.random.default_rng(seed).beta(0.5, 8, n)


def with_attacks(seed: int, share: float, name: str, words: tuple[Any, Any]) -> tuple[np.ndarray, dict[str, Any]]:
    """Benign rows with a share of attacks among them, and columns that say which, and in which language rows are."""
    rng = np.random.default_rng(seed)
    n, m = 3_000, round(3_000 * share)
    order = rng.permutation(n + m)
    scores = np.concatenate([rng.beta(0.5, 8, n), rng.beta(9, 1, m)])[order]
    label = np.array([str(words[0])] * n + [str(words[1])] * m, dtype=object)[order]
    language = rng.choice(["en", "de", "ja"], n + m, p=[0.8, 0.15, 0.05]).astype(object)
    return scores, {"language": language, name: label}


def judged(looked_at: Case) -> tuple[UnreadColumns | None, list[tuple[str, str]]]:
    found = unread.measure(looked_at)
    findings = unread.judge(looked_at.policy, evidence(looked_at.policy, unread=found))
    return found, [(finding.outcome, finding.reason) for finding in findings]


@settings(max_examples=examples(25), deadline=None)
@given(
    st.sampled_from(["is_injection", "jailbreak", "toxic", "flag", "category", "a b"]),
    st.sampled_from([(0, 1), ("benign", "INJECTION"), ("ok", "fraud"), ("False", "True"), ("a", "b")]),
    st.floats(0.01, 0.4),
    st.integers(0, 2**32),
)
def test_a_column_that_separates_the_scores_blocks_whatever_its_name(
    name: str, words: tuple[Any, Any], share: float, seed: int
) -> None:
    scores, others = with_attacks(seed, share, name, words)
    fit, holdout = sample_of(benign(seed + 1)), sample_of(scores, others=others)
    for looked_at in (case(POLICY, fit, holdout), case(POLICY, holdout, fit)):
        found, outcomes = judged(looked_at)
        assert found is not None
        assert found.suspect is not None
        assert (found.suspect.column, found.suspect.value) == (name, str(words[1]))
        assert outcomes == [("inconclusive", "label-like")]


def test_one_sample_that_is_divided_is_looked_at_as_a_whole() -> None:
    scores, others = with_attacks(1, 0.1, "flag", (0, 1))
    fit, holdout, _ = split(sample_of(scores, others=others), 0.5, 0)
    found, outcomes = judged(case(POLICY, fit, holdout))
    assert found is not None
    assert found.n == len(scores)
    assert outcomes == [("inconclusive", "label-like")]


@pytest.mark.parametrize("columns", ["label: false", "label: language"])
def test_who_says_what_the_labels_are_is_asked_no_more(columns: str) -> None:
    scores, others = with_attacks(2, 0.1, "flag", (0, 1))
    told = policy_with(f"data: {{{columns}}}\n")
    looked_at = replace(case(POLICY, benign(3), sample_of(scores, others=others)), policy=told)
    assert judged(looked_at) == (None, [])
    assert not [*unread.asked(told, evidence(told))]


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 2**32), st.floats(0.05, 0.95), st.floats(0, 3))
def test_a_language_that_fires_more_often_is_no_label(seed: int, share: float, times: float) -> None:
    """Even where its rows have a few times the rate of the others."""
    rng = np.random.default_rng(seed)
    language = rng.random(3_000) < share
    scores = np.clip(rng.beta(0.5, 8, 3_000) * np.where(language, 1 + times / 10, 1), 0, 1)
    words = np.where(language, "ja", "en").astype(object)
    assert judged(case(POLICY, benign(seed + 1), sample_of(scores, others={"language": words})))[1] == [
        ("pass", "no-labels")
    ]


def test_what_is_asked_and_not_measured_is_said() -> None:
    [asked] = unread.asked(POLICY, evidence(POLICY))
    assert (str(asked.name), asked.required) == ("unread", True)
    assert not [*unread.judge(POLICY, evidence(POLICY))]


def test_few_rows_and_a_value_that_all_rows_have_are_no_label() -> None:
    for rows, n in ((4, 100), (100, 100)):
        assert not Suspect(column="a", value="b", rows=rows, top=rows, reached=rows).concentrates(n)
    assert Suspect(column="a", value="b", rows=5, top=5, reached=5).concentrates(100)
