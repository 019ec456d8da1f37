"""Tests of the plugin compare with the command, which the driver of the black-box tests runs."""

from tests.black_box.conftest import forks, torch_forks

__all__ = ["forks", "torch_forks"]
