"""B1 to B4 (B5: test_suspected.py): what components that decide by themselves promise, asked of forged journals. Each promise is
kept once and broken once, so that a checker which asks nothing fails here."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from fairlead.model.commands import Delete
from fairlead.model.kinds.capacity import DrainOrder, Node, NodePool, NodePoolSpec, NodePoolStatus, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import (
    Autoscaler,
    AutoscalerSpec,
    AutoscalerStatus,
    PendingReason,
    StageCounts,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from fairlead.model.kinds.policy import (
    Canary,
    Defragmentation,
    PolicyChannel,
    PolicyChannelSpec,
    SchedulerPolicy,
    SchedulerPolicySpec,
)
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import (
    Ask,
    Assignment,
    AssignmentSpec,
    EvictionRequest,
    EvictionRequestSpec,
    EvictionRequestStatus,
    SchedulingRequestStatus,
    SlotRange,
)
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Condition
from fairlead.model.resources import Resources
from tests.observe.forging import BASE, T0, Effect, Forged, binding, by, gone, lease, named, request

WROTE = Delete("Workload", "risk", "x")  # what was sent is not looked at here
SCALER, POLICY, PEOPLE, DISRUPTION = by(Role.AUTOSCALER), by(Role.POLICY), by(Role.QUOTA), by(Role.DISRUPTION)
DONE = Condition(type="Done", status="True", reason="Evicted", observed_generation=1)
ROLES = (lease(Role.AUTOSCALER), lease(Role.POLICY))


# --- B1: replicas ------------------------------------------------------------------------------------------------------------


def service(replicas: int, serving: int, generation: int = 1, pending: str = "", **spec: Any) -> Effect:
    waits = (PendingReason(reason=pending, count=1),) if pending else ()
    status = WorkloadStatus(observed_generation=1, replicas=StageCounts(serving=serving), pending=waits)
    meta = replace(named("api", "risk", "u"), generation=generation)
    return "workloads/risk/api", Workload(meta, WorkloadSpec(replicas=replicas, **spec), status)


def scaler(wanted: int = 0, most: int = 6) -> Effect:
    spec = AutoscalerSpec("api", most, min_replicas=2, up_wait_seconds=20.0, down_window_seconds=60.0)
    following = Condition(type="Scaling", status="True", reason="Following", observed_generation=1)
    return "autoscalers/risk/api", Autoscaler(
        named("api", "risk"), spec, AutoscalerStatus(wanted=wanted, conditions=(following,))
    )


def scaled(before: Effect, after: Effect, at_s: float = 0) -> Forged:
    return Forged(*BASE, *ROLES, scaler(), before, bounds=True).entry(SCALER, WROTE, after, at_s=at_s)


def test_replicas_are_added_within_bounds_where_those_ordered_before_serve() -> None:
    fine = scaled(service(4, 4), service(5, 4))
    assert fine.found == [], fine.details
    assert fine.checker.checked["B1/up"] == 1
    assert scaled(service(4, 4), service(7, 4)).found == ["B1"], "beyond its maximum"
    assert scaled(service(4, 2), service(5, 2)).found == ["B1"], "two are on their way, and one may be"
    assert scaled(service(1, 0), service(2, 0)).found == [], "a bound holds at once, whatever serves"
    assert scaled(service(4, 4, generation=2), service(5, 4, generation=2)).found == ["B1"], "its counts are older"
    assert scaled(service(4, 4, pending="WaitingForQuota"), service(5, 4)).found == ["B1"], "no capacity cures that"
    assert scaled(service(4, 4, pending="WaitingForCapacity"), service(5, 4)).found == []


def test_an_autoscaler_sets_nothing_but_replicas_and_only_of_what_it_is_for() -> None:
    assert scaled(service(4, 4), service(5, 4, suspend=True)).found == ["B1"]
    alone = Forged(*BASE, *ROLES, service(4, 4), bounds=True).entry(SCALER, WROTE, service(5, 4))
    assert alone.found == ["B1"]
    by_hand = Forged(*BASE, *ROLES, scaler(), service(4, 4), bounds=True).entry(PEOPLE, WROTE, service(40, 4))
    assert "B1" not in by_hand.found, "people may order what they like"


def test_replicas_are_not_added_again_before_the_wait_is_over() -> None:
    once = scaled(service(3, 3), service(4, 3))
    once.entry(PEOPLE, WROTE, service(4, 4), at_s=5)
    assert once.entry(SCALER, WROTE, service(5, 4), at_s=10).passes(11, 12).found == ["B1"]
    later = scaled(service(3, 3), service(4, 3)).entry(PEOPLE, WROTE, service(4, 4), at_s=5)
    assert later.entry(SCALER, WROTE, service(5, 4), at_s=20).passes(21, 22).found == []


def test_replicas_go_down_to_the_most_that_was_wanted_in_the_window() -> None:
    def wanted(*amounts: int) -> Forged:
        forged = Forged(*BASE, *ROLES, scaler(), service(5, 5), bounds=True)
        for at_s, amount in enumerate(amounts):
            forged.entry(SCALER, WROTE, scaler(amount), at_s=at_s * 10)
        return forged.entry(SCALER, WROTE, service(3, 5), at_s=len(amounts) * 10).passes(len(amounts) * 10 + 1, 100)

    assert wanted(2, 3, 2, 2, 2, 2, 2).found == []
    assert wanted(2, 3, 2, 4, 2, 2, 2).found == ["B1"], "four were wanted forty seconds ago"
    assert wanted(2, 3, 2).found == ["B1"], "the load is not known for a minute"


# --- B2: pools ---------------------------------------------------------------------------------------------------------------


def pool(*ordered: str, most: int = 2, least: int = 0) -> Effect:
    spec = NodePoolSpec(
        provider="x", min_nodes=least, max_nodes=most, node=Resources(1000, 1 << 30), up_wait_seconds=20.0, idle_seconds=30.0
    )
    return "nodepools//burst", NodePool(named("burst"), spec, NodePoolStatus(ordered=ordered))


def pooled(name: str, *, closed: bool = False, health: Any = "Ready") -> Effect:
    spec = NodeSpec(region="r", pool="burst", allocatable=Resources(1000, 1 << 30), unschedulable=closed)
    meta = replace(named(name), annotations={"fairlead.dev/scaled-down": "true"} if closed else {})
    return f"nodes//{name}", Node(meta, spec, NodeStatus(schedulable=True, health=health))


def waits(reason: str, index: int = 0) -> Effect:
    path, one = request(index)
    return path, replace(one, status=SchedulingRequestStatus(reason=reason))


def fleet(*rows: Effect) -> Forged:
    return Forged(*BASE, *ROLES, *rows, bounds=True)


def test_nodes_are_ordered_for_what_waits_for_them_and_for_nothing_else() -> None:
    fine = fleet(pool(), waits("WaitingForCapacity")).entry(SCALER, WROTE, pool("b-1"))
    assert fine.found == [], fine.details
    assert fine.checker.checked["B2/up"] == 1
    assert fleet(pool(), waits("WaitingForQuota")).entry(SCALER, WROTE, pool("b-1")).found == ["B2"]
    assert fleet(pool(), waits("WaitingForCapacity")).entry(SCALER, WROTE, pool("b-1", "b-2")).found == ["B2"], "one waits"
    assert fleet(pool(least=1)).entry(SCALER, WROTE, pool("b-1", least=1)).found == [], "so many are had whatever waits"
    left = fleet(pool(), waits("WaitingForCapacity")).entry(PEOPLE, WROTE, gone(waits("")), at_s=1)
    assert left.entry(SCALER, WROTE, pool("b-1"), at_s=3).found == [], "it waited when that was decided"
    late = fleet(pool(), waits("WaitingForCapacity")).entry(PEOPLE, WROTE, gone(waits("")), at_s=1)
    assert late.passes(5, 30).entry(SCALER, WROTE, pool("b-1"), at_s=30).found == ["B2"]


def test_a_pool_has_no_more_nodes_than_it_may_those_on_their_way_out_counted() -> None:
    two = (waits("WaitingForCapacity", 0), waits("WaitingForCapacity", 1))
    full = fleet(pool("b-1"), pooled("b-1"), pooled("b-0", closed=True), *two)
    assert full.entry(SCALER, WROTE, pool("b-1", "b-2")).found == ["B2"]
    changed = fleet(pool("b-1", most=3), pooled("b-1"), pooled("b-0", closed=True), *two)
    changed.entry(PEOPLE, WROTE, pool("b-1", most=1), at_s=0)
    assert changed.entry(SCALER, WROTE, pool("b-1", "b-2", most=1), at_s=2).found == [], "people changed it a moment ago"


def test_nodes_are_not_ordered_again_before_the_wait_is_over_nor_under_a_name_that_was() -> None:
    def again(name: str, at_s: float) -> list[str]:
        forged = fleet(pool(), waits("WaitingForCapacity")).entry(SCALER, WROTE, pool("b-1"))
        forged.entry(PEOPLE, WROTE, pooled("b-1", closed=True), at_s=0.2)
        forged.entry(SCALER, WROTE, pool(), at_s=0.5).entry(SCALER, WROTE, pool(name), at_s=at_s)
        return forged.passes(int(at_s) + 1, int(at_s) + 2).found

    assert again("b-2", 10) == ["B2"]
    assert again("b-2", 20) == []
    assert again("b-1", 20) == ["B2"]


def test_a_node_is_closed_when_it_was_empty_for_long_and_let_go_when_it_is_closed_and_empty() -> None:
    def emptied(at_s: float) -> Forged:
        forged = fleet(pool("b-1"), pooled("b-1"), binding(on="b-1"))
        forged.entry(PEOPLE, WROTE, gone(binding(on="b-1")), at_s=20)
        return forged.entry(SCALER, WROTE, pooled("b-1", closed=True), at_s=at_s).passes(int(at_s) + 1, int(at_s) + 2)

    assert "B2" in emptied(30).found
    closed = emptied(55)
    assert "B2" not in closed.found
    assert "B2" not in closed.entry(SCALER, WROTE, pool(), at_s=65).found
    assert closed.checker.checked["B2/down"] == 1
    assert fleet(pool("b-1"), pooled("b-1")).entry(SCALER, WROTE, pool()).found == ["B2"], "it was not closed"
    used = fleet(pool("b-1"), pooled("b-1", closed=True), binding(on="b-1")).entry(SCALER, WROTE, pool())
    assert used.found == ["B2"]
    few = fleet(pool("b-1", least=1), pooled("b-1", closed=True)).entry(SCALER, WROTE, pool(least=1))
    assert few.found == ["B2"], "one must be there"
    busy = (
        fleet(pool("b-1"), pooled("b-1"), binding(on="b-1"))
        .passes(5, 25)
        .entry(SCALER, WROTE, pooled("b-1", closed=True), at_s=99)
    )
    assert busy.found == ["B2"]
    lately = fleet(pool("b-1"), pooled("b-1")).entry(SCALER, WROTE, binding(on="b-1"), at_s=60)
    assert "B2" not in lately.entry(SCALER, WROTE, pooled("b-1", closed=True), at_s=61).found, "it was looked at before that"
    waited = fleet(pool("b-1"), pooled("b-1")).entry(SCALER, WROTE, binding(on="b-1"), at_s=60).passes(70, 80)
    assert "B2" not in waited.entry(SCALER, WROTE, pooled("b-1", closed=True), at_s=80).found, "three batches may be under way"
    waited = fleet(pool("b-1"), pooled("b-1")).entry(SCALER, WROTE, binding(on="b-1"), at_s=60).passes(65, 80)
    assert "B2" in waited.entry(SCALER, WROTE, pooled("b-1", closed=True), at_s=80).found
    many = fleet(pool("b-1", most=0), pooled("b-1"), binding(on="b-1")).entry(SCALER, WROTE, pooled("b-1", closed=True), at_s=99)
    assert many.found == [], "there are more than there may be"


def test_what_has_not_registered_goes_when_its_time_is_over_and_not_before_unless_there_are_too_many() -> None:
    def let_go(at_s: float, *came: Effect, **now: int) -> list[str]:
        forged = fleet(pool(), waits("WaitingForCapacity")).entry(SCALER, WROTE, pool("b-1"))
        forged.entry(PEOPLE, WROTE, pool("b-1", **now), *came, at_s=1)
        return forged.entry(SCALER, WROTE, pool(**now), at_s=at_s).found

    assert let_go(181) == []
    assert let_go(181, least=1) == [], "one must be there, and this one is not"
    assert let_go(100) == ["B2"]
    assert let_go(100, most=0) == []
    assert let_go(100, pooled("b-1", closed=True)) == []


def test_what_does_not_come_is_not_ordered_for_ever_and_another_may_be_ordered_in_its_stead() -> None:
    def looked(at_s: float, *nodes: Effect) -> list[str]:
        forged = fleet(pool(), waits("WaitingForCapacity")).entry(SCALER, WROTE, pool("b-1"))
        if nodes:
            forged.entry(PEOPLE, WROTE, *nodes, at_s=1)
        return forged.entry(SCALER, WROTE, pool("b-1"), at_s=at_s).found

    approved = Node(named("b-1"), NodeSpec(region="r", pool="burst"))
    closed = replace(approved, metadata=replace(named("b-1"), annotations={"fairlead.dev/scaled-down": "true"}))
    assert looked(190) == [], "two looks see to it"
    assert looked(200) == ["B2"]
    assert looked(200, ("nodes//b-1", approved)) == ["B2"]
    assert looked(200, ("nodes//b-1", closed)) == [], "it is about to go"
    assert looked(200, pooled("b-1")) == [], "it has come"

    def again(at_s: float) -> list[str]:
        forged = fleet(pool(least=1)).entry(SCALER, WROTE, pool("b-1", least=1))
        return forged.entry(SCALER, WROTE, pool("b-1", "b-2", least=1), at_s=at_s).found

    assert again(100) == ["B2"]
    assert again(190) == [], "one must be there"


def test_nobody_at_work_goes_before_those_that_have_not_come() -> None:
    def drained(*there: str, most: int) -> list[str]:
        rows = [pooled(name) for name in there]
        ordered = ("b-1", "b-2", "b-3")
        forged = fleet(pool(*ordered, most=3), *rows, binding(on="b-1")).passes(5, 25)
        forged.entry(PEOPLE, WROTE, pool(*ordered, most=most), at_s=80)
        return forged.entry(SCALER, WROTE, pooled("b-1", closed=True), at_s=99).found

    assert drained("b-1", "b-2", "b-3", most=2) == []
    assert drained("b-1", "b-2", most=2) == ["B2"], "the third has not come"
    assert drained("b-1", "b-2", most=1) == []


# --- B3: canaries ------------------------------------------------------------------------------------------------------------


def channel(current: int = 1, *, tried: int = 0, ttl_s: int = 60) -> Effect:
    canary = Canary(tried, share_percent=100, ttl_seconds=ttl_s) if tried else None
    return "policychannels//default", PolicyChannel(named("default"), PolicyChannelSpec(current, canary))


def test_a_canary_has_its_time_and_is_taken_back_after_it_and_nothing_else_is_changed() -> None:
    def taken_back(at_s: float, after: Effect = channel()) -> list[str]:  # noqa: B008  a value, and never changed
        forged = fleet(channel()).entry(PEOPLE, WROTE, channel(tried=2), at_s=0)
        return forged.entry(POLICY, WROTE, after, at_s=at_s).passes(int(at_s) + 1, int(at_s) + 2).found

    assert taken_back(60) == []
    assert taken_back(30) == ["B3"]
    assert taken_back(60, channel(2)) == ["B3"], "promoting is for people"
    longer = (
        fleet(channel()).entry(PEOPLE, WROTE, channel(tried=2), at_s=0).entry(PEOPLE, WROTE, channel(tried=2, ttl_s=90), at_s=40)
    )
    assert longer.entry(POLICY, WROTE, channel(), at_s=70).passes(71, 72).found == ["B3"], "ordered otherwise it begins anew"


def test_what_was_early_when_its_batch_began_may_have_been_decided_until_the_next_one_did() -> None:
    def taken_back(next_s: int, *, anew: bool = False) -> list[str]:
        forged = fleet(channel()).entry(PEOPLE, WROTE, channel(tried=2), at_s=0).entry(POLICY, WROTE, channel(), at_s=40)
        assert forged.found == [], "when it was decided is not known yet"
        if anew:
            forged.epoch += 1
        return forged.passes(next_s, next_s + 30).found

    assert taken_back(54) == ["B3"]
    assert taken_back(56) == [], "five seconds may pass from a look until what follows from it is judged"
    assert taken_back(41, anew=True) == [], "a new leader's time may be behind"


def test_a_canary_that_nobody_takes_back_is_found_while_the_plane_could_write() -> None:
    forged = fleet(channel()).entry(PEOPLE, WROTE, channel(tried=2), at_s=0).passes(5, 145)
    assert forged.found == []
    assert forged.passes(145, 165).found == ["B3"]
    down = fleet(channel()).entry(PEOPLE, WROTE, channel(tried=2), at_s=0).passes(150, 200)
    assert down.found == [], "nobody could write until then"
    path, copy = channel(tried=2)
    mirrored = replace(copy, metadata=replace(copy.metadata, annotations={"fairlead.dev/mirrored-version": "4"}))
    assert fleet().entry(PEOPLE, WROTE, (path, mirrored), at_s=0).passes(5, 300).found == [], "a region keeps what it had"


def order(generation: int = 1, slots: int = 3) -> Effect:
    spec = AssignmentSpec(
        workload="api", workload_uid="u", generation=generation, region="r", slots=(SlotRange(0, slots - 1),), min_serving=0
    )
    return "assignments/risk/api.r", Assignment(named("api.r", "risk"), spec)


def asked(index: int = 0, requester: str = "rollout-controller", at_s: float = 0, revision: int = 0) -> Effect:
    spec = EvictionRequestSpec(
        slot=SlotRef("api", "u", index), reason="x", requester=requester, deadline_time=T0 + timedelta(seconds=at_s + 120),
        epoch=1, policy_revision=revision,
    )  # fmt: skip
    return f"evictionrequests/risk/api-{index}", EvictionRequest(replace(named(f"api-{index}", "risk"), generation=1), spec)


def test_nobody_who_is_fine_is_asked_to_leave() -> None:
    def leaves(*rows: Effect, who: Any = DISRUPTION) -> list[str]:
        return fleet(*rows, binding(generation=1)).entry(who, WROTE, asked(), at_s=60).found

    assert leaves(order()) == ["B3"]
    assert leaves(order(generation=2)) == [], "another generation is wanted"
    assert leaves(order(slots=0)) == [], "it is wanted no longer"
    assert leaves(order(), who=by(Role.SCHEDULER)) == [], "a spread is levelled where its workload asks for it"
    path, node = pooled("n1")
    assert leaves(order(), (path, replace(node, spec=replace(node.spec, drain=DrainOrder(reason="x"))))) == []
    lately = fleet(order(generation=2), binding(generation=1)).entry(PEOPLE, WROTE, order(), at_s=57)
    assert lately.entry(DISRUPTION, WROTE, asked(), at_s=60).found == [], "another one was wanted a moment ago"


def test_a_slot_is_placed_under_the_one_revision_that_decides_for_its_tenant_there() -> None:
    def placed(canary: Canary | None, revision: int) -> list[str]:
        row = ("policychannels//default", PolicyChannel(named("default"), PolicyChannelSpec(1, canary)))
        forged = fleet(row, request())
        return forged.entry(by(Role.SCHEDULER), WROTE, gone(request()), binding(cpu=100, policy_revision=revision)).found

    assert "S6" not in placed(None, 1)
    assert "S6" in placed(None, 2)
    for canary, decides in (
        (Canary(2, tenants=("risk",)), 2),
        (Canary(2, tenants=("search",)), 1),
        (Canary(2, share_percent=94), 1),
        (Canary(2, share_percent=95), 2),
        (Canary(2, regions=("r",)), 2),
        (Canary(2, regions=("other",)), 1),
        (Canary(2, tenants=("risk",), regions=("other",)), 1),
        (Canary(2, share_percent=10, regions=("r",)), 1),
    ):
        assert "S6" not in placed(canary, decides), canary
        assert "S6" in placed(canary, 3 - decides), canary


# --- B4: moves ---------------------------------------------------------------------------------------------------------------


def policy(revision: int = 1, **rules: Any) -> Effect:
    asks = Defragmentation(**rules) if rules else None
    spec = SchedulerPolicySpec(revision=revision, defragmentation=asks)
    return f"schedulerpolicies//r{revision}", SchedulerPolicy(named(f"r{revision}"), spec)


def pieces(*more: Effect, **rules: Any) -> Forged:
    """Two nodes of a thousand: six hundred are used on one, and two hundred on the other; five hundred are asked for."""
    path, waiting = waits("WaitingForCapacity", 9)
    large = (path, replace(waiting, spec=replace(waiting.spec, ask=Ask(requests=Resources(500, 1 << 20)))))
    slots = (binding(0, "n1", 200), binding(1, "n1", 200), binding(2, "n1", 200), binding(3, "n2", 600))
    return fleet(policy(**({"max_moves": 2, "per_hour": 3} | rules)), *slots, large, *more)


def moved(index: int, at_s: float = 0) -> Effect:
    """Its request has ended: it was let go."""
    path, one = asked(index, "defragmenter", at_s, revision=1)
    return path, replace(one, status=EvictionRequestStatus(conditions=(DONE,)))


def test_a_move_that_makes_room_breaks_nothing() -> None:
    fine = pieces().entry(DISRUPTION, WROTE, asked(0, "defragmenter", 10, 1), at_s=10)
    assert fine.found == [], fine.details
    assert (fine.checker.checked["B4"], fine.checker.checked["B4/room"]) == (1, 1)


def test_a_move_that_makes_no_room_or_has_no_place_to_go_is_found() -> None:
    def moves(forged: Forged) -> list[str]:
        return forged.entry(DISRUPTION, WROTE, asked(0, "defragmenter", 10, 1), at_s=10).found

    assert moves(pieces(waits("WaitingForCapacity", 9))) == ["B4"], "what waits fits already"
    assert moves(pieces(waits("WaitingForQuota", 9))) == ["B4"]
    assert moves(pieces(binding(4, "n2", 300))) == ["B4"], "the other node has no room for it"
    busy = pieces(waits("WaitingForQuota", 9)).entry(PEOPLE, WROTE, gone(binding(2)), at_s=9)
    assert "B4" not in moves(busy), "what was so when it was decided is not known"


def test_no_policy_no_moves_and_none_of_what_runs_once() -> None:
    off = fleet(policy(), binding()).entry(DISRUPTION, WROTE, asked(0, "defragmenter", 10, 1), at_s=10)
    assert off.found == ["B4"]
    once = pieces(binding(0, "n1", 200, execution="Exclusive"))
    assert once.entry(DISRUPTION, WROTE, asked(0, "defragmenter", 10, 1), at_s=10).found == ["B4"]
    path, whole = order()
    gang = pieces((path, replace(whole, spec=replace(whole.spec, gang=True))))
    assert gang.entry(DISRUPTION, WROTE, asked(0, "defragmenter", 10, 1), at_s=10).found == ["B4"]


def test_one_plan_at_a_time_until_what_moves_has_a_place_and_nobody_twice_in_an_hour() -> None:
    def again(index: int, *between: Effect, at_s: float = 60) -> list[str]:
        forged = pieces(order()).entry(DISRUPTION, WROTE, asked(0, "defragmenter", 10, 1), at_s=10)
        for effect in between:
            forged.entry(PEOPLE, WROTE, effect, at_s=at_s - 1)
        return forged.entry(DISRUPTION, WROTE, asked(index, "defragmenter", at_s, 1), at_s=at_s).found

    assert again(1) == ["B4"], "the first is on its way"
    left = (moved(0, 10), gone(binding(0)))
    assert "B4" in again(1, *left), "it has no place yet"
    assert "B4" not in again(1, *left, order(slots=0)), "nobody wants it any more"
    back = (*left, binding(0, "n2", 200, uid="next"))
    assert "B4" not in again(1, *back)
    assert "B4" in again(0, *back), "it was moved a minute ago"
    refused = replace(moved(0, 10)[1], status=EvictionRequestStatus(conditions=(replace(DONE, reason="Expired"),)))
    assert "B4" not in again(1, (moved(0)[0], refused)), "it stays"


def test_who_was_moved_is_not_back_on_the_node_it_left_within_ten_seconds() -> None:
    def back(node: str, at_s: int, *, done: Effect | None = None, epoch: int = 2, **more: Any) -> Forged:
        forged = pieces().entry(DISRUPTION, WROTE, asked(0, "defragmenter", 10, 1), at_s=10)
        for effect in (done or moved(0, 10), gone(binding(0)), request(0, epoch=epoch)):
            forged.entry(PEOPLE, WROTE, effect, at_s=20)
        return forged.entry(PEOPLE, WROTE, binding(0, node, 200, uid="next", **more), at_s=at_s).passes(at_s, at_s + 1)

    assert "B4" in back("n1", 29).found
    assert back("n1", 29).checker.checked["B4/back"] == 1
    assert "B4" not in back("n2", 21).found
    assert "B4" not in back("n1", 31).found, "nothing else had room"
    assert "B4" not in back("n1", 21, epoch=3).found, "a later life"
    assert "B4" not in back("n1", 21, claimed="standing-b-0").found, "room that its budget holds"
    assert "B4" not in back("n1", 21, done=asked(0, "rollout-controller", 10)).found, "somebody else asked it to leave"


def test_a_plan_has_as_many_moves_and_an_hour_as_many_as_the_policy_says() -> None:
    def plan(*indices: int, **rules: Any) -> list[str]:
        forged = pieces(**rules)
        return forged.entry(DISRUPTION, WROTE, *(asked(each, "defragmenter", 10, 1) for each in indices), at_s=10).details

    assert plan(0, 1) == []
    assert ["2 moves at a cost" in one for one in plan(0, 1, max_moves=1)] == [True]
    assert ["2th move within an hour" in one for one in plan(0, 1, per_hour=1)] == [True]
    assert plan(0, 3) == ["one plan moves slots of n1, n2"]
