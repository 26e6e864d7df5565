"""What holds for every run: how much of the costly tests it has, and the flag that rewrites golden files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from drawing import examples
from hypothesis import settings

# Where GitHub runs the tests, the gates in them must not write into its summary, annotations and outputs.
for name in [name for name in os.environ if name.startswith("GITHUB_")]:
    del os.environ[name]

# A shell starts what it puts into the background deaf to Ctrl-C, and so would be every command that is stopped here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run every variant of a test, not only those of each run")
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


def pytest_configure(config: pytest.Config) -> None:
    """Before test files are imported, which say how many examples they draw."""
    if config.getoption("--long"):
        os.environ["GATE_LONG"] = "1"
    # In CI the same examples every time: a failure there is the change's; new examples are found at the desk.
    settings.register_profile("here", derandomize="CI" in os.environ, max_examples=examples(100))
    settings.load_profile("here")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests with costly variants, each run has so many as `each_run` says, spread evenly over the list."""
    if config.getoption("--long"):
        return
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
        items[:] = [item for item in items if item not in left]


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


@pytest.fixture(scope="module")
def in_one_process() -> Iterator[None]:
    """Read without a child, which costs more than the rest of a small file; `test_bytes` has the child's tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gate.scores.reading.isolated", lambda function, _most: nullcontext(function))
        yield
