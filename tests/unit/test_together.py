"""What all detectors flag together: how each limit is decided and said, and the shapes that are not read."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
import several
from forging import put

from gate.checks import parse_policy, system
from gate.checks.system import (
    NOT_SCORED,
    Flags,
    System,
    SystemCase,
    SystemEvidence,
    asked_scores,
    describe_pass,
    judge,
    measure,
)
from gate.planning import Budget
from gate.policy import Policy
from gate.rows.together import Said
from gate.verdict import find

NAMES = ("a", "b")
ROWS = 20_000


def policy_of(limit: str = "10%", end: str = "", system: str = "") -> Policy:
    text = several.policy(NAMES, limit, end=end)
    return parse_policy(text[: text.index("system:")] + system if system else text, "several.yaml").policy


def flags(both: int, alone: tuple[int, int], unscored: int = 0, grouped: bool = False, apart: int = 0) -> Flags:
    """So many rows that both detectors flag, that one alone does, and that the second has not scored."""
    rest = ROWS - both - sum(alone) - unscored
    states = np.array([[1, 1], [1, 0], [0, 1], [0, NOT_SCORED], [0, 0]], dtype=np.uint8)
    flagged = np.repeat([2.0, 0.0], [(both + sum(alone)) // 2, (ROWS - both - sum(alone)) // 2])
    groups = (np.full(ROWS // 2, 2.0), flagged) if grouped else None
    return Flags({"a": [0.4], "b": [0.6]}, [Said(states, np.array([both, *alone, unscored, rest]), groups)], apart)


def found(
    both: int = 500, alone: tuple[int, int] = (300, 200), unscored: int = 0, grouped: bool = False, apart: int = 0
) -> System:
    rows = flags(both, alone, unscored, grouped, apart)
    return measure(SystemCase(policy_of(), rows, rows, use=1, malicious_use=1))


def known(counted: System | None) -> SystemEvidence:
    return SystemEvidence(NAMES, counted)


# --- the judgement ------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A limit and the counts compared with it; the decision, and parts of the sentences."""

    limit: str
    decided: tuple[str, str]
    message: str
    remedy: str | None
    counts: Mapping[str, Any] = {}
    end: str = ""


