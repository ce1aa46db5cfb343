"""The inventory handshake (P10): of what a node says it runs, what is adopted and what must stop. Pure.

Called by whoever answers a node's inventory on the region's side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import ON_NODE, SlotState

Running = tuple[str, str, Token]  # tenant, name, token
Bound = tuple[str, SlotState, Token]  # node, state, token

# A failed slot's process may still be about; its agent stops it by itself when it sees the binding.
_KEEPS: Final = ON_NODE


def to_stop(node: str, running: Iterable[Running], bound: Callable[[str, str], Bound | None]) -> list[Running]:
    """Everything that is not the present life of a slot bound to this very node."""
    stop: list[Running] = []
    for tenant, name, token in running:
        found = bound(tenant, name)
        if found is None or found[0] != node or found[2] != token or found[1] not in _KEEPS:
            stop.append((tenant, name, token))
    return stop
