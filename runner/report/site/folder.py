"""The folder of a run's report: which files it holds, and how they get there."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.exit_codes import UsageError
from runner.files import open_regular, replace_file
from runner.record.events import Event, Key, VariantFinished
from runner.record.journal import parse_line
from runner.report.handlers import EndFile, Options
from runner.report.site.declared import Declared, declared_of
from runner.report.site.failures import Cause, render_page
from runner.report.site.overview import render_overview, render_times
from runner.report.site.results import Results, results_of
from runner.templates import read_file
from runner.text import cap, clean

SIZE = 64 << 20
"""Bytes of all pages of failures together."""

LOG = 256 * 1024
"""Bytes of a log beside a page."""

INDEX = "index.html"
MARK = '<meta name="generator" content="torch-spec-runner">'
"""By which an earlier report in a folder is known. It is replaced; any other folder must be empty."""

_UNFINISHED = (
    f"<!doctype html>{MARK}<title>unfinished</title><p>The writing of this report did not come to its end.".encode()
)
_OWN = re.compile(r"\d{5,}\.(html|txt)")
_JSON = 4 << 20  # bytes of a diagnosis


def reporter(path: Path, options: Options) -> EndFile:
    """Return the reporter ``html``, whose path is a folder."""
    declare = options.declared or declared_of
    return EndFile(
        "--html", path / INDEX, lambda events: write_folder(path, events, declare(events), options.folder), options.tell
    )


def check_folder(path: str) -> None:
    """Raise UsageError for a folder with something in it that is no earlier report."""
    folder = Path(path)
    try:
        if not folder.is_dir() or not any(folder.iterdir()):
            return
        with open_regular(folder / INDEX) as index:
            known = MARK.encode() in index.read(4000)
    except FileNotFoundError:
        known = False
    except OSError as error:
        raise UsageError(f"--html {path}: {error.strerror}") from None
    if not known:
        raise UsageError(f"--html {path}: there is something in it that is no report of a run; name another folder")


def write_folder(folder: Path, events: Sequence[Event], declared: Declared, run_folder: Path | None) -> None:
    """Write the report of a run into a folder, its first page last. Pages of an earlier report there go away.

    Args:
        folder: is made if need be; ``check_folder`` has looked at it.
        events: of the run.
        declared: what the files of its cases say.
        run_folder: where its diagnoses are; None if nowhere.

    Raises:
        OSError: a file cannot be written.
    """
    failures = folder / "failures"
    if failures.is_symlink():
        raise OSError(errno.EINVAL, "a link, not a folder", str(failures))
    # Links of an earlier first page lead to pages that are about to change. Where the writing is cut short, this one
    # marks the folder.
    replace_file(folder / INDEX, [_UNFINISHED])
    failures.mkdir(exist_ok=True)
    for old in failures.iterdir():
        if _OWN.fullmatch(old.name):
            old.unlink()
    for name, data in pages(events, results_of(events), declared, run_folder):
        if name == INDEX:
            replace_file(folder / name, [data])
        else:
            (folder / name).unlink(missing_ok=True)  # a link is not followed
            with open(folder / name, "xb") as file:
                file.write(data)


def pages(
    events: Sequence[Event], results: Results, declared: Declared, run_folder: Path | None
) -> Iterator[tuple[str, bytes]]:
    """Yield each file of a report: its path in the folder, and its content."""
    for name in ("page.css", "report.css", "report.js"):
        yield name, read_file(name).encode()
    causes = read_causes(run_folder) if run_folder else {}
    room = SIZE
    for event in results.finished:
        address = results.pages.get(event.key)
        if address is None:
            continue
        log = _log(event)
        name = f"{address[:-5]}.txt" if log else ""
        page = _encoded(render_page(event, results, declared, name.rpartition("/")[2], causes.get(event.key)))
        room -= len(page) + len(log)
        if room < 0:
            del results.pages[event.key]
            continue
        yield address, page
        if log:
            yield name, log
    yield "times.html", _encoded(render_times(results))
    yield INDEX, _encoded(render_overview(events, results, declared))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _log(event: VariantFinished) -> bytes:
    """What the process of a variant printed, and its stack."""
    parts = [("stack", event.stack), ("output", event.output)]
    parts += [(f"trace of {f.oracle}", str((f.error or {}).get("trace") or "")) for f in event.findings[:4]]
    text = "\n".join(f"--- {name}\n{clean(value)}" for name, value in parts if value.strip())
    return _encoded(cap(text, LOG))


def read_causes(run_folder: Path) -> dict[Key, Cause]:
    """Return the diagnoses that ``runner run --diagnose`` left in a run's folder; what cannot be read is left out."""
    from runner.diagnose.diagnosis import diagnosis_of

    causes: dict[Key, Cause] = {}
    for path in sorted(run_folder.glob("diagnosis-*.json"))[:100]:
        try:
            with open_regular(path) as file:
                if os.fstat(file.fileno()).st_size > _JSON:
                    continue
                data = parse_line(file.read())
            picture = data.pop("heat_map", None)
            diagnosis = diagnosis_of(data)
            causes[str(diagnosis.id), str(diagnosis.torch)] = (diagnosis, picture)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue
    return causes
