"""Every controller as data: what it trusts and for how long, what it may write, what can go wrong in between, who decides then,
and when it stops. docs/reference/controllers.md is printed from CONTROLLERS; the runtime sends nothing that is not declared here,
and the authority refuses what the role does not own."""

from __future__ import annotations

from typing import Final, NamedTuple

from fairlead.model.lifecycle import Role
from fairlead.model.registry import GLOBAL, REGION


class ControllerInfo(NamedTuple):
    name: str
    role: Role
    plane: str
    does: str
    evidence: str
    max_age_s: float
    writes: tuple[str, ...]  # kinds, each with the part of it: KIND.spec, KIND.status, KIND.state (a slot's step), KIND.delete
    in_between: str  # what can happen between its observation and its write
    decides: str  # who is right when it and the authority, or two controllers, disagree
    stops: str


_FRESH_S: Final = 35.0  # a missed event is repaired within this (L3)


def _between_planes() -> tuple[ControllerInfo, ...]:
    r, fresh = Role, _FRESH_S
    return (
        ControllerInfo(
            "workload", r.WORKLOAD, GLOBAL, "gives a workload its Revision and one Assignment a region; folds statuses",
            "workloads, assignments, revisions, regions, grants, policies", fresh,
            ("Revision.spec", "Assignment.spec", "Assignment.delete", "Workload.status", "Workload.spec"),
            "the workload's spec changes; a grant moves",
            "the authority: generation and uid of what is written; regions may refuse what their grant does not hold",
            "nothing follows from the workload's generation that is not written",
        ),
        ControllerInfo(
            "region", r.REGION_HEALTH, GLOBAL, "declares regions whose lease has run out Unknown, then Lost",
            "when each region last renewed the lease it reports under", 10.0, ("Region.status",),
            "the region is heard again; this plane itself was cut off", "the region, once it is heard",
            "every silence is explained: by the region, or by our own observation (MassSilence)",
        ),
        ControllerInfo(
            "mirror-down", r.MIRROR, REGION, "copies what the region needs from the global plane into its own",
            "the global plane's objects", fresh,
            ("Assignment.spec", "Assignment.delete", "Revision.spec", "Revision.delete", "Grant.spec", "Grant.delete",
             "SchedulerPolicy.spec", "SchedulerPolicy.delete", "PolicyChannel.spec", "PolicyChannel.delete", "Region.spec",
             "Region.delete", "Tenant.spec", "Tenant.delete", "Override.spec", "Override.delete", "Config.spec", "Config.delete",
             "Secret.spec", "Secret.delete", "AccessRole.spec", "AccessRole.delete", "AccessBinding.spec", "AccessBinding.delete",
             "ServiceAccount.spec", "ServiceAccount.delete", "Token.spec", "Token.delete"),
            "the global plane moves on, or becomes unreachable",
            "the global plane; while it is unreachable, what was copied last",
            "the copies are equal; it deletes nothing while the global plane does not know this region",
        ),
        ControllerInfo(
            "mirror-up", r.MIRROR, GLOBAL, "reports its region's Assignment statuses, and that one is released",
            "the region's assignments", fresh, ("Assignment.status", "Assignment.spec"),
            "the assignment is deleted or re-made", "the region about what runs; the global plane about what is wanted",
            "the statuses are equal",
        ),
    )  # fmt: skip


