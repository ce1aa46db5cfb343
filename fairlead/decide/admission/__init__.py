"""Is this object well formed? All of its faults at once, each with its path in the manifest and what would be right.

Owns the rules on one object and on its change from the stored version. Never looks at any other object (quota, grants and
references are judged where they are used) and never changes what it is given. Called by the authority on every put, and by
the command line for `--dry-run=client`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fairlead.decide.admission import access, capacity, mounts, policy, work, workload
from fairlead.decide.admission.metadata import check_metadata
from fairlead.decide.admission.workload import execution_of, slots_of
from fairlead.model.commands import Fault
from fairlead.model.meta import Record
from fairlead.model.registry import KindInfo
from fairlead.model.report import Report

__all__ = ["OBJECT_BYTES_MAX", "RULES", "execution_of", "faults", "nothing_more", "slots_of"]

OBJECT_BYTES_MAX: Final = 256 * 1024  # Twice this, command and effect, fits a journal batch.


def nothing_more(report: Report, new: Any, old: Any) -> None:
    """Nothing beyond the rules all kinds share: the authority makes these itself, or they only record what was."""


# Every kind of the registry stands here; tests/decide/test_admission.py fails on one that does not.
RULES: Final[dict[str, Callable[[Report, Any, Any], None]]] = {
    "Tenant": capacity.check_tenant,
    "Quota": capacity.check_quota,
    "Region": capacity.check_region,
    "Workload": workload.check_workload,
    "Autoscaler": workload.check_autoscaler,
    "Config": mounts.check_data,
    "Secret": mounts.check_data,
    "SchedulerPolicy": policy.check_scheduler_policy,
    "PolicyChannel": policy.check_policy_channel,
    "Override": policy.check_override,
    "RecoveryBudget": capacity.check_recovery_budget,
    "Holding": nothing_more,
    "RecoveryOrder": nothing_more,
    "RegionOutlook": nothing_more,
    "Repair": nothing_more,
    "Grant": capacity.check_grant,
    "GrantTerm": capacity.check_grant_term,
    "Assignment": work.check_assignment,
    "Revision": work.check_revision,
    "EvictionRequest": work.check_eviction_request,
    "Node": capacity.check_node,
    "NodePool": capacity.check_node_pool,
    "SchedulingRequest": work.check_scheduling_request,
    "Endpoints": work.check_endpoints,
    "AccessRole": access.check_access_role,
    "AccessBinding": access.check_access_binding,
    "ServiceAccount": access.check_service_account,
    "Token": access.check_token,
    "Reservation": nothing_more,
    "Binding": nothing_more,
    "Instance": nothing_more,
    "Lease": nothing_more,
    "Event": nothing_more,
    "Decision": nothing_more,
    "Plane": nothing_more,
}


def faults(info: KindInfo, new: Record, old: Record | None, *, encoded_bytes: int = 0) -> tuple[Fault, ...]:
    """Everything wrong with `new` as the successor of `old` (None: it is being created). Empty means admitted.

    `encoded_bytes` is the length of its stored form, where the caller knows it.
    """
    report = Report()
    after: Any = new
    before: Any = old
    check_metadata(report, info, after.metadata, before.metadata if before is not None else None)
    if encoded_bytes > OBJECT_BYTES_MAX:
        report.add("", f"the object may have {OBJECT_BYTES_MAX} bytes, has {encoded_bytes}")
    if before is not None and info.immutable and after.spec != before.spec:
        report.add("spec", f"a {info.kind} never changes; create a new one instead")
    RULES[info.kind](report, after, before)
    return report.faults()
