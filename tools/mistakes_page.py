"""Writes the tables of docs/mistakes.md: what a beginner types, and what ``runner`` answers.

    python tools/mistakes_page.py            # rewrites them
    python tools/mistakes_page.py --check    # exit code 1 when that would change the page

Each mistake is typed: the file is written into an empty folder, and the command runs there in a process of its own.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "mistakes.md"

FILE = "first.spec.yaml"
RIGHT = """\
cases:
  - name: scaled
    tags: [small]
    inputs: {x: [2, 3]}
    chain:
      - F.relu
      - torch.add: [$_, 1]
"""
"""The file that every mistake is made in."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One row: what it is, and what is typed in place of which line of the file, or which command is typed."""

    title: str
    typed: str
    line: str = ""
    command: str = f"runner validate {FILE}"

    @property
    def text(self) -> str:
        """The file with the mistake."""
        assert not self.line or RIGHT.count(f"{self.line}\n") == 1, self.line
        return RIGHT.replace(f"{self.line}\n", f"{self.typed}\n") if self.line else RIGHT

    @property
    def words(self) -> list[str]:
        """The arguments of the command."""
        return (self.command if self.line else self.typed).split()[1:]


_INPUTS, _CHAIN, _RELU, _ADD = "    inputs: {x: [2, 3]}", "    chain:", "      - F.relu", "      - torch.add: [$_, 1]"

TEN = (
    Mistake("a tab", "\tinputs: {x: [2, 3]}", _INPUTS),
    Mistake("a space too few before", "   chain:", _CHAIN),
    Mistake("a forgotten `$`", "      - torch.add: [x, 1]", _ADD),
    Mistake("a keyword as in Python", "      - torch.softmax: [$_, dim=-1]", _ADD),
    Mistake("a misspelt operator", "      - F.rellu", _RELU),
    Mistake("a misspelt key", "    input: {x: [2, 3]}", _INPUTS),
    Mistake("a dtype", "    inputs: {x: {shape: [2, 3], dtype: float}}", _INPUTS),
    Mistake("a misspelt backend", f"runner run {FILE} --backend inducter"),
    Mistake("a misspelt tag", f"runner list {FILE} -k tag:smal"),
    Mistake("a misspelt path", "runner run frist.spec.yaml"),
)
MORE = (
    Mistake("no tensor", "      - F.softmax: -1", _ADD),
    Mistake("no namespace", "      - relu", _RELU),
    Mistake("a call as in Python", "      - F.softmax(x, dim=-1)", _RELU),
    Mistake("an index as in Python", "      - $x[0]", _RELU),
    Mistake("a step's key among the arguments", '      - torch.add: {"*": [$_, 1], out: y}', _ADD),
    Mistake("a mapping in a list", "      - torch.softmax: [$_, dim: -1]", _ADD),
    Mistake("another name of a dtype", "    dtypes: [fp32]\n    chain:", _CHAIN),
    Mistake("a dtype as an argument", "      - Tensor.to: [$_, float64]", _ADD),
    Mistake("Python's `None`", "      - torch.sum: [$_, None]", _ADD),
    Mistake("an internal name", "      - torch._softmax: [$_, 1, false]", _ADD),
    Mistake("no quotes in flow style", "    params: {n: [2]}\n    inputs: {x: [${n}, 3]}", _INPUTS),
    Mistake("a param as a size", "    params: {n: [2]}\n    inputs: {x: [$n, 3]}", _INPUTS),
    Mistake("curly quotes", "    dtypes: [\u201cfloat32\u201d]\n    chain:", _CHAIN),
    Mistake("a letter of another alphabet", "    \u0441hain:", _CHAIN),
    Mistake("a no-break space", "   \xa0inputs: {x: [2, 3]}", _INPUTS),
    Mistake("a step whose value is lost", "      - torch.add: [$x, 1]", _ADD),
    Mistake("an expected failure", "    xfail: true\n    chain:", _CHAIN),
    Mistake("a case to skip", "    skipif: cuda\n    chain:", _CHAIN),
    Mistake("one name twice", "    params: {x: [1, 2]}\n    inputs: {x: [2, 3]}", _INPUTS),
    Mistake("floats for integers", "    inputs: {x: {shape: [2, 3], dtype: int64, init: uniform}}", _INPUTS),
    Mistake("a misspelt exception", "    expect: {raises: {type: RuntimeEror}}\n    chain:", _CHAIN),
    Mistake("a device", "    devices: [gpu]\n    chain:", _CHAIN),
    Mistake("a device", f"runner run {FILE} --device gpu"),
)
TABLES = {"the ten": TEN, "more": MORE}

_PART = re.compile(r"<!-- generated: (?P<name>[^>]*?) -->\n(?P<body>.*?)<!-- end -->\n", re.DOTALL)


def main() -> None:
    """Rewrite the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when the page would change")
    arguments = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    fresh = _PART.sub(
        lambda part: f"<!-- generated: {part['name']} -->\n{table(TABLES[part['name']])}<!-- end -->\n", page
    )
    if arguments.check:
        sys.exit(int(fresh != page))
    PAGE.write_text(fresh, encoding="utf-8")


def table(mistakes: tuple[Mistake, ...]) -> str:
    """Return the table of some mistakes, with the answers that they get now."""
    return "| mistake | typed | answered |\n| --- | --- | --- |\n" + "".join(
        row(mistake, answer(mistake)) for mistake in mistakes
    )


def answer(mistake: Mistake) -> str:
    """Return what the command says of the mistake, in a folder of its own. Raises ValueError where it is content."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, FILE).write_text(mistake.text, encoding="utf-8")
        command = [sys.executable, "-m", "runner", *mistake.words]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False).stderr


def row(mistake: Mistake, stderr: str) -> str:
    """Return the row of a mistake; of the answer the first message and its hint, without the line that they show."""
    lines = [line.strip() for line in stderr.splitlines() if not re.match(r" *\d* \| ", line)]
    first = [line for line in lines if line][:2]
    if not first:
        raise ValueError(f"no answer to {mistake.typed!r}")
    if len(first) == 2 and not first[1].startswith("= "):
        del first[1]
    return f"| {mistake.title} | {_code(mistake.typed.split(chr(10)))} | {_code(first)} |\n"


def _code(lines: list[str]) -> str:
    cells = (line.replace("\t", "→").replace("\xa0", "␣").strip().replace("|", "\\|") for line in lines)
    return "<br>".join(f"`{line}`" for line in cells)


if __name__ == "__main__":
    main()
