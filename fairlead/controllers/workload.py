"""Gives each workload its Revision and one Assignment a region, folds the regions' reports into its status, and lets it go when
the last of its slots is released.

Never touches a slot. An Assignment is emptied, not deleted, while its workload lives: the region keeps its epochs there. Runs in
the global plane; the statuses it reads come up through the mirrors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Cache, Indexes, Item, Name, workload_in_spec
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import SLOT_INDEXES, is_true
from fairlead.controllers.given import GivenTotals, Waiting
from fairlead.controllers.overflowing import Moves, Overflowing, Where
from fairlead.controllers.policies import PoliciesInForce
from fairlead.controllers.saying import Saying, is_news
from fairlead.controllers.turning import Turn, Turning
from fairlead.decide.admission.workload import execution_of, is_alone, rollout_of, slots_of
from fairlead.decide.assigning import (
    Choice,
    RegionFacts,
    block_of,
    choose,
    is_unsettled,
    may_carry,
    next_block,
    recovery_in,
    room_for,
    slots_kept,
    spare_in,
)
from fairlead.decide.folding import fold, owner_of, revision_for, same_but_for_times
from fairlead.decide.handing_over import handed_over, leaving_of
from fairlead.decide.leftovers import SLOTS
from fairlead.decide.overflow import waiting
from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.decide.policy import CompiledPolicy
from fairlead.decide.proving import seconds_to_prove
from fairlead.decide.spans import Spans, size
from fairlead.decide.succession import with_successors
from fairlead.model.commands import Body, Delete, Put, PutStatus
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.intent import Region, Workload, WorkloadStatus
from fairlead.model.kinds.recovery import RecoveryOrder
from fairlead.model.kinds.work import Assignment, AssignmentSpec, SlotRange
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources

FINALIZER: Final = SLOTS


class WorkloadController:
    name = "workload"
    follows = (
        "workloads", "assignments", "revisions", "regions", "grants", "schedulerpolicies", "policychannels", "recoveryorders",
    )  # fmt: skip
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {
        "workloads": {"tenant": lambda item: item.tenant},
        "assignments": {**SLOT_INDEXES["assignments"], "place": lambda item: (item.tenant, item.hot.spec.region)},
        "revisions": SLOT_INDEXES["revisions"],
    }
    indexes_other: Indexes = {}
    by_spec = ("grants",)  # what a tenant may use; what it was given is in its assignments
    hears = False

    def __init__(self, registry: Registry = BUILT_INS) -> None:
        self._saying = Saying()
        self._looked_at: dict[Name, tuple[object, ...]] = {}  # what users said when a workload was looked at last
        self._waiting = Waiting()
        self._regions: dict[str, tuple[object, ...] | None] = {}  # as they were when everything was looked at last
        self._policies = PoliciesInForce(registry)
        self._turning = Turning()
        self.overflowing = Overflowing()

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "workloads":
                return (item.key,) if self._looked_at.get(item.key) != _spoken(item.hot) else ()
            case "assignments" | "revisions":
                key = workload_in_spec(item)
                own = (key,) if self._looks_at(view.cache, key, item) else ()
                return (*own, *self._waiting.helped(view.cache, item.tenant))
            case "grants":
                return self._waiting.granted(view.cache, item)
            case "recoveryorders":
                return (item.key,)
            case "regions" if not self._is_other(view.cache, item):
                return ()
            case _:
                self._policies.forget()
                return [each.key for each in view.cache.all("workloads")]

    def _is_other(self, cache: Cache, item: Item) -> bool:
        """Whether what placing asks of a region has changed: not where only its nodes were counted anew."""
        found = cache.item("regions", *item.key)
        now = (found.hot.metadata.uid, found.hot.spec, found.hot.status.health) if found is not None else None
        changed = self._regions.get(item.name) != now
        self._regions[item.name] = now
        return changed

    def _looks_at(self, cache: Cache, key: Name, item: Item) -> bool:
        """What the regions say is added up when the next status is due, and at once where somebody waits for it."""
        found = cache.item("workloads", *key)
        workload: Workload | None = found.hot if found is not None else None
        if workload is None or workload.metadata.deletion_time is not None or not self._saying.is_pending(key):
            return True
        return item.plural == "assignments" and is_news(item.hot.status.conditions, workload.status.conditions)

    def resync(self, view: View) -> Iterable[Name]:
        keys = {item.key: None for item in view.cache.all("workloads")}
        keys |= {workload_in_spec(item): None for item in view.cache.all("assignments")}
        return keys

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        cache = view.cache
        workload: Workload | None = cache.get("workloads", *key)
        found: list[Assignment] = [item.hot for item in cache.by("assignments", "workload", key)]
        assignments = sorted(found, key=lambda a: a.spec.region)
        if workload is None or workload.metadata.deletion_time is not None:
            self._saying.forget(key)
            self._looked_at.pop(key, None)
            self.overflowing.forget(key)
            self._turning.forget(key)
            self._waiting.note(key, False)
            return Result(self._end(cache, key, workload, assignments))
        self._looked_at[key] = _spoken(workload)
        stale = [a for a in assignments if a.spec.workload_uid != workload.metadata.uid]
        if stale:  # of one with the same name that is gone: its slots leave first
            return Result(self._end(cache, key, None, stale))
        policy = self._policies.of(cache, key[0])
        priority = policy.priority_of(workload.spec.workload_class, workload.spec.priority_class_name)
        if priority is None:
            return self._misconfigured(key, workload, assignments, policy.revision, now_ms)
        revision, new = revision_for(workload, priority, [item.hot for item in cache.by("revisions", "workload", key)])
        bodies: list[Body] = [Put("Revision", revision, mode="create")] if new else []
        order: RecoveryOrder | None = cache.get("recoveryorders", *key)
        if order is not None and order.spec.workload_uid != workload.metadata.uid:
            order = None
        choice, moves = self._choose(view, workload, assignments, order, policy, now_ms)
        self._waiting.note(key, any(a.spec.give_up or waiting(a.status) for a in assignments))
        generation = revision.spec.generation
        turn = self._turn(key, workload, generation, assignments, _silent(cache), now_ms)
        bodies += self._assign(view, workload, assignments, choice, order, (generation, turn), priority, policy, moves, now_ms)
        # One that was written off is counted no more, but for what waits for somebody to delete the workload itself.
        counted = [a for a in assignments if _is_known(cache, a) or a.spec.region in choice.counts]
        silent = _silent(cache) | {a.spec.region for a in counted if not _is_known(cache, a)}
        status = fold(workload, choice, revision.metadata.name, _slots(workload), counted, now_ms, silent, order)
        result = self._with_status(key, workload, replace(status, policy_revision=policy.revision), bodies, now_ms)
        wake = [each for each in (result.wake_ms, moves.wake_ms, turn.wake_ms) if each is not None]
        return result._replace(wake_ms=min(wake, default=None))

    def _turn(
        self, key: Name, workload: Workload, generation: int, assignments: list[Assignment], silent: frozenset[str], now_ms: int
    ) -> Turn:
        if workload.spec.job is not None or workload.spec.suspend:
            return Turn(generation, {})
        return self._turning.look(key, generation, assignments, silent, seconds_to_prove(workload.spec) * 1000, now_ms)

    def _end(self, cache: Cache, key: Name, workload: Workload | None, assignments: list[Assignment]) -> list[Body]:
        """Assignments go, and hold their mirrors' finalizers until the regions are empty; then the workload may go. For a region
        that was written off nobody else takes them off."""
        if assignments:
            marked = [a for a in assignments if a.metadata.deletion_time is None]
            alone = [a for a in assignments if a.metadata.deletion_time is not None and not _is_known(cache, a)]
            return [
                *(Delete("Assignment", key[0], a.metadata.name, uid=a.metadata.uid) for a in marked),
                *(Put("Assignment", replace(a, metadata=replace(a.metadata, finalizers=()))) for a in alone),
            ]
        if workload is None or FINALIZER not in workload.metadata.finalizers:
            return []
        left = tuple(f for f in workload.metadata.finalizers if f != FINALIZER)
        return [Put("Workload", replace(workload, metadata=replace(workload.metadata, finalizers=left)))]

    def _choose(
        self, view: View, workload: Workload, assignments: list[Assignment], order: RecoveryOrder | None,
        policy: CompiledPolicy, now_ms: int,
    ) -> tuple[Choice, Moves]:  # fmt: skip
        cache, spec, tenant = view.cache, workload.spec, workload.metadata.namespace
        labels = tuple(sorted(workload.metadata.labels.items()))
        areas = policy.residency_areas(spec.placement.residency, tenant, labels)
        mine = {a.spec.region: a for a in assignments}
        facts = self._facts(cache, workload)
        able = frozenset(may_carry(spec, areas, facts))
        where = Where(facts, able, _silent(cache), lambda region: self._is_crowded(cache, workload, region))
        rules = policy.rules_of(spec.workload_class)
        after_ms = rules.overflow_after_ms if rules is not None else 0
        held_ms = view.moves_held.get((tenant, workload.metadata.name), 0)
        moves = self.overflowing.look(workload, assignments, where, after_ms, now_ms, held_ms)
        facts = {name: each._replace(full=name in moves.full) for name, each in facts.items()}
        now = {name: moves.left(a) for name, a in mine.items()}
        # What a region had that was written off is placed elsewhere, under other numbers, if it may be anywhere. Not so what
        # would run there under the same, or must not run twice: nobody has seen the old one end.
        single = spec.job is not None or bool(spec.gang)
        kept = {name: n for name, n in now.items() if name not in facts and n}
        if able and not single and execution_of(spec) == "Replicated":
            kept = {}
        if kept and single:
            return Choice(kept, "Misconfigured", f"{', '.join(kept)} was written off: delete it, and apply it again"), moves
        if spec.job is not None and (done := _done_in(assignments)):
            return Choice({name: n for name, n in now.items() if n and name in done & able}), moves
        slots = 0 if spec.suspend and not mine else max(0, _slots(workload) - sum(kept.values()))
        choice = choose(spec, slots, areas, facts, now)
        choice = choice._replace(counts=choice.counts | kept)
        bound = {name: a.status.replicas.bound for name, a in mine.items()}
        self.overflowing.shares.told((tenant, workload.metadata.name), spec.workload_class, slots, sorted(able), bound)
        # Where it has its slots it was let in once, so whatever another region has not heard of since takes nothing away there.
        enters = single and not any(now.get(name) for name in choice.counts)
        if enters and any(is_unsettled(a) for a in assignments if a.spec.region not in choice.counts):
            return Choice({}, "WaitingForQuota", "still leaving the region it was in"), moves
        if spec.job is None and execution_of(spec) == "Exclusive":
            stand_ins = order.spec.stand_ins if order is not None else ()
            choice = handed_over(choice, slots + sum(kept.values()), able, assignments, stand_ins)
        return choice, moves

    def _facts(self, cache: Cache, workload: Workload) -> dict[str, RegionFacts]:
        facts: dict[str, RegionFacts] = {}
        for item in cache.all("regions"):
            region: Region = item.hot
            name = region.metadata.name
            grant: Grant | None = cache.get("grants", workload.metadata.namespace, name)
            room = 0
            granted = self._waiting.has_something(grant, (workload.metadata.namespace, name))
            if grant is not None and granted:
                room = room_for(grant.spec.during, self._given(cache, workload, name), workload.spec.resources.requests)
            lost = region.status.health == "Lost"
            facts[name] = RegionFacts(name, frozenset(region.spec.areas), granted, room, lost)
        return facts

    def _totals(self, cache: Cache) -> GivenTotals:
        totals = cache.derived
        if not isinstance(totals, GivenTotals):
            totals = cache.derived = GivenTotals(cache)
        return totals

    def _is_crowded(self, cache: Cache, workload: Workload, region: str) -> bool:
        own: Assignment | None = cache.get("assignments", workload.metadata.namespace, f"{workload.metadata.name}.{region}")
        return self._totals(cache).is_crowded(region, workload.spec.resources.requests, own)

    def _given(self, cache: Cache, workload: Workload, region: str) -> Resources:
        """What this tenant's other workloads were given in a region."""
        meta = workload.metadata
        found: list[Assignment] = [item.hot for item in cache.by("assignments", "workload", (meta.namespace, meta.name))]
        own = [each for each in found if each.spec.workload_uid == meta.uid and each.spec.region == region]
        return self._totals(cache).beside((meta.namespace, region), own)

    def _assign(
        self, view: View, workload: Workload, assignments: list[Assignment], choice: Choice, order: RecoveryOrder | None,
        generation: tuple[int, Turn], priority: int, policy: CompiledPolicy, moves: Moves, now_ms: int,
    ) -> list[Body]:  # fmt: skip
        mine = {a.spec.region: a for a in assignments}
        blocks = {name: block_of(a.spec.spare) for name, a in mine.items() if a.spec.spare is not None}
        rules = policy.rules_of(workload.spec.workload_class)
        out: list[Body] = []
        recovery = order.spec.regions if order is not None else {}
        total = sum(choice.counts.values())
        away = order.spec.lost or choice.counts.keys() - recovery.keys() if order is not None else ()
        owed = sum(_least(workload, choice.counts.get(region, 0), total) for region in away)
        for region in sorted({*choice.counts, *mine, *recovery}):
            old, count, extra = mine.get(region), choice.counts.get(region, 0), recovery.get(region, 0)
            if old is None and count + extra == 0:
                continue
            if region not in blocks:
                blocks[region] = next_block(blocks.values(), view.incarnation)
            had = old.spec.slots if old is not None else ()
            slots = slots_kept(blocks[region], had, moves.given.get(region, ()), count)
            spec = self._order(workload, region, slots, blocks[region], total)
            borrow = rules is not None and rules.may_borrow
            patience_s = policy.spec.gang_timeout_seconds if spec.gang else spec.gang_timeout_seconds
            newest, turn = generation
            begins = extra > 0 and not count and (old is None or not old.spec.slots)  # to stand in, with nothing of its own
            carried = turn.later.get(region, turn.first if begins else newest)
            spec = replace(spec, generation=carried, priority=priority, may_borrow=borrow, gang_timeout_seconds=patience_s)
            left = moves.left(old) if old is not None else 0
            # Who loses some anyway is not asked in the same breath: what it gives up is told apart from what it may not keep.
            moves = moves if count >= left else moves.without(region)
            asked, noted = moves.asks.get(region, 0), self.overflowing.note(region, old, moves, count > left, now_ms)
            spec = replace(spec, give_up=asked, overflow=noted)
            budget = workload.spec.recovery.budget_name
            if is_alone(workload.spec):
                spec = with_successors(spec, order, budget)
            elif extra:
                more = recovery_in(blocks[region], extra)
                spec = replace(spec, slots=(*spec.slots, more), recovery=more, budget_name=budget)
            spec = replace(spec, leaving=leaving_of(old, spec))
            # What the lost ones owed to the disruption budget, those that stand in for them owe now.
            spec = replace(spec, min_serving=spec.min_serving + min(owed, len(spec.successors) or extra))
            if old is not None and _same_order(old.spec, spec) and old.metadata.labels == workload.metadata.labels:
                continue
            spec = replace(spec, policy_revision=policy.revision)
            meta = Metadata(
                name=f"{workload.metadata.name}.{region}",
                namespace=workload.metadata.namespace,
                labels=workload.metadata.labels,
                owner_references=(owner_of(workload),),
                finalizers=old.metadata.finalizers if old is not None else (),
            )
            out.append(Put("Assignment", Assignment(metadata=meta, spec=spec)))
        return out

    def _order(self, workload: Workload, region: str, slots: Spans, block: int, total: int) -> AssignmentSpec:
        spec, count, rule = workload.spec, size(slots), rollout_of(workload.spec)
        if spec.job is not None and count:
            slots = (SlotRange(first=0, last=spec.job.completions - 1),)
        return AssignmentSpec(
            workload=workload.metadata.name,
            workload_uid=workload.metadata.uid,
            generation=1,
            region=region,
            slots=slots,
            workload_generation=workload.metadata.generation,
            spare=spare_in(block, rule.max_surge),
            rollout=replace(rule, min_ready_seconds=seconds_to_prove(spec)),
            execution=execution_of(spec),
            job=spec.job,
            suspend=spec.suspend,
            gang=spec.gang,
            min_serving=_least(workload, count, total),
            drain_timeout_seconds=spec.disruption.drain_timeout_seconds,
            requests=spec.resources.requests,
        )

    def _misconfigured(
        self, key: Name, workload: Workload, assignments: list[Assignment], policy_revision: int, now_ms: int
    ) -> Result:
        spec = workload.spec
        name = spec.priority_class_name or spec.workload_class
        choice = Choice({}, "Misconfigured", f"the policy in force knows no class {name!r}")
        status = fold(workload, choice, workload.status.revision, _slots(workload), assignments, now_ms)
        return self._with_status(key, workload, replace(status, policy_revision=policy_revision), [], now_ms)

    def _with_status(self, key: Name, workload: Workload, status: WorkloadStatus, bodies: list[Body], now_ms: int) -> Result:
        if same_but_for_times(status, workload.status):
            self._saying.nothing_to_say(key)
            return Result(bodies)
        due_ms = self._saying.due_ms(key, now_ms)
        if now_ms < due_ms and not is_news(status.conditions, workload.status.conditions):
            return Result(bodies, due_ms)
        self._saying.said(key, now_ms)
        bodies.append(PutStatus("Workload", *key, status, uid=workload.metadata.uid))
        return Result(bodies)


