"""What the latest run here says about ids: it printed them, so what it meant by them counts.

A log that this user did not write on this machine says nothing.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from runner.record.events import Event, RunStarted, VariantPlanned, from_json
from runner.record.journal import lines, parse_line
from runner.record.signing import why_foreign
from runner.record.store import FOLDER


def latest_suites(identifiers: Collection[str]) -> dict[str, str]:
    """Return the suite file by which the latest run planned each of these ids, for those that it planned by a suite.

    An id without its backend, as rows of a table have it, counts too.
    """
    asked = {text for text in identifiers if "::" in text and ("@" in text or text.endswith("]"))}
    events = _announced() if asked else iter(())
    started = next(events, None)
    if not isinstance(started, RunStarted):
        return {}
    return {
        name: started.suites[event.suite]
        for event in events
        if isinstance(event, VariantPlanned) and started.suites.get(event.suite, event.file) != event.file
        for name in asked & {event.id, event.label}
    }


def latest_backends() -> tuple[str, ...]:
    """Return what followed each ``--backend`` of the latest run's command line."""
    started = next(_announced(), None)
    if not isinstance(started, RunStarted):
        return ()
    words = [part for word in started.argv for part in word.split("=", 1)]
    return tuple(value for option, value in itertools.pairwise(words) if option == "--backend")


def _announced() -> Iterator[Event]:
    """The first events of the latest run, which announce what is planned; none of a run that began elsewhere."""
    try:
        for number, line in enumerate(lines(Path(FOLDER, "latest", "events.jsonl"))):
            event = from_json(parse_line(line))
            if isinstance(event, RunStarted) and (number or why_foreign(event) or event.cwd != os.getcwd()):
                return
            if not isinstance(event, RunStarted | VariantPlanned):
                return
            yield event
    except (OSError, ValueError):  # no such run, or one whose log is torn
        return
