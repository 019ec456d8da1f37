"""The page's table of what a run changes of a user's settings, held against the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from runner.cases.model import THREADS
from runner.cases.torch_names import PRECISION
from runner.contract.settings import CACHE_FOLDER, NVML_CHECK, TRITON_FOLDER, VARIABLES

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs" / "judging.md").read_text(encoding="utf-8").partition("## Settings\n")[2].partition("\n## ")[0]
ROWS = {
    name: cells
    for name, *cells in (
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for line in SECTION.splitlines()
        if line.startswith("| ")
    )
}
"""By setting: its value in a run, the reason, and whether it is set as a user too."""

CALLS = {
    "intra-op threads": ("set_num_threads",),
    "GPU memory of the process": ("set_per_process_memory_fraction",),
    "torch.distributions validation": ("set_default_validate_args",),
    "stance of torch.compile": ("set_stance",),
    "seeds of torch, random and numpy": ("manual_seed", "seed"),
    "grad mode, autocast": ("set_grad_enabled",),
}
"""The functions that set what a row has, in ``runner/worker/``."""

CODE = ("server", "run", "judge", "rerun", "comparison", "rounding", "operators", "program", "tensors")
"""The part of ``runner/worker/`` in which settings of a judged run are changed; tasks of their own and kernels are apart."""

RESTORED = {
    "set_printoptions",
    "set_rng_state",
    "set_default_device",
    "set_default_dtype",
    "set_state",
    "set_wakeup_fd",
    "set_events",
    "set_local_events",
}
"""Put back after a warm-up, another job, a float64 reference or a coin tossed twice, or nothing of torch's."""


def test_each_row_says_whether_it_is_set_as_a_user_too() -> None:
    assert {needed for name, (_, _, needed) in ROWS.items() if name not in ("setting", "---")} == {"yes", "no"}


def test_variables_and_flags_have_their_rows() -> None:
    assert {name: ROWS[name][0] for name in VARIABLES} == VARIABLES
    assert (
        all(ROWS[name][2] == "no" for name in VARIABLES)
        and ROWS[NVML_CHECK][2] == "yes"
        and ROWS[f"{CACHE_FOLDER}, {TRITON_FOLDER}"][2] == "yes"
    )
    assert ROWS["intra-op threads"][0] == str(THREADS)
    switches = {name.rpartition(".")[2] for name in PRECISION}
    assert switches == set(next(name for name in ROWS if "allow_tf32" in name).split(", "))


def test_what_the_worker_calls_to_set_something_has_a_row() -> None:
    worker = ROOT / "runner" / "worker"
    files = [path for part in CODE for path in sorted((worker / part).rglob("*.py"))]
    called = {
        node.func.attr
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        and re.fullmatch(r"set_\w+|manual_seed|use_deterministic\w*", node.func.attr)
    }  # fmt: skip
    assert set(CALLS) <= set(ROWS)
    listed = {name for names in CALLS.values() for name in names}
    assert called - listed <= RESTORED, called - listed - RESTORED
    assert listed - {"seed"} <= called, "a row names what nobody calls"
