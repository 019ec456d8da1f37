"""Files that a command is to write: what is refused before anything runs, and what a failed write leaves."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.cli import draw, outputs
from runner.exit_codes import UsageError
from runner.record.store import output_folder
from runner.report.handlers import BUILT_IN
from runner.report.site.folder import MARK


def check(command: str = "run", *inputs: Path, **options: object) -> None:
    outputs.check(argparse.Namespace(command=command, **options), {str(path) for path in inputs})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("file").write_text("kept")
    Path("folder").mkdir()
    Path("loop").symlink_to("loop")
    Path("link").symlink_to("file")
    Path("linked").symlink_to("folder")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"junit": ""}, "--junit: an empty path"),
        ({"output": ""}, "--output: an empty path"),
        ({"html": "."}, "--html .: this is a folder"),
        ({"markdown": "."}, "--markdown .: this is a folder"),
        ({"junit": "none/a.xml"}, "there is no folder .*/none; to make it: mkdir -p /.*/none"),
        ({"plot": "no ne/a.svg"}, "mkdir -p '/.*/no ne'"),
        ({"output": "none/a"}, "there is no folder"),
        ({"output": "file"}, "this is a file; name a folder"),
        ({"output": "file/a"}, "there is no folder .*/file"),
        ({"events": "file/a"}, "there is no folder .*/file"),
        ({"junit": "pipe"}, "--junit pipe: this is a pipe, whose reader may never come; name a file"),
        ({"ctrf": "pipe"}, "--ctrf pipe: this is a pipe"),
        ({"events": "pipe"}, "--events pipe: this is a pipe"),
        ({"report": ["ctrf=pipe"]}, "--report pipe: this is a pipe"),
        ({"junit": "/dev/null"}, "not a regular file"),
        ({"junit": "/dev/fd/1"}, "not a regular file"),  # a file behind it would make no difference
        ({"junit": "loop"}, "/loop is a link to loop; name the file that is meant, or remove the link"),
        ({"junit": "link"}, "--junit link: /.*/link is a link to file"),
        ({"events": "linked/new.jsonl"}, "/linked is a link to folder"),
        ({"html_folder": "linked"}, "/linked is a link to folder"),
        ({"output": "linked/new"}, "/linked is a link to folder"),
        ({"events": "linked/../new.jsonl"}, "/linked is a link to folder"),
        ({"junit": "x" * 300}, "File name too long"),
        ({"junit": "a\0b"}, "null"),
        ({"junit": "a", "events": "folder/../a"}, "--junit names the same file"),
        ({"events": "file", "html": "folder/../file"}, "--events names the same file"),
        ({"report": ["html=file"]}, "--report file: this is a file; name a folder"),
        ({"report": ["junit=/dev/null"]}, "--report /dev/null: not a regular file"),
        ({"report": ["ctrf=folder"]}, "--report folder: this is a folder"),
        ({"report": ["output=folder"]}, "--report folder: this is a folder"),
        ({"report": ["ctrf=a"], "ctrf": "a"}, "--report a: --ctrf names the same file"),
        *(({"report": [f"{name}=-"]}, "--report -: this is not standard output here") for name in BUILT_IN),
        *(({name: "-"}, "-: this is not standard output here") for name in ("junit", "ctrf", "html", "output", "svg")),
    ],
    ids=str,
)
def test_what_cannot_be_written_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        check(**options)
    assert error.value.code == 4
    assert not Path("none").exists() and Path("file").read_text() == "kept"


@pytest.mark.parametrize(
    "options",
    [
        {"junit": "new.xml", "events": "new.jsonl"},
        {"junit": "file"},
        {"report": ["events=/dev/stderr", "html=folder", "ctrf=/dev/null", "words:function=new"]},
        {"events": "/dev/stdout"},
        {"ctrf": "./-", "report": ["words:function=other"]},
        {"events": "/dev/null", "html": "/dev/null"},
        {"output": "folder"},
        {"output": "new"},
        {"junit": None, "json": True},
    ],
    ids=str,
)
def test_what_can_be_written_is_not(options: dict[str, object]) -> None:
    check("reduce", **options)


def test_a_dash_is_standard_output_where_a_text_is_written_at_once() -> None:
    check("report", junit="-")
    check("bench", json="-")


def test_an_input_is_never_an_output(folder: Path) -> None:
    with pytest.raises(UsageError, match="--junit file: this command reads that file"):
        check("run", folder / "file", junit="file")
    check("report", Path("no\0file"), junit="file")  # by a log that somebody wrote


def test_a_hard_link_is_the_same_file(folder: Path) -> None:
    os.link("file", "other")
    with pytest.raises(UsageError, match="--events other: this command reads that file"):
        check("run", folder / "file", events="other")
    with pytest.raises(UsageError, match="--events other: --junit names the same file"):
        check(events="other", junit="file")


@pytest.mark.parametrize(("path", "message"), [("pipe", "names pipe: this is a pipe"), ("", "names no file")])
def test_a_summary_that_cannot_be_written(path: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(outputs.SUMMARY, path)
    with pytest.raises(UsageError, match=message):
        check("report", github=True)


def test_a_link_above_the_current_folder_is_the_machine_s_own(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path_factory.mktemp("elsewhere")
    (place / "real").mkdir()
    (place / "linked").symlink_to("real")
    check(junit=str(place / "linked" / "new.xml"))
    monkeypatch.chdir(place / "linked")
    check(junit="new.xml")


def test_a_link_in_the_current_folder_counts_by_each_name_of_the_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = tmp_path_factory.mktemp("names") / "name"
    name.symlink_to(folder)
    check(junit=str(name / "new.xml"))
    with pytest.raises(UsageError, match="/name/linked is a link to folder"):
        check(junit=str(name / "linked" / "new.xml"))


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_open_file_is_written_to(path: str) -> None:
    check("report", ctrf=path)


@pytest.mark.parametrize("make", [draw._folder, lambda path: output_folder(path, "")], ids=["hunt", "others"])
def test_no_folder_is_made_behind_a_link(make: Callable[[str], Path], folder: Path) -> None:
    with pytest.raises(UsageError, match=r"--output linked/new: .*/linked is a link to folder"):
        make("linked/new")
    assert make("new") == folder / "new" and not (folder / "folder" / "new").exists()


def test_issue_writes_a_file_where_others_write_a_folder() -> None:
    check("issue", output="file")
    with pytest.raises(UsageError, match="this is a folder"):
        check("issue", output="folder")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_permissions() -> None:
    Path("file").chmod(0o444)
    with pytest.raises(UsageError, match="no permission to write it"):
        check(junit="file")
    Path("folder", "log").write_text("appended to")
    Path("folder").chmod(0o555)
    check(report=["events=folder/log"])
    for options in ({"junit": "folder/a"}, {"output": "folder"}):
        with pytest.raises(UsageError, match="no permission to write"):
            check(**options)  # type: ignore[arg-type]


def test_a_failed_write_is_exit_3_and_leaves_what_was_there() -> None:
    outputs.write("--html", "file", "new")
    assert Path("file").read_text() == "new"
    with pytest.raises(UsageError, match="--html /dev/full could not be written: No space left") as error:
        outputs.write("--html", "/dev/full", "text")
    assert error.value.code == 3
    outputs.write("--html", "/dev/null", "text")
    assert Path("/dev/null").is_char_device()


def test_a_folder_of_pages_is_new_empty_or_an_earlier_report() -> None:
    for path in ("folder", "new"):
        check(html_folder=path)
    for path, reason in (("file", "name a folder"), ("none/a", "there is no folder"), ("", "an empty path")):
        with pytest.raises(UsageError, match=f"--html.*{reason}"):
            check(html_folder=path)
    Path("folder", "index.html").write_text("mine")
    with pytest.raises(UsageError, match="--html folder: there is something in it"):
        check(html_folder="folder")
    Path("folder", "index.html").write_text(f"<head>{MARK}</head>")
    check(html_folder="folder")
