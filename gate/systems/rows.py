"""The rows of several detectors, sample by sample; it judges nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gate.errors import GateError
from gate.rows.sample import Sample
from gate.rows.together import Several
from gate.sources import Split


@dataclass(frozen=True)
class SystemRows:
    """All rows of a release; `split` says how one sample was divided, if it was."""

    holdout: Several
    fit: Several = field(default_factory=Several)
    malicious: Several = field(default_factory=Several)
    split: Split | None = None

    @classmethod
    def read(cls, ask: Callable[[str], Several], split: tuple[float, int] | None) -> SystemRows:
        """Ask for the samples by their names, and divide the benign one where there is one for both."""
        if split is None:
            return cls(ask("holdout"), ask("fit"), ask("malicious"))
        fit, holdout, how = ask("benign").split(*split)
        return cls(holdout, fit, ask("malicious"), how)

    def of(self, name: str) -> tuple[Sample | None, Sample, Sample | None]:
        """One detector's samples."""
        if name not in self.holdout.samples:
            raise GateError(f"{name}: must have held-out rows, got none; give --holdout or its own in `detectors`")
        return self.fit.samples.get(name), self.holdout.samples[name], self.malicious.samples.get(name)

    def forget_order(self, name: str) -> None:
        """Give back the memory that the scores of one detector take."""
        for part in (self.fit, self.holdout, self.malicious):
            sample = part.samples.get(name)
            if sample is not None:
                sample.forget_order()
                if sample.pool is not None:
                    sample.pool.forget_order()
