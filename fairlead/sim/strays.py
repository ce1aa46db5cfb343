"""Owns what nobody in his right mind would send: proposals on stale grounds, steps by strangers, reports of lives that are over.

A production component sends such a thing once in a million seeds, by a race; here it is drawn, so that each guard of the
authority is asked again and again. Delivered to the leader behind its access rules, as a frame that was long under way. It must
refuse that: what it accepts must be right all the same, and the checkers look at it as at everything else. Called by chaos.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from fairlead.compose.plane import PlaneServer
from fairlead.model import codec
from fairlead.model.commands import (
    Accepted,
    Bind,
    Body,
    Caller,
    Command,
    Delete,
    Enqueue,
    Move,
    Outcome,
    Put,
    Refused,
    Report,
    Reserve,
)
from fairlead.model.ids import split_key
from fairlead.model.journal import decode_blob
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Binding, SchedulingRequest
from fairlead.model.lifecycle import LEASED_ROLES, STEPS, Role, SlotState
from fairlead.model.registry import GLOBAL
from fairlead.sim.born import TENANTS
from fairlead.sim.loop import Draws, sleep
from fairlead.sim.meddling import MEDDLING, Ground
from fairlead.sim.misplaced import RULES, kept_away, misplaced
from fairlead.sim.pictures import told_again
from fairlead.sim.platform import Plane, Platform
from fairlead.sim.spoilt import ACTOR, HELD_S, PLACEMENTS, TTL_S, older, quicker
from fairlead.store.contract import Batch

GROUNDS: Final = (
    "",
    "epoch",
    "generation",
    "policy",
    "grant",
    "lease",
    "",
)  # what a bind is wrong about; nothing: its node alone
STEPS_WRONG: Final = ("token", "stranger", "lease")
LOOKS, LOOK_S = 50, 0.01  # for half a second

_binding: Final = codec.decoder(Binding).decode

Objects = Mapping[str, Mapping[tuple[str, str], Any]]


class _Change(NamedTuple):
    """As fairlead/client/plane.py tells it."""

    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes
    hot: Any


def effects_of(batch: Batch) -> Iterator[tuple[int, str, bytes | None]]:
    position = batch.first - 1
    for entry in decode_blob(batch.blob).entries:
        for key, raw in entry.effects:
            position += 1
            yield position, key, raw


class Strays:
    def __init__(self, platform: Platform, objects: Callable[[str], Objects]) -> None:
        self._platform = platform
        self.objects = objects
        self.left_out: Callable[..., bool] = lambda strike="": False  # shrinking found this one to be needless
        self.healed: Callable[[], bool] = lambda: False
        self._asked: dict[tuple[str, str, str], SchedulingRequest] = {}  # requests that once waited
        self._before: dict[str, dict[tuple[str, str], SchedulingRequest]] = {}  # by region: as they were seen first
        self._spoilt: Counter[str] = Counter()  # proposals that were to be, by server: each is a strike of its own
        self._bound_in: dict[bytes, list[tuple[int, str, bytes, Binding]]] = {}  # by batch: whoever is told again is told of any

    async def strike(self, draws: Draws) -> None:
        kind, first, second, third, where = (draws.random() for _ in range(5))
        if self.left_out():
            return
        planes = [plane for plane in self._platform.planes.values() if plane.name != GLOBAL]
        plane = planes[int(where * len(planes))]
        objects = self.objects(plane.name)
        for (tenant, name), request in objects.get("schedulingrequests", {}).items():
            self._asked[plane.name, tenant, name] = request
        if kind < 0.5:
            self._bind(plane, objects, first, second, GROUNDS[int(third * len(GROUNDS))])
        elif kind < 0.6:
            self._evict(plane, objects, first, second)
        elif kind < 0.85:
            self._step(plane, objects, first, second, STEPS_WRONG[int(third * len(STEPS_WRONG))])
        elif kind < 0.95:
            await self._reserve(plane, objects, first, second)
        else:
            self._ask_again(plane, objects, first)

    async def misplace(self, draws: Draws) -> None:
        """A slot is asked for where it may not be, bound by whoever was as late, and withdrawn at once."""
        first, second, which, number, where = (draws.random() for _ in range(5))
        planes = [plane for plane in self._platform.planes.values() if plane.name != GLOBAL]
        plane = planes[int(where * len(planes))]
        objects, rule = self.objects(plane.name), RULES[int(which * len(RULES))]
        away = kept_away(objects, plane.name) if rule == "policy" else frozenset(TENANTS)
        request = _pick([r for (at, tenant, _), r in self._asked.items() if at == plane.name and tenant in away], first)
        caller, scheduler = caller_of(objects, Role.ASSIGNMENT), caller_of(objects, Role.SCHEDULER)
        if self.left_out() or request is None or caller is None or scheduler is None:
            return
        wrong = misplaced(request, rule, int(number * 100))
        named, bind = wrong.metadata, self._proposal_of(plane, objects, wrong, second)
        if bind is not None:
            asked, withdrawn = Enqueue(wrong), Delete("SchedulingRequest", named.namespace, named.name)
            self._send(plane, Command(caller, asked), Command(scheduler, bind), Command(caller, withdrawn))

    async def meddle(self, draws: Draws) -> None:
        """Commands that ask a single guard, each with what comes of it where that guard is out."""
        which, first, second, where = (draws.random() for _ in range(4))
        planes = [plane for plane in self._platform.planes.values() if plane.name != GLOBAL]
        plane = planes[int(where * len(planes))]
        objects, before = self.objects(plane.name), self._before.setdefault(plane.name, {})
        for slot, request in objects.get("schedulingrequests", {}).items():
            if not request.spec.gang:
                before.setdefault(slot, request)
        if self.left_out():
            return
        ground = Ground(
            objects, plane.name, before, lambda role: caller_of(objects, role),
            lambda request: self._proposal_of(plane, objects, request, second), self._stays,
        )  # fmt: skip
        meddling = MEDDLING[list(MEDDLING)[int(which * len(MEDDLING))]]
        for _ in range(LOOKS):  # what it is about may be there for some milliseconds at a time
            commands = meddling(ground, first)
            if commands:
                self._send(plane, *commands)
                return
            await sleep(LOOK_S)

    def _stays(self, request: SchedulingRequest) -> bool:
        """Its workload is there, and nobody has asked for its end."""
        workload = self.objects(GLOBAL).get("workloads", {}).get((request.metadata.namespace, request.spec.slot.workload))
        return workload is not None and workload.metadata.deletion_time is None

    def spoil(self, plane: Plane, server: PlaneServer) -> None:
        """From now on some proposals of this server's schedulers arrive as if they had been decided on something older, or just
        after another scheduler's, who was quicker."""
        chance = self._platform.scenario.faults.spoil
        name = server.config.name
        authority, draws = server.authority, self._platform.loop.stream(f"spoil {name}")
        submit = authority.submit

        async def spoiled(commands: list[Command]) -> list[Outcome]:
            drawn = [(draws.random(), draws.random(), draws.random()) for _ in commands]
            if self.healed():
                return await submit(commands)
            hits = any(hit < chance for hit, _, _ in drawn)
            nodes = sorted(name for _, name in self.objects(plane.name).get("nodes", {})) if hits else []
            sent: list[Command] = []
            own: list[int] = []  # where this server's commands are among them
            for command, (hit, which, at) in zip(commands, drawn, strict=True):
                spoils = hit < chance and bool(nodes) and self._spoils(name, command)
                rival = quicker(command, which, at) if spoils else None
                if rival is not None:
                    sent.append(rival)
                    self._send_late(plane, rival)
                elif spoils:
                    command = replace(command, body=older(command.body, which, at, nodes))
                own.append(len(sent))
                sent.append(command)
            outcomes = await submit(sent)
            return [outcomes[index] for index in own]

        if self._platform.scenario.faults.stale_event:
            told_again(server, self._platform.loop.stream(f"pictures {server.config.name}"), self._platform.machines.counts)
        if chance and plane.name != GLOBAL:
            setattr(authority, "submit", spoiled)  # noqa: B010  of this one server's authority alone

    def _spoils(self, server: str, command: Command) -> bool:
        if not isinstance(command.body, PLACEMENTS):
            return False
        self._spoilt[server] += 1
        return not self.left_out(f"spoil:{server}:{self._spoilt[server]}")

    async def tell_again(self, draws: Draws) -> None:
        """An agent hears of a binding under a token below one it knows: a server that was far behind, or a packet that was."""
        at, which = draws.random(), draws.random()
        agents = [agent for agent in self._platform.agents.values() if agent.program.alive]
        agent = _pick(agents, at)
        if self.left_out() or agent is None or agent.program.running.paused or agent.program.name not in self._platform.hosts:
            return
        host, node = self._platform.hosts[agent.program.name], agent.node.name
        remembered, bound = host.nodes[node].remembered, host.nodes[node].bound
        over = []
        for entry in self._platform.planes[agent.node.region].store.disk.journal:
            for position, key, raw, binding in self._bindings_of(entry.batch):
                slot = (binding.metadata.namespace, binding.metadata.name)
                highest, state = remembered.highest(*slot), binding.status.state
                over_here = binding.spec.node == node and state in _EVICTABLE and slot not in bound
                if over_here and highest is not None and binding.spec.token < highest:
                    over.append(_Change("bindings", *split_key(key)[1:], position, raw, binding.spec))
        change = _pick(over, which)
        if change is not None:
            self._platform.machines.counts["stale_events"] += 1
            self._platform.loop.soon(agent.program.running, host._saw, change)

    def _bindings_of(self, batch: Batch) -> list[tuple[int, str, bytes, Binding]]:
        found = self._bound_in.get(batch.hash)
        if found is None:
            found = self._bound_in[batch.hash] = [
                (position, key, raw, _binding(raw))
                for position, key, raw in effects_of(batch)
                if raw is not None and key.startswith("bindings/")
            ]
        return found

    # --- what is sent ------------------------------------------------------------------------------------------------------

    def _bind(self, plane: Plane, objects: Objects, first: float, second: float, wrong: str) -> None:
        found = self._proposal(plane, objects, first, second)
        caller = caller_of(objects, Role.SCHEDULER) if wrong != "lease" else unleased(objects, Role.SCHEDULER, second)
        if found is None or caller is None:
            return
        changes = {
            "epoch": {"epoch": found.epoch - 1},
            "generation": {"generation": found.generation - 1},
            "policy": {"policy_revision": found.policy_revision % 3 + 1},
            "grant": {"grant_version": found.grant_version + 1},
        }.get(wrong, {})
        self._send(plane, Command(caller, replace(found, **changes)))

    def _evict(self, plane: Plane, objects: Objects, first: float, second: float) -> None:
        """A claim on somebody who may well be of higher rank, or whose leaving breaks a budget."""
        found, caller = self._proposal(plane, objects, first, second), caller_of(objects, Role.SCHEDULER)
        if found is None or caller is None:
            return
        there = [b for b in objects.get("bindings", {}).values() if b.spec.node == found.node and b.status.state in _EVICTABLE]
        if there:
            victim = there[int(second * 7919 * len(there)) % len(there)]
            self._send(plane, Command(caller, replace(found, victims=(f"{victim.metadata.namespace}/{victim.metadata.name}",))))

    def _step(self, plane: Plane, objects: Objects, first: float, second: float, wrong: str) -> None:
        binding: Binding | None = _pick(list(objects.get("bindings", {}).values()), first)
        if binding is None:
            return
        before, token, node = binding.status.state, binding.spec.token, binding.spec.node
        edge = _pick(
            [(to, step.owner) for (source, to), step in STEPS.items() if source is before and to is not _PENDING], second
        )
        if edge is None:
            return
        to, role = edge
        if wrong == "stranger":
            role = _pick([other for other in sorted(LEASED_ROLES, key=lambda r: r.value) if other is not role], first) or role
        if wrong == "token":
            token = earlier(token)
        tenant, name = binding.metadata.namespace, binding.metadata.name
        if role is Role.AGENT:
            body: Body = Report(tenant, name, token, to)
            caller: Caller | None = Caller(ACTOR, role, node=node if wrong == "token" else "elsewhere")
        else:
            body = Move(tenant, name, token, to, "stray")
            caller = caller_of(objects, role) if wrong != "lease" else unleased(objects, role, second)
        if caller is not None:
            self._send(plane, Command(caller, body))

    async def _reserve(self, plane: Plane, objects: Objects, first: float, second: float) -> None:
        """A reservation, a binding by somebody else while it stands, and one that names it when it is over."""
        found, caller = self._proposal(plane, objects, first, second), caller_of(objects, Role.SCHEDULER)
        if found is None or caller is None:
            return
        terms = (found.tenant, found.name, found.epoch, found.generation, found.node, found.policy_revision, found.grant_version)
        if second * 31 % 1 < 0.4:
            self._send(plane, Command(caller, Reserve(*terms, HELD_S)))
            self._platform.loop.spawn(None, self._bind_too_late(plane, caller, found), "stray that reserved")
            return
        self._send(plane, Command(caller, Reserve(*terms, TTL_S)))
        await sleep(0.01)
        self._send(plane, Command(replace(caller, actor=f"another {ACTOR}"), found))
        for late_s in (TTL_S + 0.05, 0.1, 0.1, 0.1):  # expired ones are cleared away every half a second
            await sleep(late_s)
            self._send(plane, Command(caller, found))

    async def _bind_too_late(self, plane: Plane, caller: Caller, found: Bind) -> None:
        """What it has reserved, once the node is not what it was; else just before it runs out."""
        for _ in range(int(HELD_S) - 1):
            await sleep(1.0)
            node = self.objects(plane.name).get("nodes", {}).get(("", found.node))
            if node is None or not node.status.schedulable or node.status.health != "Ready":
                break
        if not self.healed():
            self._send(plane, Command(caller, found))

    def _send_late(self, plane: Plane, rival: Command) -> None:
        """Whoever reserved and was slow then binds what it holds no longer: before it is cleared away, with some luck."""
        body = rival.body
        assert isinstance(body, Reserve)
        terms = (body.tenant, body.name, body.epoch, body.generation, body.node, body.policy_revision, body.grant_version)
        if body.ttl_s > TTL_S:
            self._platform.loop.spawn(None, self._bind_too_late(plane, rival.caller, Bind(*terms)), "stray that reserved")
            return
        self._send(plane, Command(rival.caller, Bind(*terms)), late_s=TTL_S + 0.05)

    def _ask_again(self, plane: Plane, objects: Objects, first: float) -> None:
        """The request of a slot that is bound by now."""
        bound = objects.get("bindings", {})
        known = [r for (where, tenant, name), r in self._asked.items() if where == plane.name and (tenant, name) in bound]
        request, caller = _pick(known, first), caller_of(objects, Role.ASSIGNMENT)
        if request is not None and caller is not None:
            self._send(
                plane, Command(caller, Put("SchedulingRequest", replace(request, status=type(request.status)()), "create"))
            )

    # --- parts -------------------------------------------------------------------------------------------------------------

    def _proposal(self, plane: Plane, objects: Objects, first: float, second: float) -> Bind | None:
        """Right in everything but perhaps its node."""
        request: SchedulingRequest | None = _pick(list(objects.get("schedulingrequests", {}).values()), first)
        return self._proposal_of(plane, objects, request, second) if request is not None else None

    def _proposal_of(self, plane: Plane, objects: Objects, request: SchedulingRequest, second: float) -> Bind | None:
        node = _pick(list(objects.get("nodes", {}).values()), second)
        channel = objects.get("policychannels", {}).get(("", "default"))
        if node is None or request.spec.gang:
            return None
        tenant = request.metadata.namespace
        grant = objects.get("grants", {}).get((tenant, plane.name))
        version = (grant.status.accepted_version or grant.spec.version) if grant is not None else 0
        revision = channel.spec.current if channel is not None else 0
        spec = request.spec
        return Bind(tenant, request.metadata.name, spec.epoch, spec.generation, node.metadata.name, revision, version)

    def _send(self, plane: Plane, *commands: Command, late_s: float = 0.0) -> None:
        leaders = plane.leaders()
        program = next((p for p in plane.servers if leaders and p.name == leaders[0].config.name), None)
        if program is None or program.running is None:
            return
        authority, counts = leaders[0].authority, self._platform.machines.counts

        async def arrive() -> None:
            if late_s:
                await sleep(late_s)
            if late_s and self.healed():
                return
            for outcome in await authority.submit([*commands]):
                counts["strays_accepted"] += isinstance(outcome, Accepted)
                if isinstance(outcome, Refused):
                    counts[f"stray_{outcome.reason}"] += 1

        self._platform.loop.spawn(program.running, arrive(), "stray")


