"""Reads rows that several detectors have scored: once, into a sample for each detector, joined row by row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gate.contract import Floats, Ints
from gate.errors import GateError
from gate.policy import Columns, Policy
from gate.scores.budget import ByteBudget
from gate.scores.child import isolated, join
from gate.scores.columns import join_names, number_alike, read_names
from gate.scores.files import find_each, refuse_copies
from gate.scores.formats import File, Table, list_wanted, read_file
from gate.scores.labels import Kind
from gate.scores.place import Place
from gate.scores.reading import columns_for, columns_of_object, kind_of
from gate.scores.sample import Piece, Scores
from gate.scores.stored import estimate_rows
from gate.scores.taking import Taken, join_parts, piece_of, source_of, take, take_scores
from gate.scores.wording import show
from gate.sources import Source
from gate.words import plural

HELD = 32  # bytes that a row of one detector takes while its batch is read and judged, beside its own sorting
NONE: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class View:
    """How one detector reads rows: its columns and the domain of its scores."""

    columns: Columns
    domain: tuple[float, float]


class Wide(Columns):
    """The columns of all detectors that read the same files."""

    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """One sample of the same files as several detectors have scored it.

    samples   each detector's rows, with their numbers in `units`
    n         how many numbers there are: of rows, or of ids where rows have them
    ids       the id of each number, where rows have them
    others    for each detector, the numbers of the rows that it takes for the other kind
    key       what the rows were read from: panels of one key have the same numbers
    """

    samples: Mapping[str, Scores]
    n: int
    ids: Any
    others: Mapping[str, Ints]
    key: Hashable = None

    def divided(self, sides: Mapping[str, tuple[Scores, Scores]]) -> tuple[Panel, Panel]:
        """Divide into parts to fit on and to hold out; a row that one detector is fitted on is held out for none."""
        parts = []
        for side in (0, 1):
            samples = {name: parts_of[side] for name, parts_of in sides.items()}
            other_side = {name: parts_of[1 - side].units for name, parts_of in sides.items()}
            excluded = {name: NONE if units is None else units for name, units in other_side.items()}
            others = {name: np.union1d(self.others[name], units) for name, units in excluded.items()}
            parts.append(replace(self, samples=samples, others=others))
        return parts[0], parts[1]


@dataclass(frozen=True)
class Joined:
    """How the rows of all detectors go together, whatever files they came from.

    counted    the rows that the system is judged on: benign for every detector, or malicious for any
    apart      rows that are benign for some detectors and not for all
    unscored   for each detector, the rows that it has not scored
    places     for each detector, the row that each of its own numbers stands for
    groups     the group of each row, where rows come in groups
    """

    counted: NDArray[np.bool_]
    apart: int
    unscored: Mapping[str, Ints]
    places: Mapping[str, Ints | None]
    groups: Ints | None = None
    group_count: int = 0

    def rows(self, name: str, units: Ints) -> Ints:
        """Return the rows that a detector's own numbers stand for."""
        place = self.places[name]
        return units if place is None else place[units]


# --- reading ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def reading_panel(paths: Sequence[str], views: Mapping[str, View], kind: Kind) -> Iterator[Callable[[], Panel]]:
    """Read the files once for all detectors, in a child, while this process does something else."""
    named, budget = tuple(paths), ByteBudget()
    with isolated(lambda: _read(named, views, kind, budget), budget.memory) as answer:
        yield answer


@contextlib.contextmanager
def reading_panels(
    sample: str, paths: Mapping[str, tuple[str, ...]], policies: Mapping[str, Policy]
) -> Iterator[Callable[[], list[Panel]]]:
    """Read one sample for every detector that has files of it; files that several detectors share are read once."""
    shared: dict[tuple[str, ...], list[str]] = {}
    for name, files in paths.items():
        if files:
            shared.setdefault(files, []).append(name)
    with contextlib.ExitStack() as children:
        answers = [
            children.enter_context(reading_panel(files, views_of(sample, names, policies), kind_of(sample)))
            for files, names in shared.items()
        ]
        yield lambda: [answer() for answer in answers]


