"""Whether the tiers ``core`` and ``operators`` are red under backends that ignore an argument of an operator, or mix up two.

python bench/planted_arguments.py                     # 60 operators of torch's database, one bug each
python bench/planted_arguments.py --seed 2 --count 20
python bench/planted_arguments.py --only gelu         # all bugs of the operators with this name, one after another

A bug follows from a signature alone: an argument has its default, or a constant where it has none; a list of numbers is reversed;
two arguments of a kind change places. It counts where a sample of the database, or one that ``tools/draft_arguments.py`` can make,
has another result by it. Cases that call the operator then run under a backend with this bug, and are red or not.
A bug of which the backend meets no call is left out: Dynamo writes the parts of such a function into the graph.
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

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

import operator_families as families  # noqa: E402
import torch  # noqa: E402
from signatures import REQUIRED, Signature, bound, function_of  # noqa: E402

WAYS = ("default", "constant", "reversed", "swapped")
PLAIN = {"int": 0, "float": 1.0, "number": 1, "bool": False}
"""What stands for an argument without a default, by its kind."""
SEPARATOR = "__"
MET = "PLANTED_ARGUMENTS_MET"
"""The environment variable that names the file to which a backend adds its bug when it meets a call."""


@dataclass(frozen=True)
class Bug:
    """A bug in calls of one name of the database: ``way`` is one of WAYS, ``other`` the argument that is mixed up with this one."""

    operator: str
    way: str
    argument: str
    other: str = ""

    @property
    def name(self) -> str:
        """Return it as a name that Python can import from here."""
        return SEPARATOR.join((self.operator.replace(".", "_dot_"), self.way, self.argument, self.other)).rstrip("_")

    @classmethod
    def named(cls, name: str) -> Bug:
        """Return the bug of a name."""
        operator, way, *arguments = next(
            [*name.split(f"{SEPARATOR}{way}{SEPARATOR}", 1)[:1], way, *name.split(f"{SEPARATOR}{way}{SEPARATOR}", 1)[1].split(SEPARATOR)]
            for way in WAYS if f"{SEPARATOR}{way}{SEPARATOR}" in name
        )  # fmt: skip
        return cls(operator.replace("_dot_", "."), way, *arguments)

    def change(self, signature: Signature, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call as the backend takes them."""
        changed = dict(given)
        if self.way == "default":
            changed.pop(self.argument, None)
        elif self.way == "constant" and self.argument in given:
            kind = next(each.kind for each in signature if each.name == self.argument)
            changed[self.argument] = PLAIN.get(kind, given[self.argument])
        elif self.way == "reversed" and isinstance(given.get(self.argument), (list, tuple)):
            changed[self.argument] = list(given[self.argument])[::-1]
        elif self.way == "swapped":
            defaults = {each.name: each.default for each in signature}
            values = {name: given.get(name, defaults.get(name)) for name in (self.argument, self.other)}
            if REQUIRED not in values.values():
                changed |= {self.argument: values[self.other], self.other: values[self.argument]}
        return changed


def bugs_of(operator: str, signature: Signature, silent: frozenset[str]) -> Iterator[Bug]:
    """Yield every bug that a signature allows."""
    telling = [each for each in signature if each.name not in silent]
    for each in telling:
        if each.default is not REQUIRED:
            yield Bug(operator, "default", each.name)
        elif each.kind in PLAIN:
            yield Bug(operator, "constant", each.name)
        if each.kind == "ints":
            yield Bug(operator, "reversed", each.name)
    for one, other in itertools.combinations(telling, 2):
        if one.kind == other.kind != "":
            yield Bug(operator, "swapped", one.name, other.name)


def call_with(function: Callable[..., Any], signature: Signature, given: Mapping[str, Any]) -> Any:
    """Call a function with arguments by name: by position as long as they follow each other."""
    names = itertools.takewhile(given.__contains__, (each.name for each in signature if not each.keyword_only))
    leading = list(names)
    return function(
        *(given[name] for name in leading), **{key: value for key, value in given.items() if key not in leading}
    )


