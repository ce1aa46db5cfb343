"""Owns Ready <-> Serving and the Endpoints: admits who is ready, withdraws who is leaving; asks for the eviction of slots that a
rollout replaces; says whether it progresses.

Never drains: it files EvictionRequests, and withdraws traffic once they are approved, before anybody stops. Never queues: which
spare slots a surge needs is what fairlead/decide/rollout.py wants, and the assignment controller queues it. Every region plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Cache, Indexes, Item, Name, workload_of
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import (
    SLOT_INDEXES,
    SLOT_OBJECTS,
    assignment_of,
    endpoints_of,
    served_of,
    slots_of,
    touched_of,
)
from fairlead.controllers.saying import EVERY_MS, GATHER_MS, Saying, is_news
from fairlead.decide.admission import OBJECT_BYTES_MAX
from fairlead.decide.proving import Proof, ServedThroughout
from fairlead.decide.rollout import (
    Progress,
    fitting,
    is_replacing,
    leaving,
    progress,
    serving_steps,
    serving_wanted,
    traffic,
    wanted,
)
from fairlead.decide.slots import Slot, Table, instant, millis
from fairlead.decide.spans import holds, size
from fairlead.model import codec
from fairlead.model.commands import Body, Delete, Move, Put, PutStatus
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import (
    Assignment,
    AssignmentSpec,
    Endpoint,
    Endpoints,
    EndpointsSpec,
    EndpointsStatus,
    EvictionRequest,
    EvictionRequestSpec,
    Instance,
)
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata, set_condition

ENDPOINTS_PER_MS: Final = 10  # Endpoints are written whole: of many, the next write waits until this many could have been
ENDPOINTS_BYTES_MAX: Final = OBJECT_BYTES_MAX - 8 * 1024  # of those it names; the rest is for metadata and status
REQUESTER: Final = Role.ROLLOUT.value
_COMING: Final = (SlotState.BOUND, SlotState.STARTING)


def _order(assignment: Assignment) -> tuple[str, int, bool]:
    meta = assignment.metadata
    return meta.uid, meta.generation, meta.deletion_time is not None


class Sizes:
    """What each endpoint takes, added up as they come and go."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.total = 0

    def put(self, index: int, size: int) -> None:
        self.forget(index)
        self.of[index] = size
        self.total += size

    def forget(self, index: int) -> None:
        self.total -= self.of.pop(index, 0)


