"""The smallest file that still shows a finding of ``bench/fuzz.py``: fewer edits first, then fewer lines, keys and items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import yaml
from fuzz_trial import Fuzzer, Recipe, Trial
from fuzz_yaml import copied, places, written

_TRIES = 80
_SLOW_TRIES = 8  # where each takes seconds


def smallest(fuzzer: Fuzzer, recipe: Recipe, key: str) -> tuple[Recipe, Trial]:
    """The recipe without edits that the finding does not need, and its trial with a file cut down."""
    for number in recipe.edits:
        fewer = replace(recipe, edits=tuple(edit for edit in recipe.edits if edit != number))
        if key in {problem.key for problem in fuzzer.run(fewer).problems}:
            recipe = fewer
    trial = fuzzer.trial(recipe)
    if key.startswith("twin"):  # its other file cannot be cut alike
        return recipe, trial
    tries = iter(range(_SLOW_TRIES if key.split(" ")[0] in ("time", "hang", "memory") else _TRIES))

    def shows(data: bytes) -> bool:
        if next(tries, None) is None:
            return False
        candidate = replace(trial, files={**trial.files, trial.name: data}, twin=None)
        return key in {problem.key for problem in fuzzer.judge(recipe, candidate).problems}

    data = trial.files[trial.name]
    cut = _fewer_lines(data, shows) if trial.kind == "log" else _fewer_nodes(data, shows)
    return recipe, replace(trial, files={**trial.files, trial.name: cut}, twin=None)


def _fewer_lines(data: bytes, shows: Callable[[bytes], bool]) -> bytes:
    lines = data.splitlines(keepends=True)
    size = max(1, len(lines) // 2)
    while size:
        at = 0
        while at < len(lines):
            fewer = lines[:at] + lines[at + size :]
            if fewer and shows(b"".join(fewer)):
                lines = fewer
            else:
                at += size
        size //= 2
    return b"".join(lines)


def _fewer_nodes(data: bytes, shows: Callable[[bytes], bool]) -> bytes:
    """The file with keys and items taken away, from the top down; one that PyYAML cannot read loses lines instead."""
    try:
        root = copied(yaml.compose(data, Loader=yaml.CSafeLoader))
        if not shows(written(root).encode()):
            return _fewer_lines(data, shows)
    except (yaml.YAMLError, ValueError, AttributeError, RecursionError):
        return _fewer_lines(data, shows)
    best, go_on = written(root).encode(), True
    while go_on:
        go_on = False
        for smaller in _without_each(root):
            text = written(smaller).encode()
            if len(text) < len(best) and shows(text):
                root, best, go_on = smaller, text, True
                break
    return best


def _without_each(root: yaml.Node) -> Iterator[yaml.Node]:
    """Copies of a tree, each without one node, the largest first."""
    for slot in sorted(range(len(places(root))), key=lambda n: -len(places(places(root)[n].node))):
        copy = copied(root)
        place = places(copy)[slot]
        del place.parent.value[place.slot]
        yield copy
