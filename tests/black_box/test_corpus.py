"""The drafts of publicly reported bugs, which people wrote before there was code: all of them are read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .driver import REPOSITORY, Result, run_in

CORPUS = REPOSITORY.parent / "shared" / "corpus" / "yaml"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not beside the repository")


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run_in(tmp_path_factory.mktemp("corpus"), "validate", CORPUS, "--allow-python", limit=60)


def test_only_unused_names_are_refused(validated: Result) -> None:
    errors = re.findall(r"^\S+:\d+:\d+: error: (.*)$", validated.err, re.MULTILINE)
    assert [message for message in errors if not message.endswith("never used")] == []
    assert validated.code == (4 if errors else 0)


def test_all_but_two_cases_can_be_used(validated: Result) -> None:
    case_count = sum(
        len(re.findall(r"^ *- name:", file.read_text(), re.MULTILINE)) for file in CORPUS.glob("*.spec.yaml")
    )
    counted = re.match(r"(\d+) valid cases, (\d+) variants, \d errors?, \d+ warnings?\n", validated.out)
    assert counted is not None, validated.text
    assert case_count >= 100
    assert case_count - 2 <= int(counted[1]) <= case_count
    assert int(counted[2]) >= int(counted[1])


def test_python_in_it_needs_the_persons_word(tmp_path: Path) -> None:
    result = run_in(tmp_path, "validate", CORPUS, limit=60)
    modules = sum(len(re.findall(r"^ +module:", file.read_text(), re.MULTILINE)) for file in CORPUS.glob("*.spec.yaml"))
    assert modules > 0 and "of its own" not in result.err
    assert f"\nleft out: {modules} cases with Python (" in result.out
