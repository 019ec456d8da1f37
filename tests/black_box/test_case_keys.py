"""What a case can say, typed: each key read by the command, and seen to do something in a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .driver import Result, spec, write

BACKEND = """
import time

import torch


def off(graph, inputs):
    \"\"\"Return a function whose floating results are a little off.\"\"\"
    return lambda *args: tuple(out + 0.01 if out.is_floating_point() else out for out in graph(*args))


def slow(graph, inputs):
    \"\"\"Return the graph, late.\"\"\"
    time.sleep(3)
    return graph.forward
"""


def test_a_tolerance_for_one_output(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    two = """
        name: {}
        inputs: {{x: [4]}}
        chain:
          - {{torch.sin: $x, out: a}}
          - {{torch.cos: $x, out: b}}
        return: [$a, $b]
        tolerance: {{"output[0]": {{atol: 1, reason: it is loose}}, {}}}
        """
    text = spec(two.format("one", "exact: false"), two.format("both", "'output[1]': {atol: 1, reason: it is loose}"))
    write(tmp_path, {"two.spec.yaml": text, "nearly.py": BACKEND})
    assert run_runner("validate", "two.spec.yaml").code == 0
    ran = run_runner("run", "two.spec.yaml", "--backend", "nearly:off")
    assert ran.verdicts == {"one@nearly:off": "FAIL", "both@nearly:off": "PASS"}
    assert [finding["path"] for finding in ran.of("one@nearly:off")["findings"]] == ["output[1]"]


def test_a_tolerance_for_an_output_that_is_not_returned(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    keys = "name: a\ninputs: {x: [4]}\nchain: [F.relu]\nreturn: [$_]\ntolerance: {'output[1]': {rtol: 1, reason: x}}"
    write(tmp_path, {"a.spec.yaml": spec(keys)})
    done = run_runner("validate", "a.spec.yaml")
    assert done.code == 4 and "a.spec.yaml:6:17: error: the case returns no output[1]" in done.text


def test_the_argument_out_of_an_operator(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    body = """
        name: {}
        inputs: {{x: [4, 3], a: [4, 3], b: [3], c: [3]}}
        grad: off
        chain:
          - torch.native_batch_norm:
              "*": [$x, null, null, null, null, true, 0.1, 1.0e-5]
              out: {}
        return: [$a, $b, $c]
        """
    write(
        tmp_path,
        {
            "given.spec.yaml": spec(body.format("given", "[$a, $b, $c]")),
            "names.spec.yaml": spec(body.format("names", "[a, b, c]")),
        },
    )
    ran = run_runner("run", "given.spec.yaml", "--backend", "aot_eager")
    assert ran.verdicts == {"given@aot_eager": "PASS"}, ran.text
    assert "out=[a, b, c])" in run_runner("show", "given.spec.yaml::given").out
    refused = run_runner("validate", "names.spec.yaml")
    assert refused.code == 4 and "names.spec.yaml:8:11: error: 'out' stands among the arguments" in refused.text


def test_a_seed_of_the_case(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    body = "name: {}\n{}inputs: {{x: [4]}}\nchain: [{{torch.mul: [$_, 2]}}]"
    text = spec(body.format("own", "seed: 5\n"), body.format("none", ""))
    write(tmp_path, {"seeds.spec.yaml": text, "nearly.py": BACKEND})

    def eager(name: str, *words: str) -> float:
        ran = run_runner("run", f"seeds.spec.yaml::{name}", "--backend", "nearly:off", *words)
        return float(ran.of(f"{name}@nearly:off")["findings"][0]["numbers"]["eager"])

    assert eager("own") == eager("own", "--seed", "6") == eager("none", "--seed", "5") != eager("none")
    script = run_runner("repro", "seeds.spec.yaml::own", "--backend", "nearly:off").out
    assert "torch.manual_seed(5)" in script
    assert "seed:           5" in run_runner("show", "seeds.spec.yaml::own").out


def test_a_seed_is_an_integer_of_64_bits(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    body = "name: {}\nseed: {}\ninputs: {{x: [4]}}\nchain: [F.relu]"
    texts = [spec(body.format("a", seed)) for seed in ("-9223372036854775808", "18446744073709551616", "one")]
    write(tmp_path, {f"{place}.spec.yaml": text for place, text in enumerate(texts)})
    assert run_runner("validate", "0.spec.yaml").code == 0
    for name, message in (("1", "18446744073709551616 is too large"), ("2", "expected an integer of 64 bits")):
        refused = run_runner("validate", f"{name}.spec.yaml")
        assert refused.code == 4 and f"{name}.spec.yaml:3:11: error: {message}" in refused.text


def test_a_random_order(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    body = """
        name: {}
        inputs: {{x: [300], i: {{shape: [300], dtype: {}, init: randperm}}}}
        chain: [{{torch.index_select: [$x, 0, $i]}}]
        """
    write(tmp_path, {"a.spec.yaml": spec(body.format("a", "int64")), "b.spec.yaml": spec(body.format("b", "uint8"))})
    assert run_runner("run", "a.spec.yaml", "--backend", "aot_eager").verdicts == {"a@aot_eager": "PASS"}
    refused = run_runner("validate", "b.spec.yaml")
    assert refused.code == 4 and "b.spec.yaml:3:24: error: init randperm makes the numbers 0 to 299" in refused.text


def test_a_given_cotangent(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    body = """
        name: {}
        inputs:
          x: {{shape: [3], requires_grad: true}}
          g: {{values: {}, hidden: true}}
        grad: {{cotangent: $g}}
        chain: [torch.tanh]
        """
    text = spec(body.format("fits", "[1.0, 0.0, -2.0]"), body.format("too_long", "[1.0, 0.0, -2.0, 1.0]"))
    write(tmp_path, {"a.spec.yaml": text, "b.spec.yaml": spec(body.format("b", "[1.0]").replace(", hidden: true", ""))})
    ran = run_runner("run", "a.spec.yaml", "--backend", "aot_eager")
    assert ran.verdicts == {"fits@aot_eager": "PASS", "too_long@aot_eager": "INVALID"}, ran.text
    assert ran.of("too_long@aot_eager")["reason"] == "grad: output has the shape [3], its cotangent [4]"
    shown = run_runner("show", "a.spec.yaml::fits").out
    assert "def make_cotangents():\n    g = torch.tensor([1.0, 0.0, -2.0])\n    return [g]" in shown
    refused = run_runner("validate", "b.spec.yaml")
    assert refused.code == 4 and "'g' is a cotangent, and the model gets it too" in refused.text


def test_a_leaf_behind_a_cast(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    body = """
        name: {}
        inputs: {{x: {{shape: [3], layout: [Tensor.bfloat16], requires_grad: {}}}}}
        grad: backward
        chain: [torch.tanh]
        """
    text = spec(body.format("before", "true"), body.format("after", "after_layout"))
    write(tmp_path, {"a.spec.yaml": text, "b.spec.yaml": spec(body.format("b", "after"))})
    ran = run_runner("run", "a.spec.yaml", "--backend", "aot_eager")
    assert ran.verdicts == {"before@aot_eager": "PASS", "after@aot_eager": "PASS"}, ran.text
    assert "    x = x.bfloat16()\n    x.requires_grad_()\n" in run_runner("show", "a.spec.yaml::after").out
    refused = run_runner("validate", "b.spec.yaml")
    assert (
        refused.code == 4
        and "b.spec.yaml:3:72: error: expected true, false or after_layout, found the text 'after'" in refused.text
    )


def test_what_parameters_hold_at_first(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    body = """
        name: {}
        inputs: {{x: {{values: [[1.0, 10.0]]}}}}
        grad: off
        chain:
          - nn.Linear: [2, 2]
            state: {{weight: {{values: [[1.0, 2.0], [3.0, 4.0]]}}, {}: {{init: {{full: 0.5}}}}}}
        """
    write(
        tmp_path,
        {"a.spec.yaml": spec(body.format("right", "bias"), body.format("wrong", "bais")), "nearly.py": BACKEND},
    )
    ran = run_runner("run", "a.spec.yaml", "--backend", "nearly:off")
    assert ran.verdicts == {"right@nearly:off": "FAIL", "wrong@nearly:off": "INVALID"}, ran.text
    numbers = ran.of("right@nearly:off")["findings"][0]["numbers"]
    assert numbers["eager"] in (21.5, 43.5)
    assert "KeyError: 'bais'" in ran.of("wrong@nearly:off")["reason"]


def test_a_parameter_has_its_own_shape(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    keys = "name: a\ninputs: {x: [2]}\nchain:\n  - nn.Linear: [2, 2]\n    state: {weight: {shape: [2, 2], init: ones}}"
    write(tmp_path, {"a.spec.yaml": spec(keys)})
    refused = run_runner("validate", "a.spec.yaml")
    assert refused.code == 4 and "a.spec.yaml:6:26: error: unknown key 'shape'" in refused.text


def test_complex_numbers(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    keys = """
        name: a
        inputs: {x: {values: [1+2j, -0.5j]}}
        chain: [{torch.mul: [$x, 2j]}, {torch.add: [$_, {$tensor: [1j, 2]}]}]
        """
    write(tmp_path, {"a.spec.yaml": spec(keys), "b.spec.yaml": spec(keys.replace("1+2j", "1e999j"))})
    ran = run_runner("run", "a.spec.yaml", "--backend", "aot_eager")
    assert ran.verdicts == {"a@aot_eager": "PASS"}, ran.text
    assert "torch.mul(x, (0.0+2.0j))" in run_runner("show", "a.spec.yaml::a").out
    refused = run_runner("validate", "b.spec.yaml")
    assert refused.code == 4 and "b.spec.yaml:3:27: error: 1e999j is beyond the range" in refused.text


def test_a_limit_for_compiling(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    body = "name: {}\ninputs: {{x: [4]}}\nchain: [torch.sin]\ncompile: {{timeout: {}}}"
    text = spec(body.format("short", "1s"), body.format("long", "100s"))
    write(tmp_path, {"a.spec.yaml": text, "nearly.py": BACKEND, "b.spec.yaml": spec(body.format("b", "1 parsec"))})
    ran = run_runner("run", "a.spec.yaml", "--backend", "nearly:slow")
    assert ran.verdicts == {"short@nearly:slow": "ERROR", "long@nearly:slow": "PASS"}, ran.text
    event = ran.of("short@nearly:slow")
    assert event["oracles"] == ["timeout"]
    assert event["reason"] == "timeout: compiling took more than 1 s, the case's limit for compiling"
    assert "compile:        timeout=1.0" in run_runner("show", "a.spec.yaml::short").out
    refused = run_runner("validate", "b.spec.yaml")
    assert refused.code == 4 and "b.spec.yaml:5:24: error: expected a time above 0 with its unit" in refused.text
