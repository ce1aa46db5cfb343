"""Which template an agent starts: its own workload's, its own history's, and a known one where nobody can be asked."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.agent.launching import TEMPLATE_FRESH_S, Launcher
from fairlead.agent.port_range import PortRange
from fairlead.client.plane import Expired
from fairlead.model import codec
from fairlead.model.kinds.intent import Template
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Binding, BindingSpec, Revision, RevisionSpec
from fairlead.model.meta import Metadata
from tests.authority.planes import FakeClock


class Change(msgspec.Struct):
    raw: bytes


class Revisions:
    """A region in which a Revision is deleted and another made under its name."""

    def __init__(self) -> None:
        self.uid = self.image = "first"
        self.asked = 0
        self.cut_off = self.gone = False

    async def get(self, plural: str, tenant: str, name: str) -> Any:
        self.asked += 1
        if self.cut_off:
            raise Expired("the region cannot be reached", 0)
        if self.gone:
            return None
        spec = RevisionSpec(workload="api", workload_uid=self.uid, generation=1, template=Template(image=self.image))
        return Change(codec.encode(Revision(metadata=Metadata(name=name, namespace=tenant), spec=spec)))


class Agent:
    def __init__(self) -> None:
        self.region, self.clock = Revisions(), FakeClock()
        self._launcher = Launcher(self.region, PortRange(20_000, 20_001), ("process",), self.clock)  # type: ignore[arg-type]

    async def image(self) -> str:
        """Of what it would start now."""
        slot = SlotRef(workload="api", uid=self.region.uid, index=0)
        spec = BindingSpec(slot=slot, node="n1", token=Token(1, 1, 1), generation=1)
        return (await self._launcher.template(Binding(metadata=Metadata(name="api-0", namespace="risk"), spec=spec))).image


async def test_a_workload_made_anew_under_an_old_name_runs_its_own_template() -> None:
    agent = Agent()
    assert await agent.image() == "first"
    agent.region.uid = agent.region.image = "second"
    assert await agent.image() == "second"


async def test_a_revision_made_anew_under_an_old_name_is_what_starts_a_minute_later() -> None:
    agent = Agent()
    images = [await agent.image(), await agent.image()]
    assert (images, agent.region.asked) == (["first", "first"], 1), "what starts together is read once"
    agent.region.image = "second"
    agent.clock.offset += TEMPLATE_FRESH_S
    assert await agent.image() == "second"


async def test_what_was_started_before_is_started_again_where_nobody_can_be_asked_or_it_is_on_its_way_out() -> None:
    agent = Agent()
    await agent.image()
    agent.region.cut_off = True
    agent.clock.offset += TEMPLATE_FRESH_S
    images = [await agent.image(), await agent.image()]
    assert (images, agent.region.asked) == (["first", "first"], 2), "nobody is asked at every restart"
    agent.region.cut_off, agent.region.gone = False, True
    agent.clock.offset += TEMPLATE_FRESH_S
    assert await agent.image() == "first"
