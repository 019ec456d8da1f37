"""What the package junit-xml lacks for the dialects of ``junit.py``: it makes the elements, which are completed here.

* It has no properties of a testcase: a testcase gets those of a suite of its own.
* It calls the type of all that was skipped ``skipped``. Readers filter by the type.
* It writes times as ``1.234000`` or ``1e-05``, and leaves out a time of 0. junit-10.xsd refuses an exponent.
* It writes ``disabled``, which junit-10.xsd refuses in a testsuite.
* It removes characters that XML cannot hold. ``runner.text`` has made them visible before.
* It builds a document at once, and parses it again to indent it. A live file needs its testcases one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from junit_xml import TestCase, TestSuite

from runner.report.testcase import Shown


def write_testcase(names: Mapping[str, str], shown: Shown) -> bytes:
    """Return a testcase on lines of its own, as UTF-8.

    Args:
        names: its ``name``, ``classname``, ``file`` and ``line``.
        shown: what it says, with texts cut to size; those properties that stand in an element of their own.
    """
    case = TestCase(**names, stdout=shown.output)
    if shown.kind:
        getattr(case, f"add_{shown.kind}_info")(shown.message, shown.body)
    *properties, element = TestSuite("", [case], properties=dict(shown.properties)).build_xml_doc()
    element[:0] = properties
    element.set("time", f"{shown.seconds:.3f}")
    for outcome in element.findall(shown.kind or "none"):
        outcome.attrib |= {"type": shown.type, "message": shown.message}
    return b"\n    " + _written(element, 2)


def write_suite(counts: Mapping[str, str], **details: Any) -> tuple[bytes, bytes]:
    """Return what stands before and after the testcases of a suite.

    Args:
        counts: attributes that the package would count, and ``time``.
        details: what its ``TestSuite`` takes besides testcases.
    """
    element = TestSuite(test_cases=[TestCase("")], **details).build_xml_doc()
    del element.attrib["disabled"]
    element.attrib |= counts
    # In attributes and texts "<" is written "&lt;", so this is found once.
    head, _, tail = _written(element, 1).partition(b'<testcase name="" />')
    return b"\n  " + head.rstrip(), tail


def _written(element: ElementTree.Element, level: int) -> bytes:
    ElementTree.indent(element, level=level)
    return ElementTree.tostring(element, encoding="unicode").encode("utf-8", "backslashreplace")
