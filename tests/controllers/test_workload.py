"""The workload controller, looked at as a value: what it orders of the regions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.decide.spans import size
from fairlead.model.commands import Put
from fairlead.model.kinds.intent import JobRule
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, Revision
from fairlead.model.meta import Metadata
from tests.controllers.test_given import World

HEARD = AssignmentStatus(observed_generation=1)


@pytest.mark.parametrize(("fields", "seconds"), [({"gang": True}, 300.0), ({}, 60.0)])
def test_the_policy_in_force_says_how_long_a_gang_may_wait(fields: dict[str, Any], seconds: float) -> None:
    world = World()
    policy = SchedulerPolicySpec(revision=3, gang_timeout_seconds=300.0)
    world.put("schedulerpolicies", SchedulerPolicy(Metadata(name="r3"), policy))
    world.put("policychannels", PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=3)))
    made = world.workload("api")
    world.put("workloads", replace(made, spec=replace(made.spec, **fields)))
    bodies = world.controller.reconcile(("t", "api"), world.view, 1000).bodies
    orders = [body.object for body in bodies if isinstance(body, Put) and isinstance(body.object, Assignment)]
    assert {order.spec.gang_timeout_seconds for order in orders} == {seconds}


def test_a_label_is_told_to_the_regions_and_begins_nothing_anew() -> None:
    """Its Revision would have the name of the one there is, and be refused for ever."""
    world = World()
    made = world.workload("api")
    world.put("workloads", made)
    for body in world.controller.reconcile(("t", "api"), world.view, 1000).bodies:
        if isinstance(body, Put) and isinstance(body.object, (Assignment, Revision)):
            world.put(f"{body.kind.lower()}s", body.object)
    world.put("workloads", replace(made, metadata=replace(made.metadata, labels={"tier": "gold"})))
    bodies = [body for body in world.controller.reconcile(("t", "api"), world.view, 2000).bodies if isinstance(body, Put)]
    assert {body.kind for body in bodies} == {"Assignment"}
    assert all(body.object.metadata.labels == {"tier": "gold"} for body in bodies)


@pytest.mark.parametrize("fields", [{"gang": True}, {"job": JobRule(completions=4, parallelism=4)}])
def test_what_lies_in_one_region_stays_there_while_one_that_it_has_left_cannot_say_so(fields: dict[str, Any]) -> None:
    """The region it was in once is cut off, and its emptied order has just got another generation."""
    world = World()
    world.grant("b", 20)  # the one it would enter
    made = world.workload("api")
    world.put("workloads", replace(made, spec=replace(made.spec, **fields)))
    spec = AssignmentSpec(workload="api", workload_uid="u-api", generation=1, region="a")
    world.put("assignments", Assignment(Metadata(name="api.a", namespace="t", generation=2), spec, HEARD))

    def given() -> dict[str, int]:
        bodies = world.controller.reconcile(("t", "api"), world.view, 1000).bodies
        orders = [body.object for body in bodies if isinstance(body, Put) and isinstance(body.object, Assignment)]
        return {order.spec.region: size(order.spec.slots) for order in orders}

    assert not any(given().values()), "something of it may run there still, so it enters no other"
    world.order("api", HEARD, slots=4)
    assert given().get("b", 4) == 4
