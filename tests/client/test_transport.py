"""What carries a client's requests, by sockets and in the simulator: both tell the same of a server, whatever it does.

A script is what the server does with one request: whether it listens, whether it answers, with what, and whether to the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest

from fairlead.client.http1 import Http
from fairlead.client.transport import CannotConnect, Dropped, Transport
from fairlead.sim import loop as sim
from fairlead.sim.asking import Carrying
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.machines import Machines, Running, for_ever
from fairlead.sim.network import End, Network


class Script(NamedTuple):
    pieces: tuple[bytes, ...] = ()
    whole: bool = True
    answers: bool = True
    listens: bool = True


Work = Callable[[Transport], Coroutine[Any, Any, Any]]
HEADERS = {"User-Agent": "test"}
SERVER = "https://server"


def by_sockets(script: Script, work: Work) -> Any:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if script.answers:
            writer.write(b"HTTP/1.1 201 Created\r\nwarning: one\r\nwarning: two\r\ntransfer-encoding: chunked\r\n\r\n")
            for piece in script.pieces:
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            writer.write(b"0\r\n\r\n" if script.whole else b"")
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        writer.close()

    async def main() -> Any:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if not script.listens:
            server.close()
            await server.wait_closed()
        http = Http(f"http://127.0.0.1:{port}", None, HEADERS)
        try:
            async with asyncio.timeout(60):
                return await work(http)
        finally:
            await http.close()
            server.close()

    return asyncio.run(main())


def simulated(script: Script, work: Work) -> Any:
    async def main(loop: SimLoop) -> Any:
        machines = Machines(loop)
        network = Network(machines)
        there = machines.machine("b/server")

        async def accept(end: End, hello: Any) -> None:
            await end.receive()
            if script.answers:
                warnings = [(b"warning", b"one"), (b"warning", b"two")]
                await end.send({"type": "http.response.start", "status": 201, "headers": warnings})
                for number, piece in enumerate(script.pieces, 1):
                    more = number < len(script.pieces) or not script.whole
                    await end.send({"type": "http.response.body", "body": piece, "more_body": more})
            await end.close()

        async def serve(running: Running) -> None:
            if script.listens:
                network.listen(running, SERVER, "http", accept)
            await for_ever()

        machines.program("server", there, serve).start()
        client = machines.program("client", machines.machine("a/client"), lambda running: for_ever())
        client.start()
        await sleep(0.1)
        assert client.running is not None
        return await work(Carrying(network, client.running, {SERVER: there}, SERVER, HEADERS))

    return sim.run(main, 1).value


@pytest.fixture(params=[by_sockets, simulated], ids=["sockets", "simulated"])
def carried(request: pytest.FixtureRequest) -> Callable[[Script, Work], Any]:
    made: Callable[[Script, Work], Any] = request.param
    return made


Carried = Callable[[Script, Work], Any]


async def read(transport: Transport) -> tuple[int, list[str], str, bytes]:
    async with transport.request("POST", "/x", {"a": "b"}, {"X": "y"}, b"body") as answer:
        return answer.status, answer.headers("warning"), answer.header("none"), await answer.read()


def test_an_answer_has_its_status_all_headers_of_a_name_and_its_body(carried: Carried) -> None:
    assert carried(Script((b"ab", b"c")), read) == (201, ["one", "two"], "", b"abc")


def test_an_answer_can_be_read_piece_by_piece(carried: Carried) -> None:
    async def pieces(transport: Transport) -> bytes:
        async with transport.request("GET", "/x", {}, {}, b"") as answer:
            return b"".join([piece async for piece in answer.pieces()])

    assert carried(Script((b"ab", b"c")), pieces) == b"abc"


def test_an_answer_that_is_left_in_the_middle_ends_quietly(carried: Carried) -> None:
    async def first(transport: Transport) -> bytes:
        async with transport.request("GET", "/x", {}, {}, b"") as answer:
            async for piece in answer.pieces():
                return piece
        return b""

    assert carried(Script((b"ab", b"c")), first) == b"ab"


def test_where_nobody_listens_nothing_was_sent(carried: Carried) -> None:
    with pytest.raises(CannotConnect):
        carried(Script(listens=False), read)


@pytest.mark.parametrize("script", [Script(answers=False), Script((b"ab",), whole=False)], ids=["no answer", "half of one"])
def test_a_server_that_breaks_off_leaves_it_open_whether_the_request_arrived(carried: Carried, script: Script) -> None:
    with pytest.raises(Dropped):
        carried(script, read)
