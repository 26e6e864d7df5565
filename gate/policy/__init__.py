"""The policy: the YAML as frozen values; it never looks at data."""

from gate.policy.checks import Detection, DetectionTarget, Direction, Duplicates, Overlap
from gate.policy.document import BUILT_IN, MAX_BYTES, OWN, Document, find, load, load_default, parse, schema
from gate.policy.model import Calibration, Columns, Policy, Waiver
from gate.policy.targets import Target, Tolerance
from gate.policy.values import PLOTTING_POSITIONS, Location, fpr_check, rate

__all__ = [
    "BUILT_IN",
    "MAX_BYTES",
    "OWN",
    "PLOTTING_POSITIONS",
    "Calibration",
    "Columns",
    "Detection",
    "DetectionTarget",
    "Direction",
    "Document",
    "Duplicates",
    "Location",
    "Overlap",
    "Policy",
    "Target",
    "Tolerance",
    "Waiver",
    "find",
    "fpr_check",
    "load",
    "load_default",
    "parse",
    "rate",
    "schema",
]
