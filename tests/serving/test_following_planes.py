"""A directory over real planes, through real channels: endpoints as the rollout controller writes them, told by DNS; a cut, and
what is told during it."""

from __future__ import annotations

import asyncio
import random

from fairlead.authority.service import PlaneService
from fairlead.client.remote import RemotePlane
from fairlead.model.commands import Put
from fairlead.model.lifecycle import Role
from fairlead.ports import SystemClock, Tasks
from fairlead.serving.directory import Directory
from fairlead.serving.dns import DnsServer, DnsSettings
from fairlead.serving.dns_client import find
from fairlead.serving.dns_zone import Zone
from tests.authority.planes import FakeClock, PlaneForTest, ok, running_plane
from tests.client.queues import Exchange
from tests.serving.planes import endpoints


async def wait_slots(directory: Directory, wanted: list[int]) -> None:
    listener = directory.listen()
    while True:
        found = directory.picture("risk", "api")
        if found is not None and [m.slot for m in found.members] == wanted:
            return
        await listener.wait()
        listener.take_nowait()


async def put(plane: PlaneForTest, version: int, *slots: int) -> None:
    rollout = await plane.as_role(Role.ROLLOUT)
    ok(await plane.send(rollout, Put("Endpoints", endpoints("risk", "api", version, slots, "127.0.0.1"))))


async def test_endpoints_of_two_planes_are_told_as_one_and_survive_the_loss_of_a_plane() -> None:
    async with running_plane() as east, running_plane() as west, Tasks() as tasks:
        planes, exchanges = {"east": east, "west": west}, {name: Exchange(tasks) for name in ("east", "west")}
        remotes = {}
        for name, plane in planes.items():
            exchanges[name].services["a"] = PlaneService(plane.authority, plane.clock)
            remotes[name] = RemotePlane(["a"], exchanges[name].dial, SystemClock(), random.Random(1), "directory")
            tasks.start(remotes[name].run(), name)
        clock = FakeClock()
        directory = Directory(remotes, clock, random.Random(1))
        tasks.start(directory.run(), "directory")
        async with asyncio.timeout(60):
            await put(east, 1, 0, 1)
            await put(west, 1, 2)
            await wait_slots(directory, [0, 1, 2])
            server = DnsServer(Zone(directory, random.Random(1)), clock, DnsSettings(port=0))
            await server.start()
            found = await find(("127.0.0.1", server.port), "risk", "api", "http", random.Random(1))
            assert [(one.region, one.slot, one.port) for one in found] == [
                ("east", 0, 8000),
                ("east", 1, 8001),
                ("west", 2, 8002),
            ]

            service = exchanges["west"].services.pop("a")
            await exchanges["west"].cut()
            await put(west, 2, 7)  # nobody here can know
            clock.offset += 30.0
            await put(east, 2, 0, 5)
            await wait_slots(directory, [0, 5, 2])
            found = await find(("127.0.0.1", server.port), "risk", "api", "http", random.Random(1))
            assert [(one.region, one.slot, one.priority) for one in found] == [("east", 0, 10), ("east", 5, 10), ("west", 2, 20)]
            assert [source.state for source in directory.regions()] == ["Current", "Stale"]

            exchanges["west"].services["a"] = service
            await wait_slots(directory, [0, 5, 7])
            assert [source.state for source in directory.regions()] == ["Current", "Current"]
            await server.close()
        tasks.cancel()
