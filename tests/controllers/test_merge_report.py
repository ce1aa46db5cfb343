"""When a region was cut off and when that was over is written down, so that it is reported whoever leads then."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controllers.contract import View
from fairlead.controllers.grant import TERM, GrantController
from fairlead.controllers.mirror import MirrorUp
from fairlead.controllers.runtime import Runtime, RuntimeSettings
from fairlead.controllers.touch import PATIENCE_S, Touch
from fairlead.decide.cut_off import last_word_ms
from fairlead.decide.granting import lease_end, next_question
from fairlead.decide.lapsing import lapsed_term
from fairlead.decide.leasing import Versions, taken
from fairlead.decide.regions import RegionRules
from fairlead.decide.slots import instant, millis
from fairlead.model.codec import encode
from fairlead.model.commands import Accepted, Command, Outcome, Put, PutStatus, Refused
from fairlead.model.ids import revision
from fairlead.model.kinds.capacity import GrantStatus
from fairlead.model.kinds.ledger import Event
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.ports import Clock
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, REGION, FakeClock, ok, running_plane
from tests.authority.test_history import tenant
from tests.decide.test_merging import bound

POSITION, ANSWERED_MS = 7, 60_000
LEASED = GrantTermSpec(REGION, lease_seconds=30, asker=1, answered=4, incarnation=1)


def row(plural: str, tenant: str, name: str, item: Any, position: int = POSITION) -> Any:
    return SimpleNamespace(plural=plural, tenant=tenant, name=name, position=position, raw=encode(item), hot=item)


class Region:
    """What a sweep asks of a plane; what it writes is there at once."""

    def __init__(self, term: GrantTerm, bindings: list[Binding] | None = None) -> None:
        self.term, self.now_ms = term, ANSWERED_MS
        self.rows = {"bindings": [row("bindings", "risk", each.metadata.name, each) for each in bindings or []]}
        self.events: list[Event] = []

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Any:
        assert (plural, tenant, name) == ("grantterms", "", REGION)
        return row(plural, tenant, name, self.term)

    async def list(self, plural: str) -> list[Any]:
        return self.rows.get(plural, [])

    def plane_ms(self) -> int:
        return self.now_ms

    def revision(self) -> int:
        return revision(1, POSITION + 5)

    async def sweep(self, controller: GrantController, clock: Clock) -> GrantTermStatus:
        plane: Any = self
        for body in await controller.sweep(plane, clock):
            if isinstance(body, PutStatus):
                self.term = replace(self.term, status=body.status)
            else:
                assert isinstance(body, Put)
                self.events.append(body.object)
        return self.term.status


def taken_at(term: GrantTerm, now_ms: int) -> GrantTerm:
    """As the controller proposes it, and as the authority would write it at that moment."""
    controller = GrantController(REGION)
    view = View(controller.indexes, controller.indexes_other)
    view.cache.apply(row("grantterms", "", REGION, term))
    (body,) = controller.reconcile(TERM, view, now_ms).bodies
    assert isinstance(body, PutStatus)
    assert body.status == taken(term, Versions(), 1, now_ms)
    return replace(term, status=body.status)


async def test_a_cut_is_reported_by_whoever_leads_after_the_answer_was_taken_and_once() -> None:
    asked = GrantTermStatus(incarnation=1, knows=1, asked=4, taken=3, asked_time=instant(59_000), end_time=instant(40_000))
    before = GrantTerm(Metadata(name=REGION), LEASED, asked)
    placed = [bound("apart", ANSWERED_MS - 1, SlotState.SERVING), bound("waited", ANSWERED_MS), bound("later", ANSWERED_MS + 1)]
    region = Region(taken_at(before, ANSWERED_MS), placed)
    report = (await region.sweep(GrantController(REGION), FakeClock())).merge  # another one than took the answer
    assert report is not None
    assert (report.placed, report.tenants) == (1, {"risk": 1}), "what had waited for the answer and is bound with it is not"
    assert (report.cut_time, report.healed_time) == (instant(last_word_ms(before) or 0), instant(ANSWERED_MS))
    await region.sweep(GrantController(REGION), FakeClock())
    assert [each.spec.reason for each in region.events] == ["Merged"]


async def test_a_cut_in_which_the_region_started_cold_is_reported_from_its_last_word_and_a_plain_restart_is_none() -> None:
    leased = GrantTermStatus(incarnation=1, knows=1, asked=3, taken=3, asked_time=instant(10_000), end_time=instant(40_000))
    before = GrantTerm(Metadata(name=REGION), replace(LEASED, answered=3), leased)
    cut_ms = last_word_ms(before)
    assert cut_ms is not None
    for answered_after_ms, reports in ((12_000, True), (11_000, False)):  # two fifths of the lease, and less
        lapsed = lapsed_term(before, instant(cut_ms + 5_000))
        answer = replace(lapsed, spec=replace(LEASED, answered=lapsed.status.asked))
        region = Region(taken_at(answer, cut_ms + answered_after_ms))
        assert region.term.status.word_time is None, "there is a lease again"
        report = (await region.sweep(GrantController(REGION), FakeClock())).merge
        assert (report.cut_time if report is not None else None) == (instant(cut_ms) if reports else None)


async def test_a_cut_in_which_the_plane_was_restored_is_reported_from_its_last_word() -> None:
    leased = GrantTermStatus(incarnation=1, knows=1, asked=3, taken=3, asked_time=instant(10_000), end_time=instant(40_000))
    before = GrantTerm(Metadata(name=REGION), replace(LEASED, answered=3), leased)
    asked = replace(before, status=next_question(before, 2, instant(50_000)))
    assert lease_end(SimpleNamespace(status=GrantStatus()), asked, 2) == 0, "nothing is leased"  # type: ignore[arg-type]
    answer = replace(asked, spec=replace(LEASED, asker=2, answered=asked.status.asked))
    new = taken(answer, Versions(), 2, ANSWERED_MS)
    assert (new.cut_time, new.healed_time) == (instant(last_word_ms(before) or 0), instant(ANSWERED_MS))
    again = next_question(replace(answer, status=new), 3, instant(ANSWERED_MS + 1))
    assert (again.cut_time, again.healed_time) == (new.cut_time, new.healed_time), "restored before it was reported"


async def test_a_silence_of_the_global_plane_that_is_longer_than_the_regions_lease_is_reported() -> None:
    """Far shorter than two fifths of a grant's lease; under two leaders, of which the second never heard anything before."""
    clock, lease_s = FakeClock(), 600
    end = instant(ANSWERED_MS + lease_s * 1000)
    leased = GrantTermStatus(incarnation=1, knows=1, asked=4, taken=4, asked_time=instant(ANSWERED_MS), end_time=end)
    region = Region(GrantTerm(Metadata(name=REGION), replace(LEASED, lease_seconds=lease_s), leased))
    touch = Touch()
    controller = GrantController(REGION, touch)

    async def after(seconds: float) -> GrantTermStatus:
        clock.offset += seconds
        region.now_ms += int(seconds * 1000)
        return await region.sweep(controller, clock)

    touch.answered(clock.monotonic())
    assert (await after(10.0)).cut_time is None, "no longer than between two renewals that were late"
    status = await after(2.0)
    assert status.cut_time is not None
    assert abs(millis(status.cut_time) - ANSWERED_MS) < 1000
    assert (status.healed_time, status.merge) == (None, None)
    assert await after(20.0) == status, "written once"
    region.rows["bindings"] = [row("bindings", "risk", "a", bound("a", region.now_ms, SlotState.SERVING))]
    controller = GrantController(REGION, touch := Touch())
    assert await after(1.0) == status
    touch.answered(clock.monotonic())
    region.rows["bindings"].append(row("bindings", "risk", "b", bound("b", region.now_ms + 900, SlotState.SERVING)))
    report = (await after(1.0)).merge
    assert report is not None
    assert (report.cut_time, report.placed) == (status.cut_time, 1)
    after_it = await after(5.0)
    assert after_it.merge == report
    assert after_it.healed_time == report.healed_time


