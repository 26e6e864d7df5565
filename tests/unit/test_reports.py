"""Reports show what was decided, the same bytes every time, and no name from outside can change what they are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from drawing import examples, often
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pages import Elements, figures_as_text
from records import ATTACKS, PASSING, POLICY, RECORDS, anchors_of, check, evidence_of, record_of, with_text
from rich.cells import cell_len

from gate.checks import Parts, parse_policy
from gate.checks.check import Finding
from gate.checks.fpr import Targets, judge_targets
from gate.checks.fpr import judge as judge_fpr
from gate.gating import run
from gate.names import CheckName
from gate.record import Record
from gate.report import figures, html, junit, markdown, short, terminal
from gate.report.changes import changes
from gate.report.numbers import clean, one_in
from gate.report.page import LIMITS, MOST, command
from gate.report.rows import describe_blocking, plain_reason, segment_rows, target_rows
from gate.statistics.tally import Tally

RENDERERS: dict[str, Callable[[Record], str]] = {
    "text": terminal.render,
    "md": markdown.render,
    "html": html.render,
    "junit": junit.render,
}
SUFFIXES = {"text": "txt", "md": "md", "html": "html", "junit": "xml"}


# --- golden reports -----------------------------------------------------------------------------------------


def rendered(format_: str, case: str) -> str:
    return rendered_with(figures.to_svg, format_, case)


@cache
def rendered_with(_to_svg: object, format_: str, case: str) -> str:
    """Once for each way to draw: with figures, and with what stands in their place."""
    return RENDERERS[format_](RECORDS[case])


@pytest.mark.figures
@pytest.mark.parametrize("case", RECORDS)
@pytest.mark.parametrize("format_", RENDERERS)
def test_reports_equal_the_golden_files(case: str, format_: str, golden: Callable[[str, str], None]) -> None:
    golden(f"reports/{case}.{SUFFIXES[format_]}", figures_as_text(rendered(format_, case)))


def test_a_narrow_terminal_report_equals_the_golden_file(golden: Callable[[str, str], None]) -> None:
    golden("reports/inconclusive-narrow.txt", terminal.render(RECORDS["inconclusive"], width=40))


def test_the_cases_are_what_their_names_say() -> None:
    assert {case: record.outcome for case, record in RECORDS.items()} == {
        "pass": "pass",
        "fail": "fail",
        "inconclusive": "inconclusive",
        "waived": "pass",
        "hostile": "pass",
        "segments": "fail",
        "followed": "pass",
        "dropped": "fail",
        "no-reference": "inconclusive",
        "check": "pass",
    }
    assert [waiver.status for waiver in RECORDS["waived"].waivers] == ["active", "unused", "expired"]


@pytest.mark.figures
@pytest.mark.parametrize("format_", RENDERERS)
def test_renderers_are_pure(format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record read back from its JSON gives the same bytes, whatever the environment says of the terminal."""
    record, before = RECORDS["inconclusive"], rendered(format_, "inconclusive")
    for name, value in {"COLUMNS": "33", "LINES": "2", "TERM": "dumb", "FORCE_COLOR": "1", "TZ": "Asia/Tokyo"}.items():
        monkeypatch.setenv(name, value)
    assert RENDERERS[format_](Record.model_validate_json(record.to_json())) == before


# --- what each report says ----------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["text", "md", "html"])
@pytest.mark.parametrize("case", ["pass", "fail", "inconclusive"])
def test_the_verdict_comes_first_and_in_words(case: str, format_: str) -> None:
    text = rendered(format_, case)
    start = text.index(f"{case.upper()}: ")
    assert start < 3 or format_ == "html"
    assert all(f"{other.upper()}: " not in text for other in ("pass", "fail", "inconclusive") if other != case)


@pytest.mark.parametrize("format_", ["text", "md", "html"])
def test_counts_interval_target_and_tolerance_stand_together(format_: str) -> None:
    lines = rendered(format_, "fail").replace("–", " to ").splitlines()
    for row in target_rows(RECORDS["fail"]):
        assert any(
            all(cell in line for cell in (row.target, row.counted, row.interval, row.tolerance)) for line in lines
        )


