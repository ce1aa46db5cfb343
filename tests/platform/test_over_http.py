"""What clients see of a real server over HTTP: races that one of them wins, status that lags behind intent and catches up,
finalizers whose owner is late or gone."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.platform.fleets import GROUP, Fleet, Pki, Watch, call, good, until, watching
from tests.servers.ports import free_ports

TENANTS = f"{GROUP}/tenants"
WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
SEED = """\
---
apiVersion: fairlead.dev/v1alpha1
kind: Tenant
metadata: {name: risk}
---
apiVersion: fairlead.dev/v1alpha1
kind: Region
metadata: {name: us-east}
spec: {areas: [us], zones: [a]}
---
apiVersion: fairlead.dev/v1alpha1
kind: SchedulerPolicy
metadata: {name: r1}
spec: {revision: 1}
---
apiVersion: fairlead.dev/v1alpha1
kind: PolicyChannel
metadata: {name: default}
spec: {current: 1}
---
apiVersion: fairlead.dev/v1alpha1
kind: Quota
metadata: {name: default, namespace: risk}
spec: {limits: {cpu: "100", memory: 100Gi}}
---
apiVersion: fairlead.dev/v1alpha1
kind: Grant
metadata: {name: us-east, namespace: risk}
spec: {region: us-east, version: 1, during: {cpu: "100", memory: 100Gi}, after: {cpu: "100", memory: 100Gi}}
"""


class Planes:
    """A global server, and the region's, which some tests leave out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pki = Pki(folder / "pki")
        region = f"https://127.0.0.1:{free_ports(1)[0]}"
        self.above = Fleet(
            folder / "global",
            self.pki,
            f"sqlite:{folder}/global.db",
            names="a",
            peers=[{"region": "us-east", "addresses": [region]}],
        )
        self.url = self.above.addresses["a"]
        (folder / "global" / "seed" / "platform.yaml").write_text(SEED)
        peers = [{"region": "", "addresses": [self.url]}]
        self.region = Fleet(
            folder / "us-east", self.pki, f"sqlite:{folder}/us-east.db", region="us-east", names="a", peers=peers,
            listen=region.removeprefix("https://"), name="us-east-server",
        )  # fmt: skip
        self.region.addresses["a"] = region

    def describe(self, what: str) -> str:
        files = self.pki.files("admin")
        context = {
            "name": "admin", "server": self.url, "certificateAuthority": files["authority"],
            "clientCertificate": files["certificate"], "clientKey": files["key"],
        }  # fmt: skip
        path = self.folder / "client.json"
        path.write_text(json.dumps({"currentContext": "admin", "contexts": [context]}))
        words = [sys.executable, "-m", "fairlead.main", "describe", what, "-n", "risk"]
        done = subprocess.run(
            words, env={**os.environ, "FAIRLEAD_CONFIG": str(path)}, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planes]:
    made = Planes(tmp_path_factory.mktemp("http"))
    try:
        yield made
    finally:
        made.region.end()
        made.above.end()


@asynccontextmanager
async def asking(planes: Planes) -> AsyncIterator[aiohttp.ClientSession]:
    async with planes.pki.session() as session:
        await planes.above.start(session)
        async with asyncio.timeout(60):
            while (await call(session, "GET", f"{planes.url}{TENANTS}/risk")).status != 200:
                await asyncio.sleep(0.05)
        yield session


def workload(name: str, replicas: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "Workload", "metadata": {"name": name, "namespace": "risk"},
        "spec": {"replicas": replicas, "template": {"command": ["/bin/true"]}, "resources": {"requests": {"cpu": "1"}}},
    }  # fmt: skip


async def test_of_many_who_replace_the_same_version_one_wins(planes: Planes) -> None:
    async with asking(planes) as session:
        name = f"race-{uuid.uuid4().hex[:6]}"
        seen = good(await call(session, "POST", planes.url + TENANTS, {"kind": "Tenant", "metadata": {"name": name}}))
        for turn in range(5):  # each wants something new: one who wants what is there already changes nothing, and may always
            wanted = [{**seen, "metadata": {**seen["metadata"], "labels": {"by": f"client-{turn}-{n}"}}} for n in range(20)]
            answers = await asyncio.gather(*(call(session, "PUT", f"{planes.url}{TENANTS}/{name}", one) for one in wanted))
            winners = [n for n, answer in enumerate(answers) if answer.status == 200]
            assert len(winners) == 1
            assert all(answer.status in (200, 409) for answer in answers)
            assert {answer.body["reason"] for answer in answers if answer.status == 409} == {"Conflict"}
            seen = good(await call(session, "GET", f"{planes.url}{TENANTS}/{name}"))
            assert seen["metadata"]["labels"] == {"by": f"client-{turn}-{winners[0]}"}


async def test_of_many_who_create_the_same_name_one_wins_and_patches_without_a_version_all_land(planes: Planes) -> None:
    async with asking(planes) as session:
        name = f"race-{uuid.uuid4().hex[:6]}"
        body = {"kind": "Tenant", "metadata": {"name": name}}
        answers = await asyncio.gather(*(call(session, "POST", planes.url + TENANTS, body) for _ in range(20)))
        assert sorted(answer.status for answer in answers) == [201] + [409] * 19
        assert {answer.body["reason"] for answer in answers if answer.status == 409} == {"AlreadyExists"}

        async def label(n: int) -> None:
            patch = {"metadata": {"labels": {f"k{n}": "x"}}}
            async with asyncio.timeout(60):
                while True:  # contested five times in a row it is told so, and comes again
                    answer = await call(
                        session, "PATCH", f"{planes.url}{TENANTS}/{name}", patch, media="application/merge-patch+json"
                    )
                    if answer.status == 200:
                        return
                    assert answer.status == 409, answer.body

        await asyncio.gather(*(label(n) for n in range(20)))
        labels = good(await call(session, "GET", f"{planes.url}{TENANTS}/{name}"))["metadata"]["labels"]
        assert labels == {f"k{n}": "x" for n in range(20)}


