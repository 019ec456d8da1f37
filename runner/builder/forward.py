"""Which input goes to which parameter of a Python model's ``forward``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.cases.model import PythonModule
from runner.cases.python_files import Signature, read_forward
from runner.diagnostics import nearest
from runner.files import read_text

_HINT = "positional: true, beside name:, passes the inputs by their order"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Names of the inputs in the order in which they are passed.

    The last ones go by ``keywords``, the others by position; ``parameters`` are what ``forward`` calls those.
    ``problems`` say, by the input, what is wrong and how to mend it.
    """

    inputs: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    problems: dict[str, tuple[str, str]] = field(default_factory=dict)


def arrange(module: PythonModule | None, names: Sequence[str]) -> Arrangement:
    """Return how inputs of these names are passed: by name where ``forward`` of ``module`` has the name.

    Others fill the positions that must be filled. All go by position in a chain, where the case says so, where the file
    does not tell the parameters, and where ``forward`` has none of the names.
    """
    if module is None:
        return Arrangement(tuple(names), parameters=tuple(names))
    forward = read_forward(read_text(Path(module.file)), module.name)
    if forward is None or module.positional or not {*forward.positional, *forward.keywords}.intersection(names):
        parameters = forward.positional if forward is not None else ()
        return Arrangement(tuple(names), parameters=(*parameters[: len(names)], *names[len(parameters) :]))
    return _arrange(forward, module.name, names)


def _arrange(forward: Signature, title: str, names: Sequence[str]) -> Arrangement:
    slots = {name: name for name in names if name in forward.positional or name in forward.keywords}
    more: list[str] = []
    problems: dict[str, tuple[str, str]] = {}
    for name in names:
        if name in slots:
            continue
        free = [p for p in forward.positional if p in forward.required and p not in slots]
        if free:
            slots[free[0]] = name
        elif forward.takes_any:
            slots[name] = name
        elif forward.takes_more:
            more.append(name)
        else:
            known = [*forward.positional, *forward.keywords]
            message = f"forward of {title} has no argument {name!r}"
            problems[name] = message, nearest(name, known) or _HINT
    count = next((place for place, p in enumerate(forward.positional) if p not in slots), len(forward.positional))
    first, later = forward.positional[:count], forward.positional[count:]
    for name in more if count < len(forward.positional) else ():
        problems[name] = f"forward of {title} takes {name!r} after {later[0]!r}, which no input gives", _HINT
    for place, parameter in enumerate(later, count):
        if parameter in slots and place < forward.unnamed:
            message = f"forward of {title} takes {parameter!r} by position, after {later[0]!r}, which no input gives"
            problems[slots[parameter]] = message, _HINT
    keywords = [p for p in (*later, *forward.keywords, *(n for n in names if n in slots)) if p in slots]
    keywords = [p for p in dict.fromkeys(keywords) if p not in first]
    if problems:
        return Arrangement(tuple(names), parameters=tuple(names), problems=problems)
    inputs = [*(slots[p] for p in first), *more, *(slots[p] for p in keywords)]
    return Arrangement(tuple(inputs), tuple(keywords), (*first, *more))
