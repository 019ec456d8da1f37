"""What a variant needs that its backend does not claim."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from runner.cases.model import Backend, Unclaimed, Variant
from runner.contract.finding import Finding
from runner.contract.job import Record, Trust
from runner.session.plan import Planned, skip, skip_reason, unclaimed_by_run, unclaimed_need
from runner.session.shards import plan_hash
from runner.verdict.policy import Verdict
from tests.handmade import environment, loaded, variants, written


def need(variant: Variant, **unclaimed: object) -> str:
    """What the variant needs of a backend that does not claim this."""
    backend = Backend("mine", "eager", dynamic=variant.backend.dynamic, unclaimed=Unclaimed(**unclaimed))  # type: ignore[arg-type]
    return unclaimed_need(dataclasses.replace(variant, backend=backend))


def one(folder: Path, keys: str) -> Variant:
    text = f"cases:\n  - name: a\n{keys}"
    return loaded(written(folder, text)).variants[0]


PLAIN = "    inputs: {x: [2]}\n    chain: [F.relu]\n"


@pytest.mark.parametrize(
    ("grad", "expected"), [("off", ""), ("forward", ""), ("backward", "gradients"), ("{cotangent: sum}", "gradients")]
)
def test_gradients(tmp_path: Path, grad: str, expected: str) -> None:
    variant = one(
        tmp_path, f"    inputs: {{x: {{shape: [2], requires_grad: true}}}}\n    chain: [F.relu]\n    grad: {grad}\n"
    )
    assert need(variant, gradients=True) == expected
    assert need(variant, dynamic=True, mutation=True, dtypes=("float64",), devices=("cuda",)) == ""


@pytest.mark.parametrize(("dynamic", "expected"), [("true", "dynamic shapes"), ("false", ""), ("null", "")])
def test_dynamic_shapes(tmp_path: Path, dynamic: str, expected: str) -> None:
    assert need(one(tmp_path, f"{PLAIN}    dynamic: {dynamic}\n"), dynamic=True) == expected


def test_a_backend_may_make_every_shape_dynamic(tmp_path: Path) -> None:
    variant = one(tmp_path, PLAIN)
    dynamic = dataclasses.replace(variant, backend=Backend("mine", "eager", dynamic=True))
    assert need(dynamic, dynamic=True) == "dynamic shapes"
    assert need(dataclasses.replace(dynamic, dynamic=False), dynamic=True) == ""


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("    inputs: {x: [2]}\n    chain: [{Tensor.add_: [$x, 1]}]\n", "mutation of inputs"),
        (
            "    inputs: {x: [2]}\n    chain: [{torch.abs: $x, out: a}, {Tensor.add_: [$a, 1]}]\n".replace(
                "$x,", "[$x],"
            ),
            "",
        ),
    ],
)
def test_mutation(tmp_path: Path, keys: str, expected: str) -> None:
    assert need(one(tmp_path, keys), mutation=True) == expected
    assert need(one(tmp_path, keys)) == ""


@pytest.mark.parametrize(
    "keys",
    [
        f"{PLAIN}    dtypes: [float16]\n",
        "    inputs: {x: {shape: [2], dtype: torch.float16}}\n    chain: [F.relu]\n",
        "    inputs: {x: {list: [{shape: [2], dtype: float16}]}}\n    chain: [{torch.stack: [$x]}]\n",
        "    inputs: {x: {shape: [2], layout: [{Tensor.to: [$_, torch.float16]}]}}\n    chain: [F.relu]\n",
        "    inputs: {x: [2]}\n    chain: [{Tensor.to: [$_, torch.float16]}]\n",
        "    inputs: {x: [2]}\n    chain:\n      - with: [{torch.autocast: [cpu, torch.float16]}]\n        chain: [F.relu]\n",
        f"{PLAIN}    autocast: float16\n",
        "    inputs: {x: [2, 2]}\n    chain: [{nn.Linear: [2, 2]}]\n    param_dtype: float16\n",
        "    inputs: {x: [2]}\n    state: {s: {shape: [2], dtype: float16}}\n    chain: [{torch.add: [$x, $self.s]}]\n",
    ],
)
def test_dtypes(tmp_path: Path, keys: str) -> None:
    variant = one(tmp_path, keys)
    assert need(variant, dtypes=("complex64", "float16")) == "float16"
    assert need(variant, dtypes=("complex64",)) == ""


def test_a_dtype_that_comes_about_on_the_way_is_not_guessed(tmp_path: Path) -> None:
    variant = one(tmp_path, "    inputs: {x: [4]}\n    chain: [torch.fft.fft]\n")
    assert need(variant, dtypes=("complex64",)) == ""


@pytest.mark.parametrize(
    ("device", "unclaimed", "expected"),
    [
        ("cuda:1", "cuda", "device cuda"),
        ("cuda:1", "cuda:1", "device cuda:1"),
        ("cuda", "cuda:1", ""),
        ("cpu", "cuda", ""),
    ],
)
def test_devices(tmp_path: Path, device: str, unclaimed: str, expected: str) -> None:
    assert need(one(tmp_path, f"{PLAIN}    devices: ['{device}']\n"), devices=(unclaimed,)) == expected


def test_an_input_may_lie_on_another_device(tmp_path: Path) -> None:
    variant = one(tmp_path, "    inputs: {x: {shape: [2], device: cpu}}\n    chain: [F.relu]\n    devices: [cuda]\n")
    assert need(variant, devices=("cpu",)) == "device cpu"


@pytest.mark.parametrize(
    ("chain", "pattern", "expected"),
    [
        ("[F.relu]", "aten.relu", "operator F.relu"),
        ("[F.relu]", "F.conv*", ""),
        ("[{nn.Conv1d: [2, 2, 1]}]", "F.conv*", "operator nn.Conv1d"),
        ("[{operator.iadd: [$x, 1]}]", "torch.add", "operator operator.iadd"),
        ("[{Tensor.add: [$x, 1]}]", "torch.add_", ""),
        ("[{torch.add: [$x, 1]}, {with: [{torch.autocast: [cpu]}], chain: [torch.exp]}]", "Tensor.exp", "operator torch.exp"),
        ("[{torch.vmap: [{$fn: {args: [r], chain: [{torch.exp: [$r]}]}}]}, {operator.call: [$_, $x]}]", "aten.exp", "operator torch.exp"),
    ],
)  # fmt: skip
def test_operators(tmp_path: Path, chain: str, pattern: str, expected: str) -> None:
    variant = one(tmp_path, f"    inputs: {{x: [2, 2]}}\n    chain: {chain}\n")
    assert need(variant, operators=("F.gelu", pattern)) == expected
    assert need(variant) == ""


SUITE = """\
suite: s
backends:
  - inductor
  - {name: inductor-inference, backend: inductor, unclaimed: {gradients: true, devices: [cuda]}}
