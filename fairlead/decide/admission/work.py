"""What assignments, scheduling requests, evictions and endpoints must keep. Called through RULES in this package."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from fairlead.decide.admission.placement import check_placement
from fairlead.decide.admission.workload import PORT_MAX, REPLICAS_MAX, check_devices, check_requests
from fairlead.model.kinds.slot import STANDING, SlotRef
from fairlead.model.kinds.work import (
    Ask,
    Assignment,
    Endpoints,
    EvictionRequest,
    Revision,
    SchedulingRequest,
    SchedulingRequestSpec,
)
from fairlead.model.report import COUNT_MAX, SECONDS_MAX, Report, shown

EPOCH_MAX: Final = 1 << 53
REASON_MAX: Final = 1_024


def _check_slot(report: Report, path: str, slot: SlotRef, *, standing: bool = False) -> None:
    if standing:  # the dot keeps it apart from every workload's slots
        report.subdomain(f"{path}.workload", slot.workload)
        report.need(slot.workload.startswith(STANDING), f"{path}.workload", f"of a standing request begins with {STANDING}")
    else:
        report.label(f"{path}.workload", slot.workload)
    report.need(bool(slot.uid), f"{path}.uid", "is required: the uid of the workload, which tells a recreated one apart")
    report.within(f"{path}.index", slot.index, 0, COUNT_MAX)


def check_assignment(report: Report, new: Assignment, old: Assignment | None) -> None:
    spec = new.spec
    report.label("spec.workload", spec.workload)
    report.label("spec.region", spec.region)
    report.need(bool(spec.workload_uid), "spec.workloadUid", "is required, is empty")
    report.within("spec.generation", spec.generation, 1, EPOCH_MAX)
    end = -1
    for index, span in enumerate(spec.slots):
        path = f"spec.slots[{index}]"
        report.within(f"{path}.first", span.first, 0, COUNT_MAX)
        report.within(f"{path}.epoch", span.epoch, 1, EPOCH_MAX)
        if span.last < span.first:
            report.add(f"{path}.last", f"must be first or more, which is {span.first}, got {span.last}")
        report.within(f"{path}.last", span.last, 0, COUNT_MAX)
        if index and span.first <= end:
            report.add(f"{path}.first", f"must be above {end}, where the range before ends: ranges stand in order, none twice")
        end = max(end, span.last)
    if spec.spare is not None:
        report.within("spec.spare.first", spec.spare.first, 0, COUNT_MAX)
        report.within("spec.spare.last", spec.spare.last, spec.spare.first, COUNT_MAX)
    report.within("spec.minServing", spec.min_serving, 0, REPLICAS_MAX)
    if old is not None:
        report.unchanged("spec.workload", spec.workload, old.spec.workload)
        report.unchanged("spec.workloadUid", spec.workload_uid, old.spec.workload_uid)
        report.unchanged("spec.region", spec.region, old.spec.region)


def check_scheduling_request(report: Report, new: SchedulingRequest, old: SchedulingRequest | None) -> None:
    spec = new.spec
    _check_slot(report, "spec.slot", spec.slot, standing=spec.standing)
    if spec.standing and (spec.gang or not spec.budget_name):
        report.add("spec.standing", "needs a budgetName, and no gang")
    if new.metadata.name != spec.slot.object_name:
        message = f"must be {shown(spec.slot.object_name)}, as spec.slot says, got {shown(new.metadata.name)}"
        report.add("metadata.name", message)
    report.within("spec.epoch", spec.epoch, 1, EPOCH_MAX)
    report.within("spec.generation", spec.generation, 1, EPOCH_MAX)
    if spec.exclusive == "global" and spec.execution != "Exclusive":
        report.add("spec.exclusive", "global needs execution: Exclusive; leave it out or set execution")
    _check_gang(report, spec)
    if not _is_sound(spec.ask):
        _check_ask(report, "spec.ask", spec.ask)
    if old is not None:
        if spec.slot != old.spec.slot:
            report.add("spec.slot", f"may not change; it is {old.spec.slot.object_name} of workload {shown(old.spec.slot.uid)}")
        for field, value, least in (
            ("epoch", spec.epoch, old.spec.epoch),
            ("generation", spec.generation, old.spec.generation),
        ):
            if value < least:  # A lower one would hand a life that is over its rights back.
                report.add(f"spec.{field}", f"may not go back: it is {least}, got {value}")


def _check_gang(report: Report, spec: SchedulingRequestSpec) -> None:
    if spec.gang:
        report.within("spec.gangSize", spec.gang_size, 1, REPLICAS_MAX)
    elif spec.gang_size:
        report.add("spec.gangSize", f"must be left out without a gang, got {spec.gang_size}")


@lru_cache(maxsize=4096)
def _is_sound(ask: Ask) -> bool:
    """A workload's slots all ask the same: one look is enough for all of them."""
    report = Report()
    _check_ask(report, "spec.ask", ask)
    return not report.faults()


