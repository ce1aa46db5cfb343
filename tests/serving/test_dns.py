"""The DNS server on real sockets: UDP, TCP, sizes, limits, and the client that the prober uses."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.ports import SystemClock
from fairlead.serving import dns
from fairlead.serving.directory import Picture
from fairlead.serving.dns import DnsServer, DnsSettings, Pace
from fairlead.serving.dns_client import Found, Unresolved, find
from fairlead.serving.dns_zone import Zone
from tests.serving.dns_packets import over_tcp, over_udp, question, take_apart
from tests.serving.planes import Pictures, member, picture

NAME = "_http._tcp.api.risk.svc.fairlead.local"
FEW = picture(member("east", 0, "127.0.0.1"), member("west", 1, "127.0.0.2"))
MANY = picture(*(member("east", slot, str(ipaddress.ip_address("10.0.0.0") + slot)) for slot in range(100)))


class StillClock(SystemClock):
    """No time passes, so that a bucket never fills again by itself."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@asynccontextmanager
async def serving(*pictures: Picture, **settings: object) -> AsyncIterator[DnsServer]:
    server = DnsServer(Zone(Pictures(*pictures), random.Random(1)), StillClock(), DnsSettings(port=0, **settings))  # type: ignore[arg-type]
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def test_a_question_over_udp_and_over_tcp_gets_the_same_answer() -> None:
    async with serving(FEW) as server:
        packet = question("0.east.api.risk.svc.fairlead.local", "A")
        udp = await over_udp(server.port, packet)
        (tcp,) = await over_tcp(server.port, packet)
        assert udp == tcp
        assert [text for *_, text in take_apart(tcp).answers] == ["127.0.0.1"]


async def test_a_long_answer_is_cut_off_over_udp_and_whole_over_tcp() -> None:
    async with serving(MANY) as server:
        for edns, limit in ((None, 512), (1232, 1232), (4096, 1232), (100, 512)):
            answer = await over_udp(server.port, question(NAME, "SRV", edns=edns))
            assert answer is not None
            assert len(answer) <= limit
            assert (take_apart(answer).truncated, take_apart(answer).answers) == (True, [])
        (whole,) = await over_tcp(server.port, question(NAME, "SRV"))
        seen = take_apart(whole)
        assert not seen.truncated
        assert (len(seen.answers), len(seen.additional)) == (100, 100)


async def test_a_client_is_sent_no_more_than_travels_whole_and_no_less_than_everybody_takes() -> None:
    some = picture(*(member("east", slot, f"10.0.0.{slot}") for slot in range(25)))  # 1.5 kB of services, 0.4 kB of addresses
    async with serving(some) as server:
        large = await over_udp(server.port, question(NAME, "SRV", edns=4096))
        small = await over_udp(server.port, question("api.risk.svc.fairlead.local", "A", edns=100))
        assert large is not None
        assert small is not None
        assert take_apart(large).truncated
        assert len(take_apart(small).answers) == 25
        assert not take_apart(small).truncated


async def test_several_questions_share_a_connection() -> None:
    async with serving(FEW) as server:
        asked = [question("api.risk.svc.fairlead.local", "A", id_=number) for number in range(5)]
        assert [answer[:2] for answer in await over_tcp(server.port, *asked)] == [packet[:2] for packet in asked]


async def test_garbage_is_answered_or_ignored_and_the_server_goes_on() -> None:
    async with serving(FEW) as server:
        broken = await over_udp(server.port, question(NAME, "SRV")[:-3])
        assert broken is not None
        assert take_apart(broken).rcode == 1
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("127.0.0.1", server.port))
        for junk in (b"", b"\0", b"\xff" * 11, b"\xff" * 700):
            transport.sendto(junk)
        transport.close()
        assert await over_tcp(server.port, b"\xff" * 5) == []
        assert await over_udp(server.port, question(NAME, "SRV")) is not None
        assert server.dropped_total >= 3


