"""Writes the table of specs/found/README.md from the cases and the ledger beside it.

python tools/findings_page.py            # rewrites it
python tools/findings_page.py --check    # exit code 1 when that would change the page
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from runner.cases.limits import Limits  # noqa: E402
from runner.cases.model import Case  # noqa: E402
from runner.cases.suites import Reader  # noqa: E402
from runner.contract.oracles import OTHER_NUMBERS, rank_of, row_of  # noqa: E402
from runner.verdict.stages import STAGES  # noqa: E402

SPECS = REPOSITORY / "specs" / "found"
PAGE = SPECS / "README.md"
_STREAM = "only the stream of random numbers differs"
_CAUSE = re.compile(r"the cause of (\w+)")
BEGIN, END = "<!-- table -->\n", "<!-- end of the table -->\n"


def cases() -> list[Case]:
    """Return the cases, the worst severity first. Raises ValueError for a file that cannot be read."""
    reader = Reader(Limits(), any_device=True)
    suites = reader.files([str(SPECS)])
    if reader.problems:
        raise ValueError("\n".join(map(str, reader.problems)))
    cases = [case for suite in suites for case in suite.cases]
    return sorted(cases, key=lambda case: (rank_of(severity(case)), STAGES.index(case.known[0].stage), case.name))


def severity(case: Case) -> str:
    """Return the severity of the first oracle that the case's ledger names, or that of other random numbers."""
    entry = case.known[0]
    return OTHER_NUMBERS if _STREAM in (entry.reason or "") else row_of(entry.oracle[0]).severity


def table() -> str:
    """Return the rows, and a line that counts them."""
    rows = ["| severity | stage | case | what goes wrong | torch | report |", "| --- | --- | --- | --- | --- | --- |"]
    for case in cases():
        entry = case.known[0]
        link = f"[{'/'.join(entry.issue.split('/')[-2:])}]({entry.issue})" if entry.issue else "none found"
        place = Path(case.file).name
        rows.append(
            f"| {severity(case)} | {entry.stage} | [`{case.name}`]({place}) | {case.doc} | {entry.torch} | {link} |"
        )
    return f"\n{counts(cases())}\n\n" + "\n".join(rows) + "\n\n"


def cause(case: Case) -> str:
    """Return what cases of one cause have in common: the public report, or the case that the reason names."""
    entry = case.known[0]
    named = _CAUSE.search(entry.reason or "")
    return entry.issue or (named[1] if named else case.name)


def counts(cases: list[Case]) -> str:
    """Return a line that counts the cases, their causes in torch.compile, and those without a public report."""
    own = [case for case in cases if case.known[0].why == "bug"]
    causes = {cause(case) for case in own}
    unreported = {cause(case) for case in own if not case.known[0].issue}
    return (
        f"{len(cases)} cases of {len(causes)} causes in torch.compile, and {len(cases) - len(own)} of eager's own. "
        f"No public report was found of {len(unreported)} causes."
    )


def page(text: str) -> str:
    """Return the page with its table as it should be."""
    return re.sub(rf"(?s)(?<={BEGIN}).*(?={END})", lambda match: table(), text)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 when the page is out of date")
    arguments = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    if page(text) == text:
        return 0
    if arguments.check:
        print(f"{PAGE} is out of date: run python tools/findings_page.py")
        return 1
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
