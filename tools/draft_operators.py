"""Drafts cases of operators from torch's own sample inputs, by family, for ``specs/operators``.

python tools/draft_operators.py FOLDER            # drafts what no case of FOLDER reaches, a file for each family
python tools/draft_operators.py FOLDER --only sort # only operators whose name contains this

A draft is for people to read, shorten and correct. Eager has run each of its variants; what it refuses is left out and printed.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

import operator_families as families  # noqa: E402
import torch  # noqa: E402
from draft_samples import (  # noqa: E402
    ODD,
    POINTWISE,
    TASTES,
    TURN,
    CallDraft,
    Given,
    chosen,
    matrix_call,
    pointwise,
    sample_calls,
    special_values,
)

from runner.builder.source import build  # noqa: E402
from runner.cases.canonical import format_text  # noqa: E402
from runner.cases.serialize import emit  # noqa: E402
from runner.cases.walk import all_steps  # noqa: E402
from runner.session.collect import load  # noqa: E402
from runner.session.plan import Environment, Planned, job  # noqa: E402
from runner.worker.generate.database import operators  # noqa: E402
from runner.worker.program.errors import InvalidCase  # noqa: E402
from runner.worker.program.load import open_source  # noqa: E402
from runner.worker.program.observe import Settings, observe  # noqa: E402
from runner.worker.rerun.agreement import find_disagreement  # noqa: E402

FLOATS = ("float64", "float32", "float16", "bfloat16", "complex64")
WHOLE = ("int64", "int32", "bool")
ALONE = r"item|equal|allclose|nonzero|argwhere|unique.*|masked_select|bincount|broadcast_shapes|repeat_interleave|combinations|is_.*|to_sparse|torch._scaled.*"
"""Operators that read values, or make no tensor: they may break the graph, and share no case."""
INPUTS, STEPS = 6, 15
"""Of a case with several operators, at most."""
LONGEST = 64
"""Characters of a case's name; of more operators it names the first and the last."""
LETTERS = "xyzwvutsrq"
RESULTS = "abcdefghijklmnop"
_FIRST = ("torch.float32", "torch.float64", "torch.int32", "torch.int64", "torch.bool", "torch.complex64")


@dataclass(frozen=True)
class Draft:
    """What is drafted of one operator, or of several that share a case."""

    names: tuple[str, ...]
    calls: tuple[CallDraft, ...]
    grad: bool
    dtypes: tuple[str, ...] = ()
    kind: str = ""  # what the name ends in

    def case(self, turn: int = 0) -> dict[str, Any]:
        """Return the case as plain data, as the format writes it."""
        writer = _Writer(turn)
        for call in self.calls:
            writer.step(call)
        words = [name.removesuffix(".default").rpartition(".")[2].strip("_").lower() for name in self.names]
        name = "_".join(words)
        name = name if len(name) <= LONGEST else f"{words[0]}_to_{words[-1]}"
        case: dict[str, Any] = {"name": name + self.kind}
        if writer.inputs:
            case["inputs"] = writer.inputs
        case["chain"] = writer.chain
        if len(writer.results) > 1:
            case["return"] = [f"${result}" for result in writer.results]
        else:
            case["chain"][-1].pop("out")
        return {**case, "grad": "backward" if self.grad else "forward", "dtypes": list(self.dtypes)}


def _nth(letters: str, place: int) -> str:
    return letters[place] if place < len(letters) else f"{letters[0]}{place}"


@dataclass
class _Writer:
    """Writes calls as steps, and names their inputs and results."""

    turn: int
    inputs: dict[str, Any] = field(default_factory=dict)
    chain: list[dict[str, Any]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict)

    def step(self, call: CallDraft, result: bool = True) -> str:
        args = [self._argument(arg, call) for arg in call.args]
        kwargs = {key: self._argument(arg, call) for key, arg in call.kwargs.items()}
        operands: Any = {"*": args, **kwargs} if kwargs else args
        if not args and kwargs:
            operands = kwargs
        if len(args) == 1 and not kwargs and not isinstance(args[0], (list, dict)):
            operands = args[0]
        name = _nth(RESULTS, len(self.chain))
        self.chain.append({call.operator: operands, "out": name})
        if result:
            self.results.append(name)
        return name

    def _argument(self, value: Any, call: CallDraft) -> Any:
        if isinstance(value, CallDraft):
            return f"${self.step(value, False)}"
        if isinstance(value, Given):
            return f"${self._input(value, call)}"
        if isinstance(value, list):
            return [self._argument(item, call) for item in value]
        return value

    def _input(self, given: Given, call: CallDraft) -> str:
        spec = dict(given.spec)
        if spec.get("shape") == TURN:
            spec = {**spec, **ODD[self.turn % len(ODD)]}
        key = repr((spec, given.place, id(call) if call.operator.endswith("_") else 0))
        if key not in self._known:
            name = _nth(LETTERS, len(self._known))
            self._known[key] = name
            self.inputs[name] = spec["shape"] if [*spec] == ["shape"] else spec
        return self._known[key]


