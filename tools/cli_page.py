"""Writes docs/cli.md, the reference of the command line, from the parsers themselves.

python tools/cli_page.py            # writes it
python tools/cli_page.py --check    # exit code 1 when that would change the page
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from runner.cli.arguments import Parser
from runner.cli.main import COMMANDS, FORMS, GROUPS, entrance

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"

TITLES = {
    "run": "Run and judge",
    "write": "Write cases",
    "investigate": "Investigate a failure",
    "maintain": "Maintain",
}
"""The heading of each group of commands."""

HEAD = """\
# The command line

`python tools/cli_page.py` writes this page from the parsers; do not edit it.
`runner COMMAND --help` prints the same options, and examples. The [glossary](glossary.md) explains the terms.

## Exit codes

| code | meaning |
| --- | --- |
| 0 | every verdict is as expected |
| 1 | at least one verdict is red: `FAIL`, `ERROR`, `XPASS`, `VACUOUS`, `FLAKY` or `INVALID` |
| 2 | the command was interrupted, or `--budget` was used up |
| 3 | the runner itself failed, or a report could not be written |
| 4 | an argument is wrong, or a file cannot be used |
| 5 | nothing was selected, timed or judged, or no variant has a verdict on both sides |

These commands give 0 and 1 another meaning:

| command | 0 | 1 |
| --- | --- | --- |
| `bench`, `coverage`, `history`, `report`, `score` | the result was made, whatever the verdicts are | never |
| `diff` | nothing is broken | something is broken |
| `generate` | the cases were written | there are fewer |
| `hunt` | nothing new was found | there are new groups |
| `known` | no entry is `changed`, `fixed` or `stale` | one is |
| `why` | the case passes | it does not |
| `diagnose`, `reduce`, `explain`, `debug`, `repro`, `issue` | the result was made | it was not: the failure did not show, or does not allow it |

Of the last row, `explain`, `debug` and `repro` take a case that passes too. These end with 1:

* `diagnose`, `reduce` and `issue` if the case does not fail; `issue` also if a rule of upstream for reports is not met;
* `reduce --minifier` if no script fails alike;
* `debug --record` if Dynamo itself raised nothing that it records, and `debug --replay` if it no longer raises.
"""

MORE = {
    "run": "[how a verdict is reached](judging.md), [how variants run](engine.md), [continuous integration](ci.md).",
    "watch": "[While you edit](watch.md).",
    "merge": "[Shards](engine.md#shards).",
    "diff": "[An upgrade](upgrade.md).",
    "score": "[The conformance of a backend](score.md).",
    "history": "[Old runs](engine.md#old-runs).",
    "resume": "[What is kept](engine.md#what-is-kept).",
    "rerun": "[What is kept](engine.md#what-is-kept).",
    "generate": "[Generated cases](generate.md).",
    "hunt": "[The hunt](hunt.md).",
    "coverage": "[What a suite exercises](coverage.md).",
    "validate": "[The YAML format](format.md).",
    "why": "[The cause of a failure](diagnosing.md).",
    "diagnose": "[Its parts](diagnosing.md#the-parts).",
    "issue": "[The report](diagnosing.md#the-report).",
    "explain": "[explain](troubleshooting.md#explain).",
    "debug": "[debug](troubleshooting.md#debug).",
    "debug --replay": "[Record and replay](minifying.md#record-and-replay).",
    "debug --sanitizer": "[Triton kernels](kernels.md).",
    "reduce": "[Reducing](reducing.md).",
    "reduce --minifier": "[Torch's minifier](minifying.md).",
    "known": "[The ledger](ledger.md).",
    "bench": "[Compile and run times](bench.md).",
    "config": "[The project file](project.md).",
}
"""The page about a command."""

TABLES = {"--profile": "what is drawn more often: [the profiles](generate.md#what-is-drawn)"}
"""Meanings that a page has as a table, in place of the help's words."""

SHARED_BY = 2
"""An argument or an option that as many commands have in the same words is described once, in the words of most."""

FURTHER = 2
"""A command that shares the options of another one above it, and at most so many further ones, refers to that one."""

Row = tuple[str, str]
"""How an argument or an option is written, and its meaning with its values or default."""


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when the page would change")
    if parser.parse_args().check:
        sys.exit(int(PAGE.read_text(encoding="utf-8") != page()))
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the whole page. Raise KeyError for a group without a title."""
    return "".join(_parts(commands()))


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command, and of each option that makes another command of one, by what is typed."""
    parsers: dict[str, argparse.ArgumentParser] = {}
    for name in COMMANDS:
        forms = {form: module for form, module in FORMS.items() if form.split()[0] == name}
        for typed, module in {name: name, **forms}.items():
            parsers[typed] = Parser(prog=f"runner {typed}")
            entrance(module).add(parsers[typed])
    return parsers