def _check_ask(report: Report, path: str, ask: Ask) -> None:
    check_requests(report, f"{path}.requests", ask.requests)
    check_devices(report, f"{path}.devices", ask.devices)
    check_placement(report, f"{path}.placement", ask.placement, None)
    report.label(f"{path}.workloadClass", ask.workload_class)
    report.within(f"{path}.maxObservationAgeSeconds", ask.max_observation_age_seconds, 0, SECONDS_MAX)
    report.unique(f"{path}.ports", ask.ports)
    for index, port in enumerate(ask.ports):
        report.within(f"{path}.ports[{index}]", port, 1, PORT_MAX)


def check_revision(report: Report, new: Revision, old: Revision | None) -> None:
    spec = new.spec
    report.label("spec.workload", spec.workload)
    report.need(bool(spec.workload_uid), "spec.workloadUid", "is required, is empty")
    report.within("spec.generation", spec.generation, 1, EPOCH_MAX)
    wanted = f"{spec.workload}.g{spec.generation}"
    if new.metadata.name != wanted:
        report.add("metadata.name", f"must be {shown(wanted)}, as spec says, got {shown(new.metadata.name)}")
    _check_ask(report, "spec.ask", spec.ask)


def check_eviction_request(report: Report, new: EvictionRequest, old: EvictionRequest | None) -> None:
    _check_slot(report, "spec.slot", new.spec.slot)
    if not new.spec.reason.strip():
        report.add("spec.reason", "is required: say why, for whoever is moved")
    elif len(new.spec.reason) > REASON_MAX:
        report.add("spec.reason", f"may have {REASON_MAX} characters, has {len(new.spec.reason)}")
    if old is None:
        wanted = new.spec.slot.object_name
        message = f"must be {shown(wanted)}, as spec.slot says, got {shown(new.metadata.name)}"
        report.need(new.metadata.name == wanted, "metadata.name", message)
    else:
        # Of another workload under the same name it is: slots are named, and requests with them.
        same = (new.spec.slot.workload, new.spec.slot.index) == (old.spec.slot.workload, old.spec.slot.index)
        report.need(same, "spec.slot", "may not change; file another request")


def check_endpoints(report: Report, new: Endpoints, old: Endpoints | None) -> None:
    spec = new.spec
    report.within("spec.version", spec.version, 0, EPOCH_MAX)
    report.unique("spec.endpoints", [endpoint.slot for endpoint in spec.endpoints], "slot")
    # What stands as it stood was looked at when it came: ten thousand are written for a change of one.
    known = {endpoint.slot: endpoint for endpoint in old.spec.endpoints} if old is not None else {}
    for index, endpoint in enumerate(spec.endpoints):
        if known.get(endpoint.slot) == endpoint:
            continue
        path = f"spec.endpoints[{index}]"
        report.within(f"{path}.slot", endpoint.slot, 0, COUNT_MAX)
        report.subdomain(f"{path}.node", endpoint.node)
        report.need(bool(endpoint.address), f"{path}.address", "is required, is empty")
        for name, port in endpoint.ports.items():
            report.within(f"{path}.ports.{name[:80]}", port, 1, PORT_MAX)
    if old is not None and spec.version < old.spec.version:
        report.add("spec.version", f"may not go back: it is {old.spec.version}, got {spec.version}")
