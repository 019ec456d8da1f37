"""How many GPUs there are, for tests that want some."""

from __future__ import annotations

import subprocess
import sys

COUNT = "import torch; print(torch.cuda.device_count())"


def count() -> int:
    """Asked in a process of its own, since CUDA must stay closed in one that forks. 0 where it cannot be asked."""
    try:
        process = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=120)
        return int(process.stdout or 0)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0
