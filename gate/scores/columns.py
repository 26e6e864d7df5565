"""The columns: scores, names and times of the rows that are taken, each checked in full before any is used."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gate.contract import Floats, Mask
from gate.errors import GateError
from gate.scores.formats import File
from gate.scores.wording import NUMBER, name_rows, reason_of, shorten, show, type_of
from gate.sketch import hash_each
from gate.stored import MOST_ROWS
from gate.words import plural

DIGESTED = 1 << 16  # ids in one piece of the digest; another number would change every digest


def decode(column: Any) -> Any:
    """Return a column in Arrow's plain form: without a dictionary, and with one type for every kind of text."""
    if isinstance(column, np.ndarray):
        try:
            native = column.dtype.newbyteorder("=")
            if native == np.float16:  # older Arrow can hold this type but not cast it
                native = np.dtype(np.float32)
            column = pa.chunked_array([pa.array(column.astype(native))])
        except (TypeError, ValueError) as error:  # a type that Arrow does not know, or text that is not Unicode
            raise pa.ArrowInvalid(str(error)) from None
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column.type):
        column = column.cast(pa.string())
        column.validate(full=True)  # Arrow does not check on reading that text is UTF-8
    return column


def _is_text(kind: Any) -> bool:
    """Compare the type by its name: the oldest supported Arrow has no view types to compare with."""
    text = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return str(kind) in text or pa.types.is_fixed_size_binary(kind)


def read_names(column: Any, name: str, file: File, taken: Mask | None) -> Any:
    """Read ids as text, one for every row that is taken."""
    return _of_taken(_as_text(column, name, file), name, file, taken)


def read_codes(column: Any, name: str, file: File, taken: Mask | None) -> Any:
    """Read the group or segment of every row that is taken: numbers, and the names that they stand for."""
    is_coded = isinstance(column, pa.ChunkedArray) and pa.types.is_dictionary(column.type)
    chunks = column.chunks if is_coded else []
    kinds = [_as_text(pa.chunked_array([chunk.dictionary]), name, file).combine_chunks() for chunk in chunks]
    # A dictionary may hold one name twice, which would part what belongs together, or none in the place of a name.
    if is_coded and all(kind.null_count == 0 and len(kind.unique()) == len(kind) for kind in kinds):
        parts = zip(chunks, kinds, strict=True)
        coded = [pa.DictionaryArray.from_arrays(chunk.indices.cast(pa.int32()), kind) for chunk, kind in parts]
    else:
        coded = _as_text(column, name, file).dictionary_encode().chunks
    kind = pa.dictionary(pa.int32(), pa.string())
    return _of_taken(pa.chunked_array(coded, kind), name, file, taken)


def _as_text(column: Any, name: str, file: File) -> Any:
    try:
        plain = decode(column)
        if pa.types.is_floating(plain.type):  # float columns often hold NaN for a missing value
            plain = pc.if_else(pc.is_nan(plain), None, plain)
        text = plain.cast(pa.string())
    except pa.ArrowException:
        raise GateError(f"{file}: column {name!r} must hold words or numbers, got {type_of(column)}") from None
    empty = pc.equal(text, "") if file.is_text else None  # text writes a missing value as an empty one
    return text if empty is None or not pc.any(empty).as_py() else pc.if_else(empty, None, text)


def _of_taken(text: Any, name: str, file: File, taken: Mask | None) -> Any:
    text = text if taken is None else text.filter(pa.array(taken))
    missing = text.is_null().to_numpy() if text.null_count else np.zeros(1, dtype=bool)
    if missing.any():
        raise GateError(
            f"{file}: column {name!r} must name every row, got none in {name_rows(missing, taken)}; name or remove them"
        )
    return text


def sort_names(names: Any) -> NDArray[np.int64]:
    """The places of names in their own rising order."""
    return np.asarray(pc.sort_indices(names).to_numpy(), dtype=np.int64)


def order_names(names: Any) -> NDArray[np.int64]:
    """The places of names in the order of their hashes, in which they can be spread over files."""
    hashes = hash_each(*text_buffer(names))
    order = np.argsort(hashes, kind="stable")
    if len(order) and (hashes[order][1:] == hashes[order][:-1]).any():
        by_name = sort_names(names)
        order = by_name[np.argsort(hashes[by_name], kind="stable")]
    return order


