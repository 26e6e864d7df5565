"""No text of any figure lies on another or leaves its figure, measured by the boxes that Chromium gives the text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import several
from drawing import often
from records import DETECTED, RECORDS, followed, releases, retrained

import gate
from gate.checks import parse_policy
from gate.history import collect
from gate.record import Record
from gate.report import history, html, system

pytestmark = pytest.mark.figures
KINDS = {"forest", "contract", "error", "mapping", "detection", "segments", "range", "range-error", "anchor-0"}
README = Path(__file__).parents[2] / "README.md"
RATES = ("10%", "1%", "0.1%", "0.01%", "0.001%", "0.0001%")
BOXES = """() => {
    document.querySelectorAll('details').forEach(fold => { fold.open = true; });
    const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
    return [...document.querySelectorAll('svg')].map(svg => ({
        kind: svg.querySelector(':scope > title')?.id ?? '',
        name: svg.querySelector('title')?.textContent ?? '',
        box: box(svg),
        texts: [...svg.querySelectorAll('text')].map(t => [t.textContent.trim(), box(t)]).filter(([words]) => words),
    }));
}"""


def policy(rates: tuple[str, ...], more: str = "") -> Any:
    targets = ", ".join(f"{{fpr: {rate}, min_n: 100, max_relative_error: 0.5}}" for rate in rates)
    return parse_policy(f"version: 1\nname: drawn\ntargets: [{targets}]\n{more}", "drawn.yaml")


def table(rng: np.random.Generator, n: int, segments: list[str]) -> pa.Table:
    return pa.table({"score": rng.random(n), "part": rng.choice(segments, n)})


def drawn_records() -> Iterator[tuple[str, Record]]:
    """Shapes that the golden records do not have."""
    rng = np.random.default_rng(18)
    small, large = rng.random(3_000), rng.random(60_000)
    one, six = policy(("1%",)), policy(RATES)
    ranges = "ranges:\n  - {from: 10%, to: 0.1%, min_n: 1, max_relative_error: 0.5}\n"
    ranges += "  - {from: 5%, to: 2%, min_n: 1, max_relative_error: 0.2}\n"
    wide = "calibration: {domain: [-1e9, 1e9]}\n"
    segments = "data: {segment: part}\nchecks: {segments: {targets: [10%], min_n: 100, max_relative_error: 0.5}}\n"
    names = [f"{'a very long name of a segment, number' if i % 2 else 's'} {i}" for i in range(40)]
    shapes: dict[str, tuple[Any, Any, Any, Any]] = {
        "one target": (small, rng.random(3_000), one, None),
        "one target, nothing flagged": (small, rng.random(3_000) * 0.5, one, None),
        "six targets": (large, rng.random(60_000), six, rng.random(500) ** 0.1),
        "six targets, ten times over": (large, rng.random(60_000) ** 0.1, six, rng.random(20)),
        "ranges": (large, rng.random(60_000), policy(("1%",), ranges), None),
        "ranges, open": (small, rng.random(700), policy(("10%",), ranges), None),
        "ranges, disproved": (large, rng.random(60_000) ** 0.5, policy(("10%",), ranges), None),
        "tied scores": (large.round(2), rng.random(60_000).round(2), policy(RATES, ranges), large[:9]),
        "segments": (table(rng, 60_000, names), table(rng, 60_000, names), policy(("10%",), segments), None),
        "huge scores": (
            small * 1e9 - 5e8,
            rng.random(3_000) * 1e9 - 5e8,
            policy(("1%",), wide),
            None,
        ),
    }
    for shape in [*shapes][:: often(3, 1)]:
        fit, holdout, document, malicious = shapes[shape]
        yield shape, gate.run(fit, holdout, release="v1", policy=document, malicious=malicious).record


def long_history() -> list[Record]:
    """Fifty releases with names of every length, some of them far off."""
    lengths = [1 + i * 7 % 60 for i in range(50)]
    days = [f"2026-{1 + i // 28:02}-{1 + i % 28:02}T00:00:00Z" for i in range(50)]
    kinds = ("pass", "fail", "inconclusive")
    return [
        retrained(
            RECORDS[kinds[i % 3]], "release-candidate-" * 4 if i == 7 else f"{i:0{length}}", day, 1 + 0.3 * (i % 9)
        )
        for i, (length, day) in enumerate(zip(lengths, days, strict=True))
    ]


def history_page(directory: Path, records: list[Record]) -> str:
    for i, record in enumerate(records):
        (directory / str(i)).mkdir(parents=True)
        (directory / str(i) / "verdict.json").write_text(record.to_json(), encoding="utf-8")
    return history.render_html(collect([str(directory)]))


def system_pages() -> Iterator[tuple[str, str]]:
    for names in (("injection", "a-detector-with-a-long-name" * 2), tuple(f"detector-{i:02}" for i in range(14))):
        document = parse_policy(several.policy(names, "30%"), "several.yaml")
        samples = [several.simulate(6_000, names, seed, 0.3) for seed in (1, 2)]
        record = gate.run_system(*samples, release="v1", policy=document).record
        yield f"{len(names)} detectors", system.render_html(record)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("histories")
    golden = [*RECORDS.items()][:: often(3, 1)]
    drawn = {name: html.render(record) for name, record in (*golden, *drawn_records())}
    drawn["segments of a record"] = html.render(RECORDS["segments"])
    drawn["few detected"] = html.render(followed(tuple(k // 900 for k in DETECTED)))
    for name, records in {"4 releases": releases(), "50 releases": long_history(), "2": long_history()[6:8]}.items():
        drawn[f"history of {name}"] = history_page(directory / name, records)
    for picture in README.parent.glob(".github/*.svg"):
        drawn[picture.name] = f"<!doctype html><title>x</title>{picture.read_text(encoding='utf-8')}"
    return drawn | dict(system_pages())


def problems(figure: dict[str, Any]) -> Iterator[str]:
    """Texts of one figure that share room, or that reach beyond its edge, by more than a pixel."""
    left, top, right, bottom = figure["box"]
    inked = []
    for words, (x0, y0, x1, y1) in figure["texts"]:
        inside = x0 >= left - 1 and x1 <= right + 1 and y0 >= top - 2 and y1 <= bottom + 2
        if not inside:
            yield f"{figure['name']}: {words!r} leaves the figure"
        high, wide = y1 - y0, x1 - x0
        upright = wide < high and len(words) > 3  # a label along the axis
        dx, dy = (0.15 * wide, 0) if upright else (0, 0.15 * high)  # no letter is as high as its line
        inked.append((words, x0 + dx, y0 + dy, x1 - dx, y1 - dy))
    for (one, *a), (other, *b) in combinations(inked, 2):
        if min(a[2], b[2]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[1], b[1]) > 1:
            yield f"{figure['name']}: {one!r} lies on {other!r}"


@pytest.mark.each_run(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_text_of_any_figure_lies_on_another_or_is_cut(scheme: str, browser: Any, pages: dict[str, str]) -> None:
    found, texts, kinds = {}, 0, set()
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    for name, source in pages.items():
        page.set_content(source)
        figures = page.evaluate(BOXES)
        assert figures, name
        kinds |= {figure["kind"].removesuffix("-title") for figure in figures}
        texts += sum(len(figure["texts"]) for figure in figures)
        if amiss := [problem for figure in figures for problem in problems(figure)]:
            found[name] = amiss
    page.close()
    assert found == {}
    assert kinds >= KINDS
    assert texts > often(300, 1_000)


def test_the_measurement_sees_text_that_overlaps_and_text_that_is_cut(browser: Any) -> None:
    page = browser.new_page()
    page.set_content(
        '<svg width="300" height="100"><text x="10" y="40">one and</text><text x="30" y="44">two</text>'
        '<text x="280" y="90">beyond the edge</text><text x="150" y="20">alone</text></svg>'
    )
    said = [problem for figure in page.evaluate(BOXES) for problem in problems(figure)]
    assert said == [": 'beyond the edge' leaves the figure", ": 'one and' lies on 'two'"]
    page.close()
