"""The words of access rules, and the roles that are built in, as data. Pure. Read by fairlead/decide/access.py and by admission;
docs/security.md describes the roles for people, tests/docs/test_security.py holds the two together.

Built-in roles are spelled out kind by kind from the registry, so they match exactly, like any other role. What people of a tenant
may write is named here kind by kind; a kind that is added later is written by operators only until it is.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from fairlead.model.lifecycle import Role
from fairlead.model.registry import KINDS

READ: Final = frozenset({"get", "list", "watch"})
WRITE: Final = frozenset({"create", "update", "patch", "delete"})
APPROVE: Final = "approve"  # an override or a policy that another person asked for
ESCALATE: Final = "escalate"  # give others what one does not have
VERBS: Final = READ | WRITE | {APPROVE, ESCALATE}

# Things that can be asked for and are no objects.
METRICS: Final = "metrics"
AUDIT: Final = "audit"
SUBRESOURCES: Final = ("status", "scale", "binding", "eviction", "why", "decisions", "logs", "token", "timeline")
KNOWN_KINDS: Final = frozenset({METRICS, AUDIT, *KINDS, *(f"{plural}/{sub}" for plural in KINDS for sub in SUBRESOURCES)})

ACCESS_KINDS: Final = frozenset({"accessroles", "accessbindings", "serviceaccounts", "tokens"})
SEALED: Final = frozenset({"secrets"})  # read by those who own them and by nodes that need them; by nobody else
PRIVATE: Final = SEALED | {"tokens"}

# A Tenant object counts as being in the tenant that it is.
_TENANT_KINDS: Final = frozenset(plural for plural, info in KINDS.items() if info.namespaced) | {"tenants"}
_LOOK: Final = ("status", "why", "decisions", "timeline", "logs", "scale")
# What people of a tenant write. The rest of what lives in a tenant is made by controllers.
_TENANT_WRITES: Final = frozenset(
    {
        "workloads",
        "workloads/scale",
        "autoscalers",
        "configs",
        "secrets",
        "serviceaccounts",
        "serviceaccounts/token",
        "tokens",
        "evictionrequests",
    }
)


class RuleOf(NamedTuple):
    verbs: frozenset[str]
    kinds: frozenset[str]
    shared: bool = False  # of kinds that belong to no tenant, also for a role of scope Tenant
    effect: Literal["Allow", "Deny"] = "Allow"


class RoleOf(NamedTuple):
    scope: Literal["Tenant", "Cluster"]
    rules: tuple[RuleOf, ...]
    about: str


def _with(kinds: frozenset[str], subresources: tuple[str, ...]) -> frozenset[str]:
    return kinds | {f"{kind}/{sub}" for kind in kinds for sub in subresources}


def _people() -> dict[str, RoleOf]:
    open_kinds = frozenset(KINDS) - PRIVATE
    tenant_open = _TENANT_KINDS - PRIVATE - ACCESS_KINDS
    shared = RuleOf(READ, frozenset({"regions"}), shared=True)
    operated = frozenset(KINDS) - ACCESS_KINDS - SEALED
    return {
        "admin": RoleOf("Cluster", (RuleOf(VERBS, KNOWN_KINDS),), "everything, in every tenant"),
        "operator": RoleOf(
            "Cluster",
            (RuleOf(READ, _with(open_kinds, _LOOK) | {METRICS}), RuleOf(WRITE, _with(operated, SUBRESOURCES[:4]))),
            "runs the platform; neither reads secrets nor gives access nor approves",
        ),
        "approver": RoleOf(
            "Cluster",
            (
                RuleOf(READ, _with(open_kinds, _LOOK) | {METRICS}),
                RuleOf(frozenset({APPROVE, "update", "patch"}), frozenset({"overrides"})),
                RuleOf(frozenset({APPROVE}), frozenset({"policychannels"})),
            ),
            "approves overrides and policies that others asked for",
        ),
        "break-glass": RoleOf(
            "Cluster",
            (RuleOf(READ, _with(open_kinds, _LOOK) | {METRICS}), RuleOf(WRITE, frozenset({"overrides", "nodes", "workloads"}))),
            "for an emergency: overrides, nodes and workloads",
        ),
        "auditor": RoleOf(
            "Cluster",
            (RuleOf(READ, _with(frozenset(KINDS) - SEALED, _LOOK) | {METRICS, AUDIT}),),
            "reads everything but secrets, and the audit record",
        ),
        "tenant-admin": RoleOf(
            "Tenant",
            (
                RuleOf(READ, _with(_TENANT_KINDS, _LOOK)),
                RuleOf(WRITE, _TENANT_WRITES),
                shared,
            ),
            "everything that people do inside one tenant, its service accounts and tokens included",
        ),
        "tenant-viewer": RoleOf(
            "Tenant", (RuleOf(READ, _with(tenant_open, _LOOK)), shared), "reads a tenant, without its secrets and tokens"
        ),
        "metrics-reader": RoleOf("Cluster", (RuleOf(READ, frozenset({METRICS})),), "scrapes metrics, nothing else"),
    }


# Proven by a certificate, never given by a binding. What these write is judged step by step by the authority.
COMPONENT_ROLES: Final = frozenset(
    role.value for role in Role if role not in (Role.USER, Role.OPERATOR, Role.BREAK_GLASS, Role.AUTHORITY, Role.AGENT)
)
AGENT: Final = Role.AGENT.value
# Certificates of servers that pass on what others sent them, after they have judged it themselves.
FRONT_DOOR: Final = "front-door"  # the global plane's, to regions: commands of people, in their names
PLANE_SERVER: Final = "plane-server"  # a standby's, to its leader: any command; it could write to the store as well
FORWARDERS: Final = frozenset({FRONT_DOOR, PLANE_SERVER})
ENDPOINT_READER: Final = "endpoint-reader"  # DNS and the endpoints documents: reads Endpoints, and nothing else
CERTIFICATE_ROLES: Final = COMPONENT_ROLES | FORWARDERS | {ENDPOINT_READER}

BUILT_IN: Final = _people()

# Whoever comes by a server's local socket, and nobody else: looks at everything but what is private, and orders exceptions. Less
# than the role of the same name: what a machine's word alone is good for must end by itself.
BY_SOCKET: Final = (
    RuleOf(READ, _with(frozenset(KINDS) - PRIVATE, _LOOK) | {METRICS}),
    RuleOf(WRITE, frozenset({"overrides"})),
)


def component_rules(role: str) -> tuple[RuleOf, ...]:
    """Components see their whole plane but what is private; mirrors copy that too, and servers pass it on to those it is for."""
    assert role in CERTIFICATE_ROLES, role
    if role == ENDPOINT_READER:
        return (RuleOf(READ, frozenset({"endpoints"})),)
    hidden = frozenset[str]() if role in FORWARDERS or role == Role.MIRROR.value else PRIVATE
    return (RuleOf(READ, frozenset(KINDS) - hidden),)
