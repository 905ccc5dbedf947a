"""A real browser for tests: Debian's chromium, driven over W3C WebDriver by its own chromedriver.

Knows: WebDriver's JSON over HTTP.
Must not know: which page is looked at.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.servers import Process, eventually, free_port, need

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key under which WebDriver names an element (W3C WebDriver, 12.1)."""

# Headless, without a sandbox (tests may run as root), and silent: nothing leaves this machine.
ARGUMENTS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps"),
    *("--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--hide-scrollbars"),
]


class Browser(Process):
    """One browser window: ``open`` a page, ``script`` in it, ``click``, ``type``, take a ``screenshot``."""

    def __init__(self, *, width: int = 1280, height: int = 860, dark: bool = False) -> None:
        super().__init__("browser")
        self.port, self.width, self.height, self.dark = free_port(), width, height, dark
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=100, trust_env=False)
        self._session = ""

    def start(self) -> None:
        """Start chromedriver, and a browser with a profile of its own."""
        self.spawn([need("chromedriver"), f"--port={self.port}"])
        self.wait_until(self._ready)
        arguments = [
            *ARGUMENTS,
            f"--window-size={self.width},{self.height}",
            f"--user-data-dir={self.folder / 'profile'}",
        ]
        options = {"binary": need("chromium"), "args": [*arguments, *(["--force-dark-mode"] if self.dark else [])]}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        self._session = self._call("POST", "/session", {"capabilities": wanted})["sessionId"]

    def _ready(self) -> bool:
        try:
            return bool(self._http.get("/status").json()["value"]["ready"])
        except httpx.TransportError:
            return False

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        prefix = f"/session/{self._session}" if self._session else ""
        answer = self._http.request(method, prefix + path, json=body if method == "POST" else None)
        value = answer.json()["value"]
        assert answer.status_code == 200, value
        return value

    def open(self, url: str) -> None:
        """Load a page."""
        self._call("POST", "/url", {"url": url})

    def script(self, code: str, *arguments: object) -> Any:
        """Run a function's body in the page; return what it returns."""
        return self._call("POST", "/execute/sync", {"script": code, "args": list(arguments)})

    def text(self, selector: str) -> str:
        """Return the text that an element shows; nothing if it is hidden."""
        code = "const it = document.querySelector(arguments[0]); return it?.checkVisibility() ? it.innerText : ''"
        return str(self.script(code, selector))

    def texts(self, selector: str) -> list[str]:
        """Return the text of every element that matches."""
        code = "return [...document.querySelectorAll(arguments[0])].map((element) => element.textContent)"
        return list(self.script(code, selector))

    def click(self, selector: str) -> None:
        """Click an element, as a person does: it has to be there to be seen."""
        self._call("POST", f"/element/{self._element(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Replace what stands in a field by typing."""
        element = self._element(selector)
        self._call("POST", f"/element/{element}/clear", {})
        self._call("POST", f"/element/{element}/value", {"text": text})

    def keys(self, keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        steps = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": steps}]})

    def _element(self, selector: str) -> str:
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        return str(found[ELEMENT])

    def resize(self, width: int, height: int) -> None:
        """Set the size of the page's view, smaller than a window can be as well."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", **metrics)

    def devtools(self, command: str, **parameters: object) -> Any:
        """Send one command of the DevTools protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self, path: Path) -> None:
        """Write what is seen to a PNG file."""
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def complaints(self) -> list[str]:
        """Return what the console has been told since the last call, at any level but debug."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def until(self, condition: Callable[[], Any], what: str, *, within_s: float = 60.0) -> Any:
        """Return the condition's first truthy value."""
        return eventually(condition, within_s=within_s, every_s=0.05, what=f"{what}; the page said {self.complaints()}")

    def close(self) -> None:
        """Close the browser, then its driver."""
        try:
            if self._session and self.alive:
                self._http.delete(f"/session/{self._session}")
        finally:
            self._http.close()
            super().close()
