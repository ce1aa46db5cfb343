"""What the object itself may not say, however much its writer may write: rights the writer does not have, a person other than the
writer. Pure. Asked on the resolved object, old and new, not on the address of the request. Called through fairlead/api/authz.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from fairlead.decide.access import Identity, Question, Statement, decide, holds_all, statements_for, statements_of_role
from fairlead.decide.access_roles import APPROVE, BUILT_IN, ESCALATE
from fairlead.decide.admission.policy import person_of
from fairlead.model.commands import Refused
from fairlead.model.kinds.access import ALL_TENANTS, AccessBinding, AccessRole, Token
from fairlead.model.kinds.policy import Override


class Rules:
    """The bindings and roles in force, and what the writer has of them."""

    def __init__(
        self,
        identity: Identity,
        statements: tuple[Statement, ...],
        bindings: Iterable[AccessBinding],
        roles: Mapping[str, AccessRole],
    ) -> None:
        self.identity = identity
        self.statements = statements
        self.bindings = tuple(bindings)
        self.roles = roles

    def may(self, verb: str, plural: str, tenant: str = "", name: str = "") -> bool:
        return decide(self.identity, self.statements, Question(verb, plural, tenant, name)).allowed

    def has(self, given: tuple[Statement, ...]) -> bool:
        return holds_all(self.identity, self.statements, given)


def completed(identity: Identity, new: Any, old: Any) -> Any:
    """Who asks for an override is known: it need not be said, and is not forgotten when it is left out of a change."""
    if isinstance(new, Override) and not new.spec.requester:
        asked = old.spec.requester if isinstance(old, Override) else identity.signature
        return replace(new, spec=replace(new.spec, requester=asked))
    return new


def refuse_object(rules: Rules, new: Any, old: Any) -> Refused | None:
    match new:
        case AccessBinding():
            why = _binding(rules, new)
        case AccessRole():
            why = _role(rules, new)
        case Token():
            why = _token(rules, new, old)
        case Override():
            why = _override(rules, new, old)
        case _:
            why = ""
    return Refused("Forbidden", why) if why else None


def _binding(rules: Rules, new: AccessBinding) -> str:
    if rules.may(ESCALATE, "accessbindings", name=new.metadata.name):
        return ""
    spec = new.spec
    role = BUILT_IN.get(spec.role) or rules.roles.get(spec.role)
    if role is None:
        return f"there is no role {spec.role}, so nobody can tell what this would give"
    if rules.has(statements_of_role(spec.role, role, spec.tenants)):
        return ""
    return f"{rules.identity.name} may not give role {spec.role} for {', '.join(spec.tenants)}: it holds more than the giver has"


def _role(rules: Rules, new: AccessRole) -> str:
    if rules.may(ESCALATE, "accessroles", name=new.metadata.name):
        return ""
    name = new.metadata.name
    bound = {tenant for binding in rules.bindings if binding.spec.role == name for tenant in binding.spec.tenants}
    widest = (ALL_TENANTS,) if new.spec.scope == "Cluster" else tuple(sorted(bound))
    if rules.has(statements_of_role(name, new, widest)):
        return ""
    return f"{rules.identity.name} may not write rules into role {name} that the writer does not have"


def _token(rules: Rules, new: Token, old: Token | None) -> str:
    """To revoke takes no more than the right to write; to issue is to hand on what its subject has."""
    subject = new.spec.subject
    if old is not None or subject is None or rules.may(ESCALATE, "tokens", new.metadata.namespace, new.metadata.name):
        return ""
    service = subject.kind == "ServiceAccount"
    who = Identity(name=f"{subject.tenant}/{subject.name}" if service else subject.name, kind="service" if service else "user")
    if not service and subject.name == rules.identity.name and rules.identity.kind == "user":
        return ""  # one's own
    if service and rules.has(statements_for(who, rules.bindings, rules.roles)):
        return ""
    return f"{rules.identity.name} may not issue a token for {who.name}: it holds more than the issuer has"


def _override(rules: Rules, new: Override, old: Override | None) -> str:
    """Nobody asks or approves in another's name, or approves their own; what was approved stays as it was approved."""
    me, spec = rules.identity.signature, new.spec
    before = old.spec if old is not None else None
    if spec.requester != (before.requester if before is not None else me):
        return f"the requester is {before.requester if before is not None else me}, not {spec.requester or 'nobody'}"
    changed = before is None or replace(spec, approver="") != replace(before, approver="")
    approver = before.approver if before is not None else ""
    if changed and not rules.may("create", "overrides", new.metadata.namespace, new.metadata.name):
        return f"{me} may approve overrides, not write them"
    for tenant in spec.scope.tenants if changed else ():
        if not rules.may("create", "overrides", tenant, new.metadata.name):
            return f"{me} may not write overrides about tenant {tenant}"
    if spec.approver and changed:
        return "an override is approved as it stands, by another person, in a change of its own"
    if spec.approver != approver and spec.approver:
        if spec.approver != me:
            return f"{me} may not approve in the name of {spec.approver}"
        if person_of(me) == person_of(spec.requester):
            return "whoever asks for an override may not approve it"
        if not rules.may(APPROVE, "overrides", new.metadata.namespace, new.metadata.name):
            return f"{me} may not approve overrides"
    return ""
