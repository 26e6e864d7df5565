"""What holds for every run: how much of the costly tests it has, which are measured, and golden files."""

from __future__ import annotations

import os
import pkgutil
import signal
from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import commands
import pytest
from coverage import Coverage
from drawing import examples
from hypothesis import settings

# Each worker keeps to its own core: threads of OpenBLAS that wait for one another would take that of the next.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Where GitHub runs the tests, the gates in them must not write into its summary, annotations and outputs.
for name in [name for name in os.environ if name.startswith("GITHUB_")]:
    del os.environ[name]

# A shell makes background jobs ignore Ctrl-C, and every command that a test stops would inherit this.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The files that take longest, the longest first.
LONGEST = {
    f"test_{name}": place
    for place, name in enumerate(
        (
            *("detectors", "fuzz", "browser", "larger", "determinism", "bytes", "figures", "cli", "faults", "paper"),
            *("readme", "beside", "drawn_runs", "action", "engines", "quickstart", "repetition", "init_scores"),
            *("system_reports", "init", "api", "github", "stored", "streams", "peers", "served", "exports", "use"),
            *("verification", "reports", "planning", "history", "range_check", "overlap", "clusters", "remedies"),
        )
    )
}
GOLDEN = Path(__file__).parent / "golden"
# The files of tests/unit that must reach every branch of the judgement by themselves (pytest --cov), all of them quick.
MEASURED = {
    "test_atoms",
    "test_binomial",
    "test_checks",
    "test_comparison",
    "test_detection",
    "test_drift",
    "test_duplicates",
    "test_evenness",
    "test_edges",
    "test_exchangeability",
    "test_measured",
    "test_overlap",
    "test_proportions",
    "test_range_reasons",
    "test_readings",
    "test_reasons",
    "test_refused_parts",
    "test_reuse",
    "test_samples",
    "test_segments",
    "test_served",
    "test_together",
    "test_unread",
    "test_unscored",
    "test_verdict",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run every variant of a test, not only those of each run")
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


def pytest_configure(config: pytest.Config) -> None:
    """Configure before workers start and before test files, which say how many examples they draw, are imported."""
    if not hasattr(config, "workerinput"):
        commands.share()
    if config.getoption("--long"):
        os.environ["GATE_LONG"] = "1"
    # In CI the same examples every time: a failure there is the change's; new examples are found at the desk.
    settings.register_profile("here", derandomize="CI" in os.environ, max_examples=examples(100))
    settings.load_profile("here")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Measured files run first, then other unit tests; the longest of each first, so that none runs on alone."""
    _leave_unmeasured(items)
    if not config.getoption("--long"):
        choose(config, items)
    items.sort(key=_place)


def _place(item: pytest.Item) -> tuple[bool, bool, int]:
    name = item.path.stem
    return name not in MEASURED, item.path.parent.name != "unit", LONGEST.get(name, len(LONGEST))


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select, of tests with costly variants, as many as `each_run` says, spread evenly over the list."""
    variants: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("each_run"):
            variants.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left = []
    for found in variants.values():
        mark = found[0].get_closest_marker("each_run")
        number = min(mark.args[0], len(found)) if mark else 0
        chosen = {round((i + 0.5) * len(found) / number - 0.5) for i in range(number)}
        left += [item for place, item in enumerate(found) if place not in chosen]
    if left:
        config.hook.pytest_deselected(items=left)
        gone = {id(item) for item in left}
        items[:] = [item for item in items if id(item) not in gone]


def _leave_unmeasured(items: list[pytest.Item]) -> None:
    """Only quick tests are measured, and none of drawn examples, which may reach a branch by chance."""
    for item in items:
        drawn = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if item.path.stem in MEASURED and (drawn or item.get_closest_marker("each_run")):
            item.add_marker("no_cover")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Stop measuring after the measured files, which come first; without it the other files are twice as quick."""
    measuring = Coverage.current()
    if measuring is not None and item.path.stem not in MEASURED:
        measuring.stop()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting is not measured, which would take half as long again: what it imports of the judgement is, before."""
    measuring = Coverage.current()
    if measuring is None:
        return (yield)
    for package in map(import_module, ("gate.checks", "gate.statistics")):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    import_module("gate.verdict")
    measuring.stop()
    found = yield
    measuring.start()
    return found


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file under tests/golden, or write the file where --update-golden is given."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        assert path.exists(), f"{name} is missing; write it with --update-golden"
        assert text == path.read_bytes().decode(), f"{name} differs; look at it and, if right, use --update-golden"

    return compare


@pytest.fixture(scope="module", autouse=True)
def quick_figures(request: pytest.FixtureRequest) -> Iterator[Any]:
    """In files without the mark `figures`, draw none here and in commands that are forked; a new process draws them."""
    figures = import_module("gate.report.figures")  # not earlier: what it imports must be measured
    to_svg = figures.to_svg
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("figures") is None:
            patch.setattr(figures, "to_svg", import_module("pages").stand_in)
            patch.setattr(commands, "drawn", False)
        yield to_svg


@pytest.fixture(autouse=True)
def whole_figures(request: pytest.FixtureRequest, quick_figures: Any) -> Iterator[None]:
    """Draw figures in a test with that mark."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("figures") is not None:
            patch.setattr("gate.report.figures.to_svg", quick_figures)
            patch.setattr(commands, "drawn", True)
        yield


@pytest.fixture(scope="module")
def few_points(request: pytest.FixtureRequest) -> Iterator[None]:
    """Count few points of a release's curve if no test looks at figures.

    A finding's advice on a range is simulated with a tenth of the draws; `test_range_plans` tests its precision.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("figures") is None:
            patch.setattr("gate.checks.curve.STEPS", 10)
        patch.setattr("gate.planning.range_advice.FINE_DRAWS", 160)
        yield
