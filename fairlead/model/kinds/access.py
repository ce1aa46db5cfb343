"""Who may do what: roles, bindings, service accounts and tokens. Global plane, mirrored to regions, so that a region cut off from
the global plane still knows whom it may let in.

What a rule means is decided in fairlead/decide/access.py; how a token is made and compared in fairlead/security/tokens.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from fairlead.model.meta import Condition, Metadata, Record
from fairlead.model.resources import NOTHING, Resources

SYSTEM_TENANT: Final = "fairlead-system"  # where the tokens of people and of nodes are kept; tenants hold their own services'
ALL_TENANTS: Final = "*"  # in a binding to a role of the whole cluster, and nowhere else


class AccessRule(Record, frozen=True):
    """Exact words only. `kinds` are plurals, or PLURAL/SUBRESOURCE; a plural alone does not cover its subresources."""

    effect: Literal["Allow", "Deny"] = "Allow"
    verbs: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # empty: every name
    tenants: tuple[str, ...] = ()  # empty: those of the binding; else only what both name


class AccessRoleSpec(Record, frozen=True):
    """A role of scope Cluster may be bound to all tenants and reaches kinds that belong to none."""

    scope: Literal["Tenant", "Cluster"] = "Tenant"
    rules: tuple[AccessRule, ...] = ()


class AccessRoleStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class AccessRole(Record, frozen=True):
    """What may be done to which kinds; given to people and programs by an AccessBinding."""

    metadata: Metadata
    spec: AccessRoleSpec = AccessRoleSpec()
    status: AccessRoleStatus = AccessRoleStatus()


class Subject(Record, frozen=True):
    """A person by name, or a service account by tenant and name."""

    kind: Literal["User", "ServiceAccount"] = "User"
    name: str = ""
    tenant: str = ""


class AccessBindingSpec(Record, frozen=True):
    """`role` names a built-in role or an AccessRole. A role that does not exist gives nothing."""

    role: str
    subjects: tuple[Subject, ...] = ()
    tenants: tuple[str, ...] = ()


class AccessBindingStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class AccessBinding(Record, frozen=True):
    """Gives a role to people, service accounts or components, everywhere or in some tenants."""

    metadata: Metadata
    spec: AccessBindingSpec
    status: AccessBindingStatus = AccessBindingStatus()


class ServiceAccountSpec(Record, frozen=True):
    description: str = ""
    disabled: bool = False  # its tokens are refused while this is set


class ServiceAccountStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class ServiceAccount(Record, frozen=True):
    """Who a program is, in one tenant. Known to bindings as TENANT/NAME."""

    metadata: Metadata
    spec: ServiceAccountSpec = ServiceAccountSpec()
    status: ServiceAccountStatus = ServiceAccountStatus()


class NodeProfile(Record, frozen=True):
    """What a node was approved to be when its join token was issued. The agent may say that it has less, never more."""

    node: str
    region: str
    zone: str = ""
    pool: str = ""
    labels: dict[str, str] = {}
    capacity: Resources = NOTHING
    devices: dict[str, int] = {}  # resource -> how many at most
    max_slots: int = 110


class TokenSpec(Record, frozen=True):
    """Access: a bearer token. Join: used once, by an agent, for its certificate. Certificate: a certificate that is refused.

    Only a hash is kept: of the token's secret, or of the certificate. Deleting a token revokes it, and with a join token the
    certificates that came of it.
    """

    purpose: Literal["Access", "Join", "Certificate"] = "Access"
    hash: str = ""
    subject: Subject | None = None
    expiry_time: datetime | None = None
    revoked: bool = False
    reason: str = ""  # why it was revoked
    tenants: tuple[str, ...] = ()  # narrows what its subject may reach; empty: no narrower
    profile: NodeProfile | None = None


class TokenStatus(Record, frozen=True):
    last_used_time: datetime | None = None  # to the hour
    spent_time: datetime | None = None  # of a join token
    spent_key: str = ""  # the public key it was spent for: its holder alone may ask again
    conditions: tuple[Condition, ...] = ()


class Token(Record, frozen=True):
    """A credential of a person, a service account or a node that joins; only its hash is kept."""

    metadata: Metadata
    spec: TokenSpec = TokenSpec()
    status: TokenStatus = TokenStatus()
