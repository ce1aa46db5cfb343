"""A region's sign of life says that it can write, not only that it is heard: its mirror renews nothing while its plane does not
vouch for itself."""

from __future__ import annotations

from typing import Any

from fairlead.authority.authority import STUCK_MS
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.controllers.mirror import UP, MirrorUp
from fairlead.controllers.region import RegionController
from fairlead.decide.regions import RegionRules
from fairlead.model.commands import Put, Refused
from fairlead.model.kinds.intent import Tenant
from fairlead.model.meta import Metadata
from fairlead.ports import Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, HandFaults
from tests.authority.planes import OPERATOR, REGION, FakeClock, ok, running_plane
from tests.controllers.running import RegionRig
from tests.controllers.test_planes import add_region

TTL_S = 1.0


class Mute:
    """A region's plane whose store comes and goes."""

    def __init__(self, plane: LocalPlane) -> None:
        self._plane = plane
        self.vouches = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)


async def test_the_region_is_lost_while_its_plane_cannot_write_and_well_again_after() -> None:
    settings = Settings(plane="global", region="global")
    async with running_plane(settings=settings) as above, running_plane() as here, running_plane() as there, Tasks() as tasks:
        top = RegionRig(above, tasks)
        planes: dict[str, Any] = {
            REGION: Mute(LocalPlane(here.authority, here.clock)), "other": Mute(LocalPlane(there.authority, there.clock))
        }  # fmt: skip
        for name, plane in planes.items():
            await add_region(above, name)
            top.control(MirrorUp(name), other=plane, lease_ttl_s=TTL_S)
        top.control(RegionController(RegionRules(lost_after_s=0.5)))

        def health(name: str = REGION) -> str:
            return str(top.get("regions", name, "").status.health)

        def renewed() -> Any:
            return top.get("leases", f"{UP}{REGION}", "").spec.renewed_time

        await top.until(lambda: health() == health("other") == "Healthy")
        planes[REGION].vouches = False
        await top.until(lambda: health() == "Lost")
        silent = renewed()
        assert health("other") == "Healthy"

        mirror = next(each for each in top.runtimes if each.terms.name == f"{UP}{REGION}")
        mirror._picture.close()  # it starts over, and has its lease to acquire anew
        await top.until(lambda: not mirror.serving)
        await above.clock.sleep(2 * TTL_S)
        assert (health(), renewed()) == ("Lost", silent), "nor does it take the lease"

        planes[REGION].vouches = True
        await top.until(lambda: health() == "Healthy")
        assert renewed() > silent
        for runtime in top.runtimes:
            runtime.stop()


async def test_a_plane_vouches_as_its_authority_does() -> None:
    async with running_plane() as plane:
        local = LocalPlane(plane.authority, plane.clock)
        assert local.vouches
        plane.authority.hand_over()
        assert not local.vouches


async def test_a_plane_whose_store_renews_its_lease_and_takes_no_batch_does_not_vouch() -> None:
    """A nearly full disk has room for the one and not for the other."""
    clock, faults = FakeClock(), HandFaults()
    store = MemoryStore(MemoryDisk(), faults)
    async with running_plane(store, clock, Settings(plane="global", region="global")) as plane:
        local = LocalPlane(plane.authority, clock)
        body = Put("Tenant", Tenant(metadata=Metadata(name="one")))
        faults.always["commit"] = DISK_FULL
        assert isinstance(await plane.send(OPERATOR, body), Refused)
        assert local.vouches, "for a moment that is nothing"
        assert await local.ask_unwritable_s() is None
        clock.offset += STUCK_MS / 1000 + 1.0
        renewed = faults.calls.get("renew", 0)
        while faults.calls.get("renew", 0) < renewed + 2:
            await clock.sleep(0.05)
        assert plane.authority.vouches
        assert not local.vouches
        unwritable_s = await local.ask_unwritable_s()
        assert unwritable_s is not None
        assert unwritable_s > STUCK_MS / 1000, "since the last batch landed"
        faults.always.clear()
        ok(await plane.send(OPERATOR, body))
        assert local.vouches
        assert await local.ask_unwritable_s() is None
