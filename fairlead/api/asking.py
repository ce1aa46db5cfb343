"""`/eviction` and `/binding`: asking for a slot to leave, and proposing where one should go.

Neither is decided here. An eviction is filed as an EvictionRequest and ruled by the disruption controller, the only one that
drains; this waits a little for the ruling and takes back what a budget forbids. A binding is a scheduler's proposal, judged by
the authority like one that came over the channel. Called by the dispatcher.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from starlette.responses import Response

from fairlead.api import served
from fairlead.api.calls import Call
from fairlead.api.failures import Failure, bad_request, of_refusal, success, unacceptable
from fairlead.api.members import Item, Member
from fairlead.api.reading import find
from fairlead.api.writes import foreseen, key_of, refused, send, stored_record
from fairlead.client.resources import Unreachable
from fairlead.model.commands import Accepted, Bind, Command, Delete, Fault, IdempotencyKey, Put, Refused, Unknown
from fairlead.model.kinds.work import EvictionRequest, EvictionRequestSpec
from fairlead.model.meta import Evidence, Metadata
from fairlead.model.registry import KINDS
from fairlead.wire.json_codec import API_VERSION

RULING_S: Final = 5.0  # how long a ruling is waited for; the disruption controller takes milliseconds when it is well
LOOK_S: Final = 0.05
AGAIN_S: Final = 10.0  # after which a blocked eviction may be worth another try
REASON_MAX: Final = 200
_EVICTIONS: Final = KINDS["evictionrequests"]
_PATH: Final = re.compile(r" - at `\$\.?(.*)`$")


# --- evictions -----------------------------------------------------------------------------------------------------------


async def evict(call: Call) -> Response:
    """201: approved, and on its way out. 429: a budget forbids it now, named in the message. 202: nobody has ruled yet."""
    call.allow_only("create", instead="evictionrequests")
    reason = _reason(call, await call.tree() if await call.body() else {})
    item = await find(call)
    member, slot = item.member, stored_record(item)
    spec = EvictionRequestSpec(
        slot=slot.spec.slot, reason=reason, requester=call.services.rules.actor(call.identity), epoch=slot.spec.token.epoch
    )
    record = EvictionRequest(metadata=Metadata(name=slot.metadata.name, namespace=slot.metadata.namespace), spec=spec)
    outcome, mine = await _file(call, member, record)
    if call.dry_run:
        return call.answer(_shown(foreseen(call, member, record, None, _EVICTIONS)), 201)
    clock = call.services.clock
    until = clock.monotonic() + RULING_S
    while True:
        found = await _request(member, record)
        if found is None:
            if outcome is not None and outcome.replayed:
                raise Failure(409, "what was asked for with this Idempotency-Key was taken back; ask again with another")
            return call.answer(success("evictionrequests", record.metadata.name, ""), 201)  # done, and tidied away
        status, generation = found.served.status, found.served.metadata.generation
        if any(c.status == "True" for c in status.conditions if c.observed_generation == generation):
            return call.answer(_shown(found), 201)
        if status.blocked_by and status.observed_generation >= generation:
            if not mine or await _taken_back(call, found):
                raise _over_budget(call, status.blocked_by)
        elif clock.monotonic() >= until:
            call.warn("nobody has ruled on it yet: is the disruption controller of that region well?")
            return call.answer(_shown(found), 202)
        await clock.sleep(LOOK_S)


def _reason(call: Call, tree: Any) -> str:
    """Of our own form, {spec: {reason}}; Kubernetes' Eviction says none."""
    if not isinstance(tree, dict):
        raise bad_request("the body must be one object, or empty")
    spec = tree.get("spec") or {}
    said = spec.get("reason", "") if isinstance(spec, dict) else None
    if not isinstance(said, str) or len(said) > REASON_MAX:
        raise unacceptable(
            "EvictionRequest", call.target.name, [Fault("spec.reason", f"expected at most {REASON_MAX} characters")]
        )
    return said or f"asked for by {call.identity.name}"


async def _file(call: Call, member: Member, record: EvictionRequest) -> tuple[Accepted | None, bool]:
    """Whether it is ours, to be taken back when it is blocked; one that stands already, of a drain perhaps, is not."""
    outcome = await send(call, member, Put(_EVICTIONS.kind, record, "create", dry_run=call.dry_run))
    if isinstance(outcome, Accepted):
        return outcome, True
    if outcome.reason != "AlreadyExists":
        raise refused(call, outcome)
    standing = await _request(member, record)
    if standing is None or not any(c.type == "Done" and c.status == "True" for c in standing.served.status.conditions):
        return None, False
    body = Put(_EVICTIONS.kind, record, "update", standing.revision, call.dry_run)  # an old one that is over: asked for anew
    outcome = await send(call, member, body, stored_record(standing))
    if isinstance(outcome, Refused):
        raise refused(call, outcome)
    return outcome, True


