"""Accounts after a load, which brings objects in the order of their names."""

from __future__ import annotations

from fairlead.authority.hot import hot_of
from fairlead.authority.ledger import Ledger
from fairlead.authority.recount import drifts
from fairlead.authority.state import State
from fairlead.model import codec
from fairlead.model.kinds.capacity import Node, NodeSpec
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import (
    Binding,
    BindingSpec,
)
from fairlead.model.meta import Metadata
from fairlead.model.resources import Device, DeviceHold, Resources
from tests.authority.planes import FakeClock, token

NODE = Node(
    metadata=Metadata(name="n1"),
    spec=NodeSpec(
        region="r", zone="a", allocatable=Resources(16_000, 1 << 36),
        devices=tuple(Device(id=f"d{number}", model="x", resource="gpu" if number < 2 else "fpga") for number in range(4)),
    ),
)  # fmt: skip


def fresh() -> tuple[State, Ledger]:
    state = State(hot_of)
    return state, Ledger(state)


async def test_a_tenant_is_charged_for_its_devices_by_what_they_are_also_where_its_bindings_are_loaded_before_their_node() -> (
    None
):
    state, ledger = fresh()
    spec = BindingSpec(SlotRef("a", "u1", 0), "n1", token(), devices=(DeviceHold("d3", 1000),))
    row = codec.encode(Binding(metadata=Metadata(name="a-0", namespace="risk"), spec=spec))
    state.load([("bindings/risk/a-0", 2, row), ("nodes//n1", 1, codec.encode(NODE))], 2)
    state.loaded(2)
    assert ledger.tenant("risk").used["device:fpga"] == 1000
    assert await drifts(state, ledger, FakeClock()) == []
    state.apply("bindings", "risk", "a-0", None)
    assert not any(ledger.tenant("risk").used.values())
