"""The user's key, and what counts as written by its owner on this machine."""

from __future__ import annotations

import multiprocessing
import os
import platform
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from runner.record.events import RunStarted
from runner.record.signing import NoKey, key_path, signature_of, user_key, why_foreign

START = RunStarted("r", "0", ("runner", "run", "a"), "2026-01-02T03:04:05", platform.node(), "runs/r", cwd="/w")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def own(start: RunStarted = START) -> RunStarted:
    return replace(start, signature=signature_of(start))


def test_the_key_is_made_once_and_is_for_its_owner_alone(state: Path) -> None:
    key = user_key()
    assert len(key) == 32 and user_key() == key
    assert key_path() == state / "runner" / "key" and stat.S_IMODE(key_path().stat().st_mode) == 0o600
    assert [*key_path().parent.iterdir()] == [key_path()]


def _put(queue: multiprocessing.Queue[bytes]) -> None:
    queue.put(user_key())


def test_two_runners_that_begin_at_once_get_one_key(state: Path) -> None:
    queue: multiprocessing.Queue[bytes] = multiprocessing.get_context("fork").Queue()
    processes = [multiprocessing.get_context("fork").Process(target=_put, args=(queue,)) for _ in range(8)]
    for process in processes:
        process.start()
    keys = {queue.get(timeout=30) for _ in processes}
    for process in processes:
        process.join()
    assert keys == {user_key()}


@pytest.mark.parametrize("home", ["", "relative/state"])
def test_without_a_state_folder_it_is_below_home(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", home)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_path() == tmp_path / ".local" / "state" / "runner" / "key"


def test_a_pipe_is_no_key(state: Path) -> None:
    key_path().parent.mkdir(parents=True)
    os.mkfifo(key_path())
    with pytest.raises(NoKey, match="no regular file"):
        user_key()


def test_what_this_user_wrote_here_is_own(state: Path) -> None:
    assert why_foreign(own()) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "q"}, {"started": "later"}, {"cwd": "/elsewhere"}, {"argv": ("runner", "run", "a", "--allow-python")},
        {"argv": ("runner", "run a")}, {"argv": ()}, {"signature": "0" * 64}, {"signature": "\udc80é"},
    ],
)  # fmt: skip
def test_a_changed_command_line_is_foreign(state: Path, changes: dict[str, object]) -> None:
    assert "its signature is another" in why_foreign(replace(own(), **changes))  # type: ignore[arg-type]


def test_another_key_another_machine_and_no_signature_are_foreign(state: Path) -> None:
    start = own()
    assert why_foreign(replace(start, signature="")) == "it is not signed"
    elsewhere = own(replace(START, host="other"))
    assert why_foreign(elsewhere).startswith("it was written on other, and this is ")
    key_path().unlink()
    assert "another user's" in why_foreign(start)


def test_without_a_usable_key_every_log_is_foreign_and_the_reason_is_said(state: Path) -> None:
    start = own()
    os.chmod(key_path(), 0o640)
    assert signature_of(START) == "" and "can be read by others" in why_foreign(start)
    os.chmod(key_path(), 0o600)
    key_path().write_bytes(b"short")
    assert "is no key: remove it" in why_foreign(start)
    key_path().unlink()
    key_path().mkdir()
    with pytest.raises(NoKey, match="no regular file"):
        user_key()
    key_path().rmdir()
    (state / "runner").rmdir()
    (state / "runner").write_text("somebody's own file")
    assert signature_of(START) == "" and "cannot be used" in why_foreign(start)


def test_a_pipe_in_the_place_of_the_key_does_not_hold_up_the_command(state: Path) -> None:
    user_key()
    key_path().unlink()
    os.mkfifo(key_path(), 0o600)
    with pytest.raises(NoKey, match="no regular file"):
        user_key()
