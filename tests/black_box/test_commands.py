"""Commands and options as people type them: groups, old words, pytest's spellings, whole files, skips and shards."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from .driver import run_in, spec, write

CASES = """
    cases:
      - name: relu
        tags: [fast]
        inputs: {x: [4]}
        chain: [F.relu]
        dtypes: [float32, float64]
      - name: later
        inputs: {x: [4]}
        chain: [F.relu]
        requires: {torch: ">=99"}
"""
BROKEN = "      - name: broken\n        inputs: {x: [2]}\n        chain: [F.rleu]\n"
KNOWN = (
    CASES
    + '        known:\n          - {torch: "<99", stage: inductor, oracle: [value], issue: "https://example.org/1"}\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, {"a.spec.yaml": CASES, "broken.spec.yaml": CASES + BROKEN, "known.spec.yaml": KNOWN})
    return tmp_path


def test_help_groups_the_commands(folder: Path) -> None:
    text = run_in(folder, "--help").out
    places = [text.index(f"\n{group}:\n") for group in ("run", "write", "investigate", "maintain")]
    assert places == sorted(places)
    for word in ("ledger", "minify ", "sanitize", "replay  "):
        assert f"  {word}" not in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("ledger",), ("known",)), (("minify",), ("reduce", "--minifier")), (("sanitize",), ("debug", "--sanitizer")),
        (("replay",), ("debug", "--replay")),
    ],
)  # fmt: skip
def test_an_old_word_is_the_new_command(folder: Path, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    texts = [run_in(folder, *words, "--help").out for words in (old, new)]
    assert texts[0] == texts[1] and texts[0].startswith(f"usage: runner {' '.join(new)} ")


def test_known_failures_have_one_word(folder: Path) -> None:
    result = run_in(folder, "known", "known.spec.yaml")
    assert result.code == 0 and "later" in result.out and result.out == run_in(folder, "ledger", "known.spec.yaml").out


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("dignose", "x"), "no command 'dignose': did you mean 'diagnose'?"),
        (("run", "a.spec.yaml", "--backends", "eager"), "--backends: did you mean '--backend'?"),
        (("capture", "train.py", "--epochs", "1"), "arguments of your script stand behind --"),
        (("run", "a.spec.yaml", "--collect-only"), "--collect-only of pytest is here: runner list PATH"),
        (("run", "a.spec.yaml", "--co"), "--co of pytest is here: runner list PATH"),  # no start of --confirm
        (("run", "a.spec.yaml", "-m", "fast"), "-m of pytest is here: -k tag:NAME"),
        (("run", "a.spec.yaml", "-s"), "-s of pytest is here: nothing: a failure shows what its process printed"),
        (("run", "a.spec.yaml", "--reruns=3"), "--reruns of pytest is here: --retries N"),
    ],
)
def test_what_is_typed_otherwise_here(folder: Path, words: tuple[str, ...], answer: str) -> None:
    result = run_in(folder, *words)
    assert result.code == 4 and answer in result.err and result.out == ""
    assert len(result.err.splitlines()) <= 4


def test_spellings_of_pytest(folder: Path) -> None:
    words = ("--backend", "eager", "--junitxml", "out.xml", "-n", "auto", "-v")
    result = run_in(folder, "run", "a.spec.yaml", *words)
    assert result.code == 0 and "compared 1 output" in result.out and "2 passed, 1 skip" in result.out
    assert len(ElementTree.parse(folder / "out.xml").getroot().findall(".//testcase")) == 3
    assert run_in(folder, "run", "a.spec.yaml", "-n", "many").code == 4


def test_quiet_prints_failures_and_the_summary(stand_in_here: None, folder: Path) -> None:
    write(folder, {"red.spec.yaml": CASES.replace("F.relu", "torch.relu", 1)})
    words = ("a.spec.yaml", "red.spec.yaml", "--backend", "relu_accuracy_error_TESTING_ONLY", "--no-confirm", "-q")
    result = run_in(folder, "run", *words)
    lines = [line for line in result.out.splitlines() if line]
    assert result.code == 1 and "PASS" not in result.out and lines[0].lstrip().startswith("FAIL [")
    assert "red.spec.yaml:2:" in result.out and any(line.startswith("2 passed, ") for line in lines)


def test_skips_and_empty_shards(stand_in_here: None, folder: Path) -> None:
    """Without --fail-on-skip a skip gives 0: ``test_spellings_of_pytest``."""
    result = run_in(folder, "run", "a.spec.yaml::later", "--backend", "eager", "--fail-on-skip")
    assert result.code == 1 and "1 skip" in result.out
    assert run_in(folder, "run", "a.spec.yaml::relu", "--backend", "eager", "--fail-on-skip").code == 0
    write(folder, {"skipped.spec.yaml": CASES.replace("dtypes:", "requires: {torch: '<2'}\n        dtypes:")})
    codes, counts = [], []
    for number in range(1, 6):  # five shards of two variants: some are empty
        result = run_in(folder, "run", "skipped.spec.yaml::relu", "--backend", "eager", "--shard", f"{number}/5")
        codes.append(result.code)
        counts.append(sum(event["event"] == "variant-finished" for event in result.events))
    assert codes == [0] * 5 and sum(counts) == 2


def test_show_prints_a_file_and_no_other_case_keeps_it_from_one(folder: Path) -> None:
    whole = run_in(folder, "show", "a.spec.yaml")
    assert whole.code == 0 and whole.out.count("class Model(") == 2
    assert "# id:             a.spec.yaml::relu[float32,cpu]@inductor" in whole.out
    assert "# also:           a.spec.yaml::relu[float64,cpu]@inductor" in whole.out
    case_result = run_in(folder, "show", "broken.spec.yaml::relu")
    assert (case_result.code, case_result.err) == (0, "") and case_result.out.count("class Model(") == 1
    file_result = run_in(folder, "show", "broken.spec.yaml")
    assert (
        file_result.code == 4
        and file_result.out.count("class Model(") == 2
        and "unknown operator 'F.rleu'" in file_result.err
    )


def test_validate_says_what_it_did_not_build(folder: Path) -> None:
    result = run_in(folder, "validate", "--build", "a.spec.yaml")
    assert result.code == 0 and "2 valid cases, 3 variants, 0 errors" in result.out
    assert "not built: 1 variant: needs torch >=99, this is" in result.out
    assert "not built" not in run_in(folder, "validate", "a.spec.yaml").out


def test_validate_imports_modules_of_the_current_folder(tmp_path: Path) -> None:
    code = (
        "import torch\n@torch.library.custom_op('build::twice', mutates_args=())\n"
        "def twice(x: torch.Tensor) -> torch.Tensor: return x * 2\n@twice.register_fake\ndef _(x): return x.clone()\n"
    )
    case = spec("name: a\ninputs: {x: [4]}\nchain: [custom.build.twice]")
    write(tmp_path, {"own.py": code, "a.spec.yaml": case, "broken.py": "import x_\n"})
    result = run_in(tmp_path, "validate", "--build", "a.spec.yaml", "--import", "own")
    assert result.code == 0, result.text
    result = run_in(tmp_path, "validate", "--build", "a.spec.yaml", "--import", "broken")
    assert result.code == 4 and "--import: importing broken raised" in result.err and "a.spec.yaml:" not in result.err
