"""`/why`: what a workload or a slot waits for, on whom and until when, and what was last decided about it.

Reads only: the slots' own state on the planes of the regions, and the decision records beside them. Never asks a scheduler and
never guesses: what nobody has written down is not said. Called by the dispatcher.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from fairlead.api import served
from fairlead.api.calls import Call
from fairlead.api.columns import instant_of
from fairlead.api.decided import ask_decisions, record_of, regions_of, slot_asked
from fairlead.api.failing import SHOWN_S, last_failure
from fairlead.api.failures import not_found
from fairlead.api.masking import mask_of
from fairlead.api.members import Item, Member
from fairlead.api.moments import Moment, moment_of, of_generation
from fairlead.api.reading import expired, find
from fairlead.api.steps import steps_of
from fairlead.api.summary import summary_of, verdict_of, words_of
from fairlead.api.waiting import late_of, next_of
from fairlead.client.decisions import DecisionQuery, Explained
from fairlead.client.plane import Expired
from fairlead.client.resources import Unreachable
from fairlead.decide.overrides import Where, in_force
from fairlead.decide.slots import instant
from fairlead.model.ids import incarnation_of
from fairlead.model.lifecycle import SlotState
from fairlead.wire.json_codec import API_VERSION, to_plain

SLOTS_MAX: Final = 20  # slots told one by one, each with its last decision; the rest is counted
READ_MAX: Final = 5_000  # objects of one workload looked through on one plane
_PAGE: Final = 1_000
_TOGETHER_MIN: Final = 3  # slots for which one question is cheaper than one each
_TOGETHER_MAX: Final = 100  # attempts it may answer with
_QUEUED_OR_BOUND: Final = ("schedulingrequests", "bindings")
_PLACED: Final = frozenset({SlotState.BOUND, SlotState.STARTING, SlotState.READY, SlotState.SERVING})
_SETTLED: Final = frozenset({SlotState.SERVING, SlotState.SUCCEEDED, SlotState.RELEASED})
_SETTLED_JOB: Final = _SETTLED | {SlotState.READY}  # a job serves nobody: there is nothing further on but its end


async def why(call: Call) -> Response:
    call.allow_only("get")
    regions = regions_of(call)
    if call.info.plural == "workloads":
        generation = call.number("generation") or 0
        if generation and not call.query.get("at"):
            item, moment = await of_generation(call, regions, generation)
        else:
            item, moment = await find(call), await moment_of(call, regions)
        return call.answer(await _why_workload(call, item, moment, generation))
    item, moment = await find(call), await moment_of(call, regions)
    shown = await _slot(call, moment, item.member, item, item.change.plural, job=await _is_of_job(item, moment))
    status = {"summary": words_of(shown), "slots": [shown], "slotsLeftOut": 0}
    return call.answer(_answer(call, item, moment, status))


async def _why_workload(call: Call, item: Item, moment: Moment, generation: int) -> dict[str, Any]:
    """The controllers' own account first, then slot by slot whatever does not serve; or the one slot that is asked for."""
    workload = item.served
    counts = workload.status.replicas
    waiting: list[tuple[Member, Item, str]] = []
    settled: list[tuple[Member, Item, str]] = []
    unknown: list[str] = []
    index, job = slot_asked(call), workload.spec.job is not None
    for member in regions_of(call):
        try:
            for plural, one in await _waiting_and_bound(call, moment, member, item, index):
                if generation in (0, one.served.spec.generation):
                    (waiting if index is not None or _waits(one, job) else settled).append((member, one, plural))
        except Unreachable:
            unknown.append(member.name + await _health(item.member, moment, member.name))
            call.warn(f"{member.name} is unreachable; what waits there is not shown")
        except Expired as error:
            raise expired(str(error)) from None
    waiting.sort(key=lambda each: (each[2] != "schedulingrequests", each[1].served.spec.slot.index))
    last = await _last_decisions(call, moment, waiting[:SLOTS_MAX])
    slots = [await _slot(call, moment, *each, last, job=job) for each in waiting[:SLOTS_MAX]]
    if index is not None and not slots and not unknown:
        raise not_found("slots", f"{workload.metadata.name}-{index}", call.resource.group)
    if not waiting and settled and not unknown:  # nothing to complain of: the way of the one that came last stands for all
        slots = [await _slot(call, moment, *max(settled, key=lambda each: _moved_at(each[1].served)), job=job)]
    _say_desired(item, slots)
    pending = [to_plain(one) for one in workload.status.pending]
    shown = slots if waiting else []
    failure = await _failure(call, item, moment)
    whole = summary_of(workload, pending, shown, unknown, failure)
    status: dict[str, Any] = {
        "summary": words_of(slots[0]) if index is not None and slots else whole,
        "replicas": to_plain(counts),
        "pending": pending,
        "conditions": [to_plain(one) for one in _telling(workload)],
        "slots": shown,
        "slotsLeftOut": max(0, len(waiting) - SLOTS_MAX),
    }
    if not waiting and slots:
        status["lastSettled"] = slots[0]
    if failure is not None:
        status["lastFailure"] = failure
    return _answer(call, item, moment, status)


