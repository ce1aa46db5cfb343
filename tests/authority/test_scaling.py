"""What an autoscaler may write of a workload: how many replicas it has."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.model.commands import Put
from fairlead.model.lifecycle import Role
from tests.authority.planes import OPERATOR, no, ok, running_plane
from tests.model.examples import workload


async def test_an_autoscaler_sets_the_replicas_of_a_workload_and_nothing_else_of_it() -> None:
    async with running_plane() as plane:
        autoscaler = await plane.as_role(Role.AUTOSCALER)
        made = workload(replicas=3)
        no(await plane.send(autoscaler, Put("Workload", made)), "NotOwner")
        ok(await plane.send(OPERATOR, Put("Workload", made)))
        ok(await plane.send(autoscaler, Put("Workload", replace(made, spec=replace(made.spec, replicas=5)))))
        no(await plane.send(autoscaler, Put("Workload", replace(made, spec=replace(made.spec, suspend=True)))), "NotOwner")
