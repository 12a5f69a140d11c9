"""A headless Chromium that a test drives through pipes, by the DevTools protocol."""

import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Ends when BokehJS has drawn all that was asked of it.
IDLE = """new Promise((done) => {
  const look = () => (typeof Bokeh === "undefined" || Bokeh.documents.every((one) => one.is_idle)
    ? requestAnimationFrame(() => requestAnimationFrame(done)) : requestAnimationFrame(look));
  requestAnimationFrame(look);
})"""


def executable():
    """Path of a Chromium or Chrome; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab; ``problems`` are errors of the page, ``requests`` what it loaded."""

    def __init__(self, program, folder):
        self.problems, self.requests = [], []
        # The protocol uses the descriptors 3 and 4, so these are kept free.
        pipes = (*os.pipe(), *os.pipe())
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in pipes]
        for end in pipes:
            os.close(end)
        theirs_in, mine_out, mine_in, theirs_out = ends
        self._process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
                "--no-first-run",
                "--disable-background-networking",
                f"--user-data-dir={folder}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=lambda: (os.dup2(theirs_in, 3), os.dup2(theirs_out, 4)),
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in = os.fdopen(mine_out, "wb"), os.fdopen(mine_in, "rb")
        self._clock = time.time()
        self._rest, self._last, self._session = b"", 0, None
        target = self("Target.createTarget", url="about:blank")["targetId"]
        attached = self("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self(f"{domain}.enable")

    def close(self):
        self._session = None
        self("Browser.close")
        self._process.wait()
        self._out.close()
        self._in.close()

    def __call__(self, method, **parameters):
        """Send one command and return its result."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while (reply := self._next()).get("id") != self._last:
            self._record(reply)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']}")
        return reply["result"]

    def _next(self):
        while b"\0" not in self._rest:
            received = os.read(self._in.fileno(), 1 << 16)
            if not received:
                raise RuntimeError("the browser has ended")
            self._rest += received
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def _record(self, event):
        about = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                details = about["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description", str(details)))
            case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning", "assert"):
                self.problems.append(str(about["args"]))
            case "Log.entryAdded" if about["entry"]["level"] in ("error", "warning"):
                self.problems.append(about["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])

    def open(self, path, width=1400, height=1000, *, dark=False, script=True):
        """Open a page and wait until it is drawn."""
        self.problems.clear()
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.theme(dark=dark)
        self("Emulation.setScriptExecutionDisabled", value=not script)
        self.requests.clear()
        self("Page.navigate", url=Path(path).as_uri())
        while True:
            event = self._next()
            self._record(event)
            if event.get("method") == "Page.loadEventFired":
                break
        if script:
            self.run(IDLE)

    def theme(self, *, dark):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self("Emulation.setEmulatedMedia", features=features)

    def run(self, expression):
        """Evaluate JavaScript and return its value; a promise is awaited."""
        answer = self(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def point(self, x, y, *, click=False):
        """Move the mouse to a point of the window, click if asked, and wait for the drawing."""
        button = "left" if click else "none"
        # Events are at least a second apart, so that two clicks are never a double one.
        self._clock = max(self._clock, time.time()) + 1
        for kind in ["mouseMoved", *(["mousePressed", "mouseReleased"] if click else [])]:
            self(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button=button,
                clickCount=int(click),
                timestamp=self._clock,
            )
        self.run(IDLE)
