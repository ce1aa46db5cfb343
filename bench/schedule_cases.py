"""The cases of `fairlead bench schedule`: how slots are asked for, and what must lie there before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from fairlead.model.commands import Enqueue
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement, SpreadRule
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources

MI = 1 << 20
REPLICAS = 100  # of one workload
GANG = 3
_PLAIN = Resources(100, 256 * MI)


class Case(NamedTuple):
    text: str
    work: Callable[[int, str], Iterator[Enqueue]]  # slots, prefix -> what to queue
    filled: int = 0  # slots of low priority per node that lie there before
    churn: bool = False


def _request(tenant: str, workload: str, index: int, ask: Ask, **spec: Any) -> SchedulingRequest:
    slot = SlotRef(workload=workload, uid=f"u-{workload}", index=index)
    metadata = Metadata(name=slot.object_name, namespace=tenant)
    return SchedulingRequest(metadata=metadata, spec=SchedulingRequestSpec(slot=slot, ask=ask, priority=500, **spec))


def tenant_of(number: int) -> str:
    return f"t{number % 50}"


def _workloads(slots: int, prefix: str, ask_of: Callable[[str], Ask], **spec: Any) -> Iterator[Enqueue]:
    for number, first in enumerate(range(0, slots, REPLICAS)):
        workload = f"{prefix}{number}"
        count = min(REPLICAS, slots - first)
        yield Enqueue(_request(tenant_of(number), workload, 0, ask_of(workload), **spec), count)


def _basic(slots: int, prefix: str) -> Iterator[Enqueue]:
    ask = Ask(requests=_PLAIN)
    return _workloads(slots, prefix, lambda workload: ask)


def _spread(slots: int, prefix: str) -> Iterator[Enqueue]:
    ask = Ask(requests=_PLAIN, placement=Placement(spread=(SpreadRule(topology_key="zone", max_skew=1),)))
    return _workloads(slots, prefix, lambda workload: ask)


def _labelled(workload: str, **rule: Any) -> Ask:
    match = (LabelExpression(key="app", values=(workload,)),)
    rules: dict[str, Any] = {name: (AffinityRule(topology_key=key, match=match),) for name, key in rule.items()}
    placement = Placement(**rules)
    return Ask(requests=_PLAIN, placement=placement, labels=(("app", workload),))


def _anti_affinity(slots: int, prefix: str) -> Iterator[Enqueue]:
    return _workloads(slots, prefix, lambda workload: _labelled(workload, anti_affinity="hostname"))


def _affinity(slots: int, prefix: str) -> Iterator[Enqueue]:
    return _workloads(slots, prefix, lambda workload: _labelled(workload, affinity="zone"))


def _preemption(slots: int, prefix: str) -> Iterator[Enqueue]:
    ask = Ask(requests=Resources(4000, 1024 * MI), workload_class="critical")
    for number, first in enumerate(range(0, slots, REPLICAS)):
        request = _request(tenant_of(number), f"{prefix}{number}", 0, ask)
        spec = _with(request.spec, priority=1000)
        yield Enqueue(_with(request, spec=spec), min(REPLICAS, slots - first))


def _gang(slots: int, prefix: str) -> Iterator[Enqueue]:
    ask = Ask(requests=_PLAIN)
    for number in range(slots // GANG):
        workload = f"{prefix}{number}"
        yield Enqueue(_request(tenant_of(number), workload, 0, ask, gang=workload, gang_size=GANG), GANG)


def _mixed(slots: int, prefix: str) -> Iterator[Enqueue]:
    """No two slots ask for the same."""
    for number in range(slots):
        ask = Ask(requests=Resources(50 + number * 7919 % 200, 64 * MI + number * 4096))
        yield Enqueue(_request(tenant_of(number), f"{prefix}{number}", 0, ask), 1)


def _deadline(slots: int, prefix: str) -> Iterator[Enqueue]:
    now = datetime.now(tz=UTC)
    ask = Ask(requests=_PLAIN, workload_class="batch")
    for number, first in enumerate(range(0, slots, REPLICAS)):
        due = now + timedelta(seconds=10 + number * 37 % 50)
        yield Enqueue(_request(tenant_of(number), f"{prefix}{number}", 0, ask, deadline_time=due), min(REPLICAS, slots - first))


def _with(record: Any, **fields: Any) -> Any:
    from msgspec.structs import replace

    return replace(record, **fields)


def fillers(nodes: int, per_node: int) -> Iterator[Enqueue]:
    """Low-priority work that leaves no room for more."""
    ask = Ask(requests=Resources(4000, 1024 * MI), workload_class="best-effort")
    for first in range(0, nodes * per_node, REPLICAS):
        request = _request(tenant_of(first // REPLICAS), f"fill{first // REPLICAS}", 0, ask)
        yield Enqueue(_with(request, spec=_with(request.spec, priority=0)), min(REPLICAS, nodes * per_node - first))


CASES: dict[str, Case] = {
    "basic": Case("workloads of 100 equal slots, 50 tenants", _basic),
    "spread": Case("spread over three zones, at most one more in any", _spread),
    "anti-affinity": Case("no two slots of a workload on one node", _anti_affinity),
    "affinity": Case("the slots of a workload in one zone", _affinity),
    "preemption": Case("critical slots on nodes full of best-effort work: one victim each", _preemption, filled=16),
    "churn": Case("as basic, while earlier slots finish and nodes are cordoned and opened", _basic, churn=True),
    "gang": Case("gangs of three, all or none", _gang),
    "mixed-shapes": Case("every slot asks for something else, each created alone", _mixed),
    "deadline": Case("batch with deadlines in no order: earliest first", _deadline),
}
