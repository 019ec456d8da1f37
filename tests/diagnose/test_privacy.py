"""Reports are without names and folders of the machine that they were made on."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.diagnose.privacy import redact


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("/usr/lib/python3/dist-packages/numpy/x.py", "numpy/x.py"),
        ("in /tmp/a-b/c_d/e.py.", "in e.py."),
        ("/tmperature and a/tmp", "/tmperature and a/tmp"),
        ("https://github.com/pytorch/pytorch", "https://github.com/pytorch/pytorch"),
    ],
)
def test_folders_are_cut(text: str, redacted: str) -> None:
    assert redact(text) == redacted


def test_home_and_working_folder_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ada"))
    assert redact(f"/home/ada/x.py {tmp_path}/y.py /home/adam/z.py") == "x.py y.py /home/adam/z.py"
