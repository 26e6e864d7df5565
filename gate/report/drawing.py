"""matplotlib, loaded so that no file of the working directory, of the user or of the environment has a say in it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any


def matplotlib() -> Any:
    """The library with what the figures need of it; the only place that imports it."""
    if "matplotlib" not in sys.modules:
        _load()
    import matplotlib as loaded
    import matplotlib.figure
    import matplotlib.patches

    return loaded


def _load() -> None:
    """Import it while it finds no `matplotlibrc` but its own: it would take one from the working directory first."""
    spec = importlib.util.find_spec("matplotlib")
    assert spec is not None
    own = str(Path(spec.origin or "").parent / "mpl-data" / "matplotlibrc")
    exists, named = os.path.exists, os.environ.pop("MATPLOTLIBRC", None)

    def exists_for_it(path: Any) -> bool:
        return exists(path) and (os.path.basename(os.fspath(path)) != "matplotlibrc" or path == own)

    os.path.exists = exists_for_it
    try:
        importlib.import_module("matplotlib")
    finally:
        os.path.exists = exists
        if named is not None:
            os.environ["MATPLOTLIBRC"] = named


def defaults() -> Any:
    """The library's own settings, whatever the process that draws has set."""
    found = matplotlib().rcParamsDefault.items()
    return {key: value for key, value in found if not key.startswith(("backend", "interactive"))}