def wrong(bug: Bug, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the bug."""

    def call(*args: Any, **kwargs: Any) -> Any:
        fitting = bound(function, args, kwargs)
        if fitting is None:
            return function(*args, **kwargs)
        signature, given = fitting
        return call_with(function, signature, bug.change(signature, given))

    return call


def backend_of(bug: Bug) -> Callable[..., Any]:
    """Return a backend that runs a graph as it is, but for the bug in the calls of one operator."""
    functions = [
        function for spelling in families.spellings(bug.operator) if (function := function_of(spelling)) is not None
    ]
    methods = {
        spelling.removeprefix("Tensor.")
        for spelling in families.spellings(bug.operator)
        if spelling.startswith("Tensor.")
    }

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
    return target is function or (
        getattr(target, "__name__", "").lstrip("_") == getattr(function, "__name__", " ") and "torch" in str(getattr(target, "__module__", ""))
    )  # fmt: skip


def __getattr__(name: str) -> Callable[..., Any]:
    """Return the backend of a bug by its name, for ``--backend planted_arguments:NAME``."""
    if not any(f"{SEPARATOR}{way}{SEPARATOR}" in name for way in WAYS):
        raise AttributeError(name)
    return backend_of(Bug.named(name))


def telling_bugs(name: str, entries: Sequence[Any]) -> list[Bug]:
    """Return the bugs of a name of the database that change the result of some call."""
    from draft_arguments import SILENT, Sample, differ, made, samples_of

    for spelling in families.spellings(name)[:3]:
        function = function_of(spelling)
        samples: list[Sample] = list(samples_of(function, entries)) if function is not None else []
        samples += list(made(samples))
        if samples:
            bugs = dict.fromkeys(bug for sample in samples for bug in bugs_of(name, sample.signature, SILENT))
            return [
                bug for bug in bugs if any(differ(changed(bug, sample).result, sample.result) for sample in samples)
            ]
    return []


def changed(bug: Bug, sample: Any) -> Any:
    """Return a sample as the backend calls it."""
    return replace(sample, given=bug.change(sample.signature, sample.given))


def drawn(options: argparse.Namespace) -> list[Bug]:
    """Return the bugs: one of each of as many operators as are wanted, or all of those that are named."""
    from draft_arguments import UNFIT
    from draft_operators import database

    names = {name: entries for name, entries in sorted(database().items()) if not UNFIT.fullmatch(name)}
    if options.only:
        return [bug for name in names if name in options.only.split(",") for bug in telling_bugs(name, names[name])]
    numbers = random.Random(options.seed)
    order = numbers.sample(list(names), len(names))
    bugs = (numbers.choice(found) for name in order if (found := telling_bugs(name, names[name])))
    return list(itertools.islice(bugs, options.count))


def planned_variants(bugs: Iterable[Bug]) -> dict[str, tuple[Bug, bool, Any]]:
    """Return the variants to run, by id: those of cases that call the operator, each with its bug and whether ``core`` has it."""
    from runner.cases.model import Backend
    from runner.cases.walk import all_steps
    from runner.session.collect import load

    tiers = {tier: load([str(REPOSITORY / "suites" / f"{tier}.suite.yaml")]).variants for tier in ("core", "operators")}
    core = {(variant.case.file, variant.case.name) for variant in tiers["core"]}
    once = {(each.case.file, each.case.name): each for tier in ("operators", "core") for each in tiers[tier]}
    plans = {}
    for bug in bugs:
        spellings = {*families.spellings(bug.operator)}
        for key, variant in once.items():
            if any(step.operator in spellings for step in all_steps(variant.case.chain)):
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw bugs, run the cases, and print which were seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument(
        "--only", default="", metavar="NAMES", help="all bugs of these names of the database, separated by commas"
    )
    parser.add_argument("-j", "--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY / "bench"), os.environ.get("PYTHONPATH", "")])
    bugs = drawn(options)
    plans = planned_variants(bugs)
    seen: dict[str, set[Bug]] = {"operators": set(), "core": set()}
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        os.environ[MET] = file.name
        for id_ in reds([variant for _, _, variant in plans.values()], options.jobs):
            bug, is_core, _ = plans[id_]
            for tier in ("operators", *["core"] * is_core):
                seen[tier].add(bug)
        met = {*file.read().split()}
    print(f"in no graph: {', '.join(bug.name for bug in bugs if bug.name not in met) or 'no bug'}")
    bugs = [bug for bug in bugs if bug.name in met]
    for bug in bugs:
        print(f"{' '.join(tier for tier in seen if bug in seen[tier]) or 'MISSED':16} {bug.name}")
    for tier, found in seen.items():
        print(
            f"{tier}: {len(found)} of {len(bugs)}, {len(found) / max(len(bugs), 1):.0%}; by way {dict(Counter(bug.way for bug in found))}"
        )
    return int(len(seen["operators"]) < 0.95 * len(bugs) or len(seen["core"]) < 0.6 * len(bugs))


if __name__ == "__main__":
    sys.exit(main())
