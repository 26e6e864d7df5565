"""The history shows what the records say together: in order, once each, and never without what could not be read."""

from __future__ import annotations

import json
import os
import re
import subprocess
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import commands
import numpy as np
import pytest
from histories import RENDERERS, history_of, write
from pages import Elements
from records import RECORDS, releases

from gate.history import History, Reading, collect
from gate.names import CheckName
from gate.report import history as report
from gate.starter.demo import retrain

pytestmark = pytest.mark.figures
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """The releases of records.py and one that cannot be read; no name holds a temporary directory."""
    monkeypatch.chdir(tmp_path)
    history_of(Path("releases"), releases())
    write(Path("releases", "broken"), RECORDS["pass"]).joinpath("verdict.json").write_text('{"schema_version": 2}')
    return collect(["releases"])


TENTH = CheckName("fpr", Decimal("0.001"))


def observed(reading: Reading) -> float:
    assert reading.fpr.rate is not None
    return reading.fpr.rate.observed


def names(history: History) -> list[str]:
    return [release.name for release in history.releases]


# --- which releases there are -------------------------------------------------------------------------------


def test_records_of_older_versions_are_read(tmp_path: Path) -> None:
    """The record lacks what a later version may have added: it has no split, curve or warnings, and few checks."""
    content = RECORDS["pass"].model_dump(mode="json")
    for key in ("split", "curve", "warnings", "not_asked", "malicious", "waivers", "judged_on"):
        del content[key]
    content["checks"] = {"fpr": content["checks"]["fpr"]}
    for finding in content["findings"]:
        for key in ("predicted", "drift_p_value", "plain_interval"):
            del finding["rate"][key]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "verdict.json").write_text(json.dumps(content))
    history = collect([str(tmp_path)])
    assert [release.kind for release in history.releases] == ["run", "run"]
    assert all(reading.if_kept is None for release in history.releases for reading in release.readings.values())
    for render in RENDERERS.values():
        assert "0.25" in render(history)


# --- reports ------------------------------------------------------------------------------------------------


def test_json_has_every_number_of_the_records(whole: History) -> None:
    document = json.loads(report.to_json(whole))
    assert [entry["release"] for entry in document["releases"]] == names(whole)
    assert [entry["kind"] for entry in document["releases"]] == ["run", "run", "run", "check", "run"]
    assert document["unread"][0]["directory"] == str(Path("releases", "broken"))
    for entry, record in zip(document["releases"], releases(), strict=True):
        assert entry["outcome"] == record.outcome
        fprs = [f.model_dump(mode="json") for f in record.findings if f.check.kind == "fpr"]
        assert [{key: target[key] for key in fprs[0]} for target in entry["targets"]] == fprs
        tprs = [f.rate.tally.flagged for f in record.findings if str(f.check) == "tpr@0.1%" and f.rate]
        assert [target["tpr"]["tally"]["flagged"] for target in entry["targets"] if target["tpr"]] == tprs
    assert [entry["holdout_use"]["ledger"] for entry in document["releases"]] == [None, 3, None, None, None]


# --- the command --------------------------------------------------------------------------------------------


def run(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "SOURCE_DATE_EPOCH")}
    return commands.gate(*args, cwd=cwd, env=environment)