class RolloutController:
    name = "rollout"
    follows = ("assignments", "nodes", "endpoints", *SLOT_OBJECTS)
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = SLOT_INDEXES
    indexes_other: Indexes = {}
    hears = False

    def __init__(self) -> None:
        self._saying = Saying()
        self._named: dict[Name, dict[int, Endpoint]] = {}  # of each workload, what its Endpoints say of a slot
        self._named_ms: dict[Name, int] = {}  # when they were written
        self._sizes: dict[Name, Sizes] = {}  # what each of them takes in Endpoints
        self._left_out: dict[Name, int] = {}  # how many are ready and found no room there
        self._orders: dict[
            Name, tuple[str, int, bool]
        ] = {}  # what was looked at last; of assignments the statuses change more often
        self._versions: dict[Name, int] = {}  # of Endpoints, likewise
        self._served: dict[Name, ServedThroughout] = {}  # of workloads that are rolled out: how many serve what is wanted
        self._doubted: dict[Name, set[int]] = {}  # slots that changed since what is said of them was found to be right

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "assignments":
                key = (item.tenant, item.hot.spec.workload)
                return (
                    (key,)
                    if self._orders.get(key) != _order(item.hot) or not view.cache.any("assignments", "workload", key)
                    else ()
                )
            case "endpoints":
                return (item.key,) if self._versions.get(item.key) != item.hot.spec.version else ()
            case "nodes":
                return {workload_of(each): None for each in view.cache.by("bindings", "node", item.name)}
            case _:
                key = workload_of(item)
                return (key,) if self._concerns(view.cache, key, item) else ()

    def _concerns(self, cache: Cache, key: Name, item: Item) -> bool:
        """A slot of the wanted generation on its way to Ready is nothing to look at: most changes are of these."""
        assignment = assignment_of(cache, key)
        if assignment is None or assignment.spec.job is not None:
            return False  # with the assignment comes a look at everything
        order, digits = assignment.spec, item.name.rpartition("-")[2]
        if not digits.isdecimal() or not holds(order.slots, int(digits)):
            return True
        if item.plural == "bindings":
            return item.hot.generation != order.generation or item.hot.state not in _COMING
        if item.plural == "schedulingrequests":
            if item.hot.spec.generation != order.generation:
                return True
            gone = cache.item("schedulingrequests", *item.key) is None  # bound by now, as a rule: then its binding tells
            return not gone and cache.item("bindings", *item.key) is not None
        if item.plural == "instances":
            bound = cache.item("bindings", *item.key)
            return bound is not None and bound.hot.state not in _COMING
        return True

    def resync(self, view: View) -> Iterable[Name]:
        return {(item.tenant, item.hot.spec.workload): None for item in view.cache.all("assignments")}

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        cache = view.cache
        assignment = assignment_of(cache, key)
        if assignment is None or assignment.spec.job is not None:
            self._forget(key)
            return Result()
        self._orders[key] = _order(assignment)
        slots = slots_of(cache, key, REQUESTER)
        deleting = assignment.metadata.deletion_time is not None
        before = endpoints_of(cache, key)
        # What is new has said nothing of its generation yet: a first start is to be proven like one that replaces another.
        new = before is None or before.status.generation != assignment.spec.generation
        proof = self._proof(key, assignment.spec, slots, new, now_ms)
        plan = leaving(assignment.spec, slots, wanted(assignment.spec, slots, deleting=deleting), proof.lacking)
        bodies: list[Body] = [self._ask(assignment, slots[index], reason) for index, reason in plan.evict]
        bodies += [Delete("EvictionRequest", key[0], f"{key[1]}-{index}") for index in plan.cancel]
        self._versions[key] = before.spec.version if before is not None else 0
        named, wait_ms = self._endpoints(cache, key, slots, before, now_ms)
        if named is not None:
            bodies.append(self._put_endpoints(assignment, before, named))
        naming = {each.slot for each in named or ()}
        bodies += [self._step(key, slot, to) for slot, to in serving_steps(slots, naming) if slot.token is not None]
        if before is None and named is None:  # nobody to say anything of yet
            return Result(bodies, self._saying.due_ms(key, now_ms))
        # Who is named now will serve in a moment: that is worth waiting for.
        gather_ms = GATHER_MS if named is None else EVERY_MS
        result = self._with_progress(key, assignment, before, slots, bodies, gather_ms, proof.lacking, now_ms)
        wakes = [each for each in (result.wake_ms, wait_ms, proof.wake_ms) if each is not None]
        return result._replace(wake_ms=min(wakes, default=None))

    def _proof(self, key: Name, order: AssignmentSpec, slots: Table, new: bool, now_ms: int) -> Proof:
        """How many serve the new generation, and not for long enough to count. Asked of a rollout and of a first start: nobody
        waits for one that comes back."""
        while_ms = (order.rollout.min_ready_seconds or 0) * 1000
        known = self._served.get(key)
        if not while_ms or (known is None and not new and not is_replacing(order, slots)):
            self._served.pop(key, None)
            return Proof(0, None)
        serving = serving_wanted(order, slots)
        if known is None or known.generation != order.generation:
            known = self._served[key] = ServedThroughout(order.generation, serving, now_ms)
        proof = known.look(serving, while_ms, now_ms)
        if proof.wake_ms is None and serving >= size(order.slots) and not is_replacing(order, slots):
            del self._served[key]
        return proof

    def _forget(self, key: Name) -> None:
        self._saying.forget(key)
        for kept in (
            self._named,
            self._named_ms,
            self._sizes,
            self._left_out,
            self._doubted,
            self._orders,
            self._versions,
            self._served,
        ):
            kept.pop(key, None)

    def _ask(self, assignment: Assignment, slot: Slot, reason: str) -> Put:
        order = assignment.spec
        ref = SlotRef(workload=order.workload, uid=order.workload_uid, index=slot.index)
        spec = EvictionRequestSpec(slot=ref, reason=reason, requester=REQUESTER, epoch=slot.epoch)
        metadata = Metadata(name=ref.object_name, namespace=assignment.metadata.namespace)
        return Put("EvictionRequest", EvictionRequest(metadata=metadata, spec=spec))

    def _step(self, key: Name, slot: Slot, to: object) -> Move:
        assert slot.token is not None
        return Move(key[0], f"{key[1]}-{slot.index}", slot.token, to)  # type: ignore[arg-type]

    def _endpoints(
        self, cache: Cache, key: Name, slots: Table, before: Endpoints | None, now_ms: int
    ) -> tuple[tuple[Endpoint, ...] | None, int | None]:
        """Whom Endpoints should name, if that is to be written now, and when else. Costs by what changed, until it is written."""
        admitted = traffic(slots)
        known, doubted = self._named.setdefault(key, {}), self._doubted.setdefault(key, set())
        sizes = self._sizes.setdefault(key, Sizes())
        for index in touched_of(cache, key):
            known.pop(index, None)
            sizes.forget(index)
            doubted.add(index)
        if before is None and not admitted and now_ms < self._saying.due_ms(key, now_ms):
            return None, None
        said = served_of(cache, key)
        for index in admitted - known.keys():
            known[index] = endpoint = self._endpoint(cache, key, slots[index], said)
            sizes.put(index, len(codec.encode(endpoint)))
        admitted = self._with_room(key, admitted, said, sizes)
        if before is not None and admitted == said.keys() and all(known[i] == said[i] for i in doubted & admitted):
            doubted.clear()
            return None, None
        due_ms = self._named_ms.get(key, 0) + len(said) // ENDPOINTS_PER_MS
        if now_ms < due_ms:
            return None, due_ms
        self._named_ms[key] = now_ms
        return tuple([known[index] for index in sorted(admitted)]), None

    def _with_room(self, key: Name, admitted: set[int], said: Mapping[int, Endpoint], sizes: Sizes) -> set[int]:
        """Whom Endpoints can hold: one object has a largest size. Who finds no room stays Ready, and the condition says so."""
        found = admitted if sizes.total <= ENDPOINTS_BYTES_MAX else fitting(admitted, said, sizes.of, ENDPOINTS_BYTES_MAX)
        self._left_out[key] = len(admitted) - len(found)
        return found

    def _endpoint(self, cache: Cache, key: Name, slot: Slot, said: Mapping[int, Endpoint]) -> Endpoint:
        node: Node | None = cache.get("nodes", "", slot.node)
        instance: Instance | None = cache.get("instances", key[0], f"{key[1]}-{slot.index}")
        if instance is None and slot.index in said:  # a lost one that keeps its traffic
            return said[slot.index]
        address = node.spec.address if node is not None and node.spec.address else slot.node
        ports = instance.status.ports if instance is not None else {}
        return Endpoint(slot=slot.index, node=slot.node, address=address, ports=ports)

    def _put_endpoints(self, assignment: Assignment, before: Endpoints | None, named: tuple[Endpoint, ...]) -> Put:
        order, meta = assignment.spec, assignment.metadata
        version = before.spec.version + 1 if before is not None else 1
        spec = EndpointsSpec(workload_uid=order.workload_uid, version=version, endpoints=named)
        metadata = Metadata(name=order.workload, namespace=meta.namespace, labels=meta.labels)
        return Put("Endpoints", Endpoints(metadata=metadata, spec=spec))

    def _with_progress(
        self, key: Name, assignment: Assignment, before: Endpoints | None, slots: Table, bodies: list[Body], gather_ms: int,
        unproven: int, now_ms: int,
    ) -> Result:  # fmt: skip
        since_ms = millis(before.status.progress_time) if before is not None else now_ms
        found = progress(assignment.spec, slots, before, since_ms, now_ms, unproven)
        old = before.status if before is not None else EndpointsStatus()
        status = self._status(assignment, old, found, self._left_out.get(key, 0), now_ms)
        if status == old:
            self._saying.nothing_to_say(key)
            return Result(bodies, found.deadline_ms)
        due_ms = self._saying.due_ms(key, now_ms, gather_ms)
        if now_ms < due_ms and not is_news(status.conditions, old.conditions):
            return Result(bodies, due_ms)
        self._saying.said(key, now_ms)
        bodies.append(PutStatus("Endpoints", *key, status))
        return Result(bodies, found.deadline_ms)

    def _status(
        self, assignment: Assignment, old: EndpointsStatus, found: Progress, left_out: int, now_ms: int
    ) -> EndpointsStatus:  # fmt: skip
        more = f"; {left_out} more are ready, and Endpoints of one region hold no more" if left_out else ""
        condition = replace(
            found.condition,
            message=found.condition.message + more,
            observed_generation=assignment.metadata.generation,
            last_transition_time=instant(now_ms),
        )
        return replace(
            old,
            generation=assignment.spec.generation,
            updated=found.updated,
            remaining=found.remaining,
            progress_time=instant(found.since_ms),
            conditions=set_condition(old.conditions, condition),
        )
