"""What regions say upward, sent as commands to a real global authority: late, twice and out of order. Of each object the word
that was said last stands, whatever arrives last, for every kind that is reported; the region's mirror has nothing to add."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.controllers.contract import View
from fairlead.controllers.mirror import GENERATION, UID, MirrorUp
from fairlead.model.commands import Accepted, Caller, Outcome, Put, PutStatus, Refused
from fairlead.model.ids import revision
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus, HeldShape, Holding, HoldingSpec, HoldingStatus
from fairlead.model.kinds.intent import Region, StageCounts
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.registry import KINDS
from fairlead.model.resources import Resources
from tests.authority.planes import OPERATOR, FakeClock, PlaneForTest, no, ok, running_plane
from tests.decide.granting_model import Changed

REGIONS: Final = ("east", "west")
REPORTED: Final = ("assignments", "grants", "grantterms", "holdings")
RESTORED_AT: Final = 5  # words: from then on a region speaks in another incarnation, at lower positions


class Word(NamedTuple):
    """What a region said of one object, and at which revision of its plane."""

    plural: str
    region: str
    value: int
    at: int

    @property
    def about(self) -> tuple[str, str]:
        return self.plural, self.region


def object_of(plural: str, region: str, meta: Metadata, value: int | None = None) -> Any:
    """As it is made in the global plane, or with what its region says; `value` tells its words apart."""
    n = value or 0
    cpu = Resources(300)
    made: dict[str, tuple[type[Any], Any, Any]] = {
        "assignments": (
            Assignment,
            AssignmentSpec(workload="api", workload_uid="u", generation=1, region=region, slots=(SlotRange(first=0, last=9),)),
            AssignmentStatus(replicas=StageCounts(serving=n), given_up=(SlotRange(first=0, last=n),), unwanted=n % 2),
        ),
        "grants": (
            Grant,
            GrantSpec(region, 1, cpu, cpu, lease_seconds=600),
            GrantStatus(accepted_version=1, during=cpu, after=cpu, incarnation=1, used=Resources(n)),
        ),
        "grantterms": (GrantTerm, GrantTermSpec(region), GrantTermStatus(incarnation=1, asked=n)),
        "holdings": (
            Holding,
            HoldingSpec(budget="b", budget_uid="u", region=region),
            HoldingStatus(shapes=(HeldShape(requests=cpu, held=n),)),
        ),
    }
    kind, spec, status = made[plural]
    return kind(meta, spec) if value is None else kind(meta, spec, status)


def name_of(plural: str, region: str) -> tuple[str, str]:
    return ("", region) if plural == "grantterms" else ("risk", region if plural == "grants" else f"api.{region}")


class Above:
    """The global plane, and the mirrors of its regions."""

    def __init__(self, plane: PlaneForTest) -> None:
        self.plane = plane
        self.mirrors: dict[str, Caller] = {}

    async def begin(self) -> None:
        quota, recovery, workload = [await self.plane.as_role(role) for role in (Role.QUOTA, Role.RECOVERY, Role.WORKLOAD)]
        owners = dict(zip(REPORTED, (workload, OPERATOR, quota, recovery), strict=True))
        for region in REGIONS:
            ok(await self.plane.send(OPERATOR, Put("Region", Region(Metadata(name=region)))))
            for plural, owner in owners.items():
                tenant, name = name_of(plural, region)
                made = object_of(plural, region, Metadata(name=name, namespace=tenant))
                ok(await self.plane.send(owner, Put(KINDS[plural].kind, made)))
            self.mirrors[region] = await self.plane.as_role(Role.MIRROR, f"mirror-{region}", f"mirror-up-{region}")

    def stored(self, plural: str, region: str) -> Any:
        rec = self.plane.authority.view().get(plural, *name_of(plural, region))
        assert rec is not None
        return rec

    def statuses(self) -> dict[tuple[str, str], Any]:
        return {(plural, region): self.stored(plural, region).hot.status for plural in REPORTED for region in REGIONS}

    def mirrored(self, word: Word) -> list[PutStatus]:
        """What the region's mirror sends when it sees this in its region, and the global plane as it is now."""
        mirror, rec = MirrorUp(word.region), self.stored(*word.about)
        view = View(mirror.indexes, mirror.indexes_other)
        incarnation, position = word.at >> 44, word.at & ((1 << 44) - 1)
        view.other_incarnation = incarnation
        tenant, name = name_of(*word.about)
        annotations = {UID: rec.hot.metadata.uid, GENERATION: str(rec.hot.metadata.generation)}
        copy = object_of(word.plural, word.region, Metadata(name=name, namespace=tenant, annotations=annotations), word.value)
        view.other.apply(Changed(word.plural, tenant, name, position, b"", copy))
        _, item = view.cache.apply(Changed(word.plural, tenant, name, rec.position, rec.raw, rec.hot))
        assert item is not None
        return [body for key in mirror.keys(view, item, False) for body in mirror.reconcile(key, view, 0).bodies]  # type: ignore[misc]

    async def hear(self, word: Word) -> Outcome:
        status = object_of(word.plural, word.region, Metadata(name="x"), word.value).status
        body = PutStatus(KINDS[word.plural].kind, *name_of(*word.about), replace(status, as_of=word.at))
        return await self.plane.send(self.mirrors[word.region], body)


