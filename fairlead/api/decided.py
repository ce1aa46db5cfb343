"""`/decisions`: what schedulers decided about a workload, a slot or a node, newest first, from the records beside each region.

Reads only. Called by the dispatcher; explaining.py asks here for the last decision about a slot.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec
from starlette.responses import Response

from fairlead.api.calls import Call
from fairlead.api.columns import instant_of
from fairlead.api.failures import bad_request
from fairlead.api.masking import Mask, mask_of
from fairlead.api.members import Member
from fairlead.client.decisions import DecisionQuery, Explained, ExplainedPage
from fairlead.client.resources import Unreachable
from fairlead.model.registry import KINDS
from fairlead.wire.json_codec import API_VERSION

LIMIT: Final = 20  # attempts of each region, unless asked for more
LIMIT_MAX: Final = 500
SLOT_DIGITS_MAX: Final = 12

_Token = dict[str, str]  # region -> where its list goes on
_token_decoder: Final = msgspec.json.Decoder(_Token)


async def decisions(call: Call) -> Response:
    call.allow_only("get")
    _present(call, "decisions", "until=TIME tells what was decided before")
    query, token = _query(call), _token_of(call)
    items: list[tuple[str, Explained]] = []
    following: _Token = {}
    for member in regions_of(call):
        if token is not None and member.name not in token:
            continue
        page = await ask_decisions(call, member, msgspec.structs.replace(query, after=(token or {}).get(member.name, "")))
        items += [(member.name, one) for one in page.items]
        if page.next:
            following[member.name] = page.next
        for damage in page.damaged:
            call.warn(f"{member.name} cannot read some of its decisions: {damage}")
    items.sort(key=lambda pair: -pair[1].decided.time_ms)
    mask = mask_of(call)
    more = base64.urlsafe_b64encode(msgspec.json.encode(following)).decode().rstrip("=") if following else ""
    body = {
        "kind": "DecisionRecordList",
        "apiVersion": API_VERSION,
        "metadata": {"continue": more} if more else {},
        "items": [record_of(region, one, mask) for region, one in items],
    }
    return call.answer(body)


def regions_of(call: Call) -> list[Member]:
    return call.front.serving(KINDS["bindings"], call.region)


def slot_asked(call: Call) -> int | None:
    text = call.query.get("slot", "")
    if text and not (text.isascii() and text.isdigit() and len(text) <= SLOT_DIGITS_MAX):
        raise bad_request(f"slot: expected the index of a replica, got {text[:40]!r}")
    return int(text) if text else None


async def ask_decisions(call: Call, member: Member, query: DecisionQuery) -> ExplainedPage:
    try:
        return await member.ask(lambda: member.plane.decisions(query))
    except Unreachable:
        call.warn(f"{member.name} is unreachable; what was decided there is not shown")
        return ExplainedPage()


def _present(call: Call, what: str, instead: str) -> None:
    if call.query.get("at"):
        raise bad_request(f"at: {what} is told of the present; {instead}")


def _query(call: Call) -> DecisionQuery:
    plural, name, query = call.info.plural, call.target.name, call.query
    about: dict[str, Any] = {"node": query.get("node", ""), "outcome": query.get("outcome", "")}
    match plural:
        case "workloads":
            slot = slot_asked(call)
            about |= {"tenant": call.tenant, "workload": name, "slot": f"{name}-{slot}" if slot is not None else ""}
            about["generation"] = call.number("generation") or None
        case "nodes":
            about["node"] = name
        case _:
            about |= {"tenant": call.tenant, "slot": name}
    limit = call.number("limit") or LIMIT
    if limit > LIMIT_MAX:
        raise bad_request(f"limit: at most {LIMIT_MAX}, got {limit}")
    return DecisionQuery(**about, since_ms=call.moment_ms("since"), until_ms=call.moment_ms("until"), limit=limit)


def _token_of(call: Call) -> _Token | None:
    text = call.query.get("continue", "")
    if not text:
        return None
    try:
        found = _token_decoder.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        for after in found.values():
            DecisionQuery(after=after)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise bad_request(f"continue key is not valid: {str(error)[:80]}") from None
    return found


def record_of(region: str, one: Explained, mask: Mask) -> dict[str, Any]:
    decided, attempt, result = one.decided, one.attempt, one.result
    spec: dict[str, Any] = {
        "id": one.id,
        "region": region,
        "time": instant_of(decided.time_ms),
        "scheduler": decided.scheduler,
        "slot": f"{attempt.tenant}/{attempt.name}",
        "generation": attempt.generation,
        "epoch": attempt.epoch,
        "node": attempt.node,
        "outcome": result.outcome or attempt.reason,
        "detail": result.detail or attempt.detail,
        "nextOwner": attempt.next_owner,
        "nextAttemptTime": instant_of(attempt.next_attempt_ms) if attempt.next_attempt_ms else None,
        "queuedSeconds": attempt.queued_ms / 1000,
        "policyRevision": decided.policy_revision,
        "evidence": {"observedRevision": str(decided.observed_revision), "ageSeconds": decided.age_ms / 1000},
        "strategy": decided.strategy,
        "ask": decided.ask,
        "nodes": {
            "lookedAt": decided.nodes, "feasible": decided.feasible, "ruledOut": decided.ruled_out, "reasons": decided.reasons,
        },
        "candidates": [{"node": c.node, "total": c.total, "scores": _scores(c.rates)} for c in decided.candidates],
        "quota": decided.quota.get(attempt.tenant, ""),
        "victims": list(mask(attempt.victims)),
    }  # fmt: skip
    return {"kind": "DecisionRecord", "spec": {key: value for key, value in spec.items() if value not in (None, "", [], {})}}


def _scores(rates: tuple[tuple[str, int, int], ...]) -> dict[str, dict[str, int]]:
    return {name: {"weight": weight, "rate": rate} for name, weight, rate in rates}
