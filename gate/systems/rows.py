"""The rows of several detectors: for each sample the panels of files that they share; it judges nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gate.errors import GateError
from gate.policy import Policy
from gate.scores import Scores, kind_of, split
from gate.scores.several import Panel, gather_panels, panel_of, reading_panel, views_of
from gate.sources import Split


@dataclass(frozen=True)
class SystemRows:
    """All rows of a release: for each sample the panels of files that detectors share.

    `splits` says for each detector how one sample was divided, if it was.
    """

    fit: Sequence[Panel]
    holdout: Sequence[Panel]
    malicious: Sequence[Panel] = ()
    splits: Mapping[str, Split] = field(default_factory=dict)

    @property
    def largest(self) -> int:
        """The rows of the largest sample."""
        panels = [*self.fit, *self.holdout, *self.malicious]
        return max((len(sample) for panel in panels for sample in panel.samples.values()), default=0)

    @property
    def names(self) -> set[str]:
        """The detectors that have rows to be judged on."""
        return {name for panel in self.holdout for name in panel.samples}

    def joined_by(self, others: SystemRows) -> SystemRows:
        """Keep of all batches so far how their rows go together, without the scores."""
        return SystemRows(
            (), gather_panels(self.holdout, others.holdout), gather_panels(self.malicious, others.malicious)
        )

    def of(self, name: str) -> tuple[Scores | None, Scores, Scores | None]:
        """Return one detector's samples."""
        fit, holdout, malicious = (_sample(panels, name) for panels in (self.fit, self.holdout, self.malicious))
        if holdout is None:
            raise GateError(f"{name}: must have held-out rows, got none; give --holdout or its own in `detectors`")
        return fit, holdout, malicious


def _sample(panels: Sequence[Panel], name: str) -> Scores | None:
    return next((panel.samples[name] for panel in panels if name in panel.samples), None)


def split_panels(
    panels: Sequence[Panel], fraction: float, seed: int
) -> tuple[list[Panel], list[Panel], dict[str, Split]]:
    """Divide one sample of every detector in two; a row goes to the same side for all that have scored it."""
    fit, holdout, how = [], [], {}
    for panel in panels:
        sides = {}
        for name, scores in panel.samples.items():
            *both, how[name] = split(scores, fraction, seed)
            sides[name] = both[0], both[1]
        parts = panel.divided(sides)
        fit.append(parts[0])
        holdout.append(parts[1])
    return fit, holdout, how


def panels_of(data: Any, sample: str, policies: Mapping[str, Policy]) -> list[Panel]:
    """Make the panels of a sample that Python code gives."""
    if data is None:
        return []
    own = data if isinstance(data, Mapping) and data.keys() <= policies.keys() else None
    parts = [(views_of(sample, [name], policies), value) for name, value in own.items()] if own else []
    panels = []
    for views, value in parts or [(views_of(sample, policies, policies), data)]:
        paths = [value] if isinstance(value, str | os.PathLike) else value
        if isinstance(paths, list | tuple) and paths and all(isinstance(path, str | os.PathLike) for path in paths):
            with reading_panel([os.fspath(path) for path in paths], views, kind_of(sample)) as panel:
                panels.append(panel())
        else:
            panels.append(panel_of(value, sample, views, kind_of(sample)))
    return panels
