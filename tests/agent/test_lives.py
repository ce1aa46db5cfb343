"""Lives of slots on one node: found by name at once, however many there are."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.agent.drivers.contract import Exit, InstanceId
from fairlead.agent.node import Node
from fairlead.agent.region import Ack
from fairlead.agent.remembered import Remembered
from fairlead.agent.reports import answered, reports_of
from fairlead.agent.settings import AgentSettings, NodeDeclaration
from fairlead.agent.slot import Slot
from fairlead.decide.instances import Stop, Wait
from fairlead.decide.lasting import GrantWord
from fairlead.model import codec
from fairlead.model.commands import Refused
from fairlead.model.ids import revision
from fairlead.model.kinds.intent import Template
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Binding, BindingSpec, BindingStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata


def life(name: str, epoch: int) -> Slot:
    return Slot(InstanceId("risk", name, Token(1, epoch, 1)), "n1")


def test_the_lives_of_a_slot_are_its_own_and_go_one_by_one() -> None:
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
    first, second, other = (node.add(life(*which)) for which in (("api-0", 1), ("api-0", 2), ("api-1", 1)))
    assert node.lives_of(("risk", "api-0")) == [first, second]
    node.remove(first)
    node.remove(first)
    assert node.lives_of(("risk", "api-0")) == [second]
    node.remove(second)
    assert node.lives_of(("risk", "api-0")) == []
    assert list(node.slots.values()) == node.lives_of(("risk", "api-1")) == [other]


def test_what_is_exclusive_everywhere_may_run_as_long_as_the_shorter_of_both_leases() -> None:
    settings = AgentSettings(node_lease_s=15.0, kill_s=1.0)
    node = Node(NodeDeclaration("n1", "r"), settings, Remembered(), 0.0)
    here, everywhere = life("api-0", 1), life("api-1", 1)
    here.exclusive, everywhere.exclusive = "region", "global"

    def until(left_s: float | None, sent: float, incarnation: int = 1) -> tuple[float, float]:
        node.listed_in = incarnation
        assert node.heard(Ack(incarnation, 1, global_valid_s=left_s), sent, sent)
        return round(node.until(here), 3), round(node.until(everywhere), 3)

    assert until(0.0, 0.0) == (13.85, -1.0)
    assert until(5.0, 10.0) == (23.85, 13.95), "from when it was sent, by a clock that may be slow"
    assert until(100.0, 20.0) == (33.85, 33.85)
    assert until(0.0, 21.0, 2) == (34.85, 20.0), "in another history nothing that was promised counts"
    assert until(None, 22.0, 2) == (35.85, 35.85), "a region without a global plane"


def test_another_history_is_noticed_when_the_first_word_of_it_could_not_be_written_down() -> None:
    """Simulator, seed 1200027: a disk that was broken when a new incarnation began. The inventory was never told again, so that
    nothing that runs once was bound in the region any more; and what had moved in lost history would have been started here."""

    class Disk:
        broken = False

        def read(self) -> bytes | None:
            return None

        def write(self, data: bytes, *, durable: bool) -> None:
            if self.broken:
                raise OSError("no space left")

    disk = Disk()
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(disk), 0.0)
    assert node.heard(Ack(1, 1), 0.0, 0.0)
    node.registered = node.synced = node.confirmed = node.listed = True
    disk.broken = True
    assert not node.heard(Ack(2, 1), 5.0, 5.0)
    assert not node.confirmed, "it is told why what runs once ends here"
    node.confirmed = True
    disk.broken = False
    assert node.heard(Ack(2, 1), 10.0, 10.0)
    assert node.needs_handshake
    assert [node.synced, node.confirmed, node.listed] == [False] * 3
    assert node.sole_at > 25.0, "counted from the first word that counts"
    node.synced = node.confirmed = node.listed = True
    assert node.heard(Ack(2, 2), 15.0, 15.0)
    assert not node.needs_handshake, "once for each history"


def test_an_acknowledgement_counts_as_long_as_the_region_says_and_so_it_is_after_a_restart(tmp_path: Path) -> None:
    settings, kept = AgentSettings(node_lease_s=15.0, kill_s=1.0), tmp_path / "state"
    node = Node(NodeDeclaration("n1", "r"), settings, Remembered(kept), 0.0)
    here = life("api-0", 1)
    here.exclusive, node.listed_in = "region", 1
    assert node.heard(Ack(1, 1, lease_s=10.0, longest_s=30.0), 0.0, 0.0)
    assert round(node.until(here), 3) == 8.9, "not the fifteen it was configured with: the region waits for ten"
    assert round(node.sole_at, 3) == 32.3, "another agent of this node may have been told thirty"
    assert Node(NodeDeclaration("n1", "r"), settings, Remembered(kept), 0.0).lease_s == 10.0
    assert node.heard(Ack(1, 2, lease_s=20.0), 5.0, 5.0)
    assert round(node.until(here), 3) == 23.8
    assert node.heard(Ack(1, 3), 6.0, 6.0)
    assert round(node.until(here), 3) == 24.8, "a server that does not say so leaves it as it was told"


class Seen(msgspec.Struct):
    """A binding as the feed tells of it."""

    tenant: str
    name: str
    position: int
    raw: bytes


def bound(name: str, position: int, until: datetime | None) -> Seen:
    spec = BindingSpec(SlotRef("u", "api", 0), "n1", Token(1, position, 1), 1, provisional_until_time=until)
    binding = Binding(metadata=Metadata(name=name, namespace="risk"), spec=spec)
    return Seen("risk", name, position, codec.encode(binding))


def test_what_is_provisional_lasts_as_the_region_says_until_it_says_that_it_stays() -> None:
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(kill_s=1.0), Remembered(), 0.0)
    node.in_history(revision(1, 1))
    until = datetime(2026, 1, 1, tzinfo=UTC)
    for name, position, when in (("api-0", 5, None), ("api-1", 6, until), ("api-2", 8, until)):
        node.saw_binding(bound(name, position, when))  # type: ignore[arg-type]
    stays, early, late = node.slots.values()
    assert [slot.provisional for slot in (stays, early, late)] == [False, True, True]
    assert early.lasts == -math.inf, "nobody has said that there is a lease"
    above = GrantWord(9, 50.0, {"risk": 20.0})
    assert node.settle(Ack(1, 1, grants=above), 100.0) == [early, late]
    assert early.lasts == late.lasts == 100.0 + 20.0 * 0.99 - 1.0
    assert node.settle(Ack(1, 1, grants=above), 100.0) == [], "and nothing new"
    assert node.settle(Ack(1, 1), 101.0) == []
    within = GrantWord(7, 50.0, {})
    assert node.settle(Ack(2, 1, grants=within), 102.0) == [early, late]
    assert early.provisional, "positions of another history say nothing of it"
    assert early in node.settle(Ack(1, 1, grants=within), 103.0)
    assert (early.provisional, late.provisional, list(node.provisional)) == (False, True, [late.id])
    assert early.binding is not None
    again = Seen("risk", "api-1", 9, codec.encode(early.binding))
    node.saw_binding(again)  # type: ignore[arg-type]
    assert not early.provisional, "it was said once, and stays so"
    last = node.saw_binding(bound("api-3", 10, until))[0]
    assert last.provisional
    assert last.binding is not None
    confirmed = replace(last.binding, spec=replace(last.binding.spec, provisional_until_time=None))
    assert node.saw_binding(Seen("risk", "api-3", 11, codec.encode(confirmed))) == [last]
    assert (last.provisional, list(node.provisional)) == (False, [late.id]), "it is written down that it stays"
    node.settle(Ack(1, 1, grants=GrantWord(12, 50.0, {"risk": 20.0})), 104.0)
    assert not last.provisional, "whatever its tenant uses by now"
    late.phase = "running"
    node.lease_until = node.global_until = late.lasts + 60.0
    assert not node.overdue(late.lasts - 0.1)
    assert node.overdue(late.lasts), "no heartbeat counts while it is still there"


# --- after its region has lost the end of its history ------------------------------------------------------------------------


def listed(state: SlotState) -> Any:
    spec = BindingSpec(slot=SlotRef(workload="api", uid="w1", index=0), node="n1", token=Token(1, 1, 1), generation=1)
    bound = Binding(Metadata(name="api-0", namespace="risk"), spec, BindingStatus(state=state))
    return SimpleNamespace(tenant="risk", name="api-0", position=7, raw=codec.encode(bound))


def knows_better() -> Node:
    """Of a slot whose second life it saw bound, in batches that its region no longer has."""
    remembered = Remembered()
    remembered.see("risk", "api-0", Token(1, 2, 1))
    return Node(NodeDeclaration("n1", "r"), AgentSettings(), remembered, 0.0)


def test_what_drains_in_an_older_life_than_was_seen_is_said_to_be_gone_once_no_life_of_it_is_there() -> None:
    node = knows_better()
    (slot,) = node.saw_listing(revision(1, 9), [listed(SlotState.DRAINING)])
    assert node.refused_tokens == 1
    later = node.add(life("api-0", 2))
    later.phase = "running"
    assert reports_of(node, slot, 0.0) == [], "whoever hears that it left may start it elsewhere"
    later.phase = "ended"
    assert [said.to for said in reports_of(node, slot, 0.0)] == [SlotState.RELEASED]


def test_nothing_is_believed_of_an_older_life_than_was_seen_where_no_leader_lists_it() -> None:
    node = knows_better()
    assert node.saw_binding(listed(SlotState.DRAINING)) == []
    assert node.bound == {}


@pytest.mark.parametrize("state", [SlotState.BOUND, SlotState.STARTING, SlotState.READY, SlotState.SERVING])
def test_what_its_leader_lists_in_an_older_life_than_was_seen_is_not_started_and_said_to_be_over(state: SlotState) -> None:
    node = knows_better()
    (slot,) = node.saw_listing(revision(1, 9), [listed(state)])
    node.synced, node.lease_until = True, 100.0
    assert isinstance(node.decide(slot, 0.0), Wait)
    later = node.add(life("api-0", 2))
    later.phase = "running"
    assert reports_of(node, slot, 0.0) == [], "whoever hears that it is over may start it elsewhere"
    later.phase = "ended"
    assert [said.to for said in reports_of(node, slot, 0.0)][-1] is SlotState.FAILED


def test_an_older_life_that_is_still_there_is_ended_before_anything_is_said_of_it() -> None:
    node = knows_better()
    older = node.add(life("api-0", 1))
    older.phase, older.verdict = "running", ""
    node.saw_listing(revision(1, 9), [listed(SlotState.SERVING)])
    node.synced, node.lease_until = True, 100.0
    assert isinstance(node.decide(older, 0.0), Stop)
    assert reports_of(node, older, 0.0) == []
    older.phase, older.verdict = "ended", "again"  # as what was asked to end
    assert isinstance(node.decide(older, 0.0), Wait), "and never again"
    assert [said.to for said in reports_of(node, older, 0.0)] == [SlotState.FAILED]


def test_a_slot_that_drains_only_after_its_older_life_was_listed_leaves() -> None:
    """Simulator, seed 32 of `tails`: listed as Serving, it was refused, and then again for ever."""
    node = knows_better()
    node.saw_listing(revision(1, 9), [listed(SlotState.SERVING)])
    draining = listed(SlotState.DRAINING)
    draining.position = 10
    (slot,) = node.saw_binding(draining)
    assert [said.to for said in reports_of(node, slot, 0.0)] == [SlotState.RELEASED]


def test_a_refusal_that_was_long_under_way_says_nothing_of_what_was_heard_since() -> None:
    """Simulator, seed 3 of `lingering`: it was Unknown, and drained again when the refusal came; an Unknown slot says nothing."""
    node = knows_better()
    (slot,) = node.saw_listing(revision(1, 9), [listed(SlotState.DRAINING)])
    (said,) = reports_of(node, slot, 0.0)
    since = listed(SlotState.DRAINING)
    since.position = 10
    node.saw_binding(since)
    refused = Refused("NoSuchStep", "", {"state": "Unknown"})
    assert answered(said, refused), "it is said again"
    bound = node.current(slot)
    assert bound is not None
    assert bound.state is SlotState.DRAINING
    (again,) = reports_of(node, slot, 0.0)
    assert answered(again, refused)
    assert bound.state.value == "Unknown", "nothing was heard since"


# --- after an agent of the same name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("execution", ["Exclusive", "Replicated"])
def test_what_drains_and_runs_alone_is_not_said_to_be_gone_while_an_earlier_agent_may_still_run_it(execution: str) -> None:
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
    spec = BindingSpec(SlotRef("api", "w1", 0), "n1", Token(1, 1, 1), 1, execution=execution)  # type: ignore[arg-type]
    binding = Binding(Metadata(name="api-0", namespace="risk"), spec, BindingStatus(state=SlotState.DRAINING))
    (slot,) = node.saw_listing(
        revision(1, 9), [SimpleNamespace(tenant="risk", name="api-0", position=7, raw=codec.encode(binding))]
    )
    slot.doubtful = True  # as the handshake finds it: bound here before this session, and not running
    node.sole_at = 20.0
    gone = [SlotState.RELEASED]
    assert [said.to for said in reports_of(node, slot, 19.9)] == ([] if execution == "Exclusive" else gone)
    assert [said.to for said in reports_of(node, slot, 20.0)] == gone


@pytest.mark.parametrize("execution", ["Exclusive", "Replicated"])
def test_what_failed_here_and_runs_alone_is_not_said_to_have_failed_while_another_agent_may_run_it_again(execution: str) -> None:
    """It ended here, another agent of the node's name began it anew, and this one is back: whoever hears that it failed starts it
    elsewhere at once (S12)."""
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(), Remembered(), 0.0)
    slot = node.add(life("api-0", 1))
    slot.adopt(1, {}, Template(command=("serve",), restart_policy="Never"), 0.0)
    slot.end(Exit(3, "exited"), 1.0)
    spec = BindingSpec(SlotRef("api", "w1", 0), "n1", Token(1, 1, 1), 1, execution=execution)  # type: ignore[arg-type]
    for at, (state, told) in enumerate(((SlotState.STARTING, SlotState.FAILED), (SlotState.UNKNOWN, None)), 7):
        binding = Binding(Metadata(name="api-0", namespace="risk"), spec, BindingStatus(state=state))
        change = SimpleNamespace(tenant="risk", name="api-0", position=at, raw=codec.encode(binding))
        assert node.saw_listing(revision(1, 9), [change]) == [slot]
        slot.doubtful, node.sole_at = True, 20.0
        assert [said.to for said in reports_of(node, slot, 19.9)] == ([] if execution == "Exclusive" else [told])
        assert [said.to for said in reports_of(node, slot, 20.0)] == [told]


def test_an_agent_that_comes_again_counts_no_restart_against_a_slot_that_may_be_weeks_old() -> None:
    def verdicts(runs: int, max_restarts: int) -> list[str]:
        """Of a slot adopted in its so-manieth run, after each crash of half a minute."""
        found, now = life("api-0", 1), 0.0
        out: list[str] = []
        found.adopt(runs, {}, Template(command=("serve",), max_restarts=max_restarts), now)
        while "failed" not in out:
            now += 30.0
            found.end(Exit(1, "exited"), now)
            out.append(found.verdict)
            found.begin(now, 0)
        return out

    assert verdicts(7, 5) == ["again", "failed"]
    assert verdicts(2, 5) == ["again"] * 4 + ["failed"]
    assert verdicts(1, 1) == ["again", "failed"]
    assert verdicts(3, 0) == ["failed"]


def test_a_lease_counts_from_when_the_heartbeat_was_sent_not_from_when_its_answer_came() -> None:
    settings = AgentSettings(node_lease_s=10.0, kill_s=1.0)
    node = Node(NodeDeclaration("n1", "r"), settings, Remembered(), 0.0)
    node.listed_in = 1
    assert node.heard(Ack(1, 1), 100.0, 107.0)
    ends = 100.0 + 10.0 * (1 - settings.clock_rate_error) - 1.0
    assert (node.lease_until, node.global_until) == (ends, ends)
    assert node.heard(Ack(1, 1, global_valid_s=4.0), 101.0, 109.0)
    assert node.lease_until == 101.0 + 10.0 * (1 - settings.clock_rate_error) - 1.0
    assert node.heard_at == 101.0
