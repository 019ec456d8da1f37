"""Are the tiers ``core`` and ``operators`` red under backends that ignore an argument of an operator, or mix up two?

python bench/planted_arguments.py                     # 60 operators of torch's database, one bug each
python bench/planted_arguments.py --seed 2 --count 20
python bench/planted_arguments.py --only gelu         # all bugs of the operators with this name, one after another

A bug follows from a signature alone: an argument has its default, or a constant where it has none; a list of numbers
is reversed; two arguments of a kind change places. It counts where a sample of the database, or one that
``tools/draft_arguments.py`` can make, has another result by it. Cases that call the operator then run under a backend
with this bug, and are red or not. A bug of which the backend meets no call is left out: Dynamo writes the parts of
such a function into the graph.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from commands import ROOT, SUITES, command_line, option
from operator_families import spellings
from signatures import REQUIRED, Signature, bound, function_of

WAYS = ("default", "constant", "reversed", "swapped")
PLAIN = {"int": 0, "float": 1.0, "number": 1, "bool": False}
"""What stands for an argument without a default, by its kind."""
SEPARATOR = "__"
MET = "PLANTED_ARGUMENTS_MET"
"""The environment variable that names the file to which a backend adds its bug when it meets a call."""


@dataclass(frozen=True)
class Bug:
    """A bug in calls of one name of the database: its way, its argument, and the one that changes places with it."""

    operator: str
    way: str
    argument: str
    partner: str = ""

    @property
    def name(self) -> str:
        """Return it as a name that Python can import from here."""
        return SEPARATOR.join((self.operator.replace(".", "_dot_"), self.way, self.argument, self.partner)).rstrip("_")

    @classmethod
    def named(cls, name: str) -> Bug:
        """Return the bug of a name. Raises AttributeError if it is no bug's."""
        for way in WAYS:
            operator, separator, arguments = name.partition(f"{SEPARATOR}{way}{SEPARATOR}")
            if separator:
                return cls(operator.replace("_dot_", "."), way, *arguments.split(SEPARATOR))
        raise AttributeError(name)

    def change(self, signature: Signature, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call as the backend takes them."""
        changed, value = dict(values), values.get(self.argument)
        if self.way == "default":
            changed.pop(self.argument, None)
        elif self.way == "constant" and self.argument in values:
            kind = next(argument.kind for argument in signature if argument.name == self.argument)
            changed[self.argument] = PLAIN.get(kind, value)
        elif self.way == "reversed" and isinstance(value, (list, tuple)):
            changed[self.argument] = [*value][::-1]
        elif self.way == "swapped":
            every = {**{argument.name: argument.default for argument in signature}, **values}
            pair = every.get(self.argument), every.get(self.partner)
            if REQUIRED not in pair:
                changed[self.partner], changed[self.argument] = pair
        return changed


def bugs_of(operator: str, signature: Signature, silent: frozenset[str]) -> list[Bug]:
    """Return every bug that a signature allows."""
    arguments = [argument for argument in signature if argument.name not in silent]

    def ways(argument: Any) -> Iterator[str]:
        if argument.default is not REQUIRED or argument.kind in PLAIN:
            yield "constant" if argument.default is REQUIRED else "default"
        if argument.kind == "ints":
            yield "reversed"

    pairs = [pair for pair in itertools.combinations(arguments, 2) if pair[0].kind == pair[1].kind != ""]
    return [
        *(Bug(operator, way, argument.name) for argument in arguments for way in ways(argument)),
        *(Bug(operator, "swapped", first.name, second.name) for first, second in pairs),
    ]


def call_with(function: Callable[..., Any], signature: Signature, values: Mapping[str, Any]) -> Any:
    """Call a function with arguments by name: by position as long as they follow each other."""
    names = (argument.name for argument in signature if not argument.keyword_only)
    leading = [*itertools.takewhile(values.__contains__, names)]
    keywords = {key: value for key, value in values.items() if key not in leading}
    return function(*(values[name] for name in leading), **keywords)


def wrong(bug: Bug, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the bug."""

    def call(*args: Any, **kwargs: Any) -> Any:
        fitting = bound(function, args, kwargs)
        if fitting is None:
            return function(*args, **kwargs)
        signature, values = fitting
        return call_with(function, signature, bug.change(signature, values))

    return call


def backend_of(bug: Bug) -> Callable[..., Any]:
    """Return a backend that runs a graph as it is, but for the bug in the calls of one operator."""
    names = spellings(bug.operator)
    functions = [function for function in map(function_of, names) if function is not None]
    methods = {name.removeprefix("Tensor.") for name in names if name.startswith("Tensor.")}

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        met = False
        for node in graph.graph.nodes:
            if node.op == "call_method" and node.target in methods:
                node.op, node.target, met = "call_function", wrong(bug, getattr(torch.Tensor, node.target)), True
            elif node.op == "call_function" and any(is_same(node.target, function) for function in functions):
                node.target, met = wrong(bug, node.target), True
        if met and MET in os.environ:
            with open(os.environ[MET], "a", encoding="utf-8") as file:
                file.write(f"{bug.name}\n")
        graph.recompile()
        forward: Callable[..., Any] = graph.forward
        return forward

    return backend


def is_same(target: Any, function: Any) -> bool:
    """Return whether a graph's call is one of a function; of ``F.max_pool2d`` Dynamo has the function below it."""
    names = getattr(target, "__name__", "").lstrip("_"), getattr(function, "__name__", " ")
    return target is function or (names[0] == names[1] and "torch" in str(getattr(target, "__module__", "")))


def __getattr__(name: str) -> Callable[..., Any]:
    """Return the backend of a bug by its name, for ``--backend planted_arguments:NAME``."""
    return backend_of(Bug.named(name))


def telling_bugs(name: str, entries: Sequence[Any]) -> list[Bug]:
    """Return the bugs of a name of the database that change the result of some call."""
    from draft_arguments import SILENT, Sample, differ, made, samples_of

    def is_seen(bug: Bug, sample: Sample) -> bool:
        changed = replace(sample, given=bug.change(sample.signature, sample.given))
        return bool(differ(changed.result, sample.result))

    for function in filter(None, map(function_of, spellings(name)[:3])):
        samples: list[Sample] = [*samples_of(function, entries)]
        samples += [*made(samples)]
        if samples:
            bugs = dict.fromkeys(bug for sample in samples for bug in bugs_of(name, sample.signature, SILENT))
            return [bug for bug in bugs if any(is_seen(bug, sample) for sample in samples)]
    return []


def draw_bugs(options: argparse.Namespace) -> list[Bug]:
    """Return the bugs: one of each of as many operators as are asked for, or all of those that are named."""
    from draft_arguments import UNFIT
    from draft_operators import database

    names = {name: entries for name, entries in sorted(database().items()) if not UNFIT.fullmatch(name)}
    if options.only:
        return [bug for name in names if name in options.only.split(",") for bug in telling_bugs(name, names[name])]
    numbers = random.Random(options.seed)
    order = numbers.sample([*names], len(names))
    choices = (bugs for name in order if (bugs := telling_bugs(name, names[name])))
    return [*itertools.islice(map(numbers.choice, choices), options.count)]


def planned_variants(bugs: Iterable[Bug]) -> dict[str, tuple[Bug, bool, Any]]:
    """Return the variants of cases that call the operator, by id, each with its bug and whether ``core`` has it."""
    from runner.cases.model import Backend
    from runner.cases.walk import all_steps
    from runner.session.collect import load

    tiers = {tier: load([str(SUITES / f"{tier}.suite.yaml")]).variants for tier in ("core", "operators")}
    core = {(variant.case.file, variant.case.name) for variant in tiers["core"]}
    once = {(entry.case.file, entry.case.name): entry for tier in ("operators", "core") for entry in tiers[tier]}
    plans = {}
    for bug in bugs:
        names = {*spellings(bug.operator)}
        for key, variant in once.items():
            if any(step.operator in names for step in all_steps(variant.case.chain)):
                id_ = f"{Path(key[0]).name}::{key[1]}[{variant.dtype}]@{bug.name}"
                backend = Backend(bug.name, f"planted_arguments:{bug.name}")
                plans[id_] = (bug, key in core, replace(variant, id=id_, backend=backend, where="planted"))
    return plans


def reds(variants: Sequence[Any], jobs: int) -> Iterator[str]:
    """Run the variants and yield the ids of those that are red."""
    from runner.engine.local import LocalEngine
    from runner.record.events import VariantFinished
    from runner.session.plan import RunContext, find_environments, plan, warmth
    from runner.session.run import Session
    from runner.session.settings import RunSettings

    settings = RunSettings(no_known=True, confirm=False, jobs=jobs)
    [environment] = find_environments([sys.executable])
    context = RunContext(settings, slots=settings.slots())
    with LocalEngine(
        {environment.key: environment.python}, context.slots, warm={environment.key: warmth(variants)}
    ) as engine:
        for event in Session(plan(variants, [environment]), engine, context).events():
            if isinstance(event, VariantFinished) and event.verdict not in ("PASS", "SKIP", "VACUOUS"):
                print(event.verdict, event.id, ",".join(event.oracles), file=sys.stderr)
                yield event.id


def main(words: Sequence[str] | None = None) -> int:
    """Draw bugs, run the cases, and print which were seen."""
    options = command_line(
        __doc__,
        option("--seed", type=int, default=0),
        option("--count", type=int, default=60),
        option("--only", default="", metavar="NAMES", help="all bugs of these names of the database, with commas"),
        option("-j", "--jobs", type=int, default=1),
    ).parse_args(words)
    warnings.simplefilter("ignore")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "bench"), os.environ.get("PYTHONPATH", "")])
    bugs = draw_bugs(options)
    plans = planned_variants(bugs)
    finds: dict[str, set[Bug]] = {"operators": set(), "core": set()}
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        os.environ[MET] = file.name
        for id_ in reds([variant for _, _, variant in plans.values()], options.jobs):
            bug, is_core, _ = plans[id_]
            for tier in ("operators", *["core"] * is_core):
                finds[tier].add(bug)
        names = {*file.read().split()}
    print(f"in no graph: {', '.join(bug.name for bug in bugs if bug.name not in names) or 'no bug'}")
    bugs = [bug for bug in bugs if bug.name in names]
    for bug in bugs:
        print(f"{' '.join(tier for tier in finds if bug in finds[tier]) or 'MISSED':16} {bug.name}")
    for tier, group in finds.items():
        share = f"{len(group)} of {len(bugs)}, {len(group) / max(len(bugs), 1):.0%}"
        print(f"{tier}: {share}; by way {dict(Counter(bug.way for bug in group))}")
    return int(len(finds["operators"]) < 0.95 * len(bugs) or len(finds["core"]) < 0.6 * len(bugs))


if __name__ == "__main__":
    sys.exit(main())
