"""A request's need compiled for ranking, and the key by which equal ones are found."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.decide.compiling import compile_need
from fairlead.decide.need import Need
from fairlead.decide.policy import CompiledPolicy
from fairlead.decide.scores.wishes import wishes
from fairlead.model.kinds.work import Ask, SchedulingRequest
from fairlead.scheduler.snapshot import Snapshot


class Compiled(NamedTuple):
    key: Hashable
    ask: Ask
    need: Need  # for one row
    columns: Need  # for all rows


def compile_for_ranking(snapshot: Snapshot, request: SchedulingRequest, policy: CompiledPolicy) -> Compiled:
    spec, tenant = request.spec, request.metadata.namespace
    ask = policy.with_spread(spec.ask)
    need = compile_need(
        ask,
        tenant,
        spec.slot.uid,
        snapshot.topology,
        borrows=spec.may_borrow,
        max_age_s=policy.max_age_ms(ask) / 1000,
        areas=policy.residency_areas(ask.placement.residency, tenant, ask.labels),
        extra=policy.gates,
    )
    wanted = wishes(ask, [snapshot.classes[n] for n in range(len(snapshot.classes))])
    need = replace(need, wishes=wanted)
    verdicts = snapshot.classes.verdicts(ask, tenant, policy.residency_areas(ask.placement.residency, tenant, ask.labels))
    liked = tuple(wanted.classes[n] for n in range(len(wanted.classes))) if wanted.classes.tells_apart else ()
    # Tenants are told apart only where some node belongs to one of them alone.
    whose = need.tenant if need.exclusive or snapshot.exclusive_rows else 0
    key = (
        need.cpu, need.memory, need.scalars, need.devices, need.max_age_ms, need.borrows, need.exclusive, whose,
        bytes(verdicts.allowed), id(need.topology) if need.topology is not None else 0, wanted.image, liked,
        policy.revision, ask.workload_class,
    )  # fmt: skip
    return Compiled(key, ask, need, replace(need, classes=verdicts.wide()))
