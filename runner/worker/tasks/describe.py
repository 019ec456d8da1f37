"""What an environment has: torch's text for bug reports, its operator database, and code that a run names.

Of each operator it tells how a case may spell it, and with which dtypes torch tests it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import Any

import torch

from runner.contract.job import Job
from runner.contract.lines import KIND
from runner.worker.program import global_state
from runner.worker.program.backends import find, packages
from runner.worker.program.errors import BackendNotFound, InvalidCase
from runner.worker.program.generated_code import CONSTRUCTS
from runner.worker.program.lines import line_table
from runner.worker.program.load import environment
from runner.worker.run.job import Send
from runner.worker.torch_private.operator_database import entries, tables

_SPACES = {"": "torch", "nn.functional": "F"}
_REFLECTED = {"and": "and_", "or": "or_", "div": "truediv"}
"""Methods such as ``__rand__``, and how Python's module ``operator`` spells what calls them."""


def run_environment(job: Job, send: Send) -> dict[str, Any]:
    """Return ``text`` as ``python -m torch.utils.collect_env`` prints it, ``torch``, the whole version, and ``error``,
    null.

    Where the argument ``backend`` names one of another package, ``package`` is what ``_package`` says of it.
    """
    from torch.utils.collect_env import get_pretty_env_info

    text = get_pretty_env_info()  # type: ignore[no-untyped-call,unused-ignore]
    package: dict[str, str] = {}
    if name := str(job.arguments.get("backend") or ""):
        with environment(job):
            package = _package(name)
    return {"text": str(text), "torch": str(torch.__version__), "package": package, "error": None}


_TRACKERS = (("issue", "bug", "tracker"), ("source", "repository", "code"), ("home",))
"""Words in the label of a package's address, those first that lead nearer to its tracker."""


def _package(backend: str) -> dict[str, str]:
    """Return ``name``, ``version`` and ``url`` of the package of a backend, the last two as far as it says them."""
    top = backend.partition(":")[0].partition(".")[0] if ":" in backend else next(iter(sorted(packages(backend))), "")
    name = next(iter(metadata.packages_distributions().get(top, ())), top)
    try:
        facts = metadata.metadata(name)
    except (metadata.PackageNotFoundError, ValueError):  # a module beside the case; no name at all
        return {"name": top, "version": "", "url": ""}
    pairs = [entry.partition(",")[::2] for entry in facts.get_all("Project-URL") or ()]
    pairs += [("home", str(url)) for url in facts.get_all("Home-page") or ()]
    ranked = (url.strip() for words in _TRACKERS for label, url in pairs if any(w in label.lower() for w in words))
    return {"name": name, "version": str(facts["Version"] or ""), "url": next(ranked, "")}


def run_code(job: Job, send: Send) -> dict[str, Any]:
    """Return ``error``, why a module of the job's imports cannot be imported, or null, and ``faults``: by those of the
    argument ``backends`` that cannot be had, why. ``settings`` are torch's that importing a backend changes: by the
    backend, the expression of each with its value before and after."""
    send({"phase": "load"})
    faults: dict[str, str] = {}
    settings: dict[str, dict[str, list[str]]] = {}
    try:
        with environment(job):
            for name in job.arguments["backends"]:
                original = global_state.read()
                try:
                    find(name)
                except BackendNotFound as error:
                    faults[name] = error.reason
                changed = global_state.changes(original).items()
                settings[name] = {of: [*map(repr, pair)] for of, pair in changed if global_state.is_public(of)}
    except InvalidCase as error:
        return {"faults": {}, "settings": {}, "error": error.reason}
    return {"faults": faults, "settings": settings, "error": None}


def run_database(job: Job, send: Send) -> dict[str, Any]:
    """Return ``names``, by each name of the database what ``_facts`` says, and ``missing``: why it is missing, or
    nothing.

    ``tables`` are the compiler's, where the job's argument ``tables`` asks for them: names, or lines, or both. Lines
    are those of the argument ``packages`` too.
    """
    asked = job.arguments.get("tables", ())
    compiler = {**tables(), "construct": [*CONSTRUCTS]} if "parts" in asked else {}
    if "lines" in asked:
        with environment(job):
            compiler = {**compiler, KIND: line_table(map(str, job.arguments.get("packages", ())))}
    try:
        database = entries()
    except ImportError as error:
        return {"names": {}, "tables": compiler, "missing": str(error), "error": None}
    names: dict[str, dict[str, list[str]]] = {}
    for entry in database:
        facts = names.setdefault(entry.name, {"spellings": [], "dtypes": [], "backward": []})
        for key, values in _facts(entry).items():
            facts[key] = sorted({*facts[key], *values})
    return {"names": names, "tables": compiler, "missing": "", "error": None}


def _facts(entry: Any) -> dict[str, set[str]]:
    """Return the names by which a case may call an entry, and its dtypes on the CPU, forward and backward."""
    backward = entry.supported_backward_dtypes("cpu") if entry.supports_autograd else ()
    return {
        "spellings": {*_spellings(entry)},
        "dtypes": {str(dtype).removeprefix("torch.") for dtype in entry.supported_dtypes("cpu")},
        "backward": {str(dtype).removeprefix("torch.") for dtype in backward},
    }


def _spellings(entry: Any) -> Iterator[str]:
    """Yield the entry as a function, a method, in place, an operator of Python and of ATen, and by its aliases."""
    space, _, member = entry.name.removeprefix("torch.ops.").rpartition(".")
    for name in (member, *(alias.name.rpartition(".")[2] for alias in entry.aliases)):
        yield f"{_SPACES.get(space, f'torch.{space}')}.{name}"
        if not space:
            yield f"Tensor.{name}"
    for variant in (entry.method_variant, entry.inplace_variant):
        yield f"Tensor.{getattr(variant, '__name__', member)}"
    for variant in (entry.operator_variant, entry.inplace_operator_variant):
        if variant is not None:
            yield f"operator.{variant.__name__}"
    if member.startswith("__r") and member.endswith("__"):
        word = member.strip("_")[1:]
        yield f"operator.{_REFLECTED.get(word, word)} of a number"
    yield f"aten.{entry.aten_name.removeprefix('torch.').removeprefix('ops.aten.').partition('.')[0]}"
    function = getattr(entry.op, "__name__", "")
    if function and getattr(torch, function, None) is entry.op:
        yield f"torch.{function}"
