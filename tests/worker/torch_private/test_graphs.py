"""What is told of the graphs that Dynamo hands to a backend, on each version of torch."""

from __future__ import annotations

import torch
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode

from runner.worker.torch_private.graphs import example_of


def test_an_example_belongs_to_the_mode_that_torch_has_set_for_the_backend() -> None:
    own, backends = FakeTensorMode(), FakeTensorMode()
    with own:
        value = torch.empty_strided((2, 3), (1, 2)).requires_grad_()
    assert example_of(value) is value
    with tracing(TracingContext(backends)):
        example = example_of(value)
        assert example_of(example) is example and example_of(3) == 3
    assert (example.fake_mode, example.stride(), example.requires_grad) == (backends, (1, 2), True)
