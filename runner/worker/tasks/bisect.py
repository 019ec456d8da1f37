"""Torch's own bisector, applied to one failure: which subsystem of a backend shows it, and which application in there.

``CompilerBisector`` asks again and again "is the answer right now?" while it turns parts of the compiler off. Here the
answer is the whole judgement of the job, in a forked copy of this process. So a crash or a hang is an answer like
any other. It counts only if the failure is one that the job names. The bisector keeps its state in files, which copies
find.

It names an application by a node or an operator alone, and its number is the place in the order of calls of
``CompilerBisector.disable_subsystem``. So each copy also notes the operators of nodes, and the lines of applications.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import select
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import torch

from runner.contract.finding import mark_of, signal_name
from runner.contract.job import Job
from runner.contract.settings import FALLBACK_RANDOM
from runner.worker.processes import die_with_parent, encode
from runner.worker.program.load import MODULE
from runner.worker.run.job import Send, judge_job, own_cache
from runner.worker.torch_private import debuggers

SECONDS = 60.0
"""One judgement may take so long; then it counts as a timeout."""

BUDGET = 270.0
"""All of them together may take so long; then what is known so far is the answer."""

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_OVERLOAD = re.compile(r"<OpOverload\(op='([^']*)', overload='([^']*)'\)>")
_NO_CACHE = {
    "torch._inductor.config.fx_graph_cache": False,
    "torch._functorch.config.enable_autograd_cache": False,
    # On 2.6 it compiles in a cache folder of its own, and what the bisector knows lies in the cache folder.
    "torch._inductor.config.force_disable_caches": False,
}


def run_bisect(job: Job, send: Send) -> dict[str, Any]:
    """Bisect the job's backend, one of ``BACKENDS`` in ``torch/_inductor/compiler_debuggers.py``, all below it being
    right.

    ``job.arguments``: ``wanted``, a list of [oracle, class of the exception, pattern] as ``mark_of`` makes them. Any of
    them is the failure. ``seconds`` and ``budget``: see SECONDS and BUDGET.

    Returns:
        ``culprit``: null, or ``backend``, ``subsystem``, ``number`` (from 0), ``name``, ``operator`` and ``line``,
        which is that of the source (each may be null).
        ``note``: why there is no more. ``runs``: how often it was judged. ``log``: what the bisector printed.
        ``error``: null.
    """
    send({"phase": "backend"})
    question = _Question(job, [tuple(mark) for mark in job.arguments["wanted"]], send)
    printed = io.StringIO()
    result: Any = None
    note = ""
    with own_cache():  # the bisector deletes folders in it
        try:
            with contextlib.redirect_stdout(printed):
                result = debuggers.bisect(question)
        except _Stop as stop:
            note = str(stop)
        except (RuntimeError, AssertionError) as error:  # such as "succeeded with find_max_bounds"
            note = f"torch's bisector gave up: {type(error).__name__}: {error}"
    culprit, remark = _culprit(question, result)
    return {
        "culprit": culprit,
        "note": note or remark,
        "runs": question.runs,
        "log": printed.getvalue().splitlines(),
        "error": None,
    }


def _culprit(question: _Question, result: Any) -> tuple[dict[str, Any] | None, str]:
    """Return the bisector's result as plain data, and why it is not more."""
    unknown = dict.fromkeys(("subsystem", "number", "name", "operator", "line"))
    culprit: dict[str, Any] = {"backend": question.backend, **unknown}
    if result is None or result.subsystem is None:
        if not question.reproduced:
            return None, f"under the bisector the failure did not show in {_times(question.runs)}"
        if question.fixed_by is None:
            return culprit, "it is there whichever subsystem the bisector switches off" if result else ""
        return {**culprit, "subsystem": question.fixed_by}, ""
    culprit["subsystem"] = result.subsystem
    setting = debuggers.setting_of(result.backend, result.subsystem)
    if setting is not None:
        return {**culprit, "name": f"{setting.field} = {setting.value}"}, ""
    name = _OVERLOAD.sub(r"\1.\2", result.debug_info or "") or None
    return {
        **culprit,
        "number": result.bisect_number,
        "name": name,
        "operator": question.operators.get(name or ""),
        "line": question.lines.get(_key_of(result.subsystem, result.bisect_number)),
    }, ""


