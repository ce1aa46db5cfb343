"""What an agent may read and write: its own node and what that node was given, nothing else. Pure; the facts about who holds what
come from whoever asks. Called through fairlead/decide/access_commands.py and fairlead/api/authz.py.

An agent runs on the machine that is easiest to take over, next to code of many tenants. So the list here says what it may, and
whatever is not on it is refused.
"""

from __future__ import annotations

from typing import Final, Protocol

from fairlead.decide.access import COLLECTION_VERBS, Answer, Identity, Question
from fairlead.decide.access_roles import READ
from fairlead.model.kinds.access import NodeProfile
from fairlead.model.kinds.capacity import Node, NodeSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources

_BY_NODE: Final = frozenset({"bindings", "instances"})
_BY_USE: Final = frozenset({"revisions", "secrets", "configs"})  # what a binding of this node names
READS: Final = frozenset({"nodes"}) | _BY_NODE | _BY_USE

# All that an agent knows better than an operator. Labels, region, zone, pool, taints, cordons, drains and costs decide what is
# sent to a node, so the node itself may not choose them.
OWN_FIELDS: Final = ("allocatable", "max_slots", "devices", "address")


class Holdings(Protocol):
    """Facts of the plane's present state."""

    def node_of(self, plural: str, tenant: str, name: str) -> str:
        """The node of a binding or an instance; empty: there is no such thing, or it is gone."""

    def uses(self, node: str, plural: str, tenant: str, name: str) -> bool:
        """Does a binding on that node need that revision, secret or config?"""


class NoHoldings:
    """For planes without nodes."""

    def node_of(self, plural: str, tenant: str, name: str) -> str:
        return ""

    def uses(self, node: str, plural: str, tenant: str, name: str) -> bool:
        return False


def decide_agent(identity: Identity, question: Question, holdings: Holdings, row_node: str = "") -> Answer:
    """`row_node` is the node of the row at hand, where the caller has it already: also rows that are being deleted have one."""
    if not identity.node:
        return Answer(False, "an agent without a node may do nothing")
    if question.verb in READ:
        return _reads(identity, question, holdings, row_node)
    kind = f"{question.plural}/{question.subresource}" if question.subresource else question.plural
    mine = question.plural == "nodes" and question.name == identity.node
    if mine and kind == "nodes" and question.verb in ("create", "update", "patch"):
        return Answer(True, "its own node, within its profile")
    if mine and kind == "nodes/status" and question.verb in ("update", "patch"):
        return Answer(True, "the status of its own node")
    if kind == "instances/status" and question.verb in ("update", "patch"):
        holder = row_node or holdings.node_of("bindings", question.tenant, question.name)
        if holder == identity.node:
            return Answer(True, "a report on what its own node runs")
    return Answer(False, f"the agent of {identity.node} may not {question}")


def _reads(identity: Identity, question: Question, holdings: Holdings, row_node: str) -> Answer:
    refused = Answer(False, f"the agent of {identity.node} may not {question}")
    if question.subresource or question.plural not in READS:
        return refused
    if question.verb in COLLECTION_VERBS and not question.name:
        return Answer(False, "only part of it is allowed, row by row", some=True)
    if question.plural == "nodes":
        own = question.name == identity.node
    elif question.plural in _BY_NODE:
        own = (row_node or holdings.node_of(question.plural, question.tenant, question.name)) == identity.node
    else:
        own = holdings.uses(identity.node, question.plural, question.tenant, question.name)
    return Answer(True, "its own node's") if own else refused


def refuse_own_node(new: Node, old: Node | None, profile: NodeProfile | None) -> str:
    """Why an agent may not write its node so; empty: it may. `profile` is what its join token approved.

    Without a profile the node must be there already, and what it offers is the most the agent may ever say.
    """
    if old is None and profile is None:
        return "nobody has approved this node: create it first, or let it join with a join token"
    if profile is not None and (profile.node, profile.region) != (new.metadata.name, new.spec.region):
        return f"its profile is for {profile.node} in {profile.region}"
    base = old if old is not None else _approved(profile)
    return others_part(new, base) or _above(new.spec, base.spec, profile)


def others_part(new: Node, old: Node) -> str:
    """Which part that is not an agent's differs from what is stored; empty: none. The authority asks this once more, on the state
    it commits to: labels that an operator has just changed must not be put back by an agent that read them before."""
    if new.metadata.labels != old.metadata.labels:
        return "labels decide what is placed here; they belong to operators"
    if new.metadata.owner_references != old.metadata.owner_references:
        return "owner references belong to operators and controllers"
    # The authority puts on and keeps the finalizers of the kind; an agent may leave them out, never add or name others.
    if set(new.metadata.finalizers) - set(old.metadata.finalizers):
        return "finalizers belong to operators and controllers"
    changed = [
        name
        for name in NodeSpec.__struct_fields__
        if name not in OWN_FIELDS and getattr(new.spec, name) != getattr(old.spec, name)
    ]
    return f"{', '.join(changed)} of a node belong to operators" if changed else ""


def _approved(profile: NodeProfile | None) -> Node:
    assert profile is not None
    spec = NodeSpec(region=profile.region, zone=profile.zone, pool=profile.pool)
    return Node(metadata=Metadata(name=profile.node, labels=dict(profile.labels)), spec=spec)


def _above(spec: NodeSpec, base: NodeSpec, profile: NodeProfile | None) -> str:
    most: Resources = profile.capacity if profile is not None else base.allocatable
    for name, asked, limit in spec.allocatable.exceeding(most):
        return f"its profile has {limit} units of {name}; it says {asked}"
    slots = profile.max_slots if profile is not None else base.max_slots
    if spec.max_slots > slots:
        return f"its profile has {slots} slots; it says {spec.max_slots}"
    counts, approved = _counts(spec), dict(profile.devices) if profile is not None else _counts(base)
    for resource, count in sorted(counts.items()):
        if count > approved.get(resource, 0):
            return f"its profile has {approved.get(resource, 0)} devices {resource}; it says {count}"
    return ""


def _counts(spec: NodeSpec) -> dict[str, int]:
    counts: dict[str, int] = {}
    for device in spec.devices:
        counts[device.resource] = counts.get(device.resource, 0) + 1
    return counts
