"""Reports show what was decided, the same bytes every time, and no name from outside can change what they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len

from gate import policy as policies
from gate.calibrator import FitFacts
from gate.evidence import Evidence, measure_target
from gate.release import Record, compose
from gate.report import html, junit, markdown, terminal
from gate.report.rows import clean, rows
from gate.scores import Scores, Source
from gate.verdict import judge

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
RENDERERS: dict[str, Callable[[Record], str]] = {
    "text": terminal.render,
    "md": markdown.render,
    "html": html.render,
    "junit": junit.render,
}
SUFFIXES = {"text": "txt", "md": "md", "html": "html", "junit": "xml"}

POLICY = """\
version: 1
name: production
targets:
  - {fpr: 10%, min_n: 3400, max_relative_error: 0.25}
  - {fpr: 1%, min_n: 37000, max_relative_error: 0.25}
  - {fpr: 0.1%, min_n: 98000, max_relative_error: 0.5}
  - {fpr: 0.01%, min_n: 160000, max_relative_error: {above: 0.5, below: 1}, required: false}
"""
WAIVERS = """\
waivers:
  - {check: fpr@0.001, reason: known until the next labelling, owner: "@detections", expires: 2026-06-30}
  - {check: fpr@0.01, reason: nothing to cover, owner: "@detections", expires: 2026-06-30}
  - {check: fpr@0.0001, reason: too old, owner: "@detections", expires: 2026-01-31}
