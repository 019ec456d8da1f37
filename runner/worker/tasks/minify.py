"""Torch's own minifier, one step a process: provoke its launcher, let that cut the graph, run what is left.

The minifier changes global settings, the current folder and ``sys.argv``, and leaves them changed. The process of a
step is thrown away afterwards, so nothing is put back here. Each workaround and its cause: ``docs/minifying.md``.
"""

from __future__ import annotations

import copy
import functools
import os
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from runner.contract.job import Job
from runner.worker.processes import temporary_folder
from runner.worker.program import backends
from runner.worker.program.eager import settings_of_judged_run
from runner.worker.program.errors import InvalidCase, describe
from runner.worker.program.load import configured, environment, open_source
from runner.worker.program.observe import Settings, observe
from runner.worker.run.job import Send
from runner.worker.torch_private import debuggers
from runner.worker.torch_private.counters import start_counting
from runner.worker.torch_private.registry import backend_of, register

Function = Callable[..., Any]


class Died(Exception):
    """A child process that ran the graph in our stead was ended by a signal."""


def run_minify(job: Job, send: Send) -> dict[str, Any]:
    """Run one step. Return ``raised``, the facts of the error that ended it, or None.

    ``job.arguments`` holds ``step`` and

    * for ``provoke`` (run the case under the settings that write a launcher): ``folder``, ``after`` (dynamo or aot),
      ``level`` (2, 3 or 4), ``tolerance`` (of level 4, or None), ``alias`` (a name for the backend).
      ``signal`` is the name of the signal that ends the process, or empty;
    * for ``cut`` (run the launcher, which leaves ``repro.py`` in ``folder``): the same, ``launcher`` and ``flags`` for
      it;
    * for ``run``: ``script``.
    """
    send({"phase": "backend"})
    step = {"provoke": _provoke, "cut": _cut, "run": _run}[job.arguments["step"]]
    try:
        return {"raised": step(job)}
    except InvalidCase as error:
        return {"error": {"type": type(error).__name__, "message": error.reason}}


def _provoke(job: Job) -> dict[str, Any] | None:
    """Compile and run the case; torch writes the launcher into ``folder`` when it sees the failure."""
    given = job.arguments
    tolerance = given.get("tolerance")
    flags = {
        "torch._dynamo.config.repro_after": given["after"],
        "torch._dynamo.config.repro_level": given["level"],
        "torch._dynamo.config.debug_dir_root": given["folder"],
        "torch._inductor.config.force_disable_caches": True,
        **({} if tolerance is None else {"torch._dynamo.config.repro_tolerance": tolerance}),
    }
    with open_source(job) as source:
        os.chdir(os.path.dirname(source.path))  # torch leaves a copy of the whole graph in the current folder
        settings = Settings.of(job)
        backend = {**{key: job.backend.get(key) for key in ("dynamic", "fullgraph")}, "backend": _prepare(job)}
        # After the preparation: a process that is to fork has one thread, in eager too.
        with settings_of_judged_run(job, source), configured(flags.items()):
            start_counting()
            loaded = source.load(settings.seed)
            error = observe(loaded, backends.build(backend)(loaded.model), settings).error
        os.chdir("/")
    return error.info if error is not None else None


def _cut(job: Job) -> dict[str, Any] | None:
    """Run the launcher in this process. It knows backends by their names only, and others' are registered here."""
    given = job.arguments
    with environment(job), configured([("torch._dynamo.config.debug_dir_root", given["folder"])]):
        os.chdir(given["folder"])
        _prepare(job)
        return _script(given["launcher"], ["minify", *given["flags"]])


def _run(job: Job) -> dict[str, Any] | None:
    """Run a script of the minifier as ``python repro.py`` would: nothing of the case is set."""
    torch.set_num_threads(int(job.threads or torch.get_num_threads()))
    with temporary_folder() as folder:
        os.chdir(folder)
        raised = _script(job.arguments["script"], [])
        os.chdir("/")
    return raised


def _script(path: str, arguments: Sequence[str]) -> dict[str, Any] | None:
    sys.argv = [path, *arguments]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        return None if error.code in (None, 0) else describe(error).info
    except Exception as error:  # noqa: BLE001  whatever the compiler raises is what is asked for
        return describe(error).info
    return None


