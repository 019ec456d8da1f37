"""``runner.toml`` and ``[tool.runner]``: what they give to options, and what is said of wrong ones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.cases.yaml.schema import load_schema
from runner.cli.arguments import KEYS, Parser, settable, settings_of
from runner.cli.main import COMMANDS, FORMS, entrance, main
from runner.cli.project import has_project, read_project
from runner.cli.run import run_parser
from runner.cli.trust import with_project
from runner.exit_codes import UsageError
from tests.handmade import Dig

CASES = "cases:\n  - {name: a, inputs: {x: [2]}, chain: [F.relu]}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a case, as the current folder, and a user who has trusted nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    own = tmp_path / "own"
    (own / "specs").mkdir(parents=True)
    (own / ".git").mkdir()
    (own / "specs" / "a.spec.yaml").write_text(CASES)
    monkeypatch.chdir(own)
    return own


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    capsys.readouterr()
    assert main(["list", *words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out.split()


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main([*words]) == 4
    text = capsys.readouterr()
    assert text.out == ""
    return text.err


def test_a_setting_is_the_default_of_its_option(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "runner.toml").write_text('paths = ["specs"]\nbackend = ["aot_eager", "eager"]\n')
    case = "specs/a.spec.yaml::a[float32,cpu]"
    assert listed(capsys) == [f"{case}@aot_eager", f"{case}@eager"]
    assert listed(capsys, "--backend", "inductor") == [f"{case}@inductor"], "a list is replaced"
    assert listed(capsys, "specs/a.spec.yaml", "--no-project") == [f"{case}@inductor"]


def test_an_id_says_which_backend_is_meant(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "runner.toml").write_text('backend = ["aot_eager", "eager"]\n')
    for backend in ("inductor", "eager"):
        case = f"specs/a.spec.yaml::a[float32,cpu]@{backend}"
        assert listed(capsys, case) == [case]


def test_the_nearest_file_counts_and_its_paths_are_relative_to_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / "runner.toml").write_text("bad = 1\n")
    below = folder / "x" / "y"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert read_project() is None, "above the root of a repository nothing is looked for"
    (folder / "pyproject.toml").write_text('[tool.other]\nx = 1\n[tool.runner]\npaths = ["specs"]\n')
    assert listed(capsys) == ["../../specs/a.spec.yaml::a[float32,cpu]@inductor"]
    (folder / "x" / "pyproject.toml").write_text("[tool.other]\nrunner = 1\n")
    assert len(listed(capsys)) == 1, "a file without a table of the runner is passed by"
    (folder / "x" / "runner.toml").write_text('paths = ["../specs"]\nbackend = ["eager"]\n')
    assert listed(capsys) == ["../../specs/a.spec.yaml::a[float32,cpu]@eager"]


def test_what_everybody_may_write_to_is_not_looked_through(folder: Path) -> None:
    (folder / "x").mkdir()
    (folder / "runner.toml").write_text("jobs = 1\n")
    folder.chmod(0o777)
    os.chdir(folder / "x")
    assert read_project() is None
    folder.chmod(0o755)
    assert read_project() is not None


def words_of(folder: Path, text: str) -> list[str]:
    (folder / "runner.toml").write_text(text)
    project = read_project()
    assert project is not None
    actions = settable(run_parser())
    return [word for each in project.settings for word in project.words(each, actions[each.key], {})]


def test_settings_are_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        paths = ["-x", "specs::a"]
        confirm = false
        no-known = true
        cached = false
        seed = -3
        budget = "10m"
        python = ["python3", "env/bin/python"]
        report = ["events=out.jsonl"]
        verbose = true
    """
    plain = ["./-x", "specs::a", "--no-confirm", "--no-known", "--seed=-3", "--budget=10m", "--python=python3"]
    assert words_of(folder, text) == [*plain, "--python=env/bin/python", "--report=events=out.jsonl", "--verbose"]
    (folder / "x").mkdir()
    monkeypatch.chdir(folder / "x")
    project = read_project()
    assert project is not None
    actions = settable(run_parser())
    words = [word for each in project.settings for word in project.words(each, actions[each.key], {})]
    assert words[:2] == ["../-x", "../specs::a"]
    assert words[6:9] == ["--python=python3", "--python=../env/bin/python", "--report=events=../out.jsonl"]


def test_the_command_line_of_a_run_says_what_the_file_gave(folder: Path) -> None:
    (folder / "runner.toml").write_text("seed = 7\nconfirm = false\njobs = 4\n")
    parser = Parser()
    entrance("run").add(parser)
    words = with_project(["run", "specs", "-j", "2"], parser)
    assert words == ["run", "--no-project", "--seed=7", "--no-confirm", "specs", "-j", "2"]
    settings = settings_of(run_parser().parse_args(words[1:]))
    assert (settings.seed, settings.confirm, settings.jobs) == (7, False, 2)
    assert settings.flags() == ("--seed", "7", "--no-project"), "what printed commands repeat"


def test_the_schema_has_the_keys_and_each_is_an_option_of_run() -> None:
    schema = load_schema("project")
    assert schema["properties"].keys() == KEYS.keys() == settable(run_parser()).keys()
    assert all(part["description"] for part in schema["properties"].values()) and not schema["additionalProperties"]


