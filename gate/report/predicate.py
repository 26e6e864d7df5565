"""The attestation predicate: the verdict as an in-toto test result, for whoever signs it.

https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md
"""

from __future__ import annotations

import json

from gate.release import Record

TYPE = "https://in-toto.io/attestation/test-result/v0.1"


def render(record: Record) -> str:
    """There is no value for inconclusive, which is FAILED; a pass with anything waived or advisory amiss is WARNED."""
    passed = [finding.check for finding in record.findings if finding.outcome == "pass"]
    failed = [finding.check for finding in record.findings if finding.blocks]
    warned = [finding.check for finding in record.findings if finding.outcome != "pass" and not finding.blocks]
    predicate = {
        "result": "FAILED" if failed or record.outcome != "pass" else "WARNED" if warned else "PASSED",
        "configuration": [{"name": name, "digest": {"sha256": digest}} for name, digest in _digests(record).items()],
        "passedTests": passed,
        "warnedTests": warned,
        "failedTests": failed,
    }
    return json.dumps(predicate, indent=2) + "\n"


def _digests(record: Record) -> dict[str, str]:
    """What the verdict rests on, by the names of the record's sections."""
    digests = {
        "policy": record.policy.sha256,
        "fit": record.fit.sha256,
        "holdout": record.holdout.sha256,
        "calibrator": record.calibrator.sha256,
    }
    if record.holdout.rows_sha256 is not None:
        digests["holdout ids"] = record.holdout.rows_sha256
    return digests