def _prepare(job: Job) -> str:
    """Apply settings and workarounds for either step. Return the name of the backend to compile with."""
    given, backend = job.arguments, job.backend
    name, arguments = str(backend["backend"]), {}
    if name == "inductor":
        debuggers.set_inductor(backend.get("mode"), backend.get("options"), backend.get("dynamic"))
    else:
        arguments = {key: backend[key] for key in ("mode", "options") if backend.get(key)}
    debuggers.write_bodies()
    number = int(signal.Signals[given["signal"]]) if given["signal"] else 0
    threads = int(job.threads or 1)
    if given["after"] == "dynamo":
        debuggers.allow_backward()
    elif given["step"] == "cut":
        _keep_inputs(number, threads)
    target = backends.find(name)
    if given["after"] == "aot" and not callable(target) and not arguments:
        return name
    function = backend_of(target) if isinstance(target, str) else target
    function = functools.partial(function, **arguments) if arguments else function
    if given["after"] == "dynamo":
        function = in_child(function, number, threads) if number else plain(function)
    register(function, given["alias"])  # the launcher looks a backend up by name
    return str(given["alias"])


def plain(compile_graph: Function) -> Function:
    """Return the backend without what misleads the minifier after Dynamo.

    It compiles a copy, since the minifier goes on with the graph that it gives away. Its result is called as Dynamo
    calls it: torch 2.13 lets AOT's functions inherit ``_boxed_call``, and the minifier then passes one list. The result
    has a graph's parameters and buffers. The minifier asks for them; Dynamo does not, and backends return plain
    functions.
    """

    def backend(graph: torch.fx.GraphModule, inputs: list[Any], **kwargs: Any) -> Function:
        graph = copy.deepcopy(graph)
        compiled = compile_graph(graph, inputs, **kwargs)
        return _like(graph, lambda *args: compiled(*args))

    return backend


def _like(graph: torch.fx.GraphModule, run: Function) -> Function:
    run.named_parameters = graph.named_parameters  # type: ignore[attr-defined]
    run.named_buffers = graph.named_buffers  # type: ignore[attr-defined]
    return run


def in_child(compile_graph: Function, number: int, threads: int) -> Function:
    """Return the backend run in a child process: a child that is ended by signal ``number`` raises ``Died`` here.

    Otherwise eager's result is returned. Forking is safe only while this process has no OpenMP threads, so it
    gets one thread. The children get ``threads``, for which code is generated.
    """
    run_as_minifier = debuggers.RUN.need()
    torch.set_num_threads(1)

    def backend(graph: torch.fx.GraphModule, inputs: list[Any], **kwargs: Any) -> Function:
        def attempt(args: Sequence[Any]) -> None:
            torch.set_num_threads(threads)
            run_as_minifier(plain(compile_graph)(graph, inputs, **kwargs), list(args))

        def run(*args: Any) -> Any:
            if ended_by(lambda: attempt(args)) == number:
                raise Died(f"the process was ended by {signal.Signals(number).name}")
            return graph(*args)

        return _like(graph, run)

    return backend


def ended_by(act: Callable[[], Any]) -> int:
    """Return the signal that ends a child process that does ``act``; 0 if none does."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _keep_inputs(number: int, threads: int) -> None:
    """Make the test of the minifier after AOT keep its inputs.

    Compiled code empties the list that it is given, and ``inductor_fails`` gives it the minifier's own. The next step
    then has no inputs for its graph ("len(ph_nodes)=7 != len(self.inps)=0"). If a failure ends the process, by signal
    ``number``, each test runs in a child.
    """
    tests = debuggers.TESTS.need()
    fails = tests[""]
    if number:
        torch.set_num_threads(1)

    def keeping(graph: torch.fx.GraphModule, inputs: Sequence[Any], check_str: str | None = None) -> bool:
        if not number:
            return bool(fails(graph, list(inputs), check_str=check_str))

        def attempt() -> None:
            torch.set_num_threads(threads)
            fails(graph, list(inputs), check_str=check_str)

        return ended_by(attempt) == number

    tests[""] = keeping
