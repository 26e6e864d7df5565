"""A sketch of a set: its smallest hashes, which give the share that another set has in common. No judgement.

Broder, "On the resemblance and containment of documents" (1997): the smallest hashes are a random sample of the set,
and every run takes the same sample. Hashes depend on the elements alone: not on the order of rows, the file format or
the machine. They are no secret: a person who can guess an id can look for it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gate.contract import Floats
from gate.ordered import Ordered

SIZE = 1024  # hashes of 8 bytes
PIECE = 1 << 20  # rows hashed at a time
LONGEST = 64  # bytes of a text that are hashed 8 at a time; longer ones, which are few as a rule, one by one

Hashes = NDArray[np.uint64]
_SEED = np.uint64(0x9E3779B97F4A7C15)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Sketch:
    """The smallest hashes of a set of n elements in rising order, at most SIZE, packed as little-endian bytes."""

    n: int
    packed: bytes

    @property
    def hashes(self) -> Hashes:
        return np.frombuffer(self.packed, dtype="<u8").astype(np.uint64, copy=False)

    @property
    def possible(self) -> bool:
        """Whether a set can have this sketch."""
        hashes = self.hashes if len(self.packed) % 8 == 0 else np.empty(0, dtype=np.uint64)
        return self.n > 0 and len(hashes) == min(self.n, SIZE) and bool(np.all(hashes[1:] > hashes[:-1]))


def sketch(hashes: Ordered) -> Sketch:
    """The sketch of a set, from all its hashes in rising order."""
    lowest = hashes.at_rank(hashes.n - np.arange(min(hashes.n, SIZE)))
    return Sketch(hashes.n, lowest.astype("<u8", copy=False).tobytes())


def share(known: Sketch, ordered: Ordered) -> float | None:
    """The share of the smaller set in common, for one set known by its sketch and one by all of its hashes.

    Up to the largest hash of the sketch all elements of both sets are known. Those of the smaller set are a random
    sample of it, and the function counts how many are in the other set. It gives None if the sample is empty.
    """
    some = known.hashes
    from_, beyond = ordered.at_or_above(some), ordered.at_or_above(np.minimum(some, _ALL - np.uint64(1)) + np.uint64(1))
    until = ordered.n if known.n <= SIZE else ordered.n - int(beyond[-1])
    shared = int(np.count_nonzero(from_ > beyond))
    sampled = len(some) if known.n <= ordered.n else until
    return shared / sampled if sampled else None


def hash_scores(scores: Floats, occurrence: NDArray[np.int64]) -> Hashes:
    """The hashes of rows by their scores, and by how many of the same score came before each in its sample.

    The i-th row with a score is an element of its own. So two sets share as many rows as can be paired by score.
    """
    bits = np.ascontiguousarray(scores, dtype=np.float64).view(np.uint64)
    return mix(mix(bits ^ _SEED) + occurrence.astype(np.uint64))


def hash_each(ends: NDArray[np.int64], text: bytes | memoryview) -> Hashes:
    """The hash of each of some texts, which lie one behind the other: text i from `ends[i]` to `ends[i + 1]`."""
    pieces = [_hash_piece(ends[i : i + PIECE + 1], text) for i in range(0, len(ends) - 1, PIECE)]
    return np.concatenate([np.empty(0, dtype=np.uint64), *pieces])


def _hash_piece(ends: NDArray[np.int64], text: bytes | memoryview) -> Hashes:
    first, last = int(ends[0]), int(ends[-1])
    padded = np.frombuffer(bytes(text[first:last]) + bytes(8), dtype=np.uint8)
    words = np.ndarray(len(padded) - 7, dtype="<u8", buffer=padded, strides=(1,))  # 8 bytes from any place on
    starts, lengths = ends[:-1] - first, np.diff(ends)
    hashes = mix(lengths.astype(np.uint64) ^ _SEED)
    short = lengths <= LONGEST
    for done in range(0, LONGEST, 8):
        rows = np.flatnonzero(short & (lengths > done))
        unused = 8 * np.maximum(8 - (lengths[rows] - done), 0).astype(np.uint64)
        hashes[rows] = mix(hashes[rows] ^ (words[starts[rows] + done] & (_ALL >> unused)))
    for row in np.flatnonzero(~short):
        digest = hashlib.sha256(padded[starts[row] : starts[row] + lengths[row]].data).digest()
        hashes[row] = int.from_bytes(digest[:8], "little")
    return hashes


def mix(values: Hashes) -> Hashes:
    """A bijection that spreads every bit over all 64: the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
