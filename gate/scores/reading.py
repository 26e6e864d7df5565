"""Reading: from arguments to a sample, in a child that sorts too, or in runs where it is larger than the memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.interchange

from gate.errors import GateError
from gate.ordered import Ordered, sort
from gate.policy import Columns, Policy
from gate.scores.budget import ByteBudget
from gate.scores.child import isolated
from gate.scores.formats import File, Table, list_wanted, one_dimensional, pick, require
from gate.scores.labels import Kind
from gate.scores.place import here
from gate.scores.sample import Scores
from gate.scores.stored import must_be_stored, read_stored
from gate.scores.taking import join_parts, piece_of, read_whole, source_of, take
from gate.scores.wording import reason_of

SMALL = 1 << 20  # bytes


def read(paths: Iterable[str], columns: Columns, domain: tuple[float, float], kind: Kind = "benign") -> Scores:
    """Read the benign scores of one or more files, or raise at the first row that is not a score.

    The malicious ones are those of the other rows: of all of them where the policy names no label column.
    """
    with reading(paths, columns, domain, kind) as scores:
        return scores()


@contextlib.contextmanager
def reading(
    paths: Iterable[str],
    columns: Columns,
    domain: tuple[float, float],
    kind: Kind = "benign",
    keep_order: bool = True,
) -> Iterator[Callable[[], Scores]]:
    """Read in a child, which sorts and counts too, while this process does something else.

    Rows keep the order of the files if `keep_order` says so, or if they have more than a score.
    """
    named, budget = tuple(paths), ByteBudget()

    def work() -> Scores:
        scores = read_whole(named, columns, domain, kind, budget)
        if not keep_order and {*list_wanted(columns)} <= {columns.score, columns.label}:  # and no counts
            with contextlib.suppress(ValueError):  # raised if they lie in a library's memory
                scores.values.setflags(write=True)  # nobody else has seen them
            scores.__dict__["ordered"] = Ordered(sort(scores.values, in_place=scores.values.flags.writeable))
        scores.ordered.survey  # noqa: B018, the answer is kept and sent with the sample
        return scores

    if must_be_stored(named, columns, place := here()):
        yield lambda: read_stored(named, columns, domain, kind, place, keep_order)
        return
    if all(_is_small_and_plain(path) for path in named):
        yield lambda: read_whole(named, columns, domain, kind, budget)
        return
    with isolated(work, budget.memory) as answer:
        yield answer


def reading_sample(
    name: str, paths: tuple[str, ...], policy: Policy, calibrated: bool = False
) -> contextlib.AbstractContextManager[Callable[[], Scores]]:
    """Read one sample of a release as its name says; if calibrated scores are judged, read those."""
    keep_order = name == "benign"
    return reading(paths, columns_for(name, policy, calibrated), policy.calibration.domain, kind_of(name), keep_order)


def kind_of(name: str) -> Kind:
    """Say which rows a sample of this name holds."""
    return "malicious" if name.endswith("malicious") else "benign"


def columns_for(name: str, policy: Policy, calibrated: bool = False) -> Columns:
    """Choose the columns of a sample: only benign rows to fit or to judge on have segments and times read.

    If calibrated scores are judged, they are read from the column of that name, or else from that of the scores.
    """
    data = policy.data
    served = (data.calibrated or data.score) if calibrated else None
    data = data.model_copy(update={"calibrated": served, "label": data.label or None})
    if name in ("fit", "holdout", "benign"):
        return data
    return data.model_copy(update={"segment": None, "timestamp": None})


def _is_small_and_plain(path: str) -> bool:
    """Whether the file is small and of a kind that NumPy reads and checks in Python, where no bytes can crash it."""
    try:
        return path.lower().endswith((".npy", ".npz")) and os.stat(path).st_size < SMALL and not os.path.isdir(path)
    except OSError:
        return True  # reading the file gives a better message


def from_object(data: Any, name: str, columns: Columns, domain: tuple[float, float], kind: Kind = "benign") -> Scores:
    """Read the benign (or malicious) scores from a NumPy or Arrow array, a table, a data frame, or named files.

    A data frame is anything that speaks the Arrow PyCapsule or the DataFrame interchange protocol. `name` stands for
    the data in messages and in the record.
    """
    if isinstance(data, Scores):
        return data
    if isinstance(data, str | os.PathLike):
        return read([os.fspath(data)], columns, domain, kind)
    if isinstance(data, list | tuple) and data and all(isinstance(path, str | os.PathLike) for path in data):
        return read([os.fspath(path) for path in data], columns, domain, kind)
    place = File(name, "")
    table = columns_of_object(data, list_wanted(columns), place)
    part = take(place, table, columns, domain, kind, alone=True)
    scores = join_parts([part], (source_of(name, [part], kind),), kind)
    return replace(scores, pieces=(piece_of(place, part),))


def columns_of_object(data: Any, names: list[str], place: File) -> Table:
    """Return the named columns of an object in memory; a single array is the scores."""
    try:
        if hasattr(data, "__arrow_c_stream__"):
            array = pa.chunked_array(data)
        elif hasattr(data, "__arrow_c_array__"):
            array = pa.chunked_array([pa.array(data)])
        elif hasattr(data, "__dataframe__"):
            array = pa.chunked_array(pyarrow.interchange.from_dataframe(data))
        else:
            array = np.array(data)  # nobody else can change this copy
        if not isinstance(array, np.ndarray):
            array.validate(full=not pa.types.is_struct(array.type))  # a table's wanted columns are checked below
    except Exception as error:  # another library may raise anything in its half of a protocol
        raise GateError(
            f"{place}: must be an array, an Arrow table or a data frame, got {type(data).__name__}: {reason_of(error)}"
        ) from None
    if isinstance(array, np.ndarray) or not pa.types.is_struct(array.type):
        if len(names) > 1:
            raise GateError(f"{place}: must have a column {names[1]!r}, got an array, which has none; give a table")
        return Table({names[0]: one_dimensional(array, place) if isinstance(array, np.ndarray) else array})
    table = pa.Table.from_struct_array(array)
    require(names, table.column_names, place)
    try:
        return Table(pick(table, names), tuple(table.column_names))
    except pa.ArrowException as error:
        raise GateError(f"{place}: must be a valid Arrow table, got: {reason_of(error)}; make it again") from None
