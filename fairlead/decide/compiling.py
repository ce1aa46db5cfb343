"""From what a slot asks to what the gates read: one function for proposers and the authority, so that they cannot differ.

Owns no state; the tables and counters it refers to belong to Classes and Topology. A compiled need stays right as they change,
until `Topology.stamp` grows: then compile again.
"""

from __future__ import annotations

import msgspec

from fairlead.decide.need import DeviceNeed, ExtraGate, Need
from fairlead.decide.topology import Topology
from fairlead.decide.topology_need import topology_need
from fairlead.model.kinds.work import Ask
from fairlead.model.resources import SHARE_WHOLE


def compile_need(
    ask: Ask,
    tenant: str,
    uid: str,
    topology: Topology,
    *,
    borrows: bool,
    max_age_s: float,
    areas: frozenset[str] | None,
    extra: tuple[ExtraGate, ...] = (),
) -> Need:
    """`max_age_s` is the policy's bound, which an ask may shorten; `areas` are those the policy leaves it, None for all; `uid` is
    the workload's, whose own slots some rules count."""
    classes = topology.classes.verdicts(ask, tenant, areas)
    return Need(
        cpu=ask.requests.cpu,
        memory=ask.requests.memory,
        slots=1,
        firm_cpu=0 if borrows else ask.requests.cpu,
        firm_memory=0 if borrows else ask.requests.memory,
        scalars=ask.requests.scalars,
        devices=tuple(
            DeviceNeed(
                d.resource,
                d.models,
                whole=d.count if d.share_thousandths == SHARE_WHOLE else 0,
                share=0 if d.share_thousandths == SHARE_WHOLE else d.share_thousandths,
            )
            for d in ask.devices
        ),
        max_age_ms=round(min(ask.max_observation_age_seconds or max_age_s, max_age_s) * 1000),
        classes=classes,
        borrows=borrows,
        charge=ask.requests.amounts(),
        tenant=topology.tenant_number(tenant),
        exclusive=ask.isolation == "TenantExclusive",
        topology=topology_need(topology, ask, tenant, uid, classes.allowed),
        extra=extra,
    )


def recompile_topology(need: Need, ask: Ask, tenant: str, uid: str, topology: Topology) -> Need:
    """The need with the rules about neighbours that apply now; for most that is none, before and after."""
    found = topology_need(topology, ask, tenant, uid, need.classes.allowed)
    return need if found is None and need.topology is None else msgspec.structs.replace(need, topology=found)