class _Stop(Exception):
    """No further question will be answered; the text says why."""


@dataclass
class _Question:
    """What the bisector calls: True when the failure does not show.

    ``reproduced``: it has shown at least once. ``fixed_by``: the subsystem without which it does not show.
    ``operators``: the operators of the graph's nodes by name. ``lines``: those of the source that applications come
    from, by ``_key_of``.
    """

    job: Job
    marks: list[tuple[str, ...]]
    send: Send
    runs: int = 0
    reproduced: bool = False
    fixed_by: str | None = None
    operators: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    drew_random: bool = False  # eager, so that Inductor takes its generator
    _switched: dict[str, bool] = field(default_factory=dict)  # subsystem to the answer without it

    def __post_init__(self) -> None:
        arguments = self.job.arguments
        self.backend = str(self.job.backend["backend"])
        self._seconds = float(arguments.get("seconds") or SECONDS)
        self._end = time.monotonic() + float(arguments.get("budget") or BUDGET)
        self._judged = replace(self.job, task="judge", arguments={}, config={**self.job.config, **_NO_CACHE})

    def __call__(self) -> bool:
        backend, subsystem, state = debuggers.current_question()
        if backend != self.backend:
            return True  # the ladder has answered for the others
        if subsystem is None:
            return self._ask("as it is")
        if state != "test_disable":
            return self._ask(subsystem)
        # The bisector begins again at the second subsystem when it comes to the end of them, and once more, and so on.
        if subsystem not in self._switched:
            setting = debuggers.setting_of(self.backend, subsystem)
            config = {FALLBACK_RANDOM: self.drew_random, **self._judged.config}
            # Where the job has that setting already, the answer is known.
            is_set = (
                setting is not None
                and setting.config == "inductor"
                and config.get(f"torch._inductor.config.{setting.field}") == setting.value
            )
            self._switched[subsystem] = not is_set and self._ask(f"without {subsystem}")
        if self._switched[subsystem]:
            self.fixed_by = subsystem
        return self._switched[subsystem]

    def _ask(self, text: str) -> bool:
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise _Stop(f"the time for bisecting was up after {_times(self.runs)}")
        self.runs += 1
        self.send({"phase": f"bisecting {self.backend}, run {self.runs}: {text}"})
        answer = ask(self._judged, min(self._seconds, remaining + self._seconds / 2))
        if answer.phase == "float64" and not answer.record:
            self._judged = replace(self._judged, float64=False)  # it died of the reference
            answer = ask(self._judged, self._seconds)
        if (
            not answer.record
            and not answer.broken
            and answer.death()["oracle"] not in {oracle for oracle, *_ in self.marks}
        ):
            # A copy can hang on a lock that another thread held when it was made. One wrong answer ends a search, so it
            # is asked twice.
            answer = ask(self._judged, self._seconds)
        self.operators.update(answer.operators)
        self.lines = {**answer.lines, **self.lines}  # the first run counts: in later ones parts are switched off
        doubt = answer.record.get("trust") or {}
        if answer.broken or doubt.get("verdict") in ("INVALID", "SKIP"):
            raise _Stop(f"under the bisector the case could not be judged: {answer.broken or doubt['reason']}")
        self.drew_random |= bool(answer.record.get("drew_random"))
        findings = answer.record.get("findings", ()) if answer.record else [answer.death()]
        reproduced = any(mark_of(finding["oracle"], finding["error"]) in self.marks for finding in findings)
        self.reproduced |= reproduced
        return not reproduced


def _key_of(subsystem: str, number: int) -> str:
    return f"{subsystem} {number}"


def _times(runs: int) -> str:
    return f"{runs} run{'' if runs == 1 else 's'}"


# --- one judgement in a copy of this process ---


_PARTS = ("phase", "record", "broken", "operators", "lines")
"""Of an answer, those that its messages bring."""


