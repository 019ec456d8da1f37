"""Cases in, diagnostics out: what the tests of this folder share."""

from __future__ import annotations

import textwrap
from pathlib import Path

from runner.cases.expand import expand
from runner.cases.limits import Limits
from runner.cases.model import Case, Suite, Variant
from runner.cases.suites import Reader
from runner.diagnostics import Diagnostic


def short(diagnostic: Diagnostic) -> str:
    """``name:line:column: message | hint``."""
    span = diagnostic.span
    kind = "" if diagnostic.severity == "error" else f"{diagnostic.severity}: "
    return f"{Path(span.file).name}:{span.line}:{span.column}: {kind}{diagnostic.message}" + (
        f" | {diagnostic.hint}" if diagnostic.hint else ""
    )


class Files:
    """A folder of spec and suite files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.diagnostics: list[Diagnostic] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def case_text(self, keys: str) -> str:
        """A file of one case, ``a``: its keys stand from line 3, column 5 on. It has an input and a chain if it says nothing of them."""
        keys = textwrap.dedent(keys).strip("\n")
        for key, line in (("inputs", "inputs: {x: [2, 3]}"), ("chain", "chain: [F.relu]")):
            if not any(text.startswith((f"{key}:", "module:")) for text in keys.split("\n")):
                keys += f"\n{line}"
        return "cases:\n  - name: a\n" + textwrap.indent(keys.strip("\n"), "    ") + "\n"

    def suites(self, *names: str, limits: Limits | None = None) -> list[Suite]:
        reader = Reader(limits or Limits())
        suites = reader.suites([self.folder / name for name in names])
        self.diagnostics = reader.problems
        return suites

    def errors(self, keys: str) -> list[str]:
        """What reading a case finds, as ``line:column: message | hint``."""
        self.write("a.spec.yaml", self.case_text(keys))
        self.suites("a.spec.yaml")
        return [short(d).removeprefix("a.spec.yaml:") for d in self.diagnostics]

    def case(self, keys: str) -> Case:
        """A case that reads without a problem."""
        assert self.errors(keys) == []
        return self.suites("a.spec.yaml")[0].cases[0]

    def variants(self, keys: str) -> list[Variant]:
        self.case(keys)
        return expand(self.suites("a.spec.yaml"))

    def ids(self, *names: str) -> list[str]:
        variants = expand(self.suites(*names))
        assert [short(d) for d in self.diagnostics] == []
        return [variant.id for variant in variants]

    def found(self) -> list[str]:
        """What the last reading found, with the files' names."""
        return [short(d) for d in self.diagnostics]
