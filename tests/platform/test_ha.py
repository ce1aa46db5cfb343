"""Three servers of one plane on one store, each a process of its own: one leads, the others answer and pass on, and the death of
any of them is nobody's loss. On a real PostgreSQL and on a real etcd of three members."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from fairlead.compose.forwarding import LEVEL_S
from tests.platform.fleets import GROUP, Answer, Fleet, Pki, Watch, call, good, until, watching
from tests.servers.etcd import shared_cluster
from tests.servers.postgres import shared_server

TENANTS = f"{GROUP}/tenants"
WORKLOAD = f"{GROUP}/namespaces/risk/workloads/ledger"


def store_of(engine: str) -> str:
    name = f"ha{uuid.uuid4().hex[:8]}"
    if engine == "postgres":
        return f"{shared_server().dsn()}?plane={name}"
    return f"etcd://{','.join(shared_cluster().endpoints)}/{name}"


@pytest.fixture(scope="module", params=["postgres", "etcd"])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder: Path = tmp_path_factory.mktemp("ha")
    made = Fleet(folder / "global", Pki(folder / "pki"), store_of(request.param))
    try:
        yield made
    finally:
        made.end()


@asynccontextmanager
async def standing(fleet: Fleet) -> AsyncIterator[tuple[aiohttp.ClientSession, str, list[str]]]:
    """A session, who leads, and who does not. Whoever a test before this one has killed is started again."""
    async with fleet.pki.session() as session:
        await fleet.start(session)
        leader = await fleet.leader(session)
        for address in fleet.addresses.values():  # a standby learns from the store who may do what
            async with asyncio.timeout(60):
                while (await call(session, "GET", address + TENANTS)).status != 200:
                    await asyncio.sleep(0.05)
        await until_linked(fleet, session)
        yield session, leader, [name for name in fleet.servers if name != leader]


async def until_linked(fleet: Fleet, session: aiohttp.ClientSession) -> None:
    """Until each server leads or can ask whoever does: nobody else says of a key that nothing came of it. Before that, what it
    shows may be old."""
    for address in fleet.addresses.values():
        async with asyncio.timeout(60):
            while (await call(session, "GET", f"{address}{GROUP}/receipts/never-used")).status != 404:
                await asyncio.sleep(0.05)


async def read_at(session: aiohttp.ClientSession, url: str) -> Answer:
    """A server that hears nothing from the leader for a second shows what it has: on a busy machine it is asked again."""
    for _ in range(20):
        began = time.monotonic()
        answer = await call(session, "GET", url)
        if answer.status == 200 or time.monotonic() - began < LEVEL_S:
            break
    return answer


def tenant(name: str) -> dict[str, object]:
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name}}


class Writer:
    """Makes one thing after another, each under a key of its own, and does not go on before it knows what became of it."""

    def __init__(self, session: aiohttp.ClientSession, fleet: Fleet, at: str, name: str) -> None:
        self._session = session
        self._fleet = fleet
        self._at = at
        self._others = [other for other in fleet.servers if other != at]
        self.name = name
        self.done: list[str] = []
        self.unknown = 0
        self.resolved = 0
        self.refused = 0
        self.stopped = False

    async def run(self) -> None:
        number = 0
        while not self.stopped:
            number += 1
            await self.one(str(number))

    async def one(self, what: str) -> None:
        what = f"{self.name}-{what}"
        for attempt in range(10_000):
            servers = [name for name in (self._at, *self._others) if self._fleet.servers[name].answers] or [self._at]
            at = servers[attempt % len(servers)] if self.unknown else self._at
            answer = await self.write(self._fleet.addresses[at], what)
            if answer in (200, 201):
                self.done.append(what)
                return
            if answer in (0, 504):
                self.unknown += 1
                if await self._resolve(what):
                    self.done.append(what)
                    return
            else:
                assert answer in (429, 503), answer
                self.refused += 1
            await asyncio.sleep(0.02)

    async def _resolve(self, key: str) -> bool:
        """What became of it, from whoever can say: true, it took effect."""
        while True:
            for name in self._others:
                if self._fleet.servers[name].answers:
                    answer = await call(self._session, "GET", f"{self._fleet.addresses[name]}{GROUP}/receipts/{key}")
                    if answer.status in (200, 404):
                        self.resolved += 1
                        return answer.status == 200
            await asyncio.sleep(0.05)

    async def write(self, url: str, what: str) -> int:
        return (await call(self._session, "POST", url + TENANTS, tenant(what), key=what)).status


class Appender(Writer):
    """Appends to a list: done twice it would be there twice."""

    async def write(self, url: str, what: str) -> int:
        patch = [{"op": "add", "path": "/spec/template/command/-", "value": what}]
        answer = await call(self._session, "PATCH", url + WORKLOAD, patch, key=what, media="application/json-patch+json")
        assert answer.status != 422, answer.body
        return answer.status


async def epoch_of(session: aiohttp.ClientSession, address: str) -> int:
    return int(good(await call(session, "GET", f"{address}{GROUP}/planes/self"))["spec"]["epoch"])


async def test_the_death_of_the_leader_under_load_loses_nothing_and_does_nothing_twice(fleet: Fleet) -> None:
    async with standing(fleet) as (session, leader, (first, second)):
        at = fleet.addresses
        good(await call(session, "POST", at[first] + TENANTS, tenant("risk")))
        workload = {
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "ledger", "namespace": "risk"},
            "spec": {"replicas": 0, "template": {"command": ["/bin/true"]}, "resources": {"requests": {"cpu": "1"}}},
        }  # fmt: skip
        good(await call(session, "POST", f"{at[second]}{GROUP}/namespaces/risk/workloads", workload))
        watches = [Watch(session, TENANTS, lambda name=name: at[name]) for name in (first, second)]  # type: ignore[misc]
        writers = [Writer(session, fleet, leader, "x"), Writer(session, fleet, first, "y"), Writer(session, fleet, second, "z")]
        appender = Appender(session, fleet, second, "appended")
        async with watching(*watches), asyncio.TaskGroup() as group:
            epoch = await epoch_of(session, at[first])
            tasks = [group.create_task(writer.run()) for writer in (*writers, appender)]
            await until(lambda: all(len(writer.done) >= 10 for writer in (*writers, appender)), fleet.said)
            fleet.servers[leader].kill()
            counts = {writer.name: len(writer.done) for writer in (*writers, appender)}
            await until(lambda: all(len(w.done) >= counts[w.name] + 10 for w in (*writers, appender)), fleet.said)
            for writer in (*writers, appender):
                writer.stopped = True
            await asyncio.wait(tasks)
            made = {name for writer in writers for name in writer.done}
            await until(lambda: all(made <= watch.objects.keys() for watch in watches), fleet.said)
        assert await fleet.leader(session) in (first, second)
        assert sum(writer.unknown for writer in writers) > 0  # else the kill hit nobody, and this has shown nothing
        listed = good(await call(session, "GET", at[first] + TENANTS))["items"]
        names = [one["metadata"]["name"] for one in listed if one["metadata"]["name"] != "risk"]
        assert len(names) == len(set(names))
        assert made == set(names)
        command = good(await call(session, "GET", at[first] + WORKLOAD))["spec"]["template"]["command"]
        assert command[1:] == appender.done
        took_over_once = await epoch_of(session, at[first]) == epoch + 1
        for watch in watches:
            check_events(watch, made)
            assert watch.lists == 1 or not took_over_once, "a follower's watch goes on while another server dies"


def check_events(watch: Watch, made: set[str]) -> None:
    """Each once, in the order in which they were written, no matter how often the stream broke."""
    versions = [version for _, _, version in watch.events]
    assert versions == sorted(set(versions))
    added = [name for word, name, _ in watch.events if word == "ADDED"]
    assert len(added) == len(set(added))
    if watch.lists == 1:
        assert made <= set(added)


async def test_a_server_that_is_told_to_stop_ends_its_watches_cleanly_and_they_go_on_elsewhere(fleet: Fleet) -> None:
    async with standing(fleet) as (session, leader, (first, second)):
        at, target = fleet.addresses, {"now": leader}
        watches = [Watch(session, TENANTS, lambda: at[target["now"]]) for _ in range(5)]
        writer = Writer(session, fleet, second, f"stop-{uuid.uuid4().hex[:6]}")
        async with watching(*watches), asyncio.TaskGroup() as group:
            writing = group.create_task(writer.run())
            await until(lambda: len(writer.done) >= 5, fleet.said)
            target["now"] = first
            fleet.servers[leader].terminate()
            assert await fleet.servers[leader].wait_ended() == 0
            count = len(writer.done)
            await until(lambda: len(writer.done) >= count + 5, fleet.said)
            writer.stopped = True
            await asyncio.wait([writing])
            made = set(writer.done)
            await until(lambda: all(made <= watch.objects.keys() for watch in watches), fleet.said)
        for watch in watches:
            assert (watch.clean_ends, watch.broken_ends, watch.lists) == (1, 0, 1)
            check_events(watch, made)


async def test_what_was_written_through_one_server_is_read_through_any_other(fleet: Fleet) -> None:
    async with standing(fleet) as (session, leader, (first, second)):
        at = fleet.addresses
        name = f"read-{uuid.uuid4().hex[:6]}"
        for number in range(4):
            for writes, reads in ((leader, first), (first, second), (second, leader)):
                one = f"{name}-{number}-{writes}"
                made = good(await call(session, "POST", at[writes] + TENANTS, tenant(one)))
                read = good(await read_at(session, f"{at[reads]}{TENANTS}/{one}"))
                assert read["metadata"] == made["metadata"]
                read["metadata"]["labels"] = {"seen": "yes"}
                changed = good(await call(session, "PUT", f"{at[writes]}{TENANTS}/{one}", read))
                changed["metadata"]["labels"] = {"seen": "twice"}
                good(await call(session, "PUT", f"{at[reads]}{TENANTS}/{one}", changed))
                assert (await call(session, "PUT", f"{at[writes]}{TENANTS}/{one}", read)).status == 409


@pytest.mark.parametrize("fleet", ["postgres"], indirect=True)  # what it asks has nothing to do with the engine
async def test_a_leader_that_was_frozen_finds_out_that_it_leads_no_more(fleet: Fleet) -> None:
    async with standing(fleet) as (session, leader, (first, _)):
        at, name = fleet.addresses, f"frozen-{uuid.uuid4().hex[:6]}"
        frozen = fleet.servers[leader]
        frozen.pause()
        try:
            await until_led_by_another(fleet, session, leader)
            writer = Writer(session, fleet, first, name)
            await writer.one("while-frozen")
        finally:
            frozen.pause(False)
        for number in range(5):  # what it is sent now it passes on, and what it shows is the present
            answer = await call(session, "POST", at[leader] + TENANTS, tenant(f"{name}-{number}"), key=f"{name}-{number}")
            assert answer.status in (200, 201, 503, 504, 0), answer.body
        await fleet.wait_ready(session, leader)
        await until_linked(fleet, session)
        good(await call(session, "POST", at[leader] + TENANTS, tenant(f"{name}-last")))
        here = {one["metadata"]["name"] for one in good(await call(session, "GET", at[leader] + TENANTS))["items"]}
        there = {one["metadata"]["name"] for one in good(await call(session, "GET", at[first] + TENANTS))["items"]}
        assert here == there
        assert {*writer.done, f"{name}-last"} <= here


async def until_led_by_another(fleet: Fleet, session: aiohttp.ClientSession, than: str) -> None:
    async with asyncio.timeout(60):
        while True:
            for name in fleet.servers:
                if name != than and "[+]leader leads" in await fleet.readiness(session, name):
                    return
            await asyncio.sleep(0.05)
