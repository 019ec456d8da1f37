"""One set of data in any YAML that a person may write: block and flow style, quotes, comments, blank lines, indents."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from runner.cases.yaml.values import flow
from runner.quote import yaml_text


class Writer:
    """Writes plain data. ``number`` draws a whole number between two, both included; it makes every choice.

    Every comment has a text of its own, which ``comments`` holds. Without comments two texts of the same data say the
    same.
    """

    def __init__(self, number: Callable[[int, int], int], has_comments: bool = True) -> None:
        self.number = number
        self.has_comments = has_comments
        self.comments: list[str] = []

    def text(self, data: dict[str, Any]) -> str:
        """A whole file."""
        lines = [*self._own(0), *self._block(data, 0), *self._own(self.number(0, 6))]
        return "\n".join(lines) + "\n" * self.number(0, 3)

    def _comment(self) -> str:
        self.comments.append(f'# {len(self.comments)} it\'s "a" {{comment]: -')
        return self.comments[-1]

    def _beside(self) -> str:
        return f" {self._comment()}" if self.has_comments and self.number(0, 7) == 0 else ""

    def _own(self, indent: int) -> list[str]:
        """Lines of comments and blank lines."""
        count = max(self.number(0, 9) - 7, 0)
        return [
            "" if not self.has_comments or self.number(0, 1) else " " * indent + self._comment() for _ in range(count)
        ]

    def _block(self, data: Any, indent: int) -> list[str]:
        lines: list[str] = []
        for key, value in _entries(data):
            lines += self._own(indent)
            prefix = " " * indent + ("-" if key is None else f"{self._scalar(key)}:")
            if not isinstance(value, dict | list) or not value:
                lines.append(f"{prefix} {self._leaf(value)}{self._beside()}")
            elif self.number(0, 1):
                lines += f"{prefix} {self._flow(value, indent + 1)}{self._beside()}".split("\n")
            elif key is None and self.number(0, 2):
                first, *more = self._block(value, indent + 2)
                while not first.strip() or first.lstrip().startswith("#"):
                    lines.append(first)
                    first, *more = more
                lines += [f"{prefix} {first[indent + 2 :]}", *more]
            else:
                deeper = self.number(0 if isinstance(value, list) and key is not None else 1, 4)
                lines += [prefix + self._beside(), *self._block(value, indent + deeper)]
        return lines

    def _flow(self, data: Any, indent: int) -> str:
        texts = []
        for key, value in _entries(data):
            text = self._flow(value, indent) if isinstance(value, dict | list) else self._leaf(value)
            texts.append(text if key is None else f"{self._scalar(key)}: {text}")
        inner = "".join(f",{self._space(indent)}{text}" if number else text for number, text in enumerate(texts))
        start, end = "{}" if isinstance(data, dict) else "[]"
        return f"{start}{self._space(indent)}{inner}{self._space(indent)}{end}"

    def _space(self, indent: int) -> str:
        if self.number(0, 7):
            return " "
        own = "".join(f"{' ' * indent}{line}\n" if line else "\n" for line in self._own(0))
        return f"{self._beside()}\n{own}{' ' * indent}"

    def _leaf(self, value: Any) -> str:
        if isinstance(value, dict | list):
            return "{}" if isinstance(value, dict) else "[]"
        return self._scalar(value) if isinstance(value, str) else flow(value)

    def _scalar(self, text: str) -> str:
        ways = [yaml_text(text)]
        if text.isprintable():
            ways.append("'" + text.replace("'", "''") + "'")
        if re.fullmatch(r"[a-z$_][\w.$]*", text) and text not in ("null", "true", "false"):
            ways += [text] * 3
        return ways[self.number(0, len(ways) - 1)]


def _entries(data: Any) -> list[tuple[str | None, Any]]:
    return [*data.items()] if isinstance(data, dict) else [(None, item) for item in data]
