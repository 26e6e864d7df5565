"""The JUnit report: one test case per finding, for CI systems that show test results."""

from __future__ import annotations

from xml.etree import ElementTree

from gate.record import Record
from gate.report.numbers import clean
from gate.report.rows import headline, in_order, plain_reason, weight


def render(record: Record) -> str:
    """Fail is a failure and inconclusive an error (a skipped test would show green); the rest passes with a note."""
    suite = ElementTree.Element("testsuite", name=f"gate {clean(record.release)}", timestamp=clean(record.created))
    kinds = {"fail": "failure", "inconclusive": "error"}
    totals = dict.fromkeys(kinds.values(), 0)
    for finding in in_order(record.findings):
        case = ElementTree.SubElement(suite, "testcase", classname="gate", name=clean(str(finding.check)))
        text = clean(". What would help: ".join(filter(None, [finding.message, finding.remedy])))
        kind = kinds.get(finding.outcome)
        if kind and finding.blocks:
            totals[kind] += 1
            ElementTree.SubElement(case, kind, message=text, type=clean(finding.reason))
        else:
            note = ElementTree.SubElement(case, "system-out")
            note.text = f"{finding.outcome} ({weight(finding)}): {text}"
    ElementTree.SubElement(suite, "system-out").text = f"{headline(record)}. {clean(plain_reason(record))}."
    suite.set("tests", str(len(record.findings)))
    suite.set("failures", str(totals["failure"]))
    suite.set("errors", str(totals["error"]))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
