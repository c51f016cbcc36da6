"""Debian's `chromium`, headless, driven over a pair of pipes: no port is opened and nothing is installed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 60.0

requires_chromium = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="needs Debian's `chromium` on PATH (apt-get install chromium)"
)


class Browser:
    """One page of a headless browser that speaks the DevTools protocol, one JSON message after another."""

    def __init__(self, profile: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        self._log = (profile.parent / "chromium.log").open("wb")
        # The browser reads from descriptor 3 and writes to descriptor 4.
        script = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$0" "$@"'
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage")
        self._process = subprocess.Popen(
            ["bash", "-c", script, "chromium", *flags, "--remote-debugging-pipe", f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._read = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.ask(f"{domain}.enable")
        except BaseException:
            self._process.kill()
            raise

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one command; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                answer: dict[str, Any] = found["result"]
                return answer
            self.events.append(found)

    def open(self, path: Path) -> None:
        """Load a file and wait until it has been laid out."""
        seen = len(self.events)
        self.ask("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events[seen:]):
            self.events.append(self._next())

    def size(self, width: int, height: int) -> None:
        """Lay the page out for a window of `width` x `height` pixels."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """Have the system ask for the "light" or the "dark" theme."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is worth."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, path: Path) -> None:
        """Write the whole page to `path` as PNG."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def requested(self) -> list[str]:
        """Every address that was asked for."""
        events = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in events]

    def complaints(self) -> list[str]:
        """What scripts and the browser had to say."""
        wanted = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(event["params"])[:400] for event in self.events if event.get("method") in wanted]

    def close(self) -> None:
        """End the browser."""
        self._session = None
        os.write(self._out, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
        try:
            self._process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._log.close()

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._in, 1 << 20) if ready else b""
            if not piece:
                raise AssertionError(f"chromium did not answer within {PATIENCE_S:.0f} s or ended: {self._tail()}")
            self._read += piece
        message, self._read = self._read.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        return found

    def _tail(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text(encoding="utf-8", errors="replace")[-800:]
