"""The command line against the real resource API: authorities in memory, two regions, TLS with a CA, tokens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli import frame
from fairlead.client import contexts
from fairlead.client.resources import Unreachable
from fairlead.model.commands import Unknown
from tests.api.doors import listening, open_door, own_tenant_only, server_context, write_certificates
from tests.cli.talks import talk

MANIFEST = """
apiVersion: fairlead.dev/v1alpha1
kind: Workload
metadata: {{name: {name}, labels: {{tier: gold}}}}
spec:
  replicas: {replicas}
  template: {{driver: process, command: [/bin/api]}}
  resources: {{requests: {{cpu: 500m, memory: 1Gi}}}}
---
apiVersion: fairlead.dev/v1alpha1
kind: Tenant
metadata: {{name: risk}}
"""


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The server on a thread of its own; the command line runs its own loop in this one."""
    folder = tmp_path_factory.mktemp("door")
    ca, certificate, key = write_certificates(folder)
    ready, found = threading.Event(), dict[str, Any]()

    async def serve() -> None:
        stop = asyncio.Event()
        tls = server_context(str(certificate), str(key))
        kept = folder / "history"
        async with open_door("us", "eu", authorise=own_tenant_only, archive=kept) as door, listening(door.app, tls) as server:
            found.update(url=f"https://127.0.0.1:{server.port}", ca=ca, loop=asyncio.get_running_loop(), stop=stop, door=door)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="door")
    thread.start()
    assert ready.wait(60), "the server did not start"
    yield found
    found["loop"].call_soon_threadsafe(found["stop"].set)
    thread.join(30)


@pytest.fixture
def contexts_file(door: dict[str, Any], config_file: Path) -> Path:
    made = [
        contexts.Context(name=name, server=door["url"], namespace="risk", certificate_authority=str(door["ca"]), token=token)
        for name, token in (("ada", "ada-token"), ("eve", "eve-token"), ("nobody", "wrong"))
    ]
    strange = contexts.Context(name="strange", server=door["url"], token="ada-token")
    contexts.save(contexts.ClientConfig(current_context="ada", contexts=(*made, strange)), config_file)
    return config_file


@pytest.fixture
def applied(contexts_file: Path, tmp_path: Path) -> Path:
    file = tmp_path / "w.yaml"
    file.write_text(MANIFEST.format(name="risk-api", replicas=3))
    ran = talk("apply", "-f", file, "--force-conflicts")
    assert ran.code == 0, ran
    return file


def written_with(file: Path, old: str, new: str) -> Path:
    other = file.with_name(f"other-{file.name}")
    other.write_text(file.read_text().replace(old, new))
    return other


def test_a_workload_is_applied_looked_at_changed_and_deleted(applied: Path) -> None:
    assert "workload/risk-api unchanged" in talk("apply", "-f", applied).out
    lines = talk("get", "workloads").out.splitlines()
    assert lines[0].split()[:3] == ["NAME", "TENANT", "CLASS"]
    assert lines[1].split()[:2] == ["risk-api", "risk"]
    assert talk("get", "wl/risk-api", "-o", "jsonpath={.spec.replicas}").out == "3"
    assert talk("get", "wl", "-l", "tier in (gold,tin)", "-o", "name").out == "workload/risk-api\n"
    applied.write_text(MANIFEST.format(name="risk-api", replicas=5))
    assert talk("diff", "-f", applied).code == frame.CHANGES
    assert "workload/risk-api configured" in talk("apply", "-f", applied).out
    assert talk("diff", "-f", applied).code == 0
    assert talk("scale", "wl/risk-api", "--replicas", 6).code == 0
    assert "workload/risk-api configured" in talk("apply", "-f", applied).out, "the tool is not in its own way"
    conflict = talk("apply", "-f", written_with(applied, "replicas: 5", "replicas: 7"), "--field-manager", "other")
    assert conflict.code == frame.CONFLICT, "the file says 7 and somebody else said 5 since"
    assert "--force-conflicts" in conflict.err
    assert talk("diff", "-f", applied).code == 0
    assert talk("scale", "wl/risk-api", "--replicas", 4).out == "workload/risk-api scaled from 5 to 4, 1 to drain\n"
    assert talk("patch", "wl/risk-api", "-p", "spec: {gang: true}").out == "workload/risk-api patched\n"
    assert talk("patch", "wl/risk-api", "-p", "spec: {gang: true}").out == "workload/risk-api patched (no change)\n"
    assert talk("rollout", "pause", "risk-api").code == 0
    assert "Spec:" in talk("describe", "wl/risk-api").out
    assert talk("wait", "wl/risk-api", "--for=jsonpath={.spec.replicas}=4", "--timeout", "60s").code == 0
    ran = talk("delete", "wl/risk-api", "--yes", "--no-wait")
    assert (ran.code, ran.out) == (0, "workload/risk-api deleted\n"), ran


