"""A request's need compiled for ranking, and the key by which equal ones are found."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.decide.compiling import compile_need
from fairlead.decide.need import Need
from fairlead.decide.overrides import Avoidance
from fairlead.decide.policy import CompiledPolicy
from fairlead.decide.scores.wishes import Wishes, wishes
from fairlead.model.kinds.intent import Placement
from fairlead.model.kinds.work import Ask, SchedulingRequest
from fairlead.scheduler.snapshot import Snapshot


class Compiled(NamedTuple):
    key: Hashable
    ask: Ask
    need: Need  # for one row
    columns: Need  # for all rows


WishesOf = dict[tuple[Placement, str], Wishes]  # by what wishes are made of; forgotten with the node classes they speak of


def compile_for_ranking(
    snapshot: Snapshot, request: SchedulingRequest, policy: CompiledPolicy, known: WishesOf | None = None,
    avoided: Avoidance | None = None,
) -> Compiled:  # fmt: skip
    spec, tenant = request.spec, request.metadata.namespace
    ask = policy.with_spread(spec.ask)
    areas = policy.residency_areas(ask.placement.residency, tenant, ask.labels)
    need = compile_need(
        ask,
        tenant,
        spec.slot.uid,
        snapshot.topology,
        borrows=spec.may_borrow,
        max_age_s=policy.max_age_ms(ask) / 1000,
        areas=areas,
        extra=(*policy.gates, *policy.extensions.filters, *((avoided,) if avoided is not None else ())),
    )
    known = {} if known is None else known
    wanted = known.get((ask.placement, ask.image))
    if wanted is None:
        wanted = known[ask.placement, ask.image] = wishes(ask, snapshot.classes)
    need = replace(need, wishes=wanted)
    verdicts = snapshot.classes.verdicts(ask, tenant, areas)
    liked = tuple(wanted.classes[n] for n in range(len(wanted.classes))) if wanted.classes.tells_apart else ()
    # Tenants are told apart only where some node belongs to one of them alone.
    whose = need.tenant if need.exclusive or snapshot.exclusive_rows else 0
    key = (
        need.cpu, need.memory, need.scalars, need.devices, need.max_age_ms, need.borrows, need.exclusive, whose,
        bytes(verdicts.allowed), id(need.topology) if need.topology is not None else 0, wanted.image, liked,
        policy.revision, ask.workload_class, avoided.key if avoided is not None else (),
    )  # fmt: skip
    return Compiled(key, ask, need, replace(need, classes=verdicts.wide()))
