"""The official Python client: dynamic client, a watch that resumes, an informer. In threads of its own; the door stays here."""

from __future__ import annotations

import asyncio
import importlib
import threading
from pathlib import Path
from typing import Any

import pytest

from fairlead.api.server import Server
from tests.api.doors import (
    GROUP,
    Door,
    call,
    kubeconfig,
    listening,
    node,
    open_door,
    server_context,
    workload,
    write_certificates,
)

k8s: Any = importlib.import_module("kubernetes")  # its types do not cover what is used here
informer: Any = importlib.import_module("kubernetes.informer")

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
MERGE = "application/merge-patch+json"


def client_of(folder: Path, server: Server, ca: Path) -> Any:
    return k8s.config.new_client_from_config(str(kubeconfig(folder, server, ca)))


def dynamic(folder: Path, api: Any) -> Any:
    # A cache of its own: the default one is shared by all servers on one host.
    return k8s.dynamic.DynamicClient(api, cache_file=str(folder / "discovery.json"))


def all_verbs(folder: Path, api: Any) -> None:
    client = dynamic(folder, api)
    kind = client.resources.get(api_version="fairlead.dev/v1alpha1", kind="Workload")
    made = kind.create(body=workload("api", replicas=2), namespace="risk")
    assert made.spec.replicas == 2
    assert [item.metadata.name for item in kind.get(namespace="risk").items] == ["api"]
    patched = kind.patch(name="api", namespace="risk", body={"spec": {"replicas": 3}}, content_type=MERGE)
    assert patched.spec.replicas == 3
    applied = kind.server_side_apply(
        name="api", namespace="risk", body=workload("api", replicas=4), field_manager="py", force_conflicts=True
    )
    assert applied.spec.replicas == 4
    stale = made.to_dict()
    with pytest.raises(k8s.dynamic.exceptions.ConflictError):
        kind.replace(body=stale, namespace="risk")
    with pytest.raises(k8s.dynamic.exceptions.NotFoundError):
        kind.get(name="nothing", namespace="risk")
    assert kind.delete(name="api", namespace="risk").metadata.deletionTimestamp


async def test_the_dynamic_client_does_all_verbs(tmp_path: Path) -> None:
    ca, certificate, key = write_certificates(tmp_path)
    async with open_door("us") as door, listening(door.app, server_context(str(certificate), str(key))) as server:
        await asyncio.to_thread(all_verbs, tmp_path, client_of(tmp_path, server, ca))


async def test_a_watch_resumes_after_the_server_was_restarted(tmp_path: Path) -> None:
    ca, certificate, key = write_certificates(tmp_path)
    tls = server_context(str(certificate), str(key))
    seen: list[str] = []
    more = threading.Event()

    def follow(api: Any, version: str | None, wanted: int) -> str:
        watch = k8s.watch.Watch()
        objects = k8s.client.CustomObjectsApi(api)
        stream = watch.stream(
            objects.list_namespaced_custom_object, "fairlead.dev", "v1alpha1", "risk", "workloads",
            resource_version=version, timeout_seconds=60, allow_watch_bookmarks=True,
        )  # fmt: skip
        for event in stream:
            if event["type"] != "BOOKMARK":
                seen.append(f"{event['type']} {event['object']['metadata']['name']}")
                more.set()
            if len(seen) >= wanted:
                watch.stop()
        return str(watch.resource_version)

    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("a"))
        version = (await call(door, "GET", WORKLOADS)).json["metadata"]["resourceVersion"]
        await call(door, "POST", WORKLOADS, workload("b"))
        async with listening(door.app, tls) as server:
            version = await asyncio.to_thread(follow, client_of(tmp_path, server, ca), version, 1)
        await call(door, "DELETE", f"{WORKLOADS}/a")
        await call(door, "POST", WORKLOADS, workload("c"))
        door.app.state.watches.draining = False
        async with listening(door.app, tls) as server:
            await asyncio.to_thread(follow, client_of(tmp_path, server, ca), version, 3)
    assert seen == ["ADDED b", "MODIFIED a", "ADDED c"]


class Listed:
    """CustomObjectsApi gives dicts, whose `items` is a method; the informer wants an attribute."""

    def __init__(self, plain: dict[str, Any]) -> None:
        self.items = plain["items"]
        self.metadata = k8s.client.V1ListMeta(resource_version=plain["metadata"]["resourceVersion"])


async def wait_for(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_an_informer_keeps_up_with_two_regions_one_of_which_goes_and_comes(tmp_path: Path) -> None:
    ca, certificate, key = write_certificates(tmp_path)
    async with open_door("us", "eu") as door, listening(door.app, server_context(str(certificate), str(key))) as server:
        for region in ("us", "eu"):
            await call(door, "POST", f"{GROUP}/nodes", node(f"{region}-n1", region))
        objects = k8s.client.CustomObjectsApi(client_of(tmp_path, server, ca))

        def nodes(**options: Any) -> Any:
            got = objects.list_cluster_custom_object("fairlead.dev", "v1alpha1", "nodes", **options)
            return got if options.get("watch") else Listed(got)

        nodes.__doc__ = objects.list_cluster_custom_object.__doc__
        keeper = informer.SharedInformer(nodes, key_func=lambda o: o["metadata"]["name"])
        keeper.start()
        try:
            await wait_for(lambda: names(keeper) == {"us-n1", "eu-n1"})
            await call(door, "POST", f"{GROUP}/nodes", node("eu-n2", "eu"))
            await wait_for(lambda: "eu-n2" in names(keeper))
            await cut_and_mend(door)
            await wait_for(lambda: names(keeper) == {"us-n1", "us-n2", "eu-n1", "eu-n2", "eu-n3"})
        finally:
            stopping = asyncio.create_task(asyncio.to_thread(keeper.stop))
            door.app.state.watches.drain()  # the informer's thread sits in a read
            await stopping


async def cut_and_mend(door: Door) -> None:
    door.cuttable["eu"].cut()
    await door.planes["eu"].add_node("eu-n3")
    await call(door, "POST", f"{GROUP}/nodes", node("us-n2", "us"))
    door.cuttable["eu"].mend()


def names(keeper: Any) -> set[str]:
    return {o["metadata"]["name"] for o in keeper.cache.list()}
