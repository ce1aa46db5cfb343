"""The replay behind the rigs' verdicts sees each thing no history may contain: real batches, then one that is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.model import codec
from fairlead.model.commands import Bind
from fairlead.model.journal import NO_COMMAND, Entry, Header, chain_hash, decode_blob, decode_command, encode_blob
from fairlead.model.kinds.capacity import Grant, Node
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import Role
from fairlead.model.resources import Resources
from fairlead.store.contract import FORMAT, Batch
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import bind_of, ok, running_plane
from tests.rigs.history import History, read_history

SLOT = "bindings/risk/api-0"


class Past:
    """A history with one bind in it, and the bind's own entry to repeat."""

    def __init__(self, history: History, bind: Entry, last: Batch) -> None:
        self.history = history
        self.bind = bind
        self.epoch = max(history.epochs)
        self._hash = last.hash

    def append(self, *entries: Entry, **changes: Any) -> list[str]:
        """Feeds one more batch that follows, but for the given changes, and says what the replay thinks of it."""
        epoch = changes.pop("epoch", self.epoch)
        holder = changes.pop("holder", self.history.epochs.get(epoch, "another"))
        first = self.history.position + 1
        blob = encode_blob(Header(FORMAT, 1, epoch, holder, first, 0), [codec.encode(entry) for entry in entries])
        last = first - 1 + sum(len(entry.effects) for entry in entries)
        batch = Batch(first, last, self._hash, chain_hash(self._hash, blob), blob)
        self.history.batch(replace(batch, **changes))
        return self.history.faults


@pytest.fixture
async def past() -> AsyncIterator[Past]:
    store = MemoryStore(MemoryDisk())
    async with running_plane(store) as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        history = await read_history(store)
        batches = await store.tail(0)
        assert isinstance(batches, list)
        entries = [entry for batch in batches for entry in decode_blob(batch.blob).entries]
        (bind,) = [entry for entry in entries if is_bind(entry)]
        yield Past(history, bind, batches[-1])


def is_bind(entry: Entry) -> bool:
    command = decode_command(entry.command)
    return command is not None and isinstance(command.body, Bind)


def own(object_key: str, value: Any) -> Entry:
    return Entry(NO_COMMAND, ((object_key, codec.encode(value)),))


def changed(past: Past, object_key: str, kind: Any, change: Any) -> Entry:
    return own(object_key, change(codec.decoder(kind).decode(past.history.objects[object_key][1])))


def test_a_batch_that_follows_is_no_fault(past: Past) -> None:
    assert past.append(Entry(NO_COMMAND, ((SLOT, None),))) == []
    assert past.history.node_used["n1", "cpu"] == 0


def test_a_slot_bound_twice_is_a_fault_even_if_it_was_released_between(past: Past) -> None:
    faults = past.append(Entry(NO_COMMAND, ((SLOT, None),)), past.bind)
    assert faults == ["slot ('risk', 'api-0', 1) was bound 2 times (S1)"]


def test_a_live_binding_that_moves_to_another_node_is_a_fault(past: Past) -> None:
    moved = changed(past, SLOT, Binding, lambda b: replace(b, spec=replace(b.spec, node="n2")))
    assert past.append(moved) == [f"{SLOT} was bound again while it was live (S1)"]


def test_a_bind_above_the_nodes_room_is_a_fault(past: Past) -> None:
    small = changed(past, "nodes//n1", Node, lambda n: replace(n, spec=replace(n.spec, allocatable=Resources(1, 1 << 40))))
    faults = past.append(Entry(NO_COMMAND, ((SLOT, None),)), small, past.bind)
    assert [fault for fault in faults if "S2" in fault] == [f"at {past.history.position} node n1 is above its cpu (S2)"]


def test_a_bind_above_the_grant_is_a_fault(past: Past) -> None:
    small = changed(past, "grants/risk/local", Grant, lambda g: replace(g, spec=replace(g.spec, during=Resources(1, 1 << 40))))
    faults = past.append(Entry(NO_COMMAND, ((SLOT, None),)), small, past.bind)
    assert [fault for fault in faults if "S4" in fault] == [
        f"at {past.history.position} tenant risk is above its grant of cpu (S4)"
    ]


def test_a_batch_of_an_older_epoch_is_a_fault(past: Past) -> None:
    assert any("S9" in fault for fault in past.append(epoch=past.epoch - 1))


def test_two_holders_of_one_epoch_are_a_fault(past: Past) -> None:
    assert any("S9" in fault for fault in past.append(holder="somebody else"))


@pytest.mark.parametrize("change", [{"hash": bytes(32)}, {"previous": bytes(32)}, {"first": 1}])
def test_a_broken_chain_is_a_fault(past: Past, change: dict[str, Any]) -> None:
    assert any("S18" in fault for fault in past.append(**change))


def test_a_batch_that_claims_more_effects_than_it_has_is_a_fault(past: Past) -> None:
    assert past.append(last=past.history.position + 5) != []


def test_a_command_is_found_by_its_correlation_with_revision_uid_and_epoch(past: Past) -> None:
    command = decode_command(past.bind.command)
    assert command is not None
    named = codec.encode(replace(command, correlation="mine"))
    past.append(Entry(NO_COMMAND, ((SLOT, None),)), Entry(msgspec.Raw(named), past.bind.effects))
    (done,) = past.history.commands["mine"]
    assert done.revision == (1 << 44) + past.history.position
    assert done.uid.startswith("local.1.")
    assert done.epoch == past.epoch
