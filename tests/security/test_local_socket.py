"""The local socket of a real server: who is let in and what they may do, that it works when nothing else does, what is kept."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fairlead.api.server import make_server
from fairlead.client.local import NAME, short
from fairlead.compose import outside
from fairlead.model.journal import decode_blob, decode_command
from fairlead.model.lifecycle import Role
from fairlead.observe.ordered import ordered
from fairlead.security import directory, local
from fairlead.security.local import SocketTaken, user_name
from tests.observe.servers import REGION, Served, served

ME = f"break-glass:{user_name(local.login_of(os.getpid(), os.geteuid()))}"
API = "/apis/fairlead.dev/v1alpha1"
OVERRIDES = f"{API}/namespaces/risk/overrides"
MERGE = "application/merge-patch+json"
STOP = {"kind": "hold", "reason": "flood", "ttlSeconds": 600, "scope": {"workloads": ["api"]}}
# Under another user id, in a directory that was opened to everybody: what the server says to it.
STRANGER = f"""
import os, socket, sys
os.fchdir(int(sys.argv[1]))
os.setgid(65534); os.setuid(65534)
end = socket.socket(socket.AF_UNIX)
end.connect({NAME!r})
end.sendall(b"GET /version HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
print(end.makefile().read())
"""


class Near:
    """Requests by the local socket."""

    def __init__(self, world: Served, http: aiohttp.ClientSession) -> None:
        self.world = world
        self._http = http

    async def ask(self, method: str, path: str, body: Any = None, *, token: str = "", media: str = "application/json") -> Any:
        """(status, answer)"""
        headers = {"content-type": media, **({"authorization": f"Bearer {token}"} if token else {})}
        async with self._http.request(method, f"http://localhost{path}", json=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)

    async def order(self, name: str, spec: dict[str, Any], token: str = "") -> tuple[int, Any]:
        made = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Override", "metadata": {"name": name, "namespace": "risk"}}
        found: tuple[int, Any] = await self.ask("POST", OVERRIDES, {**made, "spec": spec}, token=token)
        return found


@asynccontextmanager
async def near(folder: Path, plane: str = "region") -> AsyncIterator[Near]:
    with short(str(folder / NAME)) as path:
        async with served(folder, plane=plane) as world, aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as http:
            yield Near(world, http)


async def test_whoever_owns_the_server_s_machine_looks_around_by_its_socket_and_sees_nothing_private(tmp_path: Path) -> None:
    async with near(tmp_path) as by:
        assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        _, me = await by.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        assert me["status"]["userInfo"]["username"] == ME
        for path in ("workloads", "nodes", "overrides", "events", "grants", "accessbindings"):
            assert (await by.ask("GET", f"{API}/{path}"))[0] == 200, path
        for path in ("secrets", "tokens"):
            assert (await by.ask("GET", f"{API}/{path}"))[0] == 403, path
        assert (await by.world.get(f"{API}/nodes"))[0] == 401, "elsewhere nobody is let in for being on this machine"


async def test_an_override_is_ordered_by_the_socket_in_the_name_of_who_did_and_the_journal_says_how(tmp_path: Path) -> None:
    async with near(tmp_path) as by:
        status, made = await by.order(f"{REGION}-stop", STOP)
        assert (status, made["spec"]["requester"]) == (201, ME)
        store: Any = by.world.server._store
        batches = [entry.batch for entry in store._disk.journal]
        (row,) = ordered(batches)
        assert (row.what, row.who, row.requester, row.reason) == ("created", ME, ME, "flood")
        commands = [decode_command(entry.command) for batch in batches for entry in decode_blob(batch.blob).entries]
        (order,) = [one for one in commands if one is not None and one.caller.actor == ME]
        assert order.caller.role is Role.BREAK_GLASS
        assert order.correlation.endswith(f"from uid {os.geteuid()} pid {os.getpid()} by the local socket")
        _, _, metrics = await by.world.get("/metrics", await by.world.token("metrics-reader"))
        assert 'fairlead_overrides{kind="hold",state="in-force"} 1.0' in metrics.splitlines()
        assert "fairlead_break_glass_requests_total 1.0" in metrics.splitlines()
        assert (await by.ask("DELETE", f"{OVERRIDES}/{REGION}-stop"))[0] == 200


REFUSED: dict[str, list[tuple[str, str, str, dict[str, Any]]]] = {
    "region": [
        ("Node", "nodes", "n9", {"region": REGION, "zone": "a", "allocatable": {"cpu": "1"}}),
        ("Config", "namespaces/risk/configs", "c", {"data": {}}),
    ],
    "global": [
        ("Workload", "namespaces/risk/workloads", "api", {"replicas": 1, "template": {"driver": "process", "command": ["x"]}}),
        ("Tenant", "tenants", "other", {}),
        ("AccessBinding", "accessbindings", "me", {"role": "admin", "subjects": [{"name": "root"}], "tenants": ["*"]}),
    ],
}


@pytest.mark.parametrize("plane", REFUSED)
async def test_nothing_but_overrides_is_written_by_the_socket(tmp_path: Path, plane: str) -> None:
    async with near(tmp_path, plane) as by:
        for kind, path, name, spec in REFUSED[plane]:
            meta = {"name": name, **({"namespace": "risk"} if "risk" in path else {})}
            made = {"apiVersion": "fairlead.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}
            status, said = await by.ask("POST", f"{API}/{path}", made)
            assert (status, said["reason"]) == (403, "Forbidden"), said
        assert (await by.ask("DELETE", f"{API}/tenants/risk"))[0] == 403
        status, said = await by.order(f"{REGION}-long", {**STOP, "ttlSeconds": 4 * 3600 + 1})
        assert (status, said["details"]["causes"][0]["field"]) == (422, "spec.ttlSeconds")


async def test_the_command_line_asks_by_a_socket_and_shows_it_no_token_of_a_context(tmp_path: Path) -> None:
    context = {"name": "far", "server": "https://127.0.0.1:1", "token": "flt_fairlead-system.x." + "0" * 64}
    file = tmp_path / "client.json"
    file.write_bytes(msgspec.json.encode({"kind": "ClientConfig", "currentContext": "far", "contexts": [context]}))
    environment = {**os.environ, "FAIRLEAD_CONFIG": str(file), "FAIRLEAD_TOKEN": ""}
    async with near(tmp_path):
        words = [sys.executable, "-m", "fairlead.main", "auth", "whoami", "--socket", str(tmp_path / NAME)]
        run = functools.partial(subprocess.run, words, env=environment, capture_output=True, text=True, timeout=60)
        done = await asyncio.to_thread(run)
    assert done.returncode == 0, done.stderr
    assert ME in done.stdout


async def test_what_lifts_a_protection_waits_for_a_second_person_whose_token_goes_by_the_socket_too(tmp_path: Path) -> None:
    more = {**STOP, "kind": "emergency-quota", "scope": {"tenants": ["risk"]}, "parameters": {"cpu": "1"}}
    async with near(tmp_path, plane="global") as by:
        approver = await by.world.token("approver")
        status, made = await by.order("more", more)
        assert (status, made["spec"].get("approver", "")) == (201, "")

        async def approve(who: str, token: str = "") -> int:
            got = await by.ask("PATCH", f"{OVERRIDES}/more", {"spec": {"approver": who}}, token=token, media=MERGE)
            return int(got[0])

        assert await approve(ME) == 403, "nobody approves what they asked for"
        assert await approve("some-approver") == 403, "nor in another's name"
        assert await approve(ME.partition(":")[2], await by.world.token("admin")) == 403
        assert await approve("some-approver", token=approver) == 200
        assert (await by.order("mine", more))[0] == 201
        assert (await by.ask("GET", f"{API}/nodes", token="flt_fairlead-system.x." + "0" * 64))[0] == 401, "a wrong token counts"


async def test_another_user_is_refused_whatever_the_mode_of_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local, "welcome_uids", lambda: frozenset({os.geteuid() + 1}))
    async with near(tmp_path) as by:
        status, said = await by.ask("GET", "/version")
        assert (status, said["message"].partition(";")[0]) == (403, "the local socket is for the server's own user and root")
        assert (await by.order(f"{REGION}-stop", STOP))[0] == 403
    assert "is not let in by the local socket" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_a_process_of_another_user_is_refused(tmp_path: Path) -> None:
    async with near(tmp_path) as by:
        tmp_path.chmod(0o755)
        (tmp_path / NAME).chmod(0o666)
        folder = os.open(tmp_path, os.O_RDONLY)
        try:
            words = [sys.executable, "-c", STRANGER, str(folder)]
            run = functools.partial(subprocess.run, words, pass_fds=(folder,), capture_output=True, text=True, timeout=60)
            done = await asyncio.to_thread(run)
        finally:
            os.close(folder)
        assert done.stdout.startswith("HTTP/1.1 403"), done
        assert (await by.ask("GET", "/version"))[0] == 200


async def test_the_socket_answers_when_roles_cannot_be_read_and_when_everybody_else_is_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "make_server", functools.partial(make_server, connections_max=1))
    async with near(tmp_path) as by:
        token = await by.world.token("admin")

        def away(self: directory.AccessDirectory) -> None:
            raise directory.NotReady("the roles in force are not known yet")

        assert (await by.world.get(f"{API}/nodes", token))[0] == 503, "one connection is one too many"
        monkeypatch.setattr(directory.AccessDirectory, "_take", away)
        assert (await by.ask("GET", f"{API}/nodes", token=token))[0] == 503
        assert (await by.ask("GET", f"{API}/nodes"))[0] == 200
        assert (await by.order(f"{REGION}-stop", STOP))[0] == 201


async def test_a_data_directory_may_lie_deeper_than_the_kernel_takes_a_socket_s_path(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 100) / ("b" * 100)
    deep.mkdir(parents=True)
    async with near(deep) as by:
        assert (await by.ask("GET", "/version"))[0] == 200


def test_what_a_killed_server_left_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    with local.listen(tmp_path / NAME):
        pass  # closed, and its file stays
    with local.listen(tmp_path / NAME) as living:
        living.listen()
        with pytest.raises(SocketTaken):
            local.listen(tmp_path / NAME)
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(str(tmp_path / NAME))


async def test_a_server_without_a_socket_serves_everybody_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / NAME).mkdir()
    async with served(tmp_path) as world:
        assert (await world.get(f"{API}/nodes", await world.token("admin")))[0] == 200
    assert "there is no local socket" in caplog.text
