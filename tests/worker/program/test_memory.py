"""Which bytes of memory a tensor has elements in."""

from __future__ import annotations

import pytest
import torch

from runner.worker.program.memory import element_bytes, have_common_elements, reach

BASE = torch.zeros(4, 6)


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (BASE, BASE[1, 2], True),
        (BASE[0], BASE[1], False),
        (BASE[:, 0], BASE[:, 1], False),
        (BASE[:, ::2], BASE[:, 1::2], False),
        (BASE[:, ::2], BASE.t()[2:4], True),
        (BASE[:, 0].expand(5, 4), BASE[3], True),
        (BASE[:0], BASE, False),
        (torch.from_numpy(BASE.numpy()[1:]), BASE[1, 2], True),
        (BASE.view(torch.uint8)[0, 3:4], BASE[0, 0], True),
        (BASE.view(torch.uint8)[0, 4:5], BASE[0, 0], False),
    ],
)
def test_common_elements(first, second, common):
    assert have_common_elements(first, second) == have_common_elements(second, first) == common


def test_bytes_of_elements():
    storage = torch.zeros(BASE.numel() * 4, dtype=torch.bool)
    column = BASE[1:, 2]
    element_bytes(storage, BASE.data_ptr(), column).fill_(True)
    assert storage.nonzero().flatten().tolist() == [4 * (6 * row + 2) + byte for row in (1, 2, 3) for byte in range(4)]
    assert reach(column) == range(BASE.data_ptr() + 32, BASE.data_ptr() + 84)