async def test_a_connection_that_announces_more_than_a_question_is_closed_before_it_has_sent_it() -> None:
    async with serving(FEW) as server:
        padded = question(NAME, "SRV", edns=1232)
        padded = padded[:-2] + (4096 - len(padded)).to_bytes(2, "big") + bytes(4096 - len(padded))
        assert len(await over_tcp(server.port, padded)) == 1
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write((4097).to_bytes(2, "big"))
        async with asyncio.timeout(2.0):  # an idle connection is closed after 5 s
            assert await reader.read() == b""
        writer.close()
        assert server.dropped_total == 1


async def test_a_client_that_asks_too_much_gets_no_answer_and_later_gets_one_again() -> None:
    async with serving(FEW, burst=3, rate_per_s=1.0) as server:
        packet = question(NAME, "SRV")
        assert all([await over_udp(server.port, packet) is not None for _ in range(3)])
        assert await over_udp(server.port, packet, timeout_s=0.05) is None
        assert await over_tcp(server.port, packet) == []
        assert server.dropped_total == 2
        server._pace._clock.now += 1.0  # type: ignore[attr-defined]
        assert await over_udp(server.port, packet) is not None


async def test_too_many_connections_of_one_client_are_closed_at_once() -> None:
    async with serving(FEW, connections_per_client=2) as server:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        for reader, writer in held:  # both are known to the server once it has answered
            packet = question(NAME, "SRV")
            writer.write(len(packet).to_bytes(2, "big") + packet)
            await reader.readexactly(2)
        assert await over_tcp(server.port, question(NAME, "SRV")) == []
        for _, writer in held:
            writer.close()


