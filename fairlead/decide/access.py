"""May this caller do this? The one decision about access: asked by every verb of the API, each row of a list or watch, the
component channel, metrics and logs. Pure: identity, rules and facts in, an answer with its reason out.

Nothing is allowed that no rule allows; a rule that denies wins over any that allow; words are compared whole. Called through
fairlead/api/authz.py; agents are judged in fairlead/decide/access_agent.py, commands in fairlead/decide/access_commands.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

import msgspec

from fairlead.decide.access_roles import BUILT_IN, BY_SOCKET, CERTIFICATE_ROLES, RoleOf, RuleOf, component_rules
from fairlead.model.kinds.access import ALL_TENANTS, AccessBinding, AccessRole, AccessRule, Subject, Token
from fairlead.model.registry import KINDS

BREAK_GLASS: Final = "break-glass"  # whoever comes by a server's local socket; the role in which commands are sent, too
DELETE_COLLECTION: Final = "deletecollection"  # allowed to whoever may delete every one of it
COLLECTION_VERBS: Final = frozenset({"list", "watch", DELETE_COLLECTION})
# However far off its expiry was written, a token ends this long after it was made.
ACCESS_LIFETIME_MAX: Final = timedelta(days=366)
JOIN_LIFETIME_MAX: Final = timedelta(days=7)  # long enough for a machine that is shipped, short enough not to be forgotten


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who is calling, as proven by a token, a certificate or the kernel. Gives no right by itself but what a certificate's roles
    say, and what the local socket is for."""

    name: str  # a person or component; TENANT/NAME of a service account; an agent's node; a user of the machine
    kind: Literal["user", "service", "component", "agent", "break-glass"]
    roles: tuple[str, ...] = ()  # of a component's certificate; people's come from bindings
    tenants: tuple[str, ...] = ()  # what its token was narrowed to; empty: no narrower than its bindings
    node: str = ""
    region: str = ""  # of an agent or a component
    token: tuple[str, str] | None = None  # tenant and name of the Token behind it, looked at again with every request
    fingerprint: str = ""  # of its certificate
    expiry_ms: int = 0  # when its certificate ends, by the wall clock; 0: it has none
    source: str = ""  # where the request came from; for the audit record only

    @property
    def actor(self) -> str:
        """As the audit record names it: a person may not be mistaken for a component of the same name."""
        return self.name if self.kind in ("component", "agent") else f"{self.kind}:{self.name}"

    @property
    def signature(self) -> str:
        """As objects name who asked for them: people by their names, and it stays visible who came by the local socket."""
        return self.actor if self.kind == BREAK_GLASS else self.name


class Question(NamedTuple):
    """One thing somebody wants to do to one object, or (list, watch: no name) to a collection."""

    verb: str
    plural: str
    tenant: str = ""
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        kind = f"{self.plural}/{self.subresource}" if self.subresource else self.plural
        where = f" in tenant {self.tenant}" if self.tenant else ""
        return f"{self.verb} {kind}{f' {self.name}' if self.name else ''}{where}"


class Answer(NamedTuple):
    allowed: bool
    reason: str
    some: bool = False  # of a collection: rows may be shown, each if it is allowed by itself
    cluster: bool = False  # allowed by a rule for all tenants: the caller acts as an operator, not as one of the tenant's people
    role: str = ""


class Statement(NamedTuple):
    """One rule as it holds for one caller."""

    role: str
    deny: bool
    verbs: frozenset[str]
    kinds: frozenset[str]
    names: frozenset[str] | None  # None: every name
    tenants: frozenset[str] | None  # None: all, and kinds that belong to no tenant; "" in it: the latter


def subject_key(identity: Identity) -> tuple[str, str, str]:
    if identity.kind == "service":
        tenant, _, name = identity.name.partition("/")
        return "ServiceAccount", tenant, name
    return "User", "", identity.name


def key_of(subject: Subject) -> tuple[str, str, str]:
    return subject.kind, subject.tenant if subject.kind == "ServiceAccount" else "", subject.name


def statements_for(
    identity: Identity, bindings: Iterable[AccessBinding], roles: Mapping[str, AccessRole]
) -> tuple[Statement, ...]:
    """Every rule that concerns this caller. An agent has none: what it may do follows from what its node holds. A user of the
    machine has no bindings, whatever people are called alike."""
    if identity.kind == "agent":
        return ()
    if identity.kind == BREAK_GLASS:
        return tuple(_built_in_statement(BREAK_GLASS, rule, None) for rule in BY_SOCKET)
    if identity.kind == "component":
        return tuple(
            _built_in_statement(role, rule, None)
            for role in identity.roles
            if role in CERTIFICATE_ROLES
            for rule in component_rules(role)
        )
    wanted = subject_key(identity)
    found: list[Statement] = []
    for binding in bindings:
        if any(key_of(subject) == wanted for subject in binding.spec.subjects):
            found += _bound(binding, roles)
    return tuple(found)


def _bound(binding: AccessBinding, roles: Mapping[str, AccessRole]) -> list[Statement]:
    spec = binding.spec
    built_in = BUILT_IN.get(spec.role)  # asked first: nobody can put a role of their own in the place of one of these
    if built_in is not None:
        return [_built_in_statement(spec.role, rule, _reach(built_in.scope, spec.tenants)) for rule in built_in.rules]
    role = roles.get(spec.role)
    if role is None:
        return []
    return [_own_statement(spec.role, rule, _reach(role.spec.scope, spec.tenants)) for rule in role.spec.rules]


