"""Strategies of changed event logs, which come of runs under the scripted engine, and of commands on them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.engine import SPEC, SPEC_NAME
from tests.fuzz.files import Trial, damages
from tests.fuzz.schemas import schema, values
from tests.fuzz.texts import TEXTS
from tests.mutations import JUNK

Log = list[Any]
"""Lines: JSON objects, or bytes."""

_RAW = (
    "NaN", "-Infinity", "1e400", "-0", "9" * 5000, "1" + "0" * 400 + ".5", "[" * 50_000, "[" * 500 + "]" * 500,
    '{"a":' * 900 + "1" + "}" * 900, '{"a": 1, "a": 2}', '"\\ud800"', '"\\u0000\\u001b[2J\\u202e"', '"\\x41"', "tru",
    '"', "", "\x00", "\ufeff1",
)  # fmt: skip
"""What is written into a line as it is."""

_VALUES = (
    *JUNK, 77, 300, 2**31, 10**18, -(10**18), 0.5, 1e308, float("-inf"), [1, 2], ["a", 1], {"": None}, "EVIL\x1b[2J",
    "BROKEN", "dynamo", "1/2", "2/2", "0/0", "3/2", "-1/-1",
    "2026-01-02T03:04:05", "2.6", "9.9.9", "latest", "..", "a.spec.yaml:1:1", "a.spec.yaml:0:0", "nowhere.yaml:99:99",
    "/dev/zero:1:1", "x" * 100_000, "\xe9\U0001f600", "a\nb", "a::b",
    "SIGSEGV",
)  # fmt: skip
_OPTIONS = (
    (), ("--help",), ("--python", "./zq.sh"), ("--allow-python",), ("--import", "zq_module"), ("--junit", "zq.xml"),
    ("--events", "../zq.jsonl"), ("--nope",), ("-j", "9" * 20), ("-j", "x"),
    ("--seed", "9" * 30), ("--budget", "-5s"), ("--shard", "0/0"), ("--limit", "variants=0"), ("-k", "("),
    ("--device", "zq"), ("--", "x"), ("--durations", "/dev/zero"),
    ("zq\x1b[2J\u202e.spec.yaml",), ("\x00",), ("a.spec.yaml::zq",), ("@/etc/passwd",), ("--html", "zq"),
    ("--report", "zq:zq"), ("--backend", "zq:zq"), ("--engine", "ray"), ("",), (5,),
)  # fmt: skip
_ARGV = (
    ["runner"],
    [],
    ["runner", "bench", "."],
    ["runner", "list", SPEC_NAME],
    ["runner", "--version"],
    ["runner", "rerun"],
    "runner run a.spec.yaml",
    5,
    [[1]],
    ["runner", 5, SPEC_NAME],
)
_START = {
    "argv": st.one_of(st.sampled_from(_OPTIONS).map(lambda words: ["runner", "run", SPEC_NAME, *words]),
    st.sampled_from(_ARGV)),
    "cwd": st.sampled_from(("", "/", "..", "/nonexistent", "/dev/null", "/proc/self", "\x00", "zq\x1b[2J", "x" * 5000,
    "@WORK@/zq", 5, None, ["/"])),
}  # fmt: skip
_LINES = (
    b"", b"{}", b"[]", b"null", b"1", b'"x"', b"not json", b"\xff\xfe\x00", b'{"event": "zq"}', b'{"event": null}',
        b'{"event": []}', b"[" * 100_000, b"x" * 3_000_000, b"\x00" * 1000,
)  # fmt: skip


def _places(value: Any) -> list[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in [*items] for place in ((value, key), *_places(item))]


def _line(draw: st.DrawFn, log: Log, *kinds: str) -> Any:
    """An event, of these kinds or any, those of the whole run more often; None without one."""
    events = [line for line in log if isinstance(line, dict) and line and (not kinds or line.get("event") in kinds)]
    rare = [line for line in events if str(line.get("event")).startswith("run-")]
    return draw(st.sampled_from(rare if rare and draw(st.integers(0, 2)) == 2 else events)) if events else None


def change_value(draw: st.DrawFn, log: Log) -> None:
    """A value replaced by anything, by raw JSON or by another place's; a key or item less, or one more."""
    line, source = _line(draw, log), _line(draw, log)
    if line is None:
        return
    parent, key = draw(st.sampled_from(_places(line)))
    way = draw(st.integers(0, 6))
    if way == 0:
        del parent[key]
    elif way == 1:
        line[draw(st.sampled_from([*source, "zq", "", "self", "__class__", "schema"]))] = draw(st.sampled_from(_VALUES))
    elif way == 2:
        owner, name = draw(st.sampled_from(_places(source)))
        parent[key] = copy.deepcopy(owner[name])
    else:
        raw = st.integers(0, len(_RAW) - 1).map("zqraw{}end".format)
        parent[key] = draw((st.sampled_from(_VALUES), TEXTS, raw, raw)[way - 3])


