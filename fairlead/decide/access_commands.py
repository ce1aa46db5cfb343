"""May this caller send this command? Turns a command into the question that the API asks for the same change, so that the channel
and the API cannot disagree. Pure. Called through fairlead/api/authz.py for every command of a channel.

Which steps a role owns is the authority's to judge; here it is settled that the caller is who the command says it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from fairlead.decide.access import BREAK_GLASS, Answer, Identity, Question, Statement, decide
from fairlead.decide.access_agent import Holdings, decide_agent, refuse_own_node
from fairlead.decide.access_roles import COMPONENT_ROLES, FRONT_DOOR, PLANE_SERVER
from fairlead.decide.regional import MIRROR_UP, is_true_record
from fairlead.decide.slot_lease import lease_of
from fairlead.model.commands import Body, Caller, Command, Delete, LeaseAcquire, LeaseBody, Put, PutStatus, Refused, Report
from fairlead.model.kinds.access import NodeProfile
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.policy import Override
from fairlead.model.lifecycle import Role
from fairlead.model.registry import BY_KIND, GLOBAL

_PEOPLE: Final = frozenset({"user", "service", BREAK_GLASS})
_PEOPLES_ACTORS: Final = tuple(f"{kind}:" for kind in sorted(_PEOPLE))
_PEOPLES_ROLES: Final = frozenset({Role.USER, Role.OPERATOR, Role.BREAK_GLASS})


class Facts(NamedTuple):
    """What the answer depends on beside the rules, read from the present state by whoever asks."""

    plane: str
    holdings: Holdings
    node: Node | None = None  # the agent's own node, as stored
    profile: NodeProfile | None = None  # what that node was approved to be
    region: str = ""  # of the plane


def question_of(body: Body) -> Question | None:
    """None: not something that people do; only components send it."""
    match body:
        case Put():
            info = BY_KIND.get(body.kind)
            metadata = getattr(body.object, "metadata", None)
            if info is None or metadata is None:
                return None
            return Question("create" if body.mode == "create" else "update", info.plural, metadata.namespace, metadata.name)
        case PutStatus():
            info = BY_KIND.get(body.kind)
            return info and Question("update", info.plural, body.tenant, body.name, "status")
        case Delete():
            info = BY_KIND.get(body.kind)
            return info and Question("delete", info.plural, body.tenant, body.name)
        case Report():
            return Question("update", "instances", body.tenant, body.name, "status")
        case _:
            return None


def refuse_command(identity: Identity, command: Command, statements: Iterable[Statement], facts: Facts) -> Refused | None:
    if identity.kind == "component" and _may_pass_on(identity, command.caller, facts):
        return None
    actor = command.caller.actor
    if actor != identity.actor and not actor.startswith(identity.actor + "/"):
        return Refused("Forbidden", f"{identity.actor} may not speak as {actor}")
    match identity.kind:
        case "agent":
            return _refuse_agent(identity, command, facts)
        case "component":
            return _refuse_component(identity, command, facts)
        case _:
            return _refuse_person(identity, command, statements)


def _may_pass_on(identity: Identity, caller: Caller, facts: Facts) -> bool:
    """Servers send what others sent to them, in those others' names, having judged it by the same rules."""
    if PLANE_SERVER in identity.roles and identity.region == facts.region:
        return True
    people = caller.actor.startswith(_PEOPLES_ACTORS) and caller.role in _PEOPLES_ROLES
    return people and FRONT_DOOR in identity.roles and not identity.region


def _refuse_agent(identity: Identity, command: Command, facts: Facts) -> Refused | None:
    caller, body = command.caller, command.body
    if caller.role is not Role.AGENT:
        return Refused("Forbidden", f"the agent of {identity.node} may not act as {caller.role.value}")
    if caller.node != identity.node:
        return Refused("WrongNode", f"the agent of {identity.node} speaks for its own node, not for {caller.node or 'none'}")
    question = question_of(body)
    if question is None:
        return Refused("Forbidden", f"an agent sends reports and its node, not {type(body).__name__}")
    if isinstance(body, Report) and not facts.holdings.node_of("bindings", body.tenant, body.name):
        return None  # It is gone; the authority knows since when, and says so.
    answer = decide_agent(identity, question, facts.holdings)
    if not answer.allowed:
        return Refused("WrongNode", answer.reason)
    if isinstance(body, Put):
        why = refuse_own_node(body.object, facts.node, facts.profile) if isinstance(body.object, Node) else "this is no node"
        if why:
            return Refused("Forbidden", f"{identity.node}: {why}")
    return None


