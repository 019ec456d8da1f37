"""The formats that ``runner import`` reads: how each is recognised, and what reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runner.contract.graphs import Capture
from runner.importers.exported_program import is_exported_program, read_exported_program
from runner.importers.foreign_file import ForeignFile
from runner.importers.operator_log import is_log, read_log
from runner.importers.printed_graph import is_printed_graph, read_printed_graph
from runner.importers.spyre import is_spyre, read_spyre


@dataclass(frozen=True, slots=True)
class Format:
    """One format. ``is_of_calls`` says that its calls have nothing to do with each other."""

    summary: str
    recognises: Callable[[ForeignFile], bool]
    read: Callable[[ForeignFile], Capture]
    is_of_calls: bool = False


FORMATS = {
    "log": Format(
        "operators and their inputs, of PyTorch's operator_inp_logs, tritonbench or BackendBench",
        lambda file: is_log(file.text), read_log, is_of_calls=True,
    ),
    "spyre": Format(
        "YAML of operator calls of torch-spyre", lambda file: is_spyre(file.text), read_spyre, is_of_calls=True
    ),
    "fx": Format(
        "fx_graph_runnable.py, repro.py of the minifier, print_readable, tlparse, model.py of GraphNet",
        lambda file: is_printed_graph(file.text), read_printed_graph,
    ),
    "pt2": Format(
        "an archive of torch.export, or the JSON of its program; weights are drawn",
        is_exported_program, read_exported_program,
    ),
}  # fmt: skip


def format_of(file: ForeignFile) -> str:
    """Return the name of the format that a file has.

    Raises:
        InputError: it has none of them.
    """
    name = next((name for name, known in FORMATS.items() if known.recognises(file)), None)
    if name is None:
        raise file.error("this file has no known format", f"--format says which: {', '.join(FORMATS)}")
    return name