def test_junit_counts_only_what_blocks() -> None:
    """Fail is a failure, inconclusive an error, and what is waived or advisory passes with its message."""
    kinds = {}
    for case in ("fail", "inconclusive", "waived"):
        suite = ElementTree.fromstring(junit.render(RECORDS[case]))
        kinds[case] = [child.tag for finding in suite.findall("testcase") for child in finding]
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase")) == 4
        assert int(suite.attrib["failures"]) == kinds[case].count("failure")
        assert int(suite.attrib["errors"]) == kinds[case].count("error")
    assert kinds == {
        "fail": ["failure", "system-out", "system-out", "system-out"],
        "inconclusive": ["error", "error", "system-out", "system-out"],
        "waived": ["system-out"] * 4,
    }


def place(check: str, text: str) -> int | None:
    """The position at which a check is first named; a target that passes is shown by its rate alone."""
    found = re.search(rf"(?<![\w@./%-]){re.escape(check)}(?![\w@./=%])", text)
    return found.start() if found else None


@pytest.mark.parametrize("format_", ["text", "md", "html", "junit"])
@given(st.data())
@settings(max_examples=often(6, 15), deadline=None)
def test_blocking_findings_come_first(format_: str, data: st.DataObject) -> None:
    """Whatever blocks: a proven violation is named before what is open, and both before anything else."""
    whole = RECORDS["dropped"]
    extra = [check(name, "pass", "apart", "words", None) for name in ("overlap", "floor", "granularity@1%")]
    findings = []
    for finding in data.draw(st.permutations([*whole.findings, *extra])):
        outcome = data.draw(st.sampled_from(["pass", "fail", "inconclusive"]))
        blocks = outcome != "pass" and data.draw(st.booleans())
        remedy = data.draw(st.sampled_from([None, "x"]))
        words = {"outcome": outcome, "required": blocks, "remedy": remedy}
        findings.append(finding.model_copy(update=words))
    record = whole.model_copy(update={"findings": tuple(findings), "reason": "x", "outcome": "fail"})
    text = html._render(record, [], LIMITS[0]) if format_ == "html" else RENDERERS[format_](record)
    ranks = [(not f.blocks, f.blocks and f.outcome != "fail") for f in findings]
    places = [place(str(f.check), text) for f in findings]
    assert all(at is not None for f, at in zip(findings, places, strict=True) if f.blocks)
    shown = sorted((at, rank) for at, rank in zip(places, ranks, strict=True) if at is not None)
    assert [rank for _, rank in shown] == sorted(rank for _, rank in shown)


def test_what_passes_is_not_printed_as_if_all_did() -> None:
    """`pass: granularity` beside a granularity that fails would mislead: there the names are whole."""
    found = [check(f"granularity@{fpr}", outcome, "fine", "words", None) for fpr, outcome in GRANULARITY.items()]
    for findings, line in ((found, "pass: granularity@10%, granularity@0.1%"), (found[::2], "pass: granularity")):
        record = RECORDS["fail"].model_copy(update={"findings": (*RECORDS["fail"].findings, *findings)})
        lines = terminal.render(record).splitlines()
        assert line in lines
        assert "data checks" not in "".join(lines)


GRANULARITY = {"10%": "pass", "1%": "fail", "0.1%": "pass"}


@given(st.integers(20, 120), st.sampled_from(sorted(RECORDS)), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_no_terminal_line_is_wider_than_the_terminal(width: int, case: str, color: bool) -> None:
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.render(RECORDS[case], width=width, color=color)).splitlines()
    assert max(cell_len(line) for line in lines) <= width


