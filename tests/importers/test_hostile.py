"""Changed files of every format are read or refused in words: no traceback, no code, no hang."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.diagnostics import InputError
from runner.graphs.cases import write_graph
from runner.graphs.grains import parts_of
from runner.graphs.shrink import candidates
from runner.importers.foreign_file import read_file
from runner.importers.formats import FORMATS
from tests.importers.test_exported_program import EMBED, program
from tests.importers.test_operator_log import LOG
from tests.importers.test_printed_graph import READABLE, REPRO
from tests.importers.test_spyre import HEAD, X

CALL = f"{{name: torch.add, sample_inputs_func: {{args: [{X}, {{py: '(1, slice(None, 2))'}}], kwargs: {{alpha: 2}}}}}}"


def archive(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as parts:
        parts.writestr("m/models/model.json", data)
    return file.getvalue()


JSON = json.dumps(program(EMBED)).encode()
SAMPLES = {
    "log": [LOG.encode()],
    "spyre": [f"{HEAD}                - {CALL}\n".encode()],
    "fx": [READABLE.encode(), REPRO.encode()],
    "pt2": [JSON, archive(JSON)],
}
"""For each format small files that it reads."""

PIECES = (
    b"(", b")", b"[", b"]", b"{", b"}", b"'", b'"', b",", b":", b"\n", b"\t", b"\x00", b"\xff", b"\xe2\x80\xae", b"\x1b[2J",
    b"-1", b"0", b"9" * 30, b"9" * 5000, b"None", b"null", b"1e999", b"nan", b"*", b"**", b"lambda: 0", b"self", b"$", b"${",
    b"__import__('os')", b"f16", b"torch.", b".", b"=", b"in", b"True", b"(" * 200, b"[" * 2000, b"-" * 300, b"s0",
)  # fmt: skip


@st.composite
def changed(draw: st.DrawFn, name: str) -> bytes:
    """A sample with a few pieces cut out, doubled or put in."""
    data = draw(st.sampled_from(SAMPLES[name]))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 12)))
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=4) | st.just(data[start:end] * 2))
        data = data[:start] + piece + data[end:]
    return data


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_are_read(name: str, tmp_path: Path) -> None:
    for data in SAMPLES[name]:
        assert problems(name, data, tmp_path) == ""


@pytest.mark.parametrize(
    ("name", "count"),
    [*((name, 60) for name in SAMPLES), *(pytest.param(name, 3000, marks=pytest.mark.nightly) for name in SAMPLES)],
)
def test_a_changed_file_is_read_or_refused_at_its_place(name: str, count: int, tmp_path: Path) -> None:
    messages: set[str] = set()

    @settings(max_examples=count, deadline=None, suppress_health_check=[*HealthCheck], derandomize=count < 100)
    @given(changed(name))
    def holds(data: bytes) -> None:
        messages.add(problems(name, data, tmp_path)[:60])

    holds()
    assert len(messages) > 1  # a fuzzer that changes nothing tests nothing


def problems(name: str, data: bytes, folder: Path) -> str:
    """Read a file, and write what it holds as cases; return why it is refused."""
    path = folder / "file"
    path.write_bytes(data)
    try:
        capture = FORMATS[name].read(read_file(str(path)))
    except InputError as error:
        assert all(each.span.line >= 1 and each.span.file == str(path) for each in error.diagnostics)
        assert error.diagnostics and all(each.message.isprintable() for each in error.diagnostics)
        return str(error)
    assert all(str(path) in note or "file" in note for note in capture.notes)
    for graph in capture.graphs:
        for part in parts_of(graph, "operator" if FORMATS[name].is_of_calls else "graph"):
            for each in (part, *candidates(part)):
                write_graph(each, "case")
    return " ".join(capture.notes)
