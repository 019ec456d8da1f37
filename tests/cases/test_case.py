"""``runner.cases.case``: a case's keys."""

from __future__ import annotations

import os
from typing import Any

import pytest
from spec_files import Files

from runner.cases.case import duration
from runner.cases.model import Case, Expect, Grad, Raises, Requires

ISSUE = "https://github.com/pytorch/pytorch/issues/1"


def test_defaults(files: Files) -> None:
    case = files.case("")
    empty = Case("a", case.file, case.span)
    for key in (
        "dtypes",
        "devices",
        "train",
        "grad",
        "dynamic",
        "autocast",
        "threads",
        "doc",
        "params",
        "calls",
        "known",
        "expect",
        "tolerance",
        "config",
        "requires",
        "timeout",
    ):
        assert getattr(case, key) == getattr(empty, key), key
    assert (case.name, case.axes, case.span.line, case.span.column) == ("a", (), 2, 11)
    assert case.file == str(files.folder / "a.spec.yaml")


@pytest.mark.parametrize(
    ("keys", "field", "value"),
    [
        ("doc: text", "doc", "text"), ("tags: [x, y]", "tags", ("x", "y")), ("links: ['https://a.b']", "links", ("https://a.b",)),
        ("params: {n: [2, 5], k: [3]}", "params", {"n": (2, 5), "k": (3,)}), ("params: {n: [1]}\nexclude: [{n: 1}]", "exclude", ({"n": 1},)),
        ("dtypes: [torch.int64, bool]", "dtypes", ("int64", "bool")), ("devices: [cpu, cuda:1]", "devices", ("cpu", "cuda:1")),
        ("train: true", "train", (True,)), ("train: [false, true]", "train", (False, True)), ("param_dtype: torch.bfloat16", "param_dtype", "bfloat16"),
        ("grad: off", "grad", (Grad("off"),)), ("inputs: {x: {shape: [2, 3], requires_grad: true}}\ngrad: backward", "grad", (Grad("backward"),)), ("inputs: {x: {shape: [2, 3], requires_grad: true}}\ngrad: {cotangent: sum, order: 2}", "grad", (Grad("backward", "sum", 2),)),
        ("inputs: {x: {shape: [2, 3], requires_grad: true}}\ngrad: [off, {cotangent: ones}]", "grad", (Grad("off"), Grad("backward", "ones", 1))),
        ("dynamic: [true, false, null]", "dynamic", (True, False, None)), ("autocast: torch.bfloat16", "autocast", ("bfloat16",)), ("autocast: [null, float16]", "autocast", (None, "float16")),
        ("threads: [1, 4]", "threads", (1, 4)),
        ("requires: {torch: '>=2.7', device: cuda, package: [triton]}", "requires", Requires(">=2.7", ("cuda",), ("triton",))),
        ("expect: {raises: {type: IndexError, match: 'out of'}}", "expect", Expect(Raises("IndexError", "out of"))),
        ("expect: {raises: torch.OutOfMemoryError}", "expect", Expect(Raises("torch.OutOfMemoryError"))),
        ("expect: {graphs: 1, graph_breaks: 0, recompiles: 2}", "expect", Expect(None, 1, 0, 2)),
        ("expect: {kernels: 1, vectorized: 2}", "expect", Expect(kernels=1, vectorized=2)),
        ("expect: {delegated: some}", "expect", Expect(delegated="some")),
        ("expect: {constant: true}", "expect", Expect(constant=True)), ("expect: {constant: false, graphs: 1}", "expect", Expect(graphs=1)),
        ("twin: [split, mask, split]", "twin", ("split", "mask")), ("strides: exact", "strides", "exact"), ("strides: significant", "strides", "significant"),
        ("ignore: {value: random}", "ignore", {"value": "random"}), ("timeout: 2m", "timeout", 120.0), ("timeout: 90", "timeout", 90.0), ("timeout: 1e-5", "timeout", 1e-5),
        ("timeout: 604800", "timeout", 604800.0), ("timeout: 168h", "timeout", 604800.0), ("memory: 2GiB", "memory", 2 << 30), ("memory: 4096", "memory", 4096),
    ],
)  # fmt: skip
def test_keys(files: Files, keys: str, field: str, value: Any) -> None:
    assert getattr(files.case(keys), field) == value


