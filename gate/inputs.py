"""The table of input formats: the endings of each, the module that reads it, and advice on what it cannot read.

The module loads none of them: `gate run --help` names the endings and must not wait for Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Input:
    """One kind of file. Its module has `read(file, names, budget)` and, if rows can come in parts, `stream`."""

    endings: tuple[str, ...]
    module: str
    remedy: str
    remote: bool = False  # whether it is read without a copy on this machine

    @property
    def read(self) -> Any:
        return import_module(self.module).read

    @property
    def stream(self) -> Any:
        """The function that reads the rows in parts; None if the file is read as a whole."""
        return getattr(import_module(self.module), "stream", None)


INPUTS: tuple[Input, ...] = (
    Input((".parquet", ".pq"), "gate.scores.formats.parquet", "write it again", remote=True),
    Input((".csv",), "gate.scores.formats.delimited", "save it as comma-separated UTF-8 text with a header"),
    Input((".tsv",), "gate.scores.formats.delimited", "save it as tab-separated UTF-8 text with a header"),
    Input((".feather", ".arrow"), "gate.scores.formats.arrow", "write it again"),
    Input((".jsonl", ".ndjson"), "gate.scores.formats.json_lines", "write one JSON object to a line"),
    Input((".npy",), "gate.scores.formats.npy", "save one plain array of numbers with numpy.save"),
    Input((".npz",), "gate.scores.formats.npz", "save plain arrays of numbers with numpy.savez"),
)


def endings() -> tuple[str, ...]:
    """Every ending that a score file may have."""
    return tuple(ending for input_ in INPUTS for ending in input_.endings)


def by_ending(ending: str) -> Input | None:
    return next((input_ for input_ in INPUTS if ending in input_.endings), None)
