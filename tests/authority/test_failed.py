"""A slot that failed is over on its agent's word (ADR 0040, S12): the word is asked for, and traffic is withdrawn first."""

from __future__ import annotations

import pytest

from fairlead.model.commands import Put
from fairlead.model.kinds.work import Endpoint, Endpoints, EndpointsSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from tests.authority.planes import PlaneForTest, agent_of, bind_of, move_of, no, ok, report_of, running_plane


async def bound(plane: PlaneForTest, execution: str) -> None:
    await plane.add_node("n1")
    await plane.grant("risk")
    assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
    ok(await plane.request("risk", "api", 0, assigner, execution=execution))
    ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))


@pytest.mark.parametrize("to", [SlotState.FAILED, SlotState.SUCCEEDED])
async def test_a_slot_that_was_unknown_has_ended_only_if_its_agent_said_so(to: SlotState) -> None:
    async with running_plane() as plane:
        await bound(plane, "Exclusive")
        node = await plane.as_role(Role.NODE)
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.STARTING, restarts=1)))
        ok(await plane.send(node, move_of("risk", "api-0", SlotState.UNKNOWN)))
        no(await plane.send(node, move_of("risk", "api-0", to)), "FenceNotPassed")
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", None, exit_code=3)))
        ok(await plane.send(node, move_of("risk", "api-0", to)))


async def test_nothing_is_known_of_one_that_never_said_a_word() -> None:
    async with running_plane() as plane:
        await bound(plane, "Exclusive")
        node = await plane.as_role(Role.NODE)
        ok(await plane.send(node, move_of("risk", "api-0", SlotState.UNKNOWN)))
        no(await plane.send(node, move_of("risk", "api-0", SlotState.FAILED)), "FenceNotPassed")


async def test_what_runs_once_and_failed_is_released_at_once() -> None:
    async with running_plane() as plane:
        await bound(plane, "Exclusive")
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.FAILED, exit_code=3)))
        ok(await plane.send(await plane.as_role(Role.REPAIR), move_of("risk", "api-0", SlotState.RELEASED)))


async def test_a_replica_that_failed_is_released_when_it_gets_no_traffic_any_more() -> None:
    async with running_plane() as plane:
        await bound(plane, "Replicated")
        rollout, repair = await plane.as_role(Role.ROLLOUT), await plane.as_role(Role.REPAIR)
        metadata = Metadata(name="api", namespace="risk")
        serving = EndpointsSpec(endpoints=(Endpoint(slot=0, node="n1", address="10.0.0.1"),))
        ok(await plane.send(rollout, Put("Endpoints", Endpoints(metadata=metadata, spec=serving))))
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.FAILED, exit_code=3)))
        no(await plane.send(repair, move_of("risk", "api-0", SlotState.RELEASED)), "FenceNotPassed")
        ok(await plane.send(rollout, Put("Endpoints", Endpoints(metadata=metadata, spec=EndpointsSpec()))))
        ok(await plane.send(repair, move_of("risk", "api-0", SlotState.RELEASED)))