def number_names(
    parts: list[Any], in_order: Callable[[Any], NDArray[np.int64]] = sort_names
) -> tuple[NDArray[np.int64] | None, Any]:
    """A number for each row's name and the names in order, over all files and whatever the order of rows."""
    if parts[0] is None:
        return None, None
    together = pa.chunked_array([chunk for part in parts for chunk in part.chunks], type=parts[0].type)
    encoded = together.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # older Arrow returns chunks
        encoded = pa.concat_arrays(encoded.chunks)
    used = np.bincount(encoded.indices.to_numpy(), minlength=len(encoded.dictionary)) > 0
    names = encoded.dictionary.filter(pa.array(used))  # a dictionary may hold names that no row has
    order = in_order(names)
    rank = np.empty(len(used), dtype=np.int64)
    rank[np.flatnonzero(used)[order]] = np.arange(len(order))
    return rank[encoded.indices.to_numpy()], names.take(pa.array(order)).cast(pa.large_string())


_UNITS = (("s", 1e11), ("ms", 1e14), ("us", 1e17), ("ns", 1e20))  # a number's size tells its unit, from 1973 to 5138


def read_times(column: Any, name: str, file: File, taken: Mask | None) -> NDArray[np.int64]:
    """Read when each taken row was seen, in microseconds since 1970; a time without a zone is UTC."""
    must = f"{file}: column {name!r} must hold times such as 2026-11-01T12:00:00Z or seconds since 1970"
    try:
        times = decode(column)
        times = times if taken is None else times.filter(pa.array(taken))
        missing = times.is_null(nan_is_null=True).to_numpy()
        if not missing.any():
            return np.asarray(_microseconds(times).to_numpy(), dtype=np.int64)
    except (pa.ArrowException, ValueError) as error:
        raise GateError(f"{must}, got {type_of(column)}: {reason_of(error)}") from None
    raise GateError(f"{must}, got none in {name_rows(missing, taken)}; date or remove these rows")


def _microseconds(times: Any) -> Any:
    if pa.types.is_string(times.type):
        zoned = pc.match_substring_regex(times, r"(Z|[-+]\d\d:?\d\d)$")
        times = times.cast(pa.timestamp("us", "UTC" if pc.all(zoned).as_py() else None))
    elif pa.types.is_integer(times.type) or pa.types.is_floating(times.type):
        largest = float(pc.max(pc.abs(times)).as_py() or 0)
        unit = next((unit for unit, limit in _UNITS if largest < limit), None)
        if unit is None:
            raise ValueError(f"a number as large as {largest:g}")
        scale = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}[unit]
        return pc.floor(pc.multiply(times.cast(pa.float64(), safe=False), scale)).cast(pa.int64())
    return times.cast(pa.timestamp("us", getattr(times.type, "tz", None)), safe=False).cast(pa.int64())


def join_names(columns: list[Any]) -> Any:
    """Join the columns of all files into one array of text."""
    together = pa.chunked_array([chunk for part in columns for chunk in part.chunks], type=pa.string())
    return together.cast(pa.large_string()).combine_chunks()


def shared_names(some: Any, others: Any) -> NDArray[np.bool_]:
    """Mark the names (ids or groups) that are also among the others."""
    return np.asarray(pc.is_in(some, value_set=others.cast(some.type)), dtype=bool)


def number_alike(names: list[Any]) -> list[NDArray[np.int64]]:
    """Number the names of each list; the same name has the same number in every list."""
    texts = [pa.array(part, pa.large_string()) if isinstance(part, tuple) else part for part in names]
    codes = pa.chunked_array(texts).combine_chunks().dictionary_encode().indices.to_numpy()
    return np.split(np.asarray(codes, dtype=np.int64), np.cumsum([len(text) for text in texts])[:-1])


def digest_names(parts: Iterable[Any], n: int) -> str:
    """The digest of so many rows by their ids, given in the order of their hashes, in whatever parts.

    SHA-256 over the number of rows and the digests of so many ids after so many, each over their lengths and texts.
    """
    whole, open_ = hashlib.sha256(n.to_bytes(8, "little")), pa.array([], pa.large_string())
    for part in parts:
        open_ = pa.concat_arrays([open_, part.cast(pa.large_string())])
        full = len(open_) // DIGESTED * DIGESTED
        for start in range(0, full, DIGESTED):
            whole.update(_digest(open_.slice(start, DIGESTED)))
        open_ = open_.slice(full)
    whole.update(_digest(open_))
    return whole.hexdigest()


def _digest(ids: Any) -> bytes:
    ends, text = text_buffer(ids)
    digest = hashlib.sha256(np.diff(ends).astype("<i8", copy=False).data)
    digest.update(text[ends[0] : ends[-1]])
    return digest.digest()


def text_buffer(names: Any) -> tuple[NDArray[np.int64], memoryview]:
    """The texts one behind the other, and where each ends: the i-th is from `ends[i]` to `ends[i + 1]`."""
    wide = names.cast(pa.large_string())
    _, offsets, text = wide.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    return ends, memoryview(text or b"")


