"""Lines that a kept run has recorded, as a map, in a compact file beside its log.

The log of a thousand variants has 60 MB of lines, and reading it takes 14 seconds; the file has less than 1 MB. It is
made once, where it is first needed. Only logs that this user wrote on this machine count.
"""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runner.contract.lines import KIND, Lines
from runner.record.events import RunStarted, VariantFinished, from_json
from runner.record.journal import lines, parse_line
from runner.record.signing import NoKey, read_signed, why_foreign, write_signed
from runner.record.store import FOLDER, start_order
from runner.session.affected import LineMap
from runner.session.history import LINES, slot_seconds

_PURPOSE = "lines"
_VERSION = 1
_LONGEST = 256 << 20
"""Bytes of a file, and of what is in it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a run recorded: its name, the map, and seconds of a slot by variant."""

    run: str
    line_map: LineMap
    seconds: dict[str, float] = field(default_factory=dict)


def find_recorded(ids: Collection[str], base: Path | None = None) -> Recorded | None:
    """Return the kept run that recorded lines of most of these variants, of several the newest; None without one."""
    best: Recorded | None = None
    journals = (base or Path(FOLDER)).glob("runs/*/events.jsonl")
    for journal in sorted(journals, key=lambda path: start_order(path.parent.name), reverse=True):
        with contextlib.suppress(OSError, ValueError):
            recorded = _recorded(journal)
            covered = len(recorded.line_map.counts.keys() & {*ids})
            if covered and (best is None or covered > len(best.line_map.counts.keys() & {*ids})):
                best = recorded
            if covered == len(ids):
                break
    return best


def _recorded(journal: Path) -> Recorded:
    """Read the compact file of a run, or make it. Raises OSError, ValueError."""
    path, size = journal.with_name(LINES), journal.stat().st_size
    with contextlib.suppress(OSError, NoKey, ValueError, TypeError, KeyError, IndexError, zlib.error):
        text = read_signed(path, _LONGEST, _PURPOSE, str(journal.resolve()), size)
        return _unpack(journal.parent.name, base64.b64decode(text))
    recorded = _read(journal)
    if recorded.line_map.counts:
        with contextlib.suppress(OSError, NoKey):
            text = base64.b64encode(_pack(recorded)).decode()
            write_signed(path, text, _PURPOSE, str(journal.resolve()), size)
    return recorded


def _read(journal: Path) -> Recorded:
    seconds: dict[str, float] = {}

    def reached() -> Iterator[tuple[str, Lines]]:
        for number, line in enumerate(lines(journal)):
            if number and f'"{KIND} '.encode() not in line:
                continue
            event = from_json(parse_line(line))
            if not number and not (isinstance(event, RunStarted) and not why_foreign(event)):
                return
            if isinstance(event, VariantFinished):
                seconds[event.id] = slot_seconds(event)
                yield event.id, Lines(event.reached)

    return Recorded(journal.parent.name, LineMap.of(reached()), seconds)


def _pack(recorded: Recorded) -> bytes:
    ids = [*recorded.line_map.counts]
    place = {variant: number for number, variant in enumerate(ids)}
    files: dict[str, dict[str, list[int]]] = {}
    for file, by_variant in recorded.line_map.files.items():
        groups = files.setdefault(file, {})
        for variant, bits in by_variant.items():
            groups.setdefault(format(bits, "x"), []).append(place[variant])
    variants = [[node, recorded.line_map.counts[node], recorded.seconds.get(node, 0.0)] for node in ids]
    return zlib.compress(json.dumps({"version": _VERSION, "variants": variants, "files": files}).encode())


def _unpack(run: str, packed: bytes) -> Recorded:
    """Raises ValueError, TypeError, KeyError, IndexError and zlib.error for anything else than ``_pack`` makes."""
    data = json.loads(zlib.decompressobj().decompress(packed, _LONGEST))
    if data["version"] != _VERSION:
        raise ValueError("another version")
    ids = [str(entry[0]) for entry in data["variants"]]
    files = {
        file: {ids[number]: int(bits, 16) for bits, numbers in groups.items() for number in numbers}
        for file, groups in data["files"].items()
    }
    counts = {str(entry[0]): int(entry[1]) for entry in data["variants"]}
    return Recorded(run, LineMap(counts, files), {str(entry[0]): float(entry[2]) for entry in data["variants"]})
