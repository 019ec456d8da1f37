"""Changed copies of event logs, for ``bench/fuzz.py``. The logs come of runs under ``fuzz_engine``, so that they are what this version writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from fuzz_payloads import PAYLOADS
from fuzz_process import Folder, forked
from fuzz_yaml import changed_bytes

SPEC = """\
defaults: {tags: [fuzz]}
cases:
  - name: relu
    inputs: {x: [4]}
    chain: [F.relu]
    dtypes: [float32, float64]
    known: [{stage: inductor, oracle: [value, stride], reason: known here}]
  - name: add
    params: {n: [1, 2, 3]}
    inputs: {x: ["${n}"]}
    chain: [{torch.add: [$_, "${n}"]}]
    known:
      - {stage: inductor, oracle: [compile-error], error: "Cpp.*Error", torch: "<2.0", issue: "https://example.org/1"}
      - {backend: [aot_eager], reason: never}
  - name: linear
    inputs: {x: [2, 3]}
    grad: backward
    chain: [{nn.Linear: [3, 4]}]
"""
SPEC_NAME = "a.spec.yaml"
_RUN = ["run", SPEC_NAME, "--backend", "aot_eager", "--backend", "inductor", "-j", "1"]
_RUNS: tuple[tuple[list[str], int | None], ...] = (
    (_RUN, None),
    ([*_RUN, "--no-known"], None),
    (_RUN, 5),
    ([*_RUN, "--shard", "1/2"], None),
    ([*_RUN, "--shard", "2/2"], None),
    ([*_RUN, "--stress", "2", "--retries", "1"], None),
)
WHOLE, FIRST_SHARD, SECOND_SHARD = 0, 3, 4
"""Numbers of logs in ``base_logs``."""

Log = list[Any]
"""Lines: JSON objects, or bytes."""


def base_logs(folder: Folder) -> tuple[bytes, ...]:
    """The logs of runs in ``folder``, which is ``@WORK@`` in them. Raises RuntimeError when a run leaves none."""
    logs = []
    for words, most in _RUNS:
        folder.clear()
        folder.write({SPEC_NAME: SPEC.encode()})
        outcome = forked(words, folder.path, most=most)
        journals = sorted(folder.path.glob(".runner/runs/*/events.jsonl"))
        if len(journals) != 1:
            raise RuntimeError(
                f"runner {' '.join(words)} left {len(journals)} logs: {outcome.out.decode()} {outcome.err.decode()}"
            )
        logs.append(journals[0].read_bytes().replace(bytes(folder.path), b"@WORK@"))
    folder.clear()
    return tuple(logs)


def log_lines(data: bytes) -> Log:
    """A log as its lines' values."""
    return [json.loads(line) for line in data.splitlines()]


_RAW = (
    "NaN", "Infinity", "-Infinity", "1e400", "-0", "9" * 30, "9" * 5000, "1" + "0" * 400 + ".5", "[" * 50_000, "[" * 500 + "]" * 500, '{"a":' * 900 + "1" + "}" * 900,
    '{"a": 1, "a": 2}', '"\\ud800"', '"\\u0000\\u001b[2J\\u202e"', '"\\x41"', "tru", "'x'", '"', "", "1 2", "{", "\x00", "\ufeff1", "0x10",
)  # fmt: skip
_WORDS = (
    "PASS", "FAIL", "ERROR", "XPASS", "XFAIL", "SKIP", "FLAKY", "VACUOUS", "INVALID", "NOT-RUN", "BROKEN", "pass", "EVIL\x1b[2J", "", "value", "compile-error", "signal",
    "dynamo", "aot", "inductor", "ok", "1/2", "2/2", "0/0", "3/2", "1/1", "-1/-1", "2026-01-02T03:04:05", "2.13.0", "2.6", "9.9.9", "not a version", "latest", "..", "/",
    "a.spec.yaml:1:1", "a.spec.yaml:0:0", "nowhere.yaml:99:99", "/dev/zero:1:1", "x" * 100_000, "é\U0001f600", "a\nb", "a::b", "[", "@", "cpu", "SIGSEGV", "warning", "error",
)  # fmt: skip
_VALUES = (
    None, True, False, 0, 1, -1, 2, 77, 300, 2**31, 2**63, 10**18, -(10**18), 10**400, 0.5, -0.5, 1e308, float("nan"), float("inf"), float("-inf"), "", "x", "1", [], {}, [[]],
    [None], {"": None}, [1, 2], {"a": 1}, ["a", 1], [["a"]], {"type": "x"}, {"type": 1, "message": [], "chain": 5, "trace": {}},
)  # fmt: skip
_KEYS = ("event", "id", "torch", "run", "argv", "cwd", "plan", "shard", "planned", "total", "verdict", "seconds", "findings", "number", "line", "exit_code", "folder", "zq", "", "environments",
         "self", "__class__", "stamp", "version", "schema", "label", "case", "file", "params")  # fmt: skip
