"""A record that breaks the judgement is refused in one line, whatever is raised."""

from __future__ import annotations

import pytest

from gate.errors import GateError
from gate.inspection.answers import RefusedError, answer, judged_again


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (KeyError("a"), "KeyError: 'a'"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (OverflowError("cannot convert float infinity to integer"), "OverflowError: cannot convert"),
        (StopIteration(), "StopIteration:"),
        (GateError("two\nlines"), "GateError: two lines"),
        (ValueError("x" * 1000), "ValueError: xxx"),
    ],
)
def test_what_breaks_the_judgement_does_not_hold(raised: Exception, said: str) -> None:
    def judge() -> str:
        with judged_again():
            raise raised

    found = answer("verdict", judge)
    assert found.state == "does not hold"
    assert found.message.startswith(f"its record breaks the judgement: {said}")
    assert found.message.isprintable()
    assert len(found.message) < 300


def test_an_objection_stays_as_it_is() -> None:
    with pytest.raises(RefusedError, match=r"^the record has another contract$") as refused, judged_again():
        raise RefusedError("the record has another contract", "cannot be checked")
    assert refused.value.state == "cannot be checked"


def test_a_lack_of_memory_is_no_forgery() -> None:
    with pytest.raises(MemoryError), judged_again():
        raise MemoryError