def test_a_key_that_is_sent_again_is_done_once_and_has_its_receipt(applied: Path, tmp_path: Path) -> None:
    file = tmp_path / "once.yaml"
    file.write_text(MANIFEST.format(name="once", replicas=1).partition("---")[0])
    assert talk("create", "-f", file, "--idempotency-key", "k1").code == 0
    again = talk("create", "-f", file, "--idempotency-key", "k1")
    assert (again.code, again.out) == (0, "workload/once created\n")
    ran = talk("receipt", "k1")
    assert ran.code == 0
    assert ran.out.startswith("receipt/k1 Accepted: workloads/risk/once ")
    assert talk("receipt", "never").code == frame.NOT_FOUND
    assert talk("create", "-f", file).code == frame.CONFLICT


def test_faults_are_told_with_their_fields(contexts_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    text = MANIFEST.format(name="bad", replicas=-3).partition("---")[0]
    file.write_text(text)
    ran = talk("create", "-f", file)
    assert ran.code == frame.ERROR
    assert ran.err.count("spec.replicas: ") == 1
    file.write_text(text + "---\n" + text.replace("name: bad", "name: fine").replace("-3", "3"))
    ran = talk("apply", "-f", file)
    assert ran.code == frame.ERROR
    assert "document 1: spec.replicas" in ran.err
    assert talk("get", "wl/fine").code == frame.NOT_FOUND


def test_a_tenant_sees_its_own_and_nothing_else(applied: Path) -> None:
    assert talk("get", "wl", "--context", "eve").code == 0
    assert talk("get", "wl", "-n", "ads", "--context", "eve").code == frame.DENIED
    assert talk("get", "wl", "-A", "--context", "eve").code == frame.DENIED
    assert talk("get", "wl", "--context", "nobody").code == frame.DENIED


def test_a_server_whose_ca_is_not_known_is_not_trusted(contexts_file: Path) -> None:
    ran = talk("get", "wl", "--context", "strange")
    assert ran.code == frame.ERROR
    assert "its certificate is not trusted" in ran.err
    assert "--certificate-authority" in ran.err


def test_nodes_of_two_regions_are_listed_cordoned_and_chosen_by_region(contexts_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text("---\n".join(
        f"apiVersion: fairlead.dev/v1alpha1\nkind: Node\nmetadata: {{name: {region}-n1}}\n"
        f"spec: {{region: {region}, zone: a, allocatable: {{cpu: 4, memory: 8Gi}}}}\n" for region in ("us", "eu")))  # fmt: skip
    ran = talk("apply", "-f", file)
    assert ran.code == 0, ran
    assert sorted(talk("get", "nodes", "-o", "name").out.split()) == ["node/eu-n1", "node/us-n1"]
    assert talk("get", "nodes", "--region", "eu", "-o", "name").out == "node/eu-n1\n"
    assert talk("cordon", "us-n1").out == "node/us-n1 cordoned\n"
    assert talk("drain", "us-n1", "--reason", "disk", "--yes", "--no-wait").code == 0
    assert talk("get", "no/us-n1", "-o", "jsonpath={.spec.drain.reason}").out == "disk"
    assert talk("uncordon", "us-n1").code == 0
    assert {line.split()[0] for line in talk("top", "nodes").out.splitlines()} == {"NAME", "eu-n1", "us-n1"}


@pytest.fixture
def cut_off(door: dict[str, Any], contexts_file: Path, tmp_path: Path) -> Iterator[None]:
    """A node in the region us, which then cannot be reached."""
    file = tmp_path / "node.yaml"
    file.write_text("apiVersion: fairlead.dev/v1alpha1\nkind: Node\nmetadata: {name: us-n9}\n"
                    "spec: {region: us, zone: a, allocatable: {cpu: 4, memory: 8Gi}}\n")  # fmt: skip
    assert talk("apply", "-f", file).code == 0
    assert talk("get", "nodes").code == 0, "so that the front door remembers it"
    region = door["door"].cuttable["us"]
    door["loop"].call_soon_threadsafe(region.cut)
    yield
    door["loop"].call_soon_threadsafe(region.mend)


def test_a_region_that_is_away_is_a_warning_for_reads_and_an_unknown_outcome_for_writes(cut_off: None) -> None:
    read = talk("get", "nodes", "-o", "name")
    assert read.code == 0
    assert "node/us-n9" in read.out, "as remembered"
    assert "warning: " in read.err
    assert "us" in read.err
    wrote = talk("cordon", "us-n9")
    assert (wrote.code, wrote.out) == (frame.ERROR, ""), "it was never sent, so there is no doubt"
    assert "us cannot be reached" in wrote.err


def lose_answers(region: Any, monkeypatch: pytest.MonkeyPatch, receipts: bool) -> None:
    """The region commits, and what it answers is lost; with `receipts` it cannot be asked afterwards either."""
    submit = region.submit

    async def lost(commands: list[Any]) -> list[Any]:
        await submit(commands)
        return [Unknown("the connection was lost") for _ in commands]

    async def away(actor: str, key: str) -> Any:
        raise Unreachable("cut")

    monkeypatch.setattr(region, "submit", lost)
    if receipts:
        monkeypatch.setattr(region, "receipt", away)


NODE = """
apiVersion: fairlead.dev/v1alpha1
kind: Node
metadata: {name: us-doubt}
spec: {region: us, zone: a, allocatable: {cpu: 4, memory: 8Gi}}
"""


def test_a_lost_answer_is_settled_or_told_as_unknown_with_its_receipt(
    door: dict[str, Any], contexts_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(NODE)
    region = door["door"].cuttable["us"]
    with monkeypatch.context() as patched:
        lose_answers(region, patched, receipts=False)
        settled = talk("apply", "-f", file)
        assert (settled.code, settled.out) == (0, "node/us-doubt created\n"), settled
    with monkeypatch.context() as patched:
        lose_answers(region, patched, receipts=True)
        unknown = talk("cordon", "us-doubt", "--idempotency-key", "k7")
        assert (unknown.code, unknown.out) == (frame.UNKNOWN, "receipt/k7\n"), unknown
    assert talk("receipt", "k7").code == 0, "the region is back, and knows"
    assert talk("cordon", "us-doubt", "--idempotency-key", "k7").out == "node/us-doubt cordoned already\n"


def test_a_dry_run_of_the_server_stores_nothing(applied: Path, tmp_path: Path) -> None:
    assert talk("delete", "wl/risk-api", "--dry-run", "server").out == "workload/risk-api deleted (server dry run)\n"
    assert talk("scale", "wl/risk-api", "--replicas", 99, "--dry-run", "server").code == 0
    assert talk("get", "wl/risk-api", "-o", "jsonpath={.spec.replicas}").out == "3"


def test_a_watch_sees_what_happens_in_two_regions_and_resumes(door: dict[str, Any]) -> None:
    """The client itself, over TLS: list, then every change, through one vector of versions."""
    import random

    from fairlead.client.rest import RestClient
    from fairlead.client.rest_shapes import Link, Query, Resource
    from fairlead.client.rest_watch import Watch
    from fairlead.main import run
    from fairlead.ports import SystemClock, SystemIds

    nodes = Resource("nodes", "Node", namespaced=False)
    context = contexts.Context(name="x", server=door["url"], certificate_authority=str(door["ca"]), token="ada-token")
    link = Link(door["url"], contexts.tls_of(context, Path()), "ada-token")

    async def follow() -> list[str]:
        told: list[str] = []
        async with RestClient(link, clock=SystemClock(), ids=SystemIds(), jitter=random.Random(1).random) as client:
            async with asyncio.timeout(30):
                async for event in Watch(client, Query(nodes, labels="seen=yes")).events():
                    told.append(f"{event.type} {event.object['metadata']['name']}" if event.object else event.type)
                    if len(told) == 1:
                        for region in ("us", "eu"):
                            spec = {"region": region, "zone": "a", "allocatable": {"cpu": "4", "memory": "8Gi"}}
                            body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Node", "spec": spec,
                                    "metadata": {"name": f"{region}-w", "labels": {"seen": "yes"}}}  # fmt: skip
                            await client.create(nodes, "", body)
                    if len(told) == 3:
                        await client.patch(nodes, "", "us-w", {"metadata": {"labels": {"seen": None}}})
                    if len(told) == 4:
                        return told
        return told

    told = run(follow())
    assert told[0] == "SYNCED"
    assert sorted(told[1:3]) == ["ADDED eu-w", "ADDED us-w"]
    assert told[3] == "DELETED us-w", "it left the selection"


def test_why_says_what_is_known_and_nothing_else(contexts_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(MANIFEST.format(name="unseen", replicas=3))
    assert talk("apply", "-f", file, "--force-conflicts").code == 0
    ran = talk("why", "unseen")
    said = "generation 1 has not been looked at yet by the workload controller"
    assert (ran.code, ran.out) == (0, f"workload/unseen: {said}\n")
    assert talk("why", "wl/unseen", "-o", "jsonpath={.status.slots}").out == "[]"
    assert talk("delete", "wl/unseen", "--yes", "--no-wait").code == 0
    assert "it is being deleted; still to be done: fairlead.dev/slots-released" in talk("why", "unseen").out
    assert talk("why", "wl/nothing").code == frame.NOT_FOUND
    assert talk("why", "nodes/n1").code == frame.ERROR
    nothing = talk("decisions", "unseen", "--since", "1h", "--slot", "2")
    assert (nothing.code, nothing.out) == (frame.OK, "")
    assert "nothing was decided about workload/unseen" in nothing.err
    assert talk("decisions", "wl/unseen", "-o", "jsonpath={.kind}").out == "DecisionRecordList"
    assert talk("decisions", "tenants/risk").code == frame.ERROR


def test_a_region_that_is_not_there_is_told_with_those_that_are(applied: Path) -> None:
    ran = talk("get", "nodes", "--region", "mars")
    assert (ran.code, ran.out) == (frame.ERROR, "")
    assert "us, eu" in ran.err
    assert "workload/risk-api" in talk("get", "wl", "--region", "us", "-o", "name").out.split()


def test_the_past_is_read_and_what_is_no_longer_kept_is_told(applied: Path) -> None:
    version = talk("get", "wl/risk-api", "-o", "jsonpath={.metadata.resourceVersion}").out
    assert talk("scale", "wl/risk-api", "--replicas", 7).code == 0
    assert talk("get", "wl/risk-api", "--at", version, "-o", "jsonpath={.spec.replicas}").out == "3"
    assert "generation" in talk("get", "wl/risk-api", "--at", version, "-o", "yaml").out
    told = talk("describe", "wl/risk-api", "--at", version).out
    assert "replicas: 3" in told
    assert "Events" not in told
    ran = talk("get", "wl/risk-api", "--at", "1")
    assert ran.code == frame.ERROR
    assert "no longer kept" in ran.err


def test_a_timeline_and_a_history_are_asked_of_the_server(applied: Path, tmp_path: Path) -> None:
    ran, waited = talk("timeline", "wl/risk-api", "-n", "risk", "--json"), threading.Event()
    for _ in range(600):  # the archive is fed twice a second
        if ran.code == frame.OK:
            break
        waited.wait(0.1)
        ran = talk("timeline", "wl/risk-api", "-n", "risk", "--json")
    steps = ran.json["results"]["steps"]
    assert (steps[0]["plane"], steps[0]["object"]) == ("global", "workload/risk-api")
    assert steps[0]["what"].startswith("created: 3 replicas")
    assert "created: 3 replicas" in talk("timeline", "risk-api", "-n", "risk").out
    assert talk("timeline", "nobody", "-n", "risk").code == frame.NOT_FOUND
    assert talk("timeline", "risk-api", "-n", "billing", "--context", "eve").code == frame.DENIED
    file = tmp_path / "all.history"
    ran = talk("export", file, "--plane", "global", "--json")
    assert ran.json["results"]["plane"] == "global"
    assert ran.json["results"]["batches"] > 0
    assert talk("timeline", "risk-api", "-n", "risk", "--from", file).code == frame.OK
    denied = tmp_path / "denied.history"
    assert talk("export", denied, "--plane", "global", "--context", "eve").code == frame.DENIED
    assert talk("export", denied, "--plane", "mars").code == frame.ERROR
    assert sorted(path.name for path in tmp_path.iterdir() if "denied" in path.name) == []


def test_why_takes_a_moment_a_generation_and_a_slot(applied: Path) -> None:
    version = talk("get", "wl/risk-api", "-o", "jsonpath={.metadata.resourceVersion}").out
    generation = int(talk("get", "wl/risk-api", "-o", "jsonpath={.metadata.generation}").out)
    assert talk("scale", "wl/risk-api", "--replicas", 9).code == 0
    told = talk("why", "wl/risk-api", "--at", version)
    assert told.code == frame.OK, told
    assert told.out.startswith("workload/risk-api at 20")
    assert talk("why", "wl/risk-api", "--generation", generation + 9).code == frame.NOT_FOUND
    assert talk("why", "wl/risk-api", "--slot", 3).code == frame.NOT_FOUND
    lost = talk("why", "wl/risk-api", "-n", "elsewhere")
    assert lost.code == frame.NOT_FOUND
    assert "there is one in tenant" in lost.err
    assert "there is one in tenant" not in talk("why", "wl/risk-api", "--slot", 3).err, "it was looked for in the right one"
    ran = talk("why", "wl/risk-api", "--at", "2020-01-01T00:00:00Z")
    assert ran.code == frame.ERROR
    assert "history does not reach back so far" in ran.err


def test_kinds_events_and_version_come_from_the_server(contexts_file: Path) -> None:
    assert "workloads" in talk("api-resources", "-o", "name").out.split()
    assert talk("events").code == 0
    assert "fairlead" in talk("version", "--remote", "--json").json["server"]


def test_decisions_of_a_workload_that_is_not_there_are_not_found(applied: Path) -> None:
    assert talk("decisions", "wl/nope").code == frame.NOT_FOUND
