"""The attestation predicate: the verdict as an in-toto test result, for whoever signs it.

https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gate.checks.reuse import Uses
from gate.record import Record
from gate.record.system import SystemRecord

TYPE = "https://in-toto.io/attestation/test-result/v0.1"


def render(record: Record) -> str:
    return written(record, _digests(record), [_options(record)])


def written(record: Record | SystemRecord, digests: Mapping[str, str], options: Sequence[Any] = ()) -> str:
    """Write the result, and what it rests on: files by their digests, then options.

    There is no value for inconclusive, which is FAILED; a pass with anything waived or advisory amiss is WARNED.
    """
    passed = [str(finding.check) for finding in record.findings if finding.outcome == "pass"]
    failed = [str(finding.check) for finding in record.findings if finding.blocks]
    warned = [str(finding.check) for finding in record.findings if finding.outcome != "pass" and not finding.blocks]
    predicate = {
        "result": "FAILED" if failed or record.outcome != "pass" else "WARNED" if warned else "PASSED",
        "configuration": [
            *({"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()),
            *options,
        ],
        "passedTests": passed,
        "warnedTests": warned,
        "failedTests": failed,
    }
    return json.dumps(predicate, indent=2) + "\n"


def _digests(record: Record) -> dict[str, str]:
    """List the digests of what the verdict rests on, by the names of the record's sections."""
    digests = {
        "policy": record.policy.sha256,
        "fit": record.fit.sha256,
        "holdout": record.holdout.sha256,
        "calibrator": record.calibrator.sha256,
    }
    if record.holdout.rows_sha256 is not None:
        digests["holdout ids"] = record.holdout.rows_sha256
    if record.malicious is not None:
        digests["malicious"] = record.malicious.sha256
    if (reference := record.reference) is not None:
        digests["baseline"] = reference.verdict_sha256
    return digests


def _options(record: Record) -> dict[str, Any]:
    """List the options that the verdict depends on and that are in no file: a resource whose annotations hold them.

    The digest is that of the annotations as JSON with sorted keys and without spaces. Whole numbers may be larger than
    those that readers of JSON keep exactly, so a seed is text.
    """
    baseline, split, uses = record.reference, record.split, record.of(Uses)
    options = {
        "kind": record.kind,
        "calibrated": record.calibrated,
        "columns": record.data.model_dump(mode="json"),
        "split": None if split is None else {"fraction": split.fraction, "seed": str(split.seed), "by": split.by},
        "baseline": "none" if record.is_first else None if baseline is None else baseline.release,
        "baseline_holdout": bool(baseline and baseline.sources),
        "baseline_malicious": bool(baseline and baseline.malicious_sources),
        "malicious": record.malicious is not None,
        "use": None if uses is None else uses.holdout.number,
        "malicious_use": None if uses is None or uses.malicious is None else uses.malicious.number,
        "judged_on": None if record.judged_on is None else record.judged_on.isoformat(),
    }
    text = json.dumps(options, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {"name": "options", "digest": {"sha256": hashlib.sha256(text.encode()).hexdigest()}, "annotations": options}
