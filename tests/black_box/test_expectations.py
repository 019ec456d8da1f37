"""What a case expects beyond equal values, and what a pass says: the format's keys through the installed command."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from .driver import Result, run_in, run_script, spec, write

BACKENDS = {
    "float8": ("eager", "aot_eager"),
    "bits": ("my_backend:other_bit",),
    "graphs": ("aot_eager",),
    "strides": ("my_backend:ones",),
    "stride_known": ("my_backend:odd",),
    "cudnn": ("eager",),
    "options": ("aot_eager",),
    "kernels": ("inductor", "aot_eager"),
    "checks": ("eager", "runner.worker.planted:error_swallowed"),
    "scans": ("aot_eager", "runner.worker.planted:wrong_element"),
}
"""Under which backends the cases of each file run."""
FILES: dict[str, str] = {}
"""Their texts, each above its tests."""
MY_BACKEND = ""
"""The backends of one's own that they name."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """One run of all that expects neither a certain exit code nor other verdicts beside its own."""
    folder = tmp_path_factory.mktemp("expectations")
    write(folder, {f"{name}.spec.yaml": text for name, text in FILES.items()})
    write(folder, {"my_backend.py": MY_BACKEND, "m.py": ASKED})
    selectors = [f"{name}.spec and backend:{backend}" for name, backends in BACKENDS.items() for backend in backends]
    flags = [word for backend in sorted({*sum(BACKENDS.values(), ())}) for word in ("--backend", backend)]
    words = ("-k", " or ".join(selectors), "--allow-python", "--no-confirm", "-v", "-j", 2)
    return run_in(folder, "run", ".", *flags, *words)


NO_LEAF = "name: a\ninputs: {x: [2]}\ngrad: backward\nchain: [F.relu]"
LEAF = "name: a\ninputs: {x: {shape: [2], requires_grad: true}}\ngrad: backward\nchain: [F.relu]"