def test_no_number_is_cut_to_fit_a_narrow_terminal() -> None:
    """If the table does not fit, a list holds every number whole; the list of a pass may leave out the counts."""
    grown = Tally(threshold=0.45, flagged=204 * 10**4, rows=200_000 * 10**4)
    findings = tuple(with_rate(finding, tally=grown) for finding in RECORDS["pass"].findings)
    huge = RECORDS["pass"].model_copy(update={"findings": findings})
    for width, outcome in product(range(24, 120, 3), ("pass", "fail")):
        words = " ".join(terminal.render(huge.model_copy(update={"outcome": outcome}), width=width).split())
        for row in target_rows(huge):
            assert row.counted in words or (outcome == "pass" and row.counted.split(" / ")[0] not in words)
            assert row.interval in words or row.interval.replace(" to ", "–") in words


def with_rate(finding: Finding, **changes: Any) -> Finding:
    assert finding.rate is not None
    return finding.model_copy(update={"rate": finding.rate.model_copy(update=changes)})


def test_colour_adds_escape_codes_and_nothing_else() -> None:
    plain, coloured = (terminal.render(RECORDS["fail"], color=color) for color in (False, True))
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    stripped = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()]
    assert stripped == plain.splitlines()


# --- hostile names ------------------------------------------------------------------------------------------

HARMLESS = with_text(RECORDS["waived"], "harmless")


@cache
def harmless_page() -> str:
    return html.render(HARMLESS)


@pytest.mark.figures
@pytest.mark.each_run(2)
@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_names_add_no_html(attack: str) -> None:
    """The page has the elements of a harmless one, and shows the name as text."""
    page = Elements(html.render(with_text(RECORDS["waived"], ATTACKS[attack])))
    assert page.tags == Elements(harmless_page()).tags
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


def without_pre(source: str) -> str:
    """GitHub looks for references in text, not in what is preformatted."""
    assert source.count("<pre>") == source.count("</pre>") == 1
    return re.sub(r"<pre>.*?</pre>", "", source, flags=re.DOTALL)


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_names_make_no_reference_on_github(attack: str) -> None:
    """GitHub links addresses in the source, and `@name` and `#1` in the finished page."""
    source = markdown.render(with_text(RECORDS["waived"], ATTACKS[attack]))
    assert not re.search(r"://|www\.|mailto:", source, re.IGNORECASE)
    finished = Elements(MarkdownIt("commonmark").enable("table").render(without_pre(source))).text
    assert not re.search(r"(?<!\w)@\w|#\d", finished)


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_names_keep_junit_well_formed(attack: str) -> None:
    hostile = ElementTree.fromstring(junit.render(with_text(RECORDS["waived"], ATTACKS[attack])))
    harmless = ElementTree.fromstring(junit.render(HARMLESS))
    assert [element.tag for element in hostile.iter()] == [element.tag for element in harmless.iter()]
    assert hostile.attrib["name"] == f"gate {clean(ATTACKS[attack])}"


