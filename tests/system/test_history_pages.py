"""The history shows what the records say together: in order, once each, and never without what could not be read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from drawing import often
from histories import RENDERERS, history_of, write
from markdown_it import MarkdownIt
from pages import Elements, figures_as_text
from records import ATTACKS, RECORDS, check, releases, retrained
from rich.cells import cell_len
from scipy.stats import binom

import gate
from gate.checks import default_policy
from gate.checks.baseline import Comparison
from gate.checks.check import Finding
from gate.checks.detection import Detection
from gate.history import History, _detected, collect
from gate.names import CheckName
from gate.planning import plan
from gate.record import Record
from gate.report import history as report
from gate.report.numbers import clean
from gate.report.timeline import display as draw
from gate.starter.demo import RETRAINED_ROWS, retrain

pytestmark = [pytest.mark.figures, pytest.mark.usefixtures("few_points")]


def check_of(directory: Path) -> Record:
    """Make a check of the release that was written there; the digest of its record names it."""
    record = RECORDS["check"]
    comparison = record.of(Comparison)
    assert comparison is not None
    sha256 = hashlib.sha256((directory / "verdict.json").read_bytes()).hexdigest()
    reference = comparison.reference.model_copy(update={"verdict_sha256": sha256})
    checks = record.checks.model_copy(update={"baseline": comparison.model_copy(update={"reference": reference})})
    return record.model_copy(update={"checks": checks})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> History:
    """The releases of records.py and one that cannot be read; no name holds a temporary directory."""
    with contextlib.chdir(tmp_path_factory.mktemp("whole")):
        history_of(Path("releases"), releases())
        write(Path("releases", "broken"), RECORDS["pass"]).joinpath("verdict.json").write_text('{"schema_version": 2}')
        return collect(["releases"])


@pytest.fixture(scope="module")
def pages(whole: History) -> dict[str, str]:
    """The history in every format, rendered once for all tests that only read it."""
    return {suffix: render(whole) for suffix, render in RENDERERS.items()}


TENTH = CheckName("fpr", Decimal("0.001"))


def with_tally(finding: Finding, **changes: Any) -> Finding:
    """Return the finding with another count, or at another threshold."""
    assert finding.rate is not None
    tally = finding.rate.tally.model_copy(update=changes)
    return finding.model_copy(update={"rate": finding.rate.model_copy(update={"tally": tally})})


def names(history: History) -> list[str]:
    return [release.name for release in history.releases]


# --- which releases there are -------------------------------------------------------------------------------


def test_releases_stand_in_the_order_of_time_and_then_of_names(tmp_path: Path) -> None:
    made = [("b", "2026-01-02"), ("c", "2026-01-01"), ("a", "2026-01-02"), ("d", "2025-12-31")]
    records = [retrained(RECORDS["pass"], name, f"{day}T00:00:00Z", 1.0) for name, day in made]
    assert names(history_of(tmp_path, records)) == ["d", "c", "a", "b"]


def test_checks_below_a_release_stand_on_the_same_time_line(tmp_path: Path) -> None:
    """Checks stand between the releases in the order of their days, each with the release that it is of."""
    first, second = (
        retrained(RECORDS["pass"], name, f"2026-0{month}-01T00:00:00Z", 1.0) for name, month in (("v1", 1), ("v2", 3))
    )
    for name, record in (("v1", first), ("v2", second)):
        write(tmp_path / name, record)
    days = [(4, "v2"), (2, "v1"), (5, "v1"), (1, "v1")]
    for month, name in days:
        made = check_of(tmp_path / name).model_copy(update={"release": name, "created": f"2026-0{month}-15T00:00:00Z"})
        write(tmp_path / name / "checks" / f"{month}", made)
    write(tmp_path / "v1" / "checks" / ".hidden", first)
    (tmp_path / "v1" / "checks" / "notes").mkdir()
    for named in ([str(tmp_path)], [str(tmp_path / "v2"), str(tmp_path / "v1"), str(tmp_path / "v1" / "checks")]):
        history = collect(named)
        assert [(release.name, release.kind, release.created[5:7]) for release in history.releases] == [
            ("v1", "run", "01"),
            ("v1", "check", "01"),
            ("v1", "check", "02"),
            ("v2", "run", "03"),
            ("v2", "check", "04"),
            ("v1", "check", "05"),
        ]
        assert history.unread == ()
        of = [history.released(release) for release in history.releases]
        assert [None if release is None else release.name for release in of] == [None, "v1", "v1", None, "v2", "v1"]
        assert all(release is None or release.kind == "run" for release in of)
        assert report.summary(history).startswith("2 releases and 4 checks from 2026-01-01 to 2026-05-15")


def test_a_check_that_was_made_before_every_release_of_its_name_has_none_here(tmp_path: Path) -> None:
    made = RECORDS["check"].model_copy(update={"release": "v1", "created": "2025-01-01T00:00:00Z"})
    write(tmp_path / "v1", retrained(RECORDS["pass"], "v1", "2026-01-01T00:00:00Z", 1.0))
    write(tmp_path / "v1" / "checks" / "early", made)
    history = collect([str(tmp_path)])
    assert [history.released(release) for release in history.releases] == [None, None]


def test_a_check_that_cannot_be_read_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    write(tmp_path / "v1", RECORDS["pass"])
    write(tmp_path / "v1" / "checks" / "broken", RECORDS["pass"]).joinpath("verdict.json").write_text("{")
    write(tmp_path / "v2", RECORDS["pass"]).joinpath("checks").symlink_to("checks")
    (tmp_path / "v3").mkdir()
    write(tmp_path / "v3" / "r", RECORDS["pass"]).joinpath("checks").write_text("a file")
    history = collect([str(tmp_path), str(tmp_path / "v3")])
    assert [Path(release.directory).name for release in history.releases] == ["v1", "v2", "r"]
    assert [Path(unread.directory).name for unread in history.unread] == ["broken", "checks"]
    assert "checks: must be a directory of checks, got Too many levels of symbolic links" in history.unread[1].problem


def test_a_directory_is_counted_once_however_it_is_named(tmp_path: Path) -> None:
    one, two = (write(tmp_path / "all" / name, RECORDS["pass"]) for name in ("one", "two"))
    (tmp_path / "link").symlink_to(two)
    named = [str(one), str(tmp_path / "all"), f"{one}/", str(tmp_path / "link"), str(one / ".." / "two")]
    history = collect(named)
    assert [release.directory for release in history.releases] == [str(one), str(two)]
    assert history.unread == ()


def test_only_releases_are_taken_from_a_directory_that_holds_some(tmp_path: Path) -> None:
    write(tmp_path / "v1", RECORDS["pass"])
    write(tmp_path / ".gate-x.partial", RECORDS["fail"])
    (tmp_path / "notes").mkdir()
    (tmp_path / "ledger.jsonl").write_text("")
    history = collect([str(tmp_path)])
    assert [Path(release.directory).name for release in history.releases] == ["v1"]
    assert history.unread == ()


@pytest.mark.each_run(1)
@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda path: path.write_text('{"schema_version": 2}'), "upgrade gate"),
        (lambda path: path.write_text("{"), "must be JSON"),
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_text(path.read_text().replace('"target": 0.001', '"target": 0')), "target"),
    ],
    ids=["newer", "torn", "lost", "impossible"],
)
def test_a_record_that_cannot_be_read_is_named_beside_the_others(
    tmp_path: Path, break_it: Callable[[Path], object], words: str
) -> None:
    good, bad = (write(tmp_path / name, RECORDS["pass"]) for name in ("good", "bad"))
    (bad / "manifest.json").write_text("{}")
    break_it(bad / "verdict.json")
    for paths in ([str(tmp_path)], [str(good), str(bad)], [str(tmp_path), str(bad)]):
        history = collect(paths)
        assert [release.directory for release in history.releases] == [str(good)]
        assert [unread.directory for unread in history.unread] == [str(bad)]
        assert words in history.unread[0].problem
        for render in (*RENDERERS.values(), report.to_json):
            assert "bad" in render(history)


@pytest.mark.parametrize("kind", ["missing", "file", "empty"])
def test_what_is_no_release_is_named_too(kind: str, tmp_path: Path) -> None:
    place = tmp_path / kind
    if kind == "file":
        place.write_text("")
    elif kind == "empty":
        place.mkdir()
    history = collect([str(place), str(place)])
    assert history.releases == ()
    [unread] = history.unread
    assert unread.problem.startswith(f"{place}: must be a release directory, or hold some, got ")


# --- what the records say together --------------------------------------------------------------------------


def test_the_same_held_out_rows_are_noticed_without_a_ledger(tmp_path: Path) -> None:
    """Another calibrator or policy on the same rows is another use; the same question again is none."""
    records = []
    for i, (rows, calibrator) in enumerate([("x", "1"), ("x", "2"), ("y", "3"), ("x", "1"), ("x", "4")]):
        record = retrained(RECORDS["pass"], f"v{i}", f"2026-01-0{i + 1}T00:00:00Z", 1.0)
        holdout = record.holdout.model_copy(update={"rows_sha256": rows * 64})
        made = record.calibrator.model_copy(update={"sha256": calibrator * 64})
        records.append(record.model_copy(update={"holdout": holdout, "calibrator": made}))
    history = history_of(tmp_path, records)
    assert [(release.use, release.last_use) for release in history.releases] == [
        (1, None),
        (2, "v0"),
        (1, None),
        (2, "v1"),
        (3, "v1"),
    ]
    assert "v4: use 3 of the same held-out rows, last by v1" in report.render(history)


def test_what_else_keeps_a_release_from_passing_is_named(tmp_path: Path) -> None:
    """A release that fails while every anchor passes must not stand there unexplained."""
    blocks = {"required": True}
    findings = [check(name, "fail", "x", "y", None).model_copy(update=blocks) for name in ("overlap", "a", "b", "c")]
    record = RECORDS["pass"].model_copy(update={"outcome": "fail", "findings": (*RECORDS["pass"].findings, *findings)})
    history = history_of(tmp_path, [record])
    assert [*map(str, history.releases[0].blocking)] == ["overlap", "a", "b", "c"]
    for render in RENDERERS.values():
        assert "locked by overlap, a, b and 1 more" in render(history)


def test_a_kept_threshold_is_bracketed_by_the_curve(tmp_path: Path) -> None:
    """It is exact if the threshold is a point of the curve; below all points it flags all rows, above them none."""
    record = retrained(RECORDS["pass"], "new", "2026-02-01T00:00:00Z", 1.0)
    assert record.curve is not None
    points = [(p.tally.threshold, p.tally.flagged) for p in record.curve.points if p.tally.threshold is not None]
    known = [points[40][0], (points[40][0] + points[41][0]) / 2, points[0][0] / 2, points[-1][0] * 2]
    brackets = []
    for i, threshold in enumerate(known):
        anchors = tuple(anchor.model_copy(update={"threshold": threshold}) for anchor in record.calibrator.anchors)
        fitted = record.calibrator.model_copy(update={"anchors": anchors})
        old = record.model_copy(update={"calibrator": fitted, "release": "old", "created": "2026-01-01T00:00:00Z"})
        at_first = history_of(tmp_path / str(i), [old, record]).releases[1].readings[TENTH].if_kept
        assert at_first is not None
        assert (at_first.release, at_first.threshold, at_first.benign) == ("old", threshold, 200_000)
        brackets.append((at_first.least, at_first.most))
    assert brackets == [
        (points[40][1], points[40][1]),
        (points[41][1], points[40][1]),
        (points[0][1], 200_000),
        (0, points[-1][1]),
    ]
    assert points[41][1] < points[40][1]


# --- reports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", RENDERERS)
def test_reports_equal_the_golden_files(suffix: str, pages: dict[str, str], golden: Callable[[str, str], None]) -> None:
    golden(f"reports/history.{suffix}", figures_as_text(pages[suffix]))


@pytest.mark.parametrize("suffix", RENDERERS)
def test_renderers_are_pure(
    suffix: str, whole: History, pages: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"COLUMNS": "33", "LINES": "2", "TERM": "dumb", "FORCE_COLOR": "1", "TZ": "Asia/Tokyo"}.items():
        monkeypatch.setenv(name, value)
    assert RENDERERS[suffix](whole) == pages[suffix]


@pytest.mark.parametrize("suffix", RENDERERS)
def test_checks_waivers_reuse_and_detection_are_shown(suffix: str, pages: dict[str, str]) -> None:
    text = " ".join(pages[suffix].split())
    for words in ("check", "use 3 of the same held-out rows", "36,480 / 40,000", "(waived)", "until 2026-06-30"):
        assert words.lower() in text.lower()
    assert "4 releases and 1 check from 2026-01-05 to 2026-04-06: 3 pass, 1 fail, 1 inconclusive" in text


@pytest.mark.each_run(2)
@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_names_change_no_report(attack: str, tmp_path: Path) -> None:
    """The elements of the page and the lines and cells of the Markdown are those of a harmless history."""

    def made(text: str, place: str) -> History:
        waiver = RECORDS["waived"].waivers[0].model_dump() | {"owner": text, "reason": text}
        records = [
            retrained(RECORDS["waived"], text, "2026-01-05T09:00:00Z", 1.0, reason=text),
            retrained(RECORDS["pass"], text, "2026-02-05T09:00:00Z", 1.1, reason=text, waivers=[waiver]),
        ]
        return history_of(tmp_path / place, records)

    attacked, harmless = made(ATTACKS[attack], "a"), made("x" * 12, "b")
    shown = clean(ATTACKS[attack])
    page = Elements(report.render_html(attacked))
    assert page.tags == Elements(report.render_html(harmless)).tags
    assert shown in page.text
    source, model = report.render_markdown(attacked), report.render_markdown(harmless)
    assert [line.count("|") for line in source.splitlines()] == [line.count("|") for line in model.splitlines()]
    render = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render
    finished = Elements(render(source))
    assert finished.tags == Elements(render(model)).tags
    assert not re.search(r"(?<!\w)@\w|#\d", finished.text)
    text = report.render(attacked)
    assert len(text.splitlines()) >= len(report.render(harmless).splitlines())
    for line in text.splitlines():
        assert not line.lstrip().startswith("::")
        assert "##[" not in line
    for rendered in (page.text.replace("\xa0%", " %"), source, text):
        assert [line for line in rendered.split("\n") if not line.isprintable()] == []


@pytest.mark.parametrize("name", ["$x^2$", "_hidden", "$\\frac$", "日本語", "a&b<c", "%s {0}"])
def test_a_name_in_a_figure_is_that_name_or_a_number(name: str, tmp_path: Path) -> None:
    """No name is read as a formula, hidden, or drawn in a font that has no letters for it."""
    records = [retrained(RECORDS["pass"], name, f"2026-01-0{i}T00:00:00Z", 1.0) for i in (1, 2)]
    svg = report.figure(history_of(tmp_path, records))
    words = ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert words.count(name) == 2 or {"no. 1", "no. 2"} <= {*words}


@pytest.mark.each_run(2)
@pytest.mark.parametrize(
    "numbers",
    [
        {"tally": {"threshold": 1e308}},
        {"tally": {"threshold": None, "flagged": 0}},
        {"tally": {"flagged": 10**15, "rows": 10**15}},
        {"interval": (0.0, 1.0)},
        {"interval": (0.0, 5e-324), "tolerance": (0.0, 0.0)},
    ],
    ids=str,
)
def test_one_odd_record_does_not_take_the_page_with_it(numbers: dict[str, Any], tmp_path: Path) -> None:
    tally = numbers.get("tally", {})
    rest = {name: value for name, value in numbers.items() if name != "tally"}
    changed = []
    for finding in (with_tally(finding, **tally) for finding in RECORDS["pass"].findings):
        assert finding.rate is not None
        changed.append(finding.model_copy(update={"rate": finding.rate.model_copy(update=rest)}))
    history = history_of(tmp_path, [RECORDS["pass"].model_copy(update={"findings": tuple(changed)}), RECORDS["pass"]])
    assert history.unread == ()
    for render in (*RENDERERS.values(), report.to_json):
        assert "20,100 / 200,000" in render(history) or render is report.to_json


def test_a_history_fits_a_terminal_and_ends_with_its_verdict(whole: History) -> None:
    """A text longer than a screen repeats its first line at the end; a table that is too wide becomes several."""
    text = report.render(whole, width=80)
    assert max(map(cell_len, text.splitlines())) <= 80
    first = text.partition("\n4 releases and 1 check")[0]
    assert text.endswith(f"\n\n{first}\n")
    whole_rows, parts = (report.render(whole, width=width) for width in (400, 80))
    assert {*re.findall(r"[\d.]+–[\d.]+ %", whole_rows)} == {*re.findall(r"[\d.]+–[\d.]+ %", parts)}


def test_the_tables_of_a_terminal_are_cut_nowhere(whole: History) -> None:
    """Sentences wrap at the width; a row of numbers does not."""
    narrow, wide = (report.render(whole, width=width) for width in (40, 400))
    too_long = [line for line in narrow.splitlines() if cell_len(line) > 40]
    assert len(too_long) > 20
    assert {*too_long} <= {*wide.splitlines()}
    assert "…" not in wide.replace("<script>alert(1)</s…", "")


def test_a_display_draws_on_axes_of_its_own_or_given(whole: History) -> None:
    from matplotlib.figure import Figure

    display = draw(whole, TENTH)
    assert list(display.threshold) == [r.readings[TENTH].threshold for r in whole.releases]
    ax = Figure().add_subplot()
    assert display.plot(ax).ax_ is ax
    assert len(ax.child_axes) == 2
    assert display.plot().ax_ is not ax
    assert display.to_svg() == display.to_svg()


def test_a_thousand_records_are_a_page_in_seconds(tmp_path: Path) -> None:
    """Most of the time is reading; the page shows the latest releases, says how many there are, and stays small."""
    records = often(120, 1000)
    record = json.loads(RECORDS["pass"].to_json())
    for i in range(records):
        record |= {"release": f"r{i:04}", "created": f"2026-01-01T{i // 60:02}:{i % 60:02}:00Z"}
        (tmp_path / f"r{i:04}").mkdir()
        (tmp_path / f"r{i:04}" / "verdict.json").write_text(json.dumps(record))
    start = time.process_time()
    history = collect([str(tmp_path)])
    pages = {suffix: render(history) for suffix, render in RENDERERS.items()}
    assert time.process_time() - start < 20  # seconds of the processor, whatever else it does
    assert {suffix: len(page.encode()) <= 1_000_000 for suffix, page in pages.items()} == dict.fromkeys(pages, True)
    assert len(pages["md"].encode()) <= 60_000
    for page in pages.values():
        assert f"r{records - 1:04}" in page
        assert f"r{records - 100:04}" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
        assert f"{records:,} releases" in page


def test_a_page_of_many_targets_says_what_it_leaves_out(tmp_path: Path) -> None:
    finding = RECORDS["pass"].findings[2]
    assert finding.rate is not None
    rates = [Decimal(str(round(0.5 * 0.8**i, 6))) for i in range(20)]
    findings = tuple(
        finding.model_copy(
            update={"check": CheckName("fpr", rate), "rate": finding.rate.model_copy(update={"target": rate})}
        )
        for rate in rates
    )
    history = history_of(tmp_path, [RECORDS["pass"].model_copy(update={"findings": findings})] * 2)
    for render in RENDERERS.values():
        assert re.search("and 8 more targets", render(history), re.IGNORECASE)


# --- the demo of retrainings --------------------------------------------------------------------------------


@pytest.mark.each_run(0)
def test_a_sound_retraining_passes_as_often_as_planned() -> None:
    """Sixty retrainings, from seeds that nobody chose, have a size at which the plan says that some do not pass."""
    document, rows = default_policy(), 98_000
    planned = plan(document.policy, rows, rows)
    required = [target.sound[0].passes for target in planned.targets if target.target.required]
    low, high = 1 - sum(1 - chance for chance in required), min(required)
    assert 0.93 < low <= high < 0.97
    outcomes = [
        gate.evaluate(gate.fit(made.fit), made.holdout).outcome
        for seed in range(20)
        for made in retrain(3, rows=rows, seed=seed)
    ]
    passed = outcomes.count("pass")
    assert "fail" not in outcomes
    assert binom.cdf(passed, len(outcomes), low) > 0.0005
    assert binom.sf(passed - 1, len(outcomes), high) > 0.0005


def test_at_the_demo_s_size_a_sound_release_practically_always_passes() -> None:
    planned = plan(default_policy().policy, RETRAINED_ROWS, RETRAINED_ROWS)
    assert sum(1 - t.sound[0].passes for t in planned.targets if t.target.required) < 0.001


def test_names_sort_in_the_order_of_time_however_many_there_are() -> None:
    made = [(retrained_.name, retrained_.created) for retrained_ in retrain(13, rows=10)]
    assert made == sorted(made) == sorted(made, key=lambda pair: pair[1])


def test_what_is_detected_is_shown_where_no_minimum_is_set_too() -> None:
    """Every anchor of the malicious rows is in the record, whether the policy judges it or not."""
    judged = RECORDS["followed"]
    counted = judged.of(Detection)
    assert counted is not None
    with_minimum = {f.check.rate for f in judged.findings if f.check.kind == "tpr"}
    for f in judged.findings:
        if f.check.kind == "fpr":
            assert f.check.rate is not None
            found = _detected(judged)[f.check.rate]
            assert found.tally == counted.at(f.check.rate)
            assert found.interval == pytest.approx(found.tally.interval(0.05), rel=1e-12)
            assert (found.outcome is None) == (f.check.rate not in with_minimum)
