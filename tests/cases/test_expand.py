"""``runner.cases.expand``: variants and their ids."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from spec_files import Files

from runner.cases.expand import expand
from runner.cases.limits import Limits
from runner.cases.model import Grad
from runner.diagnostics import Diagnostic, InputError


def case(name: str, fields: str = "") -> str:
    return f"  - {{name: {name}, inputs: {{x: [2]}}, chain: [F.relu]{', ' + fields if fields else ''}}}\n"


def labels(files: Files, keys: str) -> list[str]:
    """What stands in the brackets of the ids."""
    return [v.id.partition("[")[2].rpartition("]")[0] for v in files.variants(keys)]


# --- ids ---


def test_the_example_of_the_format(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(
        "specs/regressions/silent.spec.yaml",
        """\
        defaults: {devices: [cpu, cuda]}
        cases:
          - name: pad_view_chunk_distance
            params: {n: [2, 5]}
            inputs: {x: ["${n}", 3]}
            chain: [F.relu]
            dtypes: [float32]
    """,
    )
    monkeypatch.chdir(files.folder)
    assert files.ids("specs/regressions/silent.spec.yaml") == [
        f"specs/regressions/silent.spec.yaml::pad_view_chunk_distance[n={n},float32,{device}]@inductor" for n in (2, 5) for device in ("cpu", "cuda")
    ]  # fmt: skip


def test_axes_with_several_values_stand_in_the_order_declared(files: Files) -> None:
    keys = ["params: {k: [1, 2], one: [7], b: [3, 4]}", "train: [false, true]", "threads: [1, 2]", "dynamic: true"]
    texts = {"params": "k=1,b=3", "train": "train=false", "threads": "threads=1"}
    for order in itertools.permutations(keys):
        first = labels(files, "\n".join(order))[0]
        expected = [texts[key.split(":")[0]] for key in order if key.split(":")[0] in texts]
        assert first == ",".join([*expected, "float32", "cpu"])


def test_dtype_and_device_are_always_told_last(files: Files) -> None:
    assert labels(files, "devices: [cpu, cuda]\ndtypes: [float32, bool]\nparams: {n: [1, 2]}") == [
        f"n={n},{dtype},{device}" for n in (1, 2) for dtype in ("float32", "bool") for device in ("cpu", "cuda")
    ]


def test_words_of_axes(files: Files) -> None:
    assert labels(files, "inputs: {x: {shape: [2, 3], requires_grad: true}}\ngrad: [off, forward, backward, {cotangent: sum}, {cotangent: ones, order: 2}, {cotangent: seeded, order: 2}]") == [
        f"grad={w},float32,cpu" for w in ("off", "forward", "backward", "sum1", "ones2", "seeded2")
    ]  # fmt: skip
    assert labels(files, "dynamic: [true, false, null]\nautocast: [null, torch.bfloat16]")[:2] == [
        "dynamic=true,autocast=null,float32,cpu",
        "dynamic=true,autocast=bfloat16,float32,cpu",
    ]
    assert labels(files, "params: {n: [1, 1.5, true, null, .nan, -.inf, 1e-7, abc, a/b.c, mean]}") == [
        f"n={w},float32,cpu" for w in ("1", "1.5", "true", "null", ".nan", "-.inf", "1e-07", "abc", "a/b.c", "mean")
    ]


AWKWARD = [
    "a b",
    "ab",
    "a  b",
    "1",
    "1.0",
    "true",
    "null",
    "",
    " ",
    ",",
    "]",
    "a@b",
    "a::b",
    "n=1",
    '"',
    "'",
    "\\",
    "\n",
    '"""\nimport os\n"""',
    "\u00e9",
    "e\u0301",
    "\u202e",
    "0x1",
    "~",
    ".nan",
]


def test_every_value_has_an_id_of_its_own(files: Files) -> None:
    values = [*AWKWARD, 1, 1.0, True, None]
    variants = files.variants(f"params: {{n: {json.dumps(values)}}}")
    ids = [v.id for v in variants]
    assert len(set(ids)) == len(values) == len(variants)
    assert [repr(v.params["n"]) for v in variants] == [repr(v) for v in values]
    assert all(i.isprintable() and i.isascii() for i in ids)
    assert all(v.id.rpartition("@")[2] == "inductor" and v.label == v.id.removesuffix("@inductor") for v in variants)


def test_two_spellings_of_a_value_are_one_variant(files: Files) -> None:
    variants = files.variants("autocast: [bfloat16, float16, torch.bfloat16]\ndtypes: [float32, torch.float32]")
    assert [v.id.rpartition("::")[2] for v in variants] == [
        f"a[autocast={dtype},float32,cpu]@inductor" for dtype in ("bfloat16", "float16")
    ]


def test_ids_are_stable_when_cases_and_files_are_reordered(files: Files) -> None:
    cases = [case("a", "params: {n: [1, 2]}"), case("b", "dtypes: [bool, int64]"), case("c")]
    for name in ("one", "two"):
        files.write(f"{name}.spec.yaml", "cases:\n" + "".join(cases))
    ids = files.ids("one.spec.yaml", "two.spec.yaml")
    assert len(ids) == 10 and sorted(files.ids("two.spec.yaml", "one.spec.yaml")) == sorted(ids)
    for name in ("one", "two"):
        files.write(f"{name}.spec.yaml", "cases:\n" + "".join(reversed(cases)))
    ids_reordered = files.ids("two.spec.yaml", "one.spec.yaml")
    assert sorted(ids_reordered) == sorted(ids) and ids_reordered != ids


def test_ids_name_files_by_their_path_from_here(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    (files.folder / "elsewhere").mkdir()
    for name in ("a.spec.yaml", "y/a.spec.yaml"):
        files.write(name, "cases:\n" + case("c"))
    monkeypatch.chdir(files.folder / "elsewhere")
    paths = [i.partition("::")[0] for i in files.ids("a.spec.yaml", "y/a.spec.yaml")]
    assert paths == ["../a.spec.yaml", "../y/a.spec.yaml"]
    monkeypatch.chdir(files.folder)
    assert [i.partition("::")[0] for i in files.ids("y/a.spec.yaml")] == ["y/a.spec.yaml"]


def test_an_inline_case_is_named_by_its_suite_file(files: Files) -> None:
    files.write("s.suite.yaml", "suite: s\nbackends: [eager]\ncases:\n" + case("c"))
    assert [i.rpartition("/")[2] for i in files.ids("s.suite.yaml")] == ["s.suite.yaml::c[float32,cpu]@eager"]


# --- variants ---


def test_variants_carry_their_axes(files: Files) -> None:
    variants = files.variants(
        "params: {n: [1, 2]}\nstate: {w: {shape: [3], requires_grad: true}}\ntrain: [false, true]\ngrad: backward\ndtypes: [int64]\ndevices: [cuda]\nthreads: 3\ndynamic: false\nautocast: float16"
    )
    assert [(v.params, v.train) for v in variants] == [({"n": n}, t) for n in (1, 2) for t in (False, True)]
    assert {(v.dtype, v.device, v.grad, v.threads, v.dynamic, v.autocast, v.suites) for v in variants} == {
        ("int64", "cuda", Grad("backward"), 3, False, "float16", ("a",))
    }
    assert variants[0].case_id.endswith("a.spec.yaml::a")


def test_exclude(files: Files) -> None:
    variants = files.variants("params: {n: [2, 5], k: [3, 4]}\nexclude: [{n: 5, k: 3}, {n: 2, k: 4}]")
    assert [(v.params["n"], v.params["k"]) for v in variants] == [(2, 3), (5, 4)]
    assert [v.params["n"] for v in files.variants("params: {n: [2, 5], k: [3, 4]}\nexclude: [{n: 5}]")] == [2, 2]


def suite(files: Files, name: str, lines: str) -> str:
    files.write(f"{name}.suite.yaml", f"suite: {name}\nspecs: [a.spec.yaml]\n{lines}\n")
    return f"{name}.suite.yaml"


def test_two_suites_that_ask_alike_share_a_variant(files: Files) -> None:
    files.write("a.spec.yaml", "cases:\n" + case("c") + case("d", "tags: [slow]"))
    first = suite(files, "s", "backends: [inductor, eager]")
    second = suite(files, "t", "select: not tag:slow\ndefaults: {timeout: 5s}")
    suites = {v.id.rpartition("::")[2]: v.suites for v in expand(files.suites(first, second))}
    assert suites == {
        "c[float32,cpu]@inductor": ("s", "t"), "c[float32,cpu]@eager": ("s",), "d[float32,cpu]@inductor": ("s",), "d[float32,cpu]@eager": ("s",),
    }  # fmt: skip


def test_variants_of_the_same_suites_share_their_names(files: Files) -> None:
    files.write("a.spec.yaml", "cases:\n" + case("c", "dtypes: [float32, float64]"))
    first, second = expand(files.suites(*(suite(files, name, "") for name in "stu")))
    assert first.suites == ("s", "t", "u") and first.suites is second.suites


def test_suites_that_overlap_in_part_keep_the_order_of_the_first(files: Files) -> None:
    files.write("a.spec.yaml", "cases:\n" + case("c", "dtypes: [float32, float64]") + case("d"))
    first = suite(files, "s", "dtypes: [float64]")
    second = suite(files, "t", "")
    pairs = [(v.id.rpartition("::")[2], v.suites) for v in expand(files.suites(first, second, first))]
    assert pairs == [
        ("c[float64,cpu]@inductor", ("s", "t")),
        ("c[float32,cpu]@inductor", ("t",)),
        ("d[float32,cpu]@inductor", ("t",)),
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "backends: [{name: inductor, backend: aot_eager}]",
            "backend 'inductor' means one thing in 's' and another in 't'",
        ),
        ("defaults: {train: true}", "case 'c' means one thing in 's' and another in 't'"),
        ("defaults: {tolerance: {rtol: 1, reason: x}}", "case 'c' means one thing in 's' and another in 't'"),
    ],
)
def test_two_suites_that_mean_different_things_by_one_id(files: Files, lines: str, message: str) -> None:
    files.write("a.spec.yaml", "cases:\n" + case("c"))
    names = suite(files, "s", ""), suite(files, "t", lines)
    with pytest.raises(InputError) as error:
        expand(files.suites(*names))
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.message == message and (
        Path(diagnostic.span.file).name,
        diagnostic.span.line,
        diagnostic.span.column,
    ) == ("a.spec.yaml", 2, 12)


def test_a_suite_narrows_and_never_widens(files: Files) -> None:
    files.write("a.spec.yaml", "cases:\n" + case("c", "devices: [cpu, cuda], dtypes: [float32, bool]") + case("d"))
    name = suite(files, "s", "devices: [cuda, xpu]\ndtypes: [bool, int8]")
    assert [i.rpartition("::")[2] for i in files.ids(name)] == ["c[bool,cuda]@inductor"]


def test_devices_of_the_command_line(files: Files) -> None:
    files.write("a.spec.yaml", "cases:\n" + case("declared", "devices: [cpu, cuda]") + case("plain"))
    variants = expand(files.suites("a.spec.yaml"), devices=["cuda", "xpu"])
    assert [(v.case.name, v.device) for v in variants] == [("declared", "cuda"), ("plain", "cuda"), ("plain", "xpu")]


def test_backends_of_the_command_line_keep_their_configuration(files: Files) -> None:
    files.write("a.spec.yaml", "cases:\n" + case("c"))
    name = suite(files, "s", "backends: [{name: dyn, backend: inductor, dynamic: true}]")
    variants = expand(files.suites(name), backends=["dyn", "eager", "dyn"])
    assert [(v.backend.name, v.backend.backend, v.backend.dynamic) for v in variants] == [
        ("dyn", "inductor", True),
        ("eager", "eager", None),
    ]


# --- limits ---


def test_the_product_of_the_axes_over_the_limit(files: Files) -> None:
    numbers = json.dumps(list(range(50)))
    keys = f"params: {{a: {numbers}, b: {numbers}, c: {numbers}}}"
    files.case(keys)
    with pytest.raises(InputError) as error:
        expand(files.suites("a.spec.yaml"))
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.message == "the axes of case 'a' multiply to 125000 variants, more than 100000"
    assert diagnostic.hint == "the limit is variants=100000; change it with --limit variants=N" and (
        diagnostic.span.line,
        diagnostic.span.column,
    ) == (2, 11)
    with pytest.raises(InputError, match="multiply to 125000 variants, more than 124999"):
        expand(files.suites("a.spec.yaml"), limits=Limits(variants=124_999))


def test_the_limit_counts_modes_dtypes_devices_and_backends(files: Files) -> None:
    files.case("params: {n: [1, 2]}\ntrain: [true, false]\ndtypes: [bool, int8]\ndevices: [cpu, cuda]")
    suites = files.suites("a.spec.yaml")
    assert len(expand(suites, backends=["a", "b"], limits=Limits(variants=32))) == 32
    with pytest.raises(InputError, match="more than 31 variants"):
        expand(suites, backends=["a", "b"], limits=Limits(variants=31))
    with pytest.raises(InputError, match="multiply to 16 variants, more than 15"):
        expand(suites, backends=["a", "b"], limits=Limits(variants=15))


def test_a_case_with_too_many_axes_is_left_out_where_others_can_go_on(files: Files) -> None:
    wide = case("wide", "params: {n: [1, 2, 3]}, dtypes: [bool, int8]")
    files.write("a.spec.yaml", "cases:\n" + wide + case("narrow"))
    refusals: list[Diagnostic] = []
    variants = expand(files.suites("a.spec.yaml"), limits=Limits(variants=4), refused=refusals)
    assert [v.case.name for v in variants] == ["narrow"]
    assert len(refusals) == 1 and "'wide' multiply to 6 variants, more than 4" in refusals[0].message


def test_the_limit_holds_for_all_cases_together(files: Files) -> None:
    files.write("a.spec.yaml", "cases:\n" + "".join(case(f"c{i}") for i in range(5)))
    with pytest.raises(InputError, match="more than 4 variants"):
        expand(files.suites("a.spec.yaml"), limits=Limits(variants=4))


def test_variants_that_a_selection_leaves_out_count_too(files: Files) -> None:
    files.write("a.spec.yaml", "cases:\n" + "".join(case(f"c{n}", "params: {n: [1, 2, 3, 4]}") for n in range(10)))
    files.write("a.suite.yaml", "suite: s\nspecs: [a.spec.yaml]\nselect: case:none\n")
    suites = files.suites("a.suite.yaml")
    assert expand(suites, limits=Limits(variants=14)) == []
    with pytest.raises(InputError, match="suites select among more than 39 variants"):
        expand(suites, limits=Limits(variants=13))
