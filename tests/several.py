"""Simulated detectors that score the same rows: independent, or as alike as `rho` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from scipy.special import ndtr

POLICY = """\
version: 1
name: several
targets:
  - {{fpr: 10%, min_n: 1000, max_relative_error: 0.5}}
  - {{fpr: 1%, min_n: 5000, max_relative_error: 0.5}}
data: {{id: id}}
detectors:
{detectors}
system:
  - {{score: 0.3, max_fpr: {limit}, min_n: 5000}}
"""


def policy(names: Sequence[str], limit: str = "10%", more: Mapping[str, str] | None = None, end: str = "") -> str:
    """A policy in which the detector NAME reads the column `NAME_score`; `more` is what some have of their own."""
    own = {name: f", {(more or {})[name]}" if name in (more or {}) else "" for name in names}
    entries = "\n".join(f'  - {{name: "{name}", score: "{name}_score"{own[name]}}}' for name in names)
    return POLICY.format(detectors=entries, limit=limit) + end


def simulate(
    n: int, names: Sequence[str], seed: int, rho: float = 0.0, shift: Mapping[str, float] | None = None
) -> pa.Table:
    """Scores in (0, 1) of n rows by each detector; `shift` makes a detector's scores higher."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(n)
    columns: dict[str, object] = {"id": [f"{seed}-{i}" for i in range(n)]}
    for name in names:
        latent = np.sqrt(rho) * common + np.sqrt(1 - rho) * rng.standard_normal(n)
        columns[f"{name}_score"] = ndtr(latent + (shift or {}).get(name, 0.0))
    return pa.table(columns)
