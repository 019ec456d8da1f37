"""The JUnit of a run with every verdict, a crash, a timeout and a model that cannot be loaded: what other people's readers get."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema

from tests.script_modules import script_module

from .driver import REPOSITORY, Result, run_in, write

SCHEMA = REPOSITORY / "tests" / "report" / "junit-10.xsd"
CHILD = {
    "passes": None, "wrong_value": ("failure", "mismatch"), "cannot_compile": ("error", "exception"),
    "crash": ("error", "crash"), "timeout": ("error", "timeout"), "expected": ("skipped", "xfail"),
    "repaired": ("failure", "xpass"), "elsewhere": ("skipped", "requires"), "unsteady": ("failure", "flaky"),
    "saturated": ("failure", "vacuous"), "cannot_work": ("error", "invalid"), "cannot_load": ("error", "invalid"),
}  # fmt: skip


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("every")
    parsers = script_module("junit_parsers")
    write(folder, parsers.FILES)
    result = run_in(folder, "run", "verdicts.spec.yaml", "--backend", "verdicts:backend", "--allow-python", "-j", 2)
    assert result.code == 1 and {*result.verdicts.values()} == parsers.VERDICTS, result.text
    return result


def test_each_verdict_is_one_child_with_the_text_of_the_log(result: Result) -> None:
    cases = {case.attrib["name"].partition("[")[0]: case for case in result.junit.iter("testcase")}
    assert cases.keys() == CHILD.keys()
    for name, case in cases.items():
        event = result.of(f"{name}@verdicts:backend")
        outcomes = [child for child in case if child.tag in ("failure", "error", "skipped")]
        assert [(child.tag, child.get("type")) for child in outcomes] == ([CHILD[name]] if CHILD[name] else [])
        assert (case.get("file"), case.get("line")) == ("verdicts.spec.yaml", str(event["line"]))
        assert not outcomes or (outcomes[0].text or "").startswith(outcomes[0].attrib["message"])
    crash = cases["crash"].findtext("error") or ""
    assert "SIGSEGV" in crash and "last words <&> ]]> red" in crash
    load = cases["cannot_load"].findtext("error") or ""
    assert 'no <such> "library" & none here' in load and " --> broken.py:1:" in load


def test_counts_are_those_of_the_children(result: Result) -> None:
    root = result.junit
    assert [root.get(key) for key in ("tests", "failures", "errors")] == ["12", "4", "5"]
    assert root[0].get("skipped") == "2"


def test_the_strict_file_passes_the_schema(result: Result, tmp_path: Path) -> None:
    assert result.folder is not None
    report = run_in(tmp_path, "report", result.folder, "--junit", "strict.xml", "--junit-dialect", "strict")
    assert report.code == 0
    xmlschema.XMLSchema(str(SCHEMA)).validate(str(tmp_path / "strict.xml"))
    assert ElementTree.parse(tmp_path / "strict.xml").getroot().get("tests") == "12"