async def test_a_connection_from_elsewhere_takes_nobody_s_place(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(FEW, connections_max=1) as server:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(DnsServer, "_client", lambda *_: "")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(10):
                    assert await reader.read() == b"", "closed before it asks anything"
            writer.close()
        assert server.dropped_total == 1
        assert len(await over_tcp(server.port, question(NAME, "SRV"))) == 1


async def test_an_idle_connection_is_closed() -> None:
    async with serving(FEW, idle_s=0.01) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        writer.close()


async def test_an_error_within_is_told_as_a_failure_of_the_server() -> None:
    class Broken(Pictures):
        def picture(self, tenant: str, workload: str) -> Picture | None:
            raise RuntimeError("broken")

    server = DnsServer(Zone(Broken(), random.Random(1)), StillClock())
    answer = server.reply(question(NAME, "SRV"), datagram=True)
    assert answer is not None
    assert take_apart(answer).rcode == 2


def test_a_pace_is_kept_for_each_client_and_for_so_many_clients_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StillClock()
    pace = Pace(10.0, 2, clock)
    assert [pace.allows("a") for _ in range(3)] == [True, True, False]
    assert pace.allows("b")
    clock.now = 0.1
    assert [pace.allows("a") for _ in range(2)] == [True, False]
    clock.now = 100.0
    assert [pace.allows("a") for _ in range(3)] == [True, True, False]
    monkeypatch.setattr(dns, "CLIENTS_MAX", 10)
    for number in range(1000):
        pace.allows(f"c{number}")
    assert len(pace._left) == 10


def test_only_loopback_may_ask_unless_networks_are_named() -> None:
    plain = DnsServer(Zone(Pictures(), random.Random(1)), StillClock())
    assert [plain.may_ask(a) for a in ("127.0.0.1", "::1", "10.0.0.1", "::ffff:10.0.0.1", "fd00::1", "?")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    open_ = DnsServer(Zone(Pictures(), random.Random(1)), StillClock(), DnsSettings(host="0.0.0.0", networks=("10.0.0.0/8",)))
    assert [open_.may_ask(a) for a in ("10.0.0.1", "::ffff:10.0.0.1", "192.0.2.1", "127.0.0.1")] == [True, True, False, True]


def test_neighbours_in_one_ipv6_network_share_a_pace() -> None:
    settings = DnsSettings(host="::", networks=("fd00::/8",), burst=1, rate_per_s=1.0)
    server = DnsServer(Zone(Pictures(), random.Random(1)), StillClock(), settings)
    assert [server.may_ask(a) for a in ("fd00::1", "fd00::2", "fd00:0:0:1::1")] == [True, False, True]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (DnsSettings(host="0.0.0.0"), "networks"),
        (DnsSettings(host="10.1.2.3"), "networks"),
        (DnsSettings(host="localhost"), "IP address"),
        (DnsSettings(port=70_000), "port"),
        (DnsSettings(networks=("10.0.0.1/8",)), "networks"),
        (DnsSettings(rate_per_s=0), "ratePerS"),
    ],
)
def test_a_server_that_would_be_open_or_could_not_work_is_refused(settings: DnsSettings, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        DnsServer(Zone(Pictures(), random.Random(1)), StillClock(), settings)


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with serving(FEW) as server:
        other = DnsServer(Zone(Pictures(), random.Random(1)), StillClock(), DnsSettings(port=server.port))
        with pytest.raises(OSError, match="in use"):
            await other.start()


# --- our own client --------------------------------------------------------------------------------------------------------


async def test_our_client_finds_every_endpoint_also_where_the_answer_is_long() -> None:
    async with serving(FEW) as server:
        found = await find(("127.0.0.1", server.port), "risk", "api", "http", random.Random(1))
        assert found == [Found("east", 0, "127.0.0.1", 8000, 10), Found("west", 1, "127.0.0.2", 8001, 10)]
        assert await find(("127.0.0.1", server.port), "risk", "other", "http", random.Random(1)) == []
    async with serving(MANY) as server:
        found = await find(("127.0.0.1", server.port), "risk", "api", "http", random.Random(1))
        assert sorted(one.slot for one in found) == list(range(100))


async def test_our_client_asks_for_addresses_that_did_not_fit_beside_the_answer() -> None:
    async with serving(picture(*(member("east", slot, f"10.0.0.{slot}") for slot in range(18)))) as server:
        answer = await over_udp(server.port, question(NAME, "SRV", edns=1232))
        assert answer is not None
        assert (len(take_apart(answer).answers), take_apart(answer).truncated) == (18, False)
        assert 0 < len(take_apart(answer).additional) < 18
        found = await find(("127.0.0.1", server.port), "risk", "api", "http", random.Random(1))
        assert sorted((one.slot, one.address) for one in found) == [(slot, f"10.0.0.{slot}") for slot in range(18)]


async def test_our_client_believes_only_an_answer_to_its_own_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who guesses sends forged answers first: another id, another name, no answer at all."""
    real = DnsServer(Zone(Pictures(FEW), random.Random(1)), StillClock())
    forger = DnsServer(Zone(Pictures(picture(member("evil", 9, "10.6.6.6"))), random.Random(1)), StillClock())

    class Forged(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: asyncio.DatagramTransport = transport  # type: ignore[assignment]

        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            other_id = bytes([data[0] ^ 1]) + data[1:]
            other_name = data.replace(b"\x03api", b"\x03abi")
            for packet in (other_id, other_name):
                self.transport.sendto(forger.reply(packet, datagram=True) or b"", addr)
            self.transport.sendto(data, addr)
            self.transport.sendto(real.reply(data, datagram=True) or b"", addr)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Forged, ("127.0.0.1", 0))
    try:
        port = transport.get_extra_info("sockname")[1]
        found = await find(("127.0.0.1", port), "risk", "api", "http", random.Random(1))
        assert [one.region for one in found] == ["east", "west"]
    finally:
        transport.close()


async def test_our_client_says_when_nobody_answers_or_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(FEW) as server:
        port = server.port
        with pytest.raises(Unresolved, match="code 5"):
            await find(("127.0.0.1", port), "risk", "api", "http", random.Random(1), zone="elsewhere.example")
    monkeypatch.setattr("fairlead.serving.dns_client.ATTEMPT_S", 0.01)
    with pytest.raises(Unresolved, match="does not answer"):
        await find(("127.0.0.1", port), "risk", "api", "http", random.Random(1))


@pytest.mark.skipif(shutil.which("dig") is None, reason="dig is not installed")
async def test_dig_reads_our_answers() -> None:
    async with serving(FEW) as server:
        process = await asyncio.create_subprocess_exec(
            "dig", "+short", "@127.0.0.1", "-p", str(server.port), NAME, "SRV", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        assert sorted(out.decode().split("\n"))[1:] == [
            "10 10 8000 0.east.api.risk.svc.fairlead.local.",
            "10 10 8001 1.west.api.risk.svc.fairlead.local.",
        ]
