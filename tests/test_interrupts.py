"""Signals: raised where the program is, noted where it must not end half-way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from runner import interrupts


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    old_handlers = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    for name, value in (("count", 0), ("newest", float("-inf")), ("depth", 0), ("pending", False)):
        monkeypatch.setattr(interrupts._State, name, value)
    monkeypatch.setattr(interrupts, "_BURST", -1.0)
    yield
    for number, handler in old_handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_a_signal_raises_where_the_program_is(number: signal.Signals) -> None:
    interrupts.install()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupts.install()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_held_signal_is_raised_at_the_end_of_the_outermost() -> None:
    interrupts.install()
    steps = []
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        with interrupts.held():
            signal.raise_signal(signal.SIGTERM)
            steps.append("inner")
        steps.append("outer")
    assert steps == ["inner", "outer"]


def test_a_held_signal_can_be_asked_for() -> None:
    interrupts.install()
    with interrupts.held():
        interrupts.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        signal.raise_signal(signal.SIGINT)
        assert interrupts.noted() and not interrupts.noted()


def test_signals_in_a_burst_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_BURST", 10.0)
    interrupts.install()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGHUP)
    assert interrupts._State.count == 1


def test_another_thread_holds_nothing() -> None:
    """Handlers run in the main thread. A thread's count beside the main one's could leave signals noted for ever."""
    depths: list[int] = []

    def hold() -> None:
        with interrupts.held():
            depths.append(interrupts._State.depth)

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert depths == [0]
