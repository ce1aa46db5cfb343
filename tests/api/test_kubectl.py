"""The real kubectl over TLS against a front door of three planes. Fails where there is no kubectl: `make setup` installs one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.model.commands import Put, PutStatus
from fairlead.model.kinds.intent import WorkloadStatus
from fairlead.model.kinds.ledger import Event, EventSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Condition, Metadata
from tests.api.doors import Door, kubeconfig, listening, open_door, own_tenant_only, server_context, write_certificates
from tests.authority.planes import OPERATOR, ok

WORKLOAD = """
apiVersion: fairlead.dev/v1alpha1
kind: Workload
metadata: {name: NAME, labels: {tier: gold}}
spec:
  replicas: REPLICAS
  template: {driver: process, command: [/bin/api], env: [{name: A, value: "1"}]}
  resources: {requests: {cpu: 500m, memory: 1Gi}}
"""
NODE = """
apiVersion: fairlead.dev/v1alpha1
kind: Node
metadata: {name: us-n1}
spec: {region: us, zone: a, allocatable: {cpu: "4", memory: 8Gi}}
"""
CONFIG = """
apiVersion: fairlead.dev/v1alpha1
kind: Config
metadata: {name: NAME, labels: {tier: gold}}
spec: {data: {k: v}}
"""


class Ran(msgspec.Struct):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


class Kubectl:
    def __init__(self, folder: Path, config: Path, door: Door) -> None:
        path = shutil.which("kubectl")
        assert path is not None, "no kubectl on PATH; `make setup` installs one (apt: kubernetes-client)"
        self._path = path
        self.folder = folder
        self.door = door
        self._environment = {**os.environ, "HOME": str(folder), "KUBECONFIG": str(config), "NO_PROXY": "127.0.0.1"}

    async def start(self, *words: str, stdin: bool = False, **environment: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            self._path, *words, stdin=pipe if stdin else asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe,
            env={**self._environment, **environment}, cwd=self.folder,
        )  # fmt: skip

    async def run(self, *words: str, stdin: str = "", **environment: str) -> Ran:
        process = await self.start(*words, stdin=bool(stdin), **environment)
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode() if stdin else None)
        return Ran(process.returncode or 0, out.decode(), err.decode())

    async def __call__(self, *words: str, stdin: str = "", **environment: str) -> str:
        ran = await self.run(*words, stdin=stdin, **environment)
        assert ran.code == 0, f"kubectl {' '.join(words)}: {ran.err}"
        return ran.out

    def file(self, name: str = "api", replicas: int = 1, text: str = WORKLOAD) -> str:
        path = self.folder / f"{name}-{replicas}.yaml"
        path.write_text(text.replace("NAME", name).replace("REPLICAS", str(replicas)))
        return str(path)


@contextlib.asynccontextmanager
async def opened(folder: Path, token: str = "ada-token", **options: Any) -> AsyncIterator[Kubectl]:
    ca, certificate, key = write_certificates(folder)
    tls = server_context(str(certificate), str(key))
    async with open_door("us", "eu", **options) as door, listening(door.app, tls) as server:
        yield Kubectl(folder, kubeconfig(folder, server, ca, token), door)


async def test_it_finds_its_way_about(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        assert "v1.32.0+fairlead" in await kubectl("version", "-o", "json")
        resources = await kubectl("api-resources")
        assert "workloads" in resources
        assert "wl" in resources
        assert "fairlead.dev/v1alpha1" in await kubectl("api-versions")
        assert "https://127.0.0.1" in await kubectl("cluster-info")
        assert "Jobs are Exclusive unless they say otherwise" in await kubectl("explain", "workload.spec.execution")
        assert "replicas" in await kubectl("explain", "workload.spec")


async def test_get_shows_objects_in_every_form(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        assert "created" in await kubectl("create", "-f", kubectl.file("api", 2))
        table = (await kubectl("get", "wl")).splitlines()
        assert table[0].split() == ["NAME", "TENANT", "CLASS", "DESIRED", "BOUND", "READY", "SERVING", "REASON", "AGE"]
        assert table[1].split()[:4] == ["api", "risk", "standard", "2"]
        assert "NEXT-OWNER" in await kubectl("get", "wl", "-o", "wide")
        assert "NAMESPACE" in await kubectl("get", "workloads", "-A")
        assert await kubectl("get", "wl", "api", "-o", "jsonpath={.spec.replicas}") == "2"
        assert "replicas: 2" in await kubectl("get", "wl", "api", "-o", "yaml")
        assert (await kubectl("get", "wl", "-o", "name")).strip() == "workload.fairlead.dev/api"
        assert (await kubectl("get", "wl", "-l", "tier=gold", "-o", "name")).strip() == "workload.fairlead.dev/api"
        assert (await kubectl("get", "wl", "-l", "tier!=gold", "-o", "name")).strip() == ""
        assert "api" in await kubectl("get", "wl", "--field-selector", "metadata.name=api", "--show-labels")
        assert "api" in await kubectl("get", "wl", "--sort-by", ".metadata.name", "-L", "tier")
        assert "REPLICAS" in await kubectl("get", "wl", "-o", "custom-columns=N:.metadata.name,REPLICAS:.spec.replicas")
        assert "api" in await kubectl("get", "all")
        missing = await kubectl.run("get", "wl", "nothing")
        assert missing.code == 1
        assert 'Error from server (NotFound): workloads.fairlead.dev "nothing" not found' in missing.err


async def test_client_side_apply_creates_then_configures_then_leaves_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        assert "created" in await kubectl("apply", "-f", kubectl.file("api", 1))
        assert "unchanged" in await kubectl("apply", "-f", kubectl.file("api", 1))
        assert "configured" in await kubectl("apply", "-f", kubectl.file("api", 3))
        assert "configured (server dry run)" in await kubectl("apply", "--dry-run=server", "-f", kubectl.file("api", 9))
        assert await kubectl("get", "wl", "api", "-o", "jsonpath={.spec.replicas}") == "3"


SPELLED = """
apiVersion: fairlead.dev/v1alpha1
kind: Workload
metadata: {name: NAME}
spec:
  replicas: REPLICAS
  suspend: false
  template:
    command: [/bin/api]
    env: []
    ports: [{name: http}, {name: admin, protocol: TCP}]
    probes: {readiness: {httpGet: {path: /, port: http}, periodSeconds: 5}}
    stopGraceSeconds: 10
  resources: {requests: {cpu: "0.5", memory: 1024Mi}}
  placement: {residency: {}, spread: [{topologyKey: zone}], tolerations: [{key: a, value: b}]}
