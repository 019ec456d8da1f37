"""Modules of ``bench/`` and ``tools/``, which are folders of scripts and no packages."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def script_module(name: str) -> ModuleType:
    """Return the module of ``bench/NAME.py`` or ``tools/NAME.py``. What it sets of the environment ends with its import."""
    variables = dict(os.environ)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for folder in ("tools", "bench"):
                patch.syspath_prepend(str(ROOT / folder))
            return importlib.import_module(name)
    finally:
        for variable in {*os.environ} - {*variables}:
            del os.environ[variable]
        os.environ.update(variables)
