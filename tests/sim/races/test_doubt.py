"""Places whose answer was lost: the store has them, and nobody knows. Each is there once, where it was put the first time. Binds
are in test_placing.py; here are reservations, the rooms of a budget, and gangs."""

from __future__ import annotations

from typing import Any

from fairlead.model.commands import Accepted, Bind, BindGang, BindMany, Refused, Reserve
from fairlead.sim.born import BUDGET
from fairlead.sim.loop import sleep
from fairlead.sim.scenario import Work
from tests.sim.races.stage import REGION, TENANT, Stage, bodies_of, placed_in, played, where

SLOT = "api-0"


def reserve(stage: Stage, node: str) -> Reserve:
    spec = stage.objects(REGION, "schedulingrequests")[TENANT, SLOT].spec
    grant = stage.objects(REGION, "grants")[TENANT, REGION]
    version = grant.status.accepted_version or grant.spec.version
    revision = stage.objects(REGION, "policychannels")["", "default"].spec.current
    return Reserve(TENANT, SLOT, spec.epoch, spec.generation, node, revision, version, 25.0)


def test_a_reservation_whose_answer_was_lost_is_not_made_again_on_another_node() -> None:
    """By a scheduler that reserves before it binds. It asks another node while nobody knows; what it holds is what it binds."""

    async def script(stage: Stage) -> tuple[Any, Any]:
        await stage.create("index", 1)
        await stage.until(lambda: stage.serving("index") == 1)  # the region may place
        stage.hide("schedulingrequests", 60.0)  # the region's own does not come before it
        await stage.create("api", 1)
        await stage.until(lambda: (TENANT, SLOT) in stage.objects(REGION, "schedulingrequests"))
        struck = stage.lose_answer(Reserve, for_s=4.0)
        first, again = reserve(stage, f"{REGION}-n0"), reserve(stage, f"{REGION}-n1")
        waits = stage.loop.spawn(None, stage.said(stage.scheduler(), first), "reserves")
        batch = await stage.until_in_doubt(struck)
        held = placed_in(batch)[f"{TENANT}/{SLOT}"]
        (outcome,) = await stage.said(stage.scheduler(), again)
        assert isinstance(outcome, Refused), "it is reserved, and known to be by now"
        assert outcome.reason == "NotPending"
        (told,) = await waits
        assert isinstance(told, Accepted)
        assert [where(one) for one in stage.objects(REGION, "reservations").values()] == [held]
        *terms, _ = (getattr(first, name) for name in Reserve.__struct_fields__)
        await stage.said(stage.scheduler(), Bind(*terms))
        await stage.until(lambda: stage.serving("api") == 1)
        assert not stage.objects(REGION, "reservations"), "it has ended, once (S8)"
        (bound,) = stage.bindings("api")
        return held, where(bound)

    held, bound = played(script)
    assert bound == held


def test_a_budgets_room_whose_answer_was_lost_is_held_once() -> None:
    """The rooms of a recovery budget are reservations that the region's own scheduler makes."""

    async def script(stage: Stage) -> tuple[dict[str, Any], dict[str, Any]]:
        struck = stage.lose_answer(Bind, BindMany, for_s=4.0)
        batch = await stage.until_in_doubt(struck)
        assert any(isinstance(body, Bind | BindMany) for body in bodies_of(batch))
        held = placed_in(batch)
        assert held
        assert held.keys() <= {"/".join(room) for room in stage.objects(REGION, "reservations")}, "rooms are reserved, not bound"
        await stage.until(lambda: stage.rooms_held(BUDGET) > 0)
        await sleep(10.0)
        rooms = stage.objects(REGION, "reservations")
        assert len({(tenant, room.spec.index) for (tenant, _), room in rooms.items()}) == len(rooms)
        return held, {"/".join(at): where(room) for at, room in rooms.items()}

    held, rooms = played(script, work=Work(0, 0.001, operators=0.0, replays=0.0, critical=1.0))
    assert {name: rooms[name] for name in held} == held


def test_a_gang_whose_answer_was_lost_is_bound_whole_and_once() -> None:
    async def script(stage: Stage) -> tuple[dict[str, Any], dict[str, Any]]:
        struck = stage.lose_answer(BindGang, for_s=4.0)
        await stage.create("api", 3, gang=True)
        there = placed_in(await stage.until_in_doubt(struck))
        await stage.until(lambda: stage.serving("api") == 3)
        return there, {f"{TENANT}/{b.metadata.name}": where(b) for b in stage.bindings("api")}

    there, bound = played(script)
    assert len(there) == 3
    assert bound == there
