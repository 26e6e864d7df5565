"""A few drawn runs, others every day; `python tests/drawn_runs.py` draws more."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest
from drawing import often
from drawn_runs import CASES, FOLLOWS, LARGEST, SEED, SHAPES, attempt, draw

TODAY = datetime.now(UTC).date().toordinal()
DRAWN = often(5, 15)  # each day


def test_drawn_runs_end_in_a_verdict_that_verifies() -> None:
    """Exit 70, an exception, a count that differs or a release that does not verify is a failure.

    A failure prints the seed, which is the day's, and the number that make the case again.
    """
    found = [attempt(TODAY, number)[1] for number in range(1, DRAWN + 1)]
    assert [problem for problem in found if isinstance(problem, str)] == []
    assert sum(code != 2 for code in found) >= 0.5 * len(found), "too few of these cases reach a verdict"


def test_the_cases_are_as_varied_as_they_should_be() -> None:
    """Otherwise the test above would show little: every shape, option and check is drawn, and sizes of five decades."""
    cases = [draw(SEED, number) for number in range(CASES)]
    assert {drawn.shape for case in cases for drawn in case.samples.values()} == {*SHAPES}
    sizes = [len(drawn.taken) for case in cases for drawn in case.samples.values()]
    assert min(sizes) <= 3
    assert max(sizes) > LARGEST / 2
    words = Counter(word for case in cases for word in case.arguments if word.startswith("--"))
    assert min(words[f"--{name}"] for name in ("split", "malicious", "ledger", "dry-run", "json", "set")) >= 5
    checks = Counter(name for case in cases if case.policy for name in case.policy["checks"])
    assert len(checks) == 9
    assert min(checks.values()) >= 5
    assert {name for case in cases for name in case.follows} == {*FOLLOWS}


def test_a_broken_case_is_noticed_and_can_be_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("gate.gating.compose", crash)
    case, problem = attempt(SEED, 1)
    assert "exit 70" in str(problem)
    assert case.again in str(problem)
