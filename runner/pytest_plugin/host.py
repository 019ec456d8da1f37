"""The process that runs the variants of a pytest session: ``runner run``, limited to them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from runner import console, interrupts
from runner.cli.arguments import settings_of
from runner.cli.run import run_again, run_parser
from runner.cli.variants import refuse
from runner.diagnostics import InputError
from runner.exit_codes import UsageError
from runner.session.plan import find_environments


def main() -> int:
    """Read from standard input what to run, run it, and return the exit code.

    The end of standard input ends it in order.
    """
    interrupts.install()
    console.ready()
    request = json.loads(_line())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    arguments = run_parser().parse_args(request["words"][1:])
    arguments.words, arguments.events, arguments.detail = request["words"], request["log"], "quiet"
    try:
        environments, ids = find_environments(settings_of(arguments).python), request["ids"]
        only = None if ids is None else frozenset((id, environment.torch) for id in ids for environment in environments)
        return run_again(arguments, only)
    except InputError as error:
        return refuse(error.diagnostics)
    except UsageError as error:
        console.message(f"runner: {error}")
        return error.code
    finally:
        interrupts.ignore()


def _line() -> bytes:
    """Return the first line. Not through ``sys.stdin``, whose lock a thread must not hold when Python ends."""
    line = b""
    while not line.endswith(b"\n") and (part := os.read(0, 1 << 16)):
        line += part
    return line


def _end_with_parent() -> None:
    while os.read(0, 1 << 16):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
