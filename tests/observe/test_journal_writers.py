"""Who wrote an entry, asked of forged journals: under the lease of its role (S9), with one record each, in one row (S18)."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.model.lifecycle import Role, SlotState
from tests.observe.forging import BASE, Forged, binding, by, to

ROLLOUT = by(Role.ROLLOUT)


def test_a_write_under_the_lease_of_another_role_is_found() -> None:
    stranger = replace(by(Role.ROLLOUT), lease=Role.GARBAGE.value)
    forged = Forged(*BASE, binding()).entry(stranger, to(SlotState.READY), binding(state=SlotState.READY))
    assert forged.found == ["S9"], forged.details
    assert Forged(*BASE, binding()).entry(ROLLOUT, to(SlotState.READY), binding(state=SlotState.READY)).found == []


def test_a_write_under_an_old_epoch_is_found() -> None:
    late = replace(ROLLOUT, fencing_epoch=2)
    assert Forged(*BASE, binding()).entry(late, to(SlotState.READY), binding(state=SlotState.READY)).found == ["S9"]