def _of_slots() -> tuple[ControllerInfo, ...]:
    r, fresh = Role, _FRESH_S
    return (
        ControllerInfo(
            "assignment", r.ASSIGNMENT, REGION, "queues the slots an Assignment wants, withdraws others, counts stages",
            "assignments, revisions, requests, bindings, endpoints", fresh,
            ("SchedulingRequest.spec", "SchedulingRequest.delete", "Binding.delete", "Assignment.status"),
            "a slot is bound or released meanwhile", "the authority: a slot that is bound is not queued, nor withdrawn",
            "every wanted slot waits or is bound, no other does",
        ),
        ControllerInfo(
            "rollout", r.ROLLOUT, REGION, "replaces slots of other generations within surge and unavailable; admits to and "
            "withdraws from traffic", "bindings, instances, endpoints, evictions, nodes", fresh,
            ("Endpoints.spec", "Endpoints.status", "EvictionRequest.spec", "EvictionRequest.delete", "Binding.state"),
            "a slot fails, is lost or loses readiness", "the disruption controller about leaving, the agent about readiness",
            "every wanted slot serves the wanted generation, or the progress deadline has passed",
        ),
        ControllerInfo(
            "job", r.JOB, REGION, "counts completions and failures of a job and ends it", "assignments, bindings", fresh,
            ("Assignment.status", "EvictionRequest.spec", "Binding.delete", "SchedulingRequest.delete"),
            "a slot ends meanwhile", "the agent about exit codes",
            "completions are reached, retries are spent, the deadline has passed",
        ),
    )  # fmt: skip


def _of_trouble() -> tuple[ControllerInfo, ...]:
    r, fresh = Role, _FRESH_S
    return (
        ControllerInfo(
            "node", r.NODE, REGION, "declares silent nodes Unknown, then Lost; moves their slots to Unknown and back",
            "when each node was heard (soft)", 15.0, ("Node.status", "Binding.state"),
            "the node is heard again; this controller itself was cut off",
            "the agent, once it is heard; the authority about leases",
            "silence is explained: by the node, or by its own observation (ObservationSuspect)",
        ),
        ControllerInfo(
            "repair", r.REPAIR, REGION, "releases lost and failed slots once it is safe, and queues their next life",
            "nodes, bindings, endpoints, assignments", fresh, ("Binding.state", "SchedulingRequest.spec"),
            "the node is heard again", "the authority: fence time, endpoints, epoch",
            "no slot is Failed, or Unknown on a lost node, or Released and wanted",
        ),
        ControllerInfo(
            "disruption", r.DISRUPTION, REGION, "the only one that drains: judges eviction requests by budgets, drains nodes",
            "evictions, bindings, nodes, endpoints", fresh,
            ("EvictionRequest.status", "EvictionRequest.spec", "Binding.state", "Node.status"),
            "another slot of the workload is lost", "the budget as this controller counts it; the operator's deadline",
            "every request is done, refused or expired",
        ),
        ControllerInfo(
            "garbage", r.GARBAGE, REGION, "removes what is finished: evictions, endpoints, orphaned bindings, old events",
            "everything it removes", 600.0,
            ("EvictionRequest.delete", "Endpoints.delete", "Binding.delete", "Event.delete", "SchedulingRequest.delete"),
            "it is wanted again", "the authority: what is live is not deleted", "nothing finished is older than its retention",
        ),
        ControllerInfo(
            "garbage-global", r.GARBAGE, GLOBAL, "removes old Revisions, what a deleted workload owned, old events",
            "workloads, assignments, revisions", 600.0, ("Revision.delete", "Event.delete", "Workload.spec"),
            "an undo goes back to it", "the workload controller: it writes a Revision again when it wants it",
            "ten Revisions a workload are left, and those in use",
        ),
        ControllerInfo(
            "narrator", r.NARRATOR, REGION, "tells in events what happens to slots and nodes, a bounded trickle of them",
            "requests, bindings, instances, nodes", fresh, ("Event.spec",), "more of the same happens",
            "nobody: events are words", "everything that may be told has been",
        ),
        ControllerInfo(
            "narrator-global", r.NARRATOR, GLOBAL, "tells in events what becomes of workloads: scaling, rollouts, jobs",
            "workloads, assignments", fresh, ("Event.spec",), "more of the same happens",
            "nobody: events are words", "everything that may be told has been",
        ),
    )  # fmt: skip


CONTROLLERS: Final = {row.name: row for row in (*_between_planes(), *_of_slots(), *_of_trouble())}
