"""A sketch of a set: its smallest hashes, which give the share that another set has in common. No judgement.

Broder, "On the resemblance and containment of documents" (1997): the smallest hashes are a random sample of the set,
and every run takes the same sample. Hashes (the first half of MD5) depend on the elements alone: not on the order of
rows, the file format or the engine. They are no secret: a person who can guess an id can look for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gate.rows.engine import Reply, values

SIZE = 1024  # hashes of 8 bytes
AT_ONCE = 50_000  # hashes that one question looks for

Hashes = NDArray[np.uint64]


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


@dataclass(frozen=True)
class Named:
    """What names the rows of a sample: its ids, or its distinct scores.

    ask    answers one question; `rows` is what stands after FROM, and `sql` gives the text of one name
    """

    ask: Callable[[str], Reply]
    rows: str
    sql: str

    @cached_property
    def sketch(self) -> Sketch:
        hashed = f"SELECT DISTINCT {self._hash} AS h FROM {self.rows}"
        lowest = self.ask(f"SELECT h FROM ({hashed}) AS d ORDER BY 1 LIMIT {SIZE}")["h"]
        found = np.array([int(str(each), 16) for each in lowest.tolist()], dtype="<u8")
        n = (
            len(found)
            if len(found) < SIZE
            else int(self.ask(f"SELECT count(DISTINCT {self.sql}) AS n FROM {self.rows}")["n"][0])
        )
        return Sketch(n, found.tobytes())

    @property
    def _hash(self) -> str:
        return f"substr(md5({self.sql}), 1, 16)"

    def holds(self, hashes: Hashes) -> Hashes:
        """Those of some hashes that elements of this set have."""
        found: list[int] = []
        for start in range(0, len(hashes), AT_ONCE):
            wanted = [f"{each:016x}" for each in hashes[start : start + AT_ONCE].tolist()]
            asked = f"SELECT DISTINCT {self._hash} AS h FROM {self.rows}"
            answer = self.ask(f"SELECT d.h FROM ({asked}) AS d JOIN {values({'h': wanted})} ON d.h = w.h")
            found += [int(str(each), 16) for each in answer["h"].tolist()]
        return np.array(sorted(found), dtype=np.uint64)


def share(known: Sketch, other: Sketch, holds: Callable[[Hashes], Hashes]) -> float | None:
    """The share of the smaller set in common, for one set known by its sketch and one that can be asked.

    Up to the largest hash of the sketch all elements of the known set are known. Those of the smaller set are a random
    sample of it, and the function counts how many are in the other set. It gives None if the sample is empty.
    """
    some = known.hashes
    if known.n <= other.n:
        sampled = float(len(some))
    elif known.n <= SIZE:
        sampled = float(other.n)
    else:
        sampled = float(np.count_nonzero(other.hashes <= some[-1]))
        if sampled == SIZE < other.n:  # there are more of them than its own sketch shows
            sampled = other.n * float(some[-1]) / 2.0**64
    shared = len(holds(some))
    return min(shared / sampled, 1.0) if sampled else None
