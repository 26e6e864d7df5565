"""Scores that two samples share: how many, and how many a random division of the same rows would leave shared.

A value that c of all rows have is on both sides unless chance puts all c on one. Copies of fit rows among the held-out
rows leave more values shared than that; copies inside one sample leave fewer. The division is assumed to be random only
among rows of neighbouring scores, so that samples which differ in where their scores lie, but not row by row, show
neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gate.contract import Floats, Ints
from gate.ordered import Entries, Ordered, cores
from gate.statistics.binomial import log_all_among
from gate.statistics.floats import from_ordinal, ordinal
from gate.statistics.ties import LEAST_VALUES, LEVEL, Ties, chance_of, seen_from, undivided
from gate.stored import Count, Rate, Section, Size

if TYPE_CHECKING:
    from gate.scores import Scores

SEEN = 0.25  # of the held-out rows; scores that would not show so many copies cannot tell
STRATA = 256
LEAST_ROWS, MOST_ROWS = 1 << 10, 1 << 18  # of each sample, in one stratum
FINE_BITS = 29  # bits of a float64 that a float32 does not have
MARGIN = 16  # floats; half-way points between two float32 are common scores, and those next to them are near too
_SHIFT = (1 << (FINE_BITS - 1)) + MARGIN


class Shared(Section):
    """Scores that rows on both sides have, and what chance says of so many.

    unit            what was divided: rows, or groups, each by its highest score
    n, fit_n        how many are held out and fitted on
    shared          distinct scores that held-out and fit ones have
    expected        how many a random division shares on average
    fewer, more     bounds of the chance that it shares so few, or so many
    repeats         how many rows repeat another of their own sample beyond what is tied by nature, about
    seen_from       the share of held-out rows from which on copies of fit rows would be seen; None where none would
    copies          held-out rows of scores that more than chance put on both sides, about, however often each is there
    tiled           rows, less one for each score, of scores that less than chance put on both sides, about
    """

    unit: Literal["rows", "groups"]
    n: Count
    fit_n: Count
    shared: Count
    expected: Size
    fewer: Rate
    more: Rate
    repeats: Size
    seen_from: Rate | None = None
    copies: Size = 0.0
    tiled: Size = 0.0

    @property
    def shows_copies(self) -> bool:
        """Whether the scores would have shown it if many held-out rows were copies."""
        return self.seen_from is not None and self.seen_from <= SEEN

    @property
    def copied(self) -> int:
        """At least how many held-out rows are copies of fit rows; none if chance shares so many scores.

        A copy always stands on both sides; a pair that is alike by chance does so 2 q (1 - q) of the time. The rest of
        each copy exceeds what is expected. A row that was copied more than once has more rows than its score shows.
        """
        q = self.n / (self.n + self.fit_n)
        once = min(self.shared, round((self.shared - self.expected) / (1 - 2 * q * (1 - q))))
        return max(once if self.more <= LEVEL else 0, round(self.copies))

    @property
    def repeated(self) -> int:
        """About how many rows repeat another of their own sample; none if chance shares so few scores."""
        return round(max(self.repeats if self.fewer <= LEVEL else 0.0, self.tiled))


class Stratum(NamedTuple):
    """Neighbouring rows: `values` counts the values of each size, two or more rows; n of all rows are held out.

    `shared` counts the values on both sides, and `held` the held-out rows with these.
    """

    sizes: Ints
    values: Ints
    shared: Ints
    held: Ints
    n: int
    total: int


def compare_scores(fit: Scores, holdout: Scores) -> Shared:
    """The scores that both samples have, near ones included: equal as float32, or a few floats apart."""
    if not (fit.has_groups and holdout.has_groups):
        found = _compare("rows", fit.ordered, holdout.ordered)
        if not (fit.has_segments and holdout.has_segments) or min(found.fewer, found.more) > LEVEL:
            return found
        return _compare_within_segments(fit, holdout)  # a split that keeps their shares divides otherwise
    # Rows of one group stay together, so groups are what chance divides.
    return _compare("groups", fit.highest_of_groups(), holdout.highest_of_groups())


def compare_keys(fit: Ordered, holdout: Ordered, fit_n: int, n: int) -> Shared:
    """The shared values of rows that are known by a number each; rows left out are like no other row."""
    pieces = list(_pieces(fit, holdout, lambda keys: keys, lambda key: key, MOST_ROWS))
    found = sum(piece.shared for piece in pieces), sum(piece.apart for piece in pieces)
    strata = [_together(pieces)._replace(n=n, total=n + fit_n)] if pieces else []
    return _assess("rows", *found, strata, n, fit_n)


def near_cells(values: Floats) -> Ints:
    """The float32 nearest to each score, as a number, but as precise for tiny and huge ones."""
    return (ordinal(values) + _SHIFT) >> FINE_BITS


def _lowest_near(cell: int) -> float:
    """The lowest float in a cell."""
    return float(from_ordinal(np.array([(cell << FINE_BITS) - _SHIFT]))[0])


def _compare(unit: Literal["rows", "groups"], fit: Ordered, holdout: Ordered) -> Shared:
    total = fit.n + holdout.n
    shared, apart, strata, open_, values = 0, 0, [], [], 0
    for piece in _pieces(fit, holdout, near_cells, _lowest_near, min(max(total // STRATA, LEAST_ROWS), MOST_ROWS)):
        shared, apart = shared + piece.shared, apart + piece.apart
        open_.append(piece)
        values += piece.values
        if values >= LEAST_VALUES:
            strata.append(_together(open_))
            open_, values = [], 0
    strata += [_together(open_)] if open_ else []
    return _assess(unit, shared, apart, strata, holdout.n, fit.n)


class _ValuesOfCut(NamedTuple):
    """Neighbouring rows: how many have each value that more than one has, and how many values there are.

    So many values are `shared`, and so many rows, less one for each value, are `apart`: tied on one side only. `held`
    are the held-out rows of each shared one; none of the others.
    """

    sizes: Ints
    held: Ints
    values: int
    shared: int
    apart: int
    n: int
    total: int


def _together(pieces: list[_ValuesOfCut]) -> Stratum:
    each, held = (np.concatenate(parts) for parts in zip(*((piece.sizes, piece.held) for piece in pieces), strict=True))
    sizes, values = np.unique(each, return_counts=True)
    n, total = sum(piece.n for piece in pieces), sum(piece.total for piece in pieces)
    return Stratum(sizes, values, *_by_size(sizes, each, held), n, total)


def _by_size(sizes: Ints, each: Ints, held: Ints) -> tuple[Ints, Ints]:
    """How many values of each size are on both sides, and the held-out rows with these."""
    places = np.searchsorted(sizes, each)
    shared, rows = (np.bincount(places, part, minlength=len(sizes)) for part in (held > 0, held))
    return shared.astype(np.int64), rows.astype(np.int64)


def _pieces(
    fit: Ordered, holdout: Ordered, cells_of: Callable[[Any], Ints], lowest_of: Callable[[int], Any], rows: int
) -> Iterator[_ValuesOfCut]:
    """Both samples in rising order, so many rows of each at a time, with no value in two pieces.

    Threads work on pieces side by side, because NumPy releases the interpreter.
    """
    with ThreadPoolExecutor(cores()) as pool:
        yield from pool.map(
            lambda cut: _look(fit, holdout, cut, cells_of), _cuts(fit, holdout, cells_of, lowest_of, rows)
        )


class _Cut(NamedTuple):
    """The place of a piece: from one score to below another, and the rows of its last value, which begins there.

    These are counted by where they end, since they may be more than a piece has. `n` rows are held out, of all.
    """

    low: Any
    high: Any
    of_last: list[int]
    n: int
    total: int


def _cuts(
    fit: Ordered, holdout: Ordered, cells_of: Callable[[Any], Ints], lowest_of: Callable[[int], Any], rows: int
) -> Iterator[_Cut]:
    samples, places, low = (fit, holdout), [0, 0], None
    top = max(int(cells_of(sample.at_rank([1]))[0]) for sample in samples if sample.n) if fit.n or holdout.n else 0
    while places != [fit.n, holdout.n]:
        heads = [
            sample.at_rank([sample.n - (place + rows - 1)])
            for sample, place in zip(samples, places, strict=True)
            if place + rows < sample.n
        ]
        last = min((int(cells_of(head)[0]) for head in heads), default=top)
        high, beyond = lowest_of(last), lowest_of(last + 1)
        ends = [sample.n - int(sample.at_or_above(beyond)) for sample in samples]
        of_last = [int(sample.at_or_above(high)) - sample.n + end for sample, end in zip(samples, ends, strict=True)]
        yield _Cut(low, high, of_last, ends[1] - places[1], sum(ends) - sum(places))
        places, low = ends, beyond


def _look(fit: Ordered, holdout: Ordered, cut: _Cut, cells_of: Callable[[Any], Ints]) -> _ValuesOfCut:
    sizes, held = _values([sample.between(cut.low, cut.high) for sample in (fit, holdout)], cells_of)
    of_last = sum(cut.of_last)
    values = cut.total - of_last - int(sizes.sum()) + len(sizes) + 1
    if of_last > 1:
        sizes, held = np.append(sizes, of_last), np.append(held, cut.of_last[1])
    split = (held > 0) & (held < sizes)
    apart = int((sizes - 1)[~split].sum())
    return _ValuesOfCut(sizes, np.where(split, held, 0), values, int(split.sum()), apart, cut.n, cut.total)


def _values(parts: list[Entries], cells_of: Callable[[Any], Ints]) -> tuple[Ints, Ints]:
    """The rows of each value that several rows have, in rising order, and the held-out rows among them."""
    sides = [cells_of(values) << 1 for values, _ in parts]
    sides[1] |= 1
    merged = np.concatenate(sides)
    if all(counts is None for _, counts in parts):
        merged.sort(kind="stable")  # a merge of two rising runs
        same = np.zeros(len(merged) + 1, dtype=np.int8)
        np.less(merged[1:] ^ merged[:-1], 2, out=same[1:-1], casting="unsafe")
        edges = np.flatnonzero(np.diff(same)).reshape(-1, 2)
        held = np.concatenate([[0], np.cumsum(merged & 1)])
        return edges[:, 1] - edges[:, 0] + 1, held[edges[:, 1] + 1] - held[edges[:, 0]]
    rows = np.concatenate([np.ones(len(values), np.int64) if counts is None else counts for values, counts in parts])
    order = np.argsort(merged, kind="stable")
    merged, rows = merged[order], rows[order]
    starts = np.flatnonzero(np.diff(merged >> 1, prepend=-1)) if len(merged) else np.empty(0, dtype=np.int64)
    sizes, held = (np.add.reduceat(part, starts) if len(starts) else part for part in (rows, rows * (merged & 1)))
    return sizes[sizes > 1], held[sizes > 1]


def _assess(
    unit: Literal["rows", "groups"], shared: int, apart: int, strata: list[Stratum], n: int, fit_n: int
) -> Shared:
    """Compare the shared values with a random division in every stratum."""
    divided = [stratum for stratum in strata if len(stratum.sizes) and 0 < stratum.n < stratum.total]
    parts = [_chances_of(stratum) for stratum in divided]
    sizes, values, on_both, loss = (np.concatenate([part[i] for part in parts] or [np.empty(0)]) for i in range(4))
    tied = sum(int(stratum.sizes @ stratum.values) for stratum in strata)
    ties = Ties(sizes, values, on_both, n + fit_n - tied)
    expected = math.fsum(values * on_both)
    q = n / (n + fit_n)
    lost = (math.fsum(values * loss) + ties.single * 2 * q * (1 - q)) / (n + fit_n)
    doubled = sum(int((stratum.sizes - 1) @ stratum.values) for stratum in strata)
    few_copies = min(max(expected - shared, 0.0) / lost, doubled) if lost > 0 else 0.0
    many_copies = apart - math.fsum(values * (sizes - 1) * (1 - on_both))
    found = (np.concatenate([np.empty(0), *(part[i] for part in divided)]) for i in (2, 3))
    not_divided = _undivided(sizes, values, values * on_both, *found)
    return _describe(unit, shared, expected, max(few_copies, many_copies), ties, not_divided, n, fit_n)


def _undivided(sizes: Floats, *parts: Floats) -> tuple[float, float]:
    """The rows of values that chance did not divide: held-out rows of values on both sides, and repeats on one side.

    The parts are, for some values of each size: how many there are, how many chance shares, how many are shared, and
    their held-out rows.
    """
    each, places = np.unique(sizes, return_inverse=True)
    values, on_both, shared, held = (np.bincount(places, part, len(each)).astype(np.float64) for part in parts)
    both, one = undivided(values, on_both, shared)
    return math.fsum(both * held / np.maximum(shared, 1)), math.fsum(one * (each - 1))


def _describe(
    unit: Literal["rows", "groups"],
    shared: int,
    expected: float,
    repeats: float,
    ties: Ties,
    not_divided: tuple[float, float],
    n: int,
    fit_n: int,
) -> Shared:
    """What is shared, how likely a random division shares no more or no less, and from which share on copies show."""
    chance = chance_of(shared, ties)
    return Shared(
        unit=unit,
        n=n,
        fit_n=fit_n,
        shared=shared,
        expected=expected,
        fewer=chance if shared < expected else 1.0,
        more=1.0 if shared < expected else chance,
        repeats=repeats,
        seen_from=seen_from(ties, n, fit_n),
        copies=min(not_divided[0], n),
        tiled=min(not_divided[1], n + fit_n),
    )


def _chances_of(stratum: Stratum) -> tuple[Floats, Floats, Floats, Floats]:
    """Each size c, how many values have it, the chance that one is on both sides, and its loss by repeats.

    A row that repeats one of c others stays with it: the rows are divided like c rows, but counted as c + 1.
    """
    sizes, values, _, _, n, total = stratum
    q = n / total
    whole, none = _all_of(sizes, n, total), _all_of(sizes, total - n, total)
    on_both = np.clip(1 - whole - none, 0.0, 1.0)
    loss = sizes * (whole * (1 - q) + none * q)
    return sizes.astype(np.float64), values.astype(np.float64), on_both, loss


def _all_of(sizes: Ints, n: int, total: int) -> Floats:
    """The chance that all rows of a value are among n of all."""
    longest = min(int(sizes.max()), n, math.ceil(-700 / math.log(n / total)) + 1)  # beyond this size the chance is zero
    drawn = np.arange(longest)
    logs = np.concatenate([[0.0], np.cumsum(np.log((n - drawn) / (total - drawn)))])
    return np.where(sizes <= longest, np.exp(logs[np.minimum(sizes, longest)]), 0.0)


# --- within segments ----------------------------------------------------------------------------------------

LEAST_CELL = 64  # rows of a segment in a stratum; with fewer, the divisions of values depend on one another


def _compare_within_segments(fit: Scores, holdout: Scores) -> Shared:
    """The shared values of rows in segments: each segment is divided by itself, in the share that it has.

    A split that keeps every segment's share leaves tied rows of a small segment on both sides far oftener than a
    division of all rows would. The division of rows in cells that are too small is taken as given.
    """
    from gate.scores import number_alike

    numbers = number_alike([fit.segment_names, holdout.segment_names])
    codes = np.concatenate([number[part.segments] for number, part in zip(numbers, (fit, holdout), strict=True)])
    of_segment = np.bincount(codes), np.bincount(codes[len(fit) :], minlength=int(codes.max()) + 1)
    one_sided = (of_segment[1] == 0) | (of_segment[1] == of_segment[0])  # no split kept their share
    codes = np.where(one_sided, len(one_sided), np.arange(len(one_sided)))[codes]
    cells = near_cells(np.concatenate([fit.values, holdout.values]))
    held = np.arange(len(cells)) >= len(fit)
    order = np.argsort(cells, kind="stable")
    starts = np.flatnonzero(np.diff(cells[order], prepend=cells[order[0]] - 1))
    value = np.empty(len(cells), dtype=np.int64)
    value[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(cells)))
    least = 4 * LEAST_CELL * len(np.unique(codes))
    cell = _strata_of(starts, len(cells), least)[value] * (int(codes.max()) + 1) + codes
    rows, held_rows = np.bincount(cell), np.bincount(cell, held)
    sizes, held_of = np.bincount(value), np.bincount(value, held)
    tied = np.flatnonzero(sizes[value] > 1)
    key, places = np.unique(value[tied] * len(rows) + cell[tied], return_inverse=True)
    of_cell, of_value, c = key % len(rows), key // len(rows), np.bincount(places)
    fell, small = np.bincount(places, held[tied]), rows[of_cell] < LEAST_CELL
    with np.errstate(divide="ignore"):
        as_fell = np.log(fell == c), np.log(fell == 0)
    whole = np.where(small, as_fell[0], log_all_among(c, held_rows[of_cell], rows[of_cell]))
    none = np.where(small, as_fell[1], log_all_among(c, rows[of_cell] - held_rows[of_cell], rows[of_cell]))
    first = np.flatnonzero(np.diff(of_value, prepend=-1)) if len(of_value) else np.empty(0, dtype=np.int64)
    whole, none = (np.exp(np.add.reduceat(logs, first)) if len(first) else np.empty(0) for logs in (whole, none))
    numbered = of_value[first]
    on_both = np.clip(1 - whole - none, 0.0, 1.0)
    split = (held_of[numbered] > 0) & (held_of[numbered] < sizes[numbered])
    n, fit_n = len(holdout), len(fit)
    rows_of = sizes[numbered]
    ties = _alike(rows_of, on_both, int(np.sum(sizes == 1)))
    shared, expected = int(split.sum()), math.fsum(on_both)
    apart = int((rows_of - 1)[~split].sum())
    repeats = max(apart - math.fsum((rows_of - 1) * (1 - on_both)), 0.0)
    not_divided = _undivided(rows_of, np.ones(len(rows_of)), on_both, split, np.where(split, held_of[numbered], 0))
    return _describe("rows", shared, expected, repeats, ties, not_divided, n, fit_n)


def _alike(sizes: Ints, on_both: Floats, single: int) -> Ties:
    """Values by size and chance; values whose chances differ by less than 1e-5 are joined."""
    _, places = np.unique(sizes * 100_001 + np.round(on_both * 100_000).astype(np.int64), return_inverse=True)
    values = np.bincount(places).astype(np.float64)
    means = (np.bincount(places, part) / values for part in (sizes, on_both))
    return Ties(next(means), values, next(means), single)


def _strata_of(starts: Ints, total: int, least: int) -> Ints:
    """The stratum of each value: neighbouring values with at least so many rows and enough values, as elsewhere."""
    rows = max(min(max(total // STRATA, LEAST_ROWS), MOST_ROWS), least)
    strata = np.zeros(len(starts), dtype=np.int64)
    place = 0
    while total - starts[place] >= 2 * rows:
        place = max(place + LEAST_VALUES, int(np.searchsorted(starts, starts[place] + rows)))
        if len(starts) - place < LEAST_VALUES or total - starts[place] < rows:
            break
        strata[place] = 1
    return np.cumsum(strata)