"""


def record_of(text: str, counts: Mapping[str, int], benign: int) -> Record:
    """The record of a release with these counts; the calibrator and the scores are stand-ins of fixed content."""
    document = policies.parse(text, "policies/production.yaml")
    measurements = tuple(
        measure_target(document.policy, target, 0.25 + i / 10, counts[target.check], benign, 1e-6)
        for i, target in enumerate(document.policy.targets)
    )
    calibrator: Any = SimpleNamespace(
        facts=FitFacts(200_000, 180_000, 3.5e-6),
        sha256="c" * 64,
        artifact=bytes(161_113),
        knots=(range(10_000), range(10_000)),
    )
    return compose(
        release="v2.4.0",
        created=NOON,
        version="1.2.3",
        document=document,
        fit=Scores(np.arange(200_000) / 200_000, (Source("benign-fit.parquet", 250_000, 200_000),)),
        holdout=Scores(np.arange(benign) / benign, (Source("benign-holdout.parquet", benign, benign),)),
        calibrator=calibrator,
        verdict=judge(document.policy, Evidence(measurements), NOON.date()),
    )


PASSING = {"fpr@0.1": 20_100, "fpr@0.01": 1_990, "fpr@0.001": 204, "fpr@0.0001": 15}
FAILING = {"fpr@0.1": 20_100, "fpr@0.01": 1_990, "fpr@0.001": 390, "fpr@0.0001": 61}
OPEN = {"fpr@0.1": 6_020, "fpr@0.01": 700, "fpr@0.001": 61, "fpr@0.0001": 6}

RECORDS = {
    "pass": record_of(POLICY, PASSING, 200_000),
    "fail": record_of(POLICY, FAILING, 200_000),
    "inconclusive": record_of(POLICY, OPEN, 60_000),
    "waived": record_of(POLICY + WAIVERS, FAILING, 200_000),
}

ATTACKS = {
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)></td></table><h1>PASS</h1><!-- -->",
    "attribute": '" onmouseover="alert(1)" \' x=\'',
    "markdown-link": "[click](https://evil.example/a) ![x](https://evil.example/b.png) <https://evil.example>",
    "bare-link": "https://evil.example www.evil.example WWW.evil.example mailto:a@evil.example",
    "markdown-table": "a | b \\| c \\\\| d |",
    "markdown-emphasis": "**bold** _it_ ~~no~~ `code` ``` $x$ $$y$$ \\* # head",
    "mention": "@octocat, #12 octo/repo#12 (@octo/team)",
    "command": "::error::x ::set-output name=a::b :::: ##[error]y ###[x] x::",
    "command-after-a-long-word": "x" * 71 + "::error::x" + "y" * 300 + "##[error]",
    "lines": "first\n::error::second\r\n| a | b |\n\n# PASS\n- item\x0b\x0c\x85\u2028\u2029end",
    "terminal": "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \x9b2J \x00\x07\x08\x7f",
    "direction": "abc\u202efed\u2066x\u2069 \u200b\u200d\ufeff\U000e0041",
    "entity": "&lt;b&gt; &amp; &#60;b&#62; %0A::error::z {{ 7*7 }} {% raw %} [bold]rich[/bold] :tada:",
    "xml": "]]><evil/> <!DOCTYPE x> <?php ?> \ufffe\uffff",
}


def with_text(record: Record, text: str) -> Record:
    """The record with this text in every place where its format allows any text at all."""

    def replaced(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: replaced(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [replaced(part) for part in value]
        fixed = key in ("outcome", "grade", "status")
        return text if isinstance(value, str) and not fixed else value

    return Record.model_validate(replaced(record.model_dump(mode="json")))


def hostile() -> Record:
    """One attack in each place that a person, a file name or a policy fills."""
    content = RECORDS["waived"].model_dump(mode="json")
    content["release"] = ATTACKS["html"]
    content["policy"] |= {"name": ATTACKS["markdown-link"], "path": ATTACKS["attribute"]}
    content["fit"]["sources"][0]["path"] = ATTACKS["lines"]
    content["holdout"]["sources"][0]["path"] = ATTACKS["terminal"]
    content["waivers"][0] |= {"owner": ATTACKS["mention"], "reason": ATTACKS["command"]}
    content["waivers"][1] |= {"owner": ATTACKS["direction"], "reason": ATTACKS["markdown-table"]}
    content["waivers"][2] |= {"owner": ATTACKS["entity"], "reason": ATTACKS["markdown-emphasis"]}
    return Record.model_validate(content)


RECORDS["hostile"] = hostile()


# --- golden reports -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", RECORDS)
@pytest.mark.parametrize("format_", RENDERERS)
def test_reports_equal_the_golden_files(case: str, format_: str, golden: Callable[[str, str], None]) -> None:
    golden(f"reports/{case}.{SUFFIXES[format_]}", RENDERERS[format_](RECORDS[case]))


def test_a_narrow_terminal_report_equals_the_golden_file(golden: Callable[[str, str], None]) -> None:
    golden("reports/inconclusive-narrow.txt", terminal.render(RECORDS["inconclusive"], width=40))


def test_the_cases_are_what_their_names_say() -> None:
    assert {case: record.outcome for case, record in RECORDS.items()} == {
        "pass": "pass",
        "fail": "fail",
        "inconclusive": "inconclusive",
        "waived": "pass",
        "hostile": "pass",
    }
    assert [waiver.status for waiver in RECORDS["waived"].waivers] == ["active", "unused", "expired"]


@pytest.mark.parametrize("format_", RENDERERS)
def test_renderers_are_pure(format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record read back from its JSON gives the same bytes, whatever the environment says of the terminal."""
    record = RECORDS["inconclusive"]
    before = RENDERERS[format_](record)
    for name, value in {"COLUMNS": "33", "LINES": "2", "TERM": "dumb", "FORCE_COLOR": "1", "TZ": "Asia/Tokyo"}.items():
        monkeypatch.setenv(name, value)
    assert RENDERERS[format_](Record.model_validate_json(record.to_json())) == before


# --- what each report says ----------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["text", "md", "html"])
@pytest.mark.parametrize("case", ["pass", "fail", "inconclusive"])
def test_the_verdict_comes_first_and_in_words(case: str, format_: str) -> None:
    text = RENDERERS[format_](RECORDS[case])
    start = text.index(f"{case.upper()}: ")
    assert start < 3 or format_ == "html"
    assert all(f"{other.upper()}: " not in text for other in ("pass", "fail", "inconclusive") if other != case)


@pytest.mark.parametrize("format_", ["text", "md", "html"])
def test_counts_interval_target_and_tolerance_stand_together(format_: str) -> None:
    lines = RENDERERS[format_](RECORDS["fail"]).replace("–", " to ").splitlines()
    for row in rows(RECORDS["fail"]):
        assert any(
            all(cell in line for cell in (row.target, row.counted, row.interval, row.tolerance)) for line in lines
        )


