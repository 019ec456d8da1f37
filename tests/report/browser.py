"""A headless Chromium for the tests of pages, driven over a pipe: https://chromedevtools.github.io/devtools-protocol/."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
_WAIT = 60.0  # seconds that an answer may take


class Browser:
    """One page. ``problems`` are the exceptions of its scripts, its errors and its dialogs."""

    def __init__(self, profile: Path) -> None:
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()

        def pipes() -> None:  # Chromium reads commands from 3 and answers on 4
            low, high = os.dup(to_read), os.dup(to_write)
            os.dup2(low, 3)
            os.dup2(high, 4)

        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage", "--remote-debugging-pipe"]  # fmt: skip
        self._process = subprocess.Popen(
            [str(BROWSER), *words, f"--user-data-dir={profile}", "about:blank"], preexec_fn=pipes, close_fds=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._events: list[dict[str, Any]] = []
        self._session = ""
        self.problems: list[str] = []
        (target,) = [t for t in self("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self._session = self("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + _WAIT
        while b"\0" not in self._rest:
            assert select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0], (
                "the browser does not answer"
            )
            data = os.read(self._from, 1 << 16)
            assert data, "the browser has ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(text))

    def _note(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        if event.get("method") in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening"):
            self.problems.append(json.dumps(event))
        elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.problems.append(event["params"]["entry"]["text"])

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a page anew, and wait until it is there."""
        for address in ("about:blank", page.as_uri() + (f"#{fragment}" if fragment else "")):
            self._events.clear()
            self("Page.navigate", url=address)
            self.wait()

    def wait(self) -> None:
        """Wait until a page has loaded since the last time."""
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._note(self._receive())
        self._events.clear()

    def run(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        result = self(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def draw(self) -> None:
        """Wait until the page was drawn. Rows that were not yet seen have the size of an earlier layout."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse, where it is seen."""
        word = json.dumps(selector)
        self.run(f"document.querySelector({word}).scrollIntoView({{block: 'center'}})")
        place = self.run(f"(() => {{ const r = document.querySelector({word}).getClientRects()[0]; return [r.x + r.width / 2, r.y + r.height / 2]; }})()")  # fmt: skip
        for kind in ("mousePressed", "mouseReleased"):
            self("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def press(self, key: str, text: str = "") -> None:
        """Press a key of the keyboard."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40}
        parameters: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        text = text or ("\r" if key == "Enter" else key if len(key) == 1 else "")
        self("Input.dispatchKeyEvent", type="keyDown", **parameters, **({"text": text} if text else {}))
        self("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def resize(self, width: int, height: int) -> None:
        """Give the page another size, in pixels."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def dark(self, on: bool) -> None:
        """Say which colours the person likes."""
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])  # fmt: skip

    def scripts(self, on: bool) -> None:
        """Allow or forbid scripts of pages."""
        self("Emulation.setScriptExecutionDisabled", value=not on)

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self("Page.captureScreenshot", format="png")["data"]))

    def end(self) -> None:
        """End the browser."""
        with contextlib.suppress(OSError, AssertionError):
            self._session = ""
            self("Browser.close")
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser that ends with the block."""
    instance = Browser(profile)
    try:
        yield instance
    finally:
        instance.end()
