"""How both halves name elements and signals."""

from __future__ import annotations

import signal

from runner.contract.finding import index_of, signal_name


def test_an_element_has_its_index_in_row_major_order() -> None:
    assert [index_of(flat, (2, 3)) for flat in range(6)] == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert index_of(0, ()) == []


def test_a_signal_has_its_name_and_any_other_its_number() -> None:
    assert (signal_name(signal.SIGSEGV), signal_name(63)) == ("SIGSEGV", "signal 63")
