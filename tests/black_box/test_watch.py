"""``runner watch``: what a save makes it run and print, and what it survives. Workers have a stand-in for torch."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.engine import process_tree

from .driver import command, environment, processes_of, run_in, spec, write

pytestmark = pytest.mark.usefixtures("stand_in")

FIRST = "name: first\ninputs: {x: [4]}\nchain: [F.relu]"
SECOND = "name: second\ninputs: {x: [4]}\nchain: [F.gelu]"
WAITS = r"watching \d+ files?; Ctrl-C ends it"
ALL = r"info: of all \d+: .*"


@dataclass
class Screen:
    """A command that runs, and what it prints."""

    process: subprocess.Popen[bytes]
    text: str = ""

    def until(self, pattern: str, limit: float = 60.0) -> str:
        """Return what is printed from the last match up to this one."""
        assert self.process.stdout is not None
        end = time.monotonic() + limit
        while (match := re.search(pattern + r".*\n", self.text)) is None:
            assert time.monotonic() < end, self.text
            self.text += (self.process.stdout.read() or b"").decode()
            time.sleep(0.02)
        seen, self.text = self.text[: match.end()], self.text[match.end() :]
        return seen

    def end(self) -> tuple[int, str]:
        """Send Ctrl-C; return the exit code and what is printed then."""
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(30)
        os.set_blocking(self.process.stdout.fileno(), True)
        return code, self.text + self.process.stdout.read().decode()


Watching = Callable[..., contextlib.AbstractContextManager[Screen]]


@pytest.fixture
def watching(tmp_path: Path) -> Watching:
    @contextlib.contextmanager
    def start(*words: str) -> Iterator[Screen]:
        process = subprocess.Popen(
            command("watch", *words, "-j", "1"), cwd=tmp_path, env=environment({"WATCH_TEST": str(tmp_path)}),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        with process:
            try:
                yield Screen(process)
            finally:
                process.kill()

    return start


def save(file: Path, text: str) -> None:
    """Write a file as editors do: another one, which then has its name."""
    new = file.with_name(f".{file.name}.new")
    new.write_text(text)
    new.replace(file)


def ran(text: str) -> list[str]:
    """Verdicts and cases in a text."""
    return [f"{verdict} {case}" for verdict, case in re.findall(r"^ *([A-Z]+) \[.*?\] .*?::(\w+)", text, re.M)]


def test_a_save_runs_what_it_changes_and_ctrl_c_ends_it(tmp_path: Path, watching: Watching) -> None:
    file = tmp_path / "a.spec.yaml"
    file.write_text(spec(FIRST, SECOND))
    with watching("a.spec.yaml", "--backend", "eager") as screen:
        assert ran(screen.until(WAITS)) == ["PASS first", "PASS second"]
        save(file, spec(FIRST, SECOND.replace("[4]", "[5]")))
        text = screen.until(ALL)
        assert "changed: a.spec.yaml; 1 of 2 variants to run" in text and ran(text) == ["PASS second"]
        assert "1 passed in" in text and "of all 2: 2 passed" in text
        save(file, "# a comment, which moves each line\n" + file.read_text())
        assert ran(screen.until("0 of 2 variants to run")) == []
        code, text = screen.end()
    assert (code, "Traceback" in text, "runner: interrupted" in text) == (2, False, True)
    assert not (tmp_path / ".runner").exists()
    end = time.monotonic() + 10
    while processes_of(str(tmp_path)) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes_of(str(tmp_path)) == []


def test_the_servers_of_the_first_run_serve_the_later_ones(tmp_path: Path, watching: Watching) -> None:
    file = tmp_path / "a.spec.yaml"
    file.write_text(spec(FIRST))
    with watching("a.spec.yaml", "--backend", "eager") as screen:
        screen.until(WAITS)
        before = {*processes_of(str(tmp_path))}
        assert len(before) >= 3, "the command, a zygote and a server"
        save(file, spec(FIRST.replace("[4]", "[5]")))
        screen.until("1 passed")
        assert before <= {*processes_of(str(tmp_path))}


@pytest.mark.parametrize("which", ["servers", "zygotes"])
def test_killed_processes_start_again(which: str, tmp_path: Path, watching: Watching) -> None:
    file = tmp_path / "a.spec.yaml"
    file.write_text(spec(FIRST))
    with watching("a.spec.yaml", "--backend", "eager") as screen:
        screen.until(WAITS)
        table = process_tree.processes()
        zygotes = [p for p in processes_of(str(tmp_path)) if table[p].parent == screen.process.pid]
        victims = zygotes if which == "zygotes" else [p for p in table if table[p].parent in zygotes]
        assert victims
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        for size in "56":
            save(file, spec(FIRST.replace("[4]", f"[{size}]")))
            assert ran(screen.until(r"\d passed|error")) == ["PASS first"]


def test_a_broken_file_is_told_with_its_place_and_its_old_verdicts_hold(tmp_path: Path, watching: Watching) -> None:
    file = tmp_path / "a.spec.yaml"
    file.write_text(spec(FIRST, SECOND))
    with watching("a.spec.yaml", "--backend", "eager") as screen:
        screen.until(WAITS)
        save(file, spec(FIRST, SECOND) + "  - name: [\n")
        text = screen.until("1 error in 1 file: these cases cannot run")
        assert re.search(r"a\.spec\.yaml:\d+:\d+", text) and "^" in text
        save(file, spec(FIRST, SECOND.replace("F.gelu", "F.glue")))
        text = screen.until("0 of 1 variant to run")
        assert "F.glue" in text and "1 error in 1 file" in text and ran(text) == [], "the sound case has its verdict"
        save(file, spec(FIRST, SECOND))
        assert ran(screen.until("0 of 2 variants to run")) == []
        assert screen.end()[0] == 2


def test_a_file_that_is_broken_at_first_runs_once_it_is_mended(tmp_path: Path, watching: Watching) -> None:
    file = tmp_path / "a.spec.yaml"
    file.write_text("cases: [")
    with watching("a.spec.yaml", "--backend", "eager") as screen:
        assert "1 error in 1 file" in screen.until(WAITS)
        file.write_text(spec(FIRST))
        assert ran(screen.until("1 passed")) == ["PASS first"]


def test_a_file_that_goes_is_told_and_may_come_back(tmp_path: Path, watching: Watching) -> None:
    file = tmp_path / "a.spec.yaml"
    file.write_text(spec(FIRST))
    with watching("a.spec.yaml", "--backend", "eager") as screen:
        screen.until(WAITS)
        file.unlink()
        screen.until("runner: no such file or directory: a.spec.yaml")
        file.write_text(spec(FIRST, SECOND))
        assert ran(screen.until(ALL)) == ["PASS second"]


def test_a_new_file_of_a_folder_runs(tmp_path: Path, watching: Watching) -> None:
    write(tmp_path, {"cases/a.spec.yaml": spec(FIRST)})
    with watching("cases", "--backend", "eager") as screen:
        screen.until(WAITS)
        write(tmp_path, {"cases/b.spec.yaml": spec(SECOND)})
        assert ran(screen.until(ALL)) == ["PASS second"]


def test_a_red_variant_stays_in_sight(tmp_path: Path, watching: Watching) -> None:
    file = tmp_path / "a.spec.yaml"
    bad = "name: bad\ninputs: {x: [4]}\nchain: [{Tensor.view: [$_, 3]}]"
    file.write_text(spec(FIRST, bad))
    with watching("a.spec.yaml", "--backend", "eager") as screen:
        assert ran(screen.until(WAITS)) == ["PASS first", "INVALID bad"]
        save(file, spec(FIRST.replace("[4]", "[5]"), bad))
        text = screen.until(ALL)
        assert ran(text) == ["PASS first"]
        assert "of all 2: 1 passed, 1 invalid; still red: a.spec.yaml::bad[float32,cpu]@eager" in text


def test_an_edit_of_a_backends_code_runs_what_it_compiles(tmp_path: Path, watching: Watching) -> None:
    right = "def compile_graph(graph, inputs):\n    return graph\n"
    write(tmp_path, {"a.spec.yaml": spec(FIRST), "acme.py": right})
    with watching("a.spec.yaml", "--backend", "acme:compile_graph", "--backend", "eager", "--no-confirm") as screen:
        assert ran(screen.until(WAITS)) == ["PASS first", "PASS first"]
        save(tmp_path / "acme.py", right.replace("return graph", "return lambda *inputs: 0"))
        text = screen.until(ALL)
        assert "changed: acme.py; 1 of 2 variants to run" in text and ran(text) == ["FAIL first"]
        save(tmp_path / "acme.py", right)
        assert ran(screen.until(ALL)) == ["PASS first"]


def test_a_save_ends_what_runs_and_verdicts_so_far_hold(tmp_path: Path, watching: Watching) -> None:
    file = tmp_path / "a.spec.yaml"
    many = spec(FIRST.replace("F.relu", "{torch.add: [$x, $n]}") + f"\nparams: {{n: {[*range(60)]}}}", SECOND)
    file.write_text(many)
    with watching("a.spec.yaml", "--backend", "eager") as screen:
        early = screen.until(r"\(1/61\)")
        save(file, "# a comment\n" + many)
        early += screen.until("a file has changed: what runs is ended")
        late = screen.until(ALL)
        assert "PASS second" not in ran(early)
        assert len(ran(early)) + len(ran(late)) == 61 and "of all 61: 61 passed" in late


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("nowhere.spec.yaml",), 4, "no such file or directory: nowhere.spec.yaml"),
        (("a.spec.yaml", "--backend", "nosuch"), 4, "--backend nosuch: no such backend"),
        (("a.spec.yaml", "-k", "case:nosuch"), 5, "nothing selected"),
        (("a.spec.yaml", "--stress", "2"), 4, "unrecognized arguments: --stress 2"),
    ],
)
def test_what_is_typed_wrong_ends_it_at_once(words: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    write(tmp_path, {"a.spec.yaml": spec(FIRST)})
    result = run_in(tmp_path, "watch", *words)
    assert (result.code, says in result.err) == (code, True), result.text
