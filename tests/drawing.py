"""How many examples a property is tried on, and how often a simulation runs."""

from __future__ import annotations

import os


def examples(most: int) -> int:
    """All examples with `pytest --long`, a twelfth in every other run."""
    return often(-(-most // 12), most)


def often(each_run: int, most: int) -> int:
    """The first number in each run, the second with `pytest --long`."""
    return most if os.environ.get("GATE_LONG") else each_run
