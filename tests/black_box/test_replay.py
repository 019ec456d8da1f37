"""``runner debug --record`` keeps the frame in which Dynamo failed; ``runner debug --replay`` fails alike until Dynamo is mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from .driver import Result, run_in, spec, write

FILES = {
    "case.spec.yaml": spec("name: method\ninputs: {x: [4]}\nchain: [torch.neg, Tensor.relu]"),
    "broken.py": """
        from torch._dynamo.variables.tensor import TensorVariable


        def call_method(self, *args, **named):
            raise AssertionError("planted in Dynamo")


        TensorVariable.call_method = call_method
        """,
    "text.rec": "no pickle",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("replay")
    write(folder, FILES)
    return run_in(folder, "debug", "case.spec.yaml::method", "--backend", "eager", "--record", "--import", "broken",
                  "-o", "kept", "-j", 1)  # fmt: skip


def file_of(recorded: Result) -> Path:
    [file] = recorded.cwd.glob("kept/**/*.rec")
    return file.relative_to(recorded.cwd)


def test_the_failing_frame_is_recorded(recorded: Result) -> None:
    assert recorded.code == 0, recorded.text
    assert "planted in Dynamo" in recorded.out
    assert f"runner debug --replay {file_of(recorded)} --import broken" in recorded.out


def test_it_fails_again(recorded: Result) -> None:
    result = run_in(recorded.cwd, "replay", file_of(recorded), "--import", "broken")
    assert result.code == 0, result.text
    assert "planted in Dynamo" in result.out


def test_it_ends_well_once_dynamo_is_mended(recorded: Result) -> None:
    result = run_in(recorded.cwd, "replay", file_of(recorded))
    assert result.code == 1, result.text
    assert "without an error" in result.out


@pytest.mark.parametrize(("name", "says"), [("none.rec", "no such file"), ("text.rec", "no recording")])
def test_what_cannot_be_replayed(recorded: Result, name: str, says: str) -> None:
    result = run_in(recorded.cwd, "replay", name)
    assert result.code == 4, result.text
    assert says in result.err
