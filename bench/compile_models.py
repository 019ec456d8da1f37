"""Compile tiny models of packages, and call each once: ``runner capture bench/compile_models.py -- bert gpt2``.

Names are those of ``bench/capture_models.py``. Without any there are five, which need ``requirements/models.txt``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import capture_models
import torch

FIVE = ("bert", "gpt2", "llama", "vit", "unet2d")


def main(names: Sequence[str]) -> None:
    """Compile and call the models of these names."""
    for name in names:
        torch.manual_seed(0)
        model, args, kwargs = getattr(capture_models, f"make_{name}")()
        torch.compile(model)(*args, **kwargs)


if __name__ == "__main__":
    main(sys.argv[1:] or FIVE)
