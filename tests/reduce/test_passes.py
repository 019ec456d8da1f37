"""What passes propose, and the forms in which they think: names for values, cuts, sizes."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import case, operators, state, tensor, texts

from runner.builder.source import build
from runner.cases.serialize import plain
from runner.reduce import passes
from runner.reduce.chains import named, remove_steps, tidy, unnamed, with_first_names
from runner.reduce.state import size_of
from runner.reduce.value_info import ValueInfo, component, input_like

MIXED = """
    inputs: {x: [4, 8], y: [4, 8]}
    chain:
      - torch.sin
      - operator.add: [$_, $y]
        out: a
      - operator.setitem: [$a, "[0]", "${_.shape[0]}"]
      - with: [torch.no_grad]
        chain: [torch.exp, {torch.mul: [$_, $a]}]
      - if: "${x.shape[0] > 2}"
        do: [torch.neg]
        else: [torch.abs]
      - torch.vmap: [{$fn: {args: [t], chain: [torch.sin, {torch.mul: [$_, $_]}]}}]
      - operator.call: [$_, $a]
    """


def test_every_value_gets_a_name_and_loses_it_again(tmp_path: Path) -> None:
    first = case(tmp_path, MIXED)
    explicit = named(first)
    chain = str(plain(explicit)["chain"]) + str(plain(explicit)["return"])
    inner = "{'args': ['t'], 'chain': ['torch.sin', {'torch.mul': ['$_', '$_']}]}"
    assert inner in chain  # a function keeps its own
    assert "$_" not in chain.replace(inner, "") and "${_" not in chain
    result = unnamed(tidy(explicit))
    assert unnamed(tidy(named(result))) == result
    assert "return" not in plain(result)


def test_sizes_of_a_param_shrink_as_any_others_do(tmp_path: Path) -> None:
    keys = "params: {shape: [[4, 8]], dims: [[0, 1]]}\ninputs: {x: $shape}\nchain: [{torch.sum: [$_, $dims]}]"
    first = state(tmp_path, keys)
    assert "params" not in first.data and "torch.sum: [$_, [0, 1]]" in texts([passes.Attempt("", first.data)])[0]
    assert any("x: [1, 1]" in text for text in texts(passes.sizes(first)))


def test_marks_go_with_their_inputs_and_one_by_one(tmp_path: Path) -> None:
    keys = "inputs: {x: [4, 8], y: [8]}\ndynamic: {x: [0], y: {maybe: [0]}}\nchain: [torch.sin, {torch.mul: [$_, $y]}]"
    first = state(tmp_path, keys)
    proposed = [attempt.data.get("dynamic") for attempt in passes.settings(first)]
    assert {"y": {"maybe": [0]}} in proposed and {"x": [0]} in proposed and None in proposed
    without_y = tidy(replace(first.named, chain=first.named.chain[:1], result=None))
    assert plain(without_y)["dynamic"] == {"x": [0]}


def test_a_value_that_nothing_reads_stays_dropped(tmp_path: Path) -> None:
    keys = "inputs: {x: [4]}\nchain: [{torch.sin: $x, out: _}, {Tensor.abs_: $x}, {torch.neg: $x}]"
    assert plain(unnamed(named(case(tmp_path, keys))))["chain"] == [
        {"torch.sin": None, "out": "_"}, {"Tensor.abs_": "$x"}, {"torch.neg": "$x"},
    ]  # fmt: skip


def test_a_name_given_twice_becomes_two(tmp_path: Path) -> None:
    first = case(tmp_path, """
        inputs: {x: [4]}
        chain:
          - torch.sin: $x
            out: x
          - torch.cos: $x
            out: x
        return: [$x]
        """)  # fmt: skip
    outputs = [step.out for step in named(first).chain]  # type: ignore[union-attr]
    assert len({*outputs, ("x",)}) == 3


ROW = "inputs: {x: [4, 8]}\nchain: [torch.sin, {torch.sum: {'*': [$_], dim: 1}}, torch.relu, torch.neg]"
VALUE_INFOS = {
    "x": tensor(4, 8),
    "v1": tensor(4, 8),
    "v2": tensor(4, low=0.5, high=9.2),
    "v3": tensor(4),
    "v4": tensor(4),
}


def test_what_is_cut_away_becomes_an_input_like_it(tmp_path: Path) -> None:
    result = remove_steps(named(case(tmp_path, ROW)), {2}, VALUE_INFOS)
    assert result is not None
    assert plain(unnamed(result)) == {
        "name": "a", "inputs": {"y": {"shape": [4], "init": {"uniform": [0, 10]}}}, "chain": ["torch.relu"],
    }  # fmt: skip


def test_a_bypass_takes_an_operand_of_that_shape_or_an_input(tmp_path: Path) -> None:
    bypass = remove_steps(named(case(tmp_path, ROW)), {1, 2, 3}, VALUE_INFOS, bypass=True)
    assert bypass is not None
    assert list(plain(bypass)["inputs"]) == ["x"] and operators(bypass) == ["torch.sum", "torch.relu", "torch.neg"]
    without_sum = remove_steps(named(case(tmp_path, ROW)), {0, 2, 3}, VALUE_INFOS, bypass=True)
    assert without_sum is not None and len(without_sum.inputs) == 2  # nothing has the shape of the sum


def test_values_that_lost_their_users_are_returned(tmp_path: Path) -> None:
    keys = """
        inputs: {x: [4]}
        chain:
          - {torch.sin: $x, out: a}
          - {torch.cos: $a, out: b}
          - {torch.exp: $x, out: c}
          - {torch.add: [$b, $c], out: d}
        return: [$d, $x]
        """
    value_infos = dict.fromkeys("xabcd", tensor(4))
    result = remove_steps(named(case(tmp_path, keys)), {0, 2}, value_infos)
    assert result is not None
    assert plain(result)["return"] == ["$x", "$a", "$c"]


def test_a_part_of_a_named_tuple(tmp_path: Path) -> None:
    keys = """
        inputs: {x: [4, 3]}
        chain:
          - torch.max: [$x, 1]
            out: best
          - torch.neg: $best.values
        """
    best = ValueInfo("fields", fields={"values": tensor(4), "indices": tensor(4, dtype="int64")})
    result = remove_steps(named(case(tmp_path, keys)), {1}, {"x": tensor(4, 3), "best": best})
    assert result is not None and plain(unnamed(result)) == {"name": "a", "inputs": {"y": [4]}, "chain": ["torch.neg"]}
    assert component(best, (1, "T")) == (tensor(4, dtype="int64"), ("T",))


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (tensor(2, 3), [2, 3]),
        (tensor(2, dtype="int64", low=0, high=5), {"shape": [2], "dtype": "int64", "init": {"randint": [0, 6]}}),
        (tensor(2, dtype="bool", low=0, high=1), {"shape": [2], "dtype": "bool"}),
        (tensor(2, low=0.0, high=1.0), {"shape": [2], "init": "uniform"}),
        (tensor(2, requires_grad=True), {"shape": [2], "requires_grad": True}),
        (ValueInfo("python", value=3), {"python": 3}),
        (ValueInfo("list", items=(tensor(1), ValueInfo("python", value=2.5))), {"list": [[1], {"python": 2.5}]}),
        (ValueInfo("other"), None),
        (ValueInfo("list", items=(ValueInfo("other"),)), None),
    ],
)
def test_inputs_like_values(tmp_path: Path, info: ValueInfo, expected: object) -> None:
    first = case(tmp_path, "inputs: {x: [1]}\nchain: [torch.sin]")
    new_input = input_like(info, "y", first.span, "float32", grad=True)
    import dataclasses

    entry = None if new_input is None else plain(dataclasses.replace(first, inputs=(new_input,)))["inputs"]["y"]
    assert entry == expected


def test_what_the_failure_points_to_is_tried_first(tmp_path: Path) -> None:
    attempts = passes.chunks(state(tmp_path, ROW, VALUE_INFOS, suspects=(1,)))
    first = next(attempts)
    assert first.data["chain"] == [{"torch.sum": {"dim": 1}}]
    assert next(attempts).data["chain"] == ["torch.sin", {"torch.sum": {"dim": 1}}]


def test_the_cone_holds_writes_to_what_it_needs(tmp_path: Path) -> None:
    keys = """
        inputs: {x: [4], y: [4]}
        chain:
          - {torch.sin: $x, out: a}
          - {torch.cos: $y, out: b}
          - Tensor.add_: [$a, 1]
          - {torch.exp: $a, out: c}
        return: [$b, $c]
        """
    every = [*named(case(tmp_path, keys)).chain]
    assert passes.cone(every, [3]) == [0, 2, 3]  # type: ignore[arg-type]


def test_the_cone_holds_writes_to_the_argument_out(tmp_path: Path) -> None:
    keys = """
        inputs: {x: [4], a: [4]}
        chain:
          - {torch.cos: $x, out: _}
          - torch.sin: {"*": [$x], out: $a}
          - {torch.exp: $x, out: _}
          - torch.neg: $a
        """
    assert passes.cone(case(tmp_path, keys).chain, [3]) == [1, 3]  # type: ignore[arg-type]


def test_blocks_are_opened(tmp_path: Path) -> None:
    chains = [str(a.data["chain"]) for a in passes.blocks(state(tmp_path, MIXED))]
    assert any("with" not in chain and "torch.exp" in chain for chain in chains)
    assert any("'if'" not in chain and "torch.neg" in chain and "torch.abs" not in chain for chain in chains)
    assert any("'if'" not in chain and "torch.abs" in chain and "torch.neg" not in chain for chain in chains)


def test_outputs_inputs_and_calls(tmp_path: Path) -> None:
    keys = "inputs: {x: [4], y: [4]}\nchain: [{torch.add: [$x, $y], out: s}]\nreturn: {s: $s, x: $x}\ncalls: [{}, {}]"
    start = state(tmp_path, keys)
    assert [a.data.get("return") for a in passes.outputs(start)] == ["$x", None]
    assert [a.data["inputs"] for a in passes.merged_inputs(start)] == [{"x": [4]}]
    assert [len(a.data.get("calls", ())) for a in passes.calls(start)] == [0, 1, 1]


CALLER = """
    state: {scale: {python: 1.0}}
    chain: [{nn.Dropout: 0.5, id: drop}, {operator.mul: [$_, $self.scale]}, torch.sin]
    grad: backward
    calls: [{step: {torch.optim.SGD: {}}, hook: {self.drop: null}, load: current, train: true, set: {self.scale: 2.0, self.drop.p: 0.1}, with: [torch.no_grad], thread: true}]
    """


def test_a_caller_does_less(tmp_path: Path) -> None:
    start = state(tmp_path, "inputs: {x: {shape: [4], requires_grad: true}}\n" + textwrap.dedent(CALLER))
    (call,) = start.data["calls"]
    proposals = [a.data["calls"][0] for a in passes.callers(start)]
    assert [set(call) - set(fewer) for fewer in proposals[:4]] == [{"step"}, {"load"}, {"train"}, {"thread"}]
    assert [fewer["set"] for fewer in proposals[4:6]] == [{"self.drop.p": 0.1}, {"self.scale": 2.0}]
    assert [set(call) - set(fewer) for fewer in proposals[6:]] == [{"hook"}, {"with"}]
    assert all(size_of(a.data) < size_of(start.data) for a in passes.callers(start))


def test_what_is_set_goes_with_its_state_and_keeps_its_module(tmp_path: Path) -> None:
    first = case(tmp_path, "inputs: {x: {shape: [4], requires_grad: true}}\n" + textwrap.dedent(CALLER))
    sums = {name: tensor(4) for name in ("x", "v1", "v2", "v3")}
    fewer, without_module = (remove_steps(named(first), steps, sums) for steps in ({0, 2}, {1, 2}))
    assert fewer is not None and without_module is not None
    data = plain(fewer)
    assert "state" not in data and data["calls"][0]["set"] == {"self.drop.p": 0.1} and data["chain"][0]["id"] == "drop"
    assert plain(without_module)["calls"][0]["set"] == {"self.scale": 2.0}


def test_steps_that_leave_no_value_have_no_name(tmp_path: Path) -> None:
    checks = "{torch._check: true}, operator.assert_, {operator.setitem: [$_, 0, 1]}"
    first = named(case(tmp_path, f"inputs: {{x: [4]}}\nchain: [torch.sin, {checks}, torch.cos]"))
    sine, *statements, _ = plain(first)["chain"]
    assert not any("out" in statement for statement in statements)
    assert statements[1:] == [{"operator.assert_": f"${sine['out']}"}, {"operator.setitem": [f"${sine['out']}", 0, 1]}]


def test_a_bare_graph_break_stays_bare(tmp_path: Path) -> None:
    first = case(tmp_path, "inputs: {x: [4]}\nchain: [torch.sin, torch._dynamo.graph_break, torch.cos]")
    assert "torch._dynamo.graph_break" in plain(unnamed(named(first)))["chain"]


CONVOLUTION = """
    inputs: {x: [2, 16, 8, 8]}
    chain:
      - nn.Conv2d: {in_channels: 16, out_channels: 32, kernel_size: 3, bias: false}
      - Tensor.reshape: [$_, -1, 64]
      - operator.getitem: [$_, "[:, 0:16]"]
    """


def test_sizes_change_wherever_they_stand(tmp_path: Path) -> None:
    proposals = texts(passes.sizes(state(tmp_path, CONVOLUTION)))
    assert any(
        "x: [2, 1, 8, 8]" in t and "in_channels: 1," in t and "0:1]" in t and "out_channels: 32" in t for t in proposals
    )
    # 16 -> 2 and what is a multiple of it
    assert any("in_channels: 2, out_channels: 4" in t and "-1, 8]" in t for t in proposals)
    assert any("x: [2, 16, 1, 8]" in t for t in texts(passes.single_sizes(state(tmp_path, CONVOLUTION))))


def test_settings_go_at_once_and_one_by_one(tmp_path: Path) -> None:
    keys = """
        inputs: {x: {shape: [4], requires_grad: true}}
        chain: [torch.relu]
        grad: backward
        train: true
        strides: exact
        compile: {fullgraph: true}
        config: {torch._inductor.config.epilogue_fusion: false}
        tolerance: {rtol: 0.1, exact: true, reason: it is so}
        """
    attempts = list(passes.settings(state(tmp_path, keys)))
    assert attempts[0].data == {
        "name": "a", "inputs": {"x": {"shape": [4], "requires_grad": True}}, "chain": ["torch.relu"],
        "tolerance": {"rtol": 0.1, "reason": "it is so"},
    }  # fmt: skip
    assert [a.change for a in attempts[1:5]] == [
        "default train",
        "default grad",
        "default strides",
        "default config.torch._inductor.config.epilogue_fusion",
    ]


def test_a_twin_loses_rewrites_or_goes(tmp_path: Path) -> None:
    keys = "inputs: {x: [4]}\nchain: [torch.relu]\ntwin: [mask, split]"
    start = state(tmp_path, keys)
    changes = {attempt.change: attempt.data.get("twin") for attempt in passes.settings(start)}
    assert changes == {"default twin": None, "twin: [mask]": ["mask"], "twin: [split]": ["split"]}
    of_twin = replace(start, signature=replace(start.signature, oracle="twin"))
    assert [attempt.change for attempt in passes.settings(of_twin)] == ["twin: [mask]", "twin: [split]"]


def test_a_looser_tolerance_stays_for_wrong_values(tmp_path: Path) -> None:
    keys = "inputs: {x: [4]}\nchain: [torch.relu]\ntolerance: {rtol: 0.1, reason: it is so}"
    assert not list(passes.settings(state(tmp_path, keys)))


def test_the_tolerance_of_an_output_goes_with_it(tmp_path: Path) -> None:
    keys = """
        inputs: {x: [4]}
        chain:
          - {torch.sin: $x, out: a}
          - {torch.cos: $x, out: b}
          - {torch.exp: $x, out: c}
        return: [$a, $b, $c]
        tolerance: {"output[1]": {rtol: 0.1}, gradients: {rtol: 0.2}, reason: it is so}
        """
    start = state(tmp_path, keys, dict.fromkeys("xabc", tensor(4)))
    places = {a.change: [*a.data["tolerance"]] for a in passes.outputs(start)}
    assert places == {
        "return $c alone": ["gradients", "reason"], "return $b alone": ["output", "gradients", "reason"], "return $a alone": ["gradients", "reason"],
        "do not return $a": ["output[0]", "gradients", "reason"], "do not return $b": ["gradients", "reason"], "do not return $c": ["output[1]", "gradients", "reason"],
    }  # fmt: skip
    shorter = remove_steps(start.named, {1, 2}, start.value_infos)
    assert shorter is not None and [*shorter.tolerance.by_place] == ["output[0]", "gradients"]


def test_a_given_cotangent_stays_as_long_as_it_is_one(tmp_path: Path) -> None:
    keys = """
        inputs: {x: {shape: [4], requires_grad: true}, g: {shape: [4], hidden: true}}
        chain: [torch.sin, torch.cos]
        grad: {cotangent: $g}
        """
    start = state(tmp_path, keys, {"x": tensor(4), "v1": tensor(4), "v2": tensor(4)})
    shorter = remove_steps(start.named, {0}, start.value_infos)
    assert shorter is not None and [item.name for item in shorter.inputs] == ["x", "g"]
    proposals = {a.change: a.data for a in passes.settings(start)}
    assert [*proposals["grad: backward"]["inputs"]] == [*proposals["default grad"]["inputs"]] == ["x"]


def test_what_modules_hold_at_first_goes(tmp_path: Path) -> None:
    keys = """
        inputs: {x: [4, 3]}
        chain:
          - {nn.Linear: [3, 3], state: {weight: {init: zeros}, bias: {init: ones}}}
        """
    attempts = {a.change: a.data["chain"] for a in passes.arguments(state(tmp_path, keys))}
    assert attempts["chain.0.state: drop weight"] == [{"nn.Linear": [3, 3], "state": {"bias": {"init": "ones"}}}]


def test_inputs_values_and_arguments_become_simpler(tmp_path: Path) -> None:
    keys = """
        inputs:
          x: {shape: [4], init: {randint: [0, 9]}, dtype: int64, layout: [torch.neg]}
          y: {values: [[1.0, 2.0], [3.0, 4.0]]}
        chain: [{torch.add: {"*": [$x, $y, 7], alpha: 2.5}}]
        """
    start = state(tmp_path, keys)
    simpler = [a.data["inputs"] for a in passes.inputs(start)]
    assert {"x": [4], "y": {"values": [[1.0, 2.0], [3.0, 4.0]]}} in simpler
    assert any(i["y"] == {"values": [[1.0], [3.0]]} for i in simpler)
    assert any("layout" not in i["x"] and "init" in i["x"] for i in simpler)
    assert any(i.data["inputs"]["x"]["init"] == "ones" for i in passes.values(start))
    calls = [a.data["chain"][0]["torch.add"] for a in passes.arguments(start)]
    assert ["$x", "$y", 7] in [call.get("*") for call in calls if "alpha" not in call]
    assert {"*": ["$x", "$y"], "alpha": 2.5} in calls
    assert {"*": ["$x", "$y", 1], "alpha": 2.5} in calls and {"*": ["$x", "$y", 7], "alpha": 1.0} in calls


def test_sizes_are_compared_from_operators_down(tmp_path: Path) -> None:
    keys = "inputs: {x: [4, 4]}\nchain: [torch.sin, {torch.mul: [$_, 3]}]"
    large = size_of(plain(case(tmp_path, keys)))
    fewer = size_of(plain(case(tmp_path, "inputs: {x: [40, 4]}\nchain: [torch.sin]")))
    smaller = size_of(plain(case(tmp_path, keys.replace("[4, 4]", "[4, 2]"))))
    simpler = size_of(plain(case(tmp_path, keys.replace("3", "1"))))
    plainer = size_of(plain(case(tmp_path, keys.replace("[4, 4]", "{shape: [4, 4], init: ones}"))))
    assert fewer < smaller < large and simpler < large and plainer < large
    assert large.operators == 2 and large.elements == 16


def test_functions_lose_steps(tmp_path: Path) -> None:
    attempts = [a.data["chain"] for a in passes.functions(state(tmp_path, MIXED))]
    assert any("'chain': ['torch.sin']" in str(chain) for chain in attempts)


@pytest.mark.slow
def test_every_proposal_of_a_rich_case_is_well_formed(tmp_path: Path) -> None:
    """No pass may raise, whatever the case, and what builds builds without a warning of an unused name."""
    from fakes import reader

    read = reader(tmp_path)
    start = state(tmp_path, MIXED, dict.fromkeys(["x", "y", "a", *(f"v{n}" for n in range(1, 9))], tensor(4, 8)))
    from runner.reduce.reducer import PASSES

    valid = [read(text) is not None for every in PASSES for text in texts(every(start))]
    assert sum(valid) > len(valid) * 0.6
    assert build  # the reader built them


def test_new_inputs_get_the_first_names_that_are_free(tmp_path: Path) -> None:
    first = case(
        tmp_path,
        "inputs: {z: [2], own: [2], b: [2]}\nchain: [{torch.cat: [[$z, $own, $b]]}, {torch.sum: {'*': [$_], dim: 0}}]",
    )
    renamed = plain(with_first_names(first, {"own", "b"}))
    assert list(renamed["inputs"]) == ["x", "own", "b"] and renamed["chain"][0] == {"torch.cat": [["$x", "$own", "$b"]]}


def test_what_required_a_gradient_does_so_as_an_input(tmp_path: Path) -> None:
    value_infos = {**VALUE_INFOS, "v2": tensor(4, requires_grad=True)}
    chain = named(case(tmp_path, ROW))
    candidates = [remove_steps(chain, {2}, value_infos, grad=grad) for grad in (True, False)]
    assert [candidate is not None and candidate.inputs[0].requires_grad for candidate in candidates] == [True, False]
    quiet = remove_steps(named(case(tmp_path, ROW + "\ngrad: off")), {2}, value_infos)
    assert quiet is not None and not quiet.inputs[0].requires_grad