@pytest.mark.each_run(6)
@pytest.mark.parametrize("format_", RENDERERS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_report_holds_control_or_direction_characters(attack: str, format_: str) -> None:
    report = RENDERERS[format_](with_text(RECORDS["waived"], ATTACKS[attack]))
    lines = report.split("\n")
    assert [line for line in lines if not line.isprintable()] == []


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_plain_pass_takes_at_most_eight_lines(width: int) -> None:
    """Also with malicious rows, and with an advisory target that cannot pass yet."""
    rng = np.random.default_rng(8)
    text = "version: 1\nname: x\ntargets:\n" + "".join(
        f"  - {{fpr: {fpr}, min_n: {n}, max_relative_error: 0.5, required: {required}}}\n"
        for fpr, n, required in (("10%", 900, "true"), ("1%", 9000, "true"), ("0.1%", 98000, "false"))
    )
    samples = rng.random(20_000), rng.random(20_000)
    record = run(*samples, release="v1", policy=parse_policy(text, "x.yaml"), malicious=rng.random(99) ** 0.01).record
    assert [f.outcome for f in record.findings if f.check.kind == "fpr"] == ["pass", "pass", "inconclusive"]
    for one in (record, RECORDS["pass"]):
        lines = terminal.render(one, width=width).splitlines()
        assert len(lines) <= 8, lines
        assert max(map(len, lines)) <= width
    assert re.search(r"detected at 1 %: \d+ / 99 malicious rows, ", terminal.render(record, width=width))


def test_the_last_lines_say_each_remedy_once_and_what_it_is_for() -> None:
    """A remedy that another one ends with is not said by itself."""
    first = RECORDS["pass"].findings[0]
    words = {"outcome": "fail", "required": True, "waived": False, "rate": None}
    parts = [("overlap", "fit again"), ("floor", "look; else fit again"), ("reuse", "wait")]
    found = [first.model_copy(update=words | {"check": CheckName(name), "remedy": cure}) for name, cure in parts]
    record = RECORDS["fail"].model_copy(update={"findings": (*[first] * 20, *found), "outcome": "fail"})
    said = terminal.render(record, width=300).rpartition("FAIL: ")[2]
    assert "What to do (overlap, floor): look; else fit again.\n" in said
    assert "What to do (reuse): wait.\n" in said
    assert said.count("fit again") == 1
    in_markdown = markdown.render(record).partition("**What to do**")[2].partition("| outcome |")[0]
    in_html = Elements(html.render(record)).text.partition("What to do")[2].partition("Not settled")[0]
    for page in (in_markdown.replace("**", ""), in_html):
        assert "overlap, floor: Look; else fit again." in page
        assert "reuse: Wait." in page
        assert page.count("it again") == 1


@given(st.text(alphabet="a:#[ \n", max_size=120), st.integers(20, 100))
@settings(max_examples=examples(150), deadline=None)
@example("x" * 80 + "::error::", 80)
@example("x" * 60 + ":", 20)
def test_no_terminal_line_is_a_command_of_the_ci_system(text: str, width: int) -> None:
    """However the lines are broken, none starts with `::` and none holds `##[`."""
    for line in terminal.render(with_text(RECORDS["waived"], text), width=width).splitlines():
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_an_inconsistent_record_is_still_rendered() -> None:
    """`gate report` reads records from elsewhere: a pass that claims to block must not crash a renderer."""
    content = RECORDS["pass"].model_dump(mode="json")
    content["findings"] = [finding | {"blocks": True} for finding in content["findings"]]
    record = Record.model_validate(content)
    assert 'failures="0"' in junit.render(record)


# --- what the reports leave out, and how they say so --------------------------------------------------------


def test_the_worst_fifty_segments_are_shown_and_the_rest_counted() -> None:
    names = [row.segment for row in segment_rows(RECORDS["segments"])]
    assert len(names) == 60
    page = Elements(rendered("html", "segments")).text
    assert all((name in page) == (i < MOST["segments"]) for i, name in enumerate(names))
    for text in (page, markdown.render(RECORDS["segments"])):
        assert "And 10 more segments, which verdict.json lists." in text
    assert "and 50 more segments, which verdict.json lists" in terminal.render(RECORDS["segments"])


@pytest.mark.parametrize("format_", ["text", "md", "html"])
def test_other_checks_and_warnings_are_shown(format_: str) -> None:
    text = " ".join(rendered(format_, "segments").split()).lower()  # a sentence may begin with its remedy
    for words in ("overlap", "exchangeability", "hold out rows of the same weeks", "rows had no timestamp"):
        assert words in text


def enormous() -> Record:
    """As large as a record may sensibly be, and then some."""
    content = RECORDS["segments"].model_dump(mode="json")
    content["findings"] = [dict(finding) for finding in content["findings"] * 4]
    for i, finding in enumerate(content["findings"]):
        finding["check"] += f"{i}<&|>" * 300 if "/" in finding["check"] else ""
        finding["message"] *= 20
        finding["remedy"] = f"{i} [x](y) " * 100
    content["warnings"] = ["|" * 3000] * 200
    content["waivers"] = [{**RECORDS["waived"].waivers[0].model_dump(), "reason": "`" * 2000}] * 200
    content["release"], content["reason"] = "<" * 100_000, "&" * 100_000
    content["fit"]["sources"] = [{"path": "#1" * 200, "rows": 1, "benign": 1}] * 500
    return Record.model_validate(content)


def test_no_report_outgrows_its_host() -> None:
    """GitHub drops a summary that is too large whole; the verdict and the targets stay, whatever else is cut."""
    record = enormous()
    for text, most in ((markdown.render(record), 60_000), (html.render(record), 1_000_000)):
        assert len(text.encode()) <= most
        assert "FAIL: " in text
        assert target_rows(record)[0].interval in text
        assert "more segments, which verdict.json lists" in text


def test_the_command_to_reproduce_is_quoted_for_the_shell() -> None:
    content = RECORDS["pass"].model_dump(mode="json")
    content["release"] = "v2 'final'; rm -rf $HOME"
    content["policy"]["set"] = ["data.label=is bad", "data.benign_label=[0, 'no']"]
    lines = command(Record.model_validate(content), LIMITS[0])
    words = shlex.split(" ".join(lines))
    assert words[:2] == ["SOURCE_DATE_EPOCH=1772366400", "gate"]
    assert words[2:] == [
        *("run", "--policy", "policies/production.yaml"),
        *("--set", "data.label=is bad", "--set", "data.benign_label=[0, 'no']", "--release", content["release"]),
        *("--fit", "benign-fit.parquet", "--holdout", "benign-holdout.parquet"),
    ]
    for text in (rendered("html", "pass"), rendered("md", "pass")):
        assert "--holdout benign-holdout.parquet" in text


def test_thresholds_are_given_to_the_last_digit() -> None:
    threshold = 0.1 + 0.2
    tally = Tally(threshold=threshold, flagged=204, rows=200_000)
    findings = tuple(with_rate(finding, tally=tally) for finding in RECORDS["pass"].findings)
    record = RECORDS["pass"].model_copy(update={"findings": findings})
    for text in (html.render(record), markdown.render(record)):
        shown = re.findall(r"\b0\.30000000000000\d+", text)
        assert shown
        assert {float(number) for number in shown} == {threshold}


def test_too_few_rows_are_the_reason_given() -> None:
    """`inconclusive (proven)` would read as a contradiction."""
    policy = POLICY.replace("98000", "980000")
    record = record_of(policy, PASSING, 200_000)
    assert record.findings[2].grade == "proven"
    assert record.findings[2].reason == "min-n"
    assert "inconclusive (min-n)" in terminal.render(record)
    assert "**inconclusive** (too few rows)" in markdown.render(record)
    assert "inconclusive (proven" not in Elements(html.render(record)).text


def test_junit_has_every_finding() -> None:
    suite = ElementTree.fromstring(junit.render(RECORDS["segments"]))
    assert len(suite.findall("testcase")) == len(RECORDS["segments"].findings) == 66


@pytest.mark.parametrize(
    ("rate", "words"),
    [("0.001", "1 in 1,000"), ("0.0003", "about 1 in 3,333"), ("1", "1 in 1"), ("0", ""), ("0.3", "about 1 in 3.33")],
)
def test_a_rate_is_also_one_in_so_many(rate: str, words: str) -> None:
    assert one_in(Decimal(rate), [Decimal(rate)], ROUND_HALF_EVEN) == words


# --- printed numbers ----------------------------------------------------------------------------------------


def printed(cell: str) -> tuple[Decimal, Decimal]:
    low, high = cell.removesuffix(" %").split(" to ")
    return Decimal(low) / 100, Decimal(high) / 100


rates = st.one_of(
    st.builds(lambda digits, exponent: Decimal(digits).scaleb(-exponent), st.integers(1, 999), st.integers(3, 7)),
    st.decimals("0.0001", "0.9", places=12),
)
errors = st.one_of(st.sampled_from(["0.1", "0.25", "0.5", "1", "2"]).map(Decimal), st.decimals("0.01", "3", places=12))
samples = st.integers(2, 10**7).flatmap(lambda n: st.tuples(st.floats(0, 3), st.just(n)))


@settings(max_examples=examples(40), deadline=None)
@given(rates, errors, errors, samples, st.sampled_from(["proven", "observed", "not-refuted"]))
@example(Decimal("0.1"), Decimal("0.5"), Decimal("0.5"), (1.5023, 10**7), "proven")  # a lower bound of 0.150009
@example(Decimal("0.1"), Decimal("0.5"), Decimal("0.5"), (0.4986, 10**7), "proven")  # an upper bound of 0.049995
@example(Decimal("0.1"), Decimal("0.5"), Decimal("0.5"), (1.50004, 10**7), "observed")
@example(Decimal("0.1"), Decimal("0.5"), Decimal("0.5"), (0.5, 10_000), "observed")
@example(Decimal("0.05"), Decimal("0.5"), Decimal("0.5"), (20.0, 2), "proven")
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
    policy = parse_policy(text, "any.yaml").policy
    evidence = evidence_of(policy, Parts(fpr=Targets(anchors=anchors_of(policy, [count], n))))
    [finding] = judge_fpr(policy, evidence)
    record = RECORDS["pass"].model_copy(update={"findings": (finding,)})
    assert finding.rate is not None
    low_bound, high_bound = (Decimal(repr(bound)) for bound in finding.rate.interval)
    counts_inside = judge_targets(policy, evidence)[0].critical.observed
    for cells in rendered_cells(record):
        (low, high), (least, most) = printed(cells["interval"]), printed(cells["tolerance"])
        assert low <= low_bound
        assert high >= high_bound
        assert (least <= low and high <= most) == (finding.grade == "proven")
        assert (high < least or most < low) == (finding.grade == "refuted")
        assert cells["counted"] == f"{count:,} / {n:,}"
        inside = bool(counts_inside and counts_inside[0] <= count <= counts_inside[1])
        if "observed" in cells:
            observed = Decimal(cells["observed"].removesuffix(" %")) / 100
            assert (least <= observed <= most) == inside
        if "error" not in cells:
            continue
        if cells["interval one in"].startswith("1 in "):
            few, many = (Fraction(1, 1) / Fraction(part) for part in one_in_numbers(cells["interval one in"]))
            assert few <= low_bound
            assert many >= high_bound
            assert (least <= few and many <= most) == (finding.grade == "proven")
            assert (many < least or most < few) == (finding.grade == "refuted")
        error = Decimal(cells["error"].removesuffix(" %").replace("−", "-").replace(",", "")) / 100
        rate = Fraction(1 + error) * Fraction(fpr)
        if all(abs(rate - edge) > Fraction(1, 10**12) * rate for edge in map(Fraction, (least, most))):
            assert (least <= rate <= most) == inside


def one_in_numbers(text: str) -> list[str]:
    return [part.removeprefix("1 in ").replace(",", "") for part in text.split(" to ")]


def rendered_cells(record: Record) -> Iterator[dict[str, str]]:
    """The row of the only target as each report prints it: read from the finished text, not from the renderer."""
    page = html._render(record, [], LIMITS[0])
    rows = re.findall(r'<td data-name="([^"]+)"(?: title="([^"]*)")?>(.*?)</td>', page)
    cell, hover = ({name: part for name, *parts in rows for part in parts[i : i + 1]} for i in (1, 0))
    observed, beneath = cell["Observed"].split("<br>")
    counted, _, error = (
        beneath.replace("&nbsp;%", " %").removeprefix("<small>").removesuffix("</small>").rpartition(", ")
    )
    from_page = {
        "counted": counted,
        "observed": observed,
        "error": error,
        "interval": cell["Interval"],
        "interval one in": hover["Interval"],
        "tolerance": cell["Tolerance"],
    }
    yield from_page
    source = markdown.render(record)
    table = source[source.index("| outcome | target") :].splitlines()
    cell = dict(zip(*(line.strip("| ").split(" | ") for line in (table[0], table[2])), strict=True))
    observed, _, counted = cell["observed"].removesuffix(")").partition(" (")
    from_source = {
        "counted": counted,
        "observed": observed,
        "interval": cell["interval"],
        "tolerance": cell["tolerance"],
    }
    assert from_source == {name: from_page[name] for name in from_source}
    full = record.model_copy(update={"outcome": "fail"})  # a pass leaves out the counts on a narrow terminal
    for width in (200, 40):
        text = " ".join(terminal.render(full, width=width).replace("–", " to ").split())
        at = re.search(r"[\d,]+ / [\d,]+", text)
        assert at
        rates = re.findall(r"([\d.]+ to [\d.]+ %)", text[at.start() :])
        yield {"counted": at[0], "interval": rates[0], "tolerance": rates[1]}
        headline = re.search(r"Flags ([\d.]+ %) of benign rows at .*?; the policy allows ([\d.]+ to [\d.]+ %)", text)
        assert (headline is not None) == record.findings[0].blocks
        if headline is not None:
            yield {"counted": at[0], "interval": rates[0], "observed": headline[1], "tolerance": headline[2]}


@pytest.mark.each_run(1)
@pytest.mark.parametrize(("name", "first"), [("dropped", "detection"), ("segments", "segments"), ("fail", "forest")])
def test_the_first_picture_shows_what_blocks(name: str, first: str) -> None:
    record = RECORDS[name]
    if name == "segments":  # targets that block too come first
        parts = tuple(f for f in record.findings if f.check.segment)
        record = record.model_copy(update={"findings": parts})
    assert html.draw(record)[0].name == first


def test_a_drop_is_said_in_shares_and_with_what_the_policy_allows() -> None:
    record = RECORDS["dropped"]
    record = record.model_copy(update={"findings": tuple(f for f in record.findings if f.check.kind != "tpr")})
    assert plain_reason(record) == (
        "Detects 72.5 % of malicious rows at the 0.1 % threshold, where v2.3.0 detected 82.7 %; the policy allows a "
        "loss of 2 points; 1 more finding blocks it"
    )
    unread = record.model_copy(update={"policy": record.policy.model_copy(update={"content": "nothing"})})
    assert "detected 82.7 %; 1 more finding" in plain_reason(unread)


def test_a_bound_of_a_drop_has_the_same_digits_in_its_finding_and_in_the_table() -> None:
    record = RECORDS["dropped"]
    [message] = [finding.message for finding in record.findings if str(finding.check) == "tpr-drop@0.1%"]
    changed = changes(record)
    assert changed is not None
    [row] = [row for row in changed.detection if row.target == "0.1 %"]
    shown, low, high = re.findall(r"[−+][\d.]+", row.difference)
    assert f"a change of {shown} points, between {low} and {high}" in message


def test_a_segment_that_is_absent_is_named_in_the_reason() -> None:
    absent = Finding(
        check=CheckName("segment", segment="language=ja"),
        outcome="fail",
        required=True,
        reason="absent",
        message="no held-out row belongs to this segment",
    )
    assert describe_blocking([absent]) == "language=ja: no held-out row belongs to this segment"


@pytest.mark.each_run(2)
@pytest.mark.parametrize("rate", [5e-324, 1e-320, 1e-12, 1.0])
def test_any_target_of_a_forged_record_is_rendered(rate: float) -> None:
    """Whether it holds is another question: a report that is asked for must not crash."""
    content = RECORDS["fail"].model_dump(mode="json")
    for finding in content["findings"]:
        if finding["rate"]:
            finding["rate"]["target"] = rate
    record = Record.model_validate(content)
    for render in (html.render, markdown.render, junit.render, short.render):
        assert render(record)
