"""Reports on several detectors: which block and why, in words with numbers, and what to do, for 3 and for many."""

from __future__ import annotations

import re

import pytest
import several
from drawing import often

import gate as api
from gate.checks import parse_policy
from gate.record.system import SystemRecord
from gate.report import explain, system, system_text
from gate.report.formats import render
from gate.report.short import MAX_CHARACTERS
from gate.verdict import NOT_JUDGED
from gate.words import listed

THREE = ("injection", "jailbreak", "leakage")
MANY = tuple(f"detector-{i:02d}" for i in range(often(20, 50)))


def released(names: tuple[str, ...], amiss: tuple[str, ...], limit: str) -> api.SystemRelease:
    policy = parse_policy(several.policy(names, limit), "several.yaml")
    fit = several.simulate(12_000, names, 1, 0.3)
    holdout = several.simulate(12_000, names, 2, 0.3, dict.fromkeys(amiss, 0.6))
    return api.run_system(fit, holdout, release="v1", policy=policy)


@pytest.fixture(scope="module")
def three() -> api.SystemRelease:
    return released(THREE, ("jailbreak",), "1%")


@pytest.fixture(scope="module")
def many() -> SystemRecord:
    return released(MANY, MANY[7:9], "90%").record


def test_the_reason_names_the_detector_once_and_says_what_all_flag(three: api.SystemRelease) -> None:
    said = system.sentence(three.record)
    assert said.startswith("1 of 3 detectors fails: jailbreak; together they flag ")
    assert re.search(r"flag [\d.]+ % of benign rows from a score of 0\.3 on \(1 % allowed\)$", said)
    assert said.count("jailbreak") == 1


def test_each_detector_that_blocks_is_said_in_numbers(three: api.SystemRelease) -> None:
    first = system.lines(three.record)[0]
    assert first.name == "jailbreak"
    assert re.match(r"Flags [\d.]+ % of benign rows at the 10 % threshold; the policy allows 5 to 15 %", first.why)
    for page in (system.render_html(three.record), system.render_markdown(three.record)):
        assert first.why in page.replace("&nbsp;%", " %")
        assert "What to do" in page


def test_one_remedy_is_said_once_for_all_that_it_helps(many: SystemRecord) -> None:
    found = system.remedies(many)
    assert found[0][:2] == ("fail", "detector-07, detector-08")
    assert len({(outcome, remedy) for outcome, _, remedy in found}) == len(found)


def test_the_terminal_shows_those_that_do_not_pass_and_counts_the_others(many: SystemRecord) -> None:
    lines = system_text.render(many).splitlines()
    assert len(lines) <= 36
    passing = sum(facts.outcome == "pass" for facts in many.detectors)
    assert f"{passing} other detectors: pass" in lines
    assert not any(line.startswith("detector-00") for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_line_of_the_terminal_is_wider_than_it(three: api.SystemRelease, many: SystemRecord, width: int) -> None:
    for record in (three.record, many):
        assert max(map(len, system_text.render(record, width).splitlines())) <= width


def test_what_is_longer_than_a_screen_ends_with_the_verdict_and_what_to_do(three: api.SystemRelease) -> None:
    lines = system_text.render(three.record, 30).splitlines()
    assert len(lines) > 24
    assert lines.count(system.headline(three.record)) == 2
    last = lines[len(lines) - lines[::-1].index(system.headline(three.record)) :]
    assert "What to do" in last


def test_a_short_report_is_short(three: api.SystemRelease, many: SystemRecord) -> None:
    for record in (three.record, many):
        text = system.render_short(record)
        assert len(text) <= MAX_CHARACTERS
        assert "What to do: " in text


def test_a_table_of_the_markdown_has_five_columns_at_most_unless_it_is_folded(many: SystemRecord) -> None:
    page = re.sub(r"<details>.*?</details>", "", system.render_markdown(many), flags=re.DOTALL)
    rules = re.findall(r"^\|(?: -+:? \|)+$", page, re.MULTILINE)
    assert len(rules) >= 2
    assert max(rule.count("|") - 1 for rule in rules) <= 5
    assert "detectors that pass</summary>" in system.render_markdown(many)


def test_a_check_of_several_is_explained_for_one_and_for_all(three: api.SystemRelease) -> None:
    for name, found in (("fpr@1%", 3), ("jailbreak:fpr@1%", 1), ("system@0.3", 1), ("system", 1)):
        shown = explain.render(name, three.record).partition("In v1\n")[2]
        assert len(re.findall(rf"^  (?:\w+:)?{name.rpartition(':')[2]}(?:@[\d.]+)?: ", shown, re.MULTILINE)) == found


def test_a_release_is_shown_shortly_in_python(three: api.SystemRelease) -> None:
    assert repr(three) == "<SystemRelease 'v1': fail, 3 detectors>"
    assert "must not ship</strong>" in three._repr_html_()


@pytest.mark.parametrize("format_", ["short", "md", "html"])
def test_a_pass_says_in_its_headline_whose_detection_was_not_judged(three: api.SystemRelease, format_: str) -> None:
    """It names all detectors, or those that had no malicious rows, and says it once."""
    record = three.record.model_copy(update={"outcome": "pass", "reason": f"3 required detectors pass; {NOT_JUDGED}"})
    said = " ".join(render(record, format_).split())
    assert "may ship; detection was not judged" in said
    assert NOT_JUDGED not in said
    first = record.detectors[0].model_copy(update={"malicious_n": 7})
    some = record.model_copy(update={"detectors": (first, *record.detectors[1:])})
    others = listed([facts.name for facts in some.detectors[1:]])
    assert f"may ship; detection by {others} was not judged" in " ".join(render(some, format_).split())
    whole = tuple(facts.model_copy(update={"malicious_n": 7}) for facts in record.detectors)
    judged = record.model_copy(update={"detectors": whole, "reason": "3 required detectors pass"})
    assert "was not judged" not in render(judged, format_)
