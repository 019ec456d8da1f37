"""Faults that a fork plants in the program before a command: one for each oracle, and changed lines of the program."""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fuzz import files


@dataclass(frozen=True)
class Changed:
    """A function of the program with another text in one place. ``place`` is its module, a colon and its name there."""

    place: str
    old: str
    new: str

    def __call__(self) -> None:
        file, _, path = self.place.partition(":")
        owner: Any = importlib.import_module(file)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        function = inspect.unwrap(getattr(owner, name))
        names: dict[str, Any] = {}
        code = "from __future__ import annotations\n" + self.text(function)
        exec(compile(code, "planted", "exec"), function.__globals__, names)
        for module in [*sys.modules.values()]:  # who has imported it by its name has it too
            if not outer and vars(module).get(name) is getattr(owner, name) and module is not owner:
                setattr(module, name, names[name])
        setattr(owner, name, names[name])

    def text(self, function: Any) -> str:
        """Return the changed text. Raises ValueError where the program has become another."""
        source = textwrap.dedent(inspect.getsource(function))
        if source.count(self.old) != 1:
            raise ValueError(f"{self.place} does not have {self.old!r} once")
        return source.replace(self.old, self.new)


def paste_text() -> None:
    """Any text goes into Python as it is, between quotes."""
    from runner.builder import names_and_values
    from runner.cases import chains_and_inputs

    chains_and_inputs.plain_text = lambda text, *_: text
    whole = names_and_values.literal
    names_and_values.literal = lambda value: f'"{value}"' if isinstance(value, str) else whole(value)  # type: ignore[assignment]


COMPOSER, EXPRESSIONS, SERIALIZE = (
    "runner.cases.yaml.reader:Builder",
    "runner.cases.expressions",
    "runner.cases.serialize",
)
Edits = tuple[files.Edit, ...]
HUNTS: dict[str, tuple[Edits | None, str, str, Callable[[], None]]] = {
    # What earlier versions did.
    "an alias of a key is the same key": ((files.double,), "write", "write-back", Changed(
        f"{COMPOSER}._checked_key", "first is not None:", "first is not None and first is not node:")),
    # Bounds.
    "a power of any size": ((files.replace,), "show", "time", Changed(
        f"{EXPRESSIONS}:_value", "_bits(left_value, right_value) > MAX_BITS", "False")),
    "aliases of any size": ((files.bomb,), "validate", "time", Changed(
        f"{COMPOSER}._alias", "count > most", "False")),
    "errors of any expression": ((files.replace,), "validate", "traceback", Changed(
        f"{EXPRESSIONS}:parse", "except SyntaxError as error", "except ZeroDivisionError as error")),
    "JSON of any depth": (None, "report", "traceback", Changed(
        "runner.record.journal:parse_line", "except RecursionError", "except ZeroDivisionError")),
    # Texts that leave their place.
    "any text is code": ((files.plant_text,), "show", "twin", paste_text),
    "quotes end any text": ((files.plant_text,), "show", "python", paste_text),
    "quotes end a docstring": ((files.plant_text, files.change_text), "show", "python", Changed(
        "runner.quote:docstring", """.replace('"', "'")""", "")),
    "control characters are printed": (None, "report", "control-character", Changed(
        "runner.text:visible", "_UNFIT.sub(_escape, text)", "text")),
    # What is read is another thing than what was written.
    "a marked text is written bare": ((files.plant_text,), "write", "write-back", Changed(
        f"{SERIALIZE}:value_of", "if special or is_marked", "if False")),
    "tile: is not written": ((files.change_number,), "write", "write-back", Changed(
        f"{SERIALIZE}:_input", "tile=item.tile,", "")),
    "a way of init: loses its arguments": ((files.change_number,), "write", "write-back", Changed(
        f"{SERIALIZE}:_input", "_way(item.init, item.init_args)", "item.init")),
    # Logs, commands and places.
    "events are not held against the schema": (None, "report", "traceback", Changed(
        "runner.record.events:from_json", "event_checks()[kind](data)", "pass")),
    "a stranger's command line is obeyed": (None, "rerun --yes", "act", Changed(
        "runner.cli.run:taken_words", "harmless = option in HARMLESS", "harmless = True or option in HARMLESS")),
    "a refused log has an exit code of its own": (None, "report", "exit-code", Changed(
        "runner.cli.main:_end_of", "return error.code", "return 2")),
    "a diagnostic has no column": ((files.rename,), "validate", "place", Changed(
        "runner.diagnostics:Span.__str__", ":{self.column}", "")),
    "refused defaults are no matter": ((files.spoil_key,), "show", "refused", Changed(
        "runner.cases.suites:Reader._accepted", " and None not in file.refused", "")),
}  # fmt: skip
"""A fault by its name: the changes that must find it (None for those of logs), the command, the oracle, the fault."""


@dataclass(frozen=True)
class Code:
    """Statements that a fork runs before the command."""

    text: str

    def __call__(self) -> None:
        exec(self.text, {})


def _show(deed: str) -> Code:
    """``show`` does it, whatever the file, and prints a program."""
    return Code(
        f"from dataclasses import replace\nfrom runner.cli import cases\ndef run(*_):\n {deed}\n print('import torch')\n"
        " return 0\ncases.run_show = replace(cases.run_show, run=run)"
    )


_END_WITH = (
    "from dataclasses import replace; from runner.cli import cases; "
    "cases.run_validate = replace(cases.run_validate, run=lambda *_: {})"
)
go_on = _show("pass")
break_xml = Code("print('<')")
burn_time = Code("import time\nuntil = time.process_time() + 0.3\nwhile time.process_time() < until: pass")
hold_memory = Code("assert b'x' * (100 << 20)")
hang = Code("import time; time.sleep(60)")
FAULTS = [
    ("traceback", "validate", Code("from runner.cases.suites import Reader; Reader.suites = Reader.files = 0")),
    ("traceback", "show", Code("from runner.cases.suites import Reader; Reader.suites = Reader.files = 0")),
    ("exit-code", "validate", Code(_END_WITH.format(3))),
    ("silent", "validate", Code(_END_WITH.format(4))),
    ("signal", "list", Code("import os; os.kill(os.getpid(), 11)")),
    ("text", "validate", Code("import os; os.write(2, b'runner: much\\n' * 100_000)")),
    ("control-character", "list", Code("from runner import console; console.visible = lambda text: '\\x1b[2J' + text")),
    ("utf-8", "list", Code("import os; os.write(1, b'caf\\xe9 and more of it\\n')")),
    ("place", "validate", Code("import os; os.write(2, b'error: something is wrong somewhere\\n')")),
    ("act", "show", _show("import subprocess; subprocess.run(['true'], check=True)")),
    ("act", "show", _show("open('left_behind.txt', 'w').close()")),
    ("wrote", "show", _show("open('left_behind.txt', 'w').close()")),
    ("canary", "list", Code("open('zq_canary', 'w').close()")),
    ("python", "show", Code("print('def (')")),
    ("python-name", "show", Code("print('import zq_module')")),
    ("repeatable", "show", Code("import time; print('import torch  #', time.perf_counter_ns())")),
    (
        "write-back",
        "write",
        Changed(f"{SERIALIZE}:case_text", "case, folder))", "case, folder)).replace('F.relu', 'F.gelu')"),
    ),
]
"""The oracle that must see a fault, the command in which, and the fault."""
