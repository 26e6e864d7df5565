"""A policy is read exactly or refused with every error at once, each on one line that says where and what to write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from gate.checks import policy_schema

POLICIES = Path(__file__).parents[2] / "policies"


# --- shipped policies and the schema ------------------------------------------------------------------------


def test_the_shipped_schema_is_the_one_that_gate_prints() -> None:
    command = [sys.executable, "-m", "gate", "schema", "policy"]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    assert (POLICIES / "policy.schema.json").read_bytes() == printed
    assert json.loads(printed) == policy_schema()
