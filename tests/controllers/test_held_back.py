"""What a fight holds back: that object, nothing else that was decided with it. And what is none: a world that comes and goes."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.controllers.contract import Controller
from fairlead.controllers.node import NodeController
from fairlead.controllers.recovery import RecoveryController
from fairlead.controllers.region import RegionController
from fairlead.controllers.runtime import Runtime
from fairlead.controllers.standing import StandingController
from fairlead.decide.oscillation import TIMES
from fairlead.model.commands import Put
from fairlead.model.kinds.recovery import RegionOutlook
from fairlead.model.lifecycle import Role
from tests.authority.planes import REGION, ok
from tests.controllers.test_recovery import Recovering, two_regions


def recovery_of(r: Recovering) -> Runtime:
    return next(each for each in r.w.top.runtimes if each.info.name == "recovery")


async def test_a_fight_over_one_outlook_delays_no_order() -> None:
    async with two_regions() as r:
        top, recovery = r.w.top, recovery_of(r)
        other = await top.plane.as_role(Role.RECOVERY, "recovery-1", "another")
        await r.w.until(lambda: (o := r.outlook(REGION)) is not None and o.spec.services)
        said = r.outlook(REGION)
        assert said is not None
        wrong = replace(said, spec=replace(said.spec, ready=77))

        def is_wrong() -> bool:
            found: RegionOutlook | None = r.outlook(REGION)
            return found is not None and found.spec.ready == 77

        for _ in range(TIMES - 1):  # it has said so once before
            ok(await top.plane.send(other, Put("RegionOutlook", wrong)))
            await r.w.until(lambda: not is_wrong())
        await r.w.until(lambda: recovery.meters.oscillations_total == 1)
        assert f"write RegionOutlook {REGION} back and forth" in recovery.meters.last_error
        ok(await top.plane.send(other, Put("RegionOutlook", wrong)))
        await r.health("west", "Lost")
        await r.w.until(lambda: r.order() is not None)
        assert is_wrong(), "it is held back, and it alone"


async def test_a_region_whose_sign_of_life_stutters_is_no_fight_over_what_is_said_of_the_others() -> None:
    async with two_regions(rooms=2, budget_in="west") as r:
        await r.west_holds(2)

        def ready() -> int:
            found = r.outlook(REGION)
            return found.spec.ready if found is not None else -1

        for _ in range(2 * TIMES):
            await r.w.until(lambda: ready() == 1)
            await r.health("west", "Unknown")
            await r.w.until(lambda: ready() == 0)
            await r.health("west", "Healthy")
        assert recovery_of(r).meters.oscillations_total == 0, recovery_of(r).meters.last_error


def test_no_controller_that_decides_for_many_at_once_waits_for_all_of_them_because_of_one() -> None:
    found: list[type[Controller]] = [NodeController, RecoveryController, RegionController, StandingController]
    assert [each.name for each in found if not getattr(each, "for_many", False)] == []
