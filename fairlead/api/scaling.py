"""The scale subresource of workloads: autoscaling/v1 Scale over `spec.replicas`. Called by the dispatcher.

Status tells how many replicas have a node, which is what `kubectl scale --timeout` waits for.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.responses import Response

from fairlead.api import managers, served
from fairlead.api.calls import JSON_PATCH, MERGE_PATCH, Call, parse
from fairlead.api.failures import Failure, bad_request
from fairlead.api.fieldsets import node_of
from fairlead.api.members import Item
from fairlead.api.patches import json_patch, merge_patch
from fairlead.api.reading import find
from fairlead.api.writes import (
    ATTEMPTS_MAX,
    answered_before,
    contested,
    expected,
    foreseen,
    refused,
    send,
    stored,
    stored_record,
    with_parts,
)
from fairlead.model.commands import Put, Refused

_VERB: Final = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch"}


async def handle(call: Call) -> Response:
    verb = _VERB.get(call.request.method)
    if verb is None:
        raise Failure(405, f"{call.request.method} is not supported on scale")
    call.allow(verb)
    if verb == "get":
        return call.answer(_scale(await find(call)))
    media = call.media
    body = parse(await call.body(), media, what=(call.resource.kind, call.target.name))
    if verb == "patch" and media not in (JSON_PATCH, MERGE_PATCH):
        raise Failure(415, f"scale takes {JSON_PATCH} and {MERGE_PATCH}")
    before = await answered_before(call)
    if before is not None and before[0] is not None:
        return call.answer(_scale(before[0]))
    for _ in range(ATTEMPTS_MAX):
        item = await find(call)
        scale = _scale(item)
        wanted = body if verb == "update" else (json_patch if media == JSON_PATCH else merge_patch)(scale, body)
        outcome = await _put(call, item, wanted)
        if isinstance(outcome, Item):
            return call.answer(_scale(outcome))
        if outcome.reason != "Conflict":
            raise refused(call, outcome)
    raise contested(call)


async def _put(call: Call, item: Item, wanted: Any) -> Item | Refused:
    replicas = _replicas(wanted)
    metadata = wanted.get("metadata") or {}
    expected(call, item, str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else "")
    old = stored_record(item)
    new = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, replicas=replicas))
    before, after = served.tree_of(with_parts(old)), served.tree_of(with_parts(new))
    entries = managers.updated(old.metadata.managed_fields, call.manager, before, after, node_of(call.info.record))
    record = with_parts(new, managed_fields=entries)
    outcome = await send(call, item.member, Put(call.info.kind, record, "update", item.revision, call.dry_run), old)
    if isinstance(outcome, Refused):
        return outcome
    if call.dry_run:
        return foreseen(call, item.member, record, item)
    return await stored(call, item.member, outcome, old.metadata.namespace, old.metadata.name) or item


def _replicas(wanted: Any) -> int:
    spec = wanted.get("spec") if isinstance(wanted, dict) else None
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise bad_request("spec.replicas: expected a whole number")
    return replicas


def _scale(item: Item) -> dict[str, Any]:
    workload = item.served
    metadata = {
        "name": workload.metadata.name,
        "namespace": workload.metadata.namespace,
        "uid": workload.metadata.uid,
        "resourceVersion": item.resource_version,
        "creationTimestamp": workload.metadata.creation_time,
    }
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": workload.spec.replicas},
        "status": {"replicas": workload.status.replicas.bound, "selector": ""},
    }
