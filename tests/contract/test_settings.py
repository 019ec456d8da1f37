"""The table of what a run changes of a user's settings, held against the page and the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from runner.cases.flags import PRECISION
from runner.cases.model import THREADS
from runner.contract.settings import CACHE_FOLDER, NVML_CHECK, SETTINGS, TRITON_FOLDER, VARIABLES

ROOT = Path(__file__).parents[2]
ROWS = {row.name: row for row in SETTINGS}

CODE = ("server", "run", "judge", "rerun", "comparison", "rounding", "operators", "program", "tensors")
"""The part of ``runner/worker/`` in which settings of a judged run are changed; tasks of their own and kernels are apart."""

RESTORED = {
    "set_printoptions",
    "set_rng_state",
    "set_default_device",
    "set_default_dtype",
    "set_state",
    "set_wakeup_fd",
}
"""Put back after a warm-up, another job, a float64 reference or a coin tossed twice, or nothing of torch's."""


def test_the_page_has_the_rows_of_the_table() -> None:
    page = (ROOT / "docs" / "judging.md").read_text(encoding="utf-8")
    section = page.partition("## Settings\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")
    ]
    words = {True: "yes", False: "no"}
    plain = [[cell.replace("`", "") for cell in row] for row in rows[2:]]
    assert plain == [[row.name, row.value, row.reason, words[row.needed]] for row in SETTINGS]


def test_variables_and_flags_have_their_rows() -> None:
    assert {name: ROWS[name].value for name in VARIABLES} == VARIABLES
    assert (
        not any(ROWS[name].needed for name in VARIABLES)
        and ROWS[NVML_CHECK].needed
        and ROWS[f"{CACHE_FOLDER}, {TRITON_FOLDER}"].needed
    )
    assert ROWS["intra-op threads"].value == str(THREADS)
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
    listed = {name for row in SETTINGS for name in row.calls}
    assert called - listed <= RESTORED, called - listed - RESTORED
    assert listed - {"seed"} <= called, "a row names what nobody calls"
