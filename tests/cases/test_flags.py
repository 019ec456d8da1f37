"""``runner.cases.torch_names``: what a stranger's file may set."""

# ruff: noqa: RUF001 - letters that look alike are what is tested

from __future__ import annotations

from collections.abc import Iterator

import pytest
from spec_files import Files

from runner.cases.torch_names import BY_HAND, MODULES, SWITCHES, Flag, flag_refusal, flag_table
from tools import flags as drafts
from tools.flags import misfits

FILES = "it writes files, or says where they are"
PROGRAMS = "it starts programs or processes"
CACHE = "it says what is kept between runs"
PASSES = "it says which passes run by their names, hooks into them"
REPORT = "it logs, prints, records or profiles"
OVERRIDES = "it replaces other settings, or leaves nothing to compile"
VENDOR = "it drives another compiler than g++ and Triton"
PACKAGE = "it is about AOTInductor's packages"
BOUNDS = "it turns off a check that keeps compiled code within its memory"
UNKNOWN = "torch 2.6 and 2.13 have no such flag"
HOME = "flags live in torch._dynamo.config"
MARCH = "its value must be 'native', 'x86-64', 'x86-64-v2', 'x86-64-v3', 'x86-64-v4' or null"
SWITCH = "its value must be true or false"
WHOLE = "its value must be a whole number of at most 64 bits"

