"""What a debug bundle is made of, without running anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.diagnose.bundle import (
    ARTIFACTS,
    GROUPS,
    about,
    drop_empty,
    extract_kernels,
    file_records,
    find_tlparse,
    kernels,
    write_index,
)

CODE = """
async_compile = AsyncCompile()
cpp_fused_relu_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel(const float* in, float* out) {}
''')
triton_poi_fused_1 = async_compile.triton('triton_poi_fused_1', '''
import triton
''', device_str='cuda')
other = something.cpp('text')
async_compile.wait(globals())
"""


def fill(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_kernels_are_taken_out_of_generated_code():
    files = {name: (suffix, text) for name, suffix, text in kernels(CODE)}
    assert list(files) == ["cpp_fused_relu_0", "triton_poi_fused_1"]
    assert files["cpp_fused_relu_0"][0] == ".cpp" and 'extern "C"' in files["cpp_fused_relu_0"][1]
    assert files["triton_poi_fused_1"] == (".py", "\nimport triton\n")


@pytest.mark.parametrize("code", ["", "x = 1", "int main() { return 0; }"])
def test_code_without_kernels_gives_none(code: str):
    assert not list(kernels(code))


def test_kernels_come_from_the_structured_trace_where_inductors_own_has_none(tmp_path: Path):
    fill(tmp_path, **{"graphs/0_0.inductor_output_code.py": CODE})
    assert {path.relative_to(tmp_path).as_posix() for path in extract_kernels(tmp_path)} == {
        "kernels/0_0.inductor_output_code/cpp_fused_relu_0.cpp",
        "kernels/0_0.inductor_output_code/triton_poi_fused_1.py",
    }
    own = fill(tmp_path / "b", **{"torchinductor/m.0/output_code.py": CODE, "graphs/0_0.inductor_output_code.py": CODE})
    assert {path.parent.name for path in extract_kernels(own)} == {"m.0"}


@pytest.mark.parametrize(
    ("path", "group", "words"),
    [
        ("case.py", "case", "as it ran"),
        ("logs/guards.log", "logs", "guards of each compilation"),
        ("logs/dynamo.info.log", "logs", "log of Dynamo, level info"),
        ("graphs/0_1.aot_joint_graph.py", "graphs", "joint graph"),
        ("graphs/0_1.something_graph_new.2.py", "graphs", "something graph new"),
        ("kernels/model__0.0/cpp_fused.cpp", "kernels", "kernel of model__0.0"),
        ("torchinductor/model__0.0/ir_pre_fusion.txt", "inductor", "IR before fusion"),
        ("torchinductor/model__0.0/unknown.json", "inductor", "unknown.json"),
        ("trace/dedicated.log", "trace", "for tlparse"),
        ("tlparse/index.html", "trace", "begin here"),
        ("strange/thing", "other", "thing"),
    ],
)
def test_every_file_has_a_group_and_a_purpose(path: str, group: str, words: str):
    actual, text = about(path)
    assert actual == group and words in text and actual in GROUPS


def test_every_artifact_says_what_it_is():
    assert all(text and about(f"logs/{name}.log")[1] == text for name, text in ARTIFACTS.items())


def test_files_are_listed_by_group_and_empty_ones_go(tmp_path: Path):
    fill(tmp_path, **{"logs/guards.log": "x", "logs/bytecode.log": "", "case.py": "y", "trace/t.log": "z"})
    fill(tmp_path, **{"tlparse/index.html": "p", "tlparse/more/a.html": "q", "empty/inner/nothing.txt": ""})
    drop_empty(tmp_path)
    assert not (tmp_path / "empty").exists()
    assert [(file["path"], file["bytes"]) for file in file_records(tmp_path)] == [
        ("case.py", 1),
        ("logs/guards.log", 1),
        ("tlparse/index.html", 1),
        ("trace/t.log", 1),
    ]


def test_the_page_escapes_what_it_shows_and_needs_no_script(tmp_path: Path):
    listed = [{"path": "case.py", "group": "case", "about": "the case", "bytes": 1234}]
    document = {"id": "<script>alert(1)</script>", "torch": "2.13.0", "backend": "inductor", "function": None,
                "error": "E: a < b & c", "failed": ["tlparse's pages: none"], "files": listed,
                "times": [{"phase": "compile", "count": 2, "seconds": 0.25}], "kernels": {"generated_kernel_count": 3}}  # fmt: skip
    write_index(tmp_path, document)
    page = (tmp_path / "index.html").read_text()
    assert "<script" not in page and "&lt;script&gt;" in page
    assert "E: a &lt; b &amp; c" in page
    assert '<a href="case.py">' in page and "1,234" in page and "0.250" in page
    assert json.loads((tmp_path / "index.json").read_text()) == document


def test_tlparse_is_found_beside_the_python_or_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.executable", str(tmp_path / "a" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "b"))
    python = str(tmp_path / "c" / "python")
    assert find_tlparse(python) is None
    for name in ("b", "c"):
        fill(tmp_path, **{f"{name}/tlparse": "#!/bin/sh\n"})
        (tmp_path / name / "tlparse").chmod(0o755)
        assert find_tlparse(python) == str(tmp_path / name / "tlparse")
