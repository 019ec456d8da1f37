"""``bench/mutants_of_tests.py``: unit tests kill the mutants that they see, and no others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

from runner.contract.mutant import Mutant, digest_of
from tests.script_modules import ROOT

FILE = "_inductor/runtime/runtime_utils.py"
OLD = "-(number // -denom)"
TESTS = """
import unittest
from torch._inductor.runtime.runtime_utils import ceildiv

class Division(unittest.TestCase):
    def test_rounds_up(self):
        self.assertEqual(ceildiv(7, 2), 4)

    def test_fails_always(self):
        self.fail("without any mutant")

    @unittest.skip("never")
    def test_of_nobody(self):
        ceildiv(0, 0)
"""


def bench(*arguments: object) -> str:
    """Run the script, and return what it prints."""
    command = [sys.executable, ROOT / "bench/mutants_of_tests.py", *arguments]
    answer = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_a_test_kills_what_it_sees(tmp_path: Path) -> None:
    (tmp_path / "test_of_division.py").write_text(TESTS)
    source = (Path(torch.__file__).parent / FILE).read_bytes()
    begin = source.index(OLD.encode())
    line = source[:begin].count(b"\n") + 1
    mutants = {
        fate: Mutant(FILE, line + shift, begin, begin + len(OLD), text, digest_of(source))
        for fate, text, shift in (
            ("killed", "(number // -denom)", 0),
            ("survived", "0 - (number // -denom)", 0),
            ("not reached", "number", 10_000),
            ("invalid", OLD, 0),
        )
    }
    trials = [json.dumps({"mutant": mutant.to_json(), "fate": "survived"}) for mutant in mutants.values()]
    (tmp_path / "trials.jsonl").write_text("\n".join(trials) + "\n")

    bench("record", tmp_path / "test_of_division.py", "-j", 1, "-o", tmp_path / "map.jsonl")
    entries = [json.loads(text) for text in (tmp_path / "map.jsonl").read_text().splitlines()]
    outcomes = {entry["test"].rpartition(".")[2]: entry["outcome"] for entry in entries}
    assert outcomes == {"test_rounds_up": "passed", "test_fails_always": "failed", "test_of_nobody": "skipped"}

    tried = ("--map", tmp_path / "map.jsonl", "--trials", tmp_path / "trials.jsonl", "-o", tmp_path / "tests.jsonl")
    bench("try", tmp_path / "test_of_division.py", "-j", 1, *tried)
    answers = [json.loads(text) for text in (tmp_path / "tests.jsonl").read_text().splitlines()]
    fates = {answer["id"]: answer["fate"] for answer in answers}
    assert fates == {mutant.id: fate for fate, mutant in mutants.items()}
