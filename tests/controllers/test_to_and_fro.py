"""What the workload controller does when overflow and recovery move a workload's slots to and fro: overflow is held back for it,
and what recovery orders goes on."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.controllers.contested import contested
from fairlead.controllers.overflowing import Overflowing, Where
from fairlead.decide.assigning import RegionFacts
from fairlead.decide.oscillation import Fight, Oscillation
from fairlead.decide.slots import instant
from fairlead.decide.spans import indices, size, spans_of
from fairlead.model.commands import Delete, Put
from fairlead.model.kinds.intent import PendingReason, StageCounts
from fairlead.model.kinds.recovery import RecoveryOrder, RecoveryOrderSpec
from fairlead.model.kinds.work import Assignment, AssignmentStatus
from fairlead.model.meta import Metadata
from tests.controllers.test_given import World

MINUTE_MS = 60_000
KEY = ("t", "api")


class Moving(World):
    """A service of four slots, two in each of two regions, which do as they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.fights = Oscillation("workload")
        self.found: list[Fight] = []
        self.now_ms = MINUTE_MS
        self.workload("api")
        self.pass_(0)

    def order(self, region: str) -> Assignment:  # type: ignore[override]
        found: Assignment = self.view.cache.get("assignments", "t", f"api.{region}")
        return found

    def pass_(self, minutes: float) -> None:
        """What the runtime does with a look, once time has passed."""
        self.now_ms += int(minutes * MINUTE_MS)
        for body in self.controller.reconcile(KEY, self.view, self.now_ms).bodies:
            if isinstance(body, Put) and body.kind == "Assignment":
                old = self.view.cache.get("assignments", "t", body.object.metadata.name)
                fight = contested(self.fights, self.view, KEY, body, self.now_ms)
                self.found += [fight] if fight is not None else []
                generation = old.metadata.generation + 1 if old is not None else 1
                self.put("assignments", replace(body.object, metadata=replace(body.object.metadata, generation=generation)))
            assert not isinstance(body, Delete)

    def says(self, region: str, waits: int = 0, given: tuple[int, ...] = ()) -> None:
        found = self.order(region)
        bound = size(found.spec.slots) - waits - len(given)
        why = (PendingReason(reason="WaitingForCapacity", count=waits, since_time=instant(0)),) if waits else ()
        status = AssignmentStatus(
            found.metadata.generation, replicas=StageCounts(bound=bound, serving=bound, pending=waits), pending=why,
            given_up=spans_of(given),
        )  # fmt: skip
        self.put("assignments", replace(found, status=status))

    def stands_in(self, region: str, count: int) -> None:
        spec = RecoveryOrderSpec("api", "u-api", regions={region: count} if count else {}, lost=("c",))
        self.put("recoveryorders", RecoveryOrder(Metadata(name="api", namespace="t"), spec))
        self.pass_(0)

    def overflows(self, from_: str, to: str) -> bool:
        """One slot finds no place where it is. False: nobody asked for it."""
        for region in (from_, to):
            self.says(region, waits=region == from_)
        self.pass_(0)
        self.pass_(2)
        if not self.order(from_).spec.give_up:
            return False
        given = list(indices(self.order(from_).spec.slots))[-1]
        self.says(from_, given=(given,))
        self.pass_(0)
        for region in (from_, to):
            self.says(region)
        return True


def test_two_who_move_slots_to_and_fro_are_noticed_and_named_and_overflow_is_to_wait() -> None:
    w = Moving()
    assert [size(w.order(region).spec.slots) for region in "ab"] == [2, 2]
    for from_, to in (("a", "b"), ("b", "a")):
        w.stands_in("a", 2)
        w.stands_in("a", 0)
        assert w.found == []
        assert w.overflows(from_, to)
        w.pass_(21)  # a cool-down, and its double
    (fight,) = w.found
    assert fight.words == "overflow and recovery move slots of Workload t/api to and fro between regions"
    assert w.fights.total == 1
    assert w.view.moves_held == {KEY: fight.until_ms}
    assert w.fights.damped_until_ms(KEY, fight.until_ms - 1) == 0, "all else about this workload goes on"


def test_while_it_is_held_back_nothing_is_asked_for_and_what_recovery_orders_is_given() -> None:
    w = Moving()
    w.view.moves_held[KEY] = w.now_ms + 10 * MINUTE_MS
    assert not w.overflows("a", "b"), "it waits where it is"
    w.stands_in("b", 2)
    assert w.order("b").spec.recovery is not None, "what somebody lacks is ordered all the same"
    w.stands_in("b", 0)
    w.pass_(10)
    assert w.overflows("a", "b"), "and then it goes on"


def test_one_that_was_asked_before_is_not_kept_from_answering() -> None:
    w = Moving()
    w.says("a", waits=1)
    w.says("b")
    w.pass_(0)
    w.pass_(2)
    assert w.order("a").spec.give_up == 1
    w.view.moves_held[KEY] = w.now_ms + 10 * MINUTE_MS
    w.pass_(0)
    assert w.order("a").spec.give_up == 1


def test_when_the_wait_is_over_it_is_looked_at_again() -> None:
    w = Moving()
    w.says("a", waits=1)
    w.says("b")
    facts = {name: RegionFacts(name, frozenset(), True, 9) for name in "ab"}
    where = Where(facts, frozenset(facts), frozenset(), lambda region: False)
    orders, until_ms = [w.order("a"), w.order("b")], w.now_ms + 10 * MINUTE_MS
    found = Overflowing().look(w.workload("api"), orders, where, 1000, w.now_ms, until_ms)
    assert (found.asks, found.wake_ms) == ({}, until_ms)
