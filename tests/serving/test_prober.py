"""What the prober tells is what a client would have seen: successes, latencies, and how long nobody answered."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.ports import SystemClock
from fairlead.serving.dns import DnsServer, DnsSettings
from fairlead.serving.dns_client import Unresolved, knows
from fairlead.serving.dns_zone import Zone
from fairlead.serving.feed import document
from fairlead.serving.http_get import Got, get
from fairlead.serving.measured import Measure
from fairlead.serving.prober import ProbeOptions, Prober, Target, probe, rows, through_dns, through_file
from fairlead.sim.loop import SimLoop, run
from tests.serving.planes import Pictures, SimClock, member, picture

EAST, WEST = Target("east", 0, "10.0.0.1", 1), Target("west", 1, "10.0.0.2", 2)


class World:
    """Endpoints that a script switches on and off at moments of virtual time."""

    def __init__(self, *targets: Target) -> None:
        self.targets: Sequence[Target] = targets
        self.down: list[tuple[str, float, float]] = []  # address, from, until
        self.latency_s = 0.01
        self.unresolved = False
        self.took_s: dict[str, float] = {}

    async def resolve(self) -> Sequence[Target]:
        if self.unresolved:
            raise Unresolved("no answer")
        return self.targets

    async def send(self, address: str, port: int, path: str, timeout_s: float) -> Got:
        now_s = asyncio.get_running_loop().time()
        if any(known == address and start <= now_s < end for known, start, end in self.down):
            return Got(error="Refused")
        took_s = self.took_s.get(address, self.latency_s)
        await asyncio.sleep(min(took_s, timeout_s))
        return Got(200) if took_s < timeout_s else Got(error="Timeout")


def probed(world: World, steps: dict[float, Any] | None = None, **options: Any) -> dict[str, Any]:
    async def main(loop: SimLoop) -> dict[str, Any]:
        for at, step in (steps or {}).items():
            loop.call_at(at, step)
        wanted = ProbeOptions(workload="api", tenant="risk", **options)
        return (await Prober(wanted, world.resolve, SimClock(loop), world.send).run()).results()

    return run(main, 1).value


def test_requests_go_to_each_endpoint_in_turn_at_the_rate_that_was_asked_for() -> None:
    got = probed(World(EAST, WEST), rate_per_s=10, duration_s=10)
    assert (got["sent"], got["succeeded"], got["success_ratio"]) == (100, 100, 1.0)
    assert {region: of["sent"] for region, of in got["regions"].items()} == {"east": 50, "west": 50}
    assert [(of["region"], of["slot"], of["sent"]) for of in got["slots"]] == [("east", 0, 50), ("west", 1, 50)]
    assert (got["p50_ms"], got["p99_ms"], got["longest_outage_s"]) == (10.0, 10.0, 0.0)
    assert 0.09 < got["longest_gap_s"] < 0.12


def test_an_outage_lasts_from_the_last_success_to_the_next() -> None:
    world = World(EAST)
    world.down = [("10.0.0.1", 3.0, 5.5)]
    got = probed(world, rate_per_s=10, duration_s=10)
    assert got["longest_outage_s"] == pytest.approx(2.6, abs=0.11)
    assert got["longest_outage_at_s"] == pytest.approx(2.9, abs=0.11)
    assert got["errors"] == {"Refused": 25}


def test_one_region_down_is_its_own_outage_and_none_of_the_whole() -> None:
    world = World(EAST, WEST)
    world.down = [("10.0.0.2", 3.0, 99.0)]
    got = probed(world, rate_per_s=10, duration_s=10)
    assert got["regions"]["west"]["longest_outage_s"] > 6.5
    assert got["regions"]["east"]["longest_outage_s"] == 0.0
    assert got["longest_outage_s"] < 0.3
    assert got["regions"]["west"]["succeeded"] == 15


def test_nothing_to_ask_is_an_outage_too() -> None:
    got = probed(World(), rate_per_s=10, duration_s=5)
    assert (got["succeeded"], got["errors"]) == (0, {"NoEndpoints": 50})
    assert got["longest_outage_s"] == pytest.approx(5.0, abs=0.11)


def test_a_withdrawn_endpoint_is_asked_no_more_and_owes_nothing() -> None:
    world = World(EAST, WEST)

    def withdraw() -> None:
        world.targets = [EAST]
        world.down = [("10.0.0.2", 4.0, 99.0)]

    got = probed(world, {2.0: withdraw}, rate_per_s=10, duration_s=10)
    assert got["errors"] == {}
    assert got["regions"]["west"]["longest_outage_s"] == 0.0
    assert got["regions"]["east"]["sent"] > 65


def test_a_slot_that_failed_before_it_was_withdrawn_was_out_until_its_last_failure() -> None:
    world = World(EAST, WEST)
    world.down = [("10.0.0.2", 1.0, 99.0)]
    got = probed(world, {3.5: lambda: setattr(world, "targets", [EAST])}, rate_per_s=10, duration_s=10)
    assert got["regions"]["west"]["longest_outage_s"] == pytest.approx(3.1, abs=0.25)
    assert got["slots"][1]["longest_outage_s"] == got["regions"]["west"]["longest_outage_s"]


def test_what_was_due_and_not_sent_is_told() -> None:
    world = World(EAST)
    world.took_s = {"10.0.0.1": 50.0}
    got = probed(world, rate_per_s=1000, duration_s=4, timeout_s=2.0)
    assert got["sent"] + got["skipped"] == 4000
    assert 1900 < got["skipped"] < 2100

    class Busy(SimClock):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(max(seconds, 0.5))  # a machine that comes round twice a second

    async def main(loop: SimLoop) -> dict[str, Any]:
        options = ProbeOptions(workload="api", tenant="risk", rate_per_s=10, duration_s=10)
        return (await Prober(options, World(EAST).resolve, Busy(loop), world.send).run()).results()

    got = run(main, 1).value
    assert 18 <= got["sent"] <= 22
    assert got["sent"] + got["skipped"] in (99, 100)


def test_a_resolver_that_fails_leaves_the_last_answer_in_use() -> None:
    world = World(EAST)
    got = probed(world, {2.5: lambda: setattr(world, "unresolved", True)}, rate_per_s=10, duration_s=10)
    assert (got["succeeded"], got["resolve_failures"]) == (100, 7)


def test_a_slow_endpoint_holds_up_no_other() -> None:
    world = World(EAST, WEST)
    world.took_s = {"10.0.0.2": 50.0}
    got = probed(world, rate_per_s=100, duration_s=10, timeout_s=2.0)
    assert got["sent"] == 1000
    assert got["regions"]["east"]["p99_ms"] == 10.0
    assert got["regions"]["west"]["errors"] == {"Timeout": 500}
    assert got["regions"]["west"]["longest_outage_s"] == pytest.approx(10.0, abs=0.05)


def test_one_region_alone_can_be_asked() -> None:
    assert list(probed(World(EAST, WEST), duration_s=1, region="west")["regions"]) == ["west"]


@pytest.mark.parametrize(
    ("options", "word"),
    [({"rate_per_s": 0}, "--rate"), ({"rate_per_s": 1e6}, "--rate"), ({"duration_s": 0}, "--duration"),
     ({"timeout_s": 0}, "--timeout"), ({"path": "x"}, "--path"), ({"path": "/a b"}, "--path"),
     ({"path": "/a\r\nX: y"}, "--path"), ({"path": "/ü"}, "--path")],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Prober(ProbeOptions(workload="api", tenant="risk", **options), World().resolve, SystemClock())


def test_a_failure_makes_no_outage_of_a_later_gap() -> None:
    measure = Measure()
    measure.failure(0.5, "Refused")
    measure.success(1.0, 0.01)
    measure.success(9.0, 0.01)
    assert (measure.outage_s, measure.gap_s) == (1.0, 8.0)


def test_percentiles_and_gaps_are_what_they_say() -> None:
    measure = Measure()
    for number in range(1, 101):
        measure.success(number * 0.1, number / 1000)
    measure.finish(12.0)
    got = measure.results()
    assert (got["p50_ms"], got["p99_ms"], got["longest_outage_s"], got["longest_gap_s"]) == (50.0, 99.0, 0.0, 2.0)
    measure.failure(12.5, "Refused")
    measure.finish(13.0)
    assert measure.results()["longest_outage_s"] == 3.0
    for number in range(100):
        measure.failure(14.0, f"HTTP {number}")
    assert len(measure.results()["errors"]) <= 33


# --- over real sockets -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def answering(text: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(text)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()


@pytest.mark.parametrize(
    ("text", "got"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Got(200, b"hi")),
        (b"HTTP/1.0 200 OK\r\n\r\nhi", Got(200, b"hi")),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", Got(503)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", Got(error="Broken")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", Got(200, error="TooLarge")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Got(200, error="TooLarge")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Got(error="NotHttp")),
        (b"SSH-2.0-x\r\n\r\n", Got(error="NotHttp")),
        (b"", Got(error="Broken")),
        (b"x" * 40_000, Got(error="NotHttp")),
    ],
)
async def test_an_answer_counts_only_when_it_came_whole(text: bytes, got: Got) -> None:
    async with answering(text) as (port, asked):
        assert await get("127.0.0.1", port, "/", 60.0) == got
        assert asked[0].startswith(b"GET / HTTP/1.1\r\n")
        assert b"\r\nConnection: close\r\n" in asked[0]
    assert got.success == (got in (Got(200, b"hi"),))


async def test_an_endless_body_and_silence_and_nobody_at_home() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000) as (port, _):
        assert (await get("127.0.0.1", port, "/", 60.0)).error == "TooLarge"
    assert (await get("127.0.0.1", port, "/", 60.0)).error == "Refused"

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000)
        await reader.read()  # until the other side has had enough
        writer.close()

    pouring = await asyncio.start_server(endless, "127.0.0.1", 0)
    assert (await get("127.0.0.1", pouring.sockets[0].getsockname()[1], "/", 60.0)).error == "TooLarge"
    pouring.close()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(listen, "127.0.0.1", 0)
    assert (await get("127.0.0.1", silent.sockets[0].getsockname()[1], "/", 0.02)).error == "Timeout"
    silent.close()


async def test_the_command_probes_through_dns_and_through_a_file(tmp_path: Path) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") as (port, _):
        found = picture(member("east", 4, "127.0.0.1", http=port))
        options = ProbeOptions(workload="api", tenant="risk", rate_per_s=100, duration_s=0.1, max_outage_s=0.0)
        server = DnsServer(Zone(Pictures(found), random.Random(1)), SystemClock(), DnsSettings(port=0))
        await server.start()
        by_dns = through_dns(options, ("127.0.0.1", server.port), random.Random(1))
        (tmp_path / "risk").mkdir()
        (tmp_path / "risk" / "api.json").write_text(json.dumps(document(found, 0.0)))
        for resolve in (by_dns, through_file(options, tmp_path), through_file(options, tmp_path / "risk" / "api.json")):
            got, passed = await probe(options, resolve, SystemClock())
            assert passed
            succeeded = got["results"]["succeeded"]
            assert succeeded > 0
            assert succeeded + got["results"]["skipped"] == 10, "a busy machine is late with some"
            assert (got["name"], got["params"]["workload"]) == ("probe", "api")
            assert sorted(got["environment"]) == ["cores", "load", "python"]
            assert isinstance(got["environment"]["load"], float), "one number, as every other command has"
            table = rows(got["results"])
            count = str(succeeded)
            assert [row[:3] for row in table[1:]] == [("east", "4", count), ("east", "all", count), ("all", "all", count)]
        await server.close()


async def test_regions_not_heard_are_asked_only_where_there_is_no_other() -> None:
    options = ProbeOptions(workload="api", tenant="risk")
    for ages, wanted in (({"west": 20.0}, ["east"]), ({"west": 20.0, "east": 20.0}, ["east", "west"])):
        found = picture(member("east", 0, "127.0.0.1"), member("west", 1, "127.0.0.1"), regions=dict(ages))
        server = DnsServer(Zone(Pictures(found), random.Random(1)), SystemClock(), DnsSettings(port=0))
        await server.start()
        targets = await through_dns(options, ("127.0.0.1", server.port), random.Random(1))()
        assert [target.region for target in targets] == wanted
        await server.close()


async def test_the_check_fails_where_nothing_answers_or_an_outage_is_too_long(tmp_path: Path) -> None:
    options = ProbeOptions(workload="api", tenant="risk", rate_per_s=50, duration_s=0.1)
    got, passed = await probe(options, through_file(options, tmp_path / "none.json"), SystemClock())
    assert not passed
    assert got["results"]["resolve_failures"] >= 1
    assert set(got["results"]["errors"]) == {"NoEndpoints"}
    assert got["results"]["errors"]["NoEndpoints"] + got["results"]["skipped"] == 5, "a busy machine is late with some"


def test_a_run_with_too_long_an_outage_does_not_pass() -> None:
    world = World(EAST)
    world.down = [("10.0.0.1", 1.0, 2.0)]

    async def main(loop: SimLoop) -> list[bool]:
        out = []
        for limit_s in (None, 0.5, 5.0):
            world.down = [("10.0.0.1", loop.time() + 1.0, loop.time() + 2.0)]
            options = ProbeOptions(workload="api", tenant="risk", duration_s=4.0, max_outage_s=limit_s)
            out.append((await probe(options, world.resolve, SimClock(loop), send=world.send))[1])
        return out

    assert run(main, 1).value == [True, False, True]


async def test_a_probe_that_is_stopped_tells_what_it_has() -> None:
    stop = asyncio.Event()

    async def send(address: str, port: int, path: str, timeout_s: float) -> Got:
        stop.set()
        return Got(200)

    options = ProbeOptions(workload="api", tenant="risk", rate_per_s=1000, duration_s=600)
    measures = await Prober(options, World(EAST).resolve, SystemClock(), send).run(stop)
    assert 1 <= measures.all.succeeded < 10


async def test_a_workload_that_nobody_knows_is_told_from_one_without_endpoints() -> None:
    found = picture(regions={"east": 0.0})
    server = DnsServer(Zone(Pictures(found), random.Random(1)), SystemClock(), DnsSettings(port=0))
    await server.start()
    where = ("127.0.0.1", server.port)
    assert await knows(where, "risk", "api", random.Random(1))
    assert not await knows(where, "risk", "nope", random.Random(1))
    await server.close()
