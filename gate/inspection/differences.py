"""Finds where two plain values differ, such as a record and its repetition, and says so; it decides nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any


def differences(where: str, recorded: Any, found: Any) -> Iterator[str]:
    """Say where two plain values differ; computed numbers may differ in the last digits."""
    if isinstance(recorded, dict) and isinstance(found, dict) and recorded.keys() == found.keys():
        for key in recorded:
            yield from differences(f"{where}.{key}", recorded[key], found[key])
    elif isinstance(recorded, list | tuple) and isinstance(found, list | tuple) and len(recorded) == len(found):
        for i, (one, other) in enumerate(zip(recorded, found, strict=True)):
            yield from differences(f"{where}[{i}]", one, other)
    elif isinstance(recorded, float) and isinstance(found, float):
        if not math.isclose(recorded, found, rel_tol=1e-9):
            yield f"{where} is {recorded!r} in the record, but {found!r} follows"
    elif recorded != found:
        yield f"{where} is {_in_brief(recorded)} in the record, but {_in_brief(found)} follows"


def _in_brief(value: Any) -> str:
    match value:
        case dict() | list() | tuple():
            return f"a list of {len(value)}"
        case _:
            text = repr(value)
            return text if len(text) <= 80 else text[:77] + "..."
