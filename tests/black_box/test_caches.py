"""Compiled code of earlier runs: used where this user has signed it, and never loaded otherwise."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from .driver import KNOWN_ISA, LIMIT, Result, command, environment, run_in, spec, write

CASE = spec("name: good\ninputs: {x: [8, 4]}\nchain: [F.relu]")


class Marker:
    """A pickle of it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)


class Caches:
    """A folder with a case, and one with the compiled code and the key of its user."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kernels = folder, folder / "cache" / "torch-spec-runner"
        places = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "TMPDIR": "tmp"}
        self.variables = {name: str(folder / place) for name, place in places.items()}
        for name in ("cache", "tmp"):
            (folder / name).mkdir(mode=0o700)
        write(folder, {"a.spec.yaml": CASE})

    def run(self, file: str = "a.spec.yaml") -> Result:
        """A run of the case, which passes."""
        result = run_in(self.folder, "run", file, env=self.variables)
        assert result.verdicts == {"good@inductor": "PASS"}, result.text
        return result

    def files(self) -> list[Path]:
        """The files that may be loaded."""
        return [path for path in self.kernels.glob("*/**/*") if path.is_file()]


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Caches:
    """Caches of a first run."""
    instance = Caches(tmp_path_factory.mktemp("caches"))
    instance.run()
    return instance


@pytest.fixture(autouse=True)
def as_after_the_first_run(caches: Caches) -> None:
    """The folder as the first run has left it."""
    copy = caches.folder / "kept"
    if not copy.exists():
        shutil.copytree(caches.kernels, copy)
    shutil.rmtree(caches.kernels)
    shutil.copytree(copy, caches.kernels)


def notices(result: Result) -> list[str]:
    return [event["message"] for event in result.events if event["event"] == "notice"]


@pytest.mark.nightly
def test_a_second_run_loads_graphs_and_says_nothing(caches: Caches) -> None:
    result = caches.run()
    assert result.of("good@inductor")["stored_graphs"] == 1 and not notices(result), result.text


def test_headers_lie_with_the_kernels(caches: Caches) -> None:
    """torch itself keeps them in the temporary folder, under a name that any user can take first."""
    assert [path for path in caches.files() if path.suffix == ".gch"] and not [*(caches.folder / "tmp").glob("torch*")]


def test_no_file_that_somebody_else_wrote_is_loaded(caches: Caches) -> None:
    """Each one is a pickle that leaves a mark; as a shared object, a header or Python it would be an error."""
    mark = caches.folder / "mark"
    for path in caches.files():
        path.write_bytes(pickle.dumps(Marker(mark)))
    count = len(caches.files())
    result = caches.run()
    assert not mark.exists() and not result.of("good@inductor")["stored_graphs"]
    assert "FLAKY" not in result.text and result.code == 0
    (notice,) = notices(result)
    assert notice.startswith(f"{count} files of compiled code went") and "info: " in result.text


@pytest.mark.nightly
def test_files_that_were_cut_short_are_made_anew(caches: Caches) -> None:
    kernels = [path for path in caches.files() if path.suffix == ".so"]
    graphs = [path for path in caches.files() if "fxgraph" in path.parts]
    assert kernels and graphs
    for path in kernels + graphs:
        os.truncate(path, path.stat().st_size // 2)
    result = caches.run()
    (notice,) = notices(result)
    assert notice.startswith(f"{len(kernels + graphs)} files of compiled code went") and "FLAKY" not in result.text
    assert not result.of("good@inductor")["stored_graphs"]


@pytest.mark.nightly
def test_a_run_after_one_that_was_killed(caches: Caches) -> None:
    """Another case than that of the first run, as the headers and the graphs of the start need not be made again."""
    write(caches.folder, {"b.spec.yaml": CASE.replace("F.relu", "torch.sigmoid")})
    signed = {*caches.files()}
    words = command("run", "b.spec.yaml")
    process = subprocess.Popen(words, cwd=caches.folder, env=environment(caches.variables), stdout=subprocess.DEVNULL)
    end = LIMIT * 20
    while not [path for path in {*caches.files()} - signed if path.suffix == ".so"] and end and process.poll() is None:
        end -= 1
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    (notice,) = notices(caches.run("b.spec.yaml"))
    assert "a run that was killed leaves such files" in notice
    assert not notices(caches.run("b.spec.yaml"))


@pytest.mark.nightly
def test_a_blank_or_a_quote_in_the_folders_makes_no_case_red(tmp_path: Path) -> None:
    """Torch could not compile in these folders."""
    place = tmp_path / "it's a folder"
    place.mkdir()
    write(place, {"a.spec.yaml": CASE})
    variables = {name: str(place) for name in ("TMPDIR", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR")}
    result = run_in(place, "run", "a.spec.yaml", env={**variables, **KNOWN_ISA})
    assert result.verdicts == {"good@inductor": "PASS"}, result.text
    assert f"torch compiles nothing in a path with a blank, a quote or a backslash, such as {place}" in result.text
