"""The terminal: a pass is told in eight lines, on a narrow terminal too, and an advisory target in one."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from drawing import often
from records import ATTACKS, PASSING, POLICY, RECORDS, record_of, with_text

from gate.gating import run
from gate.record import Record
from gate.report import short, terminal

LINES = 8


@pytest.fixture(scope="module")
def demo() -> Record:
    """A plain pass by the built-in policy, with its range and every check of the data."""
    rng = np.random.default_rng(11)
    release = run(rng.random(120_000), rng.random(120_000), release="v2.4.0")
    assert release.outcome == "pass"
    return release.record


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_plain_pass_has_at_most_eight_lines(width: int, demo: Record) -> None:
    for record in (demo, RECORDS["pass"]):
        lines = terminal.render(record, width=width).splitlines()
        assert len(lines) <= LINES, "\n".join(lines)
        assert max(map(len, lines)) <= width
        assert lines[0] == "PASS: v2.4.0 may ship; detection was not judged"
        assert sum(line.endswith("pass (proven)") for line in lines) == 3
        assert sum("(advisory)" in line for line in lines) == 1


def test_a_pass_at_forty_columns_keeps_its_table() -> None:
    lines = terminal.render(RECORDS["pass"], width=40).splitlines()
    assert len(lines) <= LINES + 4
    assert "0.01 % 0.00419–0.0124 % pass (advisory)" in lines


@pytest.mark.parametrize(("flagged", "outcome"), [(25, "inconclusive"), (61, "fail")])
def test_an_advisory_target_that_does_not_pass_is_one_line(flagged: int, outcome: str) -> None:
    """One in the table; of a failed one the remedy is another."""
    record = record_of(POLICY, PASSING | {"fpr@0.01%": flagged}, 200_000)
    lines = terminal.render(record).splitlines()
    assert [line.endswith(f"{outcome} (advisory)") for line in lines if "0.01 %" in line] == [True]
    assert sum(line.startswith("fpr@0.01%: ") for line in lines) == (outcome == "fail")
    assert len(lines) <= LINES


def test_a_pass_says_how_many_checks_passed_beside_its_targets(demo: Record) -> None:
    proven = "Proven at all 3 required targets and from 10 to 0.1 %; 6 other checks pass."
    assert terminal.render(demo, width=100).splitlines()[1] == proven


def test_no_number_is_parted_from_its_percent_sign() -> None:
    for width, record in product(range(30, 100, often(23, 7)), RECORDS.values()):
        assert not re.search(r"\d\n%", terminal.render(record, width=width))


@pytest.mark.each_run(5)
@pytest.mark.parametrize("case", RECORDS)
def test_the_short_report_has_at_most_five_hundred_characters(case: str) -> None:
    for record in (RECORDS[case], *(with_text(RECORDS[case], text) for text in ATTACKS.values())):
        assert 20 < len(short.render(record)) <= 500
