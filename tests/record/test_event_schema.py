"""The published schema of event logs against the events, and the quick check of it against a general validator."""

from __future__ import annotations

import dataclasses
import json
import random
import time
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

import pytest

from runner.cases.yaml.schema import _validator, load_schema
from runner.cli.main import main
from runner.contract.finding import Finding
from runner.record import events as events_module
from runner.record.event_schema import Unfit, compile_schema, event_checks
from runner.record.events import GREEN, RED, Event, Notice, RunResumed, VariantStarted, from_json, to_json
from runner.record.journal import read_journal
from runner.report.junit import KINDS
from tests.handmade import finding, played, variants
from tests.mutations import edit, written
from tests.report.events_sample import NASTY, every_verdict, failure, finished, started
from tests.scripted import only, run, wrong

SCHEMA = load_schema("events")
DEFINITIONS: dict[str, Any] = SCHEMA["definitions"]
KINDS_OF_EVENT: dict[str, type] = events_module._CLASSES
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def json_types(hint: Any) -> set[str]:
    """The JSON types of a field's type."""
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        return {name for part in typing.get_args(hint) for name in json_types(part)}
    origin = typing.get_origin(hint)
    if origin is tuple:
        return {"array"}
    if origin is not None and issubclass(origin, Mapping):
        return {"object"}
    return {JSON_TYPES[hint]}


def target(schema: dict[str, Any]) -> dict[str, Any]:
    return target(DEFINITIONS[schema["$ref"].rpartition("/")[2]]) if "$ref" in schema else schema


@pytest.mark.parametrize(("kind", "cls"), [*KINDS_OF_EVENT.items(), ("finding", Finding)])
def test_schema_and_dataclasses_agree(kind: str, cls: type) -> None:
    schema, hints = DEFINITIONS[kind], typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    assert schema["properties"].keys() == fields.keys()
    needed = {name for name, field in fields.items()
              if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING}  # fmt: skip
    assert set(schema["required"]) == needed
    for name in fields:
        types = target(schema["properties"][name])["type"]
        assert {types} if isinstance(types, str) else set(types) == json_types(hints[name]), name


def test_every_kind_of_event_has_its_rule() -> None:
    rules = {rule["if"]["properties"]["event"]["const"]: rule["then"]["$ref"] for rule in SCHEMA["allOf"]}
    assert rules == {kind: f"#/definitions/{kind}" for kind in KINDS_OF_EVENT}
    assert event_checks().keys() == KINDS_OF_EVENT.keys()


def test_words_are_those_of_the_format_and_of_reports() -> None:
    assert DEFINITIONS["oracle"]["enum"] == load_schema("definitions")["definitions"]["oracle"]["enum"]
    verdicts = DEFINITIONS["verdict"]["enum"]
    assert {*verdicts} == {*GREEN, *RED, "NOT-RUN"} == {"PASS", *KINDS}


def described(schema: Any, where: str) -> Iterator[str]:
    """Members without a description."""
    for group in ("properties", "definitions"):
        for name, part in schema.get(group, {}).items():
            if not target(part).get("description"):
                yield f"{where}/{name}"
            yield from described(part, f"{where}/{name}")