cases:
  - name: a
    inputs: {x: {shape: [2], requires_grad: true}}
    chain: [F.relu]
    devices: [cpu, cuda]
    grad: [forward, backward]
    %s
"""


def skips(folder: Path, keys: str = "") -> dict[str, Verdict | None]:
    choices = loaded(written(folder, SUITE % keys, "s.suite.yaml")).variants
    return {v.id.partition("[")[2]: skip(Planned(v, environment())) for v in choices}


def test_a_skipped_variant_says_what_is_not_claimed_before_what_the_machine_lacks(tmp_path: Path) -> None:
    verdicts = skips(tmp_path)
    claims = Verdict("SKIP", "inductor-inference claims no gradients", unclaimed="gradients")
    assert verdicts["grad=backward,float32,cpu]@inductor-inference"] == claims
    assert verdicts["grad=backward,float32,cuda]@inductor-inference"] == claims
    absent = verdicts["grad=forward,float32,cuda]@inductor"]
    assert absent is not None and absent.reason.startswith("no device cuda") and absent.unclaimed == ""
    device = verdicts["grad=forward,float32,cuda]@inductor-inference"]
    assert device is not None and device.unclaimed == "device cuda"
    assert verdicts["grad=forward,float32,cpu]@inductor-inference"] is None


def test_a_version_that_the_case_does_not_allow_comes_first(tmp_path: Path) -> None:
    verdicts = skips(tmp_path, 'requires: {torch: "<2.6"}')
    assert {verdict.unclaimed for verdict in verdicts.values() if verdict} == {""} and None not in verdicts.values()


def test_claims_are_part_of_a_plan_and_no_claim_leaves_its_hash(tmp_path: Path) -> None:
    (variant,) = variants(tmp_path, "")

    def digest(**changes: object) -> str:
        backend = dataclasses.replace(variant.backend, **changes)
        return plan_hash([Planned(dataclasses.replace(variant, backend=backend), environment())])

    assert digest() == digest(unclaimed=Unclaimed()) != digest(unclaimed=Unclaimed(gradients=True))
    assert skip_reason(Planned(variant, environment())) == ""


def test_less_precision_is_a_need_if_all_findings_show_it_and_nothing_casts_doubt(tmp_path: Path) -> None:
    (variant,) = variants(tmp_path, "")
    backend = dataclasses.replace(variant.backend, unclaimed=Unclaimed(precision={"float32": "bfloat16"}))
    claiming = dataclasses.replace(variant, backend=backend)
    within, plain = (
        Finding("value", "", numbers=numbers) for numbers in ({"precision": "float32 beyond bfloat16"}, {})
    )
    assert unclaimed_by_run(claiming, Record((within, within))) == "precision of float32 beyond bfloat16"
    assert unclaimed_by_run(claiming, Record((within, plain))) == ""
    assert unclaimed_by_run(claiming, Record((within,), Trust("INVALID", ""))) == ""
    assert unclaimed_by_run(claiming, Record()) == unclaimed_by_run(variant, Record((within,))) == ""


def test_an_input_of_a_further_call_counts(tmp_path: Path) -> None:
    keys = f"{PLAIN}    calls:\n      - inputs: {{x: {{shape: [3], dtype: float16}}}}\n"
    assert need(one(tmp_path, keys), dtypes=("float16",)) == "float16"
