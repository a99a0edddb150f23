"""A small client of headless Chromium, over its debugging pipe: no driver, no package (Chrome DevTools Protocol)."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars")
PATIENCE = 60  # seconds that an answer may take


def find_chromium():
    """The browser of this machine (or $RAGEN_CHROMIUM), or None."""
    return os.environ.get("RAGEN_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """What the browser or a script in the page complained of."""


class Browser:
    """One page in a browser of its own; ``errors`` collects exceptions, console errors and breaches of the page's policy."""

    def __init__(self, width=1280, height=900):
        self._profile = tempfile.mkdtemp(prefix="ragen-chromium-")
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()

        def descriptors():  # the browser reads commands from 3 and writes answers to 4
            os.dup2(to_read, 13)
            os.dup2(to_write, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        command = [find_chromium(), *FLAGS, f"--user-data-dir={self._profile}", "--remote-debugging-pipe", "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdout=quiet, stderr=quiet, preexec_fn=descriptors, close_fds=False)  # noqa: PLW1509
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        self.errors, self.requests, self._loaded = [], [], False
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def call(self, method, **parameters):
        """One command of the protocol, and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], PATIENCE)
            more = os.read(self._in, 1 << 16) if ready else b""
            if not more:
                raise BrowserError("the browser has ended" if ready else f"the browser says nothing for {PATIENCE} seconds")
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        event = json.loads(message)
        self._note(event.get("method"), event.get("params", {}))
        return event

    def _note(self, method, about):
        if method == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True

    def open(self, url):
        """Go to a page and wait until it is loaded."""
        self.follow(lambda: self.call("Page.navigate", url=url))

    def follow(self, do):
        """Do what leads to another page, and wait until it is loaded."""
        self._loaded = False
        do()
        while not self._loaded:
            self._read()

    def run(self, script):
        """The value of an expression in the page (a promise is awaited)."""
        wanted = {"expression": script, "awaitPromise": True, "returnByValue": True}
        result = self.call("Runtime.evaluate", **wanted)
        if "exceptionDetails" in result:
            raise BrowserError(
                result["exceptionDetails"].get("exception", {}).get("description", result["exceptionDetails"])
            )
        return result["result"].get("value")

    def wait(self, condition):
        """Until an expression is true in the page; looks at every frame for half a minute."""
        look = f"""new Promise((done, fail) => {{
            const end = Date.now() + 30000;
            const see = () => {{ let ok = false; try {{ ok = Boolean({condition}) }} catch {{ ok = false }}
                if (ok) done(true); else if (Date.now() > end) fail(new Error("never true: " + {json.dumps(condition)}));
                else setTimeout(see, 20) }};
            see() }})"""
        return self.run(look)

    def text(self, selector):
        """The text of the first such element as it is shown."""
        return self.run(f"((e) => e.innerText ?? e.textContent)(document.querySelector({json.dumps(selector)}))")

    def click(self, selector):
        """A click with the mouse in the middle of the first such element."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}}); "
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        self.move(*place)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def move(self, x, y):
        """Move the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key):
        """A key, by its name in the browser ("j", "ArrowDown")."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def choose(self, selector, value):
        """Choose an option of a select by its value or text."""
        self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            f"const o = [...e.options].find((o) => o.value === {json.dumps(value)} || o.text === {json.dumps(value)}); "
            "o.selected = true; e.dispatchEvent(new Event('change')) })()"
        )

    def resize(self, width, height):
        """The size of the window, in pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, on=True):
        """What the system prefers."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, file, *, whole=False):
        """A PNG of the window, or of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        Path(file).write_bytes(base64.b64decode(data))

    def close(self):
        """End the browser."""
        os.close(self._out)
        os.close(self._in)
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