def test_the_schema_is_draft_07_and_says_what_each_key_is(capsys: pytest.CaptureFixture[str]) -> None:
    from jsonschema import Draft7Validator

    assert main(["schema", "events"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == SCHEMA and printed["$schema"] == "http://json-schema.org/draft-07/schema#"
    Draft7Validator.check_schema(printed)
    assert [*described(SCHEMA, "")] == []


def test_a_keyword_that_the_quick_check_does_not_know_is_no_silent_hole() -> None:
    for schema in ({"format": "x"}, {"items": {"oneOf": []}}, {"properties": {}, "additionalProperties": {}}):
        with pytest.raises(ValueError, match="no check for"):
            compile_schema(schema, {})


def samples(folder: Path) -> list[Event]:
    """The events of runs by hand and by a script, with everything that an event can hold."""
    chosen = variants(folder, "params: {n: [1, 2], k: [3]}\nknown: [{oracle: [grad], reason: r}]")
    answers = [finding("value", numbers={"mismatched": 3, "elements": 4, "worst_index": [0], "eager": "nan"}), "PASS"]
    events = played(chosen, ["2.6.0", "2.13.0"], lambda v, t: answers[v.params["n"] - 1])
    for script in (
        only(),
        only("main", **wrong(mismatched=1, elements=2)),
        only("main", ended="signal", signal="SIGSEGV", stack="f\ng", output=NASTY),
        only("main", ended="timeout"),
        only("main", trust={"verdict": "INVALID", "reason": "r", "error": None}),
        only("main", trust={"verdict": "SKIP", "reason": "r"}),
        only("main", ended="broken", detail="x"),
    ):
        events += run(chosen[:1], script)[2]
    extra = [
        started("2.6", "2.13"),
        *every_verdict(),
        failure(reason=NASTY, params={"a": [1, {"b": None}], "c": 1e300}),
    ]
    again = [RunResumed("r", "now", 3), VariantStarted("i", "t"), Notice(NASTY, "error"), finished(seconds=0)]
    return [*events, *extra, *again]


def test_what_runs_write_fits_the_schema(tmp_path: Path) -> None:
    events = samples(tmp_path)
    lines = written(tmp_path / "log.jsonl", events, plan="abc", shard="1/2")
    for line in lines:
        assert not [*_validator("events", any_device=False).iter_errors(json.loads(line))]
    read_events, problems = read_journal(tmp_path / "log.jsonl")
    assert read_events == events and not problems


def test_a_log_without_a_schema_is_of_version_1_and_another_version_is_refused() -> None:
    data = {"event": "run-started", "run": "r", "version": "0", "argv": [], "started": "s", "host": "h", "folder": "f"}
    assert from_json(data) == events_module.RunStarted("r", "0", (), "s", "h", "f", schema=1)  # type: ignore[arg-type]
    with pytest.raises(Unfit, match=r"^schema: expected 1, found 2$"):
        from_json({**data, "schema": 2})


def fits(data: dict[str, Any]) -> bool:
    try:
        event_checks()[data["event"]](data)
    except Unfit:
        return False
    return True


def test_both_checks_agree_on_edited_lines(tmp_path: Path) -> None:
    rng = random.Random(1)
    lines = [json.loads(line) for line in written(tmp_path / "log.jsonl", samples(tmp_path), plan="abc")]
    slow = _validator("events", any_device=False)
    good = 0
    for number in range(4000):
        kind = lines[number % len(lines)]["event"]
        data = edit(rng, lines[number % len(lines)])
        if isinstance(data, dict):
            data = {**data, "event": kind}
            agreed = fits(data)
            assert agreed == slow.is_valid(data), (data, [*slow.iter_errors(data)])
            good += agreed
    assert 500 < good < 3500  # else the edits show nothing


@pytest.mark.parametrize(
    "name", ["id", "verdict", "suites", "seconds", "findings", "stages", "params", "signal", "known"]
)
def test_a_wrong_type_is_said_with_its_place(name: str) -> None:
    data = json.loads(json.dumps(to_json(failure())))
    for value in (3, "x", [3], {"x": {"y": 3}}, True):
        try:
            slow = _validator("events", any_device=False).is_valid({**data, name: value})
            event_checks()["variant-finished"]({**data, name: value})
        except Unfit as error:
            assert str(error).startswith(name) and not slow
        else:
            assert slow


def test_a_long_log_is_read_in_seconds(tmp_path: Path) -> None:
    """100,000 variants take 3.5 s of a processor; here a twentieth of them, with room for a busy machine."""
    path = tmp_path / "log.jsonl"
    line = written(path, [finished("PASS")])[0]
    path.write_bytes((line + b"\n") * 5000)
    begin = time.process_time()
    assert len(read_journal(path)[0]) == 5000
    assert time.process_time() - begin < 1.5
