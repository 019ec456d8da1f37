"""The option ``--shrink`` of commands that write graphs of models as cases."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

from runner.cli.arguments import argument, integer, setting, settings_of
from runner.contract.graphs import Graph
from runner.diagnose.harness import Progress
from runner.graphs.folder import Shrink
from runner.graphs.shrink import BOUND

SHRINK = (
    argument(
        "--shrink",
        type=integer(4, 1 << 20),
        nargs="?",
        const=BOUND,
        metavar="SIZE",
        help=f"make sizes above SIZE smaller, as far as eager takes them (default SIZE: {BOUND}); "
        "the cases as they were are kept with the tag original",
    ),
    setting("jobs"),
)


@contextlib.contextmanager
def shrinking(arguments: argparse.Namespace, python: str | None = None) -> Iterator[Shrink | None]:
    """Give what makes graphs smaller, with workers of a Python; None where the command line does not ask for it."""
    if arguments.shrink is None:
        yield None
        return
    from runner.engine.local import LocalEngine  # late: an engine is needed here alone
    from runner.graphs.trial import Shrinker
    from runner.session.plan import find_environments

    environment = find_environments((python,) if python else ())[0]
    slots = settings_of(arguments).slots()
    progress = Progress()
    with LocalEngine({environment.key: environment.python}, slots, warm={environment.key: "import"}) as engine:
        shrinker = Shrinker(engine, environment, slots, arguments.shrink)

        def shrink(graphs: Sequence[Graph]) -> list[Graph]:
            return shrinker.shrink(graphs, partial(progress.say, "trying smaller sizes"))

        try:
            yield shrink
        finally:
            progress.end()
