"""What a user does in `fairlead bench api`: creates, changes and deletes workloads over HTTPS, and watches what becomes of their
slots. Owns the requests and the clock on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from bench.api_rig import REGION, Rig

GROUP = "/apis/fairlead.dev/v1alpha1"
_LINE_MAX = 64 << 20


class _Meta(msgspec.Struct, gc=False, frozen=True):
    name: str
    namespace: str = ""
    resourceVersion: str = ""


class _Status(msgspec.Struct, gc=False, frozen=True):
    state: str = ""


class _Spec(msgspec.Struct, gc=False, frozen=True):
    generation: int = 1


class _Object(msgspec.Struct, gc=False, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Event(msgspec.Struct, gc=False, frozen=True):
    type: str
    object: _Object


_event = msgspec.json.Decoder(_Event).decode


class Api:
    """One user with one token, at the front door and at the region's own."""

    def __init__(self, rig: Rig, connections: int = 32) -> None:
        self._rig = rig
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._rig.tls(), keepalive_timeout=120)
        headers = {"Authorization": f"Bearer {self._rig.token}"}
        self._session = aiohttp.ClientSession(
            connector=connector, headers=headers, timeout=aiohttp.ClientTimeout(total=None), read_bufsize=1 << 20
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None
        return self._session

    async def request(self, method: str, path: str, body: Any = None, *, plane: str = "global", media: str = "") -> Any:
        headers = {"Content-Type": media or "application/json"}
        data = msgspec.json.encode(body) if body is not None else None
        async with self.session.request(method, self._rig.address(plane) + path, data=data, headers=headers) as answer:
            raw = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {raw[:500]!r}")
            return msgspec.json.decode(raw) if raw[:1] == b"{" else raw

    async def create(self, tenant: str, name: str, replicas: int, **spec: Any) -> Any:
        return await self.request("POST", f"{GROUP}/namespaces/{tenant}/workloads", workload(tenant, name, replicas, **spec))

    async def patch(self, tenant: str, name: str, spec: dict[str, Any]) -> None:
        path = f"{GROUP}/namespaces/{tenant}/workloads/{name}"
        await self.request("PATCH", path, {"spec": spec}, media="application/merge-patch+json")

    async def delete(self, tenant: str, name: str) -> None:
        await self.request("DELETE", f"{GROUP}/namespaces/{tenant}/workloads/{name}")

    async def get(self, plural: str, tenant: str, name: str, plane: str = "global") -> Any:
        return await self.request("GET", f"{GROUP}/namespaces/{tenant}/{plural}/{name}", plane=plane)

    async def list(self, plural: str, plane: str = "global") -> list[Any]:
        out: list[Any] = []
        token = ""
        while True:
            more = f"&continue={token}" if token else ""
            page = await self.request("GET", f"{GROUP}/{plural}?limit=500{more}", plane=plane)
            out += page["items"]
            token = page["metadata"].get("continue", "")
            if not token:
                return out

    async def metrics(self, plane: str) -> dict[str, dict[str, float]]:
        """Metric -> labels as they are written -> value."""
        text = (await self.request("GET", "/metrics", plane=plane)).decode()
        out: dict[str, dict[str, float]] = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                metric, _, labels = name.partition("{")
                out.setdefault(metric, {})[labels.rstrip("}")] = float(value)
        return out

    async def version(self, plural: str, plane: str) -> str:
        page = await self.request("GET", f"{GROUP}/{plural}?limit=1", plane=plane)
        return str(page["metadata"]["resourceVersion"])

    async def watch(self, plural: str, plane: str, version: str, told: Callable[[bytes], None], tenant: str = "") -> None:
        """Every line of a watch, until cancelled or ended by the server."""
        within = f"/namespaces/{tenant}" if tenant else ""
        url = f"{self._rig.address(plane)}{GROUP}{within}/{plural}?watch=1&resourceVersion={version}"
        async with self.session.get(url) as answer:
            if answer.status != 200:
                raise RuntimeError(f"{url}: {answer.status} {await answer.text()}")
            rest = b""
            async for chunk in answer.content.iter_any():
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                assert len(rest) < _LINE_MAX
                for line in lines:
                    told(line)


def workload(tenant: str, name: str, replicas: int, cpu: str = "100m", memory: str = "64Mi", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": tenant},
        "spec": {
            "replicas": replicas,
            "template": {"driver": "simulated", "image": spec.pop("image", "one")},
            "resources": {"requests": {"cpu": cpu, "memory": memory}},
            **spec,
            "rollout": {"minReadySeconds": 0, **spec.get("rollout", {})},  # steps are measured, not how long people wait between
        },
    }


class Slots:
    """When each slot was first seen in each state, by a watch of bindings at the region's own door."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._started: dict[tuple[str, str], float] = {}  # (tenant, workload) -> when its create was sent
        self.seen: dict[str, dict[tuple[str, str, int], float]] = {}  # state -> (tenant, slot, generation) -> when
        self.events = 0
        self._wanted = 0
        self._reached = asyncio.Event()
        self._of = ""

    def sent(self, tenant: str, name: str) -> None:
        self._started[tenant, name] = time.perf_counter()

    async def run(self, version: str) -> None:
        await self._api.watch("bindings", REGION, version, self._told)

    async def version(self) -> str:
        return await self._api.version("bindings", REGION)

    def _told(self, line: bytes) -> None:
        event = _event(line)
        self.events += 1
        if event.type == "ERROR":
            raise RuntimeError(f"the watch of bindings ended: {line[:300]!r}")
        if event.type == "DELETED":
            key = "gone"
        else:
            key = event.object.status.state
        meta = event.object.metadata
        seen = self.seen.setdefault(key, {})
        seen.setdefault((meta.namespace, meta.name, event.object.spec.generation), time.perf_counter())
        if key == self._of and len(seen) >= self._wanted:
            self._reached.set()

    def clear(self) -> None:
        self.seen.clear()
        self._started.clear()
        self.events = 0

    def count(self, state: str) -> int:
        return len(self.seen.get(state, ()))

    async def wait(self, state: str, count: int, seconds: float) -> bool:
        """False: so many were not seen in that state in time."""
        self._of, self._wanted = state, count
        self._reached.clear()
        if self.count(state) >= count:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._reached.wait()
        except TimeoutError:
            return False
        return True

    def latencies(self, state: str) -> list[float]:
        """From the create of each workload to each of its slots in that state."""
        out = []
        for (tenant, slot, _), when in self.seen.get(state, {}).items():
            started = self._started.get((tenant, slot.rpartition("-")[0]))
            if started is not None:
                out.append(when - started)
        return out

    def last(self, state: str) -> float:
        return max(self.seen.get(state, {}).values(), default=0.0)
