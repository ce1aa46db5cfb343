"""Several `fairlead server` processes of one plane on one store, with certificates as `fairlead certs` makes them, and an HTTP
client that proves itself by certificate. What the tests of high availability are made of.

Owns the processes and their files; asserts nothing about what they answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from fairlead.ports import SystemClock
from fairlead.security.certificates import Named
from fairlead.security.folder import LOCAL_HOSTS, CertificateFolder
from fairlead.security.tls import client_context
from tests.servers.ports import free_ports

WAIT_S = 60.0  # nothing takes so long but on a machine that is busy with something else
GROUP = "/apis/fairlead.dev/v1alpha1"
ADMIN_BINDING = """\
apiVersion: fairlead.dev/v1alpha1
kind: AccessBinding
metadata: {name: admin}
spec: {role: admin, subjects: [{name: admin}], tenants: ["*"]}
"""


class Pki:
    """One authority, and what everybody of a test needs of it."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.folder = CertificateFolder(path, SystemClock())
        self.folder.create()
        self.issue("server", "server", hosts=LOCAL_HOSTS)
        self.issue("user", "admin")

    def issue(self, purpose: Any, name: str, *, roles: Sequence[str] = (), region: str = "", hosts: Sequence[str] = ()) -> None:
        self.folder.issue(Named(purpose, name, tuple(roles), region), hosts=hosts)

    def files(self, name: str) -> dict[str, str]:
        certificate, key = self.folder.files_of(name)
        return {"certificate": str(certificate), "key": str(key), "authority": str(self.folder.authorities)}

    def session(self, user: str = "admin") -> aiohttp.ClientSession:
        """Unlimited connections: watches hold theirs for as long as they last."""
        context = client_context(self.folder.authorities, *self.folder.files_of(user))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=WAIT_S)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=0), timeout=timeout)


class Program:
    """One `fairlead` process."""

    def __init__(self, words: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self._words = [sys.executable, "-m", "fairlead.main", *words]
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._paused = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def answers(self) -> bool:
        """Whoever asks one that is paused waits until it goes on."""
        return self.running and not self._paused

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self, on: bool = True) -> None:
        assert self._process is not None
        self._paused = on
        self._process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def terminate(self) -> None:
        assert self._process is not None
        self._process.terminate()

    async def wait_ended(self) -> int:
        assert self._process is not None
        await until(lambda: self._process is not None and self._process.poll() is not None, self.said)
        return int(self._process.returncode)

    def end(self) -> None:
        """Whatever state it is in."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()


def end_instances(folder: Path) -> None:
    """Kills what the agents of a folder started: it outlives them, in production on purpose."""
    for process in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in process.read_bytes() and int(process.parent.name) != os.getpid():
                words = (process.parent / "cmdline").read_bytes()
                if b"fairlead.main" not in words:
                    os.kill(int(process.parent.name), 9)
        except OSError:
            continue


async def until(condition: Callable[[], bool], said: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, said()
        await asyncio.sleep(0.02)


class Fleet:
    """The servers of one plane. They are called a, b, c, and so are their addresses."""

    def __init__(
        self, folder: Path, pki: Pki, store: str, *, region: str = "", names: str = "abc", peers: Sequence[Any] = (),
        environment: dict[str, str] | None = None, **more: Any,
    ) -> None:  # fmt: skip
        self.pki = pki
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.addresses = {name: f"https://127.0.0.1:{port}" for name, port in self.ports.items()}
        component = f"{region or 'global'}-server"
        pki.issue("component", component, roles=("mirror" if region else "front-door", "plane-server"), region=region)
        folder.mkdir(parents=True, exist_ok=True)
        seed = folder / "seed"
        seed.mkdir()
        if not region:
            (seed / "access.yaml").write_text(ADMIN_BINDING)
        self.servers: dict[str, Program] = {}
        for name, port in self.ports.items():
            config = {
                "plane": "region" if region else "global", "region": region, "name": f"{region or 'global'}-{name}",
                "store": store, "data": str(folder / name), "listen": f"127.0.0.1:{port}", "seed": str(seed),
                "tls": pki.files("server"), "identity": pki.files(component), "peers": list(peers), "leaseTtlS": 3.0, **more,
            }  # fmt: skip
            path = folder / f"{name}.json"
            path.write_text(json.dumps(config))
            self.servers[name] = Program(["server", "--config", str(path)], folder / f"{name}.log", environment)

    def said(self) -> str:
        return "\n".join(f"--- {name}\n{server.said()}" for name, server in self.servers.items())

    def end(self) -> None:
        for server in self.servers.values():
            server.end()

    async def start(self, session: aiohttp.ClientSession) -> None:
        """Those that do not run."""
        for server in self.servers.values():
            if not server.running:
                server.start()
        for name in self.servers:
            await self.wait_ready(session, name)

    async def wait_ready(self, session: aiohttp.ClientSession, name: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not (await self.readiness(session, name)).endswith("\nready\n"):
            assert self.servers[name].running, self.servers[name].said()
            assert time.monotonic() < deadline, self.said()
            await asyncio.sleep(0.05)

    async def readiness(self, session: aiohttp.ClientSession, name: str) -> str:
        try:
            async with session.get(f"{self.addresses[name]}/readyz?verbose", timeout=aiohttp.ClientTimeout(total=5)) as answer:
                return await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return ""

    async def leader(self, session: aiohttp.ClientSession) -> str:
        """The one that says of itself that it leads."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for name, server in self.servers.items():
                if server.running and "[+]leader leads" in await self.readiness(session, name):
                    return name
            await asyncio.sleep(0.05)
        raise AssertionError(f"nobody leads\n{self.said()}")