@pytest.mark.parametrize(
    ("args", "start"),
    [
        ([], "Latest, v2.4.0: PASS. Proven at all 3 required targets; "),
        (["--format", "md"], "# The contract over 2 releases"),
        (["--json"], '{\n  "schema_version": 1,'),
        (["-o", "page.html"], "<!DOCTYPE html>"),
        (["-o", "page.md"], "# The contract"),
        (["-o", "page.html", "--format", "md"], "# The contract"),
        (["-o", "page"], "Latest, v2.4.0: PASS."),
    ],
    ids=" ".join,
)
def test_the_format_is_the_one_asked_for_or_that_of_the_file(args: list[str], start: str, tmp_path: Path) -> None:
    for name in ("v1", "v2"):
        write(tmp_path / name, RECORDS["pass"])
    result = run("history", "v1", "v2", *args, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    text = (tmp_path / args[1]).read_text(encoding="utf-8") if "-o" in args else result.stdout
    assert text.startswith(start)
    assert "-o" not in args or result.stdout == ""


def test_one_broken_release_costs_the_exit_code_and_not_the_page(tmp_path: Path) -> None:
    write(tmp_path / "good", RECORDS["fail"])
    write(tmp_path / "bad", RECORDS["pass"]).joinpath("verdict.json").write_text("")
    result = run("history", "good", "bad", "-o", "history.html", cwd=tmp_path)
    assert result.returncode == 2
    assert re.fullmatch(r"gate: bad/verdict\.json: must be JSON, got an error: .*\n", result.stderr)
    page = Elements((tmp_path / "history.html").read_text(encoding="utf-8")).text
    assert "bad/verdict.json: must be JSON" in page
    assert "Latest that could be read, v2.4.0: FAIL" in page


def test_without_any_record_there_is_no_page(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run("history", "empty", "-o", "history.html", cwd=tmp_path)
    assert result.returncode == 2
    assert re.fullmatch(r"gate: empty: must be a release directory, .*\n", result.stderr), "one error is one line"
    result = run("history", "empty", "nowhere", "-o", "history.html", cwd=tmp_path)
    assert result.returncode == 2
    assert [line.split(": ")[1] for line in result.stderr.splitlines()[:-1]] == ["empty", "nowhere"]
    assert result.stderr.splitlines()[-1] == "gate: no record could be read, so there is no history"
    assert not (tmp_path / "history.html").exists()


def test_two_formats_at_once_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "v1", RECORDS["pass"])
    result = run("history", "v1", "--json", "--format", "md", cwd=tmp_path)
    assert result.returncode == 2
    assert "give either --json or --format md" in result.stderr


# --- the demo of retrainings --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    place = tmp_path_factory.mktemp("demo")
    return place / "gate-demo", run("demo", "--releases", "6", cwd=place)


def test_six_retrainings_move_the_thresholds_and_keep_the_contract(
    demo: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    directory, result = demo
    assert result.returncode == 0
    history = collect([str(directory / "releases")])
    assert names(history) == [f"v{i}" for i in range(1, 7)]
    assert {release.outcome for release in history.releases} == {"pass"}
    assert report.render(history) == result.stdout
    assert report.render_html(history) == (directory / "history.html").read_text(encoding="utf-8")
    rates, thresholds, at_first = [], [], []
    for release in history.releases:
        reading = release.readings[TENTH]
        rates.append(observed(reading))
        thresholds.append(reading.threshold or 0.0)
        at_first += [reading.if_kept.most / reading.if_kept.benign] if reading.if_kept else []
    assert max(rates) / min(rates) < 1.5
    assert max(thresholds) / min(thresholds) > 2
    assert max(at_first) / min(at_first) > 20


def test_what_a_kept_threshold_would_flag_is_what_it_does_flag(
    demo: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """The bracket read from the record's curve holds the count on the scores themselves."""
    directory, _ = demo
    samples = {made.name: made.holdout for made in retrain(6)}
    history, checked = collect([str(directory / "releases")]), 0
    for release in history.releases:
        for reading in release.readings.values():
            if reading.if_kept is not None:
                exact = np.count_nonzero(samples[release.name] >= reading.if_kept.threshold)
                assert reading.if_kept.least <= exact <= reading.if_kept.most
                assert reading.if_kept.most <= 1.3 * reading.if_kept.least + 10
                checked += 1
    assert checked == 20


def marks(svg: str) -> tuple[list[str], list[tuple[float, float]]]:
    """Return the words of a figure and the places of its markers."""
    root = ElementTree.fromstring(svg)
    words = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith(("}text", "}desc"))]
    uses = [element.attrib for element in root.iter() if element.tag.endswith("}use")]
    return words, [(float(use["x"]), float(use["y"])) for use in uses if "x" in use]


def test_the_figure_of_the_readme_is_the_one_that_the_demo_draws(
    demo: tuple[Path, subprocess.CompletedProcess[str]], request: pytest.FixtureRequest
) -> None:
    """Words and marks are the same; matplotlib decides how lines are written, and that may change."""
    drawn = (demo[0] / "history.svg").read_text(encoding="utf-8")
    path = ROOT / ".github" / "why-calibrate.svg"
    if request.config.getoption("--update-golden"):
        path.write_text(drawn, encoding="utf-8")
    (words, places), (words_drawn, places_drawn) = marks(path.read_text(encoding="utf-8")), marks(drawn)
    assert words == words_drawn
    assert len(places) >= 18
    assert np.allclose(places, places_drawn, atol=0.5)
    assert not re.search(r"https?://(?!www\.w3\.org/)|@import|url\((?!#)", drawn)


def test_the_readme_says_what_the_figure_shows(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    readings = [r.readings[TENTH] for r in collect([str(demo[0] / "releases")]).releases]
    at_first = [reading.if_kept for reading in readings if reading.if_kept]
    rates = [100 * observed(reading) for reading in readings]
    low, high = min(k.least / k.benign for k in at_first), max(k.most / k.benign for k in at_first)
    section = README.partition("\n## How it compares\n")[2].partition("\n## ")[0]
    said = re.search(r"between ([\d.]+) % and ([\d.]+) %.*?between ([\d.]+) % and ([\d.]+) %", section, re.DOTALL)
    assert said
    numbers = [float(number) for number in said.groups()]
    assert numbers == pytest.approx([min(rates), max(rates), 100 * low, 100 * high], rel=0.01)
    assert "](.github/why-calibrate.svg)" in section


def test_a_demo_is_not_overwritten_unasked(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    before = (demo[0] / "history.html").stat().st_mtime_ns
    result = run("demo", "--releases", "2", cwd=demo[0].parent)
    assert result.returncode == 2
    assert "must not exist yet" in result.stderr
    assert (demo[0] / "history.html").stat().st_mtime_ns == before
