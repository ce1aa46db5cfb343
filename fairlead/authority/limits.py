"""What is refused while a store holds as many objects as it may (P8): what people would make anew. Everything else goes on: work
that is there changes its status and ends, and deleting is the way out. Asked by the authority for each command.
"""

from __future__ import annotations

from typing import Final

from fairlead.authority.state import State
from fairlead.model.commands import Command, Put, Refused
from fairlead.model.lifecycle import Role
from fairlead.model.registry import BY_KIND
from fairlead.store.contract import Unavailable

_PEOPLE: Final = frozenset({Role.USER, Role.OPERATOR})


def beyond(limit: Unavailable, state: State, command: Command) -> Refused | None:
    body = command.body
    if type(body) is not Put or command.caller.role not in _PEOPLE or body.dry_run or body.kind not in BY_KIND:
        return None
    metadata = body.object.metadata
    if state.hot(BY_KIND[body.kind].plural, metadata.namespace, metadata.name) is not None:
        return None
    return Refused("StoreUnavailable", f"{limit.reason}: {limit.detail}", {}, (), limit.retry_after_s)
