"""What counts as a write at rest (L4): by what is written, all of it, and whoever wrote it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from fairlead.model import codec
from fairlead.model.commands import Caller, Command, Delete, LeaseRenew, PutStatus
from fairlead.model.journal import NO_COMMAND, Entry, Header, encode_blob
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import Region, RegionStatus
from fairlead.model.kinds.ledger import ZoneNodes
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Condition, Metadata
from fairlead.observe.resting import at_rest
from fairlead.store.contract import Batch

EPOCH = datetime.fromtimestamp(0, UTC)  # the time of every batch here


def batch(
    role: Role | None, *keys: str, raw: bytes | None = None, renews: bool = False, body: PutStatus | None = None
) -> Batch:  # fmt: skip
    """`role`: of who sent it; None: nobody did."""
    body_sent = LeaseRenew("x", 1) if renews else body or Delete("Workload", "risk", "api")
    command = msgspec.Raw(codec.encode(Command(Caller("it", role), body_sent))) if role is not None else NO_COMMAND
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


def test_what_was_mended_long_ago_is_forgotten_once_and_by_repair_alone() -> None:
    """A cold start may find an hour gone by the wall clock, also when all is at rest."""
    forgotten = batch(Role.REPAIR, "repairs//expiredgrant-1")
    assert not at_rest([forgotten, batch(Role.REPAIR, "repairs//expiredgrant-2")])
    assert at_rest([forgotten, forgotten]).total() == 1
    assert at_rest([batch(Role.REPAIR, "repairs//expiredgrant-1", raw=b"found again")]).total() == 1
    assert at_rest([batch(Role.GARBAGE, "repairs//expiredgrant-1")]).total() == 1


def test_who_came_and_went_is_trusted_late_and_once_and_by_the_node_controller_alone() -> None:
    def wrote(role: Role, *, flaps: int = 1, status: bool = True) -> Batch:
        node = Node(Metadata(name="n"), NodeSpec("r", "a", "p"), NodeStatus(health="Ready", flaps=flaps))
        body = PutStatus("Node", "", "n", node.status) if status else None
        return batch(role, "nodes//n", raw=codec.encode(node), body=body)

    assert not at_rest([wrote(Role.NODE)])
    assert at_rest([wrote(Role.NODE)] * 3).total() == 2
    assert at_rest([wrote(Role.NODE, flaps=0)]).total() == 1
    assert at_rest([wrote(Role.AGENT)]).total() == 1
    assert at_rest([wrote(Role.NODE, status=False)]).total() == 1, "what is wanted of it is not its to say"


def test_each_thing_is_told_late_once() -> None:
    told = batch(Role.NARRATOR, "events/risk/api.serving", raw=b"x")
    assert not at_rest([told, batch(Role.NARRATOR, "events/risk/api.started", raw=b"x")])
    assert at_rest([told] * 300).total() == 299


def test_how_many_nodes_a_whole_region_has_is_counted_late_and_once() -> None:
    def counted(health: Literal["Healthy", "Unknown"], partial: Literal["True", "False"], *others: str, ready: int = 3) -> Batch:
        said = Condition(type="Partial", status=partial, reason="Whole")
        zones = (ZoneNodes(zone="a", nodes=3, ready=ready),)
        region = Region(Metadata(name="r"), status=RegionStatus(health=health, conditions=(said,), zones=zones))
        return batch(Role.REGION_HEALTH, "regions//r", *others, raw=codec.encode(region))

    assert not at_rest([counted("Healthy", "False")])
    assert at_rest([counted("Healthy", "False")] * 2).total() == 1
    assert not at_rest([counted("Healthy", "False", ready=2), counted("Healthy", "False")]), "two that are trusted one by one"
    there_and_back = [counted("Healthy", "False", ready=ready) for ready in (2, 3, 2, 3)]
    assert at_rest(there_and_back).total() == 2
    assert at_rest([counted("Healthy", "True")]).total() == 1
    assert at_rest([counted("Unknown", "False")]).total() == 1
    assert at_rest([counted("Healthy", "False", "workloads/risk/api")]).total() == 1


def test_the_nodes_of_a_region_without_one_of_its_zones_are_counted_as_late() -> None:
    def counted(ago_s: float) -> Batch:
        since = EPOCH - timedelta(seconds=ago_s)
        said = Condition(type="Partial", status="True", reason="ZoneLost", last_transition_time=since)
        region = Region(Metadata(name="r"), status=RegionStatus(health="Healthy", conditions=(said,)))
        return batch(Role.REGION_HEALTH, "regions//r", raw=codec.encode(region))

    assert not at_rest([counted(60.0)]), "it has lacked that zone for long"
    assert at_rest([counted(1.0)]).total() == 1, "that a region is partial now is news"