_ARGV = (
    ["runner"], [], ["runner", "run"], ["runner", "bench", "."], ["runner", "list", "a.spec.yaml"], ["runner", "run", "--help"], ["runner", "--version"], ["runner", "run", ""],
    ["runner", "run", "a.spec.yaml", "--python", "./zq.sh"], ["runner", "run", "a.spec.yaml", "--allow-python"], ["runner", "run", "a.spec.yaml", "--import", "zq_module"],
    ["runner", "run", "a.spec.yaml", "--junit", "zq.xml"], ["runner", "run", "a.spec.yaml", "--events", "../zq.jsonl"], ["runner", "run", "a.spec.yaml", "--nope"],
    ["runner", "run", "a.spec.yaml", "-j", "99999999999999999999"], ["runner", "run", "a.spec.yaml", "-j", "x"], ["runner", "run", "a.spec.yaml", "--seed", "9" * 30],
    ["runner", "run", "a.spec.yaml", "--budget", "-5s"], ["runner", "run", "a.spec.yaml", "--shard", "0/0"], ["runner", "run", "a.spec.yaml", "--limit", "variants=0"],
    ["runner", "run", "a.spec.yaml", "-k", "("], ["runner", "run", "a.spec.yaml", "--device", "zq"], ["runner", "run", "zq\x1b[2J\u202e.spec.yaml"], ["runner", "run", "\x00"],
    ["runner", "run", "a.spec.yaml::zq"], ["runner", "rerun"], "runner run a.spec.yaml", 5, None, [1, 2], [["run"]], {"run": 1}, ["runner", "run", 5], ["runner", 5, "a.spec.yaml"],
    ["runner", "run", "-h"], ["runner", "run", "a.spec.yaml", "--", "x"], ["runner", "run", "a.spec.yaml", "--durations", "/dev/zero"], ["runner", "run", "@/etc/passwd"],
)  # fmt: skip
_FOLDERS = (
    "",
    "/",
    "..",
    "/nonexistent",
    "/dev/null",
    "/proc/self",
    "\x00",
    "zq\x1b[2J",
    "x" * 5000,
    "@WORK@/zq",
    5,
    None,
    [],
    ["/"],
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    places = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        places.append((value, key))
        places += _places(item)
    return places


def _text(random: Random) -> str:
    return random.choice(random.choice((PAYLOADS, _WORDS, _WORDS)))


def _pick(log: Log, random: Random) -> tuple[Any, Any] | None:
    objects = [line for line in log if isinstance(line, dict)]
    if not objects:
        return None
    rare = [line for line in objects if line.get("event") in ("run-started", "run-finished", "run-resumed")]
    line = random.choice(rare if rare and random.random() < 0.3 else objects)
    return random.choice(_places(line) or [(line, "event")])


def alike(log: Log, random: Random) -> None:
    """Another value of the same type."""
    if place := _pick(log, random):
        parent, key = place
        value = parent[key] if isinstance(parent, list) else parent.get(key)
        if isinstance(value, bool):
            parent[key] = not value
        elif isinstance(value, int | float):
            parent[key] = random.choice([v for v in _VALUES if isinstance(v, int | float) and not isinstance(v, bool)])
        elif isinstance(value, list):
            parent[key] = value * random.choice((0, 2, 3))
        else:
            parent[key] = _text(random)


def replace(log: Log, random: Random) -> None:
    """Any value at any place."""
    if place := _pick(log, random):
        place[0][place[1]] = random.choice(
            (random.choice(_VALUES), _text(random), f"zqraw{random.randrange(len(_RAW))}end")
        )


def remove(log: Log, random: Random) -> None:
    """A key or item less."""
    if place := _pick(log, random):
        if isinstance(place[0], list):
            del place[0][place[1]]
        else:
            place[0].pop(place[1], None)


def add(log: Log, random: Random) -> None:
    """A key that is foreign, or another line's."""
    objects = [line for line in log if isinstance(line, dict)]
    if objects:
        random.choice(objects)[random.choice(_KEYS)] = random.choice((random.choice(_VALUES), _text(random)))


def exchange(log: Log, random: Random) -> None:
    """The values of two places changed for each other."""
    first, second = _pick(log, random), _pick(log, random)
    if first and second and first[1] in _keys(first[0]) and second[1] in _keys(second[0]):
        value = json.dumps(second[0][second[1]])
        second[0][second[1]] = json.loads(json.dumps(first[0][first[1]]))
        first[0][first[1]] = json.loads(value)


def _keys(value: Any) -> Any:
    return value if isinstance(value, dict) else range(len(value))


def foreign_start(log: Log, random: Random) -> None:
    """A command line or folder that nobody asked for."""
    for line in log:
        if isinstance(line, dict) and line.get("event") == "run-started":
            key = random.choice(("argv", "argv", "argv", "cwd", "folder", "plan", "shard", "environments", "run"))
            pool: tuple[Any, ...] = {"argv": _ARGV, "cwd": _FOLDERS, "folder": _FOLDERS}.get(key, (*_VALUES, *_WORDS))
            line[key] = json.loads(json.dumps(random.choice(pool)))


def move_lines(log: Log, random: Random) -> None:
    """A line less, twice, elsewhere; or the order reversed."""
    if not log:
        return
    slot, way = random.randrange(len(log)), random.random()
    if way < 0.25:
        del log[slot]
    elif way < 0.5:
        log.insert(
            random.randint(0, len(log)), json.loads(json.dumps(log[slot])) if isinstance(log[slot], dict) else log[slot]
        )
    elif way < 0.75:
        log.insert(random.randrange(len(log)), log.pop(slot))
    elif way < 0.8:
        log.reverse()
    elif way < 0.9:
        del log[slot:]
    else:
        log.extend(log[slot] for _ in range(random.choice((5, 300))))


def contradict(log: Log, random: Random) -> None:
    """A verdict twice, the second time another."""
    finished = [line for line in log if isinstance(line, dict) and line.get("event") == "variant-finished"]
    if finished:
        line = json.loads(json.dumps(random.choice(finished)))
        line["verdict"] = random.choice(_WORDS)
        log.insert(random.randint(0, len(log)), line)


def foreign_line(log: Log, random: Random) -> None:
    """A line that is no event."""
    lines: tuple[Any, ...] = (b"", b"{}", b"[]", b"null", b"1", b'"x"', b"not json", b"\xff\xfe\x00", b'{"event": "zq"}', b'{"event": null}', b'{"event": []}', b'{"event": {}}',
                              b'{"event": "notice", "message": "\\u001b[2J\\u202e", "severity": "zq"}', b'{"event": "run-resumed", "run": 1, "started": 2, "finished": "x"}',
                              b'{"event": "run-finished", "exit_code": "x", "seconds": null}', b'{"event": "run-finished", "exit_code": 77, "seconds": -1}',
                              b"[" * 100_000, b"x" * 3_000_000, b"\x00" * 1000)  # fmt: skip
    log.insert(random.randint(0, len(log)), random.choice(lines))


_EDITS: tuple[tuple[Callable[[Log, Random], None], int], ...] = (
    (alike, 8), (replace, 8), (remove, 4), (add, 3), (exchange, 2), (foreign_start, 5), (move_lines, 4), (contradict, 2), (foreign_line, 3),
)  # fmt: skip


def changed(data: bytes, numbers: tuple[int, ...]) -> bytes:
    """A log with these edits."""
    log = log_lines(data)
    byte_edits = []
    for number in numbers:
        random = Random(number)
        if random.random() < 0.06:
            byte_edits.append(number)
            continue
        (change,) = random.choices([change for change, _ in _EDITS], [weight for _, weight in _EDITS])
        change(log, random)
    data = b"".join((line if isinstance(line, bytes) else _line(line)) + b"\n" for line in log)
    for number in byte_edits:
        data = changed_bytes(data, Random(number))
    return data


def _line(value: Any) -> bytes:
    text = json.dumps(value)
    for number, raw in enumerate(_RAW):
        text = text.replace(f'"zqraw{number}end"', raw)
    return text.encode("utf-8", "surrogatepass")


def commands(random: Random, base: int, asks: bool) -> list[str]:
    """The words of a command on the log ``zq/events.jsonl``, which came of run ``base``. ``asks``: foreign logs need ``--yes``."""
    log = random.choice(("zq", "zq/events.jsonl"))
    choices: tuple[list[str], ...] = (
        ["report", log], ["report", log], ["report", log, "--junit", "-"], ["report", log, "--junit", "-", "--junit-dialect", "strict"],
        ["ledger", SPEC_NAME, "--run", log], ["ledger", SPEC_NAME, "--update", log, "--dry-run"], ["ledger", SPEC_NAME, "--update", log, "--dry-run", "--add"],
        ["resume", log], ["resume", log], ["rerun", log], ["rerun", "--failed", log], ["rerun", log, "--", "-k", "relu"],
    )  # fmt: skip
    if base in (FIRST_SHARD, SECOND_SHARD) and random.random() < 0.7:
        return random.choice(
            (
                ["merge", log, "second", "-o", "out"],
                ["merge", "second", log, "-o", "out", "--junit-dialect", "strict"],
                ["merge", log, "-o", "out"],
            )
        )
    words = random.choice(choices)
    return (
        [*words[:1], "--yes", *words[1:]]
        if asks and words[0] in ("resume", "rerun") and random.random() < 0.6
        else words
    )


def beside(logs: tuple[bytes, ...], base: int, with_spec: bool) -> Mapping[str, bytes]:
    """The files beside a changed log: the spec file of its run, and for a shard the other one."""
    files = {SPEC_NAME: SPEC.encode()} if with_spec else {}
    if base in (FIRST_SHARD, SECOND_SHARD):
        files["second/events.jsonl"] = logs[SECOND_SHARD if base == FIRST_SHARD else FIRST_SHARD]
    return files
