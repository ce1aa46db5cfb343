"""`POST /plans` at the door: who may ask, what each is shown of the answer, and what is refused before anybody tries anything."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from fairlead.api.app import make_app
from fairlead.api.frontdoor import FrontDoor
from fairlead.authority.local import LocalPlane
from fairlead.client.planning import (
    Busy,
    CostRow,
    DrainRow,
    OutlookRow,
    PendingRow,
    PlanBase,
    Planned,
    PlanRefused,
    Readable,
    ShortRow,
    SlotRow,
    Step,
    TooLarge,
    Unblocked,
)
from fairlead.model.commands import Put, Refused
from fairlead.ports import SystemClock
from tests.api.doors import GROUP, Door, authenticate, call, open_door, own_tenant_only

PATH = f"{GROUP}/plans"
WORKLOAD = {
    "kind": "Workload", "apiVersion": "fairlead.dev/v1alpha1", "metadata": {"name": "api", "namespace": "risk"},
    "spec": {"replicas": 2, "template": {"driver": "process", "command": ["/bin/api"]}},
}  # fmt: skip
FOUND = Planned(
    slots=(
        SlotRow("-", "risk", "api", "api-0", "east", "n1", "", "WaitingForCapacity", "", "billing/big-0"),
        SlotRow("+", "billing", "big", "big-0", "east", "", "n1"),
    ),
    pending=(PendingRow("risk", "api", "east", "WaitingForCapacity", "", 1, 0),),
    drains=(DrainRow("n1", "east", 0, ""),),
    readiness=(OutlookRow("east", 1, 0, 0, 1, (ShortRow("billing", "big", 1, "none"),)),),
    cost=(CostRow("east", 1.0, 1.0, 0.5, 0.6),),
)


class Told:
    """A planner that says what it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.answer: Planned | PlanRefused = FOUND
        self.fails: Exception | None = None
        self.limit = 0
        self.hidden: frozenset[str] = frozenset()

    async def plan(self, planes: Mapping[str, Readable], steps: Sequence[Step]) -> tuple[Planned | PlanRefused, PlanBase]:
        if self.fails is not None:
            raise self.fails
        self.steps = list(steps)
        return self.answer, await self.base(planes)

    async def base(self, planes: Mapping[str, Readable]) -> PlanBase:
        marks = {"east": {"nodes": {"n1": "aa"}, "bindings": {"risk/api-0": "bb", "billing/big-0": "cc"}}}
        return PlanBase({"global": 5, "east": 7}, marks)

    async def unblock(
        self, plane: Readable, region: str, tenant: str, slot: str, limit: int, hidden: frozenset[str] = frozenset()
    ) -> list[Unblocked]:
        self.limit, self.hidden = limit, hidden
        return [Unblocked("more quota", "", "n1"), Unblocked("one more node", "", "", "nodes")]


@contextlib.asynccontextmanager
async def door() -> AsyncIterator[tuple[Door, Told]]:
    planner, clock = Told(), SystemClock()
    async with open_door("east", authorise=own_tenant_only) as made:
        planes: dict[str, Any] = {"global": _local(made), **made.cuttable}
        made.app = make_app(FrontDoor(planes, clock), authenticate, own_tenant_only, clock=clock, planner=planner)
        yield made, planner


def _local(made: Door) -> Any:
    return LocalPlane(made.authority(), SystemClock())


def asked(*changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"spec": {"changes": list(changes), **more}}


async def test_a_change_becomes_the_command_that_would_be_sent_and_is_not_sent() -> None:
    async with door() as (made, planner):
        got = await call(made, "POST", PATH, asked({"apply": WORKLOAD}))
        assert got.status == 200, got.body
        (step,) = planner.steps
        assert step.plane == "global"
        assert isinstance(step.command.body, Put)
        assert (step.command.body.object.spec.replicas, step.command.body.dry_run) == (2, False)
        assert made.authority().view().get("workloads", "risk", "api") is None
        assert got.json["status"]["objects"] == [{"mark": "+", "kind": "Workload", "namespace": "risk", "name": "api"}]
        assert got.json["status"]["changed"]
        assert "marks" not in got.json["base"]


async def test_of_the_answer_a_tenant_sees_its_own_and_no_nodes() -> None:
    async with door() as (made, _):
        status = (await call(made, "POST", PATH, asked({"apply": WORKLOAD}), token="eve-token")).json["status"]
        (slot,) = status["slots"]
        assert (slot["namespace"], slot["fromNode"], slot["by"]) == ("risk", "", "another tenant's")
        assert (status["cost"], status["drains"], status["readiness"]) == ([], [], [])
        base = (await call(made, "POST", PATH, asked({"apply": WORKLOAD}, marks=True), token="eve-token")).json["base"]
        assert base["marks"]["east"] == {"nodes": {}, "bindings": {"risk/api-0": "bb"}}
        assert set(base["digests"]["east"]) == {"nodes", "bindings"}
        whole = (await call(made, "POST", PATH, asked({"apply": WORKLOAD}))).json["status"]
        assert [row["by"] for row in whole["slots"]] == ["billing/big-0", ""]
        assert whole["readiness"][0]["services"][0]["workload"] == "big"