def test_backward_without_a_leaf_is_an_error_of_validate(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    write(tmp_path, {"no.spec.yaml": spec(NO_LEAF), "leaf.spec.yaml": spec(LEAF)})
    result = run_runner("validate", "no.spec.yaml")
    assert result.code == 4
    assert "no.spec.yaml:4:11: error: nothing in case 'a' requires a gradient" in result.err
    assert (
        "     |           ^^^^^^^^\n     = write requires_grad: true for an input, such as x: {shape: [2, 3],"
        in result.err
    )
    assert run_runner("validate", "leaf.spec.yaml").code == 0


WIDE = '''
import torch


def wide(graph, inputs):
    """Computes in float64, and rounds once."""
    return lambda *args: tuple(out.float() for out in graph(*(arg.double() for arg in args)))
'''

EXPLAINED = spec(
    """
    name: excused
    inputs: {x: {values: [100000000.0, 1.0]}}
    chain: [{torch.add: [$_, 1.0]}, {torch.sub: [$_, 100000000.0]}]
    """,
    """
    name: plain
    inputs: {x: {shape: [3], requires_grad: true}}
    grad: backward
    chain: [torch.neg]
    """,
    "name: raising\ninputs: {x: [3]}\nchain: [{operator.getitem: [$_, 5]}]\nexpect: {raises: {type: IndexError}}",
)


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run with -v, under a backend that is nearer to float64 than eager is."""
    folder = tmp_path_factory.mktemp("explained")
    write(folder, {"a.spec.yaml": EXPLAINED, "my_backend.py": WIDE})
    return run_in(folder, "run", "a.spec.yaml", "--backend", "my_backend:wide", "-v", "--no-confirm", "-j", 2)


def test_a_pass_by_float64_has_a_star_and_a_line_that_says_why(explained: Result) -> None:
    assert explained.code == 0
    table = explained.out.partition("\ncase ")[2]
    assert re.search(r"::excused\[float32,cpu\] +PASS\*\n", table)
    assert re.search(r"::plain\[float32,cpu\] +PASS\n", table)
    assert "PASS*: values lie outside the tolerance and still pass: nearer-to-float64 (1)\n" in table
    assert re.search(
        r"\n  \S+::excused\S+: output: \d+ of \d+ elements lie outside .* allows: nearer-to-float64\n", table
    )
    assert "3 passed in " in table


def test_neither_the_log_nor_junit_knows_the_star(explained: Result) -> None:
    assert set(explained.verdicts.values()) == {"PASS"}
    assert explained.folder is not None and "PASS*" not in (explained.folder / "junit.xml").read_text()


def test_v_says_what_was_compared(explained: Result) -> None:
    lines = explained.out.split("\n")

    def below(case: str) -> list[str]:
        first = next(place for place, line in enumerate(lines) if f"::{case}[" in line) + 1
        return list(itertools.takewhile(lambda line: line.startswith(" " * 17), lines[first:]))

    assert below("excused") == [
        " " * 17 + "compared 1 output (strides of 1, aliases of 1), 0 gradients, 4 elements",
        " " * 17 + "delegated 0 of 2 operators; torch ran add, sub",
        " " * 17 + "label nearer-to-float64",
        " " * 17 + "note output: 1 of 2 elements lie outside the tolerance, the worst is off by 1e+05 times what it "
        "allows: nearer-to-float64",
    ]
    assert below("plain") == [
        " " * 17 + "compared 1 output (strides of 1, aliases of 1), 1 gradient, 9 elements",
        " " * 17 + "delegated 0 of 1 operator; torch ran neg",
    ]
    assert below("raising") == [" " * 17 + "compared 1 exception"]


def test_report_has_v_too(explained: Result) -> None:
    report = run_in(explained.cwd, "report", "-v")
    assert report.code == 0 and "compared 1 output (strides of 1, aliases of 1), 1 gradient, 9 elements\n" in report.out
    assert "compared" not in run_in(explained.cwd, "report").out


# --- float8 ---------------------------------------------------------------------------------

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")

DTYPES = f"defaults: {{dtypes: [{', '.join(FLOAT8)}]}}\n"
MOVED = "name: moved\ninputs: {x: [4, 8]}\nchain: [Tensor.t, Tensor.contiguous]"
FILES["float8"] = DTYPES + spec(
    MOVED,
    """
    name: cast
    inputs: {x: [4, 8]}
    chain:
      - Tensor.to: [$x, torch.float32]
      - torch.mul: [$_, 3.0]
        out: y
      - Tensor.to: [$_, $dtype]
    return: [$_, $y, $x]
    """,
    "name: written\ninputs: {x: [4, 8], y: [4, 8]}\nchain: [{Tensor.copy_: [$x, $y]}]",
    "name: constant\ninputs: {x: [4, 8]}\nchain: [torch.zeros_like]",
    """
    name: saturated
    inputs: {x: [4, 8]}
    chain: [Tensor.float, {torch.clamp: {"*": [$_], min: 3.0, max: 3.0}}, {Tensor.to: [$_, $dtype]}]
    """,
)

FILES["bits"] = DTYPES + spec(MOVED)
MY_BACKEND += '''
import torch


def other_bit(graph, inputs):
    """Gives each output another lowest bit in its first element."""

    def call(*args):
        outs = [out.clone() for out in graph(*args)]
        for out in outs:
            out.view(torch.int8).view(-1)[0] ^= 1
        return tuple(outs)

    return call
'''


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_inputs_are_compared(ran: Result, dtype: str) -> None:
    expected = {"moved": "PASS", "cast": "PASS", "written": "PASS", "constant": "PASS", "saturated": "VACUOUS"}
    for backend in ("eager", "aot_eager"):
        for case, verdict in expected.items():
            event = ran.finished[f"{case}[{dtype},cpu]@{backend}"]
            assert event["verdict"] == verdict, event
            assert event["compared"]["elements"] > 0 and (not event["notes"] or verdict == "VACUOUS")


def test_float8_outputs_must_be_equal(ran: Result) -> None:
    for dtype in FLOAT8:
        event = ran.finished[f"moved[{dtype},cpu]@my_backend:other_bit"]
        (finding,) = event["findings"]
        assert (finding["oracle"], finding["numbers"]["mismatched"], finding["numbers"]["elements"]) == ("value", 1, 32)
        assert event["verdict"] == "FAIL"


def by_script(folder: Path, case: str, backend: str = "aot_eager") -> tuple[int, str]:
    """The exit code of a case's script, and the last line of all that it prints."""
    script = run_in(folder, "repro", case, "--backend", backend)
    assert script.code == 0, script.text
    write(folder, {"script.py": script.out})
    process = run_script(folder, "script.py")
    return process.returncode, (process.stdout + process.stderr).strip().splitlines()[-1]


# --- expect: {graphs: 0} --------------------------------------------------------------------


SIZE = "inputs: {x: [3, 4]}\nchain: [Tensor.size]"
FILES["graphs"] = spec(
    f"name: expected\n{SIZE}\nexpect: {{graphs: 0}}",
    f"name: unexpected\n{SIZE}",
    "name: compiled\ninputs: {x: [3]}\nchain: [torch.neg]\nexpect: {graphs: 0}",
)


def test_a_case_may_expect_that_nothing_compiles(ran: Result) -> None:
    names = ("expected@aot_eager", "unexpected@aot_eager", "compiled@aot_eager")
    assert [ran.verdicts[name] for name in names] == ["PASS", "VACUOUS", "FAIL"]
    assert ran.of("compiled@aot_eager")["oracles"] == ["graphs"]
    assert ran.code == 1
    assert by_script(ran.cwd, "graphs.spec.yaml::compiled") == (1, "AssertionError: 1 graphs")
    assert by_script(ran.cwd, "graphs.spec.yaml::expected")[0] == 0


# --- strides --------------------------------------------------------------------------------

MY_BACKEND += '''
def ones(graph, inputs):
    """Gives a row the stride 1: its only row has nowhere to step to."""
    return lambda *args: tuple(out.as_strided(out.shape, (1, 1)) for out in graph(*args))
'''
ROW = "inputs: {x: [1, 5]}\nchain: [torch.neg]"
FILES["strides"] = spec(f"name: noted\n{ROW}", f"name: found\n{ROW}\nstrides: exact")


def test_strides_of_size_one_are_a_note_or_a_finding(ran: Result, tmp_path: Path) -> None:
    steps = "eager [5, 1], compiled [1, 1] for shape [1, 5]"
    assert (ran.verdicts["noted@my_backend:ones"], ran.verdicts["found@my_backend:ones"]) == ("PASS", "FAIL")
    assert f"note output: strides of dimensions of size one differ: {steps}\n" in ran.out
    assert f"stride at output: {steps}\n" in ran.out
    write(tmp_path, {"wrong.spec.yaml": FILES["strides"].replace("exact", "all")})
    result = run_in(tmp_path, "validate", "wrong.spec.yaml")
    assert result.code == 4 and "'all' is not one of significant, exact" in result.err


# --- known: {sometimes: true} ---------------------------------------------------------------

MY_BACKEND += '''
import pathlib


def odd(graph, inputs):
    """Is wrong every other time that it compiles, from the first time on where the input has an odd number of elements."""
    size = inputs[0].numel()
    count = pathlib.Path(__file__).with_name(f"count{size}")
    number = len(count.read_text()) if count.exists() else 0
    count.write_text("x" * (number + 1))
    return lambda *args: tuple(out + ((number + size) % 2 == 1) for out in graph(*args))
'''
WAVERING = (
    "name: {}\ninputs: {{x: [{}]}}\nchain: [torch.neg]\nknown: [{{oracle: [{}], reason: a race, sometimes: true}}]"
)
FILES["stride_known"] = spec(WAVERING.format("other_oracle", 5, "stride"))


def test_a_known_failure_may_show_only_now_and_then(tmp_path: Path) -> None:
    cases = spec(WAVERING.format("wrong_at_first", 3, "value"), WAVERING.format("right_at_first", 4, "value"))
    write(tmp_path, {"a.spec.yaml": cases, "my_backend.py": MY_BACKEND})
    command = ("--backend", "my_backend:odd", "-j", 1)
    result = run_in(tmp_path, "run", "a.spec.yaml", *command)
    verdicts = {"wrong_at_first@my_backend:odd": "XFAIL", "right_at_first@my_backend:odd": "PASS"}
    assert (result.code, result.verdicts) == (0, verdicts), result.text
    ledger = run_in(tmp_path, "ledger", "a.spec.yaml")
    assert ledger.code == 0 and len(re.findall(r"^matched .*sometimes: a race", ledger.out, re.MULTILINE)) == 2
    result = run_in(tmp_path, "run", "a.spec.yaml::wrong_at_first", *command, "--stress", 4)
    assert (result.code, result.verdicts) == (0, {"wrong_at_first@my_backend:odd": "XFAIL"}), result.text


def test_a_failure_that_shows_now_and_then_is_the_one_that_is_known(ran: Result) -> None:
    event = ran.of("other_oracle@my_backend:odd")
    assert event["verdict"] == "FAIL" and "the ledger expects stride" in event["reason"]


# --- switches of cuDNN ----------------------------------------------------------------------


SWITCHES = {"enabled": "false", "deterministic": "true", "benchmark": "true"}
CONFIG = ", ".join(f"torch.backends.cudnn.{name}: {value}" for name, value in SWITCHES.items())
ASKED = """
    import torch

    class Asked(torch.nn.Module):
        def forward(self, x):
            cudnn = torch.backends.cudnn
            assert (cudnn.enabled, cudnn.deterministic, cudnn.benchmark) == (False, True, True)
            return x + 1
    """
MODEL = "inputs: {x: [3]}\nmodule: {file: m.py, name: Asked}\n"
FILES["cudnn"] = spec(
    f"name: set\n{MODEL}config: {{{CONFIG}}}", f"name: unset\n{MODEL}expect: {{raises: {{type: AssertionError}}}}"
)


def test_a_case_may_set_how_cudnn_is_asked(ran: Result) -> None:
    assert (ran.verdicts["set@eager"], ran.verdicts["unset@eager"]) == ("PASS", "PASS")
    script = run_in(ran.cwd, "repro", "cudnn.spec.yaml::set", "--allow-python", "--backend", "eager")
    assert all(f"torch.backends.cudnn.{name} = {value.title()}\n" in script.out for name, value in SWITCHES.items())


def test_what_a_switch_of_cudnn_takes(tmp_path: Path, run_runner: Callable[..., Result]) -> None:
    case = "name: a\ninputs: {x: [3]}\nchain: [torch.neg]\nconfig: {torch.backends.cudnn.%s}"
    write(tmp_path, {"value.spec.yaml": spec(case % "benchmark: 1"), "name.spec.yaml": spec(case % "benchmrk: true")})
    result = run_runner("validate", ".")
    assert result.code == 4
    assert "flag 'torch.backends.cudnn.benchmark' is refused: its value must be true or false" in result.err
    assert "did you mean 'torch.backends.cudnn.benchmark'?" in result.err


# --- enums and options ----------------------------------------------------------------------

FILES["options"] = spec(
    """
    name: scaled
    requires: {torch: ">=2.13"}
    inputs:
      a: {shape: [16, 32], dtype: float8_e4m3fn}
      b: {shape: [16, 32], dtype: float8_e4m3fn, layout: [Tensor.t]}
      s: {values: 1.0}
    grad: off
    chain:
      - F.scaled_mm: [$a, $b, $s, torch.nn.functional.ScalingType.TensorWise, $s, torch.nn.functional.ScalingType.TensorWise]
    """,
    """
    name: attention
    inputs: {q: [1, 1, 128, 16]}
    grad: off
    chain: [{torch.nn.attention.flex_attention.flex_attention: {"*": [$q, $q, $q], kernel_options: {num_warps: 2}}}]
    """,
)


def test_enums_and_options_of_operators(ran: Result, tmp_path: Path) -> None:
    assert (ran.verdicts["scaled@aot_eager"], ran.verdicts["attention@aot_eager"]) == ("PASS", "PASS")
    text = FILES["options"].replace("TensorWise,", "TensorWide,").replace("num_warps", "BLOCK_M")
    write(tmp_path, {"b.spec.yaml": text})
    result = run_in(tmp_path, "validate", "b.spec.yaml")
    assert result.code == 4
    assert "did you mean 'torch.nn.functional.ScalingType.TensorWise'?" in result.err
    assert "kernel_options may not hold 'BLOCK_M' here: Inductor writes it into a kernel, which trusts it" in result.err


# --- expect: {kernels, vectorized} ----------------------------------------------------------

BOTH = "inputs: {x: [64, 64]}\nchain: [{torch.sin: $x, out: s}, {torch.exp: $x}]\nreturn: [$s, $_]\nexpect: {kernels: 1, vectorized: 1}"
UNFUSED = "config: {torch._inductor.config.max_fusion_size: 1}"
SCALAR = "config: {torch._inductor.config.cpp.simdlen: 1}"
FILES["kernels"] = spec(f"name: plain\n{BOTH}", f"name: unfused\n{BOTH}\n{UNFUSED}", f"name: scalar\n{BOTH}\n{SCALAR}")


def test_a_case_may_expect_that_all_is_one_kernel_with_vectors(ran: Result) -> None:
    verdicts = [ran.verdicts[f"{name}@inductor"] for name in ("plain", "unfused", "scalar")]
    assert verdicts == ["PASS", "FAIL", "FAIL"]
    assert ran.of("plain@inductor")["labels"] == []
    messages = {
        name: [finding["message"] for finding in ran.of(f"{name}@inductor")["findings"]]
        for name in ("unfused", "scalar")
    }
    assert messages == {
        "unfused": ["2 kernels, at most 1 allowed"],
        "scalar": ["0 kernels with vector instructions, at least 1 expected"],
    }
    assert {ran.of(f"{name}@inductor")["stage"] for name in messages} == {"inductor"}


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("unfused", 1, "AssertionError: 2 kernels"),
        pytest.param("scalar", 1, "AssertionError: 0 kernels with vector instructions", marks=pytest.mark.nightly),
        pytest.param("plain", 0, "", marks=pytest.mark.nightly),
    ],
)
def test_the_script_of_too_many_kernels_counts_them(ran: Result, name: str, code: int, line: str) -> None:
    ended = by_script(ran.cwd, f"kernels.spec.yaml::{name}", "inductor")
    assert ended[0] == code and (not line or ended[1] == line)