def drafts_of(name: str, entries: Sequence[Any]) -> Iterator[Draft]:
    """Draft an operator: with gradients in floating dtypes, without in whole numbers, or without in all."""
    kinds = {str(kind) for entry in entries for kind in entry.supported_dtypes("cpu")}
    backward = {
        str(kind) for entry in entries if entry.supports_autograd for kind in entry.supported_backward_dtypes("cpu")
    }
    with_grad = tuple(kind for kind in FLOATS if f"torch.{kind}" in backward)
    plain = tuple(kind for kind in (*FLOATS, *WHOLE) if f"torch.{kind}" in kinds and kind not in with_grad)
    missing: list[str] = []
    if with_grad:
        yield from _tried(name, entries, with_grad, True, missing)
    if plain:
        yield from _tried(name, entries, plain, False, missing)
    special = tuple(kind for kind in FLOATS[:-1] if f"torch.{kind}" in kinds)
    operator = next(iter(families.spellings(name)), "")
    if special and type(entries[0]).__name__ in POINTWISE and pointwise(entries[0], operator, False, False):
        draft = Draft((name,), (special_values(entries[0], operator),), False, special, "_special_values")
        faults = faults_of(draft)
        yield replace(draft, dtypes=tuple(kind for kind in special if not faults.get(kind, "not read")))
    if missing:
        print(f"# {name}: {', '.join(missing)}", file=sys.stderr)


def _tried(
    name: str, entries: Sequence[Any], dtypes: tuple[str, ...], grad: bool, missing: list[str]
) -> Iterator[Draft]:
    """Try spellings and samples until eager takes a draft in all dtypes, or in as many as there are."""
    open_dtypes = dtypes
    whole = not grad and dtypes[0] in WHOLE
    for first in _FIRST:
        if not any(f"torch.{kind}" == first for kind in open_dtypes):
            continue
        best: Draft | None = None
        reason = ""
        for calls in _candidates(name, entries, getattr(torch, first.removeprefix("torch.")), grad):
            kind = "" if grad or dtypes[0] in FLOATS else "_integers"
            kind += "_complex" if first == "torch.complex64" else ""
            draft = Draft((name,), tuple(calls), grad, open_dtypes, kind)
            faults = faults_of(draft)
            good = tuple(dtype for dtype in open_dtypes if not faults.get(dtype, "not read"))
            reason = reason or "; ".join(f"{dtype} {fault}"[:150] for dtype, fault in faults.items() if fault)
            if whole and not _reads_dtype(draft):
                return  # the same program in every dtype
            if good and (best is None or len(good) > len(best.dtypes)):
                best = replace(draft, dtypes=good)
            if len(good) == len(open_dtypes):
                break
        if best is not None:
            yield best
            open_dtypes = tuple(dtype for dtype in open_dtypes if dtype not in best.dtypes)
    missing += [f"{dtype} {'backward' if grad else ''} ({reason})" for dtype in open_dtypes]


def _reads_dtype(draft: Draft) -> bool:
    case = draft.case()
    own = [
        spec for spec in case.get("inputs", {}).values() if isinstance(spec, list) or not {"dtype", "values"} & {*spec}
    ]
    return bool(own) or "$dtype" in str(case)


def _candidates(name: str, entries: Sequence[Any], dtype: torch.dtype, grad: bool) -> Iterator[list[CallDraft]]:
    whole = not dtype.is_floating_point and not dtype.is_complex
    for operator in families.spellings(name)[:3]:
        try:
            if type(entries[0]).__name__ in POINTWISE:
                calls = pointwise(entries[0], operator, grad, whole)
                if calls:
                    yield calls
                    yield calls[:1]
            samples = sample_calls(entries, operator, dtype, grad)
            if families.family_of(name).file in ("matrices", "decompositions"):
                yield [matrix_call(call) for call in chosen(samples, TASTES[-2])]
            picked: list[str] = []
            for taste in TASTES:
                calls = chosen(samples, taste)
                if calls and repr(calls) not in picked:
                    picked.append(repr(calls))
                    yield [CallDraft("Tensor.fill_", [call, 1]) for call in calls] if "empty" in name else calls
        except Exception as error:  # noqa: BLE001  an entry of the database raises what it likes
            print(f"# {name}: {operator}: {type(error).__name__}: {error}", file=sys.stderr)


