"""A headless Chromium, spoken to through a pipe in its debugging protocol; no driver and no package needed.

Rendering is in software, so that it works and means the same on machines without a graphics card.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["Browser", "find"]

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # a sandbox is refused to root, as in containers
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--mute-audio",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """Return the program, if there is one."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page, started with `flags` besides those above; leave it with `close`, or use it as a
    context."""

    def __init__(
        self, program: str, width: int = 900, height: int = 620, patience: float = 60.0, flags: Sequence[str] = ()
    ) -> None:
        self.patience = patience
        self.events: list[dict[str, Any]] = []
        self._profile = tempfile.TemporaryDirectory(prefix="curvae-browser-", ignore_cleanup_errors=True)
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        line = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'
        folder = f"--user-data-dir={self._profile.name}"
        self._process = subprocess.Popen(
            ["bash", "-c", line, program, *_FLAGS, *flags, folder, f"--window-size={width},{height}", "about:blank"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._buffer, self._number, self._session = b"", 0, None
        try:
            targets = self.call("Target.getTargets")["targetInfos"]
            page = next(target["targetId"] for target in targets if target["type"] == "page")
            self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
            self.resize(width, height)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for descriptor in (self._out, self._in):
            os.close(descriptor)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    # --- the protocol -----------------------------------------------------------------------------------------------

    def _read(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise ConnectionError("the browser has ended")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its result; what happens meanwhile is kept in `events`."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + self.patience
        while True:
            message = self._read(end)
            if message.get("id") != self._number:
                self.events.append(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']}")
            else:
                return message["result"]

    # --- what tests do ----------------------------------------------------------------------------------------------

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, **features: str) -> None:
        """Set media features, such as `color_scheme="dark"`."""
        named = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=named)

    def open(self, path: Path, ready: str = "curvae.ready") -> None:
        """Open a file and wait until it is loaded and the promise `ready` is kept."""
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + self.patience
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read(end))
        if ready:
            self.run(f"await {ready}; await new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def run(self, code: str) -> Any:
        """Run statements in the page, with `return`; a promise is waited for."""
        found = self.call(
            "Runtime.evaluate",
            expression=f"(async () => {{ {code} }})()",
            awaitPromise=True,
            returnByValue=True,
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description", "an exception"))
        return found["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send an event of the mouse: Pressed, Moved, Released or Wheel."""
        button = "none" if kind in ("Moved", "Wheel") and not more.get("buttons") else "left"
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, button=button, clickCount=1, **more)

    def drag(self, *places: tuple[float, float], shift: bool = False) -> None:
        held = {"modifiers": 8 if shift else 0}
        self.mouse("Pressed", *places[0], buttons=1, **held)
        for place in places[1:]:
            self.mouse("Moved", *place, buttons=1, **held)
        self.mouse("Released", *places[-1], **held)

    def key(self, name: str) -> None:
        text = {"text": name} if len(name) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, **(text if kind == "keyDown" else {}))

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