"""


async def test_client_side_apply_finds_nothing_to_change_however_the_same_is_spelled(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        one, two = kubectl.file("api", 1, SPELLED), kubectl.file("api", 2, SPELLED)
        assert "created" in await kubectl("apply", "-f", one)
        for _ in range(2):
            assert "unchanged" in await kubectl("apply", "-f", one)
        assert (await kubectl.run("diff", "-f", one)).code == 0
        shown = await kubectl.run("diff", "-f", two)
        changed = [line for line in shown.out.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        assert [line for line in changed if "generation" not in line] == ["-  replicas: 1", "+  replicas: 2"], shown.out
        assert "configured" in await kubectl("apply", "-f", two)
        assert "unchanged" in await kubectl("apply", "-f", two)
        await kubectl("patch", "wl", "api", "--type=merge", "-p", '{"spec":{"template":{"ports":[{"name":"http"}]}}}')
        assert await kubectl("get", "wl", "api", "-o", "jsonpath={.spec.template.ports[*].name}") == "http"
        assert "configured" in await kubectl("apply", "-f", two), "what others changed is seen, and set back"
        listed = (await kubectl.run("get", "wl", "-o", "json")).json["items"][0]["spec"]
        assert listed["template"]["ports"][0] == {"name": "http", "protocol": "TCP"}, "many are in the server's spelling"


async def test_server_side_apply_conflicts_and_takes_over(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        await kubectl("apply", "-f", kubectl.file("api", 1))
        assert "serverside-applied" in await kubectl("apply", "--server-side", "-f", kubectl.file("api", 2))
        assert "serverside-applied" in await kubectl("apply", "--server-side", "-f", kubectl.file("api", 2))
        clash = await kubectl.run("apply", "--server-side", "--field-manager=other", "-f", kubectl.file("api", 5))
        assert clash.code == 1
        assert ".spec.replicas" in clash.err
        await kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", kubectl.file("api", 5))
        assert await kubectl("get", "wl", "api", "-o", "jsonpath={.spec.replicas}") == "5"


async def test_diff_tells_changes_from_none(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        assert (await kubectl.run("diff", "-f", kubectl.file("api", 1))).code == 1
        await kubectl("apply", "-f", kubectl.file("api", 1))
        assert (await kubectl.run("diff", "-f", kubectl.file("api", 1))).code == 0
        ran = await kubectl.run("diff", "-f", kubectl.file("api", 4))
        assert ran.code == 1
        assert "+  replicas: 4" in ran.out
        assert (await kubectl.run("diff", "--server-side", "-f", kubectl.file("api", 4))).code == 1


async def test_small_changes(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        await kubectl("apply", "-f", kubectl.file("api", 1))
        assert "labeled" in await kubectl("label", "wl", "api", "a=b")
        assert "annotate" in await kubectl("annotate", "wl", "api", "c=d")
        assert "scaled" in await kubectl("scale", "wl", "api", "--replicas=4")
        assert "scaled" in await kubectl("scale", "wl", "api", "--replicas=5", "--current-replicas=4")
        merge = ("patch", "wl", "api", "--type=merge", "-p", '{"spec":{"replicas":6}}')
        assert "patched" in await kubectl(*merge)
        assert "patched (no change)" in await kubectl(*merge)
        await kubectl("patch", "wl", "api", "--type=json", "-p", '[{"op":"replace","path":"/spec/replicas","value":7}]')
        strategic = await kubectl.run("patch", "wl", "api", "-p", '{"spec":{"replicas":8}}')
        assert "not supported" in strategic.err or "unknown format" in strategic.err or "UnsupportedMediaType" in strategic.err
        assert "edited" in await kubectl("edit", "wl", "api", EDITOR="sed -i 's/replicas: 7/replicas: 8/'", KUBE_EDITOR="")
        assert await kubectl("get", "wl", "api", "-o", "jsonpath={.spec.replicas}") == "8"
        assert "replaced" in await kubectl("replace", "-f", kubectl.file("api", 2))
        exists = await kubectl.run("create", "-f", kubectl.file("api", 2))
        assert "AlreadyExists" in exists.err


async def test_validation_names_the_field(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        typo = WORKLOAD.replace("replicas:", "replicaz:")
        ran = await kubectl.run("apply", "-f", kubectl.file("typo", 1, typo))
        assert ran.code == 1
        assert "replicaz" in ran.err
        wrong = await kubectl.run("create", "--validate=false", "-f", kubectl.file("wrong", 1, WORKLOAD.replace("REPLICAS", "x")))
        assert wrong.code == 1
        assert "spec.replicas" in wrong.err


async def test_describe_shows_events_and_events_are_listed(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        await kubectl("apply", "-f", kubectl.file("api", 1))
        spec = EventSpec(
            regarding="workloads/risk/api", reason="WaitingForCapacity", note="no node has 500m left", reporter="scheduler"
        )
        event = Event(metadata=Metadata(name="e1", namespace="risk"), spec=spec)
        ok(await kubectl.door.home.send(OPERATOR, Put("Event", event)))
        described = await kubectl("describe", "wl", "api")
        assert "Replicas:" in described
        assert "no node has 500m left" in described
        assert "WaitingForCapacity" in await kubectl("get", "events")


async def test_nodes_of_all_regions_are_one_list_and_an_absent_region_is_a_warning(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        await kubectl("apply", "-f", kubectl.file("us", 1, NODE))
        await kubectl("apply", "-f", kubectl.file("eu", 1, NODE.replace("us", "eu")))
        assert (await kubectl("get", "nodes", "-o", "name")).split() == ["node.fairlead.dev/us-n1", "node.fairlead.dev/eu-n1"]
        kubectl.door.cuttable["eu"].cut()
        ran = await kubectl.run("get", "nodes")
        assert ran.code == 0
        assert "us-n1" in ran.out
        assert "Warning: eu is unreachable" in ran.err
        kubectl.door.cuttable["eu"].mend()
        assert (await kubectl.run("get", "nodes")).err == ""
        assert "deleted" in await kubectl("delete", "node", "us-n1", "eu-n1")


async def test_a_watch_shows_changes_as_they_come(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        await kubectl("apply", "-f", kubectl.file("api", 1))
        process = await kubectl.start("get", "wl", "api", "-w", "-o", "jsonpath={.spec.replicas},")
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readuntil(b",") == b"1,"
            await kubectl("scale", "wl", "api", "--replicas=2")
            assert await process.stdout.readuntil(b",") == b"2,"
        process.terminate()
        await process.wait()


async def test_deleting_waits_until_the_last_finalizer_is_off(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        await kubectl("apply", "-f", kubectl.file("api", 1))
        deleting = await kubectl.start("delete", "wl", "api")
        waiting = await kubectl.start("wait", "--for=delete", "wl/api", "--timeout=120s")
        async with asyncio.timeout(60):
            while len(kubectl.door.app.state.watches) < 2:  # both have seen it: an old kubectl does not wait for what is gone
                await asyncio.sleep(0.05)
        assert "deletionTimestamp" in await kubectl("get", "wl", "api", "-o", "json")
        await kubectl("patch", "wl", "api", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        async with asyncio.timeout(60):
            assert await deleting.wait() == 0
            assert await waiting.wait() == 0


async def test_wait_sees_a_condition_of_the_present_generation_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        await kubectl("apply", "-f", kubectl.file("api", 1))
        assert (await kubectl.run("wait", "--for=condition=Serving", "wl/api", "--timeout=1s")).code == 1, "nobody serves it"
        await kubectl("apply", "-f", kubectl.file("api", 2))
        controller = await kubectl.door.home.as_role(Role.WORKLOAD)

        async def serving(generation: int) -> None:
            condition = Condition(type="Serving", status="True", observed_generation=generation, reason="MinServingMet")
            status = WorkloadStatus(observed_generation=generation, conditions=(condition,))
            ok(await kubectl.door.home.send(controller, PutStatus("Workload", "risk", "api", status)))

        await serving(1)
        behind = await kubectl.run("wait", "--for=condition=Serving", "wl/api", "--timeout=1s")
        process = await kubectl.start("wait", "--for=condition=Serving", "wl/api", "--timeout=60s")
        await serving(2)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
        assert behind.code in (0, 1), "old kubectl does not look at observedGeneration"
        assert await kubectl("get", "wl", "api", "-o", "jsonpath={.status.observedGeneration}") == "2"


async def test_namespaces_are_tenants(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        early = await kubectl.run("apply", "-n", "search", "-f", kubectl.file("api", 1))
        assert early.code == 1
        assert 'tenants.fairlead.dev "search" not found' in early.err
        assert "create Tenant search, or name another with -n" in early.err
        assert "namespace/search created" in await kubectl("create", "namespace", "search")
        assert "created" in await kubectl("apply", "-n", "search", "-f", kubectl.file("api", 1))
        assert "Active" in await kubectl("get", "ns")
        names = (await kubectl("get", "tenants", "-o", "name")).split()
        assert names == ["tenant.fairlead.dev/risk", "tenant.fairlead.dev/search"]
        assert "deleted" in await kubectl("delete", "ns", "risk")


async def test_access_is_asked_and_kept(tmp_path: Path) -> None:
    async with opened(tmp_path, "eve-token", authorise=own_tenant_only) as kubectl:
        assert (await kubectl("auth", "can-i", "create", "workloads")).strip() == "yes"
        other = await kubectl.run("auth", "can-i", "create", "workloads", "-n", "other")
        assert (other.code, other.out.strip()) == (1, "no")
        assert "workloads.fairlead.dev" in await kubectl("auth", "can-i", "--list")
        ran = await kubectl.run("get", "wl", "-A")
        assert "Forbidden" in ran.err
        assert 'User "eve" cannot list resource "workloads"' in ran.err


async def test_who_is_not_known_is_turned_away(tmp_path: Path) -> None:
    async with opened(tmp_path, "wrong") as kubectl:
        ran = await kubectl.run("get", "wl")
        assert ran.code == 1
        assert "logged in" in ran.err or "Unauthorized" in ran.err


@pytest.mark.parametrize("selector", ["--all", "-l tier=gold"])
async def test_many_are_deleted_at_once(tmp_path: Path, selector: str) -> None:
    async with opened(tmp_path) as kubectl:
        for name in ("a", "b"):
            await kubectl("apply", "-f", kubectl.file(name, 1, CONFIG))
        await kubectl("delete", "configs", *selector.split())
        assert (await kubectl("get", "configs", "-o", "name")).strip() == ""


async def test_the_less_common_verbs_work_as_well(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        await kubectl("apply", "-f", kubectl.file("api", 2))
        raw = "/apis/fairlead.dev/v1alpha1/namespaces/risk/workloads/api/why?region=us"
        assert '"kind":"Why"' in await kubectl("get", "--raw", raw)
        assert (await kubectl("get", "wl", "-o", "go-template={{range .items}}{{.metadata.name}}{{end}}")) == "api"
        assert "default" not in await kubectl("get", "wl", "--no-headers", "-o", "wide")
        spec = EventSpec(regarding="workloads/risk/api", reason="Scaled", note="to two", reporter="ada")
        ok(await kubectl.door.home.send(OPERATOR, Put("Event", Event(metadata=Metadata(name="e1", namespace="risk"), spec=spec))))
        known = (await kubectl("help")).split()
        if "events" in known:  # since 1.23; before, `get events` is all there is
            assert "Scaled" in await kubectl("events", "--for", "workload/api")
        if "unknown flag" not in (await kubectl.run("get", "wl", "--subresource=status")).err:  # since 1.24
            assert "api" in await kubectl("get", "wl", "api", "--subresource=status")
        if (await kubectl.run("auth", "whoami")).code == 0:  # since 1.27
            assert "ada" in await kubectl("auth", "whoami")
        if "jsonpath" in await kubectl("wait", "--help"):  # since 1.23
            await kubectl("wait", "wl/api", "--for=jsonpath={.spec.replicas}=2", "--timeout=30s")
        assert "api" in await kubectl("describe", "workloads", "-l", "tier=gold")
        assert "dry run" in await kubectl("delete", "wl", "api", "--dry-run=server")
        assert "api" in await kubectl("get", "wl", "api", "-o", "name")


async def test_a_watched_table_goes_on_with_rows_of_the_same_columns(tmp_path: Path) -> None:
    async with opened(tmp_path) as kubectl:
        await kubectl("apply", "-f", kubectl.file("api", 1))
        process = await kubectl.start("get", "wl", "-w")
        assert process.stdout is not None
        async with asyncio.timeout(60):
            headings = (await process.stdout.readline()).decode().split()
            first = (await process.stdout.readline()).decode().split()
            await kubectl("scale", "wl", "api", "--replicas=2")
            second = (await process.stdout.readline()).decode().split()
        process.terminate()
        await process.wait()
        assert headings[:4] == ["NAME", "TENANT", "CLASS", "DESIRED"]
        assert (first[3], second[3]) == ("1", "2")
