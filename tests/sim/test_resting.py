"""What counts as a write at rest (L4): by what is written, all of it, and whoever wrote it."""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlead.model import codec
from fairlead.model.commands import Caller, Command, Delete, LeaseRenew
from fairlead.model.journal import NO_COMMAND, Entry, Header, encode_blob
from fairlead.model.kinds.intent import Region, RegionStatus
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Condition, Metadata
from fairlead.sim.resting import at_rest
from fairlead.store.contract import Batch


def batch(role: Role | None, *keys: str, raw: bytes | None = None, renews: bool = False) -> Batch:
    """`role`: of who sent it; None: nobody did."""
    body = LeaseRenew("x", 1) if renews else Delete("Workload", "risk", "api")
    command = msgspec.Raw(codec.encode(Command(Caller("it", role), body))) if role is not None else NO_COMMAND
    entry = codec.encode(Entry(command, tuple((key, raw) for key in keys)))
    return Batch(1, len(keys), b"", b"", encode_blob(Header(1, 1, 1, "me", 1, 0), [entry]))


def test_renewals_are_no_writes() -> None:
    assert not at_rest([batch(Role.ROLLOUT, "leases//x", raw=b"x", renews=True)] * 3)
    assert not at_rest([batch(Role.MIRROR, "grantterms//r", raw=b"x")] * 3)
    assert not at_rest([batch(None, "sessions//x", raw=b"x")] * 3)
    assert not at_rest([batch(None, "planes//self", "grants/risk/r", raw=b"x")])


def test_what_comes_after_a_renewal_in_its_entry_is_a_write() -> None:
    assert at_rest([batch(Role.MIRROR, "grantterms//r", "workloads/risk/api")]).total() == 1
    assert at_rest([batch(Role.ROLLOUT, "leases//x", "workloads/risk/api", renews=True)]).total() == 1


def test_what_nobody_asked_for_is_a_write() -> None:
    assert at_rest([batch(None, "bindings/risk/api-0", raw=b"x")] * 2).total() == 2


def test_the_garbage_collector_clears_each_thing_once_and_nothing_but_what_is_over() -> None:
    cleared = batch(Role.GARBAGE, "evictionrequests/risk/api-0")
    assert not at_rest([cleared, batch(Role.GARBAGE, "revisions/risk/api.g1")])
    assert at_rest([cleared, cleared]).total() == 1
    assert at_rest([batch(Role.GARBAGE, "workloads/risk/api")]).total() == 1
    assert at_rest([batch(Role.GARBAGE, "evictionrequests/risk/api-0", "workloads/risk/api")]).total() == 1
    assert at_rest([batch(Role.REPAIR, "bindings/risk/api-0")]).total() == 1, "who else does it fights"


def test_how_many_nodes_a_whole_region_has_is_counted_late_and_once() -> None:
    def counted(health: Literal["Healthy", "Unknown"], partial: Literal["True", "False"], *others: str) -> Batch:
        said = Condition(type="Partial", status=partial, reason="Whole")
        region = Region(Metadata(name="r"), status=RegionStatus(health=health, conditions=(said,)))
        return batch(Role.REGION_HEALTH, "regions//r", *others, raw=codec.encode(region))

    assert not at_rest([counted("Healthy", "False")])
    assert at_rest([counted("Healthy", "False")] * 2).total() == 1
    assert at_rest([counted("Healthy", "True")]).total() == 1
    assert at_rest([counted("Unknown", "False")]).total() == 1
    assert at_rest([counted("Healthy", "False", "workloads/risk/api")]).total() == 1
