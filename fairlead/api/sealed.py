"""Secrets as this API shows and compares them: open for whoever may get them, their values hidden from everybody else.

Owns the opening at this end; what is kept of them in memory for all readers (members.py) is always the hidden form. Never decides
who may: the rules do. Called by the handlers, through `Call.form` when they answer and directly when they compare.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fairlead.api.masking import masker
from fairlead.api.members import Item
from fairlead.api.rules import Ask
from fairlead.model import codec
from fairlead.model.hot import DECODERS
from fairlead.model.kinds.intent import Secret
from fairlead.security.strongbox import Strongbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead.api.calls import Call


def opener(call: Call) -> Callable[[Item], Item] | None:
    """For forms: how an item of this call's kind is shown to this caller; None: as it is."""
    plural = call.resource.info.plural if call.resource.info is not None else ""
    if plural == "bindings":
        return masker(call)
    return partial(shown, call) if plural == "secrets" and call.services.secrets is not None else None


def shown(call: Call, item: Item) -> Item:
    """The item as this caller may see it. What does not open stays hidden, and the answer says why."""
    box, change = call.services.secrets, item.change
    if box is None or change.plural != "secrets" or change.raw is None:
        return item
    if not call.services.rules.allows(call.identity, Ask("get", "secrets", change.tenant, change.name)):
        return item
    secret, why = box.open_for_reader(DECODERS["secrets"].decode(change.raw))
    if why:
        call.warn(why)
        return item
    return item.opened(codec.encode(secret))


def record_of(item: Item, box: Strongbox | None) -> Any:
    """The stored record itself, secrets and all: what a change is compared with. What does not open is left as it is stored."""
    raw = item.change.raw
    assert raw is not None
    record = DECODERS[item.change.plural].decode(raw)
    if box is None or not isinstance(record, Secret):
        return record
    return box.open_for_reader(record)[0]