def test_a_backend_without_kernels_has_its_pass_with_a_star(ran: Result) -> None:
    event = ran.of("plain@aot_eager")
    reason = "only inductor's kernels are counted"
    assert (event["verdict"], event["labels"]) == ("PASS", ["not-compared"])
    assert event["notes"] == [f"expect: {key}: {reason}; not compared" for key in ("kernels", "vectorized")]
    assert f"PASS*: not compared: expect: kernels: {reason} (3), expect: vectorized: {reason} (3)" in ran.out


# --- steps that raise unless a condition holds ----------------------------------------------

CHECK = """
    name: %s
    inputs: {x: [3], n: {values: [1, 2]}}
    chain: [{torch.sum: $n}, {Tensor.item: $_, out: k}, {torch._check: "${k < %s}"}, {torch.mul: [$x, $k]}]
    config: {torch._dynamo.config.capture_scalar_outputs: true}
    expect: %s
    """
FILES["checks"] = spec(
    CHECK % ("kept", 4, "{graphs: 1}"),
    CHECK % ("violated", 2, "{raises: RuntimeError}"),
    "name: asserted\ninputs: {x: [3]}\nchain: [{operator.assert_: '${x.dim() > 1}'}, {torch.neg: $x}]\nexpect: {raises: AssertionError}",
)


