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
import re
from typing import Any

from runner.contract.job import Job
from runner.contract.settings import FALLBACK_RANDOM
from runner.worker.run.job import Send, own_cache
from runner.worker.tasks.copies import Question, Stop, key_of, times
from runner.worker.torch_private import debuggers

_OVERLOAD = re.compile(r"<OpOverload\(op='([^']*)', overload='([^']*)'\)>")


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
    question = _Question(job, send)
    printed = io.StringIO()
    result: Any = None
    note = ""
    with own_cache():  # the bisector deletes folders in it
        try:
            with contextlib.redirect_stdout(printed):
                result = debuggers.bisect(question)
        except Stop as stop:
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
            return None, f"under the bisector the failure did not show in {times(question.runs)}"
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
        "line": question.lines.get(key_of(result.subsystem, result.bisect_number)),
    }, ""


class _Question(Question):
    """What the bisector calls: True when the failure does not show.

    ``fixed_by``: the subsystem without which it does not show.
    """

    def __init__(self, job: Job, send: Send) -> None:
        super().__init__(job, send, "bisecting")
        self.fixed_by: str | None = None
        self._switched: dict[str, bool] = {}  # subsystem to the answer without it

    def __call__(self) -> bool:
        backend, subsystem, state = debuggers.current_question()
        if backend != self.backend:
            return True  # the ladder has answered for the others
        if subsystem is None:
            return self.is_right("as it is")
        if state != "test_disable":
            return self.is_right(subsystem)
        # The bisector begins again at the second subsystem when it comes to the end of them, and once more, and so on.
        if subsystem not in self._switched:
            setting = debuggers.setting_of(self.backend, subsystem)
            config = {FALLBACK_RANDOM: self.drew_random, **self.judged.config}
            # Where the job has that setting already, the answer is known.
            is_set = (
                setting is not None
                and setting.config == "inductor"
                and config.get(f"torch._inductor.config.{setting.field}") == setting.value
            )
            self._switched[subsystem] = not is_set and self.is_right(f"without {subsystem}")
        if self._switched[subsystem]:
            self.fixed_by = subsystem
        return self._switched[subsystem]
