"""What regions say upward, sent as commands to a real global authority: late, twice and out of order. What arrives last stands
until the region's mirror looks, which then says the newest word once more, and no more than that."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.authority.judge import Settings
from fairlead.controllers.contract import View
from fairlead.controllers.mirror import UID, MirrorUp
from fairlead.model.commands import Caller, Put, PutStatus
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import Region
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import OPERATOR, FakeClock, PlaneForTest, no, ok, running_plane
from tests.decide.granting_model import Changed

REGIONS: Final = ("east", "north", "west")
SPEC: Final = {region: GrantSpec(region, 1, Resources(300), Resources(300), lease_seconds=600) for region in REGIONS}
Word = tuple[str, int]  # region, what it used then
WORDS = st.lists(st.tuples(st.sampled_from(REGIONS), st.integers(0, 300)), min_size=1, max_size=8)


def status_of(used: int) -> GrantStatus:
    return GrantStatus(accepted_version=1, during=Resources(300), after=Resources(300), incarnation=1, used=Resources(used))


class Above:
    """The global plane, and the mirrors of its regions."""

    def __init__(self, plane: PlaneForTest) -> None:
        self.plane = plane
        self.mirrors: dict[str, Caller] = {}
        self.newest: dict[str, int] = {}

    async def begin(self) -> None:
        for region in REGIONS:
            ok(await self.plane.send(OPERATOR, Put("Region", Region(Metadata(name=region)))))
            ok(await self.plane.send(OPERATOR, Put("Grant", Grant(Metadata(name=region, namespace="risk"), SPEC[region]))))
            self.mirrors[region] = await self.mirror(region)

    async def mirror(self, region: str) -> Caller:
        return await self.plane.as_role(Role.MIRROR, f"mirror-{region}", f"mirror-up-{region}")

    def grant(self, region: str) -> Any:
        rec = self.plane.authority.view().get("grants", "risk", region)
        assert rec is not None
        return rec

    def used(self) -> dict[str, int]:
        return {region: self.grant(region).hot.status.used.cpu for region in REGIONS}

    async def hear(self, word: Word) -> None:
        region, used = word
        ok(await self.plane.send(self.mirrors[region], PutStatus("Grant", "risk", region, status_of(used))))

    def looks(self, region: str) -> list[PutStatus]:
        """What the region's mirror sends when it is told of its Grant in the global plane; the region has its newest word."""
        mirror, rec = MirrorUp(region), self.grant(region)
        view = View(mirror.indexes, mirror.indexes_other)
        meta = Metadata(name=region, namespace="risk", annotations={UID: rec.hot.metadata.uid})
        copy = Grant(meta, SPEC[region], status_of(self.newest.get(region, 0)))
        view.other.apply(Changed("grants", "risk", region, 1, b"", copy))
        _, item = view.cache.apply(Changed("grants", "risk", region, rec.position, rec.raw, rec.hot))
        assert item is not None
        sent = [body for key in mirror.keys(view, item, False) for body in mirror.reconcile(key, view, 0).bodies]
        assert all(isinstance(body, PutStatus) for body in sent)
        return sent  # type: ignore[return-value]


async def after(spoken: list[Word], heard: list[Word]) -> None:
    async with running_plane(settings=Settings(plane="global", region="global")) as plane:
        above = Above(plane)
        await above.begin()
        for word in heard:
            await above.hear(word)
        assert {region: above.used()[region] for region in dict(heard)} == dict(heard), "the last to arrive stands"
        above.newest = dict(spoken)
        for region in REGIONS:
            for body in above.looks(region):
                ok(await plane.send(above.mirrors[region], body))
            assert above.looks(region) == [], "it says it once"
        assert above.used() == {region: above.newest.get(region, 0) for region in REGIONS}


@settings(max_examples=25, deadline=None)
@given(WORDS, st.data())
def test_late_and_repeated_reports_end_with_the_newest_word_of_each_region(spoken: list[Word], data: Any) -> None:
    again = data.draw(st.lists(st.sampled_from(spoken), max_size=6))
    heard = data.draw(st.permutations([*spoken, *again]))
    asyncio.run(after(spoken, list(heard)))


async def test_a_report_of_a_mirror_that_was_replaced_is_refused() -> None:
    clock = FakeClock()
    async with running_plane(None, clock, Settings(plane="global", region="global")) as plane:
        above = Above(plane)
        await above.begin()
        before = above.mirrors["east"]
        clock.offset += 11.0  # its lease has run out
        above.mirrors["east"] = await plane.as_role(Role.MIRROR, "another", "mirror-up-east")
        await above.hear(("east", 200))
        no(await plane.send(before, PutStatus("Grant", "risk", "east", status_of(100))), "FencedOut")
        assert above.used()["east"] == 200
