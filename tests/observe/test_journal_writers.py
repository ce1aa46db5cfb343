"""Who wrote an entry, asked of forged journals: under the lease of its role (S9), with one record each, in one row (S18)."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from fairlead.model import codec
from fairlead.model.journal import NO_COMMAND, Blob, Entry, Header, chain_hash
from fairlead.model.kinds.capacity import GrantStatus
from fairlead.model.kinds.ledger import Plane
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.observe.checkers import JournalChecker
from fairlead.store.contract import Batch
from tests.observe.forging import BASE, T0, Forged, binding, by, grant, named, node, to

ROLLOUT = by(Role.ROLLOUT)
PLANE = ("planes//self", Plane(named("self")))
TERM = GrantTerm(named("r"), GrantTermSpec(region="r"))
ANOTHER = GrantTermSpec(region="r", lease_seconds=600)


def test_a_write_under_the_lease_of_another_role_is_found() -> None:
    stranger = replace(by(Role.ROLLOUT), lease=Role.GARBAGE.value)
    forged = Forged(*BASE, binding()).entry(stranger, to(SlotState.READY), binding(state=SlotState.READY))
    assert forged.found == ["S9"], forged.details
    assert Forged(*BASE, binding()).entry(ROLLOUT, to(SlotState.READY), binding(state=SlotState.READY)).found == []


def test_a_write_under_an_old_epoch_is_found() -> None:
    late = replace(ROLLOUT, fencing_epoch=2)
    assert Forged(*BASE, binding()).entry(late, to(SlotState.READY), binding(state=SlotState.READY)).found == ["S9"]


def test_what_nobody_asked_for_is_found_but_for_what_the_authority_writes_itself() -> None:
    assert Forged(*BASE).entry(None, None, grant(10**9), node("n3")).found == ["S18", "S18"]
    assert Forged(*BASE).entry(None, None, ("receipts//x", {})).found == ["S18"]
    assert Forged(*BASE).entry(None, None, ("sessions//x", {})).found == []
    assert Forged(*BASE).entry(None, None, PLANE).found == []


def test_a_term_begins_with_leases_that_are_over_and_with_nothing_else_of_grants() -> None:
    _, has = grant()
    leased = replace(has, status=GrantStatus(lease_end_time=T0))
    over = replace(has, status=GrantStatus(lease_end_time=datetime.fromtimestamp(0, UTC)))
    with_lease = (*BASE, (grant()[0], leased), ("grantterms//r", TERM))
    assert Forged(*with_lease).entry(None, None, PLANE, (grant()[0], over), ("grantterms//r", TERM)).found == []
    assert Forged(*with_lease).entry(None, None, (grant()[0], over)).found == ["S18"], "in the middle of a term"
    assert Forged(*with_lease).entry(None, None, PLANE, grant(10**9)).found == ["S18"]
    assert Forged(*with_lease).entry(None, None, PLANE, ("grantterms//r", replace(TERM, spec=ANOTHER))).found == ["S18"]


def test_positions_that_go_back_or_leave_a_gap_are_found() -> None:
    for first in (1, 5000):
        forged = Forged(*BASE, binding()).entry(ROLLOUT, to(SlotState.SERVING), binding())
        assert forged.entry(ROLLOUT, to(SlotState.SERVING), binding(), first=first).found == ["S18"], first


def test_a_batch_that_says_it_is_longer_than_it_is_is_found() -> None:
    checker = JournalChecker()
    blob = codec.encode(Blob(Header(1, 1, 1, "me", 1, 0), (Entry(NO_COMMAND, (("sessions//x", b""),)),)))
    checker.feed(Batch(1, 2, b"", chain_hash(b"", blob), blob))
    assert [violation.invariant for violation in checker.violations] == ["S18"]
