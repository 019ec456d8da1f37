"""What the package junit-xml writes by itself, and what its elements become."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import junit_xml
import pytest
import xmlschema

from runner.report.junit import Shown, write_suite, write_testcase

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).parent / "junit-10.xsd"))
NAMES = {"name": "a", "classname": "b"}
FACTS = (("backend", "x"), ("torch", "y"))


def written(content: Shown, **names: str) -> ElementTree.Element:
    return ElementTree.fromstring(write_testcase({**NAMES, **names}, content))


def test_the_schema_refuses_what_the_package_counts_and_takes_what_is_written_here() -> None:
    with pytest.raises(xmlschema.XMLSchemaException, match="disabled"):
        SCHEMA.validate(junit_xml.to_xml_report_string([junit_xml.TestSuite("s", [junit_xml.TestCase("a")])]))
    head, tail = write_suite({"tests": "7", "time": "1.000"}, name="s", hostname="h", properties={"k": "v"})
    text = b"<testsuites>" + head + write_testcase(NAMES, Shown()) + tail + b"</testsuites>"
    SCHEMA.validate(text.decode())
    suite = ElementTree.fromstring(text)[0]
    assert suite.attrib == {
        "name": "s", "hostname": "h", "tests": "7", "time": "1.000", "errors": "0", "failures": "0", "skipped": "0",
    }  # fmt: skip
    assert [child.tag for child in suite] == ["properties", "testcase"]


@pytest.mark.parametrize("kind", ["failure", "error", "skipped"])
def test_an_outcome_has_its_own_type_and_its_message(kind: str) -> None:
    case = written(Shown(kind, "own", "", "body", output="out", properties=FACTS))
    assert [child.tag for child in case] == ["properties", kind, "system-out"]
    assert (case[1].attrib, case[1].text) == ({"type": "own", "message": ""}, "body")
    assert [(entry.get("name"), entry.get("value")) for entry in case[0]] == [*FACTS]
    assert case.findtext("system-out") == "out"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0.000"), (1e-5, "0.000"), (1.2345678, "1.235"), (1e16, f"{10**16}.000")]
)
def test_each_time_has_three_decimals(seconds: float, text: str) -> None:
    case = written(Shown("", seconds=seconds), file="f.yaml", line="0")
    assert case.attrib == {**NAMES, "file": "f.yaml", "line": "0", "time": text} and not len(case)
