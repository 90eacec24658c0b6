"""A headless Chromium, driven by its DevTools protocol over two pipes: pages as people see them, and pictures of them."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: No sandbox, as in a container there often can be none: it opens pages that are made here, and they load nothing.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars",
    "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip
#: It reads commands from descriptor 3 and writes to 4, whatever numbers the pipes have here.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]
for fd, wanted in zip(ends, (3, 4)):
    os.dup2(fd, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE_S = 120


def find() -> str | None:
    """The path of a Chromium; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """A page that is open. requests: addresses it asked for; complaints: what it wrote on its console, and what failed."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def value(self, expression: str) -> Any:
        """Of an expression in JavaScript, as data."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def resize(self, width: int, height: int = 900) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """"light" or "dark"."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def shot(self, file: Path, selector: str = "body", tallest: int = 6000) -> None:
        """A picture of an element, as far as `tallest` pixels."""
        box = self.value(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height} })()"
        )
        clip = box | {"height": min(box["height"], tallest), "scale": 1}
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(found["data"]))

    def heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"{params['type']}: {[one.get('value') for one in params['args']]}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"{params['entry']['level']}: {params['entry']['text']}")


class Browser:
    """Chromium with a profile of its own, which goes with it."""

    def __init__(self, program: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="iron-chromium-")
        (theirs_in, self.ours_out), (self.ours_in, theirs_out) = os.pipe(), os.pipe()
        line = [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), program, *FLAGS, f"--user-data-dir={self.folder}"]
        env = os.environ | {"HOME": self.folder}
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen([*line, "about:blank"], pass_fds=(theirs_in, theirs_out), stdout=quiet, stderr=quiet, env=env)
        os.close(theirs_in)
        os.close(theirs_out)
        self.sent, self.left = 0, b""
        self.pages: dict[str, Page] = {}
        self.loaded: set[str] = set()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours_in)
        os.close(self.ours_out)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Its answer to a command; what it tells meanwhile goes to its page."""
        self.sent += 1
        command = {"id": self.sent, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self.ours_out, json.dumps(command).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == command["id"]:
                if "error" in said:
                    raise AssertionError(f"{method}: {said['error']}")
                return dict(said["result"])

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self.left:
            ready, _, _ = select.select([self.ours_in], [], [], max(until - time.monotonic(), 0))
            more = os.read(self.ours_in, 1 << 20) if ready else b""
            if not more:
                raise AssertionError("Chromium ended" if ready else f"Chromium says nothing for {PATIENCE_S} s")
            self.left += more
        text, _, self.left = self.left.partition(b"\0")
        said: dict[str, Any] = json.loads(text)
        session = said.get("sessionId", "")
        if said.get("method") == "Page.loadEventFired":
            self.loaded.add(session)
        elif "method" in said and session in self.pages:
            self.pages[session].heard(said["method"], said["params"])
        return said

    def open(self, file: Path, width: int = 1360, scheme: str = "light") -> Page:
        """A file, loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width)
        page.prefer(scheme)
        page.call("Page.navigate", url=file.resolve().as_uri())
        while session not in self.loaded:
            self._next()
        return page
