"""Who asks, and may they: the two questions the API puts to whoever composes it, before it looks at anything else.

Owns the shape of the questions and the answer that is safe when nobody supplies one (no). Never decides: fairlead/api/identity
and authz do. Called by every handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request

from fairlead.model.commands import Caller
from fairlead.model.lifecycle import Role


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
