"""The JUnit report: one test case per finding, for CI systems that show test results."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from gate.checks.check import Finding
from gate.record import Record
from gate.report.numbers import clean
from gate.report.rows import headline, in_order, plain_reason, weight

KINDS = {"fail": "failure", "inconclusive": "error"}  # a skipped test would show green


def render(record: Record) -> str:
    """Render a record: fail is a failure, inconclusive is an error, and the rest passes with a note."""
    suite = ElementTree.Element("testsuite", name=f"gate {clean(record.release)}", timestamp=clean(record.created))
    fill(suite, record.findings, "gate")
    ElementTree.SubElement(suite, "system-out").text = f"{headline(record)}. {clean(plain_reason(record))}."
    return written(suite)


def fill(suite: ElementTree.Element, findings: Sequence[Finding], classname: str) -> None:
    """Add a case for each finding, and count those that failed."""
    totals = dict.fromkeys(KINDS.values(), 0)
    for finding in in_order(findings):
        case = ElementTree.SubElement(suite, "testcase", classname=clean(classname), name=clean(str(finding.check)))
        text = clean(". What would help: ".join(filter(None, [finding.message, finding.remedy])))
        kind = KINDS.get(finding.outcome)
        if kind and finding.blocks:
            totals[kind] += 1
            ElementTree.SubElement(case, kind, message=text, type=clean(finding.reason))
        else:
            note = ElementTree.SubElement(case, "system-out")
            note.text = f"{finding.outcome} ({weight(finding)}): {text}"
    suite.set("tests", str(len(findings)))
    suite.set("failures", str(totals["failure"]))
    suite.set("errors", str(totals["error"]))


def written(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