def _reach(scope: str, tenants: tuple[str, ...]) -> frozenset[str] | None:
    """The word for all tenants counts only for a role of the whole cluster; elsewhere it is a name that no tenant has."""
    if ALL_TENANTS in tenants and scope == "Cluster":
        return None
    return frozenset(tenants) - {ALL_TENANTS, ""}


def _built_in_statement(role: str, rule: RuleOf, reach: frozenset[str] | None) -> Statement:
    tenants = frozenset({""}) if rule.shared and reach is not None else reach
    return Statement(role, rule.effect == "Deny", rule.verbs, rule.kinds, None, tenants)


def _own_statement(role: str, rule: AccessRule, reach: frozenset[str] | None) -> Statement:
    if rule.tenants:
        reach = frozenset(rule.tenants) if reach is None else reach & frozenset(rule.tenants)
    names = frozenset(rule.names) if rule.names else None
    return Statement(role, rule.effect == "Deny", frozenset(rule.verbs), frozenset(rule.kinds), names, reach)


def decide(identity: Identity, statements: Iterable[Statement], question: Question) -> Answer:
    """A collection is allowed when every row it may hold is; `some` says that there may be rows to show, judged one by one."""
    verb, kind, tenant, name = _normal(question)
    collection = question.verb in COLLECTION_VERBS and not name
    # Over all tenants: rows of any of them, so no single tenant's rule settles it.
    everywhere = collection and not tenant and in_tenants(question.plural)
    if identity.tenants and not everywhere and tenant not in identity.tenants:
        return Answer(False, f"the token of {identity.name} is for {', '.join(identity.tenants)} only")
    whole: Answer | None = None
    some, excepted = False, everywhere and bool(identity.tenants)
    for statement in statements:
        if verb not in statement.verbs or kind not in statement.kinds:
            continue
        within = statement.tenants is None or tenant in statement.tenants
        touches = within or (everywhere and bool(statement.tenants))
        if collection:
            complete = within and statement.names is None
        else:
            touches = complete = within and (statement.names is None or name in statement.names)
        if statement.deny and complete:
            return Answer(False, f"role {statement.role} denies it", role=statement.role)
        if statement.deny:
            excepted |= touches
        else:
            some |= touches
            if complete and (whole is None or statement.tenants is None):
                whole = Answer(True, f"role {statement.role} allows it", True, statement.tenants is None, statement.role)
    if whole is not None and not excepted:
        return whole
    missing = "only part of it is allowed, row by row" if some else f"no role of {identity.name} allows to {question}"
    return Answer(False, missing, some)


def in_tenants(plural: str) -> bool:
    """Are its objects in tenants? A Tenant counts as being in the tenant that it is."""
    return plural == "tenants" or (plural in KINDS and KINDS[plural].namespaced)


def _normal(question: Question) -> tuple[str, str, str, str]:
    verb, plural, tenant, name, subresource = question
    if plural == "tenants":
        tenant = name
    elif not in_tenants(plural):
        tenant = ""
    kind = f"{plural}/{subresource}" if subresource else plural
    return "delete" if verb == DELETE_COLLECTION else verb, kind, tenant, name


def holds_all(granter: Identity, has: Iterable[Statement], gives: Iterable[Statement]) -> bool:
    """Does whoever has the first already have all that the second allow? Else giving them would be an escalation."""
    has = tuple(has)
    if any(statement.deny for statement in has):
        return False  # What is left after a denial cannot be told apart here; an administrator decides.
    return all(_held(granter, has, statement) for statement in gives if not statement.deny)


def _held(granter: Identity, has: tuple[Statement, ...], given: Statement) -> bool:
    for verb in given.verbs:
        for kind in given.kinds:
            for tenant in given.tenants if given.tenants is not None else (None,):
                if not any(_includes(mine, verb, kind, tenant, given.names) for mine in has):
                    return False
                if granter.tenants and tenant not in granter.tenants:
                    return False
    return True


def _includes(mine: Statement, verb: str, kind: str, tenant: str | None, names: frozenset[str] | None) -> bool:
    if verb not in mine.verbs or kind not in mine.kinds:
        return False
    if mine.tenants is not None and (tenant is None or tenant not in mine.tenants):
        return False
    return mine.names is None or (names is not None and names <= mine.names)


def statements_of_role(name: str, role: RoleOf | AccessRole, tenants: tuple[str, ...]) -> tuple[Statement, ...]:
    """What a binding of that role to those tenants would give."""
    if isinstance(role, RoleOf):
        return tuple(_built_in_statement(name, rule, _reach(role.scope, tenants)) for rule in role.rules)
    return tuple(_own_statement(name, rule, _reach(role.spec.scope, tenants)) for rule in role.spec.rules)


def why_not_valid(token: Token, now: datetime) -> str:
    """Empty: it may be used. Asked with every request, so that a revocation holds from the next one on."""
    spec = token.spec
    if spec.revoked:
        return "the token was revoked"
    if token.metadata.deletion_time is not None:
        return "the token is being deleted"
    ends = ends_at(token)
    if ends is None or now >= ends:
        return "the token has expired"
    return ""


def ends_at(token: Token) -> datetime | None:
    """When it stops being good; None: it never was."""
    born, expiry = token.metadata.creation_time, token.spec.expiry_time
    if expiry is None or born is None:
        return None
    longest = JOIN_LIFETIME_MAX if token.spec.purpose == "Join" else ACCESS_LIFETIME_MAX
    return min(expiry, born + longest)