def read_counts(column: Any, name: str, file: File) -> NDArray[np.int64]:
    """Read how many rows each row stands for."""
    must = f"{file}: column {name!r} must hold whole numbers of rows"
    try:
        counts = decode(column)
        kind = counts.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise pa.ArrowTypeError("")
        values = np.asarray(round_decimals(counts).cast(pa.float64(), safe=False).fill_null(-1.0).to_numpy())
    except pa.ArrowException:
        raise GateError(f"{must}, got {type_of(column)}; write what COUNT(*) gives") from None
    wrong = ~((values >= 0) & (values <= MOST_ROWS) & (values == np.floor(values)))
    if wrong.any():
        got = show(counts[int(np.flatnonzero(wrong)[0])].as_py())
        raise GateError(f"{must}, got {got} in {name_rows(wrong, None)}; write what COUNT(*) gives")
    if values.sum() > MOST_ROWS:
        raise GateError(f"{must}, at most {MOST_ROWS:,} in all, got more; look whether the column holds counts")
    return values.astype(np.int64)


def to_float64(column: Any, name: str, file: File, taken: Mask | None) -> list[Floats]:
    """Read the scores in the pieces in which they lie; pieces that are float64 already are not copied."""
    if len(column) == 0:
        return []
    wrong = f"{file}: column {name!r} must hold numbers, got {type_of(column)} in {plural(len(column), 'row')}"
    if isinstance(column, np.ndarray):
        if column.dtype.kind not in "fiu" or column.dtype.itemsize > 8:
            raise GateError(f"{wrong}; save the scores as float64")
        return [np.asarray(column if taken is None else column[taken], dtype=np.float64)]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if _is_text(kind):
        _refuse_text(column, name, file)
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)) and (
        column.null_count < len(column)
    ):
        raise GateError(f"{wrong}; write the scores as floats")
    if taken is not None:
        column = column.filter(pa.array(taken))
    if column.null_count:
        nulls = column.is_null().to_numpy()
        raise GateError(
            f"{file}: column {name!r} must hold a score in every row, got none in {name_rows(nulls, taken)}; "
            "remove or score these rows"
        )
    chunks = round_decimals(column).chunks
    return [np.asarray(chunk.to_numpy(zero_copy_only=False), dtype=np.float64) for chunk in chunks]


def read_served(column: Any, name: str, file: File, taken: Mask | None) -> list[Floats]:
    """The calibrated scores that were served, whatever they are; one that was not, or is no number, reaches nothing."""
    if isinstance(column, pa.ChunkedArray) and column.null_count:
        with contextlib.suppress(pa.ArrowException):  # the next line gives a better message
            column = decode(column).cast(pa.float64()).fill_null(np.nan)
    return [np.where(np.isnan(chunk), -np.inf, chunk) for chunk in to_float64(column, name, file, taken)]


def round_decimals(column: Any) -> Any:
    """Exact decimals as their nearest floats, like the same digits in a CSV; Arrow's direct cast may miss by one."""
    return column.cast(pa.string()).cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def _refuse_text(column: Any, name: str, file: File) -> None:
    column = column.cast(pa.binary())  # the bytes need not be UTF-8
    bad = ~pc.match_substring_regex(column, NUMBER).fill_null(False).to_numpy()
    bad = bad if bad.any() else ~bad  # numbers written as text are wrong in every row
    example = show(column[int(np.flatnonzero(bad)[0])].as_py())
    raise GateError(
        f"{file}: column {name!r} must hold numbers, got {example} in {name_rows(bad, None)}; "
        "remove these rows or write them as numbers"
    )


OWN_DOMAIN = "set calibration.domain to the detector's range, or remove these rows"
CALIBRATED = "give calibrated scores, or leave out --calibrated"


def refuse_outside(
    pieces: list[Floats],
    name: str,
    domain: tuple[float, float],
    file: File,
    taken: Mask | None,
    hint: str = OWN_DOMAIN,
) -> None:
    low, high = domain
    step = 1 << 16  # this many stay in the processor's cache, so that each score is loaded once
    parts = (piece[start : start + step] for piece in pieces for start in range(0, len(piece), step))
    if all(low <= part.min() and part.max() <= high for part in parts):  # NaN makes both comparisons false
        return
    values = np.concatenate(pieces)
    not_a_number = np.isnan(values)
    if not_a_number.any():
        raise GateError(
            f"{file}: column {name!r} must hold numbers, got NaN in {name_rows(not_a_number, taken)}; "
            "remove or score these rows"
        )
    outside = ~((values >= low) & (values <= high))
    first = values[np.flatnonzero(outside)[0]]
    raise GateError(
        f"{file}: column {name!r} must lie in the domain [{shorten(low)}, {shorten(high)}], got {shorten(first)} "
        f"in {name_rows(outside, taken)}; {hint}"
    )