async def _request(member: Member, record: EvictionRequest) -> Item | None:
    try:
        return await member.get(_EVICTIONS.plural, record.metadata.namespace, record.metadata.name)
    except Unreachable:
        raise Failure(503, f"{member.name} cannot be reached; the request may stand", retry_after_s=2.0) from None


async def _taken_back(call: Call, found: Item) -> bool:
    """False: it changed meanwhile, so look again."""
    metadata = found.served.metadata
    body = Delete(_EVICTIONS.kind, metadata.namespace, metadata.name, expected_revision=found.revision, uid=metadata.uid)
    caller = call.services.rules.caller(call.identity, call.asked)
    if isinstance(caller, Refused):
        raise refused(call, caller)
    outcome = await call.submit(found.member, Command(caller, body))
    return isinstance(outcome, Accepted) or (isinstance(outcome, Refused) and outcome.reason == "NotFound")


def _over_budget(call: Call, blocked_by: str) -> Failure:
    cause = {"reason": "DisruptionBudget", "message": blocked_by, "field": ""}
    message = f"cannot evict {call.tenant}/{call.target.name} now: {blocked_by}"
    return Failure(429, message, causes=[cause], retry_after_s=AGAIN_S)


def _shown(item: Item) -> bytes:
    return served.text(item.body, _EVICTIONS.kind, item.resource_version)


# --- proposals -----------------------------------------------------------------------------------------------------------


class _Form(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What is said of a proposal must be said: nothing in it is filled in from the present."""


class _ProposalSpec(_Form, frozen=True):
    node: str
    epoch: int
    generation: int
    policy_revision: int
    grant_version: int
    victims: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    decision: str = ""


class _Evidence(_Form, frozen=True):
    observed_revision: int
    age_seconds: float


class _Proposal(_Form, frozen=True):
    spec: _ProposalSpec
    evidence: _Evidence
    lease: str
    fencing_epoch: int
    api_version: str = API_VERSION
    kind: str = "BindingProposal"
    metadata: dict[str, Any] = {}


async def bind(call: Call) -> Response:
    """A scheduler's proposal for one slot, under its lease, with what it was decided on. 201 with the Binding."""
    call.only("create")
    identity, rules = call.identity, call.services.rules
    proposal = _proposal(call, await call.tree())
    caller = rules.proposer(identity, proposal.lease, proposal.fencing_epoch)
    if isinstance(caller, Refused):
        raise refused(call, caller)
    spec, evidence, key = proposal.spec, proposal.evidence, key_of(call)
    body = Bind(
        call.tenant, call.target.name, spec.epoch, spec.generation, spec.node, spec.policy_revision, spec.grant_version,
        spec.victims, decision=spec.decision, devices=spec.devices,
    )  # fmt: skip
    command = Command(
        caller, body, IdempotencyKey(key, call.digest()) if key else None,
        Evidence(observed_revision=evidence.observed_revision, age_seconds=evidence.age_seconds),
        rules.correlation(identity, ""),
    )  # fmt: skip
    why_not = rules.refuse_command(identity, command)
    if why_not is not None:
        raise refused(call, why_not)
    member = (await find(call)).member
    outcome = await call.submit(member, command)
    if isinstance(outcome, Refused):
        raise of_refusal(outcome, "SchedulingRequest", call.resource.plural, call.target.name)
    if isinstance(outcome, Unknown):
        cause = {"reason": "OutcomeUnknown", "message": outcome.detail, "field": ""}
        raise Failure(504, f"nobody can say yet whether it is bound: {outcome.detail}; read the binding", causes=[cause])
    item = await member.get("bindings", call.tenant, call.target.name)
    if item is None:
        raise Failure(409, f"{call.target.name} was bound, and is released again")
    return call.answer(served.text(item.body, "Binding", item.resource_version), 201)


def _proposal(call: Call, tree: Any) -> _Proposal:
    if call.dry_run:
        raise bad_request("dryRun: a proposal is judged when it is made; it cannot be tried")
    try:
        return msgspec.convert(tree, _Proposal)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _PATH.search(text)
        fault = Fault(found[1] if found else "", _PATH.sub("", text))
        raise unacceptable("BindingProposal", call.target.name, [fault]) from None
