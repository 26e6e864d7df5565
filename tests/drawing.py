"""How many examples a property is tried on."""

from __future__ import annotations

import os


def examples(most: int) -> int:
    """All of them with `pytest --long`, a third in every other run."""
    return most if os.environ.get("GATE_LONG") else -(-most // 3)