def test_axes_are_kept_in_the_order_declared(files: Files) -> None:
    case = files.case(
        "threads: 1\nparams: {k: [1], n: [2]}\ndevices: [cpu]\ntrain: false\ndtypes: [bool]\ndynamic: true"
    )
    assert case.axes == ("threads", "k", "n", "devices", "train", "dynamic")


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60.0), ("1.5m", 90.0), ("2 min", 120.0), ("250ms", 0.25), ("1h", 3600.0), ("90", 90.0), (90, 90.0), (0.5, 0.5), (1e-7, 1e-7), (None, None)]
)  # fmt: skip
def test_durations(text: Any, seconds: float | None) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "fast", "60 seconds", "-1s", "1d", "s", True])
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises(ValueError, match="is no duration, such as 60s or 2m"):
        duration(text)


# --- the ledger and the tolerance ---


def test_a_ledger_entry(files: Files) -> None:
    (entry,) = files.case(f"""
        known:
          - {{stage: inductor, oracle: [value, shape], torch: "<=2.6", dtype: torch.float32, device: cpu, backend: [a, b], threads: [1],
             params: {{n: 2}}, error: "a.*b", issue: "{ISSUE}", why: noise, review: 2999-01-01}}
    """).known
    assert (entry.stage, entry.oracle, entry.torch, entry.dtype, entry.device, entry.backend, entry.threads, entry.params, entry.error, entry.issue, entry.why) == (
        "inductor", ("value", "shape"), "<=2.6", ("float32",), ("cpu",), ("a", "b"), (1,), {"n": 2}, "a.*b", ISSUE, "noise",
    )  # fmt: skip
    assert (entry.span.line, entry.span.column) == (4, 9)


def test_a_known_entry_without_issue_or_reason(files: Files) -> None:
    errors = files.errors("known:\n  - {stage: inductor, oracle: [value]}")
    assert len(errors) == 1 and errors[0].startswith("4:9: issue: or reason: is missing")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            '{reason: x, error: "("}',
            "4:28: error: not a regular expression: missing ): ( | the syntax is RE2's: https://github.com/google/re2/wiki/Syntax",
        ),
        (
            '{reason: x, error: "a{1001}"}',
            "4:28: error: not a regular expression: invalid repetition size: {1001} | RE2 repeats at most 1000 times",
        ),
        ("{reason: x, review: soon}", "4:29: warning: review: is a date, and 'soon' is not | write review: 2027-01-01"),
        ("{reason: x, review: 2020-01-31}", "4:29: warning: this entry was to be looked at again by 2020-01-31"),
    ],
)
def test_entries_with_problems(files: Files, entry: str, message: str) -> None:
    errors = files.errors(f"known:\n  - {entry}")
    assert [f[: len(message)] for f in errors] == [message]


def test_a_warning_leaves_the_case(files: Files) -> None:
    files.errors("known:\n  - {reason: x, review: soon}")
    assert len(files.suites("a.spec.yaml")[0].cases) == 1


def test_a_version_that_is_none(files: Files) -> None:
    errors = files.errors("known:\n  - {reason: x, torch: '~=2.6'}")
    assert len(errors) == 1 and errors[0].startswith("4:28: expected a range of torch versions in quotes")


REASON = 'a tolerance needs a reason | such as {rtol: 1e-4, reason: "a sum of 10^6 terms"}'


@pytest.mark.parametrize(
    "tolerance",
    [
        "{rtol: 1e-3}",
        "{atol: 1e-3}",
        "{float32: {rtol: 1e-3}}",
        "{float32: {rtol: 1e-3, reason: x}, float16: {atol: 1e-2}}",
        "{rtol: 1e-3, float16: {atol: 1e-2, reason: x}}",
    ],
)
def test_a_tolerance_without_reason(files: Files, tolerance: str) -> None:
    assert files.errors(f"tolerance: {tolerance}") == [f"3:16: {REASON}"]


