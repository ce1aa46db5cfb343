"""The channel over real sockets: a plane served by uvicorn, a remote plane that dials it."""

from __future__ import annotations

import asyncio
import random
import socket as sockets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.websockets import WebSocket

from fairlead.api.socket import channel_route
from fairlead.authority.service import PlaneService
from fairlead.client.channel import Channel, Closed
from fairlead.client.dial import Dialer, SocketChannel
from fairlead.client.remote import RemotePlane
from fairlead.model.commands import Enqueue
from fairlead.model.lifecycle import Role
from fairlead.ports import SystemClock, Tasks
from tests.authority.planes import PlaneForTest, ok, request_of, running_plane
from tests.client.test_remote import tenant


@asynccontextmanager
async def served(plane: PlaneForTest, refuse: str = "") -> AsyncIterator[str]:
    service = PlaneService(plane.authority, plane.clock)

    async def serve(channel: Channel, socket: WebSocket) -> None:
        await service.serve(channel)

    async def admit(socket: WebSocket) -> str:
        return refuse

    listener = sockets.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(Starlette(routes=[channel_route(serve, admit)]), log_level="error", ws="wsproto", lifespan="off")
    server = uvicorn.Server(config)
    async with Tasks() as tasks:
        running = tasks.start(server.serve(sockets=[listener]), "uvicorn")
        while not server.started:
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await running


async def test_a_plane_is_reached_over_a_real_socket() -> None:
    async with running_plane() as plane, served(plane) as address, Tasks() as tasks:
        dialer = Dialer()
        remote = RemotePlane([address], dialer.dial, SystemClock(), random.Random(1))
        tasks.start(remote.run(), "remote")
        async with asyncio.timeout(60):
            await remote.wait_connected()
        feed = remote.follow(("tenants",), remote.revision())
        ok((await remote.submit([tenant("risk")]))[0])
        await feed.wait()
        assert [change.name for change in feed.take_nowait()] == ["risk"]
        await plane.grant("risk")
        assigner = await plane.as_role(Role.ASSIGNMENT)
        for number in range(12):
            ok(await plane.send(assigner, Enqueue(request_of("risk", f"w{number}", 0), 250)))
        assert len(await remote.list("schedulingrequests")) == 3000
        tasks.cancel()
        await dialer.close()


async def test_who_is_not_welcome_is_told_so_and_cannot_connect() -> None:
    async with running_plane() as plane, served(plane, refuse="no certificate") as address:
        dialer = Dialer()
        with pytest.raises(Closed, match="403"):
            await dialer.dial(address)
        await dialer.close()


async def test_nobody_at_the_address_is_a_closed_channel_not_a_crash() -> None:
    dialer = Dialer()
    with pytest.raises(Closed):
        await dialer.dial("http://127.0.0.1:9")
    await dialer.close()


class _Gone:
    """A socket whose other end went away: what aiohttp does when it answers a ping, or says goodbye, into the void."""

    close_code = None

    async def receive(self) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    async def close(self) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")


async def test_a_connection_that_ends_while_it_is_answered_is_closed_not_a_crash() -> None:
    channel = SocketChannel(_Gone())  # type: ignore[arg-type]
    with pytest.raises(Closed, match="closing transport"):
        await channel.receive()
    await channel.close()


async def test_an_address_that_never_says_a_word_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.client.dial.CONNECT_S", 0.05)
    with sockets.socket() as silent:  # accepts, as a network that is cut later does, and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        dialer = Dialer()
        async with asyncio.timeout(60):
            with pytest.raises(Closed):
                await dialer.dial(f"http://127.0.0.1:{silent.getsockname()[1]}")
        await dialer.close()
