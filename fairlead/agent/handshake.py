"""A node's way to taking work (P10): registered under a session of its own, its inventory told, what the region orders stopped
and gone, and only then schedulable.

Owns the commands of that way, for one node or thousands at once. Every write names the revision it was decided on, so of two
agents with one name exactly one gets each session. Called by fairlead/agent/host.py until all of its nodes are through.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fairlead.agent.node import Node
from fairlead.agent.region import Region
from fairlead.agent.reports import agent_caller
from fairlead.agent.slot import Slot
from fairlead.client.plane import Expired
from fairlead.model.commands import Accepted, Command, Put, PutStatus, Refused
from fairlead.model.ids import revision as revision_of
from fairlead.model.ids import split_revision
from fairlead.model.kinds.capacity import Node as NodeObject
from fairlead.model.kinds.capacity import NodeSpec, NodeStatus
from fairlead.model.lifecycle import ON_NODE
from fairlead.model.meta import Condition, Metadata, set_condition

log = logging.getLogger(__name__)

DISK_FULL = "DiskFull"  # the condition of a node whose agent cannot write down what it must remember
_PASSING = ("Conflict", "NotLeader", "Overloaded", "StoreUnavailable")  # says nothing of the node: the next round may be luckier


class Handshake:
    def __init__(self, region: Region, in_force: Mapping[str, str]) -> None:
        self._region = region
        self._in_force = in_force
        self._incarnation = 0

    async def register(self, nodes: Sequence[Node]) -> None:
        """Each node has its object and a session nobody else has. Raises Expired."""
        await self._read(nodes)
        puts = [(node, put) for node in nodes if (put := _object_to_put(node)) is not None]
        await self._write([(node, Put("Node", put, mode="upsert")) for node, put in puts])
        if puts:
            await self._read([node for node, _ in puts])
        begins: list[tuple[Node, Any]] = []
        for node in nodes:
            if node.object is None or node.registered or node.superseded:
                continue
            status = node.object.status
            if node.session and status.session == node.session:
                node.registered = True
                continue
            session = node.session if status.session < node.session else self._next_session(node, status.session)
            begins.append((node, (session, msgspec.structs.replace(status, session=session, schedulable=False))))
        sent = [(node, self._status(node, status)) for node, (_, status) in begins]
        for (node, (session, _)), outcome in zip(begins, await self._write(sent), strict=True):
            if isinstance(outcome, Accepted):
                if session != node.session:
                    node.remembered.begin_session(session)
                    node.remembered.save()
                node.session, node.registered = session, True

    async def tell(self, nodes: Sequence[Node]) -> tuple[int, list[Slot]]:
        """The inventory. Answers with its revision and the slots to look at: what is not bound any more will be stopped. Raises
        Expired. A feed may be open, and tell of what comes after either answer while it is waited for."""
        told = [node for node in nodes if node.registered and not node.superseded]
        if not told:
            return 0, []
        for node in told:
            node.asks()
        answer = await self._region.inventory([node.held() for node in told])
        for node in told:
            node.object_position = 0  # as with its bindings; the region compares every write that builds on it
        await self._read(told)  # where none was open the region may have closed these nodes for new work, or forgotten them
        if split_revision(answer.revision)[0] != self._incarnation:
            raise Expired("a new history began while the inventory was told", 0)
        by_node: dict[str, list[Any]] = {node.name: [] for node in told}
        for change in answer.bindings:
            by_node.setdefault(change.hot.node, []).append(change)
        stops = {(name, what) for name, what in answer.stop}
        touched: list[Slot] = []
        for node in told:
            slots = node.saw_listing(answer.revision, by_node[node.name])
            said_in = node.object.status.incarnation if node.object is not None else 0
            for slot in slots:
                slot.reported = None  # said again: the region may have lost it
                slot.doubtful = not slot.there and not node.listed
                # Until this node has said what it runs in a new incarnation, what was bound before and does not run is not begun.
                before = slot.id.token.incarnation < node.listed_in and said_in < node.listed_in
                if before and not slot.there:
                    slot.forgone, slot.message = True, slot.message or "it does not run; its region lost what became of it"
                if (node.name, (slot.id.tenant, slot.id.name, slot.id.token)) in stops and node.current(slot) is not None:
                    del node.bound[slot.key]
            node.synced = node.listed = True
            touched += slots
        return answer.revision, touched

    async def confirm(self, nodes: Sequence[Node]) -> None:
        """Schedulable, for every node on which nothing runs that the region did not adopt. One whose disk takes nothing could
        start nothing: it says so, and is not schedulable until it does. That all is said in this incarnation comes last."""
        ready = [node for node in nodes if node.synced and not node.confirmed and not node.superseded and _clean(node)]
        for node in ready:
            status = node.object.status if node.object is not None else NodeStatus()
            node.confirmed = node.remembered.save() and status.schedulable and _said(node, status)
        wanted = [node for node in ready if not node.confirmed and not _told_unsaved(node)]
        if not wanted:
            return
        await self._read([node for node in wanted if node.object is None])
        sent = []
        for node in wanted:
            if node.object is not None and (status := self._confirmed(node)) != node.object.status:
                sent.append((node, self._status(node, status)))
        stale = []
        for (node, _), outcome in zip(sent, await self._write(sent), strict=True):
            if isinstance(outcome, Accepted):
                status = node.object.status if node.object is not None else NodeStatus()
                node.confirmed = not node.remembered.unsaved and status.schedulable and _said(node, status)
            else:
                stale.append(node)
        if stale:
            await self._read(stale)  # somebody else wrote it; the next round builds on that

    def _next_session(self, node: Node, last: int) -> int:
        """Above every one that an agent of this name had, also where its object was deleted since, or the history that it was
        written in is lost: each took an effect of its own, so none can have passed the revision that this one is begun on."""
        return max(last, node.remembered.session, revision_of(self._incarnation, node.object_position)) + 1

    def _confirmed(self, node: Node) -> NodeStatus:
        assert node.object is not None
        status = node.object.status
        words = "; ".join(f"{name}: {text}" for name, text in self._in_force.items())
        conditions = set_condition(status.conditions, Condition(type="InventoryConfirmed", status="True", reason="Handshake"))
        conditions = set_condition(conditions, Condition(type="Sandbox", status="True", reason="InForce", message=words))
        unsaved = node.remembered.unsaved
        if unsaved or any(condition.type == DISK_FULL for condition in conditions):
            reason = "CannotWrite" if unsaved else "Writes"
            full = Condition(type=DISK_FULL, status="True" if unsaved else "False", reason=reason, message=unsaved)
            conditions = set_condition(conditions, full)
        generation = node.object.metadata.generation
        return msgspec.structs.replace(
            status,
            session=node.session,
            schedulable=not unsaved,
            health=status.health or "Ready",  # a silence before is the node controller's to forgive
            observed_generation=max(status.observed_generation, generation),
            conditions=conditions,
            # By this whoever speaks for it next tells what is not to be begun: it stands until the region has heard of all that.
            incarnation=status.incarnation if _forgoes(node) else node.listed_in,
        )

    def _status(self, node: Node, status: NodeStatus) -> PutStatus:
        return PutStatus("Node", "", node.name, status, revision_of(self._incarnation, node.object_position))

    async def _read(self, nodes: Sequence[Node]) -> None:
        if not nodes:
            return
        revision, changes = await self._region.nodes([node.name for node in nodes])
        self._incarnation = split_revision(revision)[0]
        found = {change.name: change for change in changes}
        for node in nodes:
            node.in_history(revision)
            if node.name in found:
                node.saw_object(found[node.name])
            else:
                node.object, node.registered, node.confirmed = None, False, False

    async def _write(self, bodies: Sequence[tuple[Node, Put | PutStatus]]) -> list[Any]:
        if not bodies:
            return []
        outcomes = await self._region.submit([Command(agent_caller(node.name), body) for node, body in bodies])
        for (node, body), outcome in zip(bodies, outcomes, strict=True):
            if isinstance(outcome, Accepted) and isinstance(body, PutStatus) and node.object is not None:
                position = split_revision(outcome.revision)[1]
                if position > node.object_position:  # else the feed was faster, and told what somebody wrote after it
                    node.object = msgspec.structs.replace(node.object, status=body.status)
                    node.object_position = position
            elif isinstance(outcome, Refused) and outcome.reason not in _PASSING:
                node.refused = True
                log.warning("node %s was refused: %s: %s", node.name, outcome.reason, outcome.detail)
        return outcomes


def _said(node: Node, status: NodeStatus) -> bool:
    """All that this session has to say in this incarnation."""
    return status.session == node.session and status.incarnation == node.listed_in


def _forgoes(node: Node) -> bool:
    """Whether its region believes that something may run here which is not begun (S5)."""
    bound = (node.current(slot) for slot in node.slots.values() if slot.forgone)
    return any(each is not None and each.state in ON_NODE for each in bound)


def _told_unsaved(node: Node) -> bool:
    """It was said already that nothing can be written, and it is still so."""
    if not node.remembered.unsaved or node.object is None:
        return False
    status = node.object.status
    told = any(condition.type == DISK_FULL and condition.status == "True" for condition in status.conditions)
    return told and not status.schedulable and _said(node, status)


def _clean(node: Node) -> bool:
    return not any(slot.there and node.current(slot) is None for slot in node.slots.values())


def _object_to_put(node: Node) -> NodeObject | None:
    """None where what is registered is what is declared. Once a node exists, what decides about the work it gets (labels, zone,
    pool, taints, cost) is the operators'; its agent says only what the machine has."""
    declared, old = node.declared, node.object
    spec = NodeSpec(
        region=declared.region,
        zone=declared.zone,
        pool=declared.pool,
        allocatable=declared.allocatable,
        max_slots=declared.max_slots,
        devices=declared.devices,
        address=declared.address,
        hourly_cost_millis=declared.hourly_cost_millis,
    )
    if old is None:
        return NodeObject(metadata=Metadata(name=declared.name, labels=declared.labels), spec=spec)
    own = {name: getattr(spec, name) for name in ("allocatable", "max_slots", "devices", "address")}
    spec = msgspec.structs.replace(old.spec, **own)
    return None if spec == old.spec else NodeObject(metadata=old.metadata, spec=spec)
