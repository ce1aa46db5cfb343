"""What the handlers ask of whoever decides about access: not only may they, but which rows they see, as whom a command is sent,
and what an object may not say.

Owns the questions' shape, and two ways to answer them: a plain function (tests, small set-ups), or the decision point of
fairlead/api/authz.py. Never decides anything itself. Called by the handlers through `Call`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from fairlead.api.access import Authorise, Identity
from fairlead.api.authz import Access
from fairlead.api.identity import Proven
from fairlead.client.plane import Change
from fairlead.decide.access import Question
from fairlead.decide.access_objects import completed
from fairlead.model.commands import Caller, Command, Refused
from fairlead.model.lifecycle import Role

Rows = Callable[[Change], bool]


class Ask(NamedTuple):
    """One thing somebody wants to do. Empty names mean all of them."""

    verb: str
    plural: str
    tenant: str = ""
    name: str = ""
    subresource: str = ""


class Rules(Protocol):
    def allows(self, identity: Identity, ask: Ask) -> bool: ...

    def rows(self, identity: Identity, ask: Ask) -> Rows | None:
        """Of a collection that is not allowed as a whole, which rows are; None: not even an empty list."""

    def actor(self, identity: Identity) -> str:
        """Whose receipts these are: the name commands are sent under."""

    def caller(self, identity: Identity, ask: Ask) -> Caller | Refused:
        """As whom the authority is asked."""

    def completed(self, identity: Identity, new: Any, old: Any) -> Any:
        """The object with what the server itself says of its writer."""

    def refuse_object(self, identity: Identity, new: Any, old: Any) -> Refused | None:
        """What this caller may not write into an object."""

    def correlation(self, identity: Identity, given: str) -> str:
        """What the audit record says beside the command."""

    def proposer(self, identity: Identity, lease: str, fencing_epoch: int) -> Caller | Refused:
        """As whom a scheduler's proposal is judged."""

    def refuse_command(self, identity: Identity, command: Command) -> Refused | None:
        """As over the channel: whether this end may send it at all."""

    def ended(self, identity: Identity) -> str:
        """Why a stream that was allowed must end now, whatever it shows; empty: its credential is good."""

    def version(self, identity: Identity) -> int | None:
        """While this number stands, what was allowed is allowed. None: nobody can say just now."""


class PlainRules:
    """All from one function."""

    def __init__(self, authorise: Authorise) -> None:
        self._authorise = authorise

    def allows(self, identity: Identity, ask: Ask) -> bool:
        return self._authorise(identity, *ask)

    def rows(self, identity: Identity, ask: Ask) -> Rows | None:
        return None

    def actor(self, identity: Identity) -> str:
        return identity.name

    def caller(self, identity: Identity, ask: Ask) -> Caller | Refused:
        return identity.caller()

    def completed(self, identity: Identity, new: Any, old: Any) -> Any:
        return new

    def refuse_object(self, identity: Identity, new: Any, old: Any) -> Refused | None:
        return None

    def correlation(self, identity: Identity, given: str) -> str:
        return given

    def proposer(self, identity: Identity, lease: str, fencing_epoch: int) -> Caller | Refused:
        return msgspec.structs.replace(identity.caller(), lease=lease, fencing_epoch=fencing_epoch)

    def refuse_command(self, identity: Identity, command: Command) -> Refused | None:
        return None

    def ended(self, identity: Identity) -> str:
        return ""

    def version(self, identity: Identity) -> int | None:
        return 0  # whoever gives a function answers for it


class AccessRules:
    """The decision point, asked for whoever was proven; anybody else may nothing."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def allows(self, identity: Identity, ask: Ask) -> bool:
        return self._access(identity, *ask)

    def rows(self, identity: Identity, ask: Ask) -> Rows | None:
        if not isinstance(identity, Proven) or identity.who is None:
            return None
        if ask.tenant:  # a tenant of which it may see nothing is refused, not shown empty
            answer = self._access.answer(identity.who, Question(ask.verb, ask.plural, ask.tenant, "", ask.subresource))
            if not answer.some:
                return None
        return self._access.filter(identity.who, ask.verb, ask.plural, ask.subresource)

    def actor(self, identity: Identity) -> str:
        return identity.who.actor if isinstance(identity, Proven) and identity.who is not None else identity.name

    def caller(self, identity: Identity, ask: Ask) -> Caller | Refused:
        if not isinstance(identity, Proven) or identity.who is None:
            return Refused("Forbidden", "nobody proved who this is")
        return self._access.caller(identity.who, Question(*ask))

    def completed(self, identity: Identity, new: Any, old: Any) -> Any:
        return completed(identity.who, new, old) if isinstance(identity, Proven) and identity.who is not None else new

    def refuse_object(self, identity: Identity, new: Any, old: Any) -> Refused | None:
        if not isinstance(identity, Proven) or identity.who is None:
            return Refused("Forbidden", "nobody proved who this is")
        return self._access.refuse_object(identity.who, new, old)

    def correlation(self, identity: Identity, given: str) -> str:
        if not isinstance(identity, Proven) or identity.who is None:
            return given
        return self._access.correlation(identity.who, given)

    def proposer(self, identity: Identity, lease: str, fencing_epoch: int) -> Caller | Refused:
        if not isinstance(identity, Proven) or identity.who is None or identity.who.kind != "component":
            return Refused("Forbidden", "only schedulers propose bindings, with their certificate")
        return Caller(identity.who.actor, Role.SCHEDULER, lease=lease, fencing_epoch=fencing_epoch)

    def refuse_command(self, identity: Identity, command: Command) -> Refused | None:
        if not isinstance(identity, Proven) or identity.who is None:
            return Refused("Forbidden", "nobody proved who this is")
        return self._access.refuse_command(identity.who, command)

    def ended(self, identity: Identity) -> str:
        if not isinstance(identity, Proven) or identity.who is None:
            return ""
        return self._access.why_not_valid(identity.who)

    def version(self, identity: Identity) -> int | None:
        return self._access.version(identity.who) if isinstance(identity, Proven) and identity.who is not None else 0


def rules_of(given: Authorise | Rules) -> Rules:
    if isinstance(given, Access):
        return AccessRules(given)
    if hasattr(given, "refuse_object"):
        return given  # type: ignore[return-value]
    return PlainRules(given)
