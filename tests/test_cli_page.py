"""``docs/cli.md`` is what ``tools/cli_page.py`` writes, and names every command and option."""

from __future__ import annotations

import re
from argparse import SUPPRESS
from pathlib import Path

import pytest

from tests.script_modules import script_module

REPOSITORY = Path(__file__).resolve().parents[1]

cli_page = script_module("cli_page")
PAGE = cli_page.PAGE.read_text(encoding="utf-8")
COMMANDS = cli_page.commands()


def test_the_page_is_fresh() -> None:
    assert cli_page.page() == PAGE, "run: python tools/cli_page.py"
    assert "==" not in PAGE


def section(command: str) -> str:
    """Return the page's text about one command, with the options that several commands share."""
    shared = PAGE.partition("## Options of most commands")[2].partition("\n## Run and judge\n")[0]
    return shared + own(command)


def own(command: str) -> str:
    """Return the page's section of one command."""
    return PAGE.partition(f"\n### {command}\n")[2].partition("\n##")[0]


def shared_words(command: str) -> set[str]:
    """Return the options that the page says a command shares: its own list, with that of the command it refers to."""
    line = next((line for line in own(command).splitlines() if line.startswith("Shared: ")), "")
    above = re.search(r"\(#(\w+)\)", line)
    words = set(re.findall(r"`(--?[\w-]+)`", line))
    return words | shared_words(above[1]) if above else words


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_that_a_command_shares_are_its_own_and_no_others(command: str) -> None:
    most = PAGE.partition("All commands but ")[2].partition("\n## ")[0]
    but, _, everywhere = most.partition(" have these:")
    words = shared_words(command)
    if f"`{command}`" not in but:
        words |= set(re.findall(r"^\* `(--[\w-]+)", everywhere, re.MULTILINE))
    listed = set(re.findall(r"^\* `(--?[\w-]+)", own(command), re.MULTILINE))
    options = [action for action in COMMANDS[command]._actions if action.help != SUPPRESS and action.dest != "help"]
    assert words | listed == {action.option_strings[0] for action in options if action.option_strings}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_in_its_section(command: str) -> None:
    text = section(command)
    words = [word for action in COMMANDS[command]._actions if action.help != SUPPRESS for word in action.option_strings]
    assert [word for word in words if f"`{word}" not in text and word not in ("-h", "--help")] == []


def test_a_group_without_a_title_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(cli_page.TITLES, "maintain")
    with pytest.raises(KeyError, match="maintain"):
        cli_page.page()
