"""Settings of the whole process: reading, putting back, and the Python that scripts use for both."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import pkgutil
import random
import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._inductor.config

from runner.contract.settings import FILTERS, LOCALE, NESTING, Setting
from runner.worker.program import global_state
from runner.worker.program.global_state import changes, differences, is_public, read, restore, restored, switches
from runner.worker.program.graph_cache import FORCED
from runner.worker.torch_private.settings import entry_of_flag, flag_modules

OTHER: dict[str, Any] = {
    "torch.is_grad_enabled()": False,
    "torch.get_default_dtype()": torch.float64,
    "torch.get_num_threads()": torch.get_num_threads() + 1,
    "torch.get_float32_matmul_precision()": "medium",
    "torch.get_deterministic_debug_mode()": 1,
    "torch.is_anomaly_enabled()": True,
    "torch.is_warn_always_enabled()": True,
    "torch.is_autocast_cache_enabled()": False,
    "torch.is_autocast_enabled('cpu')": True,
    "torch.get_autocast_dtype('cpu')": torch.float16,
    "torch.is_autocast_enabled('cuda')": True,
    "torch.get_autocast_dtype('cuda')": torch.bfloat16,
    "torch.backends.cudnn.benchmark": True,
    "torch.backends.cudnn.deterministic": True,
    "torch.utils.deterministic.fill_uninitialized_memory": False,
    "torch.backends.cuda.flash_sdp_enabled()": False,
    "torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()": True,
    "torch.backends.mha.get_fastpath_enabled()": False,
    "torch.backends.mkldnn.deterministic": True,
}


def set_by(setting: Setting, value: object) -> None:
    exec(setting.assignment("value"), {"torch": torch, "value": value})


def known(expression: str) -> Setting:
    setting = Setting.of(expression)
    assert setting is not None
    return setting


def test_all_that_can_be_read_is_read() -> None:
    flags = {module.__name__ for module in flag_modules()}
    assert read().keys() == switches().keys() | flags and OTHER.keys() <= switches().keys()


@pytest.mark.parametrize("expression", [name for name, switch in switches().items() if switch.public])
def test_the_expression_reads_what_the_table_reads(expression: str) -> None:
    """A script has no more than the expression."""
    assert eval(known(expression).expression, {"torch": torch}) == read()[expression]


@pytest.mark.parametrize("expression", OTHER)
def test_what_a_block_changes_is_seen_and_put_back(expression: str) -> None:
    state, value = read(), OTHER[expression]
    with restored():
        set_by(known(expression), value)
        assert changes(state) == {expression: (state[expression], value)}
    assert read() == state and changes(state) == {}


HOOK = "torch.nn.modules.module.register_module_forward_hook"
PRIVATE = {
    "torch._C._check_sparse_tensor_invariants()": "torch.sparse.check_sparse_tensor_invariants.enable()",
    "torch._C._is_multithreading_enabled()": "torch.autograd.set_multithreading_enabled(False)",
    "torch._C._autograd._top_saved_tensors_default_hooks(False) is None": (
        "[torch.autograd.graph.saved_tensors_hooks(id, id).__enter__() for _ in range(2)]"
    ),
    "torch._C._len_torch_function_stack()": "torch.overrides.BaseTorchFunctionMode().__enter__()",
    "torch._C._len_torch_dispatch_stack()": "torch.utils._python_dispatch.TorchDispatchMode().__enter__()",
    "torch.autograd.forward_ad._current_level": "torch.autograd.forward_ad.enter_dual_level()",
    "torch.autograd._profiler_enabled()": "torch.autograd.profiler.profile().__enter__()",
    "len(torch.nn.modules.module._global_forward_hooks)": f"{HOOK}(lambda *_: None)",
    "torch._dynamo.eval_frame._stance": "torch.compiler.set_stance('force_eager')",
    "torch._dynamo.config.suppress_errors": "setattr(torch._dynamo.config, 'suppress_errors', True)",
    "torch._tensor_str.PRINT_OPTS.precision": "torch.set_printoptions(precision=1)",
    FILTERS: "warnings.simplefilter('ignore')",
    LOCALE: "locale.setlocale(locale.LC_ALL, 'C.UTF-8')",
    "sys.getswitchinterval()": "sys.setswitchinterval(0.5)",
    "sys.gettrace()": "sys.settrace(lambda *_: None)",
    "sys.get_int_max_str_digits()": "sys.set_int_max_str_digits(0)",
    "gc.get_threshold()": "gc.set_threshold(7)",
    "gc.isenabled()": "gc.disable()",
    "os.getcwd()": "os.chdir('/')",
    "numpy.get_printoptions().get('precision')": "numpy.set_printoptions(precision=1)",
    "numpy.geterr().get('over')": "numpy.seterr(over='raise')",
    "os.environ.get('SET_HERE')": "os.environ.update(SET_HERE='1')",
    NESTING: "torch.autocast_increment_nesting()",
    "random.getstate()": "random.seed(5)",
    "str(numpy.random.get_state())": "numpy.random.seed(5)",
}
"""What private settings are called, and how each is changed."""


@pytest.mark.parametrize("expression", PRIVATE)
def test_a_private_setting_is_seen_put_back_and_read_by_a_script(expression: str) -> None:
    names = {"torch": torch, **{name: importlib.import_module(name) for name in known(expression).modules}}
    state, value = read(), eval(known(expression).expression, names)
    exec(PRIVATE[expression], names)
    assert list(changes(state)) == [expression] and not is_public(expression)
    assert eval(expression, names) != value and known(expression).assignment("value") == "pass"
    restore(state)
    assert eval(expression, names) == value and changes(state) == {}


def test_a_list_of_flags_that_grows_is_seen_and_put_back() -> None:
    flags = torch._inductor.config
    name = next(name for name, value in flags.get_config_copy().items() if isinstance(value, list))
    state, before = read(), list(getattr(flags, name))
    getattr(flags, name).append("x")
    assert list(changes(state)) == [f"torch._inductor.config.{name}"]
    restore(state)
    assert getattr(flags, name) == before and changes(state) == {}


def test_a_flag_that_stands_for_one_of_another_module_is_read_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in torch 2.11, where a copy of flags holds the values of aliases too."""

    class Flags:
        def __init__(self, name: str) -> None:
            self.__name__, self._config = name, {"flag": SimpleNamespace(user_override=False, env_value_force=None)}

        def get_config_copy(self) -> dict[str, Any]:
            alias = {} if self is target else {"alias": target._config["flag"].user_override}
            return {"flag": self._config["flag"].user_override, **alias}

    target, other = Flags("target"), Flags("other")
    monkeypatch.setattr(global_state, "flag_modules", lambda: [target, other])
    read()
    target._config["flag"].user_override = True
    state = read()
    other._config["flag"].user_override = True
    assert differences(state).keys() == {"other"} and changes(state).keys() == {"other.get('flag')"}


