"""Lines of functions that run, by sys.settrace and by sys.monitoring."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from runner.worker.program import lines as lines_module
from runner.worker.program.lines import Sources, line_table, monitored, recording, take_tool, texts_of, traced

SOURCE = """
LEVEL = 1


@print
def add(
    x,
):
    return x


class Name:
    FIELD = 2

    def read(self):
        def inner():
            return self
        yield inner


short = lambda: 3
"""

PROGRAM = """\
def count(limit):
    total = 0
    for number in range(limit):
        if number % 2:
            total += number
    if total > 100:
        return -1
    return total


def same(x):
    return x


def values():
    yield 1
    yield 2
"""

HAS_MONITORING = hasattr(sys, "monitoring")


@pytest.fixture(autouse=True)
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out torch's own folders, whose tables take seconds."""
    monkeypatch.setattr(lines_module, "TORCH", ())


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package ``acme_lines`` with two modules that hold equal functions."""
    folder = tmp_path / "acme_lines"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "twin.py").write_text(PROGRAM)
    (folder / "compile.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("acme_lines.compile")
    for name in [name for name in sys.modules if name.startswith("acme_lines")]:
        del sys.modules[name]


def test_the_table_has_lines_of_functions_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "newer.py").write_text("match = = 1")
    monkeypatch.setattr(Sources, "of", lambda packages: Sources({f"{tmp_path}/": tmp_path}, (f"{tmp_path}/",)))
    assert line_table() == ["line a.py:9,16-18,21"]


def test_files_of_a_package_are_named_from_the_folder_that_holds_it(program: ModuleType):
    assert line_table(["acme_lines"]) == [
        "line acme_lines/compile.py:2-8,12,16-17",
        "line acme_lines/twin.py:2-8,12,16-17",
    ]
    assert not line_table(["no_such_package", "runner", "torch"])


def test_a_package_may_be_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "acme_single.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    assert line_table(["acme_single"]) == ["line acme_single.py:2-8,12,16-17"]


def test_a_package_with_the_name_of_a_folder_of_torch_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "acme_single.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lines_module, "TORCH", ("acme_single",))
    assert not any("acme_single.py" in name for name in Sources.of(["acme_single"]).files())


METHODS = ["settrace", pytest.param("monitoring", marks=pytest.mark.skipif(not HAS_MONITORING, reason="before 3.12"))]


def lines_by(method: str, call: Callable[[], object]) -> set[str]:
    sources, numbers = Sources.of(["acme_lines"]), defaultdict[str, set[int]](set)
    monitoring: Any = getattr(sys, "monitoring", None)
    tool = take_tool(monitoring) if method == "monitoring" else None
    with monitored(monitoring, tool, sources, numbers) if tool is not None else traced(sources, numbers):
        call()
    return {text for text in texts_of(sources, numbers) if "acme" in text}


@pytest.mark.parametrize("method", METHODS)
def test_lines_that_run_are_recorded_by_each_method(program: ModuleType, method: str):
    assert lines_by(method, lambda: program.count(4)) == {"line acme_lines/compile.py:2-6,8"}
    assert lines_by(method, lambda: program.count(4)) == {"line acme_lines/compile.py:2-6,8"}, "a second variant"
    assert lines_by(method, lambda: next(program.values())) == {"line acme_lines/compile.py:16"}


@pytest.mark.parametrize("method", METHODS)
def test_lines_come_from_later_calls_other_files_and_other_threads(program: ModuleType, method: str):
    twin = importlib.import_module("acme_lines.twin")

    def call() -> None:
        program.count(1)
        program.count(40)
        program.same(1), program.same(2)
        twin.same(1)
        thread = threading.Thread(target=program.values().__next__)
        thread.start()
        thread.join()

    assert lines_by(method, call) == {"line acme_lines/compile.py:2-8,12,16", "line acme_lines/twin.py:12"}


def test_a_debugger_stays():
    def debugger(frame: FrameType, event: str, argument: object) -> None:
        """As pdb or coverage would."""

    tracer = sys.gettrace()
    sys.settrace(debugger)
    try:
        with recording(Sources.of()):
            assert HAS_MONITORING or sys.gettrace() is not debugger
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(tracer)


class Tools:
    """What ``monitored`` asks of ``sys.monitoring``, and what it did."""

    DISABLE = object()
    events = SimpleNamespace(PY_START=1, PY_RESUME=2, LINE=4)

    def __init__(self, taken: tuple[int, ...] = ()) -> None:
        self.taken = {*taken}
        self.callbacks: dict[int, Any] = {}
        self.calls: list[str] = []
        self.local: dict[str, int] = {}

    def use_tool_id(self, tool: int, name: str) -> None:
        if tool in self.taken:
            raise ValueError(f"tool {tool} is already in use")
        self.taken.add(tool)

    def free_tool_id(self, tool: int) -> None:
        self.taken.remove(tool)

    def register_callback(self, tool: int, event: int, function: Any) -> None:
        self.callbacks[event] = function

    def set_events(self, tool: int, events: int) -> None:
        self.calls.append(f"events {events}")

    def restart_events(self) -> None:
        self.calls.append("restart")

    def set_local_events(self, tool: int, code: Any, events: int) -> None:
        self.local[code.co_name] = events


def test_a_tool_that_nobody_has_is_taken():
    assert take_tool(Tools()) == 3
    assert take_tool(Tools((3, 4, 2, 1))) == 5
    assert take_tool(Tools(tuple(range(6)))) is None


def test_callbacks_of_monitoring_ask_for_a_function_s_lines_once_and_take_each_line_once(program: ModuleType):
    tools, numbers = Tools(), defaultdict[str, set[int]](set)
    sources, code = Sources.of(["acme_lines"]), program.count.__code__
    tool = take_tool(tools)
    assert tool is not None
    with monitored(tools, tool, sources, numbers):
        assert tools.calls == ["events 3", "restart"]
        start, line = tools.callbacks[tools.events.PY_START], tools.callbacks[tools.events.LINE]
        assert start is tools.callbacks[tools.events.PY_RESUME]
        assert start(code, 0) is start(code, 0) is start(test_a_debugger_stays.__code__, 0) is tools.DISABLE
        assert tools.local == {"count": tools.events.LINE}, "another file's function is not asked about"
        assert line(code, 3) is line(code, 4) is line(code, 1) is tools.DISABLE
    assert texts_of(sources, numbers) == {"line acme_lines/compile.py:3-4"}, "the line of def has no code of its own"
    assert tools.local == {"count": 0} and tools.calls[-1] == "events 0" and not any(tools.callbacks.values())
    assert not tools.taken, "the tool is given back"


def test_where_all_tools_are_taken_lines_come_by_settrace(program: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "monitoring", Tools(tuple(range(6))), raising=False)
    sources = Sources.of(["acme_lines"])
    with contextlib.ExitStack() as stack:
        numbers = stack.enter_context(recording(sources))
        program.same(1)
    assert "line acme_lines/compile.py:12" in texts_of(sources, numbers)