@dataclass
class Answer:
    """What a copy said: its record, or how it ended."""

    record: Mapping[str, Any] = field(default_factory=dict)
    phase: str = ""
    status: int | None = None  # wait status; None when it had to be ended
    broken: str = ""
    operators: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def death(self) -> dict[str, Any]:
        """Return the end without a record as a finding; the words are those of the control half."""
        if self.phase in ("", "load", "eager", "eager-again"):
            return {"oracle": "invalid", "error": None}  # eager's own, which is not what is looked for
        if self.status is None:
            return {"oracle": "timeout", "error": {"type": "Timeout", "message": ""}}
        if os.WIFSIGNALED(self.status):
            return {"oracle": "signal", "error": {"type": signal_name(os.WTERMSIG(self.status)), "message": ""}}
        message = f"the process ended with exit status {os.WEXITSTATUS(self.status)} and without a result"
        return {"oracle": "runtime-error", "error": {"type": "NoResult", "message": message}}


def ask(job: Job, seconds: float) -> Answer:
    """Judge a job in a forked copy of this process, which is ended after ``seconds``.

    Where CUDA is up in this process a copy could not use it, and the job is judged right here.
    """
    if torch.cuda.is_initialized():
        return Answer(judge_job(job, lambda message: None).to_json(), "judge", 0)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _answer(job, writing)
    os.close(writing)
    try:
        return _listen(pid, reading, time.monotonic() + seconds)
    finally:
        os.close(reading)


def _listen(pid: int, reading: int, end: float) -> Answer:
    """Read a copy's messages until it has answered, ended, or used up its time. It is ended afterwards."""
    answer, text, status = Answer(), b"", None
    while not answer.record and not answer.broken and time.monotonic() < end:
        if select.select([reading], [], [], 0.1)[0]:
            data = os.read(reading, 1 << 16)
            if not data:
                break
            *lines, text = (text + data).split(b"\n")
            for message in map(json.loads, lines):
                debuggers.add_applied({int(number): name for number, name in message.get("applied", {}).items()})
                answer = replace(answer, **{key: part for key, part in message.items() if key in _PARTS})
        elif (status := _ended_within(pid, 0)) is not None:  # something that it started holds the pipe
            break
    answer.status = _end_copy(pid, status)
    return answer


def _end_copy(pid: int, status: int | None) -> int | None:
    """End a copy with all that it started. Return its wait status; None if it did not end by itself."""
    status = _ended_within(pid, 0.5) if status is None else status
    ended = status is not None
    for number, patience in ((signal.SIGTERM, 0.3), (signal.SIGKILL, 5.0)):
        # First politely: a compiler that is asked removes what it has written by halves.
        with contextlib.suppress(OSError):
            os.killpg(pid, number)
        ended = ended or _ended_within(pid, patience) is not None
    with contextlib.suppress(ChildProcessError):  # what it had started came to us
        while os.waitpid(-pid, os.WNOHANG)[0]:
            pass
    return status


def _ended_within(pid: int, seconds: float) -> int | None:
    """Return the wait status of a copy; None if it still runs after that time."""
    until = time.monotonic() + seconds
    while not (ended := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < until:
        time.sleep(0.01)
    return ended[1] if ended[0] else None


def _answer(job: Job, writing: int) -> NoReturn:
    """Judge in the copy, send the record, and exit.

    Nothing of this process may be unwound: the bisector would tidy up.
    """
    own = os.getpid()

    def say(message: Mapping[str, Any]) -> None:
        if os.getpid() != own:
            os._exit(1)  # a copy that the case forked
        data = encode(message)
        while data:
            data = data[os.write(writing, data) :]

    try:
        os.setsid()
        die_with_parent(signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        operators: dict[str, str] = {}
        lines: dict[str, int] = {}

        def note_line(subsystem: str, number: int, trace: str) -> None:
            if (line := line_of(trace)) is not None:
                lines[_key_of(subsystem, number)] = line

        debuggers.watch_applications(operators.__setitem__, note_line)
        record = judge_job(job, say).to_json()
        say({"record": record, "operators": operators, "lines": lines, "applied": debuggers.applied()})
    except BaseException:  # noqa: BLE001  whatever it is, the parent must hear of it
        say({"broken": traceback.format_exc().strip().splitlines()[-1]})
    finally:
        os._exit(0)


def line_of(trace: str) -> int | None:
    """Return the innermost line of the case's own source in a stack that torch keeps with a node; None without one."""
    files = {getattr(module, "__file__", None) for name, module in [*sys.modules.items()] if name.startswith(MODULE)}
    lines = [int(line) for file, line in _FRAME.findall(trace) if file in files]
    return lines[-1] if lines else None
