"""Ledgers in files of their own: what is read, what is refused and where, and which variants they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cases.model import Variant
from runner.cases.suites import PathError
from runner.diagnostics import InputError
from runner.session.collect import collect, load
from runner.session.settings import RunSettings
from tests.handmade import loaded, variants, written

ENTRY = "{operators: [F.relu], oracle: [value], reason: r}"


def ledger(folder: Path, *entries: str, name: str = "acme.ledger.yaml") -> Path:
    return written(folder, "known:\n" + "".join(f"  - {entry}\n" for entry in entries), name)


def messages(path: Path, **options: bool) -> list[str]:
    with pytest.raises(InputError) as error:
        load([str(path.with_name("a.spec.yaml"))], ledgers=[str(path)], **options)
    return [f"{d.span.line}:{d.span.column}: {d.message} = {d.hint}" for d in error.value.diagnostics]


def test_an_option_names_a_file_for_each_variant(tmp_path: Path) -> None:
    variants(tmp_path, "params: {n: [1, 2]}")
    path = ledger(tmp_path, ENTRY)
    settings = RunSettings(ledger=(str(path), str(path)))
    chosen = collect([tmp_path / "a.spec.yaml"], settings).variants
    assert [[entry.reason for entry in variant.ledger] for variant in chosen] == [["r"], ["r"]]
    assert chosen[0].known == chosen[0].ledger and chosen[0].case.known == ()
    assert chosen[0].ledger[0].operators == ("F.relu",) and chosen[0].ledger[0].span.line == 2


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{oracle: [value], reason: "TODO: 3 variants"}', "2:31: this reason is still to be written"),
        ("{oracle: [value]}", "2:5: "),
        ("{operators: [F.gleu], reason: r}", "2:18: 'F.gleu' matches no operator = did you mean "),
        ("{oracel: [value], reason: r}", "2:6: "),
        ("{error: '(', reason: r}", "2:13: error: not a regular expression"),
        ("{case: 5, reason: r}", "2:12: "),
    ],
)
def test_what_is_wrong_is_said_at_its_place(tmp_path: Path, entry: str, message: str) -> None:
    variants(tmp_path, "")
    (said,) = messages(ledger(tmp_path, entry))
    assert said.startswith(message)


def test_drafts_may_be_read_where_they_go_on(tmp_path: Path) -> None:
    variants(tmp_path, "")
    path = ledger(tmp_path, '{oracle: [value], reason: "TODO: 3 variants"}')
    (variant,) = loaded(tmp_path / "a.spec.yaml", ledgers=[str(path)], drafts=True).variants
    assert variant.ledger[0].reason == "TODO: 3 variants"


@pytest.mark.parametrize("name", ["gone.ledger.yaml", "acme.yaml", "a.spec.yaml"])
def test_a_path_that_is_no_ledger(tmp_path: Path, name: str) -> None:
    variants(tmp_path, "")
    written(tmp_path, "known: []\n", "acme.yaml")
    with pytest.raises(PathError, match=r"no such file|ledgers end in \.ledger\.yaml"):
        load([str(tmp_path / "a.spec.yaml")], ledgers=[str(tmp_path / name)])


def test_a_suite_names_one_for_itself_and_for_its_backends(tmp_path: Path) -> None:
    variants(tmp_path, "")
    ledger(tmp_path, ENTRY)
    mine = written(
        tmp_path, "suite: mine\nspecs: [a.spec.yaml]\nbackends: [acme]\nledger: acme.ledger.yaml\n", "mine.suite.yaml"
    )
    other = written(tmp_path, "suite: other\nspecs: [a.spec.yaml]\nbackends: [eager]\n", "other.suite.yaml")
    profile = written(tmp_path, "suite: acme_profile\nbackends: [acme]\nledger: acme.ledger.yaml\n", "p.suite.yaml")

    def told(*paths: Path, backends: tuple[str, ...] = ()) -> dict[str, int]:
        return {v.backend.name: len(v.ledger) for v in loaded(*paths, backends=backends).variants}

    assert told(mine, other) == {"acme": 1, "eager": 0}
    assert told(mine, backends=("aot_eager",)) == {"aot_eager": 1}
    assert told(other, profile, backends=("acme", "eager")) == {"acme": 1, "eager": 0}


def test_a_suite_that_names_none_there_is_refused(tmp_path: Path) -> None:
    suite = written(tmp_path, "suite: mine\nledger: gone.ledger.yaml\n", "mine.suite.yaml")
    (error,) = load([str(suite)]).errors
    assert (error.span.line, error.span.column, error.message) == (2, 9, "no file matches 'gone.ledger.yaml'")


def test_what_is_left_out_is_known_where_a_ledger_may_speak_of_it(tmp_path: Path) -> None:
    variants(tmp_path, "params: {n: [1, 2, 3]}")
    path, file = ledger(tmp_path, ENTRY), tmp_path / "a.spec.yaml"

    def ids(left_out: tuple[Variant, ...]) -> list[object]:
        return [variant.params["n"] for variant in left_out]

    case = f"{file}::a[n=1,float32,cpu]@inductor"
    assert ids(collect([case], RunSettings(ledger=(str(path),))).left_out) == [2, 3]
    assert ids(collect([file], RunSettings(ledger=(str(path),), select="n=2")).left_out) == [1, 3]
    assert collect([file], RunSettings(select="n=2")).left_out == ()


def test_validate_takes_ledgers_and_folders_of_them(tmp_path: Path) -> None:
    path = ledger(tmp_path, ENTRY, "{oracle: [value], reason: TODO}")
    for name in (path, tmp_path):
        (error,) = load([str(name)], everything=True).errors
        assert (error.span.line, error.message) == (3, "this reason is still to be written")
    assert load([str(ledger(tmp_path, ENTRY))], everything=True).entries == 1
