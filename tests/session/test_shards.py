"""Shards of a plan, and the hash by which they know each other."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.cases.model import Arguments, Case, If, Index, Input, Literal, PythonModule, Ref, Step, Variant
from runner.session.plan import Planned, plan
from runner.session.settings import Shard, parse_shard
from runner.session.shards import chosen, plan_hash
from tests.handmade import environment, loaded, variants, written

ROOT = Path(__file__).parents[2]


def made(count: int, folder: Path, torches: Sequence[str] = ("2.13.0",)) -> list[Planned]:
    """A plan of ``count`` variants under each torch."""
    (template,) = variants(folder, "")
    many = [
        dataclasses.replace(template, id=f"a.spec.yaml::case_{number}[float32,cpu]@inductor") for number in range(count)
    ]
    return plan(many, [environment(torch) for torch in torches])


def ids(planned: Sequence[Planned]) -> list[str]:
    return [entry.variant.id for entry in planned]


# --- which shard ---


def test_a_shard_is_written_as_which_of_how_many() -> None:
    assert parse_shard("2/4") == Shard(2, 4) and parse_shard(" 1/1 ") == Shard(1, 1)
    assert str(parse_shard("04/10")) == "4/10"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0/4", "counted from 1"), ("5/4", "1/4 to 4/4"), ("1/0", "at least one shard"), ("0/0", "at least one shard"),
        ("2", "such as 2/4"), ("", "such as 2/4"), ("2/4/6", "such as 2/4"), ("-1/4", "such as 2/4"), ("a/b", "such as 2/4"),
        ("2 of 4", "such as 2/4"), ("1.5/4", "such as 2/4"), ("²/4", "such as 2/4"), ("1/99999999999", "such as 2/4"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_shard(text)
    assert says in str(error.value) and repr(text) in str(error.value)


def timings(planned: Sequence[Planned], how: str) -> dict[str, float] | None:
    roll = random.Random(7)
    names = sorted(set(ids(planned)))
    some = {
        "none": None,
        "nothing": {},
        "strangers": {"of another plan": 3.0},
        "all": {name: roll.expovariate(0.1) for name in names},
        "half": {name: roll.expovariate(0.1) for name in names[::2]},
        "equal": dict.fromkeys(names, 1.0),
        "nonsense": dict(zip(names, itertools.cycle([float("nan"), -1.0, float("inf"), 0.0]))),
    }
    return some[how]  # type: ignore[return-value]


@pytest.mark.parametrize("how", ["none", "nothing", "strangers", "all", "half", "equal", "nonsense"])
@pytest.mark.parametrize(("size", "count"), [(0, 3), (1, 1), (1, 4), (7, 2), (50, 7), (200, 1)])
def test_every_variant_is_in_exactly_one_shard(tmp_path: Path, size: int, count: int, how: str) -> None:
    planned = made(size, tmp_path, ("2.6.0", "2.13.0"))
    seconds = timings(planned, how)
    shards = [chosen(planned, Shard(index, count), seconds) for index in range(1, count + 1)]
    together = [entry for shard in shards for entry in shard]
    assert sorted(entry.key for entry in together) == sorted(entry.key for entry in planned)
    for shard in shards:
        assert [entry.number for entry in shard] == sorted(entry.number for entry in shard)  # the plan's order
        names = ids(shard)
        assert all(names.count(name) == 2 for name in names)  # its environments stay together


@pytest.mark.parametrize("how", ["none", "half"])
def test_the_order_of_the_plan_changes_no_shard(tmp_path: Path, how: str) -> None:
    planned = made(60, tmp_path)
    mixed = random.Random(3).sample(planned, len(planned))
    seconds = timings(planned, how)
    for index in (1, 2, 3):
        assert set(ids(chosen(planned, Shard(index, 3), seconds))) == set(ids(chosen(mixed, Shard(index, 3), seconds)))


def test_a_variant_stays_in_its_shard_when_others_come_and_go(tmp_path: Path) -> None:
    few, many = made(20, tmp_path), made(50, tmp_path)
    for index in (1, 2, 3):
        assert set(ids(chosen(few, Shard(index, 3)))) == set(ids(chosen(many, Shard(index, 3)))) & set(ids(few))


def test_which_shard_is_the_same_everywhere_and_for_ever(tmp_path: Path) -> None:
    numbers = [
        int(name.partition("case_")[2].partition("[")[0]) for name in ids(chosen(made(12, tmp_path), Shard(2, 4)))
    ]
    assert numbers == [7, 11]  # as sha256sum has it


def test_by_seconds_the_shards_take_about_as_long(tmp_path: Path) -> None:
    planned = made(100, tmp_path)
    seconds = timings(planned, "all")
    assert seconds is not None
    loads = [sum(seconds[name] for name in ids(chosen(planned, Shard(index, 4), seconds))) for index in (1, 2, 3, 4)]
    by_hash = [sum(seconds[name] for name in ids(chosen(planned, Shard(index, 4)))) for index in (1, 2, 3, 4)]
    assert max(loads) - min(loads) < (max(by_hash) - min(by_hash)) / 10


def test_one_long_variant_has_a_shard_to_itself(tmp_path: Path) -> None:
    planned = made(6, tmp_path)
    seconds = {ids(planned)[4]: 100.0, ids(planned)[0]: 1.0, ids(planned)[1]: 2.0}  # the others count as 2
    shards = [ids(chosen(planned, Shard(index, 2), seconds)) for index in (1, 2)]
    assert sorted(map(len, shards)) == [1, 5] and [ids(planned)[4]] in shards


# --- the hash ---

CASE = """
cases:
  - name: a
    doc: What it is.
    tags: [one]
    params: {n: [2, 3], k: [1]}
    inputs: {x: ["${n}", 4], y: {values: [1.0, 2.0]}}
    state: {w: [4]}
    chain:
      - torch.add: ["$x", "$y[0]", {alpha: 2}]
        out: z
      - operator.gt: ["${x.shape[0]}", "${k}"]
        out: big
      - if: $big
        do: [torch.sin]
        else: [torch.cos]
      - torch.mul: [$z, $self.w]
    grad: [forward]
    requires: {torch: ">=2.6"}
    compile: {fullgraph: true}
    config: {torch._inductor.config.epilogue_fusion: false}
    expect: {graphs: 1}
    tolerance: {float32: {rtol: 1.0e-3, reason: it is so}}
    ignore: {stride: it is so}
    timeout: 30
    known:
      - {oracle: [value], torch: "<2.7", reason: it is so}