async def test_what_a_controller_has_seen_lags_behind_what_is_wanted_and_catches_up(planes: Planes) -> None:
    async with asking(planes) as session:
        name = f"lag-{uuid.uuid4().hex[:6]}"
        seen: list[tuple[int, int]] = []  # generation, observedGeneration

        class Looking(Watch):
            def _saw(self, event: Any) -> None:
                super()._saw(event)
                one = event["object"]
                if one["metadata"].get("name") == name:
                    seen.append((one["metadata"]["generation"], one.get("status", {}).get("observedGeneration", 0)))

        async with watching(Looking(session, WORKLOADS, lambda: planes.url)):
            good(await call(session, "POST", planes.url + WORKLOADS, workload(name)))
            for replicas in range(2, 12):
                patch = {"spec": {"replicas": replicas}}
                url = f"{planes.url}{WORKLOADS}/{name}"
                good(await call(session, "PATCH", url, patch, media="application/merge-patch+json"))
            await until(lambda: bool(seen) and seen[-1] == (11, 11), planes.above.said)
        assert all(observed <= generation for generation, observed in seen)
        assert any(observed < generation for generation, observed in seen)
        assert [observed for _, observed in seen] == sorted(observed for _, observed in seen)
        status = {**good(await call(session, "GET", f"{planes.url}{WORKLOADS}/{name}")), "status": {"observedGeneration": 3}}
        assert (await call(session, "PUT", f"{planes.url}{WORKLOADS}/{name}/status", status)).status in (403, 409, 422)


async def deleted(planes: Planes, session: aiohttp.ClientSession, name: str) -> Any:
    """A workload that is assigned to the region, which dies, and then deleted; the object as it stands, held."""
    await planes.region.start(session)
    good(await call(session, "POST", planes.url + WORKLOADS, workload(name)))
    assignment = f"{planes.url}{GROUP}/namespaces/risk/assignments/{name}.us-east"
    async with asyncio.timeout(60):
        while (await call(session, "GET", assignment)).status != 200:
            await asyncio.sleep(0.05)
    planes.region.servers["a"].kill()
    good(await call(session, "DELETE", f"{planes.url}{WORKLOADS}/{name}"))
    async with asyncio.timeout(60):
        while "deletionTimestamp" not in (await call(session, "GET", assignment)).body.get("metadata", {}):
            await asyncio.sleep(0.05)
    return good(await call(session, "GET", f"{planes.url}{WORKLOADS}/{name}"))


async def gone(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(60):
        while (await call(session, "GET", url)).status != 404:
            await asyncio.sleep(0.05)


async def test_a_finalizer_whose_owner_is_gone_says_since_when_and_an_operator_takes_it_off(planes: Planes) -> None:
    async with asking(planes) as session:
        name = f"held-{uuid.uuid4().hex[:6]}"
        url, assignment = f"{planes.url}{WORKLOADS}/{name}", f"{planes.url}{GROUP}/namespaces/risk/assignments/{name}.us-east"
        held = await deleted(planes, session, name)
        assert held["metadata"]["deletionTimestamp"]
        assert held["metadata"]["finalizers"] == ["fairlead.dev/slots-released"]
        said = planes.describe(f"workload/{name}")
        assert "fairlead.dev/slots-released (workload-controller lets go, due " in said
        said = planes.describe(f"assignment/{name}.us-east")
        assert "fairlead.dev/region-released (mirror lets go, due " in said
        async with session.get(f"{planes.url}/metrics") as answer:
            text = await answer.text()
        ages = [line for line in text.splitlines() if line.startswith("fairlead_finalizer_age_seconds{")]
        assert any("region-released" in line and float(line.split()[-1]) > 0 for line in ages), ages
        # The region is written off by hand: its copy is let go, and with that the workload.
        one = good(await call(session, "GET", assignment))
        one["metadata"]["finalizers"] = []
        good(await call(session, "PUT", assignment, one))
        await gone(session, url)
        await gone(session, assignment)


async def test_a_finalizer_cannot_be_taken_off_what_nobody_has_deleted(planes: Planes) -> None:
    async with asking(planes) as session:
        name = f"kept-{uuid.uuid4().hex[:6]}"
        made = good(await call(session, "POST", planes.url + WORKLOADS, workload(name)))
        made["metadata"].pop("resourceVersion")
        made["metadata"]["finalizers"] = []
        answer = await call(session, "PUT", f"{planes.url}{WORKLOADS}/{name}", made)
        now = good(await call(session, "GET", f"{planes.url}{WORKLOADS}/{name}"))
        assert now["metadata"]["finalizers"] == ["fairlead.dev/slots-released"], answer.body


async def test_a_finalizer_whose_owner_is_late_is_taken_off_when_it_comes(planes: Planes) -> None:
    async with asking(planes) as session:
        name = f"late-{uuid.uuid4().hex[:6]}"
        await deleted(planes, session, name)
        await planes.region.start(session)
        await gone(session, f"{planes.url}{WORKLOADS}/{name}")
