"""The known failure that is meant comes first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.diagnose.similar import (
    FailureProfile,
    entries,
    operator_name,
    operators_of,
    profile_of,
    score,
    search,
    table,
)
from runner.exit_codes import UsageError
from tests.handmade import finding, loaded, written

LEDGER = """
    cases:
      - name: pooled
        doc: The last window hangs over the edge.
        inputs: {x: [1, 1, 6, 6]}
        chain: [{F.avg_pool2d: {"*": [$_, 3, 2], ceil_mode: true}}]
        known: [{stage: inductor, oracle: [grad], issue: "https://x.org/1"}]
      - name: added
        inputs: {x: [2]}
        chain: [torch.relu, {torch.add: [$_, 1]}]
        known:
          - {stage: inductor, oracle: [value], issue: "https://x.org/2"}
          - {stage: aot, oracle: [stride], reason: of no interest}
      - name: lowered
        inputs: {x: [2]}
        chain: [torch.special.psi]
        known: [{stage: inductor, oracle: [compile-error], error: "LoweringException|AssertionError", issue: "https://x.org/3"}]
      - name: fine
        inputs: {x: [2]}
        chain: [torch.relu]
    """


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return str(written(tmp_path, LEDGER, "known.spec.yaml"))


def links(mark: FailureProfile, *paths: str) -> list[str]:
    return [match.entry.link for match in search(mark, entries(paths))]


def mark(folder: Path, chain: str, *oracle: str) -> FailureProfile:
    case = f"cases:\n  - name: mine\n    inputs: {{x: [1, 1, 6, 6]}}\n    chain: {chain}\n"
    first = loaded(written(folder, case, "mine.spec.yaml")).variants[0]
    return profile_of(first, [finding(*oracle)])  # type: ignore[arg-type]


def test_the_right_entry_comes_first(ledger: str, tmp_path: Path) -> None:
    pool = "[torch.relu, {F.avg_pool2d: [$_, 3]}, {torch.mul: [$_, 2]}, torch.exp]"
    assert links(mark(tmp_path, pool, "grad", "inductor"), ledger)[0] == "https://x.org/1"
    assert links(mark(tmp_path, pool, "value", "inductor"), ledger)[0] == "https://x.org/2"
    # what shares an exception but no operator is a match too, and what shares neither is not
    crash = mark(tmp_path, "[torch.exp]", "compile-error", "inductor", "InductorError", "LoweringException")
    assert links(crash, ledger) == ["https://x.org/3"]
    assert links(mark(tmp_path, "[torch.exp]", "value", "inductor"), ledger) == []


def test_a_long_chain_around_a_known_bug_finds_it(ledger: str, tmp_path: Path) -> None:
    operators = ", ".join(f"torch.{name}" for name in ("exp", "sin", "cos", "tan", "abs", "sqrt", "neg", "ceil"))
    best = search(
        mark(tmp_path, f"[{operators}, nn.ReLU, {{operator.add: [$_, 1]}}]", "value", "inductor"), entries([ledger])
    )[0]
    assert best.entry.link == "https://x.org/2" and best.shared == ("add", "relu")
    assert best.score == pytest.approx(0.5 * (2 / 10 + 1) / 2 + 0.25 + 0.125)


def test_a_folder_is_searched_and_a_link_shown_once(ledger: str, tmp_path: Path) -> None:
    profile = mark(tmp_path, "[torch.relu]", "value", "inductor")
    written(tmp_path, LEDGER.replace("name: fine", "name: fine_too"), "copy.spec.yaml")
    similar = search(profile, entries([str(tmp_path)]))
    assert [match.entry.link for match in similar].count("https://x.org/2") == 1
    assert {match.entry.link for match in similar} == {"https://x.org/2", ""}


def test_a_list_of_bugs(tmp_path: Path) -> None:
    rows = [
        {"title": "crash", "url": "https://x.org/9", "ops": ["nn.Linear x3", "torch.nextafter(x, y)"], "class": "compile-crash",
         "stage": "inductor", "exception": "BackendCompilerFailed: NotImplementedError: the derivative"},
        {"title": "other", "url": "https://x.org/8", "ops": ["x * 0", "v = F.linear(x, torch.ones(4))"], "class": "numeric/nan-inf", "stage": None},
    ]  # fmt: skip
    path = tmp_path / "bugs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    first, second = entries([str(path)])
    assert first.profile == FailureProfile(frozenset({"linear", "nextafter"}), frozenset({"compile-error"}), "inductor", frozenset({"NotImplementedError"}))  # fmt: skip
    assert second.profile.operators == {"mul", "linear", "ones"} and second.profile.oracles == {"value", "nonfinite"}
    profile = mark(tmp_path, "[{torch.nextafter: [$_, $x]}]", "compile-error", "inductor", "InductorError", "NotImplementedError")  # fmt: skip
    assert links(profile, str(path)) == ["https://x.org/9"]


@pytest.mark.parametrize(
    "text",
    [b"{", b"3", b"[" * 100_000, b'{"ops": 5}', b'{"a": "\xff\xfe"}'],
    ids=["cut", "number", "deep", "ops", "bytes"],
)
def test_a_broken_list_is_an_error(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bugs.jsonl"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=r"bugs\.jsonl:1"):
        [*entries([str(path)])]


@pytest.mark.parametrize("path", ["absent.jsonl", "absent.spec.yaml"])
def test_a_missing_file_is_an_error(path: str) -> None:
    with pytest.raises(UsageError, match="--similar"):
        [*entries([path])]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("F.relu", "relu"), ("nn.ReLU", "relu"), ("Tensor.relu_", "relu"), ("aten.relu.default", "relu"), ("torch.ops.aten.add.Tensor", "add"),
     ("operator.iadd", "add"), ("torch.special.psi", "psi"), ("F.batch_norm", "batchnorm"), ("operator.truediv", "div")],
)  # fmt: skip
def test_one_name_for_one_thing(spelling: str, name: str) -> None:
    assert operator_name(spelling) == name


def test_operators_inside_blocks_and_functions(tmp_path: Path) -> None:
    case = """
        cases:
          - name: nested
            inputs: {x: [2]}
            chain:
              - with: [torch.no_grad]
                chain: [{torch.exp: $x, out: _}]
              - torch.vmap: [{$fn: {args: [row], chain: [{torch.sin: [$row]}]}}]
              - operator.call: [$_, $x]
        """
    first = loaded(written(tmp_path, case)).variants[0]
    assert operators_of(first.case.chain) >= {"exp", "vmap", "sin", "call"}


def test_the_score_of_what_is_the_same_is_one() -> None:
    profile = FailureProfile(frozenset({"a"}), frozenset({"value"}), "inductor", frozenset({"E"}))
    assert score(profile, profile) == 1.0
    assert score(profile, FailureProfile(frozenset(), frozenset())) == 0.0


def test_the_table(ledger: str, tmp_path: Path) -> None:
    text = table(search(mark(tmp_path, "[torch.relu]", "value", "inductor"), entries([ledger])))
    assert "https://x.org/2" in text.splitlines()[2] and "relu" in text.splitlines()[2]
    assert "known.spec.yaml" in text.splitlines()[3]  # no link: its place
    assert "no known failure" in table([])
