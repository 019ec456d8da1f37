"""Questions about a failure, each answered by a judgement in a forked copy of this process.

The answer is the whole judgement of a job. So a crash or a hang is an answer like any other. It counts only if the
failure is one that the job names.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import torch

from runner.contract.finding import mark_of, signal_name
from runner.contract.job import Job
from runner.contract.oracles import row_of
from runner.worker.processes import die_with_parent, encode
from runner.worker.program.cut import CutCall, watch_calls
from runner.worker.program.load import MODULE
from runner.worker.run.job import Send, judge_job
from runner.worker.torch_private import debuggers

SECONDS = 60.0
"""One judgement may take so long; then it counts as a timeout."""

SLOWER = 3.0
"""How many times as long as the first one of the whole case it may take, where that is more."""

GROSS = 0.01
"""An error of this part of the tensor's largest value needs no float64 run while a search narrows down.

It is no rounding of float32. That of a half may be: what a search ends with is then asked with that run too.
"""

BUDGET = 270.0
"""All of them together may take so long; then what is known so far is the answer."""

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_NO_CACHE = {
    "torch._inductor.config.fx_graph_cache": False,
    "torch._functorch.config.enable_autograd_cache": False,
    # On 2.6 it compiles in a cache folder of its own, and what the bisector knows lies in the cache folder.
    "torch._inductor.config.force_disable_caches": False,
}


class Stop(Exception):
    """No further question will be answered; the text says why."""


class Question:
    """Asks again and again whether a failure shows, in copies of this process.

    ``runs`` counts the judgements, and ``reproduced`` says whether the failure has shown at least once. ``operators``
    are the operators of the graph's nodes by name. ``lines`` are those of the source that applications come from.
    ``answer`` is the last one.

    While it ``is_quick``, a gross error counts without the float64 run, which takes most of the time of a large model.
    An error that is less ends that.
    """

    def __init__(self, job: Job, send: Send, verb: str) -> None:
        """Ask nothing yet.

        Args:
            job: its arguments hold ``wanted``, a list of [oracle, class of the exception, pattern] as ``mark_of`` makes
                them: any of them is the failure. ``seconds`` and ``budget``: see SECONDS and BUDGET.
            send: told what is asked.
            verb: what the questions are for, such as ``bisecting``.
        """
        self.job, self.send, self.verb = job, send, verb
        self.marks = [tuple(mark) for mark in job.arguments["wanted"]]
        self.backend = str(job.backend["backend"])
        self.runs, self.reproduced, self.drew_random = 0, False, False  # eager draws: Inductor takes its generator
        self.operators: dict[str, str] = {}
        self.lines: dict[str, int] = {}
        self.answer = Answer()
        self.judged = replace(job, task="judge", arguments={}, config={**job.config, **_NO_CACHE})
        self._is_hang = any(oracle == "timeout" for oracle, *_ in self.marks)
        self.is_quick = False
        self._seconds = float(job.arguments.get("seconds") or SECONDS)
        self._end = time.monotonic() + float(job.arguments.get("budget") or BUDGET)

    def is_right(self, text: str, backend: Mapping[str, Any] | None = None) -> bool:
        """Return whether the failure does not show, under the job's backend or another one.

        Raises:
            Stop: the time is up, or the case could not be judged.
        """
        return self.put(text, backend) is not False

    def put(self, text: str, backend: Mapping[str, Any] | None = None) -> bool | str:
        """Return False where the failure shows, True where it does not, and else the other failure that hides it.

        A wrong value cannot show where the backend raises, dies or hangs.

        Raises:
            Stop: the time is up, or the case could not be judged.
        """
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise Stop(f"the time for {self.verb} was up after {times(self.runs)}")
        self.runs += 1
        self.send({"phase": f"{self.verb} {self.backend}, run {self.runs}: {text}"})
        judged = self.judged if backend is None else replace(self.judged, backend=backend)
        began, is_first = time.monotonic(), self.runs == 1 and not self._is_hang
        seconds = remaining + self._seconds / 2
        seconds = seconds if is_first else min(self._seconds, seconds)
        self._take(replace(judged, float64=judged.float64 and not self.is_quick), seconds)
        if self.is_quick and (wanted := self._wanted()) and not any(map(_is_gross, wanted)):
            self.is_quick = False
            self._take(judged, seconds)
        if is_first:
            self._seconds = max(self._seconds, SLOWER * (time.monotonic() - began))
        return self._read()

    def _take(self, judged: Job, seconds: float) -> None:
        """Have a job answered, anew where the copy died of the float64 run or of a lock."""
        answer = ask(judged, seconds)
        if answer.phase == "float64" and not answer.record:
            self.judged = replace(self.judged, float64=False)  # it died of the reference
            judged = replace(judged, float64=False)
            answer = ask(judged, self._seconds)
        if (
            not answer.record
            and not answer.broken
            and answer.death()["oracle"] not in {oracle for oracle, *_ in self.marks}
        ):
            # A copy can hang on a lock that another thread held when it was made. One wrong answer ends a search, so it
            # is asked twice.
            answer = ask(judged, self._seconds)
        self.answer = answer
        self.operators.update(answer.operators)
        self.lines = {**answer.lines, **self.lines}  # the first run counts: in later ones parts are switched off
        doubt = answer.record.get("trust") or {}
        if answer.broken or doubt.get("verdict") in ("INVALID", "SKIP"):
            raise Stop(f"under {self.verb} the case could not be judged: {answer.broken or doubt['reason']}")
        self.drew_random |= bool(answer.record.get("drew_random"))

    def _findings(self) -> Sequence[Mapping[str, Any]]:
        return self.answer.record.get("findings", ()) if self.answer.record else [self.answer.death()]

    def _wanted(self) -> list[Mapping[str, Any]]:
        """Return the findings that are the failure."""
        return [finding for finding in self._findings() if mark_of(finding["oracle"], finding["error"]) in self.marks]

    def _read(self) -> bool | str:
        """Return what the latest answer says, as ``put`` does."""
        if self._wanted():
            self.reproduced = True
            return False
        hiding = (
            finding for finding in self._findings() if row_of(finding["oracle"]).crash or finding["oracle"] == "invalid"
        )
        marks = (mark_of(each["oracle"], each["error"]) for each in hiding)
        return next(
            (": ".join(filter(None, (f"{oracle} {error}".strip(), text))) for oracle, error, text in marks), True
        )


def _is_gross(finding: Mapping[str, Any]) -> bool:
    """Return whether a wrong value is so far off that no rounding explains it."""
    error, scale = (finding["numbers"].get(name) for name in ("abs_error_max", "scale"))
    return isinstance(error, int | float) and isinstance(scale, int | float) and error > GROSS * scale


def times(runs: int) -> str:
    """Return how often something ran, in words."""
    return f"{runs} run{'' if runs == 1 else 's'}"


_PARTS = ("phase", "record", "broken", "operators", "lines", "calls")
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
    calls: Sequence[Mapping[str, Any]] = ()  # of the graphs, where a cut watched them: target, name and line

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
        handed: list[CutCall] = []
        watch_calls(lambda calls: handed.__setitem__(slice(None), calls))
        record = judge_job(job, lambda message: None).to_json()
        return Answer(record, "judge", 0, calls=[_plain(call) for call in handed])
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
                lines[key_of(subsystem, number)] = line

        watch_calls(lambda calls: say({"calls": [_plain(call) for call in calls]}))
        debuggers.watch_applications(operators.__setitem__, note_line)
        record = judge_job(job, say).to_json()
        say({"record": record, "operators": operators, "lines": lines, "applied": debuggers.applied()})
    except BaseException:  # noqa: BLE001  whatever it is, the parent must hear of it
        say({"broken": traceback.format_exc().strip().splitlines()[-1]})
    finally:
        os._exit(0)


def _plain(call: CutCall) -> dict[str, Any]:
    return {"target": call.target, "name": call.name, "line": line_of(call.stack)}


def key_of(subsystem: str, number: int) -> str:
    """Return the key of an application in ``lines``."""
    return f"{subsystem} {number}"


def line_of(trace: str) -> int | None:
    """Return the innermost line of the case's own source in a stack that torch keeps with a node; None without one."""
    files = {getattr(module, "__file__", None) for name, module in [*sys.modules.items()] if name.startswith(MODULE)}
    lines = [int(line) for file, line in _FRAME.findall(trace) if file in files]
    return lines[-1] if lines else None