def faults_of(draft: Draft) -> Mapping[str, str]:
    """Return for each dtype what eager says against a draft, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "draft.spec.yaml"
        path.write_text(emit({"cases": [draft.case()]}), encoding="utf-8")
        loaded = load([str(path)], everything=True)
        if loaded.diagnostics:
            return {"": loaded.diagnostics[0].message}
        environment = Environment("", sys.executable, torch.__version__, torch.__version__, "")
        sources = {variant.dtype: (variant, build(variant)) for variant in loaded.variants}
    return {
        dtype: source.diagnostics[0].message
        if source.diagnostics
        else _fault(job(Planned(variant, environment), source))
        for dtype, (variant, source) in sources.items()
    }


def _fault(judging: Any) -> str:
    settings = Settings.of(judging)
    try:
        with open_source(judging) as source:
            loaded = [source.load(settings.seed) for _ in range(2)]
            first, again = (observe(loaded_case, loaded_case.model, settings) for loaded_case in loaded)
    except InvalidCase as error:
        return f"invalid: {error.reason}"
    if first.error is not None:
        return f"raises {first.error.summary}"
    if again.error is not None or find_disagreement(first, again):
        return "varies"
    return ""


def merged(drafts: Iterable[Draft], together: int) -> Iterator[Draft]:
    """Join neighbours that have the same dtypes, until a case is large."""
    groups: dict[Any, Draft] = {}
    for draft in sorted(drafts, key=lambda draft: _inputs_of(draft) if together > 3 else ""):
        if not draft.dtypes:
            continue
        key = (draft.grad, draft.dtypes, draft.kind)
        group = groups.get(key)
        if group is not None:
            joined = replace(group, names=(*group.names, *draft.names), calls=(*group.calls, *draft.calls))
            many = 2 if draft.kind == "_special_values" else 1
            together_now = 1 if any(re.fullmatch(ALONE, name) for name in joined.names) else together * many
            if (
                len(joined.names) <= together_now
                and len(joined.calls) <= STEPS
                and (len(joined.case().get("inputs", ())) <= INPUTS)
            ):
                groups[key] = joined
                continue
            yield group
        groups[key] = draft
    yield from groups.values()


def _inputs_of(draft: Draft) -> str:
    """Return what the inputs of a draft are made from, so that drafts of one domain become neighbours."""
    return repr(sorted(repr(arg.spec) for call in draft.calls for arg in call.args if isinstance(arg, Given)))


def text_of(
    drafts: Sequence[Draft],
    tags: Sequence[str] = ("operator",),
    extras: Callable[[Draft], Mapping[str, Any]] = lambda draft: {},
) -> str:
    """Return the text of a file. What most cases say of dtypes stands once, above. ``extras`` are more keys of a case."""
    cases = [{**draft.case(turn), **extras(draft)} for turn, draft in enumerate(drafts)]
    for case, draft in zip(cases, drafts, strict=True):
        if sum(other_case["name"] == case["name"] for other_case in cases) > 1:
            space = draft.names[0].rpartition(".")[0].rpartition(".")[2]
            case["name"] += f"_{space or draft.dtypes[0]}"
    usual = {
        key: collections.Counter(repr(case[key]) for case in cases).most_common(1)[0][0] for key in ("grad", "dtypes")
    }
    defaults = {key: next(case[key] for case in cases if repr(case[key]) == text) for key, text in usual.items()}
    short = [{key: value for key, value in case.items() if defaults.get(key) != value} for case in cases]
    text = emit({"defaults": {"tags": [*tags], **defaults}, "cases": short})
    head = "# yaml-language-server: $schema=../../schema/spec.schema.json\n"
    return format_text(head + text)


def reached_in(folder: Path, names: Iterable[str]) -> Mapping[str, bool]:
    """Return for each name of the database whether a case of the folder reaches it."""
    if not any(folder.glob("*.spec.yaml")):
        return dict.fromkeys(names, False)
    return families.reached(names, operators_of(load([str(folder)], everything=True).variants))


def operators_of(variants: Iterable[Any]) -> set[tuple[str, bool]]:
    """Return the operators of all steps, each beside whether its first argument is a number."""
    steps = itertools.chain.from_iterable(all_steps(variant.case.chain) for variant in variants)
    return {
        (
            step.operator,
            any(isinstance(getattr(arg, "value", None), (int, float)) for arg in step.arguments.positional[:1]),
        )
        for step in steps
    }


def database() -> Mapping[str, list[Any]]:
    """Return the entries of torch's operator database by name."""
    operators()  # it imports the database without the packages of torch's developers
    entries = sys.modules["torch.testing._internal.common_methods_invocations"].op_db
    names: dict[str, list[Any]] = {}
    for entry in entries:
        names.setdefault(entry.name, []).append(entry)
    return names


def begin_drafting(description: str) -> argparse.Namespace:
    """Return what the command line of a tool that drafts cases says; let torch work in one thread and without warnings."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="only operators whose name contains this")
    parser.add_argument("--family", default="", help="only this file")
    parser.add_argument("--print", action="store_true", help="print the drafts")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    return parser.parse_args()


def main() -> None:
    """Draft the files."""
    options = begin_drafting(__doc__.splitlines()[0])
    names = database()
    known = reached_in(options.folder, names)
    missing_names = [name for name in names if not known[name] and options.only in name]
    for family in families.FAMILIES:
        members = [
            draft
            for name in missing_names
            if families.family_of(name) == family and options.family in ("", family.file)
            for draft in drafts_of(name, names[name])
        ]
        if not members:
            continue
        text = text_of(list(merged(members, family.together)))
        if options.print:
            print(text)
            continue
        path = options.folder / f"{family.file}.spec.yaml"
        path = path if not path.exists() else options.folder / f"{family.file}_more.spec.yaml"
        path.write_text(text, encoding="utf-8")
        print(f"{path}: {len(members)} drafts")


if __name__ == "__main__":
    main()