@pytest.mark.parametrize(
    ("tolerance", "by_dtype", "exact", "reason"),
    [
        ("{rtol: 1e-3, reason: x}", {"": (1e-3, None)}, False, "x"),
        ("{exact: true}", {}, True, None),
        (
            "{float32: {rtol: 1e-3, atol: 0}, torch.float16: {atol: 1}, reason: x}",
            {"float32": (1e-3, 0), "float16": (None, 1)},
            False,
            "x",
        ),
        (
            "{float32: {rtol: 1e-3, reason: sums}, float16: {atol: 1, reason: halves}}",
            {"float32": (1e-3, None), "float16": (None, 1)},
            False,
            "sums; halves",
        ),
    ],
)
def test_tolerances(files: Files, tolerance: str, by_dtype: Any, exact: bool, reason: str | None) -> None:
    actual = files.case(f"tolerance: {tolerance}").tolerance
    assert (actual.by_dtype, actual.exact, actual.reason) == (by_dtype, exact, reason)


# --- what a schema cannot say ---


@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        ("compile: {timeout: 8000h}", ["3:24: a timeout is more than 0 and at most a week"]),
        ("expect: {raises: {type: IndexError, match: '['}}", ["3:48: not a regular expression: unterminated character set at position 0"]),
        ("expect: {raises: {type: E, match: '" + "(" * 3000 + "'}}", ["3:39: a regular expression has at most 1000 characters, this one has 3000"]),
        ("expect: {raises: {type: E, match: '" + "(" * 900 + "'}}", ["3:39: not a regular expression: "]),
        ("expect: {raises: {type: E, match: 'a{99999999999999999999}'}}", ["3:39: not a regular expression: the repetition number is too large"]),
        ("params: {n: [1]}\nexclude: [{n: 1}, {nn: 1}]", ["4:24: exclude: names 'nn', which is no param"]),
        ("params: {train: [1, 2]}", ["3:14: 'train' cannot name a param | train: beside params: is an axis of its own"]),
        ("params: {devices: [1, 2]}", ["3:14: 'devices' cannot name a param"]),
        ("params: {threads: [1, 2]}", ["3:14: 'threads' cannot name a param"]),
    ],
)  # fmt: skip
def test_problems(files: Files, keys: str, messages: list[str]) -> None:
    errors = files.errors(keys)
    assert [f[: len(m)] for f, m in zip(errors, messages, strict=True)] == messages


def test_a_case_needs_a_chain_or_a_module_and_not_both(files: Files) -> None:
    files.write("m.py", "class M: pass\n")
    files.write(
        "b.spec.yaml",
        "cases:\n  - name: a\n    inputs: {x: [2]}\n  - {name: b, module: {file: m.py, name: M}, chain: [F.relu]}\n",
    )
    files.suites("b.spec.yaml")
    assert files.found() == [
        "b.spec.yaml:2:11: case 'a' has neither a chain nor a module | such as chain: [F.relu]",
        "b.spec.yaml:4:53: a case has a chain or a module, not both",
    ]


def module(files: Files, file: str, fields: str = "name: M") -> list[str]:
    return files.errors(f"module: {{file: {file}, {fields}}}")


def test_a_module(files: Files) -> None:
    files.write("m.py", "class M: pass\n")
    files.write("below/m.py", "class M: pass\n")
    case = files.case("module: {file: below/m.py, name: M, args: {n: 2}}")
    assert (
        case.module is not None
        and case.module.file == str(files.folder / "below" / "m.py")
        and case.module.args[0][0] == "n"
    )


FURTHER_UP = " | a spec file reaches its own folder and those below: one further up reaches both"