def views_of(sample: str, names: Iterable[str], policies: Mapping[str, Policy]) -> dict[str, View]:
    """Say how each of some detectors reads a sample."""
    return {name: View(columns_for(sample, policies[name]), policies[name].calibration.domain) for name in names}


def panel_of(data: Any, name: str, views: Mapping[str, View], kind: Kind) -> Panel:
    """Make the panel of a table or data frame in memory; `name` stands for it in messages and in the record."""
    file, wide = File(name, ""), widened(views)
    table = columns_of_object(data, list_wanted(wide), file)
    taking = _Taking(views, kind)
    taking.add(name, [file], [table])
    return replace(taking.panel(()), key=id(data))


def widened(views: Mapping[str, View]) -> Wide:
    """Join the columns of all detectors: those of the first one, and all others that the rest name."""
    columns = [view.columns for view in views.values()]
    also = dict.fromkeys(name for each in columns for name in list_wanted(each))
    return Wide(**columns[0].model_dump(), also=tuple(also))


def _read(paths: tuple[str, ...], views: Mapping[str, View], kind: Kind, budget: ByteBudget) -> Panel:
    taking, wide = _Taking(views, kind), widened(views)
    skipped: list[tuple[str, str]] = []
    for path, found in find_each(paths):
        taking.add(path, found.files, (read_file(file, wide, budget) for file in found.files))
        skipped += found.skipped
    refuse_copies(piece.file for piece in taking.pieces)
    return replace(taking.panel(tuple(skipped)), key=paths)


