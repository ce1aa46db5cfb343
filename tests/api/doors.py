"""A front door for tests: real authorities in memory behind the real application, called in process or over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.applications import Starlette
from starlette.requests import Request

from fairlead.api.access import Authorise, Identity
from fairlead.api.app import make_app
from fairlead.api.frontdoor import FrontDoor
from fairlead.api.server import CONNECTIONS_MAX, Server, make_server
from fairlead.authority.authority import Authority
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalFeed, LocalPlane
from fairlead.authority.state import Rec
from fairlead.client.decisions import DecisionQuery, ExplainedPage
from fairlead.client.plane import Expired
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.model.commands import Command, Outcome, Unknown
from fairlead.model.lifecycle import Role
from fairlead.observe.timeline import Step
from fairlead.ports import SystemClock, Tasks
from tests.authority.planes import PlaneForTest, running_plane

ADA = Identity("ada", Role.OPERATOR, groups=("people",))
TOKENS = {
    "ada-token": ADA,
    "eve-token": Identity("eve", Role.USER, tenant="risk"),
    "node-token": Identity("agent-n1", Role.AGENT, node="us-n1"),
}
GROUP = "/apis/fairlead.dev/v1alpha1"


def authenticate(request: Request) -> Identity | None:
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    return TOKENS.get(token)


def allow_all(identity: Identity, verb: str, plural: str, tenant: str, name: str, subresource: str) -> bool:
    return True


def own_tenant_only(identity: Identity, verb: str, plural: str, tenant: str, name: str, subresource: str) -> bool:
    return not identity.tenant or tenant == identity.tenant


class Cuttable:
    """A plane whose connection a test can cut; what was under way then is unknown, as from afar."""

    def __init__(self, plane: LocalPlane) -> None:
        self._plane = plane
        self.connected = True
        self.unwritable_s: float | None = None
        self._feeds: list[_CutFeed] = []

    def cut(self) -> None:
        self.connected = False
        for feed in self._feeds:
            feed.cut = True
            feed.poke()

    def mend(self) -> None:
        self.connected = True

    def _check(self) -> None:
        if not self.connected:
            raise Unreachable("cut")

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        if not self.connected:
            return [Unknown("cut") for _ in commands]
        return await self._plane.submit(commands)

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Rec | None:
        self._check()
        return await self._plane.get(plural, tenant, name, revision)

    async def page(self, plural: str, tenant: str | None = None, **options: Any) -> ChangePage:
        self._check()
        return await self._plane.page(plural, tenant, **options)

    def follow(self, plurals: Sequence[str], after: int) -> _CutFeed:
        feed = _CutFeed(self._plane.follow(plurals, after), not self.connected)
        self._feeds.append(feed)
        return feed

    def revision(self) -> int:
        return self._plane.revision() if self.connected else 0

    def plane_ms(self) -> int:
        return self._plane.plane_ms()

    async def receipt(self, actor: str, key: str) -> Outcome | None:
        self._check()
        return await self._plane.receipt(actor, key)

    async def decisions(self, query: DecisionQuery) -> ExplainedPage:
        self._check()
        return await self._plane.decisions(query)

    async def ask_unwritable_s(self) -> float | None:
        self._check()
        return self.unwritable_s

    async def revision_at(self, time_ms: int) -> int:
        self._check()
        return await self._plane.revision_at(time_ms)

    async def time_at(self, revision: int) -> int:
        self._check()
        return await self._plane.time_at(revision)

    async def steps(self, tenant: str, workload: str, since_ms: int) -> Sequence[Step]:
        self._check()
        return await self._plane.steps(tenant, workload, since_ms)

    async def exported(self, since_ms: int, token: str = "", offset: int = 0) -> tuple[str, int, bytes]:
        self._check()
        return await self._plane.exported(since_ms, token, offset)


class Bare(msgspec.Struct):
    """A change as it comes from afar: without what it replaced."""

    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None
    hot: Any


class _CutFeed:
    def __init__(self, feed: LocalFeed, cut: bool) -> None:
        self._feed = feed
        self.cut = cut

    def take_nowait(self) -> list[Bare]:
        if self.cut:
            raise Expired("the connection broke", 0)
        return [Bare(r.plural, r.tenant, r.name, r.position, r.raw, r.hot) for r in self._feed.take_nowait()]

    async def wait(self) -> None:
        await self._feed.wait()

    def poke(self) -> None:
        self._feed.poke()

    def close(self) -> None:
        self._feed.close()

    @property
    def revision(self) -> int:
        return self._feed.revision


class Door:
    """An application and the planes behind it."""

    def __init__(self, planes: dict[str, PlaneForTest], cuttable: dict[str, Cuttable], app: Starlette) -> None:
        self.planes = planes
        self.cuttable = cuttable
        self.app = app

    @property
    def home(self) -> PlaneForTest:
        return next(iter(self.planes.values()))

    def authority(self, name: str = "global") -> Authority:
        return self.planes[name].authority


@contextlib.asynccontextmanager
async def open_door(*regions: str, authorise: Authorise = allow_all, archive: Path | None = None) -> AsyncIterator[Door]:
    """A global plane and so many regions, all led from here."""
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        planes: dict[str, PlaneForTest] = {}
        served: dict[str, Any] = {}
        cuttable: dict[str, Cuttable] = {}
        for name in ("global", *regions):
            settings = Settings(plane="global" if name == "global" else "region", region=name)
            planes[name] = await stack.enter_async_context(
                running_plane(settings=settings, archive=archive / name if archive else None)
            )
            local = LocalPlane(planes[name].authority, clock)
            served[name] = local
            if name != "global":
                served[name] = cuttable[name] = Cuttable(local)
        app = make_app(FrontDoor(served, clock), authenticate, authorise, clock=clock)
        yield Door(planes, cuttable, app)


# --- calls in process --------------------------------------------------------------------------------------------------


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes
    warnings: list[str]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def scope_of(method: str, path: str, query: str, sent: dict[str, str] | None = None) -> dict[str, Any]:
    """A request as the application gets it; with no headers, Ada's."""
    headers = sent or {"authorization": "Bearer ada-token"}
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "scheme": "https", "server": ("door", 443),
        "client": ("test", 1), "root_path": "", "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
    }  # fmt: skip