def _spoken(workload: Workload) -> tuple[object, ...]:
    """What users say, without what this controller says itself."""
    meta = workload.metadata
    return meta.uid, meta.generation, meta.labels, meta.deletion_time, meta.finalizers


def _same_order(old: AssignmentSpec, new: AssignmentSpec) -> bool:
    """Whatever it was decided on: a policy that is promoted writes nothing where it says the same."""
    return replace(old, workload_generation=0, policy_revision=0) == replace(new, workload_generation=0, policy_revision=0)


def _least(workload: Workload, count: int, total: int) -> int:
    """Of what must serve whatever is drained, the part of `count` of its slots."""
    return min(count, -(-workload.spec.disruption.min_serving * count // total)) if total else 0


def _slots(workload: Workload) -> int:
    return slots_of(workload.spec)


def _done_in(assignments: Iterable[Assignment]) -> frozenset[str]:
    """Of a job: regions that say it is complete. What other regions were given of it, while that was not known (or was
    forgotten), is not wanted any more; nor does it begin anew elsewhere because it may not be there any longer."""
    told = [a for a in assignments if a.status.observed_generation == a.metadata.generation]
    return frozenset(a.spec.region for a in told if is_true(a.status.conditions, "Complete"))


def _is_known(cache: Cache, assignment: Assignment) -> bool:
    """Not so where its Region was deleted: it was lost, and written off."""
    return cache.item("regions", "", assignment.spec.region) is not None


def _silent(cache: Cache) -> frozenset[str]:
    return frozenset(item.name for item in cache.all("regions") if item.hot.status.health in ("Unknown", "Lost"))
