"""The policy: the YAML as frozen values; it never looks at data."""

from gate.policy.checks import Detection, DetectionTarget, Direction, Duplicates, Overlap
from gate.policy.document import MAX_BYTES, Document, load, load_default, parse, schema
from gate.policy.model import Calibration, Columns, Policy, Waiver
from gate.policy.targets import Range, Span, Target, Tolerance
from gate.policy.values import PLOTTING_POSITIONS, Location, fpr_check, percent, rate

__all__ = [
    "MAX_BYTES",
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
    "Range",
    "Span",
    "Target",
    "Tolerance",
    "Waiver",
    "fpr_check",
    "load",
    "load_default",
    "parse",
    "percent",
    "rate",
    "schema",
]