def test_a_region_counts_as_out_of_touch_when_the_global_plane_no_longer_counts_on_it() -> None:
    assert pytest.approx(RuntimeSettings().lease_ttl_s * (1 + RegionRules().clock_rate_error)) == PATIENCE_S


async def test_the_time_of_a_revision_is_that_of_the_objects_it_created_before_anything_is_archived() -> None:
    clock = FakeClock()
    async with running_plane(MemoryStore(MemoryDisk()), clock) as plane:
        first = ok(await plane.send(OPERATOR, tenant("a")))
        clock.offset += 5.0
        ok(await plane.send(OPERATOR, tenant("b")))
        created = plane.authority.view().get("tenants", "", "a")
        assert created is not None
        assert instant(await plane.authority.past.time_at(first.revision)) == created.decode().metadata.creation_time


async def test_the_global_plane_is_in_touch_when_it_gives_the_lease_or_says_who_has_it_and_not_when_nobody_answers() -> None:
    """A new leader waits for the lease of the one before it: that is no silence."""
    clock, touch, heard = FakeClock(), Touch(), list[bool]()
    answers: list[Outcome] = [
        Refused("NotLeader", "no leader can be reached"),
        Refused("LeaseHeld", "10 s"),
        Accepted(1, epoch=2),
    ]

    class Above:
        vouches = True

        async def submit(self, commands: list[Command]) -> list[Outcome]:
            heard.append(touch.contact(0.0, clock.monotonic(), 0).heard_ms is not None)
            return [answers.pop(0)]

    plane: Any = Above()
    runtime = Runtime(MirrorUp(REGION, touch), plane, clock, random.Random(1), other=plane)
    clock.sleep = lambda seconds: asyncio.sleep(0)  # type: ignore[method-assign]
    assert await runtime._acquire()
    assert heard == [False, False, True]


