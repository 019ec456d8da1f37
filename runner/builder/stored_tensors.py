"""The function of a written source that reads a tensor of a safetensors file, and the same for a script that moves."""

from __future__ import annotations

import os
from pathlib import Path

from runner.builder.names_and_values import READ_TENSOR
from runner.cases.model import Case
from runner.cases.walk import inputs_of
from runner.quote import literal

READER = f"""

def {READ_TENSOR}(path, start, size, digest, dtype, shape):
    import hashlib

    with open(path, "rb") as file:
        file.seek(start)
        data = bytearray(file.read(size))
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{{path}} has changed since this was written")
    return torch.frombuffer(data, dtype=dtype).reshape(shape).clone() if size else torch.empty(shape, dtype=dtype)"""
"""Control has read the file's header."""
_MOVED_READER = f"""

def {READ_TENSOR}(path, start, size, digest, dtype, shape):
    import hashlib
    from pathlib import Path

    # Beside this script, or by the path from the working folder.
    for place in (Path(globals().get("__file__", "-")).with_name(Path(path).name), Path(path)):
        data = bytearray()
        if place.is_file():
            with open(place, "rb") as file:
                file.seek(start)
                data = bytearray(file.read(size))
        if size and hashlib.sha256(data).hexdigest() == digest:
            return torch.frombuffer(data, dtype=dtype).reshape(shape).clone()
    if size:
        raise FileNotFoundError(f"{{path}} is neither beside this script nor there, or it has changed")
    return torch.empty(shape, dtype=dtype)"""


def tensor_files(case: Case) -> list[Path]:
    """Return the safetensors files that a case reads, each once."""
    return [Path(file) for file in dict.fromkeys(item.stored.file for item in inputs_of(case) if item.stored)]


def movable(text: str, case: Case) -> str:
    """Return the source of a case for a script: it finds tensors of files beside itself, or by a path from the working
    folder."""
    for file in map(str, tensor_files(case)):
        place = Path(os.path.relpath(file)).as_posix()
        text = text.replace(f"{READ_TENSOR}({literal(file)}, ", f"{READ_TENSOR}({literal(place)}, ")
    return text.replace(READER, _MOVED_READER)