class _Taking:
    """Takes the rows of the files, one file after another.

    Detectors that take the same rows of every file share what these rows are: labels, groups, ids, times.
    """

    def __init__(self, views: Mapping[str, View], kind: Kind) -> None:
        self.views, self.kind = views, kind
        self.taken: dict[str, list[Taken]] = {name: [] for name in views}
        self.keys: dict[str, list[Hashable]] = {name: [] for name in views}
        self.sources: dict[str, list[Source]] = {name: [] for name in views}
        self.pieces: list[Piece] = []
        self.of_detector: dict[str, list[Piece]] = {name: [] for name in views}
        self.sizes: list[int] = []
        self.ids: list[Any] = []

    def add(self, path: str, files: Sequence[File], tables: Any) -> None:
        """Take the files of one argument."""
        now: dict[str, list[Taken]] = {name: [] for name in self.views}
        for file, table in zip(files, tables, strict=True):
            for name, part in self._take(file, table, alone=len(files) == 1).items():
                now[name].append(part)
                if part.rows:
                    self.of_detector[name].append(piece_of(file, part))
            any_part = next(iter(now.values()))[-1]
            self.pieces += [piece_of(file, any_part)] if any_part.rows else []
            self.sizes.append(any_part.rows)
        for name, parts in now.items():
            self.sources[name].append(source_of(path, parts, self.kind))
            self.taken[name] += parts

    def _take(self, file: File, table: Table, alone: bool) -> dict[str, Taken]:
        known: dict[Hashable, Taken] = {}
        found = {}
        for name, view in self.views.items():
            columns, column = view.columns, table.columns[view.columns.score]
            gaps = not isinstance(column, np.ndarray) and column.null_count
            key = (columns.label, columns.benign_label, name if gaps else None)
            if key not in known:
                found[name] = known[key] = take(file, table, columns, view.domain, self.kind, alone, gaps=True)
            else:
                scores = take_scores(file, table, columns, view.domain, known[key].mask)
                found[name] = replace(known[key], chunks=scores)
            self.keys[name].append(key)
        column = next(iter(self.views.values())).columns.id
        if column is not None:
            self.ids.append(_all_names(table.columns[column], column, file))
        return found

    def panel(self, skipped: tuple[tuple[str, str], ...]) -> Panel:
        """Return each detector's sample, with the numbers of its rows."""
        numbers, ids, n = self._numbers()
        whole: dict[Hashable, tuple[Scores, Ints]] = {}
        samples, others = {}, {}
        for name in self.views:
            parts, key = self.taken[name], tuple(self.keys[name])
            self._require(name, parts)
            again = whole[key][0].repeats if key in whole else None
            if again is not None and again.size:
                del whole[key]  # rows with one id count once; each detector decides which row stands for them
            if key not in whole:
                rows, of_other = self._rows(parts)
                units = numbers if rows is None else numbers[rows]
                joined = join_parts(parts, tuple(self.sources[name]), self.kind, units)
                whole[key] = joined, np.unique(numbers[of_other][numbers[of_other] >= 0])
                samples[name] = joined
            else:
                values: Floats = join([chunk for part in parts for chunk in part.chunks])
                samples[name] = replace(whole[key][0], values=values)
            others[name] = whole[key][1]
            pieces = tuple(self.of_detector[name])
            samples[name] = replace(samples[name], pieces=pieces, skipped=skipped)
        return Panel(samples, n, ids, others)

    def _numbers(self) -> tuple[Ints, Any, int]:
        """Number the rows of all files, whatever their kind; rows with one id have one number."""
        rows = sum(self.sizes)
        if not self.ids:
            return np.arange(rows), None, rows
        encoded = pa.chunked_array(self.ids, pa.large_string()).combine_chunks()
        encoded = encoded.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, encoded.dictionary, len(encoded.dictionary)

    def _rows(self, parts: list[Taken]) -> tuple[Ints | None, Ints]:
        """Find which rows of all files are taken, None for all of them, and which are of the other kind."""
        if all(part.mask is None for part in parts):
            return None, NONE
        masks, kinds = [], []
        for part in parts:
            mask = np.ones(part.rows, dtype=bool) if part.mask is None else part.mask
            of_kind = mask.copy()
            of_kind[np.asarray(part.unscored, dtype=np.int64)] = True
            masks.append(mask)
            kinds.append(of_kind)
        return np.flatnonzero(np.concatenate(masks)), np.flatnonzero(~np.concatenate(kinds))

    def _require(self, name: str, parts: list[Taken]) -> None:
        if sum(part.taken for part in parts) < 2:
            rows, unscored = sum(part.rows for part in parts), sum(len(part.unscored) for part in parts)
            files = ", ".join(source.path for source in self.sources[name])
            raise GateError(
                f"{files}: column {self.views[name].columns.score!r} must hold at least 2 {self.kind} scores of the "
                f"detector {name}, got {sum(part.taken for part in parts)} in {plural(rows, 'row')}, {unscored:,} of "
                "them without a score; score these rows or leave the detector out"
            )


def _all_names(column: Any, name: str, file: File) -> Any:
    """Read the ids of all rows of a file; a missing id stays missing here, and is refused if the row is taken."""
    whole = np.ones(len(column), dtype=bool)
    if not isinstance(column, np.ndarray) and column.null_count:
        present = np.asarray(column.is_valid().to_numpy(), dtype=bool)
        named = join_names([read_names(column, name, file, present)])
        places = np.where(present, np.cumsum(present) - 1, 0)
        return named.take(pa.array(places, mask=~present))
    return join_names([read_names(column, name, file, whole)])


def gather_panels(known: Sequence[Panel], more: Sequence[Panel]) -> list[Panel]:
    """Join the panels of both batches without scores; panels of the same files become one: row numbers agree."""
    gathered = {panel.key: panel for panel in known}
    for panel in more:
        bare = {name: _without_scores(scores) for name, scores in panel.samples.items()}
        before = gathered.get(panel.key, replace(panel, samples={}, others={}))
        samples, others = {**before.samples, **bare}, {**before.others, **panel.others}
        gathered[panel.key] = replace(before, samples=samples, others=others)
    return list(gathered.values())


def _without_scores(scores: Scores) -> Scores:
    nothing: Floats = np.empty(0)
    return replace(scores, values=nothing, ids=None, segments=None, timestamps=None, repeats=None, stored=None)