def _refuse_component(identity: Identity, command: Command, facts: Facts) -> Refused | None:
    role = command.caller.role
    if facts.region and identity.region not in ("", facts.region):
        # Here it would write whatever its roles write: whoever takes one region would have them all.
        return Refused("Forbidden", f"{identity.name} is of region {identity.region}, and this is {facts.region}")
    if role.value not in identity.roles or role.value not in COMPONENT_ROLES:
        held = ", ".join(identity.roles) or "no role"
        return Refused("Forbidden", f"the certificate of {identity.name} is for {held}, not for {role.value}")
    if isinstance(command.body, LeaseAcquire) and command.body.of_term:
        return Refused("Forbidden", f"{identity.name} does not end with this leader: it may have a lease for a time only")
    if role is Role.MIRROR and facts.plane == GLOBAL:
        return _refuse_mirror(identity, command.body)
    return None


def _refuse_mirror(identity: Identity, body: Any) -> Refused | None:
    """One region must not be able to speak for another: Assignments are named WORKLOAD.REGION, Holdings
    BUDGET.REGION, Grants REGION. Of overrides it may write what records those that people ordered in it."""
    told = body.object if isinstance(body, Put) and isinstance(body.object, Override) else None
    if told is not None and identity.region and is_true_record(told, identity.region):
        return None
    question = question_of(body)
    if isinstance(
        body, LeaseBody
    ):  # by its lease a region is known to be there (P15), and to run what runs once in the world (P11)
        own = (f"{MIRROR_UP}{identity.region}", lease_of(identity.region)) if identity.region else ()
        if body.name not in own:
            return Refused("Forbidden", f"the mirror of {identity.region or 'no region'} may not hold {body.name}")
        return None
    if question is None:
        return Refused("Forbidden", f"a mirror does not send {type(body).__name__} to the global plane")
    owner = question.name.rpartition(".")[2] if question.plural in ("assignments", "holdings") else question.name
    said = question.plural in ("assignments", "holdings", "grants", "grantterms")
    if not said or owner != identity.region or not identity.region:
        return Refused("Forbidden", f"the mirror of {identity.region or 'no region'} may not {question}")
    return None


def _refuse_person(identity: Identity, command: Command, statements: Iterable[Statement]) -> Refused | None:
    question = question_of(command.body)
    if question is None:
        return Refused("Forbidden", f"{type(command.body).__name__} is sent by components, not by people")
    answer = decide(identity, statements, question)
    if not answer.allowed:
        return Refused("Forbidden", answer.reason)
    wanted = caller_for(identity, answer, question)
    if (command.caller.role, command.caller.tenant) != (wanted.role, wanted.tenant):
        return Refused("Forbidden", f"{identity.name} acts as {wanted.role.value} here, not as {command.caller.role.value}")
    return None


def caller_for(identity: Identity, answer: Answer, question: Question) -> Caller:
    """As whom the authority is asked. People whose right comes from a rule for all tenants are operators; others are held to the
    tenant in question, once more, by the authority."""
    assert answer.allowed, answer
    if identity.kind == "agent":
        return Caller(identity.actor, Role.AGENT, node=identity.node)
    assert identity.kind in _PEOPLE, "components say their role themselves, and prove it"
    if answer.role == Role.BREAK_GLASS.value:
        return Caller(identity.actor, Role.BREAK_GLASS)
    if answer.cluster:
        return Caller(identity.actor, Role.OPERATOR)
    return Caller(identity.actor, Role.USER, tenant=question.tenant)
