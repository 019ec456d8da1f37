"""Tensors kept in a safetensors file: 8 bytes of length, a header in JSON, and the data."""

from __future__ import annotations

import json
import os
from collections.abc import Collection

import torch

from runner.contract.graphs import Role
from runner.worker.capture.measure import fault_of

DTYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32",
    torch.int64: "I64", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64",
    torch.complex64: "C64", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip


class TensorFile:
    """Keeps copies of the tensors of some roles, until ``write`` writes them.

    A tensor is kept in the order of its strides. One whose elements do not lie densely is not kept.
    """

    def __init__(self, path: str, roles: Collection[Role]) -> None:
        """Keep nothing yet. ``path`` is the file to be."""
        self._path, self._roles = path, roles
        self._tensors: dict[str, torch.Tensor] = {}
        self._known: dict[tuple[int, int, str], str] = {}

    def __call__(self, name: str, value: torch.Tensor, role: Role) -> tuple[str, str]:
        """Keep a tensor, and return the name of the file and of the tensor in it; empty texts for one not kept."""
        order = sorted(range(value.dim()), key=lambda place: -value.stride(place))
        if role not in self._roles or value.dtype not in DTYPES or fault_of(value):
            return "", ""
        if not value.permute(order).is_contiguous():
            return "", ""
        known = self._known.get((id(value), value._version, name))
        if known is None:
            known = name
            while known in self._tensors:
                known += "_"
            self._tensors[known] = value.detach().permute(order).cpu().clone()
            if role == "parameter":  # others may end, and another tensor get their id
                self._known[id(value), value._version, name] = known
        return os.path.basename(self._path), known

    def write(self) -> None:
        """Write the file, if anything was kept."""
        if not self._tensors:
            return
        header, place = {}, 0
        for name, value in self._tensors.items():
            size = value.numel() * value.element_size()
            header[name] = {
                "dtype": DTYPES[value.dtype], "shape": list(value.shape), "data_offsets": [place, place + size],
            }  # fmt: skip
            place += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(self._path, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for value in self._tensors.values():
                file.write(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
