"""``docs/tutorial.md``, followed literally: one shell writes its files, types its commands, and sees what the page shows.

The clone is a copy. torch and the other dependencies are those of this Python: its new environment may import them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .driver import KNOWN_ISA, REPOSITORY, environment
from .language_server import language_server

PAGE = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
CLONE = ("pyproject.toml", "README.md", "LICENSE", "runner", "schema", "specs")
"""What is built and installed."""
MARK = "---- end of the command"
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)

PYTHON = """\
#!/bin/sh
# python3, whose new environments can import what this Python imports
{python} "$@" || exit
[ "$1 $2" = "-m venv" ] || exit 0
for folder in "$3"/lib/python*/site-packages; do printf '%s\\n' {packages} > "$folder/packages.pth"; done
"""


@dataclass(frozen=True, slots=True)
class Typed:
    """One command of the page, and the output that the page shows; None where it shows none."""

    command: str
    shown: str | None


def steps(page: str) -> Iterator[Typed]:
    """Yield the commands of a page in order. A file is a command that writes it."""
    for block in BLOCK.finditer(page):
        if block["language"] == "console":
            for lines in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
                command, _, shown = lines.partition("\n")
                yield Typed(command, shown or None)
        else:
            name = block["text"].partition("\n")[0].removeprefix("# ")
            yield Typed(f"cat > {name} <<'END'\n{block['text']}END", None)


def matches(shown: str, output: str) -> bool:
    """Return whether an output is what a page shows. Dots stand for any text, in a line of their own for any lines."""
    lines = [
        re.escape(line).replace(r"\.\.\.", ".*") + "\n" if line != "..." else "(?:.*\n)*?"
        for line in shown.splitlines()
    ]
    return re.fullmatch("".join(lines), output) is not None


def follow(folder: Path, typed: list[Typed]) -> list[tuple[str, int]]:
    """Type the commands into one shell. Return the output and the exit code of each."""
    lines = [f"{step.command}\ncode=$?; echo; echo '{MARK}' $code; (exit $code)" for step in typed]
    # Of this variable pip takes 0 for "no isolation": the builder is the one that is installed, and nothing is downloaded.
    variables = environment(
        KNOWN_ISA | {"PATH": f"{folder.parent / 'bin'}:/usr/local/bin:/usr/bin:/bin", "PIP_NO_BUILD_ISOLATION": "0"}
    )
    process = subprocess.run(
        ["bash"], input="\n".join(lines) + "\n", cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800
    )  # fmt: skip
    parts = re.split(rf"\n{MARK} (\d+)\n", process.stdout)
    return [(output, int(code)) for output, code in zip(parts[::2], parts[1::2], strict=False)]


def faults(typed: list[Typed], results: list[tuple[str, int]]) -> list[str]:
    """Return what differs from the page: an output, a command that was not typed, an exit code that the page does not ask for."""
    messages = [f"not typed: {step.command}" for step in typed[len(results) :]]
    for place, (step, (output, code)) in enumerate(zip(typed, results, strict=False)):
        asked = place + 1 < len(typed) and typed[place + 1].command == "echo $?"
        if (step.shown is not None and not matches(step.shown, output)) or (code != 0 and not asked):
            messages.append(f"$ {step.command}: exit code {code}\n{output}")
    return messages


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the repository, and a ``python3`` before others in the path."""
    for name in CLONE:
        source, target = REPOSITORY / name, tmp_path / "clone" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(PYTHON.format(python=sys.executable, packages=" ".join(packages)))
    python.chmod(0o755)
    return tmp_path / "clone"


@pytest.mark.nightly
def test_a_new_user_comes_from_the_installation_to_a_report(clone: Path) -> None:
    pytest.importorskip("hatchling", reason="pip has nothing to build the package with")
    typed = [*steps(PAGE)]
    assert faults(typed, follow(clone, typed)) == []


