"""A sample: the rows of one kind, where they stand, with their roles. It answers questions and judges nothing.

Every question is one SELECT that the engine answers, or one about the scores in their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gate.contract import Floats, Ints
from gate.errors import GateError
from gate.rows.engine import Engine, Reply, number
from gate.rows.labels import Kind, describe_labels
from gate.rows.ordered import Divided, Ordered, Sorted, sort, sort_counted
from gate.rows.sketch import Named
from gate.rows.table import File
from gate.rows.wording import reason_of, show
from gate.sources import Labels, Source
from gate.words import plural

if TYPE_CHECKING:
    from gate.rows.roles import FilePart

RoleName = Literal["id", "grp", "whole"]

SHARE = 48  # of the memory: a sample is fetched if its scores, of 8 bytes each, take at most six of so many parts
FEW_VALUES = 10  # of a column that may hold labels
LOOKED_AT = 10_000  # rows in which columns are looked at first
UNITS = 4096  # groups beyond this number are joined by a hash of their names, in tests that exchange them


class Reached(NamedTuple):
    """The rows of a sample by part (a group, a segment, or a group within a segment).

    parts     the number of each part: that of its segment, or of its group; or segment * groups + group
    sizes     its rows
    reached   how many of them reach each of some scores: a row for each part, a column for each score
    """

    parts: Ints
    sizes: Floats
    reached: Floats


@dataclass(frozen=True)
class Piece:
    """A file, or an object in memory, that held rows; `taken` of them are of the kind."""

    file: File
    rows: int
    taken: int
    sha256: str | None = None


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows of one kind, as SQL with the roles as columns: score, and where there are any id, grp, segment, time,
    weight, raw, whole.

    mixed      sums over all scores, as whole numbers, which differ where the scores do
    repeated   rows left out because their id came before; None without ids
    copied     whole rows that repeat another one, where a column tells rows apart; else None
    unread     columns that no role names; `others` are those that every file has, as u0, u1 ...
    pool       the sample that was divided into this one and another
    unscored   rows of this kind without a score; only several detectors may have such
    parts      what each file gave, where several detectors read it
    """

    engine: Engine
    relation: str
    roles: frozenset[str]
    n: int
    lowest: float
    highest: float
    kind: Kind = "benign"
    sources: tuple[Source, ...] = ()
    pieces: tuple[Piece, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    labels: Labels | None = None
    seen: tuple[int, int] | None = None
    mixed: tuple[int, ...] = ()
    repeated: int | None = None
    copied: int | None = None
    unread: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    unscored: int = 0
    pool: Sample | None = None
    domain: tuple[float, float] = (0.0, 1.0)
    parts: tuple[FilePart, ...] = ()

    def __len__(self) -> int:
        return self.n

    @property
    def rows(self) -> str:
        """What stands after FROM."""
        return f"({self.relation}) AS q"

    @property
    def counted(self) -> str:
        """The SQL of how many rows there are."""
        return "CAST(sum(weight) AS BIGINT)" if "weight" in self.roles else "count(*)"

    @property
    def has_ids(self) -> bool:
        return "id" in self.roles

    @property
    def has_groups(self) -> bool:
        return "grp" in self.roles

    @property
    def has_segments(self) -> bool:
        return "segment" in self.roles

    @property
    def has_times(self) -> bool:
        return "time" in self.roles

    @property
    def has_weights(self) -> bool:
        return "weight" in self.roles

    @property
    def is_numbered(self) -> bool:
        """Whether rows have numbers: in files and objects they do, in tables elsewhere they do not."""
        return "nr" in self.roles

    @property
    def has_raw(self) -> bool:
        return "raw" in self.roles

    @property
    def files(self) -> str:
        return ", ".join(source.path for source in self.sources)

    def ask(self, sql: str) -> Reply:
        """The answer to one question; what an engine says of rows that it cannot read becomes one line."""
        try:
            return self.engine.ask(sql)
        except GateError:
            raise
        except Exception as error:  # DuckDB reads the pages of a file when a question needs them
            if type(error).__name__ == "InterruptException":
                raise
            must = f"{self.files}: must be readable to the end, got: {reason_of(error)}"
            room = "Out of Memory" in str(error) or "No space left" in str(error) or "temp_directory" in str(error)
            instead = "raise --memory, or name a --scratch with more room" if room else "write it again"
            raise GateError(f"{must}; {instead}") from None

    # --- order ----------------------------------------------------------------------------------------------

    @cached_property
    def ordered(self) -> Ordered:
        """The scores in rising order: fetched and sorted if they fit the memory, else divided where they stand."""
        if self.n * SHARE > self.engine.memory:
            return Divided(self.engine, self.rows, self.counted, (self.lowest, self.highest), self.ask)
        if self.has_weights:
            found = self.ask(f"SELECT score, CAST(sum(weight) AS BIGINT) AS n FROM {self.rows} GROUP BY 1")
            return self._whole(sort_counted(np.asarray(found["score"]), np.asarray(found["n"], dtype=np.int64)))
        scores = np.ascontiguousarray(self.ask(f"SELECT score FROM {self.rows}")["score"])
        return self._whole(Sorted(sort(scores, in_place=scores.flags.writeable)))

    def forget_order(self) -> None:
        """Give the memory of the scores back; they are fetched again when they are asked for."""
        self.__dict__.pop("ordered", None)

    def _whole(self, found: Sorted) -> Sorted:
        if found.n != self.n:
            raise GateError(f"{self.files}: must stay as it is while gate reads it, got other rows; run again")
        return found

    # --- rows by part ---------------------------------------------------------------------------------------

    def by_segment(self, scores: Floats) -> Reached:
        """The rows of each segment that reach each of some scores; parts follow the names of segments."""
        names, sizes, reached = self._by_name("segment", scores)
        return Reached(np.arange(len(names)), sizes, reached)

    def values_at_the_top(self) -> Iterator[tuple[str, str, int, int, int]]:
        """Of columns with few values that no role names: column, value, its rows, as many highest rows, and both."""
        for i, column in enumerate(self.others):
            word = f"coalesce(u{i}, '')"
            few = f"(SELECT {word} AS v FROM {self.rows} LIMIT {LOOKED_AT}) AS q"
            if int(self.ask(f"SELECT count(DISTINCT v) AS d FROM {few}")["d"][0]) > FEW_VALUES:
                continue
            names, sizes, _ = self._by_name(word, np.empty(0))
            if 1 < len(names) <= FEW_VALUES:
                at = self.ordered.at_rank(sizes.astype(np.int64))
                _, _, reached = self._by_name(word, at)
                top = self.ordered.at_or_above(at)
                for j, name in enumerate(names):
                    yield column, name, int(sizes[j]), int(top[j]), int(reached[j, j])

    @cached_property
    def segment_names(self) -> tuple[str, ...]:
        """The names of all segments, in the order of their bytes."""
        return tuple(self._by_name("segment", np.empty(0))[0])

    def _by_name(self, role: str, scores: Floats) -> tuple[list[str], Floats, Floats]:
        """One question: the rows of each name between neighbouring scores, with a tree of CASE for the place."""
        wanted = np.asarray(scores, dtype=np.float64)
        cuts = np.unique(wanted[np.isfinite(wanted)])
        place = _tree(self.engine, cuts.tolist(), 0, len(cuts))
        found = self.ask(f"SELECT {role} AS part, {place} AS place, {self.counted} AS n FROM {self.rows} GROUP BY 1, 2")
        parts = np.asarray(found["part"], dtype=object)
        names = sorted(set(parts.tolist()))
        numbers = {part: i for i, part in enumerate(names)}
        table = np.zeros((len(names), len(cuts) + 1))
        rows = np.fromiter((numbers[part] for part in parts), dtype=np.int64, count=len(parts))
        np.add.at(table, (rows, np.asarray(found["place"], dtype=np.int64)), np.asarray(found["n"], dtype=np.float64))
        from_place = np.cumsum(table[:, ::-1], axis=1)[:, ::-1]
        reached = np.zeros((len(names), len(wanted)))
        reached[:, np.isneginf(wanted)] = from_place[:, :1]
        finite = np.isfinite(wanted)
        reached[:, finite] = from_place[:, np.searchsorted(cuts, wanted[finite]) + 1]
        return names, from_place[:, 0], reached

    def by_group(self, scores: Floats, units: bool = False) -> Reached:
        """The rows of each group that reach each of some scores, in an order that names and engines do not change.

        With `units`, groups are joined by a hash of their names where they are too many for a table.
        """
        key = "grp" if not units or self.group_count <= UNITS else "substr(md5(grp), 1, 3)"
        found = self._by_groups(key, scores, "")
        return Reached(np.arange(len(found)), found[:, 0], found[:, 1:])

    def by_group_in_segment(self, scores: Floats) -> Reached:
        """The rows of each group within each segment that reach each of some scores."""
        parts = []
        for i, found in enumerate(self._by_groups_of_segments(scores)):
            parts.append(Reached(i * self.group_count + np.arange(len(found)), found[:, 0], found[:, 1:]))
        return Reached(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _by_groups_of_segments(self, scores: Floats) -> list[Floats]:
        found = self._by_groups("segment, grp", scores, "segment")
        return [found[name] for name in self.segment_names]

    def _by_groups(self, key: str, scores: Floats, apart: str) -> Any:
        """A table of groups: rows, and rows that reach each score. Groups alike in these come as one line."""
        counts = [
            f"CAST({self._reaching(score)} AS BIGINT) AS k{i}" for i, score in enumerate(np.asarray(scores).tolist())
        ]
        columns = ["m", *(f"k{i}" for i in range(len(counts)))]
        first = f"{apart} AS part, " if apart else ""
        inner = f"SELECT {first}{', '.join(['count(*) AS m', *counts])} FROM {self.rows} GROUP BY {key}"
        listed = ", ".join((["part"] if apart else []) + columns)
        found = self.ask(f"SELECT {listed}, count(*) AS c FROM ({inner}) AS g GROUP BY {listed}")
        table = np.column_stack([np.asarray(found[column], dtype=np.float64) for column in columns])
        order = np.lexsort(table.T[::-1])
        table, times = table[order], np.asarray(found["c"], dtype=np.int64)[order]
        if not apart:
            return np.repeat(table, times, axis=0)
        parts = np.asarray(found["part"], dtype=object)[order]
        return {part: np.repeat(table[parts == part], times[parts == part], axis=0) for part in set(parts.tolist())}

    def _reaching(self, score: float) -> str:
        if score == np.inf:
            return "0 * count(*)"
        if score == -np.inf:
            return "count(*)"
        return f"sum(CASE WHEN score >= {number(self.engine, score)} THEN 1 ELSE 0 END)"

    @cached_property
    def group_count(self) -> int:
        return int(self.ask(f"SELECT count(DISTINCT grp) AS n FROM {self.rows}")["n"][0])

    @cached_property
    def largest_group(self) -> int:
        sizes = f"SELECT count(*) AS n FROM {self.rows} GROUP BY grp"
        return int(self.ask(f"SELECT max(n) AS n FROM ({sizes}) AS g")["n"][0])

    def highest_of_groups(self) -> Sample:
        """A row for each group: its highest score."""
        relation = f"SELECT max(score) AS score FROM {self.rows} GROUP BY grp"
        return replace(self, relation=relation, roles=frozenset({"score"}), n=self.group_count)

    def divided_at_time(self, older: int) -> tuple[Sample, Sample] | None:
        """The rows before a moment and those from it on; about so many are older. None where all are of one moment."""
        found = self.ask(f"SELECT time FROM {self.rows} ORDER BY 1 LIMIT 1 OFFSET {older}")
        cut = int(found["time"][0])
        parts = []
        for side in ("<", ">="):
            relation = f"SELECT * FROM {self.rows} WHERE time {side} {cut}"
            n = int(self.ask(f"SELECT {self.counted} AS n FROM ({relation}) AS t")["n"][0] or 0)
            parts.append(replace(self, relation=relation, n=n))
        return (parts[0], parts[1]) if min(part.n for part in parts) else None

    # --- rows themselves ------------------------------------------------------------------------------------

    def raw_and_served(self) -> tuple[Floats, Floats, Ints]:
        """The raw score of each row, the calibrated one that was served, and how many rows it stands for."""
        found = self.ask(f"SELECT raw, score, {'weight' if self.has_weights else '1'} AS n FROM {self.rows}")
        raw, served = (np.asarray(found[role], dtype=np.float64) for role in ("raw", "score"))
        return raw, served, np.asarray(found["n"], dtype=np.int64)

    def rows_of(self, threshold: float) -> dict[str, Any]:
        """The rows that reach a threshold, highest first; those of one score by their id, else their segment."""
        columns = [role for role in ("id", "score", "raw", "segment", "weight") if role in self.roles]
        ties = "id" if self.has_ids else "segment" if self.has_segments else "1"
        found = self.ask(
            f"SELECT {', '.join(columns)} FROM {self.rows} WHERE score >= {number(self.engine, threshold)} "
            f"ORDER BY score DESC, {ties}"
        )
        table: dict[str, Any] = {role: np.asarray(found[role]) for role in columns}
        if "weight" in table:  # one entry for each row that a row stands for
            times = table.pop("weight")
            table = {role: np.repeat(column, times) for role, column in table.items()}
        return table

    # --- rows of two samples --------------------------------------------------------------------------------

    def shared(self, other: Sample, role: RoleName) -> tuple[int, int]:
        """How many names (ids, groups, whole rows) are in both samples, and the rows that they have in this one."""
        ours = f"SELECT {role} AS name, count(*) AS n FROM {self.rows} GROUP BY 1"
        theirs = f"SELECT DISTINCT {role} AS name FROM {other.rows}"
        found = self.ask(
            f"SELECT count(*) AS names, CAST(coalesce(sum(a.n), 0) AS BIGINT) AS n "
            f"FROM ({ours}) AS a JOIN ({theirs}) AS b ON a.name = b.name"
        )
        return int(found["names"][0]), int(found["n"][0])

    # --- what names a sample --------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what decides: rows, scores, segments, groups. Order, format, files and engine do not change it.

        It finds re-use and changed tables, and is no wall against who controls the scores.
        """
        mixed = " ".join(map(str, self.mixed))
        digest = hashlib.sha256(f"{self.n} {self.lowest!r} {self.highest!r} {mixed}\n".encode())
        if self.has_groups:
            digest.update(f"{self.group_count} {self.largest_group}\n".encode())
        if self.has_segments:
            names, sizes, _ = self._by_name("segment", np.empty(0))
            digest.update("".join(f"{name!r} {int(size)}\n" for name, size in zip(names, sizes, strict=True)).encode())
        return digest.hexdigest()

    @cached_property
    def ids(self) -> Named | None:
        """The ids of all rows."""
        return Named(self.ask, self.rows, "id") if self.has_ids else None

    @cached_property
    def distinct_scores(self) -> Named:
        """The distinct scores, which name rows that have no ids."""
        return Named(self.ask, self.rows, self.written_score)

    @property
    def written_score(self) -> str:
        """The SQL of a score as text; -0.0 is 0.0."""
        return f"CASE WHEN score = 0 THEN '0.0' ELSE CAST(score AS {self.engine.word}) END"

    @cached_property
    def rows_sha256(self) -> str | None:
        """A digest of the rows by their ids, if they have ids: scores change with every release, ids do not."""
        return None if self.ids is None else hashlib.sha256(f"{self.n}\n".encode() + self.ids.sketch.packed).hexdigest()

    @property
    def summary(self) -> str:
        """What was read, in one line."""
        rows, again = sum(source.rows for source in self.sources), self.repeated or 0
        apart = rows - again - self.unscored - len(self)
        others = f", {apart:,} of other labels" if apart else ""
        others += f", {self.unscored:,} without a score" if self.unscored else ""
        others += f", {again:,} with the id of another, which count once" if again else ""
        spread = f" ({plural(len(self.pieces), 'file')} with rows)" if len(self.pieces) > len(self.sources) else ""
        labels = f"; {describe_labels(self.labels)}" if self.labels else ""
        unread = f"; not read: {_listed([show(name) for name in self.unread])}" if self.unread else ""
        skipped = f"; skipped {_list_skipped(self.skipped)}" if self.skipped else ""
        taken = f"{len(self):,} {self.kind}{others}, none refused"
        return f"{plural(rows, 'row')} from {self.files}{spread}: {taken}{labels}{unread}{skipped}"


def _tree(engine: Engine, cuts: Sequence[float], low: int, high: int) -> str:
    """The SQL of how many of some rising scores a row reaches."""
    if low == high:
        return str(low)
    middle = (low + high) // 2
    upper, lower = _tree(engine, cuts, middle + 1, high), _tree(engine, cuts, low, middle)
    return f"CASE WHEN score >= {number(engine, cuts[middle])} THEN {upper} ELSE {lower} END"


def _listed(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _list_skipped(skipped: tuple[tuple[str, str], ...]) -> str:
    """How many files were skipped, with the first few for each reason."""
    reasons = dict.fromkeys(why for _, why in skipped)
    names = {why: [show(name) for name, of in skipped if of == why] for why in reasons}
    return f"{len(skipped):,}: " + "; ".join(f"{why}: {_listed(names[why], 5)}" for why in reasons)
