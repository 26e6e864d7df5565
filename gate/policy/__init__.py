"""The policy reads the YAML into frozen values. It never looks at data."""

from gate.policy.detectors import Detector, SystemTarget
from gate.policy.document import (
    BUILT_IN,
    BUILT_IN_PATH,
    MAX_BYTES,
    OWN,
    Document,
    digest_of,
    find,
    load,
    load_default,
    parse,
    schema,
)
from gate.policy.model import Calibration, Columns, Policy, Waiver, with_checks
from gate.policy.targets import Range, Span, Target, Tolerance
from gate.policy.values import PLOTTING_POSITIONS, Flag, Frozen, Label, Location, MinRows, PolicyCount, PolicyRate, rate

__all__ = [
    "BUILT_IN",
    "BUILT_IN_PATH",
    "MAX_BYTES",
    "OWN",
    "PLOTTING_POSITIONS",
    "Calibration",
    "Columns",
    "Detector",
    "Document",
    "Flag",
    "Frozen",
    "Label",
    "Location",
    "MinRows",
    "Policy",
    "PolicyCount",
    "PolicyRate",
    "Range",
    "Span",
    "SystemTarget",
    "Target",
    "Tolerance",
    "Waiver",
    "digest_of",
    "find",
    "load",
    "load_default",
    "parse",
    "rate",
    "schema",
    "with_checks",
]