async def _waiting_and_bound(
    call: Call, moment: Moment, member: Member, workload: Item, index: int | None
) -> list[tuple[str, Item]]:  # fmt: skip
    """A workload's requests and bindings on one plane, with their kinds. A slot that was bound after its request was read and
    before its binding was is in both; it is told as bound."""
    requests, bindings = [await _slots_of(call, moment, member, plural, workload, index) for plural in _QUEUED_OR_BOUND]
    placed = {_life(one) for one in bindings if SlotState(one.served.status.state) in _PLACED}
    found = [("schedulingrequests", one) for one in requests if _life(one) not in placed]
    return found + [("bindings", one) for one in bindings]


def _life(slot: Item) -> tuple[int, int]:
    return slot.served.spec.slot.index, slot.served.spec.generation


def _waits(slot: Item, job: bool) -> bool:
    return SlotState(slot.served.status.state) not in (_SETTLED_JOB if job else _SETTLED)


def _telling(workload: Any) -> list[Any]:
    """The conditions that say what is amiss, and of a job how it stands; its two say the same until one of them is true."""
    ended, shown = verdict_of(workload), [one for one in workload.status.conditions if one.status != "True"]
    if workload.spec.job is None:
        return shown + [one for one in workload.status.conditions if (one.type, one.status) == ("Recovering", "True")]
    return [ended] if ended is not None else [one for one in shown if one.type != "Failed"]


async def _failure(call: Call, item: Item, moment: Moment) -> dict[str, Any] | None:
    """Told where something is not as it should be; of a job that is over, however long ago it was."""
    workload, ended = item.served, verdict_of(item.served)
    counts = workload.status.replicas
    complete = ended is not None and ended.type == "Complete"
    if complete or (workload.spec.job is None and counts.serving >= (counts.desired or workload.spec.replicas)):
        return None
    found = await last_failure(regions_of(call), moment, item)
    return found if found is not None and (ended is not None or found["ageSeconds"] < SHOWN_S) else None


async def _is_of_job(slot: Item, moment: Moment) -> bool:
    """Whether this slot is a job's: as the order of its region says."""
    ref, member = slot.served.spec.slot, slot.member
    name = f"{ref.workload}.{member.name}"
    found = await member.ask(
        partial(member.plane.get, "assignments", slot.served.metadata.namespace, name, moment.at(member))
    )  # fmt: skip
    return found is not None and found.raw is not None and served.decode("assignments", found.raw).spec.job is not None


async def _health(home: Member, moment: Moment, region: str) -> str:
    """What the plane that the workload lies on thinks of a region that cannot be asked."""
    try:
        found = await home.ask(partial(home.plane.get, "regions", "", region, moment.at(home)))
    except (Unreachable, Expired):
        return ""
    health = served.decode("regions", found.raw).status.health if found is not None and found.raw is not None else ""
    return f" ({health})" if health else ""


def _moved_at(slot: Any) -> float:
    last = slot.status.last_transition
    return last.time.timestamp() if last is not None and last.time is not None else 0.0


def _say_desired(item: Item, slots: list[dict[str, Any]]) -> None:
    """Where each slot's way begins: what the workload wants."""
    workload, spec = item.served, item.served.spec
    for slot in slots:
        wanted = slot["steps"][0]
        if wanted["evidence"] == f"generation {workload.metadata.generation}":
            wanted["evidence"] += f" at revision {item.resource_version}: replicas {spec.replicas}"
            if workload.metadata.generation == 1:
                wanted["time"] = workload.metadata.creation_time


def _answer(call: Call, item: Item, moment: Moment, status: dict[str, Any]) -> dict[str, Any]:
    metadata = item.served.metadata
    about = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid, "generation": metadata.generation}
    about |= {"resourceVersion": item.resource_version}
    if moment.ms:
        status["atTime"] = instant_of(moment.ms)
    return {"kind": "Why", "apiVersion": API_VERSION, "metadata": about, "of": call.info.kind, "status": status}


# --- slots ---------------------------------------------------------------------------------------------------------------


