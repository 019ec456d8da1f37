"""Which arguments of pytest hold cases."""

from __future__ import annotations

from pathlib import Path

from runner.pytest_plugin import holds_cases
from tests.handmade import Dig


def test_a_folder_is_looked_through_as_pytest_does(tmp_path: Path, dig: Dig) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path)
    dig(tmp_path)
    assert not holds_cases(str(tmp_path), []) and not holds_cases(str(tmp_path / "none"), [])
    (tmp_path / "a" / "b" / "x.spec.yaml").touch()
    assert holds_cases(str(tmp_path), ["node_modules"]) and holds_cases(
        str(tmp_path / "a" / "b" / "x.spec.yaml::c"), []
    )
    assert not holds_cases(str(tmp_path), ["b*"])
