"""Calls of code of a case's objects."""

from __future__ import annotations

import signal
import time

import pytest

from runner.worker import guarded
from runner.worker.guarded import Refusal, ask, describe


def _swallow():
    while True:
        try:
            time.sleep(10)
        except BaseException:
            if time.monotonic() > _swallow.end:
                raise


@pytest.mark.parametrize("function", [lambda: time.sleep(60), _swallow])
def test_an_endless_call_is_refused(monkeypatch, function):
    monkeypatch.setattr(guarded, "SECONDS", 0.05)
    _swallow.end = time.monotonic() + 0.1
    handler = signal.getsignal(signal.SIGALRM)
    with pytest.raises(Refusal, match="takes longer than"):
        ask(function)
    assert signal.getsignal(signal.SIGALRM) is handler and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_call_that_raises_is_refused_and_another_one_answers():
    class Silent(BaseException):
        def __str__(self):
            raise RuntimeError

    def fail():
        raise Silent

    with pytest.raises(Refusal, match="reading it raises Silent"):
        ask(fail)
    assert ask(lambda: 3) == 3 and describe(ValueError("no")) == "ValueError: no"