REFUSED = [
    ("torch._inductor.config.cpp.cxx", "g++", PROGRAMS),  # the program that is run
    ("torch._inductor.config.cpp.cxx", None, PROGRAMS),
    ("torch._inductor.config.worker_start_method", "spawn", PROGRAMS),
    ("torch._inductor.config.compile_threads", 4, PROGRAMS),
    ("torch._inductor.config.autotune_in_subproc", True, PROGRAMS),
    ("torch._dynamo.config.cprofile", True, REPORT),  # runs gprof2dot and dot from PATH
    ("torch._dynamo.config.dynamo_profiler", True, REPORT),
    ("torch._inductor.config.cuda.cuda_cxx", "nvcc", VENDOR),
    ("torch._inductor.config.cuda.cutlass_dir", "x", VENDOR),
    ("torch._inductor.config.cutlass.cutlass_dir", "x", VENDOR),
    ("torch._inductor.config.rocm.rocm_home", "x", VENDOR),
    ("torch._inductor.config.xpu.compile_opt_level", "-fplugin", VENDOR),
    ("torch._inductor.config.global_cache_dir", "x", CACHE),
    ("torch._inductor.config.autotune_local_cache", True, CACHE),
    ("torch._inductor.config.autotune_remote_cache", True, CACHE),
    ("torch._inductor.config.fx_graph_remote_cache", True, CACHE),
    ("torch._functorch.config.enable_remote_autograd_cache", True, CACHE),
    ("torch._dynamo.config.automatic_dynamic_local_pgo", True, CACHE),
    ("torch._inductor.config.aot_inductor.output_path", "x", PACKAGE),
    ("torch._inductor.config.aot_inductor.custom_op_libs", "x", PACKAGE),
    ("torch._inductor.config.aot_inductor.aoti_shim_library", "x", PACKAGE),
    ("torch._inductor.config.post_grad_custom_pre_pass", "x", PASSES),
    ("torch._inductor.config.joint_custom_post_pass", "x", PASSES),
    ("torch._inductor.config.run_jit_post_compile_hook", "x", PASSES),
    ("torch._inductor.config.generate_intermediate_hooks", True, PASSES),
    ("torch._inductor.config.trace.enabled", True, FILES),
    ("torch._inductor.config.trace.upload_tar", "x", FILES),
    ("torch._inductor.config.triton.debug_dump_kernel_inputs", True, FILES),
    ("torch._inductor.config.triton.proton_profiling", True, FILES),
    ("torch._inductor.config.profile_bandwidth_output", "x", FILES),
    ("torch._inductor.config.enabled_metric_tables", "kernel_metadata", FILES),
    ("torch._inductor.config.autoheuristic_collect.pad_mm", True, FILES),
    ("torch._inductor.config.save_args", True, FILES),
    ("torch._dynamo.config.debug_dir_root", "x", FILES),
    ("torch._dynamo.config.log_file_name", "x", FILES),
    ("torch._dynamo.config.repro_after", "aot", FILES),
    ("torch._dynamo.config.replay_record_enabled", True, FILES),
    ("torch._functorch.config.memory_budget_pareto_dir", "x", FILES),
    ("torch._functorch.config.visualize_memory_budget_pareto", True, FILES),
    ("torch._dynamo.config.debug_inductor_config_override", "0:cpp.cxx=evil", OVERRIDES),
    ("torch._dynamo.config.disable", True, OVERRIDES),
    ("torch._inductor.config.assert_indirect_indexing", False, BOUNDS),
    ("torch._inductor.config.size_asserts", False, BOUNDS),
    # words that are not on the list
    ("torch._inductor.config.cpp.march", "native -o /tmp/x", MARCH),
    ("torch._inductor.config.cpp.march", "native;id", MARCH),
    ("torch._inductor.config.cpp.march", "/tmp/x", MARCH),
    ("torch._inductor.config.cpp.march", "native\n", MARCH),
    ("torch._inductor.config.cpp.march", "", MARCH),
    ("torch._inductor.config.cpp.march", 1, MARCH),
    ("torch._inductor.config.max_autotune_gemm_backends", "CUTLASS", "its value must be 'ATEN', "),
    ("torch._inductor.config.cpp_wrapper", True, "with it Inductor writes texts of a case into C++ as they are, without quoting them"),
    ("torch._inductor.config.cpu_backend", "halide", "its value must be 'cpp' or 'triton'"),
    ("torch._functorch.config.activation_memory_budget_runtime_estimator", "profile", "its value must be 'flops' or 'testing'"),
    # values of another type
    ("torch._inductor.config.max_autotune", ..., SWITCH),  # a list or a mapping
    ("torch._inductor.config.max_autotune", 1, SWITCH),
    ("torch._inductor.config.max_autotune", None, SWITCH),
    ("torch._inductor.config.max_fusion_size", True, WHOLE),
    ("torch._inductor.config.max_fusion_size", 1.5, WHOLE),
    ("torch._inductor.config.max_fusion_size", "1", WHOLE),
    ("torch._inductor.config.max_fusion_size", 2**63, WHOLE),
    ("torch._inductor.config.cpp.simdlen", -(2**63) - 1, WHOLE + " or null"),
    ("torch._functorch.config.activation_memory_budget", float("inf"), "its value must be a finite number"),
    ("torch._functorch.config.activation_memory_budget", float("nan"), "its value must be a finite number"),
    ("torch.backends.cuda.matmul.allow_tf32", 1, SWITCH),
    # what a module of flags also holds, and what only looks like a flag
    ("torch._inductor.config.os.environ", 1, UNKNOWN),
    ("torch._inductor.config.sys.executable", "evil", UNKNOWN),
    ("torch._dynamo.config.tempfile.tempdir", "x", UNKNOWN),
    ("torch._dynamo.config.torch.compile", None, UNKNOWN),
    ("torch._inductor.config.cpp.os.sep", "x", UNKNOWN),
    ("torch._inductor.config._config", 1, UNKNOWN),
    ("torch._inductor.config.__class__", 1, UNKNOWN),
    ("torch._inductor.config.max autotune", 1, UNKNOWN),
    ("torch._inductor.config.max_autotune ", 1, UNKNOWN),
    ("torch._inductor.config.max-autotune", 1, UNKNOWN),  # torch.compile reads - as _ in its options
    ("torch._inductor.config.maｘ_autotune", 1, UNKNOWN),
    ("torch._inductor.config.", 1, UNKNOWN),
    ("torch._inductor.config", 1, HOME),
    ("torch._inductor.max_autotune", 1, HOME),
    ("torch._inductor.configx.max_autotune", 1, HOME),
    ("torch.compiler.config.force_disable_caches", True, HOME),
    ("torch.backends.cuda.matmul.fp32_precision", "tf32", HOME),
    ("torch.backends.cudnn.enabled", 1, "its value must be true or false"),
    ("torch.backends.cudnn.benchmark_limit", 1, HOME),
    ("torch.backends.mkldnn.enabled", True, HOME),
    ("os.environ", 1, HOME),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED)
