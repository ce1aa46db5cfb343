"""Slots of others that an answer about one's own mentions: named to whoever may see them, and to nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette

from fairlead.api.app import make_app
from fairlead.api.frontdoor import FrontDoor
from fairlead.api.masking import OTHERS
from fairlead.client.decisions import NO_RESULT, DecisionQuery, Explained, ExplainedPage
from fairlead.client.resources import ChangePage
from fairlead.model import codec
from fairlead.model.decision import Attempt, Decided
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Binding, BindingSpec
from fairlead.model.meta import Metadata
from fairlead.ports import SystemClock
from tests.api.doors import GROUP, Bare, Door, authenticate, call, own_tenant_only, watching

VICTIMS = ("billing/big-0", "risk/batch-1")
SHOWN = [OTHERS, "risk/batch-1"]
RISK = f"{GROUP}/namespaces/risk"


class Feed:
    revision = 7

    def take_nowait(self) -> list[Any]:
        return []

    async def wait(self) -> None:
        await SystemClock().sleep(60)

    def poke(self) -> None: ...

    def close(self) -> None: ...


class Preempting:
    """A plane with one binding that waits for two others to leave, and the decision it came from."""

    connected = True

    def __init__(self) -> None:
        spec = BindingSpec(slot=SlotRef("api", "u", 0), node="n1", token=Token(1, 1, 1), start_after=VICTIMS)
        record = Binding(metadata=Metadata(name="api-0", namespace="risk"), spec=spec)
        self._binding = Bare("bindings", "risk", "api-0", 7, codec.encode(record), record)

    def revision(self) -> int:
        return 7

    def plane_ms(self) -> int:
        return 1_000

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Any:
        return self._binding if (plural, tenant, name) == ("bindings", "risk", "api-0") else None

    async def page(self, plural: str, tenant: str | None = None, **_: Any) -> ChangePage:
        return ChangePage([self._binding] if plural == "bindings" else [], 7)

    def follow(self, plurals: Any, after: int) -> Feed:
        return Feed()

    async def decisions(self, query: DecisionQuery) -> ExplainedPage:
        attempt = Attempt("risk", "api-0", 1, 1, 5, node="n1", victims=VICTIMS)
        decided = Decided("scheduler-a", 1_000, 1, 7, 10, "single", {}, 1, 1, attempts=(attempt,))
        return ExplainedPage((Explained("d1", decided, NO_RESULT),))


@pytest.fixture
def door() -> Door:
    plane: Any = Preempting()
    app: Starlette = make_app(FrontDoor({"eu": plane}, SystemClock()), authenticate, own_tenant_only, clock=SystemClock())
    return Door({}, {}, app)


@pytest.mark.parametrize(("token", "named"), [("ada-token", list(VICTIMS)), ("eve-token", SHOWN)])
async def test_whose_room_was_taken_is_told_to_who_may_see_them(door: Door, token: str, named: list[str]) -> None:
    (decided,) = (await call(door, "GET", f"{RISK}/workloads/api/decisions", token=token)).json["items"]
    assert decided["spec"]["victims"] == named
    slot = (await call(door, "GET", f"{RISK}/bindings/api-0/why", token=token)).json["status"]["slots"][0]
    assert slot["lastDecision"]["victims"] == named


@pytest.mark.parametrize(("token", "named"), [("ada-token", list(VICTIMS)), ("eve-token", SHOWN)])
async def test_what_a_binding_waits_for_is_told_to_who_may_see_it(door: Door, token: str, named: list[str]) -> None:
    one = (await call(door, "GET", f"{RISK}/bindings/api-0", token=token)).json
    (listed,) = (await call(door, "GET", f"{RISK}/bindings", token=token)).json["items"]
    async with watching(door, f"{RISK}/bindings", token=token) as stream:
        event = (await stream.next())["object"]
    assert [each["spec"]["startAfter"] for each in (one, listed, event)] == [named, named, named]
