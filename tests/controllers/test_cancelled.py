"""A rollout that is taken back before anybody agreed to it: its requests to leave go, and nobody starts over for it."""

from __future__ import annotations

from fairlead.controllers.assignment import AssignmentController
from fairlead.controllers.rollout import RolloutController
from fairlead.model.kinds.intent import RolloutRule
from tests.controllers.running import RegionRig, region

RULE = RolloutRule(max_surge=0, max_unavailable=1)


def asked_to_leave(rig: RegionRig) -> int:
    return len(list(rig.seen().all("evictionrequests")))


async def test_requests_that_nobody_approved_are_withdrawn_with_the_rollout_that_made_them() -> None:
    """Found by `fairlead sim run --profile leaders`: the delete was not declared, and the controller started over for ever."""
    async with region() as rig:
        rig.schedule()
        rig.control(AssignmentController("local"))
        rollout = rig.control(RolloutController())  # and no disruption controller: nothing is approved
        await rig.order(count=2, rollout=RULE)
        await rig.until(lambda: len(rig.serving()) == 2)
        await rig.order(count=2, generation=2, rollout=RULE)
        await rig.until(lambda: asked_to_leave(rig) == 1)
        await rig.order(count=2, generation=1, rollout=RULE)
        await rig.until(lambda: asked_to_leave(rig) == 0, "the request to leave stays")
        assert "declare" not in rollout.meters.last_error
        assert len(rig.serving()) == 2