def test_junit_counts_only_what_blocks() -> None:
    """Fail is a failure, inconclusive an error, and what is waived or advisory passes with its message."""
    kinds = {}
    for case in ("fail", "inconclusive", "waived"):
        suite = ElementTree.fromstring(junit.render(RECORDS[case]))
        kinds[case] = [child.tag for finding in suite for child in finding]
        assert int(suite.attrib["tests"]) == len(suite) == 4
        assert int(suite.attrib["failures"]) == kinds[case].count("failure")
        assert int(suite.attrib["errors"]) == kinds[case].count("error")
    assert kinds == {
        "fail": ["system-out", "system-out", "failure", "system-out"],
        "inconclusive": ["system-out", "error", "error", "system-out"],
        "waived": ["system-out"] * 4,
    }


@given(st.integers(20, 120), st.sampled_from(sorted(RECORDS)), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_terminal_line_is_wider_than_the_terminal(width: int, case: str, color: bool) -> None:
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.render(RECORDS[case], width=width, color=color)).splitlines()
    assert max(cell_len(line) for line in lines) <= width


def test_no_number_is_cut_to_fit_a_narrow_terminal() -> None:
    """Where the table does not fit, a list holds every number whole."""
    grown = {"false_positives": 204 * 10**9, "benign": 200_000 * 10**9}
    findings = tuple(finding.model_copy(update=grown) for finding in RECORDS["pass"].findings)
    huge = RECORDS["pass"].model_copy(update={"findings": findings})
    for width in range(24, 120):
        words = " ".join(terminal.render(huge, width=width).split())
        for row in rows(huge):
            assert row.counted in words
            assert row.interval in words or row.interval.replace(" to ", "–") in words


def test_colour_adds_escape_codes_and_nothing_else() -> None:
    plain, coloured = (terminal.render(RECORDS["fail"], color=color) for color in (False, True))
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    stripped = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()]
    assert stripped == plain.splitlines()


# --- hostile names ------------------------------------------------------------------------------------------

HARMLESS = with_text(RECORDS["waived"], "harmless")


