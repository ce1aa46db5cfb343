"""Proposals that come a moment after another scheduler's: the rival reserves what was about to be bound."""

from __future__ import annotations

import pytest

from fairlead.model.commands import Bind, BindGang, BindMany, Caller, Command, Reserve
from fairlead.model.kinds.ledger import Lease, LeaseSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.sim.spoilt import WAYS, older, quicker
from fairlead.sim.strays import unleased

SCHEDULER = Caller("scheduler-0", Role.SCHEDULER, lease="scheduler-0", fencing_epoch=3)
LATE = (WAYS - 0.5) / WAYS
BINDS = tuple(Bind("risk", f"api-{n}", 1, 2, f"n{n}", 3, 4) for n in range(3))


def test_a_rival_reserves_the_same_slot_on_the_same_grounds_under_the_same_lease() -> None:
    rival = quicker(Command(SCHEDULER, BINDS[0]), LATE, 0.0)
    assert rival is not None
    body, caller = rival.body, rival.caller
    assert isinstance(body, Reserve)
    assert (body.tenant, body.name, body.epoch, body.generation, body.node) == ("risk", "api-0", 1, 2, "n0")
    assert (body.policy_revision, body.grant_version) == (3, 4)
    assert (caller.lease, caller.fencing_epoch, caller.role) == ("scheduler-0", 3, Role.SCHEDULER)
    assert caller.actor != SCHEDULER.actor, "its own reservation would be no hindrance"


def test_of_many_binds_one_has_a_rival() -> None:
    rival = quicker(Command(SCHEDULER, BindMany(BINDS)), LATE, 0.5)
    assert rival is not None
    assert isinstance(rival.body, Reserve)
    assert rival.body.name == "api-1"


@pytest.mark.parametrize("way", range(WAYS - 1))
def test_what_is_wrong_about_one_thing_has_no_rival(way: int) -> None:
    which = (way + 0.5) / WAYS
    assert quicker(Command(SCHEDULER, BINDS[0]), which, 0.0) is None
    assert older(BINDS[0], which, 0.9, ["a", "b"]) != BINDS[0]


def test_a_gang_and_what_is_no_placement_have_no_rival() -> None:
    assert quicker(Command(SCHEDULER, BindGang(BINDS)), LATE, 0.0) is None
    assert quicker(Command(SCHEDULER, BindMany(())), LATE, 0.0) is None


def test_whoever_has_no_right_to_act_comes_under_an_old_lease_or_under_another_roles() -> None:
    held = {"scheduler-0": (Role.SCHEDULER, 3), "garbage": (Role.GARBAGE, 5), "repair": (Role.REPAIR, 7)}
    leases = {("", n): Lease(Metadata(name=n), LeaseSpec(role=role.value, epoch=epoch)) for n, (role, epoch) in held.items()}
    came = [unleased({"leases": leases}, Role.SCHEDULER, number / 100) for number in range(100)]
    assert {caller.role for caller in came if caller is not None} == {Role.SCHEDULER}
    terms = {(caller.lease, caller.fencing_epoch) for caller in came if caller is not None}
    assert terms == {("scheduler-0", 2), ("garbage", 5), ("repair", 7)}
