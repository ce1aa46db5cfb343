"""Every metric there is, as data: name, type, labels, unit and meaning. docs/reference/metrics.md is printed from METRICS, and
fairlead/observe/exposition.py shows nothing that is not in it.

Names follow kube-scheduler's and controller-runtime's shapes where those exist. Labels are closed sets (reasons, verbs, kinds,
component names): never the name of an object, so that a plane of a million slots has as many series as an empty one.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

PREFIX: Final = "fairlead_"


class Metric(NamedTuple):
    name: str  # without the prefix
    type: Literal["counter", "gauge", "histogram"]
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def full(self) -> str:
        return PREFIX + self.name


class Group(NamedTuple):
    title: str
    where: str
    rows: tuple[Metric, ...]


_C: Final = "counter"
_G: Final = "gauge"
_H: Final = "histogram"

_SERVER: Final = Group(
    "The process", "every server",
    (
        Metric("build_info", _G, "", "1; which Fairlead this is.", ("version", "python")),
        Metric("process_cpu_seconds_total", _C, "seconds", "CPU time of this process, in user and system mode."),
        Metric("process_resident_memory_bytes", _G, "bytes", "Memory that this process occupies."),
        Metric("loop_stall_seconds", _H, "seconds", "By how much a wake-up of the event loop came late: somebody kept the loop."),
        Metric("peer_connected", _G, "", "1 while the other plane is reached.", ("peer",)),
        Metric("plugins", _G, "plug-ins",
               "Installed plug-ins: those that were loaded when this server started, and those that were left out because that "
               "failed.", ("state",)),
        Metric("channel_connections", _G, "connections", "Components and agents connected to this server."),
        Metric("certificate_expiry_seconds", _G, "seconds",
               "Until the certificate ends that this server shows (server), dials with (component), or the authority that signed "
               "these (authority), or the first of its agents' (agent). Below 0: it has ended.", ("certificate",)),
    ),
)  # fmt: skip

_API: Final = Group(
    "The API", "every server",
    (
        Metric("api_requests_total", _C, "requests", "Answered requests.", ("verb", "resource", "code")),
        Metric("api_request_duration_seconds", _H, "seconds", "From a request's head to the end of its answer, watches apart.",
               ("verb", "resource")),
        Metric("api_requests_in_flight", _G, "requests", "Requests under way.", ("verb",)),
        Metric("api_watches", _G, "streams", "Watches that are open."),
        Metric("api_watches_behind", _G, "streams", "Watches whose clients take changes more slowly than they come."),
    ),
)  # fmt: skip

_AUTHORITY: Final = Group(
    "The authority", "every server; a standby's stand still",
    (
        Metric("leader", _G, "", "1 on the server that leads its plane."),
        Metric("leader_epoch", _G, "", "The epoch of the leader, as this server knows it."),
        Metric("plane_position", _G, "effects", "How many effects the plane's journal has."),
        Metric("plane_objects", _G, "objects", "Objects in memory.", ("resource",)),
        Metric("commands_total", _C, "commands", "Commands that took effect."),
        Metric("commits_total", _C, "batches", "Batches made durable."),
        Metric("commit_bytes_total", _C, "bytes", "Size of those batches."),
        Metric("commit_duration_seconds", _H, "seconds", "From sending a batch to the store until it is durable."),
        Metric("commit_unknown_total", _C, "batches", "Batches of which the store did not say whether they landed; sent again."),
        Metric("store_unavailable_total", _C, "batches", "Batches that the store refused for now; taken back."),
        Metric("idempotent_replays_total", _C, "commands", "Commands answered from their receipt, because they had come before."),
        Metric("refusals_total", _C, "commands", "Refused commands, and refused parts of commands.", ("reason",)),
        Metric("fenced_writes_total", _C, "commands", "Commands and heartbeats refused because their sender's, or this server's, "
               "lease is not the present one."),
        Metric("stale_commits_rejected_total", _C, "commands", "Commands decided on what is no longer so.", ("reason",)),
        Metric("overloaded_total", _C, "calls", "Calls turned away because their lane was full."),
        Metric("history_failures_total", _C, "tries", "Tries in which this server's archive of history could not be written; the "
               "journal keeps what is missing there."),
        Metric("deposed_total", _C, "terms", "Terms of this server that another leader ended."),
        Metric("materialised_rows_total", _C, "rows", "Objects written to the store's checkpoint."),
        Metric("nodes", _G, "nodes", "Nodes by health.", ("health",)),
        Metric("region_partial", _G, "regions", "1 for a region that is heard and has lost most of its nodes, a zone, or sight "
               "of what it is told; the global plane's alone.", ("region",)),
        Metric("observation_age_seconds", _G, "seconds", "How long ago healthy nodes were heard: median, oldest.", ("of",)),
        Metric("reservation_leaked_total", _C, "reservations", "Reservations found 90 s or more after they ran out."),
        Metric("invariant_violations_total", _C, "breaches", "Promises found broken by the patrol, which looks over a region "
               "once a minute: S1 to S4.", ("invariant",)),
        Metric("invariant_checks_total", _C, "looks", "How often the patrol looked."),
        Metric("repairs", _G, "repairs", "What was found out of order and is not mended: open, or overdue.",
               ("problem", "state")),
        Metric("ledger_drifts_total", _C, "drifts", "Nodes and tenants of which the ledger said something else than their "
               "objects, counted again once a minute."),
        Metric("ledger_rebuilds_total", _C, "rebuilds", "How often this server read its plane anew for a drifted ledger."),
        Metric("workloads_below_min_serving", _G, "workloads", "Workloads with fewer replicas serving than they must have; the "
               "global plane's alone, regions have none."),
        Metric("finalizer_age_seconds", _G, "seconds", "Since when the longest waiting object waits for this finalizer.",
               ("finalizer",)),
        Metric("override_expiry_seconds", _G, "seconds", "Until the last override of this kind ends; absent where none holds.",
               ("kind",)),
        Metric("overrides", _G, "overrides", "Those that wait for approval, are in force, end soon (from 80 % of their time on) "
               "or ended in the last quarter of an hour.", ("kind", "state")),
        Metric("break_glass_requests_total", _C, "requests", "Requests by this server's local socket without a token."),
    ),
)  # fmt: skip

_SCHEDULER: Final = Group(
    "Schedulers", "the leader of a region",
    (
        Metric("schedule_attempts_total", _C, "slots", "Slots tried: scheduled, unschedulable, or error (refused).",
               ("scheduler", "result")),
        Metric("scheduling_attempt_duration_seconds", _H, "seconds", "From a cycle's start until its slots are durably bound.",
               ("scheduler",)),
        Metric("framework_extension_point_duration_seconds", _H, "seconds", "Parts of a cycle: FilterScore, Permit, Bind.",
               ("scheduler", "extension_point")),
        Metric("scheduling_cycles_total", _C, "cycles", "Cycles.", ("scheduler",)),
        Metric("pending", _G, "slots", "Slots in the queue: ready, taken, backoff, held.", ("scheduler", "queue")),
        Metric("pending_replicas", _G, "slots", "Slots in the queue by the reason why they wait.", ("scheduler", "reason")),
        Metric("queue_oldest_age_seconds", _G, "seconds", "How long the oldest slot waits.", ("scheduler",)),
        Metric("pending_hopeless", _G, "slots", "Slots whose deadline can no longer be met.", ("scheduler",)),
        Metric("bind_commit_total", _C, "slots", "Proposed binds by what the authority said: committed, unknown, or the refusal.",
               ("scheduler", "result")),
        Metric("preemption_victims", _H, "slots", "Victims of one claim.", ("scheduler",)),
        Metric("decisions_total", _C, "slots", "Attempts written to the record of decisions."),
        Metric("decisions_dropped_total", _C, "slots", "Attempts that were not, because the disk was too slow or full."),
        Metric("decision_write_errors_total", _C, "writes", "Times the disk refused to write them; it is tried again."),
    ),
)  # fmt: skip

_RECOVERY: Final = Group(
    "Recovery", "servers of the global plane; remaining_ratio also a region's, of itself",
    (
        Metric("recovery_ready", _G, "", "1 if every critical service would reach its minimum were this region lost now.",
               ("lost_region",)),
        Metric("recovery_time_predicted_seconds", _G, "seconds", "How long that would take.", ("lost_region",)),
        Metric("recovery_budget_remaining_ratio", _G, "", "Rooms of recovery budgets to be claimed, of all there should be.",
               ("region",)),
        Metric("recovering", _G, "workloads", "Workloads that have slots in place of a lost region's, or lack them."),
    ),
)  # fmt: skip

_SPREADING: Final = Group(
    "Regions", "the leader of the global plane",
    (
        Metric("region_skew_ratio", _G, "", "The share of a class's bound slots that lies in a region, less the share that an "
               "even split over the regions that may carry them would put there.", ("region", "workload_class")),
        Metric("overflow_slots_total", _C, "slots", "Slots that this region gave up for another one, because they found no "
               "place.", ("region",)),
    ),
)  # fmt: skip

_QUOTA: Final = Group(
    "Quota", "the leader of a region's plane",
    (
        Metric("grant_lease_remaining_seconds", _G, "seconds", "Until the first lease of this region's grants ends."),
        Metric("provisional_placements", _G, "slots", "Slots that would be stopped if the leases ended now."),
        Metric("coordination_calls_total", _C, "calls", "Commands and questions that this region's server sent to the global "
               "plane: reports, renewals of leases, and what it reads there. None of them is a bind's.", ("boundary",)),
    ),
)  # fmt: skip

_COMPONENTS: Final = Group(
    "Components under a lease", "the leader of each plane: controllers, schedulers, the narrator",
    (
        Metric("controller_stalled", _G, "", "1 while it does not get on; `get controllers` says why.", ("controller",)),
        Metric("controller_lease_held", _G, "", "1 while it has its lease and a picture of the plane.", ("controller",)),
        Metric("controller_lease_epoch", _G, "", "The epoch it acts under.", ("controller",)),
        Metric("controller_last_progress_age_seconds", _G, "seconds", "Since the end of its last look. An idle one's grows too.",
               ("controller",)),
        Metric("controller_restarts_total", _C, "restarts", "How often it started over from a list.", ("controller",)),
        Metric("controller_reconciles_total", _C, "looks", "Keys looked at.", ("controller",)),
        Metric("controller_commands_total", _C, "commands", "Commands sent.", ("controller",)),
        Metric("controller_oscillation_total", _C, "fights", "Writes that another kept undoing, and slots that two moved "
               "to and fro between regions; its last error names both, and it waits before it goes on.", ("controller",)),
        Metric("controller_pauses_total", _C, "pauses", "How often it found that it had stood still, and began to listen anew "
               "before it judges who is silent.", ("controller",)),
        Metric("controller_errors_total", _C, "looks", "Looks that ended in an error.", ("controller",)),
        Metric("controller_refusals_total", _C, "commands", "What the authority refused.", ("controller", "reason")),
        Metric("resync_only_progress_total", _C, "effects", "Progress that only a resync brought: a wake-up was missed.",
               ("controller",)),
        Metric("watch_lag_seconds", _G, "seconds", "How old the oldest change is that it has not looked at.", ("controller",)),
        Metric("workqueue_depth", _G, "keys", "Keys that wait for a look, now or later.", ("name",)),
        Metric("workqueue_oldest_seconds", _G, "seconds", "How long the key that is due longest has been due.", ("name",)),
        Metric("workqueue_adds_total", _C, "keys", "Keys that were added.", ("name",)),
        Metric("workqueue_retries_total", _C, "keys", "Keys that came back after a failure.", ("name",)),
        Metric("workqueue_queue_duration_seconds", _H, "seconds", "From when a key is due until it is looked at.", ("name",)),
        Metric("workqueue_work_duration_seconds", _H, "seconds", "One look at one key, with what it writes.", ("name",)),
        Metric("workqueue_longest_running_processor_seconds", _G, "seconds", "How long what is under way takes.", ("name",)),
    ),
)  # fmt: skip

_SLOTS: Final = Group(
    "Slots and events", "the leader of each plane, from its narrator",
    (
        Metric("replica_stage_duration_seconds", _H, "seconds", "How long slots took: scheduling (until bound), startup (until "
               "started), readiness (until ready), serving (until in traffic), draining (until gone).", ("stage",)),
        Metric("events_written_total", _C, "events", "Events written."),
        Metric("events_dropped_total", _C, "events", "Events that were not, because too many waited or the plane refused them."),
    ),
)  # fmt: skip

_AGENTS: Final = Group(
    "Agents", "the server that the agents are connected to; sums over all of them",
    (
        Metric("agents", _G, "agents", "Agents that told their figures in the last minute."),
        Metric("agent_instances", _G, "instances", "What agents run or keep, by condition.", ("condition",)),
        Metric("agent_heartbeats_total", _C, "heartbeats", "Heartbeats that were acknowledged."),
        Metric("agent_handshakes_total", _C, "handshakes", "Inventories told, one a node."),
        Metric("agent_reports_total", _C, "reports", "Reports sent."),
        Metric("agent_starts_total", _C, "starts", "Starts of instances, the first of each and every other."),
    ),
)  # fmt: skip

GROUPS: Final = (_SERVER, _API, _AUTHORITY, _SCHEDULER, _SPREADING, _RECOVERY, _QUOTA, _COMPONENTS, _SLOTS, _AGENTS)
METRICS: Final = {row.name: row for group in GROUPS for row in group.rows}
