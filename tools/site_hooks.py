"""Hooks of mkdocs.yml: the navigation is that of docs/index.md, and links that leave docs/ stay within the site.

A file outside docs/ that a page links to becomes a page below ``repository/``: Markdown as it is, any other text as a block of code.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parent.parent
OUTSIDE = "repository/"
"""Where the site has files from outside docs/."""
ASSETS = ("iframe-worker.js", "site.css")

_CODE = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")
_HEADING_OR_PAGE = re.compile(
    r"^(?P<level>##+) (?P<heading>.+)$|^\* \[(?P<title>[^\]]+)\]\((?P<path>[^)#]+)\)", re.MULTILINE
)

Navigation = list[dict[str, Any]]
"""Titles, each with a page of the site or with a list of the same kind."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation."""
    index = Path(config.docs_dir, "index.md").read_text(encoding="utf-8")
    config.nav = [{"Home": "index.md"}, *navigation(index)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages link to, and the site's own script and style."""
    for name in ASSETS:
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(REPOSITORY / "tools" / "site" / name)))
    for path in sorted(linked()):
        files.append(File.generated(config, site_path(path), content=page_of(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page whose links lead to pages of the site. The search leaves out what is not in the navigation."""
    if not page.file.inclusion.is_in_nav():
        page.meta["search"] = {"exclude": True}
    return with_links_of_the_site(markdown, repository_path(page.file.src_uri))


def navigation(index: str) -> Navigation:
    """Return the navigation that a page has as headings and lists of links. The text of a link is the page's title."""
    levels: list[Navigation] = [[]]
    for match in _HEADING_OR_PAGE.finditer(index):
        if match["heading"]:
            del levels[len(match["level"]) - 1 :]
            levels.append([])
            levels[-2].append({match["heading"]: levels[-1]})
        else:
            levels[-1].append({match["title"].replace("`", ""): _entry(match["path"])})
    return levels[0]


def _entry(link: str) -> str | list[str]:
    """Return what a link of docs/index.md is in the navigation: a page, or all of a folder behind its README."""
    path = posixpath.normpath(posixpath.join("docs", link))
    if posixpath.basename(path) != "README.md":
        return site_path(path)
    folder = (REPOSITORY / path).parent
    return [site_path(page.relative_to(REPOSITORY).as_posix()) for page in sorted(folder.glob("*.md"), key=_place)]


def _place(page: Path) -> tuple[bool, str]:
    return page.name != "README.md", page.name


def linked() -> set[str]:
    """Return the files outside docs/ that pages link to, and those that these files link to, from the repository's root."""
    pages = [path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "docs").rglob("*.md")]
    targets: set[str] = set()
    while pages:
        page = pages.pop()
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        new = {target for target in targets_of(text, page) if not target.startswith("docs/")} - targets
        targets |= new
        pages += [target for target in new if target.endswith(".md")]
    return targets


def targets_of(markdown: str, page: str) -> Iterator[str]:
    """Yield the files that a page of the repository links to, from the repository's root."""
    for match in _LINK.finditer(_CODE.sub("", markdown)):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(page), match["path"]))


def site_path(path: str) -> str:
    """Return where the site has a file of the repository: without ``docs/``, or below OUTSIDE, there as Markdown.

    A leading dot goes, since MkDocs leaves such files out.
    """
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return OUTSIDE + path.removeprefix(".") + ("" if path.endswith(".md") else ".md")


def repository_path(path: str) -> str:
    """Return the Markdown file of the repository that one of the site is. For text in a block of code the name is made up."""
    return path.removeprefix(OUTSIDE) if path.startswith(OUTSIDE) else f"docs/{path}"


def page_of(path: str) -> str:
    """Return a file of the repository as Markdown. Raise OSError or UnicodeDecodeError for one that cannot be read."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    language = path.rpartition(".")[2]
    return f"# {path}\n\n~~~~~~~~{language}\n{text}~~~~~~~~\n"


def with_links_of_the_site(markdown: str, page: str) -> str:
    """Return Markdown of a file of the repository with its links as the site needs them. Code stays as it is."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), match["path"]))
        start = posixpath.dirname(site_path(page))
        return posixpath.relpath(site_path(target), start or ".") + (match["anchor"] or "")

    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [_LINK.sub(link, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _LINK.sub(link, markdown[end:])])
