"""Releases and their checks stand on one time line, in every format, and neither crowds the other out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from watched import START, check_day, day_of, days, document_of, make_release

from gate.history import History, collect
from gate.report import history as histories
from gate.report.timeline import HistoryDisplay, _distinct_labels, display, finding_of, latest

pytestmark = pytest.mark.usefixtures("few_points")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases and their checks, the last of which fails, on calibrated scores; v1 is checked after v2 came."""
    directory = tmp_path_factory.mktemp("timeline")
    document, rng = document_of(), np.random.default_rng(0)
    when = days(6)
    first = make_release(document, directory / "v1", "v1", START)
    second = make_release(document, directory / "v2", "v2", when[2], seed=1)
    for stored, day, rate, calibrated in (
        (first, when[0], 0.1, False),
        (first, when[3], 0.1, False),
        (second, when[4], 0.1, True),
        (second, when[5], 0.2, True),
    ):
        scores = day_of(rng, rate, stored.record.calibrator.anchors[0].threshold or 0.0, 4_000)
        check_day(document, stored, scores, day, calibrated).write(Path(stored.path) / "checks" / f"{day:%Y%m%d}")
    return directory


@pytest.fixture(scope="module")
def history(place: Path) -> History:
    return collect([str(place)])


def test_json_names_the_release_of_every_check(place: Path, history: History) -> None:
    """It finds the release by the digest that the check recorded, whatever the names and the times."""
    content = json.loads(histories.to_json(history))["releases"]
    assert [(entry["release"], entry["kind"], entry["calibrated"]) for entry in content] == [
        ("v1", "run", False),
        ("v1", "check", False),
        ("v2", "run", False),
        ("v1", "check", False),
        ("v2", "check", True),
        ("v2", "check", True),
    ]
    of = [entry["of"] for entry in content]
    assert of[0] is None is of[2]
    assert [entry["directory"] for entry in of if entry] == [str(place / name) for name in ("v1", "v1", "v2", "v2")]
    renamed = replace(history.releases[0], name="v2", created="2030-01-01T00:00:00Z")
    assert History((renamed, history.releases[1]), ()).released(history.releases[1]) is renamed
    alone = collect([str(place / "v1" / "checks")])
    assert [entry["of"] for entry in json.loads(histories.to_json(alone))["releases"]] == [None, None]
    assert "(check; its release was not read)" in histories.render(alone)


@pytest.mark.figures
def test_a_figure_ties_checks_to_their_release(history: History) -> None:
    drawn = display(history, history.checks[0])
    assert list(drawn.release) == [0, 0, 2, 0, 2, 2]
    assert drawn.outcome[-1] == "fail"
    raw = [release.readings[history.checks[0]].threshold for release in history.releases]
    assert drawn.threshold == raw == [raw[0], raw[0], raw[2], raw[0], raw[2], raw[2]]
    svg = drawn.to_svg()
    assert svg.count("<svg") == 1
    assert {">v1<", ">v2<", ">check<", ">release<"} <= {*re.findall(r">[^<>\n]+<", svg)}


def test_every_format_says_which_records_are_checks(history: History) -> None:
    text, md, html = histories.render(history, 100), histories.render_markdown(history), histories.render_html(history)
    assert text.startswith("Latest, v2 (check): FAIL. Flags 19.4 % of benign rows at the 10 % threshold; the policy")
    assert "2 releases and 4 checks from 2026-01-01 to 2026-01-07: 5 pass, 1 fail." in text
    assert text.count("pass (check)") == 3
    assert text.count("fail (check)") == 1
    assert md.count(" (check) |") == 4
    assert html.count(", check of no. 1, ") == 2
    assert html.count(", check of no. 3, ") == 2
    assert "<h2>Each release and check</h2>" in html


