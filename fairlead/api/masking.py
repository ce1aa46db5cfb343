"""Names of slots that belong to others, where an answer about one's own mentions them: shown to whoever may list them there.

Owns the words that stand in their place. Never decides who may: the rules do. Called by the handlers, through `Call.form` for
bindings and directly for decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from fairlead.api.members import Item
from fairlead.api.rules import Ask
from fairlead.model import codec
from fairlead.model.hot import DECODERS

if TYPE_CHECKING:
    from fairlead.api.calls import Call

OTHERS: Final = "another tenant's"

Mask = Callable[[Iterable[str]], tuple[str, ...]]


def mask_of(call: Call) -> Mask:
    """Of names TENANT/NAME, those of tenants whose workloads this caller may not list are left out of sight."""
    known: dict[str, bool] = {}

    def sees(tenant: str) -> bool:
        if tenant not in known:
            known[tenant] = call.services.rules.allows(call.identity, Ask("list", "workloads", tenant))
        return known[tenant]

    return lambda names: tuple(name if sees(name.partition("/")[0]) else OTHERS for name in names)


def masker(call: Call) -> Callable[[Item], Item] | None:
    """For forms: how a binding is shown; None: as it is, to whoever may see all of them."""
    if call.services.rules.allows(call.identity, Ask("list", "workloads")):
        return None
    return partial(_masked, mask_of(call))


def _masked(mask: Mask, item: Item) -> Item:
    change = item.change
    after: tuple[str, ...] = item.served.spec.start_after if change.raw is not None else ()
    shown = mask(after)
    if shown == after:
        return item
    assert change.raw is not None
    binding = DECODERS["bindings"].decode(change.raw)
    spec = msgspec.structs.replace(binding.spec, start_after=shown)
    return item.opened(codec.encode(msgspec.structs.replace(binding, spec=spec)))
