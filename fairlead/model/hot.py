"""What is kept of each object without decoding it again (P17): a few fields for the kinds of which there are millions, the
decoded object for the rest. Used by the authority's state for every object that comes in, and by whoever follows a plane from
afar."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from fairlead.model import codec
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Ask, Binding, Marks, SchedulingRequest
from fairlead.model.lifecycle import SlotState
from fairlead.model.registry import KINDS
from fairlead.model.resources import NOTHING, DeviceHold, Resources

DECODERS: dict[str, msgspec.msgpack.Decoder[Any]] = {plural: codec.decoder(info.record) for plural, info in KINDS.items()}


class BindingHot(msgspec.Struct, frozen=True, gc=False):
    node: str
    state: SlotState
    token: Token
    requests: Resources
    devices: tuple[DeviceHold, ...]
    borrowed: bool
    priority: int
    generation: int
    workload_uid: str
    index: int
    min_serving: int = 0
    start_after: tuple[str, ...] = ()
    marks: Marks | None = None
    claimed: str = ""
    provisional: bool = False  # it ends with the lease of its grant, until it is confirmed (P13)
    supersedes: str = ""  # the slots that it stands in for (P11)


class _Slot(msgspec.Struct, frozen=True, gc=False):
    uid: str
    index: int


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    slot: _Slot
    node: str
    token: Token
    generation: int = 1
    requests: Resources = NOTHING
    devices: tuple[DeviceHold, ...] = ()
    borrowed: bool = False
    priority: int = 0
    min_serving: int = 0
    start_after: tuple[str, ...] = ()
    marks: Marks | None = None
    claimed: str = ""
    provisional_until_time: datetime | None = None
    supersedes: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    state: SlotState = SlotState.BOUND


class _Skimmed(msgspec.Struct, frozen=True, gc=False):
    """The parts of a Binding that are hot; decoding skips the others."""

    spec: _Spec
    status: _Status = _Status()


_asks: dict[Ask, Ask] = {}
_ASKS_MAX = 50_000


def intern_ask(request: SchedulingRequest) -> SchedulingRequest:
    """Equal slots of a workload share one ask, so that what is compiled from it is found by identity."""
    if len(_asks) > _ASKS_MAX:
        _asks.clear()
    ask = _asks.setdefault(request.spec.ask, request.spec.ask)
    if ask is request.spec.ask:
        return request
    return msgspec.structs.replace(request, spec=msgspec.structs.replace(request.spec, ask=ask))


_marks: dict[Marks, Marks] = {}


def intern_marks(marks: Marks) -> Marks:
    """The slots of a workload bear the same marks; one record for all of them."""
    if len(_marks) > _ASKS_MAX:
        _marks.clear()
    return _marks.setdefault(marks, marks)


_skim = codec.decoder(_Skimmed).decode
_names: dict[str, str] = {}  # node names and uids repeat in a million bindings; one string each
_tokens: dict[Token, Token] = {}  # most slots live their first life: one token for all of them
_TOKENS_MAX = 10_000
_NAMES_MAX = 200_000


def forget_shared() -> None:
    """As in a process that begins. Equal records that are not settled are not always encoded alike, so which of two equal ones is
    shared shows in the bytes of commands."""
    for table in (_asks, _marks, _names, _tokens):
        table.clear()


def binding_hot(binding: Binding | _Skimmed) -> BindingHot:
    spec = binding.spec
    if len(_names) > _NAMES_MAX:  # workloads come and go
        _names.clear()
    return BindingHot(
        _names.setdefault(spec.node, spec.node),
        binding.status.state,
        _tokens.setdefault(spec.token, spec.token) if len(_tokens) < _TOKENS_MAX else spec.token,
        spec.requests,
        spec.devices,
        spec.borrowed,
        spec.priority,
        spec.generation,
        _names.setdefault(spec.slot.uid, spec.slot.uid),
        spec.slot.index,
        spec.min_serving,
        spec.start_after,
        spec.marks if spec.marks is None else intern_marks(spec.marks),
        spec.claimed,
        spec.provisional_until_time is not None,
        spec.supersedes,
    )


def hot_of(plural: str, raw: bytes) -> Any:
    if plural == "bindings":
        return binding_hot(_skim(raw))
    info = KINDS.get(plural)
    if info is None or info.many:  # internal tables are nobody's objects
        return None
    return hot_from(plural, DECODERS[plural].decode(raw))


def hot_from(plural: str, value: Any) -> Any:
    """The same from the object itself, for whoever has it at hand."""
    if plural == "bindings":
        return binding_hot(value)
    if plural == "schedulingrequests":
        return intern_ask(value)
    return None if KINDS[plural].many else value