def test_an_option_of_another_meaning_is_left_alone() -> None:
    keys = {}
    for name in [*COMMANDS, *FORMS.values()]:
        parser = Parser()
        entrance(name).add(parser)
        keys[name] = settable(parser).keys()
        assert ("--no-project" in parser._option_string_actions) == bool(keys[name])
    assert "html" in keys["run"] and "html" not in keys["diagnose"] and "backend" not in keys["diff"]
    without = {name for name, own in keys.items() if not own}
    assert without == {"board", "config", "diff", "history", "new", "operators", "resume", "rerun", "schema", "warm"}


WRONG = {
    "jbos = 1": "runner.toml:1:1: error: unknown key 'jbos'",
    "\njobs = 'x'": "runner.toml:2:8: error: expected an integer, found the text 'x'",
    "jobs = {a.b = 1}": "expected an integer, found a mapping",
    "backend = 'eager'": "runner.toml:1:11: error: expected a list of texts",
    "paths = [[['a']]]": "expected a text in quotes, found a list",
    "limit = ['x=1']\nlimit = []": "error: no TOML: Cannot overwrite a value",
    "jobs = ": "runner.toml:1:7: error: no TOML: ",
    "a = " + "[" * 5000: "no TOML: lists lie too deep in each other",
    "a = " + "9" * 5000: "no TOML: ",
    "seed = 0x" + "f" * 5000: "is too large",
    "seed = 1979-05-27": "found the text '1979-05-27'",
    "a." * 900 + "a = 1": "unknown key 'a'",
    "a." * 9000 + "a = 1": "or a line of more than 1,000 dots",
    "# " + "x" * 300_000: "runner.toml has more than 262,144 bytes",
    "budget = '0s'": "runner.toml:1:10: error: budget: '0s' is no time",
    "values = 'x'": "runner.toml:1:10: error: values: 'x' is not one of bitwise",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:12])
def test_what_is_wrong_is_said_at_its_place(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (folder / "runner.toml").write_text(text)
    for words in (["config"], ["run", "specs"]):
        error = refused(capsys, *words)
        assert WRONG[text] in error and "Traceback" not in error and "cases cannot run" not in error
    assert has_project()
    assert len(listed(capsys, "specs", "--no-project")) == 1


@pytest.mark.parametrize(
    "text", ['"\x1b[2J" = 1', 'jobs = "\\u001b[2J\\u202e"', "jobs = \x1b[2J", "# \x00", "\u202ejobs = 1"]
)
def test_no_text_of_it_reaches_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (folder / "runner.toml").write_text(text)
    error = refused(capsys, "config")
    assert not {"\x1b", "\x00", "\u202e"} & {*error}


def test_bytes_that_are_no_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "runner.toml").write_bytes(b"jobs = 1\n# \xff\n")
    assert "runner.toml:2:1: error: this is not UTF-8" in refused(capsys, "config")


def as_folder(path: Path) -> None:
    path.mkdir()


def as_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def as_link_to_text(path: Path) -> None:
    path.with_name("secret").write_text("password\n")
    path.symlink_to("secret")


@pytest.mark.parametrize("make", [as_folder, as_link, as_link_to_text, os.mkfifo])
def test_what_is_no_regular_file(
    folder: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], None]
) -> None:
    make(folder / "runner.toml")
    error = refused(capsys, "list", "specs")
    assert "runner.toml cannot be the project file: it is" in error and "password" not in error
    (folder / "runner.toml").rename(folder / "pyproject.toml")
    assert len(listed(capsys, "specs")) == 1, "a pyproject.toml is about other tools"


def test_a_file_of_other_tools_is_none_of_our_business(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("[project\n", "[tool.x]\nrunner = 1\n", "tool = 1 # runner\n", "# " + "x" * 300_000):
        (folder / "pyproject.toml").write_text(text)
        assert len(listed(capsys, "specs")) == 1
    (folder / "pyproject.toml").write_text("[tool]\nrunner = 1\n")
    assert "expected a table of options" in refused(capsys, "list", "specs")
    (folder / "pyproject.toml").write_text("jobs = 1\n[tool.runner]\n\njbos = 1\n")
    assert "pyproject.toml:4:1: error: unknown key 'jbos'" in refused(capsys, "list", "specs")


def test_help_needs_no_sound_file(folder: Path) -> None:
    (folder / "runner.toml").write_text("jbos = 1\n")
    assert main(["run", "--help"]) == main(["--help"]) == main(["schema", "project"]) == 0


def test_a_command_without_such_options_reads_no_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "runner.toml").write_text("jbos = 1\n")
    assert main(["schema", "project"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "runner project file"


def test_a_misspelt_option_is_said_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "runner.toml").write_text("jbos = 1\n")
    assert "unrecognized arguments: --jbos" in refused(capsys, "run", "specs", "--jbos")


def test_a_folder_deeper_than_paths_reach_has_no_file(folder: Path, dig: Dig, monkeypatch: pytest.MonkeyPatch) -> None:
    dig(folder)
    for _ in range(3000):
        os.chdir("d")
    (Path("runner.toml")).write_text("jobs = 1\n")
    assert read_project() is None
    os.chdir(folder)


def test_a_file_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path, links: bool) -> None:
        raise PermissionError(13, "Permission denied", str(path)) if path.name == "runner.toml" else FileNotFoundError

    monkeypatch.setattr("runner.cli.project.open_regular", deny)
    with pytest.raises(UsageError, match=r"runner\.toml cannot be the project file: Permission denied; --no-project"):
        read_project()
