"""Float64 values in order, as integers that count the representable numbers. Pure functions of numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gate.contract import Floats


def ordinal(values: Floats) -> NDArray[np.int64]:
    """Integers in the order of the floats: neighbours differ by one."""
    bits = np.asarray(values, dtype=np.float64).view(np.int64)
    return np.where(bits < 0, np.int64(-(2**63)) - bits, bits)


def from_ordinal(ordinals: NDArray[np.int64]) -> Floats:
    return np.where(ordinals < 0, np.int64(-(2**63)) - ordinals, ordinals).view(np.float64)
