"""What a record says beside the verdict."""

from __future__ import annotations

import os

import pytest
import torch
from worker_jobs import run, source


@pytest.mark.parametrize("listing", [True, False])
def test_the_places_of_loaded_code_are_listed_where_the_job_asks(listing: bool) -> None:
    record = run(source("return x + 1"), "eager", lists_code=listing)
    assert (os.path.dirname(torch.__file__) in record["code"]) is listing