def test_refused(name: str, value: object, reason: str) -> None:
    assert flag_refusal(name, value).startswith(reason)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("torch._dynamo.config.capture_scalar_outputs", True),
        ("torch.backends.cuda.matmul.allow_tf32", True),
        ("torch.backends.cudnn.enabled", False),
        ("torch.backends.cudnn.deterministic", True),
        ("torch.backends.cudnn.benchmark", True),
        ("torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction", False),
        ("torch._dynamo.config.capture_dynamic_output_shape_ops", False),
        ("torch._dynamo.config.cache_size_limit", 4),
        ("torch._dynamo.config.recompile_limit", 4),
        ("torch._dynamo.config.inline_inbuilt_nn_modules", True),
        ("torch._inductor.config.fallback_random", False),
        ("torch._inductor.config.force_disable_caches", True),
        ("torch._inductor.config.fx_graph_cache", False),
        ("torch._inductor.config.force_same_precision", True),  # torch 2.6 alone has it
        ("torch._functorch.config.enable_autograd_cache", False),
        ("torch._inductor.config.max_autotune", True),
        ("torch._inductor.config.cpp.simdlen", 0),
        ("torch._inductor.config.cpp.simdlen", None),
        ("torch._inductor.config.cpp.march", "x86-64-v3"),
        ("torch._inductor.config.triton.max_tiles", 2),
        ("torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY", "accuracy"),
        ("torch._inductor.config.cpp.enable_floating_point_contract_flag", "off"),
        ("torch._inductor.config.aot_inductor.debug_compile", True),
        ("torch._inductor.config.max_autotune_gemm_backends", "ATEN,CPP"),
        ("torch._inductor.config.emulate_precision_casts", True),
        ("torch._inductor.config.realize_reads_threshold", 2**63 - 1),
        ("torch._functorch.config.activation_memory_budget", 1),
        ("torch._functorch.config.activation_memory_budget", 0.5),
        ("torch._functorch.config.activation_memory_budget_solver", "dp"),
        ("torch.fx.experimental._config.backed_size_oblivious", True),
        ("torch._export.config.use_new_tracer_experimental", True),
    ],
)
def test_allowed(name: str, value: object) -> None:
    assert flag_refusal(name, value) == ""


def allowed() -> Iterator[tuple[str, Flag]]:
    return ((name, flag) for name, flag in flag_table().items() if not flag.refused)


def test_every_allowed_flag_takes_plain_values_and_is_of_some_torch() -> None:
    assert sum(1 for _ in allowed()) > 350
    for name, flag in allowed():
        assert flag.kinds - {"null"} or flag.words, name
        assert flag.torch or name in SWITCHES, name
        assert all(
            word.isascii() and word.replace(",", "").replace("-", "").replace("_", "").isalnum() for word in flag.words
        )
        assert name.startswith(MODULES) or name in SWITCHES


def test_no_allowed_flag_speaks_of_files_programs_or_servers() -> None:
    """A second look by the words of a name: each exception is here because somebody has read what the flag does."""
    words = {"cxx", "path", "dir", "root", "file", "cmd", "command", "url", "remote", "upload", "save", "dump", "trace", "log", "record", "repro",
             "replay", "profile", "cprofile", "external", "hook", "callback", "subproc", "worker", "nvcc", "cutlass", "rocm", "halide",
             "pass", "proton", "cubin", "bundle", "script", "import", "verbose", "graphviz", "threads"}  # fmt: skip
    exceptions = {
        "torch._dynamo.config.trace_autograd_ops",  # Dynamo's tracing, no trace of a run
        "torch._dynamo.config.trace_numpy",
        "torch._dynamo.config.skip_nnmodule_hook_guards",  # whether compiled code looks at a module's own hooks
        "torch._dynamo.config.enable_trace_contextlib",
        "torch._dynamo.config.enable_trace_load_build_class",
        "torch._dynamo.config.enable_trace_unittest",
        "torch._dynamo.config.error_on_nested_fx_trace",
        "torch._dynamo.config.error_on_nested_jit_trace",
        "torch._dynamo.config.force_compile_during_fx_trace",
        "torch._dynamo.config.error_on_dynamo_callback_in_fullgraph_compiled_code",
        "torch._dynamo.config.replay_side_effects",  # at the end of a graph
        "torch._dynamo.config.side_effect_replay_policy",
        "torch._functorch.config.backward_pass_autocast",
        "torch._functorch.config.treat_parameters_as_free_to_save",  # for the backward pass
        "torch._functorch.config.view_replay_for_aliased_outputs",
        "torch._functorch.config.saved_tensors_hooks_filtering_mode",
        "torch._inductor.config.b2b_gemm_pass",  # a switch
        "torch._inductor.config.cpp.threads",  # of OpenMP
        "torch._inductor.config.cpp.dynamic_threads",
        "torch._inductor.config.pre_grad_pass_timing",
        "torch._inductor.config.triton.fast_path_cudagraph_asserts",
        "torch._inductor.config.triton.slow_path_cudagraph_asserts",
    }
    matches = {name for name, _ in allowed() if words & set(name.lower().replace(".", "_").split("_"))}
    assert matches - exceptions == set()


