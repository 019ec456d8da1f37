"""Mutants of cases: what each change does to the text of a case."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.cases.limits import Limits
from runner.exit_codes import UsageError
from runner.generate import mutations
from runner.generate.generator import named_parents, numbered_mutant, read_parents, text_of
from runner.generate.mutations import CHANGES, STEPS, Case, UnfitError, mutant_of
from runner.session.collect import load

PLAIN: Case = {
    "name": "plain",
    "inputs": {"x": [4, 6], "i": {"shape": [4], "dtype": "int64", "init": {"randint": [0, 4]}}},
    "chain": ["torch.sin", {"torch.narrow": ["$_", 1, 0, 4], "out": "part"}, {"torch.mul": ["$part", 2.5]}],
}
DONOR: Case = {
    "name": "donor",
    "inputs": {"x": [6], "w": [6]},
    "chain": [{"torch.add": ["$x", "$w"], "out": "part"}, "torch.relu"],
    "return": ["$part", "$_"],
}
FOUND = Path(__file__).parents[2] / "specs" / "found"


def changed(change: mutations.Change, case: Case = PLAIN, donor: Case = DONOR, seed: int = 0) -> Case:
    """The case after one change."""
    own = copy.deepcopy(case)
    change(own, donor, random.Random(seed))
    return own


def texts(make: Callable[[int], Any], seeds: int = 40) -> set[str]:
    """What a change gives under several seeds."""
    return {str(make(seed)) for seed in range(seeds)}


def test_the_parent_and_the_donor_stay_as_they_are() -> None:
    originals = copy.deepcopy((PLAIN, DONOR))
    for seed in range(60):
        mutant_of(PLAIN, DONOR, random.Random(seed), "m", "again")
    assert originals == (PLAIN, DONOR)


def test_a_number_of_a_seed_gives_the_same_mutant() -> None:
    parents = (PLAIN, DONOR)
    first = [numbered_mutant(parents, 3, number, "again") for number in range(30)]
    assert [numbered_mutant(parents, 3, number, "again") for number in reversed(range(30))] == first[::-1]
    assert first != [numbered_mutant(parents, 4, number, "again") for number in range(30)]
    assert first[5] is not None
    assert first[5]["name"] == "mutant_3_00005"
    assert first[5]["doc"].startswith("again --first 5 --count 1 (")


def test_mutants_are_cases_of_the_format(tmp_path: Path) -> None:
    """Eager refuses many, and the reader only a few, such as an operator with arguments that another one takes."""
    parents = read_parents([str(FOUND)], Limits())
    mutants = [numbered_mutant(parents, 0, number, "runner generate") for number in range(120)]
    for number, mutant in enumerate(mutants):
        assert mutant is not None and len(mutant["chain"]) <= STEPS
        (tmp_path / f"{number}.spec.yaml").write_text(text_of([mutant]), encoding="utf-8")
    loaded = load([str(tmp_path)], everything=True)
    assert len(loaded.variants) > 100


def test_a_dtype_has_gradients_where_the_case_takes_them() -> None:
    learning = {**PLAIN, "grad": "backward"}
    dtypes = {changed(mutations.change_dtype, learning, seed=seed)["dtypes"][0] for seed in range(30)}
    assert dtypes == {"float64", "float16", "bfloat16"}
    assert {"int64", "complex64"} < {changed(mutations.change_dtype, seed=seed)["dtypes"][0] for seed in range(60)}


def test_a_size_changes_in_all_inputs_at_once() -> None:
    shapes = texts(
        lambda seed: [
            spec["shape"] if isinstance(spec, dict) else spec
            for spec in changed(mutations.change_size, seed=seed)["inputs"].values()
        ]
    )
    assert "[[0, 6], [0]]" in shapes and "[[4, 1], [4]]" in shapes
    arguments = texts(lambda seed: changed(mutations.change_size, seed=seed)["chain"][1]["torch.narrow"], 100)
    assert "['$_', 1, 0, 4]" in arguments, "the operator's own number may stay"
    assert "['$_', 1, 0, 8]" in arguments, "and it may change with the size"


def test_a_layout_leaves_the_shape_as_it_is() -> None:
    torch = pytest.importorskip("torch")
    from runner.builder.source import build

    kinds = set()
    for seed in range(40):
        case = changed(mutations.change_layout, {**PLAIN, "inputs": {"x": [4, 6, 3]}}, seed=seed)
        space: dict[str, Any] = {}
        exec(build(variant_of(case)).text, space)
        [x] = space["make_inputs"]()
        assert x.shape == (4, 6, 3)
        kinds.add((x.stride(), x.storage_offset() > 0))
    assert {((18, 1, 6), False), ((36, 6, 2), False), ((18, 3, 1), True), ((0, 3, 1), False)} <= kinds
    assert torch.is_tensor(x)


def variant_of(case: Case) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "one.spec.yaml")
        path.write_text(text_of([case]), encoding="utf-8")
        [variant] = load([str(path)], everything=True).variants
    return variant


def test_a_backward_asks_for_gradients_of_floats_alone() -> None:
    case = changed(mutations.take_backward)
    assert case["grad"] == "backward"
    assert case["inputs"]["x"] == {"shape": [4, 6], "requires_grad": True}
    assert "requires_grad" not in case["inputs"]["i"]
    assert "grad" not in changed(mutations.take_backward, case)
    with pytest.raises(UnfitError):
        changed(mutations.take_backward, {**PLAIN, "dtypes": ["int64"]})


def test_a_dynamic_case_has_calls_of_other_sizes() -> None:
    case = changed(mutations.make_dynamic, seed=2)
    [size] = case["params"]["n"]
    assert "${n}" in str(case["inputs"]) and str(size) not in str(case["inputs"]["x"])
    assert 1 <= len(case["calls"]) <= 2 and "n" in case["calls"][0]["params"]
    with pytest.raises(UnfitError):
        changed(mutations.make_dynamic, case)


def test_a_view_takes_the_place_of_a_named_value_and_a_write_does_not() -> None:
    chains = texts(lambda seed: changed(mutations.insert_view, seed=seed)["chain"], 300)
    assert (
        str([PLAIN["chain"][0], PLAIN["chain"][1], {"torch.clone": "$part", "out": "part"}, PLAIN["chain"][2]])
        in chains
    )
    assert str([{"torch.flatten": "$x", "out": "x"}, *PLAIN["chain"]]) in chains
    assert str([PLAIN["chain"][0], {"torch.diagonal": "$_"}, *PLAIN["chain"][1:]]) in chains
    chains = texts(lambda seed: changed(mutations.insert_write, seed=seed)["chain"], 300)
    assert str([{"Tensor.zero_": "$x"}, *PLAIN["chain"]]) in chains
    assert (
        str([*PLAIN["chain"][:2], {"torch.flatten": "$part"}, {"Tensor.sub_": ["$_", 1]}, PLAIN["chain"][2]]) in chains
    )


def test_what_is_returned_besides_is_a_value_of_the_chain_or_an_input() -> None:
    returned = texts(lambda seed: sorted(changed(mutations.return_more, seed=seed)["return"]))
    assert returned == {"['$_', '$part']", "['$_', '$x']", "['$_', '$i']"} | {"['$_', '$i']"}


def test_the_steps_of_the_donor_follow_under_names_of_their_own() -> None:
    case = changed(mutations.append_case)
    assert [*case["inputs"]] == ["x", "i", "w"]
    assert case["chain"][3:] == [
        {"operator.getitem": ["$part", "[...]"]},
        {"torch.add": ["$part", "$w"], "out": "partb"},
        "torch.relu",
    ]
    assert case["return"] == ["$partb", "$_"]
    with pytest.raises(UnfitError):
        changed(mutations.append_case, donor={**DONOR, "params": {"n": [1]}})


def test_an_operator_of_the_donor_takes_the_arguments_of_another() -> None:
    operators = texts(
        lambda seed: [next(iter(step)) for step in changed(mutations.change_operator, seed=seed)["chain"][1:]]
    )
    assert operators == {"['torch.add', 'torch.mul']", "['torch.narrow', 'torch.add']"}


def test_numbers_of_operators_change_one_at_a_time() -> None:
    arguments = texts(lambda seed: changed(mutations.change_number, seed=seed)["chain"], 100)
    assert str([*PLAIN["chain"][:2], {"torch.mul": ["$part", 5.0]}]) in arguments
    assert str([PLAIN["chain"][0], {"torch.narrow": ["$_", 1, -1, 4], "out": "part"}, PLAIN["chain"][2]]) in arguments


def test_a_change_that_fits_nowhere_leaves_no_mutant() -> None:
    empty = {"name": "empty", "inputs": {"x": {"values": 3.0}}, "chain": ["torch.sin"], "calls": [{}], "grad": "off"}
    for change in (mutations.change_size, mutations.change_layout, mutations.call_again, mutations.change_number):
        with pytest.raises(UnfitError):
            changed(change, empty)
    assert {change.__name__ for change in CHANGES} >= {"change_size", "append_case", "use_autocast"}


def test_cases_that_cannot_be_changed_are_no_parents(tmp_path: Path) -> None:
    path = tmp_path / "a.spec.yaml"
    alone = {"name": "alone", "chain": [{"torch.zeros": [4]}]}
    path.write_text(text_of([PLAIN, alone]), encoding="utf-8")
    assert [case["name"] for case in read_parents([str(path)], Limits())] == ["plain"]
    path.write_text(text_of([alone]), encoding="utf-8")
    with pytest.raises(UsageError, match=r"no case there can be changed$"):
        named_parents([str(path)], Limits(), allow_python=True)
    with pytest.raises(UsageError, match="--mutate"):
        named_parents([str(tmp_path / "none")], Limits(), allow_python=False)


def test_of_a_model_in_python_inputs_and_runs_change_and_nothing_else(tmp_path: Path) -> None:
    own = {"name": "own", "inputs": {"x": [4, 6], "y": [4, 6]}, "module": {"file": "model.py", "name": "Model"}}
    (tmp_path / "model.py").touch()
    path = tmp_path / "a.spec.yaml"
    path.write_text(text_of([own]), encoding="utf-8")
    parents = named_parents([str(path)], Limits(), allow_python=True)
    mutants = [mutant for number in range(200) if (mutant := numbered_mutant(parents, 0, number, "again")) is not None]
    assert {name for mutant in mutants for name in mutant["tags"][1:]} == {
        "change_dtype", "change_size", "change_layout", "take_backward", "make_dynamic", "call_again", "use_autocast"
    }  # fmt: skip
    for mutant in mutants:
        assert mutant["module"] == {"file": "model_e3b0c442.py", "name": "Model", "content": b""}
        assert not {"chain", "return"} & mutant.keys()
    with pytest.raises(UsageError, match="add --allow-python"):
        named_parents([str(path)], Limits(), allow_python=False)


def test_a_model_in_python_is_no_donor() -> None:
    model = {"name": "own", "inputs": {"x": [4]}, "module": {"file": "/model.py", "name": "Model"}}
    for change in (mutations.append_case, mutations.change_operator):
        with pytest.raises(UnfitError):
            changed(change, donor=model)


def test_ledger_and_tags_of_a_parent_are_no_mutant_s() -> None:
    [parent] = [case for case in read_parents([str(FOUND)], Limits()) if case["name"] == "clone_of_an_output"]
    assert parent.keys() <= {"name", "inputs", "chain", "return", "grad"}


def mutants_of(tmp_path: Path, case: Case, count: int = 300) -> list[Case]:
    """Mutants of a case that is read from a file."""
    (tmp_path / "model.py").touch()
    path = tmp_path / "a.spec.yaml"
    path.write_text(text_of([case]), encoding="utf-8")
    parents = named_parents([str(path)], Limits(), allow_python=True)
    return [mutant for number in range(count) if (mutant := numbered_mutant(parents, 0, number, "again")) is not None]


@pytest.mark.parametrize(
    ("key", "text", "harmless"),
    [
        ("expect", "recompiles", {"change_layout", "call_again", "change_dtype"}),
        ("expect", "constant", {"change_layout", "call_again", "change_dtype"}),
        ("compile", "fullgraph", {"change_layout", "call_again", "change_dtype"}),
        ("tolerance", "exact", {"change_layout", "call_again", "insert_view"}),
    ],
)
def test_a_mutant_says_of_itself_what_its_changes_leave_true(
    tmp_path: Path, key: str, text: str, harmless: set[str]
) -> None:
    claims = {"expect": {"graphs": 1, "recompiles": 0, "constant": True}, "compile": {"fullgraph": True, "mode": "default"}, "tolerance": {"exact": True}}  # fmt: skip
    names = set()
    for mutant in mutants_of(tmp_path, {**PLAIN, **claims}):
        changes = set(mutant["tags"][1:])
        assert (text in str(mutant.get(key))) == (changes <= harmless), changes
        assert mutant["compile"]["mode"] == "default"
        names |= changes if text in str(mutant.get(key)) else set()
    assert names == harmless


@pytest.mark.parametrize("fields", [{"calls": [{"inputs": {"x": [4, 6]}}]}, {"state": {"b": [4]}}])
def test_a_change_that_reaches_some_calls_alone_keeps_no_graphs(tmp_path: Path, fields: dict[str, Any]) -> None:
    chain = [{"torch.sin": "$self.b"}, *PLAIN["chain"]] if "state" in fields else PLAIN["chain"]
    flag = {"torch._dynamo.config.error_on_recompile": True}
    own = {**PLAIN, **fields, "chain": chain, "expect": {"graphs": 1}, "config": flag}
    mutants = mutants_of(tmp_path, own, 60)
    assert mutants and not any({"expect", "config"} & mutant.keys() for mutant in mutants)


def test_a_model_in_python_may_count_its_calls_and_branch_by_a_dtype(tmp_path: Path) -> None:
    module = {"file": "model.py", "name": "Model"}
    own = {"name": "own", "inputs": {"x": [4, 6]}, "module": module, "expect": {"graphs": 1}}
    tags = [set(mutant["tags"][1:]) for mutant in mutants_of(tmp_path, own) if "expect" in mutant]
    assert tags and all(changes == {"change_layout"} for changes in tags)


def test_a_case_that_compiles_nothing_has_mutants_that_say_so_alone_and_gives_others_no_steps(tmp_path: Path) -> None:
    nothing = {**PLAIN, "expect": {"graphs": 0}}
    mutants = mutants_of(tmp_path, nothing)
    assert mutants and all(mutant["expect"] == {"graphs": 0} for mutant in mutants)
    for change in (mutations.append_case, mutations.change_operator):
        with pytest.raises(UnfitError):
            changed(change, donor={**DONOR, "expect": {"graphs": 0}})


def test_a_mutant_is_one_variant_of_its_parent(tmp_path: Path) -> None:
    """Only one variant of a case is tried out: another one could be invalid."""
    own = {**PLAIN, "inputs": {"x": ["${n}", 6]}, "params": {"n": [0, 2, 3]}, "dtypes": ["float32", "int64"]}
    axes = {"grad": ["off", "forward"], "train": [False, True], "dynamic": [None, True]}
    path = tmp_path / "a.spec.yaml"
    path.write_text(text_of([{**own, **axes}]), encoding="utf-8")
    parents = read_parents([str(path)], Limits())
    mutants = [mutant for number in range(60) if (mutant := numbered_mutant(parents, 0, number, "again")) is not None]
    choices = {(mutant["params"]["n"][0], str(mutant["train"])) for mutant in mutants}
    assert len(choices) == 6, "each value of an axis has its mutants"
    read = 0
    for number, mutant in enumerate(mutants):
        file = tmp_path / f"m{number}.spec.yaml"
        file.write_text(text_of([mutant]), encoding="utf-8")
        variants = load([str(file)], everything=True).variants
        assert len(variants) <= 1, mutant  # none where the reader refuses the mutant
        read += len(variants)
    assert read > 20


def test_a_mutant_of_a_case_that_raises_is_to_raise_the_same() -> None:
    raises = {"raises": {"type": "IndexError"}}
    parents = ({**PLAIN, "expect": {**raises, "graphs": 1}},)
    mutants = [mutant for number in range(100) if (mutant := numbered_mutant(parents, 0, number, "again")) is not None]
    assert {str(mutant["expect"]) for mutant in mutants} == {str(raises), str({**raises, "graphs": 1})}


@pytest.mark.parametrize("change", [mutations.insert_view, mutations.append_case])
def test_what_raises_as_expected_stays_in_use(change: mutations.Change) -> None:
    """A value that nothing uses may be left out, with what computes it."""
    raising = PLAIN | {"expect": {"raises": {"type": "IndexError"}}}
    with pytest.raises(UnfitError):
        changed(change, raising)
    assert changed(change) != PLAIN
