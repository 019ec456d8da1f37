"""``runner.cases.suites``: files to suites."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import Files, short

from runner.cases.limits import Limits
from runner.cases.model import Backend, Suite, Unclaimed
from runner.cases.suites import PathError, Reader, discover

SPEC = "cases:\n  - {name: a, inputs: {x: [2]}, chain: [F.relu]}\n"


def names(suite: Suite) -> list[str]:
    return [case.name for case in suite.cases]


# --- names that are there twice ---


def test_duplicate_case_names(files: Files) -> None:
    files.write(
        "a.spec.yaml",
        """\
        cases:
          - name: a
            inputs: {x: [2]}
            chain: [F.relu]
          - name: b
            inputs: {x: [2]}
            chain: [F.relu]
          - name: a
            inputs: {x: [3]}
            chain: [F.relu]
    """,
    )
    (suite,) = files.suites("a.spec.yaml")
    assert files.found() == ["a.spec.yaml:8:11: two cases are called 'a' | the first is in line 2"]
    assert names(suite) == ["a", "b"]


def test_duplicate_suite_names(files: Files) -> None:
    for name in ("one", "two"):
        files.write(
            f"{name}.suite.yaml", f"suite: same\ncases:\n  - {{name: {name}, inputs: {{x: [2]}}, chain: [F.relu]}}\n"
        )
    files.suites("one.suite.yaml", "two.suite.yaml")
    assert files.found() == [
        f"two.suite.yaml:1:1: two suites are called 'same' | the other is {files.folder / 'one.suite.yaml'}"
    ]


def test_spec_files_of_one_name_are_told_apart_by_their_paths(files: Files) -> None:
    files.write("one/a.spec.yaml", SPEC)
    files.write("two/a.spec.yaml", SPEC)
    first, second = files.suites("one/a.spec.yaml", "two/a.spec.yaml")
    assert files.found() == [] and first.name == "a" and second.name == str(files.folder / "two" / "a.spec.yaml")


def test_duplicate_backend_names(files: Files) -> None:
    files.write(
        "a.suite.yaml",
        """\
        suite: s
        backends:
          - inductor
          - {name: mine, backend: inductor}
          - {name: inductor, backend: aot_eager}
          - {name: mine, backend: eager}
        cases: []
    """,
    )
    files.suites("a.suite.yaml")
    assert files.found() == [
        "a.suite.yaml:5:5: two backends are called 'inductor' | give one a name: of its own",
        "a.suite.yaml:6:5: two backends are called 'mine' | give one a name: of its own",
    ]


# --- suites ---


def test_a_suite(files: Files) -> None:
    files.write("specs/b.spec.yaml", SPEC.replace("a,", "b1,"))
    files.write("specs/a.spec.yaml", SPEC.replace("a,", "a1,"))
    files.write(
        "suites/s.suite.yaml",
        """\
        suite: regressions
        doc: Text.
        specs: ["../specs/*.spec.yaml"]
        select: "tag:x or not tag:y"
        backends:
          - inductor
          - {name: dyn, backend: inductor, dynamic: true, fullgraph: true, mode: max-autotune, options: {max_autotune: true},
             config: {torch._dynamo.config.recompile_limit: 1}}
          - {name: mine, backend: "my_package:my_backend"}
        devices: [cpu]
        dtypes: [torch.float32]
        defaults: {timeout: 120s, train: true}
        manual: true
        cases:
          - {name: inline, inputs: {x: [2]}, chain: [F.relu], train: false}
    """,
    )
    (suite,) = files.suites("suites/s.suite.yaml")
    assert [d.message for d in files.diagnostics] == ["torch.compile takes mode or options, and refuses both"]
    assert (suite.name, suite.doc, suite.select, suite.devices, suite.dtypes, suite.manual) == (
        "regressions", "Text.", "tag:x or not tag:y", ("cpu",), ("float32",), True,
    )  # fmt: skip
    assert names(suite) == ["inline", "a1", "b1"]
    assert [(c.train, c.timeout) for c in suite.cases] == [((False,), 120.0), ((True,), 120.0), ((True,), 120.0)]
    assert [Path(c.file).name for c in suite.cases] == ["s.suite.yaml", "a.spec.yaml", "b.spec.yaml"]
    assert suite.backends == (
        Backend("inductor", "inductor"),
        Backend(
            "dyn",
            "inductor",
            True,
            True,
            "max-autotune",
            {"max_autotune": True},
            {"torch._dynamo.config.recompile_limit": 1},
        ),
        Backend("mine", "my_package:my_backend"),
    )


def test_a_suite_that_says_nothing(files: Files) -> None:
    files.write("s.suite.yaml", "suite: s\nspecs: [a.spec.yaml]\n")
    files.write("a.spec.yaml", SPEC)
    (suite,) = files.suites("s.suite.yaml")
    assert suite.backends == (Backend("inductor", "inductor"),) and suite.devices == () and not suite.manual


def test_a_specs_own_defaults_win_over_a_suites(files: Files) -> None:
    files.write("a.spec.yaml", "defaults: {timeout: 1s, tags: [spec]}\n" + SPEC)
    files.write("s.suite.yaml", "suite: s\nspecs: [a.spec.yaml]\ndefaults: {timeout: 2s, tags: [suite], threads: 3}\n")
    case = files.suites("s.suite.yaml")[0].cases[0]
    assert (case.timeout, case.tags, case.threads) == (1.0, ("spec",), (3,))


def test_each_suite_has_its_own_defaults_after_the_others_are_forgotten(files: Files) -> None:
    files.write("a.spec.yaml", SPEC)
    texts = [f"suite: s{n}\nspecs: [a.spec.yaml]\ndefaults: {{threads: {n}}}\n" for n in range(1, 101)]
    suites = files.suites(*(files.write(f"s{n}.suite.yaml", text).name for n, text in enumerate(texts)))
    assert [suite.cases[0].threads for suite in suites] == [(n,) for n in range(1, 101)]


def test_suites_share_cases_where_their_defaults_have_the_same_values(files: Files) -> None:
    files.write("a.spec.yaml", SPEC)
    for name, defaults in [("one", "timeout: 5m"), ("two", "timeout: 5m"), ("three", "timeout: 6m"), ("four", "")]:
        files.write(f"{name}.suite.yaml", f"suite: {name}\nspecs: [a.spec.yaml]\ndefaults: {{{defaults}}}\n")
    suites = files.suites(*(f"{name}.suite.yaml" for name in ("one", "two", "three", "four")))
    one, two, three, four = (suite.cases[0] for suite in suites)
    assert one is two
    assert [case.timeout for case in (one, three, four)] == [300.0, 360.0, None]
    assert one.chain is three.chain is four.chain  # read once


def test_limits_of_a_suite_are_for_what_a_case_and_its_file_leave_open(files: Files) -> None:
    files.write("a.spec.yaml", f"defaults: {{memory: 1GiB}}\n{SPEC}  - {{name: b, chain: [F.relu], timeout: 1s}}\n")
    files.write("s.suite.yaml", "suite: s\nspecs: [a.spec.yaml]\ndefaults: {timeout: 2s, memory: 2GiB, seed: 5}\n")
    first, *_, last = files.suites("s.suite.yaml")[0].cases
    assert (first.timeout, first.memory, first.seed) == (2.0, 1 << 30, 5)
    assert (last.timeout, last.memory, last.seed) == (1.0, 1 << 30, 5)


def test_a_default_with_a_place_is_reported_in_each_suite(files: Files) -> None:
    files.write("a.spec.yaml", SPEC)
    for name in "one", "two":
        files.write(f"{name}.suite.yaml", f"suite: {name}\nspecs: [a.spec.yaml]\ndefaults: {{param_dtype: $axis}}\n")
    files.suites("one.suite.yaml", "two.suite.yaml")
    assert [Path(d.span.file).name for d in files.diagnostics] == ["one.suite.yaml", "two.suite.yaml"]


def test_a_file_counts_for_each_suite_that_reads_it(files: Files) -> None:
    text = SPEC + "#" * 1000
    files.write("a.spec.yaml", text)
    for name in "one", "two":
        files.write(f"{name}.suite.yaml", f"suite: {name}\nspecs: [a.spec.yaml]\ndefaults: {{tags: [{name}]}}\n")
    files.suites("one.suite.yaml", "two.suite.yaml", limits=Limits(total_bytes=3 * len(text)))
    assert files.found() == []
    files.suites("one.suite.yaml", "two.suite.yaml", limits=Limits(total_bytes=len(text) + 500))
    assert [message.partition(":")[0] for message in files.found()] == ["a.spec.yaml"]
    assert "of YAML were read" in files.found()[0]


@pytest.mark.parametrize(
    "pattern",
    [
        "nothing/*.spec.yaml",
        "'**.spec.yaml'",
        "/etc/*",
        "../secret.txt",
        "a.txt",
        ".",
        "folder.spec.yaml",
        '"a\\0.spec.yaml"',
    ],
)
def test_patterns_that_name_no_spec_file(files: Files, pattern: str) -> None:
    files.write("a.txt", "password: x\n")
    files.write("../secret.txt", "password: x\n")
    (files.folder / "folder.spec.yaml").mkdir()
    files.write("s.suite.yaml", f"suite: s\nspecs:\n  - {pattern}\n")
    files.suites("s.suite.yaml")
    assert len(files.found()) == 1
    assert files.found()[0].startswith("s.suite.yaml:3:5: no file matches ") and files.found()[0].endswith(
        f"it is looked up from {files.folder}"
    )


def test_a_pattern_takes_spec_files_alone(files: Files) -> None:
    files.write("s.suite.yaml", "suite: s\nspecs: ['*']\n")
    files.write("a.spec.yaml", SPEC)
    files.write("notes.txt", "no YAML: [\n")
    (suite,) = files.suites("s.suite.yaml")
    assert files.found() == [] and names(suite) == ["a"]


def test_a_selection_that_cannot_be_read(files: Files) -> None:
    files.write("s.suite.yaml", "suite: s\nselect: tag:a and\nspecs: [a.spec.yaml]\n")
    files.write("a.spec.yaml", SPEC)
    assert files.suites("s.suite.yaml") == []
    assert files.found() == [
        "s.suite.yaml:2:9: 'tag:a and': a word is missing | such as \"tag:regression and not tag:slow\""
    ]


# --- errors ---


def test_errors_of_all_files_are_told_in_one_go(files: Files) -> None:
    files.write(
        "a.spec.yaml",
        "cases:\n  - {name: a, inputs: {x: [2]}, chain: [{torch.add: [$x, 1], torch.mul: 2}]}\n  - {name: b, chian: [F.relu]}\n",
    )
    files.write("b.spec.yaml", "cases: [\n")
    files.write("c.spec.yaml", SPEC.replace("a,", "c,"))
    suites = files.suites("a.spec.yaml", "b.spec.yaml", "c.spec.yaml")
    errors = files.found()
    assert [f.split(": ")[0] for f in errors][:2] == ["a.spec.yaml:3:15", "a.spec.yaml:2:62"] and any(
        f.startswith("b.spec.yaml:") for f in errors
    )
    assert [names(s) for s in suites] == [[], [], ["c"]]


def test_a_bad_case_leaves_the_others(files: Files) -> None:
    files.write(
        "a.spec.yaml",
        """\
        cases:
          - {name: bad_key, chian: [F.relu]}
          - {name: good, inputs: {x: [2]}, chain: [F.relu]}
          - {name: bad_step, inputs: {x: [2]}, chain: [{torch.add: $x, torch.mul: $x}]}
          - {name: good_too, inputs: {x: [2]}, chain: [F.relu]}
    """,
    )
    (suite,) = files.suites("a.spec.yaml")
    assert names(suite) == ["good", "good_too"]
    assert [f.split(": ")[0] for f in files.found()] == ["a.spec.yaml:2:21", "a.spec.yaml:4:64"]


def test_each_problem_is_told_once_however_many_suites_name_the_file(files: Files) -> None:
    files.write("a.spec.yaml", SPEC + "  - {name: a, inputs: {x: [2]}, chain: [F.relu]}\n")
    for name in "st":
        files.write(f"{name}.suite.yaml", f"suite: {name}\nspecs: [a.spec.yaml]\n")
    files.suites("s.suite.yaml", "t.suite.yaml")
    assert files.found() == ["a.spec.yaml:3:12: two cases are called 'a' | the first is in line 2"]


def test_diagnostics_carry_their_line(files: Files) -> None:
    files.write("a.spec.yaml", SPEC + "  - {name: a, inputs: {x: [2]}, chain: [F.relu]}\n")
    files.suites("a.spec.yaml")
    assert "  - {name: a, inputs" in files.diagnostics[0].render() and "^" in files.diagnostics[0].render()


def test_limits_reach_the_loader(files: Files) -> None:
    files.write("a.spec.yaml", SPEC + "#" * 1000)
    files.suites("a.spec.yaml", limits=Limits(file_bytes=500))
    assert "larger than 500 bytes" in files.found()[0]


# --- which files ---


def test_a_folder_is_its_suites_and_without_any_its_specs(files: Files) -> None:
    files.write("specs/a.spec.yaml", SPEC)
    files.write("specs/below/b.spec.yaml", SPEC)
    files.write("specs/.hidden/c.spec.yaml", SPEC)
    assert [p.name for p in discover([files.folder])] == ["a.spec.yaml", "b.spec.yaml"]
    files.write("z.suite.yaml", "suite: z\nspecs: [specs/a.spec.yaml]\n")
    files.write("m.suite.yaml", "suite: m\nmanual: true\nspecs: [specs/a.spec.yaml]\n")
    assert [p.name for p in discover([files.folder])] == ["z.suite.yaml"]
    assert [p.name for p in discover([files.folder / "m.suite.yaml", files.folder])] == ["m.suite.yaml", "z.suite.yaml"]


def test_a_file_named_twice_is_one(files: Files) -> None:
    path = files.write("a.spec.yaml", SPEC)
    assert len(discover([path, path, files.folder / "." / "a.spec.yaml", files.folder])) == 1


def test_validating_reads_every_file(files: Files) -> None:
    files.write("a.spec.yaml", SPEC)
    files.write("m.suite.yaml", "suite: m\nmanual: true\nspecs: [a.spec.yaml]\n")
    assert sorted(s.name for s in Reader().files([files.folder])) == ["a", "m"]


@pytest.mark.parametrize(
    ("path", "message", "empty"),
    [
        ("missing.spec.yaml", "no such file or directory: ", False),
        ("frist.spec.yaml", "frist.spec.yaml; did you mean 'first.spec.yaml'?", False),
        (
            "dangling.spec.yaml",
            "dangling.spec.yaml is a link to nowhere, which does not exist or leads in a circle",
            False,
        ),
        ("loop.spec.yaml", "loop.spec.yaml is a link to loop.spec.yaml, which does not exist", False),
        ("a.yaml", "cases end in .spec.yaml, suites in .suite.yaml", False),
        ("empty", "no .suite.yaml and no .spec.yaml file here or below", True),
        ("manual", "every suite here says manual: true; name the one to run", True),
    ],
)
def test_paths_with_nothing_to_run(files: Files, path: str, message: str, empty: bool) -> None:
    files.write("a.yaml", SPEC)
    files.write("first.spec.yaml", SPEC)
    for link, target in (("dangling.spec.yaml", "nowhere"), ("loop.spec.yaml", "loop.spec.yaml")):
        (files.folder / link).symlink_to(target)
    (files.folder / "empty").mkdir()
    files.write("manual/m.suite.yaml", "suite: m\nmanual: true\n")
    with pytest.raises(PathError) as error:
        discover([files.folder / path])
    assert message in str(error.value) and error.value.empty is empty


def test_an_unreadable_file(files: Files) -> None:
    (files.folder / "a.spec.yaml").write_bytes(b"cases: \xff\n")
    assert names(files.suites("a.spec.yaml")[0]) == []
    assert [short(d)[:39] for d in files.diagnostics] == ["a.spec.yaml:1:8: this file is not UTF-8"]


def test_defaults_of_grad_and_tolerance_are_held_against_each_case(files: Files) -> None:
    files.write(
        "a.spec.yaml",
        """
        defaults: {grad: backward, tolerance: {gradients: {rtol: 0.1}, reason: noise}}
        cases:
          - name: leaf
            inputs: {x: {shape: [2], requires_grad: true}}
            chain: [F.relu]
        """,
    )
    reader = Reader()
    assert [c.grad[0].mode for suite in reader.suites([files.folder / "a.spec.yaml"]) for c in suite.cases] == [
        "backward"
    ]
    assert reader.problems == []
    text = (files.folder / "a.spec.yaml").read_text().replace(", requires_grad: true", "")
    files.write("a.spec.yaml", text)
    reader = Reader()
    reader.suites([files.folder / "a.spec.yaml"])
    assert [d.message for d in reader.problems] == [
        "nothing in case 'leaf' requires a gradient, so backward would compare nothing"
    ]


# --- claims ---


def test_what_a_backend_does_not_claim(files: Files) -> None:
    files.write(
        "a.suite.yaml",
        """\
        suite: s
        backends:
          - {name: mine, backend: inductor, unclaimed: {gradients: true, dynamic: true, mutation: true,
             dtypes: [torch.complex64, float64], devices: ["cuda:1"], precision: {float32: bfloat16},
             operators: ["F.conv*", aten.addmm, custom.mine.op, "*.add.Tensor"]}}
          - {name: some, backend: inductor, unclaimed: {gradients: false}}
    """,
    )
    (suite,) = files.suites("a.suite.yaml")
    own, default = (backend.unclaimed for backend in suite.backends)
    claims = Unclaimed(True, True, True, ("complex64", "float64"), ("cuda:1",), precision={"float32": "bfloat16"},
                       operators=("F.conv*", "aten.addmm", "custom.mine.op", "*.add.Tensor"))  # fmt: skip
    assert own == claims and default == Unclaimed()
    assert files.found() == []


def test_claims_that_cannot_be(files: Files) -> None:
    files.write(
        "a.suite.yaml",
        """\
        suite: s
        backends:
          - {name: a, backend: eager, unclaimed: {gradient: true}}
          - {name: b, backend: eager, unclaimed: [gradients]}
          - {name: c, backend: eager, unclaimed: {dtypes: [float63]}}
          - {name: d, backend: eager, unclaimed: {devices: cuda}}
          - {name: e, backend: eager, unclaimed: {}}
          - {name: f, backend: eager, unclaimed: {precision: {float16: float32}}}
          - {name: g, backend: eager, unclaimed: {operators: []}}
    """,
    )
    files.suites("a.suite.yaml")
    assert files.found() == [
        "a.suite.yaml:3:43: unknown key 'gradient' | did you mean 'gradients'?",
        "a.suite.yaml:4:42: expected a mapping such as {gradients: true, dtypes: [complex64]}, found a list",
        "a.suite.yaml:5:52: expected a dtype such as float32, bfloat16 or torch.int64, found the text 'float63' | did you mean 'float64'?",
        "a.suite.yaml:6:52: expected a list, found the text 'cuda' | such as [cuda]",
        "a.suite.yaml:7:42: this mapping is empty",
        "a.suite.yaml:8:64: 'float32' is not one of bfloat16 | did you mean 'bfloat16'?",
        "a.suite.yaml:9:54: expected at least one entry, found none | such as [F.conv*, aten.addmm]",
    ]


def test_operators_that_nobody_can_call(files: Files) -> None:
    files.write(
        "a.suite.yaml",
        """\
        suite: s
        backends:
          - name: a
            backend: eager
            unclaimed: {operators: [F.gellu, conv2d, "F.konv*", aten.adm, self.x]}
    """,
    )
    files.suites("a.suite.yaml")
    assert files.found() == [
        "a.suite.yaml:5:29: 'F.gellu' matches no operator | did you mean 'F.gelu'?",
        "a.suite.yaml:5:38: 'conv2d' matches no operator | did you mean 'F.conv2d'?",
        "a.suite.yaml:5:46: 'F.konv*' matches no operator | did you mean 'F.conv3d'?",
        "a.suite.yaml:5:57: 'aten.adm' matches no operator | did you mean 'aten.addmv'?",
        "a.suite.yaml:5:67: 'self.x' matches no operator | such as F.conv* or aten.addmm",
    ]
