"""The flags of ``runner/diagnose/diagnosis.py`` do on this torch what their names say."""

from __future__ import annotations

from typing import Any

import pytest
import torch._inductor.metrics as metrics
from torch._dynamo.utils import counters
from torch._inductor import config, cpp_builder
from torch._inductor.cpu_vec_isa import pick_vec_isa
from worker_jobs import passes, run, source

from runner.diagnose.diagnosis import changes_for
from runner.verdict.signature import FailureSignature
from runner.worker.program.load import configured
from tests.handmade import variants

# Two kernels that are fused, both vectorized, and an addition that a pattern puts into the product before it.
TEXT = source("y = torch.mm(x.sin(), x.t()) + x[0]\nreturn y.cos(), y.sigmoid()", inputs="torch.randn(32, 32)")


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    variant = variants(tmp_path_factory.mktemp("case"), "")[0]
    return {
        change.name: dict(change.config) for change in changes_for(variant, FailureSignature("value", "inductor"), "")
    }


def counts(config: dict[str, Any]) -> tuple[int, int, int]:
    """Kernels, vectorized kernels, matched patterns."""
    metrics.reset()
    no_cache = {"torch._inductor.config.force_disable_caches": True}
    assert passes(run(TEXT, "inductor", config={**no_cache, **config}, threads=1))
    return (
        metrics.generated_kernel_count,
        metrics.generated_cpp_vec_kernel_count,
        counters["inductor"]["pattern_matcher_count"],
    )


@pytest.fixture(scope="module")
def plain() -> tuple[int, int, int]:
    return counts({})


def test_without_fusion_there_are_more_kernels(flags: dict[str, dict[str, Any]], plain: tuple[int, int, int]) -> None:
    assert counts(flags["without fusion"])[0] > plain[0]


@pytest.mark.skipif(not pick_vec_isa(), reason="this processor has no vectors that Inductor knows")
def test_without_vectorization_no_kernel_has_vectors(
    flags: dict[str, dict[str, Any]], plain: tuple[int, int, int]
) -> None:
    assert plain[1] > 0 and counts(flags["without vectorization"])[1] == 0


def test_without_pattern_matching_no_pattern_matches(
    flags: dict[str, dict[str, Any]], plain: tuple[int, int, int]
) -> None:
    assert plain[2] > 0 and counts(flags["without pattern matching"])[2] == 0


def test_the_flag_for_o0_reaches_the_compiler(flags: dict[str, dict[str, Any]]) -> None:
    assert "O3" in str(cpp_builder._get_optimization_cflags("g++"))
    with configured(flags["compiled with -O0"].items()):
        arguments = str(cpp_builder._get_optimization_cflags("g++"))
    assert "O0" in arguments and "O3" not in arguments


def test_the_others_are_flags_that_this_torch_has(flags: dict[str, dict[str, Any]]) -> None:
    for name in ("with eager's roundings", "without layout changes", "without buffer reuse"):
        with configured(flags[name].items()):
            values = [getattr(config, flag.removeprefix("torch._inductor.config.")) for flag in flags[name]]
        assert values == [*flags[name].values()]
