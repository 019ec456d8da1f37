"""What torch says about the machine and itself: the text that bug reports ask for."""

from __future__ import annotations

from typing import Any

import torch

from runner.contract.job import Job
from runner.worker.run.job import Send


def run_environment(job: Job, send: Send) -> dict[str, Any]:
    """Return ``text`` as ``python -m torch.utils.collect_env`` prints it, ``torch``, the whole version, and ``error``,
    null."""
    from torch.utils.collect_env import get_pretty_env_info

    send({"phase": "load"})
    text = get_pretty_env_info()  # type: ignore[no-untyped-call,unused-ignore]
    return {"text": str(text), "torch": str(torch.__version__), "error": None}
