"""``runner.spec.flags``: what a stranger's file may set."""

# ruff: noqa: RUF001 - letters that look alike are what is tested

from __future__ import annotations

import pytest
from spec_files import Files

from runner.spec.flags import refusal

REACHES = "it reaches files, programs, servers or hooks"
VALUE = "its value must be a switch, a number or a plain word"
NAME = "its name is no flag's"
HOME = "flags live in torch._dynamo.config"

REFUSED = [
    ("torch._inductor.config.cpp.cxx", "g++", REACHES),  # the program that is run
    ("torch._inductor.config.cpp.cxx", None, REACHES),
    ("torch._inductor.config.cuda.cuda_cxx", "nvcc", REACHES),
    ("torch._inductor.config.cuda.cutlass_dir", "x", REACHES),
    ("torch._inductor.config.rocm.rocm_home", "x", REACHES),
    ("torch._inductor.config.global_cache_dir", "x", REACHES),
    ("torch._inductor.config.aot_inductor.output_path", "x", REACHES),
    ("torch._inductor.config.aot_inductor.custom_op_libs", "x", REACHES),
    ("torch._inductor.config.aot_inductor.aoti_shim_library", "x", REACHES),
    ("torch._inductor.config.autotune_local_cache", True, REACHES),
    ("torch._inductor.config.autotune_remote_cache", True, REACHES),
    ("torch._inductor.config.fx_graph_remote_cache", True, REACHES),
    ("torch._functorch.config.enable_remote_autograd_cache", True, REACHES),
    ("torch._inductor.config.post_grad_custom_pre_pass", "x", REACHES),
    ("torch._inductor.config.joint_custom_post_pass", "x", REACHES),
    ("torch._inductor.config.run_jit_post_compile_hook", "x", REACHES),
    ("torch._inductor.config.worker_start_method", "spawn", REACHES),
    ("torch._inductor.config.trace.enabled", True, REACHES),
    ("torch._inductor.config.trace.upload_tar", "x", REACHES),
    ("torch._inductor.config.triton.debug_dump_kernel_inputs", True, REACHES),
    ("torch._inductor.config.profile_bandwidth_output", "x", REACHES),
    ("torch._inductor.config.save_args", True, REACHES),
    ("torch._dynamo.config.debug_dir_root", "x", REACHES),
    ("torch._dynamo.config.log_file_name", "x", REACHES),
    ("torch._dynamo.config.repro_after", "aot", REACHES),
    ("torch._dynamo.config.replay_record_enabled", True, REACHES),
    ("torch._functorch.config.memory_budget_pareto_dir", "x", REACHES),
    # strings that are more than a word
    ("torch._inductor.config.cpp.march", "native -o /tmp/x", VALUE),
    ("torch._inductor.config.cpp.march", "native;id", VALUE),
    ("torch._inductor.config.cpp.march", "/tmp/x", VALUE),
    ("torch._inductor.config.cpp.march", "a.b", VALUE),
    ("torch._inductor.config.cpp.march", "x\n", VALUE),
    ("torch._inductor.config.cpp.march", "", VALUE),
    ("torch._inductor.config.cpp.march", "w" * 41, VALUE),
    ("torch._inductor.config.cpp.march", "é", VALUE),
    ("torch._inductor.config.xpu.compile_opt_level", "-fplugin", VALUE),
    ("torch._inductor.config.max_autotune", ..., VALUE),  # a list or a mapping
    # what a module of flags also holds
    ("torch._inductor.config.os.environ", 1, NAME),
    ("torch._inductor.config.sys.executable", "evil", NAME),
    ("torch._dynamo.config.tempfile.tempdir", "x", NAME),
    ("torch._dynamo.config.torch.compile", None, NAME),
    ("torch._inductor.config.cpp.os.sep", "x", NAME),
    ("torch._inductor.config._config", 1, NAME),
    ("torch._inductor.config.__class__", 1, NAME),
    ("torch._inductor.config.a__b", 1, NAME),
    ("torch._inductor.config.max autotune", 1, NAME),
    ("torch._inductor.config.max_autotune ", 1, NAME),
    ("torch._inductor.config.maｘ_autotune", 1, NAME),
    ("torch._inductor.config.", 1, NAME),
    ("torch._inductor.config", 1, HOME),
    ("torch._inductor.max_autotune", 1, HOME),
    ("torch._inductor.configx.max_autotune", 1, HOME),
    ("torch.backends.cuda.matmul.allow_tf32", 1, "its value must be true or false"),
    ("torch.backends.cuda.matmul.fp32_precision", "tf32", HOME),
    ("torch.backends.cudnn.enabled", True, HOME),
    ("os.environ", 1, HOME),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED)
def test_refused(name: str, value: object, reason: str) -> None:
    assert refusal(name, value).startswith(reason)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("torch._dynamo.config.capture_scalar_outputs", True),
        ("torch.backends.cuda.matmul.allow_tf32", True),
        ("torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction", False),
        ("torch._dynamo.config.capture_dynamic_output_shape_ops", False),
        ("torch._dynamo.config.cache_size_limit", 4),
        ("torch._dynamo.config.recompile_limit", 4),
        ("torch._dynamo.config.inline_inbuilt_nn_modules", True),
        ("torch._inductor.config.fallback_random", False),
        ("torch._inductor.config.force_disable_caches", True),
        ("torch._inductor.config.fx_graph_cache", False),
        ("torch._functorch.config.enable_autograd_cache", False),
        ("torch._inductor.config.max_autotune", True),
        ("torch._inductor.config.cpp.simdlen", 0),
        ("torch._inductor.config.cpp.simdlen", None),
        ("torch._inductor.config.triton.max_tiles", 2),
        ("torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY", "accuracy"),
        ("torch._inductor.config.cpp.enable_floating_point_contract_flag", "off"),
        ("torch._inductor.config.emulate_precision_casts", True),
        ("torch._inductor.config.realize_reads_threshold", 1.5),
        ("torch._functorch.config.activation_memory_budget_solver", "dp"),
        ("torch.fx.experimental._config.backed_size_oblivious", True),
        ("torch._export.config.use_new_tracer_experimental", True),
    ],
)
def test_allowed(name: str, value: object) -> None:
    assert refusal(name, value) == ""


def test_places_in_a_case(files: Files) -> None:
    assert files.errors("""
        config:
          torch._dynamo.config.capture_scalar_outputs: true
          torch._inductor.config.cpp.cxx: evil
          torch._inductor.config.cpp.march: "native -o x"
    """) == [
        f"5:7: flag 'torch._inductor.config.cpp.cxx' is refused: {REACHES}",
        f"6:7: flag 'torch._inductor.config.cpp.march' is refused: {VALUE}",
    ]


def test_options_are_held_to_the_same(files: Files) -> None:
    assert files.errors("compile: {options: {max_autotune: true, cpp.cxx: evil, torch._inductor.config.max_autotune: true}}") == [
        f"3:45: flag 'torch._inductor.config.cpp.cxx' is refused: {REACHES}",
        f"3:60: flag 'torch._inductor.config.torch._inductor.config.max_autotune' is refused: {NAME}",
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
        f"a.suite.yaml:4:44: flag 'torch._inductor.config.cpp.cxx' is refused: {REACHES}",
        f"a.suite.yaml:4:69: flag 'torch._dynamo.config.debug_dir_root' is refused: {REACHES}",
    ]
