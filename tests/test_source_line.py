"""``runner.diagnostics.source_line``: excerpts of files that a log may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.diagnostics import source_line


def test_a_line_of_a_yaml_file(tmp_path: Path) -> None:
    (tmp_path / "a.spec.yaml").write_text("one\ntwo\n")
    assert [source_line(tmp_path / "a.spec.yaml", n) for n in (-1, 0, 1, 2, 3, 9)] == ["", "", "one", "two", "", ""]


@pytest.mark.parametrize("name", ["/etc/passwd", "/dev/zero", "/proc/self/environ", "a\0.yaml", "", "."])
def test_no_line_of_another_file(name: str) -> None:
    assert source_line(name, 1) == ""


def test_no_line_behind_a_link_to_another_file(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("a secret\n")
    (tmp_path / "a.spec.yaml").symlink_to(tmp_path / "secret.txt")
    assert source_line(tmp_path / "a.spec.yaml", 1) == ""
