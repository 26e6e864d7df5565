"""The HTML report in a real browser: no script, no network, no sideways scrolling, readable by everyone.

Needs Debian's chromium (or another Chromium on the PATH), and for two of the tests the paths of npm packages:
GATE_AXE names axe-core's axe.min.js, GATE_HTML_VALIDATE the html-validate program. `.ci/run` has all of them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from records import ATTACKS, RECORDS, releases, retrained, with_text

from gate.checks.fpr import Targets
from gate.history import History, collect
from gate.record import Record
from gate.report import history, html, markdown

pytestmark = pytest.mark.figures
CASES = sorted(RECORDS)
PAGES = [*CASES, "history", "history-of-many"]
COLORS = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}
# Jenkins serves pages so: without scripts, inline style sheets, style attributes and data images.
JENKINS = "sandbox allow-same-origin; default-src 'none'; img-src 'self'; style-src 'self'"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("pages")
    paths = {case: directory / f"{case}.html" for case in CASES}
    for case, path in paths.items():
        path.write_text(html.render(RECORDS[case]), encoding="utf-8")
    times = [f"2026-01-01T{i // 60:02}:{i % 60:02}:00Z" for i in range(120)]
    many = [retrained(RECORDS["fail"], f"r{i:03}", time, 1 + 0.1 * (i % 7)) for i, time in enumerate(times)]
    for case, records in {"history": releases(), "history-of-many": many}.items():
        paths[case] = directory / f"{case}.html"
        paths[case].write_text(history.render_html(history_of(directory / case, records)), encoding="utf-8")
    return paths


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[Any]:
    """One page for all tests that only look at what is shown: a new page is a process, and costs more than the look."""
    page = browser.new_page()
    yield page
    page.close()


def opened(tab: Any, path: Path, width: int = 1280, height: int = 800, scheme: str = "light") -> Any:
    tab.set_viewport_size({"width": width, "height": height})
    tab.emulate_media(color_scheme=scheme)
    tab.goto(path.as_uri())
    return tab


def history_of(directory: Path, records: list[Record]) -> History:
    """Make a history with one release that cannot be read."""
    for i, record in enumerate(records):
        (directory / str(i)).mkdir(parents=True)
        (directory / str(i) / "verdict.json").write_text(record.to_json(), encoding="utf-8")
    return collect([str(directory), "missing/<b>&"])


@pytest.mark.each_run(2)
@pytest.mark.parametrize("case", CASES)
def test_the_page_opens_without_scripts_errors_or_requests(case: str, browser: Any, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    requests: list[str] = []
    messages: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(pages[case].as_uri())
    assert page.get_by_role("heading", level=1).inner_text().startswith(RECORDS[case].outcome.upper())
    assert page.get_by_role("banner").count() == page.get_by_role("main").count() == 1
    assert page.get_by_role("img").count() == page.locator("figure svg").count() >= 4
    assert requests == [pages[case].as_uri()]
    assert messages == []
    context.close()


def test_a_history_opens_without_scripts_errors_or_requests(browser: Any, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    happened: list[str] = []
    page.on("request", lambda request: happened.append(request.url))
    page.on("console", lambda message: happened.append(message.text))
    page.on("pageerror", lambda error: happened.append(str(error)))
    page.goto(pages["history"].as_uri())
    assert page.get_by_role("heading", level=1).inner_text() == "The contract over 4 releases and 1 check"
    assert page.get_by_role("banner").count() == page.get_by_role("main").count() == 1
    assert page.get_by_role("img").count() == page.locator("figure svg").count() == 5
    assert page.get_by_role("table").first.get_by_role("row").count() == 6
    assert "missing/<b>&: must be a release directory" in page.get_by_role("banner").inner_text()
    assert happened == [pages["history"].as_uri()]
    page.set_viewport_size({"width": 690, "height": 1000})  # a sheet of A4 without its margins
    page.emulate_media(media="print")
    for cell in page.locator("td.standing").all():
        assert cell.bounding_box()["width"] >= 70
    context.close()


def overflowing(page: Any, widths: tuple[int, ...]) -> list[int]:
    """List the widths at which the page scrolls sideways."""
    found = []
    for width in widths:
        page.set_viewport_size({"width": width, "height": 800})
        inner, whole = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
        assert inner == width
        if whole > width:
            found.append(width)
    return found


@pytest.mark.each_run(4)
@pytest.mark.parametrize("case", PAGES)
def test_no_page_scrolls_sideways_and_every_reference_has_its_own_id(
    case: str, tab: Any, pages: dict[str, Path]
) -> None:
    page = opened(tab, pages[case])
    assert overflowing(page, (320, 360, 700, 1190, 2560)) == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len({*ids})
    source = pages[case].read_text(encoding="utf-8")
    references = {*re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', source)}
    assert {first or second for first, second in references} <= {*ids}


@pytest.mark.each_run(3)
@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_names_run_nothing_and_scroll_nothing(attack: str, browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(html.render(with_text(RECORDS["waived"], ATTACKS[attack])), encoding="utf-8")
    page = browser.new_page(viewport={"width": 360, "height": 800})
    happened: list[str] = []
    page.on("request", lambda request: happened.append(request.url))
    page.on("console", lambda message: happened.append(message.text))
    page.on("dialog", lambda dialog: (happened.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert happened == [path.as_uri()]
    page.close()


def test_counts_of_any_size_leave_the_page_in_place(tab: Any, tmp_path: Path) -> None:
    """If the table does not fit, only the table scrolls."""
    tally = RECORDS["pass"].of(Targets).anchors[0].tally
    grown = {"tally": tally.model_copy(update={"flagged": 204 * 10**12, "rows": 200_000 * 10**12})}
    grown |= {"accepts": (10**17, 10**18)}
    findings = tuple(
        finding.model_copy(update={"rate": finding.rate.model_copy(update=grown)})
        for finding in RECORDS["pass"].findings
        if finding.rate is not None
    )
    path = tmp_path / "huge.html"
    path.write_text(html.render(RECORDS["pass"].model_copy(update={"findings": findings})), encoding="utf-8")
    assert overflowing(opened(tab, path), (360, 800, 1200)) == []


@pytest.mark.parametrize("case", ["pass", "fail", "inconclusive"])
def test_the_first_screen_has_verdict_reason_picture_and_remedy(case: str, tab: Any, pages: dict[str, Path]) -> None:
    page = opened(tab, pages[case])
    for width, height in ((1280, 800), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        parts = (page.locator("h1"), page.locator("p.reason"), page.locator("figure svg").first)
        for part in (*parts, page.get_by_role("heading", name="What to do")):
            box = part.bounding_box()
            assert box["y"] + (0 if part is parts[2] else box["height"]) <= height, width


@pytest.mark.each_run(2)
@pytest.mark.parametrize("case", ["followed", "dropped", "no-reference", "check"])
def test_a_baseline_takes_at_most_two_screens_before_the_details(case: str, tab: Any, pages: dict[str, Path]) -> None:
    page = opened(tab, pages[case])
    assert page.get_by_role("heading", name="Data checks").bounding_box()["y"] <= 2 * 800


COMMENT = """<!doctype html><style>
body { box-sizing: border-box; width: 780px; margin: 0; padding: 16px; font: 14px/1.5 system-ui, sans-serif; }
table { display: block; width: max-content; max-width: 100%; overflow: auto; border-collapse: collapse; }
td, th { padding: 6px 13px; border: 1px solid #ccc; }
pre { overflow: auto; padding: 16px; font-size: 85%; }
</style>"""


def test_no_table_of_a_comment_scrolls_and_none_has_more_than_five_columns(tab: Any, tmp_path: Path) -> None:
    """This holds in 780 pixels, as GitHub's style sheet lays out Markdown, also if folds are open."""
    page = tab
    page.set_viewport_size({"width": 780, "height": 900})
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table")
    sources = {case: markdown.render(RECORDS[case]) for case in CASES}
    sources["history"] = history.render_markdown(history_of(tmp_path, releases()))
    for case, source in sources.items():
        page.set_content(COMMENT + rendered.render(source))
        page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        tables = page.evaluate(
            "[...document.querySelectorAll('table')].map(t => [t.scrollWidth <= t.clientWidth, t.rows[0].cells.length])"
        )
        assert tables, case
        assert all(fits and columns <= 5 for fits, columns in tables), case
        assert page.evaluate("document.documentElement.scrollWidth") <= 780, case


def test_the_page_and_its_figures_follow_the_colour_scheme(tab: Any, pages: dict[str, Path]) -> None:
    page, inks = opened(tab, pages["fail"]), set()
    for scheme, colour in COLORS.items():
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
        ink = page.evaluate("getComputedStyle(document.body).color")
        drawn = "[...document.querySelectorAll('figure .fill-ink')].map(e => getComputedStyle(e).fill)"
        assert {*page.evaluate(drawn)} == {ink}
        inks.add(ink)
    assert len(inks) == len(COLORS)
    assert page.locator("svg [style]").count() == 0


@pytest.mark.each_run(2)
@pytest.mark.parametrize("case", ["pass", "fail", "inconclusive", "waived", "history"])
def test_the_page_prints_on_two_or_three_sheets(case: str, tab: Any, pages: dict[str, Path]) -> None:
    page = opened(tab, pages[case], scheme="dark")
    sheets = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    assert 1 <= sheets <= 3


def test_the_page_reads_in_order_where_its_style_sheet_is_refused(browser: Any, pages: dict[str, Path]) -> None:
    """Jenkins strips inline styles: the words, the tables and the figures must stay."""
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    page = context.new_page()
    source = pages["fail"].read_text(encoding="utf-8")
    headers = {"content-type": "text/html; charset=utf-8", "content-security-policy": JENKINS}
    page.route("**/*", lambda route: route.fulfill(body=source, headers=headers))
    page.goto("http://report.invalid/report.html")
    assert page.locator("h1").bounding_box()["y"] < 100
    text = page.locator("body").inner_text()
    headings = ("FAIL: ", "What to do", "False-positive rate at each target", "Where the numbers come from")
    places = [text.index(words) for words in headings]
    assert places == sorted(places)
    assert page.locator("figure svg").first.bounding_box()["width"] > 300
    context.close()


@pytest.mark.each_run(4)
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
@pytest.mark.parametrize("case", PAGES)
def test_axe_finds_nothing(case: str, width: int, scheme: str, tab: Any, pages: dict[str, Path]) -> None:
    script = os.environ.get("GATE_AXE")
    if not script:
        pytest.skip("GATE_AXE does not name axe-core's axe.min.js")
    page = opened(tab, pages[case], width, 900, scheme)
    page.add_script_tag(path=script)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    problems = [(rule["id"], [node["html"][:200] for node in rule["nodes"]]) for rule in found["violations"]]
    assert problems == []
    assert len(found["passes"]) > 20


def test_html_validate_finds_nothing(pages: dict[str, Path], tmp_path: Path) -> None:
    program = os.environ.get("GATE_HTML_VALIDATE")
    if not program:
        pytest.skip("GATE_HTML_VALIDATE does not name the html-validate program")
    settings = {
        "root": True,
        "extends": ["html-validate:recommended"],
        "rules": {
            "long-title": "off",  # the title holds the release's name
        },
    }
    config = tmp_path / "html-validate.json"
    config.write_text(json.dumps(settings))
    command = [program, "--config", str(config), "--formatter", "text", *map(str, pages.values())]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout) == (0, "")
