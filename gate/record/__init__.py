"""The record: the verdict with its evidence and provenance, as `verdict.json`; everything a report needs, no data."""

from gate.record.read import (
    StoredRelease,
    as_reference,
    parse_record,
    read_calibrator,
    read_record,
    read_release,
    read_with_digest,
    recorded_policy,
)
from gate.record.schema import SCHEMA_VERSION, Record, compose, json_text, libraries, schema, stamp

__all__ = [
    "SCHEMA_VERSION",
    "Record",
    "StoredRelease",
    "as_reference",
    "compose",
    "json_text",
    "libraries",
    "parse_record",
    "read_calibrator",
    "read_record",
    "read_release",
    "read_with_digest",
    "recorded_policy",
    "schema",
    "stamp",
]
