"""The cheapest changes after which a waiting slot has a place: each is tried on a copy of its region; only what works is told.

Owns which changes are worth trying, and their order: waiting, then opening what is closed, then quota, a rule, a smaller ask, a
node. Never decides whether one works: the production cycle proposes and the production judges rule, on the copy, which is put
back after each try. Called by planner.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from msgspec.structs import replace

from fairlead.authority.judge import judge
from fairlead.authority.state import Rec
from fairlead.client.plane import Plane
from fairlead.client.planning import Unblocked
from fairlead.decide.grants import limits_of
from fairlead.decide.overrides import all_in_force
from fairlead.model import codec
from fairlead.model.commands import Refused
from fairlead.model.kinds.capacity import Grant, GrantSpec, Node
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.planning.asks import smaller, without_rules
from fairlead.planning.copied import Copy
from fairlead.planning.placing import Placer
from fairlead.planning.words import amounts_text, shape_text
from fairlead.ports import Clock, Random

SHAPES_MAX: Final = 8  # kinds of nodes tried, the cheapest first
NEW_NODE: Final = "plan-new-node"

Fact = tuple[str, str, str, Any]  # kind, tenant, name, and the object as it would be; None: gone


class Idea(NamedTuple):
    change: str
    command: str
    facts: tuple[Fact, ...]
    about: str = ""  # a kind that not everybody may see


class Unblocking:
    def __init__(
        self, copy: Copy, clock: Clock, random: Random, tenant: str, slot: str, hidden: frozenset[str] = frozenset()
    ) -> None:
        """`hidden`: kinds that the asker may not see; what is about them is not tried, or it would crowd out what can be told."""
        self._copy = copy
        self._hidden = hidden
        self._key = (tenant, slot)
        self._placer = Placer(copy, cast(Plane, copy), clock, random)
        self.found: list[Unblocked] = []

    def tries(self, limit: int) -> Iterator[None]:
        """One idea after the other, until enough of them work."""
        yield from self._placer.look_around()
        item = self._placer.item_of(*self._key)
        if item is None or self._try(()):
            return  # nobody waits, or it would find a place as things are: there is nothing to change
        yield
        for idea in self._ideas(item.request):
            if idea.about in self._hidden:
                continue
            node = self._try(idea.facts)
            yield
            if node:
                shown = node if node != NEW_NODE else ""
                self.found.append(Unblocked(idea.change, idea.command, shown, idea.about))
                if len(self.found) >= limit:
                    return

    # --- one try -----------------------------------------------------------------------------------------------------------

    def _try(self, facts: Iterable[Fact]) -> str:
        """The node it would be bound to if these were so; empty: none. Afterwards everything is as it was."""
        state, placer = self._copy.state, self._placer
        at = state.position
        applied = [
            state.apply(plural, tenant, name, codec.encode(made) if made is not None else None)
            for plural, tenant, name, made in facts
        ]
        for rec in applied:
            if rec.plural == "nodes" and rec.raw is not None:
                self._copy.hear(rec.name, rec.hot)
        placer.told(applied)
        node = self._decided()
        state.undo_to(at)
        placer.told([self._as_it_is(rec) for rec in reversed(applied)])
        return node

    def _as_it_is(self, rec: Rec) -> Rec:
        return self._copy.state.get(rec.plural, rec.tenant, rec.name) or Rec(rec.plural, rec.tenant, rec.name, rec.position, None)

    def _decided(self) -> str:
        """Proposed by the cycle, and ruled on by the judge."""
        item = self._placer.item_of(*self._key)
        if item is None:
            return ""
        with self._placer.proposed(item) as (command, nodes):
            if command is None:
                return ""
            judged = judge(self._copy.ctx, command)
            ruled = not isinstance(judged, Refused) and not judged.refused
            return nodes.get(self._key[1], "") if ruled else ""

    # --- what is worth trying ----------------------------------------------------------------------------------------------

    def _ideas(self, request: SchedulingRequest) -> Iterator[Idea]:
        yield from self._waiting()
        yield from self._opening(request)
        quota = self._quota(request)
        if quota is not None:
            yield quota
        asks = [*without_rules(request), *smaller(request, self._free(), self._left())]
        yield from (Idea(words, "", (self._asking(request, ask),)) for words, ask in asks)
        nodes = list(self._nodes())
        yield from nodes
        if quota is not None and not self.found:  # both, where neither alone was enough
            yield from (Idea(f"{quota.change}, and {idea.change}", "", (*quota.facts, *idea.facts), idea.about) for idea in nodes)

    def _asking(self, request: SchedulingRequest, ask: Any) -> Fact:
        return "schedulingrequests", *self._key, replace(request, spec=replace(request.spec, ask=ask))

    def _waiting(self) -> Iterator[Idea]:
        leaving = [rec for rec in self._copy.state.live("bindings") if rec.hot.state is SlotState.DRAINING]
        if leaving:
            mine = leaving[0].tenant == self._key[0]  # the names of others' slots are not told
            one = f"{leaving[0].name}, which is" if mine else "a slot that is"
            count = f"{len(leaving)} slots that are" if len(leaving) > 1 else one
            yield Idea(f"wait for {count} leaving", "", tuple(("bindings", r.tenant, r.name, None) for r in leaving))

    def _opening(self, request: SchedulingRequest) -> Iterator[Idea]:
        """What somebody has closed, and can open again."""
        state, now_ms = self._copy.state, self._copy.now_ms
        overrides: list[Override] = [rec.hot for rec in state.live("overrides")]
        for kind in ("hold", "zone-avoidance"):
            for one in all_in_force(overrides, kind, now_ms):
                meta = one.metadata
                end = f"fairlead override revoke {meta.name} -n {meta.namespace}"
                gone: Fact = ("overrides", meta.namespace, meta.name, None)
                yield Idea(f"end the override {meta.name} ({kind})", end, (gone,), "overrides")
        closed = [rec.hot for rec in state.live("nodes") if rec.hot.spec.unschedulable and rec.hot.status.health == "Ready"]
        if not closed:
            return
        opened = {node.metadata.name: self._opened(node) for node in closed}
        best = self._try(opened.values())  # all of them together say which one it would take
        if best in opened:
            yield Idea(f"uncordon node {best}", f"fairlead uncordon {best}", (opened[best],), "nodes")

    @staticmethod
    def _opened(node: Node) -> Fact:
        return "nodes", "", node.metadata.name, replace(node, spec=replace(node.spec, unschedulable=False, drain=None))

    def _granted(self) -> tuple[Grant | None, Resources, Mapping[str, int]]:
        """The tenant's grant, how far it reaches now, and how much of it is used."""
        snapshot, tenant = self._placer.snapshot, self._key[0]
        grant: Grant | None = snapshot.grants.get(tenant)
        limit = snapshot.grants.limit(grant, snapshot.revision, snapshot.now_ms) if grant is not None else Resources(0, 0)
        return grant, limit, snapshot.used.get(tenant, {})

    def _left(self) -> Resources:
        _, limit, used = self._granted()
        return Resources(limit.cpu - used.get("cpu", 0), limit.memory - used.get("memory", 0))

    def _quota(self, request: SchedulingRequest) -> Idea | None:
        """As much more as this one slot is short of."""
        tenant, region = self._key[0], self._copy.name
        grant, limit, used = self._granted()
        charge, limits = request.spec.ask.requests.amounts(), limits_of(limit)
        short = {name: used.get(name, 0) + much - limits.get(name, 0) for name, much in charge.items() if much}
        short = {name: much for name, much in short.items() if much > 0}
        if not short:
            return None
        more = Resources(short.pop("cpu", 0), short.pop("memory", 0), short.items())
        spec = replace(_plain_grant(region, tenant, grant).spec, during=limit + more, after=limit + more)
        made = replace(_plain_grant(region, tenant, grant), spec=spec)
        words = f"add {amounts_text(more)} of quota for tenant {tenant} in {region}"
        return Idea(words, f"fairlead edit quota NAME -n {tenant}", (("grants", tenant, region, made),))

    def _nodes(self) -> Iterator[Idea]:
        """One more node, of a shape there is."""
        shapes: dict[tuple[Any, ...], Node] = {}
        for rec in self._copy.state.live("nodes"):
            node: Node = rec.hot
            if node.status.health == "Ready" and node.status.schedulable:
                spec = node.spec
                shapes.setdefault(
                    (spec.pool, spec.zone, spec.allocatable, spec.devices, tuple(sorted(node.metadata.labels.items()))), node
                )
        cheapest = sorted(shapes.values(), key=lambda n: (n.spec.hourly_cost_millis, n.spec.allocatable.cpu, n.metadata.name))
        for node in cheapest[:SHAPES_MAX]:
            meta = Metadata(name=NEW_NODE, labels=node.metadata.labels)
            made = replace(node, metadata=meta, spec=replace(node.spec, unschedulable=False, drain=None))
            yield Idea(f"add one node {shape_text(node)}", "", (("nodes", "", NEW_NODE, made),), "nodes")

    def _free(self) -> list[Resources]:
        """What is free on each node that takes work."""
        snapshot = self._placer.snapshot
        out = []
        for rec in self._copy.state.live("nodes"):
            node: Node = rec.hot
            if node.status.health == "Ready" and node.status.schedulable and not node.spec.unschedulable:
                row = snapshot.row(snapshot.row_of[rec.name])
                out.append(Resources(int(row.cpu_free), int(row.memory_free)))
        return out


def _plain_grant(region: str, tenant: str, grant: Grant | None) -> Grant:
    """A grant as if made by hand: with no lease to run out."""
    if grant is None:
        return Grant(metadata=Metadata(name=region, namespace=tenant), spec=GrantSpec(region=region, version=1))
    return replace(grant, spec=GrantSpec(region=region, version=grant.spec.version))
