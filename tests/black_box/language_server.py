"""A client of yaml-language-server: it opens texts, and asks what an editor asks while somebody types."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 120.0
"""Seconds after which a server that does not answer counts as hung."""


class LanguageServer:
    """A server's process. Messages go over its standard streams, each with its length in a header."""

    def __init__(self, program: str, settings: dict[str, Any], root: Path | None) -> None:
        self.process = subprocess.Popen([program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.settings = settings
        self.messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self.problems: dict[str, list[dict[str, Any]]] = {}
        self.requests = 0
        threading.Thread(target=self._read, daemon=True).start()
        markdown = {"completion": {"completionItem": {"documentationFormat": ["markdown"]}}, "hover": {}}
        capabilities = {"textDocument": markdown, "workspace": {"configuration": True}}
        folders = [{"uri": root.as_uri(), "name": root.name}] if root else None
        uri = root.as_uri() if root else None
        opening = {"processId": None, "rootUri": uri, "workspaceFolders": folders, "capabilities": capabilities}
        self._request("initialize", opening)
        self._send(method="initialized", params={})

    def open(self, path: Path, text: str) -> Document:
        """Open a text as the file of a path, which no text had before, and wait for what the server says of it."""
        uri = path.as_uri()
        assert uri not in self.problems, "the server may still speak of the text before"
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._send(method="textDocument/didOpen", params={"textDocument": document})
        while uri not in self.problems:
            self._handle(self.messages.get(timeout=PATIENCE))
        return Document(self, uri, text)

    def ask(self, method: str, document: Document, line: int, character: int) -> Any:
        """Return the answer about a place of a document, both numbers from 0."""
        place = {"textDocument": {"uri": document.uri}, "position": {"line": line, "character": character}}
        return self._request(f"textDocument/{method}", place)

    def _request(self, method: str, params: dict[str, Any]) -> Any:
        self.requests += 1
        self._send(id=self.requests, method=method, params=params)
        while True:
            message = self.messages.get(timeout=PATIENCE)
            if message.get("id") == self.requests and "method" not in message:
                assert "error" not in message, message
                return message["result"]
            self._handle(message)

    def _handle(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case "workspace/configuration":
                answer = [self.settings.get(item["section"]) for item in message["params"]["items"]]
                self._send(id=message["id"], result=answer)
            case "textDocument/publishDiagnostics":
                self.problems[message["params"]["uri"]] = message["params"]["diagnostics"]
            case _ if "id" in message:
                self._send(id=message["id"], result=None)

    def _send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif not line.strip():
                self.messages.put(json.loads(self.process.stdout.read(length)))


@dataclass
class Document:
    """An open text."""

    server: LanguageServer
    uri: str
    text: str

    @property
    def underlined(self) -> list[tuple[int, str, str]]:
        """What is underlined: the line, from 1, its words, and the message."""
        lines = self.text.split("\n")
        return [
            (start["line"] + 1, lines[start["line"]][start["character"] : end["character"]], problem["message"])
            for problem in self.server.problems[self.uri]
            for start, end in [(problem["range"]["start"], problem["range"]["end"])]
        ]

    def hover(self, words: str) -> str:
        """Return what is shown where the mouse is on the last character of ``words``, which stand once in the text."""
        line, character = self._behind(words)
        result = self.server.ask("hover", self, line, character - 1)
        return str(result["contents"]["value"]) if result else ""

    def complete(self, words: str) -> list[dict[str, Any]]:
        """Return what is offered behind ``words``: items with ``label``, ``insertText`` and ``documentation``."""
        result = self.server.ask("completion", self, *self._behind(words))
        items: list[dict[str, Any]] = result["items"] if isinstance(result, dict) else result
        return items

    def _behind(self, words: str) -> tuple[int, int]:
        assert self.text.count(words) == 1, words
        *above, line = self.text[: self.text.index(words) + len(words)].split("\n")
        return len(above), len(line)


@contextmanager
def language_server(program: str, schemas: dict[str, str], root: Path | None = None) -> Iterator[LanguageServer]:
    """Start a server that fetches nothing from the net, with the setting ``yaml.schemas``, and end it.

    ``root`` is the folder of the project, to which the paths of ``schemas`` may be relative.
    """
    settings = {
        "yaml": {
            "schemas": schemas,
            "validate": True,
            "hover": True,
            "completion": True,
            "schemaStore": {"enable": False},
        }
    }
    server = LanguageServer(program, settings, root)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()
