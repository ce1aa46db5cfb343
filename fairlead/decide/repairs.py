"""What is left over and whose it is to mend; and what is done about it now. Pure: lists of objects in, findings and commands out.

A finding is first written down as a Repair, with its evidence, its owner and a deadline; only at a later look, if it is still so,
something is done about it: a few at a time, later after each attempt that did not help, and nothing where an override asks for
approval first. What is overdue is escalated, whether or not there is anything that repair itself may do. Nothing here starts
work: a slot's next life is the slot repair's (controllers/repair.py), after the life before is proven gone. The authority judges
each step again. Used by fairlead/controllers/leftovers.py.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from fairlead.decide.overrides import Where, in_force, words
from fairlead.decide.slots import instant, millis
from fairlead.model.commands import Body, Delete, Put, PutStatus
from fairlead.model.ids import split_key
from fairlead.model.kinds.access import SYSTEM_TENANT
from fairlead.model.kinds.ledger import Event, EventSpec
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.repair import Problem, Repair, RepairSpec, RepairStatus
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Condition, Metadata, set_condition

NEW_MAX: Final = 20  # written down at one look
OPEN_MAX: Final = 200  # at a time, of those that repair may mend and of the others: what floods is one fault, and as many say it
FIXES_MAX: Final = 10  # at one look: a mistake is seen before it has gone through everything
AGAIN_FIRST_MS: Final = 10_000  # after an attempt that did not help, doubled each time
AGAIN_MAX_MS: Final = 600_000
KEPT_MS: Final = 3_600_000  # after it was mended, for whoever asks what was done
_EVIDENCE_MAX: Final = 500


class Finding(NamedTuple):
    problem: Problem
    regarding: str  # PLURAL/TENANT/NAME
    uid: str
    owner: Role
    allowed_s: float  # within which it is to be mended, from when it was found
    evidence: str
    fix: Body | None = None  # what repair itself may do about it; None: its owner, or people
    rebuild: bool = False  # the authority's memory is to be built anew
    workload: str = ""  # that it is about, for overrides that name some

    @property
    def is_ours(self) -> bool:
        """Something is to be done about it here, and not by its owner or people."""
        return self.fix is not None or self.rebuild

    @property
    def name(self) -> str:
        """Of its Repair: the same finding has the same name, whoever finds it."""
        told = hashlib.sha256(f"{self.regarding} {self.uid}".encode()).hexdigest()
        return f"{self.problem.lower()}-{told[:16]}"


class Steps(NamedTuple):
    bodies: list[Body]
    rebuild: str = ""  # why the authority's memory is to be built anew; empty: it is not
    untold: int = 0  # findings for which there was no room


def approval_awaited(overrides: Iterable[Override], where: Where, now_ms: int) -> Override | None:
    """The override that repair waits under: until a second person approves it, or it ends."""
    return in_force((each for each in overrides if not each.spec.approver), "repair-approval", now_ms, where)


def steps(
    findings: Iterable[Finding], repairs: Mapping[str, Repair], overrides: Iterable[Override], region: str, now_ms: int
) -> Steps:
    """What follows from one look. `repairs` by name, as they stand."""
    found = {finding.name: finding for finding in findings}
    asked = list(overrides)
    bodies: list[Body] = []
    still = Counter(found[name].is_ours for name, each in repairs.items() if name in found and not _is_mended(each))
    new, fixes, untold, rebuild = NEW_MAX, FIXES_MAX, 0, ""
    # What people are to see to may stay for days: it takes no room from what can be mended at once.
    for name, finding in sorted(found.items(), key=lambda each: (not each[1].is_ours, each[0])):
        repair = repairs.get(name)
        if repair is None or _is_mended(repair):
            if not new or still[finding.is_ours] >= OPEN_MAX:
                untold += 1
                continue
            new -= 1
            still[finding.is_ours] += 1
            bodies.append(Put("Repair", _opened(name, finding, now_ms)))
            continue
        paused = approval_awaited(asked, _where(finding, region), now_ms)
        acts = paused is None and fixes > 0 and _is_due(finding, repair, now_ms)
        if acts:
            fixes -= 1
            bodies += [finding.fix] if finding.fix is not None else []
            rebuild = finding.evidence if finding.rebuild else rebuild
        bodies += _said(repair, finding, paused, acts, now_ms)
    for name, repair in sorted(repairs.items()):
        if name not in found:
            bodies += _over(repair, now_ms)
    return Steps(bodies, rebuild, untold)


def _where(finding: Finding, region: str) -> Where:
    return Where(split_key(finding.regarding)[1], finding.workload, region)


def _opened(name: str, finding: Finding, now_ms: int) -> Repair:
    spec = RepairSpec(
        problem=finding.problem, regarding=finding.regarding, uid=finding.uid, owner=finding.owner.value,
        deadline_time=instant(now_ms + int(finding.allowed_s * 1000)), evidence=finding.evidence[:_EVIDENCE_MAX],
    )  # fmt: skip
    return Repair(metadata=Metadata(name=name), spec=spec)


def _is_mended(repair: Repair) -> bool:
    """As its present generation says: one that came back is written anew, and begins anew."""
    found = next((c for c in repair.status.conditions if c.type == "Mended"), None)
    return found is not None and found.status == "True" and found.observed_generation == repair.metadata.generation


def _is_due(finding: Finding, repair: Repair, now_ms: int) -> bool:
    if not finding.is_ours:
        return False
    status = repair.status
    again_ms = min(AGAIN_MAX_MS, AGAIN_FIRST_MS << min(status.attempts, 10)) if status.attempts else 0
    return now_ms >= millis(status.last_attempt_time) + again_ms


def _said(repair: Repair, finding: Finding, paused: Override | None, acted: bool, now_ms: int) -> list[Body]:
    """Its status while it is not mended, and a word to people when it becomes overdue."""
    spec, status = repair.spec, repair.status
    overdue = now_ms >= millis(spec.deadline_time)
    until = (
        f"{spec.owner} is to mend it until {spec.deadline_time:%H:%M:%S} UTC" if spec.deadline_time is not None else spec.owner
    )
    if paused is not None:
        mended = ("AwaitingApproval", words(paused))
    elif not finding.is_ours:
        mended = ("OwnerMustAct", until)
    else:
        mended = ("Trying", until)
    was_overdue = any(c.type == "Overdue" and c.status == "True" for c in status.conditions)
    conditions = _with(repair, "Mended", "False", mended[0], mended[1], now_ms)
    late = ("True", "Escalated", spec.evidence) if overdue else ("False", "InTime", until)
    conditions = set_condition(conditions, _condition(repair, "Overdue", *late, now_ms))
    new = replace(status, observed_generation=repair.metadata.generation, conditions=conditions)
    if acted:
        new = replace(new, attempts=status.attempts + 1, last_attempt_time=instant(now_ms))
    bodies: list[Body] = [_status(repair, new)] if new != status else []
    return [*bodies, _called(repair, now_ms)] if overdue and not was_overdue else bodies


def _over(repair: Repair, now_ms: int) -> list[Body]:
    """It is not found any more."""
    if _is_mended(repair):
        mended = next(c for c in repair.status.conditions if c.type == "Mended")
        old = now_ms >= millis(mended.last_transition_time) + KEPT_MS
        return [Delete("Repair", "", repair.metadata.name, uid=repair.metadata.uid)] if old else []
    tries = repair.status.attempts
    reason, message = ("Mended", f"after {tries} attempts of repair") if tries else ("Gone", "by its owner")
    conditions = _with(repair, "Mended", "True", reason, message, now_ms)
    conditions = set_condition(conditions, _condition(repair, "Overdue", "False", reason, "", now_ms))
    return [_status(repair, RepairStatus(repair.metadata.generation, tries, repair.status.last_attempt_time, conditions))]


def _status(repair: Repair, status: RepairStatus) -> PutStatus:
    return PutStatus("Repair", "", repair.metadata.name, status, uid=repair.metadata.uid)


def _with(repair: Repair, kind: str, value: str, reason: str, message: str, now_ms: int) -> tuple[Condition, ...]:
    return set_condition(repair.status.conditions, _condition(repair, kind, value, reason, message, now_ms))


def _condition(repair: Repair, kind: str, value: str, reason: str, message: str, now_ms: int) -> Condition:
    return Condition(
        type=kind, status=value, reason=reason, message=message, observed_generation=repair.metadata.generation,  # type: ignore[arg-type]
        last_transition_time=instant(now_ms),
    )  # fmt: skip


def _called(repair: Repair, now_ms: int) -> Put:
    """One event a Repair, in the system's tenant: nothing of one tenant is told to another."""
    spec, name = repair.spec, f"{repair.metadata.name}.overdue"
    note = f"{spec.problem} of {spec.regarding} is not mended: {spec.evidence}"
    event = EventSpec(f"repairs//{repair.metadata.name}", "RepairOverdue", note, "Warning", "repair", uid=repair.metadata.uid)
    event = replace(event, first_time=instant(now_ms), last_time=instant(now_ms))
    return Put("Event", Event(Metadata(name=name, namespace=SYSTEM_TENANT), event))