@pytest.mark.slow
def test_the_tables_fit_the_installed_torch() -> None:
    assert drafts.MODULES == MODULES
    assert misfits() == []


def test_an_alias_of_a_refused_flag_is_a_misfit(monkeypatch: pytest.MonkeyPatch) -> None:
    name, target = "torch._dynamo.config.cache_size_limit", "torch._dynamo.config.recompile_limit"
    monkeypatch.setitem(flag_table(), target, Flag(frozenset({"int"}), (), ("2.13",), "for the test"))
    assert any(problem.startswith(f"{name} is allowed, and is another name of {target}") for problem in misfits())


def test_a_flag_that_the_table_lacks_is_a_misfit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(flag_table(), "torch._inductor.config.max_autotune")
    assert misfits() == ["torch._inductor.config.max_autotune is not in flags.json"]


def test_places_in_a_case(files: Files) -> None:
    assert files.errors("""
        config:
          torch._dynamo.config.capture_scalar_outputs: true
          torch._inductor.config.cpp.cxx: evil
          torch._inductor.config.cpp.march: "native -o x"
    """) == [
        f"5:7: flag 'torch._inductor.config.cpp.cxx' is refused: {PROGRAMS}, or loads a solver | {BY_HAND}",
        f"6:7: flag 'torch._inductor.config.cpp.march' is refused: {MARCH}",
    ]


def test_options_are_held_to_the_same(files: Files) -> None:
    assert files.errors("compile: {options: {max_autotune: true, cpp.cxx: evil, torch._inductor.config.max_autotune: true}}") == [
        f"3:45: flag 'torch._inductor.config.cpp.cxx' is refused: {PROGRAMS}, or loads a solver | {BY_HAND}",
        f"3:60: flag 'torch._inductor.config.torch._inductor.config.max_autotune' is refused: {UNKNOWN}"
        " | did you mean 'torch._inductor.config.max_autotune'?",
    ]  # fmt: skip
    case = files.case(
        "compile: {options: {max_autotune: true, cpp.simdlen: 8}}\nconfig: {torch._dynamo.config.recompile_limit: 4}"
    )
    assert case.compile.options == {"max_autotune": True, "cpp.simdlen": 8}
    assert case.config == {"torch._dynamo.config.recompile_limit": 4}


def test_backends_of_a_suite_are_held_to_the_same(files: Files) -> None:
    files.write("a.spec.yaml", files.case_text(""))
    files.write(
        "a.suite.yaml",
        """\
        suite: s
        specs: [a.spec.yaml]
        backends:
          - {name: b, backend: inductor, options: {cpp.cxx: evil}, config: {torch._dynamo.config.debug_dir_root: x}}
    """,
    )
    files.suites("a.suite.yaml")
    assert files.found() == [
        f"a.suite.yaml:4:44: flag 'torch._inductor.config.cpp.cxx' is refused: {PROGRAMS}, or loads a solver | {BY_HAND}",
        f"a.suite.yaml:4:69: flag 'torch._dynamo.config.debug_dir_root' is refused: {FILES} | {BY_HAND}",
    ]


def test_the_nearest_name_is_given_for_the_first_unknown_ones_alone(files: Files) -> None:
    keys = ", ".join(f"torch._inductor.config.max_autotun{n}: true" for n in range(60))
    messages = files.errors(f"config: {{{keys}}}")
    assert len(messages) == 60
    assert sum("did you mean 'torch._inductor.config.max_autotune'?" in message for message in messages) == 20
    assert sum(message.endswith(BY_HAND) for message in messages) == 40


def test_a_long_name_is_shortened(files: Files) -> None:
    (message,) = files.errors(f"config: {{torch._inductor.config.{'x' * 900}: true}}")
    assert len(message) < 500 and "xxx...'" in message