def _parts(parsers: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    counts = Counter(row for parser in parsers.values() for row in [*_arguments(parser), *_options(parser)])
    common = {row[0]: row for row, count in reversed(counts.most_common()) if count >= SHARED_BY}
    shared = [row for row in counts if common.get(row[0]) == row]
    most = [row for row in shared if counts[row] == max(counts.values())]
    without = [f"`{name}`" for name, parser in parsers.items() if not set(most) & set(_options(parser))]
    yield HEAD
    yield f"\n## Options of most commands\n\nAll commands but {', '.join(without)} have these:\n\n"
    yield _list(most)
    yield "\n## Options of several commands\n\n"
    yield _list(row for row in shared if row not in most)
    written_out: dict[str, list[str]] = {}
    for group, names in GROUPS.items():
        yield f"\n## {TITLES[group]}\n"
        for name in [typed for typed in parsers if typed.split()[0] in names]:
            yield from _command(name, parsers[name], shared)
            words = [_word(row) for row in _options(parsers[name]) if row in shared and row not in most]
            if words:
                yield f"\nShared: {', '.join(_shared(name, words, written_out))}.\n"


def _shared(name: str, words: list[str], written_out: dict[str, list[str]]) -> list[str]:
    """Return the shared options of a command: a link to a command that has most of them, and the further ones.

    ``written_out`` has the options of the commands above that refer to no command; this one is added, if it refers to none.
    """
    for above, options in written_out.items():
        if len(options) > FURTHER and set(options) <= set(words) and len(words) - len(options) <= FURTHER:
            return [f"those of [`{above}`](#{above})", *(word for word in words if word not in options)]
    if " " not in name:
        written_out[name] = words
    return words


def _command(name: str, parser: argparse.ArgumentParser, shared: list[Row]) -> Iterator[str]:
    more = f" More: {MORE[name]}" if name in MORE else ""
    yield f"\n### {name}\n\n`{_usage(name, parser)}`\n\n{_code(parser.description or '')}{more}\n"
    for rows in (_arguments(parser), _options(parser)):
        if own := [row for row in rows if row not in shared]:
            yield "\n" + _list(own)


def _word(row: Row) -> str:
    """Return the first spelling of an option, without its value."""
    return f"`{row[0].split()[0].strip('`,')}`"


def _usage(name: str, parser: argparse.ArgumentParser) -> str:
    """One line. argparse's own differs from Python to Python."""
    if parser.usage:
        return parser.usage.replace("[-h] ", "")
    words = [_place(action) for action in parser._actions if not action.option_strings]
    return " ".join(("runner", name, "[OPTION ...]" if _options(parser) else "", *words)).replace("  ", " ")


def _place(action: argparse.Action) -> str:
    word = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return {"+": f"{word} ...", "?": f"[{word}]"}.get(str(action.nargs), word)


def _arguments(parser: argparse.ArgumentParser) -> list[Row]:
    return [(_written(action), _meaning(action)) for action in parser._actions if not action.option_strings]


def _options(parser: argparse.ArgumentParser) -> list[Row]:
    return [
        (_written(action), _meaning(action))
        for action in parser._actions
        if action.option_strings and "--help" not in action.option_strings and action.help != argparse.SUPPRESS
    ]


def _written(action: argparse.Action) -> str:
    """An option with the name of its value, or an argument's name, in code marks."""
    if not action.option_strings:
        return f"`{_place(action)}`"
    values = action.metavar if isinstance(action.metavar, tuple) else (action.metavar or "WORD",)
    value = "" if action.nargs == 0 else f" {' '.join(values)}"
    return ", ".join(f"`{word}{value}`" for word in action.option_strings)


def _meaning(action: argparse.Action) -> str:
    text = next((TABLES[word] for word in action.option_strings if word in TABLES), action.help or "")
    meaning = _code(text.replace(" (default: %(default)s)", ""))
    return "; ".join(text for text in (meaning, _values(action)) if text)


def _values(action: argparse.Action) -> str:
    words = [f"`{choice}`" + " (default)" * (choice == action.default) for choice in action.choices or ()]
    if action.nargs != 0 and type(action).__name__ == "_AppendAction" and "repeat" not in (action.help or ""):
        words.append("may be repeated")
    return ", ".join(words)


def _code(text: str) -> str:
    """Return text with what Markdown would read as a tag or as emphasis in code marks."""
    return re.sub(
        r"--[a-z][\w-]*|\b(?:tag|case|file|dtype|backend|device|op):x\*?|(?<!\.)\b(?:known|module):(?!\w)",
        r"`\g<0>`",
        text,
    )


def _list(rows: Iterable[Row]) -> str:
    return "".join(f"* {written}: {meaning}\n" for written, meaning in rows)


if __name__ == "__main__":
    main()
