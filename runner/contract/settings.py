"""Settings: the variables and flags by which a run changes those of a user, and how a script sets one that holds for
the whole process.

Both halves read them, so this imports the standard library alone. ``docs/judging.md`` has a row for each setting, with
the reason for it, and ``tests/contract/test_settings.py`` holds the page against the code. A run "as a user" leaves out
what is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

FALLBACK_RANDOM = "torch._inductor.config.fallback_random"

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    }
)
"""Variables of a worker that a run as a user leaves as they are."""

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
CACHE_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
TRITON_FOLDER = "TRITON_CACHE_DIR"
HASH_SEED = "PYTHONHASHSEED"
SAFE_PATH = "PYTHONSAFEPATH"
WAIT_POLICY = "OMP_WAIT_POLICY"
"""How a thread of OpenMP waits for work. By default it spins.

Two jobs of two threads each on two cores then take several times as long as without spinning.
"""
WARNINGS = "PYTHONWARNINGS"
PASSED = "runner-passed"
"""Folder below torch's cache folder: for each job that passed, the tag of its graphs, a hundred bytes."""

AS_USER = "RUNNER_AS_USER"
"""Set in a worker whose jobs run as a user runs them: only what is needed is set."""
DEFAULT_THREADS = "RUNNER_DEFAULT_THREADS"
"""Where a worker's server keeps how many intra-op threads torch takes by itself: its own process has one."""


# --- settings of the process, by the Python that reads each: how a script sets one to a value ---

# A finding names a setting so. The worker asks torch which there are (``runner/worker/program/global_state.py``).

FLUSHES = "float.fromhex('0x1p-1022') / 2 == 0.0"
NESTING = "torch.autocast_increment_nesting() and torch.autocast_decrement_nesting()"
"""In how many blocks of autocast the thread is: at the end of the outermost one torch forgets the weights it cast."""
FILTERS = "[rule for rule in warnings.filters if rule[1] is rule[3] is None and rule[2].__module__ == 'builtins']"
LOCALE = "locale.setlocale(locale.LC_ALL)"
_WRITERS = {
    "is_warn_always_enabled": "set_warn_always",
    "is_inference_mode_enabled": "",
    FLUSHES: "set_flush_denormal",
}
"""Functions that set, by what reads, where the rules for names do not say it; empty where nothing sets it."""

_RULES = (
    (r"(?:get|is)_(\w*)", r"set_\1"),
    (r"(\w*)_enabled", r"enable_\1"),
    (r"(\w*)_allowed", r"allow_\1"),
    (r"(preferred_\w*)", r"\1"),
)
"""The rules for names: of what reads, and of what sets."""
_EXPRESSION = re.compile(
    r"(torch(?P<inner>\.__future__|\.multiprocessing|\.utils\.deterministic|"
    r"\.backends(?:\.[a-z_]+)*)?)\.([a-z]\w*)(\((?:'([a-z]+)')?\))?",
    re.ASCII,
)
_PRIVATE = re.compile(
    r"(?:os\.environ|numpy\.get(?:err|_printoptions)\(\))\.get\('\w+'\)|str\(numpy\.random\.get_state\(\)\)"
    r"|sys\.get\w+\(\)|gc\.(?:get_debug|get_threshold|isenabled)\(\)|os\.getcwd\(\)|random\.getstate\(\)|"
    + "|".join(map(re.escape, (FILTERS, LOCALE, NESTING)))
    + r"|torch\._C\._(?:check|get|is)_\w+\(\)|torch\._C\._autograd\._top_saved_tensors_default_hooks\(False\) is None"
    r"|torch\._C\._len_torch_(?:function|dispatch)_stack\(\)"
    r"|torch\.autograd\.(?:forward_ad\._current_level|_profiler_enabled\(\))"
    r"|len\(torch\.nn\.modules\.module\._global_\w+\)|torch\._dynamo\.eval_frame\._stance"
    r"|torch(?:\.\w+)*\.(?:_?config|PRINT_OPTS)(?:\.\w+)+",
    re.ASCII,
)
"""Settings that a script only reads: eager, which runs first, leaves them as they were."""


def writer_of(reader: str) -> str:
    """Return how a function is named that sets what ``reader`` reads; empty if that is no name of one that reads."""
    if reader in _WRITERS:
        return _WRITERS[reader]
    matches = ((re.fullmatch(pattern, reader), writer) for pattern, writer in _RULES)
    return next((match.expand(writer) for match, writer in matches if match), "")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, by the Python that reads it.

    ``writer`` is the function of ``holder`` that sets it, ``=`` for an attribute.
    """

    expression: str
    holder: str = "torch"
    writer: str = "="  # empty where nothing sets it
    argument: str = ""

    @staticmethod
    def of(expression: str) -> Setting | None:
        """Return the setting that an expression reads; None for what is not named like one, as in a log that somebody
        forged."""
        if expression == FLUSHES:
            return Setting(expression, writer=_WRITERS[expression])
        if _PRIVATE.fullmatch(expression):
            return Setting(expression, writer="")
        match = _EXPRESSION.fullmatch(expression)
        if match is None:
            return None
        holder, inner, name, call, argument = match.groups()
        if call:
            is_reader = bool(writer_of(name)) or name in _WRITERS
            return Setting(expression, holder, writer_of(name), argument or "") if is_reader else None
        return Setting(expression, holder) if inner and inner != ".__future__" else None

    @property
    def modules(self) -> list[str]:
        """Return the modules beside torch that the expression needs."""
        return re.findall(r"\A(?:str\(|\[[a-z ]+ in )?(gc|locale|numpy|os|random|sys|warnings)\.", self.expression)

    def assignment(self, value: str) -> str:
        """Return the statement that sets it to an expression's value, as Python; ``pass`` where nothing sets it."""
        if self.writer == "=":
            return f"{self.expression} = {value}"
        arguments = f"{self.argument!r}, {value}" if self.argument else value
        return f"{self.holder}.{self.writer}({arguments})" if self.writer else "pass"