_PENDING: Final = SlotState.PENDING
_EVICTABLE: Final = (SlotState.BOUND, SlotState.STARTING, SlotState.READY, SlotState.SERVING)


def caller_of(objects: Objects, role: Role, epochs: int = 0) -> Caller | None:
    """Somebody of that role, under the lease as it is now, or as it was `epochs` ago."""
    for (_, name), lease in sorted(objects.get("leases", {}).items()):
        if lease.spec.role == role.value:
            return Caller(ACTOR, role, lease=name, fencing_epoch=lease.spec.epoch + epochs)
    return None


def unleased(objects: Objects, role: Role, at: float) -> Caller | None:
    """The same under the lease as it was once, or under another role's."""
    fine = at * 7919 % 1
    if fine < 0.5:
        return caller_of(objects, role, -1)
    others = [(name, lease) for (_, name), lease in sorted(objects.get("leases", {}).items()) if lease.spec.role != role.value]
    name, lease = _pick(others, fine * 2 - 1) or ("", None)
    return Caller(ACTOR, role, lease=name, fencing_epoch=lease.spec.epoch) if lease is not None else None


def earlier(token: Token) -> Token:
    """One that is not the slot's own any more."""
    return replace(token, attempt=token.attempt - 1) if token.attempt > 1 else replace(token, epoch=token.epoch - 1)


def _pick(options: Sequence[Any], at: float) -> Any:
    return options[int(at * len(options))] if options else None