async def after(spoken: list[Word], heard: list[Word]) -> None:
    newest = {word.about: word for word in spoken}
    async with running_plane(settings=Settings(plane="global", region="global")) as plane:
        above = Above(plane)
        await above.begin()
        for word in heard:
            stands = above.statuses()[word.about].as_of
            got = await above.hear(word)
            late = isinstance(got, Refused) and got.reason == "StaleReport"
            assert late is (word.at < stands), got
            assert late or isinstance(got, Accepted), got
        for about, status in above.statuses().items():
            assert status.as_of == (newest[about].at if about in newest else 0), "the last to be said stands"
        for word in newest.values():
            assert above.mirrored(word) == [], "nothing is left to say"


def said(spoken: list[tuple[str, str, int]]) -> list[Word]:
    """Each at the next revision of its region; restored in the middle, it goes on in another incarnation from an older one."""
    at = [revision(1, 100 + n) if n < RESTORED_AT else revision(2, 50 + n) for n in range(len(spoken))]
    return [Word(*word, at[n]) for n, word in enumerate(spoken)]


SPOKEN = st.lists(st.tuples(st.sampled_from(REPORTED), st.sampled_from(REGIONS), st.integers(1, 9)), min_size=1, max_size=10)


@settings(max_examples=30, deadline=None)
@given(SPOKEN, st.data())
def test_reports_of_every_kind_come_to_the_same_in_any_order_and_however_often_they_arrive(
    spoken: list[tuple[str, str, int]], data: Any
) -> None:
    words = said(spoken)
    again = data.draw(st.lists(st.sampled_from(words), max_size=6))
    heard = data.draw(st.permutations([*words, *again]))
    asyncio.run(after(words, list(heard)))


@pytest.mark.parametrize("plural", REPORTED)
async def test_a_mirror_says_at_which_revision_of_its_region_something_is_so_and_says_it_once(plural: str) -> None:
    async with running_plane(settings=Settings(plane="global", region="global")) as plane:
        above = Above(plane)
        await above.begin()
        newer, late = Word(plural, "east", 4, revision(2, 7)), Word(plural, "east", 3, revision(1, 900))
        (report,), (too_late,) = above.mirrored(newer), above.mirrored(late)
        assert (report.status.as_of, too_late.status.as_of) == (newer.at, late.at)
        ok(await plane.send(above.mirrors["east"], report))
        no(await plane.send(above.mirrors["east"], too_late), "StaleReport")
        assert above.mirrored(newer) == []
        assert ok(await plane.send(above.mirrors["east"], report)).replayed, "the same again changes nothing"
        assert above.statuses()[plural, "east"] == report.status


async def test_a_mirror_of_an_earlier_version_is_heard_and_takes_nothing_back_of_what_is_newer() -> None:
    async with running_plane(settings=Settings(plane="global", region="global")) as plane:
        above = Above(plane)
        await above.begin()
        ok(await above.hear(Word("grants", "east", 4, revision(1, 9))))
        ok(await above.hear(Word("grants", "east", 5, 0)))
        status = above.statuses()["grants", "east"]
        assert (status.used.cpu, status.as_of) == (5, revision(1, 9))
        no(await above.hear(Word("grants", "east", 4, revision(1, 8))), "StaleReport")


async def test_a_report_of_a_mirror_that_was_replaced_is_refused() -> None:
    clock = FakeClock()
    async with running_plane(None, clock, Settings(plane="global", region="global")) as plane:
        above = Above(plane)
        await above.begin()
        before = above.mirrors["east"]
        clock.offset += 11.0  # its lease has run out
        above.mirrors["east"] = await plane.as_role(Role.MIRROR, "another", "mirror-up-east")
        ok(await above.hear(Word("grants", "east", 200, revision(1, 5))))
        late = replace(above.statuses()["grants", "east"], used=Resources(100), as_of=revision(1, 6))
        no(await plane.send(before, PutStatus("Grant", "risk", "east", late)), "FencedOut")
        assert above.statuses()["grants", "east"].used.cpu == 200