@pytest.mark.parametrize("noticed", [True, False])
async def test_a_region_that_starts_cold_within_a_cut_reports_it_whether_or_not_it_had_noticed_it_before(noticed: bool) -> None:
    """By its reports upward; its grants' lease would have lasted far longer."""
    clock, lease_s = FakeClock(), 600
    end = instant(ANSWERED_MS + lease_s * 1000)
    leased = GrantTermStatus(incarnation=1, knows=1, asked=4, taken=4, asked_time=instant(ANSWERED_MS), end_time=end)
    region = Region(GrantTerm(Metadata(name=REGION), replace(LEASED, lease_seconds=lease_s), leased))
    word_ms = last_word_ms(region.term)
    controller = GrantController(REGION, touch := Touch())

    async def after(seconds: float) -> GrantTermStatus:
        clock.offset += seconds
        region.now_ms += int(seconds * 1000)
        return await region.sweep(controller, clock)

    touch.answered(clock.monotonic())
    before = await after(12.0 if noticed else 6.0)
    assert (before.cut_time is not None) is noticed
    region.rows["bindings"] = [row("bindings", "risk", "a", bound("a", region.now_ms, SlotState.SERVING))]
    region.now_ms += 30_000
    region.term = lapsed_term(region.term, instant(region.now_ms))
    controller = GrantController(REGION, touch := Touch())
    assert (await after(0.0)).cut_time == before.cut_time
    opened = await after(11.0)
    assert (opened.cut_time, opened.healed_time) == (before.cut_time if noticed else instant(word_ms or 0), None)
    touch.answered(clock.monotonic())
    report = (await after(1.0)).merge
    assert report is not None
    assert (report.cut_time, report.placed) == (opened.cut_time, 1)