def test_calibrated_scores_show_the_raw_threshold_of_their_release(history: History) -> None:
    """Nothing is said of what a kept raw threshold would flag of calibrated scores."""
    readings = [release.readings[history.checks[0]] for release in history.releases]
    assert [reading.if_kept is None for reading in readings] == [True, False, False, False, True, True]
    assert readings[-1].fpr.rate is not None
    assert readings[-1].fpr.rate.tally.threshold == 0.5 != readings[-1].threshold


@settings(deadline=None, max_examples=examples(100))
@given(kinds=st.lists(st.sampled_from(["run", "check"]), max_size=60), most=st.integers(2, 40))
def test_neither_releases_nor_checks_crowd_the_others_out(history: History, kinds: list[str], most: int) -> None:
    """All places are used; each kind has at least half of them if it has so many, and always its latest records."""
    records = [replace(history.releases[0], kind=kind, created=str(i)) for i, kind in enumerate(kinds)]
    chosen = latest(records, most)
    assert len(chosen) == min(most, len(records))
    assert [record.created for record in chosen] == sorted((record.created for record in chosen), key=int)
    for kind in ("run", "check"):
        given_records, remaining = ([record for record in some if record.kind == kind] for some in (records, chosen))
        assert len(remaining) >= min(len(given_records), most // 2)
        assert remaining == (given_records[-len(remaining) :] if remaining else [])


def many(history: History, checks: int) -> History:
    """The first release, a year of checks of it, and the second release."""
    first, check, second = history.releases[0], history.releases[1], history.releases[2]
    return History((first, *(replace(check, created=f"x{i:04}") for i in range(checks)), second), ())


def test_a_year_of_checks_leaves_every_release_where_it_can_be_seen(history: History) -> None:
    year = many(history, 365)
    text = histories.render(year)
    assert "Shown are all 2 releases and the latest 18 of 365 checks; --format json has all." in text
    made = histories.lines(year, histories.columns(year), 20)
    assert [line.number for line in made if line.kind == "run"] == [1, 367]
    assert len(json.loads(histories.to_json(year))["releases"]) == 367
    assert "the latest 48 of 365 checks" in histories.render_html(year)
    drawn = display(year, year.checks[0])
    assert [place for place, of in enumerate(drawn.release) if of == place] == [0, 299]


@settings(deadline=None, max_examples=examples(60))
@given(belongs=st.lists(st.booleans(), min_size=1, max_size=200))
def test_places_follow_time_and_releases_stand_apart(belongs: list[bool]) -> None:
    """All checks together take no more room than the releases, or than four of them."""
    release = [i if is_release else -1 for i, is_release in enumerate(belongs)]
    n = len(release)
    bounds, tolerance = [(0.09, 0.11)] * n, [(0.05, 0.15)] * n
    numbers = ([0.1] * n, bounds, tolerance, ["pass"] * n, [0.5] * n, [None] * n)
    drawn = HistoryDisplay(0.1, ["v"] * n, *numbers, 0.5, release)
    xs = drawn.positions
    assert all(other > one for one, other in pairwise(xs))
    own = [x for x, of, i in zip(xs, release, range(n), strict=True) if of == i]
    assert all(other - one > 1 - 1e-9 for one, other in pairwise(own)), "but for rounding"
    runs = len(own)
    assert xs[-1] - xs[0] <= 2 * max(runs, 4) + 0.4 * (runs + 1)


def test_labels_of_thresholds_tell_them_apart() -> None:
    assert _distinct_labels([0.25, 0.5]) == ["0.25", "0.5"]
    assert _distinct_labels([3.85e-7, 3.9e-7]) == ["3.85e-07", "3.9e-07"]
    assert _distinct_labels([0.99991, 0.99992]) == ["0.99991", "0.99992"]
    assert _distinct_labels([]) == []


def test_the_title_of_a_figure_says_how_many_do_not_pass(place: Path) -> None:
    history = collect([str(place)])
    titles = [finding_of(history, column) for column in histories.columns(history)]
    assert [title for title in titles if " of 6 do" in title and "(2 releases and 4 checks)" in title] != []
