"""What a new interpreter loads: nothing slow before a command needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = ["numpy", "scipy", "sklearn", "pyarrow", "pydantic", "matplotlib", "rich", "jinja2"]


def test_the_package_itself_offers_the_api_and_loads_it_on_first_use() -> None:
    assert loaded_by("import gate") & {*SLOW} == set()
    assert {"scipy", "sklearn"} <= loaded_by("import gate; gate.fit")


def loaded_by(code: str, *args: str) -> set[str]:
    """The top-level modules in memory once an interpreter of its own has run the code."""
    report = "import sys, atexit\natexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))\n"
    result = subprocess.run(
        [sys.executable, "-c", report + code, *args], capture_output=True, text=True, check=True, timeout=60
    )
    return {name.split(".")[0] for name in result.stderr.split()}


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["demo", "--help"], ["--version"]], ids=" ".join)
def test_help_waits_for_no_slow_library(args: list[str]) -> None:
    loaded = loaded_by("from gate.cli import main\nmain()", *args)
    assert "click" in loaded
    assert loaded & {*SLOW} == set()


def test_judging_a_record_waits_for_nothing_that_reads_fits_or_draws() -> None:
    """What was measured is judged by numbers alone: no file is read, no calibrator fitted, nothing rendered."""
    loaded = loaded_by("import gate.record, gate.verdict")
    assert "pydantic" in loaded
    assert loaded & {"pyarrow", "sklearn", "joblib", "matplotlib", "jinja2", "rich", "click"} == set()


def test_planning_waits_for_nothing_that_reads_fits_or_draws() -> None:
    loaded = loaded_by("from gate.cli import main\nmain()", "plan")
    assert {"scipy", "rich"} <= loaded
    assert loaded & {"pyarrow", "sklearn", "joblib", "matplotlib"} == set()
