"""``runner.cases.suites``: which files a folder and a pattern name."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import Files

from runner.cases.suites import PathError, Walk
from runner.session.collect import load


def test_a_link_keeps_its_ending_or_is_no_case(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    secret = files.write("elsewhere/secret.txt", "a secret\n")
    own = files.write("elsewhere/own.spec.yaml", files.case_text(""))
    folder = files.folder / "cases"
    folder.mkdir()
    (folder / "stolen.spec.yaml").symlink_to(secret)
    (folder / "linked.spec.yaml").symlink_to(own)
    files.write("cases/all.suite.yaml", "suite: all\nspecs: ['*.spec.yaml', stolen.spec.yaml]\n")
    assert Walk().below(folder, (".spec.yaml",)) == [folder / "linked.spec.yaml"]
    loaded = load([str(folder)])
    assert [variant.case.name for variant in loaded.variants] == ["a"]
    assert not any("a secret" in diagnostic.render() for diagnostic in loaded.diagnostics)
    with pytest.raises(PathError, match=r"is a link to .*secret\.txt: cases end in"):
        load([str(folder / "stolen.spec.yaml")])


def test_a_pattern_names_links_that_keep_their_ending(files: Files) -> None:
    own = files.write("elsewhere/own.spec.yaml", files.case_text(""))
    (files.folder / "linked.spec.yaml").symlink_to(own)
    (files.folder / "passwd.spec.yaml").symlink_to(Path("/etc/passwd"))
    assert Walk().matching(files.folder, "*.spec.yaml", ".spec.yaml") == [files.folder / "linked.spec.yaml"]
