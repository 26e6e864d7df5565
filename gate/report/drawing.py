"""Loads matplotlib so that no file of the working directory, the user or the environment changes what it draws."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

# Each colour is a part to play. The light page's values are written into the SVG and hold where style sheets are
# refused; the page's own style sheet replaces them by class.
COLORS = {
    "ink": "#1b1f24",
    "soft": "#57606a",
    "line": "#d1d7dd",
    "band": "#dbe7f4",
    "mark": "#0a58b0",
    "pass": "#116329",
    "fail": "#a40e26",
    "inconclusive": "#7d4e00",
}
STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # matplotlib brings it: layouts are the same everywhere; the page shows its own
    "font.size": 10,
    "text.color": COLORS["ink"],
    "axes.labelcolor": COLORS["soft"],
    "axes.edgecolor": COLORS["soft"],
    "axes.facecolor": "none",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelsize": 10,
    "axes.axisbelow": True,
    "xtick.color": COLORS["soft"],
    "ytick.color": COLORS["soft"],
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.2,
    "hatch.color": COLORS["line"],
    "hatch.linewidth": 0.6,
    "path.simplify": False,
    "text.usetex": False,
    "axes.unicode_minus": True,
}


def matplotlib() -> Any:
    """Return the library with the parts that figures need; no other place imports it."""
    if "matplotlib" not in sys.modules:
        _load()
    import matplotlib as loaded
    import matplotlib.figure
    import matplotlib.patches

    return loaded


def _load() -> None:
    """Import it so that it finds only its own `matplotlibrc`: it would prefer one in the working directory.

    A backend in the environment is ignored: no window is opened here, and an unknown backend would be an error.
    """
    spec = importlib.util.find_spec("matplotlib")
    assert spec is not None
    own = str(Path(spec.origin or "").parent / "mpl-data" / "matplotlibrc")
    exists, hidden = os.path.exists, {name: os.environ.pop(name, None) for name in ("MATPLOTLIBRC", "MPLBACKEND")}

    def exists_for_it(path: Any) -> bool:
        return exists(path) and (os.path.basename(os.fspath(path)) != "matplotlibrc" or path == own)

    os.path.exists = exists_for_it
    try:
        importlib.import_module("matplotlib")
    finally:
        os.path.exists = exists
        os.environ.update({name: value for name, value in hidden.items() if value is not None})


def defaults() -> Any:
    """Draw with the library's own settings, whatever this process has set."""
    found = matplotlib().rcParamsDefault.items()
    return {key: value for key, value in found if not key.startswith(("backend", "interactive"))}
