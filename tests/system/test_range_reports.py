"""What is shown of ranges: the first picture of the report, the sentence of a verdict, and the plan."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from drawing import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import gate
from gate.checks import default_policy, load_policy, parse_policy
from gate.checks.check import JudgedRange
from gate.checks.range_words import describe_nearest, span_text
from gate.checks.ranges import Ranges
from gate.contract import Floats
from gate.errors import GateError
from gate.planning import Plan, plan
from gate.policy import Document
from gate.record import Record, parse_record
from gate.report import corridor, html, markdown, terminal
from gate.report import plan as plans
from gate.report.figures import to_svg
from gate.report.rows import plain_reason
from gate.starter import init
from gate.words import percent

pytestmark = pytest.mark.usefixtures("few_points")

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ROOT = Path(__file__).parents[2]


def document(error: str = "0.5", required: bool = True) -> Document:
    text = "version: 1\nname: ranges\ntargets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"
    text += (
        f"ranges: [{{from: 10%, to: 1%, min_n: 1, max_relative_error: {error}, required: {str(required).lower()}}}]\n"
    )
    return parse_policy(text, "policy.yaml")


def judged(fit: Floats, holdout: Floats, doc: Document) -> Record:
    return gate.run(fit, holdout, release="v1", policy=doc, created=NOON).record


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    """Records with one range of each kind: proven, open in part, disproved, and with rows that share a score."""
    rng = np.random.default_rng(2)

    def tied(n: int) -> Floats:
        raw = rng.random(n)
        return np.where((raw > 0.94) & (raw < 0.99), 0.97, raw)

    return {
        "proven": judged(rng.random(60_000), rng.random(60_000), document()),
        "open": judged(rng.random(30_000), rng.random(4_000), document("0.25")),
        "disproved": judged(rng.random(60_000), rng.random(60_000) ** 0.5, document()),
        "tied": judged(tied(60_000), tied(60_000), document()),
    }


TITLES = {
    "proven": "Proven at every threshold from 10 to 1 %",
    "open": "Proven from 10 to ",
    "disproved": "Disproved at ",
    "tied": "Rows of one score make the rate jump at ",
}


@pytest.mark.figures
@pytest.mark.each_run(1)
@pytest.mark.parametrize("kind", TITLES)
def test_the_first_picture_is_the_range_and_says_what_it_shows(records: dict[str, Record], kind: str) -> None:
    first, second, *others = html.draw(records[kind])
    assert (first.name, second.name) == ("range", "range-error")
    assert first.title.startswith(TITLES[kind])
    assert [part.name for part in others] == ["forest", "contract", "mapping"]
    root = ElementTree.fromstring(first.svg)
    texts = {"".join(node.itertext()).strip() for node in root.iter("text")}
    assert {"tolerated", "held out", "promised", "calibrated score", "false-positive rate"} <= texts
    assert ("band, proven" in texts) == (kind != "disproved")
    assert ("band, open" in texts) == (kind != "proven")
    assert ("disproved" in texts) == (kind in ("disproved", "tied"))
    assert ("rows of one score" in texts) == (kind == "tied")


def test_every_report_names_the_range_and_its_sentence(records: dict[str, Record]) -> None:
    for record in records.values():
        message = next(f.message for f in record.findings if f.check.to is not None)
        page = html.render(record)
        assert "The whole range" in page
        assert message.split("; ")[1].split(" %")[0] in re.sub(r"\s+", " ", page)
        assert "fpr@10%..1%" in markdown.render(record)
        named = "and from 10 to 1 %" if record.outcome == "pass" else "fpr@10%..1%"
        assert named in terminal.render(record)


def test_the_reason_of_a_verdict_is_short(records: dict[str, Record]) -> None:
    assert plain_reason(records["tied"]).startswith("Rows of one score make the rate jump")
    assert len(plain_reason(records["tied"])) < 200


def test_a_record_without_a_range_keeps_its_figures() -> None:
    rng = np.random.default_rng(2)
    text = "version: 1\nname: x\ntargets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"
    record = judged(rng.random(3_000), rng.random(3_000), parse_policy(text, "x.yaml"))
    assert [part.name for part in html.draw(record)] == ["forest", "contract", "error", "mapping"]
    assert record.of(Ranges) is None


def test_counts_that_are_not_those_of_the_grid_are_not_drawn(records: dict[str, Record]) -> None:
    content = json.loads(records["proven"].to_json())
    content["checks"]["ranges"]["ranges"][0]["flagged"] = [5, 4, 3]
    forged = parse_record(json.dumps(content).encode(), "verdict.json")
    assert corridor.range_findings(forged) == []
    assert html.render(forged)


IMPOSSIBLE = (0, 1, -1, 5, 0.5, 1e-9, 1e-200, 1e300, 10**14, None, (), (0.1,), ((0.1, 0.2),))
OF_COUNTS = ("start", "stop", "reached", "flagged", "worth")
OF_FINDING = ("start", "stop", "points", "rows", "min_n", "tolerance", "nearest", "proven", "refuted", "impossible")
CHANGES = st.tuples(st.just("counts"), st.sampled_from(OF_COUNTS), st.sampled_from(IMPOSSIBLE))
CHANGES |= st.tuples(st.just("finding"), st.sampled_from(OF_FINDING), st.sampled_from(IMPOSSIBLE))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(TITLES)), st.lists(CHANGES, min_size=1, max_size=3))
@example("disproved", [("counts", "worth", ())])
def test_no_record_of_a_range_breaks_a_page(
    records: dict[str, Record], kind: str, changes: list[tuple[str, str, object]]
) -> None:
    """Whatever numbers a record has that nobody verified, it is refused in reading or rendered."""
    content = json.loads(records[kind].to_json())
    found = next(f for f in content["findings"] if f["range"])["range"]
    parts = {"counts": content["checks"]["ranges"]["ranges"][0], "finding": found}
    for part, key, value in changes:
        parts[part][key] = value
    try:
        record = parse_record(json.dumps(content).encode(), "verdict.json")
    except GateError:
        return
    assert html.draw(record)
    assert markdown.render(record)
    assert terminal.render(record)


def test_the_band_is_wider_than_the_interval_at_one_point(records: dict[str, Record]) -> None:
    """The band that is drawn holds at every threshold at once, and is never the pointwise one."""
    record = records["proven"]
    display = corridor.CorridorDisplay.from_record(record)
    target = next(f for f in record.findings if f.check.to is None and f.check.kind == "fpr")
    assert target.rate is not None
    i = display.expected_fpr.index(0.01)
    (low, high), (band_low, band_high) = target.rate.interval, (display.band[0][i], display.band[1][i])
    assert 1.3 < (band_high - band_low) / (high - low) < 1.8
    assert to_svg(display, "range") == to_svg(corridor.CorridorDisplay.from_record(record), "range")


# --- words --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(200))
@given(st.decimals("1e-9", "1", places=12).filter(lambda rate: rate > 0), st.integers(1, 10**6))
def test_a_stretch_is_never_said_to_be_longer_than_it_is(start: object, scale: int) -> None:
    from decimal import Decimal

    first = Decimal(str(start))
    last = first / (1 + Decimal(scale) / 1000)
    shown = [Decimal(part.removesuffix(" %")) / 100 for part in span_text(first, last).split(" to ")]
    assert shown[0] <= first
    assert shown[1] >= last


@settings(max_examples=examples(200))
@given(st.floats(1e-6, 30), st.floats(1e-3, 3))
def test_a_bound_outside_is_never_printed_inside(error: float, tolerance: float) -> None:
    """The bound is rounded outwards: what is printed of an open range does not look proven."""
    left = 1 - error / tolerance
    near = {"fpr": 0.01, "score": 0.3, "side": "above", "flagged": 1, "bound": 0.01, "error": error, "left": left}
    numbers = JudgedRange.model_validate(
        {"start": 0.1, "stop": 0.01, "points": 9, "rows": 10, "min_n": 1, "tolerance": (tolerance, 1), "nearest": near}
    )
    (said,) = describe_nearest(numbers)
    found = re.search(r"bound is ([\d.,]+) % above what is promised \(([\d.]+) % tolerated", said)
    assert found is not None
    if left < -1e-9:
        assert float(found[1].replace(",", "")) >= float(found[2]) * (1 - 1e-9)
        assert "leaves the tolerance" in said
    assert percent(0.00104, 3) == "0.104 %"


# --- the plan -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned() -> tuple[Document, Plan]:
    text = "version: 1\nname: looks\ninterval: sequential\n"
    text += "targets: [{fpr: 1%, min_n: 1000, max_relative_error: 0.5}]\n"
    text += "ranges: [{from: 10%, to: 1%, min_n: 2000, max_relative_error: 0.5}]\n"
    doc = parse_policy(text, "p.yaml")
    return doc, plan(doc.policy)


def test_the_plan_shows_ranges_and_looks_with_their_errors(planned: tuple[Document, Plan]) -> None:
    doc, found = planned
    text = " ".join(plans.render(found, doc.policy).split())
    assert "Ranges: rows needed so that a sound release passes at every threshold 95 % of the time" in text
    assert "10 to 1 % -50 % to +50 %" in text
    assert "±" in text
    assert "off by 1+2r in one decade only" in text
    assert "Looking as often as you like" in text
    assert "fpr@10%..1%: " in text, "2,000 rows are too few, and the plan says so"


def test_the_json_of_a_plan_has_what_the_table_shows(planned: tuple[Document, Plan]) -> None:
    doc, found = planned
    content = json.loads(plans.to_json(found, doc.policy))
    (stretch,), (looks,) = content["ranges"], content["looks"]
    assert stretch["check"] == "fpr@10%..1%"
    assert stretch["sound"]["passes"]["value"] == found.ranges[0].passes.value
    assert stretch["equal_needed"]["value"] > stretch["lowest_rate_needed"]
    assert [rows["multiple"] for rows in looks["rows"]] == [1.0, 1.3, 0.7]
    assert looks["rows"][0]["median"] < looks["one_look"] < looks["rows"][1]["median"]


@pytest.mark.each_run(1)
@pytest.mark.parametrize(("name", "required", "stop"), [("default", False, 0.001), ("strict", True, 0.0001)])
def test_the_policies_ask_for_the_rows_that_the_plan_gives(name: str, required: bool, stop: float) -> None:
    (judged,) = load_policy(ROOT / "policies" / f"{name}.yaml").policy.ranges
    assert (judged.required, float(judged.start), float(judged.stop)) == (required, 0.1, stop)
    (found,) = plan(load_policy(ROOT / "policies" / f"{name}.yaml").policy.model_copy(update={"targets": ()})).ranges
    assert found.equal_needed is not None
    assert abs(judged.min_n - found.equal_needed.value) <= 3 * found.equal_needed.error
    assert abs(found.passes.value - 0.95) <= 3 * found.passes.error


def test_the_papers_claim_is_an_advisory_range() -> None:
    (judged,) = load_policy(ROOT / "policies" / "paper.yaml").policy.ranges
    assert (judged.required, str(judged.max_relative_error.above)) == (False, "0.023")


def test_a_policy_of_ones_own_has_the_range_that_its_rows_decide() -> None:
    assert init.policy().policy.ranges == default_policy().policy.ranges
    (few,) = init.policy("10%,1%,0.1%", None, 60_000).policy.ranges
    assert (float(few.start), float(few.stop), few.required) == (0.1, 0.01, False)
    assert few.min_n <= 60_000
    assert init.policy("1%", None, 60_000).policy.ranges == ()
