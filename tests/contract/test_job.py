from __future__ import annotations

import pytest

from runner.contract.job import defines

OURS = "\n\ndef make_model():\n    model = Net()\n    return model\n\n\ndef make_inputs():\n    return []\n"


@pytest.mark.parametrize("name", ["CALLS", "STEPS", "make_twin", "make_optimizer"])
def test_a_name_of_a_persons_file_is_none_of_the_sources_own(name: str) -> None:
    text = f"def {name}():\n    ..." if name.startswith("make") else f"{name} = [1]"
    assert not defines(f"{text}\n{OURS}", name)
    assert defines(f"import torch\n{OURS}\n\n{text}\n", name)


def test_a_person_may_have_a_function_that_makes_a_model_too() -> None:
    theirs = "\ndef make_model():\n    return 1\n\n\nSTEPS = [1]\n"
    assert not defines(theirs + OURS, "STEPS") and defines(theirs + OURS, "make_inputs")


def test_a_name_that_begins_like_another_is_another_one() -> None:
    assert not defines(f"{OURS}\nCALLS_OF_ALL = [1]\n", "CALLS") and not defines(f"{OURS}    STEPS = 1\n", "STEPS")
