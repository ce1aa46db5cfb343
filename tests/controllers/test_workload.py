"""The workload controller, looked at as a value: what it orders of the regions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.model.commands import Put
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.work import Assignment
from fairlead.model.meta import Metadata
from tests.controllers.test_given import World


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