def test_a_violated_check_raises_and_a_backend_that_drops_it_fails(ran: Result) -> None:
    assert {ran.verdicts[f"{name}@eager"] for name in ("kept", "violated", "asserted")} == {"PASS"}
    planted = "runner.worker.planted:error_swallowed"
    assert (ran.verdicts[f"kept@{planted}"], ran.verdicts[f"violated@{planted}"]) == ("PASS", "FAIL")
    assert ran.of(f"violated@{planted}")["oracles"] == ["missing-error"]
    assert by_script(ran.cwd, "checks.spec.yaml::violated", planted)[0] == 1
    assert by_script(ran.cwd, "checks.spec.yaml::asserted", "eager")[0] == 0


# --- operators that take the function of a step ---------------------------------------------

FILES["scans"] = spec(
    """
    name: running
    inputs: {start: [3], x: [5, 3]}
    chain:
      - torch._higher_order_ops.scan:
          - {$fn: {args: [sum, row], chain: [{torch.sin: $row, out: y}, {torch.add: [$sum, $row]}], return: [$_, $y]}}
          - $start
          - $x
        out: [last, _]
      - torch.neg: $last
    """
)


def test_a_scan_is_compared_and_a_wrong_one_is_a_failure(ran: Result) -> None:
    planted = "running@runner.worker.planted:wrong_element"
    assert (ran.verdicts["running@aot_eager"], ran.verdicts[planted]) == ("PASS", "FAIL")
    assert ran.of(planted)["oracles"] == ["value"]
    assert by_script(ran.cwd, "scans.spec.yaml::running")[0] == 0
