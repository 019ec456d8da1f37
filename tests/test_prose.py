"""The prose of the pages: few long sentences, plain phrases, no metaphors in place of terms, and links that lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "specs/found/README.md")
PAGES = [*sorted((REPOSITORY / "docs").rglob("*.md")), *(REPOSITORY / name for name in ROOT_PAGES)]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())

LONG = 30
"""Words of a sentence that is too long."""
MOST = 3
"""Long sentences that all pages together may have."""

METAPHORS = ("opinion", "doubt", "kin", "ward", "rehearsal", "rehearsed", "lent", "speaks for", "spoke of")
"""Words that earlier pages used in place of terms of the glossary."""

DIALECT = (
    r"(?:is|are|was|were)\snone",
    r"none\s(?:that|of\s(?:its|their)\sown)",
    r"also\snone",
    r"all\sthe\ssame",
    r"otherwise\sthan",
    r"(?:do|does|fails?|failed|rounds?)\sotherwise",
    r"of\stheirs",
    r"of\sits\sown\saccord",
    r"what\s.{3,60}\sis\snothing",
    r"be\sit",
    r"is\sno\s(?:default|pass)",
)
"""Phrases that a reader whose first language is not English has to translate: write "not", "no", "still", "in another way".

A blank is ``\\s``, so that this file has no phrase of the list.
"""

OWN_WORDS = r"ladder|gates?|(?<!content )polic(?:y|ies)|slots?|zygotes?|as-user|weighed"
"""Words of the runner's own parts, which a user need not know."""
ABOUT_PARTS = (
    "architecture.md",
    "extending.md",
    "glossary.md",
    "judging.md",
    "score.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)
"""Pages about these parts, or that explain such a word where it first stands."""

_NOT_PROSE = re.compile(r"^```.*?^```$|<!-- generated.*?<!-- end -->|^\|.*?$|^#.*?$", re.MULTILINE | re.DOTALL)
_LEAD = re.compile(r"^\s*# ?", re.MULTILINE)
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )")
_END = re.compile(r"(?<=[.!?])[*)]*\s+(?=[^a-z\s]|torch\b|runner\b)")


def prose(text: str) -> str:
    """Return a page's text without code blocks, tables, headings and generated parts; links and code are one word each."""
    text = _NOT_PROSE.sub("\n\n", text)
    text = re.sub(r"`[^`]*`", "Code", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page. A list item and a paragraph end a sentence, and so does a colon before a list."""
    for block in _BLOCK.split(prose(text)):
        yield from (sentence for sentence in _END.split(" ".join(block.split())) if sentence)


def words(sentence: str) -> int:
    """Return the number of words, without signs alone."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def long_sentences(page: Path) -> list[str]:
    """Return the sentences of a page that are too long, each with the page's name."""
    text = page.read_text(encoding="utf-8")
    return [f"{page.name}: {sentence}" for sentence in sentences(text) if words(sentence) > LONG]


def test_few_sentences_are_long() -> None:
    sentences = [sentence for page in PAGES for sentence in long_sentences(page)]
    assert len(sentences) <= MOST, "\n".join(sentences)


def test_a_long_sentence_is_counted(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    short, long = "One two `three four` five. ", "word " * LONG + "word.\n"
    page.write_text(f"# Head\n\n{short}{long}\n* {short}\n* {long}\n```text\n{long}```\n\n| {long.strip()} |\n")
    assert len(long_sentences(page)) == 2


def dialect(text: str, flags: int = re.IGNORECASE) -> list[str]:
    """Return the phrases of a text that are not plain, also those that a line break divides."""
    line = " ".join(text.split())
    return [match[0] for phrase in DIALECT for match in re.finditer(rf"\b{phrase}\b", line, flags)]


@each_page
def test_the_phrases_are_plain(page: Path) -> None:
    assert dialect(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("folder", ["runner", "tests", "tools", "bench"])
def test_the_phrases_of_modules_are_plain(folder: str) -> None:
    """Case counts there: code says ``is None``."""
    texts = {path: _LEAD.sub(" ", path.read_text(encoding="utf-8")) for path in (REPOSITORY / folder).rglob("*.py")}
    assert {str(path): phrases for path, text in texts.items() if (phrases := dialect(text, flags=0))} == {}


def test_a_phrase_that_is_not_plain_is_found() -> None:
    phrases = dialect("It passes all the\nsame. A path may be none, and this is\nnone.")
    assert [phrase.split() for phrase in phrases] == [["is", "none"], ["all", "the", "same"]]
    assert dialect(_LEAD.sub(" ", "    # It is\n    # none, and it passes all\n    # the same.")) != []
    assert dialect("It still passes, and must be right otherwise.") == []


@each_page
def test_no_metaphor_stands_for_a_term(page: Path) -> None:
    text = prose(page.read_text(encoding="utf-8")).lower()
    assert [word for word in METAPHORS if re.search(rf"\b{word}s?\b", text)] == []


@each_page
def test_a_page_for_users_has_no_words_of_the_runners_parts(page: Path) -> None:
    if page.name not in ABOUT_PARTS and page.parent.name not in ("decisions", "lab", "found"):
        assert re.findall(rf"\b(?:{OWN_WORDS})\b", prose(page.read_text(encoding="utf-8")), re.IGNORECASE) == []


def anchors(page: Path) -> set[str]:
    """Return GitHub's anchors of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_names_every_page() -> None:
    index = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
    names = {page.name for page in (REPOSITORY / "docs").glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == names
