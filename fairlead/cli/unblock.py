"""What would give a waiting slot a place, for the end of `fairlead why`: asked of the server, which has tried each change.

Owns which slot is asked about. Whoever may not ask, or asks a server that makes no plans, is told nothing. Called by why.py.
"""

from __future__ import annotations

from typing import Any, Final

from fairlead.cli.kinds import targets
from fairlead.cli.output import note
from fairlead.cli.plan import PATH
from fairlead.cli.session import Session
from fairlead.client.rest_errors import ApiError, Busy, Denied, Invalid, NotFound

LIMIT: Final = 3
QUOTA: Final = "edit quota NAME"
# What no change of the state gives a place: it is not looked at yet, or told to wait by its owner.
ELSEWHERE: Final = frozenset({"PendingEvaluation", "Suspended", "Deactivated", "BackingOff", ""})


async def changes_for(session: Session, status: dict[str, Any], namespace: str) -> list[dict[str, Any]]:
    """Of the first slot that has no place, at most three; none where there is none."""
    waiting = [one for one in status.get("slots") or () if one.get("state") == "Pending" and one.get("reason") not in ELSEWHERE]
    if not waiting:
        return []
    slot = waiting[0]
    asked = {"region": slot.get("region", ""), "namespace": namespace, "name": slot["name"], "limit": LIMIT}
    try:
        got = await session.client.post(PATH, {"spec": {"unblock": asked}})
    except (Denied, NotFound, Invalid):
        return []
    except (Busy, ApiError) as error:
        note(f"what would unblock {slot['name']} is not known: {error}")
        return []
    found: list[dict[str, Any]] = got["status"]["changes"]
    if not found:
        note(f"no single change that was tried on the present state would give {slot['name']} a place")
    if any(QUOTA in one.get("command", "") for one in found):
        name = await _quota_of(session, namespace)
        found = [{**one, "command": one.get("command", "").replace(QUOTA, f"edit quota {name}")} for one in found]
    return found


async def _quota_of(session: Session, namespace: str) -> str:
    """The tenant's only one: a region's copy, on which changes are tried, knows grants and not what they come from."""
    try:
        (kind,) = await targets(session.client, ("quotas",))
        items = (await session.client.read(kind.resource.path(namespace))).get("items") or []
    except ApiError:
        return "NAME"
    return str(items[0]["metadata"]["name"]) if len(items) == 1 else "NAME"
