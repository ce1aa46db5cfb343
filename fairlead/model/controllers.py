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
            "region", r.REGION_HEALTH, GLOBAL, "calls regions whose lease has run out Unknown, then Lost; says which are partial",
            "when each region last renewed the lease it reports under, which nodes it said to have, which answers it took", 10.0,
            ("Region.status",),
            "the region is heard again; this plane itself was cut off", "the region, once it is heard",
            "every silence is explained: by the region, or by our own observation (MassSilence)",
        ),
        ControllerInfo(
            "recovery", r.RECOVERY, GLOBAL, "orders slots in healthy regions for services that lost theirs; says what would be",
            "regions' health, workloads, assignments, budgets, grants, policies, overrides", 10.0,
            ("RecoveryOrder.spec", "RecoveryOrder.delete", "RegionOutlook.spec", "RegionOutlook.delete",
             "RegionOutlook.status", "Holding.spec", "Holding.delete", "RecoveryBudget.status", "LeaseAcquire", "LeaseRelease"),
            "a region comes back, or another is lost", "the region controller about health; regions about what they can hold",
            "every critical service has its minimum in one healthy region, or what is missing is said",
        ),
        ControllerInfo(
            "mirror-down", r.MIRROR, REGION, "copies what the region needs from the global plane into its own",
            "the global plane's objects", fresh,
            ("Assignment.spec", "Assignment.delete", "Revision.spec", "Revision.delete", "Grant.spec", "Grant.delete",
             "GrantTerm.spec", "GrantTerm.delete", "Holding.spec", "Holding.delete",
             "SchedulerPolicy.spec", "SchedulerPolicy.delete", "PolicyChannel.spec", "PolicyChannel.delete", "Region.spec",
             "Region.delete", "Tenant.spec", "Tenant.delete", "Override.spec", "Override.delete", "Config.spec", "Config.delete",
             "Secret.spec", "Secret.delete", "AccessRole.spec", "AccessRole.delete", "AccessBinding.spec", "AccessBinding.delete",
             "ServiceAccount.spec", "ServiceAccount.delete", "Token.spec", "Token.delete"),
            "the global plane moves on, or becomes unreachable",
            "the global plane; while it is unreachable, what was copied last",
            "the copies are equal; it deletes nothing while the global plane does not know this region",
        ),
        ControllerInfo(
            "mirror-up", r.MIRROR, GLOBAL, "reports its region's Assignment and Grant statuses, that one is released, "
            "what was ordered there and what nodes there are",
            "the region's assignments, grants, questions, overrides, nodes", fresh,
            ("Assignment.status", "Assignment.spec", "Grant.status", "GrantTerm.status", "Holding.status", "Override.spec"),
            "the assignment is deleted or re-made", "the region about what runs; the global plane about what is wanted",
            "the statuses are equal",
        ),
    )  # fmt: skip


