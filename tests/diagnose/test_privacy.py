"""Reports are without names and folders of the machine that they were made on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.diagnose.bug_report import private_texts, redact


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("/usr/lib/python3/dist-packages/numpy/x.py", "numpy/x.py"),
        ("in /tmp/a-b/c_d/e.py.", "in e.py."),
        ("/tmperature and a/tmp", "/tmperature and a/tmp"),
        ("https://github.com/pytorch/pytorch", "https://github.com/pytorch/pytorch"),
        ("/srv/tmp/a/b.py and my/tmp/a.py", "/srv/tmp/a/b.py and my/tmp/a.py"),
        ("/var/tmp/a/b.py", "b.py"),
        ("https://x.org/tmp/a.html and file:///tmp/a/b.py", "https://x.org/tmp/a.html and file://b.py"),
        ("https://tmp/a.html", "https://tmp/a.html"),
        ("x(/opt/a b/lib/python3.11/site-packages/torch/x.py)", "x(/opt/a torch/x.py)"),
        ("venv/lib/python3.11/site-packages/torch/x.py", "torch/x.py"),
        ("https://x.org/lib/python3.11/typing.py", "https://x.org/lib/python3.11/typing.py"),
        ('File "/usr/lib/python3.11/typing.py"', 'File "typing.py"'),
    ],
)
def test_folders_are_cut(text: str, redacted: str) -> None:
    assert redact(text) == redacted


def test_home_and_working_folder_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert redact(f"/home/ada/x.py {tmp_path}/y.py /home/adam/z.py") == "x.py y.py /home/adam/z.py"
    for path in ("/home/ada-2/x.py", "/home/ada.old/x.py", "/mnt/home/ada/x.py", "https://home/ada/x"):
        assert redact(path) == path
    assert redact("It is in /home/ada. So is file:///home/ada/x.py") == "It is in . So is file://x.py"


def test_a_folder_in_another_one_is_cut_as_a_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my work").mkdir()
    monkeypatch.chdir(tmp_path / "my work")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (
        redact(f"{tmp_path}/my work/x.py {tmp_path}/my work/.venv/lib/python3.11/site-packages/torch/y.py")
        == "x.py torch/y.py"
    )


def test_a_user_without_a_home_and_a_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert redact("/home/ada/x.py") == "/home/ada/x.py"
    assert "the home folder" not in [kind for kind, _ in private_texts()]