def batches_of(
    paths: Mapping[str, Mapping[str, tuple[str, ...]]], names: Sequence[str], place: Place
) -> list[list[str]]:
    """Group the detectors so that the rows of a group fit into memory, as far as files tell how many they have."""
    known: dict[tuple[str, ...], int] = {}
    rows = 1
    for name in names:
        files = [by_detector[name] for by_detector in paths.values() if by_detector.get(name)]
        for some in files:
            if some not in known:
                known[some] = estimate_rows(some, place)
        rows = max(rows, sum(known[some] for some in files))
    size = max(1, place.memory // (HELD * rows))
    return [[*names[start : start + size]] for start in range(0, len(names), size)]


# --- joining ------------------------------------------------------------------------------------------------


def join_panels(panels: Sequence[Panel], kind: Kind) -> Joined | None:
    """Join the rows of all detectors; None if detectors have files of their own without ids to join them by."""
    if len(panels) > 1 and any(panel.ids is None for panel in panels):
        return None
    ids, places = _places(panels)
    n = panels[0].n if ids is None else len(ids)
    placed = {name: place for panel, place in zip(panels, places, strict=True) for name in panel.samples}
    of_any, of_other = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    known: dict[str, NDArray[np.bool_]] = {}
    for panel, place in zip(panels, places, strict=True):
        for name, scores in panel.samples.items():
            assert scores.units is not None
            other_units, own_units = (
                units if place is None else place[units] for units in (panel.others[name], scores.units)
            )
            of_other[other_units] = True
            lacking = np.ones(n, dtype=bool)
            lacking[own_units] = lacking[other_units] = False
            known[name] = lacking
            of_kind = np.ones(panel.n, dtype=bool)  # scored or not
            of_kind[panel.others[name]] = False
            of_any[np.flatnonzero(of_kind) if place is None else place[of_kind]] = True
    counted = of_any & ~of_other if kind == "benign" else of_any
    groups, group_count = _groups(panels, places, n)
    return Joined(
        counted=counted,
        apart=int((of_any & of_other).sum()) if kind == "benign" else 0,
        unscored={name: np.flatnonzero(lacking & counted) for name, lacking in known.items()},
        places=placed,
        groups=groups,
        group_count=group_count,
    )


def _places(panels: Sequence[Panel]) -> tuple[Any, list[Ints | None]]:
    """Find the ids of all rows, and for each panel the rows that its numbers stand for."""
    ids, places = panels[0].ids, list[Ints | None]([None])
    for panel in panels[1:]:
        found = pc.index_in(panel.ids, value_set=ids)
        missing = np.asarray(found.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        if missing.all():
            one, other = (_files(some) for some in (panels[0], panel))
            raise GateError(
                f"{other}: must have scored the rows of {one} too, got no id in common with them, such as "
                f"{show(panel.ids[0].as_py())} and {show(ids[0].as_py())}; name the column of ids in data.id"
            )
        place = found.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        place[missing] = len(ids) + np.arange(int(missing.sum()))
        ids = pa.concat_arrays([ids, panel.ids.filter(pa.array(missing))])
        places.append(place)
    return ids, places


def _groups(panels: Sequence[Panel], places: Sequence[Ints | None], n: int) -> tuple[Ints | None, int]:
    """Find the group of each row by name: the first detector that has the row says which."""
    placed = zip(panels, places, strict=True)
    samples = [(scores, place) for panel, place in placed for scores in panel.samples.values()]
    if any(scores.groups is None for scores, _ in samples):
        return None, 0
    groups, left = np.full(n, -1, dtype=np.int64), n
    numbers = number_alike([scores.group_names for scores, _ in samples])
    for (scores, place), number in zip(samples, numbers, strict=True):
        assert scores.units is not None
        assert scores.groups is not None
        if left:
            rows = scores.units if place is None else place[scores.units]
            groups[rows] = number[scores.groups]
            left = int((groups < 0).sum())
    most = int(groups.max()) + 1
    lost = np.flatnonzero(groups < 0)  # a row that nobody has scored is a group of its own
    groups[lost] = most + np.arange(len(lost))
    return groups, most + len(lost)


def _files(panel: Panel) -> str:
    return next(iter(panel.samples.values())).files