@pytest.mark.parametrize("value", [False, True])
def test_flags_that_are_forced_are_read_anew(monkeypatch: pytest.MonkeyPatch, value: bool) -> None:
    """As those of the caches of graphs are, between the run in eager and the compiled one."""
    entry = entry_of_flag("torch._inductor.config.fx_graph_cache")
    monkeypatch.setattr(entry, FORCED, not value)
    read()
    monkeypatch.setattr(entry, FORCED, value)
    assert read()["torch._inductor.config"]["fx_graph_cache"] is value


def test_what_torch_sets_in_the_environment_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    state = read()
    monkeypatch.setenv("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "1")
    assert changes(state) == {}


def test_a_setting_of_python_counts_beside_a_public_one() -> None:
    state = read()
    with restored():
        torch.set_default_dtype(torch.float64)
        random.random()
        assert changes(state).keys() == {"torch.get_default_dtype()", "random.getstate()"}


def test_a_current_folder_that_is_gone_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with restored():
        monkeypatch.chdir("/")
        tmp_path.rmdir()
    assert read()["os.getcwd()"] == "/"


def test_the_filters_of_a_package_do_not_count() -> None:
    state = read()
    with restored():
        warnings.filterwarnings("ignore", module="somewhere")
        assert changes(state) == {} and warnings.filters[0][0] == "ignore"
        warnings.simplefilter("ignore")
    assert changes(state) == {} and any(rule[3] for rule in warnings.filters)


def test_a_private_setting_that_follows_a_public_one_does_not_count() -> None:
    state = read()
    with restored():
        torch.use_deterministic_algorithms(True)
        assert changes(state).keys() == {"torch.get_deterministic_debug_mode()"}


@pytest.mark.skipif(not hasattr(torch._inductor.config, "deterministic"), reason="this torch has no such flag")
def test_what_determinism_changes_of_inductor_is_put_back() -> None:
    value = torch._inductor.config.deterministic
    with restored():
        torch.use_deterministic_algorithms(True)
        assert torch._inductor.config.deterministic
    assert torch._inductor.config.deterministic == value


SETTERS = re.compile("(?:set|enable|allow|use|preferred)_")
VALUES = (
    False,
    True,
    1,
    3,
    "medium",
    "high",
    "native",
    torch.float64,
    torch.DoubleTensor,
    "cusolver",
    "cublaslt",
    "meta",
)
UNCOVERED = {
    "torch.set_default_device": "a mode, which a living process leaves by itself",
    "torch.set_rng_state": "what is drawn, which every call seeds",
    "torch.set_num_interop_threads": "can be called once in a process",
    "torch.set_autocast_ipu_dtype": "no device here has it",
    "torch.set_autocast_ipu_enabled": "no device here has it",
    "torch.set_autocast_xla_dtype": "no device here has it",
    "torch.set_autocast_xla_enabled": "no device here has it",
    "torch.backends.cuda.preferred_blas_library": "refuses all values where torch is not built for CUDA",
    "torch.backends.opt_einsum.set_flags": "of no effect without the package opt_einsum; with it two properties say so",
    "torch.backends.cuda.preferred_rocm_fa_library": "refuses all values where torch is not built for ROCm",
}
"""Functions whose effect is not read here, each with the reason."""


def setters() -> dict[str, Any]:
    """Return every function of torch's that sets something for the process, as far as its name says so."""
    modules = {name: module for name, module in sys.modules.items() if name.startswith("torch.backends.")}
    modules |= {"torch": torch, "torch.autograd": torch.autograd, "torch.__future__": torch.__future__}
    functions = {
        f"{holder}.{name}": getattr(module, name)
        for holder, module in modules.items()
        for name in dir(getattr(module, "m", module))
        if SETTERS.match(name) and callable(getattr(module, name)) and "python_native" not in holder
    }
    return {
        name: function
        for name, function in functions.items()
        if getattr(function, "__module__", None) in (None, name.rpartition(".")[0]) or name.startswith("torch.set")
    }


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "torch.set_autocast_enabled": ("cpu", True),
    "torch.set_autocast_dtype": ("cpu", torch.float16),
    "torch.set_printoptions": (2,),
}


