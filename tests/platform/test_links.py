"""The relays of the local platform, over real sockets: what passes, what waits, what is told of an end; and a store's lock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.compose.links import Faults, Link, LinksConfig, Locks, Relay, read_in_force
from fairlead.security.files import write_private
from fairlead.store.contract import Fence, Unavailable
from fairlead.store.sqlite import SqliteStore
from fairlead.wire import json_codec
from tests.servers.ports import free_ports

PATIENCE_S = 30.0
QUIET_S = 0.2  # for something that must not happen


class Ends:
    """Both ends of one connection through a relay."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.relay.link.listen.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def pair(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamWriter]:
        near = await self.dial()
        async with asyncio.timeout(PATIENCE_S):
            return (*near, *await self.accepted.get())


@asynccontextmanager
async def linked() -> AsyncIterator[Ends]:
    listen, target = (f"127.0.0.1:{port}" for port in free_ports(2))
    relay = Relay(Link("a>b", listen, target))
    ends = Ends(relay)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.accepted.put_nowait((reader, writer))

    host, _, port = target.rpartition(":")
    server = await asyncio.start_server(accept, host, int(port))
    await relay.start()
    try:
        yield ends
    finally:
        relay.break_all()
        server.close()


async def soon(work: Awaitable[bytes]) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await work


async def quiet(reader: asyncio.StreamReader) -> bool:
    """Nothing comes, not even an end."""
    try:
        async with asyncio.timeout(QUIET_S):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


async def test_bytes_and_ends_pass_both_ways() -> None:
    async with linked() as ends:
        near_in, near_out, far_in, far_out = await ends.pair()
        near_out.write(b"x" * 1_000_000)
        assert len(await soon(far_in.readexactly(1_000_000))) == 1_000_000
        far_out.write(b"yes")
        assert await soon(near_in.readexactly(3)) == b"yes"
        near_out.close()
        assert await soon(far_in.read()) == b""


async def test_what_is_sent_into_a_cut_waits_and_arrives_whole_when_it_heals() -> None:
    async with linked() as ends:
        near_in, near_out, far_in, far_out = await ends.pair()
        ends.relay.cut("both")
        near_out.write(b"one")
        far_out.write(b"two")
        assert await quiet(far_in)
        assert await quiet(near_in)
        near_out.write(b"more")
        ends.relay.cut(None)
        assert await soon(far_in.readexactly(7)) == b"onemore"
        assert await soon(near_in.readexactly(3)) == b"two"


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_not_even_an_end_is_told_over_a_cut(end: str) -> None:
    async with linked() as ends:
        _, near_out, far_in, far_out = await ends.pair()
        ends.relay.cut("both")
        near_out.close() if end == "close" else near_out.transport.abort()
        far_out.write(b"are you there?")
        assert await quiet(far_in)
        ends.relay.cut(None)
        assert await soon(far_in.read()) == b""


@pytest.mark.parametrize("way", ["forward", "back"])
async def test_one_direction_may_be_cut_alone(way: str) -> None:
    async with linked() as ends:
        near_in, near_out, far_in, far_out = await ends.pair()
        ends.relay.cut("forward" if way == "forward" else "back")
        near_out.write(b"out")
        far_out.write(b"in!")
        if way == "forward":
            assert await soon(near_in.readexactly(3)) == b"in!"
            assert await quiet(far_in)
        else:
            assert await soon(far_in.readexactly(3)) == b"out"
            assert await quiet(near_in)


async def test_whoever_is_gone_behind_a_cut_direction_is_not_missed_over_the_other() -> None:
    async with linked() as ends:
        _, near_out, far_in, far_out = await ends.pair()
        ends.relay.cut("forward")
        near_out.transport.abort()
        for _ in range(3):  # the relay finds out that nobody is there, and may not say so
            far_out.write(b"are you there?")
            assert await quiet(far_in)
        ends.relay.cut(None)
        with contextlib.suppress(ConnectionError):
            assert await soon(far_in.read()) == b""


async def test_a_connection_made_into_a_cut_hears_nothing_and_comes_about_when_it_heals() -> None:
    async with linked() as ends:
        ends.relay.cut("back")
        _, near_out = await ends.dial()
        near_out.write(b"hello")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await ends.accepted.get()
        ends.relay.cut(None)
        async with asyncio.timeout(PATIENCE_S):
            far_in, _ = await ends.accepted.get()
        assert await soon(far_in.readexactly(5)) == b"hello"


async def test_breaking_closes_what_is_open_and_nothing_later() -> None:
    async with linked() as ends:
        near_in, _, far_in, _ = await ends.pair()
        assert ends.relay.break_all() == 1
        for reader in (near_in, far_in):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await soon(reader.readexactly(1))
        _, near_out, far_in, _ = await ends.pair()
        near_out.write(b"again")
        assert await soon(far_in.readexactly(5)) == b"again"


async def test_where_nobody_listens_the_dialler_sees_an_end() -> None:
    listen, target = (f"127.0.0.1:{port}" for port in free_ports(2))
    relay = Relay(Link("a>b", listen, target))
    await relay.start()
    near_in, _ = await Ends(relay).dial()
    with contextlib.suppress(ConnectionError):  # either way it is over
        assert await soon(near_in.read()) == b""


# --- the program, and the lock of a store


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_program_does_as_its_file_says_and_says_what_is_in_force(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    faults, in_force, config = (tmp_path / name for name in ("faults", "in-force", "config"))
    link = Link("a>b", f"127.0.0.1:{port}", "127.0.0.1:1")
    write_private(config, json_codec.encode(LinksConfig((link,), str(faults), str(in_force))))
    program = subprocess.Popen([sys.executable, "-m", "fairlead.compose.links", str(config)])  # noqa: ASYNC220
    try:
        await until(lambda: read_in_force(in_force).number == 0)
        write_private(faults, json_codec.encode(Faults(1, {"a>b": "back"}, locks={"a": str(tmp_path / "none")})))
        os.kill(program.pid, signal.SIGHUP)
        await until(lambda: read_in_force(in_force).number == 1)
        said = read_in_force(in_force)
        assert (said.cuts, said.locks) == ({"a>b": "back"}, ())
        assert "not held" in said.refused
    finally:
        program.terminate()
        assert program.wait(PATIENCE_S) == 0


HOLD = """
import sys
from fairlead.compose.links import Locks
locks = Locks()
print(locks.set({"p": sys.argv[1]}) or "held", flush=True)
sys.stdin.readline()
print(locks.set({}) or "free", flush=True)
sys.stdin.readline()
"""


async def test_a_store_that_is_held_reads_and_does_not_commit_until_it_is_free(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "plane.db", busy_timeout_s=0.05)
    head = await store.open()
    fence = await store.acquire("me", head)
    assert isinstance(fence, Fence)
    words = [sys.executable, "-c", HOLD, str(tmp_path / "plane.db")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as holder:  # noqa: ASYNC220
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert isinstance(await store.renew(fence), Unavailable)
        assert (await store.head()).holder == "me"
        holder.stdin.write("\n")
        assert holder.stdout.readline() == "free\n"
        assert not isinstance(await store.renew(fence), Unavailable)
        holder.stdin.write("\n")
    await store.close()


def test_a_store_that_is_not_there_is_not_held_and_that_is_said(tmp_path: Path) -> None:
    locks = Locks()
    assert "the store of a is not held" in locks.set({"a": str(tmp_path / "none")})
    assert locks.planes == ()
