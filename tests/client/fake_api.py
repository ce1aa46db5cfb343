"""A small server of the resource API in memory, on a thread of its own, that misbehaves on demand. For tests of clients.

Follows docs/api.md as far as the client uses it: lists with pages, tables, watches with history, server-side apply, dry run,
receipts. Its faults are what real networks and servers do: a connection lost after the commit, history cut away, a watch ended.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import msgspec
from aiohttp import web

ROOT = "/apis/fairlead.dev/v1alpha1"
KINDS = {
    "workloads": ("Workload", True, ["wl"]),
    "nodes": ("Node", False, ["no"]),
    "tenants": ("Tenant", False, []),
    "bindings": ("Binding", True, []),
    "revisions": ("Revision", True, ["rev"]),
    "evictionrequests": ("EvictionRequest", True, []),
    "events": ("Event", True, ["ev"]),
    "quotas": ("Quota", True, []),
    "grants": ("Grant", True, []),
    "recoverybudgets": ("RecoveryBudget", True, []),
    "regions": ("Region", False, []),
    "regionoutlooks": ("RegionOutlook", False, []),
    "overrides": ("Override", True, []),
    "gadgets": ("Gadget", True, ["gd"]),  # a kind this program does not know
}
Object = dict[str, Any]


class Fault(Exception):
    def __init__(self, code: int, reason: str, message: str, causes: list[dict[str, str]] | None = None) -> None:
        super().__init__(message)
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
        }
        if causes:
            self.status["details"] = {"causes": causes}


class FakeApi:
    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.history: list[tuple[int, str, str, Object]] = []  # revision, type, plural, object
        self.revision = 100
        self.floor = 0  # watches from below it are too late
        self.receipts: dict[str, Object] = {}
        self.requests: list[tuple[str, str, dict[str, str], dict[str, str]]] = []  # method, path, query, headers
        self.page_max = 500
        self.token = ""
        self.denied: set[str] = set()  # names of objects, and paths
        self.drop_writes = 0  # so many writes are committed and their answers lost
        self.drop_reads = 0
        self.lose_receipts = False
        self.answers: list[tuple[str, int, dict[str, str]]] = []  # (method, code, headers) given before anything else
        self.away = ""  # a region without which nothing can be answered
        self.watches = 0
        self.watches_allowed = 1_000_000
        self.end_after: list[int] = []  # after how many events each watch in turn is ended
        self.on_watch: dict[int, Any] = {}  # number of a watch -> what happens once it is open
        self.on_write: Any = None  # called with (method, plural, name) before a write is judged
        self.wall_s = 1_800_000_000.0  # what its clock says
        self.url = ""
        self.warning = ""
        self.wake = asyncio.Event()
        self.log_chunks: list[bytes] = []

    # --- what tests do to it

    def put(self, plural: str, name: str, namespace: str = "", *, labels: Any = None, **parts: Any) -> Object:
        kind = KINDS[plural][0]
        metadata: Object = {"name": name, "generation": 1, "labels": labels or {}, "creationTimestamp": "2026-01-01T00:00:00Z"}
        if namespace:
            metadata["namespace"] = namespace
        old = self.objects.get((plural, namespace, name))
        metadata["uid"] = old["metadata"]["uid"] if old else f"uid-{self.revision + 1}"
        made = {"apiVersion": "fairlead.dev/v1alpha1", "kind": kind, "metadata": metadata, **parts}
        return self.store(plural, made)

    def store(self, plural: str, made: Object) -> Object:
        metadata = made["metadata"]
        key = (plural, metadata.get("namespace", ""), metadata["name"])
        self.revision += 1
        metadata["resourceVersion"] = str(self.revision)
        event = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = made
        self._tell(event, plural, made)
        return made

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        gone = copy.deepcopy(self.objects.pop((plural, namespace, name)))
        self.revision += 1
        gone["metadata"]["resourceVersion"] = str(self.revision)
        self._tell("DELETED", plural, gone)

    def _tell(self, event: str, plural: str, made: Object) -> None:
        self.history.append((self.revision, event, plural, copy.deepcopy(made)))
        self.wake.set()
        self.wake = asyncio.Event()

    def compact(self) -> None:
        """Forgets how it came to be as it is."""
        self.floor = self.revision
        self.history.clear()

    def sent(self, method: str) -> list[tuple[str, dict[str, str], dict[str, str]]]:
        return [(path, query, headers) for verb, path, query, headers in self.requests if verb == method]

    # --- answering

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.query), dict(request.headers)))
        try:
            self._admit(request)
            response = await self._dispatch(request)
            response.headers["Date"] = formatdate(self.wall_s, usegmt=True)
            if self.warning:
                response.headers["Warning"] = f'299 - "{self.warning}"'
            return response
        except Fault as fault:
            return web.json_response(fault.status, status=fault.status["code"])

    def _admit(self, request: web.Request) -> None:
        for index, (method, code, _) in enumerate(self.answers):
            if method == request.method:
                del self.answers[index]
                raise Fault(
                    code, {429: "TooManyRequests", 503: "ServiceUnavailable", 504: "Timeout"}.get(code, "Odd"), f"told {code}"
                )
        if self.away:
            cause = {"reason": "RegionUnreachable", "message": self.away, "field": ""}
            raise Fault(503, "ServiceUnavailable", f"{self.away} cannot be reached", [cause])
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            raise Fault(401, "Unauthorized", "Unauthorized")
        if request.path in self.denied:
            raise Fault(403, "Forbidden", f"{request.path} may not be read")
        if request.method == "GET" and self.drop_reads:
            self.drop_reads -= 1
            _abort(request)

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == ROOT:
            return web.json_response({"kind": "APIResourceList", "resources": [
                {"name": plural, "kind": kind, "namespaced": namespaced, "shortNames": short}
                for plural, (kind, namespaced, short) in KINDS.items()]})  # fmt: skip
        if path == "/version":
            return web.json_response({"gitVersion": "v1.32.0+fairlead.9"})
        if path.startswith(f"{ROOT}/receipts/"):
            return self._receipt(path.rpartition("/")[2])
        core = path.startswith("/api/v1")
        segments = path.removeprefix("/api/v1" if core else ROOT).strip("/").split("/")
        namespace = segments[1] if segments[0] == "namespaces" else ""
        plural, name, sub = (*(segments[2:] if namespace else segments), "", "")[:3]
        if plural not in KINDS:
            raise Fault(404, "NotFound", f"the server could not find {path!r}")
        if sub == "log":
            return await self._log(request)
        if request.method == "GET":
            return await self._read(request, plural, namespace, name, sub)
        return await self._write(request, plural, namespace, name, sub)

    def _receipt(self, key: str) -> web.Response:
        if self.lose_receipts or key not in self.receipts:
            raise Fault(404, "NotFound", f'receipts "{key}" not found')
        return web.json_response(self.receipts[key])

    async def _log(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        for chunk in self.log_chunks:
            await response.write(chunk)
        await response.write_eof()
        return response

    # --- reading

    async def _read(self, request: web.Request, plural: str, namespace: str, name: str, sub: str) -> web.StreamResponse:
        if name:
            return self._shown(request, self._found(plural, namespace, name), sub)
        if request.query.get("watch"):
            return await self._watch(request, plural, namespace)
        found = [
            each for key, each in sorted(self.objects.items()) if key[0] == plural and self._matches(request, namespace, each)
        ]
        start = int(request.query.get("continue", "0"))
        size = min(int(request.query.get("limit", "500")), self.page_max)
        more = {"continue": str(start + size)} if start + size < len(found) else {}
        metadata = {"resourceVersion": str(self.revision), **more}
        page = found[start : start + size]
        if "as=Table" in request.headers["Accept"]:
            return web.json_response(self._table(request, plural, page) | {"metadata": metadata})
        return web.json_response({"kind": f"{KINDS[plural][0]}List", "metadata": metadata, "items": page})

    def _found(self, plural: str, namespace: str, name: str) -> Object:
        if name in self.denied:
            raise Fault(403, "Forbidden", f'{plural} "{name}" is forbidden')
        found = self.objects.get((plural, namespace, name))
        if found is None:
            raise Fault(404, "NotFound", f'{plural}.fairlead.dev "{name}" not found')
        return found

    def _shown(self, request: web.Request, each: Object, sub: str) -> web.Response:
        if sub == "scale":
            metadata = {name: each["metadata"][name] for name in ("name", "resourceVersion")}
            return web.json_response(
                {"kind": "Scale", "metadata": metadata, "spec": {"replicas": each["spec"].get("replicas", 1)}}
            )
        if "as=Table" in request.headers["Accept"]:
            return web.json_response(self._table(request, "workloads" if each["kind"] == "Workload" else "others", [each]))
        return web.json_response(each)

    def _matches(self, request: web.Request, namespace: str, each: Object) -> bool:
        metadata = each["metadata"]
        if namespace and metadata.get("namespace") != namespace:
            return False
        labels = request.query.get("labelSelector", "")
        if labels and any(metadata["labels"].get(pair.partition("=")[0]) != pair.partition("=")[2] for pair in labels.split(",")):
            return False
        for pair in filter(None, request.query.get("fieldSelector", "").split(",")):
            path, _, value = pair.partition("=")
            found: Any = each
            for step in path.split("."):
                found = found.get(step, {}) if isinstance(found, dict) else {}
            if str(found or "") != value:
                return False
        return True

    def _table(self, request: web.Request, plural: str, items: list[Object]) -> Object:
        names = [("Name", 0), ("Tenant", 0), ("Desired", 0), ("Gen", 1)] if plural == "workloads" else [("Name", 0), ("Age", 0)]
        whole = request.query.get("includeObject") == "Object"

        def row(each: Object) -> Object:
            metadata = each["metadata"]
            cells = [metadata["name"], "3d"]
            if plural == "workloads":
                cells = [metadata["name"], metadata["namespace"], each.get("spec", {}).get("replicas", 1), metadata["generation"]]
            return {"cells": cells, "object": each if whole else {"kind": "PartialObjectMetadata", "metadata": metadata}}

        columns = [{"name": name, "priority": priority, "type": "string"} for name, priority in names]
        metadata = {"resourceVersion": str(self.revision)}
        return {"kind": "Table", "metadata": metadata, "columnDefinitions": columns, "rows": [row(each) for each in items]}

    async def _watch(self, request: web.Request, plural: str, namespace: str) -> web.StreamResponse:
        self.watches += 1
        number = self.watches
        if number > self.watches_allowed:
            raise Fault(403, "Forbidden", "no more watches")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since = int(request.query.get("resourceVersion") or 0)
        left = self.end_after.pop(0) if self.end_after else 1_000_000
        if number in self.on_watch:
            self.on_watch[number]()
        if since < self.floor:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await response.write(msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n")
            left = 0
        table = "as=Table" in request.headers["Accept"]
        while left > 0:
            wake = self.wake
            for revision, event, kind, each in [entry for entry in self.history if entry[0] > since]:
                since = revision
                if kind == plural and self._matches(request, namespace, each):
                    shown = self._table(request, plural, [each]) if table else each
                    await response.write(msgspec.json.encode({"type": event, "object": shown}) + b"\n")
                    left -= 1
                    if not left:
                        break
            else:
                if number >= self.watches_allowed:
                    break  # the next one is refused: what a test waits for has been told
                await wake.wait()
        await response.write_eof()
        return response

    # --- writing

    async def _write(self, request: web.Request, plural: str, namespace: str, name: str, sub: str) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read() or b"{}")
        key = request.headers.get("Idempotency-Key", "")
        name = name or body["metadata"]["name"]
        if key in self.receipts:
            found = self.objects.get((plural, namespace, name), {"kind": "Status", "status": "Success"})
            return web.json_response(found)
        if self.on_write is not None:
            self.on_write(request.method, plural, name)
        code, made = self._judged(request, plural, namespace, name, sub, body)
        dry = "dryRun" in request.query or bool(isinstance(body, dict) and body.get("dryRun"))
        if not dry:
            self._commit(request.method, plural, namespace, name, made)
            if key:
                self.receipts[key] = {"kind": "Receipt", "metadata": {"name": key}, "status": {"outcome": "Accepted"}}
            if self.drop_writes:
                self.drop_writes -= 1
                _abort(request)
        return web.json_response(made, status=code)

    def _commit(self, method: str, plural: str, namespace: str, name: str, made: Object) -> None:
        old = self.objects.get((plural, namespace, name))
        if method == "DELETE":
            if made["metadata"].get("finalizers"):
                self.store(plural, made)
            else:
                self.remove(plural, name, namespace)
        elif old is None or _versionless(old) != _versionless(made):
            self.store(plural, made)
            made["metadata"]["resourceVersion"] = str(self.revision)

    def _judged(self, request: web.Request, plural: str, namespace: str, name: str, sub: str, body: Any) -> tuple[int, Object]:
        if name in self.denied:
            raise Fault(403, "Forbidden", f'{plural} "{name}" is forbidden')
        old = self.objects.get((plural, namespace, name))
        if request.method == "POST" and old is not None:
            raise Fault(409, "AlreadyExists", f'{plural}.fairlead.dev "{name}" already exists')
        applies = request.content_type == "application/apply-patch+yaml"
        if old is None and request.method != "POST" and not applies:
            raise Fault(404, "NotFound", f'{plural}.fairlead.dev "{name}" not found')
        if request.method == "DELETE":
            uid = (body.get("preconditions") or {}).get("uid")
            if old is not None and uid and uid != old["metadata"]["uid"]:
                raise Fault(409, "Conflict", "the uid does not match")
            gone = copy.deepcopy(old) or {}
            gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return 200, gone
        version = (body.get("metadata") or {}).get("resourceVersion") if isinstance(body, dict) else None
        if old is not None and version and version != old["metadata"]["resourceVersion"]:
            raise Fault(409, "Conflict", "the object has been modified")
        made = self._made(request, old, body, plural, namespace, name)
        replicas = (made.get("spec") or {}).get("replicas")
        if isinstance(replicas, int) and replicas > 1000:
            cause = {"reason": "FieldValueInvalid", "field": "spec.replicas", "message": "at most 1000"}
            raise Fault(422, "Invalid", f'Workload "{name}" is invalid: spec.replicas: at most 1000', [cause])
        return (201 if old is None else 200), made

    def _made(self, request: web.Request, old: Object | None, body: Any, plural: str, namespace: str, name: str) -> Object:
        if request.method == "PATCH" and isinstance(body, list):
            raise Fault(422, "Invalid", "the server rejected our request")
        made: Object = copy.deepcopy(old) if old is not None and request.method == "PATCH" else {}
        _merge(made, body)
        metadata = made.setdefault("metadata", {})
        made.update({"apiVersion": "fairlead.dev/v1alpha1", "kind": KINDS[plural][0]})
        before = (old or {}).get("metadata") or {}
        metadata.update(
            {"name": name, "uid": before.get("uid", f"uid-{self.revision + 1}"), "labels": metadata.get("labels") or {}}
        )
        metadata["generation"] = before.get("generation", 0) + (1 if old is None or old.get("spec") != made.get("spec") else 0)
        metadata["resourceVersion"] = before.get("resourceVersion", str(self.revision))
        if namespace:
            metadata["namespace"] = namespace
        if old is not None and "status" in old:
            made["status"] = old["status"]
        return made


def _versionless(each: Object) -> Object:
    metadata = {name: value for name, value in each["metadata"].items() if name not in ("resourceVersion", "creationTimestamp")}
    return {**each, "metadata": metadata}


def _merge(into: Object, patch: Object) -> None:
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def _abort(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()
    raise ConnectionResetError


@contextmanager
def running(api: FakeApi | None = None) -> Iterator[FakeApi]:
    """The server on a thread of its own, on loopback, on a port nobody else has."""
    api = api or FakeApi()
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        application = web.Application()
        application.router.add_route("*", "/{rest:.*}", api.handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        api.url = f"http://127.0.0.1:{port}"
        ready.set()
        await stop.wait()
        await runner.cleanup()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:  # watches that wait for something to happen
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="fake-api")
    thread.start()
    assert ready.wait(60)
    try:
        yield api
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()