async def test_what_would_unblock_a_slot_is_told_to_who_may_ask_why() -> None:
    async with door() as (made, planner):
        slot = {"region": "east", "namespace": "risk", "name": "api-0", "limit": 99}
        got = await call(made, "POST", PATH, {"spec": {"unblock": slot}})
        assert [one["change"] for one in got.json["status"]["changes"]] == ["more quota", "one more node"]
        assert planner.limit == 10
        mine = (await call(made, "POST", PATH, {"spec": {"unblock": slot}}, token="eve-token")).json["status"]["changes"]
        assert [(one["change"], one["node"]) for one in mine] == [("more quota", "")]
        theirs = {"spec": {"unblock": slot | {"namespace": "billing"}}}
        assert (await call(made, "POST", PATH, theirs, token="eve-token")).status == 403
        for region in ("mars", "global"):  # where there is nothing to be placed
            assert (await call(made, "POST", PATH, {"spec": {"unblock": slot | {"region": region}}})).status == 404


async def test_nothing_is_tried_that_the_asker_would_not_be_told_of() -> None:
    async with door() as (made, planner):
        slot = {"region": "east", "namespace": "risk", "name": "api-0"}
        for token, hidden in (("ada-token", set()), ("eve-token", {"nodes", "overrides"})):
            await call(made, "POST", PATH, {"spec": {"unblock": slot}}, token=token)
            assert planner.hidden == hidden


@pytest.mark.parametrize(
    "change",
    [
        {}, {"apply": WORKLOAD, "delete": WORKLOAD}, {"apply": {"kind": "Nonsense", "metadata": {"name": "x"}}},
        {"apply": {**WORKLOAD, "metadata": {"name": "api"}}}, {"delete": {"kind": "Workload", "metadata": 7}},
    ],
)  # fmt: skip
async def test_a_change_that_names_nothing_is_400(change: dict[str, Any]) -> None:
    async with door() as (made, _):
        assert (await call(made, "POST", PATH, asked(change))).status == 400


async def test_every_refusal_has_its_code() -> None:
    async with door() as (made, planner):
        assert (await call(made, "GET", PATH)).status == 405
        assert (await call(made, "POST", PATH, {"spec": {"what": 1}})).status == 400
        assert (await call(made, "POST", PATH, asked(*[{"apply": WORKLOAD}] * 501))).status == 400
        theirs = {**WORKLOAD, "metadata": {"name": "api", "namespace": "billing"}}
        assert (await call(made, "POST", PATH, asked({"apply": theirs}), token="eve-token")).status == 403
        missing = {"kind": "Node", "metadata": {"name": "east-n1"}, "spec": {"unschedulable": True}}
        assert (await call(made, "POST", PATH, asked({"patch": missing}))).status == 404
        for error, code in ((Busy("4 wait"), 429), (TooLarge("many"), 413)):
            planner.fails = error
            assert (await call(made, "POST", PATH, asked({"apply": WORKLOAD}))).status == code
        planner.fails, planner.answer = None, PlanRefused(0, Refused("InUse", "it is in use"))
        got = await call(made, "POST", PATH, asked({"apply": WORKLOAD}))
        assert (got.status >= 400, "it is in use" in got.json["message"]) == (True, True)
    async with open_door("east") as bare:
        assert (await call(bare, "POST", PATH, asked())).status == 501


async def test_a_trial_that_did_not_come_to_rest_and_a_plane_left_out_are_warned_of() -> None:
    async with door() as (made, planner):
        planner.answer = Planned(settled=False, unreachable=("east",))
        got = await call(made, "POST", PATH, asked())
        assert any("east is unreachable" in warning for warning in got.warnings)
        assert any("still changing" in warning for warning in got.warnings)
        assert not got.json["status"]["changed"]


@pytest.mark.parametrize("more", [{}, {"baseOnly": True}])
async def test_no_change_at_all_is_tried_for_those_alone_who_may_see_all_of_it(more: dict[str, Any]) -> None:
    async with door() as (made, planner):
        planner.fails = AssertionError("nobody is to be asked")
        assert (await call(made, "POST", PATH, asked(**more), token="eve-token")).status == 403
        planner.fails = None
        assert (await call(made, "POST", PATH, asked(**more))).status == 200


async def test_a_change_after_which_an_object_would_say_the_same_is_none() -> None:
    async with door() as (made, planner):
        path = f"{GROUP}/namespaces/risk/workloads"
        made_of = {"resources": {"requests": {"cpu": "100m"}}, **WORKLOAD["spec"]}  # type: ignore[dict-item]
        assert (await call(made, "POST", path, WORKLOAD | {"spec": made_of})).status == 201
        planner.answer = Planned()
        about = {"kind": "Workload", "metadata": {"name": "api", "namespace": "risk"}}
        got = await call(made, "POST", PATH, asked({"patch": about | {"spec": {"replicas": 2}}}))
        assert (got.json["status"]["changed"], got.json["status"]["objects"], planner.steps) == (False, [], [])
        got = await call(made, "POST", PATH, asked({"patch": about | {"spec": {"replicas": 3}}}))
        assert (got.json["status"]["changed"], len(planner.steps)) == (True, 1)
        got = await call(made, "POST", PATH, asked({"delete": about}))
        assert got.json["status"]["changed"], "to be gone is another thing than to stay"