def _of_quota() -> tuple[ControllerInfo, ...]:
    r, fresh = Role, _FRESH_S
    return (
        ControllerInfo(
            "quota", r.QUOTA, GLOBAL, "shares tenants' quotas out to regions as grants; answers regions that ask for leases",
            "quotas, overrides, grants, what regions say of them", fresh,
            ("Grant.spec", "Grant.delete", "GrantTerm.spec", "GrantTerm.delete", "Quota.status"),
            "a region takes an offer, or uses more", "escrow: who gives up comes first; the region about what it uses",
            "every wish is offered, as far as there is room; every question is answered",
        ),
        ControllerInfo(
            "grant", r.QUOTA, REGION, "asks for the leases of its grants, takes offers, says what is used and what waits",
            "grants, the global plane's answers, assignments", fresh, ("Grant.status", "GrantTerm.status", "Event.spec"),
            "something is placed; another offer comes", "the authority: its ledger says whether an offer is kept to",
            "the newest offer is taken, and the leases are fresh",
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


def _override(name: str, plane: str) -> ControllerInfo:
    return ControllerInfo(
        name, Role.OVERRIDE, plane, "says until when each override holds; takes off its finalizer and removes it after its end",
        "overrides, plane time", _FRESH_S, ("Override.status", "Override.spec", "Override.delete"),
        "it is extended, approved or revoked", "the authority: an override holds until its end, whatever is said of it here",
        "every override says whether it holds, and none is kept a day after its end",
    )  # fmt: skip


def _of_people() -> tuple[ControllerInfo, ...]:
    """What people order that is not work."""
    return (
        _override("override", REGION),
        _override("override-global", GLOBAL),
        ControllerInfo(
            "policy", Role.POLICY, GLOBAL, "ends a canary that nobody promoted by its deadline; says which revision is tried",
            "the channel, plane time", _FRESH_S, ("PolicyChannel.spec", "PolicyChannel.status"),
            "it is promoted or rolled back by somebody", "who writes first: the channel is written on the version that was seen",
            "no canary is past its deadline",
        ),
        ControllerInfo(
            "autoscaler", Role.AUTOSCALER, GLOBAL, "sets a service's replicas by how busy those are that serve",
            "the load that was reported last, the workload's counts, why its slots wait, overrides", 60.0,
            ("Workload.spec", "Autoscaler.status"),
            "somebody scales by hand; ordered replicas do not come", "who writes last: each write is on the version it saw",
            "the load is within its tolerance, or what is ordered has not come yet",
        ),
        ControllerInfo(
            "node-autoscaler", Role.AUTOSCALER, REGION, "orders nodes for what waits for them, and lets empty ones go",
            "why requests wait, nodes, bindings, overrides: read now and then", 30.0,
            ("NodePool.status", "Node.spec", "Node.delete"),
            "something is bound to a node that was empty, or somebody closes or drains it",
            "the authority: a node that is open or has work on it is not let go, and one that has changed since is left as it is",
            "nothing waits that a node would cure, and none is empty for long",
        ),
    )  # fmt: skip


def _leftovers(name: str, plane: str, evidence: str) -> ControllerInfo:
    fixes = ("Workload.spec",) if plane == GLOBAL else ("ReleaseReservation", "Instance.delete")
    return ControllerInfo(
        name, Role.REPAIR, plane, "writes down what nobody looks after, mends what is proven over, calls when it is late",
        evidence, _FRESH_S, ("Repair.spec", "Repair.status", "Repair.delete", "Event.spec", "Override.spec", *fixes),
        "its owner comes back and ends it", "the authority: what is not over is not ended; the owner, wherever there is one",
        "every leftover has a Repair with an owner and a deadline, and none is overdue",
    )  # fmt: skip


def _of_leaving() -> tuple[ControllerInfo, ...]:
    r, fresh = Role, _FRESH_S
    return (
        ControllerInfo(
            "disruption", r.DISRUPTION, REGION, "the only one that drains: judges eviction requests by budgets, drains nodes",
            "evictions, bindings, nodes, endpoints", fresh,
            ("EvictionRequest.status", "EvictionRequest.spec", "EvictionRequest.delete", "Binding.state", "Node.status"),
            "another slot of the workload is lost", "the budget as this controller counts it; the operator's deadline",
            "every request is done, refused or expired",
        ),
        ControllerInfo(
            "defragmenter", r.DISRUPTION, REGION, "asks few slots to move where a large one would fit then, or a node could go",
            "nodes, bindings, requests, revisions, the policy in force", fresh,
            ("EvictionRequest.spec", "EvictionRequest.delete"),
            "something is bound where a slot was to go", "the disruption controller about budgets; the scheduler about places",
            "nothing large waits that moves would make room for, within what the policy allows",
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
        *_of_people(),
        ControllerInfo(
            "repair", r.REPAIR, REGION, "releases lost and failed slots once it is safe, and queues their next life",
            "nodes, bindings, endpoints, assignments; of slots without one, what the mirror lists above", fresh,
            ("Binding.state", "SchedulingRequest.spec", "EvictionRequest.spec"),
            "the node is heard again", "the authority: fence time, endpoints, epoch",
            "no slot is Failed, or Unknown on a lost node, or Released and wanted",
        ),
        _leftovers("repair-leftovers", REGION, "reservations, assignments, slots, grants, overrides, the ledger: lists"),
        _leftovers("repair-global", GLOBAL, "workloads, assignments, quotas, overrides: lists"),
        ControllerInfo(
            "standing", r.RECOVERY, REGION, "keeps the rooms of recovery budgets: asks for missing ones, gives up others, counts",
            "holdings, reservations, requests, bindings, nodes, overrides", fresh,
            ("SchedulingRequest.spec", "SchedulingRequest.delete", "ReleaseReservation", "Holding.status"),
            "a room is claimed, placed or lost", "the authority: what is claimed is not released, what is held is not queued",
            "every budget has its rooms, free, claimed or waited for",
        ),
        *_of_leaving(),
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
            "narrator-global", r.NARRATOR, GLOBAL, "tells in events what becomes of workloads, rollouts, jobs and regions",
            "workloads, assignments, regions", fresh, ("Event.spec",), "more of the same happens",
            "nobody: events are words", "everything that may be told has been",
        ),
    )  # fmt: skip


CONTROLLERS: Final = {row.name: row for row in (*_between_planes(), *_of_quota(), *_of_slots(), *_of_trouble())}
