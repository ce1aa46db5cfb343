"""Owns who on a node counts no more because somebody waits for it to leave (P12): a victim that drains, for as long as its
claimer has not begun, in the very life that was claimed. Sums of its own, shared with no judge. Called by checkers.py and
places.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import SlotState

_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)

Use = tuple[str, str, str]  # plural, tenant, name


def going(uses: Mapping[Use, Any]) -> set[Use]:
    """Of what is on one node. A slot that came back there after its claimer was bound is in another life: that one was never
    given to anybody."""
    out: set[Use] = set()
    for claimer in uses.values():
        if not isinstance(claimer, Binding) or claimer.status.state is not SlotState.BOUND:
            continue
        for named in claimer.spec.start_after:
            tenant, _, name = named.partition("/")
            victim = uses.get(("bindings", tenant, name))
            drains = victim is not None and victim.status.state is SlotState.DRAINING
            if victim is not None and drains and _began(victim) <= _began(claimer):
                out.add(("bindings", tenant, name))
    return out


def _began(binding: Binding) -> datetime:
    """When this life was bound."""
    return binding.metadata.creation_time or _ALWAYS
