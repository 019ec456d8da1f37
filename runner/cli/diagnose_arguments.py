"""The commands for one failing variant: their arguments. What they do is in ``runner.diagnose``."""

from __future__ import annotations

import argparse

from runner.cli.arguments import environment, paths, seconds, seed, selection

Commands = argparse._SubParsersAction


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add them all."""
    parser = _one(commands, "diagnose", "say what is to blame for a failure",
                  "The stage, the pass and the operator, by torch's own bisector, and what makes the failure go away.")  # fmt: skip
    parser.add_argument("--html", metavar="FILE", help="also a page with the error over the tensor and its histogram")
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - is standard output, and then nothing else")
    parser.add_argument("--bisect", action=argparse.BooleanOptionalAction, default=True,
                        help="run CompilerBisector, which takes up to a minute (default: yes)")  # fmt: skip

    parser = _one(commands, "reduce", "shrink a failing case while it fails alike",
                  "Drops steps, inputs, sizes and settings as long as stage, oracle and exception stay. "
                  "Prints the smallest case; writes it, its script and the log of the steps into a folder.")  # fmt: skip
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="default: reduced/ in the run folder, which is printed"
    )
    parser.add_argument("--budget", type=seconds, default=120.0, metavar="TIME",
                        help="stop after this long with the best so far (default: 2m)")  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="go on from what --output holds")

    parser = _one(
        commands, "minify", "run torch's own minifier", "Drives torch's minifier and runs its repro.py again."
    )
    parser.add_argument("--after", choices=("dynamo", "aot"), default="aot", help="which graph it cuts (default: aot)")
    parser.add_argument("--accuracy", action="store_true", help="minify a wrong answer instead of an error (level 4)")
    parser.add_argument("--level", type=int, choices=(2, 3), default=2, help="as TORCHDYNAMO_REPRO_LEVEL (default: 2)")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="where repro.py and the checkpoints are kept")

    parser = _one(commands, "explain", "graphs, graph breaks, guards and recompiles of a case",
                  "What torch.compile made of a case over its calls, as tables.")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="as JSON")

    parser = _one(commands, "debug", "a folder with everything the compiler did",
                  "Kernels, graphs, IR, logs, trace, compile times: one run without caches, and a page that lists them.")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FOLDER", help="default: debug/ in the run folder, which is printed")
    parser.add_argument("--function", metavar="NAME", help="let Dynamo compile frames of this name alone")
    parser.add_argument("--record", action="store_true", help="record an internal error of Dynamo, for runner replay")

    parser = commands.add_parser("replay", help="replay what runner debug --record recorded",
                                 description="Run Dynamo again over a recorded frame.")  # fmt: skip
    parser.add_argument("file", metavar="FILE", help="a .rec file")
    environment(parser)

    parser = _one(commands, "issue", "a bug report in upstream's form",
                  "Markdown for a torch.compile bug report: the reduced script, what is to blame, versions, environment. "
                  "Refuses what upstream's rules for such reports do not allow, and says which.")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="write it here instead of printing it")
    parser.add_argument(
        "--reduce", action=argparse.BooleanOptionalAction, default=True, help="reduce first (default: yes)"
    )
    parser.add_argument("--budget", type=seconds, default=120.0, metavar="TIME", help="of reducing (default: 2m)")
    parser.add_argument("--similar", nargs="*", metavar="PATH",
                        help="first look for the same operators and signature in these files' ledgers; here, if none is named")  # fmt: skip


def _one(
    commands: Commands[argparse.ArgumentParser], name: str, text: str, description: str
) -> argparse.ArgumentParser:
    """A command about one variant."""
    parser = commands.add_parser(name, help=text, description=description)
    paths(parser, many=False)
    selection(parser)
    environment(parser)
    seed(parser)
    return parser