"""


def hashed(folder: Path, text: str = CASE, build: str = "2.13.0", **options: Any) -> str:
    folder.mkdir(exist_ok=True)
    return plan_hash(plan(loaded(written(folder, text), **options).variants, [environment(build)]))


def test_the_hash_is_short_and_the_same_in_every_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        monkeypatch.chdir(folder)
        digests.add(hashed(folder))
    (digest,) = digests
    assert len(digest) == 16 and int(digest, 16) >= 0


def test_neither_places_nor_comments_nor_spelling_change_the_hash(tmp_path: Path) -> None:
    base = hashed(tmp_path)
    assert hashed(tmp_path, "# a remark\n\n" + CASE.strip().replace("chain:", "chain:   # here")) == base
    assert hashed(tmp_path, CASE.replace("tags: [one]", "tags:\n      - 'one'")) == base
    text = CASE.replace("{alpha: 2}", "up")
    assert hashed(tmp_path, text.replace("up", " 'up'")) == hashed(tmp_path, text) != base


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n: [2, 3]", "n: [2, 4]"), ("n: [2, 3]", "n: [2]"), ("[1.0, 2.0]", "[1.0, 2.5]"), ("[1.0, 2.0]", "[1, 2]"),
        ("${n}", "${n + 1}"), ("w: [4]", "w: {shape: [4], init: ones}"), ("w: [4]", "w: {shape: [4], requires_grad: true}"),
        ("alpha: 2", "alpha: 3"), ("alpha: 2", "alpha: 2.0"), ("$y[0]", "$y[1]"), ("torch.sin", "torch.tan"), ("shape[0]", "shape[1]"),
        ("[$z, $self.w]", "[$self.w, $z]"), ("grad: [forward]", "grad: ['off']"), (">=2.6", ">=2.7"),
        ("fullgraph: true", "fullgraph: false"), ("fusion: false", "fusion: true"), ("graphs: 1", "graphs: 2"),
        ("1.0e-3", "1.0e-4"), ("stride: it", "alias: it"), ("timeout: 30", "timeout: 31"), ("<2.7", "<2.8"),
        ("oracle: [value]", "oracle: [stride]"), ("name: a", "name: b"), ("k: [1]", "k: [2]"),
    ],
)  # fmt: skip
def test_any_edit_of_a_case_changes_the_hash(tmp_path: Path, old: str, new: str) -> None:
    assert CASE.count(old) == 1
    assert hashed(tmp_path, CASE.replace(old, new)) != hashed(tmp_path)


def test_everything_planned_is_in_the_hash(tmp_path: Path) -> None:
    collection = loaded(written(tmp_path, CASE), backends=["inductor", "eager"]).variants
    environments = [environment("2.6.0"), environment("2.13.0")]
    whole = plan_hash(plan(collection, environments))
    cuda_build = dataclasses.replace(environments[1], build="2.13.0+cu126")
    backend = dataclasses.replace(collection[0].backend, options={"max_autotune": True})
    different = [
        plan_hash(plan(collection[:-1], environments)),
        plan_hash(plan(collection, environments[:1])),
        plan_hash(plan(collection, [environments[0], cuda_build])),
        plan_hash(plan([dataclasses.replace(collection[0], backend=backend), *collection[1:]], environments)),
        plan_hash(plan(collection, environments), "--seed 1"),
        plan_hash(plan(collection, environments), "--seed", "1"),
        plan_hash([]),
    ]
    assert len({whole, *different}) == len(different) + 1
    assert plan_hash(list(reversed(plan(collection, environments)))) == whole
    new_paths = [dataclasses.replace(item, python="/elsewhere/python", key="x") for item in environments]
    assert plan_hash(plan(collection, new_paths)) == whole


MODULE = """
    cases:
      - name: a
        module: {file: python.py, name: Model}
        inputs: {x: [2]}
    """
MODEL = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x + 1\n"
KERNEL = """
    kernels:
      add:
        file: python.py
        function: add
        arguments: [$x, $y]
        outputs: {y: {like: x}}
        grid: [1]
        reference: [{torch.add: [$_, 1]}]
    cases:
      - name: a
        inputs: {x: [2]}
        chain: [triton.add]
    """
FUNCTION = "import triton\n@triton.jit\ndef add(pointer, target): pass  # + 1\n"


@pytest.mark.parametrize(("text", "python"), [(MODULE, MODEL), (KERNEL, FUNCTION)], ids=["module", "kernel"])
def test_the_text_of_a_python_file_is_in_the_hash_and_its_place_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, python: str
) -> None:
    hashes = []
    for name, content in (("one", python), ("two", python), ("three", python.replace("+ 1", "+ 2"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python.py").write_text(content)
        monkeypatch.chdir(tmp_path / name)
        hashes.append(hashed(tmp_path / name, text, allow_python=True))
    assert hashes[0] == hashes[1] != hashes[2]


def differing(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, tuple):
        return (*value, "x")
    if isinstance(value, dict):
        return {**value, "x": ("x",)}
    return "x"


def test_no_field_of_a_case_is_forgotten(tmp_path: Path) -> None:
    variant: Variant = variants(tmp_path, "")[0]
    span = variant.case.span
    nodes: dict[type, Any] = {
        Case: variant.case,
        Input: variant.case.inputs[0],
        Step: variant.case.chain[0],
        Ref: Ref("x", (), span),
        Index: Index((1, ...), span),
        If: If(Literal(True), (), (), span),
        PythonModule: PythonModule("/no/such", "M", (), span),
        Arguments: Arguments(),
    }

    def of(item: Any) -> str:
        case = item if isinstance(item, Case) else dataclasses.replace(variant.case, result=item)
        return plan_hash(plan([dataclasses.replace(variant, case=case)], [environment()]))

    for kind, item in nodes.items():
        base = of(item)
        for field in dataclasses.fields(kind):
            changed = dataclasses.replace(item, **{field.name: differing(getattr(item, field.name))})
            if field.name == "span" or (kind, field.name) in ((Case, "file"), (PythonModule, "file")):
                place = dataclasses.replace(span, line=span.line + 1, file="/elsewhere/a.spec.yaml")
                changed = dataclasses.replace(
                    item, **{field.name: place if field.name == "span" else "/no/such/either"}
                )
                assert of(changed) == base, (kind, field.name)
            else:
                assert of(changed) != base, (kind, field.name)


@pytest.mark.parametrize(("text", "python"), [(MODULE, MODEL), (KERNEL, FUNCTION)], ids=["module", "kernel"])
def test_what_a_python_file_imports_from_its_folder_is_in_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, python: str
) -> None:
    hashes = []
    for name, helper, other_text in (("one", "a = 1", "x"), ("two", "a = 1", "y"), ("three", "a = 2", "x")):
        (tmp_path / name).mkdir()
        for file, content in (
            ("python.py", f"import helper\n{python}"),
            ("helper.py", helper),
            ("other.py", other_text),
        ):
            (tmp_path / name / file).write_text(content)
        monkeypatch.chdir(tmp_path / name)
        hashes.append(hashed(tmp_path / name, text, allow_python=True))
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_case_is_hashed_once_however_many_variants_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.session import shards

    values: list[Any] = []
    plain = shards._plain

    def counted(value: Any) -> Any:
        values.append(value)
        return plain(value)

    monkeypatch.setattr(shards, "_plain", counted)
    plan_hash(made(500, tmp_path))
    assert sum(isinstance(value, Case) for value in values) == 1


def test_the_project_s_own_cases_can_all_be_hashed() -> None:
    collection = loaded(ROOT / "specs", ROOT / "suites", allow_python=True).variants
    assert len(collection) > 100
    digests = {plan_hash(plan([variant], [environment()])) for variant in collection}
    assert len(digests) == len(collection)


def test_what_has_no_lasting_text_is_refused(tmp_path: Path) -> None:
    variant = variants(tmp_path, "")[0]
    with pytest.raises(TypeError, match="no hash is known"):
        plan_hash(
            plan(
                [dataclasses.replace(variant, case=dataclasses.replace(variant.case, result=object()))], [environment()]
            )
        )  # type: ignore[arg-type]


def test_the_hash_of_a_plan_stays_what_it_was() -> None:
    assert plan_hash([], "seed 0", "known\nTrue") == hashlib.sha256(b"'seed 0'\n'known\\nTrue'").hexdigest()[:16]
