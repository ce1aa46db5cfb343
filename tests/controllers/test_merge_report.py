"""When a cut is over: with the batch that brought the answer, not when the controller looks at it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from fairlead.controllers.contract import View
from fairlead.controllers.grant import TERM, GrantController
from fairlead.decide.granting import last_word_ms
from fairlead.decide.lapsing import lapsed_term
from fairlead.decide.slots import instant
from fairlead.model.codec import encode
from fairlead.model.commands import PutStatus
from fairlead.model.ids import revision
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.ports import Clock
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, REGION, FakeClock, ok, running_plane
from tests.authority.test_history import tenant
from tests.decide.test_merging import bound

ANSWER_AT, ANSWERED_MS, LOOKED_MS = 7, 60_000, 60_001


def row(plural: str, tenant: str, name: str, item: Any, position: int) -> Any:
    return SimpleNamespace(plural=plural, tenant=tenant, name=name, position=position, raw=encode(item), hot=item)


class Region:
    """What a sweep asks of a plane."""

    def __init__(self, **kinds: list[Any]) -> None:
        self.kinds = kinds

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Any:
        return next((each for each in self.kinds[plural] if (each.tenant, each.name) == (tenant, name)), None)

    async def list(self, plural: str) -> list[Any]:
        return self.kinds.get(plural, [])

    async def time_at(self, at: int) -> int:
        assert at == revision(1, ANSWER_AT)
        return ANSWERED_MS

    def revision(self) -> int:
        return revision(1, ANSWER_AT + 5)


async def test_what_had_waited_for_an_answer_and_is_bound_with_it_was_not_placed_apart() -> None:
    spec = GrantTermSpec(REGION, lease_seconds=30, asker=1, answered=4, incarnation=1)
    status = GrantTermStatus(incarnation=1, knows=1, asked=4, taken=3, asked_time=instant(59_000), end_time=instant(40_000))
    term = row("grantterms", "", REGION, GrantTerm(Metadata(name=REGION), spec, status), ANSWER_AT)
    placed = [bound("apart", ANSWERED_MS - 1, SlotState.SERVING), bound("waited", ANSWERED_MS), bound("later", LOOKED_MS)]
    bindings = [row("bindings", "risk", each.metadata.name, each, 3) for each in placed]
    controller = GrantController(REGION)
    view = View(controller.indexes, controller.indexes_other)
    view.cache.apply(term)
    controller.reconcile(TERM, view, LOOKED_MS)
    plane: Any = Region(grantterms=[term], bindings=bindings)
    clock: Clock = FakeClock()
    written = next(each for each in await controller.sweep(plane, clock) if isinstance(each, PutStatus))
    report = written.status.merge
    assert (report.placed, report.tenants) == (1, {"risk": 1})
    assert report.healed_time == instant(ANSWERED_MS)


async def test_a_cut_in_which_the_region_started_cold_is_reported_from_its_last_word_and_a_plain_restart_is_none() -> None:
    spec = GrantTermSpec(REGION, lease_seconds=30, asker=1, answered=3, incarnation=1)
    leased = GrantTermStatus(incarnation=1, knows=1, asked=3, taken=3, asked_time=instant(10_000), end_time=instant(40_000))
    before = GrantTerm(Metadata(name=REGION), spec, leased)
    cut_ms = last_word_ms(before)
    assert cut_ms is not None
    for answered_after_ms, reports in ((12_000, True), (11_000, False)):  # two fifths of the lease, and less
        lapsed = lapsed_term(before, instant(cut_ms + 5_000))
        answer = replace(lapsed, spec=replace(spec, answered=lapsed.status.asked))
        term = row("grantterms", "", REGION, answer, ANSWER_AT)
        controller = GrantController(REGION)
        view = View(controller.indexes, controller.indexes_other)
        view.cache.apply(term)
        found = controller.reconcile(TERM, view, cut_ms + answered_after_ms)
        assert [body.status.word_time for body in found.bodies] == [None], "there is a lease again"  # type: ignore[union-attr]
        plane: Any = Region(grantterms=[term], bindings=[])
        written = [each for each in await controller.sweep(plane, FakeClock()) if isinstance(each, PutStatus)]
        assert [each.status.merge.cut_time for each in written] == ([instant(cut_ms)] if reports else [])


async def test_the_time_of_a_revision_is_that_of_the_objects_it_created_before_anything_is_archived() -> None:
    clock = FakeClock()
    async with running_plane(MemoryStore(MemoryDisk()), clock) as plane:
        first = ok(await plane.send(OPERATOR, tenant("a")))
        clock.offset += 5.0
        ok(await plane.send(OPERATOR, tenant("b")))
        created = plane.authority.view().get("tenants", "", "a")
        assert created is not None
        assert instant(await plane.authority.past.time_at(first.revision)) == created.decode().metadata.creation_time