def test_modules_that_cannot_be(files: Files) -> None:
    inside = files.folder / "inside"
    outer = files.write("outside.py", "class M: pass\n")
    inner = Files(inside)
    inner.write("m.py", "class M: pass\n")
    (inside / "link.py").symlink_to(outer)
    (inside / "bytes.py").write_bytes(b"# \xff\n")
    (inside / "folder.py").mkdir()
    os.mkfifo(inside / "pipe.py")
    (inside / "dangling.py").symlink_to("missing.py")
    assert module(inner, "missing.py") == ["3:20: no file 'missing.py' beside this one"]
    assert module(inner, "folder.py") == ["3:20: 'folder.py' is no regular file"]
    assert module(inner, "pipe.py") == ["3:20: 'pipe.py' is no regular file"]
    assert module(inner, "dangling.py") == ["3:20: 'dangling.py' is a link to no file"]
    assert module(inner, "../outside.py") == ["3:20: '../outside.py' lies outside this file's folder" + FURTHER_UP]
    assert module(inner, str(outer)) == [f"3:20: {str(outer)!r} lies outside this file's folder" + FURTHER_UP]
    assert module(inner, "link.py") == ["3:20: 'link.py' lies outside this file's folder" + FURTHER_UP]
    assert module(inner, "bytes.py")[0].startswith("3:20: 'bytes.py' cannot be read: 'utf-8' codec")
    assert module(inner, '"a\\0.py"')[0].startswith("3:20: 'a\\x00.py' cannot be read: ")
    assert module(inner, "m.txt")[0].startswith("3:20: expected a Python file")
    assert module(inner, "m.py", "name: class") == ["3:32: 'class' is no name of a class"]
    assert module(inner, "m.py", 'name: "M()"')[0].startswith("3:32: expected the name of a class")
    assert module(inner, "m.py", 'name: M, args: {"n=print(1), k": 1}') == [
        "3:42: 'n=print(1), k' is no keyword argument | keywords are Python names"
    ]


def test_calls(files: Files) -> None:
    first, second = files.case("params: {n: [2]}\ncalls: [{params: {n: 7}, inputs: {x: [3]}}, {}]").calls
    assert first.params == {"n": 7} and [i.name for i in first.inputs] == ["x"] and first.span.line == 4
    assert second.params == {} and second.inputs == ()


def test_a_range_of_versions_that_cannot_be_read(files: Files) -> None:
    (message,) = files.errors(f"requires: {{torch: '=={'9' * 5000}'}}")
    assert message == "3:23: torch: a range of versions has at most 200 characters | such as >=2.7"


def test_a_param_and_an_input_of_one_name(files: Files) -> None:
    message = "a param and an input are called 'x', and $x is the input | give one of them another name"
    assert files.errors("params: {x: [1, 2]}\ninputs: {x: [3]}\nchain: [{torch.add: [$x, 1]}]") == [f"4:14: {message}"]


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("RuntimeEror", ["5:29: neither Python nor torch has an exception 'RuntimeEror' | did you mean 'RuntimeError'?"]),
        ("torch.linalg.LinAlgEror", ["5:29: neither Python nor torch has an exception 'torch.linalg.LinAlgEror' | did you mean 'torch.linalg.LinAlgError'?"]),
        ("IndexError", []), ("torch.OutOfMemoryError", []), ("Unsupported", []), ("my_package.Odd", []),
    ],
)  # fmt: skip
def test_a_misspelt_exception(files: Files, name: str, messages: list[str]) -> None:
    assert files.errors(f"inputs: {{x: [3]}}\nchain: [torch.neg]\nexpect: {{raises: {{type: {name}}}}}") == messages
    short = [message.replace("5:29", "5:22") for message in messages]
    assert files.errors(f"inputs: {{x: [3]}}\nchain: [torch.neg]\nexpect: {{raises: {name}}}") == short


def test_a_module_may_have_an_exception_of_its_own(files: Files) -> None:
    files.write("m.py", "class M: ...")
    keys = "module: {file: m.py, name: M}\nexpect: {raises: {type: MyError}}"
    assert files.errors(keys) == [
        "4:29: warning: neither Python nor torch has an exception 'MyError' | did you mean 'KeyError'?"
    ]
