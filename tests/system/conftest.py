"""What several files share: one browser; and releases without figures, which take a third of a command's time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import commands
import pytest
from pages import stand_in

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium, or another Chromium on the PATH."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on the PATH")
    with sync_api.sync_playwright() as playwright:
        options = [*OPTIONS, "--disable-component-update", "--disable-sync"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module", autouse=True)
def quick_figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """In files without the mark `figures`, draw none here and in commands that are forked; a new process draws them."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("figures") is None:
            patch.setattr("gate.report.figures.to_svg", stand_in)
            patch.setattr(commands, "drawn", False)
        yield
