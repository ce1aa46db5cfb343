"""Objects may be written ahead of the position that the store has everything up to (a leader killed between two pieces). Whoever
loads them applies the journal over them, older images over newer ones, and must come to the accounts of one who was there."""

from __future__ import annotations

import random

import pytest

from fairlead.authority.hot import hot_of
from fairlead.authority.ledger import Ledger
from fairlead.authority.recount import drifts
from fairlead.authority.state import State
from fairlead.model import codec
from fairlead.model.ids import split_key
from fairlead.model.kinds.capacity import Node, NodeSpec
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import (
    Ask,
    Binding,
    BindingSpec,
    BindingStatus,
    SchedulingRequest,
    SchedulingRequestSpec,
)
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Device, DeviceHold, Resources
from fairlead.store.contract import ObjectRow
from tests.authority.planes import FakeClock, token

NODE = Node(
    metadata=Metadata(name="n1"),
    spec=NodeSpec(
        region="r", zone="a", allocatable=Resources(16_000, 1 << 36),
        devices=tuple(Device(id=f"d{number}", model="x", resource="gpu" if number < 2 else "fpga") for number in range(4)),
    ),
)  # fmt: skip


HOLDING = (SlotState.BOUND, SlotState.STARTING, SlotState.SERVING, SlotState.DRAINING, SlotState.FAILED)


class Slots:
    """Two slots and their requests, that come and go and come again as another workload's, on other devices."""

    def __init__(self, draws: random.Random) -> None:
        self._draws = draws
        self._lives: dict[tuple[str, str], BindingSpec] = {}

    def change(self) -> tuple[str, bytes | None]:
        draws = self._draws
        plural, name = draws.choice(("bindings", "schedulingrequests")), f"{draws.choice('ab')}-0"
        key, there = f"{plural}/risk/{name}", self._lives.get((plural, name))
        if there is not None and draws.random() < 0.5:
            del self._lives[plural, name]
            return key, None
        spec = self._lives[plural, name] = there or self._life(name)
        metadata = Metadata(name=name, namespace="risk")
        if plural == "bindings":
            return key, codec.encode(Binding(metadata=metadata, spec=spec, status=BindingStatus(state=draws.choice(HOLDING))))
        asked = SchedulingRequestSpec(slot=spec.slot, ask=Ask(requests=spec.requests))
        return key, codec.encode(SchedulingRequest(metadata=metadata, spec=asked))

    def _life(self, name: str) -> BindingSpec:
        draws = self._draws
        workload = name.rpartition("-")[0]
        slot = SlotRef(workload=workload, uid=f"{workload}{draws.randrange(2)}", index=0)
        devices = (DeviceHold(f"d{draws.randrange(4)}", 1000),)
        borrowed = draws.random() < 0.3
        return BindingSpec(
            slot=slot, node="n1", token=token(), requests=Resources(1000, 1 << 30), devices=devices, borrowed=borrowed
        )


def fresh() -> tuple[State, Ledger]:
    state = State(hot_of)
    return state, Ledger(state)


def counts(ledger: Ledger) -> object:
    return {uid: (found.workload, found.slots) for uid, found in ledger._workloads.items()}, ledger.capable


@pytest.mark.parametrize("seed", range(20))
async def test_the_accounts_are_the_same_whatever_was_written_ahead(seed: int) -> None:
    draws = random.Random(seed)
    journal: list[tuple[str, bytes | None]] = [("nodes//n1", codec.encode(NODE))]
    slots = Slots(draws)
    journal += [slots.change() for _ in range(40)]
    newest = {key: (position, raw) for position, (key, raw) in enumerate(journal, 1)}
    rows: list[ObjectRow] = [(key, at, raw) for key, (at, raw) in newest.items() if raw is not None and draws.random() < 0.7]
    state, ledger = fresh()
    state.load(sorted(rows), 0)
    state.loaded(0)
    for key, raw in journal:
        state.apply(*split_key(key), raw)
    whole, wanted = fresh()
    for key, (_, raw) in newest.items():
        if raw is not None:
            whole.apply(*split_key(key), raw)
    assert await drifts(state, ledger, FakeClock()) == []
    assert counts(ledger) == counts(wanted)


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