@pytest.mark.parametrize("name", setters())
def test_what_a_function_of_torch_sets_is_seen_and_put_back(name: str) -> None:
    if name in UNCOVERED:
        return
    state, setter = read(), setters()[name]
    arguments = [ARGUMENTS[name]] if name in ARGUMENTS else [(value,) for value in VALUES]
    for values in arguments:
        with contextlib.suppress(Exception):
            setter(*values)
        if differences(state):
            break
    assert differences(state), f"nothing shows that {name} was called"
    restore(state)
    assert read() == state


@pytest.mark.parametrize(
    "change",
    [
        "torch.backends.mkldnn.set_flags(_enabled=False, _deterministic=True)",
        "torch.backends.nnpack.set_flags(False)",
        "torch.backends.cudnn.set_flags(_deterministic=True)",
        "torch.backends.quantized.engine = next(e for e in torch.backends.quantized.supported_engines if e != 'x86')",
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        "torch.sparse.check_sparse_tensor_invariants.enable()",
        "torch.autograd.set_multithreading_enabled(False)",
        "torch._C._set_view_replay_enabled(True)",
        "torch.set_printoptions(precision=1)",
        "__import__('ctypes').CDLL(None).fesetround(0x800)",
        "torch.set_flush_denormal(True)",
        "setattr(torch.backends.cuda.matmul, 'fp32_precision', 'tf32')"
        " if hasattr(torch.backends, 'fp32_precision') else torch.set_warn_always(True)",
    ],
)
def test_what_has_no_function_of_its_own_is_seen_and_put_back(change: str) -> None:
    state = read()
    exec(change, {"torch": torch})
    assert read() != state
    restore(state)
    assert read() == state and differences(state) == {}