class Elements(HTMLParser):
    """Every tag with its attributes, in order, and every comment, declaration and piece of text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[object] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment", data))

    def handle_decl(self, decl: str) -> None:
        self.tags.append(("declaration", decl))

    def handle_pi(self, data: str) -> None:
        self.tags.append(("instruction", data))

    def unknown_decl(self, data: str) -> None:
        self.tags.append(("unknown", data))


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_names_add_no_html(attack: str) -> None:
    """The page has the elements of a harmless one, and shows the name as text."""
    page = Elements(html.render(with_text(RECORDS["waived"], ATTACKS[attack])))
    assert page.tags == Elements(html.render(HARMLESS)).tags
    assert clean(ATTACKS[attack]) in page.text


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_names_break_no_markdown(attack: str) -> None:
    """The same lines, the same cells, the same elements once rendered, and the name shown as text."""
    harmless = markdown.render(HARMLESS)
    hostile = markdown.render(with_text(RECORDS["waived"], ATTACKS[attack]))
    assert len(hostile.splitlines()) == len(harmless.splitlines())
    for line, model in zip(hostile.splitlines(), harmless.splitlines(), strict=True):
        assert line.count("|") == model.count("|")
    render = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render
    page = Elements(render(hostile))
    assert page.tags == Elements(render(harmless)).tags
    assert clean(ATTACKS[attack]) in page.text.replace("\u200b", "")


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_names_make_no_reference_on_github(attack: str) -> None:
    """GitHub links addresses in the source, and `@name` and `#1` in the finished page."""
    source = markdown.render(with_text(RECORDS["waived"], ATTACKS[attack]))
    assert not re.search(r"://|www\.|mailto:", source, re.IGNORECASE)
    finished = Elements(MarkdownIt("commonmark").enable("table").render(source)).text
    assert not re.search(r"(?<!\w)@\w|#\d", finished)


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_names_keep_junit_well_formed(attack: str) -> None:
    hostile = ElementTree.fromstring(junit.render(with_text(RECORDS["waived"], ATTACKS[attack])))
    harmless = ElementTree.fromstring(junit.render(HARMLESS))
    assert [element.tag for element in hostile.iter()] == [element.tag for element in harmless.iter()]
    assert hostile.attrib["name"] == f"gate {clean(ATTACKS[attack])}"


@pytest.mark.parametrize("format_", RENDERERS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_report_holds_control_or_direction_characters(attack: str, format_: str) -> None:
    lines = RENDERERS[format_](with_text(RECORDS["waived"], ATTACKS[attack])).split("\n")
    assert [line for line in lines if not line.isprintable()] == []


@given(st.text(alphabet="a:#[ \n", max_size=120), st.integers(20, 100))
@settings(max_examples=150, deadline=None)
@example("x" * 80 + "::error::", 80)
@example("x" * 60 + ":", 20)
def test_no_terminal_line_is_a_command_of_the_ci_system(text: str, width: int) -> None:
    """However the lines are broken, none starts with `::` and none holds `##[`."""
    for line in terminal.render(with_text(RECORDS["waived"], text), width=width).splitlines():
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_an_inconsistent_record_is_still_rendered() -> None:
    """`gate report` reads records from elsewhere: a pass that claims to block must not crash a renderer."""
    findings = tuple(finding.model_copy(update={"blocks": True}) for finding in RECORDS["pass"].findings)
    record = RECORDS["pass"].model_copy(update={"findings": findings})
    assert 'failures="0"' in junit.render(record)


# --- printed numbers ----------------------------------------------------------------------------------------


def printed(cell: str) -> tuple[Decimal, Decimal]:
    low, high = cell.removesuffix(" %").split(" to ")
    return Decimal(low) / 100, Decimal(high) / 100


rates = st.one_of(
    st.builds(lambda digits, exponent: Decimal(digits).scaleb(-exponent), st.integers(1, 999), st.integers(3, 7)),
    st.decimals("0.0001", "0.9", places=12),
)
errors = st.one_of(st.sampled_from(["0.1", "0.25", "0.5", "1", "2"]).map(Decimal), st.decimals("0.01", "3", places=12))
samples = st.integers(1, 10**7).flatmap(lambda n: st.tuples(st.floats(0, 3), st.just(n)))


@settings(max_examples=400, deadline=None)
@given(rates, errors, errors, samples, st.sampled_from(["proven", "observed", "not-refuted"]))
@example(Decimal("0.1"), Decimal("0.5"), Decimal("0.5"), (1.5023, 10**7), "proven")  # a lower bound of 0.150009
@example(Decimal("0.1"), Decimal("0.5"), Decimal("0.5"), (0.4986, 10**7), "proven")  # an upper bound of 0.049995
@example(Decimal("0.1"), Decimal("0.5"), Decimal("0.5"), (1.50004, 10**7), "observed")
@example(Decimal("0.1"), Decimal("0.5"), Decimal("0.5"), (0.5, 10_000), "observed")
@example(Decimal("0.05"), Decimal("0.5"), Decimal("0.5"), (20.0, 1), "proven")
def test_printed_numbers_never_contradict_the_grade(
    fpr: Decimal, above: Decimal, below: Decimal, sample: tuple[float, int], rule: str
) -> None:
    """Bounds are rounded outward, inside the printed tolerance iff proven, and apart from it iff refuted."""
    share, n = sample
    count = min(round(share * float(fpr) * n), n)
    text = f"""
version: 1
name: any
rule: {rule}
contract: [{{fpr: {fpr:f}, score: 0.5}}]
targets: [{{fpr: {fpr:f}, min_n: 1, max_relative_error: {{above: {above:f}, below: {below:f}}}}}]
"""
    policy = policies.parse(text, "any.yaml").policy
    measured = measure_target(policy, policy.targets[0], 0.5, count, n, 1e-9)
    finding = judge(policy, Evidence((measured,)), NOON.date()).findings[0]
    entry = (
        RECORDS["pass"]
        .findings[0]
        .model_copy(
            update={
                "false_positives": count,
                "benign": n,
                "observed_fpr": measured.observed_fpr,
                "interval": measured.interval,
                "tolerance": tuple(float(edge) for edge in measured.tolerance),
                "relative_error": measured.relative_error,
                "grade": finding.grade,
            }
        )
    )
    row = rows(RECORDS["pass"].model_copy(update={"findings": (entry,)}))[0]
    (low, high), (least, most) = printed(row.interval), printed(row.tolerance)
    assert low <= Decimal(repr(measured.interval[0]))
    assert high >= Decimal(repr(measured.interval[1]))
    assert (least <= low and high <= most) == (finding.grade == "proven")
    assert (high < least or most < low) == (finding.grade == "refuted")
    observed = Decimal(row.observed.removesuffix(" %")) / 100
    inside = measured.critical.observed
    assert (least <= observed <= most) == bool(inside and inside[0] <= count <= inside[1])
