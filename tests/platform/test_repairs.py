"""Leftovers in a region whose server is a real process, planted through the door by which servers pass on what others sent: each
is written down with evidence, owner and deadline, mended by repair or by whoever must, and then said to be.

No scheduler runs there and nobody is above. What cannot be planted while its owner is there, and what covers it, is said in
docs/observing.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.client.dial import Dialer
from fairlead.client.remote import RemotePlane
from fairlead.model.commands import Accepted, Body, Caller, Command, LeaseAcquire, Outcome, Put, PutStatus
from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodeSpec, NodeStatus
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import NOTHING, Resources
from fairlead.ports import SystemClock, Tasks, system_random
from fairlead.security.tls import client_context
from tests.authority.planes import GI, OPERATOR, REGION, agent_of, bind_of, report_of, request_of
from tests.platform.fleets import WAIT_S, Fleet, Pki

ROOM = Resources(100_000, 400 * GI)
UNDONE = "fairlead.dev/override-undone"


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Fleet]:
    more: dict[str, Any] = {"schedulers": 0, "repairPeriodS": 0.3, "nodeLeaseS": 600.0}
    made = Fleet(tmp_path / "us", Pki(tmp_path / "pki"), f"sqlite:{tmp_path}/us.db", region=REGION, names="a", **more)
    try:
        yield made
    finally:
        made.end()


class Door:
    def __init__(self, plane: RemotePlane, said: Callable[[], str]) -> None:
        self.plane = plane
        self.said = said  # by the server, for whoever looks for what went wrong

    async def send(self, *commands: tuple[Caller, Body]) -> list[Outcome]:
        """In one batch: no controller comes in between."""
        outcomes = await self.plane.submit([Command(caller, body) for caller, body in commands])
        assert all(isinstance(outcome, Accepted) for outcome in outcomes), outcomes
        return outcomes

    async def as_role(self, role: Role) -> Caller:
        (got,) = await self.send((Caller("planter", role), LeaseAcquire(f"planter-{role.value}", role, ttl_s=600.0)))
        assert isinstance(got, Accepted)
        return Caller("planter", role, lease=f"planter-{role.value}", fencing_epoch=got.epoch)

    async def all(self, plural: str) -> list[Any]:
        return [row.hot for row in await self.plane.list(plural) if row.raw is not None]

    async def repairs(self) -> dict[str, Any]:
        return {repair.spec.problem: repair for repair in await self.all("repairs")}

    async def until(self, problem: str, holds: Callable[[Any], bool]) -> Any:
        """The Repair of that problem, once it is there and this holds for it."""
        deadline = time.monotonic() + WAIT_S
        while (found := (await self.repairs()).get(problem)) is None or not holds(found):
            assert time.monotonic() < deadline, (found, await self.repairs(), self.said())
            await asyncio.sleep(0.05)
        return found

    async def until_mended(self, problem: str) -> Any:
        return await self.until(problem, _is_mended)


def _is_mended(repair: Any) -> bool:
    return any(c.type == "Mended" and c.status == "True" for c in repair.status.conditions)


@asynccontextmanager
async def door_of(region: Fleet) -> AsyncIterator[Door]:
    """As a server of that region: it may say what others sent to it."""
    async with region.pki.session() as session:
        await region.start(session)
        await region.leader(session)
    folder = region.pki.folder
    dialer = Dialer(client_context(folder.authorities, *folder.files_of(f"{REGION}-server")))
    plane = RemotePlane([region.addresses["a"]], dialer.dial, SystemClock(), system_random(), "planter")
    try:
        async with Tasks() as tasks:
            tasks.start(plane.run(), "plane")
            yield Door(plane, region.said)
            tasks.cancel()
    finally:
        await dialer.close()


def grant(version: int, end: datetime | None = None) -> Put:
    spec = GrantSpec(region=REGION, version=version, during=ROOM, after=NOTHING if end else ROOM, lease_end_time=end)
    return Put("Grant", Grant(Metadata(name=REGION, namespace="risk"), spec))


async def plant(door: Door) -> None:
    scheduler, assigner = [await door.as_role(role) for role in (Role.SCHEDULER, Role.ASSIGNMENT)]
    node = Node(Metadata(name="n1"), NodeSpec(region=REGION, zone="a", allocatable=Resources(16_000, 64 * GI)))
    up = NodeStatus(schedulable=True, health="Ready", session=1)
    await door.send((OPERATOR, Put("Node", node)), (agent_of("n1"), PutStatus("Node", "", "n1", up)), (OPERATOR, grant(1)))
    await door.plane.heartbeat([("n1", 1)])
    # A slot that no Assignment wants; an exception that ended and still has its finalizer.
    order = OverrideSpec("hold", "drill", 1, OPERATOR.actor, scope=OverrideScope(workloads=("nothing",)))
    over = Override(Metadata(name=f"{REGION}-over", namespace="risk", finalizers=(UNDONE,)), order)
    asked = Put("SchedulingRequest", request_of("risk", "api", 0), mode="create")
    await door.send((assigner, asked), (scheduler, bind_of("risk", "api-0", "n1")), (OPERATOR, Put("Override", over)))


async def test_what_nobody_looks_after_is_written_down_mended_and_said_to_be(region: Fleet) -> None:
    async with door_of(region) as door:
        await plant(door)
        deadline = time.monotonic() + WAIT_S
        while any(UNDONE in each.metadata.finalizers for each in await door.all("overrides")):
            assert time.monotonic() < deadline, "its controller is there, and else repair is"
            await asyncio.sleep(0.05)

        # What repair may not end by itself: it is told, and said to be over when whoever may has seen to it.
        orphan = await door.until("OrphanedBinding", lambda found: not _is_mended(found))
        assert (orphan.spec.owner, orphan.spec.deadline_time is not None) == (Role.REPAIR.value, True)
        assert "1 slots: no Assignment wants them" in orphan.spec.evidence
        assert [b.state for b in await door.all("bindings")] == [SlotState.BOUND], "nobody has shown that it does not run"
        await door.send((OPERATOR, grant(2, datetime.now(UTC))))
        quota = await door.as_role(Role.QUOTA)
        (made,) = await door.all("grants")
        await door.send((quota, PutStatus("Grant", "risk", REGION, replace(made.status))))
        ended = await door.until("ExpiredGrant", lambda found: not _is_mended(found))
        assert (ended.spec.owner, "cpu 1000 of 0" in ended.spec.evidence) == (Role.OPERATOR.value, True)
        await door.send((agent_of("n1"), report_of("risk", "api-0", SlotState.FAILED)))
        await door.until_mended("OrphanedBinding")
        await door.send((OPERATOR, grant(3)))
        await door.until_mended("ExpiredGrant")
