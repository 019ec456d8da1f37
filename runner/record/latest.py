"""What the latest run here says about ids: it printed them, so what it meant by them counts.

A log that this user did not write on this machine says nothing.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from runner.record.events import Event, RunStarted, VariantFinished, VariantPlanned, from_json
from runner.record.journal import lines, parse_line
from runner.record.signing import why_foreign
from runner.record.store import FOLDER, latest_problem


def latest_suites(identifiers: Collection[str]) -> dict[str, str]:
    """Return the suite file by which the latest run planned each of these ids, for those that it planned by a suite.

    An id without its backend, as rows of a table have it, counts too.
    """
    asked = {text for text in identifiers if "::" in text and ("@" in text or text.endswith("]"))}
    events = _events() if asked else iter(())
    started = next(events, None)
    if not isinstance(started, RunStarted):
        return {}
    return {
        name: started.suites[event.suite]
        for event in itertools.takewhile(lambda event: isinstance(event, VariantPlanned), events)
        if isinstance(event, VariantPlanned) and started.suites.get(event.suite, event.file) != event.file
        for name in asked & {event.id, event.label}
    }


def latest_backends() -> tuple[str, ...]:
    """Return what followed each ``--backend`` of the latest run's command line."""
    return _options("--backend")


def latest_seed() -> int:
    """Return the ``--seed`` of the latest run's command line; 0 without one."""
    return next((int(value) for value in reversed(_options("--seed")) if value.removeprefix("-").isdecimal()), 0)


def _options(name: str) -> tuple[str, ...]:
    """What followed an option on the latest run's command line."""
    started = next(_events(), None)
    if not isinstance(started, RunStarted):
        return ()
    words = [part for word in started.argv for part in word.split("=", 1)]
    return tuple(value for option, value in itertools.pairwise(words) if option == name)


def latest_result(identifier: str) -> VariantFinished | None:
    """Return what the latest run says of a variant: of several versions of torch the first that has a finding."""
    name = json.dumps(identifier).encode()
    results = [event for event in _events(name) if isinstance(event, VariantFinished) and event.id == identifier]
    return next((event for event in results if event.findings), results[-1] if results else None)


def _events(text: bytes = b"") -> Iterator[Event | None]:
    """The events of the latest run whose lines hold a text, after its first; none of a run that began elsewhere."""
    try:
        if latest_problem():
            return
        for number, line in enumerate(lines(Path(FOLDER, "latest", "events.jsonl"))):
            if number and text not in line:
                continue
            event = from_json(parse_line(line))
            if isinstance(event, RunStarted) and (number or why_foreign(event) or event.cwd != os.getcwd()):
                return
            if not number and not isinstance(event, RunStarted):
                return
            yield event
    except (OSError, ValueError, RuntimeError):  # no such run, one whose log is torn, or a loop of links
        return
