"""Several detectors in one release: it judges each as if it were alone, then all of them together."""

from gate.systems.detector import thresholds_at
from gate.systems.past import Past, compare_systems, read_past, read_stored_system
from gate.systems.release import SystemRelease, gate_system, run_system
from gate.systems.rows import SystemRows

__all__ = [
    "Past",
    "SystemRelease",
    "SystemRows",
    "compare_systems",
    "gate_system",
    "read_past",
    "read_stored_system",
    "run_system",
    "thresholds_at",
]
