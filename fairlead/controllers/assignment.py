"""Owns new -> Pending: queues the slots an Assignment wants and withdraws those it does not; reports a service's stages upward.

Never starts a next life (repair's), never evicts (rollout asks, disruption drains). Of jobs it queues what decide/jobs.py
wants; their status is the job controller's. Runs in every region plane, on the runtime.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fairlead.controllers.cache import Cache, Indexes, Item, Name, workload_of
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import SLOT_INDEXES, assignment_of, condition, endpoints_of, is_held, revision_of, slots_of
from fairlead.controllers.saying import Saying, is_news
from fairlead.decide.queueing import Told, floor_needed, queue_bodies, same_but_for_times, status_of
from fairlead.decide.slots import ENDED, Table
from fairlead.decide.wanting import wanted
from fairlead.model.commands import Body, Delete, PutStatus
from fairlead.model.kinds.slot import STANDING
from fairlead.model.kinds.work import Assignment, AssignmentStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition

_OVER: Final = ENDED | {SlotState.FAILED}


class AssignmentController:
    name = "assignment"
    # Bindings come before the requests they replace: a request that goes with no binding there was withdrawn.
    follows = ("assignments", "revisions", "grants", "bindings", "schedulingrequests", "endpoints", "evictionrequests")
    by_spec = ("grants",)  # it asks whether there is one
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {**SLOT_INDEXES, "assignments": {**SLOT_INDEXES["assignments"], "tenant": lambda item: item.tenant}}
    indexes_other: Indexes = {}
    hears = False

    def __init__(self, region: str) -> None:
        self._region = region
        self._saying = Saying()

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "assignments":
                key = (item.tenant, item.hot.spec.workload)
                return (key,) if self._unsettled(item.hot) else ()
            case "revisions":
                return ((item.tenant, item.hot.spec.workload),)
            case "grants":
                found = view.cache.by("assignments", "tenant", item.tenant)
                return [(each.tenant, each.hot.spec.workload) for each in found]
            case "endpoints":
                return (item.key,) if self._says_more(view, item.key) else ()
            case "evictionrequests":  # one that may not leave before another serves: a spare slot may be wanted, or no longer
                return (workload_of(item),) if is_held(item.hot) else ()
            case _:
                key = workload_of(item)
                if key[1].startswith(STANDING):
                    return ()  # a budget's room, no assignment's
                return (key,) if self._looks_at(view.cache, key, item) else ()

    def _unsettled(self, assignment: Assignment) -> bool:
        """Not the echo of a status written here, or one that lets epochs be forgotten."""
        meta, status = assignment.metadata, assignment.status
        return status.observed_generation != meta.generation or meta.deletion_time is not None or status.epoch_floor > 0

    def _says_more(self, view: View, key: Name) -> bool:
        """Whether the rollout says anything that was not passed on."""
        said, assignment = self._progressing(view, key), assignment_of(view.cache, key)
        if said is None or assignment is None:
            return False
        known = condition(assignment.status.conditions, "Progressing")
        if known is not None and (known.status, known.reason, known.message) == (said.status, said.reason, said.message):
            return False
        return not self._saying.is_pending(key) or is_news((said,), assignment.status.conditions)

    def _looks_at(self, cache: Cache, key: Name, item: Item) -> bool:
        """A slot on its way is counted when the next status is due; one that ended, or went, may have to be followed up."""
        if not self._saying.is_pending(key):
            return True
        if item.plural == "bindings":
            return item.hot.state in _OVER or cache.item("bindings", *item.key) is None
        return all(cache.item(plural, *item.key) is None for plural in ("schedulingrequests", "bindings"))

    def resync(self, view: View) -> Iterable[Name]:
        cache = view.cache
        keys = {(item.tenant, item.hot.spec.workload): None for item in cache.all("assignments")}
        waiting = (workload_of(item) for item in cache.all("schedulingrequests"))
        return keys | {key: None for key in waiting if not key[1].startswith(STANDING)}

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        cache = view.cache
        assignment = assignment_of(cache, key)
        if assignment is None:
            self._saying.forget(key)
            orphans = cache.by("schedulingrequests", "workload", key)
            return Result([Delete("SchedulingRequest", item.tenant, item.name) for item in orphans])
        slots = slots_of(cache, key)
        want = wanted(assignment, slots, now_ms)
        granted = cache.item("grants", key[0], self._region) is not None
        bodies: list[Body] = []
        if granted or not want:
            bodies = queue_bodies(assignment, slots, want, lambda generation: revision_of(cache, key, generation))
        if assignment.spec.job is not None:
            return Result(bodies)
        told = Told(granted, revision_of(cache, key, assignment.spec.generation) is not None, self._progressing(view, key))
        due_ms = self._saying.due_ms(key, now_ms)
        if now_ms < due_ms and not self._urgent(assignment, slots, want, told):
            return Result(bodies, due_ms)  # what is not said now need not be added up either
        return self._with_status(key, assignment, status_of(assignment, slots, want, told, now_ms), bodies, now_ms)

    def _urgent(self, assignment: Assignment, slots: Table, want: dict[int, int], told: Told) -> bool:
        """Somebody waits for it: slots that may be forgotten once their epochs are, a rollout that ended, the last slot gone."""
        before = assignment.status
        if floor_needed(assignment.spec, slots, want, before.epoch_floor) != before.epoch_floor:
            return True
        if assignment.metadata.deletion_time is not None and not slots:
            return True
        return told.progressing is not None and is_news((told.progressing,), before.conditions)

    def _progressing(self, view: View, key: Name) -> Condition | None:
        endpoints = endpoints_of(view.cache, key)
        return condition(endpoints.status.conditions, "Progressing") if endpoints is not None else None

    def _with_status(
        self, key: Name, assignment: Assignment, status: AssignmentStatus, bodies: list[Body], now_ms: int
    ) -> Result:
        if same_but_for_times(status, assignment.status):
            self._saying.nothing_to_say(key)
            return Result(bodies)
        self._saying.said(key, now_ms)
        name = assignment.metadata.name
        bodies.append(PutStatus("Assignment", key[0], name, status, uid=assignment.metadata.uid))
        return Result(bodies)
