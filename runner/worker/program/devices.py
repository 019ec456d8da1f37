"""Accelerators that work beside the processor, and those that an assertion has spoilt."""

from __future__ import annotations

import os
import sys

import torch

LOST = 5
"""Exit status of a process whose device has been lost in a run of our own."""

_WITHOUT_QUEUE = ("cpu", "meta")


def synchronize(device: str) -> None:
    """Wait for the device, so that its errors belong to the call that made them.

    Raises:
        RuntimeError: an earlier kernel failed.
    """
    if device not in _WITHOUT_QUEUE:
        getattr(torch, device).synchronize()


def end_if_lost(device: str) -> None:
    """End this process without a result if an assertion has spoilt its device for every later call.

    For runs beside the program's own, such as one with perturbed inputs: control asks again without them, in another
    process.
    """
    try:
        synchronize(device)
    except RuntimeError as error:
        print(f"the device {device} is lost: {error}", file=sys.stderr, flush=True)
        os._exit(LOST)
