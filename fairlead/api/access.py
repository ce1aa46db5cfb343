"""Who asks, and may they: the two questions the API puts to whoever composes it, before it looks at anything else.

Owns the shape of the questions and the answer that is safe when nobody supplies one (no). Never decides: fairlead/api/identity
and authz do; but for one rule: nobody acts as somebody else. Called by every handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request

from fairlead.api.failures import Failure
from fairlead.model.commands import Caller
from fairlead.model.lifecycle import Role

_IMPERSONATE: Final = "impersonate-"  # Kubernetes' headers: -user, -group, -uid, -extra-NAME; `kubectl --as` sends them


class Identity(msgspec.Struct, frozen=True):
    """A proven caller. `tenant` and `node`, where set, are the only ones it may touch."""

    name: str
    role: Role = Role.USER
    tenant: str = ""
    node: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""

    def caller(self) -> Caller:
        return Caller(self.name, self.role, tenant=self.tenant, node=self.node)


# None: nobody that is known (401). May be a coroutine function, because a credential may have to be looked up.
Authenticate = Callable[[Request], Identity | Awaitable[Identity | None] | None]

# (identity, verb, plural, tenant, name, subresource). Verbs are Kubernetes': get, list, watch, create, update, patch, delete,
# deletecollection. An empty tenant: a kind without tenants, or all of them; an empty name: the collection.
Authorise = Callable[[Identity, str, str, str, str, str], bool]


def nobody(request: Request) -> None:
    """Knows no one: every request is turned away."""


def deny_all(identity: Identity, verb: str, plural: str, tenant: str, name: str, subresource: str) -> bool:
    """A missing policy means no."""
    return False


def refuse_impersonation(request: Request, identity: Identity) -> None:
    """403. To carry it out as its sender would be to do what was not asked."""
    said = next((name for name in request.headers if name.startswith(_IMPERSONATE)), "")
    if said:
        hint = "leave out --as, --as-group and --as-uid, or take a token of the one you mean"
        raise Failure(403, f'User "{identity.name}" cannot impersonate: nobody acts as somebody else here ({said}); {hint}')