class Answer:
    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self.body = body


async def call(
    session: aiohttp.ClientSession, method: str, url: str, body: Any = None, *, key: str = "", media: str = "application/json"
) -> Answer:
    """Status 0: nobody knows what became of it."""
    headers = {"content-type": media, **({"idempotency-key": key} if key else {})}
    data = None if body is None else json.dumps(body)
    try:
        async with session.request(method, url, data=data, headers=headers) as answer:
            return Answer(answer.status, json.loads(await answer.read() or b"null"))
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return Answer(0, str(error))


def good(answer: Answer) -> Any:
    assert 200 <= answer.status < 300, (answer.status, answer.body)
    return answer.body


class Watch:
    """A client as client-go has one: lists, watches from there, goes on from the last version it has seen, lists again on 410.
    `at` says which server it asks next."""

    def __init__(self, session: aiohttp.ClientSession, path: str, at: Callable[[], str]) -> None:
        self._session = session
        self._path = path
        self._at = at
        self.version = ""
        self.events: list[tuple[str, str, int]] = []  # type, name, resourceVersion
        self.objects: dict[str, Any] = {}
        self.lists = 0
        self.clean_ends = 0
        self.broken_ends = 0
        self.refused = 0  # attempts that were told no: while nobody leads, say
        self.streams = 0

    async def run(self) -> None:
        while True:
            if not self.version and not await self._list():
                await asyncio.sleep(0.05)
                continue
            try:
                if await self._stream():
                    self.clean_ends += 1
                else:
                    self.refused += 1
                    await asyncio.sleep(0.02)
            except (aiohttp.ClientError, TimeoutError):
                self.broken_ends += 1
                await asyncio.sleep(0.02)

    async def _list(self) -> bool:
        answer = await call(self._session, "GET", self._at() + self._path)
        if answer.status != 200:
            return False
        self.lists += 1
        self.version = answer.body["metadata"]["resourceVersion"]
        self.objects = {one["metadata"]["name"]: one for one in answer.body["items"]}
        return True

    async def _stream(self) -> bool:
        """False: it was refused."""
        url = f"{self._at()}{self._path}?watch=true&allowWatchBookmarks=true&resourceVersion={self.version}"
        async with self._session.get(url) as answer:
            if answer.status != 200:
                self.version = "" if answer.status == 410 else self.version
                return False
            self.streams += 1
            async for line in answer.content:
                self._saw(json.loads(line))
        return True

    def _saw(self, event: Any) -> None:
        if event["type"] == "ERROR":
            if event["object"]["code"] == 410:
                self.version = ""
            return
        metadata = event["object"]["metadata"]
        self.version = metadata["resourceVersion"]
        if event["type"] == "BOOKMARK":
            return
        self.events.append((event["type"], metadata["name"], int(self.version)))
        if event["type"] == "DELETED":
            self.objects.pop(metadata["name"], None)
        else:
            self.objects[metadata["name"]] = event["object"]


@asynccontextmanager
async def watching(*watches: Watch) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch.run()) for watch in watches]
        for watch in watches:
            await until(lambda watch=watch: watch.streams > 0)  # type: ignore[misc]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