async def call(
    door: Door,
    method: str,
    path: str,
    body: Any = None,
    *,
    token: str = "ada-token",
    media: str | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """One request through the application itself, without a socket."""
    text = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
    path, _, query = path.partition("?")
    sent = {"authorization": f"Bearer {token}", **({"content-type": media} if media else {}), **(headers or {})}
    scope = scope_of(method, path, query, sent)
    parts: list[dict[str, Any]] = []
    unread = [{"type": "http.request", "body": text, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return unread.pop() if unread else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        parts.append(message)

    await door.app(scope, receive, send)
    start = parts[0]
    raw = [(name.decode(), value.decode()) for name, value in start["headers"]]
    warnings = [value for name, value in raw if name == "warning"]
    return Answer(start["status"], dict(raw), b"".join(part.get("body", b"") for part in parts[1:]), warnings)


class Stream:
    """A watch through the application itself: the events as they come."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = asyncio.Event()  # with a last chunk
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._rest = b""
        self._left = asyncio.Event()

    async def line(self) -> bytes:
        return await self._lines.get()

    async def next(self) -> Any:
        async with asyncio.timeout(60):
            return msgspec.json.decode(await self.line())

    async def skip_to(self, word: str) -> Any:
        while (event := await self.next())["type"] != word:
            pass
        return event

    def leave(self) -> None:
        self._left.set()

    async def receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        *lines, self._rest = (self._rest + message.get("body", b"")).split(b"\n")
        for line in lines:
            self._lines.put_nowait(line)
        if not message.get("more_body"):
            if self._rest:
                self._lines.put_nowait(self._rest)
            self.ended.set()


@contextlib.asynccontextmanager
async def watching(door: Door, path: str, token: str = "ada-token") -> AsyncIterator[Stream]:
    stream = Stream()
    path, _, query = path.partition("?")
    scope = scope_of("GET", path, f"watch=true&{query}", {"authorization": f"Bearer {token}"})
    async with Tasks() as tasks:
        tasks.start(door.app(scope, stream.receive, stream.send), "watch")
        yield stream
        stream.leave()


def workload(name: str, **spec: Any) -> dict[str, Any]:
    template = {"driver": "process", "command": ["/bin/api"]}
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": name, "labels": spec.pop("labels", {})},
        "spec": {"template": template, "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}, **spec},
    }


def node(name: str, region: str) -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"region": region, "zone": "a", "allocatable": {"cpu": "4", "memory": "8Gi"}},
    }


# --- over TLS ----------------------------------------------------------------------------------------------------------


def write_certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A CA and a certificate for 127.0.0.1: (ca, certificate, key)."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test ca")])
    start, end = datetime.datetime(2020, 1, 1), datetime.datetime(2100, 1, 1)

    def builder(subject: x509.Name, public: Any) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(ca_name).public_key(public)
        return made.serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(end)

    ca = builder(ca_name, ca_key.public_key()).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
    leaf = builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "door")]), key.public_key()).add_extension(names, False)
    paths = folder / "ca.pem", folder / "door.pem", folder / "door.key"
    paths[0].write_bytes(ca.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(leaf.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )  # fmt: skip
    paths[2].write_bytes(private)
    return paths


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@contextlib.asynccontextmanager
async def listening(app: Starlette, tls: ssl.SSLContext | None, connections_max: int = CONNECTIONS_MAX) -> AsyncIterator[Server]:
    server = make_server(app, tls=tls, connections_max=connections_max)
    async with Tasks() as tasks:
        task = tasks.start(server.serve(), "server")
        while not server.started:
            await SystemClock().sleep(0.005)
        try:
            yield server
        finally:
            server.stop()
            await task


def kubeconfig(folder: Path, server: Server, ca: Path, token: str = "ada-token", namespace: str = "risk") -> Path:
    path = folder / f"kubeconfig-{token}"
    path.write_text(
        f"""apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: door, cluster: {{server: "https://127.0.0.1:{server.port}", certificate-authority: "{ca}"}}}}]
users: [{{name: me, user: {{token: {token}}}}}]
contexts: [{{name: test, context: {{cluster: door, user: me, namespace: {namespace}}}}}]
"""
    )
    return path