@pytest.mark.slow
def test_a_first_case_is_written_and_passes(clone: Path) -> None:
    """The part of the page that takes seconds, with the command of this checkout. The README's test has the planted bug."""
    script = clone.parent / "bin" / "runner"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m runner "$@"\n')
    script.chmod(0o755)
    _, found, rest = PAGE.partition("## Write a case")
    part, end, _ = rest.partition("## See it fail")
    typed = [*steps(part)]
    assert found and end and faults(typed, follow(clone, typed)) == []
    check_editor(clone / "first")


def check_editor(folder: Path) -> None:
    """See that an editor in the folder of the tutorial completes and underlines as the page says, where its server is installed."""
    program = shutil.which("yaml-language-server")
    if program is None:
        return
    wrong, right, *_ = [
        block["text"] for block in BLOCK.finditer(PAGE) if block["text"].startswith("# first.spec.yaml")
    ]
    with language_server(program, {}) as server:
        assert [words for _, words, _ in server.open(folder / "wrong.spec.yaml", wrong).underlined] == ["F.rellu"]
        assert server.open(folder / "right.spec.yaml", right).underlined == []
        items = server.open(folder / "typed.spec.yaml", wrong.replace("F.rellu", "F.rel")).complete("- F.rel")
        assert {"F.relu", "F.relu6", "F.relu_"} <= {item["label"] for item in items}


def test_the_page_has_every_station_of_the_way() -> None:
    commands = [step.command.split()[1] for step in steps(PAGE) if step.command.startswith("runner ")]
    assert commands == [
        "--version",
        "schema",
        "operators",
        "validate",
        "validate",
        "show",
        "run",
        "run",
        "why",
        "issue",
        "run",
    ]
    assert all(f"# {name}" in PAGE for name in ("first.spec.yaml",)) and "TESTING_ONLY" in PAGE


@pytest.mark.parametrize(
    ("shown", "output", "expected"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("...\nb\n", "b\n", True),
        ("...\nb\n", "a\na\nb\n", True),
        ("...\nb\n", "ab\n", False),
        ("a\n...\nc\n...\n", "a\nb\nc\n", True),
        ("a\n...\nc\n", "a\nb\nd\n", False),
        ("in ...s\n", "in 1.5s\n", True),
        ("in ...s\n", "in 1\n2s\n", False),
    ],
)
def test_an_output_is_compared_with_what_a_page_shows(shown: str, output: str, expected: bool) -> None:
    assert matches(shown, output) is expected


def test_files_and_commands_are_typed_in_order(tmp_path: Path) -> None:
    page = "```yaml\n# a.yaml\nx: $y\n```\n\n```console\n$ cat a.yaml\n# a.yaml\nx: $y\n$ false\n$ echo $?\n1\n```\n"
    typed = [*steps(page)]
    assert [step.shown for step in typed] == [None, "# a.yaml\nx: $y\n", None, "1\n"]
    (tmp_path / "clone").mkdir()
    results = follow(tmp_path / "clone", typed)
    assert results == [("", 0), ("# a.yaml\nx: $y\n", 0), ("", 1), ("1\n", 0)] and faults(typed, results) == []


@pytest.mark.parametrize(
    ("place", "result", "fault"),
    [
        (0, ("b\n", 0), "$ one: exit code 0\nb\n"),
        (0, ("a\n", 1), "$ one: exit code 1\na\n"),
        (1, ("", 1), ""),
        (2, ("0\n", 0), "$ echo $?: exit code 0\n0\n"),
    ],
)
def test_what_differs_from_the_page_is_found(place: int, result: tuple[str, int], fault: str) -> None:
    typed = [Typed("one", "a\n"), Typed("two", None), Typed("echo $?", "1\n")]
    results = [("a\n", 0), ("", 0), ("1\n", 0)]
    results[place] = result
    assert faults(typed, results) == ([fault] if fault else [])
    assert faults(typed, results[:2])[0] == "not typed: echo $?"