def test_the_flush_of_denormals_is_compared_as_other_settings_are() -> None:
    state = read()
    with restored():
        torch.set_flush_denormal(True)
        ((expression, pair),) = changes(state).items()
        assert pair == (False, True)
        set_by(known(expression), False)
        assert changes(state) == {}


@pytest.mark.parametrize(
    "text",
    [
        "torch.hub.get_dir()", "torch.get_default_dtype('a b')", "torch.load()", "torch.float32", "os.get_x()", "torch._C.get_x()",
        "torch.get_default_dtype() or 1", "torch.backends.x['a']", "torch.__future__.__dict__", "", "torch.backends._x.y\n",
    ],
)  # fmt: skip
def test_an_expression_that_is_none_of_a_setting_is_refused(text: str) -> None:
    """It may come from a log that somebody forged, and would stand in a script."""
    assert Setting.of(text) is None


def test_what_nothing_sets_is_read_alone() -> None:
    name = "torch.is_inference_mode_enabled()"
    state = read()
    with torch.inference_mode(), torch.enable_grad():
        assert changes(state) == {name: (False, True)}
        restore(state)
        assert read()[name] and known(name).assignment("before") == "pass"


def test_a_setting_that_follows_another_is_put_back_and_not_compared() -> None:
    state = read()
    with restored():
        torch.set_float32_matmul_precision("high")
        assert read()["torch.backends.cuda.matmul.allow_tf32"]
        assert changes(state).keys() == {"torch.get_float32_matmul_precision()"}
    assert read() == state


@pytest.mark.parametrize("name", ["fp32_precision", "cuda.matmul.fp32_precision"])
def test_a_setting_that_follows_another_is_compared_where_it_changes_alone(name: str) -> None:
    holder, _, last = f"torch.backends.{name}".rpartition(".")
    if not hasattr(pkgutil.resolve_name(holder), last):
        pytest.skip("this torch has no such setting")
    state = read()
    with restored():
        setattr(pkgutil.resolve_name(holder), last, "tf32")
        assert f"torch.backends.{name}" in changes(state)
        assert len(changes(state)) <= 2, changes(state)
    assert read() == state


def test_what_torch_refuses_to_answer_is_left_out_and_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    state, values = read(), []

    def refuse() -> None:
        raise RuntimeError("old and new functions were mixed")

    mixed = dataclasses.replace(switches()["torch.get_default_dtype()"], read=refuse, write=values.append)
    table = {"torch.mixed": mixed, **switches()}
    monkeypatch.setattr(global_state, "switches", lambda: table)
    assert read() == state and changes({**state, "torch.mixed": 1}) == {}
    restore({**state, "torch.mixed": 1})
    assert values == [1]


def test_settings_are_put_back_after_an_exception() -> None:
    state = read()
    with pytest.raises(ValueError, match="so"), restored():
        torch.set_default_dtype(torch.float64)
        raise ValueError("so")
    assert read() == state


def test_an_order_that_torch_itself_changes_at_the_first_attention_does_not_count() -> None:
    state, order = read(), torch._C._get_sdp_priority_order()
    torch._C._set_sdp_priority_order(order[::-1])
    try:
        assert changes(state) == {}
    finally:
        torch._C._set_sdp_priority_order(order)
