"""The arguments of ``runner run``."""

from __future__ import annotations

import argparse

from runner.cli.arguments import (
    COUNT,
    EXAMPLES,
    MANY,
    add_environment,
    add_junit,
    add_paths,
    add_seed,
    add_selection,
    integer,
    seconds,
    set_epilog,
    shard,
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner run`` takes."""
    parser.description = (
        "Run every variant in a process of its own and compare it with eager PyTorch. A folder means its suites."
    )
    set_epilog(parser, EXAMPLES)
    add_paths(parser)
    add_selection(parser)
    add_environment(parser)
    add_seed(parser, "of models, inputs and random operators")
    parser.add_argument("--no-known", action="store_true", help="ignore the ledger: known failures are failures")
    _which(parser.add_argument_group("what runs, and when"))
    _where(parser.add_argument_group("where it runs"))
    reports = parser.add_argument_group("reports")
    reports.add_argument("--diagnose", action="store_true",
                         help="then say of each FAIL and ERROR what is to blame, as runner diagnose does")  # fmt: skip
    add_junit(reports, "JUnit XML here, besides the one in the run's folder",
          "extended adds file, line and properties to testcases; strict passes junit-10.xsd")  # fmt: skip
    reports.add_argument(
        "--events", metavar="FILE", help="the event log (JSON lines) here, besides the one in the run's folder"
    )
    reports.add_argument("--slow", type=seconds, default=60.0, metavar="TIME",
                         help="say so when a variant runs longer than this, and label it (default: 60s)")  # fmt: skip


def _which(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-x", "--exitfirst", action="store_true", help="stop at the first failure")
    group.add_argument("--max-fail", "--maxfail", type=integer(1, MANY), metavar="N", help="stop after N failures")
    group.add_argument("--lf", "--last-failed", dest="last_failed", action="store_true",
                       help="only what failed the last time it ran here; everything if nothing did")  # fmt: skip
    group.add_argument("--ff", "--failed-first", dest="failed_first", action="store_true",
                       help="everything, what failed the last time first")  # fmt: skip
    group.add_argument("--order", choices=("plan", "smart"), default="plan",
                       help="smart: failed first, then the longest first by what earlier runs took")  # fmt: skip
    group.add_argument("--retries", type=integer(0, COUNT), default=0, metavar="N",
                       help="run a red variant again up to N times; one that then does otherwise is FLAKY, which is red")  # fmt: skip
    group.add_argument("--stress", type=integer(1, COUNT), default=1, metavar="N",
                       help="run every variant N times; one that does not always do the same is FLAKY")  # fmt: skip
    group.add_argument("--confirm", action=argparse.BooleanOptionalAction, default=True,
                       help="run what fails once more, alone in a fresh process, before it is reported (default: yes)")  # fmt: skip
    group.add_argument("--shard", type=shard, metavar="M/N", help="only the M-th of N parts; runner merge joins them")
    group.add_argument("--durations", metavar="RUN",
                       help="make shards take equally long by the times of this run (the same file for all shards)")  # fmt: skip
    group.add_argument("--budget", type=seconds, metavar="TIME",
                       help="end after this long, such as 10m, with exit code 2; runner resume goes on")  # fmt: skip
    group.add_argument("--cached", action="store_true",
                       help="take results from earlier --cached runs where nothing has changed, and say so")  # fmt: skip


def _where(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--isolation", choices=("auto", "fork", "fresh", "living"), default="auto",
                       help="a process forked from a warm one for each variant; from a cold one; or processes that live on "
                            "(auto: fork on the CPU, living on accelerators)")  # fmt: skip
    group.add_argument("--kernel-cache", choices=("shared", "private"), default="shared",
                       help="compiled kernels are kept for later runs, or for this run alone")  # fmt: skip
    group.add_argument("--engine", choices=("local", "ray"), default="local",
                       help="this machine, or a Ray cluster (a local one unless --address names another)")  # fmt: skip
    group.add_argument("--address", metavar="ADDRESS", help="with --engine ray: the cluster, as ray.init takes it")