CASES = {
    "far below the limit": Case(
        "10%",
        ("pass", "proven"),
        "1,000 false positives in 20,000 benign rows, flagged by any of 2 detectors; 1,916 or fewer prove the limit",
        None,
    ),
    "near the limit": Case(
        "5.3%",
        ("inconclusive", "open"),
        "997 or fewer prove the limit of 5.3 %, 1,124 or more refute it",
        "hold out 40,473 more benign rows (60,473 in all): at the rate observed, a release then passes 95 % of the",
    ),
    "just above it, where more rows would prove nothing": Case(
        "4.9%",
        ("inconclusive", "outside"),
        "920 or fewer prove the limit of 4.9 %",
        "let the detectors act from a higher score, or raise max_fpr: the rate observed is too near the limit",
        end="rule: observed\n",
    ),
    "far above it": Case(
        "1%",
        ("fail", "too-many"),
        "172 or fewer prove the limit of 1 %, 229 or more refute it",
        "act on fewer of them: a alone flags 300 rows that no other one does",
    ),
    "a limit that so many rows cannot prove": Case(
        "0.01%",
        ("inconclusive", "open"),
        "no count proves the limit of 0.01 %, 6 or more refute it",
        "hold out ",
        {"both": 0, "alone": (0, 0)},
    ),
    "a limit that no count exceeds": Case(
        "99.999%",
        ("pass", "proven"),
        "or fewer prove the limit of 99.999 %, no count refutes it",
        None,
    ),
    "proven but for rows that a detector has not scored": Case(
        "5.32%",
        ("inconclusive", "unscored"),
        "20 rows (0.1 %) not scored by every detector (b 20)",
        "score these rows with every detector that lacks them",
        {"unscored": 20},
    ),
    "observed inside, whatever the rows that were not scored": Case(
        "5.32%",
        ("pass", "observed"),
        "1,001 or fewer prove the limit of 5.32 %",
        None,
        {"unscored": 20},
        "rule: observed\n",
    ),
    "more rows than may be are not scored": Case(
        "10%",
        ("inconclusive", "unscored"),
        "21 rows (0.1 %) not scored",
        "score these rows with every detector that lacks them",
        {"unscored": 21},
    ),
    "few rows are benign for one detector only": Case(
        "10%",
        ("pass", "proven"),
        "20 rows (0.1 %) benign for some detectors only and not counted",
        None,
        {"apart": 20},
    ),
    "more rows than may be are benign for one detector only": Case(
        "10%",
        ("inconclusive", "apart"),
        "21 rows (0.1 %) benign for some detectors only and not counted",
        "label these rows alike for all detectors (data.label)",
        {"apart": 21},
    ),
    "a proven excess is one whatever the rows apart": Case(
        "1%",
        ("fail", "too-many"),
        "400 rows (2 %) benign for some detectors only and not counted",
        "act on fewer of them",
        {"apart": 400},
    ),
    "looked at again and again": Case(
        "10%",
        ("pass", "proven"),
        "1,857 or fewer prove the limit of 10 %",
        None,
        end="interval: sequential\n",
    ),
    "rows in groups": Case(
        "10%",
        ("pass", "proven"),
        "1,000 false positives in 20,000 benign rows, in groups worth 9,997 independent ones",
        None,
        {"grouped": True},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_limit_is_decided_and_said(case: Case) -> None:
    (finding,) = judge(policy_of(case.limit, case.end), known(found(**case.counts)))
    assert (finding.outcome, finding.reason) == case.decided
    assert finding.outcome == "pass" or finding.reason in system.CHECK.sentences
    assert case.message in finding.message
    assert (finding.remedy is None) if case.remedy is None else (case.remedy in str(finding.remedy))


@pytest.mark.parametrize(("grouped", "wanted"), [(False, "rows"), (True, "independent rows")])
def test_fewer_rows_than_wanted_pass_nothing(grouped: bool, wanted: str) -> None:
    policy = policy_of(system="system: [{score: 0.3, max_fpr: 10%, min_n: 30000}]\n")
    (finding,) = judge(policy, known(found(grouped=grouped)))
    assert (finding.outcome, finding.reason) == ("inconclusive", "min-n")
    assert f"no count passes on fewer than 30,000 {wanted}, " in finding.message
    assert "hold out " in str(finding.remedy)


def test_what_there_was_no_time_to_compute_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "Budget", lambda: Budget(0))
    (finding,) = judge(policy_of("5.3%"), known(found()))
    assert finding.remedy == "hold out more benign rows: how many would do was not computed"


def test_what_was_not_counted_is_inconclusive() -> None:
    """There is no count at all, or only one at another score."""
    other = found().model_copy(update={"benign": ()})
    for counted in (None, other):
        assert [*judge(policy_of(), known(counted))] == []
        (finding,), passed_over = find(policy_of(), known(counted), (system.CHECK,), again=True)
        assert (finding.outcome, finding.reason) == ("inconclusive", "not-measured")
        assert str(finding.remedy).startswith("give the same rows scored by every detector: ")
        assert passed_over == []


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ((1, "", 0, []), "1 required detector passes"),
        ((2, "1 limit holds", 0, []), "2 required detectors pass; 1 limit holds"),
        ((0, "", 1, ["b"]), "0 required detectors pass; 1 finding waived; b, not required, did not pass"),
        (
            (3, "all is well", 2, ["b", "c"]),
            "3 required detectors pass; all is well; 2 findings waived; b and c, not required, did not pass",
        ),
    ],
)
def test_why_all_pass_is_said(facts: tuple[int, str, int, list[str]], sentence: str) -> None:
    assert describe_pass(*facts) == sentence


# --- what is measured ---------------------------------------------------------------------------------------


def test_where_no_limit_is_asked_the_scores_of_the_targets_are_shown() -> None:
    assert asked_scores(policy_of()) == (Decimal("0.3"),)
    assert asked_scores(policy_of(system="\n")) == (Decimal("0.1"), Decimal("0.3"))


@pytest.mark.parametrize("grouped", [False, True])
def test_both_kinds_of_rows_are_measured(grouped: bool) -> None:
    counted = found(grouped=grouped)
    assert counted.groups == (ROWS // 2 if grouped else None)
    (one,) = counted.benign
    assert counted.malicious == counted.benign
    assert (one.tally.flagged, one.both, one.largest, one.sum) == (1000, ((500,),), 0.04, 0.075)
    assert one.independent == pytest.approx(1 - 0.96 * 0.965)
    assert measure(SystemCase(policy_of(), flags(5, (3, 2)))).malicious == ()


# --- what no rows have ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        ("benign.0.detectors", [], "detectors"),
        ("benign.0.both", [], "must count every pair of detectors"),
        ("benign.0.both.0", [1, 1], "must count every pair of detectors"),
    ],
)
def test_a_forged_shape_is_not_read(place: str, value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        put(found(), place, value)
