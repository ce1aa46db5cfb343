"""Who may not see and touch what, asked of real servers by every route they serve: other tenants, agents, spent credentials."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.routing import Mount, Route, WebSocketRoute

from fairlead.api.catalogue import GROUPS, Resource
from fairlead.client.dial import Dialer
from fairlead.client.plane import Expired
from fairlead.client.remote import RemotePlane
from fairlead.compose.config import PlaneConfig
from fairlead.compose.plane import PlaneServer
from fairlead.model.commands import Caller, Command, Delete, Put, PutStatus, Refused
from fairlead.model.kinds.access import SYSTEM_TENANT
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock, SystemIds, Tasks, system_random
from fairlead.security import certificates, tokens
from fairlead.security.certificates import Named, instant
from fairlead.security.enrolment import Renewal, files_in
from fairlead.security.sealing import PREFIX
from fairlead.security.tls import ClientTls, client_context
from fairlead.security.tls import TlsFiles as TlsPaths
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.security.two_planes import GROUP, NODE, REGION, WAIT_S, Answer, TwoPlanes, manifest, path_of

MARK = "sesame"  # in the name of everything that is risk's; search must never read it
KEY = f"{MARK}-key"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
OBJECTS_MAX = 2  # of one kind, for each of which every verb is tried
SHARED = frozenset({"regions"})  # what everybody may read, and which belongs to no tenant


class Question(NamedTuple):
    method: str
    path: str
    body: Any = None
    media: str = "application/json"


# --- another tenant ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def owned(planes: TwoPlanes, node: Path) -> TwoPlanes:
    """Something of every kind that people, controllers and nodes make for a tenant."""
    template = {"command": ["/bin/sh", "-c", f"echo {MARK}-said; exec sleep 600"], "files": [{"path": "s", "secret": MARK}]}
    requests = {"requests": {"cpu": "50m", "memory": "32Mi"}}
    for kind, plural, spec in (
        ("Config", "configs", {"data": {"k": MARK}}),
        ("Secret", "secrets", {"data": {"k": MARK}}),
        ("ServiceAccount", "serviceaccounts", {"description": MARK}),
        ("Workload", "workloads", {"replicas": 1, "template": template, "resources": requests}),
    ):
        made = planes.ask("rita", "POST", path_of(plural, "risk"), manifest(kind, "risk", MARK, spec))
        assert made.status == 201, made.body
    headers = {"Idempotency-Key": KEY}
    patched = planes.ask(
        "rita", "PATCH", path_of("configs", "risk", MARK), {"spec": {"data": {"k": f"{MARK}-2"}}},
        media="application/merge-patch+json", headers=headers,
    )  # fmt: skip
    assert patched.status == 200, patched.body
    log = path_of("workloads", "risk", MARK) + "/log"
    planes.wait(lambda: f"{MARK}-said".encode() in planes.ask("rita", "GET", log).body, "the workload runs")
    hold = {"kind": "hold", "reason": MARK, "ttlSeconds": 600, "scope": {"workloads": [f"risk/{MARK}"]}}  # now that it runs
    made = planes.ask("olga", "POST", path_of("overrides", "risk"), manifest("Override", "risk", MARK, hold))
    assert made.status == 201, made.body
    return planes


def resources() -> list[tuple[str, Resource]]:
    """(path of the group, resource), of everything that is served."""
    return [
        (f"/apis/{group}/{version}" if group else f"/api/{version}", resource)
        for (group, version), served in GROUPS.items()
        for resource in served.values()
        if resource.info is not None
    ]


def collections(base: str, resource: Resource) -> list[str]:
    if not resource.namespaced:
        return [f"{base}/{resource.plural}"]
    return [f"{base}/{resource.plural}", f"{base}/namespaces/risk/{resource.plural}"]


def questions(planes: TwoPlanes, plane: str) -> list[Question]:
    """Every route that could show or change something, with names that are really there."""
    asked = [Question("GET", "/metrics"), Question("GET", f"/receipts/{KEY}"), Question("GET", f"{GROUP}/receipts/{KEY}")]
    asked.append(Question("GET", path_of("workloads", "risk", MARK) + "/log"))
    for base, resource in resources():
        for path in collections(base, resource):
            more = (
                "",
                "?limit=1",
                "?watch=true&timeoutSeconds=1",
                "?fieldSelector=metadata.namespace=risk",
                "?at=2100-01-01T00:00:00Z",
            )
            asked += [Question("GET", path + each) for each in more]
            asked.append(Question("DELETE", path + "?dryRun=All"))
        found = planes.ask("admin", "GET", f"{base}/{resource.plural}", plane=plane)
        assert found.status == 200, (resource.plural, found.body)
        for item in [each for each in found.json["items"] if _not_search_s(resource, each)][:OBJECTS_MAX]:
            metadata = item["metadata"]
            tenant = "namespaces/risk/" if resource.namespaced else ""
            asked += _of_one(f"{base}/{tenant}{resource.plural}/{metadata['name']}", resource, item)
    return asked


def _not_search_s(resource: Resource, item: Any) -> bool:
    """Tenants are kinds of no tenant, and search may see its own; under two names."""
    metadata = item["metadata"]
    own = resource.plural in ("tenants", "namespaces") and metadata["name"] == "search"
    return metadata.get("namespace", "risk") == "risk" and not own


def _of_one(path: str, resource: Resource, item: Any) -> list[Question]:
    subs = [f"{path}/{sub.name}" for sub in resource.subresources]
    asked = [Question("GET", each) for each in (path, *subs)]
    merge, empty = "application/merge-patch+json", {"metadata": {"labels": {"by": "sam"}}}
    apply = {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": {"name": item["metadata"]["name"]}}
    for each in (path, *subs):
        asked.append(Question("PUT", f"{each}?dryRun=All", item))
        asked.append(Question("PATCH", f"{each}?dryRun=All", empty, merge))
        asked.append(Question("PATCH", f"{each}?dryRun=All&fieldManager=sam&force=true", apply, "application/apply-patch+yaml"))
        asked.append(Question("POST", f"{each}?dryRun=All", item))
    asked.append(Question("DELETE", f"{path}?dryRun=All"))
    return asked


def leak(question: Question, status: int, body: bytes) -> str:
    """What is wrong with this answer to somebody of another tenant; empty: nothing."""
    named = MARK in question.path or "/namespaces/risk/" in question.path
    plural = question.path.split("?")[0].split("/")[4 if question.path.startswith("/apis") else 3 :][:1]
    if status >= 500:
        return "a server error"
    if question.method != "GET" and status < 400:
        return "it was allowed"
    if question.method == "GET" and status < 400 and named:
        return "it was shown"
    if status < 400 and (MARK.encode() in body or b'"risk"' in body):
        return "it holds what is risk's"
    if status < 400 and b'"items":[{' in body and plural and plural[0] not in SHARED and b'"search"' not in body:
        return "it holds what is not search's"
    return ""


def patiently(planes: TwoPlanes, person: str, plane: str, question: Question) -> Answer:
    """Asks again where a busy machine has no answer yet."""
    until = time.monotonic() + WAIT_S
    while True:
        answer = planes.ask(person, question.method, question.path, question.body, plane=plane, media=question.media)
        if answer.status not in (429, 503, 504) or time.monotonic() > until:
            return answer
        time.sleep(0.2)


@pytest.mark.parametrize("plane", ["global", REGION])
def test_another_tenant_sees_and_changes_nothing_through_any_route(owned: TwoPlanes, plane: str) -> None:
    asked = questions(owned, plane)
    assert len(asked) > 250
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda q: patiently(owned, "sam", plane, q), asked))
    leaks = [
        f"{q.method} {q.path} -> {a.status}: {why}: {a.body[:300]!r}"
        for q, a in zip(asked, answers, strict=True)
        if (why := leak(q, a.status, a.body))
    ]
    assert leaks == []
    statuses = {a.status for a in answers}
    assert statuses >= {200, 403}, "some lists are shown, with nothing of risk in them"


def test_the_walk_finds_what_its_owner_sees(owned: TwoPlanes) -> None:
    """Were the routes wrong or empty, nothing would leak through them either."""
    asked = [q for q in questions(owned, "global") if q.method == "GET" and "watch" not in q.path]
    shown = {q.path for q in asked if leak(q, (a := patiently(owned, "rita", "global", q)).status, a.body)}
    for plural in ("workloads", "configs", "secrets", "serviceaccounts", "assignments", "revisions", "bindings", "overrides"):
        assert path_of(plural) in shown, plural
    assert {
        f"/receipts/{KEY}",
        path_of("workloads", "risk", MARK) + "/log",
        path_of("workloads", "risk", MARK) + "/scale",
    } <= shown


async def test_the_walk_knows_every_route_of_a_server(tmp_path: Path) -> None:
    """A route that is added beside the resource API must be thought of here."""
    config = PlaneConfig(plane="region", region=REGION, store="memory:", data=str(tmp_path), join_key="x")
    server = PlaneServer(config, MemoryStore(MemoryDisk()), SystemClock(), SystemIds(), system_random())
    app: Any = server._app()
    paths = {route.path for route in app.routes if isinstance(route, Route | WebSocketRoute | Mount)}
    log = f"{GROUP}/namespaces/{{tenant}}/workloads/{{name}}/log"
    assert paths == {"", "/fairlead/v1/channel", "/livez", "/healthz", "/readyz", "/metrics", log}


# --- credentials that are spent ------------------------------------------------------------------------------------------------


def issue(planes: TwoPlanes, person: str, lifetime: timedelta) -> tuple[str, str]:
    """(name of the token, what its owner has)"""
    minted = tokens.mint(SystemIds(), SYSTEM_TENANT)
    expiry = (instant(SystemClock().wall()) + lifetime).isoformat()
    spec = {"hash": minted.hash, "subject": {"kind": "User", "name": person}, "expiryTime": expiry}
    made = planes.ask("admin", "POST", path_of("tokens", SYSTEM_TENANT), manifest("Token", SYSTEM_TENANT, minted.name, spec))
    assert made.status == 201, made.body
    return minted.name, minted.text.reveal()


def status_of(planes: TwoPlanes, token: str, plane: str) -> int:
    return planes.ask("", "GET", path_of("workloads", "risk"), plane=plane, token=token).status


def test_a_token_ends_at_its_time_in_the_region_as_in_the_global_plane(planes: TwoPlanes) -> None:
    for lifetime_s in (5, 40):  # a machine that is too slow to use one before it ends is given a longer one
        _, token = issue(planes, "rita", timedelta(seconds=lifetime_s))
        seen = until_ended(planes, token)
        if ("global", 200) in seen:
            break
    assert ("global", 200) in seen
    assert {status for _, status in seen} == {200, 401}


def until_ended(planes: TwoPlanes, token: str) -> set[tuple[str, int]]:
    """What each plane said to it, until both refused it."""
    seen: set[tuple[str, int]] = set()
    for plane in ("global", REGION):

        def ended(plane: str = plane) -> bool:
            seen.add((plane, status := status_of(planes, token, plane)))
            return status == 401 and (plane == "global" or ("global", 401) in seen)

        planes.wait(ended, f"the token has ended in {plane}")
    return seen


def test_a_revoked_token_is_refused_from_the_next_request_on_and_its_watch_ends(planes: TwoPlanes) -> None:
    name, token = issue(planes, "rita", timedelta(hours=1))
    planes.wait(lambda: status_of(planes, token, REGION) == 200, "the region knows the token")
    assert status_of(planes, token, "global") == 200
    with planes.watching(path_of("configs", "risk") + "?timeoutSeconds=60", token) as stream:
        assert stream.status == 200, "it stands before the token is revoked"
        at, revoked = path_of("tokens", SYSTEM_TENANT, name), {"spec": {"revoked": True, "reason": "lost"}}
        assert planes.ask("admin", "PATCH", at, revoked, media="application/merge-patch+json").status == 200
        assert status_of(planes, token, "global") == 401, "at once"
        assert planes.ask("rita", "POST", path_of("configs", "risk"), manifest("Config", "risk", "after", {})).status == 201
        said = stream.read()
    assert b'"after"' not in said, "nothing that came after it is shown"
    assert b'"code":401' in said
    planes.wait(lambda: status_of(planes, token, REGION) == 401, "the region refuses it too")


def test_a_watch_ends_with_the_right_to_it(planes: TwoPlanes) -> None:
    _, token = issue(planes, "wanda", timedelta(hours=1))
    spec = {"role": "tenant-admin", "subjects": [{"kind": "User", "name": "wanda"}], "tenants": ["risk"]}
    assert planes.ask("admin", "POST", path_of("accessbindings"), manifest("AccessBinding", "", "wanda", spec)).status == 201
    with planes.watching(path_of("configs", "risk") + "?timeoutSeconds=60", token) as stream:
        assert stream.status == 200, "it stands before the right is taken away"
        assert planes.ask("admin", "DELETE", path_of("accessbindings", "", "wanda")).status == 200
        assert status_of(planes, token, "global") == 403, "at once"
        assert planes.ask("rita", "POST", path_of("configs", "risk"), manifest("Config", "risk", "unseen", {})).status == 201
        said = stream.read()
    assert b'"unseen"' not in said, "nothing that came after it is shown"
    assert b'"code":403' in said


def test_an_override_is_asked_for_in_one_s_own_name_and_approved_by_somebody_else(planes: TwoPlanes) -> None:
    spec = {"kind": "autoscaler-pause", "reason": "flood", "ttlSeconds": 600, "scope": {"tenants": ["search"]}}
    at, merge = path_of("overrides", "search", "flood"), "application/merge-patch+json"
    made = planes.ask("olga", "POST", path_of("overrides", "search"), manifest("Override", "search", "flood", spec))
    assert (made.status, made.json["spec"]["requester"]) == (201, "olga")
    lied = manifest("Override", "search", "lied", {**spec, "requester": "anna"})
    assert planes.ask("olga", "POST", path_of("overrides", "search"), lied).status == 403
    for who, approver, status in (("olga", "olga", 403), ("olga", "anna", 403), ("sam", "sam", 403), ("anna", "anna", 200)):
        answer = planes.ask(who, "PATCH", at, {"spec": {"approver": approver}}, media=merge)
        assert answer.status == status, (who, approver, answer.body)
    own = planes.ask("admin", "POST", path_of("overrides", "search"), manifest("Override", "search", "own", spec))
    assert own.status == 201
    denied = planes.ask("admin", "PATCH", path_of("overrides", "search", "own"), {"spec": {"approver": "admin"}}, media=merge)
    assert denied.status == 403, "not even who may do everything approves what they asked for"


# --- agents ------------------------------------------------------------------------------------------------------------------


def neighbour(planes: TwoPlanes) -> None:
    spec = {"region": REGION, "zone": "a", "allocatable": {"cpu": "1", "memory": "1Gi"}}
    made = planes.ask("admin", "POST", path_of("nodes"), manifest("Node", "", f"{REGION}-n8", spec))
    assert made.status in (201, 409), made.body


def test_a_node_s_certificate_opens_what_is_its_own_and_nothing_else_over_http(owned: TwoPlanes, node: Path) -> None:
    neighbour(owned)
    files = files_in(node)
    tls = client_context(files.authorities, files.certificate, files.key)

    def ask(method: str, path: str, body: Any = None, plane: str = REGION) -> int:
        return owned.ask("", method, path, body, plane=plane, tls=tls, media="application/merge-patch+json").status

    own, other = path_of("nodes", "", NODE), path_of("nodes", "", f"{REGION}-n8")
    assert (ask("GET", own), ask("GET", other)) == (200, 403)
    listed = owned.ask("", "GET", path_of("nodes"), plane=REGION, tls=tls)
    assert [item["metadata"]["name"] for item in listed.json["items"]] == [NODE]
    assert ask("GET", own, plane="global") == 401, "the global plane has no agents"
    secrets = owned.ask("", "GET", path_of("secrets"), plane=REGION, tls=tls)
    names = {item["metadata"]["name"] for item in secrets.json["items"]}
    assert MARK in names, "what its slots need"
    assert owned.ask("rita", "POST", path_of("secrets", "risk"), manifest("Secret", "risk", "unused", {})).status in (201, 409)
    assert ask("GET", path_of("secrets", "risk", "unused")) == 403
    for path in (path_of("tokens", SYSTEM_TENANT), path_of("workloads"), path_of("accessbindings"), "/metrics"):
        assert ask("GET", path) == 403, path
    for change in (
        {"metadata": {"labels": {"pool": "gold"}}},
        {"spec": {"zone": "b"}},
        {"spec": {"pool": "gold"}},
        {"spec": {"allocatable": {"cpu": "64", "memory": "1Gi"}}},
        {"spec": {"maxSlots": 5000}},
        {"metadata": {"finalizers": ["fairlead.dev/mine"]}},
    ):
        assert ask("PATCH", f"{own}?dryRun=All", change) == 403, change
    assert ask("PATCH", f"{own}?dryRun=All", {"spec": {"allocatable": {"cpu": "1", "memory": "1Gi"}}}) == 200, "less it may say"
    assert ask("PATCH", f"{other}?dryRun=All", {"spec": {"allocatable": {"cpu": "1", "memory": "1Gi"}}}) == 403
    assert ask("DELETE", f"{own}?dryRun=All") == ask("DELETE", f"{other}?dryRun=All") == 403


@asynccontextmanager
async def channel(planes: TwoPlanes, tls: ClientTls) -> AsyncIterator[RemotePlane]:
    dialer = Dialer(tls)
    remote = RemotePlane([planes.address(REGION)], dialer.dial, SystemClock(), system_random(), "test")
    try:
        async with Tasks() as tasks:
            tasks.start(remote.run(), "remote")
            await remote.wait_connected()
            yield remote
            tasks.cancel()
    finally:
        await dialer.close()


async def test_a_node_s_certificate_sends_no_command_for_another_node_over_the_channel(owned: TwoPlanes, node: Path) -> None:
    neighbour(owned)
    files = files_in(node)
    other = f"{REGION}-n8"
    big = NodeSpec(region=REGION, zone="a", allocatable=Resources(64_000, 1 << 40))
    own, theirs = Caller(NODE, Role.AGENT, node=NODE), Caller(other, Role.AGENT, node=other)
    refused = [
        Command(own, Put("Node", Node(metadata=Metadata(name=other), spec=big))),
        Command(theirs, Put("Node", Node(metadata=Metadata(name=other), spec=big))),
        Command(own, Put("Node", Node(metadata=Metadata(name=NODE), spec=big))),
        Command(own, Put("Node", Node(metadata=Metadata(name=NODE, labels={"pool": "gold"}), spec=NodeSpec(REGION)))),
        Command(own, PutStatus("Node", "", other, NodeStatus())),
        Command(own, Delete("Node", "", other)),
        Command(Caller(NODE, Role.OPERATOR), Delete("Node", "", other)),
        Command(own, Delete("Secret", "risk", MARK)),
    ]
    async with channel(owned, ClientTls(files.authorities, files.certificate, files.key)) as remote:
        for command in refused:
            (outcome,) = await remote.submit([command])
            assert isinstance(outcome, Refused), command
            assert outcome.reason in ("Forbidden", "WrongNode"), outcome
        assert await remote.heartbeat([(other, 1)]) is None
        assert [row.name for row in await remote.list("nodes")] == [NODE]
        with pytest.raises(Expired):
            await remote.list("tokens")
        assert await remote.get("secrets", "risk", "unused") is None
        given = await remote.get("secrets", "risk", MARK)
        assert given is not None
        assert given.raw is not None
        assert PREFIX.encode() not in given.raw, "opened for the node that needs it"
    owned.client(Named("component", "some-mirror", ("mirror",), REGION))
    certificate, key = owned.folder.files_of("as-component-some-mirror")
    async with channel(owned, ClientTls(owned.folder.authorities, certificate, key)) as remote:
        copied = await remote.get("secrets", "risk", MARK)
        assert copied is not None
        assert copied.raw is not None
        assert PREFIX.encode() in copied.raw, "a component passes it on as it is"


def test_a_region_holds_the_secrets_of_the_slots_it_was_given_and_no_others(owned: TwoPlanes) -> None:
    made = owned.ask("rita", "POST", path_of("secrets", "risk"), manifest("Secret", "risk", "elsewhere", {"data": {"k": "v"}}))
    assert made.status == 201
    later = manifest("Config", "risk", f"{MARK}-later", {"data": {"k": "v"}})
    assert owned.ask("rita", "POST", path_of("configs", "risk"), later).status == 201
    template = {"command": ["/bin/sleep", "600"], "files": [{"path": "c", "config": f"{MARK}-later"}]}
    spec = {"replicas": 1, "template": template, "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}}}
    assert owned.ask("rita", "POST", path_of("workloads", "risk"), manifest("Workload", "risk", "files", spec)).status == 201

    def held(plural: str) -> set[str]:
        found = owned.ask("admin", "GET", path_of(plural, "risk"), plane=REGION).json["items"]
        return {item["metadata"]["name"] for item in found}

    owned.wait(lambda: f"{MARK}-later" in held("configs"), "the file of a later workload has come")
    assert MARK in held("secrets")
    assert "elsewhere" not in held("secrets")


def test_a_join_token_is_good_for_one_machine_and_that_one_starts_again_without_it(planes: TwoPlanes, node: Path) -> None:
    words = [sys.executable, "-m", "fairlead.main", "agent"]
    token = planes.directory / f"{NODE}.token"
    thief = subprocess.run(
        [*words, *planes.join_words(token, node.parent / "thief")], capture_output=True, text=True, timeout=60, check=False
    )
    assert thief.returncode == 1
    assert "used before, with another key" in thief.stderr
    planes.end(NODE)
    token.write_text("nothing\n")

    def session() -> int:
        return int(planes.ask("admin", "GET", path_of("nodes", "", NODE)).json["status"].get("session", 0))

    before = session()
    planes.run(NODE, "agent", *planes.join_words(token, node))
    planes.wait(lambda: session() > before, "the agent is back")


async def test_a_certificate_is_renewed_in_time_and_used_by_the_next_connection(planes: TwoPlanes, tmp_path: Path) -> None:
    neighbour(planes)
    name = f"{REGION}-n8"
    planes.folder.issue(Named("agent", name, ("agent",), REGION), file="short", lifetime=timedelta(minutes=1))
    files = TlsPaths(*planes.folder.files_of("short"), tmp_path / "ca.pem")
    files.authorities.write_bytes(planes.folder.authorities.read_bytes())
    tls = ClientTls(files.authorities, files.certificate, files.key)
    old = certificates.read(certificates.load(files.certificate.read_bytes()))
    renewal = Renewal(files, [planes.address(REGION)], SystemClock())
    assert await renewal.look()
    new = certificates.read(certificates.load(files.certificate.read_bytes()))
    assert new.named == old.named
    assert new.not_after - old.not_after > timedelta(days=20)
    assert not await renewal.look(), "it is young again"
    async with channel(planes, tls) as remote:
        assert [row.name for row in await remote.list("nodes")] == [name]
    stranger = planes.client(Named("user", "olga"))
    refused = planes.ask("", "POST", "/fairlead/v1/renew", {"request": "x"}, plane=REGION, tls=stranger)
    assert refused.status == 403
