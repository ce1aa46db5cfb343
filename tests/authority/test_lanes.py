"""The queue before the judge: people are served in turn by tenant, and nobody's flood keeps anybody else out."""

from __future__ import annotations

import asyncio

from fairlead.authority.lanes import Call, Lanes
from fairlead.model.commands import Caller, Command, Delete, LeaseRenew, Refused
from fairlead.model.lifecycle import Role

BOUND = 120


def call_of(tenant: str, name: str = "", commands: int = 1, role: Role = Role.USER, actor: str = "ada") -> Call:
    caller = Caller(actor, role, tenant)
    future = asyncio.get_running_loop().create_future()
    return Call([Command(caller, Delete("Workload", tenant, name or f"{n}")) for n in range(commands)], future)


def lanes() -> Lanes:
    return Lanes((10, 10, BOUND))


def told(call: Call | None) -> tuple[str, str]:
    assert call is not None
    command = call.commands[0]
    assert isinstance(command.body, Delete)
    return command.caller.tenant or command.caller.actor, command.body.name


def flood(queue: Lanes, tenant: str, most: int = 10 * BOUND) -> int:
    """How many got in."""
    for n in range(most):
        refused = queue.put(call_of(tenant, f"{n}"))
        if refused is not None:
            assert isinstance(refused, Refused)
            assert (refused.reason, refused.retry_after_s) == ("Overloaded", 1.0)
            return n
    return most


async def test_a_quiet_tenant_waits_behind_one_call_of_a_flooding_one_not_behind_all() -> None:
    queue = lanes()
    flood(queue, "loud", 50)
    assert queue.put(call_of("quiet", "a")) is None
    assert queue.put(call_of("quiet", "b")) is None
    turns = [told(queue.take()) for _ in range(4)]
    assert turns == [("loud", "0"), ("quiet", "a"), ("loud", "1"), ("quiet", "b")]
    assert [told(queue.take())[1] for _ in range(48)] == [f"{n}" for n in range(2, 50)], "each tenant's own order stays"
    assert queue.take() is None
    assert len(queue) == 0


async def test_a_tenant_that_floods_is_refused_while_others_get_in() -> None:
    queue = lanes()
    assert flood(queue, "loud") == BOUND // 2
    assert flood(queue, "noisy") == BOUND // 4
    assert flood(queue, "quiet", 10) == 10
    refused = queue.put(call_of("loud"))
    assert refused is not None
    assert refused.facts == {"waiting": BOUND // 2}


async def test_however_many_flood_there_is_something_left_for_one_more() -> None:
    queue = lanes()
    for _ in range(3 * BOUND):
        for n in range(9):
            flood(queue, f"loud-{n}")
        queue.take()
    assert queue.put(call_of("quiet")) is None


async def test_people_of_no_tenant_are_told_apart_by_name() -> None:
    queue = lanes()
    for actor in ("ada", "ada", "eve"):
        queue.put(call_of("", actor, role=Role.OPERATOR, actor=actor))
    assert [told(queue.take())[0] for _ in range(3)] == ["ada", "eve", "ada"]


async def test_a_long_call_goes_on_where_it_was_in_its_tenant_s_order_after_the_others_had_their_turn() -> None:
    queue = lanes()
    long = call_of("loud", "long", 10)
    for each in (long, call_of("loud", "after"), call_of("quiet", "a")):
        queue.put(each)
    assert queue.take() is long
    long.next = 4
    queue.unfinished(long)
    assert len(queue) == 8
    assert [told(queue.take())[1] for _ in range(3)] == ["a", "long", "after"]
    assert len(queue) == 0


async def test_a_call_larger_than_a_share_gets_in_where_nothing_waits() -> None:
    queue = lanes()
    assert queue.put(call_of("loud", commands=BOUND)) is None
    assert queue.put(call_of("loud")) is not None


async def test_draining_gives_back_everything_once() -> None:
    queue = lanes()
    sent = [call_of("loud"), call_of("quiet"), call_of("loud"), call_of("", role=Role.SCHEDULER)]
    for each in sent:
        queue.put(each)
    assert sorted(map(id, queue.drain())) == sorted(map(id, sent))
    assert (len(queue), queue.take()) == (0, None)
    assert flood(queue, "loud") == BOUND // 2, "nothing is counted that is not there"


async def test_leases_come_first_and_components_have_three_turns_of_four() -> None:
    queue = lanes()
    for n in range(4):
        queue.put(call_of("loud", f"{n}"))
        queue.put(call_of("", f"c{n}", role=Role.SCHEDULER, actor="scheduler"))
    lease = Call([Command(Caller("x", Role.SCHEDULER), LeaseRenew("l", 1))], asyncio.get_running_loop().create_future())
    queue.put(lease)
    assert queue.take() is lease
    assert [told(queue.take())[1] for _ in range(8)] == ["c0", "c1", "c2", "0", "c3", "1", "2", "3"]
