"""bench/capture.py: when a captured model has the verdict of the model itself. Nothing is captured."""

from __future__ import annotations

import json
from pathlib import Path

from runner.contract.finding import Finding
from runner.record.events import to_json
from tests.report.events_sample import finished, started
from tests.script_modules import script_module


def event(file: str, case: str, verdict: str, *oracles: str) -> str:
    findings = tuple(Finding(oracle, "it differs", "output") for oracle in oracles)
    return json.dumps(to_json(finished(verdict, case, "acme", file=file, findings=findings)))


def test_a_model_fails_if_one_of_its_graphs_does(tmp_path: Path) -> None:
    captured = "/f/captured/{}/any.spec.yaml".format
    lines = [
        event(captured("bert"), "bert_model", "PASS"), event(captured("bert"), "bert_model_2", "FAIL", "value", "grad"),
        event("/f/modules/models.spec.yaml", "bert", "FAIL", "value"),
        event(captured("vit"), "vi_tmodel", "PASS"), event("/f/modules/models.spec.yaml", "vit", "ERROR", "timeout"),
        event(captured("alone"), "alone", "PASS"), json.dumps(to_json(started())),
    ]  # fmt: skip
    log = tmp_path / "events.jsonl"
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert [*script_module("capture").compare([log])] == [
        "same bert acme: captured PASS, FAIL grad value; module FAIL value",
        "DIFFERENT vit acme: captured PASS; module ERROR timeout",
    ]
