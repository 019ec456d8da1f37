"""Faults that a process of the fuzzer plants in the program before a command, one for each oracle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def paste_text() -> None:
    """Any text goes into Python as it is, between quotes."""
    from runner.builder import render
    from runner.cases import chain_reader

    chain_reader.plain_text = lambda text, *_: text
    whole = render.literal
    render.literal = lambda value: f'"{value}"' if isinstance(value, str) else whole(value)  # type: ignore[assignment]


def raise_in_reader() -> None:
    from runner.cases.suites import Reader

    def spec(*_: Any, **__: Any) -> Any:
        raise RecursionError("planted")

    Reader.spec = spec  # type: ignore[method-assign]
    Reader.suites = spec  # type: ignore[method-assign]
    Reader.files = spec  # type: ignore[method-assign]


def print_raw() -> None:
    from runner import console

    console.output = lambda text="", end="\n": sys.stdout.write(f"\x1b[2J{text}{end}")  # type: ignore[assignment,misc]


def print_bytes() -> None:
    os.write(1, b"caf\xe9 and more of it\n")


def print_no_place() -> None:
    os.write(2, b"error: something is wrong somewhere\n")


def print_much() -> None:
    os.write(2, b"runner: much\n" * 100_000)


def end_with_internal() -> None:
    from runner.cli import validate

    validate.run = lambda *_: 3  # type: ignore[assignment]


def end_without_word() -> None:
    from runner.cli import validate

    validate.run = lambda *_: 4  # type: ignore[assignment]


def kill_itself() -> None:
    os.kill(os.getpid(), 11)


def burn_time() -> None:
    import time

    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass


def hold_memory() -> None:
    held = b"x" * (100 << 20)
    assert held


def run_program() -> None:
    from runner.cli import show

    def run(*_: Any) -> int:
        subprocess.run(["true"], check=True)
        print("import torch")
        return 0

    show.run = run  # type: ignore[assignment]


def write_file() -> None:
    from runner.cli import show

    def run(*_: Any) -> int:
        Path("left_behind.txt").write_text("x")
        print("import torch")
        return 0

    show.run = run  # type: ignore[assignment]


def run_payload() -> None:
    Path("zq_canary").touch()


def go_on() -> None:
    """Whatever is refused, ``show`` prints something."""
    from runner.cli import show

    def run(*_: Any) -> int:
        print("import torch")
        return 0

    show.run = run  # type: ignore[assignment]


def answer_by_the_clock() -> None:
    import time

    print(f"import torch  # {time.perf_counter_ns()}")


def import_by_payload() -> None:
    print("import zq_module")


def print_no_python() -> None:
    print("def (")


def write_another_case() -> None:
    from runner.cases import serialize

    whole = serialize.case_text
    serialize.case_text = lambda *given: whole(*given).replace("F.relu", "F.gelu")  # type: ignore[assignment]


def break_xml() -> None:
    print("<")
