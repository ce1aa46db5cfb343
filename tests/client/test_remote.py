"""A plane from afar: the same calls, the same answers, and the truth about what nobody knows when a connection breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.authority.authority import Authority
from fairlead.authority.service import Open, PlaneService
from fairlead.client.channel import REFUSAL, Channel, Closed, Row, decode, encode
from fairlead.client.decisions import DecisionHit, DecisionPage, DecisionQuery
from fairlead.client.plane import Change, Expired
from fairlead.client.remote import RemotePlane
from fairlead.client.remote_feed import RemoteFeed
from fairlead.client.resources import Unreachable
from fairlead.model.commands import Accepted, Command, Enqueue, IdempotencyKey, Put, Refused, Unknown
from fairlead.model.decision import Attempt, DecisionRecord, Result
from fairlead.model.decision import Decided as Decision
from fairlead.model.ids import revision
from fairlead.model.kinds.intent import Tenant, TenantSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.ports import SystemClock, Tasks
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings
from tests.authority.planes import OPERATOR, PlaneForTest, bind_of, no, ok, request_of, running_plane
from tests.client.queues import Exchange, QueueChannel


@asynccontextmanager
async def remote_plane() -> AsyncIterator[tuple[PlaneForTest, RemotePlane, Exchange]]:
    async with running_plane() as plane, Tasks() as tasks:
        exchange = Exchange(tasks)
        exchange.services["a"] = PlaneService(plane.authority, plane.clock)
        remote = RemotePlane(["a"], exchange.dial, SystemClock(), random.Random(1), "test")
        tasks.start(remote.run(), "remote")
        await remote.wait_connected()
        yield plane, remote, exchange
        tasks.cancel()


async def test_a_leader_that_may_not_trust_itself_does_not_say_what_is_bound_to_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async with remote_plane() as (_, remote, _):
        assert (await remote.bound_to(["n1"]))[1] == []
        monkeypatch.setattr(Authority, "vouches", False)
        with pytest.raises(Expired, match="only a leader"):
            await remote.bound_to(["n1"])


async def reconnected(remote: RemotePlane) -> None:
    """The far end has noticed the cut, and the next connection serves."""
    while remote.connects_total < 2:
        await asyncio.sleep(0.001)
    await remote.wait_connected()


class Strict(Open):
    """Sends nothing, speaks for nobody, sees no grants and nothing secret."""

    def may(self, command: Command) -> Refused | None:
        return Refused("NotOwner", f"{command.caller.actor} is not who it says")

    def sees(self, row: Change) -> bool:
        return not row.name.startswith("secret")

    def lists(self, plural: str) -> bool:
        return plural != "grants"

    def speaks(self, nodes: Iterable[str]) -> Refused | None:
        return Refused("WrongNode", "for none of these")


def tenant(name: str) -> Command:
    return Command(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name=name), spec=TenantSpec(weight=3))))


async def test_commands_get_the_outcomes_they_get_at_home() -> None:
    async with remote_plane() as (plane, remote, _):
        first, second = await remote.submit([tenant("risk"), tenant("RISK")])
        assert ok(first).key == "tenants//risk"
        refused = no(second, "Invalid")
        assert refused.faults[0].path == "metadata.name"
        assert plane.authority.view().get("tenants", "", "risk") is not None


async def test_each_command_and_each_question_is_a_call_and_what_is_told_in_a_feed_is_none() -> None:
    async with remote_plane() as (plane, remote, _):
        greeted = remote.calls_total
        await remote.submit([tenant(name) for name in ("risk", "web", "ops")])
        assert remote.calls_total == greeted + 3, "however they were sent"
        await remote.list("tenants")
        assert remote.calls_total == greeted + 4
        feed = remote.follow(["tenants"], remote.revision())
        assert remote.calls_total == greeted + 5
        ok(await plane.send(OPERATOR, tenant("late").body))
        await feed.wait()
        assert remote.calls_total == greeted + 5


async def test_lists_come_in_pages_and_objects_come_decoded() -> None:
    async with remote_plane() as (plane, remote, _):
        await plane.grant("risk")
        assigner = await plane.as_role(Role.ASSIGNMENT)
        for number in range(20):
            ok(await plane.send(assigner, Enqueue(request_of("risk", f"w{number}", 0), 250)))
        found = await remote.list("schedulingrequests")
        assert len(found) == 5000
        assert found[0].hot.spec.slot.workload == "w0"
        one = await remote.get("schedulingrequests", "risk", "w3-7")
        assert one is not None
        assert one.hot.spec.slot.index == 7
        assert await remote.get("schedulingrequests", "risk", "nobody-0") is None


@pytest.mark.parametrize(
    ("known", "pages"),
    [
        (revision(1, 9), [(revision(1, 9), "next"), (revision(2, 4), "")]),
        (revision(2, 4), [(revision(1, 9), "")]),
    ],
    ids=["between two pages", "before, and it is the old one that answers"],
)
async def test_what_is_listed_is_of_one_history(known: int, pages: list[tuple[int, str]]) -> None:
    class Restored(RemotePlane):
        async def _connection(self) -> bool:
            return True

        async def _ask(self, operation: str, *arguments: Any, read: Any, places: Any = None, calls: int = 1) -> Any:
            at, name = pages.pop(0)
            return read([at, [], "", name])

    remote = Restored(["a"], Exchange(Tasks()).dial, SystemClock(), random.Random(1), "test")
    remote._revision = known
    with pytest.raises(Expired, match="two incarnations"):
        await remote.list("tenants")


async def test_a_feed_tells_every_change_once_and_how_far_it_has_come() -> None:
    async with remote_plane() as (plane, remote, _):
        feed = remote.follow(("tenants",), remote.revision())
        ok(await plane.send(OPERATOR, tenant("risk").body))
        await feed.wait()
        assert [change.name for change in feed.take_nowait()] == ["risk"]
        assert feed.revision == plane.authority.view().revision
        await plane.grant("risk")  # of no interest here: only the revision moves
        while feed.revision < plane.authority.view().revision:
            await feed.wait()
            assert list(feed.take_nowait()) == []


async def test_what_was_under_way_when_the_connection_broke_is_unknown_and_feeds_end() -> None:
    async with remote_plane() as (_, remote, exchange):
        feed = remote.follow(("tenants",), remote.revision())
        async with Tasks() as tasks:
            asked = tasks.start(remote.submit([tenant("risk")]), "submit")
            await asyncio.sleep(0)
            await exchange.cut()
            (outcome,) = await asked
        assert isinstance(outcome, Unknown | Accepted)
        await feed.wait()
        with pytest.raises(Expired):
            feed.take_nowait()
        await reconnected(remote)
        assert isinstance((await remote.submit([tenant("search")]))[0], Accepted)


async def test_who_takes_what_came_before_the_end_of_a_feed_is_woken_for_the_end_too() -> None:
    feed = RemoteFeed(lambda number: None, 1, 0)
    feed.told(5, [Row("nodes", "", "n1", 5, None)])
    feed.end(Expired("the connection broke; list again", 0))
    assert [change.name for change in feed.take_nowait()] == ["n1"]
    async with asyncio.timeout(60):
        await feed.wait()
    with pytest.raises(Expired):
        feed.take_nowait()


async def test_a_server_that_does_not_lead_is_passed_over() -> None:
    async with running_plane() as plane, Tasks() as tasks:
        exchange = Exchange(tasks)

        class Standby(PlaneService):
            pass

        async with running_plane() as other:
            exchange.services["b"] = Standby(other.authority, other.clock)
            exchange.services["a"] = PlaneService(plane.authority, plane.clock)
            other.authority._leading.clear()
            remote = RemotePlane(["b", "a"], exchange.dial, SystemClock(), random.Random(1))
            tasks.start(remote.run(), "remote")
            await remote.wait_connected()
            assert isinstance((await remote.submit([tenant("risk")]))[0], Accepted)
            assert plane.authority.view().get("tenants", "", "risk") is not None
            other.authority._leading.set()
        tasks.cancel()


async def test_whoever_may_not_is_refused_before_anything_is_judged() -> None:
    async with remote_plane() as (plane, remote, exchange):
        exchange.gate = Strict()
        await exchange.cut()
        await reconnected(remote)
        no((await remote.submit([tenant("risk")]))[0], "NotOwner")
        assert plane.authority.view().get("tenants", "", "risk") is None
        assert await remote.heartbeat([("n0", 1)]) is None


async def test_whoever_may_not_see_a_thing_sees_nothing_of_it_in_any_way_of_asking() -> None:
    async with remote_plane() as (plane, remote, exchange):
        exchange.gate = Strict()
        await exchange.cut()
        await reconnected(remote)
        for name in ("open", "secret"):
            ok(await plane.send(OPERATOR, tenant(name).body))
        feed = remote.follow(("tenants",), remote.revision())
        assert [change.name for change in await remote.list("tenants")] == ["open"]
        assert [change.name for change in (await remote.page("tenants")).items] == ["open"]
        assert [change.name for change in (await remote.named("tenants", "", ["open", "secret"]))[1]] == ["open"]
        assert await remote.get("tenants", "", "secret") is None
        ok(await plane.send(OPERATOR, tenant("secret2").body))
        ok(await plane.send(OPERATOR, tenant("open2").body))
        seen: list[str] = []
        while "open2" not in seen:
            await feed.wait()
            seen += [change.name for change in feed.take_nowait()]
        assert not any(name.startswith("secret") for name in seen)
        with pytest.raises(Expired):
            await remote.list("grants")


async def test_nonsense_ends_the_connection_with_a_reason() -> None:
    async with remote_plane() as (_, _, exchange):
        channel = await exchange.dial("a")
        await channel.send(encode([7, "dance"]))
        assert decode(await channel.receive())[:3] == [7, REFUSAL, "Invalid"]
        await channel.send(encode([8, "list", "unicorns"]))
        assert decode(await channel.receive())[:3] == [8, REFUSAL, "Invalid"]
        await channel.send(encode([9, "submit", [b"\xc1"]]))
        assert decode(await channel.receive())[:3] == [9, REFUSAL, "Invalid"]
        await channel.send(b"\xff\xff")
        assert decode(await channel.receive())[1:3] == [REFUSAL, "Invalid"]


async def test_heartbeats_are_acknowledged_with_the_fence() -> None:
    async with remote_plane() as (plane, remote, _):
        await plane.add_node("n0")
        heard = await remote.heartbeat([("n0", 1), ("stranger", 1)])
        assert heard is not None
        fence = plane.authority.fence
        assert fence is not None
        assert (heard.incarnation, heard.epoch, list(heard.unknown)) == (fence.incarnation, fence.epoch, ["stranger"])
        assert await remote.heartbeat([("n0", 3)]) is not None
        late = await remote.heartbeat([("n0", 2)])
        assert late is not None
        assert list(late.superseded) == ["n0"]
        assert [name for name, _ in await remote.heard(0)] == ["n0"]


async def test_a_scheduler_works_from_afar_and_through_broken_connections() -> None:
    async with remote_plane() as (plane, remote, exchange), Tasks() as tasks:
        await plane.grant("risk")
        for number in range(3):
            await plane.add_node(f"n{number}")
        assigner = await plane.as_role(Role.ASSIGNMENT)
        scheduler = Scheduler(remote, SystemClock(), random.Random(1), SchedulerSettings(region="local"))
        running = tasks.start(scheduler.run(), "scheduler")
        for turn in range(4):
            ok(await plane.send(assigner, Enqueue(request_of("risk", f"w{turn}", 0, cpu=100), 20)))
            await exchange.cut()
        async with asyncio.timeout(60):
            while plane.authority._state.count("bindings") < 80:
                await asyncio.sleep(0.01)
        scheduler.stop()
        await running
        assert plane.authority._state.count("schedulingrequests") == 0


async def test_pages_receipts_and_the_past_come_from_afar_too() -> None:
    async with remote_plane() as (plane, remote, _):
        for name in ("a", "b", "c"):
            ok(await plane.send(OPERATOR, tenant(name).body, IdempotencyKey(name)))
        page = await remote.page("tenants", limit=2)
        assert [item.name for item in page.items] == ["a", "b"]
        rest = await remote.page("tenants", after=(page.next_tenant, page.next_name), limit=2, revision=page.revision)
        assert ([item.name for item in rest.items], rest.next_name) == (["c"], "")
        receipt = await remote.receipt("ada", "b")
        assert isinstance(receipt, Accepted)
        assert await remote.receipt("ada", "nothing") is None


async def test_an_agent_follows_its_own_nodes_and_hears_of_no_others() -> None:
    async with remote_plane() as (plane, remote, _):
        await plane.grant("risk")
        for name in ("n0", "n1"):
            await plane.add_node(name)
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "w", 0), 2)))
        revision, nodes = await remote.named("nodes", "", ["n0", "n9"])
        assert [change.name for change in nodes] == ["n0"]
        feed = remote.follow(("bindings", "nodes"), revision, nodes=("n0",))
        ok(await plane.send(scheduler, bind_of("risk", "w-1", "n1")))
        ok(await plane.send(scheduler, bind_of("risk", "w-0", "n0")))
        seen: list[str] = []
        while not seen:
            await feed.wait()
            seen += [change.name for change in feed.take_nowait()]
        assert seen == ["w-0"]
        _, bound = await remote.bound_to(["n0"])
        assert [change.name for change in bound] == ["w-0"]


async def test_an_agent_is_asked_over_the_channel_it_keeps_and_again_after_a_break() -> None:
    async with remote_plane() as (plane, remote, exchange):
        await plane.grant("risk")
        await plane.add_node("n0")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "w", 0), 1)))
        ok(await plane.send(scheduler, bind_of("risk", "w-0", "n0")))
        with pytest.raises(Unreachable):
            await remote.logs("risk", "w-0", "stdout", 0, 10)

        async def answer(operation: str, arguments: Sequence[Any]) -> Any:
            if arguments[1] != "w-0":
                raise FileNotFoundError("nothing of it is kept")
            return [arguments[3], b"hello", arguments[3] + 5]

        remote.attend(["n0"], answer)
        assert await remote.logs("risk", "w-0", "stdout", 7, 10) == (7, b"hello", 12)
        await exchange.cut()
        await reconnected(remote)
        assert await remote.logs("risk", "w-0", "stdout", 0, 10) == (0, b"hello", 5)
        with pytest.raises(FileNotFoundError):
            await remote.logs("risk", "nobody-0", "stdout", 0, 10)


class Decided:
    """Where the slot was bound, the newest first."""

    def __init__(self, *nodes: str) -> None:
        self._nodes = nodes

    async def query(self, query: DecisionQuery) -> DecisionPage:
        if query.slot != "gone-0" or query.outcome != "Bound":
            return DecisionPage((), "", (), None)
        attempts = tuple(Attempt("risk", "gone-0", 1, epoch, 0, node) for epoch, node in enumerate(self._nodes))
        decided = Decision("s", 1, 1, 1, 0, "spread", {}, 1, 1, attempts=attempts)
        record = DecisionRecord("d", decided, tuple(Result("Bound") for _ in attempts))
        return DecisionPage(tuple(DecisionHit(record, number) for number in range(len(attempts))), "", (), None)


async def test_what_a_slot_wrote_that_is_over_comes_from_whoever_ran_it_last_and_still_has_it() -> None:
    async with remote_plane() as (plane, remote, exchange):
        exchange.services["a"] = PlaneService(plane.authority, plane.clock, Decided("n2", "n1"))
        await exchange.cut()
        await reconnected(remote)
        asked: list[str] = []

        async def answer(operation: str, arguments: Sequence[Any]) -> Any:
            asked.append(arguments[1])
            if len(asked) == 1:
                raise FileNotFoundError("forgotten on n2")
            return [0, b"no more disk", 12]

        remote.attend(["n1", "n2"], answer)
        assert await remote.logs("risk", "gone-0", "stdout", 0, 10) == (0, b"no more disk", 12)
        assert asked == ["gone-0", "gone-0"]
        with pytest.raises(FileNotFoundError):
            await remote.logs("risk", "other-0", "stdout", 0, 10)
        exchange.gate = Deaf()
        await exchange.cut()
        while remote.connects_total < 3:
            await asyncio.sleep(0.001)
        await remote.wait_connected()
        with pytest.raises(FileNotFoundError, match="bound here"):
            await remote.logs("risk", "gone-0", "stdout", 0, 10)


class Deaf(Open):
    """An agent: of what is not on its node it is told nothing."""

    def hears(self) -> bool:
        return False


async def test_nobody_but_the_one_who_was_asked_can_answer() -> None:
    async with remote_plane() as (plane, remote, exchange):
        await plane.grant("risk")
        await plane.add_node("n0")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(assigner, Enqueue(request_of("risk", "w", 0), 1)))
        ok(await plane.send(scheduler, bind_of("risk", "w-0", "n0")))
        forger = await exchange.dial("a")

        async def answer(operation: str, arguments: Sequence[Any]) -> Any:
            for question in range(5):
                await forger.send(encode([question + 1, "answered", question, True, [0, b"forged", 6]]))
            await asyncio.sleep(0.05)
            return [0, b"true", 4]

        remote.attend(["n0"], answer)
        assert await remote.logs("risk", "w-0", "stdout", 0, 10) == (0, b"true", 4)


async def test_a_server_that_leads_no_more_hangs_up_and_its_followers_look_elsewhere() -> None:
    async with remote_plane() as (_, remote, exchange):
        feed = remote.follow(("tenants",), remote.revision())
        exchange.services["a"].hang_up()
        async with asyncio.timeout(30):
            await reconnected(remote)
            await feed.wait()
        with pytest.raises(Expired):
            feed.take_nowait()
        assert exchange.services["a"].connections == 1


async def test_one_who_is_told_to_stop_while_its_connection_breaks_stops() -> None:
    """Otherwise whoever waits for its end waits for ever: a server that has found a new leader, for instance."""

    class Breaking(QueueChannel):
        async def receive(self) -> bytes:
            try:
                return await super().receive()
            except asyncio.CancelledError:
                raise Closed("broken at that very moment") from None

    async with running_plane() as plane, Tasks() as tasks:
        exchange = Exchange(tasks)
        exchange.services["a"] = PlaneService(plane.authority, plane.clock)

        async def dial(address: str) -> Channel:
            channel = await exchange.dial(address)
            channel.__class__ = Breaking
            return channel

        remote = RemotePlane(["a"], dial, SystemClock(), random.Random(1), "test")
        running = tasks.start(remote.run(), "remote")
        await remote.wait_connected()
        running.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await asyncio.shield(running)
        assert remote.connects_total == 1
        await exchange.cut()
