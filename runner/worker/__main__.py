"""Start of the worker: ``python /path/to/runner/worker/__main__.py --socket PATH --token T``.

It runs under any interpreter that has torch; this project need not be installed there. A stub makes this one package
importable. Nothing that *is* installed beside this file's project leaks in.
"""

from __future__ import annotations

import os
import sys
import types


def _install() -> None:
    """Make ``runner.worker`` importable without putting a folder of ours on ``sys.path``."""
    here = os.path.dirname(os.path.abspath(__file__))
    # Python puts a script's own folder first, where load.py or job.py would shadow a case's modules; an empty entry
    # (from PYTHONPATH) is the current directory, where a checkout of PyTorch would shadow the installed one.
    sys.path[:] = [entry for entry in sys.path if entry and os.path.abspath(entry) != here]
    package = types.ModuleType("runner")
    package.__path__ = [os.path.dirname(here)]
    sys.modules["runner"] = package


if __name__ == "__main__":
    _install()
    if sys.argv[1:2] == ["--capture"]:
        from runner.worker.capture.command import main as capture

        sys.exit(capture(sys.argv[2:]))
    from runner.worker.server.server import main

    sys.exit(main())
