"""What the samples share: who they are, how they end, and a small HTTP server. Standard library only; starts in a blink.

Settings come from the environment: START_DELAY_S (not ready before), LINGER_S (goes on answering after SIGTERM, while clients
learn that it leaves), REQUEST_S (how long a request may take), CAPACITY_PER_S (requests that make it fully busy), FAIL_FILE (a
switch: what the file says goes wrong). Used by the programs beside it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

HEAD_BYTES_MAX = 16 << 10
REQUEST_S = 3.0  # below the grace of the samples: nobody who only holds a connection keeps one from ending
LINE_MAX = 200
CAPACITY_PER_S = 50.0
LATELY_S = 10.0
LATELY_MAX = 10_000


class Identity(NamedTuple):
    """As the agent tells it."""

    workload: str
    tenant: str
    slot: str
    generation: str
    region: str
    zone: str
    node: str
    token: str

    def lines(self) -> str:
        return "".join(f"{name}={value}\n" for name, value in self._asdict().items())


def identity(workload: str) -> Identity:
    def told(name: str, default: str = "") -> str:
        return os.environ.get(f"FAIRLEAD_{name}", default)

    return Identity(
        told("WORKLOAD", workload),
        told("TENANT"),
        told("SLOT", "0"),
        told("GENERATION", "0"),
        told("REGION"),
        told("ZONE"),
        told("NODE"),
        told("TOKEN"),
    )


def number(name: str, default: float) -> float:
    """A setting. A wrong one ends the program with a word about it."""
    text = os.environ.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise SystemExit(f"{name} must be a number, got {text!r}") from None


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def fault() -> str:
    """What the switch says goes wrong now: ready, health, slow, crash; any other content means ready. Empty: nothing."""
    path = os.environ.get("FAIL_FILE") or os.path.join(os.environ.get("FAIRLEAD_DIR", "."), "fail")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(LINE_MAX).strip() or "ready"
    except OSError:
        return ""


async def pause(seconds: float, stop: asyncio.Event) -> bool:
    """True: it is time to end."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
    return stop.is_set()


def run(main: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> None:
    """Runs until it returns; SIGTERM and SIGINT set the event it is given. Its result is the exit code."""

    async def body() -> int:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number_ in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number_, stop.set)
        return await main(stop)

    sys.exit(asyncio.run(body()))


class Site:
    """A few paths over HTTP/1.1, one request a connection. `page` gives the text of `/`."""

    def __init__(self, page: Callable[[str], str], stop: asyncio.Event) -> None:
        self._page = page
        self._stop = stop
        self._request_s = number("REQUEST_S", REQUEST_S)
        self._ready = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.requests_total = 0
        self._capacity_per_s = number("CAPACITY_PER_S", CAPACITY_PER_S)
        self._lately: deque[float] = deque(maxlen=LATELY_MAX)  # when it was asked

    def busy(self) -> float:
        """What it was asked lately, of what it could answer: for an Autoscaler, which reads it at /metrics."""
        since = asyncio.get_running_loop().time() - LATELY_S
        return sum(at >= since for at in self._lately) / LATELY_S / self._capacity_per_s

    async def serve(self, who: Identity) -> int:
        host, port = os.environ.get("FAIRLEAD_ADDRESS") or "127.0.0.1", int(number("PORT", 0))
        server = await asyncio.start_server(self._connected, host, port, limit=HEAD_BYTES_MAX)
        address = server.sockets[0].getsockname()
        where = f"{who.node} ({who.region})" if who.node else "this machine"
        say(f"{who.workload} slot {who.slot} generation {who.generation} on {where} listens at {address[0]}:{address[1]}")
        if not await pause(number("START_DELAY_S", 0.0), self._stop):
            self._ready = True
            await self._stop.wait()
        self._ready = False
        await pause(number("LINGER_S", 0.0), asyncio.Event())
        server.close()
        await self._idle.wait()
        say(f"{who.workload} slot {who.slot} ends after {self.requests_total} requests")
        return 0

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._under_way += 1
        self._idle.clear()
        try:
            async with asyncio.timeout(self._request_s):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status, text = await self._answer(head.partition("\r\n")[0])
                writer.write(_response(status, text))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked has gone, or asked in no way that can be answered
        finally:
            writer.close()
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def _answer(self, line: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        path = rest.partition(" ")[0].partition("?")
        wrong = fault()
        if wrong == "crash":
            say("crashes, as it was told to")
            os._exit(1)
        if wrong == "slow":
            await pause(2.0, asyncio.Event())
        match path[0]:
            case _ if method != "GET":
                return "405 Method Not Allowed", "only GET\n"
            case "/health":
                return ("500 Internal Server Error", "told to fail\n") if wrong == "health" else ("200 OK", "healthy\n")
            case "/ready":
                bad = not self._ready or wrong in ("ready", "health")
                return ("503 Service Unavailable", "not ready\n") if bad else ("200 OK", "ready\n")
            case "/metrics":
                return "200 OK", f"# TYPE busy gauge\nbusy {self.busy():.3f}\n"
            case "/":
                self.requests_total += 1
                self._lately.append(asyncio.get_running_loop().time())
                return "200 OK", self._page(path[2])
            case _:
                return "404 Not Found", "no such page\n"


def _response(status: str, text: str) -> bytes:
    body = text.encode()
    lines = (f"HTTP/1.1 {status}", "Content-Type: text/plain; charset=utf-8", f"Content-Length: {len(body)}", "Connection: close")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode() + body
