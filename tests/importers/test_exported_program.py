"""Archives of ``torch.export``: the JSON of a program becomes a graph; hostile archives are errors."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from runner.contract.graphs import Capture, Graph, Tensor
from runner.diagnostics import InputError
from runner.importers import exported_program
from runner.importers.exported_program import is_exported_program, read_exported_program
from runner.importers.foreign_file import ForeignFile, read_file


def meta(*sizes: int, dtype: int = 7, **more: Any) -> dict[str, Any]:
    stride, strides = 1, []
    for size in reversed(sizes):
        strides.insert(0, {"as_int": stride})
        stride *= size
    plain = {"dtype": dtype, "sizes": [{"as_int": n} for n in sizes], "strides": strides, "layout": 7}
    return {**plain, "storage_offset": {"as_int": 0}, "requires_grad": False, **more}


def tensor(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


def argument(name: str, arg: Any, kind: int | None = 1) -> dict[str, Any]:
    return {"name": name, "arg": arg, "kind": kind}


def program(*nodes: dict[str, Any], outputs: list[Any] | None = None) -> dict[str, Any]:
    graph = {
        "inputs": [tensor("p_w"), tensor("x")],
        "outputs": outputs or [tensor("r")],
        "nodes": list(nodes),
        "tensor_values": {"p_w": meta(8, 4, requires_grad=True), "x": meta(3, dtype=5), "r": meta(3, 4)},
    }
    specs = [
        {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "emb.weight"}},
        {"user_input": {"arg": tensor("x")}},
    ]
    return {"graph_module": {"graph": graph, "signature": {"input_specs": specs, "output_specs": []}}}


EMBED = {
    "target": "torch.ops.aten.embedding.default",
    "inputs": [argument("weight", tensor("p_w")), argument("indices", tensor("x"))],
    "outputs": [tensor("r")],
    "metadata": {
        "stack_trace": 'File "/a/model.py", line 7, in forward\n    y = self.emb(x)\n  File "/t.py", line 1, in f\n    z'
    },
}


def read(data: Any) -> Capture:
    file = ForeignFile("a.json", json.dumps(data).encode())
    assert is_exported_program(file)
    return read_exported_program(file)


def only(*nodes: dict[str, Any], **options: Any) -> Graph:
    capture = read(program(*nodes, **options))
    assert capture.notes == ()
    (graph,) = capture.graphs
    return graph


def archive(folder: Path, **parts: bytes) -> ForeignFile:
    path = folder / "a.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(name.replace("__", "/") + ".json", data)
    return read_file(str(path))


def test_a_program_is_a_graph_with_its_weights_and_lines() -> None:
    graph = only(EMBED)
    weight, index = graph.inputs
    assert (weight.name, weight.role, weight.origin) == ("emb_weight", "parameter", "emb.weight")
    assert weight.tensor == Tensor((8, 4), "float32", (4, 1), requires_grad=True)
    assert index.statistics is not None and index.statistics.largest == 7
    (call,) = graph.calls
    assert (call.operator, call.positional) == ("aten.embedding.default", ("$emb_weight", "$x"))
    assert call.source == "model.py:7: y = self.emb(x)" and graph.grad


@pytest.mark.parametrize(
    ("arg", "value"),
    [
        ({"as_none": True}, None), ({"as_int": 3}, 3), ({"as_ints": [1, -1]}, [1, -1]), ({"as_bool": True}, True),
        ({"as_float": 0.5}, 0.5), ({"as_scalar_type": 13}, "torch.bfloat16"), ({"as_memory_format": 2}, "torch.channels_last"),
        ({"as_layout": 7}, "torch.strided"), ({"as_device": {"type": "cuda", "index": 0}}, "$device"),
        ({"as_tensors": [{"name": "x"}]}, ["$x"]), ({"as_sym_int": {"as_int": 4}}, 4),
        ({"as_optional_tensors": [{"as_none": True}, {"as_tensor": {"name": "x"}}]}, [None, "$x"]),
        ({"as_string": "mean"}, "mean"),
    ],
)  # fmt: skip
def test_arguments_are_plain_data(arg: Any, value: Any) -> None:
    node = {
        **EMBED,
        "target": "torch.ops.aten.foo.default",
        "inputs": [argument("self", tensor("x")), argument("a", arg)],
    }
    assert only(node).calls[0].positional == ("$x", value)


def test_keywords_are_those_that_say_so_or_have_no_position() -> None:
    inputs = [argument("self", tensor("x")), argument("other", {"as_int": 1}, 2)]
    assert only({**EMBED, "inputs": inputs}).calls[0].keywords == {"other": 1}
    inputs = [
        argument("self", tensor("x"), None),
        argument("dim", {"as_int": 1}, None),
        argument("dtype", {"as_scalar_type": 7}, None),
    ]
    call = only({**EMBED, "inputs": inputs}).calls[0]
    assert (call.positional, call.keywords) == (("$x", 1), {"dtype": "torch.float32"})


def test_sizes_are_those_of_inputs() -> None:
    size = {"target": "torch.ops.aten.sym_size.int", "inputs": [argument("self", tensor("x")), argument("dim", {"as_int": 0})],
            "outputs": [{"as_sym_int": {"as_name": "n"}}]}  # fmt: skip
    twice = {"target": "_operator.mul", "inputs": [argument("a", {"as_sym_int": {"as_name": "n"}}), argument("b", {"as_int": 2})],
             "outputs": [{"as_sym_int": {"as_name": "m"}}]}  # fmt: skip
    view = {"target": "torch.ops.aten.view.default", "outputs": [tensor("r")],
            "inputs": [argument("self", tensor("x")), argument("size", {"as_sym_ints": [{"as_name": "m"}, {"as_int": -1}]})]}  # fmt: skip
    assert only(size, twice, view).calls[0].positional == ("$x", ["${(x.shape[0]) * 2}", -1])


def test_several_results_have_their_names() -> None:
    node = {**EMBED, "target": "torch.ops.aten.max.dim", "outputs": [tensor("r"), tensor("unused")]}
    graph = only(node)
    assert [c.operator for c in graph.calls] == ["aten.max.dim", "operator.getitem"]
    assert graph.calls[1].positional == ("$dim", 0) and graph.result == ["$r"]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({}, "there is no target"),
        ({**EMBED, "inputs": [argument("a", tensor("nothing"))]}, "which nothing gives"),
        ({**EMBED, "inputs": [argument("a", {"as_graph": {}})]}, "as_graph is no argument"),
        ({**EMBED, "inputs": 3}, "there is no inputs"),
        (3, "there is no"),
    ],
)
def test_a_node_that_is_no_call_is_noted(node: Any, words: str) -> None:
    (note,) = read(program(EMBED, node)).notes
    assert note.startswith("a.json a: node 1") and words in note


def test_an_archive_is_read_without_its_weights(tmp_path: Path) -> None:
    file = archive(tmp_path, m__models__model=json.dumps(program(EMBED)).encode(), m__data__x=b"\x80pickle")
    assert is_exported_program(file)
    (graph,) = read_exported_program(file).graphs
    assert graph.origin.endswith("a.pt2 m/models/model.json")


@pytest.mark.parametrize(
    "data",
    [b"{", b"[" * 100_000, b"{}", b'{"graph_module": 3}', b"\xff", b'{"graph_module": {"graph": {"inputs": 3}}}'],
)
def test_a_part_that_is_no_program_is_an_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError, match=r"a\.pt2:1:1: error: models/model\.json is no program"):
        read_exported_program(archive(tmp_path, models__model=data))


def test_a_part_that_is_too_large_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported_program, "LARGEST", 1000)
    with pytest.raises(InputError, match="is larger than"):
        read_exported_program(archive(tmp_path, models__model=b" " * 100_000))


def test_an_archive_without_a_program_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no program"):
        read_exported_program(archive(tmp_path, other=b"{}"))


def test_a_broken_archive_is_an_error(tmp_path: Path) -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        file.writestr("models/model.json", b"{}" * 1000)
    data = bytearray(whole.getvalue())
    for place in (4, 8, 60, len(data) - 30, len(data) - 10):
        broken = bytearray(data)
        broken[place] ^= 0xFF
        path = tmp_path / "a.pt2"
        path.write_bytes(bytes(broken))
        with pytest.raises(InputError, match=r"a\.pt2:1:1: error: "):
            read_exported_program(read_file(str(path)))
