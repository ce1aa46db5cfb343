"""What a controller has sent and has no answer to: other keys go on, the same key waits, and nobody decides on a picture that
lacks what was just written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.local import LocalPlane
from fairlead.controllers.assignment import AssignmentController
from fairlead.controllers.cache import Indexes, Item, Name
from fairlead.controllers.contract import Result, View
from fairlead.controllers.queue import Taken
from fairlead.controllers.sent import BATCHES_MAX, Sent, submit_in_parts
from fairlead.model.commands import Accepted, Command, Delete, Enqueue, Outcome, PutStatus, Refused, ReleaseReservation, Unknown
from fairlead.model.kinds.work import Assignment, AssignmentStatus
from tests.authority.planes import OPERATOR, REGION
from tests.controllers.running import RegionRig, region


class SlowAnswers(LocalPlane):
    """Judges what it is sent, and tells its early feeds; whoever writes about `api` has an answer when the gate opens."""

    def __init__(self, rig: RegionRig) -> None:
        super().__init__(rig.plane.authority, rig.plane.clock, early=True)
        self.gate = asyncio.Event()
        self.door = asyncio.Event()  # before it, what is written about `api` is not even judged
        self.door.set()
        self.queued: list[str] = []  # workloads whose slots were queued
        self.refuses = False  # what is written about `api` changes nothing
        self.said: list[str] = []  # workloads of whose assignment a status was written

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        queued = [c.body.request.spec.slot.workload for c in commands if isinstance(c.body, Enqueue)]
        said = [c.body.name.partition(".")[0] for c in commands if isinstance(c.body, PutStatus)]
        self.queued += queued
        self.said += said
        if "api" not in queued + said:
            return await super().submit(commands)
        await self.door.wait()
        if self.refuses:
            return [Refused("Conflict", "another was faster") for _ in commands]
        outcomes = await super().submit(commands)
        await self.gate.wait()
        return outcomes


class Seer:
    """Says of every assignment that it was seen, and is not concerned by what it wrote itself."""

    name = "assignment"
    follows = ("assignments",)
    named = ("assignments",)
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        return (item.key,) if item.hot.status.observed_generation != item.hot.metadata.generation else ()

    def resync(self, view: View) -> Iterable[Name]:
        return [item.key for item in view.cache.all("assignments")]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        found: Assignment = view.cache.get("assignments", *key)
        status = replace(found.status, observed_generation=found.metadata.generation)
        return Result([PutStatus("Assignment", *key, status)] if status != found.status else [])


async def test_another_key_is_looked_at_while_commands_about_one_have_no_answer() -> None:
    async with region() as r:
        plane = SlowAnswers(r)
        r.schedule()
        runtime = r.control(AssignmentController(REGION), plane=plane, resync_s=60.0)
        await runtime.wait_serving()
        await r.order("api", 1)
        await r.until(lambda: len(r.slots()) == 1)
        await r.order("web", 2)
        await r.until(lambda: len(r.slots("web")) == 2)
        assert plane.queued == ["api", "web"]


async def test_what_waits_for_the_picture_is_looked_at_when_it_comes_also_by_one_who_is_not_concerned_by_what_it_wrote() -> None:
    async with region() as r:
        plane = SlowAnswers(r)
        plane.door.clear()
        runtime = r.control(Seer(), plane=plane, resync_s=60.0)
        await runtime.wait_serving()
        await r.order("api", 0)
        await r.until(lambda: plane.said == ["api"])
        await r.order("web", 0)
        await r.until(lambda: len(runtime.queue) == 1)
        assert plane.said == ["api"], "what was written about it is not in the picture"
        plane.door.set()
        await r.until(lambda: r.status("web").observed_generation == 1)
        assert plane.said == ["api", "web"]


class Answering:
    """A plane that gives these answers, in turn, to whole submissions."""

    def __init__(self, *answers: Outcome) -> None:
        self._answers = list(answers)
        self.sent: list[int] = []

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        self.sent.append(len(commands))
        answer = self._answers.pop(0)
        return [answer for _ in commands]


@pytest.mark.parametrize(
    ("second", "sent"),
    [
        (Accepted(7, "nodes//n", ""), [2, 2, 1]),
        (Refused("Conflict", "another was faster"), [2, 2, 1]),
        (Refused("StoreUnavailable", "the disk is full"), [2, 2]),
        (Refused("StaleEvidence", "it was taken back"), [2, 2]),
        (Unknown("leadership was lost"), [2, 2]),
    ],
    ids=lambda value: getattr(value, "reason", type(value).__name__),
)
async def test_of_a_look_nothing_more_is_sent_once_what_it_was_decided_on_may_have_been_taken_back(
    second: Outcome, sent: list[int]
) -> None:
    """Whoever judges the rest from then on cannot tell: positions are given out again."""
    first = Accepted(6, "nodes//n", "")
    plane: Any = Answering(first, second, first)
    outcomes = await submit_in_parts(plane, [Command(OPERATOR, Delete("Node", "", "n")) for _ in range(5)], 2)
    assert plane.sent == sent
    assert outcomes == [first, first, second, second, first if len(sent) == 3 else second]


async def test_what_waits_for_the_picture_is_looked_at_when_the_answer_is_that_nothing_was_written() -> None:
    async with region() as r:
        plane = SlowAnswers(r)
        plane.door.clear()
        plane.refuses = True
        runtime = r.control(Seer(), plane=plane, resync_s=600.0)
        await runtime.wait_serving()
        await r.order("api", 0)
        await r.until(lambda: plane.said == ["api"])
        await r.order("web", 0)
        await r.until(lambda: len(runtime.queue) == 1)
        plane.door.set()
        await r.until(lambda: r.status("web").observed_generation == 1)


async def test_a_key_is_not_looked_at_before_the_answer_to_what_was_sent_about_it_and_is_right_after() -> None:
    async with region() as r:
        plane = SlowAnswers(r)
        r.schedule()
        runtime = r.control(AssignmentController(REGION), plane=plane, resync_s=60.0)
        await runtime.wait_serving()
        await r.order("api", 1)
        await r.until(lambda: len(r.slots()) == 1)
        await r.order("api", 3)
        await r.order("web", 1)
        await r.until(lambda: len(r.slots("web")) == 1)
        assert (plane.queued, len(r.slots())) == (["api", "web"], 1)
        plane.gate.set()
        await r.until(lambda: len(r.slots()) == 3)
        assert plane.queued.count("api") == 2


async def test_a_look_whose_commands_are_never_answered_shows() -> None:
    async with region() as r:
        plane = SlowAnswers(r)
        runtime = r.control(AssignmentController(REGION), plane=plane, resync_s=0.2)
        await runtime.wait_serving()
        await r.order("api", 1)
        await r.until(lambda: runtime.health().stalled == "NeverEnds")
        plane.gate.set()
        await r.until(lambda: runtime.health().stalled == "")


async def test_one_that_is_told_to_stop_waits_for_no_answer() -> None:
    async with region() as r:
        plane = SlowAnswers(r)
        runtime = r.control(AssignmentController(REGION), plane=plane, resync_s=60.0)
        await runtime.wait_serving()
        await r.order("api", 1)
        await r.until(lambda: plane.queued == ["api"])
        runtime.stop()
        await r.until(lambda: not runtime.serving)
        plane.gate.set()


# --- what is under way


def one(name: str, *bodies: Any, by_resync: bool = False) -> tuple[Taken, list[Any]]:
    return Taken(("risk", name), by_resync), list(bodies)


def said(name: str) -> PutStatus:
    return PutStatus("Assignment", "risk", name, AssignmentStatus())


class Row:
    plural, tenant = "assignments", "risk"

    def __init__(self, name: str) -> None:
        self.name = name


def test_the_next_look_waits_until_all_that_was_written_is_in_the_picture() -> None:
    sent = Sent(["assignments"])
    assert sent.may_look
    sent.send([one("a", said("a"), said("b"))])
    assert not sent.may_look
    told: Any = Row("a")
    assert (sent.told(told), sent.may_look) == (False, False)
    told = Row("b")
    assert (sent.told(told), sent.may_look) == (True, True)


def test_what_the_picture_does_not_tell_of_is_waited_for_until_it_is_answered() -> None:
    for body in (Delete("Event", "risk", "e"), ReleaseReservation("risk", "a-0", None)):  # type: ignore[arg-type]
        sent = Sent(["assignments"])
        batch = [one("a", said("a"), body)]
        written = sent.send(batch)
        told: Any = Row("a")
        sent.told(told)
        assert not sent.may_look
        sent.answered(batch, written)
        assert sent.may_look


def test_a_refusal_that_changes_nothing_ends_the_wait_as_well() -> None:
    sent = Sent(["assignments"])
    batch = [one("a", said("a"))]
    written = sent.send(batch)
    sent.answered(batch, written)
    assert sent.may_look


def test_so_many_batches_have_no_answer_at_once_and_no_more() -> None:
    sent = Sent(["assignments"])
    batches = [[one(f"w{number}", said(f"w{number}"))] for number in range(BATCHES_MAX)]
    kept = []
    for batch in batches:
        assert sent.may_look
        kept.append(sent.send(batch))
        told: Any = Row(batch[0][0].key[1])
        sent.told(told)
    assert not sent.may_look
    sent.answered(batches[1], kept[1])
    assert sent.may_look


def test_only_what_nothing_but_a_resync_wanted_meanwhile_comes_back_as_such() -> None:
    sent = Sent(["assignments"])
    batch = [one("a", said("a")), one("b", said("b")), one("c", said("c"))]
    written = sent.send(batch)
    assert not sent.holds(Taken(("risk", "d"), False))
    assert sent.holds(Taken(("risk", "a"), True))
    assert sent.holds(Taken(("risk", "b"), True))
    assert sent.holds(Taken(("risk", "b"), False))
    assert sent.answered(batch, written) == [Taken(("risk", "a"), True), Taken(("risk", "b"), False)]
    assert not sent.holds(Taken(("risk", "a"), False)), "it is under way no more"
