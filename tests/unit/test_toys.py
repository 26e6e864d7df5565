"""A toy input format, output format and plotting position: each is one class or file and one line, and is everywhere.

The toy check is in `test_checks.py`, and in `tests/system/test_toy_check.py` as commands meet it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import several
from calls import call
from numpy.typing import ArrayLike
from repository import PACKAGE

import gate
from gate.calibration.positions import Position, fractional_rank, named
from gate.checks import parse_policy, policy_schema
from gate.contract import Floats
from gate.errors import GateError
from gate.planning import plan
from gate.policy import PLOTTING_POSITIONS, Columns
from gate.record import Record, read_record
from gate.record.system import SystemRecord
from gate.report import formats
from gate.report.formats import FORMATS, Format
from gate.rows import formats as inputs
from gate.rows.engine import Duck
from gate.rows.reading import read
from gate.rows.table import Column, File, Table
from gate.verification.release import verify
from gate.verification.result import Data
from gate.verification.system import verify_system

CREATED = datetime(2026, 11, 1, tzinfo=UTC)
POLICY = """\
version: 1
name: toy
targets: [{fpr: 10%, min_n: 1000, max_relative_error: 0.5}]
"""
SAMPLES = {name: np.random.default_rng(seed).beta(0.5, 8, 4000) for seed, name in enumerate(("fit", "holdout"))}


def written(place: Path, ending: str) -> dict[str, str]:
    """Both samples as files of this ending, each score in a line."""
    paths = {name: place / f"{name}{ending}" for name in SAMPLES}
    for name, path in paths.items():
        lines = [f"{score!r}\n" for score in SAMPLES[name].tolist()]
        path.write_text("".join((["score\n"] if ending == ".csv" else []) + lines))
    return {name: str(path) for name, path in paths.items()}


def release(place: Path, ending: str = ".csv", policy: str = POLICY) -> dict[str, str]:
    """The files of a release that was written to `place / "v1"`."""
    files = written(place, ending)
    document = parse_policy(policy, "policy.yaml")
    judged = gate.run(files["fit"], files["holdout"], release="v1", policy=document, created=CREATED)
    judged.write(place / "v1")
    return files


def state(place: Path, files: dict[str, str]) -> str:
    found = verify(place / "v1", Data(fit=(files["fit"],), holdout=(files["holdout"],)))
    return {one.name: one.state for one in found.answers}["data"] if found.state != "does not hold" else found.state


# --- an input format ----------------------------------------------------------------------------------------


def read_toy(engine: Duck, file: File, path: str, wanted: Sequence[str]) -> Table:
    """Lines of text, each a score."""
    table = engine.name("toy")
    engine.register(table, {"c0": np.loadtxt(path, ndmin=1)})
    rows = f"(SELECT row_number() OVER () - 1 AS nr, c0 FROM {table})"
    return Table(file, rows, tuple(Column(name, "c0", "float", "DOUBLE") for name in wanted[:1]))


@pytest.fixture
def toy_input(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = inputs.FileFormat((".toy",), read_toy, "write it again")
    monkeypatch.setattr(inputs, "FORMATS", (*inputs.FORMATS, toy))


@pytest.mark.usefixtures("toy_input")
def test_a_toy_input_format_is_read_recorded_and_verified(tmp_path: Path) -> None:
    files = release(tmp_path, ".toy")
    found = read([files["fit"]], Columns(), (0.0, 1.0))
    assert np.array_equal(found.ordered.at_rank(np.arange(4000, 0, -1)), np.sort(SAMPLES["fit"]))
    assert read_record(tmp_path / "v1").fit.sources[0].path == files["fit"]
    assert state(tmp_path, files) == "holds"
    (tmp_path / "fit.toy").write_text("0.5\n" * 4000)
    assert state(tmp_path, files) == "does not hold"


@pytest.mark.usefixtures("toy_input")
def test_a_toy_input_format_is_in_help_and_refusals(tmp_path: Path) -> None:
    assert ".npz, .toy; text" in " ".join(call("run", "--help").stdout.split())
    (tmp_path / "scores.doc").write_text("")
    with pytest.raises(GateError, match=r"must end in one of .*, \.npz, \.toy \(or"):
        read([str(tmp_path / "scores.doc")], Columns(), (0.0, 1.0))
    (tmp_path / "part").mkdir()
    written(tmp_path / "part", ".toy")
    assert len(read([str(tmp_path / "part")], Columns(), (0.0, 1.0))) == 8000
    (tmp_path / "bad.toy").write_text("no number\n")
    with pytest.raises(GateError, match=r"must be a readable \.toy file, got: .*; write it again$"):
        read([str(tmp_path / "bad.toy")], Columns(), (0.0, 1.0))


def test_what_is_no_format_is_in_no_help() -> None:
    assert ".toy" not in call("run", "--help").stdout


# --- an output format ---------------------------------------------------------------------------------------


class ToyReport:
    """The verdict as a word."""

    @staticmethod
    def render(record: Record | SystemRecord) -> str:
        """As the module of a format has it; here for one detector and for several."""
        return f"{record.release} {record.outcome}\n"


TOY = Format(
    "toy",
    record="toys:render",
    system="toys:render",
    comparison="toys:render",
    history="toys:render",
    file="report.toy",
    endings=(".toy",),
)


@pytest.fixture
def toy_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toys", ToyReport)
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS, TOY))


@pytest.mark.usefixtures("toy_output")
def test_a_toy_output_format_is_written_sealed_and_verified(tmp_path: Path) -> None:
    files = release(tmp_path)
    assert (tmp_path / "v1" / "report.toy").read_text() == "v1 pass\n"
    assert "report.toy" in json.loads((tmp_path / "v1" / "manifest.json").read_text())["sha256"]
    assert state(tmp_path, files) == "holds"
    (tmp_path / "v1" / "report.toy").write_text("v1 fail\n")
    found = verify(tmp_path / "v1")
    assert {one.name for one in found.answers if one.state == "does not hold"} == {"manifest", "reports"}


@pytest.mark.usefixtures("toy_output")
def test_a_toy_output_format_is_in_help_and_written_on_request(tmp_path: Path) -> None:
    release(tmp_path)
    assert "[text|short|md|html|junit|json|toy]" in call("report", "--help").stdout
    assert call("report", str(tmp_path / "v1"), "--format", "toy").stdout == "v1 pass\n"
    assert call("report", str(tmp_path / "v1"), "-o", str(tmp_path / "said.toy")).code == 0
    assert (tmp_path / "said.toy").read_text() == "v1 pass\n"
    assert all("json|toy]" in call(name, "--help").stdout for name in ("report", "compare", "history"))


@pytest.mark.usefixtures("toy_output")
def test_a_toy_output_format_is_of_several_detectors_too(tmp_path: Path) -> None:
    """In the release of all and of each, verified, written on request, and given by name in Python."""
    names = ("a", "b")
    fit, holdout = (several.simulate(4_000, names, seed) for seed in (1, 2))
    document = parse_policy(several.policy(names), "policy.yaml")
    judged = gate.run_system(fit, holdout, release="v1", policy=document, created=CREATED)
    said = f"v1 {judged.outcome}\n"
    assert judged.files["report.toy"] == said.encode()
    assert {judged.render("toy"), judged.files["report.toy"].decode()} == {said}
    one = judged.releases["a"]
    assert one.render("toy").encode() == judged.files["detectors/a/report.toy"]
    judged.write(tmp_path / "v1")
    assert verify_system(tmp_path / "v1").state == "holds"
    assert call("report", str(tmp_path / "v1"), "--format", "toy").stdout == said
    (tmp_path / "v1" / "report.toy").write_text("v1 fail\n")
    found = verify_system(tmp_path / "v1")
    assert {one.name for one in found.answers if one.state == "does not hold"} == {"manifest", "reports"}


def test_the_readme_names_every_output_format() -> None:
    text = (PACKAGE / "README.md").read_text()
    assert f"--format {'|'.join(formats.offered('record'))} " in text
    assert all(f"| `{file}`" in text or f", `{file}`" in text for file in formats.written_files().values())


def test_a_release_with_a_report_of_no_format_does_not_hold(
    tmp_path: Path, toy_output: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(tmp_path)
    monkeypatch.undo()
    assert {one.name for one in verify(tmp_path / "v1").answers if one.state == "does not hold"} == {"kind"}
    assert "'toy' is not one of" in call("report", str(tmp_path / "v1"), "--format", "toy").stderr
    judged = gate.run(SAMPLES["fit"], SAMPLES["holdout"], release="v1", policy=parse_policy(POLICY, "policy.yaml"))
    with pytest.raises(GateError, match=r"^format: must be one of text, short, md, .*, json, got 'toy'$"):
        judged.render("toy")


# --- a plotting position ------------------------------------------------------------------------------------


class Hazen(Position):
    """(k - 1/2) / n."""

    promise: ClassVar[str] = "the true rate is near its target"

    def label(self, rank: ArrayLike, n: int) -> Floats:
        return (np.asarray(rank, dtype=np.float64) - 0.5) / n

    def rank(self, fpr: Fraction, n: int) -> Fraction:
        return fpr * n + Fraction(1, 2)


@pytest.fixture
def toy_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLOTTING_POSITIONS, "hazen", f"{__name__}:Hazen")


TOY_POLICY = f"{POLICY}calibration: {{plotting_position: hazen}}\n"


@pytest.mark.usefixtures("toy_position")
def test_a_toy_position_is_fitted_recorded_reported_and_verified(tmp_path: Path) -> None:
    files = release(tmp_path, policy=TOY_POLICY)
    assert read_record(tmp_path / "v1").calibrator.plotting_position == "hazen"
    assert read_record(tmp_path / "v1").calibrator.lowest_label == 0.5 / 4000
    assert json.loads((tmp_path / "v1" / "calibrator.json").read_text())["plotting_position"] == "hazen"
    assert all("hazen labels" in (tmp_path / "v1" / name).read_text() for name in ("report.html", "report.md"))
    assert state(tmp_path, files) == "holds"


@pytest.mark.usefixtures("toy_position")
def test_a_toy_position_is_in_the_schema_planned_with_and_named_in_refusals() -> None:
    assert '"conformal", "hazen"' in json.dumps(policy_schema())
    assert fractional_rank(named("hazen"), Fraction(1, 10), 100) == Fraction(21, 2)
    assert plan(parse_policy(TOY_POLICY, "policy.yaml").policy).targets[0].holdout_needed
    with pytest.raises(GateError, match=r"must be one of filliben, mean, median, conformal, hazen, or"):
        parse_policy(TOY_POLICY.replace("hazen", "unknown"), "policy.yaml")


def test_a_position_that_is_none_is_refused() -> None:
    assert "hazen" not in json.dumps(policy_schema())
    with pytest.raises(GateError, match="must be one of filliben, mean, median, conformal, or"):
        parse_policy(TOY_POLICY, "policy.yaml")
