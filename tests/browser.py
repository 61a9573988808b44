"""Pages in a headless Chromium, over its debugging protocol."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")
SCREENS = {"wide": (1300, 900, False), "phone": (390, 800, True)}


class Tab(NamedTuple):
    """A page in a browser. `problems` are errors in its console, exceptions and refusals."""

    socket: ClientWebSocketResponse
    problems: list[str]

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Returns the answer to a command, and collects problems that come before it."""
        await self.socket.send_json({"id": 1, "method": method, "params": parameters})
        while (answer := await self.event()).get("id") != 1:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def event(self) -> dict[str, Any]:
        """Returns the next message of the browser."""
        message: dict[str, Any] = await self.socket.receive_json(timeout=60)
        found = message.get("params", {})
        if message.get("method") == "Log.entryAdded" and found["entry"]["level"] == "error":
            self.problems.append(found["entry"]["text"])
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(found["exceptionDetails"]))
        return message

    async def run(self, script: str) -> Any:
        """Returns the value of a JavaScript expression."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def open(self, url: str, screen: str, scheme: str) -> None:
        """Opens a page on a screen of SCREENS, with the colour scheme light or dark."""
        width, height, is_mobile = SCREENS[screen]
        for domain in ("Page", "Log", "Runtime"):
            await self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_mobile}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.call("Emulation.setEmulatedMedia", features=[feature])
        await self.call("Page.navigate", url=url)
        while (await self.event()).get("method") != "Page.loadEventFired":
            pass


def browse(
    use: Callable[[Tab], Awaitable[None]], profile: Path, url: str, screen: str, scheme: str
) -> list[str]:
    """Opens a page, calls `use`, and returns the page's problems. Ends the browser."""
    assert PROGRAM is not None
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0")
    command = [PROGRAM, *options, f"--user-data-dir={profile}", "about:blank"]

    async def visit(place: str) -> list[str]:
        async with ClientSession() as session:
            async with session.get(f"{place}/json") as answer:
                pages = [p for p in json.loads(await answer.text()) if p["type"] == "page"]
            address = pages[0]["webSocketDebuggerUrl"]
            async with session.ws_connect(address, max_msg_size=0) as socket:
                tab = Tab(socket, [])
                await tab.open(url, screen, scheme)
                await use(tab)
                return tab.problems

    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as browser:
        try:
            assert browser.stderr is not None
            lines = iter(browser.stderr.readline, "")
            port = next(m[1] for line in lines if (m := re.search(r"ws://[^:]+:(\d+)/", line)))
            return asyncio.run(visit(f"http://127.0.0.1:{port}"))
        finally:
            browser.kill()
