"""The curve agrees with the evidence at every target, is bounded, and is drawn without any data."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from cases import case, tally
from records import RECORDS
from samples import sample_of

from gate.checks import default_policy, measure
from gate.checks.curve import MAX_POINTS, grid, trace
from gate.contract import Anchor, Contract
from gate.record import Record
from gate.report import drawing, figures
from gate.report.svg import simplify

pytestmark = pytest.mark.figures
DISPLAYS = [
    figures.ForestDisplay,
    figures.ContractDisplay,
    figures.RelativeErrorDisplay,
    figures.MappingDisplay,
    figures.DetectionDisplay,
]


def drawn(display: type[figures.Display]) -> figures.Display:
    """The figure of a record that has what it draws."""
    return display.from_record(RECORDS["followed" if display is figures.DetectionDisplay else "segments"])


def sample(seed: int, n: int) -> np.ndarray:
    return np.sort(1 / (1 + np.exp(5 - 1.4 * np.random.default_rng(seed).normal(size=n))))


@pytest.mark.each_run(2)
@pytest.mark.parametrize("grouped", [False, True], ids=["rows", "groups"])
@pytest.mark.parametrize("ties", [None, 2], ids=["distinct", "tied"])
def test_the_curve_meets_the_evidence_at_every_anchor(ties: int | None, grouped: bool) -> None:
    """Same threshold, counts and worth of rows: two figures of one page never differ."""
    benign, held_out = (sample(seed, 20_000) if ties is None else sample(seed, 20_000).round(ties) for seed in (1, 2))
    groups = np.arange(len(held_out)) // 20 if grouped else None
    malicious = sample_of(sample(5, 3000), kind="malicious")
    measured = case(default_policy().policy, benign, sample_of(held_out, groups=groups), malicious)
    points = {point.score: point for point in trace(measured).points}
    parts: Any = measure(measured)
    for benign_at, detected_at, anchor in zip(
        parts.fpr.anchors, parts.detection.anchors, measured.anchors, strict=True
    ):
        point = points[anchor.score]
        assert (point.fpr, point.tally) == (benign_at.fpr, benign_at.tally)
        assert point.tally.is_clustered == grouped
        assert point.detected == detected_at.tally.flagged


def test_every_count_is_that_of_the_calibrated_scores() -> None:
    measured = case(default_policy().policy, sample(3, 5_000), sample(4, 5_000))
    curve, calibrator = trace(measured), measured.calibrator
    calibrated = calibrator.predict(sample(4, 5_000))
    assert [p.tally.flagged for p in curve.points] == [int(np.sum(calibrated >= float(p.score))) for p in curve.points]
    assert curve.floor == float(calibrator.contract.score(calibrator.facts.lowest_label))
    assert [p.score for p in curve.points] == sorted({p.score for p in curve.points})


def test_no_contract_makes_the_curve_longer_than_its_bound() -> None:
    anchors = tuple(Anchor(Decimal(10) ** (-i / Decimal(100)), Decimal(i) / 1001) for i in range(1, 900))
    assert len(grid(Contract(anchors))) <= MAX_POINTS
    assert len(grid(Contract())) == 100


@pytest.mark.parametrize("display", DISPLAYS)
def test_a_display_draws_on_axes_of_its_own_or_given(display: type[figures.Display]) -> None:
    from matplotlib.figure import Figure

    figure = drawn(display)
    assert figure.plot() is figure
    assert figure.ax_.get_figure() is figure.figure_
    ax = Figure().add_subplot()
    assert figure.plot(ax=ax).ax_ is ax
    assert figure.figure_ is ax.get_figure()
    assert figure.ax_.get_xlabel()
    ElementTree.fromstring(figure._repr_svg_())


@pytest.mark.parametrize("display", DISPLAYS)
def test_a_figure_is_real_text_in_named_colours_and_the_same_every_time(display: type[figures.Display]) -> None:
    first, second = (figures.to_svg(drawn(display), "one", "A title", "What it shows") for _ in range(2))
    assert first == second
    root = ElementTree.fromstring(first)
    assert [child.tag for child in root[:2]] == ["title", "desc"]
    assert root.attrib["role"] == "img"
    assert len(root.findall(".//text")) > 4
    assert root.findall(".//style") == root.findall(".//metadata") == []
    assert not re.search(r'style="|xlink|ns\d:|DejaVu', first)
    used = {element.get(key) for element in root.iter() for key in ("fill", "stroke")} - {None, "none"}
    assert {color for color in used if color and not color.startswith("url(")} <= {*drawing.COLORS.values()}
    assert all(element.attrib["id"].startswith("one-") for element in root.iter() if "id" in element.attrib)


ITALIC = {"font-style": "italic", "font-weight": "700", "font-size": "11px"}


@pytest.mark.parametrize(
    ("style", "traits"),
    [
        ("font: italic 700 11px 'DejaVu Sans', sans-serif", ITALIC),
        ("font-style: italic; font-weight: 700; font-size: 11px; font-family: 'DejaVu Sans'", ITALIC),
        ("font: 700 11px 'DejaVu Sans'", {"font-weight": "700", "font-size": "11px"}),
        ("font: 9.5px 'DejaVu Sans'; text-anchor: end", {"font-size": "9.5px", "text-anchor": "end"}),
    ],
)
def test_a_font_is_the_same_however_it_is_declared(style: str, traits: dict[str, str]) -> None:
    """matplotlib before 3.10 declares a font at once, later versions declare it trait by trait."""
    text = ElementTree.Element("text", style=style)
    simplify(text, "one", {})
    assert text.attrib == traits


def test_drawing_leaves_the_settings_of_a_notebook_alone() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures.to_svg(figures.ForestDisplay.from_record(RECORDS["pass"]), "one")
    assert dict(matplotlib.rcParams) == before


def test_figures_need_the_numbers_they_draw() -> None:
    record = RECORDS["pass"].model_copy(update={"curve": None})
    with pytest.raises(ValueError, match="the record has no curve"):
        figures.ContractDisplay.from_record(record)
    with pytest.raises(ValueError, match="the record has no malicious rows"):
        figures.DetectionDisplay.from_record(RECORDS["pass"])


def extreme(name: str) -> Record:
    """Counts and thresholds at the ends of what a record can hold."""
    record = RECORDS["pass"]
    changes: dict[str, dict[str, Any]] = {
        "none": {"tally": tally(0, 200_000, threshold=None), "interval": (0.0, 1e-5)},
        "all": {"tally": tally(200_000, 200_000, threshold=0.0), "interval": (0.99, 1.0)},
        "rare": {"target": Decimal("1e-9"), "tolerance": (Decimal(0), Decimal("2e-9")), "score": Decimal("0.98")},
        "wide": {"tolerance": (Decimal(0), Decimal(1))},
    }
    findings = tuple(
        finding.model_copy(update={"rate": finding.rate.model_copy(update=changes[name])})
        for finding in record.findings
        if finding.rate is not None
    )
    return record.model_copy(update={"findings": findings})


@pytest.mark.each_run(2)
@pytest.mark.parametrize("name", ["none", "all", "rare", "wide"])
def test_extreme_records_are_drawn(name: str) -> None:
    from gate.report import html, markdown

    assert html.render(extreme(name)).count("<svg") == 4
    assert "●" in markdown.render(extreme(name))


def test_a_record_without_curve_or_targets_is_rendered() -> None:
    from gate.report import html, junit, markdown, terminal

    bare = RECORDS["pass"].model_copy(update={"curve": None, "findings": ()})
    for render in (html.render, markdown.render):
        assert "No false-positive rate was measured." in render(bare)
    assert "<svg" not in html.render(bare)
    assert terminal.render(bare).startswith("PASS")
    assert 'tests="0"' in junit.render(bare)