async def _slots_of(
    call: Call, moment: Moment, member: Member, plural: str, workload: Item, index: int | None = None
) -> list[Item]:  # fmt: skip
    """A workload's slots on one plane, or the one with that index. Names are WORKLOAD-INDEX, so they lie together."""
    name, tenant, uid = workload.served.metadata.name, workload.served.metadata.namespace, workload.served.metadata.uid
    prefix, plane = f"{name}-", member.plane
    after, revision, out = (tenant, prefix), moment.at(member), list[Item]()

    def is_its_own(item: Item) -> bool:
        ref = item.served.spec.slot
        return (ref.workload, ref.uid) == (name, uid)  # one that had this name before may have left some

    if index is not None:
        one = await member.get(plural, tenant, f"{name}-{index}", revision)
        return [one] if one is not None and one.change.raw is not None and is_its_own(one) else []
    for _ in range(READ_MAX // _PAGE):
        asked = partial(plane.page, plural, tenant, after=after, limit=_PAGE, revision=revision)
        page = await member.ask(asked)
        for change in page.items:
            if not change.name.startswith(prefix):
                return out
            item = Item(member, change, incarnation_of(page.revision))
            if is_its_own(item):
                out.append(item)
        if not page.next_name:
            return out
        after, revision = (page.next_tenant, page.next_name), page.revision
    call.warn(f"{member.name} has more than {READ_MAX} {plural} of {name}; the rest was not looked at")
    return out


async def _slot(
    call: Call, moment: Moment, member: Member, item: Item, plural: str, last: dict[tuple[str, str], Explained] | None = None,
    *, job: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Where one slot stands, why, since when, who acts next and when; and what was last decided about it."""
    one = item.served
    tenant, name = one.metadata.namespace, one.metadata.name
    shown: dict[str, Any] = {"name": name, "region": member.name, "state": SlotState(one.status.state).value}
    told = None
    if plural == "schedulingrequests":
        status = one.status
        shown |= {
            "reason": status.reason,
            "detail": status.detail,
            "sinceTime": status.since_time or one.metadata.creation_time,
            "nextOwner": status.next_owner,
            "nextAttemptTime": status.next_attempt_time,
        }
    else:
        at = moment.at(member)
        instance = await member.ask(partial(member.plane.get, "instances", tenant, name, at))
        told = served.decode("instances", instance.raw).status if instance is not None and instance.raw is not None else None
        found = await member.ask(partial(member.plane.get, "nodes", "", one.spec.node, at))
        health = served.decode("nodes", found.raw).status.health if found is not None and found.raw is not None else ""
        waits = await _repairs_wait(member, moment, one)
        shown |= {"node": one.spec.node, **next_of(one, told, health, waits, job=job)}
    decision = (last or {}).get((member.name, name))
    if decision is None:
        page = await ask_decisions(call, member, DecisionQuery(tenant=tenant, slot=name, until_ms=moment.until_ms, limit=1))
        decision = page.items[0] if page.items else None
    if decision is not None:
        shown["lastDecision"] = record_of(member.name, decision, mask_of(call))["spec"]
    if plural == "schedulingrequests":
        age_s = decision.decided.age_ms / 1000 if decision is not None else None
        shown["nextAttemptTime"] = following = _next_look(one, decision)
        shown["late"] = late_of(following, instant(moment.now_ms(member)), age_s)
    shown["steps"] = steps_of(one, told, shown, str(item.revision), job=job)
    return {key: value for key, value in shown.items() if value not in (None, "")}


def _next_look(request: Any, decision: Explained | None) -> datetime | None:
    """A status says when its reason was new; a slot that waits on for the same reason is told of by its decisions alone."""
    said: datetime | None = request.status.next_attempt_time
    if decision is None or decision.attempt.epoch != request.spec.epoch or not decision.attempt.next_attempt_ms:
        return said
    decided = instant(decision.attempt.next_attempt_ms)
    return decided if said is None else max(said, decided)


async def _last_decisions(
    call: Call, moment: Moment, slots: list[tuple[Member, Item, str]]
) -> dict[tuple[str, str], Explained]:  # fmt: skip
    """What was last decided about each, by region and name, as far as one question a region finds it: slots of a workload are
    mostly decided together. The others are asked for one by one."""
    out: dict[tuple[str, str], Explained] = {}
    for member in {each[0].index: each[0] for each in slots}.values():
        here = [each[1].served for each in slots if each[0] is member]
        if len(here) < _TOGETHER_MIN:
            continue
        tenant, workload = here[0].metadata.namespace, here[0].spec.slot.workload
        asked = DecisionQuery(tenant=tenant, workload=workload, until_ms=moment.until_ms, limit=_TOGETHER_MAX)
        for one in (await ask_decisions(call, member, asked)).items:
            out.setdefault((member.name, one.attempt.name), one)  # the newest comes first
    return out


async def _repairs_wait(member: Member, moment: Moment, binding: Any) -> str:
    """The override under which the repair of a slot waits for a second person; empty: there is none, or nothing to repair."""
    if SlotState(binding.status.state) not in (SlotState.UNKNOWN, SlotState.FAILED):
        return ""
    page = await member.ask(partial(member.plane.page, "overrides", None, limit=_PAGE, revision=moment.at(member)))
    asked = [member.shown(change).served for change in page.items if change.raw is not None]
    now_ms, where = moment.now_ms(member), Where(binding.metadata.namespace, binding.spec.slot.workload, member.name)
    found = in_force((one for one in asked if not one.spec.approver), "repair-approval", now_ms, where)
    return f"{found.metadata.name}: {found.spec.reason}" if found is not None else ""