def change_alike(draw: st.DrawFn, log: Log) -> None:
    """Values that the schema accepts, at one or two keys of an event."""
    line = _line(draw, log)
    properties = schema("events")["definitions"].get(str(line and line.get("event")), {}).get("properties", {})
    if properties:
        for key in draw(st.lists(st.sampled_from(sorted(properties)), min_size=1, max_size=2)):
            line[key] = draw(values(properties[key], "events"))


def change_start(draw: st.DrawFn, log: Log) -> None:
    """A command line or folder that nobody asked for."""
    if line := _line(draw, log, "run-started"):
        key = draw(st.sampled_from(("argv", "argv", "cwd")))
        line[key] = draw(_START[key])


def move_lines(draw: st.DrawFn, log: Log) -> None:
    """A line less, many times or elsewhere; the end less; the order reversed."""
    slot, target, way = draw(st.integers(0, len(log))), draw(st.integers(0, len(log))), draw(st.integers(0, 5))
    part = log[slot : slot + 1]
    if way < 3:
        log[slot : slot + 1] = [copy.deepcopy(line) for _ in range((0, 2, 300)[way]) for line in part]
    elif way == 3:
        del log[slot : slot + 1]
        log[target:target] = part
    elif way == 4:
        del log[slot:]
    else:
        log.reverse()


def contradict(draw: st.DrawFn, log: Log) -> None:
    """A verdict twice, the second time another; or a second end of the run."""
    if line := copy.deepcopy(_line(draw, log, "variant-finished", "run-finished")):
        key = "verdict" if "verdict" in line else "exit_code"
        line[key] = draw(st.sampled_from(("PASS", "FAIL", "XPASS", "NOT-RUN", 0, 1, 77, "x", None)))
        log.insert(draw(st.integers(0, len(log))), line)


def add_line(draw: st.DrawFn, log: Log) -> None:
    """A line that is no event, or one that the schema accepts."""
    kinds = [name for name in schema("events")["definitions"] if name.startswith(("run-", "variant-", "notice"))]
    kind = draw(st.sampled_from(sorted(kinds)))
    event = values(schema("events")["definitions"][kind], "events").map(lambda data: {**data, "event": kind})
    log.insert(draw(st.integers(0, len(log))), draw(st.one_of(st.sampled_from(_LINES), event)))


_EDITS: tuple[Callable[[st.DrawFn, Log], None], ...] = (
    *(change_value,) * 10, *(change_alike,) * 6, *(change_start,) * 4, *(move_lines,) * 4, *(contradict,) * 2,
    *(add_line,) * 3,
)  # fmt: skip


@st.composite
def log_trials(draw: st.DrawFn, logs: tuple[bytes, ...]) -> Trial:
    """A changed log of one of the runs, with the spec file of its run, and a command on it."""
    base = draw(st.integers(0, len(logs) - 1))
    log: Log = [json.loads(line) for line in logs[base].splitlines()]
    for _ in range(draw(st.integers(1, 4))):
        draw(st.sampled_from(_EDITS))(draw, log)
    data = b"".join((line if isinstance(line, bytes) else _written(line)) + b"\n" for line in log)
    if draw(st.integers(0, 9)) == 9:
        data = draw(damages())(data)
    files = {"zq/events.jsonl": data, SPEC_NAME: SPEC.encode()}
    shards = len(logs) - 2, len(logs) - 1
    if base in shards:
        files["second/events.jsonl"] = logs[sum(shards) - base]
    return Trial("log", files, draw(_words(base in shards)), None, draw(st.integers(0, 7)) == 7)


def _written(value: Any) -> bytes:
    text = json.dumps(value)
    for number, raw in enumerate(_RAW):
        text = text.replace(f'"zqraw{number}end"', raw)
    return text.encode("utf-8", "surrogatepass")


@st.composite
def _words(draw: st.DrawFn, shard: bool) -> tuple[str, ...]:
    log = draw(st.sampled_from(("zq", "zq/events.jsonl")))
    joined = (("merge", log, "second", "-o", "out"), ("merge", log, "-o", "out"),
              ("merge", "second", log, "-o", "out", "--junit-dialect", "strict"))  # fmt: skip
    if shard and draw(st.integers(0, 3)):
        return draw(st.sampled_from(joined))
    words = draw(st.sampled_from((
        ("report", log), ("report", log), ("report", log, "--junit", "-"),
        ("report", log, "--junit", "-", "--junit-dialect", "strict"),
        ("ledger", SPEC_NAME, "--run", log), ("ledger", SPEC_NAME, "--update", log, "--dry-run"),
        ("ledger", SPEC_NAME, "--update", log, "--dry-run", "--add"),
        ("resume", log), ("resume", log), ("rerun", log), ("rerun", "--failed", log),
        ("rerun", log, "--", "-k", "relu"),
    )))  # fmt: skip
    yes = words[0] in ("resume", "rerun") and draw(st.booleans())  # foreign logs are asked about
    return (words[0], "--yes", *words[1:]) if yes else words
